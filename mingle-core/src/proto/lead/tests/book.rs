//! The book of members: who has a seat, and who takes the seat of another.

use super::rounds::prepared;
use super::{Leader, endpoints, id, ms};
use crate::model::{HostName, Rank};
use crate::proto::lead::book::Book;
use crate::proto::shared::Shared;
use crate::proto::tests::{codec, endpoint, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, Event, Output};
use crate::wire::{Message, NodeInfo};

#[test]
fn a_join_replaces_what_a_node_said_before_and_of_a_member_its_endpoints_alone() {
    for is_member in [false, true] {
        let mut book = Book::new(&Shared::new(Config::plain(tag(), 9, 1, endpoint(1)), 1, Time::ZERO));
        let mut first = NodeInfo::new(HostName::new("host-2"), endpoints(2));
        first.rank = Some(Rank(2));
        book.join(id(2), first, None);
        if is_member {
            book.seat(id(2));
        }
        let mut other = NodeInfo::new(HostName::new("other"), endpoints(8));
        (other.rank, other.attributes.slots) = (Some(Rank(5)), 7);
        book.join(id(2), other.clone(), None);
        let entry = book.get(id(2)).unwrap();
        assert_eq!(entry.node.endpoints, endpoints(8));
        assert_eq!(entry.node == other, !is_member);
        assert_eq!(entry.node.rank, Some(Rank(if is_member { 2 } else { 5 })));
        assert_eq!(entry.seated, is_member);
    }
}

#[test]
fn the_first_standby_that_may_have_it_gets_a_free_seat() {
    for (rank, members) in [(None, [3, 4]), (Some(2), [3, 5]), (Some(1), [3, 4])] {
        let mut leader = Leader::of(3, |config| config.node.rank = Some(Rank(0)));
        // It has not answered that it is there.
        leader.node.mute.insert(2);
        for (node, rank) in [(2, Some(1)), (3, Some(2)), (4, rank), (5, None)] {
            leader.join(node, |info| info.rank = rank.map(Rank));
        }
        assert_eq!(prepared(&leader.close(2), 2), members, "node 4 was given rank {rank:?}");
    }
}

#[test]
fn at_most_six_runs_of_missing_ranks_are_announced_and_the_leader_reports_the_same() {
    let mut leader = Leader::of(40, |config| config.node.rank = Some(Rank(0)));
    let mut reported = Vec::new();
    for member in 2..=12 {
        let outputs = leader.join(member, |node| node.rank = Some(Rank(2 * u32::from(member))));
        reported.extend(outputs.into_iter().filter_map(|output| match output {
            Output::Event(Event::Progress(progress)) => Some(progress.missing),
            _ => None,
        }));
    }
    let missing = leader.run(ms(1000)).into_iter().rev().find_map(|output| match output {
        Output::Multicast { datagram } => match codec().decode(&datagram).unwrap().1 {
            Message::Announce(announce) => Some(announce.count.missing.into_vec()),
            _ => None,
        },
        _ => None,
    });
    let expected: Vec<(u32, u32)> =
        [(1, 3)].into_iter().chain((5..=13).step_by(2).map(|rank| (rank, rank))).collect();
    let last = reported.last().map(|runs| runs.iter().map(|run| (run.first, run.last)).collect());
    assert_eq!((missing.as_ref(), last.as_ref()), (Some(&expected), Some(&expected)));
}
