//! What one node does with messages that are wrong, late, repeated, or meant for another node. In the
//! simulator, where all nodes keep to the protocol, harm would need a second fault.

use std::net::SocketAddr;
use std::time::Duration;

use crate::model::{Digest, HostName, JobId, Lineage, List, NodeId};
use crate::proto::follow::Follow;
use crate::proto::report::Event;
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Failure, Node, Output, Warning};
use crate::wire::{
    Announce, Candidate, Codec, Commit, Header, Introduction, Join, Message, NodeInfo, PADDED, Part, Prepare,
    Ready, Refusal, Token, Want, Welcome,
};

const ME: NodeId = NodeId([2; 16]);
const LEADER: NodeId = NodeId([1; 16]);

fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

fn codec() -> Codec {
    Codec::new("misdirected".parse::<JobId>().unwrap().tag(), None)
}

fn node() -> Node {
    Node::new(config(2), 1, Time::ZERO)
}

/// Node 2 of a world of this size.
fn config(world: u32) -> Config {
    Config::plain("misdirected".parse::<JobId>().unwrap().tag(), world, 2, endpoint(2))
}

fn outputs(node: &mut Node) -> Vec<Output> {
    std::iter::from_fn(|| node.poll_output()).collect()
}

fn hear(node: &mut Node, message: &Message) -> Vec<Output> {
    let datagram =
        codec().encode(Header { sender: LEADER, recipient: ME, lineage: Lineage::default() }, message);
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    outputs(node)
}

/// A datagram of the node `sender` to this node arrives, at the time that the node has.
fn hear_from(node: &mut Node, sender: u8, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(sender), recipient: ME, lineage: node.shared.config.lineage };
    let now = node.shared.now;
    node.handle_datagram(now, endpoint(sender), &codec().encode(header, message));
    outputs(node)
}

fn id(node: u8) -> NodeId {
    NodeId([node; 16])
}

/// Lets the time pass until `until`. Returns what the node does meanwhile.
fn run(node: &mut Node, until: Time) -> Vec<Output> {
    let mut all = outputs(node);
    while let Some(at) = node.poll_timeout().filter(|&at| at <= until) {
        node.handle_timeout(at);
        all.extend(outputs(node));
    }
    // No input, but its time counts.
    node.handle_timeout(until);
    all.extend(outputs(node));
    all
}

/// The messages that were sent to one node, with their addresses.
fn sent(outputs: &[Output]) -> Vec<(SocketAddr, Message)> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { to, datagram } => Some((*to, codec().decode(datagram).unwrap().1)),
        _ => None,
    });
    sent.collect()
}

fn count(outputs: &[Output], wanted: fn(&Message) -> bool) -> usize {
    sent(outputs).iter().filter(|(_, message)| wanted(message)).count()
}

fn failure(outputs: &[Output]) -> Option<&Failure> {
    outputs.iter().find_map(|output| match output {
        Output::Event(Event::Failed(failure)) => Some(failure),
        _ => None,
    })
}

fn says(outputs: &[Output], wanted: fn(&Message) -> bool) -> bool {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { datagram, .. } => codec().decode(datagram).ok(),
        _ => None,
    });
    sent.into_iter().any(|(_, message)| wanted(&message))
}

fn has_formed(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Formed(_))))
}

/// A candidate of the world of two, at the address that ends in `last`.
fn candidate(id: NodeId, last: u8, explicit: bool) -> Candidate {
    Candidate {
        id,
        explicit,
        members: 1,
        world: 2,
        host: HostName::new("host"),
        endpoints: endpoint(last).into(),
    }
}

fn announce(candidate: Candidate) -> Message {
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: 1, newest, missing, rdma: None })
}

/// A node that follows the leader, and its first dial.
fn following() -> (Node, u32) {
    let mut node = node();
    let _ = outputs(&mut node);
    let followed = hear(&mut node, &announce(candidate(LEADER, 1, false)));
    let dial = followed.iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    let Some(DialId(lease)) = dial else { panic!("{followed:?}") };
    node.handle_dialed(Time::ZERO, DialId(lease), endpoint(2).ip());
    (node, lease)
}

#[test]
fn a_node_follows_a_redirect_only_to_a_better_leader() {
    let third = NodeId([3; 16]);
    for (last, explicit, followed) in [(3, false, false), (1, false, false), (3, true, true)] {
        let (mut node, lease) = following();
        hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true }));
        let to = Introduction { candidate: candidate(third, last, explicit), source: endpoint(3) };
        hear(&mut node, &Message::Redirect(to));
        let leader = node.follow.as_ref().map(Follow::leader_id);
        assert_eq!(leader, Some(if followed { third } else { LEADER }), "{last} {explicit}");
    }
}

#[test]
fn a_leader_does_not_yield_in_a_round() {
    let mut node = node();
    let _ = outputs(&mut node);
    let join = Join { world: 2, node: NodeInfo::new(HostName::new("host-9"), endpoint(9).into()) };
    hear(&mut node, &Message::Join(join));
    let token = Token { prover: LEADER, target: ME, dial: 1, dialled: endpoint(2) };
    node.handle_token(Time::ZERO, ConnId(1), endpoint(2).ip(), &codec().encode_token(&token));
    assert!(says(&outputs(&mut node), |message| matches!(message, Message::Prepare(_))));
    let better = NodeId([3; 16]);
    let datagram = codec().encode(
        Header { sender: better, recipient: NodeId::ALL, lineage: Lineage::default() },
        &announce(candidate(better, 1, true)),
    );
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    assert!(node.follow.is_none() && node.lead.is_proving());
}

#[test]
fn a_token_for_another_node_proves_nothing() {
    // The address may have been that of another node, which is gone.
    for (target, closed) in [(NodeId([9; 16]), true), (ME, false)] {
        let mut node = node();
        let token = Token { prover: LEADER, target, dial: 1, dialled: endpoint(2) };
        node.handle_token(Time::ZERO, ConnId(1), endpoint(2).ip(), &codec().encode_token(&token));
        assert_eq!(outputs(&mut node).contains(&Output::Close(ConnId(1))), closed);
        assert_eq!(node.arrivals.has(LEADER), !closed);
    }
}

