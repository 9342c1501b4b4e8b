//! What changes for a node while its world runs.

use super::Over;
use crate::model::{Peer, Rank};

/// A change of a running world.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The world is over, and this node's own command is not the cause: the caller must stop its command.
    Over(Over),
    /// The first cause, for a world that is already over: the node of this rank is dead or has left, and the
    /// commands of other nodes have failed because of that.
    Cause(Over),
    /// The world is over, and this node may now go on to the next world, or end.
    Notified,
    /// The node of this rank does not answer. The node may be dead.
    Suspected(Rank, Peer),
    /// The node of this rank was suspected, and answers again.
    Back(Rank, Peer),
    /// So few other nodes answer that this node may be cut off. Its command goes on, since the job may use
    /// another network.
    CutOff,
    /// This many nodes now wait for a seat, as the leader says.
    Waiting(u32),
    /// The commands of all nodes have succeeded.
    Finished,
}
