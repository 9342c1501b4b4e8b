//! A running world: the messages of its nodes while their commands run, so that all nodes start again when
//! one fails.
//!
//! The nodes have no TCP connections any more, because the port belongs to the job. They send datagrams only,
//! and none while nothing happens.
//!
//! ```text
//! a command fails           its node notifies all others (Over), and they stop their commands: `ending`
//! a newcomer asks           a member pings all others; one that does not answer in 8 s is gone, and the
//!                           world is over as above: `liveness`
//! a command ends well       its node asks rank 0 for its release (Finished); rank 0 releases all nodes
//!                           (Released) when every node has asked: `release`
//! ```
//!
//! `Over` carries the lineage of the formation that follows. So does every datagram of a node that takes part
//! in that formation, so each of them ends the world for a node that has missed the others.

mod context;
mod ending;
mod liveness;
mod members;
#[cfg(feature = "testing")]
mod phase;
mod release;
#[cfg(test)]
mod tests;
mod unanswered;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::Output;
use super::node::Node;
use super::pause::was_stopped;
use super::report::{Formed, Over};
use super::timer::Time;
use crate::model::{End, Lineage, NodeId, Rank};
use crate::wire::{Header, Message};
use context::{Context, Timer};
use ending::Notifying;
use liveness::Liveness;
use members::Members;
use release::{AwaitingRelease, Finished, Releasing};

/// What has changed for a running world.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The world is over, and not by this node's own command: its command must stop. This node may still have
    /// to notify the others, until [`Change::Notified`].
    Over(Over),
    /// Every other member has learned that the world is over, or the time for that has passed.
    Notified,
    /// Every node's command has ended well.
    Finished,
}

/// One node of a formed world whose commands run. Made by [`Node::into_running`], and driven like a [`Node`].
#[derive(Debug, Clone)]
pub struct RunningWorld {
    context: Context,
    state: State,
    liveness: Liveness,
    finished: Finished,
    /// No formation follows this one.
    is_last: bool,
    changes: VecDeque<Change>,
}

#[derive(Debug, Clone)]
enum State {
    /// The command runs.
    Running,
    /// Rank 0: its command has ended well, and others' still run.
    AwaitingOthers,
    /// A rank above 0: its command has ended well, and rank 0 has not released it.
    AwaitingRelease(AwaitingRelease),
    /// Rank 0: all commands have ended well.
    Releasing(Releasing),
    /// The world is over, and this node notifies the others.
    Notifying(Notifying),
    /// This node sends nothing of its own accord.
    Ended,
}

impl Node {
    /// Goes on as a member of the world that has formed. Returns nothing where the roster was not asked for.
    ///
    /// Call it after the node's [`Formed`] event. In a job with a secret the datagrams' counters go on, so
    /// that none is used twice.
    pub fn into_running(self, formed: &Formed) -> Option<RunningWorld> {
        let mut context = Context::new(self.into_shared(), Members::new(formed)?);
        context.set_lineage(context.lineage().formed(formed.digest));
        Some(RunningWorld {
            context,
            state: State::Running,
            liveness: Liveness::default(),
            finished: Finished::default(),
            is_last: false,
            changes: VecDeque::new(),
        })
    }
}

impl RunningWorld {
    /// The formation of the job that this world is; once the world is over, the formation that comes next.
    pub fn lineage(&self) -> Lineage {
        self.context.lineage()
    }

    /// The addresses of the other members when the world formed. They are seeds for the next formation.
    pub fn others(&self) -> Vec<SocketAddr> {
        self.context.members.others().map(|member| member.address).collect()
    }

