//! The rounds of a leader, from a full book to a formed world: which one is under way, and what earlier ones
//! have shown.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Lead;
use super::book::Entry;
use super::broken::{BrokenRounds, at_fault};
use super::commit::Committed;
use super::plan::{self, RoundPlan, plan_round};
use super::ranks;
use super::round::{MORE_FAILURES, Round};
use super::unfit::{self, Excluded, Planned};
use crate::model::NodeId;
use crate::proto::prove::{PATIENCE, PathProofs};
use crate::proto::report::{Event, Formed};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Answer, Part, Refusal, Trouble, UNREADY};

/// For this long another round starts although paths were broken. A round of failed proofs takes 4.3 s, so
/// the third begins after 8.6 s: a network that heals within that time still gets its world, and three
/// networks or families are tried.
const PERSIST: Duration = Duration::from_secs(12);
/// How long a round takes at most whose proofs fail.
const FAILS: Duration = PATIENCE.saturating_add(MORE_FAILURES);
/// So many networks and families are tried in that time.
const TRIED: u64 = 3;
/// A member that was silent for this long in a round is expelled.
const EXPEL: Duration = Duration::from_secs(5);
/// A member that has sent nothing for this long when a proof has failed is expelled. It is asked at least
/// every second.
const SILENT: Duration = Duration::from_secs(3);
/// A round that has not ended by then is void, whatever the reason.
const LONGEST: Duration = Duration::from_secs(15);
/// How long a leader for which no world can form stays until all have read why.
const FAREWELL: Duration = Duration::from_secs(3);
/// Between two checks whether the members have an address family in common.
const AGAIN: Duration = Duration::from_millis(500);

/// The rounds of one leader.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    pub(super) phase: Phase,
    /// How many have started.
    started: u64,
    /// The last that is void.
    pub(super) voided: u64,
    /// How many rounds of these members failed because a proof failed, and on how many networks and families
    /// they may be.
    failed: u64,
    ways: u64,
    /// The nodes only try, and all ways were tried in vain: a world forms in spite of broken paths.
    may_excuse: bool,
    /// When the first round of these members started.
    pub(super) proving_since: Option<Time>,
    /// Provers and masters between which the proof has failed.
    unproved: BTreeSet<(NodeId, NodeId)>,
    broken: BrokenRounds,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Phase {
    /// Collecting members.
    #[default]
    Collecting,
    /// Prepared, and waiting until all are ready.
    Proving(Round),
    /// The world has formed; some may not know it yet.
    Committed(Committed),
    /// No world can form, and all that have joined learn why until then.
    Ending(Refusal, Time),
    /// All is sent, and this is the end.
    Over(Event),
}

impl Rounds {
    /// Voids the round under way. Returns whether there was one.
    fn void(&mut self, shared: &mut Shared) -> bool {
        match std::mem::take(&mut self.phase) {
            Phase::Proving(round) => {
                self.voided = round.plan.number;
                round.stop(shared);
                // All members learn it.
                shared.timers.set(Timer::Welcome, shared.now);
                true
            }
            phase => {
                self.phase = phase;
                false
            }
        }
    }

    /// This member leaves: the round is void, and the next starts afresh. What the member could not reach is
    /// held against nobody, nor is it itself.
    pub(super) fn void_without(&mut self, member: NodeId, shared: &mut Shared) {
        self.void(shared);
        (self.proving_since, self.broken) = (None, BrokenRounds::default());
        self.failed = 0;
        self.unproved.retain(|&(prover, master)| prover != member && master != member);
    }

    /// Forgets everything but the numbers of the last rounds.
    pub(super) fn reset(&mut self, shared: &mut Shared) {
        self.void(shared);
        *self = Self { started: self.started, voided: self.voided, ..Self::default() };
    }
}

impl Lead {
    /// Whether no round is under way, nor anything after it.
    pub(crate) fn is_collecting(&self) -> bool {
        matches!(self.rounds.phase, Phase::Collecting)
    }

    pub(crate) fn is_proving(&self) -> bool {
        matches!(self.rounds.phase, Phase::Proving(_))
    }

    /// How the leader has ended.
    pub(crate) fn outcome(&self) -> Option<&Event> {
        match &self.rounds.phase {
            Phase::Over(event) => Some(event),
            _ => None,
        }
    }

    /// Whether all nodes of the round under way are ready.
    pub(crate) fn is_about_to_commit(&self) -> bool {
        matches!(&self.rounds.phase, Phase::Proving(round) if round.is_ready())
    }

