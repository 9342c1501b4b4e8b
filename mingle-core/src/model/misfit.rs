//! A node that wants what the others of its job do not want.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{HostName, Peer, Rank, User, WorldSize, deserialize_unicast};

/// A node that uses the job ID, but that no leader of this job can seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfit {
    /// The name of the node's host.
    pub host: HostName,
    /// The source address of the node's datagrams.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub address: SocketAddr,
    /// Why the leader cannot seat the node.
    pub reason: Unfit,
}

/// Why a leader cannot seat a node beside the other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Unfit {
    /// The node expects a world of this size.
    World(WorldSize),
    /// The node runs as this user, and the leader as another user.
    User(User),
    /// The node was given this rank, which belongs to another node that answers.
    Rank(Rank),
    /// A node on the host of this name has the same address and port, and both nodes are heard.
    Address(HostName),
    /// The node goes on leading, and does not join this leader.
    Apart(Peer),
}

impl Misfit {
    /// Two hosts that have this address: in an order, so that users are told once of the two.
    pub(crate) fn of_twins(one: &HostName, other: &HostName, address: SocketAddr) -> Self {
        let (host, other) = (one.min(other).clone(), one.max(other).clone());
        Self { host, address, reason: Unfit::Address(other) }
    }

    /// A node that leads on, and does not join this leader.
    pub(crate) fn apart(node: Peer, leader: Peer) -> Self {
        Self { host: node.host, address: node.address, reason: Unfit::Apart(leader) }
    }

    /// Whether two hosts have the same address.
    pub fn is_of_twins(&self) -> bool {
        matches!(self.reason, Unfit::Address(_))
    }

    /// Whether the node wants what the others want, and the network keeps it from them.
    pub fn is_of_network(&self) -> bool {
        matches!(self.reason, Unfit::Address(_) | Unfit::Apart(_))
    }

    pub(crate) fn is_apart(&self) -> bool {
        matches!(self.reason, Unfit::Apart(_))
    }

    /// Whether both are of one host and one reason, so that users need not be told twice.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.host == other.host && self.reason == other.reason
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, reason } = self;
        match reason {
            Unfit::World(size) => write!(f, "{host} ({address}) expects a world of {size}"),
            Unfit::User(user) => write!(f, "{host} ({address}) uses this job ID as another user, {user}"),
            Unfit::Rank(rank) => {
                write!(f, "{host} ({address}) was given rank {rank}, which another node has")
            }
            Unfit::Address(other) => {
                write!(f, "{host} and {other} have the same IP address, {}", address.ip())
            }
            Unfit::Apart(leader) => {
                let leader = &leader.host;
                write!(
                    f,
                    "{host} ({address}) does not join {leader}: one does not hear the other, or cannot connect"
                )
            }
        }
    }
}