    /// What to do next, in order: [`Output::Send`] and [`Output::Multicast`] alone.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.context.next_output()
    }

    /// What has changed, in order.
    #[must_use = "each change is returned once"]
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When to call [`RunningWorld::handle_timeout`]. Changes with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.context.timers.next()
    }

    /// Whether no formation will follow this one. If so this node notifies the others for up to 15 s instead
    /// of 1 s when the world is over, because no later formation would do it.
    pub fn set_last(&mut self, is_last: bool) {
        self.is_last = is_last;
    }

    /// This node's command has failed, or the node leaves: the world is over, and all others are notified.
    pub fn handle_failure(&mut self, now: Time, end: End) {
        self.context.at(now);
        if !self.is_over() {
            let own = self.context.members.own_rank();
            self.notify(self.context.members.over(own, end));
        }
    }

    /// This node's command has ended well. The node stays until all others' commands have, too, because it
    /// may have to start again.
    pub fn handle_success(&mut self, now: Time) {
        self.context.at(now);
        if !matches!(self.state, State::Running) {
            return;
        }
        self.finished.insert(self.context.own_id());
        if self.context.is_rank_0() {
            self.state = State::AwaitingOthers;
            release::plan_check(&mut self.context);
            self.release_if_finished();
        } else {
            self.state = State::AwaitingRelease(AwaitingRelease::new(&self.context));
            self.ask_for_release();
        }
    }

    /// A datagram from `source` has arrived on the node's own port or for its group.
    pub fn handle_datagram(&mut self, now: Time, source: SocketAddr, datagram: &[u8]) {
        self.context.at(now);
        let Ok((header, message)) = self.context.decode(datagram) else { return };
        let own_id = self.context.own_id();
        let to_all = header.recipient == NodeId::ALL;
        let is_recipient = to_all || header.recipient == NodeId::ANYONE || header.recipient == own_id;
        if !is_recipient || header.sender == own_id {
            return;
        }
        tracing::trace!(from = %source, sender = %header.sender, ?message, "heard");
        let own = self.lineage();
        let is_behind = header.lineage < own;
        // Once all commands have ended well, a later lineage comes from a node that missed it: ignore it.
        let follows = !self.is_over() && !matches!(self.state, State::Releasing(_));
        if header.lineage == own {
            self.on_message(source, header.sender, to_all, message);
        } else if header.lineage.succeeds(own) && follows {
            self.on_next_formation(source, header, &message);
        } else if is_behind && self.is_over() {
            // The sender looks for the others, or asks whether the next formation is real. The lineage of any
            // datagram answers both.
            if self.is_from_newcomer(header.sender, &message) || header.recipient == own_id {
                self.context.send(source, header.sender, &Message::Pong);
            }
        } else if is_behind && self.is_from_newcomer(header.sender, &message) {
            self.on_newcomer(source, header.sender, to_all);
        }
    }

    /// Time has passed. Early and repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.context.at(now);
        let now = self.context.now();
        if let Some(due) = self.context.timers.next().filter(|&due| was_stopped(due, now)) {
            self.forgive(now.saturating_sub(due));
        }
        while let Some(timer) = self.context.timers.expire(now) {
            match timer {
                Timer::Finished => self.ask_for_release(),
                Timer::CheckRunning => self.check_running(),
                Timer::Ping => self.ping(),
                Timer::Over => self.repeat_over(),
                Timer::Released => self.repeat_released(),
                Timer::CheckForNewcomer => self.check_for_newcomer(),
            }
        }
    }

    fn forgive(&mut self, stopped: Duration) {
        self.liveness.forgive(stopped);
        if let State::AwaitingRelease(awaiting) = &mut self.state {
            awaiting.forgive(stopped);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Notifying(_) | State::Ended)
    }

    fn is_from_newcomer(&self, sender: NodeId, message: &Message) -> bool {
        matches!(message, Message::Solicit(_) | Message::Announce(_))
            && !self.context.members.contains(sender)
    }

    /// A datagram of a later formation: the world is over, whatever the message.
    fn on_next_formation(&mut self, source: SocketAddr, header: Header, message: &Message) {
        let over = match message {
            Message::Over(ended) if ended.rank < self.context.world() => {
                self.context.members.over(Rank(ended.rank), ended.end)
            }
            _ => Over { rank: None, peer: None, end: End::Unknown },
        };
        self.end(header.lineage);
        self.changes.push_back(Change::Over(over));
        self.changes.push_back(Change::Notified);
        self.context.send(source, header.sender, &Message::Pong);
    }

    /// A message of this world, or, once it is over, of the next formation.
    fn on_message(&mut self, source: SocketAddr, sender: NodeId, to_all: bool, message: Message) {
        let is_member = self.context.members.contains(sender);
        let is_check = matches!(message, Message::Ping | Message::Missing(_));
        let is_newcomer = self.is_from_newcomer(sender, &message);
        let wants_answer = match message {
            Message::Ping => true,
            Message::Missing(ranks) => is_member && ranks.contains(&self.context.members.own_rank().get()),
            Message::Over(_) if self.is_over() => {
                // Where several nodes notify all, the lowest rank goes on alone.
                let own = self.context.members.own_rank();
                if self.context.members.rank_of(sender).is_some_and(|rank| rank < own) {
                    self.stop_notifying();
                }
                !to_all
            }
            Message::Finished if matches!(self.state, State::Releasing(_)) => {
                self.context.send(source, sender, &Message::Released);
                false
            }
            Message::Finished if self.context.is_rank_0() && is_member => {
                self.finished.insert(sender);
                true
            }
            Message::Released
                if matches!(self.state, State::AwaitingRelease(_))
                    && sender == self.context.members.first().id =>
            {
                AwaitingRelease::leave(sender, source, &mut self.context);
                self.finish();
                return;
            }
            Message::Leaving => {
                self.on_leaving(sender);
                return;
            }
            Message::Solicit(_) | Message::Announce(_) if is_newcomer && !self.is_over() => {
                self.on_newcomer(source, sender, to_all);
                false
            }
            _ => false,
        };
        if wants_answer {
            self.context.send(source, sender, &Message::Pong);
            if is_check && is_member && !self.is_over() {
                self.liveness.others_check(self.context.now());
            }
        }
        self.heard(sender, source);
        self.release_if_finished();
    }

    /// The sender is there, and knows the lineage that this node has.
    fn heard(&mut self, sender: NodeId, source: SocketAddr) {
        match &mut self.state {
            State::Notifying(notifying) => {
                notifying.heard(sender, source, &self.context);
                if notifying.all_know() {
                    self.stop_notifying();
                }
            }
            State::AwaitingRelease(awaiting) => awaiting.heard(sender, &self.context),
            // A released node is known to leave by `Leaving` alone.
            State::Running | State::AwaitingOthers | State::Releasing(_) | State::Ended => {}
        }
        self.liveness.heard(sender, &mut self.context);
    }

    /// A node that is in no world asks who leads. It takes a dead member's seat, or it is one node too many.
    fn on_newcomer(&mut self, source: SocketAddr, sender: NodeId, to_all: bool) {
        // Of all that hear a multicast, rank 0 answers, which may be gone, and the member that checks.
        if !to_all || self.context.is_rank_0() || self.liveness.is_checking() {
            self.context.send(source, sender, &Message::Running);
        }
        if self.may_check_for_newcomer() {
            Liveness::plan(&mut self.context);
        }
    }

    fn may_check_for_newcomer(&self) -> bool {
        let runs = matches!(self.state, State::Running | State::AwaitingOthers | State::AwaitingRelease(_));
        runs && self.liveness.may_check_for_newcomer(self.context.now())
    }

    fn check_for_newcomer(&mut self) {
        if self.may_check_for_newcomer() {
            self.liveness.start(self.context.members.other_ids(), &mut self.context);
        }
    }

    /// Rank 0 looks for the members whose commands still run. Its timer is stopped when it waits no more.
    fn check_running(&mut self) {
        release::plan_check(&mut self.context);
        if !self.liveness.is_checking() {
            self.liveness.start(self.finished.running(&self.context), &mut self.context);
        }
    }

    fn ping(&mut self) {
        match self.liveness.find_gone(&self.context) {
            Some(rank) => self.member_is_gone(rank),
            None => self.liveness.ping(&mut self.context),
        }
    }

    fn member_is_gone(&mut self, rank: Rank) {
        let over = self.context.members.over(rank, End::Gone);
        self.notify(over.clone());
        // First of all, although `notify` may already have had no member to notify: the command must stop.
        self.changes.push_front(Change::Over(over));
    }

    /// The world is over, and all others must know.
    fn notify(&mut self, over: Over) {
        let own = self.lineage();
        self.end(own.next().unwrap_or(own));
        let notifying = Notifying::start(over, self.is_last, &mut self.context);
        let all_know = notifying.all_know();
        self.state = State::Notifying(notifying);
        if all_know {
            self.stop_notifying();
        }
    }

    fn repeat_over(&mut self) {
        let State::Notifying(notifying) = &mut self.state else { return };
        if notifying.is_out_of_time(&self.context) {
            self.stop_notifying();
        } else {
            notifying.repeat(&mut self.context);
        }
    }

    fn stop_notifying(&mut self) {
        if !matches!(self.state, State::Ended) {
            self.state = State::Ended;
            self.context.timers.stop(Timer::Over);
            self.changes.push_back(Change::Notified);
        }
    }

    fn ask_for_release(&mut self) {
        if let State::AwaitingRelease(awaiting) = &mut self.state
            && !awaiting.ask(&mut self.context)
        {
            self.member_is_gone(self.context.members.first().rank);
        }
    }

    fn release_if_finished(&mut self) {
        if !matches!(self.state, State::AwaitingOthers) || !self.finished.are_all(&self.context) {
            return;
        }
        self.liveness.stop(&mut self.context);
        self.context.timers.stop(Timer::CheckRunning);
        if self.context.members.count() == 1 {
            self.finish();
        } else {
            self.state = State::Releasing(Releasing::start(&mut self.context));
        }
    }

    fn repeat_released(&mut self) {
        let State::Releasing(releasing) = &mut self.state else { return };
        if releasing.is_out_of_time(&self.context) {
            // A member that cannot be released is not waited for.
            self.finish();
        } else {
            releasing.repeat(&mut self.context);
        }
    }

    fn on_leaving(&mut self, sender: NodeId) {
        if let State::Releasing(releasing) = &mut self.state {
            releasing.leaves(sender);
            if releasing.all_left() {
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        self.state = State::Ended;
        self.context.stop_all_timers();
        self.changes.push_back(Change::Finished);
    }

    /// Stops everything; this node's next datagram is one of the `next` formation.
    fn end(&mut self, next: Lineage) {
        self.context.set_lineage(next);
        self.liveness.stop(&mut self.context);
        self.context.stop_all_timers();
        self.state = State::Ended;
    }
}
