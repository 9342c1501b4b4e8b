//! The end of a world whose commands all ended well: rank 0 counts them and then releases the nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::context::{Context, RunningTimer};
use super::unanswered::Unanswered;
use crate::model::NodeId;
use crate::proto::backoff::Backoff;
use crate::proto::scale::{RELEASE_REQUESTS, Scale};
use crate::proto::timer::Time;
use crate::wire::Message;

/// How long rank 0 repeats that all commands have ended well. A node that is stopped or cut off for longer
/// takes rank 0 for gone.
const RELEASE: Duration = Duration::from_secs(30);
/// The least silence after which a node that waits for its release takes rank 0 for gone: as long as rank 0
/// answers.
const SILENCE: Duration = RELEASE;
/// How often rank 0, when it waits for the others' commands, checks whether their nodes are still there.
const CHECK: Duration = Duration::from_secs(5);
/// How often a released node says `Leaving`, which nothing answers.
const LEAVING: usize = 6;

/// The members whose commands have ended well, as rank 0 knows them.
#[derive(Debug, Clone, Default)]
pub(super) struct Finished(BTreeSet<NodeId>);

impl Finished {
    pub(super) fn insert(&mut self, member: NodeId) {
        self.0.insert(member);
    }

    pub(super) fn are_all(&self, context: &Context) -> bool {
        self.0.len() == context.members.count()
    }

    /// The members whose commands still run.
    pub(super) fn running(&self, context: &Context) -> BTreeSet<NodeId> {
        context.members.other_ids().difference(&self.0).copied().collect()
    }
}

/// Plans rank 0's next check of the members whose commands still run.
pub(super) fn plan_check(context: &mut Context) {
    context.set_after(RunningTimer::CheckRunning, CHECK);
}

/// A node above rank 0, whose command has ended well, asks rank 0 for its release.
#[derive(Debug, Clone)]
pub(super) struct AwaitingRelease {
    repeats: Backoff,
    patience: Duration,
    /// When rank 0 was heard last.
    heard: Time,
}

impl AwaitingRelease {
    pub(super) fn new(context: &Context) -> Self {
        let patience = Scale(context.world()).release_silence(SILENCE);
        Self { repeats: Backoff::up_to(patience / RELEASE_REQUESTS), patience, heard: context.now() }
    }

    /// Asks rank 0. Returns false where rank 0 has been silent for too long and is gone.
    #[must_use]
    pub(super) fn ask(&mut self, context: &mut Context) -> bool {
        let next = context.next_repeat(&mut self.repeats);
        if context.now() >= self.heard + self.patience {
            return false;
        }
        context.timers.set(RunningTimer::Finished, next);
        let (id, address) = (context.members.first().id, context.members.first().address);
        context.send(address, id, &Message::Finished);
        true
    }

    pub(super) fn heard(&mut self, sender: NodeId, context: &Context) {
        if sender == context.members.first().id {
            self.heard = context.now();
        }
    }

    /// This process was stopped for so long, and has not read what rank 0 sent meanwhile.
    pub(super) fn forgive(&mut self, stopped: Duration) {
        self.heard += stopped;
    }

    /// Tells rank 0 that this node is released and leaves.
    pub(super) fn leave(rank_0: NodeId, source: SocketAddr, context: &mut Context) {
        for _ in 0..LEAVING {
            context.send(source, rank_0, &Message::Leaving);
        }
    }
}

/// Rank 0 releases the members: those that have not said that they leave.
#[derive(Debug, Clone)]
pub(super) struct Releasing(Unanswered);

impl Releasing {
    pub(super) fn start(context: &mut Context) -> Self {
        context.set_after(RunningTimer::Released, Duration::ZERO);
        Self(Unanswered::new(context.members.other_ids(), context.now(), RELEASE))
    }

    pub(super) fn leaves(&mut self, member: NodeId) {
        self.0.answered(member);
    }

    pub(super) fn all_left(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_out_of_time(&self, context: &Context) -> bool {
        self.0.is_out_of_time(context.now())
    }

    pub(super) fn repeat(&mut self, context: &mut Context) {
        let burst = self.0.burst(context, RunningTimer::Released);
        context.send_to_members(&burst, &Message::Released);
    }
}
