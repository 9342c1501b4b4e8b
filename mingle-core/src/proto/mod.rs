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

#[cfg(test)]
mod astray;
mod backoff;
mod election;
mod ending;
#[cfg(test)]
mod exhaustive;
mod follower;
mod leader;
mod master;
mod memory;
mod node;
mod observe;
mod outcome;
mod parts;
mod proof;
mod ranks;
mod round;
mod seeds;
mod seeking;
mod shared;
mod standing;
#[cfg(test)]
mod standing_tests;
mod timer;
mod waves;

use std::net::SocketAddr;
use std::time::Duration;

use crate::id::{HostName, JobTag, Lineage, NodeId, Rank, World};
use crate::metadata::Metadata;
use crate::rdma::Summary;
use crate::secret::Keys;

pub use crate::wire::{MAX_DATAGRAM, Notice, TOKEN};
pub use node::Node;
pub use observe::{Gathering, Observer, Sighting, Word};
pub use outcome::{End, Event, Failure, Formed, Heard, Over, Peer, Progress, RankRange, Report, Unproved};
pub use standing::{Change, Standing};
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
    /// The rank that was given to this node.
    pub rank: Option<Rank>,
    /// What the host calls itself.
    pub host: HostName,
    /// Where this node can be reached, TCP and UDP, in order of preference.
    pub endpoints: Vec<SocketAddr>,
    /// Whether a world that can have either family is one of IPv6.
    pub prefers_ipv6: bool,
    /// How many workers it will run.
    pub slots: u32,
    /// What its launcher wants the others to know.
    pub metadata: Metadata,
    /// How it orders the others, where it is the leader.
    pub rank_by: RankBy,
    /// Whether the roster is wanted.
    pub roster: bool,
    /// What RDMA the host has, for the others to compare.
    pub fabric: Summary,
    /// A hash of the variables that the user has set for all ranks, for the others to compare.
    pub settings: u64,
    /// Whether this node may become the master without having been given rank 0.
    pub may_be_master: bool,
    /// How long to wait; nothing waits for ever.
    pub timeout: Option<Duration>,
}

impl Config {
    /// A node without a secret, a rank or anything else special, which waits for ten minutes.
    ///
    /// ```
    /// use mingle_core::proto::Config;
    /// use mingle_core::{HostName, JobId, NodeId, World};
    ///
    /// let (job, here): (JobId, _) = ("foo".parse()?, "10.0.0.1:29500".parse().unwrap());
    /// let config = Config::new(NodeId([1; 16]), job.tag(), World::new(4)?, HostName::new("a"), vec![here]);
    /// let config = Config { roster: true, ..config };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(id: NodeId, tag: JobTag, world: World, host: HostName, endpoints: Vec<SocketAddr>) -> Self {
        Self {
            id,
            tag,
            keys: None,
            world,
            rank: None,
            host,
            endpoints,
            prefers_ipv6: false,
            slots: 1,
            metadata: Metadata::default(),
            lineage: Lineage::default(),
            rank_by: RankBy::Address,
            roster: false,
            fabric: Summary::default(),
            settings: 0,
            may_be_master: true,
            timeout: Some(TIMEOUT),
        }
    }

    /// Node `number` of a world without anything special.
    #[cfg(test)]
    fn plain(tag: JobTag, world: u32, number: u8, endpoint: SocketAddr) -> Self {
        let (world, host) = (World::new(world).unwrap(), HostName::new(&format!("host-{number}")));
        let timeout = Some(Duration::from_secs(30));
        Self { timeout, ..Self::new(NodeId([number; 16]), tag, world, host, vec![endpoint]) }
    }

    /// A node that was given rank 1 or more never gathers: it listens and asks.
    fn is_candidate(&self) -> bool {
        self.rank.is_none_or(|rank| rank.get() == 0)
    }

    /// This node, as a message to people names it.
    fn peer(&self) -> Peer {
        let address = self.endpoints.first().copied();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Peer { host: self.host.clone(), address: address.unwrap_or(nowhere) }
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
