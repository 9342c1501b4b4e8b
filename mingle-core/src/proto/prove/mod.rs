//! Proofs over TCP that one node reaches another, on the ports that the job will use.

mod paths;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use paths::PathProofs;

/// How long a node tries before it reports what it cannot prove.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
