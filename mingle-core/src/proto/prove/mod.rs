//! Proofs over TCP that one node reaches another: the dials to a node, the tokens that have arrived from
//! others, and in a round the proofs of the master, and of the paths to other nodes.

mod arrivals;
mod dials;
mod master;
mod paths;
mod proofs;
mod target;
#[cfg(test)]
mod tests;
mod tries;

use std::time::Duration;

pub(crate) use arrivals::{Arrivals, Ends};
pub(crate) use dials::{Dials, Won};
#[cfg(feature = "net")]
pub(crate) use paths::PathProofs;
pub(crate) use proofs::Proofs;
pub use target::PathTarget;

/// How long a node tries before it reports what it cannot prove.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// The most dials that a node has open to another.
const OPEN: usize = 16;
