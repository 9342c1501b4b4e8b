//! A node that gathers: who has joined, who has a seat, and who waits for one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::backoff::Backoff;
use super::follower::{LARGE, LAST_WORDS};
use super::proof::Arrivals;
use super::report::{Event, Progress, RankRange, Warning};
use super::round::Phase;
use super::shared::Shared;
use super::timer::{Time, Timer};
use super::waves::Window;
use crate::model::{HostName, NodeId, Peer, Rank};
use crate::rdma::Counted;
use crate::wire::{
    Announce, Candidate, Introduction, Join, Message, NEWEST, NodeInfo, RUNS, Refusal, Want, Welcome,
};

/// A change of the members is told after this long, so that several are told at once; in a world of more than 400 nodes
/// after 50 us for each: every word to all is one that each of them has to read.
const NEWS: Duration = Duration::from_millis(20);
const NEWS_MOST: Duration = Duration::from_millis(500);
/// How long a member whose place is wanted may be silent.
const INCUMBENT: Duration = Duration::from_secs(3);
/// How long nodes may join of which none reaches this one over TCP.
const RESIGN: Duration = Duration::from_secs(3);
/// A node that has joined but not proved is forgotten after this silence.
const FORGET: Duration = Duration::from_secs(10);
/// Most nodes that the caller is warned of.
const WARNINGS: usize = 16;

/// A candidate's book of members. While it follows another candidate, the book is frozen.
#[derive(Debug, Clone)]
pub(crate) struct Lead {
    pub(crate) members: BTreeMap<NodeId, Entry>,
    /// The given ranks of those who have a seat, this node's own included.
    ranks: BTreeMap<u32, NodeId>,
    /// How many have a seat, this node included.
    pub(crate) seated: u32,
    /// The most that `seated` has been.
    pub(crate) high_water: u32,
    /// Of those who have a seat.
    fabrics: Counted,
    /// Joined and proved, but without a seat, in the order of their coming.
    pub(crate) waiting: Vec<NodeId>,
    /// Who joined last, newest first.
    newest: VecDeque<HostName>,
    challenges: BTreeMap<NodeId, Challenge>,
    /// Those that will be welcomed, in a large world: each welcome is answered by a dial, and the kernel's queue of
    /// new connections is short.
    welcomes: VecDeque<NodeId>,
    dials: Window,
    redirects: Backoff,
    redirected: usize,
    /// Provers and masters between which the proof has failed.
    pub(crate) unproved: BTreeSet<(NodeId, NodeId)>,
    pub(crate) rounds: u64,
    /// Rounds of these members that have come to nothing because a proof has failed.
    pub(crate) failed_rounds: u64,
    /// When the first round of these members started.
    pub(crate) proving_since: Option<Time>,
    pub(crate) phase: Phase,
    /// This node is on its way to a better candidate: nobody gets a seat, no round starts.
    pub(crate) frozen: bool,
    /// The time is up: a round that has begun is brought to its end, and no other begins.
    pub(crate) overdue: bool,
    /// Nodes with another size of the world, which the caller has been warned of.
    warned: BTreeSet<NodeId>,
    /// Members whose connections are to be closed.
    pub(crate) thrown_out: Vec<NodeId>,
}

/// A node that has joined.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) node: NodeInfo,
    /// Where its words come from.
    pub(crate) source: SocketAddr,
    pub(crate) seated: bool,
    /// When it was last heard.
    pub(crate) heard: Time,
    /// It asks by unicast, so it hears no multicast.
    pub(crate) deaf: bool,
    /// What it asked for last, of the roster.
    pub(crate) wanted: Option<Want>,
    /// It is among those that will be welcomed.
    queued: bool,
    /// In a round: the master's endpoint that it has proved.
    pub(crate) ready: Option<u8>,
    /// It knows that the world has formed, or has left.
    pub(crate) done: bool,
}

