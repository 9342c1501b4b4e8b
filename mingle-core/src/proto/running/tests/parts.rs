//! Looking for members, notifying them, and releasing them: each limit, and who counts.

use std::net::SocketAddr;

use super::{
    SIZE, a_newcomer_asks, address, answer, config, hear, id, over, releasing, run, running, running_of,
    sent, tag,
};
use crate::model::{End, Lineage, NodeId, Rank};
use crate::proto::running::{Change, RunningWorld};
use crate::proto::{Output, Time};
use crate::wire::{Codec, Header, Message, Running, Solicit};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn solicit() -> Message {
    Message::Solicit(Solicit { rank: None, host: config(8).node.host })
}

/// This node sends a message, to this recipient and from this address.
fn hear_to(running: &mut RunningWorld, from: u8, source: SocketAddr, to: NodeId, message: &Message) {
    let header = Header { sender: id(from), recipient: to, lineage: running.lineage() };
    let datagram = Codec::new(tag(), None).encode(header, message);
    let now = running.context.now();
    running.handle_datagram(now, source, &datagram);
}

fn changes(running: &mut RunningWorld) -> Vec<Change> {
    std::iter::from_fn(|| running.poll_change()).collect()
}

/// Node 251, which is no member of any of these worlds, asks all who leads.
fn ask(running: &mut RunningWorld, now: Time) {
    hear(running, now, 251, Lineage::default(), &solicit());
    running.handle_timeout(now);
}

/// When the node first pings anybody after a newcomer has asked at this time, if it does within five seconds.
fn looks_after(running: &mut RunningWorld, asked: Time) -> Option<Time> {
    run(running, asked);
    ask(running, asked);
    let mut looks = None;
    if sent(running).iter().any(|(_, message)| *message == Message::Ping) {
        looks = Some(ms(0));
        answer(running, asked, 1..=250);
    }
    while let Some(due) = running.poll_timeout().filter(|&due| due <= asked + ms(5000)) {
        running.handle_timeout(due);
        if sent(running).iter().any(|(_, message)| *message == Message::Ping) {
            looks.get_or_insert(due.saturating_sub(asked));
            answer(running, due, 1..=250);
        }
    }
    sent(running);
    looks
}

#[test]
fn each_rank_waits_200_ms_longer_than_the_one_below_it_before_it_looks_and_four_seconds_at_most() {
    for (rank, waits) in [(0, 0), (1, 200), (2, 400), (19, 3800), (20, 4000), (21, 4000), (39, 4000)] {
        let mut running = running_of(40, rank, None);
        assert_eq!(looks_after(&mut running, ms(0)), Some(ms(waits)), "rank {rank}");
    }
}

#[test]
fn a_member_that_has_looked_looks_for_no_newcomer_within_15_seconds_nor_while_it_looks() {
    let mut running = running(0, None);
    assert_eq!(looks_after(&mut running, ms(0)), Some(ms(0)));
    for (asked, looks) in [(1000, false), (9999, false), (15_000, true), (25_000, false), (30_000, true)] {
        assert_eq!(looks_after(&mut running, ms(asked)).is_some(), looks, "asked after {asked} ms");
    }
    let mut running = super::running(0, None);
    ask(&mut running, ms(0));
    // The limit of the look under way stays where it is.
    for second in 1..8 {
        assert_eq!(run(&mut running, ms(1000 * second)), []);
        ask(&mut running, ms(1000 * second));
    }
    assert!(matches!(run(&mut running, ms(8100))[..], [Change::Over(_), ..]));
}

#[test]
fn only_a_members_look_that_this_node_must_answer_keeps_it_from_looking() {
    let missing = |rank: u32| Message::Missing([rank].into_iter().collect());
    for (from, message, looks) in [
        (1, Message::Ping, false),
        (1, missing(1), false),
        (9, Message::Ping, true),
        (1, missing(2), true),
        (1, Message::Pong, true),
    ] {
        let mut running = running(1, None);
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &message);
        sent(&mut running);
        assert_eq!(looks_after(&mut running, ms(100)).is_some(), looks, "{message:?} of {from}");
    }
}

