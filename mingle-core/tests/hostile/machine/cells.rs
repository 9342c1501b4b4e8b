//! Which messages have reached a node in which phase.

use std::collections::BTreeSet;

use mingle_core::proto::testing::Phase;

/// To whom a datagram is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recipient {
    All,
    Anyone,
    One,
}

pub const RECIPIENTS: [Recipient; 3] = [Recipient::All, Recipient::Anyone, Recipient::One];

/// Whose name an attacker uses for its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// That of a node of the job: its leader, a member, or another.
    Node,
    /// One of its own.
    Stranger,
}

/// How something reaches a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Datagram(Recipient),
    Session(Name),
}

/// A message or a frame that has passed the decoder of a node in this phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub phase: Phase,
    pub kind: u8,
    pub way: Way,
}

pub type Cells = BTreeSet<Cell>;
