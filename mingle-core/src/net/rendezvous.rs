//! A rendezvous as a caller describes it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mingle_rdma::Summary;
use tokio::runtime::Builder;

use super::assignment::Assignment;
use super::driver;
use super::network::Network;
use super::worlds::{Restarts, Session};
use crate::model::{HostName, JobId, Metadata, Paths, Rank, RankKey, Secret, Traits, User, WorldSize};
use crate::net::error::Error;
use crate::proto::{self, Event};
use crate::wire::Attributes;

/// Receives the events of a rendezvous.
pub(super) type Notify = Arc<dyn Fn(Event) + Send + Sync>;

/// A node's part in a rendezvous: the job, the size of its world, and everything that this node brings.
///
/// ```no_run
/// # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
/// use mingle_core::{Event, Rendezvous, World};
///
/// let rendezvous = Rendezvous::builder("foo".parse()?, World::new(4)?)
///     .events(|event| if let Event::Progress(progress) = event { eprintln!("{progress}") })
///     .build();
/// let formed = rendezvous.join().await?.formed;
/// println!("rank {} of {}, master at {}", formed.rank, formed.world, formed.master);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `join` is awaited"]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of the caller")]
pub struct Rendezvous {
    pub(super) job: JobId,
    pub(super) world: WorldSize,
    pub(super) rank: Option<Rank>,
    pub(super) network: Network,
    pub(super) private: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) last_call: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) secret: Option<Secret>,
    pub(super) host: Option<HostName>,
    pub(super) attributes: Attributes,
    pub(super) traits: Traits,
    pub(super) keep_listener: bool,
    pub(super) stays: bool,
    pub(super) own_ports: bool,
    pub(super) gone_after: Duration,
    pub(super) growth: Option<Duration>,
    pub(super) restarts: Restarts,
    events: Option<Notify>,
}

