//! What a node brings to its rendezvous.

use std::collections::BTreeSet;
#[cfg(test)]
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use crate::model::{HostName, World};
use crate::model::{JobTag, Keys, Lineage, NodeId, Traits, WorldSize};
use crate::proto::report::Tried;
use crate::wire::NodeInfo;

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
    /// What the node's datagrams say of its world, so that observers tell the worlds of a job apart.
    pub lineage: Lineage,
    /// This node as it describes itself to its leader.
    pub node: NodeInfo,
    /// What should be the same on every node. Without any, the node says nothing of that.
    pub traits: Arc<Traits>,
    /// The hosts of the job that the user has listed, by name or address: those that are absent are named.
    pub listed: BTreeSet<String>,
    /// How this node looks for others.
    pub tried: Tried,
    /// The interfaces that this node would use if they had multicast; loopback alone is left to it.
    pub without_multicast: Vec<String>,
    /// Whether to prefer IPv6 when every node has both families.
    pub prefers_ipv6: bool,
    /// How long to wait; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// How long a leader waits for one more node once the fewest of a range are here.
    pub last_call: Duration,
    /// Whether this node waits for a seat as long as the job runs without it, whatever its timeout.
    pub stands_by: bool,
    /// How many nodes less would be enough. A round of a world that forms again has one size, and another can
    /// follow with fewer nodes: a newcomer that would take RDMA from the others is refused.
    pub spare: u32,
    /// Whether this node looks for others beside multicast: no last call ends before
    /// [`Node::handle_searched`](crate::proto::Node::handle_searched).
    pub searches: bool,
}

impl Config {
    /// A node without a secret that waits for ten minutes.
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
            traits: Arc::default(),
            listed: BTreeSet::new(),
            tried: Tried::Multicast,
            without_multicast: Vec::new(),
            prefers_ipv6: false,
            timeout: Some(TIMEOUT),
            last_call: LAST_CALL,
            stands_by: false,
            spare: 0,
            searches: false,
        }
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