impl Entry {
    /// Sends a message that is repeated until it is answered; `attempt` counts from 0. Where its words
    /// come from may be a way that leads only hither, or somebody else's who has repeated its words.
    pub(crate) fn reach(&self, id: NodeId, attempt: usize, message: &Message, shared: &mut Shared) {
        shared.send(self.source, id, message);
        if attempt > 0 {
            let other = self.node.endpoints[(attempt - 1) % self.node.endpoints.len()];
            if other != self.source {
                shared.send(other, id, message);
            }
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        self.node.peer()
    }
}

/// A member whose place somebody else wants is pinged; if it is silent, it goes.
#[derive(Debug, Clone)]
struct Challenge {
    since: Time,
    backoff: Backoff,
    next: Time,
    pings: usize,
    /// Nodes that were given the same rank, to be refused if the member answers.
    contenders: BTreeSet<NodeId>,
}

impl Lead {
    pub(crate) fn new(shared: &Shared) -> Self {
        let own_rank = shared.config.node.rank.map(|rank| (rank.get(), shared.me()));
        Self {
            members: BTreeMap::new(),
            ranks: own_rank.into_iter().collect(),
            seated: 1,
            high_water: 1,
            fabrics: Counted::new(shared.config.node.attributes.fabric),
            waiting: Vec::new(),
            newest: VecDeque::new(),
            challenges: BTreeMap::new(),
            welcomes: VecDeque::new(),
            dials: Window::new(),
            redirected: 0,
            redirects: Backoff::new(Duration::from_millis(20), Duration::from_millis(250)),
            unproved: BTreeSet::new(),
            rounds: 0,
            failed_rounds: 0,
            proving_since: None,
            phase: Phase::Gathering,
            frozen: false,
            overdue: false,
            warned: BTreeSet::new(),
            thrown_out: Vec::new(),
        }
    }

    /// This node as others learn of it.
    pub(crate) fn candidate(&self, shared: &Shared) -> Candidate {
        Candidate {
            id: shared.me(),
            explicit: shared.config.node.rank.is_some(),
            members: self.high_water,
            world: shared.world(),
            host: shared.config.node.host.clone(),
            endpoints: shared.config.node.endpoints.advertised(),
        }
    }

    pub(crate) fn announce(&self, shared: &Shared) -> Message {
        Message::Announce(Announce {
            candidate: self.candidate(shared),
            joined: self.seated,
            newest: self.newest.iter().cloned().collect(),
            missing: self.missing(shared).iter().map(|run| (run.first, run.last)).collect(),
            rdma: self.fabrics.tally(),
        })
    }

    /// The ranks that must still come. Unknown while somebody has none: that one may get any.
    pub(crate) fn missing(&self, shared: &Shared) -> Vec<RankRange> {
        if u32::try_from(self.ranks.len()) != Ok(self.seated) {
            return Vec::new();
        }
        RankRange::missing(self.ranks.keys().copied(), shared.world(), RUNS)
    }

    fn progress(&self, shared: &Shared) -> Progress {
        Progress {
            joined: self.seated,
            world: shared.config.world,
            newest: self.newest.iter().cloned().collect(),
            missing: self.missing(shared),
            leader: shared.peer(),
        }
    }

    /// Tells caller and members that somebody has come or gone.
    fn news(&mut self, shared: &mut Shared) {
        shared.event(Event::Progress(self.progress(shared)));
        let pause = (Duration::from_micros(50) * shared.world()).clamp(NEWS, NEWS_MOST);
        shared.timers.set_earlier(Timer::Announce, shared.now + pause);
    }

    /// Members that hear no multicast get the news by unicast.
    pub(crate) fn tell_the_deaf(&self, shared: &mut Shared) {
        let announce = self.announce(shared);
        for (&id, entry) in self.members.iter().filter(|(_, entry)| entry.deaf) {
            shared.send(entry.source, id, &announce);
        }
    }

    /// A unicast solicit: from a member, the sign that it hears no multicast.
    pub(crate) fn on_ask(&mut self, from: NodeId, source: SocketAddr, shared: &mut Shared) {
        // Not one that has joined without a proof: its address may be forged, and would get all the news.
        if let Some(entry) = self.members.get_mut(&from).filter(|entry| entry.seated) {
            entry.deaf = true;
        }
        let announce = self.announce(shared);
        shared.send(source, from, &announce);
    }

    /// Any word of a member's.
    pub(crate) fn hear(&mut self, from: NodeId, source: SocketAddr, shared: &Shared) {
        if let Some(entry) = self.members.get_mut(&from) {
            entry.heard = shared.now;
            entry.source = source;
        }
    }

    pub(crate) fn on_join(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        join: Join,
        arrivals: &Arrivals,
        shared: &mut Shared,
    ) {
        if join.world != shared.world() {
            if self.warned.len() < WARNINGS && self.warned.insert(from) {
                let (host, theirs, ours) = (join.node.host.clone(), join.world, shared.world());
                shared.event(Event::Warning(Warning::WorldDiffers { host, source, theirs, ours }));
            }
            let refusal = Refusal::WorldDiffers(shared.world());
            shared.send(source, from, &Message::Refuse(refusal));
            return;
        }
        if self.refuse_or_repeat(from, source, shared) {
            return;
        }
        if join.node.rank.is_some_and(|rank| rank.get() >= shared.world()) {
            return;
        }
        self.make_room(arrivals, shared);
        let entry = self.members.entry(from).or_insert_with(|| Entry {
            node: join.node.clone(),
            source,
            seated: false,
            heard: shared.now,
            deaf: false,
            wanted: None,
            queued: false,
            ready: None,
            done: false,
        });
        entry.heard = shared.now;
        entry.source = source;
        if entry.seated {
            // Its addresses may have changed; its place stays what it is.
            entry.node.endpoints = join.node.endpoints;
        } else {
            entry.node = join.node;
        }
        if arrivals.is_empty() && shared.timers.get(Timer::Resign).is_none() {
            shared.set_after(Timer::Resign, RESIGN);
        }
        self.settle(from, arrivals, shared);
    }