impl Rendezvous {
    /// Starts to describe a rendezvous of the job `job`. `world` is an exact size, a [`World`](crate::World),
    /// or a range of sizes.
    pub fn builder(job: JobId, world: impl Into<WorldSize>) -> RendezvousBuilder {
        RendezvousBuilder(Self {
            job,
            world: world.into(),
            rank: None,
            network: Network::default(),
            private: false,
            timeout: Some(RendezvousBuilder::TIMEOUT),
            last_call: RendezvousBuilder::LAST_CALL,
            stop_timeout: RendezvousBuilder::STOP_TIMEOUT,
            secret: None,
            host: None,
            attributes: Attributes::default(),
            traits: Traits::default(),
            keep_listener: false,
            stays: true,
            own_ports: false,
            gone_after: RendezvousBuilder::GONE_AFTER,
            growth: None,
            restarts: Restarts { most: None, delay: Duration::ZERO, forget: Duration::MAX },
            events: None,
        })
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

    /// Calls `notify` with each event.
    pub(super) fn notify_of(&mut self, notify: impl Fn(Event) + Send + Sync + 'static) {
        self.events = Some(Arc::new(notify));
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

/// Describes a [`Rendezvous`]. Every setting has a default. [`RendezvousBuilder::join`] starts the
/// rendezvous.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `join` is awaited"]
pub struct RendezvousBuilder(Rendezvous);

impl RendezvousBuilder {
    /// How long a node waits for the world, unless [`RendezvousBuilder::timeout`] sets another time: 10
    /// minutes.
    pub const TIMEOUT: Duration = proto::TIMEOUT;

    /// How long a command may take to stop, unless [`RendezvousBuilder::stop_timeout`] sets another time: 30
    /// seconds.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);

    /// How long a last call lasts, unless [`RendezvousBuilder::last_call`] sets another time: 15 seconds.
    pub const LAST_CALL: Duration = proto::LAST_CALL;

    /// How long a suspected node may stay silent, unless [`RendezvousBuilder::gone_after`] sets another time:
    /// 30 seconds.
    pub const GONE_AFTER: Duration = Duration::from_secs(30);

    /// This node's rank. Default: none, and the leader assigns a rank.
    pub fn rank(mut self, rank: Option<Rank>) -> Self {
        self.0.rank = rank;
        self
    }

    /// The text by which this node is ordered among the nodes without a given rank. Nodes without a key come
    /// last, by address. Default: none.
    pub fn rank_key(mut self, key: &RankKey) -> Self {
        self.0.attributes.rank_key = key.clone();
        self
    }

    /// Who runs this node. A leader of another user refuses the node, so that two users who use the same job
    /// ID do not end up in the same world. Default: unknown, and no leader refuses the node.
    pub fn user(mut self, user: User) -> Self {
        self.0.attributes.user = user;
        self
    }

    /// Interfaces, ports, groups and seeds. Default: [`Network::default`].
    pub fn network(mut self, network: Network) -> Self {
        self.0.network = network;
        self
    }

    /// Whether to keep the job out of the list that `mingle watch` shows. Default: no, and the leader
    /// advertises the job once a second: its name and the number of its members, or, for a job with a secret,
    /// only that such a job exists.
    pub fn private(mut self, private: bool) -> Self {
        self.0.private = private;
        self
    }

    /// How long to wait for the world; `None` waits forever. Default: 10 minutes.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// How long the leader waits for another node once the minimum of a range of sizes has joined. Each node
    /// that joins restarts the wait, up to four times this long in total. Default: 15 seconds.
    pub fn last_call(mut self, last_call: Duration) -> Self {
        self.0.last_call = last_call;
        self
    }

    /// How long commands may take to stop after their world is over. Until then the next world does not form
    /// without a living member. Default: 30 seconds.
    pub fn stop_timeout(mut self, stop_timeout: Duration) -> Self {
        self.0.stop_timeout = stop_timeout;
        self
    }

    /// The job's secret, which must be the same on every node. Default: none, and anyone who knows the job ID
    /// can take part.
    pub fn secret(mut self, secret: Option<Secret>) -> Self {
        self.0.secret = secret;
        self
    }

    /// The host's name in messages and in the roster. Default: the system's host name.
    pub fn host(mut self, host: HostName) -> Self {
        self.0.host = Some(host);
        self
    }

    /// How many workers this node will run. Default: 1.
    pub fn slots(mut self, slots: u32) -> Self {
        self.0.attributes.slots = slots;
        self
    }

    /// What this node publishes about itself: every node finds the metadata in its roster. Default: nothing.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.0.attributes.metadata = metadata;
        self
    }

    /// The RDMA ports of this host, which the leader compares with the ports of the other hosts; see
    /// [`Summary::new`]. Default: unknown, and not compared.
    pub fn fabric(mut self, summary: Summary) -> Self {
        self.0.attributes.fabric = summary;
        self
    }

    /// What should be the same on every node. If a trait differs,
    /// [`Formed::sameness`](crate::Formed::sameness) names its key and the ranks. If `required` is set on any
    /// node, the world does not form, and all nodes end with [`Failure::Differs`](crate::Failure::Differs).
    /// Default: not compared, and not required.
    pub fn traits(mut self, traits: Traits, required: bool) -> Self {
        self.0.attributes.requires_same = required;
        self.0.traits = traits;
        self
    }

    /// Which paths between the nodes are proved before the world forms. Where the nodes ask for different
    /// values, the greatest value counts. Default: [`Paths::Auto`].
    pub fn paths(mut self, paths: Paths) -> Self {
        self.0.attributes.paths = paths;
        self
    }

    /// Whether paths are proved to the nodes' own ports, for a job that listens on no other port; see
    /// [`Format::uses_own_ports`](crate::env::Format::uses_own_ports). Default: no; paths are proved to a
    /// port that the kernel picks, as for NCCL and Gloo.
    pub fn paths_to_own_ports(mut self, own: bool) -> Self {
        self.0.own_ports = own;
        self
    }

    /// Whether [`Formed::roster`](crate::Formed::roster) holds all members. Default: no, which saves the
    /// transfer.
    pub fn roster(mut self, wanted: bool) -> Self {
        self.0.attributes.wants_roster = wanted;
        self
    }

    /// Whether rank 0 receives its listening socket as [`Assignment::listener`], so that the port is never
    /// free between the rendezvous and the job. Default: no; mingle closes the socket.
    ///
    /// The socket's queue may already hold connections: from nodes that finished before rank 0, and from late
    /// dials of the rendezvous, which end after a hello or without a byte.
    pub fn keep_listener(mut self, keep: bool) -> Self {
        self.0.keep_listener = keep;
        self
    }

    /// Whether a [`session`](Self::session) stays with its world, so that all nodes start again if a node
    /// fails. It must be the same on every node, and costs the transfer of the roster. Default: yes; without
    /// it the session ends with the first world.
    pub fn stay(mut self, stays: bool) -> Self {
        self.0.stays = stays;
        self
    }

    /// The most restarts in a row of a [`session`](Self::session): the next failure ends the job. Should be
    /// the same on every node. Default: no limit, and the caller decides each time.
    pub fn max_restarts(mut self, most: u32) -> Self {
        self.0.restarts.most = Some(most);
        self
    }

    /// How long all nodes wait before the second restart in a row. The wait doubles with each further
    /// restart, up to 5 minutes. Default: no wait.
    pub fn restart_delay(mut self, delay: Duration) -> Self {
        self.0.restarts.delay = delay;
        self
    }

    /// How long all commands must have run before earlier restarts no longer count. Default: forever, so all
    /// restarts count.
    pub fn forget_restarts(mut self, after: Duration) -> Self {
        self.0.restarts.forget = after;
        self
    }

    /// How long a suspected node may stay silent in a world of a [`session`](Self::session) before the node
    /// is dead and the world is over. Default: 30 seconds.
    pub fn gone_after(mut self, gone_after: Duration) -> Self {
        self.0.gone_after = gone_after;
        self
    }

    /// Whether a world of a [`session`](Self::session) that has fewer nodes than its maximum ends so that
    /// newcomers get a seat. A newcomer must have waited for a last call. Growths that soon follow each other
    /// have longer and longer pauses, from 5 minutes to a day. The leader's setting counts. Default: no;
    /// newcomers wait until a member is gone.
    pub fn grow(mut self, grows: bool) -> Self {
        self.0.growth = grows.then_some(Duration::ZERO);
        self
    }

    /// Calls `notify` with each event, on the task that awaits [`join`](Self::join). `notify` must not block:
    /// the node's timers wait for it. A [`session`](Self::session) returns its events instead. Default:
    /// mingle drops events.
    pub fn events(mut self, notify: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.0.notify_of(notify);
        self
    }

    /// A session with the job: the world forms, runs, and forms again when a restart is due. The session
    /// begins at the first call of [`Session::next`].
    pub fn session(self) -> Session {
        Session::new(self.0)
    }

    /// The rendezvous as described so far.
    pub fn build(self) -> Rendezvous {
        self.0
    }

    /// Takes part in the rendezvous until the world has formed; see [`Rendezvous::join`].
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn join(self) -> Result<Assignment, Error> {
        self.build().join().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::World;

    #[test]
    fn a_rendezvous_and_its_results_move_between_threads() {
        fn is_send_and_sync<T: Send + Sync + 'static>() {}
        fn is_send(_: impl Send) {}
        is_send_and_sync::<Rendezvous>();
        is_send_and_sync::<RendezvousBuilder>();
        is_send_and_sync::<Network>();
        is_send_and_sync::<Assignment>();
        is_send(Rendezvous::builder("foo".parse().unwrap(), World::new(2).unwrap()).session());
        is_send_and_sync::<Error>();
        is_send_and_sync::<proto::Node>();
        is_send_and_sync::<Event>();
        let builder = Rendezvous::builder("foo".parse().unwrap(), World::new(2).unwrap());
        is_send(builder.join());
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = Secret::new(b"a secret of many bytes").unwrap();
        let builder = Rendezvous::builder("foo".parse().unwrap(), World::new(2).unwrap());
        let shown = format!("{:?}", builder.secret(Some(secret)));
        assert!(shown.contains("foo") && !shown.contains("many bytes"), "{shown}");
    }
}
