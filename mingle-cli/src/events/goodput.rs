//! How long the commands of a job have run, and how long no world was there, as this node has seen it.

use std::time::{Duration, Instant};

use mingle_core::tools::duration;
use serde_json::{Value, json};

/// The times of a job, from its first world on.
#[derive(Debug, Default)]
pub(super) struct Goodput {
    /// Since when a world is there, or since when none is.
    since: Option<Instant>,
    /// Why no world is there; none while one is.
    lost: Option<String>,
    ran: Duration,
    /// How long no world was there in all, and how often.
    gap: Duration,
    gaps: usize,
}

impl Goodput {
    /// A world has formed. Returns how long none was there, and why.
    pub(super) fn formed(&mut self, now: Instant) -> Option<Value> {
        let since = self.since.replace(now);
        let gap = now - since.filter(|_| self.lost.is_some()).unwrap_or(now);
        let why = self.lost.take()?;
        let told = json!({ "ms": super::milliseconds(gap), "why": why });
        self.gap += gap;
        self.gaps += 1;
        Some(told)
    }

    /// The world is over for this reason, or with none the job has ended well. The first reason counts.
    pub(super) fn ended(&mut self, now: Instant, why: Option<&str>) {
        if let Some(since) = self.since.filter(|_| self.lost.is_none()) {
            self.ran += now - since;
            self.since = why.map(|_| now);
            self.lost = why.map(str::to_owned);
        }
    }

    /// The sum for programs; none where no world has formed.
    pub(super) fn facts(&self) -> Option<Value> {
        let ms = super::milliseconds;
        let facts = || json!({ "ran_ms": ms(self.ran), "lost_ms": ms(self.gap), "worlds": self.gaps + 1 });
        (!self.ran.is_zero()).then(facts)
    }

    /// The sum for people; none where one world was all.
    pub(super) fn line(&self) -> Option<String> {
        let (ran, lost, worlds) = (duration(self.ran), duration(self.gap), self.gaps + 1);
        let line = || format!("the commands ran for {ran} in {worlds} worlds; they were down for {lost}");
        (self.gaps > 0).then(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment does")]
    fn the_time_between_two_worlds_is_lost_and_the_first_reason_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut job = Goodput::default();
        assert_eq!((job.facts(), job.line()), (None, None));
        assert_eq!(job.formed(at(5)), None, "none was lost before");
        job.ended(at(65), Some("rank 1 failed"));
        job.ended(at(66), Some("rank 0 failed"));
        assert_eq!(job.formed(at(67)), Some(json!({ "ms": 2000, "why": "rank 1 failed" })));
        job.ended(at(70), Some("rank 2 is gone"));
        job.formed(at(71));
        job.ended(at(72), None);
        job.ended(at(99), Some("what comes after the end"));
        assert_eq!(job.facts(), Some(json!({ "ran_ms": 64_000, "lost_ms": 3000, "worlds": 3 })));
        let line = "the commands ran for 1 min 4 s in 3 worlds; they were down for 3.0 s";
        assert_eq!(job.line().as_deref(), Some(line));
    }
}
