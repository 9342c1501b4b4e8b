//! A follower on its way to a seat: its joins, its dials, the leaders that it gives up, and its proof.

use std::net::SocketAddr;

use super::{
    LEADER, ME, announce, candidate, config, count, failure, hear, hear_from, is_join, is_ready, is_solicit,
    joined, node, patient, says, sent, to_all,
};
use crate::model::{Endpoints, Fault, HostName, Lineage, Link, List, NodeId, Paths, Peer, Rank, WorldSize};
use crate::proto::follow::Follow;
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run};
use crate::proto::timer::Time;
use crate::proto::{Config, DialId, Event, Failure, Node, Output, PathDial, PathNews};
use crate::rdma::examples::example_verdict;
use crate::wire::{
    Candidate, Header, Introduction, Message, Partner, Prepare, Reach, Ready, Refusal, Welcome,
};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn welcome(lease: Option<u32>) -> Message {
    Message::Welcome(Welcome { lease, seated: lease.is_some() })
}

#[test]
fn a_redirect_to_the_leader_itself_or_to_this_node_changes_nothing() {
    for (to, last) in [(LEADER, 1), (ME, 2)] {
        let (mut node, _) = joined(patient(3));
        let explicit = to == ME;
        let to = Introduction { candidate: candidate(to, last, explicit), source: endpoint(last) };
        let told = hear(&mut node, &Message::Redirect(to));
        assert_eq!(told, []);
        assert!(node.follow.as_ref().is_some_and(Follow::is_joined));
    }
}

#[test]
fn an_announce_of_another_nodes_candidate_is_ignored() {
    let mut node = node();
    let _ = outputs(&mut node);
    assert_eq!(hear_from(&mut node, 3, &announce(candidate(LEADER, 1, true))), []);
    assert!(node.follow.is_none());
}

#[test]
fn a_leader_whose_prepare_names_no_connection_of_a_node_is_not_forgiven_that_it_could_not_be_joined() {
    let announced = to_all(LEADER, &announce(candidate(LEADER, 1, true)));
    let (_, prepare) = joined(patient(3));
    for (at, follows) in [(6999, false), (7000, true)] {
        let mut node = Node::new(patient(3), 1, Time::ZERO);
        for now in [ms(0), ms(2000)] {
            let _ = run(&mut node, now);
            node.handle_datagram(now, endpoint(1), &announced);
            assert!(node.follow.is_some());
        }
        // It was ignored for a second, and will be for two when its three seconds are over.
        hear(&mut node, &Message::Prepare(Prepare { lease: 99, ..prepare.clone() }));
        let _ = run(&mut node, ms(at));
        assert!(node.follow.is_none());
        node.handle_datagram(ms(at), endpoint(1), &announced);
        assert_eq!(node.follow.is_some(), follows, "{at} ms");
    }
}

/// A member of a world of three in a round whose master is node 3, and what it has done.
fn with_master_3(config: Config) -> (Node, Prepare, Vec<Output>) {
    let (mut node, prepare) = joined(config);
    let prepare = Prepare { master: id(3), endpoints: endpoint(3).into(), slots_total: 3, ..prepare };
    let told = hear(&mut node, &Message::Prepare(prepare.clone()));
    (node, prepare, told)
}

#[test]
fn a_dial_to_the_master_that_has_closed_is_no_proof() {
    for closes in [true, false] {
        let (mut node, _, told) = with_master_3(patient(3));
        let dial = dialled(&told);
        node.handle_dialed(Time::ZERO, dial);
        if closes {
            node.handle_hung_up(Time::ZERO, dial);
        }
        let told = hear_from(&mut node, 3, &Message::Proved(dial.0));
        assert_eq!(says(&told, is_ready), !closes);
    }
}

#[test]
fn only_the_master_can_say_that_it_is_proved() {
    let (mut node, _, told) = with_master_3(patient(3));
    let dial = dialled(&told);
    node.handle_dialed(Time::ZERO, dial);
    assert!(!says(&hear_from(&mut node, 1, &Message::Proved(dial.0)), is_ready));
    assert!(says(&hear_from(&mut node, 3, &Message::Proved(dial.0)), is_ready));
}

/// The state that a node repeats to its leader at the end of these outputs.
fn last_said(outputs: &[Output]) -> Option<Message> {
    let mut said = sent(outputs).into_iter().rev().filter(|(_, message)| !is_solicit(message));
    said.find(|(to, _)| *to == endpoint(1)).map(|(_, message)| message)
}