#[test]
fn a_commit_of_another_round_forms_no_world() {
    let (mut node, lease) = following();
    hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true }));
    let prepare = Prepare {
        slots_before: 1,
        slots_total: 2,
        roster_bytes: 0,
        round: 7,
        lease,
        rank: 1,
        digest: Digest([0; 16]),
        master: LEADER,
        endpoints: endpoint(1).into(),
    };
    let prepared = hear(&mut node, &Message::Prepare(prepare));
    assert!(says(&prepared, |message| matches!(message, Message::Ready(_))), "{prepared:?}");
    for round in [0, 6, 8] {
        let outputs = hear(
            &mut node,
            &Message::Commit(Commit { round, endpoint: 0, verdict: crate::rdma::Verdict::default() }),
        );
        assert!(!has_formed(&outputs), "round {round}");
        assert!(!says(&outputs, |message| matches!(message, Message::Done(_))), "round {round}");
    }
    assert!(has_formed(&hear(
        &mut node,
        &Message::Commit(Commit { round: 7, endpoint: 0, verdict: crate::rdma::Verdict::default() })
    )));
}

/// A member of the leader, and the right prepare of its first round: rank 1 of two, the leader is the master.
fn joined(config: Config) -> (Node, Prepare) {
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let followed = hear(&mut node, &announce(candidate(LEADER, 1, false)));
    let lease = followed.iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(dial.0),
        _ => None,
    });
    let lease = lease.expect("it dials its leader");
    node.handle_dialed(Time::ZERO, DialId(lease), endpoint(2).ip());
    hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true }));
    let prepare = Prepare {
        round: 1,
        lease,
        rank: 1,
        digest: Digest([0; 16]),
        slots_before: 1,
        slots_total: 2,
        roster_bytes: 0,
        master: LEADER,
        endpoints: endpoint(1).into(),
    };
    (node, prepare)
}

fn is_ready(message: &Message) -> bool {
    matches!(message, Message::Ready(_))
}

#[test]
fn a_ready_node_ends_30_seconds_after_the_prepare_whatever_its_leader_repeats() {
    for loses_lease in [false, true] {
        let (mut node, prepare) = joined(config(2));
        let told = hear(&mut node, &Message::Prepare(prepare.clone()));
        assert!(says(&told, is_ready), "{told:?}");
        assert!(told.contains(&Output::Event(Event::Preparing { round: 1 })), "the caller is told");
        if loses_lease {
            node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
        }
        let ended = (0..60_000).step_by(10).find_map(|millisecond| {
            let mut outputs = run(&mut node, Time::from_millis(millisecond));
            outputs.extend(hear_from(&mut node, 1, &Message::Prepare(prepare.clone())));
            Some((millisecond, failure(&outputs)?.clone()))
        });
        let Some((30_000, Failure::OutcomeUnknown { .. })) = ended else { panic!("{ended:?}") };
    }
}

#[test]
fn a_ready_node_ends_in_the_first_later_round_after_its_deadline() {
    let config = Config { timeout: Some(Duration::from_secs(5)), ..config(2) };
    let (mut node, prepare) = joined(config);
    for round in 1..1000 {
        let now = Time::from_millis(10 * round);
        let mut outputs = run(&mut node, now);
        outputs.extend(hear_from(&mut node, 1, &Message::Prepare(Prepare { round, ..prepare.clone() })));
        if let Some(failure) = failure(&outputs) {
            assert!(matches!(failure, Failure::Deadline(_)), "{failure}");
            assert_eq!(now, Time::from_secs(5) + Duration::from_millis(if round == 500 { 0 } else { 10 }));
            return;
        }
    }
    panic!("the node has not ended");
}

#[test]
fn a_follower_ignores_a_prepare_that_no_honest_leader_sends() {
    type Change = fn(&mut Prepare, &mut Config);
    let loopback: SocketAddr = "127.0.0.1:22".parse().unwrap();
    let changes: [(&str, Change); 10] = [
        ("the given rank is not kept", |prepare, config| {
            (prepare.rank, config.node.rank) = (2, config.world.rank(1).ok());
        }),
        ("no such rank", |prepare, _| prepare.rank = 3),
        ("rank 0 is not the master", |prepare, _| prepare.rank = 0),
        ("the master has another rank than 0", |prepare, _| {
            (prepare.master, prepare.endpoints) = (ME, endpoint(2).into());
        }),
        ("it is the master at another node's address", |prepare, _| {
            (prepare.master, prepare.rank, prepare.slots_before) = (ME, 0, 0);
        }),
        ("the master is at a loopback address", |_, _| {}),
        ("rank 0 has workers before it", |prepare, _| {
            (prepare.master, prepare.endpoints, prepare.rank) = (ME, endpoint(2).into(), 0);
        }),
        ("more workers before and here than in all", |prepare, _| prepare.slots_total = 1),
        ("more workers than the world can have", |prepare, _| prepare.slots_total = u64::MAX),
        ("the roster that it wants is empty", |_, config| config.node.attributes.wants_roster = true),
    ];
    for (what, change) in changes {
        let mut config = config(3);
        let (_, mut wrong) = joined(config.clone());
        change(&mut wrong, &mut config);
        if what.contains("loopback") {
            wrong.endpoints = loopback.into();
        }
        let (mut node, right) = joined(config.clone());
        let told = hear(&mut node, &Message::Prepare(wrong));
        assert_eq!(sent(&told), [], "{what}");
        assert!(!node.is_bound(), "{what}");
        let right = Prepare { roster_bytes: 9, ..right };
        let told = hear(&mut node, &Message::Prepare(right));
        assert!(sent(&told).len() == 1 && node.is_bound(), "{what}: {told:?}");
    }
}

#[test]
fn a_follower_of_a_given_rank_0_takes_no_other_master() {
    let (mut node, prepare) = joined(config(3));
    let explicit = candidate(LEADER, 1, true);
    hear(&mut node, &announce(explicit));
    let other = Prepare { master: id(3), endpoints: endpoint(3).into(), rank: 2, ..prepare.clone() };
    assert_eq!(sent(&hear(&mut node, &Message::Prepare(other))), []);
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
}

