//! Timers: an enum and a table, so that each has one time or none, and a stale one cannot fire.

use std::collections::BTreeMap;
use std::time::Duration;

/// A point in time, measured from an origin that the driver chooses.
pub type Time = Duration;

/// What a node waits for until its world has formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The user's timeout.
    Deadline,
    /// The next announce of a node that leads, or the next solicit of a node that has not joined yet. Of a
    /// member: its leader was not heard by multicast, and others may not have found it.
    Call,
    /// The next dial for a path.
    Dial,
    /// The leader has not answered, or could not be reached over TCP. In a round: it was not heard for too
    /// long, or the round takes too long.
    GiveUpLeader,
    /// The proofs of a round take too long.
    ProofFailed,
    /// A round may begin, or its world be committed, or a member be missed in it.
    Round,
    /// A member whose seat another node wants may be gone.
    Challenge,
    /// Nodes ask this one to lead, and none of them connects to it over TCP.
    StepDown,
    /// The next welcomes to all members.
    Welcome,
    /// A member's next solicit to its seeds.
    AskSeeds,
    /// The last call of a leader may be over.
    LastCall,
}

/// When each timer fires. Of two that are due at the same time, the lesser fires first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers(BTreeMap<Timer, Time>);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0.insert(timer, at);
    }

    /// Sets the timer unless it is set to an earlier time.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Time) {
        let earlier = self.get(timer).is_none_or(|t| at < t);
        if earlier {
            self.set(timer, at);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0.remove(&timer);
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Time> {
        self.0.get(&timer).copied()
    }

    /// The next time at which any timer fires.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().min().copied()
    }

    /// Stops and returns the timer that was due first, if one is due at `now`.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Timer> {
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
    fn timers_expire_once_and_in_the_order_of_their_times() {
        let ms = Duration::from_millis;
        let mut timers = Timers::default();
        timers.set(Timer::Dial, ms(20));
        timers.set(Timer::Deadline, ms(10));
        timers.set(Timer::Call, ms(99));
        timers.set_earlier(Timer::Call, ms(200));
        assert_eq!(timers.next(), Some(ms(10)));
        assert_eq!(timers.expire(ms(5)), None);
        assert_eq!(timers.expire(ms(50)), Some(Timer::Deadline));
        assert_eq!(timers.expire(ms(50)), Some(Timer::Dial));
        assert_eq!(timers.expire(ms(50)), None);
        assert_eq!(timers.next(), Some(ms(99)));
    }
}
