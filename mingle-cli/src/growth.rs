//! When a world may end to take in nodes that wait (`--grow`): each growth stops all commands, and a node
//! that starts and dies again and again must not do that every minute.

use std::time::{Duration, Instant};

use mingle_core::End;

/// The least time between two growths.
const PAUSE: Duration = Duration::from_secs(300);
/// The most that the pause becomes.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The growths of a job, as this node has seen them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    last: Option<Instant>,
    pause: Duration,
    /// Whether the world that has grown has failed since.
    has_failed: bool,
    /// The size of the last world, and how it has ended.
    size: u32,
    ended: Option<End>,
}

impl Growth {
    pub(crate) fn new() -> Self {
        Self { last: None, pause: PAUSE, has_failed: false, size: 0, ended: None }
    }

    /// A world of this size has formed. If it was to grow and is no larger, the nodes that waited for a seat
    /// were left out, or are gone.
    pub(crate) fn formed(&mut self, generation: u32, size: u32, now: Instant) {
        match self.ended {
            // The world has just taken this node in.
            None if generation > 0 => self.last = Some(now),
            Some(End::Grows) if size <= self.size => self.failed(),
            _ => {}
        }
        self.size = size;
    }

    /// The world has ended like this. The pause doubles after each growth whose world fails within it.
    pub(crate) fn ended(&mut self, end: End, now: Instant) {
        self.ended = Some(end);
        let is_recent = self.last.is_some_and(|last| now < last + self.pause);
        match end {
            End::Grows => {
                if !self.has_failed {
                    self.pause = PAUSE;
                }
                (self.last, self.has_failed) = (Some(now), false);
            }
            End::Left | End::Unknown => {}
            _ if is_recent => self.failed(),
            _ => {}
        }
    }

    fn failed(&mut self) {
        if !self.has_failed {
            (self.pause, self.has_failed) = ((self.pause * 2).min(LONGEST), true);
        }
    }

    /// How long after `now` the next growth may be.
    pub(crate) fn wait(self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| (last + self.pause).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment does")]
    fn a_growth_whose_world_fails_soon_or_is_no_larger_doubles_the_pause_before_the_next_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let after = |mut growth: Growth, ends: &[(End, u64)]| {
            for &(end, seconds) in ends {
                growth.ended(end, at(seconds));
            }
            growth
        };
        let formed = |mut growth: Growth, generation, size| {
            growth.formed(generation, size, at(0));
            growth
        };
        let growth = formed(Growth::new(), 0, 2);
        assert_eq!(growth.wait(at(0)), Duration::ZERO, "the first is at once");
        assert_eq!(formed(Growth::new(), 1, 2).wait(at(0)), PAUSE, "it has just been taken in");
        let grown = after(growth, &[(End::Exited(1), 0), (End::Grows, 0)]);
        assert_eq!(grown.wait(at(100)), Duration::from_secs(200));
        assert_eq!(formed(grown, 1, 3).wait(at(100)), Duration::from_secs(200), "larger");
        let failed = after(grown, &[(End::Gone, 299), (End::Exited(1), 299)]);
        assert_eq!(failed.wait(at(300)), Duration::from_secs(300), "once for each growth");
        assert_eq!(formed(formed(grown, 1, 2), 1, 2).wait(at(300)), Duration::from_secs(300), "no larger");
        let again = after(failed, &[(End::Grows, 600), (End::Killed(9), 1199)]);
        assert_eq!(again.wait(at(1200)), Duration::from_secs(600));
        let healthy = after(again, &[(End::Grows, 2000), (End::Exited(1), 9000), (End::Grows, 9000)]);
        assert_eq!(healthy.wait(at(9000)), PAUSE);
        assert_eq!(after(grown, &[(End::Left, 10)]).wait(at(100)), Duration::from_secs(200));
    }
}