#[test]
fn at_most_32_members_are_looked_for_by_multicast() {
    for (silent, is_said) in [(31, true), (32, true), (33, false)] {
        let mut running = running_of(50, 0, None);
        ask(&mut running, ms(0));
        answer(&mut running, ms(0), 2..=50 - silent);
        sent(&mut running);
        let due = running.poll_timeout().unwrap();
        running.handle_timeout(due);
        let said = sent(&mut running).into_iter().find_map(|(to_all, message)| match message {
            Message::Missing(ranks) => Some((to_all, ranks.into_vec())),
            _ => None,
        });
        let ranks = (50 - u32::from(silent)..50).collect();
        assert_eq!(said, is_said.then_some((true, ranks)), "{silent} are silent");
    }
}

#[test]
fn the_lowest_rank_that_is_gone_ends_the_world() {
    let mut running = running(0, None);
    a_newcomer_asks(&mut running, Time::ZERO);
    answer(&mut running, ms(0), [3]);
    let changes = run(&mut running, ms(10_000));
    let [Change::Over(over), Change::Notified] = &changes[..] else { panic!("{changes:?}") };
    let peer = over.peer.as_ref().map(|peer| peer.address);
    assert_eq!((over.rank, over.end, peer), (Some(Rank(1)), End::Gone, Some(address(2))));
}

#[test]
fn a_process_that_was_stopped_waits_that_much_longer_for_members_and_for_its_release() {
    let mut running = running(0, None);
    a_newcomer_asks(&mut running, Time::ZERO);
    run(&mut running, ms(1000));
    let due = running.poll_timeout().unwrap();
    running.handle_timeout(due + ms(20_000));
    assert_eq!(run(&mut running, ms(27_900)), []);
    assert!(matches!(run(&mut running, ms(28_300))[..], [Change::Over(_), ..]));
}

#[test]
fn of_two_nodes_that_notify_the_others_the_one_of_the_lower_rank_goes_on() {
    for (from, goes_on) in [(1, false), (2, false), (4, true)] {
        let mut running = running(2, None);
        running.handle_failure(ms(0), End::Exited(1));
        let next = running.lineage();
        hear(&mut running, ms(0), from, next, &over(0));
        assert_eq!(changes(&mut running), if goes_on { vec![] } else { vec![Change::Notified] }, "{from}");
        assert_eq!(running.poll_timeout().is_some(), goes_on);
    }
}

#[test]
fn a_member_that_answers_from_another_address_is_notified_no_more() {
    let mut running = running(0, None);
    running.handle_failure(ms(0), End::Exited(1));
    let own = running.context.own_id();
    for member in 2..=SIZE {
        assert_eq!(changes(&mut running), []);
        hear_to(&mut running, member, address(100 + member), own, &Message::Pong);
    }
    assert_eq!(changes(&mut running), [Change::Notified]);
}

#[test]
fn a_node_alone_in_its_world_has_nobody_to_notify_nor_to_release() {
    let mut running = running_of(1, 0, None);
    running.handle_failure(ms(0), End::Exited(1));
    assert_eq!((changes(&mut running), running.poll_timeout()), (vec![Change::Notified], None));
    let mut running = running_of(1, 0, None);
    running.handle_success(ms(0));
    assert_eq!((changes(&mut running), running.poll_timeout()), (vec![Change::Finished], None));
}

#[test]
fn rank_0_alone_counts_commands_that_have_ended_and_only_those_of_members() {
    for (rank, from, answers) in [(0, 2, 1), (0, 9, 0), (1, 3, 0), (1, 9, 0)] {
        let mut running = running(rank, None);
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &Message::Finished);
        assert_eq!(sent(&mut running).len(), answers, "{from} to rank {rank}");
    }
    let mut running = running_of(2, 0, None);
    running.handle_success(ms(0));
    let own = running.lineage();
    hear(&mut running, ms(0), 9, own, &Message::Finished);
    assert!(run(&mut running, ms(1)).is_empty() && sent(&mut running).is_empty());
    hear(&mut running, ms(1), 2, own, &Message::Finished);
    running.handle_timeout(ms(1));
    assert!(sent(&mut running).contains(&(false, Message::Released)));
}

