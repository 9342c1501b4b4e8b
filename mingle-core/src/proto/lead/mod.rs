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

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::backoff::Backoff;
use super::prove::{Arrivals, PathProofs};
use super::report::{Event, Failure, Formed, RankRange};
use super::scale::UNANSWERED_COPIES;
use super::shared::Shared;
use super::timer::Timer;
use super::waves::SendWindow;
use crate::model::{Elsewhere, HostName, NodeId, Peer, Rank};
use crate::wire::{Announce, Broken, Candidate, Introduction, Message, Refusal, Trouble};
use book::Book;
use call::Call;
use challenges::Challenges;
use round::{Fate, Round};
use rounds::Rounds;
use unfit::{LeftOut, Start};

/// Joining nodes that were all silent for this long have left.
const LEFT: Duration = Duration::from_secs(1);
/// The longest interval between pings, and between redirects.
const REPEAT: Duration = Duration::from_millis(250);

/// A candidate's state as a leader.
#[derive(Debug, Clone)]
pub(crate) struct Lead {
    book: Book,
    call: Call,
    rounds: Rounds,
    challenges: Challenges,
    /// The nodes to be welcomed, in a large world: each welcome is answered by a dial, and the kernel's queue
    /// of new connections is short.
    welcomes: VecDeque<NodeId>,
    /// How many welcomes may be sent now.
    welcome_window: SendWindow,
    redirects: Backoff,
    /// How many redirects were sent to each member.
    redirected: usize,
    /// This node follows a better candidate.
    frozen: bool,
    /// The deadline has passed: a round under way goes on to its end, and no other begins.
    overdue: bool,
    /// Members whose connections are to be closed.
    expelled: Vec<NodeId>,
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
            welcomes: VecDeque::new(),
            welcome_window: SendWindow::default(),
            redirects: Backoff::up_to(REPEAT),
            redirected: 0,
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

    /// Whether no node has joined.
    pub(crate) fn is_empty(&self) -> bool {
        self.book.is_empty()
    }

    /// Whether all nodes that have joined are silent by now.
    pub(crate) fn is_deserted(&self, shared: &Shared) -> bool {
        self.book.entries().all(|(_, entry)| entry.heard + LEFT < shared.now)
    }

    /// The host of a member that has this preferred endpoint, if it is another node than this one.
    pub(crate) fn other_at(&self, endpoint: SocketAddr, id: NodeId) -> Option<&HostName> {
        self.book.other_at(endpoint, id)
    }

    /// The address of a node that has joined, where that is in none of this host's networks.
    pub(crate) fn elsewhere(&self, shared: &Shared) -> Option<Elsewhere> {
        let mut entries = self.book.entries();
        entries.find_map(|(_, entry)| shared.config.node.elsewhere(&entry.node.endpoints))
    }

    /// Whether no round is under way, nor anything after it.
    pub(crate) fn is_collecting(&self) -> bool {
        self.rounds.is_collecting()
    }

    #[cfg(test)]
    pub(crate) fn is_proving(&self) -> bool {
        self.rounds.is_proving()
    }

    /// Whether all nodes of the round under way are ready.
    #[cfg(any(feature = "net", test))]
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
    pub(crate) fn take_expelled(&mut self) -> Option<NodeId> {
        self.expelled.pop()
    }

    pub(crate) fn announce(&self, shared: &Shared) -> Message {
        Message::Announce(self.announcement(shared))
    }

    fn announcement(&self, shared: &Shared) -> Announce {
        let node = &shared.config.node;
        let user = &node.attributes.user;
        let candidate = Candidate {
            id: shared.me(),
            explicit: node.rank.is_some(),
            members: self.book.high_water(),
            world: shared.config.world,
            host: node.host.clone(),
            endpoints: node.endpoints.advertised(),
        };
        Announce {
            candidate,
            joined: self.book.seated(),
            newest: self.book.newest(user).collect(),
            missing: self.missing(shared).iter().map(|run| (run.first, run.last)).collect(),
            user: user.clone(),
        }
    }

    /// Sends the announce by unicast to the members that hear no multicast.
    pub(crate) fn announce_to_deaf(&self, shared: &mut Shared) {
        let announce = self.announce(shared);
        let now = shared.now;
        for (id, entry) in self.book.entries().filter(|(_, entry)| entry.is_deaf(now)) {
            shared.send(entry.source, id, &announce);
        }
    }

