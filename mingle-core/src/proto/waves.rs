//! What a leader repeats to many, without flooding itself with their answers.

use std::collections::VecDeque;
use std::time::Duration;

use rand::Rng;

use super::backoff::{Backoff, FIRST};
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::NodeId;

/// Most words whose answers are under way: a receive buffer of the default size holds 166 small datagrams
/// (net.core.rmem_default of 212,992 bytes).
const WINDOW: usize = 128;
/// After so long without the next word, those that are under way count as lost.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest time from one wave to the next.
const LAST: Duration = Duration::from_millis(80);

/// How many words to many may be sent now. Their answers set the pace: a leader that is slow to read them is slow to
/// ask for more, and one that is fast need not wait.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    under_way: usize,
    /// When they count as lost.
    lost: Time,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { under_way: 0, lost: Time::ZERO }
    }

    /// Takes what may be sent now from the front of what waits.
    pub(crate) fn take(&mut self, waiting: &mut VecDeque<NodeId>, now: Time) -> Vec<NodeId> {
        if now >= self.lost {
            self.under_way = 0;
        }
        let taken: Vec<_> = waiting.drain(..waiting.len().min(WINDOW - self.under_way)).collect();
        if !taken.is_empty() {
            self.under_way += taken.len();
            self.lost = now + PAUSE;
        }
        taken
    }

    /// When to take more, if no answer has come until then.
    pub(crate) fn again(&self) -> Time {
        self.lost
    }

    /// One has been answered. Returns whether it is time to send more: not for each answer, since that would take
    /// a turn of the driver's loop each.
    pub(crate) fn answered(&mut self) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        self.under_way <= WINDOW / 2
    }
}

/// Repeats to those that have not answered, as many at a time as the window lets through.
#[derive(Debug, Clone)]
pub(crate) struct Waves {
    queue: VecDeque<NodeId>,
    window: Window,
    backoff: Backoff,
    /// When the next wave starts.
    next: Time,
    /// How many have started.
    count: usize,
}

impl Waves {
    pub(crate) fn new(now: Time) -> Self {
        Self::with(Backoff::new(FIRST, LAST), now)
    }

    /// Of words to all of a world, each of which takes the other side a while.
    pub(crate) fn in_round(world: u32, now: Time) -> Self {
        Self::with(Backoff::of_words(world, LAST), now)
    }

    fn with(backoff: Backoff, now: Time) -> Self {
        Self { queue: VecDeque::new(), window: Window::new(), backoff, next: now, count: 0 }
    }

    /// Which wave this is, from 0.
    pub(crate) fn number(&self) -> usize {
        self.count.saturating_sub(1)
    }

    /// The members to write to now. `unanswered` tells whom a new wave goes to.
    pub(crate) fn burst(
        &mut self,
        unanswered: impl FnOnce() -> VecDeque<NodeId>,
        shared: &mut Shared,
    ) -> Vec<NodeId> {
        let (burst, again) = self.next_burst(unanswered, shared.now, &mut shared.rng);
        shared.timers.set(Timer::Round, again);
        burst
    }

    /// The same for a caller with timers of its own: also returns when to ask for the next burst.
    pub(crate) fn next_burst(
        &mut self,
        unanswered: impl FnOnce() -> VecDeque<NodeId>,
        now: Time,
        rng: &mut impl Rng,
    ) -> (Vec<NodeId>, Time) {
        if self.queue.is_empty() && self.next <= now {
            self.queue = unanswered();
            self.count += 1;
        }
        let burst = self.window.take(&mut self.queue, now);
        if self.queue.is_empty() && self.next <= now {
            // The last of them have only been written to now.
            self.next = self.backoff.after(now, rng);
        }
        let again = if self.queue.is_empty() { self.next } else { self.window.again() };
        (burst, again)
    }

    /// A member has answered, which may be what the next ones wait for.
    pub(crate) fn answered(&mut self, shared: &mut Shared) {
        if self.window.answered() && !self.queue.is_empty() {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// Whether nobody is left to write to before the next wave.
    pub(crate) fn is_between(&self) -> bool {
        self.queue.is_empty()
    }
}
