//! One node of a running world, which is handed datagrams and time by hand.

mod newcomers;
mod parts;
mod status;
mod watch;

use std::net::SocketAddr;
use std::time::Duration;

use mingle_rdma::Verdict;

use super::{Change, RunningNode};
use crate::model::{
    End, JobId, JobTag, Keys, Lineage, Member, Metadata, NodeId, Rank, Roster, Secret, World,
};
use crate::proto::{Config, Event, Formed, Node, Output, Time};
use crate::wire::{Codec, Ended, Header, Message, Solicit};

const SIZE: u8 = 4;

fn tag() -> JobTag {
    "running".parse::<JobId>().unwrap().tag()
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

/// The node of this rank, in a world of four whose ranks 0, 1, 2, 3 are nodes 1, 2, 3, 4.
fn running(rank: u8, keys: Option<Keys>) -> RunningNode {
    running_of(SIZE, rank, keys)
}

fn running_of(size: u8, rank: u8, keys: Option<Keys>) -> RunningNode {
    let mut node = Node::new(Config { keys, ..config(rank) }, 1, Time::ZERO);
    while node.poll_output().is_some() {}
    node.into_running(&formed(size, rank)).unwrap()
}

/// What the node of this rank learns when a world of nodes 1, 2 and so on forms.
fn formed(size: u8, rank: u8) -> Formed {
    let member = |number: u8| Member {
        rank: Rank(u32::from(number) - 1),
        id: id(number),
        host: config(rank).node.host,
        address: address(number),
        slots: 1,
        metadata: Metadata::default(),
    };
    let roster = Roster::new((1..=size).map(member).collect()).unwrap();
    let rank = Rank(rank.into());
    Formed {
        rank,
        world: World::new(size.into()).unwrap(),
        asked: World::new(size.into()).unwrap().into(),
        master: address(1),
        local: address(1).ip(),
        digest: roster.digest(),
        slots: roster.slots(rank).unwrap(),
        roster: Some(roster),
        verdict: Verdict::default(),
        sameness: crate::model::Sameness::default(),
    }
}

/// A message of this node arrives: to all if it may be, else to the member alone.
fn hear(running: &mut RunningNode, now: Time, from: u8, lineage: Lineage, message: &Message) {
    let own = running.context.own_id();
    let recipient = if message.may_be_to(NodeId::ALL) { NodeId::ALL } else { own };
    let header = Header { sender: id(from), recipient, lineage };
    running.handle_datagram(now, address(from), &Codec::new(tag(), None).encode(header, message));
}

/// Node 9, which is no member, asks who leads.
fn a_newcomer_asks(running: &mut RunningNode, now: Time) {
    let solicit = Message::Solicit(Solicit { rank: None, host: config(8).node.host });
    hear(running, now, 9, Lineage::default(), &solicit);
    running.handle_timeout(now);
}

fn answer(running: &mut RunningNode, now: Time, members: impl IntoIterator<Item = u8>) {
    let own = running.lineage();
    for member in members {
        hear(running, now, member, own, &Message::Pong);
    }
}

fn over(rank: u32) -> Message {
    Message::Over(Ended { rank, end: End::Exited(3) })
}

/// Lets time pass until `until`. Returns the changes, and drops the datagrams.
fn run(running: &mut RunningNode, until: Time) -> Vec<Change> {
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
fn only_a_later_lineage_of_the_same_origin_ends_a_world() {
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
        hear(&mut running, Time::ZERO, 3, lineage, &over(2));
        let changes = run(&mut running, Time::from_secs(1));
        assert_eq!(
            matches!(changes[..], [Change::Over(_), Change::Notified]),
            ends,
            "{lineage:?}: {changes:?}"
        );
        assert_eq!(running.lineage(), if ends { lineage } else { own });
    }
}

/// Rank 0 of a world of two, whose commands have both ended well.
fn releasing() -> RunningNode {
    let mut running = running_of(2, 0, None);
    running.handle_success(Time::ZERO);
    let own = running.lineage();
    hear(&mut running, Time::ZERO, 2, own, &Message::Finished);
    running
}

#[test]
fn a_newcomer_does_not_keep_rank_0_once_all_have_finished() {
    let mut running = releasing();
    a_newcomer_asks(&mut running, Time::ZERO);
    answer(&mut running, Time::ZERO, [2]);
    assert_eq!(run(&mut running, Time::from_secs(60)), [Change::Finished]);
    assert_eq!(running.poll_timeout(), None);
}

#[test]
fn a_process_that_was_stopped_takes_no_member_for_gone() {
    let mut running = running(0, None);
    a_newcomer_asks(&mut running, Time::ZERO);
    let late = Time::from_secs(100);
    running.handle_timeout(late);
    assert_eq!(running.poll_change(), None);
    answer(&mut running, late, 2..=SIZE);
    assert_eq!(run(&mut running, late + Duration::from_secs(60)), []);
}

#[test]
fn a_counter_of_a_job_with_a_secret_is_never_used_twice() {
    let keys = || Secret::new(b"sixteen bytes it is").unwrap().keys(&"running".parse().unwrap());
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
    let mut running = node.into_running(&formed(SIZE, 0)).unwrap();
    running.handle_failure(Time::ZERO, End::Exited(1));
    running.handle_timeout(Time::from_millis(200));
    while let Some(output) = running.poll_output() {
        collect(output);
    }
    assert!(used.len() > 4, "{used:?}");
    assert!(used.is_sorted_by(|a, b| a < b), "{used:?}");
}

#[test]
fn a_node_goes_on_to_a_later_formation_only_on_a_datagram_to_itself() {
    let later = Lineage { generation: 4, origin: 7 };
    let solicit = |recipient| {
        let header = Header { sender: id(3), recipient, lineage: later };
        let solicit = Message::Solicit(Solicit { rank: None, host: config(2).node.host });
        Codec::new(tag(), None).encode(header, &solicit)
    };
    let mut node = Node::new(config(0), 1, Time::ZERO);
    while node.poll_output().is_some() {}
    for recipient in [NodeId::ALL, NodeId::ANYONE, id(9)] {
        node.handle_datagram(Time::ZERO, address(3), &solicit(recipient));
        assert!(!node.has_ended());
    }
    // For each of the two datagrams that may be for it, the node asks the sender whether the lineage is real.
    let questions = std::iter::from_fn(|| node.poll_output()).map(|output| match output {
        Output::Send { to, datagram } => (to, datagram[5], datagram[40..56] == id(3).0),
        other => panic!("{other:?}"),
    });
    assert_eq!(questions.collect::<Vec<_>>(), [(address(3), 8, true); 2]);
    node.handle_datagram(Time::ZERO, address(3), &solicit(id(1)));
    assert!(
        matches!(node.poll_output(), Some(Output::Event(Event::Superseded(lineage))) if lineage == later)
    );
}

/// The messages that a node sends, each with whether it goes to all.
fn sent(running: &mut RunningNode) -> Vec<(bool, Message)> {
    let mut sent = Vec::new();
    while let Some(output) = running.poll_output() {
        let decode = |datagram: &[u8]| Codec::new(tag(), None).decode(datagram).unwrap().1;
        match output {
            Output::Send { datagram, .. } => sent.push((false, decode(&datagram))),
            Output::Multicast { datagram } => sent.push((true, decode(&datagram))),
            _ => {}
        }
    }
    sent
}

#[test]
fn a_datagram_to_another_member_or_from_this_node_itself_is_dropped() {
    let mut running = running(0, None);
    for (from, to, answers) in [(2, 1, 1), (2, 3, 0), (1, 1, 0)] {
        let header = Header { sender: id(from), recipient: id(to), lineage: running.lineage() };
        let datagram = Codec::new(tag(), None).encode(header, &Message::Ping);
        running.handle_datagram(Time::ZERO, address(from), &datagram);
        assert_eq!(sent(&mut running).len(), answers, "from {from} to {to}");
    }
}

#[test]
fn a_world_that_a_rank_ends_which_it_does_not_have_is_over_for_an_unknown_reason() {
    for (rank, known) in [(3, true), (4, false), (u32::MAX, false)] {
        let mut running = running(1, None);
        let later = running.lineage().next().unwrap();
        hear(&mut running, Time::ZERO, 3, later, &over(rank));
        let Some(Change::Over(over)) = running.poll_change() else { panic!("rank {rank}") };
        assert_eq!(over.rank, known.then_some(Rank(rank)));
        assert_eq!(over.end, if known { End::Exited(3) } else { End::Unknown });
    }
}

#[test]
fn a_member_takes_the_address_of_rank_0_that_it_has_proved() {
    let proved = SocketAddr::from(([10, 0, 1, 1], 29500));
    for (rank, expected) in [(1, [proved, address(3), address(4)]), (0, [2, 3, 4].map(address))] {
        let mut node = Node::new(config(rank), 1, Time::ZERO);
        while node.poll_output().is_some() {}
        let formed = Formed { master: proved, ..formed(SIZE, rank) };
        assert_eq!(node.into_running(&formed).unwrap().others(), expected);
    }
}
