//! A candidate as a leader: its book of members, the seats, and its rounds.
//!
//! A candidate that follows another one freezes its book: it gives no seats and starts no rounds until it
//! comes back.

mod book;
mod broken;
mod call;
mod commit;
mod networks;
mod plan;
mod ranks;
mod round;
mod rounds;
mod seats;
#[cfg(test)]
mod tests;
mod unfit;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::report::{Event, Heard};
use super::session::LOST;
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::{Elsewhere, HostName, NodeId, Peer, Rank};
use crate::wire::{Announce, Candidate, Count, Message, Refusal, Said, Trouble, Welcome};
use book::Book;
pub(crate) use broken::{BrokenPaths, at_fault};
use call::Call;
pub(crate) use plan::{RoundPlan, plan_round};
pub(crate) use ranks::Applicant;
pub(crate) use round::MORE_FAILURES;
use rounds::Rounds;
use unfit::LeftOut;
pub(crate) use unfit::Planned;

/// Nodes that asked this one to lead, and were all silent for this long, have left.
const LEFT: Duration = Duration::from_secs(1);
/// How long nodes may go on asking while none of them reaches this one over TCP.
const STEP_DOWN: Duration = Duration::from_secs(3);

/// A candidate's state as a leader.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lead {
    pub(crate) book: Book,
    call: Call,
    rounds: Rounds,
    /// The members whose seat another node wants, which have not yet answered that they are there; and when
    /// they were asked.
    challenged: BTreeMap<NodeId, Time>,
    /// When a node without a session has asked this one to lead, and from where: the last that did.
    knocked: Option<(Time, SocketAddr)>,
    /// This node follows a better candidate.
    frozen: bool,
    /// The deadline has passed: a round under way goes on to its end, and no other begins.
    pub(crate) overdue: bool,
    /// Members that have lost their seats, and whether their sessions are to be closed: one that is left out
    /// reads why first. No round begins before the node has removed all of them.
    pub(crate) expelled: Vec<(NodeId, bool)>,
    left_out: LeftOut,
    /// What keeps the world from forming.
    pub(crate) trouble: Option<Trouble>,
    /// What keeps the world from forming, as this leader has learnt itself and the node is yet to.
    pub(crate) news: Vec<Trouble>,
}

