//! A node that has chosen a leader: it joins, proves that it reaches the leader, waits, and takes part in its
//! rounds.

mod ask;
mod check;
mod leader;
mod participation;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::backoff::Backoff;
use super::output::DialId;
use super::prove::{Dials, PathProofs};
use super::report::{Event, Failure, Formed, Progress};
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::{Endpoints, NodeId, Peer};
use crate::wire::{Announce, Candidate, Commit, Introduction, Join, Message, Prepare, Welcome};
use leader::Leader;
use participation::Participation;

/// How long a leader whose datagrams arrive may be out of reach over TCP.
const UNREACHED: Duration = Duration::from_secs(3);
/// How much longer each redial of a broken lease waits than the one before, and the most.
const REDIAL: Duration = Duration::from_millis(60);
const LONGEST_REDIAL: Duration = Duration::from_millis(500);
/// How many joins a leader gets that has not answered, since its address may be forged: the seventh after
/// 0.8 s.
const UNANSWERED_JOINS: usize = 7;
/// The longest interval between two joins.
const LONGEST_REPEAT: Duration = Duration::from_millis(250);

/// This node's state with one leader.
#[derive(Debug, Clone)]
pub(crate) struct Follow {
    leader: Leader,
    dials: Option<Dials>,
    joined: bool,
    /// This node's addresses have changed, and the leader has not answered since.
    restating: bool,
    /// When the leader last wrote to *this* node, which a replayed announce does not do; none if it has not
    /// since this node began to join it, or to join it again.
    heard: Option<Time>,
    /// How many joins were sent.
    joins: usize,
    backoff: Backoff,
    asks: Backoff,
    progress: Option<Progress>,
    round: Option<Participation>,
    /// How often the lease has broken: a device on the path may reset every connection.
    broken: u32,
    /// When another node wrote from the leader's own address, whose process may be gone.
    suspected: Option<Time>,
    /// The last round that the leader has voided: a prepare of it that comes later is a repeat.
    voided: u64,
    /// The round and the encoded roster that came last on each connection. A roster may come before the
    /// message that names its connection, and another process may have accepted another dial.
    told: BTreeMap<DialId, (u64, Vec<u8>)>,
}

/// Why a leader is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// It does not answer.
    Silent,
    /// It answers, and no connection to it could be proved.
    Unreached,
}

impl Follow {
    /// Starts to join the candidate, which was heard from `source`.
    pub(crate) fn start(shared: &mut Shared, candidate: &Candidate, source: SocketAddr) -> Self {
        let mut follow = Self {
            leader: Leader::new(candidate, source),
            dials: None,
            joined: false,
            restating: false,
            heard: None,
            joins: 0,
            backoff: Backoff::for_answer(shared.scale(), LONGEST_REPEAT),
            asks: Backoff::new(Duration::from_secs(3), Duration::from_secs(15)),
            progress: None,
            round: None,
            broken: 0,
            suspected: None,
            voided: 0,
            told: BTreeMap::new(),
        };
        shared.set_after(Timer::GiveUpLeader, shared.scale().leader_silence());
        follow.join(shared);
        if !shared.scale().is_large() {
            follow.dial(shared);
        }
        follow
    }

    /// Whether this node is the leader.
    pub(crate) fn is_led_by(&self, id: NodeId) -> bool {
        self.leader.id() == id
    }

    pub(crate) fn leader_id(&self) -> NodeId {
        self.leader.id()
    }

    /// The leader as messages to the user name it.
    pub(crate) fn leader_peer(&self) -> Peer {
        self.leader.peer()
    }

    pub(crate) fn leader_endpoints(&self) -> &Endpoints {
        self.leader.endpoints()
    }

    /// The leader as it announced itself last.
    pub(crate) fn candidate(&self) -> &Candidate {
        self.leader.candidate()
    }

    /// The leader, for a message to other nodes.
    pub(crate) fn introduction(&self) -> Introduction {
        self.leader.introduction()
    }

    pub(crate) fn send_to_leader(&self, message: &Message, shared: &mut Shared) {
        self.leader.send(message, shared);
    }

