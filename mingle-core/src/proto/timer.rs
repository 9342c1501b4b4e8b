//! The timers of a node: an enum and a table, so that each has one time or none, and a stale one cannot fire.

use std::time::Duration;

/// A point in time, as the time since an origin that the driver chose.
pub type Time = Duration;

/// A timer that fires this late was slept through: the process was stopped.
const SLEPT: Duration = Duration::from_millis(100);

/// What a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timer {
    /// The user's timeout.
    Deadline,
    /// A candidate's next announce.
    Announce,
    /// The next solicit of a node that may not lead and knows no leader.
    Solicit,
    /// The next join, until the leader has given this node a lease.
    Join,
    /// The next dial to the leader or the master.
    Dial,
    /// The leader has not answered, or could not be reached over TCP.
    GiveUpLeader,
    /// The leader has been silent: ask it for its announce.
    AskLeader,
    /// In a running world: the next request for release to rank 0.
    AskRelease,
    /// In a running world: rank 0's next look at the members whose commands still run.
    CheckMembers,
    /// In a round: the next message to the leader or the master that has not been answered.
    RepeatInRound,
    /// The proof of the master takes too long.
    ProofFailed,
    /// The next redirect to members that have not left yet.
    Redirect,
    /// The next burst of a message to many: prepare, commit, refusal; in a running world over, released,
    /// ping.
    Wave,
    /// The next ping to members whose seat another node wants.
    PingChallenged,
    /// In a running world: a newcomer was heard, so look whether a member is gone.
    LookForNewcomer,
    /// Nodes join, and none of them connects to this one over TCP.
    StepDown,
    /// The next welcomes of a large world.
    WelcomeNext,
    /// A member's next solicit to its seeds.
    AskSeeds,
}

/// All timers. Of two that are due at the same time, the first of these fires first.
const ALL: [Timer; 18] = [
    Timer::Deadline,
    Timer::Announce,
    Timer::Solicit,
    Timer::Join,
    Timer::Dial,
    Timer::GiveUpLeader,
    Timer::AskLeader,
    Timer::AskRelease,
    Timer::CheckMembers,
    Timer::RepeatInRound,
    Timer::ProofFailed,
    Timer::Redirect,
    Timer::Wave,
    Timer::PingChallenged,
    Timer::LookForNewcomer,
    Timer::StepDown,
    Timer::WelcomeNext,
    Timer::AskSeeds,
];

/// When each timer fires.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers([Option<Time>; ALL.len()]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets the timer unless it is set to an earlier time.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Time) {
        if self.get(timer).is_none_or(|t| at < t) {
            self.set(timer, at);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    fn get(&self, timer: Timer) -> Option<Time> {
        self.0[timer as usize]
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    /// Whether this process was stopped past the timer, so that silence until then is no evidence against a
    /// peer.
    pub(crate) fn slept_through(&self, timer: Timer, now: Time) -> bool {
        self.get(timer).is_some_and(|at| now > at + SLEPT)
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
    fn timers_expire_once_and_in_the_order_of_their_times() {
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
    fn the_table_has_an_entry_for_every_timer() {
        for (i, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, i);
        }
    }
}
