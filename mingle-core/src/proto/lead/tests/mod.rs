//! A leader and its members: their votes, their silence, the roster, and seats that two of them want.

mod alike;
mod book;
mod broken;
mod challenges;
mod elastic;
mod networks;
mod rounds;
mod unfit;

use std::net::SocketAddr;

use crate::model::{Endpoints, HostName, JobId, Lineage, List, NodeId, Rank, WorldSize};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Event, Node, Output, Warning};
use crate::rdma::{Capability, Summary};
use crate::wire::{
    Announce, Candidate, Codec, Header, Join, Message, NodeInfo, Ready, Refusal, Solicit, Token, Want,
};

/// Node 1, which leads a world.
struct Leader {
    node: Node,
    world: WorldSize,
    now: Time,
}

/// The recipient of a multicast.
const ALL: u8 = 0;

fn job() -> JobId {
    "led".parse().unwrap()
}

fn codec() -> Codec {
    Codec::new(job().tag(), None)
}

fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

/// The two endpoints of a node.
fn endpoints(node: u8) -> Endpoints {
    Endpoints::new(vec![endpoint(node), SocketAddr::from(([10, 0, 1, node], 29500))]).unwrap()
}

fn id(node: u8) -> NodeId {
    NodeId([node; 16])
}

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

impl Leader {
    fn new(world: u32) -> Self {
        Self::of(world, |_| {})
    }

    fn of(world: u32, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::plain(job().tag(), world, 1, endpoint(1));
        config.node.endpoints = endpoints(1);
        config.timeout = None;
        change(&mut config);
        let world = config.world;
        let mut leader = Self { node: Node::new(config, 1, Time::ZERO), world, now: Time::ZERO };
        leader.outputs();
        leader
    }

    /// A leader of a world of which these nodes are members.
    fn with(world: u32, members: &[u8]) -> Self {
        let mut leader = Self::new(world);
        for &member in members {
            leader.join(member, |_| {});
        }
        leader
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.node.poll_output()).collect()
    }

    fn hear(&mut self, from: u8, message: &Message) -> Vec<Output> {
        let header = Header { sender: id(from), recipient: id(1), lineage: Lineage::default() };
        self.node.handle_datagram(self.now, endpoint(from), &codec().encode(header, message));
        self.outputs()
    }

    /// A node asks for a seat, and its connection arrives.
    fn join(&mut self, from: u8, change: impl FnOnce(&mut NodeInfo)) -> Vec<Output> {
        let mut outputs = self.ask(from, change);
        outputs.extend(self.prove(from));
        outputs
    }

    /// The connection of a node that has asked arrives.
    fn prove(&mut self, from: u8) -> Vec<Output> {
        let token = Token { prover: id(from), target: id(1), dial: 1, dialled: endpoint(1) };
        let token = codec().encode_token(&token);
        self.node.handle_token(self.now, ConnId(from.into()), endpoint(1).ip(), endpoint(1).ip(), &token);
        self.outputs()
    }

    fn ask(&mut self, from: u8, change: impl FnOnce(&mut NodeInfo)) -> Vec<Output> {
        let mut node = NodeInfo::new(HostName::new(&format!("host-{from}")), endpoints(from));
        change(&mut node);
        self.hear(from, &Message::Join(Join { world: self.world, node }))
    }

    /// Lets the time pass until then. Returns what the leader does meanwhile.
    fn run(&mut self, until: Time) -> Vec<Output> {
        self.now = until;
        let mut all = self.outputs();
        while let Some(at) = self.node.poll_timeout().filter(|&at| at <= until) {
            self.node.handle_timeout(at);
            all.extend(self.outputs());
        }
        self.node.handle_timeout(until);
        all.extend(self.outputs());
        all
    }
}

/// A candidate of a world of this size, which was given rank 0 or not.
fn announced_by(node: u8, explicit: bool, world: WorldSize) -> Message {
    let (host, endpoints) = (HostName::new("other"), endpoint(node).into());
    let candidate = Candidate { id: id(node), explicit, members: 1, world, host, endpoints };
    let (newest, missing) = (List::default(), List::default());
    Message::Announce(Announce { candidate, joined: 1, newest, missing, rdma: None, expected: None })
}

