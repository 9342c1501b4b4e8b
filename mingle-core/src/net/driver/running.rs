//! A node that stays with its world while its command runs, so that all nodes start again if one fails.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::interfaces::{GRACE, own_endpoints, usable};
use super::receive::{BACKLOG, BATCH};
use super::{Driver, open_links, path_listeners};
use crate::model::{End, Metadata};
use crate::net::assignment::Assignment;
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::sockets::connection::TaskEvent;
use crate::net::sockets::connections::{Connections, Incoming, Listeners};
use crate::net::sockets::endpoint::{bind_candidates, listen_again};
use crate::net::sockets::open_files::OpenFiles;
use crate::net::sockets::watched::readable;
use crate::proto::{self, Change};

/// The pause between two attempts to listen on the port that the command has used.
const RETRY: Duration = Duration::from_millis(50);

/// A node's part in a running world, from [`RendezvousBuilder::stay`](crate::RendezvousBuilder::stay).
///
/// It holds the node's datagram sockets, and the port for paths, at which its neighbours watch it; the node's
/// own TCP port belongs to the job.
/// [`RunningWorld::next`] must be awaited while the command runs, or the node neither hears nor answers the
/// others. Dropping it leaves the world without a message, as a crash does.
///
/// ```no_run
/// # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
/// use mingle_core::{Change, End, Rendezvous, World};
/// use tokio::process::Command;
///
/// let mut assignment = Rendezvous::builder("foo".parse()?, World::new(4)?).stay(true).join().await?;
/// while let Some(mut running) = assignment.running.take() {
///     let mut command = Command::new("train").env("RANK", assignment.formed.rank.to_string()).spawn()?;
///     let mut is_running = true;
///     loop {
///         tokio::select! {
///             change = running.next() => match change {
///                 Change::Finished => return Ok(()),
///                 Change::Notified => break,
///                 Change::Over(_) => command.start_kill()?,
///                 _ => {}
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
    machine: proto::RunningNode,
}

impl fmt::Debug for RunningWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorld")
            .field("job", &self.driver.settings.job)
            .field("port", &self.driver.port)
            .finish_non_exhaustive()
    }
}

impl RunningWorld {
    pub(super) fn new(mut driver: Driver, mut machine: proto::RunningNode) -> Self {
        if let Some(after) = driver.settings.growth {
            machine.set_growth(driver.now(), after);
        }
        driver.open_files = None;
        driver.keep_seed_file();
        driver.connections.watch_paths();
        Self { driver: Box::new(driver), machine }
    }

    /// How often the job has started again: 0 in its first formation. Once the world is over, the number of
    /// the next formation.
    pub fn generation(&self) -> u32 {
        self.machine.lineage().generation
    }

