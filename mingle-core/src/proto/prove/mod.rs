//! Proofs over TCP that one node reaches another: the dials to a leader, the tokens that have arrived from
//! others, and in a round the paths to the master's port and to other nodes.

mod arrivals;
mod dials;
mod paths;
mod target;
#[cfg(test)]
mod tests;
mod tries;

use std::time::Duration;

pub(crate) use arrivals::{Arrival, Arrivals, Ends};
pub(crate) use dials::Dials;
pub(crate) use paths::PathProofs;
pub use target::PathTarget;

/// How long a node tries before it reports what it cannot prove.
const PATIENCE: Duration = Duration::from_secs(4);

/// The most dials that a node has open to another.
const OPEN: usize = 16;