    /// Whether the leader has given this node a lease.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }

    /// Whether the leader has answered this node.
    pub(crate) fn has_answered(&self) -> bool {
        self.heard.is_some()
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
        self.round.as_ref().is_some_and(Participation::is_ready)
    }

    /// The progress that the leader announced last, for a node that has joined it.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref().filter(|_| self.joined)
    }

    /// This node's addresses have changed: repeats its join until the leader answers.
    pub(crate) fn send_endpoints(&mut self, shared: &mut Shared) {
        self.restating = true;
        if self.joined {
            self.backoff.reset();
            self.restate(shared);
        }
    }

    fn restate(&mut self, shared: &mut Shared) {
        let join = Self::join_message(shared);
        // The source address may be the one that is gone.
        self.leader.send(&join, shared);
        for &endpoint in self.leader.endpoints().iter() {
            self.leader.send_to(endpoint, &join, shared);
        }
        shared.set_repeat(Timer::Join, &mut self.backoff);
    }

    fn join_message(shared: &Shared) -> Message {
        Message::Join(Join { world: shared.config.world, node: shared.node_info() })
    }

    /// Sends a join, and sets the timer for the next.
    pub(crate) fn join(&mut self, shared: &mut Shared) {
        if self.joined {
            if self.restating {
                self.restate(shared);
            }
            return;
        }
        if self.joins >= UNANSWERED_JOINS && !self.has_answered() {
            // Nobody may be there, or somebody who has not asked for it.
            return;
        }
        let join = Self::join_message(shared);
        self.leader.send(&join, shared);
        // The observed source address may be unreachable from here.
        if self.joins >= 2 {
            let endpoints = self.leader.endpoints();
            let other = endpoints[self.joins % endpoints.len()];
            if other != self.leader.source() {
                self.leader.send_to(other, &join, shared);
            }
        }
        self.joins += 1;
        shared.set_repeat(Timer::Join, &mut self.backoff);
    }

    /// Starts to dial the leader, unless that has been done: at once the first time.
    fn dial(&mut self, shared: &mut Shared) {
        if self.dials.is_none() {
            let delay = (REDIAL * self.broken).min(LONGEST_REDIAL);
            let mut dials = Dials::new(shared, self.leader.id(), self.leader.endpoints(), delay);
            if !self.has_answered() {
                dials.wait_after_first();
            }
            dials.advance(shared);
            self.dials = Some(dials);
        }
    }

    /// The leader's endpoint to which the lease goes.
    fn won(&self) -> Option<SocketAddr> {
        self.dials.as_ref().and_then(Dials::won)
    }

    /// The leader has written to this node alone.
    pub(crate) fn hear(&mut self, source: SocketAddr, shared: &mut Shared) {
        self.leader.set_source(source);
        self.suspected = None;
        if self.heard.replace(shared.now).is_none() {
            if !self.joined {
                shared.set_after(Timer::GiveUpLeader, UNREACHED);
                shared.set_repeat_earlier(Timer::Join, &mut self.backoff);
            }
            if let Some(dials) = &mut self.dials {
                dials.go_on(shared);
            }
        }
        if let Some(round) = &mut self.round {
            round.hear(shared.now);
        }
    }

    pub(crate) fn on_announce(
        &mut self,
        announce: &Announce,
        source: SocketAddr,
        multicast: bool,
        shared: &mut Shared,
    ) {
        // A multicast leaves from each of the leader's interfaces: keep the address that has answered.
        let source = if multicast && self.has_answered() { self.leader.source() } else { source };
        self.leader = Leader::new(&announce.candidate, source);
        if multicast {
            self.asks.reset();
        }
        if self.joined {
            // A suspected leader is asked until it answers this node.
            if self.suspected.is_none() {
                shared.set_repeat(Timer::AskLeader, &mut self.asks);
            }
            let progress = announce.progress();
            if self.progress.as_ref() != Some(&progress) {
                shared.event(Event::Progress(progress.clone()));
                self.progress = Some(progress);
            }
        }
    }

    /// Returns whether this node has joined by it.
    pub(crate) fn on_welcome(&mut self, welcome: &Welcome, shared: &mut Shared) -> bool {
        if self.joined && std::mem::take(&mut self.restating) {
            shared.timers.stop(Timer::Join);
        }
        self.dial(shared);
        welcome.lease.is_some_and(|lease| self.hold(DialId(lease), shared))
    }

    /// The leader has named the dial that arrived, which becomes the lease. Returns whether this node has
    /// joined by it.
    fn hold(&mut self, lease: DialId, shared: &mut Shared) -> bool {
        let held = self.dials.as_mut().is_some_and(|dials| dials.win(lease, shared));
        if !held || self.joined {
            return false;
        }
        self.joined = true;
        shared.timers.stop(Timer::Join);
        if self.restating {
            // The leader may have recorded this node by an earlier join.
            self.restate(shared);
        }
        shared.timers.stop(Timer::GiveUpLeader);
        shared.set_repeat(Timer::AskLeader, &mut self.asks);
        shared.event(Event::Following(self.leader.peer()));
        true
    }

    /// Why the leader is given up now.
    pub(crate) fn gave_up(&self, shared: &Shared) -> GaveUp {
        // A leader that was heard so recently is not silent.
        let is_recent = |heard| shared.now < heard + shared.scale().leader_silence();
        if self.heard.is_some_and(is_recent) { GaveUp::Unreached } else { GaveUp::Silent }
    }

    /// A connection is established, on which this node has the address `local`.
    pub(crate) fn connected(&mut self, dial: DialId) {
        if let Some(dials) = &mut self.dials {
            dials.connected(dial);
        }
    }

    /// Opens the dials that are due.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if let Some(dials) = &mut self.dials {
            dials.advance(shared);
        }
    }

    /// A dial has failed or its connection has closed.
    pub(crate) fn closed(&mut self, dial: DialId, shared: &mut Shared) {
        if !self.dials.as_mut().is_some_and(|dials| dials.closed(dial)) {
            return;
        }
        match self.round.as_mut().filter(|round| round.is_ready()) {
            Some(round) => round.lose_lease(&self.leader, shared),
            None => self.rejoin(shared),
        }
    }

    /// Joins the leader again after the lease has broken. Its answer shows whether it still lives.
    fn rejoin(&mut self, shared: &mut Shared) {
        self.leave_round(shared);
        if let Some(dials) = self.dials.take() {
            dials.stop(shared);
        }
        self.told.clear();
        self.joined = false;
        self.heard = None;
        self.joins = 0;
        self.suspected = None;
        shared.timers.stop(Timer::AskLeader);
        shared.set_after(Timer::GiveUpLeader, shared.scale().leader_silence());
        self.backoff.reset();
        self.join(shared);
        self.dial(shared);
        self.broken += 1;
    }

    /// Returns whether this node has joined by it.
    pub(crate) fn on_prepare(&mut self, prepare: &Prepare, shared: &mut Shared) -> bool {
        self.dial(shared);
        let joined_by_this = self.hold(DialId(prepare.lease), shared);
        let Some(lease) = self.won().filter(|_| self.joined) else { return joined_by_this };
        if prepare.round <= self.voided {
            return joined_by_this;
        }
        let place = match check::prepare(prepare, &self.leader, shared) {
            Ok(place) => place,
            Err(wrong) => {
                tracing::debug!(leader = %self.leader.peer(), round = prepare.round, wrong, "prepare ignored");
                return joined_by_this;
            }
        };
        match &mut self.round {
            Some(round) if round.round() > prepare.round => return joined_by_this,
            Some(round) if round.round() == prepare.round => {
                // It brings more partners; or the leader repeats it because it has missed this node's
                // answer, or to see that the node lives.
                if !round.proofs().add(&prepare.partners, shared) {
                    round.tell(&self.leader, shared);
                }
                return joined_by_this;
            }
            Some(round) if round.has_lost_lease() => {
                self.rejoin(shared);
                return joined_by_this;
            }
            _ => self.leave_round(shared),
        }
        self.round = Some(Participation::start(prepare, place, &self.leader, lease, shared));
        self.take_roster();
        self.proceed(shared);
        joined_by_this
    }

    /// A roster has arrived on a connection to the leader.
    pub(crate) fn on_roster(&mut self, dial: DialId, bytes: &[u8], shared: &mut Shared) {
        if shared.config.node.attributes.wants_roster
            && let Some(dials) = self.dials.as_ref().filter(|dials| dials.has(dial))
            && let Some(told) = shared.codec.decode_roster(self.leader.id(), bytes)
        {
            self.told.retain(|dial, _| dials.has(*dial));
            self.told.insert(dial, told);
            self.take_roster();
            self.proceed(shared);
        }
    }

    /// Takes the roster of the round under way, if the lease has brought it.
    fn take_roster(&mut self) {
        let lease = self.dials.as_ref().and_then(Dials::lease);
        let told = lease.and_then(|lease| self.told.get(&lease));
        if let (Some(round), Some((number, roster))) = (&mut self.round, told)
            && round.round() == *number
        {
            round.take_roster(roster);
        }
    }

    /// The proofs have taken too long.
    pub(crate) fn proof_failed(&mut self, shared: &mut Shared) {
        if let Some(round) = &mut self.round {
            round.proof_failed(&self.leader, shared);
        }
    }

    /// This node's proofs in the round under way.
    pub(crate) fn proofs(&mut self) -> Option<&mut PathProofs> {
        self.round.as_mut().map(Participation::proofs)
    }

    /// Goes on in the round, or repeats what has not been answered.
    pub(crate) fn proceed(&mut self, shared: &mut Shared) {
        if let Some(round) = &mut self.round {
            round.proceed(&self.leader, shared);
        }
    }

    /// [`Timer::InDoubt`] has fired. If the leader has been silent for too long, or the round takes too long,
    /// returns the failure of a ready node; one that is not ready joins again.
    pub(crate) fn in_doubt(&mut self, shared: &mut Shared) -> Option<Failure> {
        let round = self.round.as_ref()?;
        let (until, is_ready) = (round.patience(), round.is_ready());
        if shared.now < until {
            shared.timers.set(Timer::InDoubt, until);
        } else if is_ready {
            return Some(Failure::OutcomeUnknown { leader: self.leader.peer() });
        } else {
            self.rejoin(shared);
        }
        None
    }

    /// The leader has started a round of this number, in which this node does not take part: an earlier one
    /// is void.
    pub(crate) fn outgrow(&mut self, number: u64, shared: &mut Shared) {
        match &mut self.round {
            // A node that is out of time ends as soon as it is in no round.
            Some(round) if round.round() < number => self.leave_round(shared),
            Some(round) if round.round() == number => round.tell(&self.leader, shared),
            _ => {}
        }
    }

    pub(crate) fn on_void(&mut self, number: u64, shared: &mut Shared) {
        let Some(round) = self.round.as_ref().filter(|round| round.round() == number) else { return };
        self.voided = number;
        if round.has_lost_lease() {
            self.rejoin(shared);
        } else {
            self.leave_round(shared);
        }
    }

    /// The world has formed, if this is the round that this node is ready for.
    pub(crate) fn on_commit(&mut self, commit: &Commit, shared: &mut Shared) -> Option<Formed> {
        let round = self.round.as_mut().filter(|round| round.round() == commit.round)?;
        round.commit(commit, &self.leader, shared)
    }

    fn leave_round(&mut self, shared: &mut Shared) {
        if let Some(round) = self.round.take() {
            round.stop(shared);
        }
    }

    /// Leaves this leader and closes every connection to it.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        self.leave_round(shared);
        for timer in [Timer::Join, Timer::GiveUpLeader, Timer::AskLeader] {
            shared.timers.stop(timer);
        }
        if let Some(dials) = self.dials.take() {
            dials.stop(shared);
        }
    }
}
