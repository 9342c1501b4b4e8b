//! A node that stays with its job, one world after the other: it looks for the others, watches the world
//! that has formed, and decides whether another follows.

mod row;

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use mingle_rdma::Summary;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep_until, timeout};

use super::assignment::Assignment;
use super::clock::clock;
use super::driver::{self, RunningWorld};
use super::error::{Ended, Error};
use super::rendezvous::Rendezvous;
use crate::model::End;
use crate::proto::{Change, Event, Failure, Formed, Over};
use row::Row;

pub(super) use row::KEY;
pub use row::{Outlook, Restarts, duration};

/// How long a node that leaves tells the others how its command has ended, before it says that it leaves.
const TELLS: Duration = Duration::from_secs(2);
/// From here on a limit is none.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A node's part in a job whose worlds follow each other, from
/// [`Rendezvous::session`](crate::Rendezvous::session).
///
/// The caller runs the command of each world, and says how the command has [`ended`](Self::ended). While the
/// command runs, the caller must await [`Session::next`], or the node neither hears nor answers the other
/// nodes. Dropping the session leaves the world without a message, as a crash does; see
/// [`leave`](Self::leave). The settings apply to all worlds of the session.
///
/// ```no_run
/// # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
/// use mingle_core::{Change, Happening, Rendezvous, World};
/// use tokio::process::{Child, Command};
///
/// let mut rendezvous = Rendezvous::new("foo".parse()?, World::new(4)?);
/// rendezvous.restarts.most = Some(3);
/// let (mut session, mut train) = (rendezvous.session(), None::<Child>);
/// loop {
///     let happening = tokio::select! {
///         happening = session.next() => happening?,
///         status = async { train.as_mut().unwrap().wait().await }, if train.is_some() => {
///             train = None;
///             session.ended(status?);
///             continue;
///         }
///     };
///     match happening {
///         Happening::Formed(world) => {
///             let mut command = Command::new("train");
///             world.variables().apply(command.as_std_mut());
///             train = Some(command.spawn()?);
///         }
///         Happening::Running(Change::Over(_)) => train.iter_mut().try_for_each(Child::start_kill)?,
///         Happening::Running(Change::Finished) => return Ok(()),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[must_use = "nothing happens before `next` is awaited"]
pub struct Session {
    settings: Rendezvous,
    state: State,
    /// Reports what has happened, as a formation does.
    reports: UnboundedSender<Happening>,
    happenings: UnboundedReceiver<Happening>,
    row: Row,
    /// How often a formation with an unknown outcome may still be followed by another.
    doubts: u32,
    generation: u32,
    /// How many worlds in a row have ended because of this node's command.
    faults: u32,
    world: Part,
}

/// What is known of the world that has formed last.
#[derive(Default)]
struct Part {
    /// When its commands have run for so long that earlier restarts do not count.
    forgets: Option<Instant>,
    /// How this node's command has ended, if it has failed.
    failed: Option<End>,
    /// Why the world has ended, if another node has ended it.
    over: Option<Over>,
    /// The other nodes know that it is over.
    is_notified: bool,
    /// This node's command has stopped.
    is_stopped: bool,
    /// When the next formation begins, once all know that this world is over and the command has stopped.
    resumes: Option<Instant>,
}

enum State {
    /// The next world forms.
    Meets(Pin<Box<dyn Future<Output = Result<Assignment, Error>> + Send>>),
    /// A world runs, or is over: its command stops, and then there may be a pause before the next formation.
    Runs(Box<RunningWorld>),
    /// This node leaves the job, for this reason.
    Leaves(Box<RunningWorld>, Ended),
    /// Nothing more happens, but this error.
    Ended(Option<Error>),
}

