//! A node as it describes itself to its leader.

use serde::{Deserialize, Serialize};

use crate::model::{Endpoints, HostName, Metadata, Peer, Rank};
use crate::rdma::Summary;

/// A node as it describes itself to its leader. A join carries it, and the leader's book of members keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The rank that the user gave to the node; none where the leader assigns one.
    pub rank: Option<Rank>,
    /// The name that the host has for itself.
    pub host: HostName,
    /// The endpoints at which the node can be reached, TCP and UDP.
    pub endpoints: Endpoints,
    /// The other facts about the node, which the caller gives.
    pub attributes: Attributes,
}

/// The facts that the caller gives about a node, beside its name and its endpoints.
///
/// A new attribute of a node goes here: the join carries it to the leader, and all code reads it from here.
/// The order of the fields is their order on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// How many workers the node will run, usually one for each GPU.
    pub slots: u32,
    /// What the node's launcher wants the other nodes to know.
    pub metadata: Metadata,
    /// Whether the node may become the master without having been given rank 0.
    pub may_be_master: bool,
    /// Whether the node wants the roster.
    pub wants_roster: bool,
    /// The host's RDMA devices, for the leader to compare.
    pub fabric: Summary,
    /// A hash of the variables that the user sets for all ranks, for the leader to compare; 0 where there are
    /// none.
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

    /// The name and the preferred endpoint of the node, by which people recognize it.
    pub fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}