    /// Waits for the world's next change. Cancel-safe.
    ///
    /// After [`Change::Over`] the caller stops its command. [`Change::Notified`] follows it, and follows each
    /// [`RunningWorld::fail`]: once the command has ended, the caller may call
    /// [`again`](RunningWorld::again). [`Change::Finished`] follows [`RunningWorld::succeed`], unless the
    /// world is over before.
    pub async fn next(&mut self) -> Change {
        loop {
            let now = self.driver.now();
            if self.machine.poll_timeout().is_some_and(|due| proto::was_stopped(due, now)) {
                // This process was stopped: the other nodes' messages wait unread.
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
            let due = due.into_iter().fold(self.driver.links.due(Duration::ZERO), Instant::min);
            tokio::select! {
                biased;
                () = readable(self.driver.links.receivers()) => self.read(BATCH),
                incoming = self.driver.connections.next() => match incoming {
                    Incoming::Event(TaskEvent::Warning(warning)) => self.driver.warn(warning),
                    Incoming::Event(TaskEvent::Watched(dial, news)) => {
                        self.machine.handle_watch(self.driver.now(), dial, news);
                    }
                    Incoming::Event(_) => {}
                    Incoming::Accepted(accepted) => {
                        if let Ok((_, from, _)) = &accepted {
                            self.machine.handle_guest(self.driver.now(), from.ip().to_canonical());
                        }
                        self.driver.connections.keep(accepted);
                    }
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let Driver { settings, links, .. } = &mut *self.driver;
            if links.keep_up() && !settings.is_alone() {
                // Replacements may be heard on a new interface.
                links.follow(&settings.network);
            }
        }
    }

    fn read(&mut self, most: usize) {
        let machine = &mut self.machine;
        // The groups' sockets first: they carry the reason why the world is over, which must come before any
        // message of the next world.
        let receivers = self.driver.links.receivers_in_order().rev();
        self.driver.read(receivers, most, |now, from, datagram| {
            machine.handle_datagram(now, from, datagram);
        });
    }

    /// Declares whether this node will take part in no other formation. If so it repeats to the others that
    /// the world is over for up to 15 s instead of 1 s, since no later formation will show them.
    pub fn set_last(&mut self, is_last: bool) {
        self.machine.set_last(is_last);
    }

    /// How many failures may still be followed by a restart, for `mingle watch`.
    pub fn set_restarts_left(&mut self, left: u32) {
        self.machine.set_restarts_left(left);
    }

    /// Replaces [`RendezvousBuilder::grow`](crate::RendezvousBuilder::grow) for this world, from now on, and
    /// for those that follow: a world that grows again and again wants longer pauses.
    pub fn set_growth(&mut self, after: Duration) {
        self.driver.settings.growth = Some(after);
        self.machine.set_growth(self.driver.now(), after);
    }

    /// How many newcomers wait for a seat, as rank 0 knows it: those heard within 10 s, at most 64; 0 on
    /// every other rank.
    pub fn newcomers(&mut self) -> u32 {
        self.machine.newcomers(self.driver.now())
    }

    /// Tells the newcomers that wait, as rank 0 knows them, that no world follows this one: their rendezvous
    /// ends with [`Failure::JobFinished`](crate::Failure::JobFinished). Does nothing on every other rank.
    pub fn release_newcomers(&mut self) {
        self.machine.release_newcomers(self.driver.now());
    }

    /// Replaces [`RendezvousBuilder::port_grace`](crate::RendezvousBuilder::port_grace) from this world on: a
    /// program that still holds its listening socket wants another port at once.
    pub fn set_port_grace(&mut self, grace: Duration) {
        self.driver.settings.port_grace = grace;
    }

    /// Replaces what [`RendezvousBuilder::metadata`](crate::RendezvousBuilder::metadata) says to the nodes of
    /// the next world.
    pub fn set_metadata(&mut self, metadata: Metadata) {
        self.driver.settings.attributes.metadata = metadata;
    }

    /// Reports that this node's command has failed, or with [`End::Left`] that this node leaves while its
    /// command may still run. [`RunningWorld::next`] then notifies the other nodes.
    pub fn fail(&mut self, end: End) {
        self.machine.handle_failure(self.driver.now(), end);
    }

    /// Reports that this node's command has ended well. The world runs until every node's command has.
    pub fn succeed(&mut self) {
        self.machine.handle_success(self.driver.now());
    }

    /// Takes part in the next formation of the job, once the command has ended and the world is over. The
    /// timeout starts again.
    ///
    /// # Errors
    /// As [`Rendezvous::join`](crate::Rendezvous::join). If a process that the command has left behind still
    /// holds the port, this waits as long as
    /// [`RendezvousBuilder::port_grace`](crate::RendezvousBuilder::port_grace) says, and then takes another
    /// port unless [`Network::master_port`](crate::Network::master_port) is set.
    pub async fn again(self) -> Result<Assignment, Error> {
        let mut driver = *self.driver;
        driver.settings.lineage = self.machine.lineage();
        driver.settings.former = self.machine.former();
        driver.origin = clock();
        driver.began = driver.origin;
        driver.peers.set_former(self.machine.others(), driver.origin);
        let listeners = driver.listen_again(driver.settings.port_grace).await?;
        driver.open_files = Some(OpenFiles::raise());
        let settings = &driver.settings;
        let (paths, path_port) = path_listeners(settings, driver.port)?;
        driver.path_port = path_port;
        let keep_own = settings.keep_listener;
        let listeners = Listeners { own: listeners, keep_own, paths, keep_paths: true };
        driver.connections = Connections::open(listeners, settings.world.max())?;
        // An interface that has lost its link since may have it again.
        if !driver.settings.is_alone() {
            driver.links.change(usable(&driver.settings).await?)?;
        }
        driver.endpoints = own_endpoints(&driver.settings.network, &driver.links, driver.port);
        driver.renew()?;
        driver.rendezvous().await
    }
}

impl Driver {
    /// Listens on the port that the command has used. If it stays taken and is not given, takes another.
    async fn listen_again(&mut self, grace: Duration) -> Result<Vec<TcpListener>, Error> {
        let is_given = self.settings.network.master_port.is_some();
        let until = clock() + if is_given { GRACE } else { grace };
        loop {
            match listen_again(self.links.own()) {
                Ok(listeners) => return Ok(listeners),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && clock() < until => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(source) => match self.settings.network.master_port {
                    Some(port) => return Err(Error::PortTaken { port, source }),
                    None => break,
                },
            }
        }
        let interfaces = usable(&self.settings).await?;
        let network = &self.settings.network;
        let endpoint = bind_candidates(network, network.ports(&self.settings.job))?;
        self.links = open_links(&self.settings, interfaces, endpoint.sockets)?;
        self.port = endpoint.port;
        Ok(endpoint.listeners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::World;
    use crate::net::Rendezvous;

    #[tokio::test]
    async fn settings_of_a_running_world_survive_a_restart() {
        let builder = Rendezvous::builder("settings".parse().unwrap(), World::new(1).unwrap());
        let builder = builder.stay(true).gone_after(Duration::from_secs(9)).grow(Duration::from_secs(7));
        let mut assignment = builder.join().await.unwrap();
        for generation in 0..2 {
            let mut running = assignment.running.take().unwrap();
            assert_eq!(running.generation(), generation);
            let machine = format!("{:?}", running.machine);
            assert!(machine.contains("gone_after: 9s"), "{machine}");
            assert_eq!(running.driver.settings.growth, Some(Duration::from_secs(7)));
            running.set_port_grace(Duration::ZERO);
            running.fail(End::Exited(1));
            while running.next().await != Change::Notified {}
            assignment = running.again().await.unwrap();
        }
        let running = assignment.running.unwrap();
        assert_eq!(running.driver.settings.port_grace, Duration::ZERO);
    }
}
