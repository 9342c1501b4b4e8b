//! A follower on its way to a seat: its joins, its dials, the leaders that it gives up, and its proof.

use std::net::SocketAddr;

use super::{
    LEADER, ME, announce, candidate, config, count, failure, hear, hear_at, hear_from, is_join, is_ready,
    is_solicit, joined, node, patient, says, sent, to_all, with_roster,
};
use crate::model::{Endpoints, Fault, HostName, Lineage, Link, List, NodeId, Paths, Peer, Rank, WorldSize};
use crate::proto::follow::Follow;
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run};
use crate::proto::timer::{Time, Timer};
use crate::proto::{Config, DialId, Event, Failure, Node, Output, PathNews};
use crate::rdma::Verdict;
use crate::wire::{
    Announce, Candidate, Header, Introduction, Message, Partner, Prepare, Reach, Ready, Refusal, Welcome,
};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn welcome(lease: Option<u32>) -> Message {
    Message::Welcome(Welcome { lease, seated: lease.is_some() })
}

/// The dials that are opened, with the time since the start.
fn dial_times(node: &mut Node, until: Time) -> Vec<(u128, DialId)> {
    let mut all = Vec::new();
    while node.shared.now < until {
        let now = node.shared.now + ms(1);
        for output in run(node, now) {
            if let Output::Dial { dial, .. } = output {
                all.push((now.as_millis(), dial));
            }
        }
    }
    all
}

#[test]
fn the_third_join_and_each_later_one_goes_to_an_endpoint_of_the_leader_too_in_turn() {
    for (endpoints, others) in
        [(vec![1, 7], vec![1, 7, 1, 7, 1]), (vec![8], vec![]), (vec![8, 7], vec![7, 7])]
    {
        let mut node = Node::new(patient(3), 1, Time::ZERO);
        let _ = outputs(&mut node);
        let all: Vec<SocketAddr> = endpoints.iter().map(|&last| endpoint(last)).collect();
        let leader = Candidate { endpoints: Endpoints::new(all).unwrap(), ..candidate(LEADER, 1, true) };
        // It writes from another address than its endpoints.
        let datagram = to_all(LEADER, &announce(leader));
        node.handle_datagram(Time::ZERO, endpoint(8), &datagram);
        let mut sent_to = sent(&outputs(&mut node));
        sent_to.extend(sent(&run(&mut node, ms(990))));
        sent_to.retain(|(_, message)| is_join(message));
        let to: Vec<SocketAddr> = sent_to.into_iter().map(|(to, _)| to).collect();
        assert_eq!(to.iter().filter(|&&to| to == endpoint(8)).count(), 7, "{endpoints:?}: {to:?}");
        assert_eq!(to[..2], [endpoint(8); 2]);
        let elsewhere: Vec<SocketAddr> = to.into_iter().filter(|&to| to != endpoint(8)).collect();
        let expected: Vec<SocketAddr> = others.into_iter().map(endpoint).collect();
        assert_eq!(elsewhere, expected, "{endpoints:?}");
    }
}

