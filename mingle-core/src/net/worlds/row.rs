//! How often all commands have restarted in a row, and how long the nodes wait before the next time.
//!
//! systemd counts starts within StartLimitIntervalSec=, and Kubernetes forgets the back-off of a container
//! that has run for ten minutes. So a service that fails now and then goes on, and one that cannot work ends.
//! Here the commands of a whole world must have run for the time that the caller sets.
//!
//! Nodes that were there from the start have the same count. A newcomer learns it from the roster, which has
//! the count of each node: the highest applies.

use std::fmt;
use std::time::Duration;

use crate::model::{End, Member, Metadata, Roster};

/// The key of the count in each node's metadata, which no caller uses by accident.
pub(crate) const KEY: &str = "mingle.restarts";
/// The longest pause, that of Kubernetes. A longer one that is given is never doubled.
const LONGEST_DELAY: Duration = Duration::from_secs(300);

/// When the commands of a [`Session`](crate::Session) whose world is over start again.
#[derive(Debug, Clone, Copy)]
pub struct Restarts {
    /// The most restarts in a row: the next failure ends the job. Should be the same on every node. Default:
    /// none, and the caller decides each time.
    pub most: Option<u32>,
    /// How long all nodes wait before the second restart in a row. The wait doubles with each further
    /// restart, up to 5 minutes. Default: no wait.
    pub delay: Duration,
    /// How long all commands must have run before earlier restarts no longer count. Default: forever, so all
    /// restarts count.
    pub forget: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { most: None, delay: Duration::ZERO, forget: Duration::MAX }
    }
}

/// What follows after a world that is over. Its text is the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outlook {
    /// All commands start again.
    Restart {
        /// How long all nodes wait before they start.
        delay: Duration,
        /// The number of this restart in the row, and the most restarts in a row; none if this restart does
        /// not count.
        number: Option<(u32, u32)>,
    },
    /// The caller decides: the session has no limit of restarts.
    Open,
    /// No restart is left.
    Ends {
        /// The most restarts in a row.
        most: u32,
        /// Whether a dead node may turn out to have caused the end: then no restart counts, and the job goes
        /// on.
        hopes: bool,
    },
    /// This node's command was the first to fail twice in a row, and the job goes on without this node.
    GivesSeat,
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Restart { delay, number } => {
                f.write_str("all commands restart")?;
                if !delay.is_zero() {
                    write!(f, " in {}", duration(delay))?;
                }
                number.map_or(Ok(()), |(number, most)| write!(f, ", {number} of {most}"))
            }
            Self::Open => f.write_str("this world is over"),
            Self::Ends { most: 0, .. } => f.write_str("the job ends"),
            Self::Ends { most, hopes } => {
                let hope =
                    if hopes { "; the job ends, unless another node turns out to be gone" } else { "" };
                write!(f, "no restart is left of {most}{hope}")
            }
            Self::GivesSeat => f.write_str(
                "the command here was the first to fail twice in a row: this node gives up its seat",
            ),
        }
    }
}

/// The time as text, such as `12 ms`, `3.4 s` or `2 min 5 s`.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// The restarts in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) restarts: Restarts,
    pub(super) count: u32,
    /// Whether the world goes on without a node that is gone. Without restarts none does.
    pub(super) is_elastic: bool,
    /// A node that is gone, or leaves, was the first cause of the end of the last world.
    pub(super) is_excused: bool,
}

impl Row {
    pub(super) fn new(restarts: Restarts, is_range: bool) -> Self {
        Self {
            restarts,
            count: 0,
            is_elastic: is_range && restarts.most.is_some_and(|most| most > 0),
            is_excused: false,
        }
    }

    /// Takes over the highest count that a node of the world knows.
    pub(super) fn agree(&mut self, roster: Option<&Roster>) {
        let members = roster.map(Roster::members).unwrap_or_default();
        let count = |member: &Member| member.metadata.get(KEY).and_then(|text| text.parse().ok());
        self.count = members.iter().filter_map(count).fold(self.count, u32::max);
        self.is_excused = false;
    }

