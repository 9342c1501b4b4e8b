//! A node that has found who gathers: join, prove, wait, and take part in the rounds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::DialId;
use super::backoff::Backoff;
use super::election::Key;
use super::master::MasterProof;
use super::parts::Parts;
use super::proof::{Lost, Prover, Won};
use super::report::{Event, Failure, Formed, Progress, RankRange, Warning};
use super::shared::{Contact, Shared};
use super::timer::{Time, Timer};
use crate::model::{Digest, NodeId, Rank, Slots};
use crate::wire::{Announce, Candidate, Commit, Introduction, Join, Message, Part, Prepare, Ready, Welcome};

/// How long a leader may be silent before it has been joined; in a large world 1 ms for each node that it may have to
/// answer first, and [`PATIENCE`] at most.
const SILENCE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a leader whose words arrive may be out of reach over TCP.
const UNREACHED: Duration = Duration::from_secs(3);
/// How long a ready node asks a leader that does not answer.
const IN_DOUBT: Duration = Duration::from_secs(10);
/// How long a ready node stays in a round, whatever its leader says: a round ends after 15 s, and is told of for
/// 10 s more.
const LONGEST_ROUND: Duration = Duration::from_secs(30);
/// What each redial of a broken lease waits longer than the one before.
const REDIAL: Duration = Duration::from_millis(60);
/// How often what nobody answers is said. Above all that a node knows of the commit: it ends then, and repeats
/// nothing; where all copies are lost the leader waits for the end of the lease, which the kernel repeats slowly.
pub(crate) const LAST_WORDS: usize = 3;
/// Above this size a world is large: each word is one for every node. Dials wait until the leader has welcomed the
/// node, and a node says once that it knows.
pub(crate) const LARGE: u32 = 64;

/// The way to one leader.
#[derive(Debug, Clone)]
pub(crate) struct Follow {
    pub(crate) leader: Contact,
    pub(crate) key: Key,
    candidate: Candidate,
    prover: Option<Prover>,
    joined: bool,
    /// This node's addresses have changed, and the leader has not answered since.
    restating: bool,
    /// It has answered *this* node; a recorded announce cannot.
    answered: bool,
    /// When it last spoke to this node.
    heard: Time,
    joins: usize,
    backoff: Backoff,
    asks: Backoff,
    progress: Option<Progress>,
    round: Option<Participation>,
    /// How often the lease has broken: something on the way may reset every one.
    broken: u32,
}

/// This node's part in one round.
#[derive(Debug, Clone)]
struct Participation {
    round: u64,
    rank: Rank,
    digest: Digest,
    slots: Slots,
    proof: MasterProof,
    /// The roster, for a node that wants it.
    parts: Option<Parts>,
    ready: bool,
    unproved: bool,
    /// When this node was told of it.
    started: Time,
    /// When the leader was last heard.
    answered: Time,
    /// When the lease closed although this node is ready.
    lease_lost: Option<Time>,
    backoff: Backoff,
}

/// What the leader is given up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GaveUp {
    Silent,
    Unreached,
}

/// The longest time between two repeats of a word in a round. While the last proofs of a large world are
/// repeated, all others say that they are ready; up to 12,500 nodes, the leader hears no more of them a second.
fn longest_repeat(world: u32) -> Duration {
    (Duration::from_micros(80) * world).clamp(Duration::from_millis(80), Duration::from_secs(1))
}

fn silence(world: u32) -> Duration {
    (Duration::from_millis(1) * world).clamp(SILENCE, PATIENCE)
}

impl Follow {
    /// Starts to join `candidate`, whose words come from `seen`.
    pub(crate) fn start(shared: &mut Shared, candidate: &Candidate, source: SocketAddr) -> Self {
        let mut follow = Self {
            leader: Contact::of(candidate, source),
            key: Key::of(candidate),
            candidate: candidate.clone(),
            prover: None,
            joined: false,
            restating: false,
            answered: false,
            heard: shared.now,
            joins: 0,
            backoff: Backoff::of_words(shared.world(), Duration::from_millis(250)),
            asks: Backoff::new(Duration::from_secs(3), Duration::from_secs(15)),
            progress: None,
            round: None,
            broken: 0,
        };
        shared.set_after(Timer::GiveUp, silence(shared.world()));
        follow.join(shared);
        if shared.world() <= LARGE {
            follow.prove(shared);
        }
        follow
    }

