//! How a node comes to a seat and loses it: join, proof, welcome, and the end of its last connection.

use std::net::SocketAddr;
use std::time::Duration;

use super::Lead;
use crate::model::{Misfit, NodeId, Unfit};
use crate::proto::prove::Arrivals;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::{Join, Message, Refusal, Trouble, Welcome};

/// How long nodes may go on joining while none of them reaches this one over TCP.
const STEP_DOWN: Duration = Duration::from_secs(3);
/// Of how many troubles members learn at once, in the life of this node; later ones they learn as they join.
const TOLD: usize = 16;

impl Lead {
    pub(crate) fn on_join(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        join: Join,
        arrivals: &Arrivals,
        shared: &mut Shared,
    ) {
        if let Some((refusal, reason)) = self.contradiction(&join, shared) {
            shared.send(source, from, &Message::Refuse(refusal));
            let misfit = Misfit { host: join.node.host, address: source, reason };
            return self.tell_of(Trouble::Misfit(misfit), shared);
        }
        if let Some(refusal) = self.left_out.refusal(from, shared.now) {
            return shared.send(source, from, &Message::Refuse(refusal.clone()));
        }
        if self.rounds.refuses_join(from, source, &self.book, shared) {
            return;
        }
        if join.node.rank.is_some_and(|rank| rank.get() >= shared.most()) {
            return;
        }
        // Nobody would reach it. Its interface may not be ready yet, and it joins anew once it is.
        if join.node.endpoints.are_loopback() && !source.ip().is_loopback() {
            tracing::debug!(%from, "its host has no address yet that others reach");
            return;
        }
        self.book.make_room(shared.scale().most_entries(), arrivals, shared.now);
        self.book.join(from, source, join, shared.now);
        self.hear_candidate(from, shared);
        if let Some(ghost) = self.book.ghost(from) {
            self.challenges.add(ghost, None, shared);
        }
        if arrivals.is_empty() && !shared.timers.is_set(Timer::StepDown) {
            shared.set_after(Timer::StepDown, STEP_DOWN);
        }
        self.settle(from, arrivals, shared);
    }

    /// Why this node can never be seated beside those that are here.
    fn contradiction(&self, join: &Join, shared: &Shared) -> Option<(Refusal, Unfit)> {
        let reason = shared.unfit(join.world, &join.node.attributes.user)?;
        let refusal = match reason {
            Unfit::World(_) => Refusal::WorldDiffers(shared.config.world),
            _ => Refusal::UserDiffers(shared.config.node.attributes.user.clone(), self.book.seated()),
        };
        Some((refusal, reason))
    }

    /// All members learn of this, each by another welcome.
    pub(crate) fn tell_of(&mut self, trouble: Trouble, shared: &mut Shared) {
        let is_known = self.told.iter().any(|known| known.repeats(&trouble));
        if !is_known || self.trouble.is_none() {
            self.trouble = Some(trouble.clone());
        }
        // Whoever joins can have any name, and each of these costs a datagram to every member.
        if is_known || self.told.len() >= TOLD {
            return;
        }
        self.told.push(trouble);
        self.has_news = true;
        for (id, entry) in self.book.entries_mut().filter(|(_, entry)| entry.seated) {
            if !std::mem::replace(&mut entry.queued, true) {
                self.welcomes.push_back(id);
            }
        }
        if !self.welcomes.is_empty() {
            shared.timers.set_earlier(Timer::WelcomeNext, shared.now);
        }
    }

    /// These nodes were given a rank that another node has, which answers.
    pub(super) fn tell_of_rank(&mut self, refused: &[NodeId], shared: &mut Shared) {
        for &id in refused {
            let Some((rank, entry)) = self.book.get(id).and_then(|entry| Some((entry.node.rank?, entry)))
            else {
                continue;
            };
            let (host, address) = (entry.node.host.clone(), entry.source);
            self.tell_of(Trouble::Misfit(Misfit { host, address, reason: Unfit::Rank(rank) }), shared);
        }
    }

    /// What keeps the world from forming, if this leader has just learnt it.
    pub(crate) fn take_trouble(&mut self) -> Option<&Trouble> {
        if std::mem::take(&mut self.has_news) { self.trouble.as_ref() } else { None }
    }

    /// A node has joined, or its proof has arrived: gives it a seat if one is free, and welcomes it.
    pub(crate) fn settle(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        self.admit(id, arrivals, shared);
        self.start_round_if_full(arrivals, shared);
    }

    fn admit(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        let Some(entry) = self.book.get_mut(id) else { return };
        if arrivals.has(id) {
            shared.timers.stop(Timer::StepDown);
            self.seat(id, shared);
            if self.welcome_window.answered() && !self.welcomes.is_empty() {
                shared.timers.set(Timer::WelcomeNext, shared.now);
            }
        } else if shared.scale().is_large() {
            // The node dials when it is welcomed.
            if !std::mem::replace(&mut entry.queued, true) {
                self.welcomes.push_back(id);
            }
            if !shared.timers.is_set(Timer::WelcomeNext) {
                self.welcome_next(arrivals, shared);
            }
            return;
        }
        self.welcome(id, arrivals, shared);
    }