    /// Joins without a proof are forged for nothing: their number is bounded.
    fn make_room(&mut self, arrivals: &Arrivals, shared: &Shared) {
        let most = 2 * usize::try_from(shared.world()).unwrap_or(usize::MAX).saturating_add(32);
        if self.members.len() < most {
            return;
        }
        self.members.retain(|&id, entry| arrivals.has(id) || entry.heard + FORGET > shared.now);
        if self.members.len() >= most {
            let unproved = self.members.iter().filter(|&(&id, _)| !arrivals.has(id));
            let oldest = unproved.min_by_key(|(_, entry)| entry.heard).map(|(&id, _)| id);
            oldest.map(|id| self.members.remove(&id));
        }
    }

    /// A node has joined, or its proof has arrived: gives it a seat if it may have one, and tells it.
    pub(crate) fn settle(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        if !self.members.contains_key(&id) {
            return;
        }
        if arrivals.has(id) {
            shared.timers.stop(Timer::Resign);
            self.seat(id, shared);
            if self.dials.answered() && !self.welcomes.is_empty() {
                shared.timers.set(Timer::Welcome, shared.now);
            }
        } else if shared.world() > LARGE {
            // It dials when it is welcomed.
            if self.members.get_mut(&id).is_some_and(|entry| !std::mem::replace(&mut entry.queued, true)) {
                self.welcomes.push_back(id);
            }
            if shared.timers.get(Timer::Welcome).is_none() {
                self.welcome_some(arrivals, shared);
            }
            return;
        }
        self.welcome(id, arrivals, shared);
        self.start_round_if_full(arrivals, shared);
    }

    pub(crate) fn welcome_some(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        for id in self.dials.take(&mut self.welcomes, shared.now) {
            self.welcome(id, arrivals, shared);
        }
        if !self.welcomes.is_empty() {
            shared.timers.set(Timer::Welcome, self.dials.again());
        }
    }

    fn welcome(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        if let Some(entry) = self.members.get_mut(&id) {
            entry.queued = false;
            let welcome = Welcome { lease: arrivals.lease(id), seated: entry.seated };
            shared.send(entry.source, id, &Message::Welcome(welcome));
        }
    }

    fn seat(&mut self, id: NodeId, shared: &mut Shared) {
        let Some(entry) = self.members.get_mut(&id) else { return };
        if entry.seated {
            return;
        }
        let holder = entry.node.rank.and_then(|rank| self.ranks.get(&rank.get()).copied());
        let full = self.seated >= shared.world() || self.frozen || !matches!(self.phase, Phase::Gathering);
        if holder.is_none() && !full {
            entry.seated = true;
            let (rank, host) = (entry.node.rank, entry.node.host.clone());
            if let Some(rank) = rank {
                self.ranks.insert(rank.get(), id);
            }
            self.seated += 1;
            self.high_water = self.high_water.max(self.seated);
            self.fabrics.add(entry.node.attributes.fabric);
            self.waiting.retain(|&waiting| waiting != id);
            self.newest.push_front(host);
            self.newest.truncate(NEWEST);
            self.news(shared);
            return;
        }
        let is_new = !self.waiting.contains(&id);
        if is_new {
            self.waiting.push(id);
        }
        match (holder, entry.node.rank) {
            (Some(holder), Some(rank)) if holder == shared.me() => {
                let me = shared.peer();
                tracing::debug!(%id, %rank, "refused: the rank is this node's own");
                shared.send(entry.source, id, &Message::Refuse(Refusal::RankTaken(me)));
            }
            _ if self.frozen => {}
            (Some(holder), _) => self.challenge(holder, Some(id), shared),
            // One too many: maybe the place of one that is gone without having closed its lease.
            (None, _) if is_new => {
                let seated = self.members.iter().filter(|(_, entry)| entry.seated);
                for holder in seated.map(|(&id, _)| id).collect::<Vec<_>>() {
                    self.challenge(holder, None, shared);
                }
            }
            (None, _) => {}
        }
    }

