//! The protocol as a state machine: no socket, no clock, no global randomness.
//!
//! The caller hands events to a [`Node`] (`handle_*`, each with the time), and asks it what to do
//! ([`Node::poll_output`], [`Node::poll_timeout`]). The driver in `net` does that with real sockets; a
//! simulation does it with a seed, and the same seed gives the same run. Most programs want `Rendezvous`
//! instead.
//!
//! `node` hands each event to its parts, each of which owns its state: `seek` finds the leader, `lead` keeps
//! the book of members and runs the rounds, `follow` joins a leader and takes part in its rounds, `prove` has
//! the connections. `running` is a world after it has formed, `observe` reads and sends nothing. `shared`,
//! `timer`, `backoff`, `waves` and `scale` serve all of them, `report` is what the caller gets. `PROTOCOL.md`
//! has the reasons.

mod backoff;
#[cfg(test)]
mod exhaustive;
mod follow;
mod lead;
mod node;
pub(crate) mod observe;
mod parts;
mod pause;
mod prove;
mod report;
mod running;
mod scale;
mod seek;
mod shared;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod waves;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

#[cfg(test)]
use crate::model::World;
use crate::model::{Expected, HostName, Traits, WorldSize};
use crate::rdma::Rails;
use crate::wire::Codec;

pub use crate::model::{
    BrokenPath, Digest, Endpoints, Fault, JobTag, Keys, Lineage, Link, NodeId, Paths, Peer, PlaceHash, Slots,
    Stamp,
};
pub use crate::wire::{
    ANSWER, Attributes, Former, MAX_DATAGRAM, NodeInfo, RAILS_ANSWER, Reach, TOKEN, VERSION,
};
pub use node::Node;
#[cfg(feature = "net")]
pub(crate) use pause::was_stopped;
#[cfg(feature = "net")]
pub(crate) use prove::Survey;
pub use report::{
    Cause, Event, Failure, Formed, Heard, Over, Progress, RankRange, Report, Tried, Unproved, Warning,
};
pub use running::{Change, RunningWorld};
pub use timer::Time;

/// How nodes without a given rank are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RankBy {
    /// By preferred address, numerically; then host name; then ID.
    #[default]
    Address,
    /// By host name in natural order (`node-9` before `node-10`); then address; then ID.
    Host,
    /// By the place of the host, so that hosts which share the beginning of theirs are next to each other;
    /// then as by address. Hosts without a place come last. See [`Place`](crate::Place).
    Place,
}

/// How long a node waits for the others by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// How long a last call lasts by default.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(15);

/// What a node brings to its rendezvous.
///
/// Exhaustive, unlike what this crate returns: a simulation decides on every field with a struct update.
#[derive(Debug, Clone)]
pub struct Config {
    /// The process; random, and never used before.
    pub id: NodeId,
    /// The job.
    pub tag: JobTag,
    /// The keys of a job with a secret.
    pub keys: Option<Keys>,
    /// How many nodes there must be.
    pub world: WorldSize,
    /// The formation of the job that the node takes part in: the first, unless it comes from an earlier one
    /// or has heard of a later one.
    pub lineage: Lineage,
    /// This node as it describes itself to its leader.
    pub node: NodeInfo,
    /// The rails of this host, for its neighbours and to be proved.
    pub rails: Rails,
    /// What should be the same on every node. The stamp in `node` is of these.
    pub traits: Traits,
    /// The hosts that the user expects: those that are absent are named.
    pub expected: Expected,
    /// Whether to prefer IPv6 when every node has both families.
    pub prefers_ipv6: bool,
    /// How the node orders the others if it leads.
    pub rank_by: RankBy,
    /// How long to wait; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// How long a leader waits for one more node once the fewest of a range are here.
    pub last_call: Duration,
    /// How long former members may take to come, since the start of this node, if it is one of them. Seats
    /// are kept for them, since newcomers are here first: the members' commands stop meanwhile.
    pub awaited: Option<Time>,
    /// Whether this node waits for a seat as long as the job runs without it, whatever its timeout.
    pub stands_by: bool,
    /// Whether this node looks for others beside multicast: no last call ends before
    /// [`Node::handle_searched`].
    pub searches: bool,
}

impl Config {
    /// A node without a secret, in the first formation of its job, that waits for ten minutes.
    ///
    /// ```
    /// use mingle_core::proto::{Config, Endpoints, NodeId, NodeInfo};
    /// use mingle_core::{HostName, JobId, World};
    ///
    /// let job: JobId = "foo".parse()?;
    /// let here: Endpoints = "10.0.0.1:29500".parse::<std::net::SocketAddr>()?.into();
    /// let node = NodeInfo::new(HostName::new("a"), here);
    /// let config = Config::new(NodeId([1; 16]), job.tag(), World::new(4)?, node);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(id: NodeId, tag: JobTag, world: impl Into<WorldSize>, node: NodeInfo) -> Self {
        Self {
            id,
            tag,
            keys: None,
            world: world.into(),
            lineage: Lineage::default(),
            node,
            rails: Rails::default(),
            traits: Traits::default(),
            expected: Expected::default(),
            prefers_ipv6: false,
            rank_by: RankBy::Address,
            timeout: Some(TIMEOUT),
            last_call: LAST_CALL,
            awaited: None,
            stands_by: false,
            searches: false,
        }
    }

    /// Node `number` of a plain world.
    #[cfg(test)]
    fn plain(tag: JobTag, world: u32, number: u8, endpoint: SocketAddr) -> Self {
        let node = NodeInfo::new(HostName::new(&format!("host-{number}")), endpoint.into());
        let timeout = Some(Duration::from_secs(30));
        Self { timeout, ..Self::new(NodeId([number; 16]), tag, World::new(world).unwrap(), node) }
    }

    /// This node was a member of the world before. The other members have until `until` to come.
    pub fn succeed(&mut self, former: Former, until: Time) {
        self.node.former = Some(former);
        self.awaited = Some(until);
    }

    /// Whether the node may lead. One that was given rank 1 or more never does: it listens and solicits. Nor
    /// does a newcomer to a job that has restarted, if a world may form without some of the former members:
    /// it does not know how many of them are about to come.
    fn is_candidate(&self) -> bool {
        !self.is_newcomer() && self.node.rank.is_none_or(|rank| rank.get() == 0)
    }

    /// Whether the node leaves leading to former members.
    fn is_newcomer(&self) -> bool {
        self.world.is_range() && self.lineage.generation > 0 && self.awaited.is_none()
    }
}

