//! The leader is lost: the first of its heirs that is there leads, or knows who does.

use std::time::Duration;

use super::{LOST, OWES, Time, World, WorldChange};
use crate::model::NodeId;
use crate::proto::Change;
use crate::wire::world::{Command, Contact, FirstCause, Phase};

/// How long a node that passes on what others say waits for the leader's answer.
const OWES_GUESTS: Duration = Duration::from_secs(2);
/// How long the other heirs have to say that they hear the leader, before an heir leads that does not.
const OBJECTIONS: Duration = Duration::from_millis(500);
/// The pause before the heirs are asked again.
const AGAIN: Duration = Duration::from_millis(250);

/// The heirs, of which one after the other is asked.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    pub(super) lost: NodeId,
    heirs: Vec<Contact>,
    position: usize,
    /// Since when the heir at this position is asked.
    pub(super) since: Time,
    /// It is this node's turn, and it asks the other heirs whether they hear the leader.
    asks_all: bool,
    reported: Option<WorldChange>,
}

impl Walk {
    /// The heir that is asked, or has answered that it hears the leader; before this node leads itself, all.
    pub(super) fn asked(&self) -> Vec<NodeId> {
        let (skipped, most) = if self.asks_all { (0, self.heirs.len()) } else { (self.position, 1) };
        self.heirs.iter().skip(skipped).take(most).map(|heir| heir.id).collect()
    }

    /// The heir that is asked, or the first other heir that may live.
    pub(super) fn heir(&self, may_live: impl Fn(NodeId) -> bool) -> Option<&Contact> {
        let mut heirs = self.heirs.iter().cycle().skip(self.position).take(self.heirs.len());
        heirs.find(|heir| heir.id != self.lost && may_live(heir.id))
    }
}

impl World {
    /// Notices that the leader is lost, or is back, and goes on with the walk.
    pub(super) fn look_after_the_leader(&mut self) {
        if self.says_farewell() {
            self.walk = None;
            return;
        }
        let is_lost = self.leader_is_lost_at().is_some_and(|at| at <= self.shared.now);
        match &self.walk {
            None if is_lost => {
                for (_, peer) in self.peers.iter_mut() {
                    peer.known.reign = None;
                }
                self.doubt(true);
                let (lost, heirs, since) = (self.reign.leader.id, self.heirs(), self.shared.now);
                self.walk = Some(Walk { lost, heirs, position: 0, since, asks_all: false, reported: None });
            }
            Some(_) if !is_lost && self.is_there(self.reign.leader.id) => self.walk = None,
            _ => {}
        }
        while self.goes_on() {}
    }

    /// All are released, so nobody needs a leader any more.
    fn says_farewell(&self) -> bool {
        self.farewell.is_some() && !self.has_left()
    }

    /// When the leader is lost, if it stays as it is.
    fn leader_is_lost_at(&self) -> Option<Time> {
        let leader = self.reign.leader.id;
        // A leader that leaves has said before why the world is over, which may be read later.
        let leaves = self.left.contains_key(&leader) && self.reign.phase != Phase::Runs;
        if leaves || self.dead.contains(&leader) {
            return Some(Time::ZERO);
        }
        let Some(peer) = self.peers.get(leader) else { return Some(Time::ZERO) };
        match peer.link.presence(self.shared.now) {
            // A node that waits for its first seat has no world to lose: the leader that was named to it may
            // have died before, and others may know a later leader.
            super::Presence::Silent(_) if self.plan.is_none() && peer.link.is_refused() => {
                Some(self.followed + AGAIN)
            }
            super::Presence::Silent(since) => Some(since.max(self.followed) + LOST),
            super::Presence::Dead => Some(Time::ZERO),
            super::Presence::There => {
                let has_guests =
                    self.peers.iter().any(|(id, peer)| *id != leader && peer.known.arrival.is_some());
                let patience = if has_guests { OWES_GUESTS } else { OWES };
                peer.link.owes_since().map(|since| since + patience)
            }
        }
    }

