//! A node that leads or looks for a leader, and others that look too.

use crate::model::{HostName, Lineage, List, NodeId, Rank, WorldSize};
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Node, Output};
use crate::wire::{Announce, Candidate, Header, Introduction, Join, Message, NodeInfo, Token, Welcome};

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
    Message::Announce(Announce { candidate, joined: members, newest, missing })
}

/// How many of these messages go to one node, and how many to all.
fn count(outputs: &[Output], wanted: fn(&Message) -> bool) -> (usize, usize) {
    let is = |datagram: &[u8]| wanted(&codec().decode(datagram).unwrap().1);
    let one = outputs.iter().filter(|output| matches!(output, Output::Send { datagram, .. } if is(datagram)));
    let all =
        outputs.iter().filter(|output| matches!(output, Output::Multicast { datagram } if is(datagram)));
    (one.count(), all.count())
}

fn is_announce(message: &Message) -> bool {
    matches!(message, Message::Announce(_))
}

fn is_solicit(message: &Message) -> bool {
    matches!(message, Message::Solicit(_))
}

#[test]
fn a_candidate_answers_a_worse_one_at_once_and_follows_a_better_one() {
    let mut better = node(1, None);
    outputs(&mut better);
    let heard = hear(&mut better, ms(1), 3, NodeId::ALL, &announce(3, 1));
    assert_eq!(count(&heard, is_announce), (1, 1), "it announces itself to all, and to the worse one");
    let heard = hear(&mut better, ms(2), 3, NodeId::ALL, &announce(3, 1));
    assert_eq!(count(&heard, is_announce), (1, 0), "it has announced itself");
    let heard = hear(&mut better, ms(3), 3, NodeId::ALL, &announce(3, 2));
    let joins = |message: &Message| matches!(message, Message::Join(_));
    assert_eq!((count(&heard, joins), count(&heard, is_announce)), ((1, 0), (0, 0)), "it has two members");
}

/// Node 2, a member of node 1.
fn member() -> Node {
    let mut member = node(2, None);
    outputs(&mut member);
    let heard = hear(&mut member, ms(0), 1, NodeId::ALL, &announce(1, 1));
    let dial = dialled(&heard);
    member.handle_dialed(ms(0), dial);
    let welcome = Message::Welcome(Welcome { lease: Some(dial.0), seated: true });
    hear(&mut member, ms(0), 1, id(2), &welcome);
    member
}

fn is_hint(message: &Message) -> bool {
    matches!(message, Message::Hint(_))
}

#[test]
fn a_node_waits_ten_minutes_if_nothing_else_is_said() {
    let plain = Config::plain(tag(), 4, 2, endpoint(2));
    let config = Config::new(plain.id, plain.tag, plain.world, plain.node);
    assert_eq!(config.timeout, Some(Time::from_secs(600)));
}

/// A node of a world of 100, which is large.
fn node_of_100(number: u8) -> Node {
    Node::new(Config::plain(tag(), 100, number, endpoint(number)), 1, Time::ZERO)
}

fn announce_of_100(from: u8, members: u32) -> Message {
    match announce(from, members) {
        Message::Announce(announce) => {
            let candidate = Candidate { world: WorldSize::of(100), ..announce.candidate };
            Message::Announce(Announce { candidate, ..announce })
        }
        other => other,
    }
}

fn is_join(message: &Message) -> bool {
    matches!(message, Message::Join(_))
}

#[test]
fn a_node_of_a_large_world_that_only_listens_follows_the_best_newcomer_when_its_time_has_come() {
    let mut listener = node_of_100(9);
    outputs(&mut listener);
    for from in [3, 1, 2] {
        assert_eq!(hear(&mut listener, ms(0), from, NodeId::ALL, &announce_of_100(from, 1)), []);
    }
    let all = run(&mut listener, ms(100));
    assert_eq!((count(&all, is_join).1, count(&all, is_announce).1), (0, 0));
    let to = all.iter().find_map(|output| match output {
        Output::Send { to, datagram } if is_join(&codec().decode(datagram).unwrap().1) => Some(*to),
        _ => None,
    });
    assert_eq!(to, Some(endpoint(1)));
    // One that has members leads already: there is nothing to wait for.
    let mut listener = node_of_100(9);
    outputs(&mut listener);
    assert_eq!(count(&hear(&mut listener, ms(0), 3, NodeId::ALL, &announce_of_100(3, 2)), is_join), (1, 0));
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
        let welcome = Message::Welcome(Welcome { lease: None, seated: false });
        hear(&mut follower, ms(0), 1, id(2), &welcome);
        run(&mut follower, ms(2500));
        hear(&mut follower, ms(2500), 1, id(2), &welcome);
        let given_up = run(&mut follower, ms(3000));
        assert!(given_up.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))));
        let heard = hear(&mut follower, ms(3001), 1, NodeId::ALL, &announce(1, 2));
        assert_eq!(count(&heard, is_join).0 > 0, joins, "rank {rank:?}");
    }
}

