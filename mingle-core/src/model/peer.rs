//! Another node as people are told of it, and how its command ended.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::HostName;

/// Another node, as a message to a person names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// What its host calls itself.
    pub host: HostName,
    /// Where it was heard from, or its preferred endpoint.
    pub address: SocketAddr,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.host, self.address)
    }
}

/// How a node's command ended, as others are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum End {
    /// With this exit code, which is not 0.
    Exited(u8),
    /// By this signal.
    Killed(u8),
    /// The node itself is gone: it answers nobody.
    Gone,
    /// Nobody has said.
    Unknown,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::Gone => f.write_str("the node is gone"),
            Self::Unknown => f.write_str("nobody has said why"),
        }
    }
}
