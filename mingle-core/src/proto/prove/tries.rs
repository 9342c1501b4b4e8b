//! The connections to one target, of which one is enough. Each repeats the last, until one is answered.

use std::time::Duration;

use crate::proto::output::DialId;
use crate::proto::scale::{FIRST_REPEAT, Scale};
use crate::proto::shared::Shared;
use crate::proto::timer::Time;

/// The most connections to one target at the same time; then the oldest is replaced. At 30% loss, one in
/// eight succeeds at once, and three of the others within 0.6 s.
const OPEN: usize = 12;
/// From this many connections to one target on, `Pace::replace` is the interval.
const HASTY: u32 = 12;
/// Between two connections to one target, for each target: a host with many is busy, and its answers take
/// longer.
const TURN: Duration = Duration::from_millis(2);
/// But never longer, so that each of 10,000 targets is tried several times before the round fails.
const LONGEST: Duration = Duration::from_millis(250);

/// How often connections are opened, and how many to one target at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    interval: Duration,
    replace: Duration,
    open: usize,
}

impl Pace {
    /// At most `to_all` connections are open to all targets, but at least `fewest` to each. After the first
    /// few, the next follows after `replace`.
    pub(super) fn new(targets: usize, to_all: usize, fewest: usize, replace: Duration) -> Self {
        let turn = TURN.saturating_mul(u32::try_from(targets).unwrap_or(u32::MAX));
        let interval = turn.clamp(FIRST_REPEAT, LONGEST);
        Self { interval, replace: replace.max(interval), open: (to_all / targets.max(1)).clamp(fewest, OPEN) }
    }

    /// As slow as a target needs that all nodes of a large world dial.
    pub(super) fn at_least(self, scale: Scale) -> Self {
        let least = if scale.is_large() { scale.dial_interval() } else { Duration::ZERO };
        Self { interval: self.interval.max(least), replace: self.replace.max(least), ..self }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tries {
    /// Oldest first.
    open: Vec<DialId>,
    next: Time,
    count: u32,
}

impl Tries {
    pub(super) fn new(now: Time) -> Self {
        Self { open: Vec::new(), next: now, count: 0 }
    }

    /// When the next connection is due.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    pub(super) fn has(&self, dial: DialId) -> bool {
        self.open.contains(&dial)
    }

    /// Opens a connection by `dial`. If there are as many as the pace allows, it replaces the oldest.
    pub(super) fn repeat(
        &mut self,
        pace: Pace,
        shared: &mut Shared,
        dial: impl FnOnce(&mut Shared) -> DialId,
    ) -> DialId {
        if self.open.len() >= pace.open {
            shared.hang_up(self.open.remove(0));
        }
        let dial = dial(shared);
        self.open.push(dial);
        self.count += 1;
        self.next = shared.now + if self.count < HASTY { pace.interval } else { pace.replace };
        dial
    }

    /// Returns whether the connection was one of these.
    pub(super) fn closed(&mut self, dial: DialId) -> bool {
        let at = self.open.iter().position(|open| *open == dial);
        at.map(|at| self.open.remove(at)).is_some()
    }

    pub(super) fn stop(&mut self, shared: &mut Shared) {
        for dial in self.open.drain(..) {
            shared.hang_up(dial);
        }
    }
}