/// The messages with their recipients.
fn sent(outputs: &[Output]) -> Vec<(u8, Message)> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { datagram, .. } | Output::Multicast { datagram } => {
            let (header, message) = codec().decode(datagram).unwrap();
            Some((header.recipient.0[0], message))
        }
        _ => None,
    });
    sent.collect()
}

fn to(outputs: &[Output], node: u8, wanted: fn(&Message) -> bool) -> usize {
    sent(outputs).iter().filter(|(to, message)| *to == node && wanted(message)).count()
}

fn is_prepare(message: &Message) -> bool {
    matches!(message, Message::Prepare(_))
}

fn is_void(message: &Message) -> bool {
    matches!(message, Message::Void(_))
}

fn is_ping(message: &Message) -> bool {
    matches!(message, Message::Ping)
}

fn is_part(message: &Message) -> bool {
    matches!(message, Message::Part(_))
}

fn ready(endpoint: u8) -> Message {
    Message::Ready(Ready { round: 1, endpoint })
}

/// The index of MASTER_ADDR that the leader's commit names.
fn committed(outputs: &[Output]) -> Option<u8> {
    sent(outputs).iter().find_map(|(_, message)| match message {
        Message::Commit(commit) => Some(commit.endpoint),
        _ => None,
    })
}

#[test]
fn the_endpoint_that_most_members_have_proved_is_masters_and_among_equals_the_first() {
    for (votes, expected) in [
        (vec![0, 0, 0], 0),
        (vec![0, 1, 1], 1),
        (vec![1, 0, 1], 1),
        (vec![0, 0, 1], 0),
        (vec![1, 1, 0, 0], 0),
        (vec![0, 1], 0),
        (vec![1], 1),
    ] {
        let members: Vec<u8> = (2..).take(votes.len()).collect();
        let mut leader = Leader::with(u32::try_from(votes.len()).unwrap() + 1, &members);
        for (&member, &vote) in members.iter().zip(&votes) {
            assert_eq!(committed(&leader.run(Time::ZERO)), None, "{votes:?}: {member} is not ready");
            leader.hear(member, &ready(vote));
        }
        assert_eq!(committed(&leader.run(Time::ZERO)), Some(expected), "{votes:?}");
    }
}

#[test]
fn a_member_that_names_no_endpoint_of_the_master_is_not_ready() {
    let mut leader = Leader::with(2, &[2]);
    for endpoint in [2, 3, 255] {
        leader.hear(2, &ready(endpoint));
        assert_eq!(committed(&leader.run(Time::ZERO)), None, "endpoint {endpoint}");
    }
    leader.hear(2, &ready(1));
    assert_eq!(committed(&leader.run(Time::ZERO)), Some(1));
}

#[test]
fn a_member_that_is_silent_in_a_round_loses_its_seat_after_five_seconds() {
    let mut leader = Leader::with(3, &[2, 3]);
    for second in 1..5 {
        let outputs = leader.run(ms(1000 * second));
        assert!(!outputs.contains(&Output::Close(ConnId(3))), "after {second} s");
        assert!(to(&outputs, 3, is_prepare) > 0, "it is told again");
        leader.hear(2, &ready(0));
    }
    let outputs = leader.run(ms(5100));
    assert!(outputs.contains(&Output::Close(ConnId(3))) && !outputs.contains(&Output::Close(ConnId(2))));
    assert_eq!((to(&outputs, 2, is_void), to(&outputs, 3, is_void)), (1, 1));
    let left =
        |output: &Output| matches!(output, Output::Event(Event::Progress(progress)) if progress.joined == 2);
    assert!(outputs.iter().any(left), "{outputs:?}");
}

#[test]
fn a_round_in_which_a_member_answers_and_is_not_ready_is_void_after_15_seconds() {
    let mut leader = Leader::with(3, &[2, 3]);
    leader.hear(2, &ready(0));
    for half in 1..30 {
        let outputs = leader.run(ms(500 * half));
        assert_eq!(to(&outputs, 2, is_void), 0, "after {half} half seconds");
        leader.hear(2, &ready(0));
        leader.hear(3, &Message::Pong);
    }
    let outputs = leader.run(ms(15_100));
    assert_eq!((to(&outputs, 2, is_void), to(&outputs, 3, is_void)), (1, 1));
    assert!(outputs.contains(&Output::Event(Event::Preparing { round: 2 })), "another round begins");
}

