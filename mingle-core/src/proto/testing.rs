//! For this project's tests and fuzz targets, behind the feature `testing` and without any promise: every
//! message that a node or a stranger could write, and the phase of a node.

pub use crate::wire::testing::{Forger, Frame, KINDS, Scene, kind, name};

/// The first digits of a digest of these bytes, which differ where the bytes do.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

/// The phase of a node, or of a member of a running world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It neither leads nor follows.
    Looking,
    /// It has heard that its world has formed without it.
    StandsAside,
    /// It leads, and has no member.
    Alone,
    /// It leads members, and seats are free.
    Collecting,
    /// It leads a round.
    Proving,
    /// It leads a world that has formed, and members do not know it yet.
    Committed,
    /// It leads, no world can form, and the members learn why.
    Refusing,
    /// It follows a candidate that has not named a connection yet.
    Joining,
    /// The same, while its own members wait.
    Yielding,
    /// It has joined.
    Joined,
    /// It is in a round of its leader, and not ready.
    Preparing,
    /// It is ready.
    Ready,
    /// The same, and its deadline has passed.
    Overdue,
    /// The command of this member of a running world runs.
    Running,
    /// The same, while it looks whether the others are there.
    Checking,
    /// Rank 0: its command has ended well, and others' run.
    AwaitingOthers,
    /// Its command has ended well, and rank 0 has not released it.
    AwaitingRelease,
    /// Rank 0: all commands have ended well.
    Releasing,
    /// Its world is over, and it notifies the others.
    Notifying,
    /// It has ended.
    Ended,
}
