//! One node: what happens goes to the part that it concerns.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::backoff::{Backoff, FIRST};
use super::election::Blocklist;
use super::follower::Follow;
use super::leader::Lead;
use super::memory::Memory;
use super::proof::Arrivals;
use super::report::{Event, Warning};
use super::round::Phase;
use super::shared::Shared;
use super::timer::{Time, Timer};
use super::{Config, ConnId, DialId, Output};
use crate::model::{Endpoints, NodeId, Rank};
use crate::wire::{Candidate, Dropped, Message, TOKEN};

/// The longest interval between two announces or solicits: with its jitter, a waiting node sends
/// fewer than 1.4 datagrams a second.
const PERIOD: Duration = Duration::from_secs(1);
/// A timer that fires so late has been slept through.
const LATE: Duration = Duration::from_millis(100);
/// What others get then, to be heard.
const GRACE: Duration = Duration::from_secs(1);

/// The protocol of one node, from its start to its end.
///
/// The caller owns time, sockets and randomness: it hands in what happens, and after every call
/// carries out what [`Node::poll_output`] returns until that is nothing.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) shared: Shared,
    pub(super) arrivals: Arrivals,
    pub(super) lead: Lead,
    pub(super) follow: Option<Follow>,
    pub(super) blocklist: Blocklist,
    pub(super) memory: Memory,
    pub(super) announces: Backoff,
    pub(super) solicits: Backoff,
    pub(super) announced: bool,
    /// When this node last called to all.
    pub(super) called: Option<Time>,
    /// Until when this node listens first, and others do who have started with it.
    pub(super) listening: Time,
    /// While this node only listens: the best candidate that has called, and where it was heard.
    pub(super) best: Option<(Candidate, SocketAddr)>,
    /// Until when this node leaves gathering to others.
    pub(super) resigned: Time,
    /// Nodes that asked for this node's arrivals, while it is a master but not the leader.
    pub(super) askers: Askers,
    /// Others that announce although this node has a leader: since when, and when one was told last.
    pub(super) rivals: Rivals,
    /// How often this node's own solicit may still be put off.
    pub(super) put_off: u32,
    /// When a solicit was last answered to all.
    pub(super) answered_all: Option<Time>,
    /// When a member, this one or another, last told all of the leader.
    pub(super) relayed: Option<Time>,
    /// A world of this lineage stands, without this node.
    pub(super) formed_already: bool,
    pub(super) ended: bool,
}

/// Whom a datagram is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    /// All who hear the group.
    All,
    /// Whoever is at the address: this node is a seed of the sender's.
    Anyone,
    /// This node alone.
    This,
}

/// How a candidate has become known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learned {
    /// By its own word to all.
    ByItself,
    /// By its own word to this node.
    Personally,
    /// By somebody else.
    ByAnother,
}

type Askers = std::collections::BTreeMap<NodeId, SocketAddr>;
type Rivals = std::collections::BTreeMap<NodeId, (Time, Option<Time>)>;

/// Most rivals that are remembered, and most askers in a world of half as many.
pub(super) const REMEMBERED: usize = 4096;

