//! The end of a node: its deadline and the report of it, and a world that runs without the node.

use std::time::Duration;

use super::{
    LEADER, announce, candidate, close, commit, commits, config, deadline, hand, has_formed, hear,
    hear_datagram, hear_from, here, is_ready, join, joined, patient, ready, rounds, running, said, says,
};
use crate::model::{HostName, Misfit, Peer};
use crate::proto::tests::{Hand, endpoint, id};
use crate::proto::timer::Time;
use crate::proto::{Cause, Config, Event, Failed, Order, Output, Tried, Warning};
use crate::wire::{Candidate, Refusal, Said, Trouble, Welcome};

#[test]
fn a_node_that_has_ended_does_nothing() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Said::Prepare(prepare));
    assert!(has_formed(&hear(&mut node, &commit(1))));
    node.handle_departure(Time::ZERO);
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), crate::wire::Reach::default());
    node.handle_seeds(Time::ZERO, vec![endpoint(3)]);
    node.handle_timeout(Time::from_secs(99));
    assert_eq!(node.outputs(), []);
    assert_eq!(node.handle_asked(Time::from_secs(99), id(9), id(2)), None);
}

#[test]
fn a_node_out_of_time_says_that_its_leader_is_out_of_reach_only_after_a_while_and_a_member_never() {
    for (joins, ms, is_unreached) in [(true, 1500, false), (false, 1500, true), (false, 500, false)] {
        let config = Config { timeout: Some(Duration::from_millis(ms)), ..config(3) };
        let mut node = if joins { joined(config).0 } else { hand(config) };
        if !joins {
            hear_datagram(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            hear_datagram(&mut node, 1, &announce(candidate(LEADER, 1, false)));
        }
        let all = node.run(Time::from_secs(2));
        let report = deadline(&all);
        assert_eq!(report.unreached.is_some(), is_unreached, "{report:?}");
    }
}

#[test]
fn a_late_member_names_at_its_deadline_who_is_apart_as_its_leader_has_said_by_its_first_welcome() {
    let mut node = hand(Config { timeout: Some(Duration::from_secs(1)), ..config(3) });
    let mut all = node.outputs();
    let leader = Candidate { world: node.shared.config.world, ..candidate(LEADER, 1, false) };
    all.extend(hear_datagram(&mut node, 1, &announce(leader)));
    node.open(Time::ZERO, 1, &all);
    let at = |host: &str, last| Peer { host: HostName::new(host), address: endpoint(last) };
    let trouble = Some(Trouble::Misfit(Misfit::apart(at("host-9", 9), at("host-1", 1))));
    hear(&mut node, &Said::Welcome(Welcome { count: here(2), trouble, void: 0 }));
    let all = node.run(Time::from_secs(1));
    assert_eq!(deadline(&all).cause(), Cause::Apart);
}

#[test]
fn a_node_whose_leader_never_answered_names_it_at_the_deadline_but_not_where_its_host_refuses() {
    for refuses in [false, true] {
        let mut node = hand(Config { timeout: Some(Duration::from_secs(3)), ..config(2) });
        node.outputs();
        let heard = super::to_all(LEADER, &announce(candidate(LEADER, 1, true)));
        node.handle_datagram(Time::ZERO, endpoint(1), &heard);
        let (mut all, mut dials) = (Vec::new(), 0);
        for tenth in 0..=30 {
            let outputs = node.run(Time::from_millis(100 * tenth));
            for output in outputs.iter().filter(|_| refuses) {
                if let Output::Carry(Order::Dial { peer: LEADER, dial, .. }) = output {
                    dials += 1;
                    node.handle_dial_failed(Time::from_millis(100 * tenth), LEADER, *dial, Failed::Refused);
                }
            }
            all.extend(outputs);
        }
        let report = deadline(&all);
        assert_eq!(report.unanswered.is_none(), refuses, "{report:?}");
        assert_eq!(dials > 0, refuses);
        let ranks: Vec<_> = report.heard.iter().map(|heard| (heard.address, heard.rank)).collect();
        assert_eq!(ranks, [(Some(endpoint(1)), Some(0))]);
    }
}

/// Node 2 of a world of one of these sizes, after 50 ms in which it has announced itself.
fn of_a_range(world: &str) -> Hand {
    let world = world.parse().unwrap();
    let mut node = hand(Config { world, ..patient(4) });
    node.run(Time::from_millis(50));
    node
}

#[test]
fn what_a_node_says_while_it_waits_is_of_those_who_are_here_and_changes_no_later_report() {
    let told = |outputs: &[Output]| {
        let warnings = outputs.iter().filter_map(|output| match output {
            Output::Event(Event::Warning(Warning::Waiting { report, .. })) => Some(report.joined),
            _ => None,
        });
        warnings.collect::<Vec<u32>>()
    };
    // The fewest are here when it speaks, or not; then one leaves.
    for (world, waits) in [("2:4", vec![]), ("3:4", vec![2])] {
        let world = world.parse().unwrap();
        let last_call = Duration::from_secs(60);
        let timeout = Some(Duration::from_secs(30));
        let mut node = hand(Config { world, timeout, last_call, ..config(4) });
        node.run(Time::from_millis(50));
        for member in [3, 4] {
            join(&mut node, member);
        }
        node.run(Time::from_secs(1));
        close(&mut node, 4);
        assert_eq!(node.lead.book.seated, 2);
        node.run(Time::from_secs(15));
        node.handle_wait(Time::from_secs(15), Duration::from_secs(15), Tried::Multicast, Vec::new(), false);
        assert_eq!(told(&node.outputs()), waits, "{world}");
        node.run(Time::from_secs(16));
        close(&mut node, 3);
        let all = node.run(Time::from_secs(31));
        assert_eq!(deadline(&all).cause(), Cause::Incomplete, "{world}");
    }
}

#[test]
fn a_node_that_is_alone_in_a_world_of_one_to_many_says_so_while_its_call_goes_on() {
    let world = "1:4".parse().unwrap();
    let mut node = hand(Config { world, last_call: Duration::from_secs(60), ..patient(4) });
    node.run(Time::from_secs(15));
    node.handle_wait(Time::from_secs(15), Duration::from_secs(15), Tried::Multicast, Vec::new(), false);
    let outputs = node.outputs();
    let [Output::Event(Event::Warning(Warning::Waiting { report, .. }))] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(report.cause(), Cause::NobodyHeard);
}

#[test]
fn a_node_that_stands_by_forms_no_second_world_once_it_knows_that_one_has_formed() {
    let stands_by = || Config { stands_by: true, ..patient(2) };
    // It leads a round when it learns that, or was a standby of the leader.
    let mut leads = hand(stands_by());
    leads.run(Time::from_millis(1));
    join(&mut leads, 3);
    assert!(leads.lead.is_proving());
    leads.mute.insert(3);
    let told = hear_datagram(&mut leads, 9, &running());
    let heard = said(&told);
    let is_void = matches!(
        heard[..],
        [(3, Said::Welcome(Welcome { void: 1, .. })), (3, Said::Refuse(Refusal::Closing))]
    );
    assert!(is_void, "{told:?}");
    // Its member has not read that: what the member says changes nothing, and the node stays for a second.
    let told = join(&mut leads, 3);
    assert!(!leads.lead.is_proving(), "{told:?}");
    hear_datagram(&mut leads, 9, &running());
    assert!(leads.runs().is_none());
    let (mut standby, _) = joined(stands_by());
    hear(&mut standby, &Said::Refuse(Refusal::WorldFull));
    for node in [&mut leads, &mut standby] {
        assert!(node.runs().is_none() && !node.is_bound());
        // It asks, and joins nobody, until it hears where to wait.
        hear_datagram(node, 7, &announce(candidate(id(7), 7, true)));
        assert!(node.follow.is_none() && !node.leads());
        node.run(Time::from_millis(1200));
        hear_datagram(node, 9, &running());
        assert_eq!(node.runs().map(|leader| leader.id), Some(LEADER));
    }
}

#[test]
fn a_node_that_leads_again_after_it_stood_aside_forms_its_world_when_the_call_is_over() {
    let mut node = of_a_range("1:4");
    hear_datagram(&mut node, 9, &running());
    node.run(Time::from_secs(20));
    assert!(!node.leads());
    let early = node.run(Time::from_secs(44));
    assert!(node.leads() && !has_formed(&early), "{early:?}");
    assert!(has_formed(&node.run(Time::from_secs(46))));
}

#[test]
fn a_node_stands_aside_until_nobody_has_said_for_30_seconds_that_the_world_runs() {
    let mut node = of_a_range("3:4");
    // It has had a member by then.
    let told = join(&mut node, 3);
    assert!(says(&told, |said| matches!(said, Said::Welcome(_))));
    assert_eq!(node.lead.book.seated, 2);
    for second in [1, 20, 40] {
        node.run(Time::from_secs(second));
        let outputs = hear_datagram(&mut node, 9, &running());
        let warns =
            matches!(outputs[..], [Output::Event(Event::Warning(Warning::AlreadyRunning { .. })), ..]);
        assert_eq!(warns, second == 1, "{outputs:?}");
        let dismissed = (3, Said::Refuse(Refusal::Closing));
        assert_eq!(said(&outputs).contains(&dismissed), second == 1, "{outputs:?}");
        assert!(!node.leads() && node.lead.book.seated == 1);
    }
    node.run(Time::from_millis(69_900));
    assert!(!node.leads(), "30 s after the last");
    let outputs = node.run(Time::from_millis(70_100));
    assert!(node.leads() && outputs.contains(&Output::Event(Event::Leading)), "{outputs:?}");
}

#[test]
fn a_node_of_a_large_world_that_stood_aside_listens_before_it_announces_itself() {
    let mut node = of_a_range("3:1000");
    hear_datagram(&mut node, 9, &running());
    let is_leading = |outputs: &[Output]| outputs.contains(&Output::Event(Event::Leading));
    let aside = node.run(Time::from_millis(30_050));
    assert!(node.leads() && !is_leading(&aside), "{aside:?}");
    assert!(is_leading(&node.run(Time::from_millis(30_071))));
}

#[test]
fn nobody_can_say_to_a_leader_in_a_round_that_the_world_runs() {
    let mut node = of_a_range("2:2");
    assert_eq!(rounds(&join(&mut node, 3)), [1]);
    let told = hear_datagram(&mut node, 9, &running());
    assert!(node.lead.is_proving() && said(&told).is_empty(), "{told:?}");
    hear_from(&mut node, 3, &ready(1));
    let now = node.shared.now;
    assert!(commits(&node.run(now)));
}

#[test]
fn a_follower_that_stands_aside_has_not_led_and_so_does_not_step_down() {
    for follows in [true, false] {
        let mut node = of_a_range("3:4");
        if follows {
            hear_datagram(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            assert!(!node.leads());
        }
        let told = hear_datagram(&mut node, 9, &running());
        assert_eq!(told.contains(&Output::Event(Event::SteppedDown)), !follows, "{told:?}");
        assert!(node.follow.is_none() && !node.leads());
    }
}

#[test]
fn a_node_that_stays_goes_where_the_job_runs_unless_it_is_in_a_round() {
    let mut node = hand(Config { stands_by: true, ..patient(2) });
    assert_eq!(node.runs(), None);
    hear_datagram(&mut node, 9, &running());
    assert_eq!(node.runs().map(|leader| leader.id), Some(LEADER));
    let (mut node, prepare) = joined(Config { stands_by: true, ..patient(2) });
    assert!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready));
    hear_datagram(&mut node, 9, &running());
    assert_eq!(node.runs(), None);
}
