//! Whether this node's neighbours, the nodes of the next and the previous rank, are still there.
//!
//! A node holds a connection to each neighbour's port for paths. It carries one byte. The kernels of both
//! hosts keep it alive, also for a process that is stopped, and close it for one that is killed. Its end
//! proves nothing. It is the reason to *doubt* the neighbour: to connect again, to ping it, and to ask other
//! members whether they reach it.
//!
//! ```text
//! a connection opens                     wait for its byte; the doubt goes on if it ends before
//! it answers                             it is there; connect again later
//! another member reaches it              only this pair is broken; ask again later
//! it closed the connection, its port     gone, after [`QUICK`]
//!   refuses others, and it is silent
//! it is silent                           suspected after [`SUSPECT`], and gone after `gone_after` if most
//!                                        members answer and it does not
//! ```
//!
//! In a world of four or more, nobody is gone by the word of one node: two other members must have failed to
//! reach it, and none has reached it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use rand::seq::SliceRandom;

use super::context::{Context, RunningTimer};
use super::looks::Looks;
use super::unanswered::Unanswered;
use crate::model::{NodeId, Rank};
use crate::proto::output::{DialId, WatchNews};
use crate::proto::timer::Time;
use crate::wire::{Look, Message, Partner, Sight, Suspicion};

/// A member that has closed the connection, and whose port refuses others, is gone after so much silence.
const QUICK: Duration = Duration::from_millis(500);
/// A member that is silent for this long after its connection has ended is suspected.
const SUSPECT: Duration = Duration::from_secs(1);
/// How often a neighbour in doubt is tried: in the first second, and later.
const HASTY: Duration = Duration::from_millis(100);
const REPEAT: Duration = Duration::from_secs(1);
/// A connection that ends sooner, before its byte has come, was accepted by a sidecar for a process that is
/// gone. One that ends later was accepted by the kernel of a process that is stopped.
const SIDECAR: Duration = Duration::from_secs(10);
/// When a neighbour that others reach is tried again.
const LATER: Duration = Duration::from_secs(5);
/// How long it takes at most to decide whether such a member is gone.
const DECISION: Duration = Duration::from_millis(800);
/// The most connections to one neighbour that are being opened.
const OPENING: usize = 4;
/// From this size on, other members must have failed to reach a member that is gone.
const LARGE: usize = 4;
/// How many of them.
const HELPERS: usize = 2;
/// How long members have to answer when it is counted how many are there.
const COUNT: Duration = Duration::from_secs(8);
/// How often they are counted again where most do not answer.
const COUNT_AGAIN: Duration = Duration::from_secs(60);
/// How often a node whose world is over tells its neighbours so. Nothing answers that.
const LEAVING: usize = 6;

/// Something that the watch has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchFinding {
    /// The member does not answer. It is gone if that goes on.
    Suspected(Rank),
    /// The member that was suspected is there.
    Back(Rank),
    /// The member is gone.
    Gone(Rank),
    /// No other member answers, or so few that this node may be the one that is cut off.
    CutOff,
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    neighbours: Vec<Neighbour>,
    /// The members that may watch this node.
    watchers: Vec<NodeId>,
    /// Since when the world is over.
    over: Option<Time>,
    pub(super) looks: Looks,
}

#[derive(Debug, Clone)]
pub(super) struct Neighbour {
    rank: Rank,
    pub(super) id: NodeId,
    path: SocketAddr,
    /// The connections that are being opened, oldest first.
    opening: Vec<DialId>,
    open: Option<DialId>,
    /// Whether a connection has ever opened.
    was_open: bool,
    doubt: Option<Doubt>,
}

#[derive(Debug, Clone)]
struct Doubt {
    since: Time,
    next: Time,
    /// Since when a connection is open on which nobody has greeted yet.
    opened: Option<Time>,
    /// The neighbour's kernel has closed the connection.
    closed: bool,
    /// Its kernel refuses others.
    refused: bool,
    /// The other members in the order in which they are asked.
    helpers: Vec<NodeId>,
    /// Those that were asked, and those of them that have tried in vain.
    asked: BTreeSet<NodeId>,
    failed: BTreeSet<NodeId>,
    is_suspected: bool,
    count_from: Time,
    count: Option<Unanswered>,
}

