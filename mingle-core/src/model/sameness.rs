//! Which traits differ between the ranks of a world, for people to read.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::traits::{Sent, TraitKey, TraitValue, Traits};
use mingle_rdma::most_frequent;

use super::{List, RankRange};

/// The most differences that are named. The others are counted.
const NAMED: usize = 3;
/// The most runs of ranks that are named for one difference.
const RUNS: usize = 4;

/// The traits that differ between the ranks of a world. Every rank has the same value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sameness {
    differences: List<TraitDifference, NAMED>,
    /// How many further traits differ.
    more: u32,
    /// The ranks that have no traits, where others have some.
    silent: Ranks,
}

/// A trait that differs. Its Display says how: `NCCL_ALGO differs: "Ring" on rank 3, "Tree" on the others`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TraitDifference {
    key: TraitKey,
    /// The value of most ranks.
    most: Shown,
    /// The value of the first of those that have another one.
    other: Shown,
    /// The ranks that do not have the value of most.
    ranks: Ranks,
    /// How many values there are.
    values: u32,
}

/// A value as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Shown {
    Missing,
    Hash(u32),
    Text(TraitValue),
}

/// Ranks in order: the first runs of them, and how many further ranks there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Ranks {
    runs: List<RankRange, RUNS>,
    more: u32,
}

impl Sameness {
    /// Compares the traits of the ranks of a world, which are given in order.
    pub(crate) fn of(ranks: &[&Traits]) -> Self {
        if ranks.iter().all(|traits| traits == &ranks[0]) {
            return Self::default();
        }
        let traits: Vec<Option<&Traits>> =
            ranks.iter().map(|traits| Some(*traits).filter(|traits| !traits.is_empty())).collect();
        let kinds: BTreeSet<&Traits> = traits.iter().copied().flatten().collect();
        let keys: BTreeSet<&TraitKey> = kinds.iter().flat_map(|traits| traits.0.keys()).collect();
        // Those that are few before those that are many: what each node has for itself comes last.
        let mut differing: Vec<(usize, &TraitKey)> = keys
            .into_iter()
            .map(|key| {
                let values: BTreeSet<_> =
                    kinds.iter().map(|traits| traits.0.get(key).map(|sent| sent.hash)).collect();
                (values.len(), key)
            })
            .filter(|(values, _)| *values > 1)
            .collect();
        differing.sort_unstable();
        let named = differing.iter().take(NAMED);
        Self {
            differences: named.filter_map(|(values, key)| difference(&traits, key, *values)).collect(),
            more: count(differing.len().saturating_sub(NAMED)),
            silent: Ranks::of(traits.iter().map(Option::is_none)),
        }
    }

    /// Whether the comparison found no difference.
    pub fn is_same(&self) -> bool {
        *self == Self::default()
    }

    /// A line for each named trait, for the number of further traits, and for the ranks whose traits are not
    /// known.
    pub fn lines(&self) -> Vec<String> {
        let more = match self.more {
            0 => None,
            1 => Some("1 more key differs".to_owned()),
            keys => Some(format!("{keys} more keys differ")),
        };
        let silent = (self.silent != Ranks::default())
            .then(|| format!("{} did not say what to compare with the other ranks", self.silent));
        self.differences.iter().map(ToString::to_string).chain(more).chain(silent).collect()
    }
}

/// How the ranks whose traits are known differ in this one.
fn difference(ranks: &[Option<&Traits>], key: &TraitKey, values: usize) -> Option<TraitDifference> {
    let value = |traits: &Traits| traits.0.get(key).map(|sent| sent.hash);
    let most = most_frequent(ranks.iter().flatten().map(|traits| value(traits)))?;
    let differs = |traits: &&Traits| value(traits) != most;
    let shown = |traits: Option<&Traits>| Shown::of(traits.and_then(|traits| traits.0.get(key)));
    let known = || ranks.iter().flatten().copied();
    Some(TraitDifference {
        key: key.clone(),
        most: shown(known().find(|traits| !differs(traits))),
        other: shown(known().find(differs)),
        ranks: Ranks::of(ranks.iter().map(|traits| traits.is_some_and(|traits| differs(&traits)))),
        values: count(values),
    })
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Shown {
    fn of(sent: Option<&Sent>) -> Self {
        match sent {
            None => Self::Missing,
            Some(Sent { shown: Some(value), .. }) => Self::Text(value.clone()),
            Some(sent) => Self::Hash(sent.hash),
        }
    }
}

impl Ranks {
    /// The ranks that are in, of all in order.
    fn of(ranks: impl Iterator<Item = bool>) -> Self {
        let runs = RankRange::runs((0..).zip(ranks).filter(|(_, is_in)| *is_in).map(|(rank, _)| rank));
        let more = runs.iter().skip(RUNS).map(|run| run.last - run.first + 1).sum();
        Self { runs: runs.into_iter().collect(), more }
    }

    /// The first of them.
    fn first(&self) -> u32 {
        self.runs.first().map_or(0, |run| run.first)
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&RankRange::list(&self.runs))?;
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("none"),
            Self::Hash(hash) => write!(f, "a value with the hash {hash:08x}"),
            Self::Text(value) => write!(f, "{:?}", value.as_str()),
        }
    }
}

