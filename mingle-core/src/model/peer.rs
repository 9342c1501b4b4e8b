//! Another node as messages to people name it, and how its command ended.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::HostName;

/// Another node, as messages to the user name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// The name that the node's host has for itself.
    pub host: HostName,
    /// The node's preferred endpoint, or the source address of its datagrams if no endpoint is known.
    pub address: SocketAddr,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.host, self.address)
    }
}

/// How a node's command ended, as the other nodes learn it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum End {
    /// The command exited with this code, 1 to 255.
    Exited(u8),
    /// The signal of this number killed the command.
    Killed(u8),
    /// The node is dead: no other node gets an answer from it.
    Gone,
    /// How the command ended is not known.
    Unknown,
    /// The node was asked to leave, as in a drain. No command has failed.
    Left,
    /// The world ends to take in waiting nodes. No command has failed.
    Grows,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::Gone => f.write_str("the node is gone"),
            Self::Unknown => f.write_str("the cause is not known"),
            Self::Left => f.write_str("it was asked to leave"),
            Self::Grows => f.write_str("it takes in nodes that wait"),
        }
    }
}
