//! All connections of a node: those that it opens, those that it accepts, and their events.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep_until;

use super::connection::{self, Purposes, TaskEvent};
use super::endpoint::BACKLOG;
use super::guests::Guests;
use super::open_files::Room;
use super::path;
use crate::model::{NodeId, World};
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::session::{self, Carrier, Dial};
use crate::proto::{ConnId, DialId, Ending, Order, PathDial, PathNews, PathTarget, Warning, Way};
use crate::wire::Frame;
use crate::wire::session::Hellos;

/// Accepts no more while so many tasks have been told to end and still hold their descriptors: while
/// connections come fast, the runtime would run no task, and no hello would be read.
const ENDING: usize = 64;
/// The pause after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The most connections that are accepted at once.
const BATCH: usize = 256;

/// An accepted connection, and whether it came by a port for paths; or why accepting failed.
type Accepted = io::Result<(TcpStream, SocketAddr, bool)>;

/// How long the other ends may take to close their connections, when this node closes all.
const FAREWELL: Duration = Duration::from_millis(250);
/// The longest body of a frame, in bytes: a plan has up to about 500 for each of 10,000 nodes. A node that
/// only asks for a seat says less: a join with all traits has 16,000 at most.
pub(crate) const fn longest(is_believed: bool) -> usize {
    if is_believed { 8 << 20 } else { 24 << 10 }
}

/// A task for every connection. Dropping this closes them all.
#[derive(Debug)]
pub(crate) struct Connections {
    /// On the node's own port, IPv4 first, and then on its port for paths; each with whether it is for paths
    /// alone.
    listeners: Vec<(TcpListener, bool)>,
    /// Whether those of the own port stay open for the job when this node accepts no more.
    pub(crate) keeps_own: bool,
    /// Those that do, IPv4 first.
    kept: Vec<TcpListener>,
    /// What accepted connections may be for. They leave nothing behind on their port, which the job will use,
    /// unless the listeners are [for sessions](Self::for_sessions) alone.
    purposes: Purposes,
    /// Where the frames of each open connection of a session go.
    frames: BTreeMap<ConnId, Sender<Frame>>,
    /// Accepts again from this time on, after an error.
    accept_from: Instant,
    has_warned: bool,
    /// The tasks of accepted connections, those included that have been told to end.
    accepted: JoinSet<()>,
    tasks: JoinSet<()>,
    dials: BTreeMap<DialId, AbortHandle>,
    guests: Guests,
    next_conn: u64,
    sender: UnboundedSender<TaskEvent>,
    events: UnboundedReceiver<TaskEvent>,
}

impl Connections {
    /// Accepts on these listeners of the node's own port, and of its port for paths.
    pub(crate) fn open(
        own: Vec<StdTcpListener>,
        paths: Vec<StdTcpListener>,
        world: World,
    ) -> Result<Self, Error> {
        let newest = own.iter().chain(&paths).map(AsRawFd::as_raw_fd).max().unwrap_or_default();
        set_backlog(&own, least_backlog(world));
        let all = own.into_iter().map(|own| (own, false)).chain(paths.into_iter().map(|path| (path, true)));
        let listeners = all.map(|(listener, only_paths)| Ok((TcpListener::from_std(listener)?, only_paths)));
        let (sender, events) = unbounded_channel();
        Ok(Self {
            listeners: listeners
                .collect::<io::Result<_>>()
                .map_err(Error::socket("cannot watch the sockets"))?,
            keeps_own: false,
            kept: Vec::new(),
            purposes: Purposes { paths: None, sessions: None, resets: true },
            frames: BTreeMap::new(),
            accept_from: clock(),
            has_warned: false,
            accepted: JoinSet::new(),
            tasks: JoinSet::new(),
            dials: BTreeMap::new(),
            guests: Guests::new(Room::above(newest, world)),
            next_conn: 0,
            sender,
            events,
        })
    }