#[test]
fn the_holder_of_a_wanted_seat_is_pinged_for_three_seconds_and_not_at_every_join() {
    let mut leader = Leader::new(4);
    let rank = |node: &mut NodeInfo| node.rank = Some(Rank(2));
    leader.join(2, rank);
    let mut outputs = leader.join(3, rank);
    for _ in 0..100 {
        outputs.extend(leader.ask(3, rank));
        outputs.extend(leader.run(Time::ZERO));
    }
    assert_eq!(to(&outputs, 2, is_ping), 1, "a hundred joins in a moment");
    let outputs = leader.run(ms(2900));
    // The interval grows to 250 ms; from the second on both of its endpoints are tried.
    let pings = to(&outputs, 2, is_ping);
    assert!((10..=40).contains(&pings), "{pings} pings");
    assert!(!outputs.contains(&Output::Close(ConnId(2))));
    let outputs = leader.run(ms(3300));
    assert!(outputs.contains(&Output::Close(ConnId(2))), "it was silent for three seconds");
    let seated = |message: &Message| matches!(message, Message::Welcome(welcome) if welcome.seated);
    assert_eq!(to(&outputs, 3, seated), 1);
}

#[test]
fn a_holder_that_answers_keeps_its_seat_and_the_others_learn_that_the_rank_is_taken() {
    let mut leader = Leader::new(4);
    let rank = |node: &mut NodeInfo| node.rank = Some(Rank(2));
    leader.join(2, rank);
    leader.join(3, rank);
    let refused = |message: &Message| matches!(message, Message::Refuse(Refusal::RankTaken(_)));
    for second in 1..10 {
        let outputs = leader.run(ms(1000 * second));
        assert!(to(&outputs, 2, is_ping) > 0 && !outputs.contains(&Output::Close(ConnId(2))));
        assert_eq!(to(&leader.hear(2, &Message::Pong), 3, refused), 1, "after {second} s");
    }
    leader.node.handle_closed(ms(9000), ConnId(3));
    leader.hear(2, &Message::Pong);
    assert_eq!(to(&leader.run(ms(20_000)), 2, is_ping), 0, "nobody wants its seat any more");
}

fn want(round: u64, mask: u32) -> Message {
    Message::Want(Want { round, first: 0, mask })
}

#[test]
fn parts_of_the_roster_are_multicast_from_four_members_on_that_want_them() {
    for (wanting, many) in [(3, false), (4, true)] {
        let mut leader = Leader::new(6);
        for member in 2..=6 {
            leader.join(member, |node| node.attributes.wants_roster = member < 2 + wanting);
        }
        let first = leader.hear(2, &want(1, 1));
        assert_eq!((to(&first, ALL, is_part), to(&first, 2, is_part)), if many { (1, 0) } else { (0, 1) });
        let again = leader.hear(2, &want(1, 1));
        assert_eq!((to(&again, ALL, is_part), to(&again, 2, is_part)), (0, 1), "it has missed the multicast");
        let soon = leader.hear(3, &want(1, 1));
        let (all, one) = (to(&soon, ALL, is_part), to(&soon, 3, is_part));
        assert_eq!((all, one), if many { (0, 0) } else { (0, 1) }, "the multicast is on its way");
        leader.run(ms(10));
        let later = leader.hear(4, &want(1, 1));
        assert_eq!((to(&later, ALL, is_part), to(&later, 4, is_part)), if many { (1, 0) } else { (0, 1) });
        assert_eq!(to(&leader.hear(5, &want(7, 1)), 5, is_void), 1, "another round");
    }
}

/// The addresses of these messages to one node.
fn addresses(outputs: &[Output], wanted: fn(&Message) -> bool) -> Vec<SocketAddr> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { to, datagram } if wanted(&codec().decode(datagram).unwrap().1) => Some(*to),
        _ => None,
    });
    sent.collect()
}