impl Node {
    /// A node that starts at `now`. The same configuration and seed, told the same, do the same.
    pub fn new(config: Config, seed: u64, now: Time) -> Self {
        let shared = Shared::new(config, seed, now);
        let mut node = Self {
            arrivals: Arrivals::default(),
            lead: Lead::new(&shared),
            follow: None,
            blocklist: Blocklist::default(),
            memory: Memory::default(),
            announces: Backoff::new(FIRST, PERIOD),
            solicits: Backoff::new(FIRST, PERIOD),
            announced: false,
            called: None,
            best: None,
            listening: Time::ZERO,
            resigned: Time::ZERO,
            askers: Askers::new(),
            rivals: Rivals::new(),
            put_off: 0,
            answered_all: None,
            relayed: None,
            formed_already: false,
            ended: false,
            shared,
        };
        if let Some(timeout) = node.shared.config.timeout {
            node.shared.set_after(Timer::Deadline, timeout);
        }
        node.put_off = node.patience();
        if node.shared.world() == 1 {
            // Nobody has to be found, and nobody has to be reached.
            node.lead.start_round_if_full(&node.arrivals, &mut node.shared);
            node.lead.commit_if_ready(&mut node.shared);
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
        let (header, message) = match self.shared.codec.decode(bytes) {
            Ok(decoded) => decoded,
            Err(dropped) => {
                match dropped {
                    Dropped::Version(version) => self.memory.version(version, from),
                    Dropped::Unauthentic => self.memory.unauthentic(from.ip()),
                    _ => {}
                }
                tracing::trace!(%from, length = bytes.len(), %dropped, "datagram dropped");
                return;
            }
        };
        let meant = match header.recipient {
            NodeId::ALL => Recipient::All,
            NodeId::ANYONE => Recipient::Anyone,
            id if id == self.shared.me() => Recipient::This,
            _ => return,
        };
        if header.sender == self.shared.me() {
            return;
        }
        tracing::trace!(%from, sender = %header.sender, ?meant, ?message, "heard");
        match header.lineage.cmp(&self.shared.config.lineage) {
            Ordering::Equal => {}
            Ordering::Less => {
                // Who is behind learns it from any word of this node's; of many that hear it, one is enough.
                if meant != Recipient::All || self.gathers() {
                    self.shared.send(from, header.sender, &Message::Pong);
                }
                return;
            }
            // It has all its nodes; whether this one is needed shows when it ends.
            Ordering::Greater if matches!(message, Message::Running | Message::Missing(_)) => {
                if message == Message::Running {
                    self.on_running(from);
                }
                return;
            }
            // What this node is bound by has an end of its own; the other is heard again then.
            Ordering::Greater if self.is_bound() => return,
            // Only a word to this very node cannot be a recording of an earlier run.
            Ordering::Greater if meant == Recipient::This => {
                self.end(Event::Superseded(header.lineage));
                return;
            }
            Ordering::Greater => {
                self.shared.send(from, header.sender, &Message::Ping);
                return;
            }
        }
        self.lead.hear(header.sender, from, &self.shared);
        let this = meant == Recipient::This;
        if let Some(follow) = self.follow.as_mut().filter(|f| this && f.leader.id == header.sender) {
            follow.hear(from, &mut self.shared);
        }
        self.on_message(header.sender, from, meant, message);
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
        let token = self.shared.codec.decode_token(token).ok();
        let meant = token.filter(|token| token.target == self.shared.me() && !self.ended);
        let Some(token) = meant else {
            self.shared.close(conn);
            return;
        };
        if self.shared.config.keys.is_some() && !self.arrivals.is_first(token.prover, token.dial) {
            tracing::debug!(prover = %token.prover, "a replayed token");
            self.shared.close(conn);
            return;
        }
        if token.dialled.ip() != local {
            tracing::debug!(dialled = %token.dialled, %local, "an address is translated on the way");
        }
        self.shared.unreached = false;
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
        for timer in [Timer::GiveUp, Timer::Resign] {
            // This process did not run when it should have: it cannot blame the others for silence.
            if self.shared.timers.get(timer).is_some_and(|at| now > at + LATE) {
                self.shared.set_after(timer, GRACE);
            }
        }
        while !self.ended
            && let Some(timer) = self.shared.timers.expire(self.shared.now)
        {
            self.on_timer(timer);
            self.check_end();
        }
    }

    pub(super) fn at(&mut self, now: Time) {
        // A clock that steps back would make timers fire twice.
        self.shared.now = self.shared.now.max(now);
    }

    /// The addresses of this host have changed. The preferred one, by which candidates are ordered, must be
    /// the same: where it has gone, a new node takes this one's place.
    pub fn handle_endpoints(&mut self, now: Time, endpoints: Endpoints) {
        self.at(now);
        if endpoints.preferred() == self.shared.config.node.endpoints.preferred() {
            self.shared.config.node.endpoints = endpoints;
            self.with_follow(Follow::tell_endpoints);
        }
    }

    /// This node is about to be replaced by another: its members look for that one at once, and need not wait
    /// until their connections prove dead.
    pub fn handle_departure(&mut self, now: Time) {
        self.at(now);
        self.lead.send_away(&mut self.shared);
    }

    /// Whether a round is going on, or the world has formed: then this node must not leave without need.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.ended
            || self.follow.as_ref().is_some_and(Follow::in_round)
            || !matches!(self.lead.phase, Phase::Gathering)
    }

