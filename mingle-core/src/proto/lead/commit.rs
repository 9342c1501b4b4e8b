//! A round that has committed: the world has formed, and the leader stays until its members know it.

use std::collections::VecDeque;
use std::time::Duration;

use super::book::{Book, Entry};
use super::plan::Plan;
use crate::model::{NodeId, World};
use crate::proto::report::Formed;
use crate::proto::scale::UNANSWERED_COPIES;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::proto::waves::Waves;
use crate::wire::{Commit, Message, Refusal};

/// How long a leader stays for standbys, to tell them that the world is full.
const STANDBYS: Duration = Duration::from_secs(1);
/// How long a leader stays for members that have not confirmed.
const LINGER: Duration = Duration::from_secs(10);
/// How long the commit is sent to the master alone, which answers at once if it can.
const MASTER_FIRST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct Committed {
    plan: Plan,
    since: Time,
    unaware: Unaware,
    waves: Waves,
    /// How many standbys there were.
    left_over: u32,
}

/// How many have not confirmed: members that the world has formed, standbys that it is full.
#[derive(Debug, Clone, Copy, Default)]
struct Unaware {
    members: usize,
    standbys: usize,
}

impl Unaware {
    fn of(&mut self, entry: &Entry) -> &mut usize {
        if entry.seated { &mut self.members } else { &mut self.standbys }
    }
}

impl Committed {
    /// The world has formed.
    pub(super) fn start(plan: Plan, book: &mut Book, shared: &mut Shared) -> Self {
        shared.timers.stop(Timer::ProofFailed);
        shared.timers.set(Timer::Wave, shared.now);
        shared.stop_accepting();
        let standbys = book.standbys().to_vec();
        let full = Message::Refuse(no_seat(&plan, shared));
        let mut unaware = Unaware::default();
        for (id, entry) in book.entries_mut() {
            if entry.seated || standbys.contains(&id) {
                *unaware.of(entry) += 1;
                continue;
            }
            // A node without a lease cannot acknowledge by closing it: send the refusal three times and mark
            // it done.
            entry.done = true;
            for _ in 0..UNANSWERED_COPIES {
                shared.send(entry.source, id, &full);
            }
        }
        let waves = Waves::in_round(shared.scale(), shared.now);
        let left_over = u32::try_from(unaware.standbys).unwrap_or(u32::MAX);
        Self { plan, since: shared.now, unaware, waves, left_over }
    }

    /// Why a node gets no seat.
    pub(super) fn no_seat(&self, shared: &Shared) -> Refusal {
        no_seat(&self.plan, shared)
    }

    pub(super) fn number(&self) -> u64 {
        self.plan.number
    }

    fn message(&self) -> Message {
        Message::Commit(Commit {
            round: self.plan.number,
            verdict: self.plan.verdict.clone(),
            sameness: self.plan.sameness.clone(),
            left_over: self.left_over,
        })
    }

    /// The answer to a member that repeats that it is ready.
    pub(super) fn answer(&self, from: NodeId, book: &Book, now: Time) -> Message {
        if from != self.plan.master && self.awaits_master(book, now) { Message::Pong } else { self.message() }
    }

    /// Whether the master, which learns of the commit first, has yet to confirm it. As soon as the other
    /// nodes know of the commit, their jobs connect to the master's port; a master that does not know yet
    /// would take these connections for nodes.
    fn awaits_master(&self, book: &Book, now: Time) -> bool {
        let unaware = book.get(self.plan.master).is_some_and(|entry| !entry.done);
        unaware && now < self.since + MASTER_FIRST
    }

    /// Sends the commit to members that have not confirmed, and the refusal to such standbys.
    pub(super) fn repeat(&mut self, book: &Book, shared: &mut Shared) {
        let alone = self.awaits_master(book, shared.now).then_some(self.plan.master);
        let unaware = || {
            let unaware = book.entries().filter(|(_, entry)| !entry.done).map(|(id, _)| id);
            unaware.filter(|id| alone.is_none_or(|master| *id == master)).collect::<VecDeque<_>>()
        };
        let burst = self.waves.burst(unaware, shared);
        let commit = self.message();
        let full = Message::Refuse(self.no_seat(shared));
        for id in burst {
            if let Some(entry) = book.get(id) {
                let message = if entry.seated { &commit } else { &full };
                entry.reach(id, self.waves.number(), message, shared);
            }
        }
    }

    /// A node has confirmed, or its last connection has closed.
    pub(super) fn confirm(&mut self, id: NodeId, book: &mut Book, shared: &mut Shared) {
        let Some(entry) = book.get_mut(id).filter(|entry| !entry.done) else { return };
        entry.done = true;
        *self.unaware.of(entry) -= 1;
        self.waves.answered(shared);
        if self.plan.master == id {
            // The master knows, so the others may learn of the commit.
            self.waves = Waves::in_round(shared.scale(), shared.now);
            shared.timers.set(Timer::Wave, shared.now);
        }
    }

    /// Whether all have confirmed; standbys only matter for a while.
    pub(super) fn is_known(&self, now: Time) -> bool {
        self.unaware.members == 0 && (self.unaware.standbys == 0 || now >= self.since + STANDBYS)
    }

    /// Whether the leader has waited long enough for those that have not confirmed.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        now >= self.since + LINGER
    }

    /// The world as this node returns it.
    pub(super) fn formed(&self, shared: &Shared) -> Option<Formed> {
        let roster = &self.plan.roster;
        let rank = roster.members().iter().find(|member| member.id == shared.me())?.rank;
        let local = self.plan.address(shared.me())?;
        Some(Formed {
            rank,
            world: World::new(self.plan.world()).ok()?,
            asked: shared.config.world,
            master: self.plan.master_at,
            local,
            digest: self.plan.digest,
            slots: roster.slots(rank)?,
            roster: shared.config.node.attributes.wants_roster.then(|| roster.clone()),
            verdict: self.plan.verdict.clone(),
            sameness: self.plan.sameness.clone(),
            left_over: self.left_over,
        })
    }
}

/// A world that has formed with fewer nodes than it may have is not full: a latecomer looks for the next one
/// until its time is up.
fn no_seat(plan: &Plan, shared: &Shared) -> Refusal {
    if plan.world() < shared.most() { Refusal::Closing } else { Refusal::WorldFull }
}
