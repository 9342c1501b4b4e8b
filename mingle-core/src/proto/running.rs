//! A running world: what its nodes say to each other while their commands run, so that all of them start
//! again where one fails.
//!
//! There are no connections any more, since the ports are the job's; words alone, and none while nothing happens.
//!
//! ```text
//! a command fails           its node tells all the others (Over), which stop theirs
//! somebody new asks         a member asks all others whether they live: one that does not answer in 8 s is
//!                           gone, and the rest is as above
//! a command ends well       its node asks rank 0 to be let go (Finished), which lets all go once all have asked (Released)
//! ```
//!
//! Over carries the lineage of the formation that follows. So does every word of a node that has gone on to
//! that, and each of them ends the world for whoever has missed the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::Output;
use super::backoff::Backoff;
use super::node::Node;
use super::report::{Formed, Over};
use super::shared::Shared;
use super::timer::{Time, Timer, Timers};
use super::waves::Waves;
use crate::model::{End, Lineage, Member, NodeId, Peer, Rank, Roster};
use crate::wire::{self, Header, MISSING, Message};

/// How long a node tells the others that the world is over. Those that have not answered then learn it from the
/// next formation.
const TELL: Duration = Duration::from_secs(1);
/// The same where no formation follows.
const TELL_LAST: Duration = Duration::from_secs(15);
/// A member that gives no sign of life for so long, asked a hundred times, is gone.
const GONE: Duration = Duration::from_secs(8);
/// After a look at the members, newcomers cause no other one for so long.
const LOOKED: Duration = Duration::from_secs(15);
/// How long a rank waits for a lower one to look at the members, for each rank; and at most.
const TURN: Duration = Duration::from_millis(200);
const LAST_TURN: u32 = 20;
/// How long rank 0 tells the others that all have finished. Who is stopped or cut off for longer takes it for gone.
const RELEASE: Duration = Duration::from_secs(30);
/// A node that waits to be let go asks rank 0 at least so often before it takes it for gone, and for at least as long
/// as rank 0 would answer.
const PATIENCE: u32 = 40;
const SILENCE: Duration = RELEASE;
/// How often rank 0, when it waits for the others, asks whether they live.
const CARE: Duration = Duration::from_secs(5);
/// A timer that fires so late has been slept through.
const LATE: Duration = Duration::from_millis(100);
/// How often a node says that it knows that all have finished.
const LAST_WORDS: usize = 6;

/// What changes for a running world.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The world is over, by no doing of this node: its command must stop. Others may still have to be told, so
    /// it goes on until [`Change::Told`].
    Over(Over),
    /// All who can be told that the world is over have been, or have had their time.
    Told,
    /// Every node's command has ended well.
    Finished,
}

/// One node of a formed world whose commands run. Made by [`Node::into_running`], and used like a [`Node`].
#[derive(Debug, Clone)]
pub struct RunningWorld {
    shared: Shared,
    members: Vec<Member>,
    by_id: BTreeMap<NodeId, Rank>,
    by_address: BTreeMap<SocketAddr, NodeId>,
    rank: Rank,
    phase: Phase,
    /// Members whose commands have ended well, as rank 0 knows it.
    finished: BTreeSet<NodeId>,
    look: Option<Look>,
    /// When this node, or another that it has heard, looked at the members last.
    looked: Option<Time>,
    /// No formation follows this one.
    is_last: bool,
    changes: VecDeque<Change>,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The command runs.
    Running,
    /// This node's command has ended well; at rank 0, some others' have not.
    Waiting { repeats: Backoff, heard: Time },
    /// Rank 0 lets the others go: those that have not said that they know.
    Releasing { until: Time, unaware: BTreeSet<NodeId>, waves: Waves },
    /// This node tells those that have not answered.
    Telling { over: Over, until: Time, unaware: BTreeSet<NodeId>, waves: Waves },
    /// Nothing is left to say first.
    Ended,
}