#[test]
fn a_roster_that_is_wrong_is_asked_for_again_a_second_later() {
    let mut config = config(2);
    config.node.attributes.wants_roster = true;
    let (mut node, prepare) = joined(config);
    let mut outputs = hear(&mut node, &Message::Prepare(Prepare { roster_bytes: 5, ..prepare }));
    assert!(says(&outputs, |message| matches!(message, Message::Want(_))));
    let mut wants = 0;
    for second in 0..6000 {
        outputs.extend(run(&mut node, Time::from_millis(second)));
        for _ in 0..count(&outputs, |message| matches!(message, Message::Want(_))) {
            wants += 1;
            let part = Part { round: 1, index: 0, bytes: [9; 5].into_iter().collect() };
            outputs = hear_from(&mut node, 1, &Message::Part(part));
            assert_eq!(sent(&outputs), [], "it does not ask at once");
        }
        outputs.clear();
    }
    assert!((5..=8).contains(&wants), "{wants} in 6 s");
}

#[test]
fn an_announce_with_a_forged_address_draws_twelve_joins_and_one_dial_at_most() {
    for learned in ["announce", "hint"] {
        let mut node = node();
        let _ = outputs(&mut node);
        let addresses = (10..16).map(endpoint).collect();
        let forged = Candidate {
            endpoints: crate::model::Endpoints::new(addresses).unwrap(),
            ..candidate(LEADER, 1, true)
        };
        let message = if learned == "hint" {
            Message::Hint(Introduction { candidate: forged, source: endpoint(10) })
        } else {
            announce(forged)
        };
        let mut all = hear_from(&mut node, 1, &message);
        all.extend(run(&mut node, Time::from_millis(1900)));
        let joins = count(&all, |message| matches!(message, Message::Join(_)));
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
    let endpoints = crate::model::Endpoints::new(vec![endpoint(1), endpoint(7)]).unwrap();
    let mut all = hear(&mut node, &announce(Candidate { endpoints, ..candidate(LEADER, 1, false) }));
    all.extend(hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: false })));
    all.extend(run(&mut node, Time::from_millis(300)));
    for wanted in [endpoint(1), endpoint(7)] {
        let dials = all.iter().filter(|output| matches!(output, Output::Dial { to, .. } if *to == wanted));
        assert!(dials.count() > 1, "{wanted}");
    }
}

#[test]
fn nobody_can_say_that_the_first_world_of_a_job_runs() {
    let mut node = node();
    let _ = run(&mut node, Time::from_millis(50));
    let outputs = hear_from(&mut node, 9, &Message::Running);
    assert_eq!(outputs, []);
    assert!(node.leads());
}

