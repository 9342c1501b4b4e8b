//! The proof of the master, and what a node has proved when it has proved all.

use std::time::Duration;

use super::{Done, endpoint, id, ms, shared};
use crate::model::Fault;
use crate::proto::prove::dials::{Dials, Won};
use crate::proto::prove::proofs::Proofs;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::proto::{DialId, Event, Output, PathNews, Warning};
use crate::wire::Partner;

fn partner(node: u8) -> Partner {
    Partner { rank: 0, id: id(node), path: ([10, 1, 0, node], 40_000).into(), own_port: 29_500 }
}

/// The proofs of node 2, which must prove node 1 at its two endpoints, and so many partners.
fn race(partners: u8) -> (Proofs, Shared) {
    let mut shared = shared(9);
    let mut proofs = Proofs::start(&mut shared, id(1), &[endpoint(1), endpoint(7)], None, partners.into());
    let all: Vec<Partner> = (10..10 + partners).map(partner).collect();
    proofs.add(&all, &mut shared);
    (proofs, shared)
}

/// The dial that a leader has named, to this endpoint of node 1.
fn lease(shared: &mut Shared, at: u8) -> Won {
    let mut dials = Dials::new(shared, id(1), &[endpoint(at)], Duration::ZERO);
    dials.advance(shared);
    let (dial, _) = Done::by(shared).dials[0];
    dials.connected(dial);
    assert!(dials.win(dial, shared));
    dials.won().unwrap()
}

#[test]
fn the_master_alone_can_name_a_dial_and_only_one_that_is_open() {
    let (mut proofs, mut shared) = race(0);
    let done = Done::by(&mut shared);
    let [(dial, to)] = done.dials[..] else { panic!("{done:?}") };
    assert_eq!(to, endpoint(1));
    assert!(!proofs.on_proved(id(1), dial, &mut shared), "it is not established");
    proofs.connected(dial);
    assert!(!proofs.on_proved(id(3), dial, &mut shared), "another node");
    assert!(!proofs.on_proved(id(1), DialId(99), &mut shared), "no such dial");
    assert!(!proofs.are_proved() && proofs.endpoint().is_none());
    assert!(proofs.on_proved(id(1), dial, &mut shared));
    assert!(proofs.are_proved() && proofs.endpoint() == Some(0));
}

#[test]
fn all_is_proved_when_the_master_and_each_path_is_whichever_comes_last() {
    for master_first in [true, false] {
        let (mut proofs, mut shared) = race(1);
        let done = Done::by(&mut shared);
        let (dial, path) = (done.dials[0].0, done.paths[0].0);
        proofs.connected(dial);
        let mut prove = |proofs: &mut Proofs, master: bool| {
            if master {
                proofs.on_proved(id(1), dial, &mut shared)
            } else {
                proofs.on_path(path, &PathNews::Arrived, &mut shared)
            }
        };
        assert!(!prove(&mut proofs, master_first) && !proofs.are_proved());
        assert!(prove(&mut proofs, !master_first) && proofs.are_proved());
    }
}

#[test]
fn broken_paths_are_named_only_by_a_node_that_has_reached_the_master() {
    let (mut proofs, mut shared) = race(1);
    let done = Done::by(&mut shared);
    proofs.on_path(done.paths[0].0, &PathNews::Failed(Fault::Refused), &mut shared);
    assert_eq!(proofs.broken(1), None);
    proofs.connected(done.dials[0].0);
    proofs.on_proved(id(1), done.dials[0].0, &mut shared);
    let broken = proofs.broken(5).expect("a path is broken");
    assert_eq!((broken.round, broken.paths[0].partner, broken.paths[0].fault), (5, id(10), Fault::Refused));
}

#[test]
fn the_lease_proves_the_master_if_that_is_the_leader_at_one_of_its_endpoints() {
    for (leader, at, endpoint_of_proof) in [(1, 7, Some(1)), (1, 1, Some(0)), (1, 8, None), (3, 1, None)] {
        let mut shared = shared(9);
        let won = lease(&mut shared, at);
        let endpoints = [endpoint(1), endpoint(7)];
        let mut proofs = Proofs::start(&mut shared, id(1), &endpoints, Some((id(leader), won)), 0);
        assert_eq!(proofs.endpoint(), endpoint_of_proof, "leader {leader} at {at}");
        assert!(!proofs.on_proved(id(1), DialId(1), &mut shared), "that is no news");
        let done = Done::by(&mut shared);
        assert_eq!(
            (done.dials.is_empty(), done.sent.is_empty()),
            if endpoint_of_proof.is_some() { (true, true) } else { (false, false) }
        );
    }
}

#[test]
fn the_endpoint_of_the_commit_is_published_if_it_is_the_one_that_was_proved() {
    let published = |proofs: &Proofs, shared: &mut Shared, index| {
        let master = proofs.publish(index, shared);
        let warns = std::iter::from_fn(|| shared.next_output()).filter(|output| {
            matches!(output, Output::Event(Event::Warning(Warning::MasterElsewhere { .. })))
        });
        (master, warns.count())
    };
    let endpoints = [endpoint(1), endpoint(7)];
    let mut shared = shared(9);
    let won = lease(&mut shared, 7);
    let by_lease = Proofs::start(&mut shared, id(1), &endpoints, Some((id(1), won)), 0);
    let (mut by_race, mut other) = race(0);
    other.now = ms(60);
    by_race.advance(&mut other);
    let dials = Done::by(&mut other).dials;
    let &(dial, _) = dials.iter().find(|(_, to)| *to == endpoint(7)).expect("the other endpoint is dialled");
    assert_eq!(published(&by_race, &mut other, 1), (None, 0), "nothing is proved");
    by_race.connected(dial);
    by_race.on_proved(id(1), dial, &mut other);
    Done::by(&mut other);
    for (index, warnings) in [(1, 0), (0, 1), (2, 1), (255, 1)] {
        assert_eq!(published(&by_lease, &mut shared, index), (Some(endpoint(7)), warnings));
        assert_eq!(published(&by_race, &mut other, index), (Some(endpoint(7)), warnings));
    }
    // The connection may close afterwards: the leader sees whether the master lives.
    by_race.closed(dial);
    assert_eq!(published(&by_race, &mut other, 1), (Some(endpoint(7)), 0));
}

#[test]
fn proofs_that_end_leave_no_connection_and_no_timer() {
    let (proofs, mut shared) = race(1);
    let done = Done::by(&mut shared);
    proofs.stop(&mut shared);
    assert_eq!(Done::by(&mut shared).hung_up, [done.dials[0].0, done.paths[0].0]);
    assert!(!shared.timers.is_set(Timer::ProofFailed));
    let (mut proofs, mut shared) = race(1);
    let done = Done::by(&mut shared);
    for dial in [done.dials[0].0, done.paths[0].0] {
        proofs.closed(dial);
    }
    proofs.stop(&mut shared);
    assert_eq!(Done::by(&mut shared).hung_up, [], "they have closed");
}
