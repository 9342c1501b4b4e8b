//! Hands each message of this job to the part that it concerns.

use std::net::SocketAddr;
use std::time::Duration;

use super::Node;
use crate::model::{HostName, Misfit, NodeId, Peer, Unfit, User, WorldSize};
use crate::proto::follow::Follow;
use crate::proto::report::{Event, Failure, Warning};
use crate::proto::seek::Learned;
use crate::proto::session::Linked;
use crate::proto::shared::Recipient;
use crate::wire::world::Contact;
use crate::wire::{Announce, Candidate, Introduction, Message, Running, Solicit, Trouble};

/// How long a node that is to wait elsewhere stays until its members have read why.
const FAREWELL: Duration = Duration::from_secs(1);

impl Node {
    pub(super) fn on_message(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        recipient: Recipient,
        message: Message,
    ) {
        let asks = matches!(message, Message::Announce(_) | Message::Solicit(_));
        if asks && self.follow.is_none() && self.lead.has_committed() {
            return self.say_running(from, source);
        }
        match message {
            Message::Announce(announce) if announce.candidate.id == from => {
                self.on_announce(announce, source, recipient);
            }
            Message::Solicit(solicit) => self.on_solicit(from, source, recipient, &solicit),
            Message::Hint(to) => {
                if recipient == Recipient::All && self.follows(to.candidate.id) {
                    self.seek.relayed = Some(self.shared.now);
                }
                self.memory.hear_of(to.candidate.id, self.shared.now);
                self.on_candidate(&to, Learned::ByAnother);
                self.hear_apart(&to.candidate);
            }
            Message::Running(running) => self.on_running(source, &running),
            _ => tracing::debug!(%from, "a message that is not the sender's to send"),
        }
    }

    /// The world that this node leads has formed, and its members are about to know: another leader may be as
    /// far, and learns it before it commits.
    fn say_running(&mut self, to: NodeId, source: SocketAddr) {
        if self.shared.config.node.attributes.session_port > 0 {
            let Contact { id, addresses } = self.shared.join().contact(self.shared.me());
            let running = self.shared.running(id, 0, &addresses);
            self.shared.send(source, to, &running);
        }
    }

    /// A process of this job says that the job runs already.
    fn on_running(&mut self, source: SocketAddr, running: &Running) {
        let leads_to_an_end = self.lead.is_decided() || self.lead.overdue;
        let is_bound = self.follow.as_ref().is_some_and(Follow::in_round) || leads_to_an_end;
        if is_bound || self.on_running_of_another_user(source, running) {
            return;
        }
        if self.memory.running(source) {
            self.shared.event(Event::Warning(Warning::AlreadyRunning { from: source }));
        }
        let (stands_by, now) = (self.shared.config.stands_by, self.shared.now);
        // Members of a round that is void learn that first.
        let are_told = self.shared.links.iter().all(|(_, Linked { link, .. })| {
            !link.is_there() || link.owes_since().is_none_or(|since| now >= since + FAREWELL)
        });
        if stands_by && self.lead.is_collecting() && are_told {
            self.runs = Some(Contact { id: running.leader, addresses: running.addresses.to_vec() });
        } else if stands_by || self.shared.config.world.is_range() {
            // The newcomers alone are enough for a second world.
            self.miss_world();
        }
    }

    /// Whether it is another user's job that runs. If nobody of this node's own job is here, this node ends,
    /// but not for a single datagram, which may be forged.
    fn on_running_of_another_user(&mut self, source: SocketAddr, running: &Running) -> bool {
        let ours = self.shared.config.node.attributes.user.clone();
        let differs = ours.differs(&running.user);
        let is_sure = self.memory.runs_for_another(differs, self.shared.now);
        if differs {
            let (host, theirs) = (running.host.clone(), running.user.clone());
            let reason = Unfit::User(theirs.clone());
            self.learn_misfit(&Misfit { host: host.clone(), address: source, reason });
            let is_alone =
                self.lead.book.seated <= 1 && !self.follow.as_ref().is_some_and(|follow| follow.joined);
            if is_sure && is_alone {
                let node = Peer { host, address: source };
                let (ours, theirs) = (Box::new(ours), Box::new(theirs));
                self.end(Event::Failed(Failure::UserDiffers { ours, theirs, node, joined: 0 }));
            }
        }
        differs
    }

