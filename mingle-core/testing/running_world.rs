//! For tests: the phase of a member of a running world.

use super::{RunningNode, State};
use crate::proto::testing::Phase;

impl RunningNode {
    /// The phase of the member.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Running if self.liveness.is_checking() => Phase::Checking,
            State::Running => Phase::Running,
            State::AwaitingOthers => Phase::AwaitingOthers,
            State::AwaitingRelease(_) => Phase::AwaitingRelease,
            State::Releasing(_) => Phase::Releasing,
            State::Notifying(_) => Phase::Notifying,
            State::Ended => Phase::Ended,
        }
    }
}
