//! The time is up for a node whose world may have one of several sizes: if enough nodes are here, the world
//! forms with those.

use std::time::Duration;

use super::Node;
use crate::model::NodeId;
use crate::proto::timer::{Time, Timer};

/// How long a member waits for the round that it has asked for, and for the next one after a round that was
/// void.
const ROUND: Duration = Duration::from_secs(3);
/// How long it stays in all, unless it is ready by then: a round takes 15 s at most.
const LONGEST: Duration = Duration::from_secs(20);
/// Between two questions for a round.
const AGAIN: Duration = Duration::from_millis(250);
/// How often a leader looks whether all of its seeds have been asked, when its call could be over.
const LOOK: Duration = Duration::from_millis(250);

/// The time after the deadline of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overtime {
    since: Time,
    /// When the member was last in a round.
    in_round: Time,
}

impl Node {
    /// The last call may be over: the nodes that are here form the world.
    pub(super) fn on_last_call(&mut self) {
        if self.lead.call_goes_on(&mut self.shared) {
            return;
        }
        if self.leads() && self.seek.has_searched(&self.shared) {
            self.end_call();
        } else {
            self.shared.set_after(Timer::LastCall, LOOK);
        }
    }

    /// A member's time is up: forms the world with those who are here.
    pub(super) fn on_enough(&mut self, from: NodeId) {
        if self.leads() && self.lead.has_member(from) {
            self.end_call();
        }
    }

    fn end_call(&mut self) {
        self.lead.end_call(&mut self.shared);
        // A world of one has nobody to wait for.
        self.lead.commit_if_ready(&mut self.shared);
    }

    /// The time is up. Returns whether this node stays as a member, because its leader may still form a world
    /// with those who are here. A leader begins a round at once, if they are enough.
    pub(super) fn stays_for_round(&mut self) -> bool {
        if !self.shared.config.world.is_range() {
            return false;
        }
        let now = self.shared.now;
        let is_first = self.overtime.is_none();
        let overtime = self.overtime.get_or_insert(Overtime { since: now, in_round: now });
        let Some(follow) = self.follow.as_mut().filter(|follow| follow.is_joined()) else {
            if is_first && self.leads() {
                self.end_call();
            }
            return false;
        };
        if follow.in_round() {
            overtime.in_round = now;
        }
        let least = self.shared.config.world.min().get();
        let are_few = follow.progress().is_some_and(|progress| progress.joined < least);
        let is_over = now >= overtime.since + LONGEST || now >= overtime.in_round + ROUND;
        if is_over || (are_few && !follow.in_round()) {
            // A round that this node is ready for goes on to its end in any case.
            return false;
        }
        if follow.waits() {
            follow.want_world(&mut self.shared);
        }
        self.shared.set_after(Timer::Deadline, AGAIN);
        true
    }
}

impl Node {
    /// The driver has looked up every seed once, and has read the shared folder once or had no answer from
    /// it.
    pub fn handle_searched(&mut self, now: Time) {
        self.at(now);
        self.seek.set_searched(&self.shared);
    }
}
