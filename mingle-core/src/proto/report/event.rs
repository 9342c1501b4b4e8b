//! What happens on the way to a world.

use super::{Failure, Formed, Over, Progress, Warning};
use crate::model::Peer;

/// Something that the caller may want to show or act on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// This node leads now.
    Leading,
    /// This node no longer leads, and has joined no other leader: either no other node can connect to it, or
    /// the world has formed without it.
    SteppedDown,
    /// The leader has counted this node as a member.
    Following(Peer),
    /// The leader is gone or does not answer; this node looks for another.
    LostLeader(Peer),
    /// The number of members, or the set of missing ranks, has changed.
    Progress(Progress),
    /// A problem that does not end the rendezvous.
    Warning(Warning),
    /// All seats are taken: a round has begun, in which ranks are assigned and every node proves its paths.
    Preparing {
        /// The number of the round, counted by the leader from 1.
        round: u64,
    },
    /// The first cause of the end of the world before, which was known without it.
    FirstCause(Over),
    /// The end: the world has formed.
    Formed(Formed),
    /// The end: no world has formed for this node.
    Failed(Failure),
}
