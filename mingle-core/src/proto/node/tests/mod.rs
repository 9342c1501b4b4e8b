//! One node and messages that are wrong, late, repeated, or meant for another node. In the simulator, where
//! all nodes keep to the protocol, harm would need a second fault.

mod crowd;
mod ending;
mod follow;
mod joining;
mod lead;
mod leaving;
mod round;
mod unready;

use std::net::SocketAddr;

use mingle_rdma::Verdict;

use crate::model::{Digest, Fault, HostName, List, Member, Metadata, NodeId, Rank, Roster, User, WorldSize};
use crate::proto::report::Report;
use crate::proto::tests::{Hand, codec, endpoint, id, said, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, Ending, Event, Failure, Node, Output};
use crate::wire::{
    Announce, Answer, Broken, BrokenTo, Candidate, Commit, Count, Header, Join, Message, NodeInfo, Part,
    Prepare, Running, Said, Welcome,
};

const ME: NodeId = NodeId([2; 16]);
const LEADER: NodeId = NodeId([1; 16]);

fn node() -> Hand {
    hand(config(2))
}

fn hand(config: Config) -> Hand {
    Hand::new(Node::new(config, 1, Time::ZERO), 2)
}

/// Node 2 of a world of this size.
fn config(world: u32) -> Config {
    Config::plain(tag(), world, 2, endpoint(2))
}

/// The same without a deadline.
fn patient(world: u32) -> Config {
    Config { timeout: None, ..config(world) }
}

/// The leader says this on its session.
fn hear(node: &mut Hand, said: &Said) -> Vec<Output> {
    hear_from(node, 1, said)
}

/// The same of another node, at the time that the node has.
fn hear_from(node: &mut Hand, sender: u8, said: &Said) -> Vec<Output> {
    let now = node.shared.now;
    node.say(now, sender, said)
}

/// A datagram of the node `sender` to this node arrives.
fn hear_datagram(node: &mut Hand, sender: u8, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(sender), recipient: ME };
    let now = node.shared.now;
    node.handle_datagram(now, endpoint(sender), &codec().encode(header, message));
    node.outputs()
}

/// A datagram of this node to all.
fn to_all(sender: NodeId, message: &Message) -> Vec<u8> {
    codec().encode(Header { sender, recipient: NodeId::ALL }, message)
}

/// The datagrams that were sent to one node, with their addresses.
fn sent(outputs: &[Output]) -> Vec<(SocketAddr, Message)> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { to, datagram } => Some((*to, codec().decode(datagram).unwrap().1)),
        _ => None,
    });
    sent.collect()
}

fn count(outputs: &[Output], wanted: fn(&Said) -> bool) -> usize {
    said(outputs).iter().filter(|(_, said)| wanted(said)).count()
}

fn failure(outputs: &[Output]) -> Option<&Failure> {
    outputs.iter().find_map(|output| match output {
        Output::Event(Event::Failed(failure)) => Some(failure),
        _ => None,
    })
}

/// The report of a node whose time was up.
fn deadline(outputs: &[Output]) -> &Report {
    match failure(outputs) {
        Some(Failure::Deadline(report)) => report,
        other => panic!("{other:?}"),
    }
}

/// The hosts that were never ready, for which a node has failed.
fn unready(outputs: &[Output]) -> Vec<&str> {
    match failure(outputs) {
        Some(Failure::Unready { nodes }) => nodes.iter().map(|peer| peer.host.as_str()).collect(),
        other => panic!("{other:?}"),
    }
}

fn says(outputs: &[Output], wanted: fn(&Said) -> bool) -> bool {
    count(outputs, wanted) > 0
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
        world: WorldSize::of(2),
        host: HostName::new("host"),
        endpoints: endpoint(last).into(),
    }
}

fn announce(candidate: Candidate) -> Message {
    Message::Announce(Announce { candidate, count: here(1), user: User::default() })
}

/// So many are here.
fn here(joined: u32) -> Count {
    Count { joined, newest: List::default(), missing: List::default() }
}

fn welcome(joined: u32, void: u64) -> Said {
    Said::Welcome(Welcome { count: here(joined), trouble: None, void })
}

/// The rounds up to this one are void.
fn void(round: u64) -> Said {
    welcome(2, round)
}