/// A connection that this node opens, numbered by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u32);

/// A report of the driver on a connection that proves a path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathNews {
    /// The connection is open.
    Opened {
        /// The length of a packet with a full segment, in bytes with the headers of IP and TCP.
        packet: u32,
    },
    /// The target has answered: all has arrived.
    Arrived,
    /// The target has answered [`Output::AskRails`] with these bytes.
    Rails(Vec<u8>),
    /// The connection was not opened, or has closed.
    Failed(Fault),
}

/// A report of the driver on a connection that watches another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchNews {
    /// The connection is open.
    Opened,
    /// The other end has sent its byte: it is a node of a running world.
    Greeted,
    /// It was open, and the other end has closed or reset it.
    Closed,
    /// The other host refuses it.
    Refused,
    /// Nothing has answered in time: neither its opening, nor the kernel's probes of one that was open.
    Silent,
}

/// A connection that this node has accepted, numbered by the driver; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Answers the paths of other nodes to this one. It keeps no state: a path is only the prover's business.
#[derive(Debug, Clone)]
pub struct PathTarget {
    codec: Codec,
    me: NodeId,
    host: HostName,
    rails: Rails,
}

impl PathTarget {
    fn new(shared: &shared::Shared) -> Self {
        let Config { id, tag, keys, node, rails, .. } = &shared.config;
        let codec = Codec::new(*tag, keys.as_ref());
        Self { codec, me: *id, host: node.host.clone(), rails: rails.clone() }
    }

    /// The answer to a connection that has brought this token, due when two more bytes, the length of the
    /// padding (little endian), and the padding itself have arrived. None where the bytes are no token of a
    /// path to this node, nor ask for its rails: such a connection is closed.
    #[must_use]
    pub fn answer(&self, token: &[u8; TOKEN]) -> Option<Vec<u8>> {
        let path = self.codec.answer_path(token, self.me).map(|answer| answer.to_vec());
        path.or_else(|| self.codec.answer_ask(token, self.me, &self.host, &self.rails))
    }
}

/// The end of a connection at which this node opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The network interface by which every packet leaves, if the system lets this process decide that.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

/// An instruction for the driver, which carries out the outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send a datagram from the node's own port.
    Send {
        /// Where to.
        to: SocketAddr,
        /// At most [`MAX_DATAGRAM`] bytes.
        datagram: Vec<u8>,
    },
    /// Send a datagram from the node's own port to the group, on every interface.
    Multicast {
        /// At most [`MAX_DATAGRAM`] bytes.
        datagram: Vec<u8>,
    },
    /// Open a TCP connection, write the token, and keep it open. It carries nothing else.
    Dial {
        /// The name of the connection.
        dial: DialId,
        /// Where to.
        to: SocketAddr,
        /// The only bytes that are written.
        token: [u8; TOKEN],
    },
    /// Open a TCP connection that proves a path: write the token, the length of the padding (two bytes,
    /// little endian), and the padding, two full segments of the connection. Report what happens by
    /// [`Node::handle_path`].
    DialPath {
        /// The name of the connection.
        dial: DialId,
        /// Where to.
        to: SocketAddr,
        /// The first bytes.
        token: [u8; TOKEN],
        /// The answer of the target.
        answer: [u8; ANSWER],
        /// The longest packet to send, in bytes with the headers of IP and TCP; none as the kernel decides.
        packet: Option<u32>,
        /// From where, if the kernel is not to decide.
        from: Option<Source>,
    },
    /// Open a TCP connection that asks for rails: write the token and two zeros, the length of no padding.
    /// Read two bytes, the length of the answer (little endian, at most [`RAILS_ANSWER`]), and the answer,
    /// and report that by [`Node::handle_path`].
    AskRails {
        /// The name of the connection.
        dial: DialId,
        /// Where to.
        to: SocketAddr,
        /// The first bytes.
        token: [u8; TOKEN],
    },
    /// Open a TCP connection on which the other end sends one byte, and keep it open; the kernel probes it
    /// while it is idle. Report what happens by [`RunningWorld::handle_watch`].
    Watch {
        /// The name of the connection.
        dial: DialId,
        /// Where to.
        to: SocketAddr,
    },
    /// Close a connection that this node has opened, or stop opening it.
    HangUp(DialId),
    /// Reset a connection that this node has accepted.
    Close(ConnId),
    /// Accept no more connections: the port belongs to the job from now on.
    StopAccepting,
    /// Report to the caller.
    Event(Event),
}