#[test]
fn what_is_not_answered_is_repeated_to_the_other_endpoint_too_and_twice_to_none() {
    let mut leader = Leader::new(2);
    let first = addresses(&leader.join(2, |_| {}), is_prepare);
    assert_eq!(first, [endpoint(2)]);
    let mut others = 0;
    for at in (10..2000).step_by(10) {
        let now = addresses(&leader.run(ms(at)), is_prepare);
        let to = |address| now.iter().filter(|&&to| to == address).count();
        others += to(endpoints(2)[1]);
        assert!(to(endpoint(2)) <= 1 && to(endpoints(2)[1]) <= to(endpoint(2)), "after {at} ms: {now:?}");
    }
    assert!(others > 5, "{others} to the other endpoint");
}

#[test]
fn an_announce_names_the_three_hosts_that_joined_last_and_the_last_first() {
    let mut leader = Leader::with(9, &[2, 3, 4, 5]);
    let newest = |outputs: &[Output]| {
        let last = sent(outputs).into_iter().rev().find_map(|(_, message)| match message {
            Message::Announce(announce) => Some((announce.joined, announce.newest.into_vec())),
            _ => None,
        });
        last.expect("it announces itself")
    };
    let hosts = |names: [&str; 3]| names.map(HostName::new).to_vec();
    assert_eq!(newest(&leader.run(ms(1000))), (5, hosts(["host-5", "host-4", "host-3"])));
    leader.node.handle_closed(ms(1000), ConnId(4));
    assert_eq!(newest(&leader.run(ms(2000))), (4, hosts(["host-5", "host-3", "host-2"])[..2].to_vec()));
}

#[test]
fn the_master_learns_of_the_commit_first_and_the_others_when_it_has_answered_or_after_a_second() {
    for answers in [true, false] {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        let outputs = leader.join(3, |_| {});
        let dial = outputs.iter().find_map(|output| match output {
            Output::Dial { dial, to, .. } if *to == endpoint(2) => Some(*dial),
            _ => None,
        });
        let dial = dial.expect("the leader dials the master");
        leader.node.handle_dialed(leader.now, dial);
        leader.hear(2, &Message::Proved(dial.0));
        leader.hear(2, &ready(0));
        leader.hear(3, &ready(0));
        let is_commit = |message: &Message| matches!(message, Message::Commit(_));
        let outputs = leader.run(ms(500));
        assert!(to(&outputs, 2, is_commit) > 0 && to(&outputs, 3, is_commit) == 0);
        assert_eq!(to(&leader.hear(3, &ready(0)), 3, is_commit), 0, "it has to wait");
        if answers {
            leader.hear(2, &Message::Done(1));
            assert!(to(&leader.run(ms(500)), 3, is_commit) > 0);
        } else {
            assert_eq!(to(&leader.run(ms(999)), 3, is_commit), 0);
            assert!(to(&leader.run(ms(1200)), 3, is_commit) > 0);
        }
    }
}

/// The dials to the first endpoint of a node.
fn dials(outputs: &[Output], node: u8) -> Vec<DialId> {
    let dials = outputs.iter().filter_map(|output| match output {
        Output::Dial { dial, to, .. } if *to == endpoint(node) => Some(*dial),
        _ => None,
    });
    dials.collect()
}

/// The leader of a world of two whose master is node 2, and the leader's first dial to it.
fn with_another_master() -> (Leader, DialId) {
    let mut leader = Leader::of(2, |config| config.node.attributes.may_be_master = false);
    let dials = dials(&leader.join(2, |_| {}), 2);
    let [dial] = dials[..] else { panic!("{dials:?}") };
    (leader, dial)
}

#[test]
fn a_dial_to_the_master_that_has_closed_is_no_proof_and_the_next_is() {
    let (mut leader, dial) = with_another_master();
    leader.node.handle_dialed(leader.now, dial);
    leader.node.handle_hung_up(leader.now, dial);
    leader.hear(2, &Message::Proved(dial.0));
    leader.hear(2, &ready(0));
    let outputs = leader.run(ms(60));
    assert_eq!(committed(&outputs), None, "{outputs:?}");
    let next = *dials(&outputs, 2).last().expect("it dials again");
    leader.node.handle_dialed(leader.now, next);
    leader.hear(2, &Message::Proved(next.0));
    assert_eq!(committed(&leader.run(ms(60))), Some(0));
}

