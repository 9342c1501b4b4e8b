//! The cost of one datagram for a node. The datagrams come from a simulated world and go to a node that is
//! not their recipient, which decodes and drops them. Then come steps in which a node answers a message with
//! another.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mingle_core::proto::{Config, Node, Output, Time, VERSION};
use mingle_core::proto::{NodeId, NodeInfo};
use mingle_core::{HostName, JobId, World};

use super::{Effort, steps};
use crate::report::{Row, Table};
use crate::sample::Sample;
use crate::sim::network::{Network, Weather};

/// The names of the kinds, in the order of their numbers from 1.
const KINDS: [&str; 19] = [
    "announce", "solicit", "hint", "redirect", "join", "welcome", "refuse", "ping", "pong", "prepare",
    "prove", "proved", "ready", "unproved", "void", "commit", "done", "want", "part",
];
const KIND: usize = 5;
const RECIPIENT: std::ops::Range<usize> = 40..56;
const PING: u8 = 8;
const WORLD: u32 = 40;
const STRANGER: NodeId = NodeId([0xee; 16]);

/// Each kind of message decoded, a ping answered, and the steps of a small world.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new(
        "messages",
        "One datagram decoded, and steps of a node from an event to the messages that it sends",
    );
    let batches = effort.choose(5, 51);
    for message in recorded().values() {
        table.rows.push(Row::new(
            format!("{}, {} bytes: decoded", name(message), message.len()),
            "µs",
            time(message, batches),
        ));
    }
    table.rows.push(Row::new("ping received: pong sent", "µs", time(&ping(), batches)));
    for step in steps::all() {
        table.rows.push(Row::new(&step.what, "µs", step.time(batches)));
    }
    table
}

/// The name of a message's kind.
pub(super) fn name(message: &[u8]) -> &'static str {
    KINDS.get(usize::from(message[KIND]) - 1).copied().unwrap_or("another")
}

/// Decodes one message of each kind this many times, for a count of instructions.
pub fn repeat(times: u32) {
    let messages = recorded();
    let mut node = listener();
    for _ in 0..times {
        for message in messages.values().chain([&ping()]) {
            hand_in(&mut node, message);
        }
    }
}

fn time(message: &[u8], batches: usize) -> Sample {
    const BATCH: u32 = 1000;
    let mut node = listener();
    let batch = |_| {
        let begun = Instant::now();
        for _ in 0..BATCH {
            hand_in(&mut node, black_box(message));
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
    };
    (0..batches).map(batch).collect()
}

fn hand_in(node: &mut Node, message: &[u8]) {
    let from = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 29500));
    node.handle_datagram(Time::ZERO, from, message);
    while let Some(output) = node.poll_output() {
        black_box(output);
    }
}

/// One message of each kind that a world sends, addressed to an unknown node.
fn recorded() -> BTreeMap<u8, Vec<u8>> {
    let mut net = Network::new(7, Weather { loss: 0.05, ..Weather::fine() });
    net.tracing = false;
    net.record = Some(Vec::new());
    for number in 1..=WORLD {
        let host = net.add(number, WORLD, None, Duration::from_millis(u64::from(WORLD - number)));
        net.hosts[host].config.node.attributes.wants_roster = true;
    }
    net.run(Duration::from_secs(60));
    let mut messages = BTreeMap::new();
    for mut message in net.record.unwrap_or_default() {
        message[RECIPIENT].fill(0xdd);
        messages.entry(message[KIND]).or_insert(message);
    }
    messages
}

fn ping() -> Vec<u8> {
    let mut message = b"MNGL".to_vec();
    message.extend([VERSION, PING, 0, 0]);
    message.extend(config().tag.0);
    message.extend(STRANGER.0);
    message.extend(config().id.0);
    message.extend(config().lineage.generation.to_le_bytes());
    message.extend(config().lineage.origin.to_le_bytes());
    message
}

/// A node that has sent its first messages.
fn listener() -> Node {
    let mut node = Node::new(config(), 1, Time::ZERO);
    while let Some(Output::Multicast { .. } | Output::Event(_)) = node.poll_output() {}
    node
}

pub(super) fn config() -> Config {
    let job: JobId = "sim".parse().unwrap_or_else(|_| unreachable!("a valid name"));
    let world = World::new(WORLD).unwrap_or_else(|_| unreachable!("a valid size"));
    let endpoint = SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), 29500));
    Config::new(NodeId([1; 16]), job.tag(), world, NodeInfo::new(HostName::new("listener"), endpoint.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_answered() {
        let mut node = listener();
        node.handle_datagram(Time::ZERO, SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 29500)), &ping());
        assert!(matches!(node.poll_output(), Some(Output::Send { .. })));
    }

    #[test]
    fn the_steps_of_a_world_of_two_lead_from_announce_to_done() {
        let what: Vec<_> = steps::all().into_iter().map(|step| step.what).collect();
        let expected = [
            "timer fired: announce sent",
            "announce received: join sent",
            "join received: welcome sent",
            "token received: welcome, prepare sent",
            "prepare received: ready sent",
            "timer fired: commit sent",
            "commit received: done, done, done sent",
        ];
        assert_eq!(what, expected);
    }
}