impl Lead {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self { book: Book::new(shared), ..Self::default() }
    }

    /// Whether a node has joined, so that its connections matter.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.book.get(id).is_some()
    }

    /// The members' names, with each of their addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&HostName, IpAddr)> {
        self.book.members().flat_map(|(_, entry)| entry.node.hosts())
    }

    /// The members with their given ranks, for a message to the user.
    pub(crate) fn present(&self) -> impl Iterator<Item = Heard> {
        self.book.members().map(|(_, entry)| {
            let (Peer { host, address }, rank) = (entry.peer(), entry.node.rank.map(Rank::get));
            Heard { host, address: Some(address), rank }
        })
    }

    /// Whether no node asks this one to lead, or how it ends is decided.
    pub(crate) fn is_deserted(&self, shared: &Shared) -> bool {
        self.is_decided() || self.knocked.is_none_or(|(asked, _)| asked + LEFT < shared.now)
    }

    /// The address of a node that asks, where that is in none of this host's networks.
    pub(crate) fn elsewhere(&self, shared: &Shared) -> Option<Elsewhere> {
        self.knocked.and_then(|(_, source)| shared.config.node.elsewhere(&[source]))
    }

    pub(crate) fn announce(&self, shared: &Shared) -> Message {
        let (candidate, count) = (self.candidate(shared), self.count(shared));
        Message::Announce(Announce { candidate, count, user: shared.config.node.attributes.user.clone() })
    }

    /// This node as it announces itself.
    pub(crate) fn candidate(&self, shared: &Shared) -> Candidate {
        let node = &shared.config.node;
        Candidate {
            id: shared.me(),
            explicit: node.rank.is_some(),
            members: self.book.high_water,
            world: shared.config.world,
            host: node.host.clone(),
            endpoints: node.endpoints.clone(),
        }
    }

    fn count(&self, shared: &Shared) -> Count {
        Count {
            joined: self.book.seated,
            newest: self.book.newest().collect(),
            missing: self.book.missing(shared).iter().map(|run| (run.first, run.last)).collect(),
        }
    }

    /// Members have come or gone: reports it to the caller, and to all soon.
    fn report_change(&mut self, shared: &mut Shared) {
        // Its members follow this node to a better leader, whose count it tells.
        if self.frozen {
            return;
        }
        let progress = self.count(shared).progress(&self.candidate(shared));
        shared.event(Event::Progress(progress));
        let soon = shared.now + shared.scale().announce_delay();
        shared.timers.set_earlier(Timer::Call, soon);
        shared.timers.set_earlier(Timer::Welcome, soon);
    }

    /// A node asks this one to lead it. It dials as well.
    pub(crate) fn on_solicit(&mut self, from: NodeId, source: SocketAddr, shared: &mut Shared) {
        if !shared.links.is_there(from) && !self.frozen {
            self.knocked = Some((shared.now, source));
            let is_reached = shared.links.iter().any(|(_, peer)| peer.link.is_there());
            if !is_reached && shared.timers.get(Timer::StepDown).is_none() {
                shared.set_after(Timer::StepDown, STEP_DOWN);
            }
        }
    }

    /// A session with this node is open.
    pub(crate) fn reached(&mut self, from: NodeId, shared: &mut Shared) {
        self.knocked = None;
        shared.timers.stop(Timer::StepDown);
        let waits = self.book.get(from).is_some_and(|entry| !entry.seated);
        if waits && self.is_collecting() && !self.frozen {
            // A seat may have become free while it was away.
            self.fill_seats(shared);
        }
    }

    /// Expels the challenged members that have not answered for too long.
    pub(crate) fn end_challenges(&mut self, shared: &mut Shared) {
        // After the commit nobody gets the seat of a silent member.
        if self.is_decided() {
            return;
        }
        for (id, asked) in std::mem::take(&mut self.challenged) {
            let lost =
                shared.links.get(id).map_or(Some(shared.now), |peer| peer.link.lost_at(shared.now, LOST));
            match lost.map(|at| at.max(asked + LOST)) {
                Some(at) if at <= shared.now => self.expelled.push((id, true)),
                Some(at) => {
                    self.challenged.insert(id, asked);
                    shared.timers.set_earlier(Timer::Challenge, at);
                }
                // It answers.
                None => {}
            }
        }
    }

    /// Asks the holder of a seat whether it is there.
    fn challenge(&mut self, holder: NodeId, shared: &mut Shared) {
        if self.knows(holder) && !self.challenged.contains_key(&holder) {
            self.challenged.insert(holder, shared.now);
            let welcome = self.welcome_now(shared);
            shared.say_again(holder, &welcome);
            shared.timers.set_earlier(Timer::Challenge, shared.now + LOST);
        }
    }

    /// A challenged member has read the question: the nodes that were given its rank get no seat.
    fn end_challenge_of(&mut self, holder: NodeId, shared: &mut Shared) {
        let Some(entry) = self.book.get(holder) else { return };
        let (peer, Some(rank)) = (entry.peer(), entry.node.rank) else { return };
        let wants = |id: &NodeId| self.book.get(*id).is_some_and(|other| other.node.rank == Some(rank));
        let refused: Vec<NodeId> = self.book.standbys().iter().copied().filter(wants).collect();
        self.refuse_rank(refused, &peer, shared);
    }

    /// Something has happened on the session with a node that has joined: it is there, and has read what it
    /// was told; or it is lost.
    pub(crate) fn look(&mut self, id: NodeId, shared: &mut Shared) {
        if self.is_decided() {
            return self.look_at_end(id, shared);
        }
        let link = shared.links.get(id).map(|peer| &peer.link);
        let is_lost = link.is_none_or(|link| link.is_gone(shared.now));
        if link.is_some_and(|link| link.is_there() && link.session.is_read())
            && self.challenged.remove(&id).is_some()
        {
            self.end_challenge_of(id, shared);
        }
        if is_lost {
            self.expelled.push((id, true));
        } else {
            self.all_proved(shared);
        }
    }

    /// Welcomes all nodes that have joined, as far as something has changed.
    pub(crate) fn welcome_all(&self, shared: &mut Shared) {
        if !self.frozen && !self.is_decided() {
            let welcome = self.welcome_now(shared).encode();
            for (id, _) in self.book.entries() {
                shared.links.say(shared.now, id, &welcome);
            }
        }
    }

    /// Members learn what is due by then before anything else that follows: that a round is void, since those
    /// that are ready heed no refusal; or that all are here, before the round.
    pub(super) fn welcome_first(&self, by: Time, shared: &mut Shared) {
        if shared.timers.get(Timer::Welcome).is_some_and(|at| at <= by) {
            shared.timers.stop(Timer::Welcome);
            self.welcome_all(shared);
        }
    }

    fn welcome(&self, id: NodeId, shared: &mut Shared) {
        let welcome = self.welcome_now(shared);
        shared.say(id, &welcome);
    }

    /// What this node tells all that have joined, as things stand.
    fn welcome_now(&self, shared: &Shared) -> Said {
        let count = self.count(shared);
        Said::Welcome(Welcome { count, trouble: self.trouble.clone(), void: self.rounds.voided })
    }

    /// This node leads now, or again: if enough nodes are here, the last call begins.
    pub(crate) fn begin_call(&mut self, shared: &mut Shared) {
        self.call.count(&self.book, None, shared);
    }

    /// A node is heard that leads and has no seat here.
    pub(crate) fn hear_candidate(&mut self, id: NodeId, shared: &Shared) {
        if self.book.member(id).is_none() {
            self.call.hear(id, shared);
        }
    }

    /// Whether the last call goes on, as far as is known by now. Sets the timer for its end.
    pub(crate) fn call_goes_on(&self, shared: &mut Shared) -> bool {
        let goes_on = self.call.due(shared).is_some_and(|due| shared.now < due);
        if goes_on {
            self.call.schedule(shared);
        }
        goes_on
    }

    /// Ends the last call, if enough nodes are here, and starts a round with them where none is under way.
    pub(crate) fn end_call(&mut self, shared: &mut Shared) {
        if shared.config.may_be_small() && self.book.seated >= shared.config.least() {
            self.call.end(shared);
            self.fill_seats(shared);
        }
    }

    /// Gives free seats to standbys, and starts a round where none is left free or the last call is over.
    pub(crate) fn fill_seats(&mut self, shared: &mut Shared) {
        self.seat_standbys(shared);
        self.start_round_if_full(shared);
    }

    /// This node follows a better candidate.
    pub(crate) fn freeze(&mut self, shared: &mut Shared) {
        if self.abandon_round(shared) {
            self.rounds.proving_since = None;
        }
        self.frozen = true;
        // A frozen leader gives no seats.
        self.challenged.clear();
        self.call.cancel(shared);
        shared.timers.stop(Timer::StepDown);
        shared.timers.stop(Timer::Challenge);
    }

    /// Goes on as a leader: this node follows nobody any more. Members may have left meanwhile.
    pub(crate) fn resume(&mut self, shared: &mut Shared) {
        self.frozen = false;
        self.call.cancel(shared);
        self.begin_call(shared);
        self.fill_seats(shared);
    }

    /// This node does not lead any more: it forgets all nodes that have joined.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.rounds.reset(shared);
        self.book.clear(shared);
        self.call.cancel(shared);
        self.challenged.clear();
        self.knocked = None;
        self.trouble = None;
    }

    /// This node leaves: its members look for another leader.
    pub(crate) fn dismiss(&self, shared: &mut Shared) {
        self.book.refuse_all(&Refusal::Closing, shared);
    }
}
