//! One node of a running world, told whatever there is to tell.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::report::Formed;
use super::running::{Change, RunningWorld};
use super::{Config, Node, Output, Time};
use crate::model::{
    End, JobId, JobTag, Keys, Lineage, Member, Metadata, NodeId, Rank, Roster, Secret, World,
};
use crate::rdma::Verdict;
use crate::wire::{self, Codec, Header, Message, Solicit};

const SIZE: u8 = 4;

fn tag() -> JobTag {
    "standing".parse::<JobId>().unwrap().tag()
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 29500))
}

fn id(number: u8) -> NodeId {
    NodeId([number; 16])
}

fn config(rank: u8) -> Config {
    Config::plain(tag(), SIZE.into(), rank + 1, address(rank + 1))
}

/// The node of a rank, in a world whose ranks are nodes 1, 2 and so on.
fn running(rank: u8, keys: Option<Keys>) -> RunningWorld {
    running_of(SIZE, rank, keys)
}

fn running_of(size: u8, rank: u8, keys: Option<Keys>) -> RunningWorld {
    let config = Config { keys, ..config(rank) };
    let member = |number: u8| Member {
        rank: Rank(u32::from(number) - 1),
        id: id(number),
        host: config.node.host.clone(),
        address: address(number),
        slots: 1,
        metadata: Metadata::default(),
    };
    let roster = Roster::new((1..=size).map(member).collect()).unwrap();
    let rank = Rank(rank.into());
    let formed = Formed {
        rank,
        world: World::new(size.into()).unwrap(),
        master: address(1),
        local: address(1).ip(),
        digest: roster.digest(),
        slots: roster.slots(rank).unwrap(),
        roster: Some(roster),
        verdict: Verdict::default(),
    };
    let mut node = Node::new(config, 1, Time::ZERO);
    while node.poll_output().is_some() {}
    node.into_running(&formed).unwrap()
}

fn said(from: u8, lineage: Lineage, message: &Message) -> Vec<u8> {
    let header = Header { sender: id(from), recipient: NodeId::ALL, lineage };
    Codec::new(tag(), None).encode(header, message)
}

/// Node 9, which is no member, asks who gathers.
fn a_stranger_asks(running: &mut RunningWorld) {
    let solicit = Message::Solicit(Solicit { rank: None, host: config(8).node.host });
    running.handle_datagram(Time::ZERO, address(9), &said(9, Lineage::default(), &solicit));
    running.handle_timeout(Time::ZERO);
}

fn all_answer(running: &mut RunningWorld, now: Time, members: impl IntoIterator<Item = u8>) {
    let own = running.lineage();
    for member in members {
        running.handle_datagram(now, address(member), &said(member, own, &Message::Pong));
    }
}

fn over(rank: u32) -> Message {
    Message::Over(wire::Over { rank, end: End::Exited(3) })
}

/// What it does until `until`, as changes; datagrams are dropped.
fn run(running: &mut RunningWorld, until: Time) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        while running.poll_output().is_some() {}
        while let Some(change) = running.poll_change() {
            changes.push(change);
        }
        match running.poll_timeout().filter(|&at| at <= until) {
            Some(at) => running.handle_timeout(at),
            None => return changes,
        }
    }
}

#[test]
fn only_a_later_word_of_the_same_origin_ends_a_world() {
    let own = running(1, None).lineage();
    let later = own.next().unwrap();
    for (lineage, ends) in [
        (later, true),
        (later.next().unwrap(), true),
        (own, false),
        (Lineage { origin: own.origin + 1, ..later }, false),
        (Lineage { origin: 0, ..later }, false),
        (Lineage::default(), false),
    ] {
        let mut running = running(1, None);
        running.handle_datagram(Time::ZERO, address(3), &said(3, lineage, &over(2)));
        let changes = run(&mut running, Time::from_secs(1));
        assert_eq!(matches!(changes[..], [Change::Over(_), Change::Told]), ends, "{lineage:?}: {changes:?}");
        assert_eq!(running.lineage(), if ends { lineage } else { own });
    }
}

#[test]
fn a_stranger_that_asks_once_ends_nothing_while_all_answer() {
    let mut running = running(0, None);
    a_stranger_asks(&mut running);
    let pings: BTreeSet<SocketAddr> = std::iter::from_fn(|| running.poll_output())
        .filter_map(|output| if let Output::Send { to, .. } = output { Some(to) } else { None })
        .collect();
    assert_eq!(pings, [2, 3, 4, 9].map(address).into_iter().collect(), "the stranger has its answer, too");
    all_answer(&mut running, Time::ZERO, 2..=SIZE);
    assert_eq!(run(&mut running, Time::from_secs(60)), []);
    assert_eq!(running.poll_timeout(), None, "and it is quiet again");
}

