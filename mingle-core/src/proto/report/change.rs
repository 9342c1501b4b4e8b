//! What changes for a node while its world runs.

use super::Over;
use crate::model::{Peer, Rank};

/// What has changed for a running world.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The world is over, and not by this node's own command: its command must stop.
    Over(Over),
    /// The world was over before, and this is the first cause: the node of this rank is gone or has left, and
    /// the commands of others have failed because of that.
    Cause(Over),
    /// The world is over, and this node may go on: to the next world, or to its own end.
    Notified,
    /// The node of this rank does not answer. It may be gone.
    Suspected(Rank, Peer),
    /// The node of this rank was suspected, and is there.
    Back(Rank, Peer),
    /// So few other nodes answer that this one may be cut off. Its command goes on: the job may have another
    /// network.
    CutOff,
    /// So many nodes wait for a seat now, as the leader says.
    Waiting(u32),
    /// Every node's command has ended well.
    Finished,
}
