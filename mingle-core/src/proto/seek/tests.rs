//! A node that leads or looks for a leader, and others that look too.

use crate::model::{HostName, Lineage, List, NodeId, Rank};
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, Event, Node, Output};
use crate::wire::{Announce, Candidate, Header, Introduction, Message, Solicit, Welcome};

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

fn solicit() -> Message {
    Message::Solicit(Solicit { rank: None, host: HostName::new("host") })
}

/// The announce of this node as a candidate, which has had so many members.
fn announce(from: u8, members: u32) -> Message {
    let candidate = Candidate {
        id: id(from),
        explicit: false,
        members,
        world: 4,
        host: HostName::new("host"),
        endpoints: endpoint(from).into(),
    };
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: members, newest, missing, rdma: None })
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
fn a_leader_answers_who_asks_and_all_where_one_asks_again_but_not_twice_in_50_ms() {
    let mut leader = node(1, None);
    let started = run(&mut leader, ms(100));
    assert!(count(&started, is_announce).1 > 0, "it leads");
    let mut ask = |at, from, to| count(&hear(&mut leader, ms(at), from, to, &solicit()), is_announce);
    assert_eq!(ask(100, 3, NodeId::ALL), (1, 0));
    assert_eq!(ask(100, 3, NodeId::ALL), (1, 1), "its answer may not have arrived");
    assert_eq!(ask(149, 3, NodeId::ALL), (1, 0));
    assert_eq!(ask(150, 3, NodeId::ALL), (1, 1));
    assert_eq!(ask(300, 3, id(1)), (1, 0), "a question to this node alone");
    assert_eq!(ask(300, 3, NodeId::ANYONE), (1, 0), "a question to it as a seed");
    assert_eq!(ask(300, 4, NodeId::ALL), (1, 0), "another node asks for the first time");
}

#[test]
fn a_node_that_hears_others_ask_puts_its_own_question_off_three_times() {
    let mut seeker = node(2, Some(1));
    let mut asked = Vec::new();
    for round in 0..3 {
        let due = seeker.poll_timeout().unwrap();
        asked.push(run(&mut seeker, due));
        let mut put_off = 0;
        for from in 3..9 {
            let before = seeker.poll_timeout();
            let answered = hear(&mut seeker, due, from, NodeId::ALL, &solicit());
            assert_eq!(answered, [], "it knows no leader");
            // The interval is drawn anew.
            put_off += usize::from(seeker.poll_timeout() != before);
        }
        assert_eq!(put_off, 3, "round {round}");
    }
    assert!(asked.iter().all(|outputs| count(outputs, is_solicit) == (0, 1)), "{asked:?}");
}

#[test]
fn a_node_that_is_asked_as_a_seed_and_knows_no_leader_asks_back() {
    let mut seeker = node(2, Some(1));
    outputs(&mut seeker);
    assert_eq!(count(&hear(&mut seeker, ms(1), 3, NodeId::ANYONE, &solicit()), is_solicit), (1, 0));
    assert_eq!(hear(&mut seeker, ms(1), 3, id(2), &solicit()), []);
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
fn a_member_gives_a_rival_of_its_leader_a_hint_after_a_second_and_one_a_second() {
    let mut member = member();
    let mut hinted = Vec::new();
    for at in (0..=3500).step_by(100) {
        run(&mut member, ms(at));
        if count(&hear(&mut member, ms(at), 3, NodeId::ALL, &announce(3, 1)), is_hint).0 > 0 {
            hinted.push(at);
        }
    }
    assert_eq!(hinted, [1000, 2000, 3000]);
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
            let candidate = Candidate { world: 100, ..announce.candidate };
            Message::Announce(Announce { candidate, ..announce })
        }
        other => other,
    }
}

fn is_join(message: &Message) -> bool {
    matches!(message, Message::Join(_))
}

