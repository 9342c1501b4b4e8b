//! What every part of a node needs: who it is, the time, the seed, what goes out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::report::Event;
use super::seeds::Seeds;
use super::timer::{Time, Timer, Timers};
use super::{Config, ConnId, DialId, Output};
use crate::model::{Endpoints, HostName, NodeId, Peer, Rank};
use crate::wire::{Candidate, Codec, Header, Message, NodeInfo, Solicit, Token};

/// Owned by [`Node`](super::Node) and lent to its parts, which do not know each other.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) timers: Timers,
    pub(crate) codec: Codec,
    /// Others have tried to reach this node over TCP, and nobody has yet.
    pub(crate) unreached: bool,
    pub(crate) seeds: Seeds,
    outputs: VecDeque<Output>,
    dials: u32,
}

impl Shared {
    pub(crate) fn new(config: Config, seed: u64, now: Time) -> Self {
        Self {
            codec: Codec::new(config.tag, config.keys.as_ref()),
            config,
            now,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            timers: Timers::default(),
            unreached: false,
            seeds: Seeds::default(),
            outputs: VecDeque::new(),
            dials: 0,
        }
    }

    pub(crate) fn me(&self) -> NodeId {
        self.config.id
    }

    /// Whether this node should be considered for master.
    pub(crate) fn may_be_master(&self) -> bool {
        self.config.node.attributes.may_be_master && !self.unreached
    }

    /// This node as its leader is to know it.
    pub(crate) fn node_info(&self) -> NodeInfo {
        let mut node = self.config.node.clone();
        node.attributes.may_be_master = self.may_be_master();
        node
    }

    /// This node as a message to people names it.
    pub(crate) fn peer(&self) -> Peer {
        self.config.node.peer()
    }

    pub(crate) fn world(&self) -> u32 {
        self.config.world.get()
    }

    pub(crate) fn send(&mut self, to: SocketAddr, recipient: NodeId, message: &Message) {
        let header = Header { sender: self.me(), recipient, lineage: self.config.lineage };
        let datagram = self.codec.encode(header, message);
        self.outputs.push_back(Output::Send { to, datagram });
    }

    pub(crate) fn multicast(&mut self, message: &Message) {
        let header = Header { sender: self.me(), recipient: NodeId::ALL, lineage: self.config.lineage };
        let datagram = self.codec.encode(header, message);
        self.outputs.push_back(Output::Multicast { datagram });
    }

    pub(crate) fn send_to_seeds(&mut self, message: &Message) {
        for to in self.seeds.turn() {
            self.send(to, NodeId::ANYONE, message);
        }
    }

    /// This node's question for a leader.
    pub(crate) fn solicit(&self) -> Message {
        let NodeInfo { rank, host, .. } = &self.config.node;
        Message::Solicit(Solicit { rank: rank.map(Rank::get), host: host.clone() })
    }

    /// Opens a connection to `to`, on which the token for `target` goes first.
    pub(crate) fn dial(&mut self, to: SocketAddr, target: NodeId) -> DialId {
        self.dials += 1;
        let dial = DialId(self.dials);
        let token = Token { prover: self.me(), target, dial: dial.0, dialled: to };
        self.outputs.push_back(Output::Dial { dial, to, token: self.codec.encode_token(&token) });
        dial
    }

    pub(crate) fn hang_up(&mut self, dial: DialId) {
        self.outputs.push_back(Output::HangUp(dial));
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.outputs.push_back(Output::Close(conn));
    }

    pub(crate) fn stop_accepting(&mut self) {
        self.outputs.push_back(Output::StopAccepting);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn set_after(&mut self, timer: Timer, delay: Duration) {
        self.timers.set(timer, self.now.saturating_add(delay));
    }
}

/// A node as others learn of it.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    pub(crate) id: NodeId,
    pub(crate) host: HostName,
    /// Where its words come from.
    pub(crate) source: SocketAddr,
    /// Its endpoints, in its order of preference.
    pub(crate) endpoints: Endpoints,
}

impl Contact {
    pub(crate) fn of(candidate: &Candidate, source: SocketAddr) -> Self {
        Self {
            id: candidate.id,
            host: candidate.host.clone(),
            source,
            endpoints: candidate.endpoints.clone(),
        }
    }

    /// For messages to people: by the preferred endpoint.
    pub(crate) fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}