#[test]
fn a_member_names_its_broken_paths_if_it_has_reached_the_master_and_else_that_it_has_not() {
    let reach = || {
        let link = Link { address: endpoint(2).ip(), prefix: 24, mtu: 1500 };
        Reach::new(40_000, [link])
    };
    for (reaches_master, reaches_partner) in [(true, false), (false, false), (false, true)] {
        let mut config = patient(3);
        (config.node.reach, config.node.attributes.paths) = (reach(), Paths::All);
        let (mut node, prepare) = joined(config);
        let path = SocketAddr::from(([10, 0, 0, 3], 40_000));
        let partner = Partner { rank: 0, id: id(3), path, own_port: 29500, stays: true };
        let prepare = Prepare {
            master: id(3),
            endpoints: endpoint(3).into(),
            slots_total: 3,
            paths: 1,
            partners: [partner].into_iter().collect(),
            ..prepare
        };
        let told = hear(&mut node, &Message::Prepare(prepare.clone()));
        let to_partner = told.iter().find_map(|output| match output {
            Output::DialPath(PathDial { dial, to, .. }) if *to == path => Some(*dial),
            _ => None,
        });
        let (to_master, to_partner) = (dialled(&told), to_partner.expect("it dials its partner"));
        if reaches_master {
            node.handle_dialed(Time::ZERO, to_master);
            let told = hear_from(&mut node, 3, &Message::Proved(to_master.0));
            assert!(!says(&told, is_ready), "a path is not proved");
        }
        if reaches_partner {
            node.handle_path(Time::ZERO, to_partner, &PathNews::Arrived);
        } else {
            node.handle_path(Time::ZERO, to_partner, &PathNews::Failed(Fault::Refused));
        }
        let before = run(&mut node, ms(3999));
        assert_eq!(last_said(&before).filter(|said| *said != Message::Pong), None);
        match last_said(&run(&mut node, ms(4000))) {
            Some(Message::Broken(broken)) => {
                assert!(reaches_master && broken.round == 1 && broken.paths[0].fault == Fault::Refused);
            }
            other => assert_eq!((other, reaches_master), (Some(Message::Unproved(1)), false)),
        }
        // The same again for a prepare, and no Ready although all is proved by now.
        if reaches_master {
            let late = before.iter().rev().find_map(|output| match output {
                Output::DialPath(PathDial { dial, to, .. }) if *to == path => Some(*dial),
                _ => None,
            });
            node.handle_path(node.shared.now, late.expect("it dials again and again"), &PathNews::Arrived);
            let _ = outputs(&mut node);
            let told = hear_from(&mut node, 1, &Message::Prepare(prepare));
            assert_eq!(sent(&told), [(endpoint(1), Message::Pong)], "the round is void soon");
        }
    }
}

#[test]
fn a_prepare_names_at_most_five_addresses_of_each_other_node_and_one_of_this_node() {
    for (change, takes) in [
        ((10, endpoint(2)), true),
        ((11, endpoint(2)), false),
        ((u32::MAX, endpoint(2)), false),
        ((0, endpoint(7)), false),
        ((0, endpoint(2)), true),
    ] {
        let (mut node, prepare) = joined(patient(3));
        let (paths, address) = change;
        hear(&mut node, &Message::Prepare(Prepare { paths, address: address.ip(), ..prepare }));
        assert_eq!(node.is_bound(), takes, "{change:?}");
    }
}

#[test]
fn an_address_that_this_node_has_lost_may_still_be_in_a_prepare() {
    let mut config = patient(3);
    config.node.endpoints = Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    let (mut node, prepare) = joined(config);
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), Reach::default());
    hear(&mut node, &Message::Prepare(Prepare { address: endpoint(7).ip(), ..prepare }));
    assert!(node.is_bound());
}

#[test]
fn a_given_rank_below_the_worlds_size_is_asked_for_and_kept() {
    let mut config = patient(3);
    config.node.rank = Some(Rank(2));
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let told = hear(&mut node, &announce(candidate(LEADER, 1, false)));
    let ranks: Vec<_> = sent(&told)
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::Join(join) => Some((join.world, join.node.rank)),
            _ => None,
        })
        .collect();
    assert_eq!(ranks, [(WorldSize::of(3), Some(Rank(2)))]);
}

