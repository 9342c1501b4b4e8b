//! A world of two whose words go straight from one node to the other: each turn in which a node says something, to be
//! taken again from the state in which the node was.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use mingle_core::World;
use mingle_core::proto::NodeId;
use mingle_core::proto::{Config, ConnId, DialId, Node, Output, TOKEN, Time};

use super::words::{config, name};
use crate::sample::Sample;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// What happens to a node.
enum Input {
    Datagram(Vec<u8>),
    Dialed(DialId),
    Token(ConnId, [u8; TOKEN]),
    Timeout,
}

/// One turn.
pub(super) struct Turn {
    /// The node before it, and which of the two it is.
    node: Node,
    who: usize,
    now: Time,
    input: Input,
    /// What happens, and what the node says then.
    pub(super) what: String,
}

impl Turn {
    /// How long it takes, in microseconds.
    pub(super) fn time(&self, batches: usize) -> Sample {
        // Few enough that all fit into the cache.
        const BATCH: u8 = 20;
        let batch = |_| {
            let mut nodes = vec![self.node.clone(); usize::from(BATCH)];
            let begun = Instant::now();
            for node in &mut nodes {
                hand(node, self.who, self.now, black_box(&self.input), |output| _ = black_box(output));
            }
            begun.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
        };
        (0..batches).map(batch).collect()
    }
}

/// The turns of a world of two from its start to its end, the first of each kind.
pub(super) fn all() -> Vec<Turn> {
    let nodes = [0, 1].map(|who| Node::new(node(who), 1, Time::ZERO));
    let mut two = Two { nodes, now: Time::ZERO, inputs: VecDeque::new(), connections: 0, turns: Vec::new() };
    while let Some((who, input)) = two.next() {
        two.turn(who, input);
    }
    two.turns
}

struct Two {
    nodes: [Node; 2],
    now: Time,
    /// What is on its way, and to which.
    inputs: VecDeque<(usize, Input)>,
    connections: u64,
    turns: Vec<Turn>,
}

impl Two {
    /// What happens next: where nothing is on its way, time passes.
    fn next(&mut self) -> Option<(usize, Input)> {
        self.inputs.pop_front().or_else(|| {
            let timeouts = self.nodes.iter().enumerate();
            let (at, who) = timeouts.filter_map(|(who, node)| Some((node.poll_timeout()?, who))).min()?;
            self.now = self.now.max(at);
            Some((who, Input::Timeout))
        })
    }

    fn turn(&mut self, who: usize, input: Input) {
        let other = 1 - who;
        let before = self.nodes[who].clone();
        let mut said = Vec::new();
        let (inputs, connections) = (&mut self.inputs, &mut self.connections);
        hand(&mut self.nodes[who], who, self.now, &input, |output| match output {
            Output::Send { datagram, .. } | Output::Multicast { datagram } => {
                said.push(name(&datagram));
                inputs.push_back((other, Input::Datagram(datagram)));
            }
            Output::Dial { dial, token, .. } => {
                *connections += 1;
                inputs.push_back((who, Input::Dialed(dial)));
                inputs.push_back((other, Input::Token(ConnId(*connections), token)));
            }
            _ => {}
        });
        if said.is_empty() {
            return;
        }
        let heard = match &input {
            Input::Datagram(word) => name(word),
            Input::Token(..) => "token",
            Input::Dialed(_) => "connection",
            Input::Timeout => "timer",
        };
        let what = format!("{heard}: taken in, and {} said", said.join(", "));
        if self.turns.iter().all(|turn| turn.what != what) {
            self.turns.push(Turn { node: before, who, now: self.now, input, what });
        }
    }
}

/// Tells one of the two what happens, and takes what it says to that.
fn hand(node: &mut Node, who: usize, now: Time, input: &Input, mut take: impl FnMut(Output)) {
    let local = ADDRESSES[who].into();
    match input {
        Input::Datagram(bytes) => node.handle_datagram(now, endpoint(1 - who), bytes),
        Input::Dialed(dial) => node.handle_dialed(now, *dial, local),
        Input::Token(conn, token) => node.handle_token(now, *conn, local, token),
        Input::Timeout => node.handle_timeout(now),
    }
    while let Some(output) = node.poll_output() {
        take(output);
    }
}

fn node(who: usize) -> Config {
    let world = World::new(2).unwrap_or_else(|_| unreachable!("a valid size"));
    let id = NodeId([ADDRESSES[who].octets()[3]; 16]);
    let mut config = Config { id, world, ..config() };
    config.node.endpoints = endpoint(who).into();
    config
}

fn endpoint(who: usize) -> SocketAddr {
    SocketAddr::from((ADDRESSES[who], 29500))
}