    /// Welcomes as many of the queue as may be welcomed now.
    pub(crate) fn welcome_next(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        for id in self.welcome_window.take(&mut self.welcomes, shared.now) {
            self.welcome(id, arrivals, shared);
        }
        if !self.welcomes.is_empty() {
            shared.timers.set(Timer::WelcomeNext, self.welcome_window.again());
        }
    }

    fn welcome(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        if let Some(entry) = self.book.get_mut(id) {
            entry.queued = false;
            let trouble = self.trouble.clone();
            let welcome = Welcome { lease: arrivals.dial(id), seated: entry.seated, trouble };
            shared.send(entry.source, id, &Message::Welcome(welcome));
        }
    }

    /// Gives a proved node a seat; where none is free it becomes a standby, and the holder of its seat is
    /// challenged.
    fn seat(&mut self, id: NodeId, shared: &mut Shared) {
        let Some(entry) = self.book.get(id).filter(|entry| !entry.seated) else { return };
        let (rank, source) = (entry.node.rank, entry.source);
        let holder = rank.and_then(|rank| self.book.holder(rank));
        let is_full = self.book.seated() >= shared.most() || self.frozen || !self.is_collecting();
        if holder.is_none() && !is_full {
            self.book.seat(id);
            self.call.count(self.book.seated(), Some(id), shared);
            self.report_change(shared);
            self.forget_trouble(id);
            return;
        }
        let is_new = self.book.add_standby(id);
        match (holder, rank) {
            (Some(holder), Some(rank)) if holder == shared.me() => {
                let me = shared.peer();
                tracing::debug!(%id, %rank, "refused: the rank is this node's own");
                shared.send(source, id, &Message::Refuse(Refusal::RankTaken(me)));
                self.tell_of_rank(&[id], shared);
            }
            _ if self.frozen => {}
            (Some(holder), _) => self.challenges.add(holder, Some(id), shared),
            // All seats are taken: the holder of one may be gone without having closed its lease.
            (None, _) if is_new && self.book.seated() >= shared.most() => {
                for (holder, _) in self.book.members() {
                    self.challenges.add(holder, None, shared);
                }
            }
            (None, _) => {}
        }
    }

    /// A node of this host has come or gone: what kept another one of it from a seat, or a path of it from
    /// being proved, explains nothing more.
    fn forget_trouble(&mut self, id: NodeId) {
        let Some(host) = self.book.get(id).map(|entry| &entry.node.host) else { return };
        self.trouble.take_if(|trouble| match trouble {
            Trouble::Misfit(Misfit { reason: Unfit::Address(other), .. }) if other == host => true,
            Trouble::Misfit(misfit) => misfit.host == *host,
            Trouble::Broken(path) => [&path.from.host, &path.to.host].contains(&host),
        });
    }

    /// The last connection of a node has closed, or it was expelled: its seat is free.
    pub(crate) fn remove(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        self.challenges.remove(id);
        self.book.remove_standby(id);
        if self.rounds.on_gone(id, &mut self.book, shared) {
            return;
        }
        if self.book.member(id).is_none() {
            self.book.remove(id);
            return;
        }
        // Void the round before the node leaves the book, so that the node gets Void too. It may be alive and
        // ready, and would otherwise wait for the outcome.
        self.rounds.void_for_change(&self.book, shared);
        self.forget_trouble(id);
        self.book.vacate(id);
        self.rounds.forget(id);
        // One that waits takes its place, so that a call that is over stays over.
        self.seat_standbys(arrivals, shared);
        self.call.count(self.book.seated(), None, shared);
        self.report_change(shared);
        self.fill_seats(arrivals, shared);
    }

    /// Takes the seats of members that hold up every round, as far as standbys can have them: such a member
    /// becomes the last of the standbys. Returns whether a seat is free now.
    pub(super) fn put_behind_standbys(&mut self, members: &[NodeId], arrivals: &Arrivals) -> bool {
        let mut taken = Vec::new();
        for &id in members {
            let Some(successor) = self.book.successor(id, &taken, arrivals) else { continue };
            tracing::debug!(%id, %successor, "holds up every round: a standby takes its seat");
            self.challenges.remove(id);
            self.book.replace(id);
            self.rounds.forget(id);
            taken.push(successor);
        }
        !taken.is_empty()
    }

    pub(super) fn seat_standbys(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        let mut standbys = self.book.standbys().to_vec();
        // A member that has held up a round gets no seat before a node that has not.
        standbys.sort_by_key(|&id| self.book.get(id).is_some_and(|entry| entry.replaced));
        for id in standbys {
            if arrivals.has(id) && self.book.seated() < shared.most() {
                self.admit(id, arrivals, shared);
            }
        }
    }
}
