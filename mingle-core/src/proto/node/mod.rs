//! One node: each datagram, connection and timer goes to the part that it concerns.
//!
//! Here a datagram is decoded, and its recipient is checked. `messages` hands each message to a part, and
//! `sessions` each frame; `steps` has what concerns several parts, `ending` how a node ends.

mod absent;
mod ending;
mod memory;
mod messages;
#[cfg(feature = "testing")]
#[path = "../../../testing/node.rs"]
mod phase;
mod sessions;
mod steps;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use super::config::Config;
use super::follow::Follow;
use super::lead::Lead;
use super::output::{DialId, Output, PathNews};
use super::pause::was_stopped;
use super::prove::PathProofs;
use super::report::{Cause, Event, OtherJob, Tried, Warning};
use super::seek::Seek;
use super::shared::{Recipient, Shared};
use super::timer::{Time, Timer};
use crate::model::{Endpoints, NodeId};
use crate::wire::world::Contact;
use crate::wire::{Dropped, Message, PathTarget, Reach};
use memory::Memory;

/// How much longer others may be silent after this process was stopped past a timer.
const GRACE: Duration = Duration::from_secs(1);

/// A leader whose timer is this late was stopped for so long that members of its round may have given up: a
/// ready one waits for 10 s. A host that is merely busy is never so late.
const STOPPED: Duration = Duration::from_secs(5);

/// The protocol of a node, from its start to its end.
///
/// The caller owns time, sockets and randomness. It hands in each event, and after every call carries out
/// what [`Node::poll_output`] returns, until that is none.
#[derive(Debug, Clone)]
pub struct Node {
    shared: Shared,
    seek: Seek,
    lead: Lead,
    follow: Option<Follow>,
    memory: Memory,
    /// The job runs without this node: the process that leads, and where it accepts sessions.
    runs: Option<Contact>,
    ended: bool,
}

impl Node {
    /// A node that starts at `now`. The same configuration, seed and calls give the same outputs.
    pub fn new(config: Config, seed: u64, now: Time) -> Self {
        let mut shared = Shared::new(config, seed, now);
        let mut node = Self {
            seek: Seek::new(&mut shared),
            lead: Lead::new(&shared),
            follow: None,
            memory: Memory::default(),
            runs: None,
            ended: false,
            shared,
        };
        if let Some(timeout) = node.shared.config.timeout {
            node.shared.set_after(Timer::Deadline, timeout);
        }
        if node.shared.most() == 1 {
            // No other node must be found or reached.
            node.lead.start_round_if_full(&mut node.shared);
            node.lead.commit_if_ready(&mut node.shared);
            node.check_end();
        } else {
            node.seek.start(&mut node.shared);
            node.lead.begin_call(&mut node.shared);
        }
        node
    }

    /// The next instruction. Call this again after every other call, until it returns none.
    #[must_use = "what is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }

    /// When to call [`Node::handle_timeout`]. The time may change with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self.shared.timers.next().into_iter().chain(self.shared.links.poll_timeout()).min();
        next.filter(|_| !self.ended)
    }

    /// Whether the node has reported its end. Events that are handed in later have no effect.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether a round is under way, or the world has formed. Then this node must not leave without need.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.ended || self.follow.as_ref().is_some_and(Follow::in_round) || !self.lead.is_collecting()
    }

    /// Whether this node commits as its next step: then what its connections have to say is to be read first,
    /// since the end of one means that its member has gone.
    pub(crate) fn is_about_to_commit(&self) -> bool {
        self.lead.is_about_to_commit()
    }

    /// How many nodes are here, while this node leads and announces itself.
    pub(crate) fn advertised(&self) -> Option<u32> {
        (self.leads() && self.seek.announced).then_some(self.lead.book.seated)
    }

    /// The job runs without this node: the process that leads, and where it accepts sessions. For a node that
    /// [stands by](Config::stands_by), which waits there.
    pub(crate) fn runs(&self) -> Option<&Contact> {
        self.runs.as_ref()
    }

    /// What remains of a node whose world has formed: its configuration, its counters, and its random
    /// numbers.
    pub(crate) fn into_shared(self) -> Shared {
        self.shared
    }

    /// A datagram has arrived on the node's own port or for the node's group. The node drops datagrams of
    /// other jobs.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        self.at(now);
        if self.ended {
            return;
        }
        let (header, message) = match self.shared.codec.decode(bytes) {
            Ok(decoded) => decoded,
            Err(dropped) => {
                let warning = match dropped {
                    Dropped::Version(version) => self
                        .memory
                        .version(version, from)
                        .then_some(Warning::VersionDiffers { version, from }),
                    Dropped::Unauthentic => {
                        let from = from.ip();
                        let is_own = self.shared.config.node.is_at(from);
                        let is_news = self.memory.unauthentic(from, is_own, self.shared.now);
                        let has_secret = self.shared.config.keys.is_some();
                        is_news.then_some(Warning::SecretDiffers { from, has_secret })
                    }
                    _ => None,
                };
                if let Some(warning) = warning {
                    self.shared.event(Event::Warning(warning));
                }
                tracing::trace!(%from, length = bytes.len(), ?dropped, "datagram dropped");
                return;
            }
        };
        let recipient = match header.recipient {
            NodeId::ALL => Recipient::All,
            NodeId::ANYONE => Recipient::Anyone,
            id if id == self.shared.me() => Recipient::This,
            _ => return,
        };
        if header.sender == self.shared.me() {
            self.memory.hears_itself = true;
            return;
        }
        tracing::trace!(%from, sender = %header.sender, ?recipient, ?message, "heard");
        // To a running world.
        if message == Message::Query {
            return;
        }
        self.memory.hear(header.sender, self.shared.now);
        if recipient == Recipient::This && self.follows(header.sender) {
            self.with_follow(|follow, shared| follow.hear(from, shared));
        }
        self.on_message(header.sender, from, recipient, message);
        self.check_end();
    }

    /// Something has happened on a connection that proves a path. The connection has ended when it has
    /// arrived or failed.
    pub fn handle_path(&mut self, now: Time, dial: DialId, news: &PathNews) {
        self.at(now);
        if !self.ended && self.with_proofs(|proofs, shared| proofs.hear(dial, news, shared)) == Some(true) {
            self.all_proved();
        }
    }

    /// The part that answers when other nodes prove their paths to this node.
    #[must_use]
    pub fn path_target(&self) -> PathTarget {
        self.shared.codec.path_target(self.shared.me())
    }

    /// Time has passed. Early and repeated calls have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        self.at(now);
        for timer in [Timer::GiveUpLeader, Timer::StepDown] {
            // This process was stopped past the deadline, so silence is no evidence against the peers.
            if self.shared.timers.get(timer).is_some_and(|at| was_stopped(at, now)) {
                self.shared.set_after(timer, GRACE);
            }
        }
        while !self.ended
            && let Some(id) = self.shared.links.next_due(self.shared.now)
        {
            self.look_at(id);
        }
        while !self.ended
            && let Some(timer) = self.shared.timers.expire(self.shared.now)
        {
            self.on_timer(timer);
            self.close_expelled();
            self.check_end();
        }
    }

    /// The addresses of this host have changed. The preferred address, which orders candidates, must be the
    /// same: if it is gone, a new node takes the place of this node.
    pub fn handle_endpoints(&mut self, now: Time, endpoints: Endpoints, reach: Reach) {
        self.at(now);
        if !self.ended && endpoints.preferred() == self.shared.config.node.endpoints.preferred() {
            let node = &mut self.shared.config.node;
            (node.endpoints, node.reach) = (endpoints, reach);
            self.with_follow(|follow, shared| follow.say_join(None, shared));
        }
    }

    /// All addresses where other nodes may be: names resolve to other addresses as pods come and go. The node
    /// writes to new addresses at once.
    pub fn handle_seeds(&mut self, now: Time, seeds: Vec<SocketAddr>) {
        self.at(now);
        let own = &self.shared.config.node.endpoints;
        if !self.shared.seeds.replace(seeds, own) || self.ended {
            return;
        }
        self.shared.timers.set(Timer::AskSeeds, self.shared.now);
        if self.seeks() || self.leads() && self.seek.announced {
            self.seek.call_at_once(&mut self.shared);
        }
    }

    /// This node has waited for `after`, and looks for others by the means in `tried`. `jobs` form on the
    /// link beside its job; if it `multicasts` and has heard none of its own, this host drops them. The
    /// report names each of these jobs, or, where nodes of this job were heard, those that have the same size
    /// and no more nodes than are missing here, since their nodes may have been meant for this job. The user
    /// learns which nodes are here and, if this node is still alone, why it may be alone.
    pub(crate) fn handle_wait(
        &mut self,
        now: Time,
        after: Duration,
        tried: Tried,
        jobs: Vec<OtherJob>,
        multicasts: bool,
    ) {
        self.at(now);
        self.shared.config.tried = tried;
        (self.memory.jobs, self.memory.is_deaf) = (jobs, multicasts && !self.memory.hears_itself);
        let (is_silent, joined) = (self.memory.is_empty(), self.joined());
        // Where all are here, a round or a last call decides.
        if self.ended || (joined >= self.shared.config.world.min().get() && !is_silent) {
            return;
        }
        let is_alone = joined <= 1 && self.memory.most.joined <= 1;
        let report = self.memory.report_of(self.here(), &self.shared.config, self.shared.now);
        let is_news = match report.cause() {
            Cause::Incomplete | Cause::NobodyHeard => true,
            Cause::Unanswered | Cause::NobodyLeads => is_alone,
            // A warning of its own has said it.
            _ => false,
        };
        if is_news {
            self.shared.event(Event::Warning(Warning::Waiting { after, report: Box::new(report) }));
        }
    }

    /// Another node is about to replace this node. The members of this node look for the new node at once,
    /// and need not wait until their connections prove dead.
    pub fn handle_departure(&mut self, now: Time) {
        self.at(now);
        if !self.ended {
            self.lead.dismiss(&mut self.shared);
        }
    }

    fn at(&mut self, now: Time) {
        let due = self.poll_timeout().map(|due| due.max(self.shared.now));
        // A clock that steps back would make timers fire twice.
        self.shared.now = self.shared.now.max(now);
        let Some(due) = due.filter(|due| was_stopped(*due, now)) else { return };
        let stopped = now.saturating_sub(due);
        self.shared.links.forgive(stopped);
        if stopped > STOPPED {
            // Before anything is read: what members said before the pause may not hold any more.
            self.lead.void_after_stop(&mut self.shared);
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline => {
                self.end_call();
                // Once the time is up, the timer is that of the stay.
                self.on_deadline(self.lead.overdue);
            }
            Timer::Call => self.call(),
            Timer::Dial => _ = self.with_proofs(PathProofs::advance),
            Timer::GiveUpLeader => self.give_up_or_end(),
            Timer::ProofFailed => {
                self.with_follow(Follow::proof_failed);
                self.lead.proof_failed(&mut self.shared);
            }
            Timer::Round => self.lead.go_on(&mut self.shared),
            Timer::Challenge => self.lead.end_challenges(&mut self.shared),
            Timer::StepDown => self.step_down_if_unreached(),
            Timer::Welcome => self.lead.welcome_all(&mut self.shared),
            Timer::AskSeeds => Seek::ask_seeds(self.follow.as_ref(), &mut self.shared),
            Timer::LastCall => self.on_last_call(),
        }
    }

    fn with_follow(&mut self, act: impl FnOnce(&mut Follow, &mut Shared)) {
        if let Some(follow) = &mut self.follow {
            act(follow, &mut self.shared);
        }
    }

    /// Passes this node's proofs in the round under way to `act`, those of a member or of the leader. A
    /// candidate that follows another has no round of its own.
    fn with_proofs<T>(&mut self, act: impl FnOnce(&mut PathProofs, &mut Shared) -> T) -> Option<T> {
        let of_member = self.follow.as_mut().and_then(Follow::proofs);
        let proofs = of_member.or_else(|| self.lead.proofs())?;
        Some(act(proofs, &mut self.shared))
    }
}
