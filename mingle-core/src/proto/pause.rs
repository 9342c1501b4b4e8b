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