impl Watch {
    /// Opens the connections to these members. `neighbours` are those to which this node has proved its path.
    pub(super) fn start(neighbours: &[Partner], context: &mut Context) -> Self {
        let ranks = context.members.own_rank().neighbours(context.world());
        let mut watched: Vec<Neighbour> = Vec::new();
        for partner in neighbours {
            let is_known = watched.iter().any(|known| known.id == partner.id);
            // A port for paths that is the node's own belongs to the job.
            let has_port = partner.path.port() != partner.own_port;
            if has_port
                && partner.stays
                && ranks.contains(&Rank(partner.rank))
                && context.members.contains(partner.id)
                && !is_known
            {
                watched.push(Neighbour::new(Rank(partner.rank), partner.id, partner.path));
            }
        }
        for neighbour in &mut watched {
            neighbour.dial(context);
        }
        let watchers = ranks.into_iter().filter_map(|rank| context.members.id_of(rank));
        let watchers = watchers.filter(|&id| id != context.own_id()).collect();
        Self { neighbours: watched, watchers, over: None, looks: Looks::default() }
    }

    /// Something has happened on a connection.
    pub(super) fn hear(
        &mut self,
        dial: DialId,
        news: WatchNews,
        context: &mut Context,
    ) -> Option<WatchFinding> {
        self.looks.hear(dial, news, context);
        let neighbour = self.neighbours.iter_mut().find(|neighbour| neighbour.has(dial))?;
        let finding = neighbour.hear(dial, news, context);
        self.plan(context);
        finding
    }

    /// A member was heard.
    pub(super) fn heard(&mut self, member: NodeId, context: &mut Context) -> Option<WatchFinding> {
        for count in self.neighbours.iter_mut().filter_map(|n| n.doubt.as_mut()?.count.as_mut()) {
            count.answered(member);
        }
        let neighbour = self.neighbours.iter_mut().find(|neighbour| neighbour.id == member)?;
        let finding = neighbour.put_off(REPEAT, context);
        if self.over.is_some() {
            self.forget(member, context);
        }
        self.plan(context);
        finding
    }

    /// Another member has tried to reach a neighbour.
    pub(super) fn on_sight(
        &mut self,
        from: NodeId,
        sight: Sight,
        context: &mut Context,
    ) -> Option<WatchFinding> {
        let now = context.now();
        let neighbour = self.neighbours.iter_mut().find(|neighbour| neighbour.rank.get() == sight.rank)?;
        let doubt = neighbour.doubt.as_mut().filter(|doubt| doubt.asked.contains(&from))?;
        if !sight.reached {
            if doubt.failed.insert(from) {
                doubt.next = now;
                self.plan(context);
            }
            return None;
        }
        // Only this pair is broken.
        neighbour.put_off(LATER, context)
    }

    /// Tries the neighbours that are in doubt.
    pub(super) fn advance(&mut self, context: &mut Context) -> Option<WatchFinding> {
        let gone_after = self.over.is_none().then_some(context.gone_after());
        let finding = self.neighbours.iter_mut().find_map(|neighbour| neighbour.advance(gone_after, context));
        self.plan(context);
        finding
    }

    /// Asks the members that have not answered while it is counted how many are there.
    pub(super) fn count(&mut self, context: &mut Context) {
        for neighbour in &mut self.neighbours {
            let rank = neighbour.rank.get();
            let doubt = neighbour.doubt.as_mut().filter(|doubt| doubt.opened.is_none());
            if let Some(count) = doubt.and_then(|doubt| doubt.count.as_mut()) {
                let burst = count.burst(context, RunningTimer::Count);
                context.send_to_members(&burst, &Message::Suspicion(Suspicion { rank, is_over: false }));
            }
        }
    }