#[test]
fn a_node_stands_aside_until_nobody_has_said_for_30_seconds_that_the_world_runs() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, timeout: None, ..config(3) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(50));
    // It has had a member by then.
    let join = Join { world: 3, node: NodeInfo::new(HostName::new("host-3"), endpoint(3).into()) };
    assert!(says(&hear_from(&mut node, 3, &Message::Join(join)), |m| matches!(m, Message::Welcome(_))));
    let token = Token { prover: id(3), target: ME, dial: 1, dialled: endpoint(2) };
    let now = node.shared.now;
    node.handle_token(now, ConnId(3), endpoint(2).ip(), &codec().encode_token(&token));
    let _ = outputs(&mut node);
    assert_eq!(node.lead.seated(), 2);
    for second in [1, 20, 40] {
        let _ = run(&mut node, Time::from_secs(second));
        let outputs = hear_from(&mut node, 9, &Message::Running);
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

/// Node 2 leads a world of this size; nodes 3 and so on have joined, each by connection `n` of its dial 1.
fn leading(world: u8) -> (Node, Vec<Output>) {
    let mut node = Node::new(Config { timeout: None, ..config(world.into()) }, 1, Time::ZERO);
    let mut all = run(&mut node, Time::from_millis(1));
    for member in 3..world + 2 {
        all.extend(join(&mut node, member, endpoint(member)));
    }
    (node, all)
}

/// This node joins, with a proof, and has this endpoint.
fn join(node: &mut Node, member: u8, endpoint: SocketAddr) -> Vec<Output> {
    let info = NodeInfo::new(HostName::new(&format!("host-{member}")), endpoint.into());
    let world = node.shared.world();
    let mut all = hear_from(node, member, &Message::Join(Join { world, node: info }));
    let token = Token { prover: id(member), target: ME, dial: 1, dialled: self::endpoint(2) };
    let now = node.shared.now;
    node.handle_token(now, ConnId(member.into()), self::endpoint(2).ip(), &codec().encode_token(&token));
    all.extend(outputs(node));
    all
}

/// The rounds that were prepared.
fn rounds(outputs: &[Output]) -> Vec<u64> {
    let rounds = outputs.iter().filter_map(|output| match output {
        Output::Event(Event::Preparing { round }) => Some(*round),
        _ => None,
    });
    rounds.collect()
}

fn ready(round: u64) -> Message {
    Message::Ready(Ready { round, endpoint: 0 })
}

fn commits(outputs: &[Output]) -> bool {
    says(outputs, |message| matches!(message, Message::Commit(_)))
}

#[test]
fn a_member_that_leaves_right_after_its_ready_forms_no_world() {
    let (mut node, all) = leading(3);
    assert_eq!(rounds(&all), [1]);
    let mut all = hear_from(&mut node, 3, &ready(1));
    all.extend(hear_from(&mut node, 4, &ready(1)));
    assert!(node.is_about_to_commit() && !commits(&all));
    // Datagrams are read before connections.
    let now = node.shared.now;
    node.handle_closed(now, ConnId(3));
    all.extend(run(&mut node, now + Duration::from_secs(1)));
    assert!(!commits(&all), "{all:?}");
    assert!(says(&all, |message| matches!(message, Message::Void(1))));
}

#[test]
fn a_leader_that_was_stopped_in_a_round_starts_another_and_counts_only_what_is_said_in_that() {
    let (mut node, _) = leading(3);
    let before = hear_from(&mut node, 3, &ready(1));
    assert!(!commits(&before));
    // The process is stopped. What node 4 said at once waits in the socket; node 3 has given up.
    node.shared.now += Duration::from_secs(11);
    let mut all = Vec::new();
    let header = Header { sender: id(4), recipient: ME, lineage: Lineage::default() };
    let now = Time::from_secs(12);
    node.handle_datagram(now, endpoint(4), &codec().encode(header, &ready(1)));
    all.extend(outputs(&mut node));
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
fn a_ready_with_an_endpoint_that_the_master_does_not_have_is_none() {
    let (mut node, _) = leading(2);
    for endpoint in [1, 6, 255] {
        hear_from(&mut node, 3, &Message::Ready(Ready { round: 1, endpoint }));
        assert!(!node.is_about_to_commit(), "{endpoint}");
    }
    hear_from(&mut node, 3, &ready(1));
    assert!(node.is_about_to_commit());
}

#[test]
fn only_a_member_is_told_to_wait_and_others_that_the_round_is_void() {
    let (mut node, _) = leading(3);
    assert_eq!(sent(&hear_from(&mut node, 3, &ready(1))), [(endpoint(3), Message::Pong)]);
    assert_eq!(sent(&hear_from(&mut node, 9, &ready(1))), [(endpoint(9), Message::Void(1))]);
    let want = Message::Want(Want { round: 7, first: 0, mask: 1 });
    assert_eq!(sent(&hear_from(&mut node, 4, &want)), [(endpoint(4), Message::Void(7))]);
    assert_eq!(sent(&hear_from(&mut node, 9, &want)), []);
}

/// What a member answers to a message, and repeats while its round goes on.
fn honest(message: &Message) -> Option<Message> {
    Some(match message {
        Message::Prepare(prepare) => ready(prepare.round),
        Message::Commit(commit) => Message::Done(commit.round),
        Message::Ping => Message::Pong,
        _ => return None,
    })
}

/// Node 2 leads, and each of the members 3 and so on answers: node 4 by `wrong`, the others as they should.
/// Each repeats its answer five times a second. Goes on until the node has ended.
fn lead_with(node: &mut Node, members: u8, wrong: fn(&Message, &Node) -> Option<Message>) -> Vec<Output> {
    lead_with_wrong(node, members, &[4], wrong)
}

/// The same, where all of these are wrong, for two minutes at most.
fn lead_with_wrong(
    node: &mut Node,
    members: u8,
    all_wrong: &[u8],
    wrong: fn(&Message, &Node) -> Option<Message>,
) -> Vec<Output> {
    let (mut all, mut last) = (Vec::new(), vec![None; usize::from(members)]);
    while node.shared.now < Time::from_secs(120) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = run(node, next);
        for output in &outputs {
            if let Output::Dial { dial, .. } = output {
                node.handle_dialed(next, *dial, endpoint(2).ip());
            }
        }
        for (member, last) in (3..).zip(&mut last) {
            let mut answers = Vec::new();
            for (_, message) in sent(&outputs).iter().filter(|(to, _)| *to == endpoint(member)) {
                let is_wrong = all_wrong.contains(&member);
                let answer = if is_wrong { wrong(message, node) } else { None };
                let prove = (*message == Message::Prove).then(|| Message::Proved(node.shared.dials()));
                answers.extend(answer.or(prove).or_else(|| honest(message).filter(|_| !is_wrong)));
            }
            *last = answers.pop().or(last.take());
            if let Some(answer) = last {
                all.extend(hear_from(node, member, answer));
            }
        }
        all.extend(outputs);
    }
    all
}

#[test]
fn two_members_that_are_never_ready_give_their_seats_to_two_standbys_before_the_next_round() {
    let (mut node, _) = leading(4);
    join(&mut node, 6, endpoint(6));
    join(&mut node, 7, endpoint(7));
    let mut all = Vec::new();
    while node.shared.now < Time::from_secs(20) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = run(&mut node, next);
        for (to, message) in sent(&outputs) {
            let member = (3..8).find(|&member| endpoint(member) == to).unwrap();
            let answer = if matches!(member, 3 | 4) { Some(Message::Pong) } else { honest(&message) };
            all.extend(answer.map(|answer| hear_from(&mut node, member, &answer)).into_iter().flatten());
        }
        // What a ready node repeats.
        hear_from(&mut node, 5, &ready(1));
        all.extend(outputs);
    }
    assert_eq!(rounds(&all), [2]);
    let formed = all.iter().find_map(|output| match output {
        Output::Event(Event::Formed(formed)) => Some(formed.digest),
        _ => None,
    });
    assert!(formed.is_some(), "{:?}", failure(&all));
    for member in [3, 4] {
        let full = (endpoint(member), Message::Refuse(Refusal::WorldFull));
        assert!(sent(&all).contains(&full), "{member} has no seat");
    }
}

#[test]
fn of_two_members_that_are_never_ready_one_keeps_its_seat_where_one_standby_waits() {
    let (mut node, _) = leading(4);
    join(&mut node, 6, endpoint(6));
    let mut all = Vec::new();
    while node.shared.now < Time::from_secs(17) {
        let next = node.shared.now + Duration::from_millis(200);
        all.extend(run(&mut node, next));
        for member in 3..7 {
            all.extend(hear_from(&mut node, member, &Message::Pong));
        }
        all.extend(hear_from(&mut node, 5, &ready(1)));
    }
    assert_eq!(rounds(&all), [2]);
    let second = |(to, message): (SocketAddr, Message)| match message {
        Message::Prepare(prepare) if prepare.round == 2 => Some(to),
        _ => None,
    };
    let prepared: std::collections::BTreeSet<SocketAddr> =
        sent(&all).into_iter().filter_map(second).collect();
    assert_eq!(prepared, [4, 5, 6].map(endpoint).into_iter().collect());
}

/// Answers, and never gets ready.
#[allow(clippy::unnecessary_wraps, reason = "one of several ways to answer")]
fn never_ready(_: &Message, _: &Node) -> Option<Message> {
    Some(Message::Pong)
}

/// Says of every master, itself included, that it is out of reach.
fn never_proved(message: &Message, _: &Node) -> Option<Message> {
    match message {
        Message::Prepare(prepare) => Some(Message::Unproved(prepare.round)),
        message => honest(message),
    }
}

