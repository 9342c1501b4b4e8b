//! The protocol as a state machine: no socket, no clock, no global randomness.
//!
//! A [`Node`] is told what happens (`handle_*`, each with the time) and asked what to do
//! ([`Node::poll_output`], [`Node::poll_timeout`]). The driver in `net` does that with real sockets;
//! a simulation does it with a seed, and the same seed gives the same run. Most programs want
//! `Rendezvous` instead.
//!
//! `seeking` finds who gathers, by the order in `election`; `leader` and `round` are the side that
//! gathers, `follower` the side that joins, `proof` and `master` the connections that prove.
//! `leader` and `follower` do not know each other: `node` hands each what concerns it.
//! `PROTOCOL.md` has the reasons.

mod backoff;
mod election;
mod ending;
#[cfg(test)]
mod exhaustive;
mod follower;
mod leader;
mod master;
mod memory;
#[cfg(test)]
mod misdirected_tests;
mod node;
pub(crate) mod observe;
mod parts;
mod proof;
mod ranks;
mod report;
mod round;
mod running;
#[cfg(test)]
mod running_tests;
mod seeds;
mod seeking;
mod shared;
mod timer;
mod waves;

use std::net::SocketAddr;
use std::time::Duration;

#[cfg(test)]
use crate::model::HostName;
use crate::model::World;

pub use crate::model::{Digest, Endpoints, JobTag, Keys, Lineage, NodeId, Peer, Slots};
pub use crate::wire::{Attributes, MAX_DATAGRAM, NodeInfo, TOKEN, VERSION};
pub use node::Node;
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
}

/// How long a node waits for the others unless it is told.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

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
    pub world: World,
    /// Which formation of the job it is; the first, unless this node comes from an earlier one or has heard of a
    /// later one.
    pub lineage: Lineage,
    /// What the leader is told of this node.
    pub node: NodeInfo,
    /// Whether a world that can have either family is one of IPv6.
    pub prefers_ipv6: bool,
    /// How it orders the others, where it is the leader.
    pub rank_by: RankBy,
    /// How long to wait; nothing waits for ever.
    pub timeout: Option<Duration>,
}

impl Config {
    /// A node without a secret, in the first formation of its job, which waits for ten minutes.
    ///
    /// ```
    /// use mingle_core::proto::{Config, Endpoints, NodeId, NodeInfo};
    /// use mingle_core::{HostName, JobId, World};
    ///
    /// let (job, here): (JobId, Endpoints) = ("foo".parse()?, "10.0.0.1:29500".parse::<std::net::SocketAddr>()?.into());
    /// let node = NodeInfo::new(HostName::new("a"), here);
    /// let config = Config::new(NodeId([1; 16]), job.tag(), World::new(4)?, node);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(id: NodeId, tag: JobTag, world: World, node: NodeInfo) -> Self {
        Self {
            id,
            tag,
            keys: None,
            world,
            lineage: Lineage::default(),
            node,
            prefers_ipv6: false,
            rank_by: RankBy::Address,
            timeout: Some(TIMEOUT),
        }
    }

    /// Node `number` of a world without anything special.
    #[cfg(test)]
    fn plain(tag: JobTag, world: u32, number: u8, endpoint: SocketAddr) -> Self {
        let node = NodeInfo::new(HostName::new(&format!("host-{number}")), endpoint.into());
        let timeout = Some(Duration::from_secs(30));
        Self { timeout, ..Self::new(NodeId([number; 16]), tag, World::new(world).unwrap(), node) }
    }

    /// A node that was given rank 1 or more never gathers: it listens and asks.
    fn is_candidate(&self) -> bool {
        self.node.rank.is_none_or(|rank| rank.get() == 0)
    }
}

/// A connection that this node opens, numbered by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u32);

/// A connection that this node has accepted, numbered by the driver; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What the driver is to do. Outputs are carried out in order.
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
    /// Close a connection that this node has opened, or stop opening it.
    HangUp(DialId),
    /// Reset a connection that this node has accepted.
    Close(ConnId),
    /// Accept no more connections: the port belongs to the job from now on.
    StopAccepting,
    /// Tell the caller.
    Event(Event),
}
