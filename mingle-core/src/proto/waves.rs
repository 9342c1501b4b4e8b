//! What a leader repeats to many, without flooding itself with their answers.

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Backoff;
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::id::NodeId;

/// Members that are written to at once, and the pause after them: a receive buffer of the default
/// size holds 166 small datagrams (net.core.rmem_default of 212,992 bytes), and each is answered.
const BURST: usize = 128;
const PAUSE: Duration = Duration::from_millis(2);

/// Repeats to those that have not answered, in bursts.
#[derive(Debug, Clone)]
pub(crate) struct Waves {
    queue: VecDeque<NodeId>,
    backoff: Backoff,
    /// When the next wave starts.
    next: Time,
    /// How many have started.
    count: usize,
}

impl Waves {
    pub(crate) fn new(now: Time) -> Self {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(80));
        Self { queue: VecDeque::new(), backoff, next: now, count: 0 }
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
        if self.queue.is_empty() && self.next <= shared.now {
            self.queue = unanswered();
            self.count += 1;
            self.next = self.backoff.after(shared.now, &mut shared.rng);
        }
        let burst = self.queue.drain(..self.queue.len().min(BURST)).collect();
        let at = if self.queue.is_empty() { self.next } else { shared.now + PAUSE };
        shared.timers.set(Timer::Round, at);
        burst
    }
}
