//! Ranges of ranks, for people to read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A range of ranks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankRange {
    /// The lowest rank.
    pub first: u32,
    /// The highest rank.
    pub last: u32,
}

impl RankRange {
    /// The ranges of these ranks, which must be sorted.
    pub(crate) fn runs(ranks: impl IntoIterator<Item = u32>) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for rank in ranks {
            match runs.last_mut() {
                Some(run) if run.last.checked_add(1) == Some(rank) => run.last = rank,
                _ => runs.push(Self { first: rank, last: rank }),
            }
        }
        runs
    }

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
        let Self { first, last } = self;
        if first < last { write!(f, "{first}-{last}") } else { first.fmt(f) }
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
    fn ranks_are_named_in_as_few_ranges_as_there_can_be() {
        let named = |ranks: &[u32]| RankRange::list(&RankRange::runs(ranks.iter().copied()));
        assert_eq!(named(&[3]), "rank 3");
        assert_eq!(named(&[0, 1, 4, 5]), "ranks 0-1, 4-5");
        assert!(RankRange::runs([]).is_empty());
    }

    #[test]
    fn one_missing_rank_is_named_as_one_and_more_as_several() {
        for (present, text) in [(vec![0, 1, 2], "rank 3"), (vec![0], "ranks 1-3"), (vec![1, 2], "ranks 0, 3")]
        {
            assert_eq!(RankRange::list(&RankRange::missing(present, 4, 9)), text);
        }
    }
}