    fn challenge(&mut self, holder: NodeId, contender: Option<NodeId>, shared: &mut Shared) {
        let challenge = self.challenges.entry(holder).or_insert_with(|| Challenge {
            since: shared.now,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(250)),
            next: shared.now,
            pings: 0,
            contenders: BTreeSet::new(),
        });
        challenge.contenders.extend(contender);
        shared.timers.set_earlier(Timer::Challenge, shared.now);
    }

    /// Pings the challenged, and throws out those that have been silent for too long.
    pub(crate) fn ping_challenged(&mut self, shared: &mut Shared) {
        let mut silent = Vec::new();
        for (&id, challenge) in &mut self.challenges {
            if shared.now >= challenge.since + INCUMBENT {
                silent.push(id);
            } else if challenge.next <= shared.now
                && let Some(entry) = self.members.get(&id)
            {
                entry.reach(id, challenge.pings, &Message::Ping, shared);
                challenge.pings += 1;
                challenge.next = challenge.backoff.after(shared.now, &mut shared.rng);
            }
        }
        self.challenges.retain(|id, _| !silent.contains(id));
        if let Some(next) = self.challenges.values().map(|challenge| challenge.next).min() {
            shared.timers.set_earlier(Timer::Challenge, next);
        }
        self.thrown_out.append(&mut silent);
    }

    /// A challenged member lives: those that were given its rank are refused.
    pub(crate) fn on_pong(&mut self, from: NodeId, shared: &mut Shared) {
        let Some(holder) = self.members.get(&from).map(Entry::peer) else { return };
        let Some(challenge) = self.challenges.get_mut(&from) else { return };
        challenge.contenders.retain(|contender| self.members.contains_key(contender));
        challenge.since = shared.now;
        if challenge.contenders.is_empty() {
            self.challenges.remove(&from);
            return;
        }
        // They may not hear it: the pings go on until they have left.
        for &contender in &challenge.contenders {
            if let Some(entry) = self.members.get(&contender) {
                let refusal = Refusal::RankTaken(holder.clone());
                shared.send(entry.source, contender, &Message::Refuse(refusal));
            }
        }
    }

    /// The last connection of a node has closed, or it is thrown out: its place is free.
    pub(crate) fn remove(&mut self, id: NodeId, arrivals: &Arrivals, shared: &mut Shared) {
        self.challenges.remove(&id);
        self.waiting.retain(|&waiting| waiting != id);
        if self.round_lost(id, shared) {
            return;
        }
        if !self.members.get(&id).is_some_and(|entry| entry.seated) {
            self.members.remove(&id);
            return;
        }
        // While it is still a member, so that it is told too: it may be alive, and ready.
        self.void_round(shared);
        let Some(entry) = self.members.remove(&id) else { return };
        self.seated -= 1;
        self.fabrics.remove(entry.node.attributes.fabric);
        self.proving_since = None;
        self.failed_rounds = 0;
        self.ranks.retain(|_, holder| *holder != id);
        self.newest.retain(|host| *host != entry.node.host);
        self.news(shared);
        self.seat_waiting(arrivals, shared);
    }

    pub(crate) fn seat_waiting(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        for id in self.waiting.clone() {
            if arrivals.has(id) && self.seated < shared.world() {
                self.settle(id, arrivals, shared);
            }
        }
    }

    /// This node is on its way to a better candidate.
    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
        // Nobody pings meanwhile, so nobody's silence counts.
        self.challenges.clear();
    }

    /// Nobody reaches this node: everybody who has joined is let go.
    pub(crate) fn resign(&mut self) {
        self.members.clear();
        self.waiting.clear();
        self.challenges.clear();
        self.welcomes.clear();
    }

    /// This node goes: members look for another leader. Said several times, since nobody answers.
    pub(crate) fn send_away(&self, shared: &mut Shared) {
        for attempt in 0..LAST_WORDS {
            for (&id, entry) in &self.members {
                entry.reach(id, attempt, &Message::Refuse(Refusal::Closing), shared);
            }
        }
    }

    /// Sends those that are still here to the leader that this node itself has joined.
    pub(crate) fn redirect(&mut self, to: &Introduction, shared: &mut Shared) {
        if self.members.is_empty() {
            return;
        }
        let redirect = Message::Redirect(to.clone());
        for (&id, entry) in &self.members {
            entry.reach(id, self.redirected, &redirect, shared);
        }
        self.redirected += 1;
        let next = self.redirects.after(shared.now, &mut shared.rng);
        shared.timers.set(Timer::Redirect, next);
    }

    /// Members by given rank and name, for a message to people.
    pub(crate) fn present(&self) -> impl Iterator<Item = (Peer, Option<u32>)> {
        self.members
            .values()
            .filter(|entry| entry.seated)
            .map(|entry| (entry.peer(), entry.node.rank.map(Rank::get)))
    }
}
