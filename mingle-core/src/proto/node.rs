//! One node: what happens goes to the part that it concerns.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand::RngExt;

use super::backoff::Backoff;
use super::election::{Key, Shunned};
use super::follower::{Follow, GaveUp};
use super::leader::Lead;
use super::memory::Memory;
use super::outcome::{Event, Failure, Heard, Peer, Report};
use super::proof::Arrivals;
use super::round::Phase;
use super::shared::Shared;
use super::timer::{Time, Timer};
use super::{Config, ConnId, DialId, Output};
use crate::id::{NodeId, Rank};
use crate::wire::{
    self, Announce, Candidate, Dropped, Introduction, Message, PeerName, Refusal, Solicit, TOKEN, Token,
};

/// The longest random wait before a first announce; in a world of this size or more.
const SUPPRESSION: Duration = Duration::from_millis(20);
const SUPPRESSION_WORLD: u32 = 1000;
/// Up to this size nobody waits.
const SMALL_WORLD: u32 = 16;
/// The longest interval between two announces or solicits: with its jitter, a waiting node sends
/// fewer than 1.4 datagrams a second.
const PERIOD: Duration = Duration::from_secs(1);
/// The first interval of everything that is repeated.
const FIRST: Duration = Duration::from_millis(20);
/// How long a node that nobody reached over TCP leaves gathering to others.
const RESIGNED: Duration = Duration::from_secs(10);
/// A candidate that is still announcing after so long has not heard of its better: it is told.
const UNAWARE: Duration = Duration::from_secs(1);

/// The protocol of one node, from its start to its end.
///
/// The caller owns time, sockets and randomness: it hands in what happens, and after every call
/// carries out what [`Node::poll_output`] returns until that is nothing.
#[derive(Debug)]
pub struct Node {
    shared: Shared,
    arrivals: Arrivals,
    lead: Lead,
    follow: Option<Follow>,
    shunned: Shunned,
    memory: Memory,
    announces: Backoff,
    solicits: Backoff,
    announced: bool,
    /// Until when this node leaves gathering to others.
    resigned: Time,
    /// Nodes that asked for this node's arrivals, while it is a master but not the leader.
    askers: Askers,
    /// Others that announce although this node has a leader, and since when.
    rivals: Rivals,
    /// When a solicit was last answered to all.
    answered_all: Option<Time>,
    /// The deadline has passed in a round, whose end is waited for.
    overdue: bool,
    ended: bool,
}

type Askers = std::collections::BTreeMap<NodeId, SocketAddr>;
type Rivals = std::collections::BTreeMap<NodeId, (Time, Time)>;

/// Most askers and rivals that are remembered.
const REMEMBERED: usize = 4096;

impl Node {
    /// A node that starts at `now`. The same configuration and seed, told the same, do the same.
    pub fn new(config: Config, seed: u64, now: Time) -> Self {
        let shared = Shared::new(config, seed, now);
        let mut node = Self {
            arrivals: Arrivals::default(),
            lead: Lead::new(&shared),
            follow: None,
            shunned: Shunned::default(),
            memory: Memory::default(),
            announces: Backoff::new(FIRST, PERIOD),
            solicits: Backoff::new(FIRST, PERIOD),
            announced: false,
            resigned: Time::ZERO,
            askers: Askers::new(),
            rivals: Rivals::new(),
            answered_all: None,
            overdue: false,
            ended: false,
            shared,
        };
        if let Some(timeout) = node.shared.config.timeout {
            node.shared.set_after(Timer::Deadline, timeout);
        }
        if node.shared.world() == 1 {
            // Nobody has to be found, and nobody has to be reached.
            node.lead.start_round_if_full(&node.arrivals, &mut node.shared);
            node.lead.commit_alone(&mut node.shared);
            node.check_end();
        } else {
            node.seek();
        }
        node
    }

    /// What to do next, in order. Ask again after every call until this is nothing.
    #[must_use = "what is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }

