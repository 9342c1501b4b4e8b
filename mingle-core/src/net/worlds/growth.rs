//! When a world may end to take in nodes that wait: each growth stops all commands, and a node
//! that starts and dies again and again must not do that every minute.

use std::time::{Duration, Instant};

/// The least time between two growths.
const PAUSE: Duration = Duration::from_secs(300);
/// The most that the pause becomes.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The growths of a job, as this node has seen them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    last: Option<Instant>,
    pause: Duration,
}

impl Growth {
    /// Of a node that comes to the job in this generation: its first world has just grown by it.
    pub(super) fn new(generation: u32, now: Instant) -> Self {
        Self { last: (generation > 0).then_some(now), pause: PAUSE }
    }

    /// The world ends to grow. The pause doubles with each growth that comes soon after the last one: a node
    /// that never gets its seat would otherwise stop all commands every few minutes.
    pub(super) fn grows(&mut self, now: Instant) {
        let is_soon = self.last.is_some_and(|last| now < last + self.pause * 2);
        self.pause = if is_soon { (self.pause * 2).min(LONGEST) } else { PAUSE };
        self.last = Some(now);
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
    fn a_growth_soon_after_another_doubles_the_pause_before_the_next_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut growth = Growth::new(0, at(0));
        assert_eq!(growth.wait(at(0)), Duration::ZERO, "the first is at once");
        assert_eq!(Growth::new(1, at(0)).wait(at(0)), PAUSE, "it has just been taken in");
        for (seconds, pause) in [(0, 300), (300, 600), (900, 1200), (9000, 300), (9500, 600)] {
            growth.grows(at(seconds));
            assert_eq!(growth.wait(at(seconds)), Duration::from_secs(pause), "{seconds}");
        }
        for _ in 0..20 {
            growth.grows(at(9500));
        }
        assert_eq!(growth.wait(at(9500)), LONGEST);
    }
}