#[test]
fn a_member_asks_for_its_release_after_20_ms_and_then_less_often_up_to_three_quarters_of_a_second() {
    let mut running = running(1, None);
    let own = running.lineage();
    running.handle_success(ms(0));
    assert_eq!(sent(&mut running), [(false, Message::Finished)]);
    let (mut last, mut pauses) = (ms(0), Vec::new());
    while let Some(due) = running.poll_timeout().filter(|&due| due < ms(20_000)) {
        running.handle_timeout(due);
        assert_eq!(sent(&mut running), [(false, Message::Finished)]);
        hear(&mut running, due, 1, own, &Message::Pong);
        pauses.push(due.saturating_sub(last).as_millis());
        last = due;
    }
    assert!((15..=25).contains(&pauses[0]), "{pauses:?}");
    let longest = *pauses.iter().max().unwrap();
    assert!((751..=938).contains(&longest), "{longest} ms");
}

#[test]
fn only_rank_0_releases_a_member_and_only_one_whose_command_has_ended_well() {
    for (finished, from, released) in [(true, 1, true), (true, 3, false), (false, 1, false)] {
        let mut running = running(1, None);
        if finished {
            running.handle_success(ms(0));
        }
        sent(&mut running);
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &Message::Released);
        let leaving = vec![(false, Message::Leaving); if released { 6 } else { 0 }];
        assert_eq!(sent(&mut running), leaving, "from {from}, finished: {finished}");
        assert_eq!(changes(&mut running), if released { vec![Change::Finished] } else { vec![] });
    }
}

#[test]
fn rank_0_ends_when_all_have_left_or_after_30_seconds() {
    let mut running = running(0, None);
    let own = running.lineage();
    running.handle_success(ms(0));
    for member in 2..=SIZE {
        hear(&mut running, ms(0), member, own, &Message::Finished);
    }
    running.handle_timeout(ms(0));
    sent(&mut running);
    for member in 2..=SIZE {
        assert_eq!(changes(&mut running), []);
        // A member that asks again has missed its release.
        hear(&mut running, ms(0), member, own, &Message::Finished);
        assert_eq!(sent(&mut running), [(false, Message::Released)]);
        hear(&mut running, ms(0), member, own, &Message::Leaving);
    }
    assert_eq!((changes(&mut running), running.poll_timeout()), (vec![Change::Finished], None));
    let mut running = releasing();
    assert_eq!(run(&mut running, ms(29_900)), []);
    assert_eq!(run(&mut running, ms(30_200)), [Change::Finished]);
}

#[test]
fn a_newcomer_is_told_that_the_job_runs_by_rank_0_or_by_who_is_asked_alone_while_it_runs() {
    for (rank, to_all, answers) in [(0, true, 1), (0, false, 1), (2, true, 0), (2, false, 1)] {
        for recipient in [Some(NodeId::ANYONE), None] {
            let mut running = running(rank, None);
            let own = running.context.own_id();
            let to = if to_all { NodeId::ALL } else { recipient.unwrap_or(own) };
            hear_to(&mut running, 9, address(9), to, &solicit());
            let told = sent(&mut running);
            let running = Message::Running(Running { first: address(1), door: None });
            assert_eq!(told, vec![(false, running); answers], "rank {rank}, to {to}");
        }
    }
    // A member that asks is none. When the world is over, its members say that they are there.
    let mut running = running(0, None);
    let own = running.context.own_id();
    hear_to(&mut running, 2, address(2), own, &solicit());
    assert_eq!(sent(&mut running), []);
    running.handle_failure(ms(0), End::Exited(1));
    sent(&mut running);
    hear_to(&mut running, 9, address(9), own, &solicit());
    assert_eq!(sent(&mut running), [(false, Message::Pong)]);
}