#[test]
fn a_lease_that_breaks_is_dialled_at_once_and_each_time_60_ms_later_up_to_half_a_second() {
    let (mut node, prepare) = joined(patient(3));
    let mut lease = DialId(prepare.lease);
    for expected in [0, 60, 120, 180, 240, 300, 360, 420, 480, 500, 500] {
        let now = node.shared.now + ms(1000);
        let _ = run(&mut node, now);
        node.handle_hung_up(now, lease);
        let mut first = outputs(&mut node).iter().find_map(|output| match output {
            Output::Dial { dial, .. } => Some((now.as_millis(), *dial)),
            _ => None,
        });
        // The leader answers at once that nothing has arrived.
        hear_from(&mut node, 1, &welcome(None));
        first = first.or_else(|| dial_times(&mut node, now + ms(700)).first().copied());
        let (at, dial) = first.expect("it dials again");
        assert_eq!(at - now.as_millis(), expected);
        node.handle_dialed(node.shared.now, dial);
        hear_from(&mut node, 1, &welcome(Some(dial.0)));
        assert!(node.follow.as_ref().is_some_and(Follow::is_joined));
        lease = dial;
    }
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
fn a_node_that_hears_of_itself_does_not_follow_itself() {
    let mut node = node();
    let _ = outputs(&mut node);
    let own = Introduction { candidate: candidate(ME, 2, true), source: endpoint(2) };
    assert_eq!(hear(&mut node, &Message::Hint(own)), []);
    assert!(node.follow.is_none());
}

#[test]
fn an_announce_of_another_nodes_candidate_is_ignored() {
    let mut node = node();
    let _ = outputs(&mut node);
    assert_eq!(hear_from(&mut node, 3, &announce(candidate(LEADER, 1, true))), []);
    assert!(node.follow.is_none());
}

#[test]
fn a_silent_candidate_is_followed_again_when_it_writes_to_this_node_alone_and_a_second_later_in_any_case() {
    let announced = announce(candidate(LEADER, 1, true));
    for (after, personally, follows) in
        [(10, false, false), (10, true, true), (999, false, false), (1000, false, true)]
    {
        let mut node = Node::new(patient(3), 1, Time::ZERO);
        let _ = outputs(&mut node);
        node.handle_datagram(Time::ZERO, endpoint(1), &to_all(LEADER, &announced));
        assert!(node.follow.is_some());
        let mut now = Time::ZERO;
        while node.follow.is_some() {
            now += ms(1);
            let _ = run(&mut node, now);
        }
        assert_eq!(now, ms(1000), "it has a second");
        let _ = run(&mut node, now + ms(after));
        if personally {
            hear_at(&mut node, now + ms(after), 1, &announced);
        } else {
            node.handle_datagram(now + ms(after), endpoint(1), &to_all(LEADER, &announced));
        }
        assert_eq!(node.follow.is_some(), follows, "{after} ms, personally: {personally}");
    }
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

#[test]
fn a_leader_that_closes_is_ignored_for_a_second_whatever_it_says_and_this_node_looks_for_another() {
    let announced = announce(candidate(LEADER, 1, true));
    for (after, follows) in [(0, false), (999, false), (1000, true)] {
        let (mut node, _) = joined(patient(3));
        let told = hear(&mut node, &Message::Refuse(Refusal::Closing));
        assert!(node.follow.is_none() && failure(&told).is_none());
        assert!(told.iter().any(|output| matches!(output, Output::HangUp(_))), "its lease is closed");
        hear_at(&mut node, ms(after), 1, &announced);
        assert_eq!(node.follow.is_some(), follows, "{after} ms");
    }
}

#[test]
fn addresses_that_change_before_a_node_has_joined_are_said_again_when_it_has() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let dial = dialled(&hear(&mut node, &announce(candidate(LEADER, 1, true))));
    let endpoints = Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    node.handle_endpoints(Time::ZERO, endpoints.clone(), Reach::default());
    // The leader has heard an earlier join, and nothing has arrived.
    hear(&mut node, &welcome(None));
    assert!(count(&run(&mut node, ms(500)), is_join) >= 2, "it goes on to join");
    node.handle_dialed(node.shared.now, dial);
    let told = hear(&mut node, &welcome(Some(dial.0)));
    let joins: Vec<_> = sent(&told).into_iter().filter(|(_, message)| is_join(message)).collect();
    assert_eq!(joins.len(), 2, "{told:?}");
    for (_, message) in joins {
        let Message::Join(join) = message else { unreachable!() };
        assert_eq!(join.node.endpoints, endpoints);
    }
    hear(&mut node, &welcome(Some(dial.0)));
    assert_eq!(count(&run(&mut node, ms(5000)), is_join), 0, "the leader has answered");
}

#[test]
fn another_preferred_address_changes_nothing_of_this_node() {
    let (mut node, _) = joined(patient(3));
    let before = node.shared.config.node.clone();
    for other in [vec![endpoint(7)], vec![endpoint(7), endpoint(2)]] {
        node.handle_endpoints(Time::ZERO, Endpoints::new(other).unwrap(), Reach::default());
        assert_eq!((outputs(&mut node), &node.shared.config.node), (vec![], &before));
    }
}

#[test]
fn a_node_that_has_not_joined_asks_no_seed_and_one_that_follows_announces_nothing() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    assert!(!node.shared.timers.is_set(Timer::Announce) && !node.shared.timers.is_set(Timer::StepDown));
    node.handle_seeds(Time::ZERO, vec![endpoint(9)]);
    assert!(!says(&run(&mut node, ms(900)), is_solicit));
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
fn a_member_that_has_proved_the_master_in_time_does_not_report_a_failure() {
    let (mut node, _, told) = with_master_3(patient(3));
    let dial = dialled(&told);
    node.handle_dialed(Time::ZERO, dial);
    assert!(says(&hear_from(&mut node, 3, &Message::Proved(dial.0)), is_ready));
    let mut all = Vec::new();
    for second in 1..8 {
        hear_at(&mut node, ms(1000 * second), 1, &Message::Pong);
        all.extend(run(&mut node, ms(1000 * second + 500)));
    }
    assert!(says(&all, is_ready) && !says(&all, |message| matches!(message, Message::Unproved(_))));
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
            Output::DialPath { dial, to, .. } if *to == path => Some(*dial),
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
                Output::DialPath { dial, to, .. } if *to == path => Some(*dial),
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
fn a_path_that_is_proved_after_the_end_has_no_effect() {
    for ends in [false, true] {
        let mut config = patient(3);
        let link = Link { address: endpoint(2).ip(), prefix: 24, mtu: 1500 };
        (config.node.reach, config.node.attributes.paths) = (Reach::new(40_000, [link]), Paths::All);
        let (mut node, prepare) = joined(config);
        let path = SocketAddr::from(([10, 0, 0, 3], 40_000));
        let partner = Partner { rank: 2, id: id(3), path, own_port: 29500, stays: true };
        let partners = [partner].into_iter().collect();
        let prepare = Prepare { slots_total: 3, paths: 1, partners, ..prepare };
        let told = hear(&mut node, &Message::Prepare(prepare));
        let dial = told.iter().find_map(|output| match output {
            Output::DialPath { dial, .. } => Some(*dial),
            _ => None,
        });
        if ends {
            assert!(failure(&hear(&mut node, &Message::Refuse(Refusal::WorldFull))).is_some());
        }
        node.handle_path(Time::ZERO, dial.expect("it dials its partner"), &PathNews::Arrived);
        let told = outputs(&mut node);
        assert_eq!((told.is_empty(), says(&told, is_ready)), (ends, !ends), "{told:?}");
    }
}

#[test]
fn a_lease_that_breaks_after_the_end_has_no_effect() {
    let (mut node, prepare) = joined(patient(3));
    assert!(failure(&hear(&mut node, &Message::Refuse(Refusal::WorldFull))).is_some());
    node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
    assert_eq!(outputs(&mut node), []);
}

#[test]
fn a_ready_node_that_has_lost_its_lease_waits_a_second_for_its_leader_and_each_answer_prolongs_it() {
    for (answered, ends) in [(vec![], 1000), (vec![500], 1500), (vec![900, 1800], 2800)] {
        let (mut node, prepare) = joined(config(2));
        assert!(says(&hear(&mut node, &Message::Prepare(prepare.clone())), is_ready));
        node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
        for at in answered {
            let _ = run(&mut node, ms(at));
            hear_at(&mut node, ms(at), 1, &Message::Pong);
        }
        assert_eq!(failure(&run(&mut node, ms(ends - 1))), None);
        let all = run(&mut node, ms(ends));
        assert!(matches!(failure(&all), Some(Failure::OutcomeUnknown { .. })), "after {ends} ms: {all:?}");
    }
}

#[test]
fn a_ready_node_with_a_lease_waits_ten_seconds_for_its_leader() {
    let (mut node, prepare) = joined(config(2));
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
    assert_eq!(failure(&run(&mut node, ms(9999))), None);
    assert!(matches!(failure(&run(&mut node, ms(10_000))), Some(Failure::OutcomeUnknown { .. })));
}

#[test]
fn a_void_round_leaves_no_timer() {
    let (mut node, prepare) = joined(patient(3));
    hear(&mut node, &Message::Prepare(prepare));
    hear(&mut node, &Message::Void(1));
    let left = [Timer::InDoubt, Timer::RepeatInRound, Timer::ProofFailed]
        .map(|timer| node.shared.timers.is_set(timer));
    assert_eq!(left, [false; 3]);
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
fn a_member_that_hears_how_many_are_here_says_who_leads() {
    let (mut node, _) = joined(patient(9));
    let Message::Announce(said) = announce(candidate(LEADER, 1, false)) else { unreachable!() };
    let told = hear(
        &mut node,
        &Message::Announce(Announce { joined: 4, missing: [(2, 3)].into_iter().collect(), ..said }),
    );
    let [Output::Event(Event::Progress(progress))] = &told[..] else { panic!("{told:?}") };
    assert_eq!((progress.joined, progress.world), (4, WorldSize::of(9)));
    assert_eq!((progress.leader.address, progress.missing.len()), (endpoint(1), 1));
    assert_eq!((progress.missing[0].first, progress.missing[0].last), (2, 3));
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
fn a_member_that_is_not_ready_joins_again_when_its_lease_closes() {
    let (mut node, prepare, _) = with_master_3(patient(3));
    node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
    assert!(says(&outputs(&mut node), is_join) && !node.is_bound());
}

#[test]
fn a_ready_member_that_has_lost_its_lease_asks_often_at_first_and_joins_again_after_void() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare.clone()));
    let _ = run(&mut node, ms(3000));
    node.handle_hung_up(ms(3000), DialId(prepare.lease));
    let told = run(&mut node, ms(3100));
    assert!(count(&told, is_ready) >= 3, "at once, after 20 ms and after 40 more: {told:?}");
    assert!(!says(&told, is_join));
    let told = hear(&mut node, &Message::Void(1));
    assert!(says(&told, is_join) && !node.is_bound());
}

#[test]
fn a_leader_that_names_no_open_dial_of_this_node_costs_it_no_node_that_has_joined_it() {
    let mut node = Node::new(patient(5), 1, Time::ZERO);
    let _ = run(&mut node, ms(1));
    hear_from(&mut node, 4, &super::join_message(4, endpoint(4), 5));
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    for lease in [None, Some(1), Some(99)] {
        hear(&mut node, &welcome(lease));
        assert!(node.lead.knows(id(4)) && !node.follow.as_ref().unwrap().is_joined(), "{lease:?}");
    }
}

#[test]
fn changed_addresses_are_said_after_20_ms_again_and_once_to_each_address() {
    let (mut node, _) = joined(patient(3));
    // The intervals of its first join had grown.
    let _ = run(&mut node, ms(5000));
    let endpoints = Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    node.handle_endpoints(ms(5000), endpoints, Reach::default());
    assert_eq!(count(&outputs(&mut node), is_join), 2);
    let (mut times, mut now) = (vec![5000], ms(5000));
    while times.len() < 8 {
        now += ms(1);
        let joins = count(&run(&mut node, now), is_join);
        assert!(joins == 0 || joins == 2, "{joins} at once");
        if joins > 0 {
            times.push(now.as_millis());
        }
    }
    let pauses: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, expected) in pauses.into_iter().zip([20, 40, 80, 160, 250, 250, 250]) {
        assert!((expected * 3 / 4..=expected * 5 / 4 + 1).contains(&pause), "{pause} ms, not {expected}");
    }
}