fn introduction(from: u8, members: u32) -> Introduction {
    let Message::Announce(Announce { candidate, .. }) = announce(from, members) else { unreachable!() };
    Introduction { candidate, source: endpoint(from) }
}

#[test]
fn a_member_with_seeds_passes_on_what_their_hints_say_and_one_without_does_not() {
    for (has_seeds, hints) in [(false, 0), (true, 1)] {
        let mut member = member();
        if has_seeds {
            member.handle_seeds(ms(0), vec![endpoint(9)]);
        }
        for at in [0, 1500] {
            let told = hear(&mut member, ms(at), 9, id(2), &Message::Hint(introduction(7, 1)));
            assert_eq!(count(&told, is_hint), (if at == 0 { 0 } else { hints }, 0), "{at} ms, {has_seeds}");
        }
    }
}

#[test]
fn of_two_leaders_the_worse_learns_of_the_better_one() {
    // The leader of the member is node 1, and has one member. Node 7 has a higher address.
    for (members, told) in [(1, 7), (100, 1)] {
        let mut member = member();
        let hinted = hear(&mut member, ms(100), 7, id(2), &announce(7, members));
        let hints: Vec<_> = hinted
            .iter()
            .filter_map(|output| match output {
                Output::Send { to, datagram } => match codec().decode(datagram).unwrap().1 {
                    Message::Hint(hint) => Some((*to, hint.candidate.id)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let better = if told == 7 { 1 } else { 7 };
        assert_eq!(hints, [(endpoint(told), id(better))]);
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
fn a_leader_in_a_round_does_not_follow_the_best_that_it_heard_before() {
    let mut node =
        Node::new(Config { timeout: None, ..Config::plain(tag(), 66, 99, endpoint(99)) }, 1, Time::ZERO);
    let due = node.poll_timeout().expect("it announces itself");
    run(&mut node, due.saturating_sub(Time::from_nanos(1)));
    let now = due.saturating_sub(Time::from_nanos(1));
    hear(&mut node, now, 3, NodeId::ALL, &announce_of_66(3));
    let mut all = Vec::new();
    for member in 100..165 {
        let info = NodeInfo::new(HostName::new("host"), endpoint(member).into());
        all.extend(hear(
            &mut node,
            now,
            member,
            id(99),
            &Message::Join(Join { world: WorldSize::of(66), node: info }),
        ));
        let token = Token { prover: id(member), target: id(99), dial: 1, dialled: endpoint(99) };
        let ip = endpoint(99).ip();
        node.handle_token(now, ConnId(member.into()), ip, ip, &codec().encode_token(&token));
        all.extend(outputs(&mut node));
    }
    assert!(all.contains(&Output::Event(Event::Preparing { round: 1 })), "all seats are taken");
    let told = run(&mut node, ms(40));
    assert_eq!(count(&told, is_join).0, 0, "it leads a round");
    assert!(count(&told, is_announce).1 > 0);
}

/// The announce of a node of a world of 66 that is alone.
fn announce_of_66(from: u8) -> Message {
    let Message::Announce(Announce { mut candidate, .. }) = announce(from, 1) else { unreachable!() };
    candidate.world = WorldSize::of(66);
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: 1, newest, missing })
}

#[test]
fn a_node_that_listened_and_has_a_member_by_now_leads_and_does_not_follow_who_is_alone() {
    let mut node =
        Node::new(Config { timeout: None, ..Config::plain(tag(), 66, 99, endpoint(99)) }, 1, Time::ZERO);
    let due = node.poll_timeout().expect("it announces itself");
    let now = due.saturating_sub(Time::from_nanos(1));
    run(&mut node, now);
    hear(&mut node, now, 3, NodeId::ALL, &announce_of_66(3));
    let info = NodeInfo::new(HostName::new("host"), endpoint(100).into());
    hear(&mut node, now, 100, id(99), &Message::Join(Join { world: WorldSize::of(66), node: info }));
    let token = Token { prover: id(100), target: id(99), dial: 1, dialled: endpoint(99) };
    let ip = endpoint(99).ip();
    node.handle_token(now, ConnId(100), ip, ip, &codec().encode_token(&token));
    let told = run(&mut node, ms(40));
    assert_eq!((count(&told, is_join).0, count(&told, is_announce).1 > 0), (0, true));
}
