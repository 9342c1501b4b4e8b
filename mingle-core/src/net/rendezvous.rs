//! A rendezvous as a caller describes it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;

use super::assignment::Assignment;
use super::driver;
use super::network::Network;
use super::worlds::{Restarts, Session};
use crate::model::{HostName, JobId, JobTag, Rank, Secret, Traits, WorldSize};
use crate::net::error::Error;
use crate::proto::{self, Event};
use crate::wire::Attributes;

/// Receives the events of a rendezvous.
pub(super) type Notify = Arc<dyn Fn(Event) + Send + Sync>;

/// A node's part in a rendezvous: the job, the size of its world, and everything that this node brings. Every
/// field but the first two has a default.
///
/// ```no_run
/// # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
/// use mingle_core::{Event, Rendezvous, World};
///
/// let mut rendezvous = Rendezvous::new("foo".parse()?, World::new(4)?);
/// rendezvous.attributes.slots = 8;
/// rendezvous.on_event(|event| if let Event::Progress(progress) = event { eprintln!("{progress}") });
/// let formed = rendezvous.join().await?.formed;
/// println!("rank {} of {}, master at {}", formed.rank, formed.world, formed.master);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
#[must_use = "nothing happens before `join` is awaited"]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of the caller")]
pub struct Rendezvous {
    /// The job.
    pub job: JobId,
    /// How many nodes the world has: an exact size, or a range of sizes.
    pub world: WorldSize,
    /// This node's rank, which counts only in a world of a single size. Default: none, and the leader assigns
    /// a rank.
    pub rank: Option<Rank>,
    /// Interfaces, ports, groups and seeds. Default: [`Network::default`].
    pub network: Network,
    /// Whether to keep the job out of the list that `mingle watch` shows. Default: no, and the leader
    /// advertises the job once a second: its name and the number of its members, or, for a job with a secret,
    /// only that such a job exists.
    pub private: bool,
    /// How long to wait for the world; `None` waits forever. Default: [`Rendezvous::TIMEOUT`].
    pub timeout: Option<Duration>,
    /// How long the leader waits for another node once the minimum of a range of sizes has joined. Each node
    /// that joins restarts the wait, up to four times this long in total. Default:
    /// [`Rendezvous::LAST_CALL`].
    pub last_call: Duration,
    /// How long commands may take to stop after their world is over. Until then the next world does not form
    /// without a living member. Default: [`Rendezvous::STOP_TIMEOUT`].
    pub stop_timeout: Duration,
    /// The job's secret, which must be the same on every node. Default: none, and anyone who knows the job ID
    /// can take part.
    pub secret: Option<Secret>,
    /// The host's name in messages and in the roster. Default: none, and the system's host name is used.
    pub host: Option<HostName>,
    /// What this node says of itself, such as its workers, its RDMA devices and what it publishes. With
    /// [`Attributes::wants_roster`], [`Formed::roster`](crate::Formed::roster) holds all members. Default:
    /// [`Attributes::default`].
    pub attributes: Attributes,
    /// What should be the same on every node. If a trait differs,
    /// [`Formed::sameness`](crate::Formed::sameness) names its key and the ranks. If
    /// [`Attributes::requires_same`] is set on any node, the world does not form, and all nodes end with
    /// [`Failure::Differs`](crate::Failure::Differs). Default: not compared.
    pub traits: Traits,
    /// Whether rank 0 receives its listening socket as [`Assignment::listener`], so that the port is never
    /// free between the rendezvous and the job. Default: no; mingle closes the socket.
    ///
    /// The socket's queue may already hold connections: from nodes that finished before rank 0, and from late
    /// dials of the rendezvous, which end after a hello or without a byte.
    pub keep_listener: bool,
    /// Whether a [`session`](Self::session) stays with its world, so that all nodes start again if a node
    /// fails. It must be the same on every node, and costs the transfer of the roster. Default: yes; without
    /// it the session ends with the first world.
    pub stays: bool,
    /// Whether paths are proved to the nodes' own ports, for a job that listens on no other port; see
    /// [`Format::uses_own_ports`](crate::env::Format::uses_own_ports). Default: no; paths are proved to a
    /// port that the kernel picks, as for NCCL and Gloo.
    pub own_ports: bool,
    /// How long a suspected node may stay silent in a world of a [`session`](Self::session) before the node
    /// is dead and the world is over. Default: [`Rendezvous::GONE_AFTER`].
    pub gone_after: Duration,
    /// Whether a world of a [`session`](Self::session) that has fewer nodes than its maximum ends so that
    /// newcomers get a seat. A newcomer must have waited for a last call. Growths that soon follow each other
    /// have longer and longer pauses, from 5 minutes to a day. The leader's setting counts. Default: no;
    /// newcomers wait until a member is gone.
    pub grows: bool,
    /// When the commands of a [`session`](Self::session) start again.
    pub restarts: Restarts,
    /// Whether no command will run in the world: `mingle doctor` tries a formation. Such a node meets only
    /// nodes that try as well. When its time is up, their world forms with those that have come, two or more;
    /// and it forms although paths are broken, except to rank 0, once up to three networks and families were
    /// tried and no node can be left out: [`Formed::broken`](crate::Formed::broken) has these paths. The node
    /// gets the roster. Default: no.
    pub tries: bool,
    pub(super) events: Option<Notify>,
}

