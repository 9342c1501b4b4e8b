//! How often all commands have restarted in a row, and how long the nodes wait before the next time.
//!
//! systemd counts starts within StartLimitIntervalSec=, and Kubernetes forgets the back-off of a container
//! that has run for ten minutes. So a service that fails now and then goes on, and one that cannot work ends.
//! Here the commands of a whole world must have run for the time of `--max-restarts`.
//!
//! Nodes that were there from the start have the same count. A newcomer learns it from the roster, which has
//! the count of each node: the highest applies.

use std::time::Duration;

use mingle_core::{End, Member, Metadata, Roster};

use crate::config::Restarts;

/// The key of the count in each node's metadata.
const KEY: &str = "restarts";
/// The longest pause, that of Kubernetes. A longer `--restart-delay` is never doubled.
const LONGEST_DELAY: Duration = Duration::from_secs(300);

/// The restarts in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) restarts: Restarts,
    count: u32,
    /// Whether the world goes on without a node that is gone. Without `--max-restarts` none does.
    is_elastic: bool,
    /// The last world has ended because a node was gone.
    is_gone: bool,
}

impl Row {
    pub(super) fn new(restarts: Restarts, is_range: bool) -> Self {
        Self { restarts, count: 0, is_elastic: is_range && restarts.most > 0, is_gone: false }
    }

    /// Takes over the highest count that a node of the world knows.
    pub(super) fn agree(&mut self, roster: Option<&Roster>) {
        let members = roster.map(Roster::members).unwrap_or_default();
        let count = |member: &Member| member.metadata.get(KEY).and_then(|text| text.parse().ok());
        self.count = members.iter().filter_map(count).fold(self.count, u32::max);
        self.is_gone = false;
    }

    /// A node that is gone was the first cause of the end of this world.
    pub(super) fn blame(&mut self) {
        self.is_gone = true;
    }

    /// Whether a failure may turn out to need no restart of the row, which has none left: in a world that
    /// goes on without a node that is gone, the commands of the others often fail before that is found.
    pub(super) fn hesitates(&self) -> bool {
        self.is_elastic && self.is_used_up()
    }

    /// How a message says that a restart does not count because a node was gone.
    pub(super) fn refund(&self) -> &'static str {
        if self.is_elastic { "; the restart does not count" } else { "" }
    }

    /// The count, for the other nodes of the next world.
    pub(super) fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        if self.count > 0 {
            // A number of at most ten digits fits.
            let _ = metadata.insert(KEY, &self.count.to_string());
        }
        metadata
    }

    /// Forgets all restarts, since the commands have run for long enough.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }

    /// How many failures may still be followed by a restart.
    pub(super) fn left(&self) -> u32 {
        self.restarts.most.saturating_sub(self.count)
    }

    /// Whether no restart would follow a failure.
    pub(super) fn is_used_up(&self) -> bool {
        self.left() == 0
    }

    /// The row after a world that has ended like this; none if no restart is left.
    pub(super) fn after(&self, end: End) -> Option<Self> {
        if !self.costs(end) {
            return Some(*self);
        }
        (!self.is_used_up()).then(|| Self { count: self.count + 1, ..*self })
    }

    /// How long to wait before this restart. The first of a row does not wait, the second waits for
    /// `--restart-delay`, and each later one twice as long as the last.
    pub(super) fn delay(&self, end: End) -> Duration {
        let Some(doublings) = self.count.checked_sub(2).filter(|_| self.costs(end)) else {
            return Duration::ZERO;
        };
        let first = self.restarts.delay;
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(LONGEST_DELAY.max(first))
    }

    /// `1 of 3`, if this restart counts.
    pub(super) fn number(&self, end: End) -> Option<String> {
        self.costs(end).then(|| format!("{} of {}", self.count, self.restarts.most))
    }

    /// Whether a restart after this end counts. A node that leaves or waits for a seat has not failed. If
    /// this node does not know the cause, other nodes do, and have restarted already.
    fn costs(&self, end: End) -> bool {
        match end {
            End::Left | End::Grows | End::Unknown => false,
            End::Gone => !self.is_elastic,
            _ => !self.is_elastic || !self.is_gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(most: u32, delay: u64) -> Row {
        let (stop_timeout, forget) = (Duration::MAX, Duration::MAX);
        let restarts = Restarts {
            most,
            stop_timeout,
            delay: Duration::from_millis(delay),
            forget,
            gone_after: Duration::MAX,
            grows: false,
            allows_split: false,
        };
        Row::new(restarts, false)
    }

    #[test]
    fn the_first_restart_is_at_once_and_each_later_one_waits_twice_as_long() {
        let (mut row, end, mut delays) = (row(13, 1000), End::Exited(1), Vec::new());
        while let Some(next) = row.after(end) {
            row = next;
            delays.push(row.delay(end).as_secs());
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert!(row.is_used_up());
        row.forget();
        assert_eq!(row.after(end).unwrap().delay(end), Duration::ZERO);
    }

    #[test]
    fn a_given_delay_may_be_zero_or_longer_than_the_longest_pause() {
        let end = End::Gone;
        let third = |delay| {
            let mut row = row(u32::MAX, delay);
            for _ in 0..100 {
                row = row.after(end).unwrap();
            }
            row.delay(end)
        };
        assert_eq!(third(0), Duration::ZERO);
        assert_eq!(third(3_600_000), Duration::from_secs(3600));
        assert_eq!(third(1), LONGEST_DELAY);
    }

    #[test]
    fn a_node_that_leaves_uses_up_no_restart() {
        let used_up = row(1, 1000).after(End::Exited(1)).unwrap();
        assert!(used_up.after(End::Exited(1)).is_none() && row(0, 0).after(End::Gone).is_none());
        for end in [End::Left, End::Grows, End::Unknown] {
            let next = used_up.after(end).unwrap();
            assert_eq!((next.delay(end), next.number(end)), (Duration::ZERO, None), "{end:?}");
            assert!(next.is_used_up());
        }
        assert_eq!(used_up.number(End::Exited(1)).unwrap(), "1 of 1");
        let without_restarts = Row::new(row(0, 0).restarts, true);
        assert!(without_restarts.after(End::Gone).is_none() && !without_restarts.hesitates());
        let mut elastic = Row { is_elastic: true, ..used_up };
        assert!(elastic.after(End::Gone).is_some() && elastic.after(End::Exited(1)).is_none());
        elastic.is_gone = true;
        assert_eq!(elastic.after(End::Exited(1)).unwrap().left(), 0);
    }

    #[test]
    fn the_count_is_in_the_metadata_until_it_is_forgotten() {
        let mut row = row(9, 0);
        for _ in 0..3 {
            row = row.after(End::Gone).unwrap();
        }
        assert_eq!(row.metadata().get(KEY), Some("3"));
        row.agree(None);
        assert_eq!(row.metadata().get(KEY), Some("3"));
        row.forget();
        assert!(row.metadata().is_empty());
    }
}