    fn on_announce(&mut self, announce: Announce, source: SocketAddr, recipient: Recipient) {
        let Announce { candidate, count, user } = announce;
        let heard = Introduction { candidate, source };
        let candidate = &heard.candidate;
        let rank = candidate.explicit.then_some(0);
        self.memory.node(candidate.id, &candidate.host, source, rank);
        self.hear_at(&candidate.host, candidate.id, source, &candidate.endpoints);
        self.memory.candidate = true;
        let fits = self.hear_wish(&candidate.host, source, candidate.world, &user);
        if recipient == Recipient::This {
            self.seek.blocklist.answered(candidate.id);
        }
        if let Some(follow) = self.follow.as_mut().filter(|follow| follow.leader_id() == candidate.id) {
            follow.on_announce(&heard, recipient != Recipient::This, &mut self.shared);
            if follow.joined {
                self.memory.named(&count.newest);
            }
            self.memory.together(candidate.id);
            self.note_most(false);
            return;
        }
        if recipient == Recipient::All && fits {
            self.hear_apart(candidate);
        }
        // If the candidate announced itself to this node alone, this node's leader may never hear of it.
        let learned = if recipient == Recipient::All { Learned::ByItself } else { Learned::Personally };
        // Whom its leader does not seat a member need not introduce, nor is a round void for such a node.
        if fits || !(self.follow.as_ref().is_some_and(|follow| follow.joined) || self.lead.is_proving()) {
            self.on_candidate(&heard, learned);
        }
    }

    /// A node was heard that has these endpoints. If that at which it was heard is another node's as well,
    /// this node's members learn it, too. An address that is translated on the way is no endpoint.
    pub(super) fn hear_at(
        &mut self,
        host: &HostName,
        id: NodeId,
        source: SocketAddr,
        endpoints: &[SocketAddr],
    ) {
        let now = self.shared.now;
        let leads_there = |follow: &&Follow| {
            follow.leader_id() != id && follow.leader.candidate.endpoints.contains(&source)
        };
        let leader = self.follow.as_ref().filter(|follow| follow.joined).filter(leads_there);
        let leader = leader.map(|follow| follow.leader.candidate.host.clone());
        // A leader or a member whose connection lives is there, however little it says.
        let twins = match leader.as_ref().or_else(|| self.lead.book.other_at(source, id)) {
            Some(other) if self.memory.twin(id, now) => Some(Misfit::of_twins(host, other, source)),
            _ if endpoints.contains(&source) => self.memory.twins(id, source, now),
            _ => None,
        };
        if let Some(twins) = twins {
            self.learn_misfit(&twins);
        }
    }

    /// A node expects a world of this size, as this user. Returns whether this one could be beside it.
    pub(super) fn hear_wish(
        &mut self,
        host: &HostName,
        source: SocketAddr,
        world: WorldSize,
        user: &User,
    ) -> bool {
        let Some(reason) = self.shared.unfit(world, user) else {
            self.memory.fits(host);
            return true;
        };
        self.learn_misfit(&Misfit { host: host.clone(), address: source, reason });
        false
    }

    /// This candidate leads on. If it does so for long, the leader does not hear it, or it does not hear the
    /// leader, or no connection opens between the two.
    fn hear_apart(&mut self, candidate: &Candidate) {
        let id = candidate.id;
        let has_joined = self.leads() && self.lead.knows(id);
        let is_here = id == self.shared.me() || self.follows(id) || has_joined;
        let differs = candidate.world != self.shared.config.world;
        if is_here || differs || !self.memory.apart(candidate, self.shared.now) {
            return;
        }
        let leader = match &self.follow {
            Some(follow) if follow.joined => follow.leader.candidate.peer(),
            None if self.leads() => self.shared.peer(),
            _ => return,
        };
        self.learn_misfit(&Misfit::apart(candidate.peer(), leader));
    }