/// What has happened to a node that stays with its job.
#[derive(Debug)]
#[non_exhaustive]
pub enum Happening {
    /// An event of a formation that goes on, such as progress; or a warning, also while a world runs.
    Meeting(Event),
    /// The last world has ended for all nodes, and the formation of this generation begins.
    Restarting(u32),
    /// This node does not know the outcome of the first formation. Nothing has started here, and this node
    /// joins again.
    Unclear(Failure),
    /// A world has formed: the caller starts its command.
    Formed(Box<Assignment>),
    /// Something has changed in the world that has formed.
    Running(Change),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("job", &self.settings.job).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(settings: Rendezvous) -> Self {
        let row = Row::new(settings.restarts, settings.world.is_range());
        let (reports, happenings) = unbounded_channel();
        let mut session = Self {
            state: State::Ended(None),
            reports,
            happenings,
            row,
            doubts: row.restarts.most.unwrap_or(0),
            generation: 0,
            faults: 0,
            world: Part::default(),
            settings,
        };
        session.join();
        session
    }

    /// Begins as a node that has seen no world.
    fn join(&mut self) {
        let mut settings = self.settings.clone();
        self.row.write(&mut settings.attributes.metadata);
        let reports = self.reports.clone();
        settings.on_event(move |event| drop(reports.send(Happening::Meeting(event))));
        self.state = State::Meets(Box::pin(driver::join(settings)));
    }

