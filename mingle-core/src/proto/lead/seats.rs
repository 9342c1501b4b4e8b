//! How a node comes to a seat and loses it: join, welcome, and the end of its session.

use std::sync::Arc;

use super::Lead;
use crate::model::{Misfit, NodeId, Peer, Unfit};
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::{Join, Refusal, Trouble, decode_traits};

impl Lead {
    /// A node says what it is.
    pub(crate) fn on_join(&mut self, from: NodeId, join: Join, shared: &mut Shared) {
        if let Err(Some(refusal)) = self.admit(from, join, shared) {
            shared.refuse(from, refusal);
        }
    }

    fn admit(&mut self, from: NodeId, join: Join, shared: &mut Shared) -> Result<(), Option<Refusal>> {
        if let Some(refusal) = self.contradiction(&join, shared) {
            return Err(Some(refusal));
        }
        if let Some(refusal) = self.left_out.refusal(from, shared.now) {
            return Err(Some(refusal.clone()));
        }
        self.admits(from, shared)?;
        if !self.knows(from) && self.book.len() >= shared.scale().most_joined() {
            return Err(None);
        }
        let traits = decode_traits(&join.traits).ok_or(None)?;
        if join.node.rank.is_some_and(|rank| rank.get() >= shared.most()) {
            return Err(None);
        }
        // Nobody would reach it. Its interface may not be ready yet, and it joins anew once it is.
        let ends = shared.links.get(from).and_then(|peer| peer.link.ends);
        if join.node.endpoints.are_loopback() && ends.is_some_and(|ends| !ends.remote.is_loopback()) {
            tracing::debug!(%from, "its host has no address yet that others reach");
            return Err(None);
        }
        shared.dial_at(from, &join.node.endpoints);
        let differing = Some(traits).filter(|traits| *traits != *shared.config.traits).map(Arc::new);
        self.book.join(from, join.node, differing);
        self.hear_candidate(from, shared);
        if let Some(ghost) = self.book.ghost(from) {
            self.challenge(ghost, shared);
        }
        self.seat(from, shared);
        self.welcome(from, shared);
        self.start_round_if_full(shared);
        Ok(())
    }

    /// Why this node can never be seated beside those that are here.
    fn contradiction(&self, join: &Join, shared: &Shared) -> Option<Refusal> {
        Some(match shared.unfit(join.world, &join.node.attributes.user)? {
            Unfit::World(_) => Refusal::WorldDiffers(shared.config.world),
            _ => Refusal::UserDiffers(shared.config.node.attributes.user.clone(), self.book.seated),
        })
    }

    /// A node cannot be seated. If that is news, or nothing else is to be told, all members learn it at once,
    /// each by another welcome: it costs a frame to each of them.
    pub(crate) fn tell_of(&mut self, misfit: &Misfit, is_news: bool, shared: &mut Shared) {
        if is_news || self.trouble.is_none() {
            shared.timers.set_earlier(Timer::Welcome, shared.now);
            self.trouble = Some(Trouble::Misfit(misfit.clone()));
        }
    }

    /// These nodes were given the rank of this holder, which answers.
    pub(super) fn refuse_rank(
        &mut self,
        refused: impl IntoIterator<Item = NodeId>,
        holder: &Peer,
        shared: &mut Shared,
    ) {
        for id in refused {
            shared.refuse(id, Refusal::RankTaken(holder.clone()));
            let Some((rank, entry)) = self.book.get(id).and_then(|entry| Some((entry.node.rank?, entry)))
            else {
                continue;
            };
            let (host, address) = (entry.node.host.clone(), entry.node.endpoints.preferred());
            self.news.push(Trouble::Misfit(Misfit { host, address, reason: Unfit::Rank(rank) }));
        }
    }

    /// Gives a node a seat; where none is free it becomes a standby, and the holder of its seat is
    /// challenged.
    fn seat(&mut self, id: NodeId, shared: &mut Shared) {
        let Some(entry) = self.book.get(id).filter(|entry| !entry.seated) else { return };
        let rank = entry.node.rank;
        let holder = rank.and_then(|rank| self.book.holder(rank));
        let is_full = self.book.seated >= shared.most() || self.frozen || !self.is_collecting();
        if holder.is_none() && !is_full {
            self.book.seat(id);
            self.call.count(&self.book, Some(id), shared);
            self.report_change(shared);
            self.forget_misfit(id);
            // The next round proves all paths anew.
            self.trouble.take_if(|trouble| matches!(trouble, Trouble::Broken(_)));
            return;
        }
        self.book.add_standby(id);
        match (holder, rank) {
            (Some(holder), Some(rank)) if holder == shared.me() => {
                let me = shared.peer();
                tracing::debug!(%id, %rank, "refused: the rank is this node's own");
                self.refuse_rank([id], &me, shared);
            }
            _ if self.frozen => {}
            (Some(holder), _) => self.challenge(holder, shared),
            (None, _) => {}
        }
    }

    /// A node of this host has come or gone: what kept another one of it from a seat explains nothing more. A
    /// broken path still does where a node has gone: it has kept the world from forming while all were here.
    fn forget_misfit(&mut self, id: NodeId) {
        let Some(host) = self.book.get(id).map(|entry| &entry.node.host) else { return };
        self.trouble.take_if(|trouble| match trouble {
            Trouble::Misfit(Misfit { reason: Unfit::Address(other), .. }) if other == host => true,
            Trouble::Misfit(misfit) => misfit.host == *host,
            Trouble::Broken(_) => false,
        });
    }

    /// A node is lost, or was expelled: its seat is free.
    pub(crate) fn remove(&mut self, id: NodeId, shared: &mut Shared) {
        self.challenged.remove(&id);
        self.book.remove_standby(id);
        if self.is_decided() {
            shared.timers.set(Timer::Round, shared.now);
            return;
        }
        if self.book.member(id).is_none() {
            self.book.vacate(id);
            return;
        }
        self.rounds.void_without(id, shared);
        self.forget_misfit(id);
        self.book.vacate(id);
        // One that waits takes its place, so that a call that is over stays over.
        self.seat_standbys(shared);
        self.call.count(&self.book, None, shared);
        self.report_change(shared);
        self.welcome_first(shared.now, shared);
        self.fill_seats(shared);
    }

    pub(super) fn seat_standbys(&mut self, shared: &mut Shared) {
        for id in self.book.standbys().to_vec() {
            if shared.links.is_there(id) && self.book.seated < shared.most() {
                self.seat(id, shared);
                self.welcome(id, shared);
            }
        }
    }
}
