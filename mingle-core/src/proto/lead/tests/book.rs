//! The book of members: who has a seat, who is forgotten, and who takes the seat of another.

use std::net::SocketAddr;

use super::{Leader, endpoint, endpoints, id, job, ms, sent};
use crate::model::{Endpoints, HostName, NodeId, Rank, WorldSize};
use crate::proto::lead::book::Book;
use crate::proto::prove::{Arrivals, Ends};
use crate::proto::report::RankRange;
use crate::proto::shared::Shared;
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Output};
use crate::wire::{Join, Message, NodeInfo};

/// The book of node 1, which leads a world of 9 and was given rank 0.
struct Fixture {
    book: Book,
    arrivals: Arrivals,
    shared: Shared,
}

impl Fixture {
    fn new() -> Self {
        let mut config = Config::plain(job().tag(), 9, 1, endpoint(1));
        config.node.rank = Some(Rank(0));
        let shared = Shared::new(config, 1, Time::ZERO);
        Self { book: Book::new(&shared), arrivals: Arrivals::default(), shared }
    }

    fn join(&mut self, node: u8, now: Time) {
        self.join_as(node, now, |_| {});
    }

    fn join_as(&mut self, node: u8, now: Time, change: impl FnOnce(&mut NodeInfo)) {
        let mut info = NodeInfo::new(HostName::new(&format!("host-{node}")), endpoints(node));
        change(&mut info);
        self.book.join(id(node), endpoint(node), Join { world: WorldSize::of(9), node: info }, now);
    }

    fn prove(&mut self, node: u8) {
        let ends = Ends { local: endpoint(1).ip(), remote: endpoint(node).ip() };
        self.arrivals.add(id(node), ConnId(node.into()), 1, ends, false);
    }

    /// A member that was given the rank of its number.
    fn seat(&mut self, node: u8) {
        self.join_as(node, Time::ZERO, |info| {
            info.rank = Some(Rank(node.into()));
        });
        self.prove(node);
        self.book.seat(id(node));
    }

    fn known(&self) -> Vec<NodeId> {
        self.book.entries().map(|(id, _)| id).collect()
    }

    fn members(&self) -> Vec<NodeId> {
        self.book.members().map(|(id, _)| id).collect()
    }
}

fn ids<const N: usize>(nodes: [u8; N]) -> Vec<NodeId> {
    nodes.map(id).to_vec()
}

#[test]
fn where_the_book_is_full_all_that_are_silent_for_ten_seconds_are_forgotten_or_else_the_one_silent_longest() {
    for (most, now, known) in [
        (5, ms(60_000), vec![2, 3, 4, 5]),
        (4, ms(9_000), vec![2, 4, 5]),
        (4, ms(9_999), vec![2, 4, 5]),
        (4, ms(10_001), vec![2, 4, 5]),
        (4, ms(12_001), vec![2, 5]),
        (4, ms(60_000), vec![2]),
        (1, ms(10_001), vec![2, 5]),
    ] {
        let mut fixture = Fixture::new();
        // A proof counts however long its node is silent.
        fixture.prove(2);
        for (node, heard) in [(2, 0), (3, 0), (4, 2000), (5, 3000)] {
            fixture.join(node, ms(heard));
        }
        fixture.book.make_room(most, &fixture.arrivals, now);
        let expected: Vec<NodeId> = known.into_iter().map(id).collect();
        assert_eq!(fixture.known(), expected, "at most {most}, after {now:?}");
    }
}

#[test]
fn members_and_standbys_learn_why_there_is_no_world_and_others_are_forgotten() {
    let mut fixture = Fixture::new();
    fixture.seat(2);
    for node in [3, 4] {
        fixture.join(node, Time::ZERO);
        fixture.prove(node);
    }
    fixture.book.add_standby(id(4));
    fixture.book.retain_members_and_standbys();
    assert_eq!(fixture.known(), ids([2, 4]));
}

#[test]
fn a_member_that_loses_its_seat_leaves_its_rank_its_address_and_its_place_in_every_count_and_no_others() {
    let vacates: [fn(&mut Book, NodeId); 3] = [Book::unseat, Book::vacate, Book::replace];
    for (way, vacate) in vacates.into_iter().enumerate() {
        let mut fixture = Fixture::new();
        for node in [2, 3, 4] {
            fixture.seat(node);
        }
        assert_eq!((fixture.book.seated(), fixture.book.high_water()), (4, 4));
        vacate(&mut fixture.book, id(3));
        assert_eq!(fixture.members(), ids([2, 4]), "way {way}");
        assert_eq!((fixture.book.seated(), fixture.book.high_water()), (3, 4));
        let holders = [0, 2, 3, 4].map(|rank| fixture.book.holder(Rank(rank)));
        assert_eq!(holders, [Some(id(1)), Some(id(2)), None, Some(id(4))], "way {way}");
        let newest: Vec<HostName> = fixture.book.newest().collect();
        assert_eq!(newest, ["host-4", "host-2"].map(HostName::new), "way {way}");
        let missing = fixture.book.missing(&fixture.shared);
        let run = |first, last| RankRange { first, last };
        assert_eq!(missing, [run(1, 1), run(3, 3), run(5, 8)], "way {way}");
        // Another process at each of the three addresses.
        for (process, at, ghost) in [(12, 2, Some(2)), (13, 3, None), (14, 4, Some(4))] {
            fixture.join_as(process, Time::ZERO, |info| info.endpoints = endpoints(at));
            assert_eq!(fixture.book.ghost(id(process)), ghost.map(id), "way {way}");
        }
        let (is_known, is_standby) = (fixture.known().contains(&id(3)), fixture.book.is_standby(id(3)));
        assert_eq!((is_known, is_standby), [(true, false), (false, false), (true, true)][way]);
        // A node without a seat loses none.
        vacate(&mut fixture.book, id(3));
        assert_eq!(fixture.book.seated(), 3, "way {way}");
    }
}

