//! Who gathers: one total order over candidates, and the memory of those that could not be joined.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::timer::Time;
use crate::model::NodeId;
use crate::wire::Candidate;

/// A candidate's place in the order; the greater gathers.
///
/// A given rank 0 comes before all others, so that the user's choice of master gathers; then the one
/// with more members, so that a gathering does not move for every newcomer; then the lowest
/// preferred address, then the lowest ID. `members` is a high-water mark: a key only grows, so what
/// was yielded to once stays better, and no two candidates can yield to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    explicit: bool,
    members: u32,
    address: IpAddr,
    id: NodeId,
}

impl Key {
    pub(crate) fn new(explicit: bool, members: u32, address: IpAddr, id: NodeId) -> Self {
        Self { explicit, members, address, id }
    }

    pub(crate) fn of(candidate: &Candidate) -> Self {
        Self::new(candidate.explicit, candidate.members, candidate.endpoints.preferred().ip(), candidate.id)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.explicit
            .cmp(&other.explicit)
            .then(self.members.cmp(&other.members))
            .then_with(|| other.address.cmp(&self.address))
            .then_with(|| other.id.cmp(&self.id))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How long an ID that could not be joined is ignored at first; doubles each time.
const BLOCK_SILENT: Duration = Duration::from_secs(1);
const BLOCK_UNREACHED: Duration = Duration::from_secs(10);
const BLOCK_MOST: Duration = Duration::from_secs(60);
/// Most IDs that are remembered. What does not fit replaces the one that is free the soonest.
const MEMORY: usize = 256;

/// Candidates that are ignored for a while, because they did not answer or could not be reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocklist(BTreeMap<NodeId, Blocked>);

#[derive(Debug, Clone, Copy)]
struct Blocked {
    until: Time,
    length: Duration,
    silent: bool,
}

impl Blocklist {
    /// It did not answer. A stale or replayed announce cannot keep a node from gathering for long.
    pub(crate) fn silent(&mut self, id: NodeId, now: Time) {
        self.add(id, now, BLOCK_SILENT, true);
    }

    /// Its words arrive, but it could not be reached over TCP.
    pub(crate) fn unreached(&mut self, id: NodeId, now: Time) {
        self.add(id, now, BLOCK_UNREACHED, false);
    }

    fn add(&mut self, id: NodeId, now: Time, first: Duration, silent: bool) {
        let length = self.0.get(&id).map_or(first, |blocked| (blocked.length * 2).max(first).min(BLOCK_MOST));
        self.0.insert(id, Blocked { until: now + length, length, silent });
        if self.0.len() > MEMORY {
            let soonest = self.0.iter().min_by_key(|(_, blocked)| blocked.until).map(|(&id, _)| id);
            soonest.map(|id| self.0.remove(&id));
        }
    }

    pub(crate) fn contains(&self, id: NodeId, now: Time) -> bool {
        self.0.get(&id).is_some_and(|blocked| now < blocked.until)
    }

    /// It has answered this node, and that was all that was held against it.
    pub(crate) fn answered(&mut self, id: NodeId) {
        if self.0.get(&id).is_some_and(|blocked| blocked.silent) {
            self.0.remove(&id);
        }
    }

    /// It has been joined after all.
    pub(crate) fn forgive(&mut self, id: NodeId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(explicit: bool, members: u32, last: u8, id: u8) -> Key {
        Key::new(explicit, members, IpAddr::from([10, 0, 0, last]), NodeId([id; 16]))
    }

    #[test]
    fn the_order_is_explicit_then_members_then_lowest_address_then_lowest_id() {
        let ordered = [
            key(true, 1, 9, 9),
            key(false, 3, 9, 9),
            key(false, 2, 1, 1),
            key(false, 1, 1, 2),
            key(false, 1, 1, 3),
            key(false, 1, 2, 1),
            key(false, 1, 10, 1),
        ];
        for (i, better) in ordered.iter().enumerate() {
            for worse in &ordered[i + 1..] {
                assert!(better > worse, "{better:?} comes before {worse:?}");
                assert!(worse < better);
            }
        }
    }

    #[test]
    fn whoever_does_not_answer_is_ignored_longer_each_time_and_up_to_a_minute() {
        let id = NodeId([1; 16]);
        let mut blocklist = Blocklist::default();
        let mut now = Time::ZERO;
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            blocklist.silent(id, now);
            let almost = Duration::from_secs(expected).mul_f64(0.99);
            assert!(blocklist.contains(id, now + almost));
            now += Duration::from_secs(expected);
            assert!(!blocklist.contains(id, now), "after {expected} s");
        }
        blocklist.unreached(id, now);
        blocklist.forgive(id);
        assert!(!blocklist.contains(id, now));
    }

    #[test]
    fn the_memory_of_the_ignored_is_bounded() {
        let mut blocklist = Blocklist::default();
        for n in 0..10_000u128 {
            blocklist.silent(NodeId(n.to_be_bytes()), Time::from_secs(u64::try_from(n).unwrap()));
        }
        assert_eq!(blocklist.0.len(), MEMORY);
    }
}