    /// The leader's own proofs in the round under way.
    pub(crate) fn proofs(&mut self) -> Option<&mut PathProofs> {
        match &mut self.rounds.phase {
            Phase::Proving(round) => Some(&mut round.proofs),
            _ => None,
        }
    }

    /// Whether it is decided how this leader ends, and what its nodes read is all that it waits for.
    pub(crate) fn is_decided(&self) -> bool {
        !matches!(self.rounds.phase, Phase::Collecting | Phase::Proving(_))
    }

    /// Whether the world has formed, and this leader stays until its members know it.
    pub(crate) fn has_committed(&self) -> bool {
        matches!(self.rounds.phase, Phase::Committed(_))
    }

    /// Starts a round if all seats are taken, or if the last call is over.
    pub(crate) fn start_round_if_full(&mut self, shared: &mut Shared) {
        let may_start = !self.frozen && !self.overdue && self.is_collecting() && self.expelled.is_empty();
        let seated = self.book.seated;
        let is_due = seated >= shared.most() || self.call.is_over();
        // A call that is over may have found fewer since.
        if !may_start || !is_due || seated < shared.config.least() {
            return;
        }
        match self.plan(shared) {
            Ok((plan, formed)) => {
                self.welcome_first(Time::MAX, shared);
                self.rounds.started = plan.number;
                shared.event(Event::Preparing { round: plan.number });
                // Of two leaders whose seats are all taken at the same time, the worse yields to the better.
                shared.timers.set_earlier(Timer::Call, shared.now);
                self.rounds.phase = Phase::Proving(Round::start(plan, formed, &self.book, shared));
            }
            Err(Some(unfit)) => self.end_or_leave_out(*unfit, shared),
            Err(None) => {}
        }
    }

    /// The plan of the next round, and the world that forms by it; or none yet, or the reason why these nodes
    /// can form no world.
    fn plan(&mut self, shared: &mut Shared) -> Planned<(RoundPlan, Formed)> {
        let since = *self.rounds.proving_since.get_or_insert(shared.now);
        let spare = unfit::spare(&self.book, shared);
        let persists = shared.now < since + PERSIST || self.has_other_master(shared);
        // Where a standby waits, it has a part in the last round before this node's time is up.
        let is_last = shared.timers.get(Timer::Deadline).is_some_and(|ends| shared.now + FAILS >= ends);
        let gives_up = is_last && !self.book.standbys().is_empty();
        if let Some(broken) = self.rounds.broken.settle(persists && !gives_up) {
            let mut unreached = at_fault(broken.ends(), |id| *id == shared.me());
            // Reports that name some of many paths name those to the same few nodes; and once this node is
            // left out, the next leader decides about the others.
            let own = unreached.iter().position(|id| *id == shared.me()).unwrap_or(unreached.len());
            let most = if broken.are_all_named() { spare.min(own) } else { 1 };
            unreached.truncate(most.max(1));
            if !shared.config.tries || unreached.len() <= spare {
                return Err(Some(Excluded::new(unreached, broken.ending())));
            }
        }
        // Where nodes can be spared they are left out first, as in a job.
        self.rounds.may_excuse = shared.config.tries
            && self.rounds.failed >= self.rounds.ways.clamp(1, TRIED)
            && (spare == 0 || !persists);
        // Where all networks were tried in vain, the first is what a rendezvous would name.
        let failed = if self.rounds.may_excuse { 0 } else { self.rounds.failed };
        let own = (shared.me(), shared.config.prefers_ipv6);
        let (number, applicants) = (self.rounds.started + 1, plan::applicants(&self.book, shared));
        match plan_round(number, applicants, own, failed, spare, &self.rounds.unproved) {
            Err(Some(unfit)) if persists && matches!(unfit.refusal, Refusal::NoCommonFamily(..)) => {
                // A host's addresses may have changed, and its join with the new ones be under way.
                shared.set_after(Timer::Round, AGAIN);
                Err(None)
            }
            planned => planned.and_then(|(plan, ways)| {
                self.rounds.ways = ways;
                plan.formed(shared).map(|formed| (plan, formed)).ok_or(None)
            }),
        }
    }

