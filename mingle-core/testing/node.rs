//! For tests: the phase of a node.

use super::Node;
use crate::proto::testing::Phase;

impl Node {
    /// The phase of the node.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match () {
            () if self.ended || self.lead.outcome().is_some() => return Phase::Ended,
            () if self.lead.is_proving() => return Phase::Proving,
            () if self.lead.has_committed() => return Phase::Committed,
            () if self.lead.is_decided() => return Phase::Refusing,
            () => {}
        }
        let Some(follow) = &self.follow else {
            return match () {
                () if self.seek.stands_aside(self.shared.now) => Phase::StandsAside,
                () if !self.leads() => Phase::Looking,
                () if self.lead.book.seated > 1 => Phase::Collecting,
                () => Phase::Alone,
            };
        };
        match () {
            () if follow.is_ready() && self.lead.overdue => Phase::Overdue,
            () if follow.is_ready() => Phase::Ready,
            () if follow.in_round() => Phase::Preparing,
            () if follow.joined => Phase::Joined,
            () if self.lead.present().next().is_none() => Phase::Joining,
            () => Phase::Yielding,
        }
    }
}
