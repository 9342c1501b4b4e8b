//! The newcomers that wait for a seat, as rank 0 knows them: it takes them in if the world may grow, and
//! tells them when all commands have ended well.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use super::RunningNode;
use super::context::{Context, RunningTimer};
use crate::model::NodeId;
use crate::proto::scale::UNANSWERED_COPIES;
use crate::proto::timer::Time;
use crate::wire::Message;

/// A newcomer that has been silent for this long waits no more: it asks about once a second.
const SILENT: Duration = Duration::from_secs(10);
/// The most newcomers that are remembered, since their IDs may be made up.
const MOST: usize = 64;

impl RunningNode {
    /// How many newcomers wait for a seat, as rank 0 knows it; 0 on every other rank.
    #[must_use]
    pub fn newcomers(&mut self, now: Time) -> u32 {
        self.context.at(now);
        self.newcomers.waiting(&self.context)
    }

    /// Tells the newcomers that wait, as rank 0 knows them, that no world follows this one, whether it is
    /// over or about to be.
    pub fn release_newcomers(&mut self, now: Time) {
        self.context.at(now);
        let lineage = self.lineage();
        // Newcomers believe the lineage of the world that they have heard of.
        self.context.set_lineage(self.formed);
        self.newcomers.release(&mut self.context);
        self.context.set_lineage(lineage);
    }
}

/// The newcomers that were heard last.
#[derive(Debug, Clone, Default)]
pub(super) struct Newcomers {
    waiting: BTreeMap<NodeId, Newcomer>,
    /// From when on the world may end to take them in; none if it never does.
    grows_from: Option<Time>,
    /// It was reported that they are enough for another world.
    have_sufficed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Newcomer {
    source: SocketAddr,
    since: Time,
    heard: Time,
    /// A connection from its address has arrived at the port for paths.
    has_arrived: bool,
}

impl Newcomers {
    /// From `from` on the world may end to take newcomers in.
    pub(super) fn set_growth(&mut self, from: Time, context: &mut Context) {
        self.grows_from = Some(from);
        self.schedule(context);
    }

    /// The port at which newcomers have to arrive, on rank 0 of a world that has room.
    pub(super) fn door(&self, context: &Context) -> Option<NonZeroU16> {
        self.grows_from.filter(|_| context.is_rank_0() && context.has_room())?;
        context.path_port()
    }

    /// A newcomer has asked who leads.
    pub(super) fn hear(&mut self, id: NodeId, source: SocketAddr, context: &mut Context) {
        self.forget_silent(context);
        let now = context.now();
        if self.waiting.len() >= MOST && !self.waiting.contains_key(&id) {
            return;
        }
        let new = Newcomer { source, since: now, heard: now, has_arrived: false };
        let newcomer = self.waiting.entry(id).or_insert(new);
        (newcomer.heard, newcomer.source) = (now, source);
    }

    /// A connection from this address has arrived at the port for paths.
    pub(super) fn arrive(&mut self, from: IpAddr, context: &mut Context) {
        for newcomer in self.waiting.values_mut() {
            newcomer.has_arrived |= newcomer.source.ip() == from;
        }
        self.schedule(context);
    }

    /// How many wait.
    pub(super) fn waiting(&self, context: &Context) -> u32 {
        let now = context.now();
        let waiting = self.waiting.values().filter(|newcomer| newcomer.heard + SILENT > now).count();
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// How many wait, once they are enough for a world beside this one.
    pub(super) fn suffice_for_another_world(&mut self, context: &Context) -> Option<u32> {
        let waiting = self.waiting(context);
        let suffice = context.may_split(waiting) && !std::mem::replace(&mut self.have_sufficed, true);
        suffice.then_some(waiting)
    }

    fn forget_silent(&mut self, context: &Context) {
        let now = context.now();
        self.waiting.retain(|_, newcomer| newcomer.heard + SILENT > now);
    }

    /// Sets the timer at which the first newcomer may be taken in.
    fn schedule(&self, context: &mut Context) {
        if let Some((stayed, from)) = self.stayed(context).zip(self.grows_from) {
            context.timers.set(RunningTimer::Grow, stayed.max(from));
        }
    }

    /// When a newcomer has stayed, if the world has room.
    fn stayed(&self, context: &Context) -> Option<Time> {
        let arrived = self.waiting.values().filter(|newcomer| newcomer.has_arrived && context.has_room());
        arrived.map(|newcomer| newcomer.since.saturating_add(context.last_call())).min()
    }

    /// Whether a newcomer that has arrived still asks.
    pub(super) fn may_grow(&mut self, context: &mut Context) -> bool {
        self.forget_silent(context);
        // The timer may have been set for one that is silent by now.
        self.schedule(context);
        self.stayed(context).is_some_and(|stayed| stayed <= context.now())
    }

    /// All commands have ended well: no seat will be free.
    pub(super) fn release(&mut self, context: &mut Context) {
        self.forget_silent(context);
        for _ in 0..UNANSWERED_COPIES {
            for (&id, newcomer) in &self.waiting {
                context.send(newcomer.source, id, &Message::Released);
            }
        }
    }
}
