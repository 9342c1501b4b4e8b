//! The last call of a world that may have one of several sizes: how long its leader waits for one node more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::book::Book;
use crate::model::NodeId;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};

/// A call is over this many last calls after enough nodes were here. A node that starts and dies again and
/// again would extend it for ever.
const MOST_CALLS: u32 = 4;
/// For so long after a candidate was heard it may still come: it may know of this leader only by now.
const CANDIDATE: Duration = Duration::from_secs(5);
/// How long before its time is up a leader begins the round of those who are here.
const ROUND: Duration = Duration::from_secs(1);
/// The most candidates that are remembered, since their IDs may be made up.
const CANDIDATES: usize = 64;

/// The last call of one leader. A world that must have all its nodes has none.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    /// When enough nodes were here; none while there are fewer.
    enough: Option<Enough>,
    /// The world forms with those who are here. A round that is void changes nothing of that.
    is_over: bool,
    /// When each node that has no seat was last heard to lead or to join.
    candidates: BTreeMap<NodeId, Time>,
}

#[derive(Debug, Clone, Copy)]
struct Enough {
    since: Time,
    /// When the last node got its seat.
    joined: Time,
}

impl Call {
    /// Whether the world forms with those who are here.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// So many nodes have a seat now, as the book says. `joined` is the one that has just got its own.
    pub(super) fn count(&mut self, book: &Book, joined: Option<NodeId>, shared: &mut Shared) {
        if !shared.config.may_be_small() {
            return;
        }
        if let Some(id) = joined {
            self.candidates.remove(&id);
        }
        if book.seated < shared.config.least() {
            self.cancel(shared);
            return;
        }
        let now = shared.now;
        let enough = self.enough.get_or_insert(Enough { since: now, joined: now });
        if joined.is_some() {
            enough.joined = now;
        }
        self.schedule(shared);
    }

    /// A node that has no seat leads or joins.
    pub(super) fn hear(&mut self, id: NodeId, shared: &Shared) {
        if !shared.config.may_be_small() {
            return;
        }
        self.candidates.insert(id, shared.now);
        if self.candidates.len() > CANDIDATES {
            let oldest = self.candidates.iter().min_by_key(|&(_, heard)| *heard).map(|(&id, _)| id);
            oldest.map(|id| self.candidates.remove(&id));
        }
    }

    /// When the call is over, as far as is known by now; none where too few nodes are here.
    pub(super) fn due(&self, shared: &Shared) -> Option<Time> {
        let Enough { since, joined } = self.enough?;
        let call = shared.config.last_call;
        let longest = |pause: Duration| since.saturating_add(pause.saturating_mul(MOST_CALLS));
        let for_members = joined.saturating_add(call).min(longest(call));
        let heard = self.candidates.values().max();
        let for_candidates = heard.map(|&heard| (heard + CANDIDATE).min(longest(call.max(CANDIDATE))));
        let due = for_candidates.map_or(for_members, |for_candidates| for_candidates.max(for_members));
        Some(Self::latest(shared).map_or(due, |latest| latest.min(due)))
    }

    /// Before this node's time is up, and with it that of most: a void round leaves the time for another.
    fn latest(shared: &Shared) -> Option<Time> {
        let (timeout, deadline) = (shared.config.timeout?, shared.timers.get(Timer::Deadline)?);
        Some(deadline.saturating_sub(ROUND.min(timeout / 8)))
    }

    /// Sets the timer at which the call may be over.
    pub(super) fn schedule(&self, shared: &mut Shared) {
        if let Some(due) = self.due(shared).filter(|_| !self.is_over) {
            shared.timers.set(Timer::LastCall, due.max(shared.now));
        }
    }

    /// Ends the call: the world forms with those who are here.
    pub(super) fn end(&mut self, shared: &mut Shared) {
        self.is_over = true;
        shared.timers.stop(Timer::LastCall);
    }

    /// Too few nodes are here, or this node leads no more: the next call begins afresh.
    pub(super) fn cancel(&mut self, shared: &mut Shared) {
        (self.enough, self.is_over) = (None, false);
        shared.timers.stop(Timer::LastCall);
    }
}
