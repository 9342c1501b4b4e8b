//! A leader: its seats, its rounds, and the nodes that are gone.

use std::time::Duration;

use super::{
    LEADER, ME, announce, candidate, commits, hear, hear_at, hear_from, join, join_message, leading, node,
    patient, prove, ready, rounds, says, sent, to_all,
};
use crate::model::{Secret, WorldSize};
use crate::proto::tests::{endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Event, Node, Output};
use crate::wire::{Codec, Message, Token};

#[test]
fn a_leader_does_not_yield_in_a_round() {
    let mut node = node();
    let _ = outputs(&mut node);
    hear(&mut node, &join_message(9, endpoint(9), WorldSize::of(2)));
    assert!(says(&prove(&mut node, 1), |message| matches!(message, Message::Prepare(_))));
    let better = announce(candidate(id(3), 1, true));
    node.handle_datagram(Time::ZERO, endpoint(1), &to_all(id(3), &better));
    assert!(node.follow.is_none() && node.lead.is_proving());
}

#[test]
fn a_leader_that_was_stopped_in_a_round_starts_another_and_counts_only_what_is_said_in_that() {
    let (mut node, _) = leading(3);
    let before = hear_from(&mut node, 3, &ready(1));
    assert!(!commits(&before));
    // The process is stopped. What node 4 said at once waits in the socket; node 3 has given up.
    node.shared.now += Duration::from_secs(11);
    let now = Time::from_secs(12);
    let mut all = hear_at(&mut node, now, 4, &ready(1));
    node.handle_timeout(now);
    all.extend(outputs(&mut node));
    assert!(!commits(&all) && rounds(&all) == [2], "{all:?}");
    all.extend(hear_from(&mut node, 3, &ready(2)));
    all.extend(hear_from(&mut node, 4, &ready(2)));
    assert!(!commits(&all));
    all.extend(run(&mut node, now));
    assert!(commits(&all));
}

#[test]
fn a_member_is_not_forgotten_for_joins_without_a_proof() {
    let mut node = Node::new(patient(4), 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(1));
    join(&mut node, 3, endpoint(3));
    for from in 20..=250 {
        hear_from(&mut node, from, &join_message(from, endpoint(from), WorldSize::of(4)));
        assert!(node.lead.knows(id(3)) && node.lead.knows(id(from)), "after {from}");
    }
}

#[test]
fn a_leader_steps_down_only_if_no_node_at_all_has_reached_it() {
    for reached in [false, true] {
        let mut node = Node::new(patient(4), 1, Time::ZERO);
        let mut all = run(&mut node, Time::from_millis(1));
        for millisecond in (100..4000).step_by(100) {
            all.extend(hear_from(&mut node, 3, &join_message(3, endpoint(3), WorldSize::of(4))));
            if reached && millisecond == 100 {
                // Another one, whose join is on its way.
                all.extend(prove(&mut node, 5));
            }
            all.extend(run(&mut node, Time::from_millis(millisecond)));
        }
        assert_eq!(all.contains(&Output::Event(Event::SteppedDown)), !reached);
        assert_eq!(node.leads(), reached);
        let told = hear_from(&mut node, 1, &announce(candidate(LEADER, 1, true)));
        let may_be_master = sent(&told).into_iter().find_map(|(_, message)| match message {
            Message::Join(join) => Some(join.node.attributes.may_be_master),
            _ => None,
        });
        assert_eq!(may_be_master, Some(reached), "nobody reaches it");
    }
}

#[test]
fn a_node_that_has_stepped_down_leads_again_after_ten_seconds() {
    let mut node = Node::new(patient(4), 1, Time::ZERO);
    while node.leads() {
        assert!(node.shared.now < Time::from_secs(9), "nobody reaches it");
        hear_from(&mut node, 3, &join_message(3, endpoint(3), WorldSize::of(4)));
        let next = node.shared.now + Duration::from_millis(100);
        let _ = run(&mut node, next);
    }
    let now = node.shared.now;
    let _ = run(&mut node, now + Duration::from_millis(9_800));
    assert!(!node.leads());
    let told = run(&mut node, now + Duration::from_secs(10));
    assert!(node.leads() && told.contains(&Output::Event(Event::Leading)), "{told:?}");
}

#[test]
fn whatever_is_handed_in_first_after_a_stop_voids_the_round() {
    let handed_in: [fn(&mut Node, Time); 7] = [
        |node, now| node.handle_dialed(now, DialId(9)),
        |node, now| node.handle_hung_up(now, DialId(9)),
        |node, now| node.handle_closed(now, ConnId(99)),
        |node, now| node.handle_endpoints(now, endpoint(2).into(), crate::wire::Reach::default()),
        |node, now| node.handle_seeds(now, vec![]),
        |node, now| node.handle_departure(now),
        |node, now| node.handle_timeout(now),
    ];
    for (number, hand_in) in handed_in.into_iter().enumerate() {
        let (mut node, _) = leading(3);
        hand_in(&mut node, Time::from_secs(12));
        let told = outputs(&mut node);
        assert!(says(&told, |message| *message == Message::Void(1)), "{number}: {told:?}");
    }
}

#[test]
fn a_replayed_token_of_a_job_with_a_secret_proves_nothing() {
    let keys = Secret::new(b"a secret of 20 bytes").unwrap().keys(&"numbered".parse().unwrap());
    let token = |dial| {
        let token = Token { prover: id(3), target: ME, dial, dialled: endpoint(2) };
        Codec::new(tag(), Some(&keys)).encode_hello(&token, &[])
    };
    let mut node = Node::new(Config { keys: Some(keys.clone()), ..patient(3) }, 1, Time::ZERO);
    let _ = outputs(&mut node);
    for (conn, dial, is_first) in [(1, 1, true), (2, 1, false), (3, 2, true), (4, 1, false)] {
        node.handle_hello(Time::ZERO, ConnId(conn), endpoint(2).ip(), endpoint(2).ip(), &token(dial));
        let told = outputs(&mut node);
        assert_eq!(told.contains(&Output::Close(ConnId(conn))), !is_first, "{conn}: {told:?}");
        assert_eq!(node.arrivals.dial(id(3)), Some(if conn < 3 { 1 } else { 2 }));
    }
}
