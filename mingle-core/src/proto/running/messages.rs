//! Which part of a running world a datagram concerns.

use std::net::SocketAddr;

use super::liveness::Liveness;
use super::release::AwaitingRelease;
use super::{Change, RunningNode, State};
use crate::model::End;
use crate::model::{NodeId, Rank};
use crate::proto::report::Over;
use crate::proto::timer::Time;
use crate::wire::{Header, Message, Running, Suspicion};

/// So many members about tell a newcomer that their commands still stop.
const STOPPING: u32 = 8;

impl RunningNode {
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
        match message {
            Message::Query if !self.is_over() => {
                self.observers.on_query(header.sender, source, &mut self.context);
                return;
            }
            // Between an observer and others: no sign of life.
            Message::Query | Message::Status(_) => return,
            _ => {}
        }
        let own = self.lineage();
        let is_behind = header.lineage < own;
        if is_behind && message == Message::Leaving {
            self.watch.forget(header.sender, &mut self.context);
            self.settle();
            return;
        }
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
        self.lose(&over);
        self.end(header.lineage);
        self.watch.forget(header.sender, &mut self.context);
        self.changes.push_back(Change::Over(over));
        self.notified();
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
            Message::Look(_) | Message::Sight(_) | Message::Suspicion(_) if is_member => {
                self.on_watch_message(source, sender, &message) && !to_all
            }
            Message::Solicit(_) | Message::Announce(_) if is_newcomer && !self.is_over() => {
                self.on_newcomer(source, sender, to_all);
                false
            }
            // This node's command still stops. Of many that hear the question, some answer.
            Message::Solicit(_) if is_newcomer => !to_all || self.context.is_one_of(STOPPING),
            _ => false,
        };
        if wants_answer {
            self.context.send(source, sender, &Message::Pong);
            if is_check && is_member {
                self.liveness.others_check(self.context.now());
            }
        }
        self.heard(sender, source);
        self.release_if_finished();
    }

    /// A member watches its neighbours, and has lost one. Returns whether it wants an answer.
    fn on_watch_message(&mut self, source: SocketAddr, sender: NodeId, message: &Message) -> bool {
        let own = self.context.members.own_rank().get();
        match *message {
            Message::Sight(sight) => {
                let finding = self.watch.on_sight(sender, sight, &mut self.context);
                self.found(finding);
            }
            Message::Look(look) if !self.is_over() => {
                self.watch.looks.start(sender, source, look, &mut self.context);
            }
            Message::Suspicion(Suspicion { rank, is_over }) if !self.is_over() => {
                if is_over {
                    self.clear(Rank(rank));
                } else if rank != own {
                    self.suspect(Rank(rank));
                }
                return !is_over;
            }
            _ => {}
        }
        false
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
        if let Some(rank) = self.context.members.rank_of(sender) {
            self.clear(rank);
        }
        // In the next formation a member has another ID, and the same address. So has a new process in the
        // place of one that is gone, so this does not count as a sign of life.
        let finding = self.watch.heard(sender, &mut self.context);
        self.found(finding);
    }

    /// A node that is in no world asks who leads. It takes a dead member's seat, or it is one node too many.
    fn on_newcomer(&mut self, source: SocketAddr, sender: NodeId, to_all: bool) {
        if matches!(self.state, State::Releasing(_)) {
            return self.context.send(source, sender, &Message::Released);
        }
        // Of all that hear a multicast, rank 0 answers, which may be gone, and the member that checks.
        if !to_all || self.context.is_rank_0() || self.liveness.is_checking() {
            let (first, door) = (self.context.first_address(), self.newcomers.door(&self.context));
            self.context.send(source, sender, &Message::Running(Running { first, door }));
        }
        if self.context.is_rank_0() {
            self.newcomers.hear(sender, source, &mut self.context);
            if let Some(waiting) = self.newcomers.suffice_for_another_world(&self.context) {
                self.changes.push_back(Change::MaySplit { waiting });
            }
        }
        if self.may_check_for_newcomer() {
            Liveness::plan(&mut self.context);
        }
    }

    fn on_leaving(&mut self, sender: NodeId) {
        self.on_farewell(sender);
        if let State::Releasing(releasing) = &mut self.state {
            releasing.leaves(sender);
            if releasing.all_left() {
                self.finish();
            }
        }
    }
}