    /// Whether any other node of the job was heard so far.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        !self.memory.is_empty()
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline => self.on_deadline(),
            Timer::Announce if self.gathers() => self.speak(),
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
            Timer::Ask => self.ask(),
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
            Timer::Seed => self.ask_seeds(),
        }
        for id in std::mem::take(&mut self.lead.thrown_out) {
            for conn in self.arrivals.evict(id) {
                self.shared.close(conn);
            }
            self.lead.remove(id, &self.arrivals, &mut self.shared);
        }
    }

    pub(super) fn with_follow(&mut self, act: impl FnOnce(&mut Follow, &mut Shared)) {
        if let Some(follow) = &mut self.follow {
            act(follow, &mut self.shared);
        }
    }

    /// What this node looks for has formed without it: only the next formation can have a place for it. It asks on,
    /// so that those who run look whether one of them is gone.
    fn step_down(&mut self) {
        if self.is_bound() || std::mem::replace(&mut self.formed_already, true) {
            return;
        }
        if self.follow.is_none() && self.announced {
            self.shared.event(Event::SteppedDown);
        }
        if let Some(follow) = self.follow.take() {
            self.leave(follow);
        }
        self.lead.resign();
        self.solicits.reset();
        self.shared.timers.set(Timer::Solicit, self.shared.now);
    }

    /// The job runs already.
    fn on_running(&mut self, from: SocketAddr) {
        if self.memory.running.replace(from).is_none() && self.follow.is_none() {
            self.shared.event(Event::Warning(Warning::AlreadyRunning { from }));
        }
    }

    fn on_message(&mut self, from: NodeId, source: SocketAddr, meant: Recipient, message: Message) {
        let is_leader = self.follow.as_ref().is_some_and(|follow| follow.leader.id == from);
        match message {
            Message::Announce(announce) if announce.candidate.id == from => {
                self.on_announce(&announce, source, meant);
            }
            Message::Solicit(solicit) => self.on_solicit(from, source, meant, &solicit),
            Message::Hint(introduction) => {
                if meant == Recipient::All {
                    self.hear_relay(&introduction.candidate);
                }
                self.on_candidate(&introduction.candidate, introduction.source, Learned::ByAnother);
            }
            Message::Join(join) => {
                self.memory.node(from, &join.node.host, source, join.node.rank.map(Rank::get));
                self.on_join(from, source, join);
            }
            Message::Running => {
                self.on_running(source);
                self.step_down();
            }
            Message::Ping => self.shared.send(source, from, &Message::Pong),
            Message::Pong => self.lead.on_pong(from, &mut self.shared),
            Message::Prove => {
                // In a world of more than that all may ask before their tokens come.
                let most = usize::try_from(self.shared.world())
                    .map_or(REMEMBERED, |world| REMEMBERED.max(2 * world));
                if self.askers.len() < most || self.askers.contains_key(&from) {
                    self.askers.insert(from, source);
                }
                if let Some(lease) = self.arrivals.lease(from) {
                    self.shared.send(source, from, &Message::Proved(lease));
                }
            }
            Message::Proved(dial) => {
                self.with_follow(|follow, shared| follow.on_proved(from, DialId(dial), shared));
                self.lead.on_proved(from, DialId(dial), &mut self.shared);
            }
            Message::Ready(ready) => self.lead.on_ready(from, source, &ready, &mut self.shared),
            Message::Unproved(round) => self.lead.on_unproved(from, source, round, &mut self.shared),
            Message::Done(round) => self.lead.on_done(from, round, &mut self.shared),
            Message::Want(want) => self.lead.on_want(from, source, &want, &mut self.shared),
            // The rest is the leader's to say.
            Message::Redirect(introduction) if is_leader => self.on_redirect(&introduction),
            Message::Refuse(refusal) if is_leader => self.on_refusal(refusal),
            Message::Welcome(welcome) if is_leader => {
                self.joining(|follow, shared| follow.on_welcome(&welcome, shared));
            }
            Message::Prepare(prepare) if is_leader => {
                if self.lead.overdue {
                    // Another round: the last has come to nothing, and no other begins for this node.
                    self.with_follow(|follow, shared| follow.outgrow(prepare.round, shared));
                    return;
                }
                self.joining(|follow, shared| follow.on_prepare(&prepare, shared));
            }
            Message::Part(part) if is_leader => {
                self.with_follow(|follow, shared| follow.on_part(part, shared));
            }
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
}
