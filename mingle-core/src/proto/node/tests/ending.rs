//! The end of a node: its deadline and the report of it, and a world that runs without the node.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    LEADER, ME, announce, candidate, commit, commits, config, deadline, has_formed, hear, hear_from, is_join,
    join, join_message, joined, node, patient, prove, ready, rounds, says, sent, to_all,
};
use crate::model::{HostName, Lineage, NodeId};
use crate::proto::tests::{codec, endpoint, id, outputs, run};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Node, Output, Warning};
use crate::wire::{Header, Message, Refusal, Solicit, Welcome};

#[test]
fn a_node_that_has_ended_does_nothing() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare));
    assert!(has_formed(&hear(&mut node, &commit(1))));
    node.handle_departure(Time::ZERO);
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), crate::wire::Reach::default());
    node.handle_seeds(Time::ZERO, vec![endpoint(3)]);
    node.handle_timeout(Time::from_secs(99));
    assert_eq!(outputs(&mut node), []);
    assert_eq!(prove(&mut node, 9), [Output::Close(ConnId(9))]);
}

#[test]
fn a_datagram_of_another_version_is_heard_and_named_at_the_deadline() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    assert!(!node.has_heard());
    let mut datagram = to_all(LEADER, &announce(candidate(LEADER, 1, false)));
    datagram[4] += 1;
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    assert!(node.has_heard());
    let all = run(&mut node, Time::from_secs(1));
    let report = deadline(&all);
    assert_eq!(report.versions, [(datagram[4], endpoint(1))]);
}

#[test]
fn a_leader_that_runs_out_of_time_names_its_members_in_the_order_of_their_hosts() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(4) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(1));
    // By their IDs host-10 would come last.
    join(&mut node, 9, endpoint(9));
    join(&mut node, 10, endpoint(10));
    let all = run(&mut node, Time::from_secs(1));
    let report = deadline(&all);
    let hosts: Vec<_> = report.heard.iter().map(|heard| heard.host.as_str()).collect();
    let mut sorted = report.heard.clone();
    sorted.sort();
    assert_eq!(report.heard, sorted);
    assert!(hosts == ["host-10", "host-9"] || hosts == ["host-9", "host-10"], "{hosts:?}");
}

#[test]
fn a_member_that_runs_out_of_time_does_not_say_that_its_leader_is_out_of_reach() {
    for joins in [true, false] {
        let config = Config { timeout: Some(Duration::from_millis(500)), ..config(3) };
        let mut node = if joins { joined(config).0 } else { Node::new(config, 1, Time::ZERO) };
        if !joins {
            hear(&mut node, &announce(candidate(LEADER, 1, false)));
            hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: false }));
        }
        let all = run(&mut node, Time::from_secs(1));
        let report = deadline(&all);
        assert_eq!(report.unreached.is_none(), joins, "{report:?}");
    }
}