impl Rendezvous {
    /// How long a node waits for the world by default: 10 minutes.
    pub const TIMEOUT: Duration = proto::TIMEOUT;

    /// How long a last call lasts by default: 15 seconds.
    pub const LAST_CALL: Duration = proto::LAST_CALL;

    /// How long a command may take to stop by default: 30 seconds.
    pub const STOP_TIMEOUT: Duration = proto::STOP_TIMEOUT;

    /// How long a suspected node may stay silent by default: 30 seconds.
    pub const GONE_AFTER: Duration = proto::GONE_AFTER;

    /// A rendezvous of the job `job`. `world` is an exact size, a [`World`](crate::World), or a range of
    /// sizes.
    pub fn new(job: JobId, world: impl Into<WorldSize>) -> Self {
        Self {
            job,
            world: world.into(),
            rank: None,
            network: Network::default(),
            private: false,
            timeout: Some(Self::TIMEOUT),
            last_call: Self::LAST_CALL,
            stop_timeout: Self::STOP_TIMEOUT,
            secret: None,
            host: None,
            attributes: Attributes::default(),
            traits: Traits::default(),
            keep_listener: false,
            stays: true,
            own_ports: false,
            gone_after: Self::GONE_AFTER,
            grows: false,
            restarts: Restarts::default(),
            tries: false,
            events: None,
        }
    }

    /// Calls `notify` with each event, on the task that awaits [`join`](Self::join). `notify` must not block:
    /// the node's timers wait for it. A [`session`](Self::session) returns its events instead. Default:
    /// mingle drops events.
    pub fn on_event(&mut self, notify: impl Fn(Event) + Send + Sync + 'static) {
        self.events = Some(Arc::new(notify));
    }

    /// Takes part in the rendezvous until the world has formed.
    ///
    /// Cancel-safe: dropping the future closes all sockets, and the closed connections tell the other nodes
    /// at once that this node is gone.
    ///
    /// # Errors
    /// See [`Error`]. A failed rendezvous leaves nothing behind, and you can try again.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn join(mut self) -> Result<Assignment, Error> {
        self.stays = false;
        // On the heap: the driver is large, and callers keep this future on their stacks.
        Box::pin(driver::join(self)).await
    }

    /// Does the same as [`join`](Self::join), for a program without a tokio runtime.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    ///
    /// # Panics
    /// Within a tokio runtime.
    pub fn join_blocking(self) -> Result<Assignment, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::socket("cannot start the runtime"))?;
        let joined = runtime.block_on(self.join());
        // Looking up the name of a seed may take many seconds more, and its answer is not needed.
        runtime.shutdown_background();
        joined
    }

    /// A session with the job: the world forms, runs, and forms again when a restart is due. The session
    /// begins at the first call of [`Session::next`].
    pub fn session(self) -> Session {
        Session::new(self)
    }

    /// The tag of this node's messages.
    pub(super) fn tag(&self) -> JobTag {
        if self.tries { self.job.tag_of_tries() } else { self.job.tag() }
    }

    /// Whether the world has no other node to find.
    pub(super) fn is_alone(&self) -> bool {
        self.world.max().get() == 1
    }

    pub(super) fn notify(&self, event: Event) {
        if let Some(events) = &self.events {
            events(event);
        }
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendezvous")
            .field("job", &self.job)
            .field("world", &self.world)
            .field("rank", &self.rank)
            .field("network", &self.network)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::World;

    fn rendezvous() -> Rendezvous {
        Rendezvous::new("foo".parse().unwrap(), World::new(2).unwrap())
    }

    #[test]
    fn a_rendezvous_and_its_results_move_between_threads() {
        fn is_send_and_sync<T: Send + Sync + 'static>() {}
        fn is_send(_: impl Send) {}
        is_send_and_sync::<Rendezvous>();
        is_send_and_sync::<Network>();
        is_send_and_sync::<Assignment>();
        is_send(rendezvous().session());
        is_send_and_sync::<Error>();
        is_send_and_sync::<proto::Node>();
        is_send_and_sync::<Event>();
        is_send(rendezvous().join());
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut rendezvous = rendezvous();
        rendezvous.secret = Some(Secret::new(b"a secret of many bytes").unwrap());
        let shown = format!("{rendezvous:?}");
        assert!(shown.contains("foo") && !shown.contains("many bytes"), "{shown}");
    }
}