#[test]
fn a_member_that_repeats_its_ready_gets_a_pong_while_the_master_must_know_first_and_then_the_commit() {
    for answers in [true, false] {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        let dial = dials(&leader.join(3, |_| {}), 2)[0];
        leader.node.handle_dialed(leader.now, dial);
        leader.hear(2, &Message::Proved(dial.0));
        leader.hear(2, &ready(0));
        leader.hear(3, &ready(0));
        leader.run(Time::ZERO);
        let answer = |leader: &mut Leader, member| match &sent(&leader.hear(member, &ready(0)))[..] {
            [(to, message)] if *to == member => matches!(message, Message::Commit(_)),
            other => panic!("{other:?}"),
        };
        assert!(answer(&mut leader, 2), "the master itself");
        if answers {
            leader.hear(2, &Message::Done(1));
        } else {
            leader.run(ms(999));
            assert!(!answer(&mut leader, 3), "the master has a second");
            leader.run(ms(1000));
        }
        assert!(answer(&mut leader, 3));
    }
}

#[test]
fn members_without_a_common_address_family_have_12_seconds_for_another_address() {
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 29500));
    for changes in [true, false] {
        let mut leader = Leader::new(2);
        let mut outputs = leader.join(2, |node| node.endpoints = six.into());
        outputs.extend(leader.run(ms(11_900)));
        assert_eq!((to(&outputs, 2, is_prepare), to(&outputs, 2, is_refusal)), (0, 0));
        if changes {
            assert_eq!(to(&leader.ask(2, |_| {}), 2, is_prepare), 1);
            continue;
        }
        let refused = sent(&leader.run(ms(12_000))).into_iter().find_map(|(_, message)| match message {
            Message::Refuse(Refusal::MasterUnproved(pairs)) => Some(pairs.into_vec()),
            _ => None,
        });
        // The one with IPv6 alone, and the one with IPv4 alone.
        let [(prover, master)] = &refused.expect("no world can form")[..] else { panic!("more than one") };
        assert_eq!((prover.host.as_str(), master.host.as_str()), ("host-2", "host-1"));
    }
}

#[test]
fn the_missing_ranks_are_known_only_if_all_who_are_here_were_given_theirs() {
    let mut leader = Leader::of(4, |config| config.node.rank = Some(Rank(0)));
    let missing = |outputs: &[Output]| {
        let last = sent(outputs).into_iter().rev().find_map(|(_, message)| match message {
            Message::Announce(announce) => Some(announce.missing.into_vec()),
            _ => None,
        });
        last.expect("it announces itself")
    };
    leader.join(2, |node| node.rank = Some(Rank(2)));
    assert_eq!(missing(&leader.run(ms(1000))), [(1, 1), (3, 3)]);
    leader.join(3, |_| {});
    assert_eq!(missing(&leader.run(ms(2000))), []);
}

#[test]
fn a_roster_is_sent_only_if_a_member_wants_it() {
    for wants in [false, true] {
        let mut leader = Leader::with(3, &[2]);
        let outputs = leader.join(3, |node| node.attributes.wants_roster = wants);
        let bytes = sent(&outputs).into_iter().find_map(|(_, message)| match message {
            Message::Prepare(prepare) => Some(prepare.roster_bytes),
            _ => None,
        });
        assert_eq!(bytes.map(|bytes| bytes > 0), Some(wants));
    }
}

#[test]
fn a_member_that_asks_its_leader_gets_the_announces_by_unicast_for_40_seconds() {
    let mut leader = Leader::with(4, &[2, 3]);
    let is_announce = |message: &Message| matches!(message, Message::Announce(_));
    assert_eq!(to(&leader.run(ms(5000)), 2, is_announce), 0);
    let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("host-2") });
    assert_eq!(to(&leader.hear(2, &solicit), 2, is_announce), 1, "the answer");
    let outputs = leader.run(ms(44_000));
    assert!(to(&outputs, 2, is_announce) >= 30 && to(&outputs, 3, is_announce) == 0);
    leader.run(ms(47_000));
    assert_eq!(to(&leader.run(ms(60_000)), 2, is_announce), 0);
}

