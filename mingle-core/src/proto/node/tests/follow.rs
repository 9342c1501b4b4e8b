//! A follower: the candidates that it follows, its dials, and the leader that it asks.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    LEADER, announce, candidate, config, count, hear, hear_from, is_join, is_ready, is_solicit, joined, node,
    patient, says, sent, to_all,
};
use crate::model::{Endpoints, Rank};
use crate::proto::follow::Follow;
use crate::proto::tests::{dialled, endpoint, id, outputs, run};
use crate::proto::timer::{Time, Timer};
use crate::proto::{DialId, Event, Node, Output};
use crate::wire::{Announce, Candidate, Introduction, Message, PADDED, Welcome};

#[test]
fn a_node_follows_a_redirect_only_to_a_better_leader() {
    for (last, explicit, followed) in [(3, false, false), (1, false, false), (3, true, true)] {
        let (mut node, _) = joined(config(2));
        let to = Introduction { candidate: candidate(id(3), last, explicit), source: endpoint(3) };
        hear(&mut node, &Message::Redirect(to));
        let leader = node.follow.as_ref().map(Follow::leader_id);
        assert_eq!(leader, Some(if followed { id(3) } else { LEADER }), "{last} {explicit}");
    }
}

#[test]
fn a_leader_that_names_a_dial_that_is_not_established_is_not_joined() {
    let mut node = node();
    let _ = outputs(&mut node);
    let followed = hear(&mut node, &announce(candidate(LEADER, 1, false)));
    assert!(followed.iter().any(|output| matches!(output, Output::Dial { dial: DialId(1), .. })));
    let welcome = Message::Welcome(Welcome { lease: Some(1), seated: true });
    hear(&mut node, &welcome);
    assert!(!node.follow.as_ref().unwrap().is_joined());
    node.handle_dialed(Time::ZERO, DialId(1));
    hear(&mut node, &welcome);
    assert!(node.follow.as_ref().unwrap().is_joined());
}

#[test]
fn an_announce_with_a_forged_address_draws_twelve_joins_and_one_dial_at_most() {
    for learned in ["announce", "hint"] {
        let mut node = node();
        let _ = outputs(&mut node);
        let addresses = (10..16).map(endpoint).collect();
        let forged =
            Candidate { endpoints: Endpoints::new(addresses).unwrap(), ..candidate(LEADER, 1, true) };
        let message = if learned == "hint" {
            Message::Hint(Introduction { candidate: forged, source: endpoint(10) })
        } else {
            announce(forged)
        };
        let mut all = hear_from(&mut node, 1, &message);
        all.extend(run(&mut node, Time::from_millis(1900)));
        let joins = count(&all, is_join);
        let dials = all.iter().filter(|output| matches!(output, Output::Dial { .. })).count();
        assert!((7..=12).contains(&joins), "{joins} joins");
        assert_eq!(dials, 1);
        let bytes = all.iter().filter_map(|output| match output {
            Output::Send { datagram, .. } => Some(datagram.len()),
            _ => None,
        });
        assert!(bytes.sum::<usize>() <= 12 * PADDED, "twelve times the length of the forged datagram");
    }
}

#[test]
fn a_leader_that_answers_is_dialled_at_all_its_endpoints() {
    let mut node = node();
    let _ = outputs(&mut node);
    let endpoints = Endpoints::new(vec![endpoint(1), endpoint(7)]).unwrap();
    let mut all = hear(&mut node, &announce(Candidate { endpoints, ..candidate(LEADER, 1, false) }));
    all.extend(hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: false })));
    all.extend(run(&mut node, Time::from_millis(300)));
    for wanted in [endpoint(1), endpoint(7)] {
        let dials = all.iter().filter(|output| matches!(output, Output::Dial { to, .. } if *to == wanted));
        assert!(dials.count() > 1, "{wanted}");
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
fn a_member_whose_lease_breaks_joins_again_and_asks_its_leader_nothing_else_until_it_has() {
    let (mut node, _) = joined(patient(3));
    let _ = run(&mut node, Time::from_millis(2500));
    let lease = node.follow.as_ref().map(|_| DialId(1)).expect("it has joined");
    node.handle_hung_up(Time::from_millis(2500), lease);
    let mut all = outputs(&mut node);
    for millisecond in (2510..5000).step_by(10) {
        all.extend(hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: None, seated: true })));
        all.extend(run(&mut node, Time::from_millis(millisecond)));
        assert!(!node.shared.timers.is_set(Timer::AskLeader), "{millisecond} ms");
    }
    assert!(says(&all, is_join), "{all:?}");
}

