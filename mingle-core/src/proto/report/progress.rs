//! How many nodes have joined, and which ranks are missing.

use std::fmt;

use crate::model::{HostName, Peer, WorldSize};
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

/// A range of ranks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankRange {
    /// The lowest rank.
    pub first: u32,
    /// The highest rank.
    pub last: u32,
}

impl RankRange {
    /// The ranks of `0..world` that are not in `present`, which must be sorted; at most `limit` ranges.
    pub fn missing(present: impl IntoIterator<Item = u32>, world: u32, limit: usize) -> Vec<Self> {
        let mut runs = Vec::new();
        let mut next = 0;
        for rank in present.into_iter().chain([world]) {
            if rank > next && runs.len() < limit {
                runs.push(Self { first: next, last: rank - 1 });
            }
            next = rank.saturating_add(1);
        }
        runs
    }

    /// The ranges as text: `rank 3`, or `ranks 1, 4-7`.
    pub fn list(runs: &[Self]) -> String {
        let list = runs.iter().map(Self::to_string).collect::<Vec<_>>().join(", ");
        let single = matches!(runs, [one] if one.first == one.last);
        if single { format!("rank {list}") } else { format!("ranks {list}") }
    }
}

impl fmt::Display for RankRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last.checked_sub(self.first) {
            Some(0) | None => write!(f, "{}", self.first),
            Some(_) => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_that_is_not_there_is_missing_the_first_and_the_last_too() {
        let missing = |present: &[u32], world, limit| {
            let runs = RankRange::missing(present.iter().copied(), world, limit);
            runs.into_iter().map(|run| (run.first, run.last)).collect::<Vec<_>>()
        };
        assert_eq!(missing(&[], 4, 9), [(0, 3)]);
        assert_eq!(missing(&[0, 1, 2, 3], 4, 9), []);
        assert_eq!(missing(&[1, 3], 6, 9), [(0, 0), (2, 2), (4, 5)]);
        assert_eq!(missing(&[0, 5], 6, 9), [(1, 4)]);
        assert_eq!(missing(&[1, 3], 6, 2), [(0, 0), (2, 2)]);
    }

    #[test]
    fn one_missing_rank_is_named_as_one_and_more_as_several() {
        for (present, text) in [(vec![0, 1, 2], "rank 3"), (vec![0], "ranks 1-3"), (vec![1, 2], "ranks 0, 3")]
        {
            assert_eq!(RankRange::list(&RankRange::missing(present, 4, 9)), text);
        }
    }
}
