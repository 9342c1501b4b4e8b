//! What every part of a node needs: the configuration, the time, the random numbers, the timers, and the
//! outputs.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::backoff::Backoff;
use super::config::Config;
use super::output::{ConnId, DialId, Output, PathDial};
use super::report::Event;
use super::scale::Scale;
use super::timer::{Time, Timer, Timers};
use crate::model::{Endpoints, NodeId, Peer, Rank, Roster, Unfit, User, WorldSize};
use crate::wire::{Codec, Header, Message, NodeInfo, Reach, Solicit, Token, encode_roster, encode_traits};

/// The most endpoints that a node remembers after it has lost them.
const LOST: usize = 64;

/// The context that [`Node`](super::Node) lends to its parts.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) timers: Timers,
    pub(crate) codec: Codec,
    /// Other nodes have tried to connect to this one, and none has succeeded since.
    unreached: bool,
    /// Endpoints that this node has published and lost, the latest last.
    lost: VecDeque<SocketAddr>,
    outputs: VecDeque<Output>,
    dials: u32,
    /// This node's traits as they are sent.
    traits: Vec<u8>,
}

/// To whom a datagram is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// All nodes that hear the group.
    All,
    /// Any node at the address: this node is a seed of the sender's.
    Anyone,
    /// This node alone.
    This,
}

impl Shared {
    pub(crate) fn new(config: Config, seed: u64, now: Time) -> Self {
        Self {
            codec: Codec::new(config.tag, config.keys.as_ref()).for_world(config.world),
            traits: encode_traits(&config.traits),
            config,
            now,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            timers: Timers::default(),
            unreached: false,
            lost: VecDeque::new(),
            outputs: VecDeque::new(),
            dials: 0,
        }
    }

    pub(crate) fn me(&self) -> NodeId {
        self.config.id
    }

    /// Records whether other nodes can connect to this one. A node that none can connect to is the last
    /// choice for master.
    pub(crate) fn set_unreached(&mut self, unreached: bool) {
        self.unreached = unreached;
    }

    /// Replaces this node's endpoints.
    pub(crate) fn set_endpoints(&mut self, endpoints: Endpoints, reach: Reach) {
        self.config.node.reach = reach;
        let own = std::mem::replace(&mut self.config.node.endpoints, endpoints);
        self.lost.extend(own.iter().filter(|endpoint| !self.config.node.endpoints.contains(endpoint)));
        let excess = self.lost.len().saturating_sub(LOST);
        self.lost.drain(..excess);
    }

    /// Whether this is an address of this node, or was: its leader may not know yet that it is gone.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let node = &self.config.node;
        let endpoints = node.endpoints.iter().chain(&self.lost);
        node.reach.has(address) || endpoints.into_iter().any(|endpoint| endpoint.ip() == address)
    }

    /// This node as its leader records it.
    pub(crate) fn node_info(&self) -> NodeInfo {
        let mut node = self.config.node.clone();
        node.attributes.may_be_master &= !self.unreached;
        node
    }

    /// Why a node that wants a world of this size, as this user, cannot be seated beside this one.
    pub(crate) fn unfit(&self, world: WorldSize, user: &User) -> Option<Unfit> {
        if world != self.config.world {
            Some(Unfit::World(world))
        } else if self.config.node.attributes.user.differs(user) {
            Some(Unfit::User(user.clone()))
        } else {
            None
        }
    }

    /// This node as messages to the user name it.
    pub(crate) fn peer(&self) -> Peer {
        self.config.node.peer()
    }

    /// The most nodes that the world may have.
    pub(crate) fn most(&self) -> u32 {
        self.config.world.max().get()
    }

    /// The limits and intervals for a world of this size.
    pub(crate) fn scale(&self) -> Scale {
        Scale(self.most())
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

    /// This node's question for a leader.
    pub(crate) fn solicit(&self) -> Message {
        let NodeInfo { rank, host, .. } = &self.config.node;
        Message::Solicit(Solicit { rank: rank.map(Rank::get), host: host.clone() })
    }

    /// Opens a connection to `to`, which may become the lease at `target`.
    pub(crate) fn dial(&mut self, to: SocketAddr, target: NodeId) -> DialId {
        let (dial, token) = self.next_token(to, target);
        let hello = self.codec.encode_hello(&token, &self.traits);
        self.outputs.push_back(Output::Dial { dial, to, hello });
        dial
    }

    /// Opens a connection to `to` that proves the path to `target`, with packets of at most `packet` bytes.
    pub(crate) fn dial_path(&mut self, to: SocketAddr, target: NodeId, packet: Option<u32>) -> DialId {
        let (dial, token) = self.next_token(to, target);
        let (token, answer) = self.codec.encode_path(&token);
        self.outputs.push_back(Output::DialPath(PathDial { dial, to, token, answer, packet }));
        dial
    }

    fn next_token(&mut self, to: SocketAddr, target: NodeId) -> (DialId, Token) {
        self.dials += 1;
        (DialId(self.dials), Token { prover: self.me(), target, dial: self.dials, dialled: to })
    }

    pub(crate) fn hang_up(&mut self, dial: DialId) {
        self.outputs.push_back(Output::HangUp(dial));
    }

    /// A roster as this leader writes it in a round.
    pub(crate) fn encode_roster(&self, round: u64, roster: &Roster) -> Arc<[u8]> {
        self.codec.encode_roster(self.me(), round, &encode_roster(roster)).into()
    }

    pub(crate) fn tell(&mut self, conn: ConnId, roster: Arc<[u8]>) {
        self.outputs.push_back(Output::Tell(conn, roster));
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

    /// Sets the timer to the next repeat.
    pub(crate) fn set_repeat(&mut self, timer: Timer, backoff: &mut Backoff) {
        let next = backoff.after(self.now, &mut self.rng);
        self.timers.set(timer, next);
    }

    /// Sets the timer to the next repeat, unless it is set to an earlier time.
    pub(crate) fn set_repeat_earlier(&mut self, timer: Timer, backoff: &mut Backoff) {
        let next = backoff.after(self.now, &mut self.rng);
        self.timers.set_earlier(timer, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tests::{endpoint, tag};

    #[test]
    fn a_node_that_nobody_reaches_asks_not_to_be_master() {
        for (may_be_master, unreached, says) in
            [(true, false, true), (true, true, false), (false, false, false), (false, true, false)]
        {
            let mut shared = Shared::new(Config::plain(tag(), 4, 2, endpoint(2)), 1, Time::ZERO);
            shared.config.node.attributes.may_be_master = may_be_master;
            shared.set_unreached(unreached);
            assert_eq!(shared.node_info().attributes.may_be_master, says);
        }
    }
}
