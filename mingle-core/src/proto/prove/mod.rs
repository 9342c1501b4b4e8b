//! Proofs over TCP that one node reaches another: on the master's own port, and on a port of each other node
//! in the place of those that the job will choose.

mod paths;
#[cfg(test)]
mod tests;

pub(crate) use paths::{PATIENCE, PathProofs};
