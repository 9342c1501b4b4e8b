//! The result: the variables that every world sets, whatever the user has set.

use super::Variable;
use crate::env::{Facts, job_to_env};
use crate::model::World;

/// Computes the value of a variable.
type ResultValue = fn(Facts<'_>) -> String;

/// The variables of the result with their values, in the order in which they are printed.
const RESULT: [(&str, ResultValue); 13] = [
    ("MASTER_ADDR", |facts| facts.formed.master.ip().to_string()),
    ("MASTER_PORT", |facts| facts.formed.master.port().to_string()),
    ("RANK", |facts| facts.formed.rank.to_string()),
    ("WORLD_SIZE", |facts| facts.formed.world.to_string()),
    ("NODE_RANK", |facts| facts.formed.rank.to_string()),
    ("PET_NNODES", |facts| facts.formed.world.to_string()),
    ("PET_NODE_RANK", |facts| facts.formed.rank.to_string()),
    ("PET_MASTER_ADDR", |facts| facts.formed.master.ip().to_string()),
    ("PET_MASTER_PORT", |facts| facts.formed.master.port().to_string()),
    ("MINGLE_JOB_ID", |facts| job_to_env(facts.job)),
    ("MINGLE_ROSTER_DIGEST", |facts| facts.formed.digest.to_string()),
    ("MINGLE_RANK_OFFSET", |facts| facts.formed.slots.before.to_string()),
    ("MINGLE_TOTAL_SLOTS", |facts| facts.formed.slots.total.to_string()),
];

/// The value of a variable, in those worlds that have it.
type OptionalValue = fn(Facts<'_>) -> Option<String>;

/// The variables that some worlds have: the bounds of a world whose size may be one of several, and the ports
/// that are held for the job, in the syntax of lists of GPUs.
const OPTIONAL: [(&str, OptionalValue); 3] = [
    ("MINGLE_WORLD_MIN", |facts| bound(facts, facts.formed.asked.min())),
    ("MINGLE_WORLD_MAX", |facts| bound(facts, facts.formed.asked.max())),
    ("MINGLE_PORT_LIST", |facts| {
        let numbers: Vec<String> = facts.ports.iter().map(u16::to_string).collect();
        Some(numbers.join(",")).filter(|list| !list.is_empty())
    }),
];

fn bound(facts: Facts<'_>, bound: World) -> Option<String> {
    facts.formed.asked.is_range().then(|| bound.to_string())
}

/// The result, in the order in which it is printed.
pub(super) fn result(facts: Facts<'_>) -> impl Iterator<Item = Variable> {
    RESULT.into_iter().map(move |(name, value)| (name, value(facts)))
}

/// The variables that this world has and others do not.
pub(super) fn optional(facts: Facts<'_>) -> impl Iterator<Item = Variable> {
    OPTIONAL.into_iter().filter_map(move |(name, value)| Some((name, value(facts)?)))
}

/// Whether the variable `name` is printed for some worlds only, and so may be left from an earlier one.
pub(super) fn is_optional(name: &str) -> bool {
    OPTIONAL.iter().any(|(optional, _)| *optional == name)
}