#[test]
fn a_member_that_answers_and_is_never_ready_is_named_after_three_rounds() {
    let (mut node, all) = leading(3);
    assert_eq!(rounds(&all), [1]);
    let all = lead_with(&mut node, 2, never_ready);
    assert_eq!(rounds(&all), [2, 3]);
    let Some(Failure::Unready { nodes }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    assert_eq!(nodes.iter().map(|peer| peer.host.as_str()).collect::<Vec<_>>(), ["host-4"]);
    let refused = sent(&all).into_iter().filter(
        |(_, message)| matches!(message, Message::Refuse(Refusal::Unready(nodes)) if nodes.len() == 1),
    );
    let mut told: Vec<_> = refused.map(|(to, _)| to).collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, [endpoint(3), endpoint(4)]);
    assert!((Time::from_secs(45)..Time::from_secs(50)).contains(&node.shared.now), "{:?}", node.shared.now);
}

#[test]
fn a_member_that_is_never_ready_gives_its_seat_to_a_standby() {
    let (mut node, _) = leading(3);
    join(&mut node, 5, endpoint(5));
    let all = lead_with(&mut node, 3, never_ready);
    assert_eq!(rounds(&all), [2]);
    let formed = all.iter().find_map(|output| match output {
        Output::Event(Event::Formed(formed)) => Some(formed),
        _ => None,
    });
    assert!(formed.is_some(), "{:?}", failure(&all));
    let full = sent(&all)
        .into_iter()
        .filter(|(to, message)| *to == endpoint(4) && *message == Message::Refuse(Refusal::WorldFull));
    assert!(full.count() > 0);
}

#[test]
fn a_member_that_alone_reaches_no_master_gives_its_seat_to_a_standby() {
    let (mut node, _) = leading(3);
    join(&mut node, 5, endpoint(5));
    let all = lead_with(&mut node, 3, never_proved);
    assert!(has_formed(&all), "{:?}", failure(&all));
}

#[test]
fn without_a_standby_a_member_that_reaches_no_master_not_even_itself_is_named() {
    let (mut node, _) = leading(3);
    let all = lead_with(&mut node, 2, never_proved);
    // Chosen as master itself, it is not ready either.
    let Some(Failure::Unready { nodes }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    assert_eq!(nodes.iter().map(|peer| peer.host.as_str()).collect::<Vec<_>>(), ["host-4"]);
}

#[test]
fn a_node_at_the_address_of_a_member_that_is_silent_takes_its_place() {
    for answers in [false, true] {
        let mut node = Node::new(Config { timeout: None, ..config(4) }, 1, Time::ZERO);
        let _ = run(&mut node, Time::from_millis(1));
        join(&mut node, 3, endpoint(3));
        assert_eq!(node.lead.seated(), 2);
        // Node 4 has the address and the port that node 3 had before its host lost power.
        join(&mut node, 4, endpoint(3));
        assert_eq!(node.lead.seated(), 3, "both for now");
        let mut pings = 0;
        while node.shared.now < Time::from_secs(4) {
            let next = node.shared.now + Duration::from_millis(50);
            let outputs = run(&mut node, next);
            for _ in 0..count(&outputs, |message| matches!(message, Message::Ping)) {
                pings += 1;
                if answers {
                    hear_from(&mut node, 3, &Message::Pong);
                }
            }
        }
        assert!(pings > 0);
        assert_eq!(node.lead.seated(), if answers { 3 } else { 2 });
    }
}

#[test]
fn a_leader_whose_address_another_node_has_is_asked_and_left_if_it_is_silent() {
    for answers in [false, true] {
        let (mut node, _) = joined(Config { timeout: None, ..config(3) });
        // A new process on the leader's host, after a power loss that has closed no connection.
        let header = Header { sender: id(7), recipient: NodeId::ALL, lineage: Lineage::default() };
        let datagram = codec().encode(header, &announce(candidate(id(7), 1, false)));
        node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
        let mut all = Vec::new();
        while node.shared.now < Time::from_secs(5) {
            let next = node.shared.now + Duration::from_millis(50);
            let outputs = run(&mut node, next);
            // The new process goes on.
            node.handle_datagram(next, endpoint(1), &datagram);
            if answers && says(&outputs, |message| matches!(message, Message::Solicit(_))) {
                hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            }
            all.extend(outputs);
        }
        let lost = all.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_))));
        assert_eq!(lost, !answers, "{all:?}");
    }
}

#[test]
fn connections_with_tokens_of_made_up_nodes_are_bounded() {
    let (mut node, _) = leading(4);
    let mut open = 0i64;
    for stranger in 0..3000u128 {
        for dial in 1..=3 {
            let prover = NodeId((stranger + (1 << 64)).to_be_bytes());
            let token = Token { prover, target: ME, dial, dialled: endpoint(2) };
            let conn = ConnId(u64::try_from(stranger * 3).unwrap() + u64::from(dial) + 100);
            node.handle_token(node.shared.now, conn, endpoint(2).ip(), &codec().encode_token(&token));
            open += 1 - i64::try_from(outputs(&mut node).len()).unwrap();
        }
    }
    // Twice as many nodes as a book may have, two connections each.
    assert!(open <= 2 * 2 * (4 + 32), "{open} are open");
    assert!((3..=5).all(|member| node.arrivals.has(id(member))), "those of members stay");
}

#[test]
fn a_ready_node_that_has_lost_its_lease_joins_again_when_a_later_round_is_prepared() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare.clone()));
    node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
    let told = outputs(&mut node);
    assert!(says(&told, is_ready), "it asks how the round has ended: {told:?}");
    // Prepared before the leader noticed that the lease is gone.
    let told = hear(&mut node, &Message::Prepare(Prepare { round: 2, ..prepare }));
    assert!(says(&told, |message| matches!(message, Message::Join(_))), "{told:?}");
    assert!(!says(&told, is_ready) && !node.is_bound());
}