    /// Whether no path was broken but that to the master, and a node is left that has not failed as master.
    /// Where a standby waits, and a single member has reached no master, no other is tried for its sake.
    fn has_other_master(&self, shared: &Shared) -> bool {
        let unproved = &self.rounds.unproved;
        let provers: BTreeSet<NodeId> = unproved.iter().map(|(prover, _)| *prover).collect();
        let is_one_member = provers.len() == 1 && !provers.contains(&shared.me());
        if is_one_member && !self.book.standbys().is_empty() {
            return false;
        }
        let has_failed = |id: NodeId| unproved.iter().any(|(_, master)| *master == id);
        let next = || ranks::order(plan::applicants(&self.book, shared), unproved)?.into_iter().next();
        self.rounds.broken.last.are_to_master() && next().is_some_and(|master| !has_failed(master.id))
    }

    /// Time has passed, or something was read: goes on with what is under way, or one may start.
    pub(crate) fn go_on(&mut self, shared: &mut Shared) {
        self.commit_if_ready(shared);
        match &mut self.rounds.phase {
            // All live, and some cannot get ready.
            Phase::Proving(round) if shared.now >= round.started + LONGEST => {
                let unready = self.book.members().map(|(id, _)| id).filter(|id| !round.ready.contains(id));
                let unready: Vec<NodeId> = unready.collect();
                self.rounds.void(shared);
                self.welcome_first(shared.now, shared);
                self.blame(unready, shared);
            }
            Phase::Proving(round) => {
                let silent = round.silent_for(EXPEL, &self.book, shared);
                if silent.is_empty() {
                    round.ask(&self.book, shared);
                } else {
                    self.expel(silent);
                }
            }
            Phase::Committed(round) => {
                round.go_on(&self.book, shared);
                if round.is_over(&self.book, shared.now) {
                    self.rounds.phase = Phase::Over(Event::Formed(round.formed.clone()));
                }
            }
            Phase::Ending(refusal, until) => {
                let knows = |id| {
                    let link = shared.links.get(id).map(|peer| &peer.link);
                    link.is_none_or(|link| !link.is_there() || link.session.is_read())
                };
                if shared.now < *until && !self.book.entries().all(|(id, _)| knows(id)) {
                    shared.timers.set(Timer::Round, *until);
                } else if let Some(failure) = shared.failure(refusal.clone(), shared.peer()) {
                    self.rounds.phase = Phase::Over(Event::Failed(failure));
                }
            }
            Phase::Collecting => self.fill_seats(shared),
            Phase::Over(_) => {}
        }
    }

    /// Whether a round was void.
    pub(crate) fn has_voided(&self) -> bool {
        self.rounds.voided > 0
    }

    /// A node may have read how this leader ends, or be gone.
    pub(super) fn look_at_end(&mut self, id: NodeId, shared: &mut Shared) {
        match &mut self.rounds.phase {
            Phase::Ending(..) => shared.timers.set(Timer::Round, shared.now),
            Phase::Committed(round) => round.look(id, &self.book, shared),
            _ => {}
        }
    }

    /// How far a member is.
    pub(crate) fn on_part(&mut self, from: NodeId, part: &Part, shared: &mut Shared) {
        let Phase::Proving(round) = &mut self.rounds.phase else { return };
        match &part.answer {
            _ if round.plan.number != part.round => {}
            Answer::Ready => {
                round.ready.extend(self.book.member(from).map(|_| from));
                self.all_proved(shared);
            }
            Answer::Broken(broken) => {
                let is_member = self.book.member(from).is_some();
                if is_member && self.rounds.broken.last.insert(from, broken, &round.plan.terms) {
                    round.add_failure(shared);
                }
            }
        }
    }