    /// This node's addresses have changed: the leader is told, until it answers.
    pub(crate) fn tell_endpoints(&mut self, shared: &mut Shared) {
        self.restating = true;
        if self.joined {
            self.backoff.reset();
            self.restate(shared);
        }
    }

    fn restate(&mut self, shared: &mut Shared) {
        let join = Self::join_message(shared);
        // Where its words come from may be what has gone.
        for to in std::iter::once(self.leader.source).chain(self.leader.endpoints.iter().copied()) {
            shared.send(to, self.leader.id, &join);
        }
        let next = self.backoff.after(shared.now, &mut shared.rng);
        shared.timers.set(Timer::Join, next);
    }

    fn join_message(shared: &Shared) -> Message {
        Message::Join(Join { world: shared.world(), node: shared.node_info() })
    }

    /// Sends a join, and sets the timer for the next.
    pub(crate) fn join(&mut self, shared: &mut Shared) {
        if self.joined {
            if self.restating {
                self.restate(shared);
            }
            return;
        }
        let join = Self::join_message(shared);
        shared.send(self.leader.source, self.leader.id, &join);
        // Where its words come from may be a way that leads only hither.
        if self.joins >= 2 {
            let other = self.leader.endpoints[self.joins % self.leader.endpoints.len()];
            if other != self.leader.source {
                shared.send(other, self.leader.id, &join);
            }
        }
        self.joins += 1;
        let next = self.backoff.after(shared.now, &mut shared.rng);
        shared.timers.set(Timer::Join, next);
    }

    fn prove(&mut self, shared: &mut Shared) {
        if self.prover.is_none() {
            // At once the first time.
            let delay = (REDIAL * self.broken).min(SILENCE / 2);
            self.prover = Some(Prover::start(shared, self.leader.id, &self.leader.endpoints, delay));
        }
    }