    /// Of sessions alone, for as long as this lives. None has the number of a connection of the node's own
    /// port, of which the same world hears.
    pub(crate) fn for_sessions(mut self) -> Self {
        (self.purposes.resets, self.next_conn) = (false, 1 << 31);
        self
    }

    /// Waits for the next event, which it returns, or until connections were accepted. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<TaskEvent> {
        loop {
            if let Some(event) = self.next_waiting() {
                return Some(event);
            }
            let accepts = self.accepts();
            tokio::select! {
                biased;
                // The channel stays open, since `self` holds a sender.
                Some(event) = self.events.recv() => if let Some(event) = self.note(event) {
                    return Some(event);
                },
                accepted = poll_fn(|context| {
                    poll_listeners(&self.listeners, self.next_conn, context)
                }), if accepts => {
                    self.accept(accepted);
                    self.accept_waiting().await;
                    return None;
                }
                () = sleep_until(self.accept_from.into()), if clock() < self.accept_from => {}
                // Then it may accept again.
                Some(_) = self.accepted.join_next() => {}
            }
        }
    }

    /// The next of the events that have arrived.
    pub(crate) fn next_waiting(&mut self) -> Option<TaskEvent> {
        loop {
            let event = self.events.try_recv().ok()?;
            if let Some(event) = self.note(event) {
                return Some(event);
            }
        }
    }

    /// Notes which connections have closed or sent their hellos. Returns the event, unless it is of a path
    /// whose proof this node has given up, of a connection without a hello, or of a hello on a connection
    /// that has made room for another since.
    fn note(&mut self, event: TaskEvent) -> Option<TaskEvent> {
        match &event {
            TaskEvent::Path(dial, PathNews::Arrived | PathNews::Failed(_)) => {
                self.dials.remove(dial)?;
            }
            TaskEvent::Opened { conn, way, frames, .. } => {
                if !self.guests.identify(*conn) && matches!(way, Way::Accepted(_)) {
                    return None;
                }
                self.frames.insert(*conn, frames.clone());
                if let Some(evicted) = self.guests.evict_prover() {
                    self.frames.remove(&evicted);
                    self.report(TaskEvent::Closed(evicted, Ending::Closed));
                    self.warn_once("as many nodes have one as this world and the limit of open files permit");
                }
            }
            TaskEvent::Closed(conn, _) => {
                self.frames.remove(conn);
                if self.guests.remove(*conn) {
                    return None;
                }
            }
            _ => {}
        }
        Some(event)
    }

    fn report(&self, event: TaskEvent) {
        // The channel is open, since `self` holds its other end.
        let _ = self.sender.send(event);
    }

    /// From now on the tokens of paths are answered by this.
    pub(crate) fn set_target(&mut self, target: PathTarget) {
        self.purposes.paths = Some(Arc::new(target));
    }

    /// From now on connections are of sessions, too, of the process with this ID.
    pub(crate) fn speak_as(&mut self, own: NodeId, hellos: Hellos) {
        self.purposes.sessions = Some(Carrier { own, hellos, events: self.sender.clone() });
    }

    /// Whether to accept another connection now: not after an error, nor while many tasks have still to end.
    /// Forgets those that have ended.
    fn accepts(&mut self) -> bool {
        while self.accepted.try_join_next().is_some() || self.tasks.try_join_next().is_some() {}
        let is_behind = self.accepted.len() > self.guests.len() + ENDING;
        !is_behind && clock() >= self.accept_from
    }

    /// Accepts the connections that wait already: where one waits there are often more.
    pub(crate) async fn accept_waiting(&mut self) {
        for _ in 0..BATCH {
            if !self.accepts() {
                return;
            }
            let poll = |context: &mut Context<'_>| {
                Poll::Ready(poll_listeners(&self.listeners, self.next_conn, context))
            };
            let Poll::Ready(accepted) = poll_fn(poll).await else { return };
            self.accept(accepted);
        }
    }

    /// Takes an accepted connection. Warns of the first error.
    fn accept(&mut self, accepted: Accepted) {
        let (stream, from, only_paths) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example no file descriptor is left: closing a stranger frees one. The error returns at
                // once while its cause lasts, so accepting pauses.
                tracing::debug!(%error, "accepting");
                self.guests.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
                return self.warn_once(&error.to_string());
            }
        };
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let sessions = self.purposes.sessions.clone().filter(|_| !only_paths);
        let purposes = Purposes { sessions, ..self.purposes.clone() };
        let events = self.sender.clone();
        let task = self.accepted.spawn(async move {
            let ending = connection::hold(conn, stream, purposes).await;
            // Sending fails if the driver has ended.
            let _ = events.send(TaskEvent::Closed(conn, ending));
        });
        self.guests.add(conn, from.ip().to_canonical(), task);
    }

    fn warn_once(&mut self, error: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            self.report(TaskEvent::Warning(Warning::NotAccepted { error: error.to_owned() }));
        }
    }

    /// Makes room for as many connections as the limit of open files permits by now.
    pub(crate) fn make_room(&mut self, world: World) {
        let newest = self.listeners.iter().map(|(listener, _)| listener.as_raw_fd()).max();
        self.guests.room = Room::above(newest.unwrap_or_default(), world);
    }

    /// Does what a session asks. A process that is dialled may say long frames if it is believed.
    pub(crate) fn carry_out(&mut self, order: Order, believes: impl FnOnce(NodeId) -> bool) {
        match order {
            Order::Dial { to, peer, dial: number, number: session } => {
                let Some(carrier) = self.purposes.sessions.clone() else { return };
                let longest = longest(believes(peer));
                self.next_conn += 1;
                let dial = Dial { number, conn: ConnId(self.next_conn), to, peer, session, longest };
                self.tasks.spawn(session::dial(dial, carrier));
            }
            Order::Write(conn, frame) => {
                // Sending also fails if the connection has just ended, which is reported.
                let sent = self.frames.get(&conn).map(|frames| frames.try_send(frame));
                if let Some(Err(TrySendError::Full(_))) = sent {
                    tracing::debug!(?conn, "the other end reads nothing");
                    self.frames.remove(&conn);
                }
            }
            // Its task ends when all is written.
            Order::Close(conn) => _ = self.frames.remove(&conn),
        }
    }

    pub(crate) fn prove(&mut self, path: PathDial) {
        let dial = path.dial;
        self.dials.insert(dial, self.tasks.spawn(path::prove(path, self.sender.clone())));
    }

    pub(crate) fn hang_up(&mut self, dial: DialId) {
        if let Some(task) = self.dials.remove(&dial) {
            task.abort();
        }
    }

    /// Runs another task whose events arrive with those of the connections.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        start: impl FnOnce(UnboundedSender<TaskEvent>) -> F,
    ) -> AbortHandle {
        self.tasks.spawn(start(self.sender.clone()))
    }

    /// Accepts no more connections: the port belongs to the job.
    pub(crate) fn stop_accepting(&mut self) {
        let all = std::mem::take(&mut self.listeners).into_iter();
        let kept = all.filter(|(_, only_paths)| self.keeps_own && !only_paths);
        self.kept.extend(kept.map(|(listener, _)| listener));
    }

    /// Closes every connection, drops their events, and goes on accepting. From now on connections are of no
    /// sessions.
    pub(crate) fn hang_up_all(&mut self) {
        for task in std::mem::take(&mut self.dials).into_values() {
            task.abort();
        }
        self.guests.close_all();
        self.frames.clear();
        // A warning may be among the events that are dropped.
        self.has_warned = false;
        // The next node does not know the connections of events that are still queued.
        (self.sender, self.events) = unbounded_channel();
        self.purposes.sessions = None;
    }

    /// Closes everything, once the other ends have read what was written.
    ///
    /// The end that closes a connection first holds its port for a minute (TIME_WAIT). So the `master` waits
    /// until the others have closed those on its own port, as they do when they know that the world has
    /// formed.
    pub(crate) async fn close_all(&mut self, master: bool) {
        let mut frames = std::mem::take(&mut self.frames);
        let mut open: BTreeSet<ConnId> = frames.keys().copied().collect();
        frames.retain(|conn, _| master && self.guests.has(*conn));
        let all = async {
            while !open.is_empty()
                && let Some(event) = self.events.recv().await
            {
                if let TaskEvent::Closed(conn, _) = event {
                    open.remove(&conn);
                }
            }
        };
        let _ = tokio::time::timeout(FAREWELL, all).await;
        // Connections on the master's port are reset, so that nothing holds the port when the job binds it.
        self.accepted.shutdown().await;
        self.tasks.shutdown().await;
        self.stop_accepting();
        self.hang_up_all();
    }

    /// The listener of a family, if listeners were kept. Closes the other.
    pub(crate) fn take_listener(&mut self, ipv6: bool) -> Option<StdTcpListener> {
        let own = std::mem::take(&mut self.kept).into_iter().nth(usize::from(ipv6));
        let listener = own.and_then(|listener| listener.into_std().ok());
        set_backlog(listener.as_slice(), BACKLOG);
        listener
    }
}

