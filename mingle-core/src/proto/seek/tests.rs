//! A node that leads or looks for a leader, and others that look too.

use crate::model::{HostName, List, NodeId, Rank, WorldSize};
use crate::proto::tests::{Hand, codec, endpoint, id, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, Event, Node, Output, Warning};
use crate::wire::{Announce, Candidate, Count, Header, Join, Message, NodeInfo, Said};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

/// A node of a world of four.
fn node(number: u8, rank: Option<u32>) -> Hand {
    let mut config = Config::plain(tag(), 4, number, endpoint(number));
    config.node.rank = rank.map(Rank);
    Hand::new(Node::new(config, 1, Time::ZERO), number)
}

fn hear(node: &mut Hand, now: Time, from: u8, recipient: NodeId, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(from), recipient };
    node.handle_datagram(now, endpoint(from), &codec().encode(header, message));
    node.outputs()
}

/// The announce of this node as a candidate, which has had so many members.
fn announce(from: u8, members: u32) -> Message {
    let candidate = Candidate {
        id: id(from),
        explicit: false,
        members,
        world: WorldSize::of(4),
        host: HostName::new("host"),
        endpoints: endpoint(from).into(),
    };
    let count = Count { joined: members, newest: List::default(), missing: List::default() };
    Message::Announce(Announce { candidate, count, user: crate::model::User::default() })
}

/// How many solicits go to one node, which it means to join, and how many to all.
fn solicits(outputs: &[Output]) -> (usize, usize) {
    let is = |datagram: &[u8]| matches!(codec().decode(datagram).unwrap().1, Message::Solicit(_));
    let one = outputs.iter().filter(|output| matches!(output, Output::Send { datagram, .. } if is(datagram)));
    let all =
        outputs.iter().filter(|output| matches!(output, Output::Multicast { datagram } if is(datagram)));
    (one.count(), all.count())
}

#[test]
fn a_node_that_may_not_lead_ignores_a_candidate_that_did_not_answer() {
    let mut seeker = node(2, Some(1));
    seeker.outputs();
    assert!(solicits(&hear(&mut seeker, ms(0), 1, NodeId::ALL, &announce(1, 1))).0 > 0);
    let given_up = seeker.run(ms(1500));
    assert!(solicits(&given_up).1 > 0, "it looks for another");
    assert_eq!(solicits(&hear(&mut seeker, ms(1501), 1, NodeId::ALL, &announce(1, 1))), (0, 0));
    assert!(solicits(&hear(&mut seeker, ms(1502), 3, NodeId::ALL, &announce(3, 1))).0 > 0);
}

#[test]
fn a_leader_that_answers_and_is_not_reached_is_ignored_by_those_alone_that_may_lead() {
    for (rank, joins) in [(None, false), (Some(1), true)] {
        let mut follower = node(2, rank);
        follower.outputs();
        assert!(solicits(&hear(&mut follower, ms(0), 1, NodeId::ALL, &announce(1, 2))).0 > 0);
        // It answers.
        for at in [0, 1500] {
            hear(&mut follower, ms(at), 1, id(2), &announce(1, 2));
        }
        let given_up = follower.run(ms(3000));
        assert!(given_up.iter().any(is_unreached));
        let is_lost = |output: &Output| matches!(output, Output::Event(Event::LostLeader(_)));
        assert!(!given_up.iter().any(is_lost), "it has never joined it");
        let heard = hear(&mut follower, ms(3001), 1, NodeId::ALL, &announce(1, 2));
        assert_eq!(solicits(&heard).0 > 0, joins, "rank {rank:?}");
    }
}

fn is_unreached(output: &Output) -> bool {
    matches!(output, Output::Event(Event::Warning(Warning::Unreached { .. })))
}

#[test]
fn a_leader_that_answers_no_more_has_ended_and_no_firewall_is_named() {
    let mut follower = node(2, None);
    follower.outputs();
    hear(&mut follower, ms(0), 1, NodeId::ALL, &announce(1, 2));
    hear(&mut follower, ms(0), 1, id(2), &announce(1, 2));
    let given_up = follower.run(ms(3000));
    assert!(solicits(&given_up).0 > 8 && !given_up.iter().any(is_unreached), "{given_up:?}");
    let heard = hear(&mut follower, ms(3001), 1, NodeId::ALL, &announce(1, 2));
    assert_eq!(solicits(&heard).0, 0, "it was given up");
}

#[test]
fn a_node_that_is_joining_changes_to_a_better_candidate_and_to_no_worse_or_equal_one() {
    for (from, members, changes) in [(1, 5, true), (4, 1, false), (4, 9, true), (3, 2, false)] {
        let mut node = node(9, None);
        node.outputs();
        assert_eq!(solicits(&hear(&mut node, ms(0), 3, NodeId::ALL, &announce(3, 2))).0, 1);
        let heard = hear(&mut node, ms(1), from, NodeId::ALL, &announce(from, members));
        assert_eq!(solicits(&heard).0, usize::from(changes), "node {from} with {members}");
    }
}

#[test]
fn a_node_that_listened_follows_nobody_once_others_have_joined_it() {
    // It has heard a candidate that is alone. By now it has one member, or all of them, and leads a round.
    for joining in [1, 65] {
        let config = Config { timeout: None, ..Config::plain(tag(), 66, 99, endpoint(99)) };
        let mut node = Hand::new(Node::new(config, 1, Time::ZERO), 99);
        let now = node.poll_timeout().expect("it announces itself").saturating_sub(Time::from_nanos(1));
        node.run(now);
        let Message::Announce(mut said) = announce(3, 1) else { unreachable!() };
        said.candidate.world = WorldSize::of(66);
        hear(&mut node, now, 3, NodeId::ALL, &Message::Announce(said));
        for member in (100..).take(joining) {
            let info = NodeInfo::new(HostName::new("host"), endpoint(member).into());
            let join = Join { world: WorldSize::of(66), node: info, traits: Vec::new(), misfit: None };
            node.say(now, member, &Said::Join(Box::new(join)));
        }
        let told = node.run(ms(40));
        assert_eq!(solicits(&told).0, 0, "{joining} have joined");
    }
}

#[test]
fn a_leader_that_waits_for_the_best_of_a_large_world_follows_no_sooner_because_a_worse_one_is_heard() {
    let config = Config { timeout: None, ..Config::plain(tag(), 1000, 50, endpoint(50)) };
    let mut node = Hand::new(Node::new(config, 1, Time::ZERO), 50);
    let announced = node.poll_timeout().expect("it announces itself");
    node.run(announced);
    for from in [3, 70] {
        let Message::Announce(mut said) = announce(from, 1) else { unreachable!() };
        said.candidate.world = WorldSize::of(1000);
        hear(&mut node, announced, from, NodeId::ALL, &Message::Announce(said));
    }
    assert_eq!(solicits(&node.run(announced + ms(19))).0, 0, "others may be better");
    assert_eq!(solicits(&node.run(announced + ms(31))).0, 1, "it follows the best");
}
