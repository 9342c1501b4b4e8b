//! The messages of datagrams, and their bodies.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{config, read, write};
use crate::model::{Endpoints, HostName, List, NodeId, Peer, User, WorldSize, deserialize_unicast};

/// The most host names in an announce.
pub(crate) const NEWEST: usize = 2;
/// The most ranges of missing ranks in an announce.
pub(crate) const RUNS: usize = 6;
/// The most addresses of the leader of a running world.
pub(crate) const LEADERS: usize = 8;

/// What a datagram says. The number of the kind is that of the variant, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A candidate announces itself to all nodes, with how far it has come.
    Announce(Announce),
    /// A node without a leader asks all nodes who leads; a follower asks its own leader, a member its seeds.
    /// The leader of a world that is over asks whether others have gone on.
    Solicit(Solicit),
    /// A member introduces its leader to a node that solicits, or to all; and two candidates to each other.
    Hint(Introduction),
    /// A member of a running world tells a newcomer or an observer that the job runs, and who leads.
    Running(Running),
    /// An observer, which is no node, asks who leads the world that runs.
    Query,
}

/// The kind of [`Message::Query`].
pub(super) const QUERY: u8 = 5;

impl Message {
    /// Whether the message may be addressed to this recipient. Any other makes a datagram malformed, so a
    /// message to one node has no effect if it is sent to all.
    pub(crate) fn may_be_to(&self, recipient: NodeId) -> bool {
        match self {
            Self::Announce(_) | Self::Solicit(_) => true,
            Self::Hint(_) => recipient != NodeId::ANYONE,
            Self::Query => recipient == NodeId::ALL,
            Self::Running(_) => ![NodeId::ALL, NodeId::ANYONE].contains(&recipient),
        }
    }

    /// The kind, which is in the header, and the body.
    pub(super) fn encode(&self) -> (u8, Vec<u8>) {
        let mut body = write(self, config());
        let variant = body.remove(0);
        (variant + 1, body)
    }

    pub(super) fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        read(&[&[kind.checked_sub(1)?], body].concat(), config())
    }

    /// Whether the message is padded to [`PADDED`](super::PADDED) bytes: its recipient writes to an address
    /// that it does not know yet, the sender's or the one in the message.
    pub(super) fn is_padded(&self) -> bool {
        matches!(self, Self::Announce(_) | Self::Solicit(_) | Self::Hint(_) | Self::Query)
    }
}

/// A node that leads, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) id: NodeId,
    /// Whether the user gave it rank 0.
    pub(crate) explicit: bool,
    /// The most members that it has ever had, itself included. Never decreases.
    pub(crate) members: u32,
    pub(crate) world: WorldSize,
    pub(crate) host: HostName,
    pub(crate) endpoints: Endpoints,
}

impl Candidate {
    /// The node as messages to the user name it.
    pub(crate) fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announce {
    pub(crate) candidate: Candidate,
    pub(crate) count: Count,
    /// Who runs the candidate.
    pub(crate) user: User,
}

/// How far a leader has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// How many members it has now, itself included.
    pub(crate) joined: u32,
    /// The hosts of the members that joined last, newest first.
    pub(crate) newest: List<HostName, NEWEST>,
    /// The missing ranks, where all are given: the first and the last rank of each range.
    pub(crate) missing: List<(u32, u32), RUNS>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Solicit {
    /// The rank that the user gave to the sender.
    pub(crate) rank: Option<u32>,
    pub(crate) host: HostName,
}

/// A candidate, introduced by another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) candidate: Candidate,
    /// The source address of the candidate's datagrams, as the sender sees it.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) source: SocketAddr,
}

/// What a newcomer or an observer learns of a world that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// The process that leads, which takes newcomers in.
    pub(crate) leader: NodeId,
    /// The generation of the last world that the sender knows.
    pub(crate) generation: u32,
    /// Where the leader accepts sessions.
    pub(crate) addresses: List<SocketAddr, LEADERS>,
    /// The host and the user of the node that says this.
    pub(crate) host: HostName,
    pub(crate) user: User,
}
