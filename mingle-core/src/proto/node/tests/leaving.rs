//! A node that leaves its part: it steps down, stands aside, yields, or reports why there is no world.

use std::time::Duration;

use super::{
    LEADER, ME, announce, broken, candidate, config, deadline, failure, hear_from, join, leading, patient,
    rounds, running, says, to_all,
};
use crate::model::{Lineage, NodeId, Rank};
use crate::proto::report::{Failure, Report};
use crate::proto::tests::{codec, endpoint, id, outputs, run};
use crate::proto::timer::Time;
use crate::proto::{Config, Event, Node, Output};
use crate::wire::{Header, Message, Refusal};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

#[test]
fn time_never_goes_back() {
    let mut node = Node::new(patient(4), 1, Time::from_secs(5));
    let _ = run(&mut node, Time::from_secs(9));
    node.handle_timeout(Time::from_secs(1));
    assert_eq!(node.shared.now, Time::from_secs(9));
}

/// The report of a node that has heard this much, when its time is up after a second.
fn report(world: u32, rank: Option<u32>, hear: impl FnOnce(&mut Node)) -> Report {
    let mut config = Config { timeout: Some(Duration::from_secs(1)), ..config(world) };
    config.node.rank = rank.map(Rank);
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = run(&mut node, ms(1));
    hear(&mut node);
    let all = run(&mut node, ms(1000));
    deadline(&all).clone()
}

#[test]
fn a_leader_names_sixteen_of_its_members() {
    let said = report(40, None, |node| {
        for member in 3..30 {
            join(node, member, endpoint(member));
        }
    });
    assert_eq!((said.joined, said.heard.len()), (28, Report::NAMES));
    assert!(said.heard.is_sorted());
}

#[test]
fn a_node_names_who_said_that_the_job_runs_and_who_is_not_authentic() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let said = report(4, None, |node| {
        let header = Header { sender: id(9), recipient: ME, lineage };
        node.handle_datagram(ms(1), endpoint(9), &codec().encode(header, &running()));
        let mut sealed = to_all(LEADER, &announce(candidate(LEADER, 1, false)));
        sealed[5] |= 0x80;
        node.handle_datagram(ms(1), endpoint(8), &sealed);
        node.handle_datagram(ms(1), endpoint(8), &sealed);
    });
    assert_eq!(said.running, Some(endpoint(9)));
    assert_eq!((said.unauthentic, said.unauthentic_others), (vec![(endpoint(8).ip(), 2)], 0));
}

#[test]
fn a_datagram_to_another_node_or_of_this_node_itself_is_dropped() {
    let (mut node, _) = leading(4);
    for (sender, recipient, answers) in
        [(id(3), ME, 1), (id(3), id(9), 0), (ME, ME, 0), (id(3), NodeId([0xfe; 16]), 0)]
    {
        let header = Header { sender, recipient, lineage: Lineage::default() };
        node.handle_datagram(node.shared.now, endpoint(3), &codec().encode(header, &Message::Ping));
        assert_eq!(outputs(&mut node).len(), answers, "{sender} to {recipient}");
    }
}

#[test]
fn a_deadline_within_a_round_waits_for_its_reason_and_no_other_begins() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let mut all = run(&mut node, ms(1));
    all.extend(join(&mut node, 3, endpoint(3)));
    assert_eq!(rounds(&all), [1]);
    let told = run(&mut node, ms(2000));
    assert!(
        !node.has_ended() && !told.iter().any(|output| matches!(output, Output::Event(Event::Failed(_))))
    );
    hear_from(&mut node, 3, &broken(1, ME, endpoint(2)));
    let told = run(&mut node, ms(2300));
    assert!(rounds(&told).is_empty() && says(&told, |message| *message == Message::Void(1)));
    assert!(says(&told, |message| matches!(message, Message::Refuse(Refusal::PathsBroken(..)))));
    let told = run(&mut node, ms(20_000));
    assert!(matches!(failure(&told), Some(Failure::PathsBroken { .. })), "{told:?}");
}
