//! The candidates that are ignored for a while because they could not be joined, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::NodeId;
use crate::proto::follow::GaveUp;
use crate::proto::timer::Time;

/// How long a candidate is ignored the first time. A stale or replayed announce cannot keep a node from
/// leading for long.
const FIRST: Duration = Duration::from_secs(1);
/// The time doubles with each failure, up to this.
const LONGEST: Duration = Duration::from_secs(60);
/// The most candidates that are remembered. One more replaces the one whose time ends the soonest.
const REMEMBERED: usize = 256;

/// The candidates that are ignored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocklist(BTreeMap<NodeId, Blocked>);

#[derive(Debug, Clone, Copy)]
struct Blocked {
    until: Time,
    length: Duration,
    why: GaveUp,
}

impl Blocklist {
    /// The candidate could not be joined.
    pub(crate) fn add(&mut self, id: NodeId, why: GaveUp, now: Time) {
        let length = self.0.get(&id).map_or(FIRST, |blocked| (blocked.length * 2).min(LONGEST));
        self.0.insert(id, Blocked { until: now + length, length, why });
        if self.0.len() > REMEMBERED {
            let soonest = self.0.iter().min_by_key(|(_, blocked)| blocked.until).map(|(&id, _)| id);
            soonest.map(|id| self.0.remove(&id));
        }
    }

    pub(crate) fn contains(&self, id: NodeId, now: Time) -> bool {
        self.0.get(&id).is_some_and(|blocked| now < blocked.until)
    }

    /// Whether the candidate could not be joined, and is remembered.
    pub(super) fn knows(&self, id: NodeId) -> bool {
        self.0.contains_key(&id)
    }

    /// The candidate has answered this node: it is removed if its silence was all that was held against it.
    pub(crate) fn answered(&mut self, id: NodeId) {
        if self.0.get(&id).is_some_and(|blocked| blocked.why == GaveUp::Silent) {
            self.0.remove(&id);
        }
    }

    /// The candidate was joined after all.
    pub(crate) fn forgive(&mut self, id: NodeId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_candidate_is_ignored_longer_each_time_up_to_a_minute() {
        let id = NodeId([1; 16]);
        let mut blocklist = Blocklist::default();
        let mut now = Time::ZERO;
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            blocklist.add(id, GaveUp::Silent, now);
            let almost = Duration::from_secs(expected).mul_f64(0.99);
            assert!(blocklist.contains(id, now + almost));
            now += Duration::from_secs(expected);
            assert!(!blocklist.contains(id, now), "after {expected} s");
        }
        blocklist.add(id, GaveUp::Unreached, now);
        blocklist.forgive(id);
        assert!(!blocklist.contains(id, now));
    }

    #[test]
    fn an_answer_forgives_a_candidate_its_silence_and_not_that_it_cannot_be_reached() {
        let id = NodeId([1; 16]);
        let mut blocklist = Blocklist::default();
        blocklist.add(id, GaveUp::Silent, Time::ZERO);
        blocklist.answered(id);
        assert!(!blocklist.contains(id, Time::ZERO));
        blocklist.add(id, GaveUp::Unreached, Time::ZERO);
        blocklist.answered(id);
        assert!(blocklist.contains(id, Time::ZERO));
    }
}
