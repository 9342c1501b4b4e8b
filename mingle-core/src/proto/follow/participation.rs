//! A follower's part in one round: its paths, the roster, and its promise that it is ready.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::check::Place;
use super::leader::Leader;
use crate::model::{Digest, Roster};
use crate::proto::backoff::Backoff;
use crate::proto::prove::PathProofs;
use crate::proto::report::{Event, Formed};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Commit, Message, Partner, Prepare, decode_roster};

/// How long a ready node asks a leader that does not answer.
const IN_DOUBT: Duration = Duration::from_secs(10);
/// How long a ready node without a lease asks a leader that does not answer.
const IN_DOUBT_WITHOUT_LEASE: Duration = Duration::from_secs(1);
/// How long a ready node stays in a round, whatever its leader answers: a round ends after 15 s, and its
/// leader repeats the result for 10 s more.
const LONGEST_ROUND: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Participation {
    round: u64,
    place: Place,
    digest: Digest,
    /// The address at which the others reach this node.
    address: IpAddr,
    proofs: PathProofs,
    roster: Option<Roster>,
    ready: bool,
    /// The proofs have taken too long.
    unproved: bool,
    /// When this node learned of the round.
    started: Time,
    /// When the leader was last heard.
    heard: Time,
    /// When the lease closed although this node is ready.
    lease_lost: Option<Time>,
    backoff: Backoff,
}

impl Participation {
    /// Starts to take part in the round, in this place. `lease` is the leader's endpoint that this node's
    /// lease has proved.
    pub(super) fn start(
        prepare: &Prepare,
        place: Place,
        leader: &Leader,
        lease: SocketAddr,
        shared: &mut Shared,
    ) -> Self {
        let &Prepare { master, master_at, .. } = prepare;
        let has_proved = (leader.id(), lease) == (master, master_at);
        let to_master = Partner::master(master, master_at);
        let to_master = Some(to_master).filter(|_| master != shared.me() && !has_proved);
        let expected =
            usize::try_from(prepare.paths).unwrap_or(usize::MAX) + usize::from(to_master.is_some());
        let mut proofs = PathProofs::start(expected, shared);
        proofs.add(to_master.as_slice(), shared);
        proofs.add(&prepare.partners, shared);
        let participation = Self {
            round: prepare.round,
            place,
            digest: prepare.digest,
            proofs,
            address: prepare.address,
            roster: None,
            ready: false,
            unproved: false,
            started: shared.now,
            heard: shared.now,
            lease_lost: None,
            backoff: Backoff::for_answer(shared.scale(), shared.scale().longest_repeat()),
        };
        shared.event(Event::Preparing { round: prepare.round });
        shared.timers.set(Timer::InDoubt, participation.patience());
        participation
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Whether the node has promised to form this world.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether the lease closed although the node is ready.
    pub(super) fn has_lost_lease(&self) -> bool {
        self.lease_lost.is_some()
    }

    /// The leader has written to this node.
    pub(super) fn hear(&mut self, now: Time) {
        self.heard = now;
    }

    pub(super) fn proofs(&mut self) -> &mut PathProofs {
        &mut self.proofs
    }

    /// The lease of a ready node has closed. A leader that lives answers how the round ends.
    pub(super) fn lose_lease(&mut self, leader: &Leader, shared: &mut Shared) {
        self.lease_lost = Some(shared.now);
        self.backoff.reset();
        self.tell(leader, shared);
        shared.timers.set(Timer::InDoubt, self.patience());
    }

    /// Takes an encoded roster, if it is that of the prepare.
    pub(super) fn take_roster(&mut self, bytes: &[u8]) {
        if self.roster.is_some() {
            return;
        }
        let roster = decode_roster(bytes, self.place.world);
        self.roster = roster.filter(|roster| roster.digest() == self.digest && self.place.is_in(roster));
        if self.roster.is_none() {
            tracing::debug!("the roster is not the one of the prepare");
        }
    }

    /// The proofs have taken too long: the leader learns it, and tries another round.
    pub(super) fn proof_failed(&mut self, leader: &Leader, shared: &mut Shared) {
        if !self.proofs.are_proved() {
            self.unproved = true;
            self.tell(leader, shared);
        }
    }

    /// Becomes ready, once all paths are proved and the roster is there, and tells the leader.
    pub(super) fn proceed(&mut self, leader: &Leader, shared: &mut Shared) {
        let has_roster = self.roster.is_some() || !shared.config.node.attributes.wants_roster;
        if self.ready || self.unproved {
            self.tell(leader, shared);
        } else if has_roster && self.proofs.are_proved() {
            self.ready = true;
            self.heard = shared.now;
            self.backoff.reset();
            self.tell(leader, shared);
        }
    }

    /// Tells the leader how far this node is, and repeats that where nothing can follow.
    pub(super) fn tell(&mut self, leader: &Leader, shared: &mut Shared) {
        let message = if self.ready {
            Message::Ready(self.round)
        } else {
            // A path that was proved after this node had reported it is broken no more: the round is void
            // soon.
            let broken = self.unproved.then(|| self.proofs.broken(self.round)).flatten();
            broken.map_or(Message::Pong, Message::Broken)
        };
        leader.send(&message, shared);
        if self.ready || self.unproved {
            shared.set_repeat(Timer::RepeatInRound, &mut self.backoff);
        }
    }

    /// Until when this node waits for void or commit.
    pub(super) fn patience(&self) -> Time {
        // Without a lease, only its answers show that the leader lives; while it does, the round ends.
        let until = match self.lease_lost {
            Some(at) => at.max(self.heard) + IN_DOUBT_WITHOUT_LEASE,
            None => self.heard + IN_DOUBT,
        };
        // A node that answers for longer than a round lasts is no leader.
        until.min(self.started + LONGEST_ROUND)
    }

    /// The world has formed, if this node is ready.
    pub(super) fn commit(&mut self, commit: &Commit, leader: &Leader, shared: &mut Shared) -> Option<Formed> {
        if !self.ready {
            return None;
        }
        // Once the leader knows that the master is done, other nodes' jobs connect to the master's port.
        shared.stop_accepting();
        for _ in 0..shared.scale().done_copies() {
            leader.send(&Message::Done(commit.round), shared);
        }
        Some(Formed {
            rank: self.place.rank,
            world: self.place.world,
            asked: shared.config.world,
            master: self.place.master_at,
            local: self.address,
            sameness: commit.sameness.clone(),
            digest: self.digest,
            roster: self.roster.take(),
            verdict: commit.verdict.clone(),
            slots: self.place.slots,
            left_over: commit.left_over,
        })
    }

    /// Leaves the round and closes its connections.
    pub(super) fn stop(self, shared: &mut Shared) {
        shared.timers.stop(Timer::RepeatInRound);
        shared.timers.stop(Timer::InDoubt);
        self.proofs.stop(shared);
    }
}
