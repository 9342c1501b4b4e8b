//! What the driver of a world reads of it and changes in it.

use super::{LOST, Time, World, WorldLead};
use crate::model::{Epoch, NodeId, WorldSize};
use crate::proto::Config;
use crate::wire::world::{Command, Contact, Phase, Reign};

impl World {
    /// What is decided, as far as this node knows.
    pub(crate) fn reign(&self) -> &Reign {
        &self.reign
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether this node has said that it may end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The process that leads, unless it is lost.
    pub(crate) fn leader(&self) -> Option<&Contact> {
        self.walk.is_none().then_some(&self.reign.leader)
    }

    /// Whom a newcomer is to ask: the leader, or who may know who leads next. Without an answer newcomers
    /// would form a world of their own.
    pub(crate) fn who_knows(&self) -> Option<&Contact> {
        let leader = self.leader().filter(|leader| self.is_there(leader.id));
        // A member that has lost the leader passes on who leads.
        let own = self.current_plan().is_some().then_some(&self.own);
        // One that leaves is soon gone, and whoever it has left behind would look for it.
        let lasts = |named: &&Contact| named.id != self.own.id || !self.has_left();
        [leader, own, self.heir()].into_iter().flatten().find(lasts)
    }

    /// The leader while it is not lost, and then an heir. None as long as this node has read nothing of a
    /// leader: two that wait would send each other to a dead one for ever.
    fn heir(&self) -> Option<&Contact> {
        let has_met = self.reign.epoch.origin != 0;
        match &self.walk {
            _ if !has_met => None,
            None => Some(&self.reign.leader),
            Some(walk) => walk.heir(|id| !self.is_gone(id)),
        }
    }

    /// Whether this node expects the process of this ID: itself, or a member that is not lost. A member may
    /// have yet to come, or be cut off, and is dialled. One that is lost may lead another part of the job.
    pub(crate) fn expects(&self, id: NodeId) -> bool {
        id == self.own.id || (self.seat_of(id).is_some() && !self.dead.contains(&id))
    }

    /// Whether this node leads, and no other node is there.
    pub(super) fn is_alone(&self) -> bool {
        self.lead.is_some()
            && !self.peers.iter().any(|(id, peer)| peer.link.is_there() && !self.observes(*id))
    }

    /// The generation of this part of the job, as this node names it to those that ask. A leader that is
    /// alone, and has too few nodes for a world, joins any other part: whoever asks must not join it as well.
    pub(super) fn said_generation(&self) -> u32 {
        if self.is_alone() && self.is_too_few() { 0 } else { self.reign.epoch.generation }
    }

    /// Whether others of the job may have gone on without this node, whose world is over and which leads: too
    /// few nodes are back, or it leads in the place of a leader that is lost.
    pub(super) fn may_lack_others(&self) -> bool {
        self.is_too_few() || self.reign.term > 0
    }

    /// Whether the world is over, and this node is back, and fewer are than a world needs.
    fn is_too_few(&self) -> bool {
        let is_back = matches!(self.reign.phase, Phase::Over(_)) && self.command == Command::Waits;
        is_back && self.reign.here < self.shared.config.world.min().get()
    }

    /// Whether this node joins another part of the job, which has this generation and this leader. Of two
    /// parts of one generation that are too few, one joins the other.
    pub(super) fn gives_way_to(&self, generation: u32, leader: NodeId) -> bool {
        let own = self.reign.epoch.generation;
        let is_few = || self.is_too_few() && (self.is_alone() || (generation, leader) > (own, self.own.id));
        // The answer to a new leader's question may come when its first round has begun.
        let is_between = matches!(self.reign.phase, Phase::Over(_) | Phase::Round(_));
        let Some(lead) = self.lead.as_ref().filter(|_| is_between) else { return false };
        // Who answers a new leader may not know yet that the former one is dead, and its members are to come.
        let is_new = self.shared.now < lead.begun + LOST;
        self.may_lack_others() && (generation > own || (!is_new && is_few()))
    }

    pub(crate) fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// Whether this node leads a world that runs.
    pub(crate) fn leads_commands(&self) -> bool {
        self.lead.as_ref().is_some_and(WorldLead::leads_commands)
    }

    /// Whether this node takes part in a round that is under way, or leads one.
    pub(crate) fn is_in_round(&self) -> bool {
        self.under_way().is_some() || self.lead.as_ref().is_some_and(WorldLead::is_in_round)
    }

    /// Whether this node waits for a seat in a world in which it has none.
    pub(crate) fn is_guest(&self) -> bool {
        self.seat_of(self.own.id).is_none()
    }

    /// The size of the world in which this node waits for a seat, if this node wants another.
    pub(crate) fn other_size(&self) -> Option<WorldSize> {
        let is_known = self.is_guest() && self.reign.epoch.origin != 0;
        Some(self.reign.size).filter(|size| is_known && *size != self.shared.config.world)
    }

    /// Whether this node's command has failed, or the node leaves.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.command, Command::Failed(_)) || self.has_left()
    }

    /// No world follows this one, and the nodes that wait for a seat may end. Does nothing on a node that
    /// does not lead.
    pub(crate) fn release_all(&mut self, now: Time) {
        self.at(now);
        if let Some(lead) = &mut self.lead {
            lead.frees = true;
        }
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What this node brings to its worlds, which may have changed. This is called every few seconds, and
    /// where it is as before a leader does not look at all its members.
    pub(crate) fn set_config(&mut self, now: Time, config: Config) {
        self.shared.config = config;
        let arrival = self.shared.join();
        if arrival != self.arrival {
            self.at(now);
            self.own = arrival.contact(self.own.id);
            self.arrival = arrival;
        }
    }
}