#[test]
fn a_leader_that_is_suspected_is_asked_every_250_ms_and_told_of_to_all_once_and_its_lease_is_closed() {
    let (mut node, prepare) = joined(patient(3));
    let datagram = to_all(id(7), &announce(candidate(id(7), 1, false)));
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    let all = run(&mut node, ms(1999));
    assert_eq!(count(&all, is_solicit), 8, "{all:?}");
    assert_eq!(all.iter().filter(|output| matches!(output, Output::Multicast { .. })).count(), 1);
    let left = run(&mut node, ms(2300));
    assert!(left.contains(&Output::HangUp(DialId(prepare.lease))) && says(&left, is_join));
    // It answers after all, and nobody else writes from its address any more.
    let dial = dialled(&left);
    node.handle_dialed(node.shared.now, dial);
    hear_from(&mut node, 1, &welcome(Some(dial.0)));
    assert!(node.follow.as_ref().is_some_and(Follow::is_joined));
    let later = run(&mut node, ms(4400));
    assert!(!says(&later, is_solicit) && !says(&later, is_join), "{later:?}");
}

#[test]
fn a_loopback_address_of_the_master_is_taken_only_from_this_host_or_beside_others() {
    let local: SocketAddr = "127.0.0.1:29500".parse().unwrap();
    let with = |addresses: &[SocketAddr]| Endpoints::new(addresses.to_vec()).unwrap();
    // From the leader's address, at this node's own, with these endpoints of the master.
    for (leader, own, master, takes) in [
        (endpoint(1), endpoint(2), with(&[local]), false),
        (endpoint(1), endpoint(2), with(&[local, endpoint(1)]), true),
        (endpoint(1), endpoint(2), with(&[endpoint(1), local]), true),
        (local, endpoint(2), with(&[local]), true),
        (endpoint(1), local, with(&[local]), true),
    ] {
        let mut config = patient(2);
        config.node.endpoints = own.into();
        let (mut node, prepare) = joined(config);
        // A message of the leader to this node alone shows the leader's address.
        let header = Header { sender: LEADER, recipient: ME, lineage: node.shared.config.lineage };
        node.handle_datagram(Time::ZERO, leader, &codec().encode(header, &Message::Pong));
        let prepare = Prepare { endpoints: master.clone(), address: own.ip(), ..prepare };
        node.handle_datagram(Time::ZERO, leader, &codec().encode(header, &Message::Prepare(prepare)));
        assert_eq!(node.is_bound(), takes, "{leader} {own} {master:?}");
    }
}

#[test]
fn what_only_a_leader_may_say_is_ignored_from_any_other_node() {
    let (mut node, prepare) = joined(config(2));
    for message in [
        Message::Redirect(Introduction { candidate: candidate(id(3), 3, true), source: endpoint(3) }),
        Message::Refuse(Refusal::WorldFull),
        welcome(Some(1)),
        Message::Prepare(prepare.clone()),
        super::commit(1),
    ] {
        assert_eq!(hear_from(&mut node, 5, &message), [], "{message:?}");
        assert!(!node.is_bound());
    }
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
    for message in [Message::Void(1), super::commit(1), Message::Refuse(Refusal::WorldFull)] {
        assert_eq!(hear_from(&mut node, 5, &message), [], "{message:?}");
        assert!(node.is_bound() && !node.has_ended());
    }
    // Nor does its leader refuse a node that is ready.
    for refusal in [Refusal::WorldFull, Refusal::Closing] {
        assert_eq!(hear(&mut node, &Message::Refuse(refusal)), []);
        assert!(node.is_bound() && !node.has_ended());
    }
}

#[test]
fn a_later_lineage_ends_no_node_in_a_round() {
    for in_round in [false, true] {
        let (mut node, prepare) = joined(config(2));
        if in_round {
            hear(&mut node, &Message::Prepare(prepare));
        }
        let lineage = Lineage { generation: 1, origin: 7 };
        for recipient in [NodeId::ALL, ME] {
            let header = Header { sender: id(9), recipient, lineage };
            let message = if recipient == ME { Message::Ping } else { node.shared.solicit() };
            node.handle_datagram(Time::ZERO, endpoint(9), &codec().encode(header, &message));
            let told = outputs(&mut node);
            assert_eq!(told.is_empty(), in_round, "{told:?}");
        }
        assert_eq!(node.has_ended(), !in_round);
    }
}