#[test]
fn a_standby_whose_given_rank_another_member_holds_takes_no_seat_of_a_third() {
    let mut leader = Leader::new(3);
    leader.join(2, |node| node.rank = Some(Rank(1)));
    leader.join(3, |node| node.rank = Some(Rank(2)));
    leader.join(4, |node| node.rank = Some(Rank(1)));
    leader.hear(2, &ready(0));
    let mut all = Vec::new();
    for half in 1..32 {
        all.extend(leader.run(ms(500 * half)));
        // It is here, and not ready.
        all.extend(leader.hear(3, &Message::Pong));
        all.extend(leader.hear(2, &Message::Pong));
        all.extend(leader.hear(2, &ready(0)));
    }
    assert!(all.contains(&Output::Event(Event::Preparing { round: 2 })), "the first round was void");
    assert_eq!(to(&all, 4, is_prepare), 0);
    let second = |message: &Message| matches!(message, Message::Prepare(prepare) if prepare.round == 2);
    assert!(to(&all, 3, second) > 0, "it keeps its seat");
}

#[test]
fn a_standby_that_asks_after_the_commit_learns_that_the_world_is_full() {
    let mut leader = Leader::with(2, &[2, 3]);
    leader.hear(2, &ready(0));
    assert_eq!(committed(&leader.run(Time::ZERO)), Some(0));
    let refusal = |outputs: &[Output], node| {
        let refusal = sent(outputs).into_iter().find_map(|(to, message)| match message {
            Message::Refuse(refusal) if to == node => Some(refusal),
            _ => None,
        });
        refusal.expect("it is refused")
    };
    assert_eq!(sent(&leader.ask(2, |_| {})), [], "a member repeats that it is ready");
    let outputs = leader.ask(3, |_| {});
    assert_eq!((refusal(&outputs, 3), outputs.len()), (Refusal::WorldFull, 1));
    assert_eq!(refusal(&leader.ask(4, |_| {}), 4), Refusal::Closing);
}

#[test]
fn a_new_member_is_announced_soon() {
    let mut leader = Leader::new(9);
    leader.run(ms(5000));
    let due = leader.node.poll_timeout().expect("it announces itself again");
    leader.run(due);
    leader.join(2, |_| {});
    let is_announce = |message: &Message| matches!(message, Message::Announce(_));
    assert_eq!(to(&leader.run(due + ms(20)), ALL, is_announce), 1);
}

#[test]
fn a_node_of_another_host_that_has_only_a_loopback_address_gets_no_seat_until_it_has_another() {
    let mut leader = Leader::new(2);
    let outputs = leader.join(2, |node| node.endpoints = SocketAddr::from(([127, 0, 0, 1], 29500)).into());
    assert_eq!((to(&outputs, 2, |_| true), to(&outputs, 2, is_prepare)), (0, 0));
    assert!(to(&leader.join(2, |_| {}), 2, is_prepare) > 0);
}

#[test]
fn the_address_of_a_member_stays_known_when_another_member_leaves() {
    let mut leader = Leader::with(5, &[2, 3]);
    leader.node.handle_closed(Time::ZERO, ConnId(3));
    let mut outputs = leader.join(4, |node| node.endpoints = endpoints(2));
    outputs.extend(leader.run(ms(100)));
    assert!(to(&outputs, 2, is_ping) > 0, "two processes cannot have one address");
}

#[test]
fn a_node_that_is_no_member_is_told_that_the_round_is_void_although_it_has_committed() {
    let mut leader = Leader::with(2, &[2, 3]);
    leader.hear(2, &ready(0));
    assert_eq!(committed(&leader.run(Time::ZERO)), Some(0));
    assert_eq!(sent(&leader.hear(2, &want(1, 1))), [], "the commit is on its way to a member");
    assert_eq!(sent(&leader.hear(2, &want(7, 1))), [(2, Message::Void(7))], "it has missed the void");
    // A standby and a stranger. The commit is longer than what asks for it.
    for other in [3, 4] {
        assert_eq!(sent(&leader.hear(other, &ready(0))), [(other, Message::Void(1))]);
    }
}