#[test]
fn a_member_that_has_heard_its_leader_by_multicast_asks_again_after_three_seconds_of_silence() {
    let (mut node, _) = joined(patient(3));
    // The answers come by unicast alone, so the intervals grow.
    let mut times = Vec::new();
    for second in 0..100 {
        if says(&run(&mut node, Time::from_secs(second)), is_solicit) {
            times.push(second);
            hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
        }
    }
    let last = times.windows(2).last().map(|pair| pair[1] - pair[0]);
    assert!(last >= Some(10), "{times:?}");
    let now = node.shared.now;
    node.handle_datagram(now, endpoint(1), &to_all(LEADER, &announce(candidate(LEADER, 1, false))));
    assert!(says(&run(&mut node, now + Duration::from_secs(5)), is_solicit));
}

#[test]
fn a_member_asks_its_leader_where_that_has_answered_and_not_where_its_multicast_came_from() {
    let (mut node, _) = joined(patient(3));
    node.handle_datagram(Time::ZERO, endpoint(8), &to_all(LEADER, &announce(candidate(LEADER, 1, false))));
    let asked = sent(&run(&mut node, Time::from_secs(5)));
    let asked: Vec<_> = asked.iter().filter(|(_, message)| matches!(message, Message::Solicit(_))).collect();
    assert!(!asked.is_empty() && asked.iter().all(|(to, _)| *to == endpoint(1)), "{asked:?}");
}

#[test]
fn a_member_in_a_round_asks_no_seed() {
    for in_round in [false, true] {
        let (mut node, prepare) = joined(config(2));
        if in_round {
            assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
        }
        node.handle_seeds(Time::ZERO, vec![endpoint(9)]);
        let asked = sent(&run(&mut node, Time::from_secs(5)));
        let asked =
            asked.iter().filter(|(to, message)| *to == endpoint(9) && matches!(message, Message::Solicit(_)));
        assert_eq!(asked.count(), if in_round { 0 } else { 6 });
    }
}

#[test]
fn a_member_that_hears_nothing_of_its_leader_asks_it_after_3_6_and_12_seconds_and_then_every_15() {
    let (mut node, _) = joined(patient(3));
    let mut last = 0;
    for expected in [3000, 6000, 12_000, 15_000, 15_000] {
        let mut times = last + 1..last + 60_000;
        let at = times.find(|&at| says(&run(&mut node, Time::from_millis(at)), is_solicit));
        let after = at.expect("it asks its leader") - last;
        // Each interval is drawn from three quarters to five quarters of its value.
        assert!((expected * 3 / 4..=expected * 5 / 4).contains(&after), "{after} ms instead of {expected}");
        last += after;
    }
    let later = (1..=1500).map(|second| Time::from_millis(last) + Time::from_secs(second));
    let asked = later.filter(|&at| says(&run(&mut node, at), is_solicit)).count();
    assert!((97..=103).contains(&asked), "{asked} in 1500 s");
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
    hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: Some(prepare.lease), seated: true }));
    assert_eq!(joins(&run(&mut node, Time::from_secs(5))), 0);
    // Its next join carries them, so that one is enough.
    node.handle_hung_up(Time::from_secs(5), DialId(prepare.lease));
    let lease = dialled(&outputs(&mut node));
    node.handle_dialed(Time::from_secs(5), lease);
    hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: Some(lease.0), seated: true }));
    assert_eq!(joins(&run(&mut node, Time::from_secs(9))), 0);
}

#[test]
fn a_leader_of_a_large_world_that_does_not_answer_gets_seven_joins() {
    let mut node = Node::new(patient(4000), 1, Time::ZERO);
    let _ = outputs(&mut node);
    let mut all = hear(&mut node, &announce(candidate(LEADER, 1, true)));
    all.extend(run(&mut node, Time::from_millis(3900)));
    assert!(node.follow.is_some(), "it has four seconds");
    assert_eq!(count(&all, is_join), 7);
}

#[test]
fn a_member_whose_lease_has_broken_joins_often_at_first_again() {
    let (mut node, prepare) = joined(patient(3));
    let mut lease = DialId(prepare.lease);
    for second in [1, 3] {
        let now = Time::from_secs(second);
        let _ = run(&mut node, now);
        node.handle_hung_up(now, lease);
        let mut all = run(&mut node, now + Duration::from_millis(100));
        assert!((3..=4).contains(&count(&all, is_join)), "after {second} s: {all:?}");
        // It answers late, so that the intervals have grown.
        all.extend(hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: true })));
        all.extend(run(&mut node, now + Duration::from_secs(1)));
        lease = dialled(&all);
        node.handle_dialed(node.shared.now, lease);
        hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease.0), seated: true }));
        assert!(node.follow.as_ref().is_some_and(Follow::is_joined));
    }
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

#[test]
fn a_node_that_follows_a_candidate_asks_for_no_other() {
    let mut config = patient(3);
    config.node.rank = Some(Rank(1));
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = run(&mut node, Time::ZERO);
    assert!(node.shared.timers.is_set(Timer::Solicit));
    hear(&mut node, &announce(candidate(LEADER, 1, false)));
    assert!(node.follow.is_some() && !node.shared.timers.is_set(Timer::Solicit));
}