#[test]
fn a_node_that_has_ended_does_nothing() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare));
    let verdict = crate::rdma::Verdict::default();
    assert!(has_formed(&hear(&mut node, &Message::Commit(Commit { round: 1, endpoint: 0, verdict }))));
    node.handle_departure(Time::ZERO);
    node.handle_endpoints(Time::ZERO, endpoint(2).into());
    node.handle_seeds(Time::ZERO, vec![endpoint(3)]);
    node.handle_timeout(Time::from_secs(99));
    assert_eq!(outputs(&mut node), []);
    let token = Token { prover: id(9), target: ME, dial: 1, dialled: endpoint(2) };
    node.handle_token(Time::from_secs(99), ConnId(9), endpoint(2).ip(), &codec().encode_token(&token));
    assert_eq!(outputs(&mut node), [Output::Close(ConnId(9))]);
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
    node.handle_dialed(Time::ZERO, DialId(1), endpoint(2).ip());
    hear(&mut node, &welcome);
    assert!(node.follow.as_ref().unwrap().is_joined());
}

#[test]
fn a_member_that_is_not_ready_leaves_a_leader_that_is_silent_for_10_seconds() {
    let (mut node, prepare) = joined(Config { timeout: None, ..config(3) });
    let other = Prepare { master: id(3), endpoints: endpoint(3).into(), rank: 2, ..prepare };
    hear(&mut node, &Message::Prepare(other));
    let all = run(&mut node, Time::from_millis(9_900));
    assert!(says(&all, |message| matches!(message, Message::Unproved(1))));
    assert!(!says(&all, |message| matches!(message, Message::Join(_))));
    let all = run(&mut node, Time::from_secs(12));
    assert!(says(&all, |message| matches!(message, Message::Join(_))), "{all:?}");
    assert!(all.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))), "{all:?}");
}

#[test]
fn a_prepare_that_comes_after_the_void_of_its_round_is_ignored() {
    let (mut node, prepare) = joined(config(2));
    assert!(says(&hear(&mut node, &Message::Prepare(prepare.clone())), is_ready));
    hear(&mut node, &Message::Void(1));
    assert!(!node.is_bound());
    assert_eq!(hear(&mut node, &Message::Prepare(prepare.clone())), []);
    assert!(says(&hear(&mut node, &Message::Prepare(Prepare { round: 2, ..prepare })), is_ready));
}

#[test]
fn two_nodes_that_hold_up_rounds_do_not_take_turns_on_one_seat() {
    for wrong in [never_proved, never_ready] {
        let (mut node, _) = leading(3);
        join(&mut node, 5, endpoint(5));
        let all = lead_with_wrong(&mut node, 3, &[4, 5], wrong);
        let Some(Failure::Unready { nodes }) = failure(&all) else { panic!("{:?}", failure(&all)) };
        assert_eq!(nodes.iter().map(|peer| peer.host.as_str()).collect::<Vec<_>>(), ["host-5"]);
    }
}

#[test]
fn members_that_hold_up_a_round_each_in_turn_are_not_named() {
    let (mut node, _) = leading(3);
    let mut all = Vec::new();
    while node.shared.now < Time::from_secs(80) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = run(&mut node, next);
        // Of rounds 1, 2, 3 and so on, node 3 holds up the odd ones and node 4 the even ones.
        let round =
            1 + all.iter().filter(|output| matches!(output, Output::Event(Event::Preparing { .. }))).count();
        for member in [3, 4] {
            let is_slow = u8::try_from(round % 2).unwrap() == member % 2;
            let answer = if is_slow { Message::Pong } else { ready(u64::try_from(round).unwrap()) };
            all.extend(hear_from(&mut node, member, &answer));
        }
        all.extend(outputs);
    }
    assert!(rounds(&all).len() >= 4 && failure(&all).is_none(), "{:?}", failure(&all));
}

#[test]
fn what_waits_after_a_stop_voids_one_round_and_not_each_that_follows() {
    let (mut node, _) = leading(3);
    hear_from(&mut node, 3, &ready(1));
    node.shared.now += Duration::from_secs(12);
    let mut all = Vec::new();
    for member in [3, 4, 3, 4] {
        let header = Header { sender: id(member), recipient: ME, lineage: Lineage::default() };
        let datagram = codec().encode(header, &Message::Pong);
        node.handle_datagram(Time::from_secs(13), endpoint(member), &datagram);
        // As a join would that fills the last seat.
        let (lead, arrivals) = (&mut node.lead, &node.arrivals);
        lead.start_round_if_full(arrivals, &mut node.shared);
        all.extend(outputs(&mut node));
    }
    assert_eq!(rounds(&all), [2]);
    assert_eq!(count(&all, |message| matches!(message, Message::Void(_))), 2, "one for each member");
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
        let Some(Failure::Deadline(report)) = failure(&all) else { panic!("{:?}", failure(&all)) };
        assert_eq!(report.unreached.is_none(), joins, "{report:?}");
    }
}