    /// How a message says that a restart does not count because a node was gone, or leaves.
    pub(super) fn refund(&self) -> &'static str {
        if self.is_elastic && self.is_excused { "; the restart does not count" } else { "" }
    }

    /// Writes the count for the other nodes of the next world.
    pub(super) fn write(&self, metadata: &mut Metadata) {
        if self.count > 0 {
            // Where the caller's own pairs leave no room, newcomers do not learn it.
            let _ = metadata.insert(KEY, &self.count.to_string());
        }
    }

    /// What follows a world that has ended like this. In a world that goes on without a node that is gone,
    /// the commands of the others often fail before that is found.
    pub(super) fn outlook(&self, end: End) -> Outlook {
        match (self.restarts.most, self.after(end)) {
            (None, _) => Outlook::Open,
            (Some(most), None) => Outlook::Ends { most, hopes: self.is_elastic },
            (Some(most), Some(next)) => {
                let number = next.costs(end).then_some((next.count, most));
                Outlook::Restart { delay: next.delay(end), number }
            }
        }
    }

    /// Forgets all restarts, since the commands have run for long enough.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }

    /// The row after a world that has ended like this; none if no restart is left.
    pub(super) fn after(&self, end: End) -> Option<Self> {
        if !self.costs(end) {
            return Some(*self);
        }
        let is_left = self.restarts.most.is_some_and(|most| self.count < most);
        is_left.then(|| Self { count: self.count + 1, ..*self })
    }

    /// How long to wait before this restart. The first of a row does not wait, the second waits for the given
    /// time, and each later one twice as long as the last.
    pub(super) fn delay(&self, end: End) -> Duration {
        let Some(doublings) = self.count.checked_sub(2).filter(|_| self.costs(end)) else {
            return Duration::ZERO;
        };
        let first = self.restarts.delay;
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(LONGEST_DELAY.max(first))
    }

    /// Whether a restart after this end counts. A node that leaves or waits for a seat has not failed. If
    /// this node does not know the cause, other nodes do, and have restarted already.
    fn costs(&self, end: End) -> bool {
        match end {
            _ if self.restarts.most.is_none() => false,
            End::Left | End::Grows | End::Unknown => false,
            End::Gone => !self.is_elastic,
            _ => !self.is_elastic || !self.is_excused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(most: u32, delay: u64) -> Row {
        let delay = Duration::from_millis(delay);
        Row::new(Restarts { most: Some(most), delay, forget: Duration::MAX }, false)
    }

    #[test]
    fn the_first_restart_is_at_once_and_each_later_one_waits_twice_as_long() {
        let (mut row, end, mut delays) = (row(13, 1000), End::Exited(1), Vec::new());
        while let Some(next) = row.after(end) {
            row = next;
            delays.push(row.delay(end).as_secs());
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(row.count, 13);
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
            let outlook = Outlook::Restart { delay: Duration::ZERO, number: None };
            assert_eq!(used_up.outlook(end), outlook, "{end:?}");
            assert_eq!(next.count, 1);
        }
        let without_restarts = Row::new(row(0, 0).restarts, true);
        assert_eq!(without_restarts.outlook(End::Gone), Outlook::Ends { most: 0, hopes: false });
        let mut elastic = Row { is_elastic: true, ..used_up };
        assert!(elastic.after(End::Gone).is_some() && elastic.after(End::Exited(1)).is_none());
        elastic.is_excused = true;
        assert_eq!(elastic.after(End::Exited(1)).unwrap().count, 1);
        // That holds for one world.
        elastic.agree(None);
        assert!(elastic.after(End::Exited(1)).is_none());
    }

    #[test]
    fn what_uses_up_no_restart_has_no_pause_however_many_restarts_there_were_in_a_row() {
        let many = Row { count: 5, ..row(9, 1000) };
        assert_eq!(many.delay(End::Exited(1)), Duration::from_secs(8));
        for end in [End::Left, End::Grows, End::Unknown] {
            assert_eq!(many.delay(end), Duration::ZERO, "{end:?}");
        }
    }

    #[test]
    fn a_restart_after_a_node_is_gone_is_said_not_to_count_only_where_it_does_not() {
        let said =
            |is_range, is_excused| Row { is_excused, ..Row::new(row(2, 0).restarts, is_range) }.refund();
        assert_eq!([said(false, false), said(false, true), said(true, false)], [""; 3]);
        assert_eq!(said(true, true), "; the restart does not count");
    }

    #[test]
    fn what_follows_is_the_end_of_a_sentence() {
        let end = End::Exited(1);
        let mut row = row(2, 1000);
        assert_eq!(row.outlook(end).to_string(), "all commands restart, 1 of 2");
        row = row.after(end).unwrap();
        assert_eq!(row.outlook(end).to_string(), "all commands restart in 1.0 s, 2 of 2");
        assert_eq!(row.outlook(End::Left).to_string(), "all commands restart");
        row = row.after(end).unwrap();
        assert_eq!(row.outlook(end).to_string(), "no restart is left of 2");
        row.is_elastic = true;
        let hope = "no restart is left of 2; the job ends, unless another node turns out to be gone";
        assert_eq!(row.outlook(end).to_string(), hope);
        row.restarts.most = Some(0);
        assert_eq!(row.outlook(end).to_string(), "the job ends", "nobody has asked for restarts");
        row.restarts.most = None;
        assert_eq!(row.outlook(end).to_string(), "this world is over");
    }

    #[test]
    fn a_duration_is_short_to_read() {
        for (milliseconds, text) in [(12, "12 ms"), (999, "999 ms"), (3_449, "3.4 s"), (125_000, "2 min 5 s")]
        {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn the_count_is_in_the_metadata_until_it_is_forgotten() {
        let mut row = row(9, 0);
        for _ in 0..3 {
            row = row.after(End::Gone).unwrap();
        }
        let metadata = |row: Row| {
            let mut metadata = Metadata::default();
            row.write(&mut metadata);
            metadata
        };
        assert_eq!(metadata(row).get(KEY), Some("3"));
        row.agree(None);
        assert_eq!(metadata(row).get(KEY), Some("3"));
        row.forget();
        assert_eq!(metadata(row), Metadata::default());
    }
}