#[test]
fn a_leader_of_a_large_world_announces_itself_soon_after_a_question_to_all_and_not_to_a_seed() {
    let newcomer = || announce_of_100(3, 1);
    for (recipient, message, soon) in [
        (NodeId::ALL, solicit(), 1),
        (NodeId::ANYONE, solicit(), 0),
        (NodeId::ALL, newcomer(), 1),
        (id(1), newcomer(), 0),
    ] {
        let mut leader = node_of_100(1);
        let started = run(&mut leader, ms(5000));
        assert!(count(&started, is_announce).1 > 0, "it leads");
        // Right after an announce, the next is far.
        let due = leader.poll_timeout().unwrap();
        assert_eq!(count(&run(&mut leader, due), is_announce).1, 1);
        assert_eq!(count(&hear(&mut leader, due, 3, recipient, &message), is_announce), (1, 0));
        assert_eq!(count(&run(&mut leader, due + ms(10)), is_announce).1, soon, "{recipient}");
        hear(&mut leader, due + ms(11), 4, recipient, &message);
        assert_eq!(count(&run(&mut leader, due + ms(15)), is_announce).1, 0, "not twice in 10 ms");
    }
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
fn a_node_that_may_not_lead_asks_new_seeds_at_once() {
    let mut seeker = node(2, Some(1));
    let before = run(&mut seeker, ms(20_000));
    assert!(count(&before, is_solicit).1 > 0);
    seeker.handle_seeds(ms(20_001), vec![endpoint(7)]);
    let asked = run(&mut seeker, ms(20_001));
    assert_eq!(count(&asked, is_solicit), (1, 1), "the seed, and all");
}

#[test]
fn a_node_that_waits_sends_fewer_than_seven_datagrams_in_five_seconds() {
    for rank in [None, Some(1)] {
        let mut config = Config::plain(tag(), 4, 2, endpoint(2));
        (config.node.rank, config.timeout) = (rank.map(Rank), None);
        let mut waiting = Node::new(config, 1, Time::ZERO);
        run(&mut waiting, ms(10_000));
        let sent = run(&mut waiting, ms(110_000));
        let sent = count(&sent, is_announce).1 + count(&sent, is_solicit).1;
        assert!((70..140).contains(&sent), "{sent} in 100 s, rank {rank:?}");
    }
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
fn a_leader_announces_itself_to_new_seeds_at_once_and_a_node_that_only_listens_answers_nobody() {
    let mut leader = node(1, None);
    run(&mut leader, ms(20_000));
    leader.handle_seeds(ms(20_001), vec![endpoint(7)]);
    assert_eq!(count(&run(&mut leader, ms(20_001)), is_announce), (1, 1));
    leader.handle_seeds(ms(20_002), vec![endpoint(7)]);
    assert_eq!(count(&run(&mut leader, ms(20_002)), is_announce), (0, 0), "it is not new any more");
    let mut listener = node_of_100(9);
    outputs(&mut listener);
    assert_eq!(hear(&mut listener, ms(0), 3, NodeId::ALL, &solicit()), []);
    listener.handle_seeds(ms(0), vec![endpoint(7)]);
    assert_eq!(count(&run(&mut listener, ms(0)), is_announce), (0, 0), "it has not announced itself yet");
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

#[test]
fn a_member_that_asks_its_leader_tells_all_of_it_unless_another_did_within_two_seconds() {
    for (before, leader, to, tells) in [
        (None, 1, NodeId::ALL, 1),
        (Some(1990), 1, NodeId::ALL, 0),
        (Some(2010), 1, NodeId::ALL, 1),
        // Others do not hear these, or hear of another leader.
        (Some(1990), 1, id(2), 1),
        (Some(1990), 3, NodeId::ALL, 1),
    ] {
        let mut member = member();
        run(&mut member, ms(200));
        for question in 1..=3 {
            // Nothing else is under way.
            let due = member.poll_timeout().expect("it asks again");
            if let Some(before) = before {
                let Message::Announce(Announce { candidate, .. }) = announce(leader, 1) else {
                    unreachable!()
                };
                let hint = Message::Hint(Introduction { candidate, source: endpoint(leader) });
                assert_eq!(hear(&mut member, due.saturating_sub(ms(before)), 3, to, &hint), []);
            }
            let asked = run(&mut member, due);
            assert_eq!(count(&asked, is_solicit), (1, 0), "question {question}");
            assert_eq!(count(&asked, is_hint), (0, tells), "question {question}, {before:?}");
        }
    }
}

#[test]
fn a_candidate_that_comes_back_from_a_silent_leader_announces_itself_often_at_first() {
    let mut node = node(2, None);
    run(&mut node, ms(10_000));
    let heard = hear(&mut node, ms(10_000), 1, NodeId::ALL, &announce(1, 9));
    assert_eq!(count(&heard, |message| matches!(message, Message::Join(_))), (1, 0));
    assert_eq!(count(&run(&mut node, ms(10_999)), is_announce), (0, 0), "the leader has a second");
    let (_, announced) = count(&run(&mut node, ms(11_200)), is_announce);
    assert!((3..=5).contains(&announced), "{announced} in 0.2 s");
}
