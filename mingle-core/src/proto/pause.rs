//! Whether this process was stopped.

use std::time::Duration;

use super::timer::Time;

/// The latest that a timer fires on a busy host.
///
/// A process that was stopped (SIGSTOP, a debugger, a frozen container, a host that slept) finds its timers
/// later than that. What the others sent meanwhile waits unread in its sockets, so their silence is no
/// evidence that they are gone.
const LATEST: Duration = Duration::from_millis(100);

/// Whether a timer that was due at `due` and fires at `now` shows that this process was stopped.
pub(crate) fn was_stopped(due: Time, now: Time) -> bool {
    now.saturating_sub(due) > LATEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_fires_more_than_100_ms_late_shows_that_the_process_was_stopped() {
        let ms = Duration::from_millis;
        assert!(!was_stopped(ms(1000), ms(900)) && !was_stopped(ms(1000), ms(1100)));
        assert!(was_stopped(ms(1000), ms(1101)));
    }
}