    /// Members have come or gone: reports it to the caller, and announces it soon.
    fn report_change(&mut self, shared: &mut Shared) {
        shared.event(Event::Progress(self.announcement(shared).progress()));
        shared.timers.set_earlier(Timer::Call, shared.now + shared.scale().announce_delay());
    }

    /// A unicast solicit. From a member it shows that the member hears no multicast.
    pub(crate) fn on_solicit(&mut self, from: NodeId, source: SocketAddr, shared: &mut Shared) {
        // Only where the proof has arrived: a forged address would get every announce.
        if let Some(entry) = self.book.member_mut(from) {
            entry.asked = Some(shared.now);
        }
        let announce = self.announce(shared);
        shared.send(source, from, &announce);
    }

    /// A datagram of any kind has arrived.
    pub(crate) fn hear(&mut self, from: NodeId, source: SocketAddr, shared: &Shared) {
        if let Some(entry) = self.book.get_mut(from) {
            entry.heard = shared.now;
            entry.source = source;
        }
    }

    /// Pings the challenged members, and expels those that were silent for too long.
    pub(crate) fn ping_challenged(&mut self, shared: &mut Shared) {
        // After the commit nobody gets the seat of a silent member, which has ten seconds to confirm.
        if self.is_collecting() || self.rounds.round().is_some() {
            let silent = self.challenges.ping(&self.book, shared);
            self.expelled.extend(silent);
        }
    }

    pub(crate) fn on_pong(&mut self, from: NodeId, shared: &mut Shared) {
        let refused = self.challenges.on_pong(from, &self.book, shared);
        self.tell_of_rank(&refused, shared);
    }

    /// Whether this node has a seat in the book.
    pub(crate) fn has_member(&self, id: NodeId) -> bool {
        self.book.member(id).is_some()
    }

    /// This node leads now, or again: if enough nodes are here, the last call begins.
    pub(crate) fn begin_call(&mut self, shared: &mut Shared) {
        self.call.count(self.book.seated(), None, shared);
    }