/// A member of the leader, and the right prepare of its first round: rank 1 of two, the leader is the master.
fn joined(config: Config) -> (Hand, Prepare) {
    let mut node = hand(config);
    let mut all = node.outputs();
    all.extend(hear_datagram(&mut node, 1, &announce(candidate(LEADER, 1, false))));
    node.open(Time::ZERO, 1, &all);
    hear(&mut node, &welcome(2, 0));
    let prepare = Prepare {
        round: 1,
        world: node.shared.most(),
        rank: 1,
        digest: Digest([0; 16]),
        slots_before: 1,
        slots_total: 2,
        master: LEADER,
        master_at: endpoint(1),
        address: endpoint(2).ip(),
        partners: Vec::new(),
    };
    (node, prepare)
}

/// The prepare of a world of two, and its roster.
fn with_roster(prepare: Prepare) -> (Prepare, Roster) {
    let member = |number: u8, rank| Member {
        rank: Rank(rank),
        id: id(number),
        host: HostName::new("host"),
        address: endpoint(number),
        slots: 1,
        metadata: Metadata::default(),
        session_port: 0,
    };
    let roster = Roster::new(vec![member(1, 0), member(2, 1)]).unwrap();
    (Prepare { digest: roster.digest(), ..prepare }, roster)
}

/// The leader tells the roster of a round.
fn told(node: &mut Hand, round: u64, roster: &Roster) -> Vec<Output> {
    hear(node, &Said::Roster(round, roster.clone()))
}

fn commits(outputs: &[Output]) -> bool {
    says(outputs, |said| matches!(said, Said::Commit(_)))
}

fn is_ready(said: &Said) -> bool {
    matches!(said, Said::Part(Part { answer: Answer::Ready, .. }))
}

fn is_join(said: &Said) -> bool {
    matches!(said, Said::Join(_))
}

fn is_solicit(message: &Message) -> bool {
    matches!(message, Message::Solicit(_))
}

/// Node 2 leads a world of this size; nodes 3 and so on have joined.
fn leading(world: u8) -> (Hand, Vec<Output>) {
    let mut node = hand(Config { timeout: None, ..config(world.into()) });
    let mut all = node.run(Time::from_millis(1));
    for member in 3..world + 2 {
        all.extend(join(&mut node, member));
    }
    (node, all)
}

/// This node joins.
fn join(node: &mut Hand, member: u8) -> Vec<Output> {
    let join = joining(member, node.shared.config.world);
    hear_from(node, member, &join)
}

fn joining(member: u8, world: WorldSize) -> Said {
    let node = NodeInfo::new(HostName::new(&format!("host-{member}")), endpoint(member).into());
    Said::Join(Box::new(Join { world, node, traits: Vec::new(), misfit: None }))
}

/// The process of this node has ended.
fn close(node: &mut Hand, member: u8) -> Vec<Output> {
    let now = node.shared.now;
    node.close(now, member, Ending::Closed)
}

/// The rounds that were prepared.
fn rounds(outputs: &[Output]) -> Vec<u64> {
    let rounds = outputs.iter().filter_map(|output| match output {
        Output::Event(Event::Preparing { round }) => Some(*round),
        _ => None,
    });
    rounds.collect()
}

fn part(round: u64, answer: Answer) -> Said {
    Said::Part(Part { round, answer })
}

fn ready(round: u64) -> Said {
    part(round, Answer::Ready)
}

/// The path to the master's own port is broken.
fn broken(round: u64, master: NodeId, at: SocketAddr) -> Said {
    let path = BrokenTo { partner: master, path: at, fault: Fault::Silent, own_port_answers: false };
    part(round, Answer::Broken(Broken { paths: [path].into_iter().collect(), more: 0 }))
}

fn commit(round: u64) -> Said {
    Said::Commit(Commit {
        round,
        verdict: Verdict::default(),
        sameness: crate::model::Sameness::default(),
        left_over: 0,
    })
}

/// The job runs already, and node 1 leads there.
fn running() -> Message {
    let addresses = [SocketAddr::from(([10, 0, 0, 1], 41_877))].into_iter().collect();
    Message::Running(Running {
        leader: LEADER,
        generation: 0,
        addresses,
        host: HostName::new("a"),
        user: User::default(),
    })
}
