//! A follower's part in one round: its paths, and its promise that it is ready.

use std::time::Duration;

use crate::model::NodeId;
use crate::proto::prove::PathProofs;
use crate::proto::report::{Event, Formed};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Answer, BrokenTo, Commit, Part, Partner, Prepare};

/// How long a node in a round waits for a leader that cannot be reached, or does not acknowledge.
const IN_DOUBT: Duration = Duration::from_secs(10);
/// How long it stays in a round, whatever its leader answers: a round ends after 15 s, and its leader tells
/// the result for 10 s more.
const LONGEST_ROUND: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Participation {
    pub(super) round: u64,
    master: NodeId,
    /// The world, as far as this node knows it.
    formed: Formed,
    pub(super) proofs: PathProofs,
    /// The leader has been told what came of the proofs.
    has_answered: bool,
    /// The node has promised to form this world.
    pub(super) ready: bool,
    /// When this node learned of the round.
    started: Time,
}

impl Participation {
    /// Starts to take part in the round, which forms this world. `is_proved` is whether this node has reached
    /// the master's own port already.
    pub(super) fn start(prepare: &Prepare, formed: Formed, is_proved: bool, shared: &mut Shared) -> Self {
        let to_master = (!is_proved).then(|| Partner::master(prepare.master, prepare.master_at));
        let partners = to_master.into_iter().chain(prepare.partners.iter().copied());
        shared.event(Event::Preparing { round: prepare.round });
        Self {
            round: prepare.round,
            master: prepare.master,
            formed,
            proofs: PathProofs::start(partners, shared),
            has_answered: false,
            ready: false,
            started: shared.now,
        }
    }

    /// Becomes ready, once all paths are proved. Returns what to tell the leader.
    pub(super) fn proceed(&mut self) -> Option<Part> {
        if self.has_answered || !self.proofs.are_proved() {
            return None;
        }
        (self.has_answered, self.ready) = (true, true);
        Some(Part { round: self.round, answer: Answer::Ready })
    }

    /// The proofs have taken too long. A node that only tries a formation is ready nevertheless once it has
    /// reached the master: whoever else it cannot reach is what it wants to know.
    pub(super) fn proof_failed(&mut self, shared: &Shared) -> Option<Part> {
        let broken = self.proofs.broken().filter(|_| !self.ready)?;
        let unproved = self.proofs.unproved();
        let is_to_master = |to: &BrokenTo| (to.partner, to.path) == (self.master, self.formed.master);
        if shared.config.tries && !unproved.iter().any(is_to_master) {
            let roster = self.formed.roster.as_ref()?;
            let from = roster.members().get(usize::try_from(self.formed.rank.get()).ok()?)?;
            let path = |to: &BrokenTo| {
                let target = roster.find(to.partner)?;
                // The other node's MTU is not known here.
                Some((target.rank, to.path(from.peer(), target, (0, 0))))
            };
            self.formed.broken = unproved.iter().filter_map(path).collect();
            self.ready = true;
        }
        self.has_answered = true;
        Some(Part { round: self.round, answer: Answer::Broken(broken) })
    }

    /// Until when this node waits for void or commit, if it hears nothing more.
    pub(super) fn patience(&self, leader: NodeId, shared: &Shared) -> Time {
        let link = shared.links.get(leader).map(|peer| &peer.link);
        let until = link.map_or(Some(shared.now), |link| link.lost_at(shared.now, IN_DOUBT));
        // A leader that answers for longer than a round lasts is no leader.
        let longest = self.started + LONGEST_ROUND;
        until.map_or(longest, |until| until.min(longest))
    }

    /// The world has formed.
    pub(super) fn commit(&self, commit: &Commit, shared: &mut Shared) -> Formed {
        // Once the leader knows that the master has read this, other nodes' jobs connect to the master's
        // port.
        shared.stop_accepting();
        let (verdict, sameness) = (commit.verdict.clone(), commit.sameness.clone());
        Formed { verdict, sameness, left_over: commit.left_over, ..self.formed.clone() }
    }

    /// Leaves the round and closes its connections.
    pub(super) fn stop(mut self, shared: &mut Shared) {
        shared.timers.stop(Timer::GiveUpLeader);
        self.proofs.stop(shared);
    }
}