    /// The leader or a member has proved all that it must. Where all are ready, the commit follows, when the
    /// ends of connections that wait have been read.
    pub(crate) fn all_proved(&mut self, shared: &mut Shared) {
        if self.is_about_to_commit() {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// This node's own proofs have taken too long, or the others have had their time to report the same.
    pub(crate) fn proof_failed(&mut self, shared: &mut Shared) {
        let Phase::Proving(round) = &mut self.rounds.phase else { return };
        let broken = &mut self.rounds.broken.last;
        if let Some(own) = round.proofs.broken() {
            broken.insert(shared.me(), &own, &round.plan.terms);
        } else if !round.failing {
            return;
        }
        if round.add_failure(shared) {
            return;
        }
        // A proof that a dead node holds up says nothing of the others.
        let silent = round.silent_for(SILENT, &self.book, shared);
        if !silent.is_empty() {
            return self.expel(silent);
        }
        let may_excuse = self.rounds.may_excuse || shared.config.tries && self.overdue;
        if may_excuse && broken.without_master().is_empty() {
            let has_answered = |id: NodeId| round.ready.contains(&id) || broken.has(id);
            if self.book.members().all(|(id, _)| has_answered(id)) {
                round.excuse(&self.book, shared.me());
                return self.all_proved(shared);
            }
            return Round::await_answers(shared);
        }
        self.rounds.failed += 1;
        // A master that was not reached is not chosen again.
        let unproved = broken.without_master().into_iter().map(|prover| (prover, round.plan.master));
        self.rounds.unproved.extend(unproved);
        if let Some(path) = broken.first() {
            self.trouble = Some(Trouble::Broken(path.clone()));
            self.news.push(Trouble::Broken(path));
        }
        self.rounds.void(shared);
        self.welcome_first(shared.now, shared);
        // The user learns why before the next attempt begins.
        shared.timers.set(Timer::Round, shared.now);
    }

    fn expel(&mut self, silent: Vec<NodeId>) {
        tracing::debug!(?silent, "silent since the prepare: expelled");
        self.expelled.extend(silent.into_iter().map(|id| (id, true)));
    }

    /// These members answered, and were not ready when the round was over: no world can form with them.
    fn blame(&mut self, unready: Vec<NodeId>, shared: &mut Shared) {
        if unready.is_empty() {
            return self.fill_seats(shared);
        }
        let named = unready.iter().filter_map(|&id| self.book.get(id).map(Entry::peer));
        let refusal = Refusal::Unready(named.take(UNREADY).collect());
        self.end_or_leave_out(*Excluded::new(unready, refusal), shared);
    }

    /// This process was stopped in a round. Members may have given up meanwhile, although what they sent
    /// before says that they are ready: starts another round when all that waits has been read.
    pub(crate) fn void_after_stop(&mut self, shared: &mut Shared) {
        if self.abandon_round(shared) {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// Voids the round under way, which its members learn first. Returns whether there was one.
    pub(crate) fn abandon_round(&mut self, shared: &mut Shared) -> bool {
        let is_void = self.rounds.void(shared);
        if is_void {
            self.welcome_first(shared.now, shared);
        }
        is_void
    }

    /// Commits if all are ready and there; a world of one has nobody to wait for.
    pub(crate) fn commit_if_ready(&mut self, shared: &mut Shared) {
        // One whose last connection was reset may be gone.
        let are_there = |lead: &Self| lead.book.members().all(|(id, _)| shared.links.is_there(id));
        if !self.is_about_to_commit() || !are_there(self) {
            return;
        }
        if let Phase::Proving(round) = std::mem::take(&mut self.rounds.phase) {
            self.rounds.phase = Phase::Committed(Committed::start(round, &self.book, shared));
            self.go_on(shared);
        }
    }

    /// Whether a node can join.
    ///
    /// # Errors
    /// What it is told instead, if anything.
    pub(super) fn admits(&self, from: NodeId, shared: &Shared) -> Result<(), Option<Refusal>> {
        match &self.rounds.phase {
            Phase::Collecting | Phase::Proving(_) => Ok(()),
            // It gets its commit.
            Phase::Committed(_) if self.book.member(from).is_some() => Err(None),
            Phase::Committed(round) => Err(Some(round.no_seat(shared))),
            Phase::Ending(refusal, _) => Err(Some(refusal.clone())),
            Phase::Over(_) => Err(Some(Refusal::Closing)),
        }
    }

    /// No world can form with these nodes: they are left out if enough others are here, or else all end.
    fn end_or_leave_out(&mut self, unfit: Excluded, shared: &mut Shared) {
        if !unfit.nodes.is_empty() && unfit.nodes.len() <= unfit::spare(&self.book, shared) {
            return self.leave_out(unfit, shared);
        }
        self.refuse_all(unfit.refusal, shared);
    }

    /// No world can form, for this reason: all that have joined learn it.
    fn refuse_all(&mut self, refusal: Refusal, shared: &mut Shared) {
        self.book.refuse_all(&refusal, shared);
        let until = shared.now + FAREWELL;
        shared.timers.set(Timer::Round, until);
        self.rounds.phase = Phase::Ending(refusal, until);
    }

    /// This node's time is up, with enough nodes here. If rounds have failed, all learn why. Returns whether
    /// that is so.
    pub(crate) fn give_up(&mut self, shared: &mut Shared) -> bool {
        if self.frozen || self.book.seated < shared.config.world.min().get() {
            return false;
        }
        let Some(broken) = self.rounds.broken.give_up() else { return false };
        self.refuse_all(broken.ending(), shared);
        true
    }
}