fn is_refusal(message: &Message) -> bool {
    matches!(message, Message::Refuse(_))
}

/// The leader of a world of two that cannot form, since node 2 has no address of the leader's family, 12 s
/// after its start, and what it has done by then.
fn without_a_world() -> (Leader, Vec<Output>) {
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 29500));
    let mut leader = Leader::new(2);
    leader.join(2, |node| node.endpoints = six.into());
    // Its address may be forged.
    leader.ask(3, |_| {});
    leader.run(ms(11_900));
    let outputs = leader.run(ms(12_500));
    (leader, outputs)
}

#[test]
fn the_reason_why_no_world_forms_goes_to_members_and_to_no_node_without_a_proof() {
    let (_, outputs) = without_a_world();
    assert!(to(&outputs, 2, is_refusal) > 0, "{outputs:?}");
    assert_eq!(to(&outputs, 3, is_refusal), 0);
}

#[test]
fn a_leader_without_a_world_ends_as_soon_as_all_its_members_have_left() {
    let (mut leader, _) = without_a_world();
    assert!(!leader.node.has_ended());
    leader.node.handle_closed(leader.now, ConnId(2));
    leader.run(leader.now);
    assert!(leader.node.has_ended());
}

#[test]
fn the_caller_is_warned_of_16_nodes_with_another_size_of_world() {
    let mut leader = Leader::new(4);
    leader.world = WorldSize::of(5);
    let outputs: Vec<Output> = (2..=60).chain(2..=60).flat_map(|node| leader.ask(node, |_| {})).collect();
    let is_warning =
        |output: &&Output| matches!(output, Output::Event(Event::Warning(Warning::WorldDiffers { .. })));
    assert_eq!(outputs.iter().filter(is_warning).count(), 16);
}

/// The master of each prepare, with the address at which it is to be reached.
fn masters(outputs: &[Output]) -> Vec<(u64, NodeId, SocketAddr)> {
    let masters = sent(outputs).into_iter().filter_map(|(_, message)| match message {
        Message::Prepare(prepare) => Some((prepare.round, prepare.master, prepare.endpoints.preferred())),
        _ => None,
    });
    masters.collect()
}

#[test]
fn a_failed_proof_of_a_member_that_has_left_is_held_against_no_master() {
    let mut leader = Leader::new(3);
    leader.join(2, |_| {});
    assert_eq!(masters(&leader.join(3, |_| {}))[0], (1, id(1), endpoint(1)));
    leader.hear(2, &Message::Unproved(1));
    leader.node.handle_closed(Time::ZERO, ConnId(2));
    assert_eq!(masters(&leader.join(4, |_| {}))[0], (2, id(1), endpoint(1)));
}

#[test]
fn the_address_family_changes_after_a_failed_round_and_not_after_a_member_has_left() {
    let six = |node: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, node], 29500));
    let both = |node: u8| Endpoints::new(vec![endpoint(node), six(node.into())]).unwrap();
    let mut leader = Leader::of(3, |config| config.node.endpoints = both(1));
    leader.join(2, |node| node.endpoints = both(2));
    let first = masters(&leader.join(3, |node| node.endpoints = both(3)));
    assert_eq!(first[0], (1, id(1), endpoint(1)));
    leader.hear(2, &Message::Unproved(1));
    let second = masters(&leader.run(ms(300)));
    // Node 2 alone has failed, so that the fault may be its own.
    assert_eq!(second.last(), Some(&(2, id(3), six(3))));
    leader.node.handle_closed(leader.now, ConnId(3));
    let third = masters(&leader.join(4, |node| node.endpoints = both(4)));
    assert_eq!(third[0], (3, id(4), endpoint(4)));
}

