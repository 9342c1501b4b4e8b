//! When a world may end to take in nodes that wait (`--grow`): each growth stops all commands, and a node
//! that starts and dies again and again must not do that every minute.

use std::time::{Duration, Instant};

use mingle_core::End;

/// The least time between two growths.
const PAUSE: Duration = Duration::from_secs(300);
/// The most that the pause becomes.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The last growth, as this node has seen it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    last: Option<Instant>,
    pause: Duration,
    /// Whether the world that has grown has failed since.
    has_failed: bool,
}

impl Growth {
    pub(super) fn new() -> Self {
        Self { last: None, pause: PAUSE, has_failed: false }
    }

    /// A world has ended like this. The pause doubles after each growth whose world fails within it.
    pub(super) fn after(self, end: End, now: Instant) -> Self {
        let is_recent = self.last.is_some_and(|last| now < last + self.pause);
        match end {
            End::Grows => Self {
                last: Some(now),
                pause: if self.has_failed { self.pause } else { PAUSE },
                has_failed: false,
            },
            End::Left | End::Unknown => self,
            _ if is_recent => self.failed(),
            _ => self,
        }
    }

    /// The world that was to grow is no larger: whoever waited for a seat was left out, or is gone.
    pub(super) fn failed(self) -> Self {
        if self.has_failed {
            return self;
        }
        Self { pause: (self.pause * 2).min(LONGEST), has_failed: true, ..self }
    }

    /// How long after `now` the next growth may be.
    pub(super) fn wait(self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| (last + self.pause).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment does")]
    fn a_growth_whose_world_fails_soon_doubles_the_pause_before_the_next_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let growth = Growth::new();
        assert_eq!(growth.wait(at(0)), Duration::ZERO, "the first is at once");
        let grown = growth.after(End::Exited(1), at(0)).after(End::Grows, at(0));
        assert_eq!(grown.wait(at(100)), Duration::from_secs(200));
        let failed = grown.after(End::Gone, at(299)).after(End::Exited(1), at(299));
        assert_eq!(failed.wait(at(300)), Duration::from_secs(300), "once for each growth");
        assert_eq!(grown.failed().failed().wait(at(300)), Duration::from_secs(300), "no larger");
        let again = failed.after(End::Grows, at(600)).after(End::Killed(9), at(1199));
        assert_eq!(again.wait(at(1200)), Duration::from_secs(600));
        let healthy = again.after(End::Grows, at(2000)).after(End::Exited(1), at(9000));
        assert_eq!(healthy.after(End::Grows, at(9000)).wait(at(9000)), PAUSE);
        assert_eq!(grown.after(End::Left, at(10)).wait(at(100)), Duration::from_secs(200));
    }
}
