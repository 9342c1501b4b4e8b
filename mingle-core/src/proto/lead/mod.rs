//! A candidate as a leader: its book of members, the seats, and its rounds.
//!
//! A candidate that follows another one freezes its book: it gives no seats and starts no rounds until it
//! comes back.

mod alike;
mod book;
mod broken;
mod call;
mod challenges;
mod commit;
mod ending;
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

use super::prove::PathProofs;
use super::report::{Event, Failure, Formed, RankRange};
use super::session::{LOST, Presence};
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::model::{Elsewhere, HostName, NodeId, Peer, Rank};
use crate::wire::{
    Announce, Answer, Candidate, Count, Introduction, Message, Part, Refusal, Said, Trouble, Welcome,
};
use book::Book;
use call::Call;
use challenges::{Challenges, SILENCE};
use round::{Fate, Round};
use rounds::Rounds;
use unfit::{LeftOut, Start};

/// Nodes that asked this one to lead, and were all silent for this long, have left.
const LEFT: Duration = Duration::from_secs(1);
/// How long nodes may go on asking while none of them reaches this one over TCP.
const STEP_DOWN: Duration = Duration::from_secs(3);
/// The most nodes that are remembered as asking: their IDs may be made up.
const KNOCKING: usize = 64;

/// A candidate's state as a leader.
#[derive(Debug, Clone)]
pub(crate) struct Lead {
    book: Book,
    call: Call,
    rounds: Rounds,
    challenges: Challenges,
    /// The nodes that have asked this one to lead, and have no session with it: when they did last, and from
    /// where.
    knocking: BTreeMap<NodeId, (Time, SocketAddr)>,
    /// This node follows a better candidate.
    frozen: bool,
    /// The deadline has passed: a round under way goes on to its end, and no other begins.
    overdue: bool,
    /// Members that have lost their seats, and whether their sessions are to be closed: one that is left out
    /// reads why first.
    expelled: Vec<(NodeId, bool)>,
    left_out: LeftOut,
    /// What keeps the world from forming, and whether this node's user is yet to learn it.
    trouble: Option<Trouble>,
    has_news: bool,
    /// All of which the members were told.
    told: Vec<Trouble>,
}