#[test]
fn addresses_that_change_before_a_node_has_joined_are_said_with_its_next_join() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), Reach::default());
    assert_eq!(outputs(&mut node), []);
}

#[test]
fn an_unanswered_leader_is_written_to_where_it_announced_itself_last() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let announced = to_all(LEADER, &announce(candidate(LEADER, 1, true)));
    node.handle_datagram(Time::ZERO, endpoint(1), &announced);
    let _ = outputs(&mut node);
    node.handle_datagram(Time::ZERO, endpoint(8), &announced);
    let joins = sent(&run(&mut node, ms(25)));
    assert!(!joins.is_empty() && joins.iter().all(|(to, _)| *to == endpoint(8)), "{joins:?}");
}

#[test]
fn a_follower_of_a_large_world_dials_after_the_first_welcome() {
    let mut node = Node::new(patient(1000), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let dials =
        |outputs: &[Output]| outputs.iter().filter(|output| matches!(output, Output::Dial { .. })).count();
    let mut all = hear(&mut node, &announce(candidate(LEADER, 1, true)));
    all.extend(run(&mut node, ms(500)));
    assert_eq!((dials(&all), says(&all, is_join)), (0, true));
    assert_eq!(dials(&hear(&mut node, &welcome(None))), 1);
}

#[test]
fn a_leader_that_answers_gets_a_join_at_least_every_quarter_of_a_second_until_it_names_a_dial() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    let mut times = Vec::new();
    for at in 1..2900 {
        if says(&run(&mut node, ms(at)), is_join) {
            times.push(at);
            hear(&mut node, &welcome(None));
        }
    }
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = *pauses.iter().max().unwrap();
    assert!((235..=314).contains(&longest), "{pauses:?}");
}

