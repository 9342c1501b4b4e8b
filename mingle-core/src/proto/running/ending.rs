//! The end of a world by a failure: all members must learn of it.

use std::net::SocketAddr;
use std::time::Duration;

use super::context::{Context, RunningTimer};
use super::unanswered::Unanswered;
use crate::model::{End, NodeId};
use crate::proto::report::Over;
use crate::wire::{Ended, Message};

/// How long a node keeps notifying the other members that the world is over. A member that has not answered
/// by then learns it from the next formation.
const NOTIFY: Duration = Duration::from_secs(1);
/// The same where no formation follows.
const NOTIFY_LAST: Duration = Duration::from_secs(15);

/// This node notifies the members that the world is over.
#[derive(Debug, Clone)]
pub(super) struct Notifying {
    over: Over,
    unaware: Unanswered,
}

impl Notifying {
    /// Notifies all members but one that is gone. `is_last`: no formation follows this one.
    pub(super) fn start(over: Over, is_last: bool, context: &mut Context) -> Self {
        let gone = over.rank.filter(|_| over.end == End::Gone);
        let unaware = context.members.others().filter(|member| Some(member.rank) != gone);
        let unaware = unaware.map(|member| member.id).collect();
        let patience = if is_last { NOTIFY_LAST } else { NOTIFY };
        context.set_after(RunningTimer::Over, Duration::ZERO);
        Self { over, unaware: Unanswered::new(unaware, context.now(), patience) }
    }

    /// A datagram of the next lineage shows that its sender knows.
    pub(super) fn heard(&mut self, sender: NodeId, source: SocketAddr, context: &Context) {
        self.unaware.answered(sender);
        // A node that takes part in the next formation already has another ID there.
        if let Some(member) = context.members.at(source) {
            self.unaware.answered(member);
        }
    }

    pub(super) fn all_know(&self) -> bool {
        self.unaware.is_empty()
    }

    pub(super) fn is_out_of_time(&self, context: &Context) -> bool {
        self.unaware.is_out_of_time(context.now())
    }

    /// Repeats the message to those that have not answered.
    pub(super) fn repeat(&mut self, context: &mut Context) {
        let begins_wave = self.unaware.begins_wave();
        let burst = self.unaware.burst(context, RunningTimer::Over);
        let rank = self.over.rank.unwrap_or(context.members.own_rank()).get();
        let message = Message::Over(Ended { rank, end: self.over.end });
        if begins_wave && !burst.is_empty() {
            // Once in each wave: some may be reached at another address than the one in the roster.
            context.multicast(&message);
        }
        context.send_to_members(&burst, &message);
    }
}
