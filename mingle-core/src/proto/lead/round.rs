//! One round until it commits: the leader prepares, proves its own paths, and waits until all are ready.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::book::Book;
use super::plan::Plan;
use crate::model::{BrokenPath, NodeId};
use crate::proto::output::ConnId;
use crate::proto::prove::{Arrivals, PathProofs};
use crate::proto::scale::UNANSWERED_COPIES;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::proto::waves::Waves;
use crate::wire::{Broken, BrokenTo, Message, Partner};

/// A member that was silent for this long in a round is expelled.
const EXPEL: Duration = Duration::from_secs(5);
/// A round that has not ended by then is void, whatever the reason.
const LONGEST: Duration = Duration::from_secs(15);
/// When a node reports broken paths, others have this long to report theirs, so that the leader knows all.
const MORE_FAILURES: Duration = Duration::from_millis(300);

/// The state of a round after a step.
#[derive(Debug)]
pub(super) enum Fate {
    /// It goes on, or a later phase does.
    GoesOn,
    /// None is under way: one may start.
    Collecting,
    /// It took too long and is void. These members answered and were not ready.
    Overdue(Vec<NodeId>),
    /// These members were silent for too long.
    Silent(Vec<NodeId>),
    /// A proof has failed, and it is void. These members have not reached the master; or where all have, this
    /// one is at most ends of broken paths.
    Unproved(Vec<NodeId>),
}

#[derive(Debug, Clone)]
pub(super) struct Round {
    plan: Plan,
    proofs: PathProofs,
    started: Time,
    /// How many members are ready.
    ready: u32,
    /// A node cannot prove all its paths.
    failing: bool,
    waves: Waves,
    /// The roster as it is written, once a member wants it, and the connections on which it was told.
    roster: Option<Arc<[u8]>>,
    told: BTreeSet<ConnId>,
}

impl Round {
    pub(super) fn start(plan: Plan, shared: &mut Shared) -> Self {
        let mut partners = plan.partners(shared.me());
        if plan.master != shared.me() {
            partners.push(Partner::master(plan.master, plan.master_at));
        }
        let mut proofs = PathProofs::start(partners.len(), shared);
        proofs.add(&partners, shared);
        Self {
            plan,
            proofs,
            started: shared.now,
            ready: 0,
            failing: false,
            waves: Waves::in_round(shared.scale(), shared.now),
            roster: None,
            told: BTreeSet::new(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.plan.number
    }

    pub(super) fn master(&self) -> NodeId {
        self.plan.master
    }

    /// The plan, for the commit.
    pub(super) fn into_plan(self) -> Plan {
        self.plan
    }

    /// Whether all live, but one cannot get ready.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        now >= self.started + LONGEST
    }

    /// The members that have been silent for too long, at the end of a wave.
    pub(super) fn silent(&self, book: &Book, now: Time) -> Vec<NodeId> {
        if self.waves.is_between() { self.silent_for(EXPEL, book, now) } else { Vec::new() }
    }

    /// The members that have been silent for this long.
    pub(super) fn silent_for(&self, limit: Duration, book: &Book, now: Time) -> Vec<NodeId> {
        let silent = book.members().filter(|(_, entry)| now >= entry.heard.max(self.started) + limit);
        silent.map(|(id, _)| id).collect()
    }

    /// Sends prepare to the members that are not ready.
    pub(super) fn repeat(&mut self, book: &Book, arrivals: &Arrivals, shared: &mut Shared) {
        let unready = || {
            let unready = book.members().filter(|(_, entry)| !entry.is_ready);
            unready.map(|(id, _)| id).collect::<VecDeque<_>>()
        };
        for id in self.waves.burst(unready, shared) {
            let (Some(entry), Some(lease)) = (book.get(id), arrivals.dial(id)) else { continue };
            if entry.node.attributes.wants_roster {
                self.tell_roster(id, arrivals, shared);
            }
            for prepare in self.plan.prepares(id, lease, self.waves.number()) {
                entry.reach(id, self.waves.number(), &Message::Prepare(prepare), shared);
            }
        }
    }

    /// Tells the roster on each connection of a member: TCP repeats the roster by itself, but not on a
    /// connection that has broken, and in a job without a secret others can open connections in a member's
    /// name.
    fn tell_roster(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        let Self { plan, roster, told, .. } = self;
        let roster = roster.get_or_insert_with(|| shared.encode_roster(plan.number, &plan.roster));
        for conn in arrivals.connections(id).filter(|conn| told.insert(*conn)) {
            shared.tell(conn, Arc::clone(roster));
        }
    }

    /// A member is ready.
    pub(super) fn on_ready(&mut self, from: NodeId, book: &mut Book, shared: &mut Shared) {
        if let Some(entry) = book.member_mut(from)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready += 1;
            self.waves.answered(shared);
        }
    }

    /// A node cannot prove all its paths. The first to report that gives the others time to report the same.
    /// Returns whether this is the first.
    pub(super) fn add_failure(&mut self, shared: &mut Shared) -> bool {
        let is_first = !std::mem::replace(&mut self.failing, true);
        if is_first {
            shared.set_after(Timer::ProofFailed, MORE_FAILURES);
        }
        is_first
    }

    /// The leader's own proofs.
    pub(super) fn proofs(&mut self) -> &mut PathProofs {
        &mut self.proofs
    }

    /// Whether a node has reported that it cannot prove all its paths.
    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    /// The paths that this node could not prove.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.proofs.broken(self.plan.number)
    }

    /// A broken path as messages name it.
    pub(super) fn name(&self, from: NodeId, to: &BrokenTo) -> Option<BrokenPath> {
        self.plan.broken(from, to)
    }

    /// Whether all nodes are ready.
    pub(super) fn is_ready(&self) -> bool {
        self.proofs.are_proved() && self.ready + 1 == self.plan.world()
    }

    /// Tells the members that the round is void, and ends the proof.
    pub(super) fn void(self, book: &Book, shared: &mut Shared) {
        shared.timers.stop(Timer::Wave);
        // A member that waits for the roster asks for nothing, so that nothing else would tell it.
        for _ in 0..UNANSWERED_COPIES {
            for (id, entry) in book.members() {
                shared.send(entry.source, id, &Message::Void(self.plan.number));
            }
        }
        self.proofs.stop(shared);
    }
}