#[test]
fn a_member_that_does_not_answer_is_gone_after_its_time_and_not_before() {
    let mut running = running(0, None);
    a_stranger_asks(&mut running);
    all_answer(&mut running, Time::ZERO, [2, 4]);
    assert_eq!(run(&mut running, Time::from_millis(7900)), []);
    let changes = run(&mut running, Time::from_secs(10));
    let [Change::Over(over), Change::Told] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((over.rank, over.end), (Some(Rank(2)), End::Gone));
}

#[test]
fn where_rank_0_may_be_gone_who_looks_tells_the_others_that_the_job_runs() {
    let mut running = running(1, None);
    let told = |running: &mut RunningWorld| {
        let outputs: Vec<Output> = std::iter::from_fn(|| running.poll_output()).collect();
        outputs.iter().any(|output| matches!(output, Output::Send { to, datagram } if *to == address(9) && datagram[5] == 24))
    };
    a_stranger_asks(&mut running);
    assert!(!told(&mut running), "that is for rank 0 to say");
    assert_eq!(run(&mut running, Time::from_secs(1)), []);
    a_stranger_asks(&mut running);
    assert!(told(&mut running));
}

#[test]
fn a_member_that_has_finished_is_no_look_at_the_others() {
    let mut running = running(0, None);
    let own = running.lineage();
    running.handle_datagram(Time::ZERO, address(2), &said(2, own, &Message::Finished));
    while running.poll_output().is_some() {}
    a_stranger_asks(&mut running);
    all_answer(&mut running, Time::ZERO, [2, 4]);
    let changes = run(&mut running, Time::from_secs(10));
    assert!(
        matches!(&changes[..], [Change::Over(over), Change::Told] if over.rank == Some(Rank(2))),
        "{changes:?}"
    );
}

#[test]
fn that_a_large_world_is_over_is_told_to_all_at_once_in_each_wave() {
    let size = 250;
    let mut running = running_of(size, 0, None);
    running.handle_failure(Time::ZERO, End::Exited(1));
    let (mut multicasts, mut told, mut waves) = (0, BTreeSet::new(), Vec::new());
    while let Some(at) = running.poll_timeout().filter(|&at| at <= Time::from_millis(500)) {
        running.handle_timeout(at);
        while let Some(output) = running.poll_output() {
            match output {
                Output::Multicast { .. } => multicasts += 1,
                Output::Send { to, .. } => told.extend([to]),
                other => panic!("{other:?}"),
            }
        }
        if told.len() == usize::from(size) - 1 {
            told.clear();
            waves.push(multicasts);
        }
    }
    assert!(waves.len() > 3 && waves.iter().enumerate().all(|(wave, count)| *count == wave + 1), "{waves:?}");
}

/// Rank 0 of a world of two, whose commands have both ended well.
fn releasing() -> RunningWorld {
    let mut running = running_of(2, 0, None);
    running.handle_success(Time::ZERO);
    let own = running.lineage();
    running.handle_datagram(Time::ZERO, address(2), &said(2, own, &Message::Finished));
    running
}

#[test]
fn somebody_new_does_not_keep_rank_0_once_all_have_finished() {
    let mut running = releasing();
    a_stranger_asks(&mut running);
    all_answer(&mut running, Time::ZERO, [2]);
    assert_eq!(run(&mut running, Time::from_secs(60)), [Change::Finished]);
    assert_eq!(running.poll_timeout(), None);
}

#[test]
fn a_member_that_was_cut_off_when_all_had_finished_starts_nothing_again() {
    let mut running = releasing();
    let later = running.lineage().next().unwrap();
    running.handle_datagram(Time::from_secs(12), address(2), &said(2, later, &over(0)));
    assert_eq!(run(&mut running, Time::from_secs(60)), [Change::Finished]);
}

#[test]
fn a_member_that_has_finished_waits_for_rank_0_as_long_as_that_may_answer() {
    let mut running = running_of(2, 1, None);
    let own = running.lineage();
    running.handle_success(Time::ZERO);
    assert_eq!(run(&mut running, Time::from_millis(29_900)), []);
    // Others have nothing to say in this.
    running.handle_datagram(Time::from_secs(29), address(9), &said(9, own, &Message::Released));
    assert_eq!(running.poll_change(), None);
    let mut released = running.clone();
    released.handle_datagram(Time::from_secs(29), address(1), &said(1, own, &Message::Released));
    assert_eq!(released.poll_change(), Some(Change::Finished));
    let changes = run(&mut running, Time::from_secs(40));
    assert!(
        matches!(&changes[..], [Change::Over(over), Change::Told] if over.end == End::Gone),
        "{changes:?}"
    );
}

