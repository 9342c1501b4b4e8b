//! A node that has chosen a leader: it joins over a session, waits, and takes part in the leader's rounds.

pub(crate) mod check;
mod participation;

use std::net::SocketAddr;
use std::time::Duration;

use super::backoff::Backoff;
use super::prove::PathProofs;
use super::report::{Event, Formed, Progress};
use super::session::{LOST, Presence};
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::{Misfit, NodeId, Roster};
use crate::wire::{Candidate, Commit, Introduction, Join, PART, Part, Prepare, Said, Trouble, Welcome};
use participation::Participation;

/// How long a leader whose datagrams arrive may be out of reach over TCP.
const UNREACHED: Duration = Duration::from_secs(3);
/// A leader that has answered so lately is not silent: it gets eight questions meanwhile.
const ANSWERS: Duration = Duration::from_secs(2);
/// How many questions a leader gets that has not answered, since its address may be forged: the seventh after
/// 0.8 s.
const UNANSWERED: usize = 7;
/// The longest interval between two questions.
const LONGEST_REPEAT: Duration = Duration::from_millis(250);
/// Between two dials to a leader that has not answered, since its address may be forged.
const CAUTIOUS: Duration = Duration::from_millis(500);

/// This node's state with one leader.
#[derive(Debug, Clone)]
pub(crate) struct Follow {
    /// As it announced itself last, and the source address of its datagrams.
    pub(crate) leader: Introduction,
    /// The leader has welcomed this node.
    pub(crate) joined: bool,
    /// When the leader was last there for certain: it wrote to *this* node, which a replayed announce does
    /// not do, or a session with it was open.
    heard: Option<Time>,
    /// How many questions were sent.
    asks: usize,
    backoff: Backoff,
    relays: Backoff,
    /// What the leader has told last.
    pub(crate) progress: Option<Progress>,
    /// What keeps the world from forming, as the leader has told last.
    pub(crate) trouble: Option<Trouble>,
    round: Option<Participation>,
    /// The last round that the leader has voided.
    voided: u64,
    /// The roster of the round that the leader prepares next.
    pub(crate) roster: Option<(u64, Roster)>,
}

/// Why a leader is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// It does not answer.
    Silent,
    /// It answers, and no connection to it has opened; or it leads no more.
    Unreached,
}

impl Follow {
    /// Starts to join the candidate.
    pub(crate) fn start(shared: &mut Shared, leader: Introduction, misfit: Option<Misfit>) -> Self {
        let first = shared.scale().first_repeat();
        let mut follow = Self {
            leader,
            joined: false,
            heard: None,
            asks: 0,
            backoff: Backoff::new(first, LONGEST_REPEAT.max(first)),
            relays: Backoff::new(Duration::from_secs(3), Duration::from_secs(15)),
            progress: None,
            trouble: None,
            round: None,
            voided: 0,
            roster: None,
        };
        let leader = follow.leader_id();
        // It may have joined this node before.
        shared.links.forget(shared.now, leader);
        let mut first = shared.dialled(&follow.leader.candidate.endpoints);
        // Its answer starts the dials to the others, and in a large world all.
        first.truncate(usize::from(!shared.scale().is_large()));
        shared.links.add(shared.now, leader, first, ());
        shared.links.with(leader, |link| link.session.set_patience(CAUTIOUS));
        follow.say_join(misfit, shared);
        shared.links.advance(shared.now, leader);
        shared.set_after(Timer::GiveUpLeader, shared.scale().leader_silence());
        follow.ask(shared);
        follow
    }

    pub(crate) fn leader_id(&self) -> NodeId {
        self.leader.candidate.id
    }

    /// Whether the leader answers, and was asked for so long that a connection to it would have opened.
    pub(crate) fn is_unreached(&self, shared: &Shared) -> bool {
        let is_open = self.joined || shared.links.is_there(self.leader_id());
        self.asks >= UNANSWERED && !is_open && self.gave_up(shared) == GaveUp::Unreached
    }

    pub(crate) fn in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Whether this node has joined and takes part in no round.
    pub(crate) fn waits(&self) -> bool {
        self.joined && self.round.is_none()
    }

