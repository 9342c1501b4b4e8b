//! A follower on its way to a seat: its joins, its dials, the leaders that it gives up, and its proof.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    LEADER, ME, announce, candidate, close, config, failure, hear, hear_datagram, hear_from, is_ready,
    joined, node, patient, says, to_all, void, welcome,
};
use crate::model::{HostName, Peer, Rank};
use crate::proto::tests::{codec, endpoint, id, said};
use crate::proto::timer::Time;
use crate::proto::{ConnId, Ending, Ends, Event, Failure, Output, Way};
use crate::rdma::examples::example_verdict;
use crate::wire::{Header, Introduction, Partner, Prepare, Refusal, Said};

#[test]
fn an_announce_of_another_nodes_candidate_is_ignored() {
    let mut node = node();
    node.outputs();
    assert_eq!(hear_datagram(&mut node, 3, &announce(candidate(LEADER, 1, true))), []);
    assert!(node.follow.is_none());
}

#[test]
fn a_prepare_names_at_most_five_addresses_of_each_other_node() {
    for (count, takes) in [(10, true), (11, false), (0, true)] {
        let (mut node, prepare) = joined(patient(3));
        let at = |port| SocketAddr::new(endpoint(3).ip(), port);
        let partner = |port| Partner { id: id(3), rank: 2, path: at(port), own_port: 1 };
        let partners = (1000..1000 + count).map(partner).collect();
        hear(&mut node, &Said::Prepare(Prepare { partners, ..prepare }));
        assert_eq!(node.is_bound(), takes, "{count}");
    }
}

#[test]
fn a_loopback_address_of_the_master_is_taken_only_from_this_host_or_beside_others() {
    let local: SocketAddr = "127.0.0.1:29500".parse().unwrap();
    // From the leader's address, at this node's own, with the master at this endpoint.
    for (leader, own, master, takes) in [
        (endpoint(1), endpoint(2), local, false),
        (endpoint(1), endpoint(2), endpoint(1), true),
        (local, endpoint(2), local, true),
        (endpoint(1), local, local, true),
    ] {
        let mut config = patient(2);
        config.node.endpoints = own.into();
        let (mut node, prepare) = joined(config);
        // A datagram of the leader to this node alone shows the leader's address.
        let header = Header { sender: LEADER, recipient: ME };
        let said = announce(candidate(LEADER, 1, false));
        node.handle_datagram(Time::ZERO, leader, &codec().encode(header, &said));
        let prepare = Prepare { master_at: master, address: own.ip(), ..prepare };
        hear(&mut node, &Said::Prepare(prepare));
        assert_eq!(node.is_bound(), takes, "{leader} {own} {master}");
    }
}

#[test]
fn what_only_a_leader_may_say_is_ignored_from_any_other_node() {
    let (mut node, prepare) = joined(config(2));
    let better = Introduction { candidate: candidate(id(3), 3, true), source: endpoint(3) };
    for message in [
        Said::Refuse(Refusal::Redirect(better.clone())),
        Said::Refuse(Refusal::WorldFull),
        welcome(3, 0),
        Said::Prepare(prepare.clone()),
        super::commit(1),
    ] {
        assert_eq!(said(&hear_from(&mut node, 5, &message)), [], "{message:?}");
        assert!(!node.is_bound());
    }
    assert!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready));
    for message in [void(1), super::commit(1), Said::Refuse(Refusal::WorldFull)] {
        assert_eq!(said(&hear_from(&mut node, 5, &message)), [], "{message:?}");
        assert!(node.is_bound() && !node.has_ended());
    }
    // Nor does its leader refuse a node that is ready.
    for refusal in [Refusal::WorldFull, Refusal::Closing, Refusal::Redirect(better)] {
        assert_eq!(said(&hear(&mut node, &Said::Refuse(refusal))), []);
        assert!(node.is_bound() && !node.has_ended());
    }
}

#[test]
fn a_void_of_an_earlier_round_ends_no_round_and_none_that_is_over_begins_again() {
    let (mut node, prepare) = joined(patient(2));
    let of = |round| Said::Prepare(Prepare { round, ..prepare.clone() });
    assert!(says(&hear(&mut node, &of(5)), is_ready));
    for other in [0, 4] {
        hear(&mut node, &void(other));
        assert!(node.is_bound(), "{other}");
    }
    hear(&mut node, &void(5));
    for over in [1, 4, 5] {
        assert!(!says(&hear(&mut node, &of(over)), is_ready), "{over}");
        assert!(!node.is_bound());
    }
    assert!(says(&hear(&mut node, &of(6)), is_ready));
}

#[test]
fn a_ready_member_that_loses_its_leader_stays_bound_also_after_the_leader_has_forgotten_the_session() {
    for begins_anew in [false, true] {
        let (mut node, prepare) = joined(patient(2));
        node.mute.insert(1);
        assert!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready));
        close(&mut node, 1);
        let now = node.shared.now;
        if begins_anew {
            let number = node.handle_asked(now, LEADER, ME).unwrap();
            let ends = Ends { local: endpoint(2).ip(), remote: endpoint(1).ip() };
            node.handle_opened(now, LEADER, Way::Accepted(ends), ConnId(77), (number, 99));
            assert!(says(&node.outputs(), is_ready), "it says all again");
            node.handle_closed(now, ConnId(77), Ending::Broken);
        } else {
            // Another node writes from the leader's address.
            node.handle_datagram(now, endpoint(1), &to_all(id(9), &announce(candidate(id(9), 1, false))));
        }
        let all = node.run(now + Duration::from_secs(9));
        assert!(!all.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))), "{all:?}");
        let all = node.run(now + Duration::from_secs(11));
        assert!(matches!(failure(&all), Some(Failure::OutcomeUnknown { .. })), "{all:?}");
    }
}

#[test]
fn each_refusal_ends_a_node_with_what_it_says() {
    let peer = |last| Peer { host: HostName::new("h"), address: endpoint(last) };
    for (rank, refusal, expected) in [
        (Some(1), Refusal::RankTaken(peer(5)), Some(Failure::RankTaken { rank: Rank(1), holder: peer(5) })),
        (None, Refusal::RankTaken(peer(5)), None),
        (None, Refusal::Closing, None),
        (
            None,
            Refusal::Unready([peer(4)].into_iter().collect()),
            Some(Failure::Unready { nodes: vec![peer(4)] }),
        ),
        (
            None,
            Refusal::PathsBroken([].into_iter().collect(), 7),
            Some(Failure::PathsBroken { paths: vec![], more: 7 }),
        ),
        (
            None,
            Refusal::NoRdma(example_verdict(), false),
            Some(Failure::NoRdma { verdict: example_verdict(), is_required: false }),
        ),
    ] {
        let mut config = patient(3);
        config.node.rank = rank.map(Rank);
        let (mut node, _) = joined(config);
        let told = hear(&mut node, &Said::Refuse(refusal));
        assert_eq!((failure(&told), node.has_ended()), (expected.as_ref(), expected.is_some()));
        assert!(expected.is_some() || node.follow.is_none());
    }
}