    /// When the leader is lost, or an heir that hears it. What is said to them changes that.
    pub(super) fn next_of_leader(&self) -> Option<Time> {
        match &self.walk {
            _ if self.lead.is_some() || self.says_farewell() => None,
            None => self.leader_is_lost_at(),
            Some(walk) => {
                let heir = walk.heirs.get(walk.position).filter(|heir| self.has_answered(heir.id))?;
                self.owes_until(heir.id)
            }
        }
    }

    /// Whether an heir has said who leads. That it would follow this node is no answer.
    fn has_answered(&self, heir: NodeId) -> bool {
        let Some(peer) = self.peers.get(heir).filter(|peer| peer.link.is_there()) else { return false };
        let is_stopped = self.owes_until(heir).is_some_and(|until| self.shared.now >= until);
        !is_stopped && peer.known.reign.as_ref().is_some_and(|said| said.leader.id != self.own.id)
    }

    /// When an heir that acknowledges nothing is taken for stopped.
    fn owes_until(&self, heir: NodeId) -> Option<Time> {
        Some(self.peers.get(heir)?.link.owes_since()? + OWES)
    }

    /// Looks at the heir that is asked. Returns whether the next heir is to be looked at.
    fn goes_on(&mut self) -> bool {
        let Some(walk) = &self.walk else { return false };
        let (lost, since) = (walk.lost, walk.since);
        if self.shared.now < since {
            self.wake(since);
            return false;
        }
        let Some(heir) = walk.heirs.get(walk.position).cloned() else {
            self.begin_again();
            return false;
        };
        if heir.id == self.own.id {
            if self.current_plan().is_some() && !self.has_left() {
                return self.takes_its_turn(lost, since);
            }
        } else if heir.id != lost && !self.is_gone(heir.id) {
            self.link_to(&heir);
            let is_refused = self.peers.get(heir.id).is_none_or(|peer| peer.link.is_refused());
            if self.has_answered(heir.id) || (!is_refused && self.shared.now < since + LOST) {
                self.wake(since + LOST);
                return false;
            }
        }
        let now = self.shared.now;
        if let Some(walk) = &mut self.walk {
            walk.position += 1;
            walk.since = now;
        }
        true
    }

    /// This node leads, unless another heir hears the leader. Nobody hears a leader that is dead, or follows
    /// one that leaves.
    fn takes_its_turn(&mut self, lost: NodeId, since: Time) -> bool {
        let heirs = self.heirs();
        let hears = |heir: &Contact| heir.id != self.own.id && self.has_answered(heir.id);
        let hearing = heirs.iter().position(hears);
        let is_gone = self.is_gone(lost);
        if let Some(walk) = self.walk.as_mut().filter(|_| !is_gone) {
            walk.asks_all = hearing.is_none();
            if let Some(hearing) = hearing {
                walk.position = hearing;
                return false;
            }
            if self.shared.now < since + OBJECTIONS {
                for heir in heirs.iter().filter(|heir| heir.id != lost) {
                    self.link_to(heir);
                }
                self.wake(since + OBJECTIONS);
                return false;
            }
        }
        self.succeed(self.reign.term.saturating_add(1));
        self.decide();
        false
    }

    /// No heir leads.
    fn begin_again(&mut self) {
        let again = self.shared.now + AGAIN;
        // A guest has no world to lose: it looks for others if it is refused where it has met nobody.
        let is_refused = |id: &NodeId| self.peers.get(*id).is_some_and(|peer| peer.link.is_refused());
        let is_dead = |id| self.is_gone(id) || (self.plan.is_none() && is_refused(&id));
        let mut heirs = self.walk.iter().flat_map(|walk| &walk.heirs);
        let are_dead = heirs.all(|heir| heir.id == self.own.id || is_dead(heir.id));
        if let (Command::Failed(end), Some(plan), None) = (self.command, &self.plan, self.over) {
            // Nobody can read that, and nobody else can say that the world is over.
            self.end_world(FirstCause { rank: plan.rank_of(self.own.id), end });
        }
        self.wake(again);
        let Some(walk) = &mut self.walk else { return };
        (walk.position, walk.since) = (0, again);
        let change = if are_dead { WorldChange::Lost } else { WorldChange::Change(Change::CutOff) };
        if walk.reported.replace(change.clone()) != Some(change.clone()) {
            self.actions.push_back(super::Action::Report(change));
        }
    }
}