    /// The leader, as others are told of it.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { candidate: self.candidate.clone(), source: self.leader.source }
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    pub(crate) fn in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Ready and not released: the node has given its word.
    pub(crate) fn is_ready(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.ready)
    }

    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    fn won(&self) -> Option<Won> {
        self.prover.as_ref().and_then(Prover::won)
    }

    /// A word of the leader's to this node alone.
    pub(crate) fn hear(&mut self, source: SocketAddr, shared: &mut Shared) {
        self.leader.source = source;
        self.heard = shared.now;
        if !self.answered {
            self.answered = true;
            if !self.joined {
                shared.set_after(Timer::GiveUp, UNREACHED);
            }
        }
        if let Some(round) = &mut self.round {
            round.answered = shared.now;
        }
    }

    pub(crate) fn on_announce(
        &mut self,
        announce: &Announce,
        source: SocketAddr,
        multicast: bool,
        shared: &mut Shared,
    ) {
        // What it multicasts comes from each of its interfaces; the one that answered stays.
        let source = if multicast && self.answered { self.leader.source } else { source };
        self.leader = Contact::of(&announce.candidate, source);
        self.key = Key::of(&announce.candidate);
        self.candidate = announce.candidate.clone();
        if multicast {
            self.asks.reset();
        }
        if self.joined {
            let next = self.asks.after(shared.now, &mut shared.rng);
            shared.timers.set(Timer::Ask, next);
            let progress = Progress {
                joined: announce.joined,
                world: shared.config.world,
                newest: announce.newest.to_vec(),
                missing: announce.missing.iter().map(|&(first, last)| RankRange { first, last }).collect(),
                leader: self.leader.peer(),
            };
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
        self.prove(shared);
        welcome.lease.is_some_and(|lease| self.hold(DialId(lease), shared))
    }

    /// The leader has named the dial that arrived. Returns whether this node has joined by it.
    fn hold(&mut self, lease: DialId, shared: &mut Shared) -> bool {
        let held = self.prover.as_mut().is_some_and(|prover| prover.win(lease, shared));
        if !held || self.joined {
            return false;
        }
        self.joined = true;
        shared.timers.stop(Timer::Join);
        if self.restating {
            // It may have counted this node by an earlier join.
            self.restate(shared);
        }
        shared.timers.stop(Timer::GiveUp);
        let next = self.asks.after(shared.now, &mut shared.rng);
        shared.timers.set(Timer::Ask, next);
        shared.event(Event::Following(self.leader.peer()));
        true
    }

    /// The leader has been quiet: asks it by unicast, which it answers with its announce. Only the
    /// lease ends a leader.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        if self.joined {
            shared.send(self.leader.source, self.leader.id, &shared.solicit());
            let next = self.asks.after(shared.now, &mut shared.rng);
            shared.timers.set(Timer::Ask, next);
        }
    }

    pub(crate) fn give_up(&self, now: Time) -> GaveUp {
        if self.answered && now < self.heard + SILENCE { GaveUp::Unreached } else { GaveUp::Silent }
    }

    pub(crate) fn connected(&mut self, dial: DialId, local: IpAddr) {
        if let Some(prover) = &mut self.prover {
            prover.connected(dial, local);
        }
        if let Some(round) = &mut self.round {
            round.proof.connected(dial, local);
        }
    }

    /// Opens the dials that are due.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if let Some(prover) = &mut self.prover {
            prover.advance(shared);
        }
        if let Some(round) = &mut self.round {
            round.proof.advance(shared);
        }
    }

    /// A dial has failed or a connection has closed.
    pub(crate) fn lost(&mut self, dial: DialId, shared: &mut Shared) {
        if let Some(round) = &mut self.round {
            round.proof.lost(dial);
        }
        let lost = self.prover.as_mut().map(|prover| prover.lost(dial));
        if lost != Some(Lost::Lease) {
            return;
        }
        if let Some(round) = self.round.as_mut().filter(|round| round.ready) {
            // It has given its word. If the leader lives, it tells how the round ends.
            round.lease_lost = Some(shared.now);
            round.backoff.reset();
            self.tell(shared);
        } else {
            self.rejoin(shared);
        }
    }

    /// While gathering, a broken lease is dialled again; the answer tells whether the leader still
    /// lives.
    fn rejoin(&mut self, shared: &mut Shared) {
        self.drop_round(shared);
        if let Some(prover) = self.prover.take() {
            prover.stop(shared);
        }
        self.joined = false;
        self.answered = false;
        shared.timers.stop(Timer::Ask);
        shared.set_after(Timer::GiveUp, silence(shared.world()));
        self.backoff.reset();
        self.join(shared);
        self.prove(shared);
        self.broken += 1;
    }

    /// Returns whether this node has joined by it.
    pub(crate) fn on_prepare(&mut self, prepare: &Prepare, shared: &mut Shared) -> bool {
        self.prove(shared);
        let joined_by_this = self.hold(DialId(prepare.lease), shared);
        let Some(won) = self.won().filter(|_| self.joined) else { return false };
        let Ok(rank) = shared.config.world.rank(prepare.rank) else { return false };
        match &self.round {
            Some(round) if round.round > prepare.round => return joined_by_this,
            Some(round) if round.round == prepare.round => {
                // The leader repeats it to see that this node is alive, or has missed its word.
                self.tell(shared);
                return joined_by_this;
            }
            _ => self.drop_round(shared),
        }
        let lease = Some((self.leader.id, won));
        let proof = MasterProof::start(shared, prepare.master, &prepare.endpoints, lease);
        self.round = Some(Participation {
            round: prepare.round,
            rank,
            digest: prepare.digest,
            slots: Slots {
                own: shared.config.node.attributes.slots,
                before: prepare.slots_before,
                total: prepare.slots_total,
            },
            proof,
            parts: shared
                .config
                .node
                .attributes
                .wants_roster
                .then(|| Parts::new(shared.config.world, prepare.digest, prepare.roster_bytes)),
            ready: false,
            unproved: false,
            started: shared.now,
            answered: shared.now,
            lease_lost: None,
            backoff: Backoff::of_words(shared.world(), longest_repeat(shared.world())),
        });
        shared.event(Event::Preparing { round: prepare.round });
        self.proceed(shared);
        joined_by_this
    }

    pub(crate) fn on_proved(&mut self, master: NodeId, dial: DialId, shared: &mut Shared) {
        if self.round.as_mut().is_some_and(|round| round.proof.proved(master, dial, shared)) {
            self.proceed(shared);
        }
    }

    pub(crate) fn on_part(&mut self, part: Part, shared: &mut Shared) {
        let Some(round) = self.round.as_mut().filter(|round| round.round == part.round) else { return };
        let Some(parts) = &mut round.parts else { return };
        if parts.add(part) {
            self.proceed(shared);
        }
    }

    /// The proof of the master has taken too long: the leader is told, and chooses another.
    pub(crate) fn proof_failed(&mut self, shared: &mut Shared) {
        if let Some(round) = self.round.as_mut().filter(|round| !round.ready) {
            round.unproved = true;
            self.tell(shared);
        }
    }

    /// Says again what has not been answered.
    pub(crate) fn repeat(&mut self, shared: &mut Shared) {
        if let Some(round) = &mut self.round {
            round.proof.ask(shared);
        }
        self.proceed(shared);
    }

    /// Asks for the parts of the roster that are missing, or says that nothing is.
    fn proceed(&mut self, shared: &mut Shared) {
        let Some(round) = &mut self.round else { return };
        if round.ready || round.unproved {
            self.tell(shared);
            return;
        }
        let want = round.parts.as_ref().and_then(|parts| parts.want(round.round));
        if let Some(want) = want {
            shared.send(self.leader.source, self.leader.id, &Message::Want(want));
            let next = round.backoff.after(shared.now, &mut shared.rng);
            shared.timers.set_earlier(Timer::Proof, next);
        } else if round.parts.as_ref().is_none_or(Parts::is_complete) && round.proof.endpoint().is_some() {
            round.ready = true;
            round.answered = shared.now;
            round.backoff.reset();
            self.tell(shared);
        }
    }

    /// Says to the leader how far this node is; repeats it while that is its last word.
    fn tell(&mut self, shared: &mut Shared) {
        let Some(round) = &mut self.round else { return };
        let message = match round.proof.endpoint() {
            Some(endpoint) if round.ready => Message::Ready(Ready { round: round.round, endpoint }),
            _ if round.unproved => Message::Unproved(round.round),
            _ => Message::Pong,
        };
        shared.send(self.leader.source, self.leader.id, &message);
        if round.ready || round.unproved {
            let next = round.backoff.after(shared.now, &mut shared.rng);
            shared.timers.set(Timer::Proof, next);
        }
    }

    /// A ready node asks until it hears void or commit, but not for ever. Returns the failure where
    /// the leader has been silent for too long.
    pub(crate) fn in_doubt(&self, shared: &Shared) -> Option<Failure> {
        let round = self.round.as_ref().filter(|round| round.ready)?;
        // Without a lease, its answers alone tell that it lives; and while it does, the round has an end.
        let until = round.lease_lost.map_or(round.answered + IN_DOUBT, |at| at.max(round.answered) + SILENCE);
        // Whatever it answers: a leader ends its round after 15 s, or is none.
        let until = until.min(round.started + LONGEST_ROUND);
        (shared.now >= until).then(|| Failure::OutcomeUnknown { leader: self.leader.peer() })
    }

    /// The leader has begun a round of this number: an earlier one is over, and this node takes part in none.
    pub(crate) fn outgrow(&mut self, number: u64, shared: &mut Shared) {
        match &self.round {
            Some(round) if round.round < number => self.drop_round(shared),
            Some(round) if round.round == number => self.tell(shared),
            _ => {}
        }
    }

    pub(crate) fn on_void(&mut self, number: u64, shared: &mut Shared) {
        let Some(round) = self.round.as_ref().filter(|round| round.round == number) else { return };
        if round.lease_lost.is_some() {
            self.rejoin(shared);
        } else {
            self.drop_round(shared);
        }
    }

    fn drop_round(&mut self, shared: &mut Shared) {
        if let Some(round) = self.round.take() {
            shared.timers.stop(Timer::Proof);
            round.proof.stop(shared);
        }
    }

    /// The world has formed, if this is the round that this node is ready for.
    pub(crate) fn on_commit(&mut self, commit: &Commit, shared: &mut Shared) -> Option<Formed> {
        let round = self.round.as_mut().filter(|round| round.ready && round.round == commit.round)?;
        let (master, local) = round.proof.published(commit.endpoint, shared)?;
        if round.proof.at(commit.endpoint) != Some(master) {
            shared.event(Event::Warning(Warning::MasterElsewhere { master }));
        }
        // The end of its lease says the same.
        for _ in 0..if shared.world() > LARGE { 1 } else { LAST_WORDS } {
            shared.send(self.leader.source, self.leader.id, &Message::Done(commit.round));
        }
        Some(Formed {
            rank: round.rank,
            world: shared.config.world,
            master,
            local,
            digest: round.digest,
            roster: round.parts.take().and_then(Parts::into_roster),
            verdict: commit.verdict.clone(),
            slots: round.slots,
        })
    }

    /// Leaves this leader and closes every connection to it.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        self.drop_round(shared);
        for timer in [Timer::Join, Timer::GiveUp, Timer::Ask] {
            shared.timers.stop(timer);
        }
        if let Some(prover) = self.prover.take() {
            prover.stop(shared);
        }
    }
}