#[test]
fn a_member_is_no_ghost_of_itself_nor_of_a_process_with_another_port_or_address() {
    let mut fixture = Fixture::new();
    fixture.seat(2);
    assert_eq!(fixture.book.ghost(id(2)), None);
    assert_eq!(fixture.book.ghost(id(3)), None, "a node that has not joined");
    let at = |endpoint: SocketAddr| Endpoints::new(vec![endpoint, self::endpoint(2)]).unwrap();
    let mut other = endpoint(2);
    other.set_port(29501);
    for endpoint in [other, endpoint(3)] {
        fixture.join_as(3, Time::ZERO, |info| info.endpoints = at(endpoint));
        assert_eq!(fixture.book.ghost(id(3)), None, "{endpoint}");
    }
    // Without a seat it is nobody's ghost.
    fixture.join_as(4, Time::ZERO, |info| info.endpoints = endpoints(5));
    fixture.join_as(5, Time::ZERO, |_| {});
    assert_eq!(fixture.book.ghost(id(5)), None);
}

#[test]
fn a_join_replaces_what_a_node_said_before_and_of_a_member_its_endpoints_alone() {
    for is_member in [false, true] {
        let mut fixture = Fixture::new();
        fixture.join_as(2, Time::ZERO, |info| info.rank = Some(Rank(2)));
        if is_member {
            fixture.book.seat(id(2));
        }
        let later = ms(7000);
        let mut other = NodeInfo::new(HostName::new("other"), endpoints(8));
        (other.rank, other.attributes.slots) = (Some(Rank(5)), 7);
        fixture.book.join(id(2), endpoint(9), Join { world: WorldSize::of(9), node: other.clone() }, later);
        let entry = fixture.book.get(id(2)).unwrap();
        assert_eq!((entry.heard, entry.source), (later, endpoint(9)));
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
            fixture.join(node, Time::ZERO);
            fixture.prove(node);
            fixture.book.add_standby(id(node));
        }
        change(&mut fixture);
        fixture
    };
    let successor = |fixture: &Fixture, of: u8, taken: &[u8]| {
        let taken: Vec<NodeId> = taken.iter().map(|&node| id(node)).collect();
        fixture.book.successor(id(of), &taken, &fixture.arrivals)
    };
    let fixture = standbys(&|_| {});
    assert_eq!(successor(&fixture, 2, &[]), Some(id(4)));
    assert_eq!(successor(&fixture, 2, &[4]), Some(id(5)), "the first has another seat");
    assert_eq!(successor(&fixture, 2, &[5, 4]), None);
    assert_eq!(successor(&fixture, 4, &[]), None, "a standby has no seat");
    let fixture = standbys(&|fixture| fixture.book.get_mut(id(4)).unwrap().replaced = true);
    assert_eq!(successor(&fixture, 2, &[]), Some(id(5)), "the first has held up a round");
    let fixture = standbys(&|fixture| drop(fixture.arrivals.evict(id(4))));
    assert_eq!(successor(&fixture, 2, &[]), Some(id(5)), "the first has no connection");
    for (rank, of_two, of_three) in [(2, 4, 5), (3, 5, 4), (7, 4, 4), (0, 5, 5)] {
        let fixture =
            standbys(&|fixture| fixture.join_as(4, Time::ZERO, |info| info.rank = Some(Rank(rank))));
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
    let missing = sent(&leader.run(ms(1000))).into_iter().rev().find_map(|(_, message)| match message {
        Message::Announce(announce) => Some(announce.missing.into_vec()),
        _ => None,
    });
    let expected: Vec<(u32, u32)> =
        [(1, 3)].into_iter().chain((5..=13).step_by(2).map(|rank| (rank, rank))).collect();
    let last = reported.last().map(|runs| runs.iter().map(|run| (run.first, run.last)).collect());
    assert_eq!((missing.as_ref(), last.as_ref()), (Some(&expected), Some(&expected)));
}
