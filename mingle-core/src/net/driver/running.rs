//! A node that stays with its worlds, on real sockets: its sessions, the datagrams of newcomers, and the end
//! of each world.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::interfaces::{GRACE, own_endpoints};
use super::receive::{BATCH, SETTLE};
use super::round::QUIET;
use super::{Driver, SMALL};
use crate::model::{End, Epoch, Member, Rank, Roster};
use crate::net::assignment::Assignment;
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::sockets::connection::TaskEvent;
use crate::net::sockets::connections::longest;
use crate::net::sockets::open_files::OpenFiles;
use crate::net::sockets::watched::try_recv_from;
#[cfg(test)]
use crate::proto::Config;
use crate::proto::world::{Action, World, WorldChange};
use crate::proto::{Attributes, Change, Formed, Over, Shared, was_stopped};
use crate::wire::world::{FirstCause, Plan, RoundId, Terms};

/// In a job that goes on without a node that is gone, a failure may turn out to be the consequence of that:
/// so long after it, 1.5 s after the leader has decided, that is clear.
const SETTLES: Duration = Duration::from_millis(1600);

/// The pause between two attempts to listen on the port that the command has used.
const RETRY: Duration = Duration::from_millis(50);

/// A node's part in a running world, which a [`Session`](crate::Session) drives.
///
/// It holds the node's datagram sockets, and its sessions with the other nodes; the node's own TCP port
/// belongs to the job.
/// [`RunningWorld::next`] must be awaited while the command runs, or the node neither hears nor answers the
/// others. Dropping it leaves the world without a message, as a crash does.
pub(crate) struct RunningWorld {
    pub(super) driver: Box<Driver>,
    pub(super) world: World,
    /// The nodes of the last world, by rank.
    pub(super) members: Vec<Member>,
    /// This node's rank in it.
    pub(super) rank: Option<Rank>,
    pub(super) changes: VecDeque<Change>,
    /// The next world has formed.
    pub(super) formed: Option<Formed>,
    /// No node that may lead is left, or others have gone on without this node: it looks for them.
    pub(super) is_lost: bool,
    /// How many nodes wait for a seat, as the leader has said last.
    pub(crate) waiting: u32,
    /// Since when this node has known that the next world is not being formed yet.
    pub(super) over_since: Option<Instant>,
    /// A command has failed, and until then it may turn out that a node is gone.
    settles: Option<Instant>,
    /// It waits or has waited for a seat in the world of others, whose leader it has met.
    pub(super) was_guest: bool,
}

impl fmt::Debug for RunningWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorld").field("job", &self.driver.settings.job).finish_non_exhaustive()
    }
}

impl RunningWorld {
    /// A member of the first world of the job, after its rendezvous.
    pub(super) fn first(driver: Driver, shared: Shared, formed: &Formed) -> Self {
        let roster = formed.roster.clone().unwrap_or_default();
        let leader = roster.members().first().map_or(driver.id, |first| first.id);
        let epoch = Epoch::default().formed(formed.digest);
        let terms = Terms { roster, ..Terms::default() };
        let plan = Plan { round: RoundId { leader, number: 1 }, epoch, terms };
        let mut running = Self::new(driver, World::member(shared, plan));
        running.enter(formed);
        running
    }

    pub(super) fn new(driver: Driver, world: World) -> Self {
        Self {
            driver: Box::new(driver),
            world,
            members: Vec::new(),
            rank: None,
            changes: VecDeque::new(),
            formed: None,
            is_lost: false,
            waiting: 0,
            over_since: None,
            settles: None,
            was_guest: false,
        }
    }

    /// This node is a member of a world that has formed.
    pub(super) fn enter(&mut self, formed: &Formed) {
        let members = formed.roster.as_ref().map(Roster::members).unwrap_or_default();
        self.members = members.to_vec();
        self.rank = Some(formed.rank);
        self.changes.clear();
        self.waiting = 0;
        self.settles = None;
        self.driver.keep_seed_file();
        // The raised limit goes back before the command starts.
        if !self.needs_open_files() {
            self.driver.open_files = None;
        }
        self.driver.sessions.make_room(self.driver.settings.world.max());
    }

    /// Whether this node leads a world so large that it has sessions with more nodes than the usual limit of
    /// open files permits.
    fn needs_open_files(&self) -> bool {
        self.driver.settings.world.max().get() > SMALL && self.world.leads()
    }

    /// Returns whether this node has waited for a seat in the world of others since the last call.
    pub(crate) fn take_was_guest(&mut self) -> bool {
        std::mem::take(&mut self.was_guest) | std::mem::take(&mut self.driver.was_guest)
    }