#[test]
fn a_leader_steps_down_only_if_no_node_at_all_has_reached_it() {
    for reached in [false, true] {
        let mut node = Node::new(Config { timeout: None, ..config(4) }, 1, Time::ZERO);
        let mut all = run(&mut node, Time::from_millis(1));
        let info = NodeInfo::new(HostName::new("host-3"), endpoint(3).into());
        for millisecond in (100..4000).step_by(100) {
            let join = Join { world: 4, node: info.clone() };
            all.extend(hear_from(&mut node, 3, &Message::Join(join)));
            if reached && millisecond == 100 {
                // Another one, whose join is on its way.
                let token = Token { prover: id(5), target: ME, dial: 1, dialled: endpoint(2) };
                let now = node.shared.now;
                node.handle_token(now, ConnId(5), endpoint(2).ip(), &codec().encode_token(&token));
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
fn a_member_whose_lease_breaks_joins_again_and_asks_its_leader_nothing_else_until_it_has() {
    let (mut node, _) = joined(Config { timeout: None, ..config(3) });
    let _ = run(&mut node, Time::from_millis(2500));
    let lease = node.follow.as_ref().map(|_| DialId(1)).expect("it has joined");
    node.handle_hung_up(Time::from_millis(2500), lease);
    let mut all = outputs(&mut node);
    for millisecond in (2510..5000).step_by(10) {
        all.extend(hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: None, seated: true })));
        all.extend(run(&mut node, Time::from_millis(millisecond)));
        assert!(!node.shared.timers.is_set(crate::proto::timer::Timer::AskLeader), "{millisecond} ms");
    }
    assert!(says(&all, |message| matches!(message, Message::Join(_))), "{all:?}");
}

#[test]
fn a_part_of_another_rounds_roster_is_not_taken() {
    let mut config = config(2);
    config.node.attributes.wants_roster = true;
    let (mut node, prepare) = joined(config);
    let member = |number: u8, rank| crate::model::Member {
        rank: crate::model::Rank(rank),
        id: id(number),
        host: HostName::new("host"),
        address: endpoint(number),
        slots: 1,
        metadata: crate::model::Metadata::default(),
    };
    let roster = crate::model::Roster::new(vec![member(1, 0), member(2, 1)]).unwrap();
    let bytes = crate::wire::encode_roster(&roster);
    let roster_bytes = u32::try_from(bytes.len()).unwrap();
    let digest = roster.digest();
    hear(&mut node, &Message::Prepare(Prepare { round: 2, roster_bytes, digest, ..prepare }));
    for (round, is_taken) in [(1, false), (3, false), (2, true)] {
        let part = Part { round, index: 0, bytes: bytes.iter().copied().collect() };
        assert_eq!(says(&hear(&mut node, &Message::Part(part)), is_ready), is_taken, "round {round}");
    }
}

#[test]
fn a_member_that_has_heard_its_leader_by_multicast_asks_again_after_three_seconds_of_silence() {
    let (mut node, _) = joined(Config { timeout: None, ..config(3) });
    let is_solicit = |message: &Message| matches!(message, Message::Solicit(_));
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
    let header = Header { sender: LEADER, recipient: NodeId::ALL, lineage: Lineage::default() };
    let datagram = codec().encode(header, &announce(candidate(LEADER, 1, false)));
    let now = node.shared.now;
    node.handle_datagram(now, endpoint(1), &datagram);
    assert!(says(&run(&mut node, now + Duration::from_secs(5)), is_solicit));
}

#[test]
fn a_member_that_hears_nothing_of_its_leader_asks_it_after_3_6_and_12_seconds_and_then_every_15() {
    let (mut node, _) = joined(Config { timeout: None, ..config(3) });
    let is_solicit = |message: &Message| matches!(message, Message::Solicit(_));
    let mut last = 0;
    for expected in [3000, 6000, 12_000, 15_000, 15_000] {
        let mut times = last + 1..last + 60_000;
        let at = times.find(|&at| says(&run(&mut node, Time::from_millis(at)), is_solicit));
        let after = at.expect("it asks its leader") - last;
        // Each interval is drawn from three quarters to five quarters of its value.
        assert!((expected * 3 / 4..=expected * 5 / 4).contains(&after), "{after} ms instead of {expected}");
        last += after;
    }
}

#[test]
fn a_master_whose_commit_names_none_of_its_endpoints_publishes_the_first_and_warns() {
    let endpoints = crate::model::Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    for (index, master, warns) in [(0, 2, false), (1, 7, false), (2, 2, true), (255, 2, true)] {
        let mut config = config(2);
        config.node.endpoints = endpoints.clone();
        let (mut node, prepare) = joined(config);
        let master = endpoint(master);
        let prepare =
            Prepare { rank: 0, slots_before: 0, master: ME, endpoints: endpoints.clone(), ..prepare };
        assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
        let verdict = crate::rdma::Verdict::default();
        let told = hear(&mut node, &Message::Commit(Commit { round: 1, endpoint: index, verdict }));
        let formed = told.iter().find_map(|output| match output {
            Output::Event(Event::Formed(formed)) => Some((formed.master, formed.local)),
            _ => None,
        });
        assert_eq!(formed, Some((master, master.ip())), "endpoint {index}");
        let warning = Output::Event(Event::Warning(Warning::MasterElsewhere { master }));
        assert_eq!(told.contains(&warning), warns, "endpoint {index}");
    }
}

#[test]
fn a_member_whose_addresses_change_joins_anew_until_its_leader_welcomes_it() {
    let (mut node, prepare) = joined(Config { timeout: None, ..config(3) });
    let endpoints = crate::model::Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    node.handle_endpoints(Time::ZERO, endpoints.clone());
    let says_so = |(_, message): &(SocketAddr, Message)| match message {
        Message::Join(join) => join.node.endpoints == endpoints,
        _ => false,
    };
    let joins = |outputs: &[Output]| sent(outputs).iter().filter(|sent| says_so(sent)).count();
    assert_eq!(joins(&outputs(&mut node)), 2, "where the leader wrote from, and to its endpoint");
    assert!(joins(&run(&mut node, Time::from_secs(2))) > 10);
    hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: Some(prepare.lease), seated: true }));
    assert_eq!(joins(&run(&mut node, Time::from_secs(5))), 0);
}

#[test]
fn a_prepare_of_an_earlier_round_does_not_replace_the_one_under_way() {
    let (mut node, prepare) = joined(config(2));
    let second = Prepare { round: 2, ..prepare.clone() };
    assert!(says(&hear(&mut node, &Message::Prepare(second)), is_ready));
    assert_eq!(hear(&mut node, &Message::Prepare(prepare)), []);
    let verdict = crate::rdma::Verdict::default();
    assert!(has_formed(&hear(&mut node, &Message::Commit(Commit { round: 2, endpoint: 0, verdict }))));
}

/// Node 2 of the formation that follows a world, after 50 ms in which it has announced itself.
fn of_a_later_formation(world: u32) -> Node {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, timeout: None, ..config(world) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(50));
    node
}

#[test]
fn nobody_can_say_to_a_leader_in_a_round_that_the_world_runs() {
    let mut node = of_a_later_formation(2);
    assert_eq!(rounds(&join(&mut node, 3, endpoint(3))), [1]);
    let told = hear_from(&mut node, 9, &Message::Running);
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
        let told = hear_from(&mut node, 9, &Message::Running);
        assert_eq!(told.contains(&Output::Event(Event::SteppedDown)), !follows, "{told:?}");
        assert!(node.follow.is_none() && !node.leads());
    }
}

