//! One message to many members, repeated to those that have not answered it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::context::{Context, RunningTimer};
use crate::model::NodeId;
use crate::proto::timer::Time;
use crate::proto::waves::Waves;

/// The members that have not answered a message, and until when it is repeated to them.
#[derive(Debug, Clone)]
pub(super) struct Unanswered {
    members: BTreeSet<NodeId>,
    until: Time,
    waves: Waves,
}

impl Unanswered {
    /// The first burst is due at `now`; after `patience` no more are.
    pub(super) fn new(members: BTreeSet<NodeId>, now: Time, patience: Duration) -> Self {
        Self { members, until: now + patience, waves: Waves::new(now) }
    }

    pub(super) fn members(&self) -> &BTreeSet<NodeId> {
        &self.members
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn is_out_of_time(&self, now: Time) -> bool {
        now >= self.until
    }

    pub(super) fn extend(&mut self, time: Duration) {
        self.until += time;
    }

    pub(super) fn answered(&mut self, member: NodeId) {
        self.members.remove(&member);
    }

    /// The number of the current wave of repeats, from 0.
    pub(super) fn wave(&self) -> usize {
        self.waves.number()
    }

    /// Whether the next burst is the first of a wave.
    pub(super) fn begins_wave(&self) -> bool {
        self.waves.is_between()
    }

    /// The members to write to now; sets `timer` to when to write again.
    pub(super) fn burst(&mut self, context: &mut Context, timer: RunningTimer) -> Vec<NodeId> {
        context.burst(&mut self.waves, self.members.iter().copied(), timer)
    }
}
