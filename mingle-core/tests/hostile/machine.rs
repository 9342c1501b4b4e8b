//! Reads bytes as a program of what happens to a node, for the property tests and the fuzz targets.
//!
//! For any bytes the node must not panic, and what it sends must be well formed. The program knows the frame
//! of datagrams and tokens (PROTOCOL.md), so that most of its input passes the first checks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::{Config, ConnId, DialId, MAX_DATAGRAM, Node, Output, TOKEN, Time};
use mingle_core::proto::{NodeId, NodeInfo};
use mingle_core::{Event, HostName, JobId, Secret, World};

const HEADER: usize = 68;
/// The least length of a solicit and of a join, in bytes.
const PADDED: usize = 576;
const ME: NodeId = NodeId([1; 16]);

/// The rest of the program.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fn job() -> JobId {
    "hostile".parse().unwrap_or_else(|_| unreachable!("a valid name"))
}

fn id(number: u8) -> NodeId {
    NodeId([number % 8; 16])
}

/// A node of a world of `world` nodes, with the given rank `rank` and without a secret.
pub fn plain_node(world: u32, rank: u32) -> Node {
    let world = World::new(world).unwrap_or_else(|_| unreachable!());
    let mut config = config(world);
    config.node.rank = world.rank(rank).ok();
    Node::new(config, 1, Time::ZERO)
}

/// A node whose world, rank and secret depend on the bits of `kind`.
pub fn node(kind: u8) -> Node {
    let world = World::new(if kind & 0x40 == 0 { 3 } else { 100 }).unwrap_or_else(|_| unreachable!());
    let secret = Secret::new(b"sixteen bytes it is").ok().filter(|_| kind & 0x20 != 0);
    let mut config = config(world);
    config.keys = secret.map(|secret| secret.keys(&job()));
    config.node.rank = world.rank(u32::from(kind % 4)).ok().filter(|_| kind & 0x10 != 0);
    config.node.attributes.wants_roster = kind & 0x08 != 0;
    Node::new(config, u64::from(kind), Time::ZERO)
}

fn config(world: World) -> Config {
    let timeout = Some(Duration::from_secs(60));
    Config {
        timeout,
        ..Config::new(ME, job().tag(), world, NodeInfo::new(HostName::new("host"), endpoint(1).into()))
    }
}

fn endpoint(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number % 8), 29500))
}

/// A datagram with a valid frame around any body.
pub fn datagram(kind: u8, sender: NodeId, recipient: NodeId, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(MAX_DATAGRAM - HEADER)];
    let mut bytes = b"MNGL\x01".to_vec();
    bytes.push(kind);
    bytes.extend(u16::try_from(body.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(job().tag().0);
    bytes.extend(sender.0);
    bytes.extend(recipient.0);
    bytes.extend([0; 12]);
    bytes.extend(body);
    if matches!(kind, 2 | 5) {
        bytes.resize(bytes.len().max(PADDED), 0);
    }
    bytes
}

/// A token with a valid frame.
pub fn token(prover: NodeId, target: NodeId, dial: u32) -> [u8; TOKEN] {
    let mut bytes = [0; TOKEN];
    bytes[..5].copy_from_slice(b"MNGL\x01");
    bytes[8..24].copy_from_slice(&job().tag().0);
    bytes[24..40].copy_from_slice(&prover.0);
    bytes[40..56].copy_from_slice(&target.0);
    bytes[56..60].copy_from_slice(&dial.to_le_bytes());
    bytes
}

/// Runs the program, and checks what the node sends and that it ends.
pub fn run(program: &[u8]) {
    let mut bytes = Bytes(program);
    let Some(kind) = bytes.byte() else { return };
    let mut node = node(kind);
    let mut now = Time::ZERO;
    let local = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
    drain(&mut node);
    while let Some(op) = bytes.byte() {
        match op % 8 {
            0..=2 => {
                let (kind, sender) = (bytes.byte().unwrap_or(1), bytes.byte().unwrap_or(2));
                let length = usize::from(bytes.byte().unwrap_or(0));
                let to = if op & 0x80 == 0 { ME } else { NodeId([0; 16]) };
                let datagram = datagram(kind % 21, id(sender), to, bytes.take(length));
                node.handle_datagram(now, endpoint(sender), &datagram);
            }
            3 => {
                let (conn, prover) = (bytes.byte().unwrap_or(0), bytes.byte().unwrap_or(2));
                let target = if op & 0x80 == 0 { ME } else { id(prover.wrapping_add(1)) };
                let token = token(id(prover), target, u32::from(op / 8));
                node.handle_token(now, ConnId(u64::from(conn)), local, &token);
            }
            4 => node.handle_closed(now, ConnId(u64::from(bytes.byte().unwrap_or(0)))),
            5 => node.handle_hung_up(now, DialId(u32::from(bytes.byte().unwrap_or(1)))),
            6 => node.handle_dialed(now, DialId(u32::from(bytes.byte().unwrap_or(1))), local),
            _ => {
                now += Duration::from_millis(1 << (op / 32));
                node.handle_timeout(now);
            }
        }
        drain(&mut node);
    }
    // The node must end by itself, by its deadline and what a round may add to that.
    for _ in 0..100_000 {
        let Some(next) = node.poll_timeout() else { break };
        now = now.max(next);
        node.handle_timeout(now);
        drain(&mut node);
    }
    assert!(node.has_ended(), "the node does not end");
    assert!(now <= Duration::from_secs(90), "the node ends at {now:?}");
}

fn drain(node: &mut Node) {
    let mut outputs = 0;
    while let Some(output) = node.poll_output() {
        outputs += 1;
        assert!(outputs < 10_000, "no end of outputs");
        match output {
            Output::Send { datagram, .. } | Output::Multicast { datagram } => {
                assert!((HEADER..=MAX_DATAGRAM).contains(&datagram.len()));
                assert_eq!(datagram[..5], *b"MNGL\x01");
            }
            Output::Event(Event::Failed(failure)) => harmless(&failure.to_string()),
            Output::Event(event) => harmless(&format!("{event:?}")),
            _ => {}
        }
    }
}

/// Checks that a message, which reaches terminals and logs, has no raw text from the network.
fn harmless(text: &str) {
    let bad = |c: char| c.is_control() || matches!(c, '$' | '`' | '\u{200e}'..='\u{202e}');
    assert!(!text.contains(bad), "{text:?}");
}
