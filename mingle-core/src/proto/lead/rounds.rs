//! The rounds of a leader, from a full book to a formed world: which one is under way, and what earlier ones
//! have shown.

use std::collections::BTreeSet;
use std::time::Duration;

use super::alike;
use super::book::Book;
use super::broken::BrokenRounds;
use super::commit::Committed;
use super::ending::{self, Ending};
use super::networks::RoundNetwork;
use super::plan::{self, Plan};
use super::ranks::{self, Apart, Applicant};
use super::round::{Fate, Round};
use super::unfit::{self, Excluded, Planned, Start};
use crate::model::{BrokenPath, NodeId};
use crate::proto::report::{Event, Failure, Formed};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Broken, Refusal};

/// For this long another round starts although paths were broken. A round of failed proofs takes 4.3 s, so
/// the third begins after 8.6 s: a network that heals within that time still gets its world, and three
/// networks or families are tried.
const PERSIST: Duration = Duration::from_secs(12);
/// A member that has sent nothing for this long when a proof has failed is expelled. It is asked at least
/// every second.
const SILENT: Duration = Duration::from_secs(3);
/// After so many rounds in which a member answers and is not ready, no world can form.
const UNREADY_ROUNDS: u32 = 3;
/// A leader that ends looks so late at what all have read: most read it at the same time.
const LOOKS: Duration = Duration::from_millis(1);
/// Between two checks whether the members have an address family in common.
const AGAIN: Duration = Duration::from_millis(500);

/// The rounds of one leader.
#[derive(Debug, Clone)]
pub(super) struct Rounds {
    phase: Phase,
    /// How many have started.
    started: u64,
    /// The last that is void.
    voided: u64,
    /// How many rounds of these members failed because a proof failed.
    failed: u64,
    /// How many rounds took too long because these members were not ready, and who was not in any of them.
    overdue: u32,
    unready: Vec<NodeId>,
    /// When the first round of these members started.
    proving_since: Option<Time>,
    /// Provers and masters between which the proof has failed.
    unproved: BTreeSet<(NodeId, NodeId)>,
    broken: BrokenRounds,
}

