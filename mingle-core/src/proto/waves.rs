//! How a leader repeats a message to many nodes without being flooded by their answers.

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Backoff;
use super::scale::Scale;
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::NodeId;

/// The most messages whose answers are under way: a receive buffer of the default size holds 166 small
/// datagrams (net.core.rmem_default of 212,992 bytes).
const WINDOW: usize = 128;
/// This long after the last message was sent, those under way count as lost.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest time from one wave to the next.
const LONGEST: Duration = Duration::from_millis(80);

/// How many messages may be sent now. The answers set the pace: a leader that reads them slowly sends slowly,
/// and one that reads them fast need not wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct SendWindow {
    under_way: usize,
    /// When those under way count as lost.
    lost: Time,
}

impl SendWindow {
    /// Takes the nodes that may be written to now from the front of the queue.
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

    /// When to take more, if no answer comes before.
    pub(crate) fn again(&self) -> Time {
        self.lost
    }

    /// Counts an answer. Returns whether to send more: not after each answer, since each send is one pass of
    /// the driver's loop.
    pub(crate) fn answered(&mut self) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        self.under_way <= WINDOW / 2
    }
}

/// Repeats a message to the nodes that have not answered, as many at a time as the window allows.
#[derive(Debug, Clone)]
pub(crate) struct Waves {
    queue: VecDeque<NodeId>,
    window: SendWindow,
    backoff: Backoff,
    /// When the next wave starts.
    next: Time,
    /// How many waves have started.
    count: usize,
}

impl Waves {
    /// For messages to a whole world, each of which takes its recipient a while to answer.
    pub(crate) fn in_round(scale: Scale, now: Time) -> Self {
        let backoff = Backoff::for_answer(scale, LONGEST);
        Self { queue: VecDeque::new(), window: SendWindow::default(), backoff, next: now, count: 0 }
    }

    /// The number of this wave, from 0.
    pub(crate) fn number(&self) -> usize {
        self.count.saturating_sub(1)
    }

    /// The nodes to write to now. Where a new wave starts, it goes to those that `unanswered` returns.
    pub(crate) fn burst(
        &mut self,
        unanswered: impl FnOnce() -> VecDeque<NodeId>,
        shared: &mut Shared,
    ) -> Vec<NodeId> {
        let now = shared.now;
        if self.queue.is_empty() && self.next <= now {
            self.queue = unanswered();
            self.count += 1;
        }
        let burst = self.window.take(&mut self.queue, now);
        if self.queue.is_empty() && self.next <= now {
            // The interval starts when the last of the wave is written to.
            self.next = self.backoff.after(now, &mut shared.rng);
        }
        let again = if self.queue.is_empty() { self.next } else { self.window.again() };
        shared.timers.set(Timer::Wave, again);
        burst
    }

    /// A node has answered, so that the next of the queue may be written to.
    pub(crate) fn answered(&mut self, shared: &mut Shared) {
        if self.window.answered() && !self.queue.is_empty() {
            shared.timers.set(Timer::Wave, shared.now);
        }
    }

    /// Whether a wave has been written in full, and the next has not started.
    pub(crate) fn is_between(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::config::Config;
    use crate::proto::tests::{endpoint, tag};

    fn many(count: usize) -> VecDeque<NodeId> {
        (0..count).map(|number| NodeId(u128::try_from(number).unwrap().to_be_bytes())).collect()
    }

    #[test]
    fn a_wave_goes_to_all_that_have_not_answered_and_the_next_begins_an_interval_after_its_end() {
        let mut shared = Shared::new(Config::plain(tag(), 1, 1, endpoint(1)), 1, Time::ZERO);
        let mut waves = Waves::in_round(Scale(1), Time::ZERO);
        let mut next = |waves: &mut Waves, count: usize, now: Time| {
            shared.now = now;
            let burst = waves.burst(|| many(count), &mut shared).len();
            (burst, shared.timers.get(Timer::Wave).expect("a wave follows"))
        };
        let mut now = Time::ZERO;
        let mut written = 0;
        while written < 300 {
            let (burst, again) = next(&mut waves, 300, now);
            written += burst;
            assert_eq!((burst <= 128, waves.number()), (true, 0));
            assert_eq!(waves.is_between(), written == 300);
            let pause = again.saturating_sub(now);
            if written < 300 {
                assert_eq!(pause, Duration::from_millis(2));
            } else {
                assert!((15..=25).contains(&pause.as_millis()), "{pause:?}");
                assert_eq!(next(&mut waves, 300, now), (0, again), "it is not due yet");
            }
            now = again;
        }
        let (burst, _) = next(&mut waves, 3, now);
        assert_eq!((burst, waves.number()), (3, 1));
    }
}