    /// Whether it will be clear in a moment whether a neighbour is gone: it has closed its connection, or it
    /// has not said yet that it leaves a world that has just ended.
    pub(super) fn is_deciding(&self, now: Time) -> bool {
        let has_just_ended = self.over.is_some_and(|over| now < over + DECISION);
        self.neighbours.iter().any(|neighbour| has_just_ended || neighbour.is_deciding(now))
    }

    /// The neighbours learn that this node watches them no more, and its connections may close.
    pub(super) fn farewell(&self, context: &mut Context) {
        for _ in 0..LEAVING {
            context.send_to_members(&self.watchers, &Message::Leaving);
        }
    }

    /// This member's world is over, so its connections may close. Returns it, if it was watched.
    pub(super) fn forget(&mut self, member: NodeId, context: &mut Context) -> Option<Neighbour> {
        let at = self.neighbours.iter().position(|neighbour| neighbour.id == member)?;
        let neighbour = self.neighbours.remove(at);
        let forgotten = Neighbour::new(neighbour.rank, neighbour.id, neighbour.path);
        neighbour.hang_up(context);
        self.plan(context);
        Some(forgotten)
    }

    /// A neighbour that was forgotten is watched again.
    pub(super) fn resume(&mut self, mut neighbour: Neighbour, context: &mut Context) {
        neighbour.dial(context);
        self.neighbours.push(neighbour);
    }

    /// The world is over: what is gone now is its cause, but nobody is suspected any more.
    pub(super) fn world_is_over(&mut self, context: &mut Context) {
        self.over = Some(context.now());
        for doubt in self.neighbours.iter_mut().filter_map(|neighbour| neighbour.doubt.as_mut()) {
            (doubt.is_suspected, doubt.count) = (false, None);
        }
        self.plan(context);
    }

    /// This process was stopped for so long, and has not read what the members sent meanwhile.
    pub(super) fn forgive(&mut self, stopped: Duration) {
        for doubt in self.neighbours.iter_mut().filter_map(|neighbour| neighbour.doubt.as_mut()) {
            doubt.since += stopped;
            doubt.failed.clear();
            if let Some(count) = &mut doubt.count {
                count.extend(stopped);
            }
        }
    }

    /// Closes all connections.
    pub(super) fn stop(&mut self, context: &mut Context) {
        for neighbour in self.neighbours.drain(..) {
            neighbour.hang_up(context);
        }
        self.looks.stop(context);
        context.timers.stop(RunningTimer::Watch);
        context.timers.stop(RunningTimer::Count);
    }

    fn plan(&self, context: &mut Context) {
        let decided = self.over.map(|over| over + DECISION).filter(|&at| at > context.now());
        let decided = decided.filter(|_| !self.neighbours.is_empty());
        match self.neighbours.iter().filter_map(Neighbour::next).chain(decided).min() {
            Some(next) => context.timers.set(RunningTimer::Watch, next),
            None => context.timers.stop(RunningTimer::Watch),
        }
    }
}

impl Neighbour {
    fn new(rank: Rank, id: NodeId, path: SocketAddr) -> Self {
        Self { rank, id, path, opening: Vec::new(), open: None, was_open: false, doubt: None }
    }

    fn hang_up(self, context: &mut Context) {
        for dial in self.opening.into_iter().chain(self.open) {
            context.hang_up(dial);
        }
    }

    fn has(&self, dial: DialId) -> bool {
        self.open == Some(dial) || self.opening.contains(&dial)
    }

    fn dial(&mut self, context: &mut Context) {
        if self.opening.len() >= OPENING {
            context.hang_up(self.opening.remove(0));
        }
        self.opening.push(context.watch(self.path));
    }