    /// A node is heard that leads and has no seat here.
    pub(crate) fn hear_candidate(&mut self, id: NodeId, shared: &Shared) {
        if !self.has_member(id) {
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
    pub(crate) fn end_call(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        if shared.config.world.is_range() && self.book.seated() >= shared.config.world.min().get() {
            self.call.end(shared);
            self.fill_seats(arrivals, shared);
        }
    }

    /// Gives free seats to standbys, and starts a round where none is left free or the last call is over.
    pub(crate) fn fill_seats(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        self.seat_standbys(arrivals, shared);
        self.start_round_if_full(arrivals, shared);
    }

    /// This node follows a better candidate.
    pub(crate) fn freeze(&mut self, shared: &mut Shared) {
        self.frozen = true;
        self.redirects.reset();
        self.redirected = 0;
        // A frozen leader pings no member, so a member's silence is no evidence.
        self.challenges.clear();
        self.call.cancel(shared);
        shared.timers.stop(Timer::StepDown);
        shared.timers.stop(Timer::PingChallenged);
    }

    /// This node follows nobody any more. [`Lead::resume`] follows when it looks for the others again.
    pub(crate) fn thaw(&mut self, shared: &mut Shared) {
        self.frozen = false;
        shared.timers.stop(Timer::Wave);
    }

    /// Goes on as a leader.
    pub(crate) fn resume(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        self.begin_call(shared);
        self.fill_seats(arrivals, shared);
    }

    /// This node has joined a leader. It forgets the nodes that have joined it without a proof: they have no
    /// connection whose end would show that they have left.
    pub(crate) fn forget_unproved(&mut self, arrivals: &Arrivals) {
        self.book.retain_proved(arrivals);
    }

    /// This node does not lead any more: it forgets all nodes that have joined.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.rounds.reset(&self.book, shared);
        self.book.clear(shared);
        self.call.cancel(shared);
        self.begin_call(shared);
        self.challenges.clear();
        self.welcomes.clear();
    }

    /// This node leaves: its members look for another leader. Sent several times, since nobody answers.
    pub(crate) fn dismiss(&self, shared: &mut Shared) {
        for attempt in 0..UNANSWERED_COPIES {
            for (id, entry) in self.book.entries() {
                entry.reach(id, attempt, &Message::Refuse(Refusal::Closing), shared);
            }
        }
    }

    /// Sends the nodes that are still here to the leader that this node itself has joined.
    pub(crate) fn redirect(&mut self, to: Introduction, shared: &mut Shared) {
        if self.book.is_empty() {
            return;
        }
        let redirect = Message::Hint(to);
        for (id, entry) in self.book.entries() {
            entry.reach(id, self.redirected, &redirect, shared);
        }
        self.redirected += 1;
        shared.set_repeat(Timer::Wave, &mut self.redirects);
    }

    /// This node's time is up, with enough nodes here. If rounds have failed, all learn why. Returns whether
    /// that is so.
    pub(crate) fn give_up(&mut self, shared: &mut Shared) -> bool {
        let are_enough = self.book.seated() >= shared.config.world.min().get();
        !self.frozen && are_enough && self.rounds.give_up(&mut self.book, shared)
    }

    /// Starts a round if all seats are taken, or if the last call is over.
    pub(crate) fn start_round_if_full(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        let may_start = !self.frozen && !self.overdue && self.is_collecting() && self.expelled.is_empty();
        let seated = self.book.seated();
        let is_due = seated >= shared.most() || self.call.is_over();
        // Members that held up a round have lost their seats, and those that wait may have none yet.
        if !may_start || !is_due || seated < shared.config.world.min().get() {
            return;
        }
        let start = self.rounds.start(&mut self.book, arrivals, shared);
        self.started(start, arrivals, shared);
    }

    fn started(&mut self, start: Start, arrivals: &Arrivals, shared: &mut Shared) {
        match start {
            Start::Begun => self.repeat(arrivals, shared),
            Start::Again => self.fill_seats(arrivals, shared),
            Start::Not => {}
            Start::Without(unfit) => self.leave_out(*unfit, shared),
        }
    }

    /// Repeats what the members have not answered in a round, or starts one.
    pub(crate) fn repeat(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        self.commit_if_ready(shared);
        let fate = self.rounds.repeat(&self.book, arrivals, shared);
        self.go_on(fate, arrivals, shared);
    }

    /// A proof has taken too long.
    pub(crate) fn proof_failed(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        let fate = self.rounds.proof_failed(&self.book, shared);
        self.go_on(fate, arrivals, shared);
    }

    fn go_on(&mut self, fate: Fate, arrivals: &Arrivals, shared: &mut Shared) {
        match fate {
            Fate::GoesOn => {}
            Fate::Collecting => self.fill_seats(arrivals, shared),
            Fate::Overdue(unready) => self.blame(&unready, arrivals, shared),
            Fate::Silent(silent) => {
                tracing::debug!(?silent, "silent since the prepare: expelled");
                self.expelled.extend(silent);
            }
            Fate::Unproved(failed) => {
                if let Some(path) = self.rounds.broken_path() {
                    self.tell_of(Trouble::Broken(path), shared);
                }
                // Where one node alone cannot reach the master, or is at most ends of broken paths, the fault
                // may be its own.
                if failed.len() == 1 {
                    self.put_behind_standbys(&failed, arrivals);
                }
                self.fill_seats(arrivals, shared);
            }
        }
    }

    /// These members answered, and were not ready when the round was over: standbys take their seats. Where
    /// there are none, the same members get two more rounds.
    fn blame(&mut self, unready: &[NodeId], arrivals: &Arrivals, shared: &mut Shared) {
        let are_replaced = self.put_behind_standbys(unready, arrivals);
        let start = if are_replaced {
            Start::Again
        } else {
            self.rounds.end_unready(unready, &mut self.book, shared)
        };
        self.started(start, arrivals, shared);
    }

    /// This process was stopped in a round. Members may have given up meanwhile, although what they sent
    /// before says that they are ready: starts another round when all that waits has been read.
    pub(crate) fn void_after_stop(&mut self, shared: &mut Shared) {
        if self.rounds.void_after_stop(&self.book, shared) {
            shared.timers.set(Timer::Wave, shared.now);
        }
    }

    pub(crate) fn commit_if_ready(&mut self, shared: &mut Shared) {
        self.rounds.commit_if_ready(&mut self.book, shared);
    }

    pub(crate) fn on_ready(&mut self, from: NodeId, source: SocketAddr, round: u64, shared: &mut Shared) {
        self.rounds.on_ready(from, source, round, &mut self.book, shared);
    }

    pub(crate) fn on_broken(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        broken: &Broken,
        shared: &mut Shared,
    ) {
        self.rounds.on_broken(from, source, broken, &self.book, shared);
    }

    pub(crate) fn on_done(&mut self, from: NodeId, round: u64, shared: &mut Shared) {
        self.rounds.on_done(from, round, &mut self.book, shared);
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
