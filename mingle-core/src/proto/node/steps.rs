//! The steps that concern several parts of a node: to follow a candidate, to leave it, to step down.

use super::Node;
use super::memory::NotJoined;
use crate::model::Misfit;
use crate::proto::follow::{Follow, GaveUp};
use crate::proto::report::{Event, Failure, Warning};
use crate::proto::shared::Shared;
use crate::wire::{Candidate, Commit, Introduction, Refusal, Trouble};

impl Node {
    /// Whether this node leads: it may, and follows nobody.
    pub(super) fn leads(&self) -> bool {
        self.follow.is_none() && self.seek.may_lead(&self.shared)
    }

    /// Whether this node neither leads nor follows.
    pub(super) fn seeks(&self) -> bool {
        self.follow.is_none() && !self.seek.may_lead(&self.shared)
    }

    /// The time to write of a leader has come: a node that may lead follows the best candidate that it has
    /// heard meanwhile, or else announces; others ask. A member tells all of its leader, which was not heard
    /// by multicast: others may not have found it.
    pub(super) fn call(&mut self) {
        if let Some(follow) = &mut self.follow {
            if follow.joined {
                follow.set_relay(&mut self.shared);
                self.seek.relay(follow, &mut self.shared);
            } else {
                follow.ask(&mut self.shared);
            }
        } else if self.seeks() {
            self.seek.solicit(&mut self.shared);
        } else if self.seek.stood_aside() {
            self.seek.start(&mut self.shared);
        } else if !self.lead.has_committed() {
            if let Some(best) = self.seek.take_best(&self.lead, &self.shared) {
                return self.follow(&best);
            }
            if !self.seek.announced {
                self.lead.begin_call(&mut self.shared);
            }
            self.seek.announce(&self.lead, &mut self.shared);
        }
    }

    /// Follows a candidate: stops looking for others, and freezes the book.
    pub(super) fn follow(&mut self, to: &Introduction) {
        tracing::debug!(id = %to.candidate.id, host = %to.candidate.host, source = %to.source, "joining");
        if let Some(old) = self.follow.take() {
            old.stop(&mut self.shared);
        }
        self.lead.freeze(&mut self.shared);
        if self.lead.knows(to.candidate.id) {
            // It has left this node to lead, and the end of its session is on its way.
            self.lead.remove(to.candidate.id, &mut self.shared);
        }
        let misfit = self.memory.unwanted().cloned();
        self.follow = Some(Follow::start(&mut self.shared, to.clone(), misfit));
    }

    /// Whether a candidate is said to be where this node is. If it is said for long, another host has the
    /// address.
    pub(super) fn is_twin(&mut self, candidate: &Candidate) -> bool {
        let own = &self.shared.config.node;
        // One such address may be the same on every host, as behind the NAT of a virtual machine.
        let is_here = candidate.endpoints.iter().all(|endpoint| own.endpoints.contains(endpoint));
        if is_here && self.memory.twin(candidate.id, self.shared.now) {
            let address = candidate.endpoints.preferred();
            let twins = Misfit::of_twins(&candidate.host, &own.host, address);
            self.learn_misfit(&twins);
        }
        is_here
    }

    /// Leaves the leader: looks for the others again, and goes on with the book where this node may lead.
    /// What has kept the world from forming still does.
    pub(super) fn leave(&mut self, mut follow: Follow) {
        // But for who was apart from that leader.
        let is_past = |trouble: &Trouble| matches!(trouble, Trouble::Misfit(misfit) if misfit.is_apart());
        self.lead.trouble = follow.trouble.take().filter(|trouble| !is_past(trouble));
        follow.stop(&mut self.shared);
        self.follow = None;
        self.seek.start(&mut self.shared);
        self.lead.resume(&mut self.shared);
    }

    /// Passes an event that may make this node a member to `act`. If this node has then joined, it redirects
    /// its own members to the leader.
    pub(super) fn joining(&mut self, act: impl FnOnce(&mut Follow, &mut Shared) -> bool) {
        let Some(follow) = &mut self.follow else { return };
        if act(follow, &mut self.shared) {
            self.seek.blocklist.forgive(follow.leader_id());
            self.memory.joined(follow.leader_id());
            self.lead.book.refuse_all(&Refusal::Redirect(follow.leader.clone()), &mut self.shared);
        }
    }