    /// When to call [`Node::handle_timeout`]. Changes with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.ended { None } else { self.shared.timers.next() }
    }

    /// Whether the end has been told; nothing that is handed in afterwards has an effect.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// A datagram has arrived on the node's own port or for its group. What is not this job's is dropped.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        self.at(now);
        if self.ended {
            return;
        }
        let (header, message) = match wire::decode(self.shared.config.tag, bytes) {
            Ok(decoded) => decoded,
            Err(dropped) => {
                if let Dropped::Version(version) = dropped {
                    self.memory.version(version, from);
                }
                tracing::trace!(%from, length = bytes.len(), %dropped, "datagram dropped");
                return;
            }
        };
        let to_all = header.recipient == NodeId::ALL;
        let own = header.sender == self.shared.me();
        if own || !(to_all || header.recipient == self.shared.me()) {
            return;
        }
        tracing::trace!(%from, sender = %header.sender, to_all, ?message, "heard");
        self.lead.hear(header.sender, from, &self.shared);
        if let Some(follow) = self.follow.as_mut().filter(|f| !to_all && f.leader.id == header.sender) {
            follow.hear(from, &mut self.shared);
        }
        self.on_message(header.sender, from, to_all, message);
        self.check_end();
    }

    /// A connection that this node opened stands, at this own address. Call it before the token is
    /// written, so that no answer overtakes it.
    pub fn handle_dialed(&mut self, now: Time, dial: DialId, local: IpAddr) {
        self.at(now);
        if let Some(follow) = &mut self.follow {
            follow.connected(dial, local);
        }
        if let Some(proof) = self.lead.proof() {
            proof.connected(dial, local);
        }
    }

    /// A connection that this node opened has closed, or could not be opened.
    pub fn handle_hung_up(&mut self, now: Time, dial: DialId) {
        self.at(now);
        if self.ended {
            return;
        }
        if let Some(proof) = self.lead.proof() {
            proof.lost(dial);
        }
        if let Some(follow) = &mut self.follow {
            follow.lost(dial, &mut self.shared);
        }
    }

    /// The token has arrived on a connection that this node accepted, at this own address.
    pub fn handle_token(&mut self, now: Time, conn: ConnId, local: IpAddr, token: &[u8; TOKEN]) {
        self.at(now);
        let token = Token::decode(self.shared.config.tag, token);
        let meant = token.filter(|token| token.target == self.shared.me() && !self.ended);
        let Some(token) = meant else {
            self.shared.close(conn);
            return;
        };
        if token.dialled.ip() != local {
            tracing::debug!(dialled = %token.dialled, %local, "an address is translated on the way");
        }
        if let Some(excess) = self.arrivals.add(token.prover, conn, token.dial) {
            self.shared.close(excess);
        }
        self.lead.settle(token.prover, &self.arrivals, &mut self.shared);
        if let Some(asker) = self.askers.get(&token.prover) {
            self.shared.send(*asker, token.prover, &Message::Proved(token.dial));
        }
        self.check_end();
    }

    /// A connection that this node accepted has closed.
    pub fn handle_closed(&mut self, now: Time, conn: ConnId) {
        self.at(now);
        if let Some(prover) = self.arrivals.remove(conn).filter(|_| !self.ended) {
            self.askers.remove(&prover);
            self.lead.remove(prover, &self.arrivals, &mut self.shared);
            self.check_end();
        }
    }

    /// Time has passed. Early and repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.at(now);
        while !self.ended
            && let Some(timer) = self.shared.timers.expire(self.shared.now)
        {
            self.on_timer(timer);
            self.check_end();
        }
    }

    fn at(&mut self, now: Time) {
        // A clock that steps back would make timers fire twice.
        self.shared.now = self.shared.now.max(now);
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline => self.on_deadline(),
            Timer::Announce if self.gathers() => self.announce(),
            Timer::Announce => {}
            Timer::Solicit => self.solicit(),
            Timer::Join => self.with_follow(Follow::join),
            Timer::Dial => {
                self.with_follow(Follow::advance);
                if let Some(proof) = self.lead.proof() {
                    proof.advance(&mut self.shared);
                }
            }
            Timer::GiveUp => self.give_up(),
            Timer::Ask => self.with_follow(Follow::ask),
            Timer::Proof => {
                self.with_follow(Follow::repeat);
                self.lead.proceed(&mut self.shared);
                if let Some(failure) = self.follow.as_ref().and_then(|f| f.in_doubt(&self.shared)) {
                    self.end(Event::Failed(failure));
                }
            }
            Timer::ProofFailed => {
                self.with_follow(Follow::proof_failed);
                self.lead.proof_failed(&self.arrivals, &mut self.shared);
            }
            Timer::Redirect => self.redirect(),
            Timer::Round => self.lead.repeat(&self.arrivals, &mut self.shared),
            Timer::Challenge => self.lead.ping_challenged(&mut self.shared),
            Timer::Resign => self.resign(),
            Timer::Welcome => self.lead.welcome_some(&self.arrivals, &mut self.shared),
        }
        for id in std::mem::take(&mut self.lead.thrown_out) {
            for conn in self.arrivals.evict(id) {
                self.shared.close(conn);
            }
            self.lead.remove(id, &self.arrivals, &mut self.shared);
        }
    }

    fn with_follow(&mut self, act: impl FnOnce(&mut Follow, &mut Shared)) {
        if let Some(follow) = &mut self.follow {
            act(follow, &mut self.shared);
        }
    }

    fn on_message(&mut self, from: NodeId, seen: SocketAddr, to_all: bool, message: Message) {
        let is_leader = self.follow.as_ref().is_some_and(|follow| follow.leader.id == from);
        match message {
            Message::Announce(announce) if announce.candidate.id == from => {
                self.on_announce(&announce, seen, to_all);
            }
            Message::Solicit(solicit) => self.on_solicit(from, seen, to_all, &solicit),
            Message::Hint(introduction) => self.on_candidate(&introduction.candidate, introduction.seen, false),
            Message::Join(join) => {
                self.memory.node(from, &join.host, seen, join.rank);
                self.on_join(from, seen, join);
            }
            Message::Ping => self.shared.send(seen, from, &Message::Pong),
            Message::Pong => self.lead.on_pong(from, &mut self.shared),
            Message::Prove => {
                if self.askers.len() < REMEMBERED || self.askers.contains_key(&from) {
                    self.askers.insert(from, seen);
                }
                if let Some(lease) = self.arrivals.lease(from) {
                    self.shared.send(seen, from, &Message::Proved(lease));
                }
            }
            Message::Proved(dial) => {
                self.with_follow(|follow, shared| follow.on_proved(from, DialId(dial), shared));
                self.lead.on_proved(from, DialId(dial), &mut self.shared);
            }
            Message::Ready(ready) => self.lead.on_ready(from, seen, &ready, &mut self.shared),
            Message::Unproved(round) => self.lead.on_unproved(from, seen, round, &mut self.shared),
            Message::Done(round) => self.lead.on_done(from, round, &mut self.shared),
            Message::Want(want) => self.lead.on_want(from, seen, &want, &mut self.shared),
            // The rest is the leader's to say.
            Message::Redirect(introduction) if is_leader => self.on_redirect(&introduction),
            Message::Refuse(refusal) if is_leader => self.on_refusal(refusal),
            Message::Welcome(welcome) if is_leader => {
                self.joining(|follow, shared| follow.on_welcome(&welcome, shared));
            }
            Message::Prepare(prepare) if is_leader => {
                self.joining(|follow, shared| follow.on_prepare(&prepare, shared));
            }
            Message::Part(part) if is_leader => self.with_follow(|follow, shared| follow.on_part(part, shared)),
            Message::Void(round) if is_leader => {
                self.with_follow(|follow, shared| follow.on_void(round, shared));
            }
            Message::Commit(commit) if is_leader => {
                let formed = self.follow.as_mut().and_then(|f| f.on_commit(&commit, &mut self.shared));
                if let Some(formed) = formed {
                    self.end(Event::Formed(formed));
                }
            }
            _ => tracing::debug!(%from, "a word that is not the sender's to say"),
        }
    }

    /// What may make this node a member. Where it does, its own members are sent after it.
    fn joining(&mut self, act: impl FnOnce(&mut Follow, &mut Shared) -> bool) {
        let Some(follow) = &mut self.follow else { return };
        if act(follow, &mut self.shared) {
            self.shunned.forgive(follow.leader.id);
            self.memory.unreached = None;
            // Those that have not proved have no connection whose end would tell that they have gone.
            let arrivals = &self.arrivals;
            self.lead.members.retain(|&id, _| arrivals.has(id));
            self.redirect();
        }
    }

    /// Whether this node may gather now.
    fn may_lead(&self) -> bool {
        self.shared.config.is_candidate() && self.shared.now >= self.resigned
    }

    /// Whether this node gathers: it may, and follows nobody.
    fn gathers(&self) -> bool {
        self.follow.is_none() && self.may_lead()
    }

    fn key(&self) -> Key {
        let explicit = self.shared.config.rank.is_some();
        Key::new(explicit, self.lead.high_water, &self.shared.config.endpoints, self.shared.me())
    }

    /// Starts to look for the others: by announcing where this node may gather, else by asking.
    fn seek(&mut self) {
        let delay = self.suppression();
        if self.shared.config.is_candidate() {
            self.announced = false;
            self.announces.reset();
            let at = (self.shared.now + delay).max(self.resigned);
            self.shared.timers.set(Timer::Announce, at);
        }
        if !self.may_lead() {
            self.solicits.reset();
            self.shared.set_after(Timer::Solicit, delay);
        }
    }

    /// How long to listen before the first word, so that a start of thousands is not a storm: at most
    /// 20 ms, and nothing in a world in which everybody may speak at once.
    fn suppression(&mut self) -> Duration {
        let world = self.shared.world();
        if world <= SMALL_WORLD {
            return Duration::ZERO;
        }
        // Truncated exponential (RFC 5401, 3.2.1.1): few are early, most are late and hear those.
        let spread = f64::from(world).ln() + 1.0;
        let uniform = self.shared.rng.random_range(0.0..1.0_f64);
        let share = (uniform * spread.exp_m1()).ln_1p() / spread;
        SUPPRESSION.mul_f64(share * f64::from(world.min(SUPPRESSION_WORLD)) / f64::from(SUPPRESSION_WORLD))
    }

    fn announce(&mut self) {
        if !self.announced {
            self.announced = true;
            self.shared.event(Event::Leading);
        }
        let announce = self.lead.announce(&self.shared);
        self.shared.multicast(&announce);
        self.lead.tell_the_deaf(&mut self.shared);
        let next = self.announces.after(self.shared.now, &mut self.shared.rng);
        self.shared.timers.set(Timer::Announce, next);
    }

    fn solicit(&mut self) {
        if self.follow.is_some() || self.may_lead() {
            return;
        }
        let rank = self.shared.config.rank.map(Rank::get);
        let solicit = Solicit { rank, host: self.shared.config.host.clone() };
        self.shared.multicast(&Message::Solicit(solicit));
        let next = self.solicits.after(self.shared.now, &mut self.shared.rng);
        self.shared.timers.set(Timer::Solicit, next);
    }

    fn on_announce(&mut self, announce: &Announce, seen: SocketAddr, to_all: bool) {
        let candidate = &announce.candidate;
        let rank = candidate.explicit.then_some(0);
        self.memory.node(candidate.id, &candidate.host, seen, rank);
        self.memory.candidates = true;
        if !to_all {
            // An answer to this node: whatever silence there was is over.
            self.shunned.answered(candidate.id);
        }
        match &mut self.follow {
            Some(follow) if follow.leader.id == candidate.id => {
                follow.on_announce(announce, seen, to_all, &mut self.shared);
                if follow.is_joined() {
                    self.memory.told(&announce.newest);
                }
            }
            _ => self.on_candidate(candidate, seen, true),
        }
    }

    /// Somebody gathers, or would. `direct` where it says so itself.
    fn on_candidate(&mut self, candidate: &Candidate, seen: SocketAddr, direct: bool) {
        if candidate.id == self.shared.me() {
            return;
        }
        let theirs = Key::of(candidate);
        let shunned = self.shunned.contains(candidate.id, self.shared.now);
        match &self.follow {
            Some(follow) if follow.leader.id == candidate.id => {}
            Some(follow) if follow.in_round() => {}
            Some(follow) if !follow.is_joined() => {
                if theirs > follow.key && !shunned {
                    self.follow(candidate, seen);
                }
            }
            Some(_) => self.introduce(candidate, seen, theirs, direct),
            None if self.may_lead() => {
                if theirs > self.key() {
                    if !shunned && matches!(self.lead.phase, Phase::Gathering) {
                        self.follow(candidate, seen);
                    }
                } else {
                    // It need not wait for the next announce to learn of its better.
                    let announce = self.lead.announce(&self.shared);
                    self.shared.send(seen, candidate.id, &announce);
                    if !self.announced {
                        self.announce();
                    }
                }
            }
            None if !shunned => self.follow(candidate, seen),
            None => {}
        }
    }

    /// A member that learns of another candidate tells the better one to the worse one, when the
    /// leader itself has evidently not been heard.
    fn introduce(&mut self, candidate: &Candidate, seen: SocketAddr, theirs: Key, direct: bool) {
        let now = self.shared.now;
        let Some(follow) = self.follow.as_ref().filter(|_| direct) else { return };
        if self.rivals.len() >= REMEMBERED {
            self.rivals.retain(|_, (_, told)| *told + 2 * UNAWARE > now);
        }
        if self.rivals.len() >= REMEMBERED {
            return;
        }
        let (since, told) = self.rivals.entry(candidate.id).or_insert((now, now));
        if now < *since + UNAWARE || now < *told + UNAWARE {
            return;
        }
        *told = now;
        if theirs > follow.key {
            let better = Introduction { candidate: candidate.clone(), seen };
            self.shared.send(follow.leader.seen, follow.leader.id, &Message::Hint(better));
        } else {
            let better = follow.introduction();
            self.shared.send(seen, candidate.id, &Message::Hint(better));
        }
    }

    fn on_solicit(&mut self, from: NodeId, seen: SocketAddr, to_all: bool, solicit: &Solicit) {
        let again = self.memory.knows(from);
        self.memory.node(from, &solicit.host, seen, solicit.rank);
        if self.gathers() && self.announced {
            if !to_all {
                self.lead.on_ask(from, seen, &mut self.shared);
                return;
            }
            let now = self.shared.now;
            let recent = self.answered_all.is_some_and(|at| now < at + Duration::from_millis(50));
            let announce = self.lead.announce(&self.shared);
            self.shared.send(seen, from, &announce);
            if again && !recent {
                // Our unicast may not reach it.
                self.answered_all = Some(now);
                self.shared.multicast(&announce);
            }
        } else if !to_all && let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.shared.send(seen, from, &Message::Hint(introduction));
        } else if to_all && self.follow.is_none() && !self.may_lead() {
            // Somebody else has just asked the same (Trickle, RFC 6206).
            let next = self.solicits.after(self.shared.now, &mut self.shared.rng);
            self.shared.timers.set(Timer::Solicit, next);
        }
    }

    fn on_join(&mut self, from: NodeId, seen: SocketAddr, join: wire::Join) {
        if self.gathers() {
            self.lead.on_join(from, seen, join, &self.arrivals, &mut self.shared);
        } else if let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.shared.send(seen, from, &Message::Redirect(introduction));
        }
    }

    fn follow(&mut self, candidate: &Candidate, seen: SocketAddr) {
        tracing::debug!(id = %candidate.id, host = %candidate.host, %seen, "joining");
        if let Some(old) = self.follow.take() {
            old.stop(&mut self.shared);
        }
        self.lead.frozen = true;
        for timer in [Timer::Announce, Timer::Solicit, Timer::Resign, Timer::Challenge] {
            self.shared.timers.stop(timer);
        }
        self.follow = Some(Follow::start(&mut self.shared, candidate, seen));
    }

    /// The leader did not answer, or could not be reached: back to where it was before.
    fn give_up(&mut self) {
        let Some(follow) = self.follow.take() else { return };
        let (id, peer) = (follow.leader.id, follow.leader.peer());
        match follow.give_up() {
            GaveUp::Silent => self.shunned.silent(id, self.shared.now),
            GaveUp::Unreached => {
                self.memory.unreached = Some((peer.clone(), follow.leader.endpoints.clone()));
                if self.may_lead() {
                    self.shunned.unreached(id, self.shared.now);
                }
                // A node that may not lead has nobody else: it tries again as soon as it hears it.
            }
        }
        tracing::debug!(%id, "not joined");
        self.shared.event(Event::LostLeader(peer));
        self.leave(follow);
    }

    /// Follows nobody from now on.
    fn leave(&mut self, follow: Follow) {
        follow.stop(&mut self.shared);
        self.follow = None;
        self.lead.frozen = false;
        self.shared.timers.stop(Timer::Redirect);
        self.seek();
        self.lead.seat_waiting(&self.arrivals, &mut self.shared);
        self.lead.start_round_if_full(&self.arrivals, &mut self.shared);
    }

    fn on_redirect(&mut self, to: &Introduction) {
        let Some(follow) = &self.follow else { return };
        let better = Key::of(&to.candidate) > follow.key;
        let own = to.candidate.id == self.shared.me();
        let shunned = self.shunned.contains(to.candidate.id, self.shared.now);
        if better && !own && !shunned && !follow.is_ready() {
            self.follow(&to.candidate, to.seen);
        }
    }

    /// Sends this node's own members to the leader that it has joined.
    fn redirect(&mut self) {
        if let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.lead.redirect(&introduction, &mut self.shared);
        }
    }

    fn on_refusal(&mut self, refusal: Refusal) {
        let Some(follow) = self.follow.as_ref().filter(|follow| !follow.is_ready()) else { return };
        let leader = follow.leader.peer();
        let config = &self.shared.config;
        let failure = match refusal {
            Refusal::RankTaken(holder) => config.rank.map(|rank| Failure::RankTaken { rank, holder: peer(holder) }),
            Refusal::WorldDiffers(theirs) => {
                Some(Failure::WorldDiffers { ours: config.world, theirs, leader })
            }
            Refusal::WorldFull => Some(Failure::WorldFull { world: config.world, leader }),
            Refusal::MasterUnproved(pairs) => {
                let pairs = pairs.into_vec().into_iter();
                let pairs = pairs.map(|(prover, master)| super::Unproved { prover: peer(prover), master: peer(master) });
                Some(Failure::MasterUnproved { pairs: pairs.collect() })
            }
            Refusal::Closing => None,
        };
        if let Some(failure) = failure {
            self.end(Event::Failed(failure));
        } else if let Some(follow) = self.follow.take() {
            // The next generation has another leader, or none yet.
            self.shunned.unreached(follow.leader.id, self.shared.now);
            self.leave(follow);
        }
    }

    /// Others join, but their connections do not arrive: somebody else gathers for a while, and this
    /// node is not the master unless it was given rank 0.
    fn resign(&mut self) {
        if !self.gathers() || !self.arrivals.is_empty() || self.lead.members.is_empty() {
            return;
        }
        let address = self.shared.config.peer().address;
        self.shared.event(Event::Warning(format!(
            "others join, but none of them can connect to {address} over TCP, so this node does not gather; \
             check the firewall for that port"
        )));
        self.resigned = self.shared.now + RESIGNED;
        self.shared.config.may_be_master = false;
        self.lead.resign();
        self.seek();
    }

    fn on_deadline(&mut self) {
        let bound = self.follow.as_ref().is_some_and(Follow::is_ready);
        if bound || !matches!(self.lead.phase, Phase::Gathering) {
            // A round that has begun is brought to its end, which has limits of its own.
            self.overdue = true;
        } else {
            let report = self.report();
            self.end(Event::Failed(Failure::Deadline(Box::new(report))));
        }
    }

    fn report(&self) -> Report {
        let config = &self.shared.config;
        let progress = self.follow.as_ref().filter(|follow| follow.is_joined()).and_then(Follow::progress);
        let mut heard = self.memory.heard(&config.host);
        let leads = self.follow.is_none() && config.is_candidate();
        if leads && self.lead.seated > 1 {
            heard = self.lead.present().map(Heard::from).take(Report::NAMES).collect();
            heard.sort();
        }
        let unreached = match &self.follow {
            Some(follow) if follow.has_answered() && !follow.is_joined() => {
                Some((follow.leader.peer(), follow.leader.endpoints.clone()))
            }
            _ => self.memory.unreached.clone(),
        };
        Report {
            world: config.world,
            rank: config.rank,
            joined: progress.map_or(self.lead.seated, |progress| progress.joined),
            heard,
            missing: progress.map_or_else(
                || if leads { self.lead.missing(&self.shared) } else { Vec::new() },
                |progress| progress.missing.clone(),
            ),
            unreached: unreached.filter(|_| progress.is_none()),
            nobody_leads: !config.is_candidate() && !self.memory.candidates,
            versions: self.memory.versions(),
        }
    }

    /// Ends where the leader's side is through, or where a round that was waited for is over.
    fn check_end(&mut self) {
        if self.ended {
            return;
        }
        if let Phase::Over(result) = &self.lead.phase {
            let event = match result.clone() {
                Ok(formed) => Event::Formed(formed),
                Err(failure) => Event::Failed(failure),
            };
            self.end(event);
        } else if self.overdue {
            self.overdue = false;
            self.on_deadline();
        }
    }

    fn end(&mut self, event: Event) {
        self.shared.event(event);
        self.ended = true;
    }
}

fn peer(name: PeerName) -> Peer {
    Peer { host: name.host, address: name.address }
}

impl From<(Peer, Option<u32>)> for Heard {
    fn from((peer, rank): (Peer, Option<u32>)) -> Self {
        Self { host: peer.host, address: Some(peer.address), rank }
    }
}