    /// Whether this node has promised to form a world, and its leader has neither committed nor voided the
    /// round.
    pub(crate) fn is_ready(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.ready)
    }

    /// Whether the leader may know that this node is ready. Before that is written, nobody can commit. A
    /// session that begins anew writes it again at once.
    pub(crate) fn is_bound(&self, shared: &Shared) -> bool {
        let link = shared.links.get(self.leader_id()).map(|peer| &peer.link);
        self.is_ready() && link.is_none_or(|link| link.session.has_written(PART))
    }

    /// Says what this node is, now or again after its addresses have changed.
    pub(crate) fn say_join(&mut self, misfit: Option<Misfit>, shared: &mut Shared) {
        let join = Join { misfit, ..shared.join() };
        shared.say(self.leader_id(), &Said::Join(Box::new(join)));
    }

    fn say_part(&self, part: Part, shared: &mut Shared) {
        shared.say(self.leader_id(), &Said::Part(part));
        self.set_doubt(shared);
    }

    /// Asks a leader that has not welcomed this node to announce itself to it, and sets the timer for the
    /// next time.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        if self.asks >= UNANSWERED && self.heard.is_none() {
            // Nobody may be there, or somebody who has not asked for it.
            return;
        }
        let solicit = shared.solicit();
        shared.send(self.leader.source, self.leader_id(), &solicit);
        // The observed source address may be unreachable from here.
        if self.asks >= 2 {
            let endpoints = &self.leader.candidate.endpoints;
            let other = endpoints[self.asks % endpoints.len()];
            if other != self.leader.source {
                shared.send(other, self.leader_id(), &solicit);
            }
        }
        self.asks += 1;
        shared.set_repeat(Timer::Call, &mut self.backoff);
    }

    /// The leader has written a datagram to this node alone.
    pub(crate) fn hear(&mut self, source: SocketAddr, shared: &mut Shared) {
        self.leader.source = source;
        self.answered(shared);
    }

    /// The leader is there: it is dialled at all its addresses.
    fn answered(&mut self, shared: &mut Shared) {
        if self.heard.replace(shared.now).is_some() {
            return;
        }
        if !self.joined {
            shared.set_after(Timer::GiveUpLeader, UNREACHED);
        }
        let leader = self.leader_id();
        shared.dial_at(leader, &self.leader.candidate.endpoints);
        shared.links.advance(shared.now, leader);
    }

    /// Something has happened on the session. Returns whether the leader is lost to a node that is in no
    /// doubt.
    pub(crate) fn look(&mut self, shared: &mut Shared) -> bool {
        let Some(peer) = shared.links.get(self.leader_id()) else { return true };
        let presence = peer.link.presence(shared.now);
        if presence == Presence::There {
            self.answered(shared);
        }
        self.set_doubt(shared);
        let is_lost = match presence {
            Presence::Dead => true,
            Presence::Silent(since) => self.joined && shared.now >= since + LOST,
            Presence::There => false,
        };
        is_lost && !self.is_bound(shared)
    }

    pub(crate) fn on_announce(&mut self, heard: &Introduction, multicast: bool, shared: &mut Shared) {
        // A multicast leaves from each of the leader's interfaces: keep the address that has answered.
        let source = if multicast && self.heard.is_some() { self.leader.source } else { heard.source };
        // An announce that was overtaken knows of fewer.
        let members = heard.candidate.members.max(self.leader.candidate.members);
        let candidate = Candidate { members, ..heard.candidate.clone() };
        self.leader = Introduction { candidate, source };
        if multicast {
            self.relays.reset();
        }
        if self.joined {
            self.set_relay(shared);
        }
    }

    /// Sets the timer for the next hint to the leader.
    pub(crate) fn set_relay(&mut self, shared: &mut Shared) {
        shared.set_repeat(Timer::Call, &mut self.relays);
    }

    /// The leader has a place for this node. Returns whether that is news.
    fn join(&mut self, shared: &mut Shared) -> bool {
        let joins = !std::mem::replace(&mut self.joined, true);
        if joins {
            shared.timers.stop(Timer::GiveUpLeader);
            self.set_relay(shared);
            shared.event(Event::Following(self.leader.candidate.peer()));
        }
        joins
    }

    /// Returns whether this node has joined by it.
    pub(crate) fn on_welcome(&mut self, welcome: &Welcome, shared: &mut Shared) -> bool {
        let joins = self.join(shared);
        self.voided = self.voided.max(welcome.void);
        self.trouble.clone_from(&welcome.trouble);
        if self.round.as_ref().is_some_and(|round| round.round <= self.voided) {
            self.leave_round(shared);
        }
        // The members' hints must not belittle their leader, whose announces they may never hear.
        let members = &mut self.leader.candidate.members;
        *members = welcome.count.joined.max(*members);
        let progress = welcome.count.progress(&self.leader.candidate);
        if self.progress.as_ref() != Some(&progress) {
            shared.event(Event::Progress(progress.clone()));
            self.progress = Some(progress);
        }
        joins
    }

    /// Why the leader is given up now.
    pub(crate) fn gave_up(&self, shared: &Shared) -> GaveUp {
        // A leader that formed its world meanwhile, or died, answers no more: no firewall is at fault.
        let is_recent = |heard| shared.now < heard + shared.scale().leader_silence().max(ANSWERS);
        if !self.joined && self.heard.is_some_and(is_recent) { GaveUp::Unreached } else { GaveUp::Silent }
    }

    /// Returns whether this node has joined by it: a later welcome may come behind it.
    pub(crate) fn on_prepare(&mut self, prepare: &Prepare, shared: &mut Shared) -> bool {
        let joins = self.join(shared);
        if prepare.round <= self.voided
            || self.round.as_ref().is_some_and(|round| round.round >= prepare.round)
        {
            return joins;
        }
        let checked = check::prepare(prepare, Some(&self.leader), shared)
            .and_then(|formed| check::with_roster(formed, self.roster.take(), prepare, shared));
        let formed = match checked {
            Ok(formed) => formed,
            Err(wrong) => {
                tracing::debug!(leader = %self.leader.candidate.peer(), round = prepare.round, wrong, "prepare ignored");
                return joins;
            }
        };
        self.leave_round(shared);
        let at = prepare.master_at;
        let is_proved = prepare.master == self.leader_id()
            && shared.links.get(prepare.master).is_some_and(|peer| peer.link.is_open_to(at));
        self.round = Some(Participation::start(prepare, formed, is_proved, shared));
        self.set_doubt(shared);
        self.proceed(shared);
        joins
    }

    /// The proofs have taken too long.
    pub(crate) fn proof_failed(&mut self, shared: &mut Shared) {
        if let Some(part) = self.round.as_mut().and_then(|round| round.proof_failed(shared)) {
            self.say_part(part, shared);
        }
    }

    /// This node's proofs in the round under way.
    pub(crate) fn proofs(&mut self) -> Option<&mut PathProofs> {
        self.round.as_mut().map(|round| &mut round.proofs)
    }

    /// Says that this node is ready, once it is.
    pub(crate) fn proceed(&mut self, shared: &mut Shared) {
        if let Some(part) = self.round.as_mut().and_then(Participation::proceed) {
            self.say_part(part, shared);
        }
    }

    fn set_doubt(&self, shared: &mut Shared) {
        if let Some(round) = &self.round {
            let until = round.patience(self.leader_id(), shared);
            shared.timers.set(Timer::GiveUpLeader, until);
        }
    }

    /// [`Timer::GiveUpLeader`] has fired. Returns whether the leader is lost, or the round takes too long.
    pub(crate) fn is_over(&mut self, shared: &mut Shared) -> bool {
        self.set_doubt(shared);
        self.round.as_ref().is_none_or(|round| shared.now >= round.patience(self.leader_id(), shared))
    }

    /// The leader has started a round of this number, in which this node does not take part: an earlier one
    /// is void. A node that is out of time ends as soon as it is in no round.
    pub(crate) fn outgrow(&mut self, number: u64, shared: &mut Shared) {
        if self.round.as_ref().is_some_and(|round| round.round < number) {
            self.leave_round(shared);
        }
    }

    /// The world has formed, if this is the round that this node is ready for.
    pub(crate) fn on_commit(&mut self, commit: &Commit, shared: &mut Shared) -> Option<Formed> {
        let round = self.round.as_ref().filter(|round| round.ready && round.round == commit.round)?;
        Some(round.commit(commit, shared))
    }

    fn leave_round(&mut self, shared: &mut Shared) {
        if let Some(round) = self.round.take() {
            round.stop(shared);
        }
    }

    /// Leaves this leader and closes every connection to it.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        self.leave_round(shared);
        for timer in [Timer::Call, Timer::GiveUpLeader] {
            shared.timers.stop(timer);
        }
        // Whoever was not bound when it left must not be bound by a word that is written then.
        shared.links.with(self.leader_id(), |link| link.session.drop_unwritten());
        shared.links.forget(shared.now, self.leader_id());
    }
}
