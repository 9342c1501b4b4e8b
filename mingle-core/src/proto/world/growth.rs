//! When a world may end to take in nodes that wait: each growth stops all commands, and a node
//! that starts and dies again and again must not do that every minute.

use std::time::Duration;

use super::Time;

/// The most that the pause between two growths becomes.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The growths of a job, as this node has seen them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growth {
    /// When the next growth may be.
    pub(super) next: Time,
    /// The pause between the last growth and the next one.
    pause: Duration,
}

impl Growth {
    /// The world ends to grow, or has just grown by this node. The `least` pause doubles with each growth
    /// that comes soon after the last one: a node that never gets its seat would otherwise stop all commands
    /// every few minutes.
    pub(super) fn grows(&mut self, now: Time, least: Duration) {
        let is_soon = now < self.next + self.pause;
        let pause = if is_soon { self.pause * 2 } else { least };
        self.pause = pause.min(LONGEST);
        self.next = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_soon_after_another_doubles_the_pause_before_the_next_one() {
        let (at, least) = (Time::from_secs, Duration::from_secs(300));
        let mut growth = Growth::default();
        assert_eq!(growth.next, Time::ZERO, "the first is at once");
        for (seconds, pause) in [(0, 300), (300, 600), (900, 1200), (9000, 300), (9500, 600)] {
            growth.grows(at(seconds), least);
            assert_eq!(growth.next, at(seconds + pause), "{seconds}");
        }
        for _ in 0..40 {
            growth.grows(at(9500), least);
        }
        assert_eq!(growth.next, at(9500) + LONGEST);
    }
}
