//! The checks of a world that may have one of several sizes.

use mingle_core::{Rank, WorldSize};

use super::values;
use crate::exit::Stop;

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

/// Refuses a range of sizes of which two worlds could form at once. If somebody `stays` to answer latecomers,
/// that takes a network that splits, which a user can allow.
pub(crate) fn check_split(world: WorldSize, stays: bool) -> Result<(), Stop> {
    if !world.splits() {
        return Ok(());
    }
    let (reason, or) = if stays {
        ("each half of a network that splits would go on as a world of its own", ", or --allow-split")
    } else {
        ("nobody stays to tell latecomers that the job runs, and they would form a second world", "")
    };
    Err(Stop::Usage(format!(
        "--world {world} (or MINGLE_WORLD): {reason}; give more than half of {max} as the fewest nodes, such as \
         --world {least}:{max}{or}",
        max = world.max(),
        least = world.max().get() / 2 + 1,
    )))
}
