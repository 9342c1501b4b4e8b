//! A node that wants what the others of its job do not want.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{HostName, Rank, User, WorldSize, deserialize_unicast};

/// A node that uses the job ID and that no leader of the others can seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfit {
    /// Its host's name.
    pub host: HostName,
    /// The source address of its datagrams.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub address: SocketAddr,
    /// Why it cannot be seated.
    pub reason: Unfit,
}

/// Why a node cannot be seated beside the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Unfit {
    /// It expects a world of this size.
    World(WorldSize),
    /// It runs as this user, and the leader as another.
    User(User),
    /// It was given this rank, which another node has that answers.
    Rank(Rank),
    /// Its address and port are also those of a node on the host of this name, and both are heard.
    Address(HostName),
}

impl Misfit {
    /// Two hosts that have this address: in an order, so that users are told once of the two.
    pub(crate) fn of_twins(one: &HostName, other: &HostName, address: SocketAddr) -> Self {
        let (host, other) = (one.min(other).clone(), one.max(other).clone());
        Self { host, address, reason: Unfit::Address(other) }
    }

    /// Whether it is two hosts with one address.
    pub fn is_of_twins(&self) -> bool {
        matches!(self.reason, Unfit::Address(_))
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
            Unfit::World(size) => write!(f, "{host} ({address}) expects a world of {size:#}"),
            Unfit::User(user) => write!(f, "{host} ({address}) uses this job ID as another user, {user}"),
            Unfit::Rank(rank) => {
                write!(f, "{host} ({address}) was given rank {rank}, which another node has")
            }
            Unfit::Address(other) => {
                write!(f, "{host} and {other} have the same IP address, {}", address.ip())
            }
        }
    }
}
