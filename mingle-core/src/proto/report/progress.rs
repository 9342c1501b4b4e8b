//! How many nodes have joined, and which ranks are missing.

use std::fmt;

use crate::model::{HostName, Peer, RankRange, WorldSize};
use crate::wire::{Candidate, Count};

/// How many members there are, as the leader counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The number of members, the leader included.
    pub joined: u32,
    /// The size of the world that was asked for.
    pub world: WorldSize,
    /// The hosts that joined last, the newest first. The list may leave out some new hosts.
    pub newest: Vec<HostName>,
    /// The given ranks that are still missing. Known only while every member has a given rank.
    pub missing: Vec<RankRange>,
    /// The leader.
    pub leader: Peer,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} nodes here", self.joined, self.world)?;
        if !self.missing.is_empty() {
            write!(f, ", missing {}", RankRange::list(&self.missing))?;
        }
        Ok(())
    }
}

impl Count {
    /// The progress of this leader.
    pub(crate) fn progress(&self, leader: &Candidate) -> Progress {
        let missing = self.missing.iter().map(|&(first, last)| RankRange { first, last });
        Progress {
            joined: self.joined,
            world: leader.world,
            newest: self.newest.to_vec(),
            missing: missing.collect(),
            leader: leader.peer(),
        }
    }
}
