//! A world of two nodes whose messages go directly from one to the other. Each step in which a node sends a
//! message is recorded with the node's state before it, so that it can be repeated.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use mingle_core::World;
use mingle_core::proto::NodeId;
use mingle_core::proto::{Config, ConnId, DialId, Node, Output, TOKEN, Time};

use super::messages::{config, name};
use crate::sample::Sample;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// An event at a node.
enum Input {
    Datagram(Vec<u8>),
    Dialed(DialId),
    Token(ConnId, [u8; TOKEN]),
    Timeout,
}

/// One step of a node.
pub(super) struct Step {
    /// The node before the step, and which of the two it is.
    node: Node,
    who: usize,
    now: Time,
    input: Input,
    /// The event, and the messages that the node sends.
    pub(super) what: String,
}

impl Step {
    /// How long it takes, in microseconds.
    pub(super) fn time(&self, batches: usize) -> Sample {
        // Few enough to fit into the cache.
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

/// The steps of a world of two from its start to its end, the first of each kind.
pub(super) fn all() -> Vec<Step> {
    let nodes = [0, 1].map(|who| Node::new(node(who), 1, Time::ZERO));
    let mut two = Two { nodes, now: Time::ZERO, inputs: VecDeque::new(), connections: 0, steps: Vec::new() };
    while let Some((who, input)) = two.next() {
        two.step(who, input);
    }
    two.steps
}

struct Two {
    nodes: [Node; 2],
    now: Time,
    /// The events on their way, and to which node.
    inputs: VecDeque<(usize, Input)>,
    connections: u64,
    steps: Vec<Step>,
}

impl Two {
    /// The next event. If none is on its way, time passes.
    fn next(&mut self) -> Option<(usize, Input)> {
        self.inputs.pop_front().or_else(|| {
            let timeouts = self.nodes.iter().enumerate();
            let (at, who) = timeouts.filter_map(|(who, node)| Some((node.poll_timeout()?, who))).min()?;
            self.now = self.now.max(at);
            Some((who, Input::Timeout))
        })
    }

    fn step(&mut self, who: usize, input: Input) {
        let other = 1 - who;
        let before = self.nodes[who].clone();
        let mut sent = Vec::new();
        let (inputs, connections) = (&mut self.inputs, &mut self.connections);
        hand(&mut self.nodes[who], who, self.now, &input, |output| match output {
            Output::Send { datagram, .. } | Output::Multicast { datagram } => {
                sent.push(name(&datagram));
                inputs.push_back((other, Input::Datagram(datagram)));
            }
            Output::Dial { dial, token, .. } => {
                *connections += 1;
                inputs.push_back((who, Input::Dialed(dial)));
                inputs.push_back((other, Input::Token(ConnId(*connections), token)));
            }
            _ => {}
        });
        if sent.is_empty() {
            return;
        }
        let event = match &input {
            Input::Datagram(message) => format!("{} received", name(message)),
            Input::Token(..) => "token received".to_owned(),
            Input::Dialed(_) => "connection opened".to_owned(),
            Input::Timeout => "timer fired".to_owned(),
        };
        let what = format!("{event}: {} sent", sent.join(", "));
        if self.steps.iter().all(|step| step.what != what) {
            self.steps.push(Step { node: before, who, now: self.now, input, what });
        }
    }
}

/// Passes an event to one of the two nodes, and passes its outputs to `take`.
fn hand(node: &mut Node, who: usize, now: Time, input: &Input, mut take: impl FnMut(Output)) {
    let local = ADDRESSES[who].into();
    match input {
        Input::Datagram(bytes) => node.handle_datagram(now, endpoint(1 - who), bytes),
        Input::Dialed(dial) => node.handle_dialed(now, *dial),
        Input::Token(conn, token) => node.handle_token(now, *conn, local, local, token),
        Input::Timeout => node.handle_timeout(now),
    }
    while let Some(output) = node.poll_output() {
        take(output);
    }
}

fn node(who: usize) -> Config {
    let world = World::new(2).unwrap_or_else(|_| unreachable!("a valid size"));
    let id = NodeId([ADDRESSES[who].octets()[3]; 16]);
    let mut config = Config { id, world: world.into(), ..config() };
    config.node.endpoints = endpoint(who).into();
    config
}

fn endpoint(who: usize) -> SocketAddr {
    SocketAddr::from((ADDRESSES[who], 29500))
}
