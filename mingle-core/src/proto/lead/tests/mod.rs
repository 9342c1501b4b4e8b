//! A leader and its members: their silence, the roster, and seats that two of them want.

mod book;
mod broken;
mod elastic;
mod rounds;
mod unfit;

use std::net::SocketAddr;

use crate::model::{Endpoints, HostName, JobId, Lineage, List, NodeId, Rank, Traits, User, WorldSize};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Event, Node, Output, PathNews, Warning};
use crate::wire::{
    Announce, Candidate, Codec, Header, Join, Message, NodeInfo, Refusal, Token, encode_traits,
};
use mingle_rdma::Summary;
use rounds::path_dials;

/// Node 1, which leads a world.
struct Leader {
    node: Node,
    world: WorldSize,
    now: Time,
}

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
        self.hello(from, from, &Traits::default())
    }

    /// A connection arrives whose hello names this node and has these traits.
    fn hello(&mut self, from: u8, conn: u8, traits: &Traits) -> Vec<Output> {
        let token = Token { prover: id(from), target: id(1), dial: 1, dialled: endpoint(1) };
        let hello = codec().encode_hello(&token, &encode_traits(traits));
        self.node.handle_hello(self.now, ConnId(conn.into()), endpoint(1).ip(), endpoint(1).ip(), &hello);
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
    Message::Announce(Announce { candidate, joined: 1, newest, missing, user: User::default() })
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

fn ready() -> Message {
    Message::Ready(1)
}

/// Whether the leader commits.
fn committed(outputs: &[Output]) -> bool {
    sent(outputs).iter().any(|(_, message)| matches!(message, Message::Commit(_)))
}

#[test]
fn the_master_learns_of_the_commit_first_and_the_others_when_it_has_answered_or_after_a_second() {
    for answers in [true, false] {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        let outputs = leader.join(3, |_| {});
        let dials = path_dials(&outputs);
        leader.node.handle_path(
            leader.now,
            *dials.first().expect("the leader dials the master"),
            &PathNews::Arrived,
        );
        leader.hear(2, &ready());
        leader.hear(3, &ready());
        let is_commit = |message: &Message| matches!(message, Message::Commit(_));
        let outputs = leader.run(ms(500));
        assert!(to(&outputs, 2, is_commit) > 0 && to(&outputs, 3, is_commit) == 0);
        assert_eq!(to(&leader.hear(3, &ready()), 3, is_commit), 0, "it has to wait");
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

#[test]
fn a_node_of_another_host_that_has_only_a_loopback_address_gets_no_seat_until_it_has_another() {
    let mut leader = Leader::new(2);
    let outputs = leader.join(2, |node| node.endpoints = SocketAddr::from(([127, 0, 0, 1], 29500)).into());
    assert_eq!((to(&outputs, 2, |_| true), to(&outputs, 2, is_prepare)), (0, 0));
    assert!(to(&leader.join(2, |_| {}), 2, is_prepare) > 0);
}

#[test]
fn a_node_that_is_no_member_is_told_that_the_round_is_void_although_it_has_committed() {
    let mut leader = Leader::with(2, &[2, 3]);
    leader.hear(2, &ready());
    assert!(committed(&leader.run(Time::ZERO)));
    // A standby and a stranger. The commit is longer than what asks for it.
    for other in [3, 4] {
        assert_eq!(sent(&leader.hear(other, &ready())), [(other, Message::Void(1))]);
    }
}

fn is_refusal(message: &Message) -> bool {
    matches!(message, Message::Refuse(_))
}

#[test]
fn the_reason_why_no_world_forms_goes_to_members_and_to_no_node_without_a_proof() {
    // No world can form, since node 2 has no address of the leader's family.
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 29500));
    let mut leader = Leader::new(2);
    leader.join(2, |node| node.endpoints = six.into());
    // Its address may be forged.
    leader.ask(3, |_| {});
    let outputs = leader.run(ms(12_500));
    assert!(to(&outputs, 2, is_refusal) > 0, "{outputs:?}");
    assert_eq!(to(&outputs, 3, is_refusal), 0);
}

/// The master of each prepare, with the address at which it is to be reached.
fn masters(outputs: &[Output]) -> Vec<(u64, NodeId, SocketAddr)> {
    let masters = sent(outputs).into_iter().filter_map(|(_, message)| match message {
        Message::Prepare(prepare) => Some((prepare.round, prepare.master, prepare.master_at)),
        _ => None,
    });
    masters.collect()
}

#[test]
fn a_member_that_is_silent_in_a_round_loses_its_seat_after_five_seconds() {
    let mut leader = Leader::with(3, &[2, 3]);
    for second in 1..5 {
        let outputs = leader.run(ms(1000 * second));
        assert!(!outputs.contains(&Output::Close(ConnId(3))), "after {second} s");
        assert!(to(&outputs, 3, is_prepare) > 0, "it is told again");
        leader.hear(2, &ready());
    }
    let outputs = leader.run(ms(5100));
    assert!(outputs.contains(&Output::Close(ConnId(3))) && !outputs.contains(&Output::Close(ConnId(2))));
    // Nobody answers it.
    assert_eq!((to(&outputs, 2, is_void), to(&outputs, 3, is_void)), (3, 3));
    let left =
        |output: &Output| matches!(output, Output::Event(Event::Progress(progress)) if progress.joined == 2);
    assert!(outputs.iter().any(left), "{outputs:?}");
}
