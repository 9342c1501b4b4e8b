//! Timers: an enum and a table, so that a stale one cannot fire.

use std::time::Duration;

/// A point in time, as the time since an origin that the driver chose.
pub type Time = Duration;

/// What a node waits for. Each has one time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
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

const COUNT: usize = Timer::Seed as usize + 1;

const ALL: [Timer; COUNT] = [
    Timer::Deadline,
    Timer::Announce,
    Timer::Solicit,
    Timer::Join,
    Timer::Dial,
    Timer::GiveUp,
    Timer::Ask,
    Timer::Proof,
    Timer::ProofFailed,
    Timer::Redirect,
    Timer::Round,
    Timer::Challenge,
    Timer::Resign,
    Timer::Welcome,
    Timer::Seed,
];

/// When each timer fires.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers([Option<Time>; COUNT]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets the timer unless it is set to an earlier time.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Time) {
        let earlier = self.get(timer).is_none_or(|t| at < t);
        if earlier {
            self.set(timer, at);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Time> {
        self.0[timer as usize]
    }

    /// The next time at which any timer fires.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().flatten().min().copied()
    }

    /// Stops and returns the timer that was due first, if one is due at `now`.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Timer> {
        let due = ALL.into_iter().filter(|&t| self.get(t).is_some_and(|at| at <= now));
        let timer = due.min_by_key(|&t| self.get(t))?;
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
    fn the_table_has_a_place_for_every_timer() {
        for (i, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, i);
        }
    }
}