#[test]
fn a_node_past_its_deadline_repeats_to_its_leader_that_it_is_ready_in_the_same_round() {
    let config = Config { timeout: Some(ms(1000)), ..config(2) };
    let (mut node, prepare) = joined(config);
    hear(&mut node, &Message::Prepare(prepare.clone()));
    let _ = run(&mut node, ms(2000));
    assert!(!node.has_ended());
    let earlier = Prepare { round: 0, ..prepare.clone() };
    assert_eq!(hear(&mut node, &Message::Prepare(earlier)), []);
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
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
fn a_member_says_nothing_of_its_own_leader_nor_of_any_candidate_in_a_round() {
    let (mut node, prepare) = joined(config(2));
    node.handle_seeds(Time::ZERO, vec![endpoint(9)]);
    let _ = outputs(&mut node);
    let own = Message::Hint(Introduction { candidate: candidate(LEADER, 1, false), source: endpoint(1) });
    for at in [0, 1500, 3000] {
        assert_eq!(hear_at(&mut node, ms(at), 9, &own), []);
    }
    hear(&mut node, &Message::Prepare(prepare));
    for at in [3000, 4500] {
        assert_eq!(hear_at(&mut node, ms(at), 3, &announce(candidate(id(3), 3, true))), []);
    }
    assert!(node.is_bound());
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
fn a_candidate_that_was_joined_after_all_is_ignored_for_one_second_again() {
    let mut node = Node::new(patient(3), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let announced = announce(candidate(LEADER, 1, true));
    // It answers, and is not reached for three seconds.
    hear(&mut node, &announced);
    hear(&mut node, &welcome(None));
    let _ = run(&mut node, ms(2500));
    hear(&mut node, &welcome(None));
    let _ = run(&mut node, ms(3000));
    assert!(node.follow.is_none());
    let _ = run(&mut node, ms(4000));
    let dial = dialled(&hear(&mut node, &announced));
    node.handle_dialed(node.shared.now, dial);
    hear(&mut node, &welcome(Some(dial.0)));
    hear(&mut node, &Message::Refuse(Refusal::Closing));
    for (at, follows) in [(4999, false), (5000, true)] {
        hear_at(&mut node, ms(at), 1, &announced);
        assert_eq!(node.follow.is_some(), follows, "{at} ms");
    }
}

#[test]
fn a_ready_node_whose_process_was_stopped_waits_a_second_more() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare));
    let _ = run(&mut node, ms(9900));
    node.handle_timeout(ms(10_150));
    assert_eq!(failure(&outputs(&mut node)), None);
    assert_eq!(failure(&run(&mut node, ms(11_149))), None);
    assert!(matches!(failure(&run(&mut node, ms(11_150))), Some(Failure::OutcomeUnknown { .. })));
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
fn partners_that_a_later_prepare_names_are_dialled_and_a_repeat_is_answered() {
    let mut config = patient(3);
    let link = Link { address: endpoint(2).ip(), prefix: 24, mtu: 1500 };
    (config.node.reach, config.node.attributes.paths) = (Reach::new(40_000, [link]), Paths::All);
    let (mut node, prepare) = joined(config);
    let path = |last| SocketAddr::from(([10, 0, 0, last], 40_000));
    let with = |last| {
        let partner = Partner { rank: 0, id: id(last), path: path(last), own_port: 29500, stays: true };
        Message::Prepare(Prepare { paths: 2, partners: [partner].into_iter().collect(), ..prepare.clone() })
    };
    let dialled = |outputs: &[Output]| {
        let dials = outputs.iter().filter_map(|output| match output {
            Output::DialPath { dial, to, .. } => Some((*dial, *to)),
            _ => None,
        });
        dials.collect::<Vec<_>>()
    };
    let first = hear(&mut node, &with(1));
    let [(to_first, at)] = dialled(&first)[..] else { panic!("{first:?}") };
    assert_eq!(at, path(1));
    let second = hear(&mut node, &with(3));
    let [(to_second, at)] = dialled(&second)[..] else { panic!("{second:?}") };
    assert_eq!((at, sent(&second)), (path(3), vec![]));
    let again = hear(&mut node, &with(3));
    assert_eq!((dialled(&again), sent(&again)), (vec![], vec![(endpoint(1), Message::Pong)]));
    node.handle_path(Time::ZERO, to_second, &PathNews::Arrived);
    assert!(!says(&outputs(&mut node), is_ready));
    node.handle_path(Time::ZERO, to_first, &PathNews::Arrived);
    assert!(says(&outputs(&mut node), is_ready));
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
fn the_round_that_a_node_takes_part_in_lasts_ten_seconds_without_its_leader_although_others_write() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare));
    for second in 1..10 {
        let _ = run(&mut node, ms(1000 * second));
        hear_at(&mut node, ms(1000 * second), 5, &Message::Ping);
        assert_eq!(failure(&outputs(&mut node)), None);
    }
    let all = run(&mut node, ms(10_000));
    assert!(
        matches!(failure(&all), Some(Failure::OutcomeUnknown { leader }) if leader.address == endpoint(1))
    );
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
            Refusal::NoRdma(Verdict::example(), false),
            Some(Failure::NoRdma { verdict: Verdict::example(), is_required: false }),
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