    /// This node has heard that a node cannot be seated: all that have joined it learn it.
    pub(super) fn learn_misfit(&mut self, misfit: &Misfit) {
        // A node that was apart learns it as well.
        let is_own = misfit.is_apart() && self.shared.config.node.endpoints.contains(&misfit.address);
        let is_news = !is_own && self.memory.misfit(misfit);
        if is_news {
            let (node, ours) = (misfit.clone(), self.shared.config.world);
            let elsewhere = Some(node.address).filter(|_| node.is_apart());
            let elsewhere = elsewhere.and_then(|address| self.shared.config.node.elsewhere(&[address]));
            self.memory.elsewhere = elsewhere.clone().or(self.memory.elsewhere.take());
            self.shared.event(Event::Warning(Warning::Misfit { node, ours, elsewhere }));
        }
        if self.leads() {
            self.lead.tell_of(misfit, is_news, &mut self.shared);
        }
    }

    /// The leader, this node or another, knows what keeps the world from forming.
    pub(super) fn hear_trouble(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Misfit(misfit) => self.learn_misfit(misfit),
            Trouble::Broken(path) if self.memory.broken(path) => {
                let failure = Failure::PathsBroken { paths: vec![path.clone()], more: 0 }.into();
                self.shared.event(Event::Warning(Warning::TryAgain { failure }));
            }
            Trouble::Broken(_) => {}
        }
    }

    /// A candidate is known: this node follows it, or introduces it and its own leader to each other.
    fn on_candidate(&mut self, heard: &Introduction, learned: Learned) {
        let candidate = &heard.candidate;
        let has_formed = self.follow.is_none() && self.lead.has_committed();
        let is_over = has_formed || self.seek.stands_aside(self.shared.now);
        if candidate.id == self.shared.me() || is_over || self.is_twin(candidate) {
            return;
        }
        let differs = candidate.world != self.shared.config.world;
        if differs && self.lead.is_proving() {
            return;
        }
        // One that is heard by others alone may never come.
        if !differs && learned != Learned::ByAnother {
            self.lead.hear_candidate(candidate.id, &self.shared);
        }
        let (seek, shared) = (&mut self.seek, &mut self.shared);
        let follows = match &self.follow {
            Some(follow) => seek.changes_leader(heard, learned, follow, shared),
            None if seek.may_lead(shared) => seek.yields_to(heard, learned, &self.lead, shared),
            None => !seek.blocklist.contains(candidate.id, shared.now),
        };
        if follows {
            self.follow(heard);
        }
    }

    fn on_solicit(&mut self, from: NodeId, source: SocketAddr, recipient: Recipient, solicit: &Solicit) {
        let to_all = recipient == Recipient::All;
        self.memory.node(from, &solicit.host, source, solicit.rank);
        self.hear_at(&solicit.host, from, source, &[]);
        let (seek, shared) = (&mut self.seek, &mut self.shared);
        match &self.follow {
            // Its leader evidently has not heard a node that asks all, or that has not heard its leader.
            Some(follow) if follow.joined => {
                if !to_all || seek.rivals.is_unaware(from, Learned::ByItself, shared.now) {
                    shared.send(source, from, &Message::Hint(follow.leader.clone()));
                }
            }
            Some(_) => {}
            None if !seek.may_lead(shared) => match recipient {
                // The sender may have a leader, and this node, its seed, need not know it.
                Recipient::Anyone => shared.send(source, from, &shared.solicit()),
                Recipient::All => seek.put_solicit_off(shared),
                Recipient::This => {}
            },
            None if !seek.announced => {}
            None => {
                if recipient == Recipient::This {
                    self.lead.on_solicit(from, source, shared);
                }
                shared.send(source, from, &self.lead.announce(shared));
                if to_all {
                    seek.call_newcomers(shared);
                }
            }
        }
    }
}
