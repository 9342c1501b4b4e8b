//! The result: the variables that every world sets, whatever the user has set.

use super::Variable;
use crate::env::{Facts, job_to_env};

/// Computes the value of a variable.
type ResultValue = fn(Facts<'_>) -> String;

/// The variables of the result with their values, in the order in which they are printed.
const RESULT: [(&str, ResultValue); 13] = [
    ("MASTER_ADDR", master_address),
    ("MASTER_PORT", master_port),
    ("RANK", rank),
    ("WORLD_SIZE", world),
    ("NODE_RANK", rank),
    ("PET_NNODES", world),
    ("PET_NODE_RANK", rank),
    ("PET_MASTER_ADDR", master_address),
    ("PET_MASTER_PORT", master_port),
    ("MINGLE_JOB_ID", |facts| job_to_env(facts.job)),
    ("MINGLE_ROSTER_DIGEST", |facts| facts.formed.digest.to_string()),
    ("MINGLE_RANK_OFFSET", |facts| facts.formed.slots.before.to_string()),
    ("MINGLE_TOTAL_SLOTS", |facts| facts.formed.slots.total.to_string()),
];

/// The variables that a world has only where its size may be one of several.
const BOUNDS: [(&str, ResultValue); 2] = [
    ("MINGLE_WORLD_MIN", |facts| facts.formed.asked.min().to_string()),
    ("MINGLE_WORLD_MAX", |facts| facts.formed.asked.max().to_string()),
];

fn master_address(facts: Facts<'_>) -> String {
    facts.formed.master.ip().to_string()
}

fn master_port(facts: Facts<'_>) -> String {
    facts.formed.master.port().to_string()
}

fn rank(facts: Facts<'_>) -> String {
    facts.formed.rank.to_string()
}

fn world(facts: Facts<'_>) -> String {
    facts.formed.world.to_string()
}

/// The result, in the order in which it is printed.
pub(super) fn result(facts: Facts<'_>) -> impl Iterator<Item = Variable> {
    RESULT.into_iter().map(move |(name, value)| (name.into(), value(facts)))
}

/// The fewest and the most nodes, where the world may have one of several sizes.
pub(super) fn bounds(facts: Facts<'_>) -> Vec<Variable> {
    let bounds = BOUNDS.into_iter().filter(|_| facts.formed.asked.is_range());
    bounds.map(|(name, value)| (name.into(), value(facts))).collect()
}

/// Whether the variable `name` is printed for some worlds only, and so may be left from an earlier one.
pub(super) fn is_bound(name: &str) -> bool {
    BOUNDS.iter().any(|(bound, _)| *bound == name)
}

/// Whether the variable `name` is part of the result.
pub(in crate::env) fn is_result(name: &str) -> bool {
    RESULT.iter().any(|(result, _)| *result == name)
}