/// How many connections need to wait to be accepted in a world of this size. A node waits behind those of
/// strangers, so there are few in a small world.
fn least_backlog(world: World) -> i32 {
    i32::try_from(world.get().saturating_mul(8)).unwrap_or(BACKLOG).clamp(256, BACKLOG)
}

/// Changes how many connections may wait to be accepted.
fn set_backlog(listeners: &[StdTcpListener], backlog: i32) {
    for listener in listeners {
        if let Err(error) = SockRef::from(listener).listen(backlog) {
            tracing::debug!(%error, "changing the backlog");
        }
    }
}

/// Polls the listeners up to the first that is ready; if none is, each wakes this task. Returns with the
/// connection whether it has come to the port for paths.
///
/// Each turn begins with another listener: where strangers crowd on one port, connections to the other would
/// wait for ever.
fn poll_listeners(listeners: &[(TcpListener, bool)], turn: u64, context: &mut Context<'_>) -> Poll<Accepted> {
    let first = usize::try_from(turn).unwrap_or_default() % listeners.len().max(1);
    for (listener, only_paths) in listeners.iter().cycle().skip(first).take(listeners.len()) {
        if let Poll::Ready(accepted) = listener.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, from)| (stream, from, *only_paths)));
        }
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpStream as StdTcpStream};

    use super::*;
    use crate::model::JobId;
    use crate::proto::Ends;

    /// Opens connections until one has to wait, or this many are open.
    fn fill(to: SocketAddr, most: usize) -> Vec<StdTcpStream> {
        let open = || StdTcpStream::connect_timeout(&to, Duration::from_millis(200)).ok();
        std::iter::from_fn(open).take(most).collect()
    }

    fn listener() -> (StdTcpListener, SocketAddr) {
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_crowd_at_the_nodes_own_port_keeps_nobody_waiting_at_the_port_for_paths() {
        let ((own, own_port), (paths, path_port)) = (listener(), listener());
        let (crowd, _other) = (fill(own_port, 50), fill(path_port, 1));
        assert_eq!(crowd.len(), 50);
        let connections = Connections::open(vec![own], vec![paths], World::new(4).unwrap()).unwrap();
        let mut accepted = Vec::new();
        for turn in 0..4 {
            let next = poll_fn(|context| poll_listeners(&connections.listeners, turn, context));
            accepted.push(next.await.unwrap().2);
        }
        assert_eq!(accepted.iter().filter(|is_for_paths| **is_for_paths).count(), 1, "{accepted:?}");
    }

    #[tokio::test]
    async fn in_a_small_world_few_connections_wait_to_be_accepted_until_the_job_gets_the_listener() {
        const MORE: usize = 100;
        let ((first, _), (second, to)) = (listener(), listener());
        let mut connections =
            Connections::open(vec![first, second], Vec::new(), World::new(4).unwrap()).unwrap();
        let waiting = fill(to, 256 + MORE);
        // One more than the backlog fits (listen(2) counts so on Linux).
        assert!(waiting.len() <= 257, "{}", waiting.len());
        // The second has the address of IPv6.
        connections.keeps_own = true;
        connections.stop_accepting();
        let taken = connections.take_listener(true).unwrap();
        assert_eq!(taken.local_addr().unwrap(), to);
        let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if somaxconn.trim().parse::<usize>().unwrap() < 256 + MORE {
            println!("skipped: net.core.somaxconn is {}", somaxconn.trim());
            return;
        }
        assert_eq!(fill(to, MORE).len(), MORE);
    }

    #[tokio::test]
    async fn an_error_of_accepting_is_told_once_and_is_followed_by_a_pause() {
        let mut connections = Connections::open(Vec::new(), Vec::new(), World::new(4).unwrap()).unwrap();
        for _ in 0..2 {
            assert!(connections.accepts());
            connections.accept(Err(io::Error::other("no descriptor is left")));
            assert!(!connections.accepts());
            connections.accept_from = clock();
        }
        let told = connections.next_waiting();
        let Some(TaskEvent::Warning(Warning::NotAccepted { error })) = told else { panic!("{told:?}") };
        assert_eq!(error, "no descriptor is left");
        assert!(connections.next_waiting().is_none());
    }

    #[tokio::test]
    async fn an_accepted_connection_that_has_made_room_for_another_does_not_open_and_a_dialled_one_does() {
        let mut connections = Connections::open(Vec::new(), Vec::new(), World::new(4).unwrap()).unwrap();
        let local = IpAddr::from([127, 0, 0, 1]);
        for conn in 1..=2 {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            connections.guests.add(ConnId(conn), local, task);
        }
        connections.guests.evict_stranger();
        let accepted = Way::Accepted(Ends { local, remote: local });
        for (conn, way) in [(1, accepted), (2, accepted), (3, Way::Dialled(DialId(1)))] {
            let (peer, conn, numbers) = (NodeId([1; 16]), ConnId(conn), (1, 1));
            let frames = tokio::sync::mpsc::channel(1).0;
            connections.report(TaskEvent::Opened { peer, way, conn, numbers, frames });
        }
        let opened = std::iter::from_fn(|| match connections.next_waiting()? {
            TaskEvent::Opened { conn, .. } => Some(conn),
            other => panic!("{other:?}"),
        });
        assert_eq!(opened.collect::<Vec<_>>(), [ConnId(2), ConnId(3)]);
        assert!(connections.frames.into_keys().eq([ConnId(2), ConnId(3)]));
    }

    #[tokio::test]
    async fn once_all_is_hung_up_no_session_is_dialled() {
        let mut connections = Connections::open(Vec::new(), Vec::new(), World::new(4).unwrap()).unwrap();
        let (own, peer) = (NodeId([1; 16]), NodeId([2; 16]));
        connections.speak_as(own, Hellos::new("foo".parse::<JobId>().unwrap().tag(), None));
        let (_listener, to) = listener();
        for number in 1..=2 {
            let order = Order::Dial { to, peer, dial: DialId(1), number };
            connections.carry_out(order, |_| false);
            assert_eq!(connections.tasks.len(), 1);
            connections.hang_up_all();
        }
    }

    #[tokio::test]
    async fn a_process_that_reads_nothing_of_what_is_written_loses_its_connection() {
        let mut connections = Connections::open(Vec::new(), Vec::new(), World::new(4).unwrap()).unwrap();
        let (frames, mut written) = tokio::sync::mpsc::channel(2);
        connections.frames.insert(ConnId(1), frames);
        for read in 0..5 {
            connections.carry_out(Order::Write(ConnId(1), Frame::acknowledgement(read)), |_| false);
        }
        let mut read = Vec::new();
        while let Some(frame) = written.recv().await {
            read.push(frame.read);
        }
        assert_eq!(read, [0, 1]);
    }
}
