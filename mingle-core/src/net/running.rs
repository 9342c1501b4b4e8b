//! A node that stays with its world while its command runs, so that all start again where one fails.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::Assignment;
use super::connection::Happened;
use super::connections::{Connections, What};
use super::driver::{BACKLOG, BATCH, Driver, GRACE, LOOK, REJOIN, clock, links, select, usable};
use super::endpoint::{self, OpenFiles, bind_at};
use super::watched::readable;
use crate::error::Error;
use crate::model::End;
use crate::proto::{self, Change, Event};

/// How often a port that the command has left is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// A node's part in a running world, from [`Builder::stay`](super::Builder::stay).
///
/// It holds the job's datagram sockets, and no TCP port: those are the job's. [`RunningWorld::next`] must be awaited
/// while the command runs, or nothing is heard and nobody is answered. Dropping it leaves the world without a
/// word, as a crash does.
///
/// ```no_run
/// # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
/// use mingle_core::proto::Change;
/// use mingle_core::{End, Rendezvous, World};
/// use tokio::process::Command;
///
/// let mut assignment = Rendezvous::builder("foo".parse()?, World::new(4)?).stay(true).join().await?;
/// while let Some(mut running) = assignment.running.take() {
///     let mut command = Command::new("train").env("RANK", assignment.rank.to_string()).spawn()?;
///     let mut is_running = true;
///     loop {
///         tokio::select! {
///             change = running.next() => match change {
///                 Change::Finished => return Ok(()),
///                 Change::Notified => break,
///                 _ => command.start_kill()?,
///             },
///             status = command.wait(), if is_running => {
///                 is_running = false;
///                 if status?.success() { running.succeed() } else { running.fail(End::Exited(1)) }
///             }
///         }
///     }
///     command.wait().await?;
///     assignment = running.again().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RunningWorld {
    driver: Box<Driver>,
    machine: proto::RunningWorld,
    rejoin: Instant,
    look: Instant,
}

impl fmt::Debug for RunningWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorld").field("port", &self.driver.port).finish_non_exhaustive()
    }
}

impl RunningWorld {
    pub(super) fn new(mut driver: Driver, machine: proto::RunningWorld) -> Self {
        // Programs that close every possible file rely on a low limit.
        driver.open_files = None;
        // Replacements find this node in the shared folder.
        driver.follow(driver.seed_dir());
        let now = clock();
        Self { driver: Box::new(driver), machine, rejoin: now + REJOIN, look: now + LOOK }
    }

    /// How often the job has started again before: 0 at first. Once the world is over, the number of the next
    /// formation.
    pub fn generation(&self) -> u32 {
        self.machine.lineage().generation
    }

    /// What happens next to the world. Cancel-safe.
    ///
    /// [`Change::Over`] asks to stop the command. [`Change::Notified`] follows it, and each [`RunningWorld::fail`]: then it
    /// is time for [`again`](RunningWorld::again), once the command has ended. [`Change::Finished`] follows
    /// [`RunningWorld::succeed`], unless the world is over before.
    pub async fn next(&mut self) -> Change {
        loop {
            let now = self.driver.now();
            if self.machine.poll_timeout().is_some_and(|due| proto::was_stopped(due, now)) {
                // This process was stopped: others are not silent, they are unread.
                self.read(BACKLOG);
            }
            self.machine.handle_timeout(self.driver.now());
            while let Some(output) = self.machine.poll_output() {
                self.driver.carry_out(output);
            }
            if let Some(change) = self.machine.poll_change() {
                return change;
            }
            let due = self.machine.poll_timeout().and_then(|at| self.driver.origin.checked_add(at));
            let due = due.unwrap_or(self.look).min(self.look).min(self.rejoin);
            tokio::select! {
                biased;
                () = readable(self.driver.links.receivers()) => self.read(BATCH),
                what = self.driver.connections.next() => {
                    if let What::Happened(Happened::Warning(warning)) = what {
                        self.driver.tell(Event::Warning(warning));
                    }
                }
                () = tokio::time::sleep_until(due.into()) => {}
            }
            if clock() >= self.rejoin {
                self.rejoin = clock() + REJOIN;
                self.driver.links.rejoin();
            }
            if clock() >= self.look {
                self.look = clock() + LOOK;
                self.look_at_interfaces();
            }
        }
    }

    fn read(&mut self, most: usize) {
        let machine = &mut self.machine;
        // What was said to all first: there the reason why the world is over comes before any word of the next one.
        let receivers = self.driver.links.receivers().iter().rev();
        self.driver.read(receivers, most, |now, from, datagram| {
            machine.handle_datagram(now, from, datagram);
        });
    }

    /// An interface may have come on which replacements are heard.
    fn look_at_interfaces(&mut self) {
        let Driver { builder, links, .. } = &mut *self.driver;
        if builder.world.get() == 1 {
            return;
        }
        if let Ok(interfaces) = select(builder)
            && !links.are_on(&interfaces)
            && let Err(error) = links.change(interfaces)
        {
            tracing::debug!(%error, "taking other interfaces");
        }
    }

    /// Says that no formation will follow this one, at least not on this node. Those that have to know that it is over
    /// are told for up to 15 s then, and not for 1 s: nothing tells them later.
    pub fn set_last(&mut self) {
        self.machine.set_last();
    }

    /// This node's command has ended, and not well: all others are told, while [`RunningWorld::next`] is awaited.
    pub fn fail(&mut self, end: End) {
        self.machine.handle_failure(self.driver.now(), end);
    }

    /// This node's command has ended well. The world stands until all others' have, too.
    pub fn succeed(&mut self) {
        self.machine.handle_success(self.driver.now());
    }

    /// Takes part in the next formation of the job, once the command has ended and the world is over. The time to
    /// wait begins anew.
    ///
    /// # Errors
    /// As [`Builder::join`](super::Builder::join). A port that is still taken, by what the command has left
    /// behind, is waited for for 5 s; then, where it was not given, another is taken.
    pub async fn again(self) -> Result<Assignment, Error> {
        let mut driver = *self.driver;
        driver.builder.lineage = self.machine.lineage();
        driver.former = self.machine.others();
        driver.asks_former = true;
        driver.origin = clock();
        let listeners = driver.listen_again().await?;
        driver.connections = Connections::open(listeners, driver.builder.keep_listener)?;
        driver.open_files = Some(OpenFiles::raise());
        driver.endpoints = driver.own_endpoints();
        driver.renew()?;
        driver.rendezvous().await
    }
}

impl Driver {
    /// The port that the command had, or, where it is not given and stays taken, another.
    async fn listen_again(&mut self) -> Result<Vec<TcpListener>, Error> {
        let until = clock() + GRACE;
        loop {
            match endpoint::listen_again(self.links.own()) {
                Ok(listeners) => return Ok(listeners),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && clock() < until => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(source) => match self.builder.master_port {
                    Some(port) => return Err(Error::PortTaken { port, source }),
                    None => break,
                },
            }
        }
        let interfaces = usable(&self.builder).await?;
        let builder = &self.builder;
        let endpoint = bind_at(builder.loopback, None, builder.job.ports(), builder.ttl)?;
        self.links = links(builder, interfaces, endpoint.sockets)?;
        self.port = endpoint.port;
        Ok(endpoint.listeners)
    }
}
