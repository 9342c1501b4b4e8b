//! The answers to observers of a running world.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::context::{Context, RunningTimer};
use crate::model::NodeId;
use crate::proto::scale::Scale;
use crate::proto::timer::Time;
use crate::wire::{Message, Status};

/// The most hosts whose observers are answered at once, one on each.
const OBSERVERS: usize = 4;
/// The least time between two answers: anybody can ask.
const PAUSE: Duration = Duration::from_millis(250);
/// Each rank answers a node's part of a turn after the rank below it, so that an observer can read all
/// answers. Later ranks than this begin anew: an observer asks again each second.
const LAST_TURN: u32 = 16_384;

/// The observers that wait for an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Observers {
    waiting: BTreeMap<IpAddr, (NodeId, SocketAddr)>,
    /// When the next answer may be sent.
    next: Time,
}

impl Observers {
    /// Plans an answer.
    pub(super) fn on_query(&mut self, observer: NodeId, source: SocketAddr, context: &mut Context) {
        if self.waiting.len() < OBSERVERS {
            self.waiting.insert(source.ip(), (observer, source));
            let turn = context.now() + Scale(context.members.own_rank().get() % LAST_TURN).turn();
            context.timers.set_earlier(RunningTimer::Status, turn.max(self.next));
        }
    }

    /// Answers all that have asked.
    pub(super) fn answer(&mut self, status: Status, context: &mut Context) {
        self.next = context.now() + PAUSE;
        let status = Message::Status(status);
        for (observer, source) in std::mem::take(&mut self.waiting).into_values() {
            context.send(source, observer, &status);
        }
    }
}