    fn hear(&mut self, dial: DialId, news: WatchNews, context: &mut Context) -> Option<WatchFinding> {
        match news {
            WatchNews::Opened => {
                self.opening.retain(|opening| *opening != dial);
                self.was_open = true;
                if let Some(other) = self.open.replace(dial) {
                    context.hang_up(other);
                }
                for other in self.opening.drain(..) {
                    context.hang_up(other);
                }
                if let Some(doubt) = &mut self.doubt {
                    doubt.opened = Some(context.now());
                    doubt.next = context.now() + REPEAT;
                }
            }
            WatchNews::Greeted => {
                let was_suspected = self.doubt.take().is_some_and(|doubt| doubt.is_suspected);
                return was_suspected.then(|| self.tell_back(context));
            }
            WatchNews::Closed | WatchNews::Silent if self.open == Some(dial) => {
                self.open = None;
                let (now, closed) = (context.now(), news == WatchNews::Closed);
                let by_sidecar = |doubt: &&mut Doubt| doubt.opened.is_some_and(|at| now < at + SIDECAR);
                if let Some(doubt) = self.doubt.as_mut().filter(by_sidecar) {
                    doubt.go_on(closed, context);
                } else {
                    let is_suspected = self.doubt.as_ref().is_some_and(|doubt| doubt.is_suspected);
                    let doubt = Doubt::new(self.id, closed, now, context);
                    self.doubt = Some(Doubt { is_suspected, ..doubt });
                }
            }
            WatchNews::Closed | WatchNews::Silent | WatchNews::Refused => {
                self.opening.retain(|opening| *opening != dial);
                let doubt =
                    self.doubt.get_or_insert_with(|| Doubt::new(self.id, false, context.now(), context));
                doubt.refused |= news == WatchNews::Refused;
                // It may have died before the first connection, which then has no end.
                doubt.closed |= doubt.refused && !self.was_open;
            }
        }
        None
    }

    /// The neighbour is there, though it has not greeted: the doubt, if there is one, begins anew later.
    fn put_off(&mut self, pause: Duration, context: &mut Context) -> Option<WatchFinding> {
        let doubt = self.doubt.as_mut()?;
        let Doubt { is_suspected, opened, closed, .. } = *doubt;
        *doubt = Doubt { opened, ..Doubt::new(self.id, closed, context.now() + pause, context) };
        is_suspected.then(|| self.tell_back(context))
    }

    /// All members learn that the one that was suspected is there.
    fn tell_back(&self, context: &mut Context) -> WatchFinding {
        let over = Message::Suspicion(Suspicion { rank: self.rank.get(), is_over: true });
        context.multicast(&over);
        context.send_to_others(&over);
        WatchFinding::Back(self.rank)
    }

    /// When it is tried next.
    fn next(&self) -> Option<Time> {
        self.doubt.as_ref().map(|doubt| doubt.next)
    }

    fn is_deciding(&self, now: Time) -> bool {
        let doubt = self.doubt.as_ref().filter(|doubt| doubt.closed && doubt.opened.is_none());
        doubt.is_some_and(|doubt| (doubt.since..doubt.since + DECISION).contains(&now))
    }

    /// Tries a neighbour that is in doubt, if that is due. Nobody is suspected without `gone_after`.
    fn advance(&mut self, gone_after: Option<Duration>, context: &mut Context) -> Option<WatchFinding> {
        let now = context.now();
        self.next().filter(|&next| next <= now)?;
        if self.open.is_none() {
            self.dial(context);
        }
        let doubt = self.doubt.as_mut()?;
        if let Some(address) = context.members.address_of(self.id) {
            context.send(address, self.id, &Message::Ping);
        }
        if self.open.is_some() {
            doubt.next = now + REPEAT;
            return None;
        }
        let age = now.saturating_sub(doubt.since);
        doubt.next = now + doubt.pause(now);
        if age < QUICK {
            doubt.next = doubt.next.min(doubt.since + QUICK);
        }
        let is_small = context.members.count() < LARGE;
        // Once the world is over, the others have gone on, and this node's word ends nothing.
        let is_alone = is_small || gone_after.is_none();
        if !is_alone {
            doubt.ask_helpers(Look { rank: self.rank.get(), port: self.path.port() }, context);
        }
        let has_failed = is_alone || doubt.failed.len() >= HELPERS;
        if doubt.closed && doubt.refused && age >= QUICK && has_failed {
            return Some(WatchFinding::Gone(self.rank));
        }
        let gone_after = gone_after.filter(|_| age >= SUSPECT)?;
        if !std::mem::replace(&mut doubt.is_suspected, true) {
            doubt.count_members(self.id, context);
            return Some(WatchFinding::Suspected(self.rank));
        }
        let most_are_there = doubt.most_are_there(self.id, context)?;
        // In a small world no majority is left that could tell a cut from a death.
        if age >= gone_after && !is_small && has_failed && most_are_there {
            return Some(WatchFinding::Gone(self.rank));
        }
        let last = doubt.since.saturating_add(gone_after.saturating_sub(COUNT));
        // Most are there, and only the word of two others is missing: what they have said was lost.
        let is_soon = most_are_there && !is_small;
        doubt.count_from = match age < gone_after {
            true => last,
            false if is_soon => now,
            false => now + COUNT_AGAIN,
        };
        (!most_are_there).then_some(WatchFinding::CutOff)
    }
}

