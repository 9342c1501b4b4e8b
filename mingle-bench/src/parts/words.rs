//! What one datagram costs a node: those of a simulated world, handed to a node that they are not for, which decodes each
//! and lets it go; and turns in which a node answers one word by another.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mingle_core::proto::{Config, Node, Output, Time};
use mingle_core::proto::{NodeId, NodeInfo};
use mingle_core::{HostName, JobId, World};

use super::{Effort, turns};
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

/// Each kind that a world says, decoded; a ping that is answered; and the turns of a small world.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new(
        "words",
        "One datagram decoded, and turns of a node, from what happens to the words that it says",
    );
    let batches = effort.choose(5, 51);
    for word in recorded().values() {
        table.rows.push(Row::new(
            format!("{}, {} bytes: decoded", name(word), word.len()),
            "µs",
            time(word, batches),
        ));
    }
    table.rows.push(Row::new("ping: taken in, and pong said", "µs", time(&ping(), batches)));
    for turn in turns::all() {
        table.rows.push(Row::new(&turn.what, "µs", turn.time(batches)));
    }
    table
}

/// What a word is called.
pub(super) fn name(word: &[u8]) -> &'static str {
    KINDS.get(usize::from(word[KIND]) - 1).copied().unwrap_or("another")
}

/// The same work a given number of times, for whoever counts instructions.
pub fn repeat(times: u32) {
    let words = recorded();
    let mut node = listener();
    for _ in 0..times {
        for word in words.values().chain([&ping()]) {
            hand_in(&mut node, word);
        }
    }
}

fn time(word: &[u8], batches: usize) -> Sample {
    const BATCH: u32 = 1000;
    let mut node = listener();
    let batch = |_| {
        let begun = Instant::now();
        for _ in 0..BATCH {
            hand_in(&mut node, black_box(word));
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
    };
    (0..batches).map(batch).collect()
}

fn hand_in(node: &mut Node, word: &[u8]) {
    let from = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 29500));
    node.handle_datagram(Time::ZERO, from, word);
    while let Some(output) = node.poll_output() {
        black_box(output);
    }
}

/// One of each kind that a world of some size says, addressed to nobody who is there.
fn recorded() -> BTreeMap<u8, Vec<u8>> {
    let mut net = Network::new(7, Weather { loss: 0.05, ..Weather::fine() });
    net.tracing = false;
    net.record = Some(Vec::new());
    for number in 1..=WORLD {
        let host = net.add(number, WORLD, None, Duration::from_millis(u64::from(WORLD - number)));
        net.hosts[host].config.node.attributes.wants_roster = true;
    }
    net.run(Duration::from_secs(60));
    let mut words = BTreeMap::new();
    for mut word in net.record.unwrap_or_default() {
        word[RECIPIENT].fill(0xdd);
        words.entry(word[KIND]).or_insert(word);
    }
    words
}

fn ping() -> Vec<u8> {
    let mut word = b"MNGL\x01".to_vec();
    word.extend([PING, 0, 0]);
    word.extend(config().tag.0);
    word.extend(STRANGER.0);
    word.extend(config().id.0);
    word.extend(config().lineage.generation.to_le_bytes());
    word.extend(config().lineage.origin.to_le_bytes());
    word
}

/// A node that has said its first words.
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
    fn the_turns_of_a_world_of_two_are_those_of_a_world() {
        let what: Vec<_> = turns::all().into_iter().map(|turn| turn.what).collect();
        let expected = [
            "timer: taken in, and announce said",
            "announce: taken in, and join said",
            "join: taken in, and welcome said",
            "token: taken in, and welcome, prepare said",
            "prepare: taken in, and ready said",
            "timer: taken in, and commit said",
            "commit: taken in, and done, done, done said",
        ];
        assert_eq!(what, expected);
    }
}
