//! A node that leads or looks for a leader, and others that look too.

use crate::model::{HostName, Lineage, List, NodeId, Rank, WorldSize};
use crate::proto::tests::{codec, endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Node, Output};
use crate::wire::{Announce, Candidate, Header, Join, Message, NodeInfo, Token, Welcome};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

/// A node of a world of four.
fn node(number: u8, rank: Option<u32>) -> Node {
    let mut config = Config::plain(tag(), 4, number, endpoint(number));
    config.node.rank = rank.map(Rank);
    Node::new(config, 1, Time::ZERO)
}

fn hear(node: &mut Node, now: Time, from: u8, recipient: NodeId, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(from), recipient, lineage: Lineage::default() };
    node.handle_datagram(now, endpoint(from), &codec().encode(header, message));
    outputs(node)
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
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce {
        candidate,
        joined: members,
        newest,
        missing,
        user: crate::model::User::default(),
    })
}

/// How many of these messages go to one node, and how many to all.
fn count(outputs: &[Output], wanted: fn(&Message) -> bool) -> (usize, usize) {
    let is = |datagram: &[u8]| wanted(&codec().decode(datagram).unwrap().1);
    let one = outputs.iter().filter(|output| matches!(output, Output::Send { datagram, .. } if is(datagram)));
    let all =
        outputs.iter().filter(|output| matches!(output, Output::Multicast { datagram } if is(datagram)));
    (one.count(), all.count())
}

fn is_solicit(message: &Message) -> bool {
    matches!(message, Message::Solicit(_))
}

fn is_join(message: &Message) -> bool {
    matches!(message, Message::Join(_))
}

#[test]
fn a_node_that_may_not_lead_ignores_a_candidate_that_did_not_answer() {
    let mut seeker = node(2, Some(1));
    outputs(&mut seeker);
    assert!(count(&hear(&mut seeker, ms(0), 1, NodeId::ALL, &announce(1, 1)), is_join).0 > 0);
    let given_up = run(&mut seeker, ms(1500));
    assert!(count(&given_up, is_solicit).1 > 0, "it looks for another");
    assert_eq!(count(&hear(&mut seeker, ms(1501), 1, NodeId::ALL, &announce(1, 1)), is_join), (0, 0));
    assert!(count(&hear(&mut seeker, ms(1502), 3, NodeId::ALL, &announce(3, 1)), is_join).0 > 0);
}

#[test]
fn a_leader_that_answers_and_is_not_reached_is_ignored_by_those_alone_that_may_lead() {
    for (rank, joins) in [(None, false), (Some(1), true)] {
        let mut follower = node(2, rank);
        outputs(&mut follower);
        assert!(count(&hear(&mut follower, ms(0), 1, NodeId::ALL, &announce(1, 2)), is_join).0 > 0);
        let welcome = Message::Welcome(Welcome { lease: None, seated: false, trouble: None });
        hear(&mut follower, ms(0), 1, id(2), &welcome);
        run(&mut follower, ms(2500));
        hear(&mut follower, ms(2500), 1, id(2), &welcome);
        let given_up = run(&mut follower, ms(3000));
        assert!(given_up.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))));
        let heard = hear(&mut follower, ms(3001), 1, NodeId::ALL, &announce(1, 2));
        assert_eq!(count(&heard, is_join).0 > 0, joins, "rank {rank:?}");
    }
}

#[test]
fn a_node_that_is_joining_changes_to_a_better_candidate_and_to_no_worse_or_equal_one() {
    for (from, members, changes) in [(1, 5, true), (4, 1, false), (4, 9, true), (3, 2, false)] {
        let mut node = node(9, None);
        outputs(&mut node);
        assert_eq!(count(&hear(&mut node, ms(0), 3, NodeId::ALL, &announce(3, 2)), is_join).0, 1);
        let heard = hear(&mut node, ms(1), from, NodeId::ALL, &announce(from, members));
        assert_eq!(count(&heard, is_join).0, usize::from(changes), "node {from} with {members}");
    }
}

#[test]
fn a_node_that_listened_follows_nobody_once_others_have_joined_it() {
    // It has heard a candidate that is alone. By now it has one member, or all of them, and leads a round.
    for joining in [1, 65] {
        let config = Config { timeout: None, ..Config::plain(tag(), 66, 99, endpoint(99)) };
        let mut node = Node::new(config, 1, Time::ZERO);
        let now = node.poll_timeout().expect("it announces itself").saturating_sub(Time::from_nanos(1));
        run(&mut node, now);
        let Message::Announce(mut said) = announce(3, 1) else { unreachable!() };
        said.candidate.world = WorldSize::of(66);
        hear(&mut node, now, 3, NodeId::ALL, &Message::Announce(said));
        for member in (100..).take(joining) {
            let info = NodeInfo::new(HostName::new("host"), endpoint(member).into());
            let join = Message::Join(Join { world: WorldSize::of(66), node: info });
            hear(&mut node, now, member, id(99), &join);
            let token = Token { prover: id(member), target: id(99), dial: 1, dialled: endpoint(99) };
            let (ip, hello) = (endpoint(99).ip(), codec().encode_hello(&token, &[]));
            node.handle_hello(now, ConnId(member.into()), ip, ip, &hello);
            outputs(&mut node);
        }
        let told = run(&mut node, ms(40));
        assert_eq!(count(&told, is_join).0, 0, "{joining} have joined");
    }
}