#[test]
fn a_redirect_to_a_candidate_that_was_silent_is_not_followed() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let silent = candidate(id(3), 3, true);
    node.handle_datagram(Time::ZERO, endpoint(3), &to_all(id(3), &announce(silent.clone())));
    let _ = run(&mut node, ms(1000));
    assert!(node.follow.is_none());
    let dial = dialled(&hear(&mut node, &announce(candidate(LEADER, 1, true))));
    node.handle_dialed(node.shared.now, dial);
    hear(&mut node, &welcome(Some(dial.0)));
    // Better than its leader, if it were not ignored.
    let better = Candidate { members: 5, ..silent };
    let redirect = Message::Redirect(Introduction { candidate: better, source: endpoint(3) });
    assert_eq!(hear(&mut node, &redirect), []);
    let _ = run(&mut node, ms(2000));
    assert!(says(&hear(&mut node, &redirect), is_join), "a second has passed");
}

#[test]
fn a_commit_before_a_node_is_ready_and_one_of_another_round_form_no_world() {
    let (mut node, _, told) = with_master_3(patient(3));
    assert!(!super::has_formed(&hear(&mut node, &super::commit(1))) && node.is_bound());
    let dial = dialled(&told);
    node.handle_dialed(Time::ZERO, dial);
    hear_from(&mut node, 3, &Message::Proved(dial.0));
    assert!(!super::has_formed(&hear(&mut node, &super::commit(2))));
    let told = hear(&mut node, &super::commit(1));
    assert!(super::has_formed(&told));
    let done: Vec<_> = sent(&told).into_iter().filter(|(_, message)| *message == Message::Done(1)).collect();
    assert_eq!(done, vec![(endpoint(1), Message::Done(1)); 3]);
    // Once the leader knows that the master is done, the jobs of others connect to the master's port.
    let at = |wanted: fn(&Output) -> bool| told.iter().position(wanted).unwrap();
    assert!(
        at(|output| *output == Output::StopAccepting) < at(|output| matches!(output, Output::Send { .. }))
    );
}

#[test]
fn a_void_of_another_round_ends_no_round_and_none_that_is_over_begins_again() {
    let (mut node, prepare) = joined(patient(2));
    let of = |round| Message::Prepare(Prepare { round, ..prepare.clone() });
    assert!(says(&hear(&mut node, &of(5)), is_ready));
    for other in [0, 4, 6] {
        hear(&mut node, &Message::Void(other));
        assert!(node.is_bound(), "{other}");
    }
    hear(&mut node, &Message::Void(5));
    for over in [1, 4, 5] {
        assert_eq!(hear(&mut node, &of(over)), [], "{over}");
        assert!(!node.is_bound());
    }
    assert!(says(&hear(&mut node, &of(6)), is_ready));
}

#[test]
fn a_higher_round_replaces_the_one_under_way_and_its_dials() {
    let (mut node, prepare, told) = with_master_3(patient(3));
    let dial = dialled(&told);
    let told = hear(&mut node, &Message::Prepare(Prepare { round: 2, ..prepare.clone() }));
    assert!(
        told.contains(&Output::HangUp(dial)) && told.contains(&Output::Event(Event::Preparing { round: 2 }))
    );
    let next = dialled(&told);
    node.handle_dialed(Time::ZERO, next);
    let told = hear_from(&mut node, 3, &Message::Proved(next.0));
    let ready: Vec<_> = sent(&told).into_iter().map(|(_, message)| message).collect();
    assert_eq!(ready, [Message::Ready(Ready { round: 2, endpoint: 0 })]);
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
        let told = hear(&mut node, &Message::Refuse(refusal));
        assert_eq!((failure(&told), node.has_ended()), (expected.as_ref(), expected.is_some()));
        assert!(expected.is_some() || node.follow.is_none());
    }
    for refusal in [
        Refusal::WorldFull,
        Refusal::WorldDiffers(WorldSize::of(9)),
        Refusal::MasterUnproved(List::default()),
    ] {
        let (mut node, _) = joined(patient(3));
        let (ours, leader) = (node.shared.config.world, candidate(LEADER, 1, false));
        let leader = Peer { host: leader.host, address: leader.endpoints.preferred() };
        let expected = match &refusal {
            Refusal::WorldFull => Failure::WorldFull { world: ours, leader },
            Refusal::WorldDiffers(theirs) => Failure::WorldDiffers { ours, theirs: *theirs, leader },
            _ => Failure::MasterUnproved { pairs: vec![] },
        };
        let told = hear(&mut node, &Message::Refuse(refusal));
        assert_eq!(failure(&told), Some(&expected));
    }
}