#[test]
fn a_leader_that_stood_aside_waits_anew_for_members_with_a_common_address_family() {
    let mut node = of_a_later_formation(2);
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 3], 29500));
    join(&mut node, 3, six);
    hear_from(&mut node, 9, &Message::Running);
    let _ = run(&mut node, Time::from_secs(31));
    assert!(node.leads());
    let is_refusal = |message: &Message| matches!(message, Message::Refuse(Refusal::MasterUnproved(_)));
    let mut all = join(&mut node, 3, six);
    all.extend(run(&mut node, Time::from_millis(42_900)));
    assert!(!says(&all, is_refusal), "12 s are not over");
    assert!(says(&run(&mut node, Time::from_secs(43)), is_refusal));
}

#[test]
fn a_pause_of_four_seconds_voids_no_round() {
    let (mut node, all) = leading(3);
    assert_eq!(rounds(&all), [1]);
    let due = node.poll_timeout().expect("it repeats its prepare");
    node.handle_timeout(due + Duration::from_secs(4));
    assert!(!says(&outputs(&mut node), |message| matches!(message, Message::Void(_))));
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
fn a_datagram_of_another_version_is_heard_and_named_at_the_deadline() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    assert!(!node.has_heard());
    let header = Header { sender: LEADER, recipient: NodeId::ALL, lineage: Lineage::default() };
    let mut datagram = codec().encode(header, &announce(candidate(LEADER, 1, false)));
    datagram[4] += 1;
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    assert!(node.has_heard());
    let all = run(&mut node, Time::from_secs(1));
    let Some(Failure::Deadline(report)) = failure(&all) else { panic!("{:?}", failure(&all)) };
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
    let Some(Failure::Deadline(report)) = failure(&all) else { panic!("{:?}", failure(&all)) };
    let hosts: Vec<_> = report.heard.iter().map(|heard| heard.host.as_str()).collect();
    let mut sorted = report.heard.clone();
    sorted.sort();
    assert_eq!(report.heard, sorted);
    assert!(hosts == ["host-10", "host-9"] || hosts == ["host-9", "host-10"], "{hosts:?}");
}

#[test]
fn a_candidate_that_comes_back_from_a_leader_that_was_silent_seats_who_reached_it_meanwhile() {
    let mut node = Node::new(Config { timeout: None, ..config(3) }, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let info = NodeInfo::new(HostName::new("host-3"), endpoint(3).into());
    hear_from(&mut node, 3, &Message::Join(Join { world: 3, node: info }));
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    assert!(!node.leads());
    let token = Token { prover: id(3), target: ME, dial: 1, dialled: endpoint(2) };
    node.handle_token(Time::ZERO, ConnId(3), endpoint(2).ip(), &codec().encode_token(&token));
    assert_eq!(node.lead.seated(), 1, "it gives no seats");
    let _ = run(&mut node, Time::from_secs(2));
    assert!(node.leads());
    assert_eq!(node.lead.seated(), 2);
}

#[test]
fn a_node_that_stands_aside_follows_no_candidate() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, timeout: None, ..config(3) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(50));
    hear_from(&mut node, 9, &Message::Running);
    let told = hear_from(&mut node, 1, &announce(candidate(LEADER, 1, true)));
    assert!(!says(&told, |message| matches!(message, Message::Join(_))) && node.follow.is_none());
}

#[test]
fn a_member_is_not_forgotten_for_joins_without_a_proof() {
    let mut node = Node::new(Config { timeout: None, ..config(4) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(1));
    join(&mut node, 3, endpoint(3));
    for from in 20..=250 {
        let info = NodeInfo::new(HostName::new("forged"), endpoint(from).into());
        hear_from(&mut node, from, &Message::Join(Join { world: 4, node: info }));
        assert!(node.lead.knows(id(3)) && node.lead.knows(id(from)), "after {from}");
    }
}

#[test]
fn a_redirect_is_repeated_to_the_members_endpoint_too() {
    let mut node = Node::new(Config { timeout: None, ..config(3) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(1));
    join(&mut node, 3, endpoint(33));
    let followed = hear_from(&mut node, 1, &announce(candidate(LEADER, 1, true)));
    let dial = followed.iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    let dial = dial.expect("it dials its leader");
    let now = node.shared.now;
    node.handle_dialed(now, dial, endpoint(2).ip());
    let mut all = hear_from(&mut node, 1, &Message::Welcome(Welcome { lease: Some(dial.0), seated: true }));
    all.extend(run(&mut node, Time::from_secs(2)));
    let redirects = |wanted| {
        let is =
            |(to, message): &&(SocketAddr, Message)| *to == wanted && matches!(message, Message::Redirect(_));
        sent(&all).iter().filter(is).count()
    };
    assert!(redirects(endpoint(3)) > 1 && redirects(endpoint(33)) > 0);
}

#[test]
fn a_member_asks_its_leader_where_that_has_answered_and_not_where_its_multicast_came_from() {
    let (mut node, _) = joined(Config { timeout: None, ..config(3) });
    let header = Header { sender: LEADER, recipient: NodeId::ALL, lineage: Lineage::default() };
    let datagram = codec().encode(header, &announce(candidate(LEADER, 1, false)));
    node.handle_datagram(Time::ZERO, endpoint(8), &datagram);
    let asked = sent(&run(&mut node, Time::from_secs(5)));
    let asked: Vec<_> = asked.iter().filter(|(_, message)| matches!(message, Message::Solicit(_))).collect();
    assert!(!asked.is_empty() && asked.iter().all(|(to, _)| *to == endpoint(1)), "{asked:?}");
}

#[test]
fn a_node_whose_leader_never_answered_names_it_at_the_deadline_with_its_rank() {
    let config = Config { timeout: Some(Duration::from_secs(3)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    let all = run(&mut node, Time::from_secs(3));
    let Some(Failure::Deadline(report)) = failure(&all) else { panic!("{:?}", failure(&all)) };
    assert!(report.unanswered.is_some(), "{report:?}");
    let ranks: Vec<_> = report.heard.iter().map(|heard| (heard.address, heard.rank)).collect();
    assert_eq!(ranks, [(Some(endpoint(1)), Some(0))]);
}
