//! Looking for members, notifying them, and releasing them: each limit, and who counts.

use std::net::SocketAddr;

use super::{
    SIZE, a_newcomer_asks, address, answer, config, hear, id, over, releasing, run, running, running_of,
    sent, tag,
};
use crate::model::{End, Lineage, NodeId, Rank};
use crate::proto::Time;
use crate::proto::running::{Change, RunningNode};
use crate::wire::{Codec, Header, Message, Running, Solicit};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn solicit() -> Message {
    Message::Solicit(Solicit { rank: None, host: config(8).node.host })
}

/// This node sends a message, to this recipient and from this address.
fn hear_to(running: &mut RunningNode, from: u8, source: SocketAddr, to: NodeId, message: &Message) {
    let header = Header { sender: id(from), recipient: to, lineage: running.lineage() };
    let datagram = Codec::new(tag(), None).encode(header, message);
    let now = running.context.now();
    running.handle_datagram(now, source, &datagram);
}

fn changes(running: &mut RunningNode) -> Vec<Change> {
    std::iter::from_fn(|| running.poll_change()).collect()
}

/// Node 251, which is no member of any of these worlds, asks all who leads.
fn ask(running: &mut RunningNode, now: Time) {
    hear(running, now, 251, Lineage::default(), &solicit());
    running.handle_timeout(now);
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