    /// How many nodes the last world has.
    pub(crate) fn nodes(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// How often the job had started again when this world formed: 0 in its first formation. The world may be
    /// over by now.
    pub(crate) fn generation(&self) -> u32 {
        self.world.epoch().generation
    }

    /// Waits for the world's next change. Cancel-safe.
    ///
    /// After [`Change::Over`] the caller stops its command. After [`Change::Notified`], once the command has
    /// ended, the caller may call [`again`](RunningWorld::again). [`Change::Finished`] follows
    /// an [end](RunningWorld::ended) that is good, unless the world is over before.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            self.advance().await;
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            self.wait().await;
        }
    }

    /// Does what is due, and carries out what the world wants.
    pub(super) async fn advance(&mut self) {
        let due = self.world.poll_timeout();
        if due.is_some_and(|due| was_stopped(due, self.driver.now())) {
            for _ in 0..SETTLE {
                tokio::task::yield_now().await;
                self.hear_all();
            }
        }
        let now = self.driver.now();
        if due.is_some_and(|due| due <= now) {
            self.world.advance(now);
        }
        if self.settles.take_if(|settles| *settles <= clock()).is_some() {
            self.changes.push_back(Change::Notified);
        }
        self.carry_out();
        if self.world.has_ended() {
            // The leader waits for the acknowledgement of what this node has read last.
            self.driver.sessions.close_all(false).await;
        }
    }

    pub(super) fn carry_out(&mut self) {
        // What follows a formation is of the new world, which this node has yet to enter: it may be over
        // already.
        while self.formed.is_none()
            && let Some(action) = self.world.poll_action()
        {
            match action {
                Action::Output(output) => self.driver.carry_out(output),
                Action::Carry(order) => self.driver.sessions.carry_out(order, |id| self.world.believes(id)),
                Action::Report(change) => self.report(change),
            }
        }
        if self.needs_open_files() && self.driver.open_files.is_none() {
            self.driver.open_files = Some(OpenFiles::raise());
            self.driver.sessions.make_room(self.driver.settings.world.max());
        }
        let waiting = self.world.reign().waiting;
        if std::mem::replace(&mut self.waiting, waiting) != waiting {
            self.changes.push_back(Change::Waiting(waiting));
        }
    }

    fn report(&mut self, change: WorldChange) {
        match change {
            WorldChange::Formed(formed) => {
                // The port is the job's before the others learn that this node knows.
                self.driver.connections.stop_accepting();
                self.formed = Some(*formed);
            }
            WorldChange::Over(cause) => {
                let over = self.over(cause);
                if !self.world.has_failed() || over.rank != self.rank {
                    self.changes.push_back(Change::Over(over));
                }
                let is_failure = matches!(cause.end, End::Exited(_) | End::Killed(_));
                let settings = &self.driver.settings;
                if is_failure && settings.world.is_range() && settings.restarts.most > Some(0) {
                    self.settles = Some(clock() + SETTLES);
                } else if !self.world.has_left() {
                    self.changes.push_back(Change::Notified);
                }
            }
            WorldChange::FirstCause(cause) => {
                self.changes.push_back(Change::Cause(self.over(cause)));
                if self.settles.take().is_some() {
                    self.changes.push_back(Change::Notified);
                }
            }
            WorldChange::Change(change) => self.changes.push_back(change),
            WorldChange::MayEnd => {
                let is_over = self.world.over.is_some() || self.world.has_left();
                self.changes.push_back(if is_over { Change::Notified } else { Change::Finished });
            }
            WorldChange::Lost => {
                self.is_lost = true;
                if self.world.over.is_none() {
                    let over = Over { rank: None, peer: None, end: End::Unknown };
                    self.changes.extend([Change::Over(over), Change::Notified]);
                }
            }
        }
    }

    /// The end of the last world by this node's own command.
    pub(crate) fn own(&self, end: End) -> Over {
        self.over(FirstCause { rank: self.rank.map(Rank::get), end })
    }

    fn over(&self, cause: FirstCause) -> Over {
        Over::of(cause, &self.members)
    }

    /// Hears all that has been reported already.
    fn hear_all(&mut self) {
        loop {
            let of_session = self.driver.sessions.next_waiting();
            let Some(event) = of_session.or_else(|| self.driver.connections.next_waiting()) else { return };
            self.hear(event);
        }
    }

    /// Something has happened on a connection of a session; or on the node's own port, which carries no
    /// session of a node that stays. That a stranger there has closed its connection says nothing.
    fn hear(&mut self, event: TaskEvent) {
        let now = self.driver.now();
        match event {
            TaskEvent::Asked { peer, meant, answer } => {
                if let Some(number) = self.world.answers(now, peer, meant) {
                    // Sending fails if the connection has just closed.
                    let _ = answer.send((number, longest(self.world.believes(peer))));
                }
            }
            TaskEvent::Opened { peer, way, conn, numbers, .. } => {
                self.world.opened(now, peer, way, conn, numbers);
            }
            TaskEvent::DialFailed(peer, dial, failed) => self.world.dial_failed(now, peer, dial, failed),
            TaskEvent::Read(conn, frame, _permit) => _ = self.world.read(now, conn, frame),
            TaskEvent::Closed(conn, ending) => self.world.closed(now, conn, ending),
            TaskEvent::Path(dial, news) => self.world.handle_path(now, dial, &news),
            TaskEvent::Warning(warning) => self.driver.warn(warning),
            TaskEvent::Seeds { .. } => {}
        }
    }

    /// Waits for whatever comes first, and hears it.
    pub(super) async fn wait(&mut self) {
        let due = self.world.poll_timeout().and_then(|at| self.driver.origin.checked_add(at));
        let now = clock();
        let quiet = self.over_since.map(|since| since + QUIET).filter(|quiet| *quiet > now);
        let due = due
            .into_iter()
            .chain(quiet)
            .chain(self.settles)
            .fold(self.driver.links.due(Duration::ZERO), Instant::min);
        tokio::select! {
            biased;
            () = self.driver.links.readable() => if self.read() {
                // A flood of datagrams must not starve the connections.
                tokio::task::yield_now().await;
            },
            event = self.driver.sessions.next() => if let Some(event) = event {
                self.hear(event);
            },
            // Strangers come whether a round is under way or not, and must not fill the queue.
            event = self.driver.connections.next() => if let Some(event) = event {
                self.hear(event);
            },
            () = tokio::time::sleep_until(due.into()) => {}
        }
        self.hear_all();
        let Driver { settings, links, .. } = &mut *self.driver;
        if links.keep_up() && !settings.is_alone() {
            // Replacements may be heard on a new interface.
            let _ = links.follow(&settings.network);
            self.follow_addresses();
        }
    }

    /// The next world reaches this node where its host is now.
    pub(super) fn follow_addresses(&mut self) {
        let driver = &mut *self.driver;
        let endpoints = own_endpoints(&driver.settings.network, &driver.links, driver.port);
        if endpoints != driver.endpoints {
            driver.endpoints = endpoints;
            // Newcomers find this node by its file.
            driver.keep_seed_file();
        }
        let config = driver.config();
        self.world.set_config(driver.now(), config);
    }

    /// Returns whether there may be more to read.
    fn read(&mut self) -> bool {
        let Self { driver, world, .. } = self;
        driver.read(try_recv_from, BATCH, |now, from, datagram| world.handle_datagram(now, from, datagram))
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> &Config {
        self.world.config()
    }

    /// Whether this node's own command was the first to fail in the world that is over.
    pub(crate) fn is_at_fault(&self) -> bool {
        let failed = self.world.over.filter(|cause| matches!(cause.end, End::Exited(_) | End::Killed(_)));
        failed.is_some_and(|cause| cause.rank.map(Rank) == self.rank)
    }

    /// Tells the nodes that wait for a seat that no world follows this one: their rendezvous ends with
    /// [`Failure::JobFinished`](crate::Failure::JobFinished). Does nothing on a node that does not lead.
    pub(crate) fn release_newcomers(&mut self) {
        self.world.release_all(self.driver.now());
    }

    /// Reports that this node's command has ended well, and the world runs until every node's command has; or
    /// that it has failed, or with [`End::Left`] that it has ended and this node leaves the job. Then
    /// [`RunningWorld::next`] reports [`Change::Notified`], once the others know.
    pub(crate) fn ended(&mut self, end: Option<End>) {
        self.world.ended(self.driver.now(), end);
    }

    /// Reports that this node leaves the job once its command has ended.
    pub(crate) fn drain(&mut self) {
        self.world.drain(self.driver.now());
    }

    /// Leaves the job, once this node's command has ended: the others do not wait for this node when they
    /// form the next world. Returns when they have read that, after 3 seconds at most.
    pub(crate) async fn leave(&mut self) {
        self.ended(Some(End::Left));
        loop {
            self.advance().await;
            if self.world.has_ended() {
                return;
            }
            self.wait().await;
        }
    }

    /// Takes part in the next formation of the job, once the command has ended and the world is over. The
    /// timeout starts again. The nodes of the next world get these `attributes`.
    ///
    /// # Errors
    /// As [`Rendezvous::join`](crate::Rendezvous::join). If the command, or a process that it has left
    /// behind, still holds the port, this takes another. If the port is
    /// [given](crate::Network::master_port), this waits for 5 seconds until it is free.
    pub(crate) async fn again(mut self, attributes: Attributes) -> Result<Assignment, Error> {
        let session_port = self.driver.settings.attributes.session_port;
        self.driver.settings.attributes = Attributes { session_port, ..attributes };
        self.driver.began = clock();
        let until = clock() + GRACE;
        // While it waits for a port, this node answers the others.
        while !self.world.has_ended() && !self.driver.listen(clock() >= until).await? {
            self.advance().await;
            // It is time for another attempt, or something was heard.
            let _ = tokio::time::timeout(RETRY, self.wait()).await;
        }
        self.driver.connections.set_target(self.world.path_target());
        self.follow_addresses();
        self.world.stopped(self.driver.now());
        Box::pin(self.meet()).await?.world().await
    }
}