impl fmt::Display for TraitDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, most, other, ranks, values } = self;
        if *values <= 2 {
            return write!(f, "{} differs: {other} on {ranks}, {most} on the others", key.as_str());
        }
        write!(f, "{} differs on {ranks}: {other} on rank {}, ", key.as_str(), ranks.first())?;
        write!(f, "{most} on most, {values} values in all")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trait;
    use super::*;

    impl Sameness {
        /// The longest on the wire.
        pub(crate) fn largest() -> Self {
            let value = || Shown::Text(TraitValue::cut(&"v".repeat(99)));
            let ranks = Ranks {
                runs: (0..99).map(|_| RankRange { first: u32::MAX, last: u32::MAX }).collect(),
                more: u32::MAX,
            };
            let key = TraitKey::cut(&"k".repeat(99));
            let difference = || TraitDifference {
                key: key.clone(),
                most: value(),
                other: value(),
                ranks: ranks.clone(),
                values: u32::MAX,
            };
            let differences = (0..99).map(|_| difference()).collect();
            Self { differences, more: u32::MAX, silent: ranks.clone() }
        }

        /// Rank 3 has another algorithm, and no rank but that one a variable that is not shown.
        pub(crate) fn example() -> Self {
            let common = || Trait::shown("NCCL_ALGO", "Tree");
            let odd = [Trait::shown("NCCL_ALGO", "Ring"), Trait::hidden("UCX_X", "1")];
            compared(&[vec![common()], vec![common()], vec![common()], odd.to_vec()])
        }
    }

    fn compared(ranks: &[Vec<Trait>]) -> Sameness {
        let traits: Vec<Traits> = ranks.iter().map(|traits| traits.iter().cloned().collect()).collect();
        Sameness::of(&traits.iter().collect::<Vec<_>>())
    }

    fn lines(sameness: &Sameness) -> Vec<String> {
        sameness.lines()
    }

    fn algo(value: &str) -> Vec<Trait> {
        vec![Trait::shown("NCCL_ALGO", value)]
    }

    #[test]
    fn one_difference_is_named_with_its_key_its_values_and_its_ranks() {
        assert_eq!(
            lines(&Sameness::example()),
            [
                "NCCL_ALGO differs: \"Ring\" on rank 3, \"Tree\" on the others",
                "UCX_X differs: a value with the hash 29153fbb on rank 3, none on the others"
            ]
        );
        assert!(compared(&[algo("Ring"), algo("Ring")]).is_same());
        assert!(compared(&[algo("Ring")]).is_same() && compared(&[]).is_same());
    }

    #[test]
    fn of_two_values_that_are_equally_frequent_that_of_rank_0_is_the_others() {
        let line = "NCCL_ALGO differs: \"b\" on ranks 1, 3, \"a\" on the others";
        assert_eq!(lines(&compared(&[algo("a"), algo("b"), algo("a"), algo("b")])), [line]);
    }

    #[test]
    fn of_three_values_the_frequent_one_and_the_first_of_the_others_are_named() {
        let line = "NCCL_ALGO differs on ranks 0, 2: \"a\" on rank 0, \"b\" on most, 3 values in all";
        assert_eq!(lines(&compared(&[algo("a"), algo("b"), algo("c"), algo("b")])), [line]);
    }

    #[test]
    fn three_keys_are_named_the_ones_with_few_values_first_and_the_others_are_counted() {
        let node = |n: usize| {
            let own = Trait::shown("AAA", n.to_string());
            let four = ["B", "C", "D", "E"].map(|key| Trait::shown(key, (n == 2).to_string()));
            std::iter::once(own).chain(four).collect::<Vec<_>>()
        };
        let lines = lines(&compared(&[node(0), node(1), node(2)]));
        assert_eq!(lines.len(), 4);
        assert!(lines[..3].iter().zip(["B ", "C ", "D "]).all(|(line, key)| line.starts_with(key)));
        assert_eq!(lines[3], "2 more keys differ");
    }

    #[test]
    fn ranks_that_have_said_nothing_are_named_where_others_have() {
        assert_eq!(
            lines(&compared(&[algo("a"), vec![], algo("a"), vec![]])),
            ["ranks 1, 3 did not say what to compare with the other ranks"]
        );
        assert!(compared(&[vec![], vec![]]).is_same());
    }

    #[test]
    fn many_ranks_are_counted() {
        let ranks: Vec<_> = (0..1000).map(|n| algo(if n % 100 == 7 { "x" } else { "y" })).collect();
        let line = "NCCL_ALGO differs: \"x\" on ranks 7, 107, 207, 307 and 6 more, \"y\" on the others";
        assert_eq!(lines(&compared(&ranks)), [line]);
    }
}
