//! Timers: an enum and a table, so that a stale one cannot fire.

use std::collections::BTreeMap;
use std::time::Duration;

/// A point in time, as the time since an origin that the driver chose.
pub type Time = Duration;

/// What a node waits for. Each has one time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The user's patience ends.
    Deadline,
    /// The next announce, for a node that gathers.
    Announce,
    /// The next solicit, for a node that may not gather and knows no leader.
    Solicit,
    /// The next join, until the leader has counted this node.
    Join,
    /// The next dial, to the leader or the master.
    Dial,
    /// The leader has not answered, or could not be reached.
    GiveUp,
    /// The leader has been quiet.
    Ask,
    /// The next word to the leader or the master in a round.
    Proof,
    /// The proof of the master has failed.
    ProofFailed,
    /// The next redirect to members that have not gone yet.
    Redirect,
    /// The next prepare, commit or refusal to members that have not answered.
    Round,
    /// The next ping of members whose place somebody else wants.
    Challenge,
    /// Nodes join, and none of them reaches this one over TCP.
    Resign,
    /// The next welcomes of a large world.
    Welcome,
    /// The next question to the seeds.
    Seed,
}

/// When each timer of a kind `T` fires. Of two that are due at the same time, the lesser fires first.
#[derive(Debug, Clone)]
pub(crate) struct Timers<T = Timer>(BTreeMap<T, Time>);

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn set(&mut self, timer: T, at: Time) {
        self.0.insert(timer, at);
    }

    /// Sets the timer unless it is set to an earlier time.
    pub(crate) fn set_earlier(&mut self, timer: T, at: Time) {
        let earlier = self.get(timer).is_none_or(|t| at < t);
        if earlier {
            self.set(timer, at);
        }
    }

    pub(crate) fn stop(&mut self, timer: T) {
        self.0.remove(&timer);
    }

    pub(crate) fn get(&self, timer: T) -> Option<Time> {
        self.0.get(&timer).copied()
    }

    /// The next time at which any timer fires.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().min().copied()
    }

    /// Stops and returns the timer that was due first, if one is due at `now`.
    pub(crate) fn expire(&mut self, now: Time) -> Option<T> {
        let due = self.0.iter().filter(|&(_, &at)| at <= now);
        let (&timer, _) = due.min_by_key(|&(_, &at)| at)?;
        self.stop(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_the_order_of_their_times_and_only_once() {
        let ms = Duration::from_millis;
        let mut timers = Timers::default();
        timers.set(Timer::Join, ms(20));
        timers.set(Timer::Deadline, ms(10));
        timers.set(Timer::Announce, ms(99));
        timers.set_earlier(Timer::Announce, ms(200));
        assert_eq!(timers.next(), Some(ms(10)));
        assert_eq!(timers.expire(ms(5)), None);
        assert_eq!(timers.expire(ms(50)), Some(Timer::Deadline));
        assert_eq!(timers.expire(ms(50)), Some(Timer::Join));
        assert_eq!(timers.expire(ms(50)), None);
        assert_eq!(timers.next(), Some(ms(99)));
    }

    #[test]
    fn of_two_timers_that_are_due_at_the_same_time_the_lesser_fires_first() {
        let mut timers = Timers::default();
        timers.set(Timer::Round, Time::ZERO);
        timers.set(Timer::Ask, Time::ZERO);
        assert_eq!(timers.expire(Time::ZERO), Some(Timer::Ask));
        assert_eq!(timers.expire(Time::ZERO), Some(Timer::Round));
    }
}