#[test]
fn the_end_of_a_command_counts_once() {
    let mut running = running(0, None);
    running.handle_success(ms(0));
    running.handle_success(ms(4000));
    let due = running.poll_timeout();
    assert_eq!(due, Some(ms(5000)), "the first look is five seconds after the first time");
    running.handle_failure(ms(4000), End::Exited(1));
    let lineage = running.lineage();
    running.handle_failure(ms(4000), End::Exited(1));
    assert_eq!(running.lineage(), lineage, "its world is over already");
}

#[test]
fn what_is_sent_to_members_goes_to_their_addresses_in_the_roster() {
    let mut running = running(1, None);
    running.handle_failure(ms(0), End::Killed(9));
    running.handle_timeout(ms(0));
    let (mut to, mut all) = (Vec::new(), 0);
    while let Some(output) = running.poll_output() {
        match output {
            Output::Send { to: address, datagram } => {
                let (header, message) = Codec::new(tag(), None).decode(&datagram).unwrap();
                if message == Message::Leaving {
                    continue;
                }
                assert_eq!(
                    (address, header.lineage),
                    (self::address(header.recipient.0[0]), running.lineage())
                );
                let Message::Over(ended) = message else { panic!("{message:?}") };
                assert_eq!((ended.rank, ended.end), (1, End::Killed(9)));
                to.push(header.recipient);
            }
            Output::Multicast { .. } => all += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((to, all), (vec![id(1), id(3), id(4)], 1));
}

#[test]
fn a_member_whose_process_was_stopped_waits_that_much_longer_for_rank_0() {
    let mut running = running(1, None);
    running.handle_success(ms(0));
    run(&mut running, ms(1000));
    let due = running.poll_timeout().unwrap();
    running.handle_timeout(due + ms(60_000));
    assert_eq!(run(&mut running, ms(89_900)), []);
    assert!(matches!(run(&mut running, ms(92_000))[..], [Change::Over(_), ..]));
}

#[test]
fn a_world_that_ends_or_has_ended_looks_for_no_member() {
    let mut running = releasing();
    ask(&mut running, ms(0));
    let mut all = sent(&mut running);
    while let Some(due) = running.poll_timeout().filter(|&due| due < ms(10_000)) {
        running.handle_timeout(due);
        all.extend(sent(&mut running));
    }
    assert!(!all.iter().any(|(_, message)| *message == Message::Ping), "{all:?}");
    // Nor one that is over: who is asked says which formation comes next.
    let mut running = super::running(0, None);
    running.handle_failure(ms(0), End::Exited(1));
    ask(&mut running, ms(0));
    assert!(!sent(&mut running).iter().any(|(_, message)| *message == Message::Ping));
}

#[test]
fn a_stranger_that_misses_a_rank_is_not_answered() {
    let mut running = running(1, None);
    let own = running.lineage();
    hear(&mut running, ms(0), 9, own, &Message::Missing([1].into_iter().collect()));
    assert_eq!(sent(&mut running), []);
}

#[test]
fn rank_0_does_not_begin_anew_with_a_look_that_is_under_way() {
    let mut running = running(0, None);
    running.handle_success(ms(0));
    // It looks after five seconds, and again every five: a member is gone 8 s after the first.
    let changes = run(&mut running, ms(12_900));
    assert_eq!(changes, []);
    assert!(matches!(run(&mut running, ms(13_200))[..], [Change::Over(_), ..]));
}

#[test]
fn a_member_looks_for_a_newcomer_whether_its_command_runs_or_has_ended_well() {
    for (rank, finished) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut running = running(rank, None);
        if finished {
            running.handle_success(ms(0));
        }
        assert!(looks_after(&mut running, ms(100)).is_some(), "rank {rank}, finished: {finished}");
    }
}

#[test]
fn a_member_that_has_missed_the_end_is_answered_if_it_writes_to_this_node_alone() {
    let mut running = running(0, None);
    let before = running.lineage();
    running.handle_failure(ms(0), End::Exited(1));
    sent(&mut running);
    let own = running.context.own_id();
    for (to, message, answers) in [
        (NodeId::ALL, Message::Missing([0].into_iter().collect()), 0),
        (own, Message::Ping, 1),
        (own, Message::Finished, 1),
        (NodeId::ALL, solicit(), 0),
        (own, solicit(), 1),
    ] {
        let header = Header { sender: id(3), recipient: to, lineage: before };
        let datagram = Codec::new(tag(), None).encode(header, &message);
        running.handle_datagram(ms(0), address(3), &datagram);
        assert_eq!(sent(&mut running), vec![(false, Message::Pong); answers], "{message:?} to {to}");
    }
}

#[test]
fn a_look_that_is_under_way_ends_when_all_commands_have_ended_well() {
    let mut running = running(0, None);
    let own = running.lineage();
    running.handle_success(ms(0));
    hear(&mut running, ms(0), 2, own, &Message::Finished);
    ask(&mut running, ms(1000));
    assert!(sent(&mut running).iter().any(|(_, message)| *message == Message::Ping));
    // Node 2, whose command has ended before, has not answered yet.
    for member in [3, 4] {
        hear(&mut running, ms(1000), member, own, &Message::Finished);
    }
    let mut all = Vec::new();
    while let Some(due) = running.poll_timeout().filter(|&due| due < ms(20_000)) {
        running.handle_timeout(due);
        all.extend(sent(&mut running));
    }
    assert_eq!(changes(&mut running), []);
    assert!(!all.iter().any(|(_, message)| *message == Message::Ping), "{all:?}");
}

#[test]
fn a_message_of_this_world_that_it_is_over_ends_nothing() {
    let mut running = running(2, None);
    let own = running.lineage();
    for from in [1, 4, 9] {
        hear(&mut running, ms(0), from, own, &over(0));
    }
    assert_eq!((changes(&mut running), sent(&mut running)), (vec![], vec![]));
    running.handle_failure(ms(0), End::Exited(1));
    assert!(running.poll_timeout().is_some(), "it still runs, and its own command ends it");
}

#[test]
fn a_world_that_is_over_is_not_ended_once_more_by_a_still_later_formation() {
    for own_command in [true, false] {
        let mut running = running(1, None);
        let next = running.lineage().next().unwrap();
        if own_command {
            running.handle_failure(ms(0), End::Exited(1));
        } else {
            hear(&mut running, ms(0), 3, next, &over(2));
        }
        // The next formation hears it as well, and decides.
        changes(&mut running);
        sent(&mut running);
        let later = next.next().unwrap();
        hear(&mut running, ms(0), 1, later, &over(0));
        assert_eq!((changes(&mut running), sent(&mut running)), (vec![], vec![]));
        assert_eq!(running.lineage(), next);
    }
}

#[test]
fn a_node_that_has_been_released_goes_on_to_no_later_formation() {
    let mut released = running(1, None);
    released.handle_success(ms(0));
    for (mut running, from, word) in [(released, 1, Message::Released), (releasing(), 2, Message::Leaving)] {
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &word);
        assert_eq!(changes(&mut running), [Change::Finished]);
        sent(&mut running);
        hear(&mut running, ms(1), from, own.next().unwrap(), &over(0));
        running.handle_failure(ms(2), End::Exited(1));
        assert_eq!((changes(&mut running), sent(&mut running)), (vec![], vec![]));
        assert_eq!((running.lineage(), running.poll_timeout()), (own, None));
    }
}

#[test]
fn timers_that_are_a_little_late_give_a_silent_member_no_more_time() {
    let mut running = running(0, None);
    ask(&mut running, ms(0));
    while !running.is_over() {
        let due = running.poll_timeout().expect("it pings");
        assert!(due < ms(8300), "{due:?}");
        running.handle_timeout(due + ms(50));
        sent(&mut running);
    }
}
