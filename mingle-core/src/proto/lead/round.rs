//! One round until it commits: the leader prepares, proves its own paths, and waits until all are ready.

use std::collections::BTreeSet;
use std::time::Duration;

use super::book::Book;
use super::plan::RoundPlan;
use crate::model::{BrokenPath, NodeId, Rank};
use crate::proto::prove::PathProofs;
use crate::proto::report::Formed;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{BrokenTo, Partner, Said, WELCOME};

/// How often the members that are not ready are asked whether they are there.
const ASK: Duration = Duration::from_secs(1);
/// When a node reports broken paths, others have this long to report theirs, so that the leader knows all.
pub(crate) const MORE_FAILURES: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) plan: RoundPlan,
    /// The world that forms by it.
    pub(super) formed: Formed,
    pub(super) proofs: PathProofs,
    pub(super) started: Time,
    /// The members that are ready.
    pub(super) ready: BTreeSet<NodeId>,
    /// A node cannot prove all its paths.
    pub(super) failing: bool,
    /// The leader's own broken paths, if the world forms in spite of them.
    pub(super) excused: Option<Vec<(Rank, BrokenPath)>>,
}

impl Round {
    /// Tells the members, and starts to prove the leader's own paths.
    pub(super) fn start(plan: RoundPlan, formed: Formed, book: &Book, shared: &mut Shared) -> Self {
        let roster = Said::Roster(plan.number, plan.terms.roster.clone()).encode();
        for (id, entry) in book.members() {
            if entry.node.attributes.wants_roster {
                shared.links.say(shared.now, id, &roster);
            }
            if let Some(prepare) = plan.prepare(id) {
                shared.say(id, &Said::Prepare(prepare));
            }
        }
        let to_master = Partner::master(plan.master, plan.master_at);
        let partners = plan.partners(shared.me()).into_iter().chain([to_master]);
        shared.set_after(Timer::Round, ASK);
        let proofs = PathProofs::start(partners, shared);
        let (started, ready) = (shared.now, BTreeSet::new());
        Self { plan, formed, proofs, started, ready, failing: false, excused: None }
    }

    /// The members that have been silent for this long: they cannot be reached, or do not acknowledge.
    pub(super) fn silent_for(&self, limit: Duration, book: &Book, shared: &Shared) -> Vec<NodeId> {
        let from = self.started + limit;
        let is_silent = |id: &NodeId| {
            let lost_at = shared.links.get(*id).map(|peer| peer.link.lost_at(shared.now, limit));
            lost_at.is_none_or(|at| at.is_some_and(|at| shared.now >= at.max(from)))
        };
        book.members().map(|(id, _)| id).filter(is_silent).collect()
    }

    /// Asks the members that are not ready whether they are there.
    pub(super) fn ask(&self, book: &Book, shared: &mut Shared) {
        for (id, _) in book.members().filter(|(id, _)| !self.ready.contains(id)) {
            if let Some(peer) = shared.links.get_mut(id).filter(|peer| peer.link.session.is_read()) {
                peer.link.say_again(WELCOME);
            }
        }
        shared.timers.set(Timer::Welcome, shared.now);
        shared.set_after(Timer::Round, ASK);
    }

    /// A node cannot prove all its paths. The first to report that gives the others time to report the same.
    /// Returns whether this is the first.
    pub(super) fn add_failure(&mut self, shared: &mut Shared) -> bool {
        let is_first = !std::mem::replace(&mut self.failing, true);
        if is_first {
            Self::await_answers(shared);
        }
        is_first
    }

    /// Gives the others time to report broken paths as well.
    pub(super) fn await_answers(shared: &mut Shared) {
        shared.set_after(Timer::ProofFailed, MORE_FAILURES);
    }

    /// Whether all nodes are ready.
    pub(super) fn is_ready(&self) -> bool {
        (self.proofs.are_proved() || self.excused.is_some())
            && u32::try_from(self.ready.len() + 1) == Ok(self.plan.world())
    }

    /// The nodes only try a formation, and each has proved its paths or said which are broken: all are ready.
    pub(super) fn excuse(&mut self, book: &Book, me: NodeId) {
        self.ready = book.members().map(|(id, _)| id).collect();
        let named = |to: &BrokenTo| {
            let rank = self.plan.terms.roster.find(to.partner)?.rank;
            Some((rank, self.plan.terms.broken(me, to)?))
        };
        self.excused = Some(self.proofs.unproved().iter().filter_map(named).collect());
    }

    /// Ends the proof.
    pub(super) fn stop(mut self, shared: &mut Shared) {
        shared.timers.stop(Timer::Round);
        self.proofs.stop(shared);
    }
}