impl Lead {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            book: Book::new(shared),
            call: Call::default(),
            rounds: Rounds::new(),
            challenges: Challenges::default(),
            knocking: BTreeMap::new(),
            frozen: false,
            overdue: false,
            expelled: Vec::new(),
            left_out: LeftOut::default(),
            trouble: None,
            has_news: false,
            told: Vec::new(),
        }
    }

    /// How many have a seat, this node included.
    pub(crate) fn seated(&self) -> u32 {
        self.book.seated()
    }

    /// Whether a node has joined, so that its connections matter.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.book.get(id).is_some()
    }

    /// The most that [`Lead::seated`] has been.
    pub(crate) fn high_water(&self) -> u32 {
        self.book.high_water()
    }

    /// The given ranks that must still come.
    pub(crate) fn missing(&self, shared: &Shared) -> Vec<RankRange> {
        self.book.missing(shared)
    }

    /// The members' names, with each of their addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&HostName, IpAddr)> {
        self.book.members().flat_map(|(_, entry)| entry.node.hosts())
    }

    /// The members with their given ranks, for a message to the user.
    pub(crate) fn present(&self) -> impl Iterator<Item = (Peer, Option<u32>)> {
        self.book.members().map(|(_, entry)| (entry.peer(), entry.node.rank.map(Rank::get)))
    }

    /// Whether no node asks this one to lead, or how it ends is decided.
    pub(crate) fn is_deserted(&self, shared: &Shared) -> bool {
        self.rounds.is_decided() || self.knocking.values().all(|(asked, _)| *asked + LEFT < shared.now)
    }

    /// The host of a member that has this preferred endpoint, if it is another node than this one.
    pub(crate) fn other_at(&self, endpoint: SocketAddr, id: NodeId) -> Option<&HostName> {
        self.book.other_at(endpoint, id)
    }

    /// The address of a node that asks, where that is in none of this host's networks.
    pub(crate) fn elsewhere(&self, shared: &Shared) -> Option<Elsewhere> {
        self.knocking.values().find_map(|(_, source)| shared.config.node.elsewhere(&[*source]))
    }

    /// Whether no round is under way, nor anything after it.
    pub(crate) fn is_collecting(&self) -> bool {
        self.rounds.is_collecting()
    }

    #[cfg(test)]
    pub(crate) fn is_proving(&self) -> bool {
        self.rounds.is_proving()
    }

    /// Whether the world has formed, and this leader stays until its members know it.
    pub(crate) fn has_committed(&self) -> bool {
        self.rounds.has_committed()
    }

    /// Whether all nodes of the round under way are ready.
    pub(crate) fn is_about_to_commit(&self) -> bool {
        self.rounds.is_ready()
    }

    /// The phase of a leader that does not collect members.
    #[cfg(feature = "testing")]
    pub(crate) fn phase(&self) -> Option<super::testing::Phase> {
        self.rounds.phase()
    }

    /// How the leader has ended.
    pub(crate) fn outcome(&self) -> Option<&Result<Formed, Failure>> {
        self.rounds.outcome()
    }

    /// The deadline has passed: no other round begins.
    pub(crate) fn set_overdue(&mut self) {
        self.overdue = true;
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// The next of the members that were expelled. No round begins before the last one is taken.
    pub(crate) fn take_expelled(&mut self) -> Option<(NodeId, bool)> {
        self.expelled.pop()
    }

    pub(crate) fn announce(&self, shared: &Shared) -> Message {
        let (candidate, count) = (self.candidate(shared), self.count(shared));
        Message::Announce(Announce { candidate, count, user: shared.config.node.attributes.user.clone() })
    }

    fn candidate(&self, shared: &Shared) -> Candidate {
        let node = &shared.config.node;
        Candidate {
            id: shared.me(),
            explicit: node.rank.is_some(),
            members: self.book.high_water(),
            world: shared.config.world,
            host: node.host.clone(),
            endpoints: node.endpoints.advertised(),
        }
    }

    fn count(&self, shared: &Shared) -> Count {
        Count {
            joined: self.book.seated(),
            newest: self.book.newest(&shared.config.node.attributes.user).collect(),
            missing: self.missing(shared).iter().map(|run| (run.first, run.last)).collect(),
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
            self.knocking.insert(from, (shared.now, source));
            if self.knocking.len() > KNOCKING {
                self.knocking.pop_first();
            }
            let is_reached = shared.links.iter().any(|(_, peer)| peer.link.is_there());
            if !is_reached && !shared.timers.is_set(Timer::StepDown) {
                shared.set_after(Timer::StepDown, STEP_DOWN);
            }
        }
        let announce = self.announce(shared);
        shared.send(source, from, &announce);
    }

    /// A session with this node is open.
    pub(crate) fn reached(&mut self, from: NodeId, shared: &mut Shared) {
        self.knocking.remove(&from);
        shared.timers.stop(Timer::StepDown);
    }

    /// Expels the challenged members that were silent for too long.
    pub(crate) fn end_challenges(&mut self, shared: &mut Shared) {
        // After the commit nobody gets the seat of a silent member.
        if self.rounds.is_decided() {
            return;
        }
        let silent = self.challenges.take_silent(shared.now);
        self.expelled.extend(silent.into_iter().map(|id| (id, true)));
        if let Some(due) = self.challenges.due() {
            shared.timers.set(Timer::Challenge, due);
        }
    }

    /// Asks the holder of a seat whether it is there.
    fn challenge(&mut self, holder: NodeId, contender: Option<NodeId>, shared: &mut Shared) {
        if !self.knows(holder) {
            return;
        }
        let welcome = self.welcome_with(self.count(shared));
        self.challenges.add(holder, contender, shared.now, || {
            shared.say_again(holder, &welcome);
            shared.timers.set_earlier(Timer::Challenge, shared.now + SILENCE);
            shared.links.get(holder).map_or(0, |peer| peer.link.last_said())
        });
    }

    /// Something has happened on the session with a node that has joined: it is there, and has read what it
    /// was told; or it is lost.
    pub(crate) fn look(&mut self, id: NodeId, shared: &mut Shared) {
        if self.rounds.is_decided() {
            return self.rounds.look(id, &mut self.book, shared);
        }
        let contenders = self.challenges.answered(id, &shared.links);
        if let Some(holder) = self.book.get(id).map(book::Entry::peer).filter(|_| !contenders.is_empty()) {
            for &contender in &contenders {
                shared.refuse(contender, Refusal::RankTaken(holder.clone()));
            }
            self.tell_of_rank(contenders, shared);
        }
        let is_lost = shared.links.get(id).is_none_or(|peer| match peer.link.presence(shared.now) {
            Presence::Dead => true,
            Presence::Silent(since) => peer.link.has_left() || shared.now >= since + LOST,
            Presence::There => false,
        });
        if is_lost {
            self.expelled.push((id, true));
        } else if self.rounds.is_ready() {
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    /// How far a member is.
    pub(crate) fn on_part(&mut self, from: NodeId, part: &Part, shared: &mut Shared) {
        match &part.answer {
            Some(Answer::Ready) => self.rounds.on_ready(from, part.round, &mut self.book, shared),
            Some(Answer::Broken(broken)) => {
                self.rounds.on_broken(from, part.round, broken, &self.book, shared);
            }
            None => {}
        }
    }

    /// Welcomes all nodes that have joined, as far as something has changed.
    pub(crate) fn welcome_all(&self, shared: &mut Shared) {
        if !self.frozen && !self.rounds.is_decided() {
            let welcome = self.welcome_with(self.count(shared)).encode();
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
        if self.knows(id) {
            let welcome = self.welcome_with(self.count(shared));
            shared.say(id, &welcome);
        }
    }

    fn welcome_with(&self, count: Count) -> Said {
        Said::Welcome(Welcome { count, trouble: self.trouble.clone(), void: self.rounds.voided() })
    }

    /// Whether this node has a seat in the book.
    pub(crate) fn has_member(&self, id: NodeId) -> bool {
        self.book.member(id).is_some()
    }

    /// This node leads now, or again: if enough nodes are here, the last call begins.
    pub(crate) fn begin_call(&mut self, shared: &mut Shared) {
        self.call.count(&self.book, None, shared);
    }

    /// A node is heard that leads and has no seat here.
    pub(crate) fn hear_candidate(&mut self, id: NodeId, shared: &Shared) {
        if !self.has_member(id) {
            self.call.hear(id, shared);
        }
    }

    /// Whether the last call goes on, as far as is known by now. Sets the timer for its end.
    pub(crate) fn call_goes_on(&self, shared: &mut Shared) -> bool {
        let goes_on = self.call.due(&self.book, shared).is_some_and(|due| shared.now < due);
        if goes_on {
            self.call.schedule(&self.book, shared);
        }
        goes_on
    }

    /// Whether a member's time is nearly up.
    pub(crate) fn is_left_soon(&self, shared: &Shared) -> bool {
        self.book.leaves().is_some_and(|at| at <= shared.now)
    }

    /// Ends the last call, if enough nodes are here, and starts a round with them where none is under way.
    pub(crate) fn end_call(&mut self, shared: &mut Shared) {
        if shared.config.world.is_range() && self.book.seated() >= shared.config.world.min().get() {
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
        self.frozen = true;
        // A frozen leader gives no seats.
        self.challenges.clear();
        self.call.cancel(shared);
        shared.timers.stop(Timer::StepDown);
        shared.timers.stop(Timer::Challenge);
    }

    /// This node follows nobody any more. [`Lead::resume`] follows when it looks for the others again.
    pub(crate) fn thaw(&mut self) {
        self.frozen = false;
    }

    /// Goes on as a leader.
    pub(crate) fn resume(&mut self, shared: &mut Shared) {
        self.begin_call(shared);
        self.fill_seats(shared);
    }

    /// This node does not lead any more: it forgets all nodes that have joined.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.rounds.reset(shared);
        self.book.clear(shared);
        self.call.cancel(shared);
        self.begin_call(shared);
        self.challenges.clear();
        self.knocking.clear();
    }

    /// This node leaves: its members look for another leader.
    pub(crate) fn dismiss(&self, shared: &mut Shared) {
        self.book.refuse_all(&Refusal::Closing, shared);
    }

    /// Sends the nodes that are still here to the leader that this node itself has joined.
    pub(crate) fn redirect(&self, to: &Introduction, shared: &mut Shared) {
        self.book.refuse_all(&Refusal::Redirect(to.clone()), shared);
    }

    /// This node's time is up, with enough nodes here. If rounds have failed, all learn why. Returns whether
    /// that is so.
    pub(crate) fn give_up(&mut self, shared: &mut Shared) -> bool {
        let are_enough = self.book.seated() >= shared.config.world.min().get();
        !self.frozen && are_enough && self.rounds.give_up(&mut self.book, shared)
    }

    /// Starts a round if all seats are taken, or if the last call is over.
    pub(crate) fn start_round_if_full(&mut self, shared: &mut Shared) {
        let may_start = !self.frozen && !self.overdue && self.is_collecting() && self.expelled.is_empty();
        let seated = self.book.seated();
        let is_due = seated >= shared.most() || self.call.is_over();
        // Members that held up a round have lost their seats, and those that wait may have none yet.
        if !may_start || !is_due || seated < shared.config.world.min().get() {
            return;
        }
        match self.rounds.next_plan(&mut self.book, shared) {
            Ok(plan) => {
                self.welcome_first(Time::MAX, shared);
                self.rounds.start(plan, &mut self.book, shared);
            }
            Err(start) => self.started(start, shared),
        }
    }

    fn started(&mut self, start: Start, shared: &mut Shared) {
        match start {
            Start::Not => {}
            Start::Again => self.fill_seats(shared),
            Start::Without(unfit) => self.leave_out(*unfit, shared),
        }
    }

    /// Goes on with what is under way, or starts a round.
    pub(crate) fn go_on(&mut self, shared: &mut Shared) {
        self.commit_if_ready(shared);
        let fate = self.rounds.go_on(&mut self.book, shared);
        self.follow_up(fate, shared);
    }

    /// A proof has taken too long.
    pub(crate) fn proof_failed(&mut self, shared: &mut Shared) {
        let fate = self.rounds.proof_failed(&self.book, shared);
        self.follow_up(fate, shared);
    }

    fn follow_up(&mut self, fate: Fate, shared: &mut Shared) {
        match fate {
            Fate::GoesOn => {}
            Fate::Collecting => self.fill_seats(shared),
            Fate::Overdue(unready) => {
                self.welcome_first(shared.now, shared);
                self.blame(&unready, shared);
            }
            Fate::Silent(silent) => {
                tracing::debug!(?silent, "silent since the prepare: expelled");
                self.expelled.extend(silent.into_iter().map(|id| (id, true)));
            }
            Fate::Unproved(failed) => {
                if let Some(path) = self.rounds.broken_path() {
                    self.tell_of(Trouble::Broken(path), shared);
                }
                // Where one node alone cannot reach the master, or is at most ends of broken paths, the fault
                // may be its own.
                if failed.len() == 1 {
                    self.put_behind_standbys(&failed, shared);
                }
                self.welcome_first(shared.now, shared);
                // The user learns why before the next attempt begins.
                shared.timers.set(Timer::Round, shared.now);
            }
        }
    }

    /// These members answered, and were not ready when the round was over: standbys take their seats. Where
    /// there are none, the same members get two more rounds.
    fn blame(&mut self, unready: &[NodeId], shared: &mut Shared) {
        let are_replaced = self.put_behind_standbys(unready, shared);
        let start = if are_replaced {
            Start::Again
        } else {
            self.rounds.end_unready(unready, &mut self.book, shared)
        };
        self.started(start, shared);
    }

    /// This process was stopped in a round. Members may have given up meanwhile, although what they sent
    /// before says that they are ready: starts another round when all that waits has been read.
    pub(crate) fn void_after_stop(&mut self, stopped: Duration, shared: &mut Shared) {
        self.challenges.forgive(stopped);
        if self.rounds.void_after_stop(shared) {
            self.welcome_first(shared.now, shared);
            shared.timers.set(Timer::Round, shared.now);
        }
    }

    pub(crate) fn commit_if_ready(&mut self, shared: &mut Shared) {
        self.rounds.commit_if_ready(&mut self.book, shared);
    }

    /// The leader's own proofs in the round under way.
    pub(crate) fn proofs(&mut self) -> Option<&mut PathProofs> {
        self.rounds.round().map(Round::proofs)
    }

    /// The leader has proved all that it must in the round under way.
    pub(crate) fn all_proved(&mut self, shared: &mut Shared) {
        self.rounds.all_proved(shared);
    }
}
