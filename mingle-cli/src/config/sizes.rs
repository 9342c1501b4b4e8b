//! The checks of a world that may have one of several sizes.

use std::time::Duration;

use mingle_core::{Rank, WorldSize};

use super::values::{self, Timeout};
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

/// Refuses a last call that the timeout of every node would cut short.
pub(super) fn check_last_call(
    world: WorldSize,
    call: Option<Timeout>,
    limit: Option<Duration>,
) -> Result<(), Stop> {
    let (Some(Timeout(Some(call))), Some(limit)) = (call, limit) else { return Ok(()) };
    if !world.is_range() || call <= limit {
        return Ok(());
    }
    let (call, limit) = (call.as_secs_f64(), limit.as_secs_f64());
    Err(Stop::Usage(format!(
        "--last-call (or MINGLE_LAST_CALL) is {call} s, longer than --timeout (or MINGLE_TIMEOUT) with {limit} s; \
         give a shorter call or a longer timeout"
    )))
}

impl Split {
    /// Refuses a range of sizes of which two worlds could form at once, unless that is allowed.
    pub(crate) fn check(self, world: WorldSize) -> Result<(), Stop> {
        if !world.splits() || self == Self::Allowed {
            return Ok(());
        }
        let least = world.max().get() / 2 + 1;
        let reason = match self {
            Self::Unattended => {
                "nobody stays to tell latecomers that the job runs, and they would form a second world"
            }
            _ => "each half of a network that splits would go on as a world of its own",
        };
        let or = match self {
            Self::Unattended => "",
            _ => ", or --allow-split",
        };
        Err(Stop::Usage(format!(
            "--world {world} (or MINGLE_WORLD): {reason}; give more than half of {max} as the fewest nodes, such as \
             --world {least}:{max}{or}",
            max = world.max()
        )))
    }
}
