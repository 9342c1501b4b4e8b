//! Members whose seat another node wants.

use std::net::SocketAddr;

use super::{codec, endpoint, endpoints, id, job, ms};
use crate::model::{HostName, NodeId, WorldSize};
use crate::proto::lead::book::Book;
use crate::proto::lead::challenges::Challenges;
use crate::proto::shared::Shared;
use crate::proto::timer::Time;
use crate::proto::{Config, Output};
use crate::wire::{Join, Message, NodeInfo, Refusal};

struct Fixture {
    challenges: Challenges,
    book: Book,
    shared: Shared,
}

impl Fixture {
    /// The nodes 2 to 5 have joined.
    fn new() -> Self {
        let shared = Shared::new(Config::plain(job().tag(), 9, 1, endpoint(1)), 1, Time::ZERO);
        let mut book = Book::new(&shared);
        for node in 2..=5 {
            let info = NodeInfo::new(HostName::new(&format!("host-{node}")), endpoints(node));
            book.join(id(node), endpoint(node), Join { world: WorldSize::of(9), node: info }, Time::ZERO);
        }
        Self { challenges: Challenges::default(), book, shared }
    }

    fn add(&mut self, holder: u8, contender: Option<u8>) {
        self.challenges.add(id(holder), contender.map(id), &mut self.shared);
    }

    fn ping(&mut self, now: Time) -> Vec<NodeId> {
        self.shared.now = now;
        self.challenges.ping(&self.book, &mut self.shared)
    }

    fn pong(&mut self, from: u8) -> Vec<(SocketAddr, Message)> {
        self.challenges.on_pong(id(from), &self.book, &mut self.shared);
        self.sent()
    }

    fn sent(&mut self) -> Vec<(SocketAddr, Message)> {
        let mut sent = Vec::new();
        while let Some(output) = self.shared.next_output() {
            let Output::Send { to, datagram } = output else { panic!("{output:?}") };
            sent.push((to, codec().decode(&datagram).unwrap().1));
        }
        sent
    }

    fn pinged(&mut self) -> Vec<SocketAddr> {
        let sent = self.sent();
        assert!(sent.iter().all(|(_, message)| *message == Message::Ping), "{sent:?}");
        sent.into_iter().map(|(to, _)| to).collect()
    }
}

#[test]
fn a_member_that_is_silent_for_three_seconds_after_it_was_challenged_is_thrown_out_once() {
    let mut fixture = Fixture::new();
    fixture.shared.now = ms(1000);
    fixture.add(2, None);
    fixture.shared.now = ms(2000);
    // Another challenge of the same member changes nothing.
    fixture.add(2, None);
    fixture.add(3, None);
    assert_eq!(fixture.ping(ms(3999)), []);
    assert_eq!(fixture.ping(ms(4000)), [id(2)]);
    assert_eq!(fixture.ping(ms(4999)), []);
    assert_eq!(fixture.ping(ms(5000)), [id(3)]);
    fixture.sent();
    assert_eq!(fixture.ping(ms(60_000)), []);
    assert_eq!(fixture.pinged(), []);
}

#[test]
fn a_member_that_answers_is_left_alone_if_no_node_was_given_its_rank() {
    let mut fixture = Fixture::new();
    fixture.add(2, None);
    fixture.add(3, None);
    fixture.ping(Time::ZERO);
    fixture.sent();
    assert_eq!(fixture.pong(2), []);
    assert_eq!(fixture.pong(4), [], "nobody wants its seat");
    assert_eq!(fixture.ping(ms(3000)), [id(3)]);
}

#[test]
fn each_contender_for_the_rank_of_a_member_that_answers_is_refused_until_it_has_left() {
    let mut fixture = Fixture::new();
    fixture.add(2, Some(3));
    fixture.add(2, Some(4));
    fixture.add(5, None);
    let holder = fixture.book.get(id(2)).unwrap().peer();
    let refused = |node| (endpoint(node), Message::Refuse(Refusal::RankTaken(holder.clone())));
    for second in 1..5 {
        fixture.shared.now = ms(1000 * second);
        assert_eq!(fixture.pong(2), [refused(3), refused(4)]);
    }
    // It was heard after four seconds; node 5 never was.
    assert_eq!(fixture.ping(ms(6999)), [id(5)]);
    fixture.sent();
    fixture.book.remove(id(3));
    assert_eq!(fixture.pong(2), [refused(4)]);
    fixture.book.remove(id(4));
    assert_eq!(fixture.pong(2), []);
    assert_eq!(fixture.ping(ms(60_000)), [], "nobody wants its seat any more");
}