    /// The leader did not answer, or could not be reached over TCP: ignores it for a while.
    pub(super) fn give_up_leader(&mut self) {
        let Some(follow) = self.follow.take() else { return };
        let (id, peer) = (follow.leader_id(), follow.leader.candidate.peer());
        let elsewhere = self.shared.config.node.elsewhere(&follow.leader.candidate.endpoints);
        self.memory.elsewhere.clone_from(&elsewhere);
        let why = follow.gave_up(&self.shared);
        let is_silent = why == GaveUp::Silent;
        let endpoints = if is_silent { Vec::new() } else { follow.leader.candidate.endpoints.to_vec() };
        let refuses = is_silent && self.shared.links.get(id).is_some_and(|peer| peer.link.is_refused());
        let (since, heard) = (self.shared.now, (!refuses).then_some(self.shared.now));
        let failed = NotJoined { id, peer: peer.clone(), endpoints: endpoints.clone(), heard, since };
        if self.memory.not_joined(failed, self.shared.now) {
            let leader = peer.clone();
            self.shared.event(Event::Warning(Warning::Unreached { leader, endpoints, elsewhere }));
        }
        // A node that may not lead has no choice but a leader that answers: it tries again as soon as it
        // hears the leader.
        if is_silent || self.seek.may_lead(&self.shared) {
            self.seek.blocklist.add(id, why, self.shared.now);
        }
        tracing::debug!(%id, "not joined");
        if follow.joined {
            self.shared.event(Event::LostLeader(peer));
        }
        self.leave(follow);
    }

    /// The leader leads no more, and sends this node to a better candidate. A node that cannot follow that
    /// one looks for others.
    pub(super) fn on_redirect(&mut self, to: Introduction) {
        let Some(follow) = &self.follow else { return };
        if self.seek.obeys_redirect(&to, follow, &self.shared) && !self.is_twin(&to.candidate) {
            self.follow(&to);
        } else {
            self.on_refusal(Refusal::Redirect(to));
        }
    }

    /// The last call may be over: the nodes that are here form the world.
    pub(super) fn on_last_call(&mut self) {
        if !self.lead.call_goes_on(&mut self.shared) {
            self.end_call();
        }
    }

    /// Forms the world with the nodes that are here, if this node leads and they are enough.
    pub(super) fn end_call(&mut self) {
        if self.leads() {
            self.lead.end_call(&mut self.shared);
            // A world of one has nobody to wait for.
            self.lead.commit_if_ready(&mut self.shared);
        }
    }

    /// This node has proved all that it must in a round: a member goes on, and the leader may commit.
    pub(super) fn all_proved(&mut self) {
        self.with_follow(Follow::proceed);
        self.lead.all_proved(&mut self.shared);
    }

    /// A node whose leader is lost, or whose round takes too long, looks for the others again; a ready node
    /// ends.
    pub(super) fn give_up_or_end(&mut self) {
        let Some(follow) = &mut self.follow else { return };
        if !follow.is_over(&mut self.shared) {
            return;
        }
        if follow.is_bound(&self.shared) {
            let leader = follow.leader.candidate.peer();
            self.end(Event::Failed(Failure::OutcomeUnknown { leader }));
        } else {
            self.give_up_leader();
        }
    }

    pub(super) fn on_commit(&mut self, commit: &Commit) {
        let Some(follow) = &mut self.follow else { return };
        if let Some(formed) = follow.on_commit(commit, &mut self.shared) {
            self.end(Event::Formed(formed));
        }
    }

    /// Frees the seats of expelled members.
    pub(super) fn close_expelled(&mut self) {
        while let Some((id, closes)) = self.lead.expelled.pop() {
            self.note_most(false);
            if closes {
                self.shared.links.forget(self.shared.now, id);
            }
            self.lead.remove(id, &mut self.shared);
        }
    }

    /// Other nodes join, but their connections do not arrive: another node leads for a while, and this one
    /// becomes master only if it was given rank 0.
    pub(super) fn step_down_if_unreached(&mut self) {
        // A node that leads no more has stopped the timer or forgotten the nodes that asked. If they have
        // stopped asking they are gone, and this node may be reachable after all.
        if self.lead.is_deserted(&self.shared) {
            return;
        }
        let endpoint = self.shared.config.node.endpoints.preferred();
        let elsewhere = self.lead.elsewhere(&self.shared);
        self.memory.unconnectable = Some(endpoint);
        self.memory.elsewhere.clone_from(&elsewhere);
        self.shared.event(Event::Warning(Warning::Unconnectable { endpoint, elsewhere }));
        self.shared.event(Event::SteppedDown);
        self.seek.step_down(&self.shared);
        self.shared.unreached = true;
        self.lead.dismiss(&mut self.shared);
        self.lead.clear(&mut self.shared);
        self.seek.start(&mut self.shared);
    }

    /// The world that this node looks for has formed without it. It steps down, and goes on to ask.
    pub(super) fn miss_world(&mut self) {
        self.lead.abandon_round(&mut self.shared);
        self.lead.dismiss(&mut self.shared);
        self.lead.clear(&mut self.shared);
        if !self.seek.stand_aside(self.shared.now) {
            return;
        }
        if self.follow.is_none() && self.seek.announced {
            self.shared.event(Event::SteppedDown);
        }
        if let Some(follow) = self.follow.take() {
            self.leave(follow);
        }
        self.seek.start(&mut self.shared);
    }
}
