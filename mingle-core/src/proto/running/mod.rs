//! A running world: the messages of its nodes while their commands run, so that all nodes start again when
//! one fails.
//!
//! The nodes send no datagrams while nothing happens. Each holds a connection to its neighbours, the nodes of
//! the next and the previous rank, at their ports for paths: the own port belongs to the job.
//!
//! ```text
//! a neighbour is silent     its node is suspected, and all are told; if it stays silent and others do not
//!                           reach it either, it is gone, and the world is over: `watch`, and `looks` for
//!                           what this node answers to members that doubt another
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
mod left;
mod liveness;
mod looks;
mod members;
mod messages;
mod newcomers;
#[cfg(feature = "testing")]
#[path = "../../../testing/running_world.rs"]
mod phase;
mod release;
mod status;
#[cfg(test)]
mod tests;
mod unanswered;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::node::Node;
use super::output::{DialId, Output, WatchNews};
use super::pause::was_stopped;
use super::report::{Formed, Over};
use super::timer::Time;
use crate::model::{Digest, End, Lineage, Peer, Rank};
use crate::wire::Former;
use crate::wire::Status;
use context::{Context, RunningTimer};
use ending::Notifying;
use left::Left;
use liveness::Liveness;
use members::Members;
use newcomers::Newcomers;
use release::{AwaitingRelease, Finished, Releasing};
use status::Observers;
use watch::{Watch, WatchFinding};

/// What has changed for a running world.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The world is over, and not by this node's own command: its command must stop. This node may still have
    /// to notify the others, until [`Change::Notified`].
    Over(Over),
    /// The world was over before, and this is the first cause: the node of this rank is gone, and the
    /// commands of others have failed because of that.
    Cause(Over),
    /// Every other member has learned that the world is over, or the time for that has passed.
    Notified,
    /// The node of this rank does not answer its neighbours. It may be gone.
    Suspected(Rank, Peer),
    /// The node of this rank was suspected, and is there.
    Back(Rank, Peer),
    /// So few other nodes answer that this one may be cut off. Its command goes on: the job may have another
    /// network.
    CutOff,
    /// So many newcomers wait for a seat that there are enough nodes for two worlds. If the network splits,
    /// both may go on. Rank 0 alone reports it, once for each world.
    MaySplit {
        /// How many nodes wait.
        waiting: u32,
    },
    /// Every node's command has ended well.
    Finished,
}

/// One node of a formed world whose commands run. Made by [`Node::into_running`], and driven like a [`Node`].
#[derive(Debug, Clone)]
pub struct RunningNode {
    context: Context,
    state: State,
    liveness: Liveness,
    watch: Watch,
    left: Left,
    /// The ranks that are suspected, as this node has reported them.
    suspected: BTreeSet<Rank>,
    /// It has reported that it may be cut off.
    is_cut_off: bool,
    /// All know that the world is over, but it is not clear yet whether a neighbour is its cause.
    holds: bool,
    finished: Finished,
    observers: Observers,
    newcomers: Newcomers,
    restarts_left: Option<u32>,
    /// The lineage of this world.
    formed: Lineage,
    /// The members that are gone or have left.
    lost: BTreeSet<Rank>,
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
    pub fn into_running(self, formed: &Formed) -> Option<RunningNode> {
        let members = Members::new(formed)?;
        Some(self.into_running_among(members, formed.digest))
    }

    fn into_running_among(self, members: Members, digest: Digest) -> RunningNode {
        let mut context = Context::new(self.into_shared(), members);
        context.set_lineage(context.lineage().formed(digest));
        let neighbours = context.neighbours();
        RunningNode {
            watch: Watch::start(&neighbours, &mut context),
            left: Left::default(),
            suspected: BTreeSet::new(),
            is_cut_off: false,
            holds: false,
            formed: context.lineage(),
            context,
            state: State::Running,
            liveness: Liveness::default(),
            finished: Finished::default(),
            observers: Observers::default(),
            newcomers: Newcomers::default(),
            restarts_left: None,
            lost: BTreeSet::new(),
            is_last: false,
            changes: VecDeque::new(),
        }
    }
}