#[test]
fn a_process_that_was_stopped_blames_nobody_for_what_it_has_not_read() {
    let mut running = running(0, None);
    a_stranger_asks(&mut running);
    let late = Time::from_secs(100);
    running.handle_timeout(late);
    assert_eq!(running.poll_change(), None);
    all_answer(&mut running, late, 2..=SIZE);
    assert_eq!(run(&mut running, late + Duration::from_secs(60)), []);
}

#[test]
fn a_counter_of_a_job_with_a_secret_is_never_used_twice() {
    let keys = || Secret::new(b"sixteen bytes it is").unwrap().keys(&"standing".parse().unwrap());
    let counter = |datagram: &[u8]| u64::from_le_bytes(datagram[68..76].try_into().unwrap());
    let mut node = Node::new(Config { keys: Some(keys()), ..config(0) }, 1, Time::ZERO);
    node.handle_timeout(Time::ZERO);
    let mut used: Vec<u64> = Vec::new();
    let mut collect = |output: Output| {
        if let Output::Send { datagram, .. } | Output::Multicast { datagram } = output {
            used.push(counter(&datagram));
        }
    };
    while let Some(output) = node.poll_output() {
        collect(output);
    }
    let formed_elsewhere = running(0, None);
    let formed = Formed {
        rank: Rank(0),
        world: World::new(SIZE.into()).unwrap(),
        master: address(1),
        local: address(1).ip(),
        digest: Roster::new(formed_elsewhere.members().to_vec()).unwrap().digest(),
        slots: crate::model::Slots { own: 1, before: 0, total: 4 },
        roster: Roster::new(formed_elsewhere.members().to_vec()),
        verdict: Verdict::default(),
    };
    let mut running = node.into_running(&formed).unwrap();
    running.handle_failure(Time::ZERO, End::Exited(1));
    running.handle_timeout(Time::from_millis(200));
    while let Some(output) = running.poll_output() {
        collect(output);
    }
    assert!(used.len() > 4, "{used:?}");
    assert!(used.is_sorted_by(|a, b| a < b), "{used:?}");
}

#[test]
fn whatever_is_said_it_neither_panics_nor_goes_back() {
    for seed in 0..300 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut running = running(rng.random_range(0..SIZE), None);
        let (mut now, mut lineage) = (Time::ZERO, running.lineage());
        for _ in 0..200 {
            now += Duration::from_millis(rng.random_range(0..800));
            match rng.random_range(0..12) {
                0 => running.handle_success(now),
                1 if rng.random_range(0..20) == 0 => running.handle_failure(now, End::Killed(9)),
                2 => running.handle_timeout(now),
                _ => {
                    let generation = lineage.generation + u32::from(rng.random_range(0..40) == 0);
                    let origin = if rng.random_range(0..8) == 0 { 0 } else { lineage.origin };
                    let words = [
                        Message::Ping,
                        Message::Pong,
                        Message::Finished,
                        Message::Released,
                        Message::Leaving,
                        Message::Running,
                        Message::Missing([0, 1, u32::MAX].into_iter().collect()),
                        over(rng.random_range(0..9)),
                        Message::Solicit(Solicit { rank: Some(u32::MAX), host: config(1).node.host }),
                        Message::Done(1),
                    ];
                    let word = &words[rng.random_range(0..words.len())];
                    let from = rng.random_range(1..9);
                    let datagram = said(from, Lineage { generation, origin }, word);
                    running.handle_datagram(now, address(from), &datagram);
                }
            }
            while let Some(output) = running.poll_output() {
                assert!(matches!(output, Output::Send { .. } | Output::Multicast { .. }), "seed {seed}");
            }
            while running.poll_change().is_some() {}
            assert!(running.lineage() >= lineage, "seed {seed}");
            lineage = running.lineage();
        }
    }
}

#[test]
fn a_recorded_word_of_a_later_formation_moves_no_node_and_an_answer_to_it_does() {
    let later = Lineage { generation: 4, origin: 7 };
    let announce = |recipient| {
        let header = Header { sender: id(3), recipient, lineage: later };
        Codec::new(tag(), None).encode(header, &Message::Pong)
    };
    let mut node = Node::new(config(0), 1, Time::ZERO);
    while node.poll_output().is_some() {}
    for recipient in [NodeId::ALL, NodeId::ANYONE, id(9)] {
        node.handle_datagram(Time::ZERO, address(3), &announce(recipient));
        assert!(!node.has_ended());
    }
    // To both that could have been meant for it: is that so?
    let asked = std::iter::from_fn(|| node.poll_output()).map(|output| match output {
        Output::Send { to, datagram } => (to, datagram[5], datagram[40..56] == id(3).0),
        other => panic!("{other:?}"),
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(address(3), 8, true); 2]);
    node.handle_datagram(Time::ZERO, address(3), &announce(id(1)));
    assert!(
        matches!(node.poll_output(), Some(Output::Event(super::Event::Superseded(lineage))) if lineage == later)
    );
}