/// A look at who is there.
#[derive(Debug, Clone)]
struct Look {
    silent: BTreeSet<NodeId>,
    /// Whom it ends the world for, if anybody is silent by then.
    until: Time,
    waves: Waves,
}

impl Node {
    /// Goes on as a member of the world that has formed; nothing where there is none, or where the roster was not
    /// asked for.
    ///
    /// The node's own end must have been told; the counters of a job with a secret go on in the new value.
    pub fn into_running(self, formed: &Formed) -> Option<RunningWorld> {
        let mut members = formed.roster.as_ref().map(Roster::members)?.to_vec();
        if formed.rank.get() != 0 {
            // The one address of another node that this one is known to reach.
            members[0].address = formed.master;
        }
        let mut shared = self.shared;
        shared.config.lineage = shared.config.lineage.formed(formed.digest);
        shared.timers = Timers::default();
        Some(RunningWorld {
            shared,
            by_id: members.iter().map(|member| (member.id, member.rank)).collect(),
            by_address: members.iter().map(|member| (member.address, member.id)).collect(),
            members,
            rank: formed.rank,
            phase: Phase::Running,
            finished: BTreeSet::new(),
            look: None,
            looked: None,
            is_last: false,
            changes: VecDeque::new(),
        })
    }
}

impl RunningWorld {
    /// Which formation of the job this world is, or, once it is over, which comes next.
    pub fn lineage(&self) -> Lineage {
        self.shared.config.lineage
    }

    /// Where the other members were, to look for them there.
    pub fn others(&self) -> Vec<SocketAddr> {
        self.peers().map(|member| member.address).collect()
    }

    #[cfg(test)]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// What to do next, in order: [`Output::Send`] and [`Output::Multicast`] alone.
    #[must_use = "what is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }

    /// What has changed, in order.
    #[must_use = "a change is told once"]
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When to call [`RunningWorld::handle_timeout`]. Changes with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.shared.timers.next()
    }

    /// No formation will follow this one: who has to know that it is over is told for longer, since nothing tells it
    /// later.
    pub fn set_last(&mut self) {
        self.is_last = true;
    }

    /// This node's command has ended, and not well: all others are told.
    pub fn handle_failure(&mut self, now: Time, end: End) {
        self.at(now);
        if !self.is_over() {
            let over = self.over(self.rank, end);
            self.tell(over);
        }
    }

    /// This node's command has ended well. It stays until all others' have, too: until then it may have to start
    /// again.
    pub fn handle_success(&mut self, now: Time) {
        self.at(now);
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let interval = self.patience() / PATIENCE;
        let repeats = Backoff::new(Duration::from_millis(20), interval);
        self.phase = Phase::Waiting { repeats, heard: self.shared.now };
        self.finished.insert(self.shared.me());
        if self.rank.get() == 0 {
            self.shared.set_after(Timer::Ask, CARE);
            self.release_if_finished();
        } else {
            self.ask_to_go();
        }
    }

    /// A datagram has arrived on the node's own port or for its group.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        self.at(now);
        let Ok((header, message)) = self.shared.codec.decode(bytes) else { return };
        let to_all = header.recipient == NodeId::ALL;
        let meant = to_all || header.recipient == NodeId::ANYONE || header.recipient == self.shared.me();
        if !meant || header.sender == self.shared.me() {
            return;
        }
        tracing::trace!(%from, sender = %header.sender, ?message, "heard");
        let own = self.shared.config.lineage;
        let is_behind = header.lineage < own;
        let is_new =
            matches!(message, Message::Solicit(_) | Message::Announce(_)) && !self.is_member(header.sender);
        // Who goes on where all have finished was cut off from that: nothing starts again for its sake.
        let is_through = self.is_over() || matches!(self.phase, Phase::Releasing { .. });
        if header.lineage == own || header.lineage.succeeds(own) && !is_through {
            self.on_message(from, header, to_all, message);
        } else if is_behind && self.is_over() {
            // It looks for the others, or has heard of the next formation and asks whether that is so: the lineage
            // tells it where this node goes.
            if is_new || header.recipient == self.shared.me() {
                self.shared.send(from, header.sender, &Message::Pong);
            }
        } else if is_behind && is_new {
            self.on_newcomer(from, header.sender, to_all);
        }
    }

    /// Time has passed. Early and repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.at(now);
        if let Some(late) = self.shared.timers.next().and_then(|at| self.shared.now.checked_sub(at))
            && late > LATE
        {
            self.forgive(late);
        }
        while let Some(timer) = self.shared.timers.expire(self.shared.now) {
            match timer {
                Timer::Round => self.repeat(),
                Timer::Ask if self.rank.get() == 0 => self.care(),
                Timer::Ask => self.ask_to_go(),
                Timer::Challenge => self.look_for_newcomer(),
                _ => {}
            }
        }
    }

    /// This process did not run for so long: it was silent itself, and blames nobody.
    fn forgive(&mut self, late: Duration) {
        if let Some(look) = &mut self.look {
            look.until += late;
        }
        if let Phase::Waiting { heard, .. } = &mut self.phase {
            *heard += late;
        }
    }

    fn at(&mut self, now: Time) {
        self.shared.now = self.shared.now.max(now);
    }

    /// How long rank 0 may be silent: in a large world it is asked less often.
    fn patience(&self) -> Duration {
        SILENCE.max(Duration::from_millis(self.shared.world().into()) * PATIENCE)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Telling { .. } | Phase::Ended)
    }

    fn peers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.rank != self.rank)
    }

    fn is_member(&self, id: NodeId) -> bool {
        self.by_id.contains_key(&id)
    }

    fn member(&self, rank: Rank) -> Option<&Member> {
        self.members.get(usize::try_from(rank.get()).ok()?)
    }

    fn over(&self, rank: Rank, end: End) -> Over {
        let peer =
            self.member(rank).map(|member| Peer { host: member.host.clone(), address: member.address });
        Over { rank: Some(rank), peer, end }
    }

    fn on_message(&mut self, from: SocketAddr, header: Header, to_all: bool, message: Message) {
        let sender = header.sender;
        if header.lineage != self.shared.config.lineage {
            // The world is over, whatever the word.
            let over = match message {
                Message::Over(over) if over.rank < self.shared.world() => {
                    self.over(Rank(over.rank), over.end)
                }
                _ => Over { rank: None, peer: None, end: End::Unknown },
            };
            self.end(header.lineage);
            self.changes.push_back(Change::Over(over));
            self.changes.push_back(Change::Told);
            self.shared.send(from, sender, &Message::Pong);
            return;
        }
        let looks = matches!(message, Message::Ping | Message::Missing(_));
        let asked = match message {
            Message::Ping => true,
            Message::Missing(ranks) => ranks.contains(&self.rank.get()),
            Message::Over(_) if self.is_over() => {
                // Of several that tell all, the lowest rank goes on.
                if self.by_id.get(&sender).is_some_and(|rank| *rank < self.rank) {
                    self.told();
                }
                !to_all
            }
            Message::Finished if matches!(self.phase, Phase::Releasing { .. }) => {
                self.shared.send(from, sender, &Message::Released);
                false
            }
            Message::Finished if self.rank.get() == 0 && self.is_member(sender) => {
                self.finished.insert(sender);
                true
            }
            Message::Released
                if matches!(self.phase, Phase::Waiting { .. }) && self.members[0].id == sender =>
            {
                for _ in 0..LAST_WORDS {
                    self.shared.send(from, sender, &Message::Leaving);
                }
                self.finish();
                return;
            }
            Message::Leaving => {
                if let Phase::Releasing { unaware, .. } = &mut self.phase {
                    unaware.remove(&sender);
                    if unaware.is_empty() {
                        self.finish();
                    }
                }
                return;
            }
            Message::Solicit(_) | Message::Announce(_) if !self.is_member(sender) && !self.is_over() => {
                self.on_newcomer(from, sender, to_all);
                false
            }
            _ => false,
        };
        if asked {
            self.shared.send(from, sender, &Message::Pong);
            if looks && self.is_member(sender) && !self.is_over() {
                // Somebody looks, so this node need not.
                self.looked = Some(self.shared.now);
            }
        }
        self.heard(sender, from);
        self.release_if_finished();
    }

    /// Somebody lives, and knows what this node knows.
    fn heard(&mut self, sender: NodeId, from: SocketAddr) {
        // In the formation that follows it speaks by another ID already.
        let behind = self.by_address.get(&from).copied();
        match &mut self.phase {
            Phase::Telling { unaware, .. } => {
                unaware.remove(&sender);
                behind.map(|id| unaware.remove(&id));
                self.told_if_all_know();
            }
            Phase::Waiting { heard, .. } if self.members[0].id == sender => *heard = self.shared.now,
            // Of those that are let go, only the last word says that they know.
            Phase::Running | Phase::Waiting { .. } | Phase::Releasing { .. } | Phase::Ended => {}
        }
        if let Some(look) = &mut self.look {
            look.silent.remove(&sender);
            if look.silent.is_empty() {
                self.stop_looking();
            }
        }
    }

    fn end(&mut self, next: Lineage) {
        self.shared.config.lineage = next;
        self.shared.timers = Timers::default();
        self.look = None;
        self.phase = Phase::Ended;
    }

    /// The world is over, and all others must know.
    fn tell(&mut self, over: Over) {
        let own = self.shared.config.lineage;
        self.end(own.next().unwrap_or(own));
        let gone = over.rank.filter(|_| over.end == End::Gone);
        let unaware = self.peers().filter(|member| Some(member.rank) != gone).map(|member| member.id);
        self.phase = Phase::Telling {
            until: self.shared.now + if self.is_last { TELL_LAST } else { TELL },
            unaware: unaware.collect(),
            waves: Waves::new(self.shared.now),
            over,
        };
        self.shared.timers.set(Timer::Round, self.shared.now);
        self.told_if_all_know();
    }

    fn told_if_all_know(&mut self) {
        if matches!(&self.phase, Phase::Telling { unaware, .. } if unaware.is_empty()) {
            self.told();
        }
    }

    fn told(&mut self) {
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Ended;
            self.shared.timers.stop(Timer::Round);
            self.changes.push_back(Change::Told);
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Ended;
        self.shared.timers = Timers::default();
        self.changes.push_back(Change::Finished);
    }

    /// Writes again to those that have not answered.
    fn repeat(&mut self) {
        let now = self.shared.now;
        match &mut self.phase {
            Phase::Telling { until, .. } if now >= *until => self.told(),
            Phase::Telling { over, unaware, waves, .. } => {
                let begins = waves.is_between();
                let burst = waves.burst(|| unaware.iter().copied().collect(), &mut self.shared);
                let rank = over.rank.unwrap_or(self.rank).get();
                let word = Message::Over(wire::Over { rank, end: over.end });
                if begins && !burst.is_empty() {
                    // Once a wave: some may be reached at another address than they prefer.
                    self.shared.multicast(&word);
                }
                self.write(&burst, &word);
            }
            // Nobody who could not be told is waited for longer.
            Phase::Releasing { until, .. } if now >= *until => self.finish(),
            Phase::Releasing { unaware, waves, .. } => {
                let burst = waves.burst(|| unaware.iter().copied().collect(), &mut self.shared);
                self.write(&burst, &Message::Released);
            }
            Phase::Running | Phase::Waiting { .. } => self.look(),
            Phase::Ended => {}
        }
    }

    fn write(&mut self, to: &[NodeId], word: &Message) {
        for id in to {
            if let Some(member) = self.by_id.get(id).and_then(|rank| self.member(*rank)) {
                let address = member.address;
                self.shared.send(address, *id, word);
            }
        }
    }

    /// A node that is in no world asks who gathers. Either it takes a dead member's place, or it is one too many.
    fn on_newcomer(&mut self, from: SocketAddr, sender: NodeId, to_all: bool) {
        // Of many that hear it, one answers: rank 0, which may be gone, and who looks.
        if !to_all || self.rank.get() == 0 || self.look.is_some() {
            self.shared.send(from, sender, &Message::Running);
        }
        if self.may_look() {
            let turn = TURN * self.rank.get().min(LAST_TURN);
            self.shared.timers.set_earlier(Timer::Challenge, self.shared.now + turn);
        }
    }

    /// Whether somebody new is a reason to look who is there: not where all have finished, nor where this node or
    /// another member has just done so.
    fn may_look(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Waiting { .. })
            && self.look.is_none()
            && self.looked.is_none_or(|at| self.shared.now >= at + LOOKED)
    }

    /// Somebody new has asked.
    fn look_for_newcomer(&mut self) {
        if self.may_look() {
            self.start_to_look(self.peers().map(|member| member.id).collect());
        }
    }

    fn start_to_look(&mut self, silent: BTreeSet<NodeId>) {
        let now = self.shared.now;
        self.looked = Some(now);
        self.look = Some(Look { silent, until: now + GONE, waves: Waves::new(now) });
        self.look();
    }

    /// Asks those that have not answered.
    fn look(&mut self) {
        let Some(mut look) = self.look.take() else { return };
        if self.shared.now >= look.until {
            // The lowest of them is named.
            if let Some(rank) = look.silent.iter().filter_map(|id| self.by_id.get(id)).min() {
                self.gone(*rank);
            }
            return;
        }
        let burst = look.waves.burst(|| look.silent.iter().copied().collect(), &mut self.shared);
        self.write(&burst, &Message::Ping);
        if look.silent.len() <= MISSING && look.waves.number() > 0 {
            // Some may be reached at another address than they prefer.
            let ranks = look.silent.iter().filter_map(|id| self.by_id.get(id)).map(|rank| rank.get());
            self.shared.multicast(&Message::Missing(ranks.collect()));
        }
        self.look = Some(look);
    }

    fn stop_looking(&mut self) {
        if self.look.take().is_some() {
            self.shared.timers.stop(Timer::Round);
        }
    }

    /// A member is gone: the world is over.
    fn gone(&mut self, rank: Rank) {
        let over = self.over(rank, End::Gone);
        self.tell(over.clone());
        // What must be done comes before that it has been told.
        self.changes.push_front(Change::Over(over));
    }

    /// Asks rank 0 to be let go.
    fn ask_to_go(&mut self) {
        let patience = self.patience();
        let Phase::Waiting { repeats, heard } = &mut self.phase else { return };
        let (next, silent) = (repeats.after(self.shared.now, &mut self.shared.rng), *heard + patience);
        if self.shared.now >= silent {
            let master = self.members[0].rank;
            self.gone(master);
            return;
        }
        self.shared.timers.set(Timer::Ask, next);
        let (id, address) = (self.members[0].id, self.members[0].address);
        self.shared.send(address, id, &Message::Finished);
    }

    /// Rank 0 waits for the others: those whose commands run are asked whether they live.
    fn care(&mut self) {
        if !matches!(self.phase, Phase::Waiting { .. }) {
            return;
        }
        self.shared.set_after(Timer::Ask, CARE);
        if self.look.is_none() {
            let silent = self.peers().map(|member| member.id).filter(|id| !self.finished.contains(id));
            self.start_to_look(silent.collect());
        }
    }

    fn release_if_finished(&mut self) {
        let all = self.finished.len() == self.members.len();
        if !matches!(self.phase, Phase::Waiting { .. }) || !all {
            return;
        }
        let unaware: BTreeSet<NodeId> = self.peers().map(|member| member.id).collect();
        self.stop_looking();
        self.shared.timers.stop(Timer::Ask);
        if unaware.is_empty() {
            self.finish();
            return;
        }
        let until = self.shared.now + RELEASE;
        self.phase = Phase::Releasing { until, unaware, waves: Waves::new(self.shared.now) };
        self.shared.timers.set(Timer::Round, self.shared.now);
    }
}
