//! A node that leads or looks for a leader, and others that look too.

use crate::model::{HostName, Lineage, List, NodeId, Rank, WorldSize};
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Event, Node, Output};
use crate::wire::{
    Announce, Candidate, Header, Introduction, Join, Message, NodeInfo, Solicit, Token, Welcome,
};

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
        world: WorldSize::of(4),
        host: HostName::new("host"),
        endpoints: endpoint(from).into(),
    };
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: members, newest, missing, rdma: None, expected: None })
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
fn a_leader_that_answers_once_and_then_no_more_is_ignored_as_a_silent_one() {
    for rank in [None, Some(1)] {
        let mut follower = node(2, rank);
        outputs(&mut follower);
        assert!(count(&hear(&mut follower, ms(0), 1, NodeId::ALL, &announce(1, 2)), is_join).0 > 0);
        hear(&mut follower, ms(0), 1, id(2), &Message::Welcome(Welcome { lease: None, seated: false }));
        let given_up = run(&mut follower, ms(3000));
        assert!(given_up.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))));
        let mut joins = |to| count(&hear(&mut follower, ms(3001), 1, to, &announce(1, 2)), is_join).0 > 0;
        assert!(!joins(NodeId::ALL), "rank {rank:?}");
        assert!(joins(id(2)), "it is not silent any more, rank {rank:?}");
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

fn introduction(from: u8, members: u32) -> Introduction {
    let Message::Announce(Announce { candidate, .. }) = announce(from, members) else { unreachable!() };
    Introduction { candidate, source: endpoint(from) }
}

