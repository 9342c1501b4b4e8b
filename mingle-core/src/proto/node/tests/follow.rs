//! A follower: the candidates that it follows, its dials, and the leader that it asks.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    LEADER, announce, candidate, config, hear, hear_from, is_join, is_solicit, joined, patient, says, sent,
    to_all,
};
use crate::model::Endpoints;
use crate::proto::follow::Follow;
use crate::proto::tests::{dialled, endpoint, id, outputs, run};
use crate::proto::timer::{Time, Timer};
use crate::proto::{DialId, Event, Output};
use crate::wire::{Announce, Introduction, Message, Welcome};

#[test]
fn a_node_follows_a_redirect_only_to_a_better_leader() {
    for (last, explicit, followed) in [(3, false, false), (1, false, false), (3, true, true)] {
        let (mut node, _) = joined(config(2));
        let to = Introduction { candidate: candidate(id(3), last, explicit), source: endpoint(3) };
        hear(&mut node, &Message::Hint(to));
        let leader = node.follow.as_ref().map(Follow::leader_id);
        assert_eq!(leader, Some(if followed { id(3) } else { LEADER }), "{last} {explicit}");
    }
}

#[test]
fn a_leader_whose_address_another_node_has_is_asked_and_left_if_it_is_silent() {
    for answers in [false, true] {
        let (mut node, _) = joined(patient(3));
        // A new process on the leader's host, after a power loss that has closed no connection.
        let datagram = to_all(id(7), &announce(candidate(id(7), 1, false)));
        node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
        let (mut all, mut left) = (Vec::new(), None);
        while node.shared.now < Time::from_secs(5) {
            let next = node.shared.now + Duration::from_millis(50);
            let outputs = run(&mut node, next);
            // The new process goes on.
            node.handle_datagram(next, endpoint(1), &datagram);
            if answers && says(&outputs, is_solicit) {
                hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            }
            if says(&outputs, is_join) {
                left.get_or_insert(next.as_millis());
            }
            let joined = node.follow.as_ref().is_some_and(Follow::is_joined);
            assert!(joined || !node.shared.timers.is_set(Timer::AskLeader), "it asks nobody any more");
            all.extend(outputs);
        }
        assert_eq!(left.map(|left| (2000..2400).contains(&left)), (!answers).then_some(true), "{left:?}");
        let lost = all.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_))));
        assert_eq!(lost, !answers, "{all:?}");
    }
}

#[test]
fn a_member_whose_addresses_change_joins_anew_until_its_leader_welcomes_it() {
    let (mut node, prepare) = joined(patient(3));
    let endpoints = Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    node.handle_endpoints(Time::ZERO, endpoints.clone(), crate::wire::Reach::default());
    let says_so = |(_, message): &(SocketAddr, Message)| match message {
        Message::Join(join) => join.node.endpoints == endpoints,
        _ => false,
    };
    let joins = |outputs: &[Output]| sent(outputs).iter().filter(|sent| says_so(sent)).count();
    assert_eq!(joins(&outputs(&mut node)), 2, "where the leader wrote from, and to its endpoint");
    assert!(joins(&run(&mut node, Time::from_secs(2))) > 10);
    hear_from(
        &mut node,
        1,
        &Message::Welcome(Welcome { lease: Some(prepare.lease), seated: true, trouble: None }),
    );
    assert_eq!(joins(&run(&mut node, Time::from_secs(5))), 0);
    // Its next join carries them, so that one is enough.
    node.handle_hung_up(Time::from_secs(5), DialId(prepare.lease));
    let lease = dialled(&outputs(&mut node));
    node.handle_dialed(Time::from_secs(5), lease);
    hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: Some(lease.0), seated: true, trouble: None }));
    assert_eq!(joins(&run(&mut node, Time::from_secs(9))), 0);
}

#[test]
fn a_member_reports_each_change_that_its_leader_announces_once() {
    let (mut node, _) = joined(patient(3));
    let mut reported = Vec::new();
    for joined in [2, 2, 3, 3, 2] {
        let Message::Announce(before) = announce(candidate(LEADER, 1, false)) else { unreachable!() };
        for output in hear(&mut node, &Message::Announce(Announce { joined, ..before })) {
            if let Output::Event(Event::Progress(progress)) = output {
                reported.push(progress.joined);
            }
        }
    }
    assert_eq!(reported, [2, 3, 2]);
}
