//! The checks of a world that may have one of several sizes.

use mingle_core::{Rank, WorldSize};

use super::values;
use crate::exit::Stop;

/// Whether a world may split into two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// Nobody stays to tell latecomers that the job runs.
    Unattended,
    /// Nodes of the running world answer latecomers.
    Attended,
    /// The same, and the user allows a split.
    Allowed,
}

/// A given rank, which needs a world of a fixed size.
pub(super) fn rank(text: &str, world: WorldSize) -> Result<Rank, String> {
    if world.is_range() {
        return Err(format!(
            "a world of {world} may have fewer nodes than ranks that are given; give one size, such as --world {}, \
             or leave --rank away",
            world.max()
        ));
    }
    values::rank(text, world.max())
}

impl Split {
    /// Refuses a range of sizes of which two worlds could form at once, unless that is allowed.
    pub(crate) fn check(self, world: WorldSize) -> Result<(), Stop> {
        if !world.splits() || self == Self::Allowed {
            return Ok(());
        }
        let least = world.max().get() / 2 + 1;
        let (reason, or) = match self {
            Self::Unattended => {
                ("nobody stays to tell latecomers that the job runs, and they would form a second world", "")
            }
            _ => {
                ("each half of a network that splits would go on as a world of its own", ", or --allow-split")
            }
        };
        Err(Stop::Usage(format!(
            "--world {world} (or MINGLE_WORLD): {reason}; give more than half of {max} as the fewest nodes, such as \
             --world {least}:{max}{or}",
            max = world.max()
        )))
    }
}
