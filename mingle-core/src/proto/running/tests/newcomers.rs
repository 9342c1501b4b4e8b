//! Nodes that wait for a seat in a world that may grow.

use super::*;
use crate::model::{Link, WorldSize};
use crate::wire::{Reach, Running};

const CALL: u64 = 15;
/// The port for paths of rank 0.
const DOOR: u16 = 41_877;

fn seconds(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// The node of this rank, in a world of four of 3:6.
fn with_room(rank: u8) -> RunningNode {
    with_sizes(rank, "3:6".parse().unwrap())
}

fn with_sizes(rank: u8, world: WorldSize) -> RunningNode {
    let mut config = Config { world, ..config(rank) };
    config.node.reach = Reach::new(DOOR, [Link::unknown(address(rank + 1).ip())]);
    let mut node = Node::new(config, 1, Time::ZERO);
    while node.poll_output().is_some() {}
    node.into_running(&formed(SIZE, rank)).unwrap()
}

/// A newcomer asks who leads, once a second for so long, while all members answer. Returns the answers to it.
fn waits(running: &mut RunningNode, newcomer: u8, from: u64, until: u64) -> Vec<Message> {
    let mut told = Vec::new();
    for second in from..until {
        let solicit = Message::Solicit(Solicit { rank: None, host: config(8).node.host });
        hear(running, seconds(second), newcomer, Lineage::default(), &solicit);
        running.handle_timeout(seconds(second));
        answer(running, seconds(second), 1..=SIZE);
        told.extend(sent_to(running, newcomer));
    }
    told
}

fn sent_to(running: &mut RunningNode, node: u8) -> Vec<Message> {
    let mut codec = Codec::new(tag(), None);
    let sent = std::iter::from_fn(|| running.poll_output()).filter_map(|output| match output {
        Output::Send { to, datagram } if to == address(node) => Some(codec.decode(&datagram).unwrap().1),
        _ => None,
    });
    sent.collect()
}

/// When the world ends to take newcomers in, to the second.
fn grows(running: &mut RunningNode, from: u64, until: u64) -> Option<u64> {
    (from..=until).find(|&second| {
        running.handle_timeout(seconds(second));
        std::iter::from_fn(|| running.poll_change())
            .any(|change| matches!(change, Change::Over(over) if over.end == End::Grows))
    })
}

#[test]
fn a_world_grows_for_a_newcomer_that_waits_and_not_once_its_own_command_has_ended() {
    for (has_ended, grows_at) in [(false, Some(CALL)), (true, None)] {
        let mut running = with_room(0);
        running.set_growth(Time::ZERO, Duration::ZERO);
        if has_ended {
            running.handle_success(Time::ZERO);
        }
        for second in 0..CALL {
            waits(&mut running, 9, second, second + 1);
            running.handle_guest(seconds(second), address(9).ip());
        }
        assert_eq!(grows(&mut running, CALL - 1, CALL + 5), grows_at);
    }
}

#[test]
fn newcomers_that_make_two_worlds_possible_are_reported_once() {
    for (sizes, expected) in [("3:5", true), ("4", false), ("3:6", false)] {
        let mut running = with_sizes(0, sizes.parse().unwrap());
        waits(&mut running, 9, 0, 1);
        assert_eq!(
            (running.status().waiting, running.poll_change()),
            (1, None),
            "of five, two have no world"
        );
        waits(&mut running, 10, 1, 2);
        let reported = Some(Change::MaySplit { waiting: 2 }).filter(|_| expected);
        assert_eq!(running.poll_change(), reported, "{sizes}");
        waits(&mut running, 11, 2, 3);
        assert_eq!((running.status().waiting, running.poll_change()), (3, None));
    }
}

#[test]
fn a_world_does_not_grow_for_a_newcomer_that_has_not_arrived_or_has_gone() {
    let mut running = with_room(0);
    running.set_growth(Time::ZERO, Duration::ZERO);
    running.handle_guest(seconds(0), address(7).ip());
    waits(&mut running, 9, 0, 60);
    assert_eq!(grows(&mut running, 60, 70), None, "only another address has arrived");
    running.handle_guest(seconds(70), address(9).ip());
    assert_eq!(grows(&mut running, 71, 100), None, "it was silent for 10 s");
    // It comes again, as another that has to stay for a call.
    waits(&mut running, 9, 100, 101);
    running.handle_guest(seconds(101), address(9).ip());
    waits(&mut running, 9, 101, 100 + CALL);
    assert_eq!(grows(&mut running, 101, 130), Some(100 + CALL));
}

#[test]
fn a_world_does_not_grow_before_its_time_nor_without_leave_nor_room_nor_by_another_rank() {
    let stays = |running: &mut RunningNode| {
        waits(running, 9, 0, 1);
        running.handle_guest(seconds(1), address(9).ip());
        let told = waits(running, 9, 1, 100);
        assert!(!told.is_empty() && !running.is_over());
        (told[0].clone(), grows(running, 100, 101))
    };
    let mut late = with_room(0);
    late.set_growth(Time::ZERO, seconds(100));
    assert_eq!(stays(&mut late).1, Some(100));
    let closed = Message::Running(Running { first: address(1), door: None });
    assert_eq!(stays(&mut with_room(0)), (closed.clone(), None), "it was not asked to grow");
    let mut full = with_sizes(0, "2:4".parse().unwrap());
    full.set_growth(Time::ZERO, Duration::ZERO);
    assert_eq!(stays(&mut full), (closed, None));
    let mut other = with_room(1);
    other.set_growth(Time::ZERO, Duration::ZERO);
    waits(&mut other, 9, 0, 1);
    other.handle_guest(seconds(1), address(9).ip());
    waits(&mut other, 9, 1, 100);
    assert_eq!(grows(&mut other, 100, 101), None);
}
