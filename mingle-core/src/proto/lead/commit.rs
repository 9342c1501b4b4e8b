//! A round that has committed: the world has formed, and the leader stays until its members know it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::book::{Book, Entry};
use super::plan::RoundPlan;
use super::round::Round;
use crate::model::NodeId;
use crate::proto::report::Formed;
use crate::proto::session::{Linked, PeerLink};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Body, Commit, Refusal, Said};

/// How long a leader stays for standbys, to tell them that the world is full.
const STANDBYS: Duration = Duration::from_secs(1);
/// How long a leader stays for members that have not confirmed.
const LINGER: Duration = Duration::from_secs(10);
/// How long the master alone is told, which acknowledges at once if it can.
const MASTER_FIRST: Duration = Duration::from_secs(1);
/// How often the leader looks whether it has waited for long enough.
const LOOKS: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub(super) struct Committed {
    plan: RoundPlan,
    /// The world as this node returns it.
    pub(super) formed: Formed,
    since: Time,
    /// What the members are told.
    commit: Body,
    /// All are told, and not the master alone.
    tells_all: bool,
    /// The nodes that know it, or have left.
    done: BTreeSet<NodeId>,
}

impl Committed {
    /// The world has formed: tells the master, and all if this node is the master.
    pub(super) fn start(round: Round, book: &Book, shared: &mut Shared) -> Self {
        let Round { plan, mut formed, excused, mut proofs, .. } = round;
        proofs.stop(shared);
        shared.timers.set(Timer::Round, shared.now);
        if plan.master == shared.me() {
            // Otherwise the master's connection may have broken, and only the master can open another.
            shared.stop_accepting();
        }
        // Where the master listens, the job may listen soon.
        shared.links.set_addresses(plan.master, &[]);
        let standbys = book.entries().filter(|(_, entry)| !entry.seated).count();
        formed.left_over = u32::try_from(standbys).unwrap_or(u32::MAX);
        formed.broken = excused.unwrap_or_default();
        let commit = Said::Commit(Commit {
            round: plan.number,
            verdict: formed.verdict.clone(),
            sameness: formed.sameness.clone(),
            left_over: formed.left_over,
        });
        let commit = commit.encode();
        let (since, done) = (shared.now, BTreeSet::new());
        let committed = Self { plan, formed, since, commit, tells_all: false, done };
        committed.tell(committed.plan.master, shared);
        committed
    }

    /// Tells a member. That its port refuses says only from now on that the member knows.
    fn tell(&self, id: NodeId, shared: &mut Shared) {
        shared.links.with(id, PeerLink::forget_refusals);
        shared.links.say(shared.now, id, &self.commit);
    }

    /// Why a node gets no seat. A world that has formed with fewer nodes than it may have is not full: a
    /// latecomer looks for the next one until its time is up.
    pub(super) fn no_seat(&self, shared: &Shared) -> Refusal {
        if self.plan.world() < shared.most() { Refusal::Closing } else { Refusal::WorldFull }
    }

    /// Whether the master has yet to learn of the commit. As soon as the other nodes know of it, their jobs
    /// connect to the master's port; a master that does not know yet would take these connections for nodes'.
    fn awaits_master(&self, book: &Book, now: Time) -> bool {
        let unaware = book.get(self.plan.master).is_some() && !self.done.contains(&self.plan.master);
        unaware && now < self.since + MASTER_FIRST
    }

    /// Tells the others once the master knows, and notes who knows by now.
    pub(super) fn go_on(&mut self, book: &Book, shared: &mut Shared) {
        book.entries().for_each(|(id, _)| self.confirm(id, shared));
        if !self.tells_all && !self.awaits_master(book, shared.now) {
            self.tells_all = true;
            let full = self.no_seat(shared);
            for (id, entry) in book.entries().filter(|(id, _)| !self.done.contains(id)) {
                if entry.seated {
                    self.tell(id, shared);
                } else {
                    shared.refuse(id, full.clone());
                }
            }
        }
        shared.set_after(Timer::Round, LOOKS);
    }

    /// A node that has acknowledged what it was told knows it, and so does a node that accepts no connections
    /// since. A node that cannot be reached any more has ended.
    fn confirm(&mut self, id: NodeId, shared: &mut Shared) {
        let is_told = self.tells_all || id == self.plan.master;
        let knows = shared.links.get(id).is_none_or(|Linked { link, .. }| {
            let has_read = link.session.is_read() || link.accepts_no_more();
            link.is_gone(shared.now) || (is_told && link.is_there() && has_read)
        });
        if knows && self.done.insert(id) {
            shared.links.set_addresses(id, &[]);
        }
    }

    /// Something has happened on the session with this node.
    pub(super) fn look(&mut self, id: NodeId, book: &Book, shared: &mut Shared) {
        if book.get(id).is_none() || self.done.contains(&id) {
            return;
        }
        self.confirm(id, shared);
        if (id == self.plan.master && self.done.contains(&id)) || self.is_over(book, shared.now) {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// Whether all have confirmed, or have had their time; standbys only matter for a while.
    pub(super) fn is_over(&self, book: &Book, now: Time) -> bool {
        let matters = |entry: &Entry| entry.seated || now < self.since + STANDBYS;
        let is_awaited = |(id, entry): (NodeId, &Entry)| !self.done.contains(&id) && matters(entry);
        now >= self.since + LINGER || !book.entries().any(is_awaited)
    }
}
