//! Which messages have reached a node in which phase.

use std::collections::BTreeSet;

use mingle_core::proto::Lineage;
use mingle_core::proto::testing::Phase;

/// To whom a datagram is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recipient {
    All,
    Anyone,
    One,
}

pub const RECIPIENTS: [Recipient; 3] = [Recipient::All, Recipient::Anyone, Recipient::One];

/// The lineage of a datagram, beside that of the node that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    Same,
    Earlier,
    Later,
    /// The next generation of another job.
    OtherOrigin,
    /// The next generation of no world.
    NoOrigin,
    /// The last generation that there can be.
    Last,
}

pub const RELATIONS: [Relation; 6] = [
    Relation::Same,
    Relation::Earlier,
    Relation::Later,
    Relation::OtherOrigin,
    Relation::NoOrigin,
    Relation::Last,
];

impl Relation {
    /// The lineage with this relation to a node's own; nothing where there is none.
    pub fn to(self, own: Lineage) -> Option<Lineage> {
        let next = own.generation.checked_add(1);
        let later = |origin| next.map(|generation| Lineage { generation, origin });
        match self {
            Self::Same => Some(own),
            Self::Earlier => Some(Lineage { generation: own.generation.checked_sub(1)?, ..own }),
            Self::Later => later(own.origin),
            Self::OtherOrigin => later(own.origin.wrapping_add(1)),
            Self::NoOrigin => later(0),
            Self::Last => next.map(|_| Lineage { generation: u32::MAX, ..own }),
        }
    }
}

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
    Datagram(Recipient, Relation),
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
