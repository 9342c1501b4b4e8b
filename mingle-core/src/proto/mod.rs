//! The protocol as a state machine.

mod outcome;

pub use outcome::{Event, Failure, Formed, Peer, Progress, RankRange, Report, Unproved};

/// How nodes without a given rank are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RankBy {
    /// By preferred address, numerically; then host name; then ID.
    #[default]
    Address,
    /// By host name in natural order (`node-9` before `node-10`); then address; then ID.
    Host,
}
