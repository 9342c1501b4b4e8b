//! One node and messages that are wrong, late, repeated, or meant for another node. In the simulator, where
//! all nodes keep to the protocol, harm would need a second fault.

mod ending;
mod follow;
mod joining;
mod lead;
mod leaving;
mod overtime;
mod round;
mod unready;

use std::net::SocketAddr;

use mingle_rdma::Verdict;

use crate::model::{
    Digest, Fault, HostName, Lineage, List, Member, Metadata, NodeId, Rank, Roster, User, WorldSize,
};
use crate::proto::report::Report;
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Event, Failure, Node, Output};
use crate::wire::{
    Announce, Broken, BrokenTo, Candidate, Commit, Header, Join, Message, NodeInfo, Prepare, Running, Token,
    Welcome, encode_roster,
};

const ME: NodeId = NodeId([2; 16]);
const LEADER: NodeId = NodeId([1; 16]);

fn node() -> Node {
    Node::new(config(2), 1, Time::ZERO)
}

/// Node 2 of a world of this size.
fn config(world: u32) -> Config {
    Config::plain(tag(), world, 2, endpoint(2))
}

/// The same without a deadline.
fn patient(world: u32) -> Config {
    Config { timeout: None, ..config(world) }
}

/// The leader writes to this node.
fn hear(node: &mut Node, message: &Message) -> Vec<Output> {
    hear_from(node, 1, message)
}

/// A datagram of the node `sender` to this node arrives, at the time that the node has.
fn hear_from(node: &mut Node, sender: u8, message: &Message) -> Vec<Output> {
    hear_at(node, node.shared.now, sender, message)
}

/// The same at this time.
fn hear_at(node: &mut Node, now: Time, sender: u8, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(sender), recipient: ME, lineage: node.shared.config.lineage };
    node.handle_datagram(now, endpoint(sender), &codec().encode(header, message));
    outputs(node)
}

/// A datagram of this node to all.
fn to_all(sender: NodeId, message: &Message) -> Vec<u8> {
    codec().encode(Header { sender, recipient: NodeId::ALL, lineage: Lineage::default() }, message)
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

fn says(outputs: &[Output], wanted: fn(&Message) -> bool) -> bool {
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
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: 1, newest, missing, user: User::default() })
}

/// A member of the leader, and the right prepare of its first round: rank 1 of two, the leader is the master.
fn joined(config: Config) -> (Node, Prepare) {
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let DialId(lease) = dialled(&hear(&mut node, &announce(candidate(LEADER, 1, false))));
    node.handle_dialed(Time::ZERO, DialId(lease));
    hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true, trouble: None }));
    let prepare = Prepare {
        round: 1,
        lease,
        world: node.shared.most(),
        rank: 1,
        digest: Digest([0; 16]),
        slots_before: 1,
        slots_total: 2,
        master: LEADER,
        master_at: endpoint(1),
        address: endpoint(2).ip(),
        paths: 0,
        partners: List::default(),
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

/// The leader tells the roster of a round on the connection of this dial.
fn told(node: &mut Node, dial: u32, round: u64, roster: &Roster) -> Vec<Output> {
    let bytes = codec().encode_roster(LEADER, round, &encode_roster(roster));
    node.handle_roster(node.shared.now, DialId(dial), &bytes);
    outputs(node)
}

fn commits(outputs: &[Output]) -> bool {
    says(outputs, |message| matches!(message, Message::Commit(_)))
}

fn is_ready(message: &Message) -> bool {
    matches!(message, Message::Ready(_))
}

fn is_join(message: &Message) -> bool {
    matches!(message, Message::Join(_))
}

fn is_solicit(message: &Message) -> bool {
    matches!(message, Message::Solicit(_))
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
    let message = join_message(member, endpoint, node.shared.config.world);
    let mut all = hear_from(node, member, &message);
    all.extend(prove(node, member));
    all
}

/// The join of a node that has this endpoint.
fn join_message(member: u8, endpoint: SocketAddr, world: WorldSize) -> Message {
    let node = NodeInfo::new(HostName::new(&format!("host-{member}")), endpoint.into());
    Message::Join(Join { world, node })
}

/// The connection of a node's first dial arrives; it has the node's number.
fn prove(node: &mut Node, member: u8) -> Vec<Output> {
    let token = Token { prover: id(member), target: ME, dial: 1, dialled: endpoint(2) };
    let now = node.shared.now;
    node.handle_hello(
        now,
        ConnId(member.into()),
        endpoint(2).ip(),
        endpoint(2).ip(),
        &codec().encode_hello(&token, &[]),
    );
    outputs(node)
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
    Message::Ready(round)
}

/// The path to the master's own port is broken.
fn broken(round: u64, master: NodeId, at: SocketAddr) -> Message {
    let path = BrokenTo { partner: master, path: at, fault: Fault::Silent, own_port_answers: false };
    Message::Broken(Broken { round, paths: [path].into_iter().collect(), more: 0 })
}

fn commit(round: u64) -> Message {
    Message::Commit(Commit {
        round,
        verdict: Verdict::default(),
        sameness: crate::model::Sameness::default(),
        left_over: 0,
    })
}

/// The job runs already, and node 1 leads there.
fn running() -> Message {
    let addresses = [SocketAddr::from(([10, 0, 0, 1], 41_877))].into_iter().collect();
    Message::Running(Running { leader: LEADER, addresses, host: HostName::new("a"), user: User::default() })
}