#[test]
fn a_node_whose_leader_never_answered_names_it_at_the_deadline_with_its_rank() {
    let config = Config { timeout: Some(Duration::from_secs(3)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    let all = run(&mut node, Time::from_secs(3));
    let report = deadline(&all);
    assert!(report.unanswered.is_some(), "{report:?}");
    let ranks: Vec<_> = report.heard.iter().map(|heard| (heard.address, heard.rank)).collect();
    assert_eq!(ranks, [(Some(endpoint(1)), Some(0))]);
}

/// Node 2 of the formation that follows a world, after 50 ms in which it has announced itself.
fn of_a_later_formation(world: u32) -> Node {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, ..patient(world) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(50));
    node
}

#[test]
fn nobody_can_say_that_the_first_world_of_a_job_runs() {
    let mut node = node();
    let _ = run(&mut node, Time::from_millis(50));
    let outputs = hear_from(&mut node, 9, &Message::running());
    assert_eq!(outputs, []);
    assert!(node.leads());
}

#[test]
fn a_node_stands_aside_until_nobody_has_said_for_30_seconds_that_the_world_runs() {
    let mut node = of_a_later_formation(3);
    // It has had a member by then.
    let told = hear_from(&mut node, 3, &join_message(3, endpoint(3), 3));
    assert!(says(&told, |message| matches!(message, Message::Welcome(_))));
    prove(&mut node, 3);
    assert_eq!(node.lead.seated(), 2);
    for second in [1, 20, 40] {
        let _ = run(&mut node, Time::from_secs(second));
        let outputs = hear_from(&mut node, 9, &Message::running());
        let warns =
            matches!(outputs[..], [Output::Event(Event::Warning(Warning::AlreadyRunning { .. })), ..]);
        assert_eq!(warns, second == 1, "{outputs:?}");
        let dismissed = (endpoint(3), Message::Refuse(Refusal::Closing));
        let leaves = sent(&outputs).contains(&dismissed) && outputs.contains(&Output::Close(ConnId(3)));
        assert_eq!(leaves, second == 1, "{outputs:?}");
        assert!(!node.leads() && node.lead.seated() == 1);
    }
    let _ = run(&mut node, Time::from_millis(69_900));
    assert!(!node.leads(), "30 s after the last");
    let outputs = run(&mut node, Time::from_millis(70_100));
    assert!(node.leads() && outputs.contains(&Output::Event(Event::Leading)), "{outputs:?}");
}

#[test]
fn a_node_that_stands_aside_follows_no_candidate() {
    let mut node = of_a_later_formation(3);
    hear_from(&mut node, 9, &Message::running());
    let told = hear_from(&mut node, 1, &announce(candidate(LEADER, 1, true)));
    assert!(!says(&told, is_join) && node.follow.is_none());
}

#[test]
fn nobody_can_say_to_a_leader_in_a_round_that_the_world_runs() {
    let mut node = of_a_later_formation(2);
    assert_eq!(rounds(&join(&mut node, 3, endpoint(3))), [1]);
    let told = hear_from(&mut node, 9, &Message::running());
    assert!(node.lead.is_proving() && sent(&told).is_empty(), "{told:?}");
    hear_from(&mut node, 3, &ready(1));
    let now = node.shared.now;
    assert!(commits(&run(&mut node, now)));
}

#[test]
fn a_follower_that_stands_aside_has_not_led_and_so_does_not_step_down() {
    for follows in [true, false] {
        let mut node = of_a_later_formation(3);
        if follows {
            hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            assert!(!node.leads());
        }
        let told = hear_from(&mut node, 9, &Message::running());
        assert_eq!(told.contains(&Output::Event(Event::SteppedDown)), !follows, "{told:?}");
        assert!(node.follow.is_none() && !node.leads());
    }
}

/// A datagram of node 9, of the formation that comes next.
fn of_the_next_formation(recipient: NodeId, message: &Message) -> Vec<u8> {
    let lineage = Lineage { generation: 1, origin: 7 };
    codec().encode(Header { sender: id(9), recipient, lineage }, message)
}

#[test]
fn a_follower_is_not_warned_of_a_later_world_and_a_node_without_a_leader_is_once() {
    for follows in [true, false] {
        let mut node = node();
        let _ = outputs(&mut node);
        if follows {
            hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
        }
        let mut all = Vec::new();
        for _ in 0..3 {
            let running = of_the_next_formation(ME, &Message::running());
            node.handle_datagram(Time::ZERO, endpoint(9), &running);
            all.extend(outputs(&mut node));
        }
        let warned = Output::Event(Event::Warning(Warning::AlreadyRunning { from: endpoint(9) }));
        assert_eq!(all, if follows { vec![] } else { vec![warned] });
    }
}

#[test]
fn a_node_does_not_answer_a_later_world_that_looks_for_its_members() {
    let mut node = node();
    let _ = outputs(&mut node);
    let missing = Message::Missing([1].into_iter().collect());
    let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("host-9") });
    for (message, answers) in [(missing, 0), (solicit, 1)] {
        node.handle_datagram(Time::ZERO, endpoint(9), &of_the_next_formation(NodeId::ALL, &message));
        assert_eq!(sent(&outputs(&mut node)).len(), answers, "{message:?}");
    }
}

#[test]
fn a_node_that_is_behind_is_answered_by_the_leader_or_by_the_one_node_that_it_writes_to() {
    let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("host-9") });
    for (leads, recipient, answers) in
        [(true, NodeId::ALL, 1), (false, NodeId::ALL, 0), (false, NodeId::ANYONE, 1), (false, ME, 1)]
    {
        let mut node = of_a_later_formation(3);
        if !leads {
            hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
        }
        let header = Header { sender: id(9), recipient, lineage: Lineage::default() };
        node.handle_datagram(node.shared.now, endpoint(9), &codec().encode(header, &solicit));
        let pongs = sent(&outputs(&mut node)).iter().filter(|(_, message)| *message == Message::Pong).count();
        assert_eq!(pongs, answers, "to {recipient}, leads: {leads}");
    }
}

#[test]
fn a_leader_that_stood_aside_waits_anew_for_members_with_a_common_address_family() {
    let mut node = of_a_later_formation(2);
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 3], 29500));
    join(&mut node, 3, six);
    hear_from(&mut node, 9, &Message::running());
    let _ = run(&mut node, Time::from_secs(31));
    assert!(node.leads());
    let is_refusal = |message: &Message| matches!(message, Message::Refuse(Refusal::MasterUnproved(_)));
    let mut all = join(&mut node, 3, six);
    all.extend(run(&mut node, Time::from_millis(42_900)));
    assert!(!says(&all, is_refusal), "12 s are not over");
    assert!(says(&run(&mut node, Time::from_secs(43)), is_refusal));
}
