//! What happens on the way to a world.

use super::{Failure, Formed, Over, Progress, Warning};
use crate::model::Peer;

/// An event that the caller may want to show or act on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// This node is now the leader.
    Leading,
    /// This node no longer leads, and has joined no other leader. Either no other node can connect to this
    /// node, or the world has formed without it.
    SteppedDown,
    /// The leader has counted this node as a member.
    Following(Peer),
    /// The leader is gone or does not answer, and this node looks for another leader.
    LostLeader(Peer),
    /// The number of members, or the set of missing ranks, has changed.
    Progress(Progress),
    /// A problem that does not end the rendezvous.
    Warning(Warning),
    /// All seats are taken, and a round has begun: the leader assigns ranks, and every node proves its paths.
    Preparing {
        /// The number of the round, which the leader counts from 1.
        round: u64,
    },
    /// The first cause of the end of the last world. That world ended before its cause was known.
    FirstCause(Over),
    /// The end: the world has formed.
    Formed(Formed),
    /// The end: no world has formed for this node.
    Failed(Failure),
}
