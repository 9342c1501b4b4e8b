//! The book of members: who has a seat, and who takes the seat of another.

use super::{Leader, endpoints, id, ms};
use crate::model::{HostName, NodeId, Rank};
use crate::proto::lead::book::Book;
use crate::proto::session::{Ends, Way};
use crate::proto::shared::Shared;
use crate::proto::tests::{codec, endpoint, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Output};
use crate::wire::{Message, NodeInfo};

/// The book of node 1, which leads a world of 9 and was given rank 0.
struct Fixture {
    book: Book,
    shared: Shared,
}

impl Fixture {
    fn new() -> Self {
        let mut config = Config::plain(tag(), 9, 1, endpoint(1));
        config.node.rank = Some(Rank(0));
        let shared = Shared::new(config, 1, Time::ZERO);
        Self { book: Book::new(&shared), shared }
    }

    fn join(&mut self, node: u8, change: impl FnOnce(&mut NodeInfo)) {
        let mut info = NodeInfo::new(HostName::new(&format!("host-{node}")), endpoints(node));
        change(&mut info);
        self.book.join(id(node), info, None);
    }

    fn connect(&mut self, node: u8) {
        let ends = Ends { local: endpoint(1).ip(), remote: endpoint(node).ip() };
        let links = &mut self.shared.links;
        links.add(Time::ZERO, id(node), Vec::new(), ());
        links.opened(Time::ZERO, id(node), Way::Accepted(ends), ConnId(node.into()), 1);
    }

    /// A member that was given the rank of its number.
    fn seat(&mut self, node: u8) {
        self.join(node, |info| info.rank = Some(Rank(node.into())));
        self.connect(node);
        self.book.seat(id(node));
    }
}

#[test]
fn a_join_replaces_what_a_node_said_before_and_of_a_member_its_endpoints_alone() {
    for is_member in [false, true] {
        let mut fixture = Fixture::new();
        fixture.join(2, |info| info.rank = Some(Rank(2)));
        if is_member {
            fixture.book.seat(id(2));
        }
        let mut other = NodeInfo::new(HostName::new("other"), endpoints(8));
        (other.rank, other.attributes.slots) = (Some(Rank(5)), 7);
        fixture.book.join(id(2), other.clone(), None);
        let entry = fixture.book.get(id(2)).unwrap();
        assert_eq!(entry.node.endpoints, endpoints(8));
        assert_eq!(entry.node == other, !is_member);
        assert_eq!(entry.node.rank, Some(Rank(if is_member { 2 } else { 5 })));
        assert_eq!(entry.seated, is_member);
    }
}

#[test]
fn the_first_standby_that_may_have_it_takes_the_seat() {
    let standbys = |change: &dyn Fn(&mut Fixture)| {
        let mut fixture = Fixture::new();
        fixture.seat(2);
        fixture.seat(3);
        for node in [4, 5] {
            fixture.join(node, |_| {});
            fixture.connect(node);
            fixture.book.add_standby(id(node));
        }
        change(&mut fixture);
        fixture
    };
    let successor = |fixture: &Fixture, of: u8, taken: &[u8]| {
        let taken: Vec<NodeId> = taken.iter().map(|&node| id(node)).collect();
        fixture.book.successor(id(of), &taken, &fixture.shared.links)
    };
    let fixture = standbys(&|_| {});
    assert_eq!(successor(&fixture, 2, &[]), Some(id(4)));
    assert_eq!(successor(&fixture, 2, &[4]), Some(id(5)), "the first has another seat");
    assert_eq!(successor(&fixture, 2, &[5, 4]), None);
    assert_eq!(successor(&fixture, 4, &[]), None, "a standby has no seat");
    let fixture = standbys(&|fixture| fixture.book.get_mut(id(4)).unwrap().replaced = true);
    assert_eq!(successor(&fixture, 2, &[]), Some(id(5)), "the first has held up a round");
    let fixture = standbys(&|fixture| fixture.shared.links.forget(Time::ZERO, id(4)));
    assert_eq!(successor(&fixture, 2, &[]), Some(id(5)), "the first has no connection");
    for (rank, of_two, of_three) in [(2, 4, 5), (3, 5, 4), (7, 4, 4), (0, 5, 5)] {
        let fixture = standbys(&|fixture| fixture.join(4, |info| info.rank = Some(Rank(rank))));
        let both = (successor(&fixture, 2, &[]), successor(&fixture, 3, &[]));
        assert_eq!(both, (Some(id(of_two)), Some(id(of_three))), "the first was given rank {rank}");
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