#[test]
fn a_member_answers_a_question_to_all_after_a_second_and_one_to_itself_at_once() {
    let mut asked = member();
    let mut hints = |at, to| count(&hear(&mut asked, ms(at), 5, to, &solicit()), is_hint);
    assert_eq!([0, 500, 999, 1000, 1999, 2000].map(|at| hints(at, NodeId::ALL).0), [0, 0, 0, 1, 0, 1]);
    assert_eq!([hints(2001, id(2)), hints(2002, NodeId::ANYONE)], [(1, 0); 2]);
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

/// Node `number` of a world of 1,000, which has announced itself while others that started with it listen.
fn announced_early(number: u8) -> (Node, Time) {
    for seed in 1.. {
        let mut node = Node::new(Config::plain(tag(), 1000, number, endpoint(number)), seed, Time::ZERO);
        let due = node.poll_timeout().expect("it announces itself");
        let told = run(&mut node, due);
        assert_eq!(count(&told, is_announce), (0, 1));
        if due < ms(10) {
            return (node, due);
        }
    }
    unreachable!("some are early")
}

#[test]
fn in_its_first_20_ms_a_node_of_a_large_world_waits_for_the_best_of_those_that_are_alone_as_it_is() {
    let candidate = |from, members, explicit| {
        let Message::Announce(Announce { mut candidate, .. }) = announce(from, members) else {
            unreachable!()
        };
        (candidate.world, candidate.explicit) = (WorldSize::of(1000), explicit);
        let (newest, missing) = (List::from_iter([]), List::from_iter([]));
        Message::Announce(Announce {
            candidate,
            joined: members,
            newest,
            missing,
            rdma: None,
            expected: None,
        })
    };
    for (from, members, explicit, at_once) in
        [(3, 1, false, false), (3, 2, false, true), (30, 1, true, true), (3, 0, false, false)]
    {
        let (mut node, now) = announced_early(9);
        let heard = hear(&mut node, now, from, NodeId::ALL, &candidate(from, members, explicit));
        // A node of a large world dials when it is welcomed, and joins at once.
        assert_eq!(count(&heard, is_join).0, usize::from(at_once), "{from} with {members}");
        if at_once || members == 0 {
            continue;
        }
        // A better and a worse one follow.
        hear(&mut node, now, 2, NodeId::ALL, &candidate(2, 1, false));
        hear(&mut node, now, 4, NodeId::ALL, &candidate(4, 1, false));
        let told = run(&mut node, now + ms(19));
        assert_eq!(count(&told, is_join).0, 0, "20 ms have not passed since it heard the first");
        let told = run(&mut node, now + ms(31));
        let to_best =
            told.iter().filter(|output| matches!(output, Output::Send { to, .. } if *to == endpoint(2)));
        assert!(to_best.count() > 0 && count(&told, is_join).0 > 0, "{told:?}");
    }
    // Later it follows at once.
    let (mut node, _) = announced_early(9);
    run(&mut node, ms(25));
    assert_eq!(count(&hear(&mut node, ms(25), 3, NodeId::ALL, &candidate(3, 1, false)), is_join).0, 1);
}

#[test]
fn a_node_of_a_large_world_listens_for_20_ms_at_most_and_few_are_early() {
    let due = |seed| {
        let node = Node::new(Config::plain(tag(), 1000, 9, endpoint(9)), seed, Time::ZERO);
        node.poll_timeout().expect("it announces itself")
    };
    let mut times: Vec<Time> = (0..4000).map(due).collect();
    times.sort_unstable();
    assert!(times[3999] <= ms(20) && times[3999] > ms(19), "{:?}", times[3999]);
    // By (e^(s x) - 1) / (e^s - 1) with s = ln 1000 + 1, 1.9% are within the first half and 14% within three
    // quarters.
    let within = |share: u64| times.iter().filter(|&&time| time < ms(share)).count();
    assert!((40..115).contains(&within(10)), "{} of 4,000 within 10 ms", within(10));
    assert!((450..670).contains(&within(15)), "{} of 4,000 within 15 ms", within(15));
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
    Message::Announce(Announce { candidate, joined: 1, newest, missing, rdma: None, expected: None })
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

#[test]
fn nodes_that_have_heard_one_candidate_follow_it_within_ten_milliseconds_of_each_other() {
    let joins_after = |seed| {
        let mut node = Node::new(Config::plain(tag(), 1000, 9, endpoint(9)), seed, Time::ZERO);
        let Message::Announce(Announce { mut candidate, .. }) = announce(3, 1) else { unreachable!() };
        candidate.world = WorldSize::of(1000);
        let (newest, missing) = (List::from_iter([]), List::from_iter([]));
        let message =
            Message::Announce(Announce { candidate, joined: 1, newest, missing, rdma: None, expected: None });
        outputs(&mut node);
        assert_eq!(hear(&mut node, ms(0), 3, NodeId::ALL, &message), []);
        let due = node.poll_timeout().expect("it follows then");
        assert_eq!(count(&run(&mut node, due), is_join).0, 1);
        due
    };
    let mut times: Vec<Time> = (0..300).map(joins_after).collect();
    times.sort_unstable();
    assert!(
        times[0] >= ms(20) && times[0] < ms(21) && times[299] > ms(29) && times[299] <= ms(30),
        "{times:?}"
    );
}

/// The announce of a node of a world of 1,000, which has had so many members.
fn announce_of_1000(from: u8, members: u32) -> Message {
    let Message::Announce(mut said) = announce(from, members) else { unreachable!() };
    said.candidate.world = WorldSize::of(1000);
    Message::Announce(said)
}

#[test]
fn a_node_that_waits_for_the_best_follows_a_better_one_no_earlier_although_all_have_listened() {
    let mut listener = Node::new(Config::plain(tag(), 1000, 9, endpoint(9)), 1, Time::ZERO);
    assert_eq!(run(&mut listener, ms(10)), [], "it only listens");
    for (at, from) in [(10, 5), (25, 3)] {
        let told = hear(&mut listener, ms(at), from, NodeId::ALL, &announce_of_1000(from, 1));
        assert_eq!(told, [], "after {at} ms");
    }
    let told = run(&mut listener, ms(40));
    let to_best =
        told.iter().filter(|output| matches!(output, Output::Send { to, .. } if *to == endpoint(3)));
    assert!(to_best.count() > 0 && count(&told, is_join).0 > 0, "{told:?}");
}

#[test]
fn a_node_that_looks_for_the_others_again_follows_no_candidate_that_it_has_heard_before() {
    for stands_aside in [false, true] {
        let lineage = Lineage { generation: 1, origin: 7 };
        let config = Config { lineage, timeout: None, ..Config::plain(tag(), 1000, 9, endpoint(9)) };
        let mut node = Node::new(config, 1, Time::ZERO);
        let mut hear = |from, recipient, message: &Message| {
            let header = Header { sender: id(from), recipient, lineage };
            node.handle_datagram(ms(0), endpoint(from), &codec().encode(header, message));
            outputs(&mut node)
        };
        assert_eq!(hear(3, NodeId::ALL, &announce_of_1000(3, 1)), [], "it waits for a better one");
        let looks_again = if stands_aside {
            hear(8, id(9), &Message::running());
            30_000
        } else {
            assert_eq!(count(&hear(1, NodeId::ALL, &announce_of_1000(1, 2)), is_join).0, 1);
            1000
        };
        run(&mut node, ms(looks_again - 1));
        let told = run(&mut node, ms(looks_again + 100));
        assert_eq!((count(&told, is_join).0, count(&told, is_announce).1 > 0), (0, true), "{looks_again}");
    }
}

#[test]
fn a_node_that_may_not_lead_asks_often_at_first_when_it_comes_back_from_a_silent_leader() {
    let mut seeker = node(2, Some(1));
    run(&mut seeker, ms(10_000));
    assert!(count(&hear(&mut seeker, ms(10_000), 1, NodeId::ALL, &announce(1, 9)), is_join).0 > 0);
    assert_eq!(count(&run(&mut seeker, ms(10_999)), is_solicit), (0, 0), "the leader has a second");
    let (_, asked) = count(&run(&mut seeker, ms(11_200)), is_solicit);
    assert!((3..=5).contains(&asked), "{asked} in 0.2 s");
}