#[derive(Debug, Clone)]
enum Phase {
    /// Collecting members.
    Collecting,
    /// Prepared, and waiting until all are ready.
    Proving(Round),
    /// The world has formed; some may not know it yet.
    Committed(Committed),
    /// No world can form, and the members learn why.
    Ending(Ending),
    /// All is sent.
    Over(Result<Formed, Failure>),
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Collecting,
            started: 0,
            voided: 0,
            failed: 0,
            overdue: 0,
            unready: Vec::new(),
            proving_since: None,
            unproved: BTreeSet::new(),
            broken: BrokenRounds::default(),
        }
    }

    /// Whether no round is under way, nor anything after it.
    pub(super) fn is_collecting(&self) -> bool {
        matches!(self.phase, Phase::Collecting)
    }

    #[cfg(test)]
    pub(super) fn is_proving(&self) -> bool {
        matches!(self.phase, Phase::Proving(_))
    }

    #[cfg(feature = "testing")]
    pub(super) fn phase(&self) -> Option<crate::proto::testing::Phase> {
        use crate::proto::testing::Phase as Named;
        match self.phase {
            Phase::Collecting => None,
            Phase::Proving(_) => Some(Named::Proving),
            Phase::Committed(_) => Some(Named::Committed),
            Phase::Ending(_) => Some(Named::Refusing),
            Phase::Over(_) => Some(Named::Ended),
        }
    }

    /// How this leader has ended.
    pub(super) fn outcome(&self) -> Option<&Result<Formed, Failure>> {
        match &self.phase {
            Phase::Over(result) => Some(result),
            _ => None,
        }
    }

    /// Whether all nodes of the round under way are ready.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.phase, Phase::Proving(round) if round.is_ready())
    }

    pub(super) fn round(&mut self) -> Option<&mut Round> {
        match &mut self.phase {
            Phase::Proving(round) => Some(round),
            _ => None,
        }
    }

    /// The plan of a round with the members of a full book, where none is under way.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn next_plan(&mut self, book: &mut Book, shared: &mut Shared) -> Result<Plan, Start> {
        self.plan(book, shared).map_err(|unfit| match unfit {
            None => Start::Not,
            Some(unfit) => self.end_or_leave_out(unfit, book, shared),
        })
    }

    /// Starts the round of this plan.
    pub(super) fn start(&mut self, plan: Plan, book: &mut Book, shared: &mut Shared) {
        self.started += 1;
        for (_, entry) in book.entries_mut() {
            entry.is_ready = false;
        }
        shared.event(Event::Preparing { round: self.started });
        self.phase = Phase::Proving(Round::start(plan, book, shared));
    }

    /// The plan of the next round; or none yet, or the reason why these nodes can form no world.
    fn plan(&mut self, book: &Book, shared: &mut Shared) -> Planned<Plan> {
        let since = *self.proving_since.get_or_insert(shared.now);
        let persists = shared.now < since + PERSIST || self.has_other_master(book, shared);
        if let Some(broken) = self.broken.settle(persists) {
            let worst = unfit::worst(broken.ends(), book, shared);
            return Err(Some(Excluded::new(worst, broken.ending())));
        }
        let (assigned, network) = self.assign(persists, book, shared)?;
        let spare = unfit::spare(book, shared) + usize::try_from(shared.config.spare).unwrap_or(usize::MAX);
        let verdict = unfit::compare_rdma(&assigned, spare).map_err(Some)?;
        let sameness = alike::compare(&assigned, &verdict);
        if let Some(because) = alike::refusal(&assigned, &sameness) {
            return Err(Some(Excluded::new(Vec::new(), because)));
        }
        Plan::new(self.started + 1, &assigned, (verdict, sameness), &network).ok_or(None)
    }

    /// Whether no path was broken but that to the master, and a node is left that has not failed as master.
    fn has_other_master(&self, book: &Book, shared: &Shared) -> bool {
        self.broken.last.are_to_master()
            && ranks::choose(plan::applicants(book, shared), &self.unproved).is_some()
    }

    /// The nodes in the order of their ranks, and the network that they use.
    fn assign(
        &mut self,
        persists: bool,
        book: &Book,
        shared: &mut Shared,
    ) -> Planned<(Vec<Applicant>, RoundNetwork)> {
        let mut applicants = plan::applicants(book, shared);
        let family = ranks::settle_family(&mut applicants, shared.config.prefers_ipv6, self.failed);
        let turn = family.map_err(|Apart { six, four }| {
            if persists {
                // A host's addresses may have changed, and its join with the new ones be under way.
                shared.set_after(Timer::Round, AGAIN);
                return None;
            }
            let because = ending::apart(six[0], four[0], book, shared)?;
            Some(Excluded::new(unfit::apart(six, four, shared), because))
        })?;
        let network = RoundNetwork::settle(&applicants, turn);
        let assigned = ranks::choose_again(applicants, &self.unproved).ok_or(None)?;
        Ok((assigned, network))
    }

    /// Time has passed, or something was read: goes on with what is under way, or one may start.
    pub(super) fn go_on(&mut self, book: &mut Book, shared: &mut Shared) -> Fate {
        match &mut self.phase {
            Phase::Proving(round) if round.is_overdue(shared.now) => {
                let unready = book.members().filter(|(_, entry)| !entry.is_ready);
                let unready = unready.map(|(id, _)| id).collect();
                self.void(shared);
                return Fate::Overdue(unready);
            }
            Phase::Proving(round) => {
                let silent = round.silent(book, shared);
                if !silent.is_empty() {
                    return Fate::Silent(silent);
                }
                Round::ask(book, shared);
            }
            Phase::Committed(round) => {
                round.go_on(book, shared);
                if round.is_overdue(shared.now) || round.is_known(shared.now) {
                    self.form(shared);
                }
            }
            Phase::Ending(ending) => {
                if let Some(failure) = ending.over(book, shared) {
                    self.phase = Phase::Over(Err(failure));
                }
            }
            Phase::Collecting => return Fate::Collecting,
            Phase::Over(_) => {}
        }
        Fate::GoesOn
    }

    /// Whether it is decided how this leader ends, and what its nodes read is all that it waits for.
    pub(super) fn is_decided(&self) -> bool {
        !matches!(self.phase, Phase::Collecting | Phase::Proving(_))
    }

    /// Whether the world has formed: no other node can join it.
    pub(super) fn has_committed(&self) -> bool {
        matches!(self.phase, Phase::Committed(_))
    }

    /// A node may have read how this leader ends, or be gone.
    pub(super) fn look(&mut self, id: NodeId, book: &mut Book, shared: &mut Shared) {
        if let Phase::Ending(_) = self.phase {
            shared.timers.set_earlier(Timer::Round, shared.now + LOOKS);
        }
        if let Phase::Committed(round) = &mut self.phase
            && round.look(id, book, shared)
        {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// The last round that is void.
    pub(super) fn voided(&self) -> u64 {
        self.voided
    }

    /// A member is ready; where all are, the world has formed.
    pub(super) fn on_ready(&mut self, from: NodeId, number: u64, book: &mut Book, shared: &mut Shared) {
        if let Phase::Proving(round) = &mut self.phase
            && round.number() == number
        {
            round.on_ready(from, book);
            if round.is_ready() {
                // The commit follows, when the ends of connections that wait have been read.
                shared.timers.set(Timer::Round, shared.now);
            }
        }
    }

    /// A member cannot prove paths.
    pub(super) fn on_broken(
        &mut self,
        from: NodeId,
        number: u64,
        broken: &Broken,
        book: &Book,
        shared: &mut Shared,
    ) {
        if let Phase::Proving(round) = &mut self.phase
            && round.number() == number
            && book.member(from).is_some()
            && self.broken.last.insert(from, broken, round)
        {
            round.add_failure(shared);
        }
    }

    /// The leader has proved all that it must: where all members are ready, the commit follows.
    pub(super) fn all_proved(&mut self, shared: &mut Shared) {
        if self.is_ready() {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// This node's own proofs have taken too long, or the others have had their time to report the same.
    pub(super) fn proof_failed(&mut self, book: &Book, shared: &mut Shared) -> Fate {
        let Phase::Proving(round) = &mut self.phase else { return Fate::GoesOn };
        if let Some(broken) = round.broken() {
            self.broken.last.insert(shared.me(), &broken, round);
        } else if !round.is_failing() {
            return Fate::GoesOn;
        }
        if round.add_failure(shared) {
            return Fate::GoesOn;
        }
        // A proof that a dead node holds up says nothing of the others.
        let silent = round.silent_for(SILENT, book, shared);
        if !silent.is_empty() {
            return Fate::Silent(silent);
        }
        self.failed += 1;
        // A master that was not reached is not chosen again.
        let (master, failed) = (round.master(), self.broken.last.without_master());
        self.unproved.extend(failed.iter().map(|&prover| (prover, master)));
        self.void(shared);
        Fate::Unproved(if failed.is_empty() {
            self.broken.last.most(book).into_iter().collect()
        } else {
            failed
        })
    }

    /// A member has no seat any more: what it could not reach is held against nobody, nor is it itself.
    pub(super) fn forget(&mut self, member: NodeId) {
        self.unproved.retain(|&(prover, master)| prover != member && master != member);
        self.broken.forget(member);
    }

    /// Forgets everything but the numbers of the last rounds.
    pub(super) fn reset(&mut self, shared: &mut Shared) {
        self.void(shared);
        *self = Self { started: self.started, voided: self.voided, ..Self::new() };
    }

    /// Voids the round under way, because this process was stopped. Returns whether there was one.
    pub(super) fn void_after_stop(&mut self, shared: &mut Shared) -> bool {
        let is_proving = self.round().is_some();
        self.void(shared);
        is_proving
    }

    /// These members were not ready in a round that took too long. After some rounds that the same ones have
    /// held up no world can form with them.
    pub(super) fn end_unready(&mut self, unready: &[NodeId], book: &mut Book, shared: &mut Shared) -> Start {
        if self.unready.iter().any(|id| unready.contains(id)) {
            self.unready.retain(|id| unready.contains(id));
        } else {
            self.unready = unready.to_vec();
            self.overdue = 0;
        }
        self.overdue += u32::from(!unready.is_empty());
        if self.overdue < UNREADY_ROUNDS {
            return Start::Again;
        }
        let unfit = Excluded::new(self.unready.clone(), ending::unready(&self.unready, book));
        self.end_or_leave_out(unfit, book, shared)
    }

    /// Commits if all are ready and there; a world of one has nobody to wait for.
    pub(super) fn commit_if_ready(&mut self, book: &mut Book, shared: &mut Shared) {
        // One whose last connection was reset may be gone.
        let are_there = |book: &Book| book.members().all(|(id, _)| shared.links.is_there(id));
        if !self.is_ready() || !are_there(book) {
            return;
        }
        if let Phase::Proving(round) = std::mem::replace(&mut self.phase, Phase::Collecting) {
            self.phase = Phase::Committed(Committed::start(round.into_plan(), book, shared));
            self.go_on(book, shared);
        }
    }

    fn form(&mut self, shared: &mut Shared) {
        if let Phase::Committed(round) = &self.phase
            && let Some(formed) = round.formed(shared)
        {
            self.phase = Phase::Over(Ok(formed));
        }
    }

    /// A member leaves: the round is void, and the next starts afresh.
    pub(super) fn void_for_change(&mut self, shared: &mut Shared) {
        self.void(shared);
        (self.proving_since, self.broken) = (None, BrokenRounds::default());
        self.failed = 0;
        self.overdue = 0;
    }

    fn void(&mut self, shared: &mut Shared) {
        if matches!(self.phase, Phase::Proving(_)) {
            let phase = std::mem::replace(&mut self.phase, Phase::Collecting);
            if let Phase::Proving(round) = phase {
                self.voided = round.number();
                round.stop(shared);
                // All members learn it.
                shared.timers.set(Timer::Welcome, shared.now);
            }
        }
    }

    /// Whether a node can join.
    ///
    /// # Errors
    /// What it is told instead, if anything.
    pub(super) fn admits(&self, from: NodeId, book: &Book, shared: &Shared) -> Result<(), Option<Refusal>> {
        match &self.phase {
            Phase::Collecting | Phase::Proving(_) => Ok(()),
            // It gets its commit.
            Phase::Committed(_) if book.member(from).is_some() => Err(None),
            Phase::Committed(round) => Err(Some(round.no_seat(shared))),
            Phase::Ending(ending) => Err(Some(ending.refusal())),
            Phase::Over(_) => Err(Some(Refusal::Closing)),
        }
    }

    /// No world can form with these nodes: they are left out if enough others are here, or else all end.
    fn end_or_leave_out(&mut self, unfit: Box<Excluded>, book: &mut Book, shared: &mut Shared) -> Start {
        if !unfit.nodes.is_empty() && unfit.nodes.len() <= unfit::spare(book, shared) {
            return Start::Without(unfit);
        }
        self.phase = Phase::Ending(Ending::start(unfit.refusal, unfit.failure, book, shared));
        Start::Not
    }

    /// A path that was broken in the round that has just ended.
    pub(super) fn broken_path(&self) -> Option<BrokenPath> {
        self.broken.last.first()
    }

    /// No other round begins. If those that there were have failed, all learn why. Returns whether so.
    pub(super) fn give_up(&mut self, book: &mut Book, shared: &mut Shared) -> bool {
        let (refusal, failure) = match self.broken.give_up() {
            Some(broken) => broken.ending(),
            None if !self.unready.is_empty() => ending::unready(&self.unready, book),
            None => return false,
        };
        self.phase = Phase::Ending(Ending::start(refusal, failure, book, shared));
        true
    }

    /// This node leaves itself out.
    pub(super) fn leave(&mut self, failure: Failure) {
        self.phase = Phase::Over(Err(failure));
    }
}
