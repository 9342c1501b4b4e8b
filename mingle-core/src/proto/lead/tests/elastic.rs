//! A leader of a world that may have one of several sizes: when its last call is over.

use super::{Leader, announced_by, ms, ready, said, to};
use crate::model::WorldSize;
use crate::proto::timer::Time;
use crate::proto::{Config, Event, Output};
use crate::wire::{Refusal, Said};

const CALL: Time = Time::from_secs(15);

fn elastic(world: &str, members: &[u8]) -> Leader {
    elastic_of(world, members, |_| {})
}

fn elastic_of(world: &str, members: &[u8], change: impl FnOnce(&mut Config)) -> Leader {
    let size: WorldSize = world.parse().unwrap();
    let mut leader = Leader::of(2, |config| {
        config.world = size;
        change(config);
    });
    for &member in members {
        leader.join(member, |_| {});
    }
    leader
}

/// The sizes of the world in all prepares.
fn sizes(outputs: &[Output]) -> Vec<u32> {
    let prepares = said(outputs).into_iter().filter_map(|(_, said)| match said {
        Said::Prepare(prepare) => Some(prepare.world),
        _ => None,
    });
    prepares.collect()
}

/// The time of the first prepare until then, to the millisecond, and the size of its world.
fn prepares(leader: &mut Leader, until: Time) -> Option<(Time, u32)> {
    while leader.now < until {
        let outputs = leader.run(leader.now + ms(1));
        if let Some(&size) = sizes(&outputs).first() {
            return Some((leader.now, size));
        }
    }
    None
}

fn is_closing(said: &Said) -> bool {
    *said == Said::Refuse(Refusal::Closing)
}

fn is_full(said: &Said) -> bool {
    *said == Said::Refuse(Refusal::WorldFull)
}

#[test]
fn a_world_forms_at_once_when_the_most_are_here() {
    let mut leader = elastic("2:4", &[2, 3]);
    assert_eq!(sizes(&leader.join(4, |_| {})), [4; 3]);
}

#[test]
fn each_node_that_joins_extends_the_call_four_times_as_long_at_most() {
    let mut leader = elastic("2:20", &[2]);
    for (member, at) in (3..7).zip([14, 28, 42, 56]) {
        assert_eq!(prepares(&mut leader, Time::from_secs(at)), None);
        leader.join(member, |_| {});
    }
    assert_eq!(prepares(&mut leader, Time::from_secs(80)), Some((CALL * 4, 6)));
}

#[test]
fn a_candidate_that_is_heard_delays_the_end_of_the_call_by_five_seconds() {
    for (world, delays) in [("3:4", true), ("4", false)] {
        let mut leader = elastic("3:4", &[2, 3]);
        leader.run(Time::from_secs(12));
        leader.hear_announce(7, &announced_by(7, false, world.parse().unwrap()));
        let end = Time::from_secs(if delays { 17 } else { 15 });
        assert_eq!(prepares(&mut leader, Time::from_secs(30)), Some((end, 3)), "{world}");
    }
}

#[test]
fn a_void_keeps_a_call_that_is_over_and_who_came_meanwhile_is_seated_first() {
    let mut leader = elastic("3:6", &[2, 3, 4]);
    assert_eq!(prepares(&mut leader, Time::from_secs(20)), Some((CALL, 4)));
    for late in [5, 6] {
        leader.join(late, |_| {});
    }
    assert_eq!(sizes(&leader.close(4)), [5; 4]);
    let gone = |leader: &mut Leader, member: u8| sizes(&leader.close(member));
    assert_eq!((gone(&mut leader, 2), gone(&mut leader, 3)), (vec![4; 3], vec![3; 2]));
    assert!(gone(&mut leader, 5).is_empty());
}

#[test]
fn a_call_that_is_over_stays_over_where_a_node_that_waits_takes_the_place_of_a_member_that_leaves() {
    let mut leader = elastic("3:4", &[2, 3]);
    assert_eq!(prepares(&mut leader, Time::from_secs(20)), Some((CALL, 3)));
    let counts = |said: &Said| matches!(said, Said::Welcome(welcome) if welcome.count.joined == 3);
    assert_eq!(to(&leader.join(4, |_| {}), 4, counts), 1, "a round is under way: it gets no seat");
    assert_eq!(sizes(&leader.close(3)), [3; 2]);
}

#[test]
fn a_call_begins_afresh_when_too_few_nodes_were_left() {
    let mut leader = elastic("3:4", &[2, 3]);
    leader.run(Time::from_secs(10));
    leader.close(3);
    leader.join(5, |_| {});
    assert_eq!(prepares(&mut leader, Time::from_secs(40)), Some((Time::from_secs(25), 3)));
}

#[test]
fn the_call_ends_before_the_leaders_time_is_up() {
    for (members, seconds, ends) in
        [(&[2, 3][..], 13, Some((ms(12_000), 3))), (&[2, 3], 4, Some((ms(3500), 3))), (&[2], 13, None)]
    {
        let mut leader = elastic_of("3:5", members, |config| config.timeout = Some(Time::from_secs(seconds)));
        assert_eq!(prepares(&mut leader, Time::from_secs(30)), ends, "{seconds} s");
    }
}

#[test]
fn a_world_of_one_forms_when_the_call_of_its_only_node_is_over() {
    let mut leader = elastic("1:4", &[]);
    let early = leader.run(ms(14_999));
    assert!(!early.iter().any(|output| matches!(output, Output::Event(Event::Formed(_)))));
    let outputs = leader.run(CALL);
    let formed = outputs.iter().find_map(|output| match output {
        Output::Event(Event::Formed(formed)) => Some(formed),
        _ => None,
    });
    let formed = formed.expect("a world has formed");
    assert_eq!((formed.world.get(), formed.asked.to_string()), (1, "1:4".to_owned()));
}

#[test]
fn latecomers_of_a_world_with_free_seats_are_told_that_its_leader_closes() {
    let mut leader = elastic("2:4", &[2]);
    assert_eq!(prepares(&mut leader, Time::from_secs(20)), Some((CALL, 2)));
    leader.join(3, |_| {});
    leader.hear(2, &ready());
    let outputs = leader.run(leader.now + ms(50));
    assert!(to(&outputs, 3, is_closing) > 0);
    assert_eq!(to(&outputs, 3, is_full), 0);
}
