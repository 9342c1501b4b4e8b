//! What every part of a node needs, before its world has formed and after that: the configuration, the time,
//! the random numbers, the timers, and the outputs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng};

use super::backoff::Backoff;
use super::config::Config;
use super::output::{DialId, Output, PathDial};
use super::report::{Event, Failure};
use super::scale::Scale;
use super::seeds::Seeds;
use super::session::PeerLinks;
use super::timer::{Time, Timer, Timers};
use crate::model::{NodeId, Peer, Rank, Unfit, User, WorldSize};
use crate::wire::{
    Codec, Header, Join, Message, NodeInfo, Refusal, Running, Said, Solicit, encode_traits, kind_of,
};

/// The context that [`Node`](super::Node) and [`World`](super::world::World) lend to their parts.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) timers: Timers,
    pub(crate) codec: Codec,
    /// The sessions of a [`Node`](super::Node) with others. A world has its own.
    pub(crate) links: PeerLinks<()>,
    /// Where other nodes may be.
    pub(crate) seeds: Seeds,
    /// Other nodes have tried to connect to this one, and none has succeeded since: it is the last choice for
    /// master.
    pub(crate) unreached: bool,
    outputs: VecDeque<Output>,
    dials: u32,
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
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            codec: Codec::new(config.tag, config.keys.as_ref()).for_world(config.world),
            links: PeerLinks::new(config.id, rng.random()),
            config,
            now,
            rng,
            timers: Timers::default(),
            seeds: Seeds::default(),
            unreached: false,
            outputs: VecDeque::new(),
            dials: 0,
        }
    }

    pub(crate) fn me(&self) -> NodeId {
        self.config.id
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
        let header = Header { sender: self.me(), recipient };
        let datagram = self.codec.encode(header, message);
        self.outputs.push_back(Output::Send { to, datagram });
    }

    pub(crate) fn multicast(&mut self, message: &Message) {
        let header = Header { sender: self.me(), recipient: NodeId::ALL };
        let datagram = self.codec.encode(header, message);
        self.outputs.push_back(Output::Multicast { datagram });
    }

    /// Sends a message to the seeds whose turn it is.
    pub(crate) fn send_to_seeds(&mut self, message: &Message) {
        for to in self.seeds.turn() {
            self.send(to, NodeId::ANYONE, message);
        }
    }

    /// Sends a message to the seeds, and multicasts it. In this order: a node that is a seed and on the link
    /// reads what was sent to it alone first, and drops sealed datagrams that another has overtaken.
    pub(crate) fn call(&mut self, message: &Message) {
        self.send_to_seeds(message);
        self.multicast(message);
    }

    /// Says this state on the session with a node, unless it was said last of its kind.
    pub(crate) fn say(&mut self, to: NodeId, said: &Said) {
        self.links.say(self.now, to, &said.encode());
    }

    /// The same, also if it was said last of its kind. A process that acknowledges it is there.
    pub(crate) fn say_again(&mut self, to: NodeId, said: &Said) {
        let body = said.encode();
        self.links.with(to, |link| link.say_again(kind_of(&body)));
        self.links.say(self.now, to, &body);
    }

    /// Says why there is no world for a node with this one, and says it again to a node that joins again.
    pub(crate) fn refuse(&mut self, to: NodeId, refusal: Refusal) {
        self.say_again(to, &Said::Refuse(refusal));
    }

    /// What a node learns from this refusal of its leader; none if it goes on to look for others.
    pub(crate) fn failure(&self, refusal: Refusal, leader: Peer) -> Option<Failure> {
        let config = &self.config;
        Some(match refusal {
            Refusal::RankTaken(holder) => Failure::RankTaken { rank: config.node.rank?, holder },
            Refusal::WorldDiffers(theirs) => Failure::WorldDiffers { ours: config.world, theirs, leader },
            Refusal::UserDiffers(theirs, joined) => {
                let ours = config.node.attributes.user.clone();
                let (ours, theirs) = (Box::new(ours), Box::new(theirs));
                Failure::UserDiffers { ours, theirs, node: leader, joined }
            }
            // The next formation may have a seat for this node.
            Refusal::WorldFull if config.stands_by => return None,
            Refusal::WorldFull => Failure::WorldFull { world: config.world, leader },
            Refusal::NoCommonFamily(six, four) => Failure::NoCommonFamily { six, four },
            Refusal::Unready(nodes) => Failure::Unready { nodes: nodes.into_vec() },
            Refusal::PathsBroken(paths, more) => Failure::PathsBroken { paths: paths.into_vec(), more },
            Refusal::NoRdma(verdict, is_required) => Failure::NoRdma { verdict, is_required },
            Refusal::Differs(sameness) => Failure::Differs { sameness },
            Refusal::Closing | Refusal::Redirect(_) => return None,
        })
    }

    /// This node as its leader records it, with its traits.
    pub(crate) fn join(&self) -> Join {
        let (world, traits) = (self.config.world, encode_traits(&self.config.traits));
        Join { world, node: self.node_info(), traits, misfit: None }
    }

    /// The addresses at which another node may be dialled. Those that are this node's own are left out: the
    /// same private address (172.17.0.1, say) may be found on every host. So are loopback addresses beside
    /// others.
    pub(crate) fn dialled(&self, endpoints: &[SocketAddr]) -> Vec<SocketAddr> {
        let own = &self.config.node.endpoints;
        let is_everywhere = |endpoint: &SocketAddr| endpoint.ip().is_loopback();
        let leaves_out = !is_everywhere(&own.preferred()) && !endpoints.iter().all(is_everywhere);
        let others = endpoints.iter().filter(|e| !(own.contains(e) || leaves_out && is_everywhere(e)));
        others.copied().collect()
    }

    /// A node that has answered is dialled at all of these from now on, at the pace of this world.
    pub(crate) fn dial_at(&mut self, node: NodeId, endpoints: &[SocketAddr]) {
        let (addresses, patience) = (self.dialled(endpoints), self.scale().dial_interval());
        self.links.set_addresses(node, &addresses);
        self.links.with(node, |link| link.session.set_patience(patience));
    }

    /// Says that the job runs: who leads it, and where that process accepts sessions.
    pub(crate) fn running(&self, leader: NodeId, generation: u32, addresses: &[SocketAddr]) -> Message {
        let node = &self.config.node;
        let (host, user) = (node.host.clone(), node.attributes.user.clone());
        let addresses = addresses.iter().copied().collect();
        Message::Running(Running { leader, generation, addresses, host, user })
    }

    /// This node's question for a leader.
    pub(crate) fn solicit(&self) -> Message {
        let NodeInfo { rank, host, .. } = &self.config.node;
        Message::Solicit(Solicit { rank: rank.map(Rank::get), host: host.clone() })
    }

    /// Opens a connection to `to` that proves the path to `target`, with packets of at most `packet` bytes.
    pub(crate) fn dial_path(&mut self, to: SocketAddr, target: NodeId, packet: Option<u32>) -> DialId {
        self.dials += 1;
        let dial = DialId(self.dials);
        let header = Header { sender: self.me(), recipient: target };
        let (token, answer) = self.codec.encode_path(header, self.dials);
        self.outputs.push_back(Output::DialPath(PathDial { dial, to, token, answer, packet }));
        dial
    }

    pub(crate) fn hang_up(&mut self, dial: DialId) {
        self.outputs.push_back(Output::HangUp(dial));
    }

    pub(crate) fn stop_accepting(&mut self) {
        self.outputs.push_back(Output::StopAccepting);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front().or_else(|| self.links.poll_order(self.now).map(Output::Carry))
    }

    pub(crate) fn set_after(&mut self, timer: Timer, delay: Duration) {
        self.timers.set(timer, self.now.saturating_add(delay));
    }

    /// Sets the timer to the next repeat.
    pub(crate) fn set_repeat(&mut self, timer: Timer, backoff: &mut Backoff) {
        let next = backoff.after(self.now, &mut self.rng);
        self.timers.set(timer, next);
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
            shared.unreached = unreached;
            assert_eq!(shared.node_info().attributes.may_be_master, says);
        }
    }
}