    /// Waits for the next happening. Cancel-safe.
    ///
    /// After [`Change::Over`] the caller stops its command, and then says that the command has
    /// [`ended`](Self::ended). The session ends with [`Change::Finished`] or with an error.
    ///
    /// # Errors
    /// [`Error::Ended`] if no further world follows for this node; otherwise as
    /// [`Rendezvous::join`](crate::Rendezvous::join). After its end a session returns
    /// [`Failure::JobFinished`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn next(&mut self) -> Result<Happening, Error> {
        loop {
            if let Ok(happening) = self.happenings.try_recv() {
                return Ok(happening);
            }
            match &mut self.state {
                State::Meets(joining) => tokio::select! {
                    biased;
                    joined = joining => self.joined(joined),
                    Some(happening) = self.happenings.recv() => return Ok(happening),
                },
                State::Runs(running) => {
                    let Part { forgets, resumes, is_notified, is_stopped, .. } = self.world;
                    if is_notified && is_stopped && resumes.is_none() {
                        self.go_on();
                        continue;
                    }
                    tokio::select! {
                        biased;
                        () = until(resumes) => self.again(),
                        change = running.next() => {
                            // In the pause no command runs to which another change could matter.
                            let is_first_cause = matches!(change, Change::Cause(_));
                            if resumes.is_none() || is_first_cause || change == Change::Finished {
                                self.hear(&change);
                                return Ok(Happening::Running(change));
                            }
                        }
                        // Such as a folder that cannot be written to any more.
                        Some(happening) = self.happenings.recv() => return Ok(happening),
                        () = until(forgets) => self.forget(),
                    }
                }
                State::Leaves(running, _) => {
                    running.leave().await;
                    if let State::Leaves(_, ended) = std::mem::replace(&mut self.state, State::Ended(None)) {
                        return Err(Error::Ended(Box::new(ended)));
                    }
                }
                State::Ended(error) => {
                    return Err(error.take().unwrap_or(Error::Failed(Failure::JobFinished)));
                }
            }
        }
    }

    /// Says that this node's command has ended, and that none of its processes runs any more: calls
    /// [`succeed`](Self::succeed) or [`fail`](Self::fail), and then [`stopped`](Self::stopped).
    pub fn ended(&mut self, status: ExitStatus) {
        let number = |number: i32| u8::try_from(number).unwrap_or(1).max(1);
        match (status.code(), status.signal()) {
            _ if self.world.over.is_some() => {}
            (Some(0), _) => self.succeed(),
            (Some(code), _) => self.fail(End::Exited(number(code))),
            (None, signal) => self.fail(End::Killed(number(signal.unwrap_or(9)))),
        }
        self.stopped();
    }

    /// From the next formation on this node tells the others that it has this RDMA: an interface that has
    /// come back may have another GID.
    pub fn set_fabric(&mut self, fabric: Summary) {
        self.settings.attributes.fabric = fabric;
    }

    /// Says that this node's command has succeeded. The world runs until the commands of all nodes have.
    pub fn succeed(&mut self) {
        if let State::Runs(running) = &mut self.state {
            running.ended(None);
        }
    }

    /// Says that this node's command has failed, or, with [`End::Left`], that the command has ended and this
    /// node leaves the job. The world is then over for all nodes.
    pub fn fail(&mut self, end: End) {
        if let State::Runs(running) = &mut self.state {
            running.ended(Some(end));
            self.world.failed.get_or_insert(end);
        }
    }

    /// Says that this node was asked to leave the job, and [leaves](Self::leave) once its command has ended.
    /// If the command of another node fails meanwhile, this node is the first cause.
    pub fn drain(&mut self) {
        if let State::Runs(running) = &mut self.state {
            running.drain();
        }
    }

    /// Says that no process of this node's command runs any more. Once the world is over, the next world may
    /// form.
    pub fn stopped(&mut self) {
        self.world.is_stopped = true;
    }

    /// Leaves the job, once this node's command has ended: the other nodes form the next world without
    /// waiting for this node. If the world still runs, it is over for all nodes, with this end. Returns when
    /// the other nodes have read the end, or after about 5 seconds.
    pub async fn leave(&mut self, end: End) {
        let (State::Runs(mut running) | State::Leaves(mut running, _)) =
            std::mem::replace(&mut self.state, State::Ended(None))
        else {
            return;
        };
        if end != End::Left || self.world.failed.is_none() {
            running.ended(Some(end));
        }
        // If this node is cut off, nobody reads how its command has ended.
        let notified = async {
            while !self.world.is_notified {
                let change = running.next().await;
                self.hear(&change);
            }
        };
        let _ = timeout(TELLS, notified).await;
        running.leave().await;
    }

    /// Does the same as [`leave`](Self::leave), for a job that ends. If this node leads, nodes that wait for
    /// a seat end with [`Failure::JobFinished`].
    pub async fn give_up(&mut self, end: End) {
        if let State::Runs(running) = &mut self.state {
            running.release_newcomers();
        }
        self.leave(end).await;
    }

    /// The generation of the world that has formed last: how often the job has restarted.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// What follows after the world that is over, as far as this node knows.
    pub fn outlook(&self) -> Outlook {
        self.row.outlook(self.end())
    }

    /// A sentence for users about this happening; none if it concerns only programs. A warning begins with
    /// `warning: `.
    pub fn sentence(&self, happening: &Happening) -> Option<String> {
        Some(match happening {
            Happening::Meeting(Event::Progress(progress)) => progress.to_string(),
            Happening::Meeting(Event::Warning(warning)) => format!("warning: {warning}"),
            Happening::Unclear(failure) => {
                format!("{failure}; nothing has started here, so this node joins again")
            }
            Happening::Formed(assignment) => {
                let Formed { world, rank, master, .. } = &assignment.formed;
                let losses = assignment.losses();
                format!("world of {world} formed{losses}: rank {rank}, master {master}")
            }
            Happening::Running(Change::Over(over)) => format!("{over}; {}", self.outlook()),
            Happening::Running(Change::Cause(over)) => {
                format!("the first cause: {over}{}", self.row.refund())
            }
            Happening::Running(Change::Suspected(rank, peer)) => {
                let limit = self.settings.gone_after;
                // In a smaller world either side may be the one that is cut off.
                let is_small = self.running().is_none_or(|running| running.nodes() < 3);
                let after = if is_small || limit >= FOREVER {
                    String::new()
                } else {
                    format!("; if that lasts for {}, it is gone", duration(limit))
                };
                format!("warning: rank {rank}, {peer}, does not answer{after}")
            }
            Happening::Running(Change::Back(rank, peer)) => {
                format!("warning: rank {rank}, {peer}, answers again")
            }
            Happening::Running(Change::CutOff) => {
                "warning: most other nodes do not answer; this node may be cut off, and goes on".to_owned()
            }
            _ => return None,
        })
    }

    fn report(&self, happening: Happening) {
        // This session has the receiver.
        let _ = self.reports.send(happening);
    }

    fn running(&self) -> Option<&RunningWorld> {
        if let State::Runs(running) = &self.state { Some(running) } else { None }
    }

    fn joined(&mut self, joined: Result<Assignment, Error>) {
        match joined {
            Ok(mut assignment) => {
                self.state = match assignment.running.take() {
                    Some(running) => State::Runs(Box::new(running)),
                    // Nothing happens after the first world.
                    None => State::Meets(Box::pin(std::future::pending())),
                };
                self.enter(&assignment.formed);
                self.report(Happening::Formed(Box::new(assignment)));
            }
            // If the leader dies at its commit, the other nodes may have started without this one. Nothing
            // has started here, so this node joins again: as a newcomer, which takes its own seat if they
            // have.
            Err(Error::Failed(failure @ Failure::OutcomeUnknown { .. })) if self.doubts > 0 => {
                self.doubts -= 1;
                self.report(Happening::Unclear(failure));
                self.join();
            }
            Err(error) => self.state = State::Ended(Some(error)),
        }
    }

    /// A world has formed.
    fn enter(&mut self, formed: &Formed) {
        if let State::Runs(running) = &mut self.state {
            self.generation = running.generation();
            if running.take_was_guest() {
                // The others know how many of the restarts before still count.
                self.row.forget();
            }
        }
        self.row.agree(formed.roster.as_ref());
        self.world = Part { forgets: clock().checked_add(self.row.restarts.forget), ..Part::default() };
    }

    /// A change of the world that has formed.
    fn hear(&mut self, change: &Change) {
        match change {
            Change::Notified => self.world.is_notified = true,
            Change::Finished => {
                self.world.is_notified = true;
                self.state = State::Ended(None);
            }
            Change::Over(over) => self.world.over = Some(over.clone()),
            // What comes after the notice changes nothing: other nodes may have left the job by now.
            Change::Cause(Over { end: End::Gone | End::Left, .. }) if !self.world.is_notified => {
                self.row.is_excused = true;
            }
            _ => {}
        }
    }

    /// The commands have run for so long that earlier restarts do not count.
    fn forget(&mut self) {
        self.world.forgets = None;
        if self.world.over.is_none() && self.world.failed.is_none() {
            self.row.forget();
            self.faults = 0;
        }
    }

    /// How the world has ended, as far as this node knows.
    fn end(&self) -> End {
        let own = self.world.failed.unwrap_or(End::Unknown);
        self.world.over.as_ref().map_or(own, |over| over.end)
    }

    /// The world is over, all know that, and this node's command has stopped: this node leaves, or the pause
    /// before the next formation begins.
    fn go_on(&mut self) {
        let State::Runs(mut running) = std::mem::replace(&mut self.state, State::Ended(None)) else { return };
        let end = self.end();
        let is_at_fault = self.world.over.is_none() && running.is_at_fault();
        self.faults = if is_at_fault { self.faults + 1 } else { 0 };
        let outlook = match self.row.after(end) {
            Some(_) if self.faults > 1 && self.has_heir(&running) => Outlook::GivesSeat,
            Some(next) => {
                self.row = next;
                self.world.resumes = Some(clock() + next.delay(end).min(FOREVER));
                self.state = State::Runs(running);
                return;
            }
            None => {
                running.release_newcomers();
                Outlook::Ends { most: self.row.restarts.most.unwrap_or_default(), hopes: false }
            }
        };
        let is_own = self.world.over.is_none();
        let over = self.world.over.clone().unwrap_or_else(|| running.own(end));
        self.state = State::Leaves(running, Ended { over, is_own, outlook });
    }

    /// Whether the job goes on with as many nodes as it needs if this one leaves.
    fn has_heir(&self, running: &RunningWorld) -> bool {
        let has_room = self.row.is_elastic && running.nodes() > self.settings.world.min().get();
        self.row.restarts.most.is_some() && (running.waiting > 0 || has_room)
    }

    /// The next world forms.
    fn again(&mut self) {
        let State::Runs(running) = std::mem::replace(&mut self.state, State::Ended(None)) else { return };
        let mut attributes = self.settings.attributes.clone();
        self.row.write(&mut attributes.metadata);
        self.report(Happening::Restarting(running.generation().saturating_add(1)));
        self.state = State::Meets(Box::pin(running.again(attributes)));
    }
}

/// Waits until then, or forever.
async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
