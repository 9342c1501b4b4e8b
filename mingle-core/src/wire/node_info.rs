//! A node as its leader knows it.

use serde::{Deserialize, Serialize};

use crate::model::{Endpoints, HostName, Metadata, Peer, Rank};
use crate::rdma::Summary;

/// What a node tells its leader of itself. A join carries it, and the leader's book of members keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The rank that the user gave to this node.
    pub rank: Option<Rank>,
    /// The host's own name.
    pub host: HostName,
    /// Where this node can be reached, TCP and UDP.
    pub endpoints: Endpoints,
    /// Everything else that its caller says of it.
    pub attributes: Attributes,
}

/// What the caller of a node says of it, beside its name and its addresses.
///
/// This is the place for a new attribute of a node: it reaches the leader with the join, and every use of it reads it
/// from here. The order of the fields is their order on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// How many workers the node will run.
    pub slots: u32,
    /// What its launcher wants the others to know.
    pub metadata: Metadata,
    /// Whether the node may become the master without having been given rank 0.
    pub may_be_master: bool,
    /// Whether the node wants the roster.
    pub wants_roster: bool,
    /// What RDMA the host has, for the leader to compare.
    pub fabric: Summary,
    /// A hash of the variables that the user has set for all ranks, for the leader to compare.
    pub settings: u64,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            slots: 1,
            metadata: Metadata::default(),
            may_be_master: true,
            wants_roster: false,
            fabric: Summary::default(),
            settings: 0,
        }
    }
}

impl NodeInfo {
    /// A node without a given rank and with the default attributes.
    pub fn new(host: HostName, endpoints: Endpoints) -> Self {
        Self { rank: None, host, endpoints, attributes: Attributes::default() }
    }

    /// This node as a message to people names it.
    pub fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}