#[test]
fn rounds_that_took_too_long_are_counted_anew_when_a_member_has_left() {
    let mut leader = Leader::with(3, &[2, 3]);
    let unready = |leader: &mut Leader, members: [u8; 2], until: u64| {
        let mut all = Vec::new();
        while leader.now < ms(until) {
            all.extend(leader.run(leader.now + ms(500)));
            for member in members {
                all.extend(leader.hear(member, &Message::Pong));
            }
        }
        all
    };
    let all = unready(&mut leader, [2, 3], 31_000);
    assert!(all.contains(&Output::Event(Event::Preparing { round: 3 })), "two rounds are void");
    leader.node.handle_closed(leader.now, ConnId(2));
    leader.join(4, |_| {});
    let mut all = unready(&mut leader, [3, 4], 75_000);
    assert_eq!(to(&all, 3, is_refusal), 0);
    all.extend(unready(&mut leader, [3, 4], 78_000));
    assert!(to(&all, 3, is_refusal) > 0, "three rounds of these members");
}

#[test]
fn an_announce_counts_those_that_can_use_rdma_and_not_those_that_have_left() {
    let mut leader = Leader::new(4);
    let tally = |outputs: &[Output]| {
        let last = sent(outputs).into_iter().rev().find_map(|(_, message)| match message {
            Message::Announce(announce) => Some(announce.rdma),
            _ => None,
        });
        last.expect("it announces itself")
    };
    let fabric = Summary { capability: Capability::Roce, ..Summary::default() };
    for member in [2, 3] {
        leader.join(member, |node| node.attributes.fabric = fabric);
    }
    assert_eq!(tally(&leader.run(ms(1000))).map(|tally| tally.roce), Some(2));
    leader.node.handle_closed(leader.now, ConnId(2));
    assert_eq!(tally(&leader.run(ms(2000))).map(|tally| tally.roce), Some(1));
}

#[test]
fn a_node_that_waits_for_its_welcome_in_a_large_world_gets_one_however_often_it_asks() {
    let mut leader = Leader::new(200);
    let is_welcome = |message: &Message| matches!(message, Message::Welcome(_));
    // As many welcomes as may be under way.
    for node in 2..=129 {
        assert_eq!(to(&leader.ask(node, |_| {}), node, is_welcome), 1);
    }
    for _ in 0..3 {
        assert_eq!(to(&leader.ask(130, |_| {}), 130, is_welcome), 0);
    }
    assert_eq!(to(&leader.run(ms(2)), 130, is_welcome), 1);
}

#[test]
fn the_leaders_own_proof_of_another_master_counts_as_one_vote() {
    for (votes, expected) in [(vec![0], 0), (vec![0, 1], 1), (vec![0, 0], 0)] {
        let world = 3 + u32::try_from(votes.len()).unwrap() - 1;
        let mut leader = Leader::of(world, |config| config.node.attributes.may_be_master = false);
        let mut outputs = leader.join(2, |_| {});
        for member in (3..).take(votes.len()) {
            outputs.extend(leader.join(member, |_| {}));
        }
        outputs.extend(leader.run(ms(60)));
        let dial = outputs.iter().find_map(|output| match output {
            Output::Dial { dial, to, .. } if *to == endpoints(2)[1] => Some(*dial),
            _ => None,
        });
        let dial = dial.expect("the leader dials both endpoints");
        leader.node.handle_dialed(leader.now, dial);
        leader.hear(2, &Message::Proved(dial.0));
        leader.hear(2, &ready(0));
        for (member, &vote) in (3..).zip(&votes) {
            leader.hear(member, &ready(vote));
        }
        assert_eq!(committed(&leader.run(ms(60))), Some(expected), "{votes:?}, and the leader's 1");
    }
}

#[test]
fn in_a_small_world_each_join_is_answered_at_once() {
    let mut leader = Leader::new(8);
    let is_welcome = |message: &Message| matches!(message, Message::Welcome(_));
    // More than a leader of a large world welcomes at the same time.
    for (turn, node) in (0..4).flat_map(|turn| (2..=41).map(move |node| (turn, node))) {
        assert_eq!(to(&leader.ask(node, |_| {}), node, is_welcome), 1, "{turn} {node}");
    }
}
