//! A follower's part in one round: its paths, the roster, and its promise that it is ready.

use std::net::IpAddr;
use std::time::Duration;

use super::check::Place;
use crate::model::{Digest, NodeId, Roster};
use crate::proto::prove::PathProofs;
use crate::proto::report::{Event, Formed};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Answer, Commit, Partner, Prepare, decode_roster};

/// How long a node in a round waits for a leader that cannot be reached, or does not acknowledge.
const IN_DOUBT: Duration = Duration::from_secs(10);
/// How long it stays in a round, whatever its leader answers: a round ends after 15 s, and its leader tells
/// the result for 10 s more.
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
    /// The leader may know that.
    bound: bool,
    /// When this node learned of the round.
    started: Time,
}

impl Participation {
    /// Starts to take part in the round, in this place. `is_proved` is whether this node has reached the
    /// master's own port already.
    pub(super) fn start(prepare: &Prepare, place: Place, is_proved: bool, shared: &mut Shared) -> Self {
        let to_master = Partner::master(prepare.master, prepare.master_at);
        let to_master = Some(to_master).filter(|_| prepare.master != shared.me() && !is_proved);
        let partners: Vec<Partner> = to_master.into_iter().chain(prepare.partners.iter().copied()).collect();
        shared.event(Event::Preparing { round: prepare.round });
        Self {
            round: prepare.round,
            place,
            digest: prepare.digest,
            proofs: PathProofs::start(&partners, shared),
            address: prepare.address,
            roster: None,
            ready: false,
            bound: false,
            started: shared.now,
        }
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Whether the node has promised to form this world.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether the leader may know the promise, whatever was said since.
    pub(super) fn is_bound(&self) -> bool {
        self.bound
    }

    pub(super) fn bind(&mut self) {
        self.bound = true;
    }

    pub(super) fn proofs(&mut self) -> &mut PathProofs {
        &mut self.proofs
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

    /// What the leader learns if the proofs have taken too long.
    pub(super) fn broken(&self) -> Option<Answer> {
        self.proofs.broken().filter(|_| !self.ready).map(Answer::Broken)
    }

    /// Becomes ready, once all paths are proved and the roster is there.
    pub(super) fn proceed(&mut self, shared: &Shared) -> Option<Answer> {
        let has_roster = self.roster.is_some() || !shared.config.node.attributes.wants_roster;
        self.ready |= has_roster && self.proofs.are_proved();
        self.ready.then_some(Answer::Ready)
    }

    /// Until when this node waits for void or commit, if it hears nothing more.
    pub(super) fn patience(&self, leader: NodeId, shared: &Shared) -> Time {
        let link = shared.links.get(leader).map(|peer| &peer.link);
        let until = link.map_or(Some(shared.now), |link| link.lost_at(shared.now, IN_DOUBT));
        // A leader that answers for longer than a round lasts is no leader.
        let longest = self.started + LONGEST_ROUND;
        until.map_or(longest, |until| until.min(longest))
    }

    /// The world has formed, if this node is ready.
    pub(super) fn commit(&mut self, commit: &Commit, shared: &mut Shared) -> Option<Formed> {
        if !self.ready {
            return None;
        }
        // Once the leader knows that the master has read this, other nodes' jobs connect to the master's
        // port.
        shared.stop_accepting();
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
        shared.timers.stop(Timer::InDoubt);
        self.proofs.stop(shared);
    }
}
