//! What a node brings to its rendezvous.

use std::collections::BTreeSet;
#[cfg(test)]
use std::net::SocketAddr;
use std::time::Duration;

use super::timer::Time;
#[cfg(test)]
use crate::model::{HostName, World};
use crate::model::{JobTag, Keys, Lineage, NodeId, Traits, WorldSize};
use crate::wire::{Former, NodeInfo};

/// How long a node waits for the others by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// How long a last call lasts by default.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(15);

/// How long a suspected member of a running world may stay silent by default.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(30);

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
    /// What should be the same on every node. The stamp in `node` is of these.
    pub traits: Traits,
    /// The hosts of the job that the user has listed, by name or address: those that are absent are named.
    pub listed: BTreeSet<String>,
    /// Whether to prefer IPv6 when every node has both families.
    pub prefers_ipv6: bool,
    /// How long to wait; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// How long a leader waits for one more node once the fewest of a range are here.
    pub last_call: Duration,
    /// How long former members may take to come, since the start of this node, if it is one of them. Seats
    /// are kept for them, since newcomers are here first: the members' commands stop meanwhile.
    pub awaited: Option<Time>,
    /// Whether this node waits for a seat as long as the job runs without it, whatever its timeout.
    pub stands_by: bool,
    /// How long a member of the running world that is suspected may stay silent before it is gone.
    pub gone_after: Duration,
    /// Whether this node looks for others beside multicast: no last call ends before
    /// [`Node::handle_searched`](crate::proto::Node::handle_searched).
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
            traits: Traits::default(),
            listed: BTreeSet::new(),
            prefers_ipv6: false,
            timeout: Some(TIMEOUT),
            last_call: LAST_CALL,
            awaited: None,
            stands_by: false,
            gone_after: GONE_AFTER,
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

    /// This node was a member of the world before. The other members have until `until` to come.
    pub fn succeed(&mut self, former: Former, until: Time) {
        self.node.former = Some(former);
        self.awaited = Some(until);
    }

    /// Whether the node may lead. One that was given rank 1 or more never does: it listens and solicits. Nor
    /// does a newcomer to a job that has restarted, if a world may form without some of the former members:
    /// it does not know how many of them are about to come.
    pub(super) fn is_candidate(&self) -> bool {
        !self.is_newcomer() && self.node.rank.is_none_or(|rank| rank.get() == 0)
    }

    /// Whether the node leaves leading to former members.
    pub(super) fn is_newcomer(&self) -> bool {
        self.world.is_range() && self.lineage.generation > 0 && self.awaited.is_none()
    }
}