impl RunningNode {
    /// The formation of the job that this world is; once the world is over, the formation that comes next.
    pub fn lineage(&self) -> Lineage {
        self.context.lineage()
    }

    /// The addresses of the other members when the world formed. They are seeds for the next formation.
    pub fn others(&self) -> Vec<SocketAddr> {
        self.context.members.others().map(|member| member.address).collect()
    }

    /// This node's part in this world, once the world is over. None where a formation that this node has
    /// missed comes between this world and the next one: another node may have its rank.
    pub fn former(&self) -> Option<Former> {
        let members = self.context.members.count() - self.lost.len();
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let former = Former { rank: self.context.members.own_rank(), members };
        (self.formed.next() == Some(self.lineage())).then_some(former)
    }

    /// The next instruction, in order: [`Output::Send`], [`Output::Multicast`], [`Output::Watch`] and
    /// [`Output::HangUp`] alone.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.context.next_output()
    }

    /// What has changed, in order.
    #[must_use = "each change is returned once"]
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When to call [`RunningNode::handle_timeout`]. Changes with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.context.timers.next()
    }

    /// Whether no formation will follow this one. If so this node notifies the others for up to 15 s instead
    /// of 1 s when the world is over, because no later formation would do it.
    pub fn set_last(&mut self, is_last: bool) {
        self.is_last = is_last;
    }

    /// How many failures may still be followed by a restart, for observers.
    pub fn set_restarts_left(&mut self, left: u32) {
        self.restarts_left = Some(left);
    }

    /// From so long after now on the world may end so that newcomers get a seat, if it has room; never if
    /// this is not called. Each newcomer must have reached rank 0's host, and have stayed for a last call.
    pub fn set_growth(&mut self, now: Time, after: Duration) {
        self.context.at(now);
        let from = self.context.now().saturating_add(after);
        self.newcomers.set_growth(from, &mut self.context);
    }

    /// A connection from this address has arrived at the port for paths.
    pub fn handle_guest(&mut self, now: Time, from: IpAddr) {
        self.context.at(now);
        self.newcomers.arrive(from, &mut self.context);
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
            // From now on rank 0 looks for the members whose commands run.
            self.watch.stop(&mut self.context);
            self.state = State::AwaitingRelease(AwaitingRelease::new(&self.context));
            self.ask_for_release();
        }
    }

    /// Something has happened on a connection of [`Output::Watch`].
    pub fn handle_watch(&mut self, now: Time, dial: DialId, news: WatchNews) {
        self.context.at(now);
        let finding = self.watch.hear(dial, news, &mut self.context);
        self.found(finding);
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
                RunningTimer::Finished => self.ask_for_release(),
                RunningTimer::CheckRunning => self.check_running(),
                RunningTimer::Ping => self.ping(),
                RunningTimer::Over => self.repeat_over(),
                RunningTimer::Released => self.repeat_released(),
                RunningTimer::CheckForNewcomer => self.check_for_newcomer(),
                RunningTimer::Watch => {
                    let finding = self.watch.advance(&mut self.context);
                    self.found(finding);
                }
                RunningTimer::Grow => self.grow(),
                RunningTimer::Count => self.watch.count(&mut self.context),
                RunningTimer::Left => self.ask_those_that_left(),
                RunningTimer::Status => self.observers.answer(self.status(), &mut self.context),
            }
        }
    }

    fn status(&self) -> Status {
        let own = self.context.members.own();
        Status {
            rank: own.rank.get(),
            world: self.context.world(),
            host: own.host.clone(),
            has_finished: !matches!(self.state, State::Running),
            restarts_left: self.restarts_left,
            suspected: self.suspected.iter().map(|rank| rank.get()).collect(),
            waiting: self.newcomers.waiting(&self.context),
        }
    }

    fn found(&mut self, finding: Option<WatchFinding>) {
        match finding {
            Some(WatchFinding::Gone(rank)) if self.is_over() => {
                let over = self.context.members.over(rank, End::Gone);
                self.lose(&over);
                self.changes.push_back(Change::Cause(over));
            }
            Some(WatchFinding::Gone(rank)) => self.member_is_gone(rank),
            Some(WatchFinding::Suspected(rank)) => self.suspect(rank),
            Some(WatchFinding::Back(rank)) => self.clear(rank),
            Some(WatchFinding::CutOff) if !std::mem::replace(&mut self.is_cut_off, true) => {
                self.changes.push_back(Change::CutOff);
            }
            Some(WatchFinding::CutOff) | None => {}
        }
        self.settle();
    }

    /// A member that is gone or leaves does not come to the next formation.
    fn lose(&mut self, over: &Over) {
        let Some(rank) = over.rank.filter(|_| matches!(over.end, End::Gone | End::Left)) else { return };
        self.lost.insert(rank);
        // A member whose end is reported is not the cause of another's as well.
        if let Some(id) = self.context.members.id_of(rank) {
            self.watch.forget(id, &mut self.context);
        }
    }

    fn suspect(&mut self, rank: Rank) {
        if let Some(peer) = self.context.members.peer(rank).filter(|_| self.suspected.insert(rank)) {
            self.changes.push_back(Change::Suspected(rank, peer));
        }
    }

    fn clear(&mut self, rank: Rank) {
        if let Some(peer) = self.context.members.peer(rank).filter(|_| self.suspected.remove(&rank)) {
            self.is_cut_off = false;
            self.changes.push_back(Change::Back(rank, peer));
        }
    }

    /// Reports that all have been notified, once it is clear whether a neighbour was the cause.
    fn settle(&mut self) {
        if self.holds && !self.watch.is_deciding(self.context.now()) {
            self.holds = false;
            self.changes.push_back(Change::Notified);
        }
    }

    fn notified(&mut self) {
        self.holds = true;
        self.settle();
    }

    fn forgive(&mut self, stopped: Duration) {
        self.liveness.forgive(stopped);
        self.watch.forgive(stopped);
        if let State::AwaitingRelease(awaiting) = &mut self.state {
            awaiting.forgive(stopped);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Notifying(_) | State::Ended)
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

    fn grow(&mut self) {
        if matches!(self.state, State::Running) && self.newcomers.may_grow(&mut self.context) {
            self.end_for(Rank(0), End::Grows);
        }
    }

    fn member_is_gone(&mut self, rank: Rank) {
        self.end_for(rank, End::Gone);
    }

    /// The world is over although this node's command runs.
    fn end_for(&mut self, rank: Rank, end: End) {
        let over = self.context.members.over(rank, end);
        self.notify(over.clone());
        // First of all, although `notify` may already have had no member to notify: the command must stop.
        self.changes.push_front(Change::Over(over));
    }

    /// The world is over, and all others must know.
    fn notify(&mut self, over: Over) {
        self.lose(&over);
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
            self.context.timers.stop(RunningTimer::Over);
            self.notified();
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
        self.watch.stop(&mut self.context);
        self.context.timers.stop(RunningTimer::CheckRunning);
        self.newcomers.release(&mut self.context);
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

    fn finish(&mut self) {
        self.state = State::Ended;
        self.context.stop_all_timers();
        self.changes.push_back(Change::Finished);
    }

    /// Stops everything; this node's next datagram is one of the `next` formation.
    fn end(&mut self, next: Lineage) {
        self.watch.farewell(&mut self.context);
        self.context.set_lineage(next);
        self.liveness.stop(&mut self.context);
        self.context.stop_all_timers();
        self.watch.world_is_over(&mut self.context);
        self.state = State::Ended;
    }
}