#[test]
fn a_member_that_has_proved_all_and_waits_for_the_roster_reports_no_failure() {
    let mut config = patient(2);
    config.node.attributes.wants_roster = true;
    let (mut node, prepare) = joined(config);
    // At another endpoint than the lease's, so that the master is dialled.
    let (prepare, part) = with_roster(Prepare { endpoints: endpoint(7).into(), ..prepare });
    let dial = dialled(&hear(&mut node, &Message::Prepare(prepare)));
    node.handle_dialed(Time::ZERO, dial);
    let mut all = hear(&mut node, &Message::Proved(dial.0));
    for second in 1..7 {
        all.extend(run(&mut node, ms(1000 * second)));
        all.extend(hear_at(&mut node, ms(1000 * second), 1, &Message::Pong));
    }
    assert!(!says(&all, is_ready) && !says(&all, |message| matches!(message, Message::Unproved(_))));
    assert!(says(&hear(&mut node, &Message::Part(part)), is_ready));
}

#[test]
fn a_welcome_that_ends_the_repeats_of_a_join_leaves_the_dials_to_the_master_alone() {
    let (mut node, prepare, _) = with_master_3(patient(3));
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), Reach::default());
    let _ = outputs(&mut node);
    hear(&mut node, &welcome(Some(prepare.lease)));
    let told = run(&mut node, ms(200));
    assert!(told.iter().filter(|output| matches!(output, Output::Dial { .. })).count() >= 3, "{told:?}");
    assert!(!says(&told, is_join));
}

#[test]
fn a_leader_that_answers_late_is_joined_on() {
    let mut node = Node::new(patient(4000), 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    let _ = run(&mut node, ms(3500));
    assert!(node.follow.is_some() && !node.shared.timers.is_set(Timer::Join), "it has had its seven joins");
    hear_at(&mut node, ms(3500), 1, &Message::Pong);
    assert!(says(&run(&mut node, ms(3900)), is_join));
}
