//! What a node brings to its rendezvous.

use std::collections::BTreeSet;
#[cfg(test)]
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use crate::model::{HostName, World};
use crate::model::{JobTag, Keys, NodeId, Traits, WorldSize};
use crate::proto::report::Tried;
use crate::wire::NodeInfo;

/// How long a node waits for the others by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// How long a last call lasts by default.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(15);

/// How long a command may take to stop by default.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a suspected node may stay silent by default.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(30);

/// What a node brings to its rendezvous.
///
/// The struct is exhaustive, unlike the types that this crate returns: a simulation decides on every field
/// with a struct update.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of the caller")]
pub struct Config {
    /// The ID of this process: random, and never used before.
    pub id: NodeId,
    /// The tag of the job.
    pub tag: JobTag,
    /// The keys of a job with a secret.
    pub keys: Option<Keys>,
    /// How many nodes the world must have.
    pub world: WorldSize,
    /// How this node describes itself to its leader.
    pub node: NodeInfo,
    /// What should be the same on every node. Without traits, the node says nothing of that.
    pub traits: Arc<Traits>,
    /// The hosts that the user has listed for the job, by name or address. The report names listed hosts that
    /// are missing.
    pub listed: BTreeSet<String>,
    /// How this node looks for other nodes.
    pub tried: Tried,
    /// The interfaces that this node would use if they had multicast. If there are any, this node uses only
    /// loopback.
    pub without_multicast: Vec<String>,
    /// Whether to prefer IPv6 when every node has both families.
    pub prefers_ipv6: bool,
    /// How long to wait for the world; `None` waits forever.
    pub timeout: Option<Duration>,
    /// How long a leader waits for another node once the minimum of a range of sizes has joined.
    pub last_call: Duration,
    /// In a world that stays: how long a suspected member may stay silent before it is gone.
    pub gone_after: Duration,
    /// In a world that stays: how long the commands of a world that is over may take to stop.
    pub stop_timeout: Duration,
    /// The least time between two worlds that end to take in nodes that wait; `None` if no world does.
    pub grow_after: Option<Duration>,
    /// Whether this node waits for a seat as long as the job runs without it, even beyond its timeout.
    pub stands_by: bool,
    /// Whether the world forms although paths are broken, except to the master, and with two nodes or more
    /// once no more come.
    pub tries: bool,
}

impl Config {
    /// A node without a secret that waits for 10 minutes.
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
            node,
            traits: Arc::default(),
            listed: BTreeSet::new(),
            tried: Tried::Multicast,
            without_multicast: Vec::new(),
            prefers_ipv6: false,
            timeout: Some(TIMEOUT),
            last_call: LAST_CALL,
            gone_after: GONE_AFTER,
            stop_timeout: STOP_TIMEOUT,
            grow_after: None,
            stands_by: false,
            tries: false,
        }
    }

    /// The fewest nodes with which a world forms once no more come.
    pub(super) fn least(&self) -> u32 {
        let least = self.world.min().get();
        if self.tries { least.min(2) } else { least }
    }

    /// Whether the world may have fewer nodes than the most.
    pub(super) fn may_be_small(&self) -> bool {
        self.least() < self.world.max().get()
    }

    /// Node `number` of a plain world.
    #[cfg(test)]
    pub(super) fn plain(tag: JobTag, world: u32, number: u8, endpoint: SocketAddr) -> Self {
        let node = NodeInfo::new(HostName::new(&format!("host-{number}")), endpoint.into());
        let timeout = Some(Duration::from_secs(30));
        Self { timeout, ..Self::new(NodeId([number; 16]), tag, World::new(world).unwrap(), node) }
    }

    /// Whether the node may lead. A node that was given rank 1 or more never does: it listens and solicits.
    pub(super) fn is_candidate(&self) -> bool {
        self.node.rank.is_none_or(|rank| rank.get() == 0)
    }
}
