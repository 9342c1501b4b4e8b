//! Proofs over TCP that one node reaches another: the dials to a node, the tokens that have arrived from
//! others, and the proof of a round's master.

mod arrivals;
mod dials;
mod master;

pub(crate) use arrivals::Arrivals;
pub(crate) use dials::{Closed, Dials, Won};
pub(crate) use master::MasterProof;

/// The most dials that a node has open to another.
const OPEN: usize = 16;