impl Doubt {
    /// The neighbour is tried from this time on.
    fn new(of: NodeId, closed: bool, from: Time, context: &mut Context) -> Self {
        let mut helpers: Vec<NodeId> =
            context.members.other_ids().into_iter().filter(|id| *id != of).collect();
        helpers.shuffle(context.rng());
        Self {
            since: from,
            next: from,
            opened: None,
            closed,
            refused: false,
            helpers,
            failed: BTreeSet::new(),
            is_suspected: false,
            asked: BTreeSet::new(),
            count_from: from,
            count: None,
        }
    }

    /// The connection that had opened was closed without a greeting, or is silent.
    fn go_on(&mut self, closed: bool, context: &mut Context) {
        let now = context.now();
        let opened = self.opened.take().unwrap_or(now);
        self.refused |= closed && self.closed;
        self.closed |= closed;
        self.next = self.since.max(now + self.pause(now));
        if let Some(count) = &mut self.count {
            count.extend(now.saturating_sub(opened));
            context.timers.set(RunningTimer::Count, now);
        }
    }

    /// How long to wait before the next try.
    fn pause(&self, now: Time) -> Duration {
        if now.saturating_sub(self.since) < SUSPECT { HASTY } else { REPEAT }
    }

    /// Asks as many members as are needed, each second others.
    fn ask_helpers(&mut self, look: Look, context: &mut Context) {
        let left: Vec<NodeId> = self.helpers.iter().copied().filter(|id| !self.failed.contains(id)).collect();
        if self.failed.len() >= HELPERS || left.is_empty() {
            return;
        }
        let seconds = usize::try_from(context.now().as_secs()).unwrap_or(usize::MAX);
        let first = seconds.saturating_mul(HELPERS) % left.len();
        let now: Vec<NodeId> =
            left.iter().cycle().skip(first).take(HELPERS.min(left.len())).copied().collect();
        context.send_to_members(&now, &Message::Look(look));
        self.asked.extend(now);
    }

    /// Begins to count the members that are there, who learn that the neighbour is suspected.
    fn count_members(&mut self, of: NodeId, context: &mut Context) {
        // What was seen long ago may not hold any more.
        self.failed.clear();
        let all = context.members.other_ids();
        self.count = Some(Unanswered::new(all, context.now(), COUNT));
        context.timers.set(RunningTimer::Count, context.now());
        context.ask_all(of);
    }

    /// Whether more than half of all members are there, this node included, once that is counted.
    fn most_are_there(&mut self, of: NodeId, context: &mut Context) -> Option<bool> {
        let now = context.now();
        let Some(count) = self.count.take_if(|count| count.is_out_of_time(now)) else {
            if self.count.is_none() && now >= self.count_from {
                self.count_members(of, context);
            }
            return None;
        };
        let all = context.members.count();
        Some((all - count.members().len()) * 2 > all)
    }
}
