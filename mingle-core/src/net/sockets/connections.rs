//! All connections of a node: those that it opens, those that it accepts, and their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

use super::connection::{self, Purposes, TaskEvent};
use super::endpoint::BACKLOG;
use super::guests::Guests;
use super::open_files::Room;
use super::path;
use crate::model::{NodeId, World};
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::session::{self, Carrier, Dial, News, hello};
use crate::proto::{ConnId, DialId, Order, PathDial, PathNews, PathTarget, Warning};
use crate::wire::Frame;
use crate::wire::session::Hellos;

/// Accepts no more while so many tasks have been told to end and still hold their descriptors: while
/// connections come fast, the runtime would run no task, and no hello would be read.
const ENDING: usize = 64;
/// The pause after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An accepted connection, and whether it came by a port for paths; or why accepting failed.
pub(crate) type Accepted = io::Result<(TcpStream, SocketAddr, bool)>;

/// How long the other ends may take to close their connections, when this node closes all.
const FAREWELL: Duration = Duration::from_millis(250);
/// The longest body of a frame, in bytes: a plan of 10,000 nodes with 16 addresses each.
pub(crate) const LONGEST: usize = 8 << 20;
/// The longest body of a frame of a node that asks for a seat, in bytes: a join with all traits has
/// 16,000 at most.
pub(crate) const LONGEST_OF_MEMBER: usize = 24 << 10;

/// The listeners of one node, and which of them stay open once the world has formed.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// On the node's own port, IPv4 first.
    pub(crate) own: Vec<StdTcpListener>,
    /// Whether these stay, for the job.
    pub(crate) keep_own: bool,
    /// On the port for paths.
    pub(crate) paths: Vec<StdTcpListener>,
}

/// One listener.
#[derive(Debug)]
struct Listening {
    socket: TcpListener,
    /// Whether its port is for paths alone.
    paths: bool,
    /// Whether it stays open once the world has formed.
    is_kept: bool,
}

/// The events that [`Connections::next`] waits for.
#[derive(Debug)]
pub(crate) enum Incoming {
    Event(TaskEvent),
    Accepted(Accepted),
}

/// A task for every connection. Dropping this closes them all.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Those of the node's own port, IPv4 first, then those for paths.
    listeners: Vec<Listening>,
    /// Answers the tokens of paths to this node.
    target: Option<Arc<PathTarget>>,
    /// The process whose sessions these are, and what carries them, if it has any.
    own: NodeId,
    carrier: Option<Carrier>,
    /// Accepted connections leave nothing behind on their port, which the job will use; not so where the
    /// listeners are for sessions alone, for as long as this lives.
    pub(crate) resets: bool,
    /// Where the frames of each open connection of a session go.
    frames: BTreeMap<ConnId, Sender<Frame>>,
    accepting: bool,
    /// Accepts again from this time on, after an error.
    accept_from: Instant,
    has_warned: bool,
    tasks: JoinSet<()>,
    /// Each task that has opened a session's connection holds a copy.
    dialled: Arc<()>,
    dials: BTreeMap<DialId, AbortHandle>,
    guests: Guests,
    next_conn: u64,
    sender: UnboundedSender<TaskEvent>,
    events: UnboundedReceiver<TaskEvent>,
    /// Events that [`Connections::next`] has passed over.
    waiting: VecDeque<TaskEvent>,
}

impl Connections {
    /// Accepts on `listeners`. Those that are not kept close with the connections.
    pub(crate) fn open(listeners: Listeners, world: World) -> Result<Self, Error> {
        let Listeners { own, keep_own, paths } = listeners;
        let newest = own.iter().chain(&paths).map(AsRawFd::as_raw_fd).max().unwrap_or_default();
        set_backlog(&own, least_backlog(world));
        let own = own.into_iter().map(|listener| (listener, false, keep_own));
        let paths = paths.into_iter().map(|listener| (listener, true, false));
        let watched = own.chain(paths).map(|(listener, paths, is_kept)| {
            TcpListener::from_std(listener).map(|socket| Listening { socket, paths, is_kept })
        });
        let (sender, events) = unbounded_channel();
        Ok(Self {
            listeners: watched
                .collect::<io::Result<_>>()
                .map_err(Error::socket("cannot watch the sockets"))?,
            target: None,
            own: NodeId::ALL,
            carrier: None,
            resets: true,
            frames: BTreeMap::new(),
            accepting: true,
            accept_from: clock(),
            has_warned: false,
            tasks: JoinSet::new(),
            dialled: Arc::default(),
            dials: BTreeMap::new(),
            guests: Guests::new(Room::above(newest, world)),
            next_conn: 0,
            sender,
            events,
            waiting: VecDeque::new(),
        })
    }

    /// The next event, or else the next connection. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Incoming {
        loop {
            if let Some(event) = self.next_waiting() {
                return Incoming::Event(event);
            }
            let accepts = self.accepting && clock() >= self.accept_from && !self.is_behind();
            let listeners = if accepts { &self.listeners[..] } else { &[] };
            tokio::select! {
                biased;
                // The channel stays open, since `self` holds a sender.
                Some(event) = self.events.recv() => self.waiting.push_back(event),
                // Waits forever without a listener.
                accepted = poll_fn(|context| {
                    poll_own(listeners, self.next_conn, context).map_or(Poll::Pending, Poll::Ready)
                }) => return Incoming::Accepted(accepted),
                // Drops the result of a task that has ended.
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// From now on the tokens of paths are answered by this.
    pub(crate) fn set_target(&mut self, target: PathTarget) {
        self.target = Some(Arc::new(target));
    }

    /// From now on connections are of sessions, too, of the process with this ID.
    pub(crate) fn speak_as(&mut self, own: NodeId, hellos: Hellos) {
        self.own = own;
        self.carrier = Some(Carrier { hellos, longest: LONGEST, news: self.sender.clone() });
    }

    /// The node's own port.
    pub(crate) fn port(&self) -> u16 {
        let first = self.listeners.first().and_then(|listener| listener.socket.local_addr().ok());
        first.map_or(0, |address| address.port())
    }

    /// Drops the results of tasks that have ended. Returns whether many have still to end.
    fn is_behind(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.len() > self.guests.len() + self.dials.len() + Arc::strong_count(&self.dialled) + ENDING
    }

    /// When to call [`Connections::next`] again, while an error pauses accepting.
    pub(crate) fn accept_again(&self) -> Option<Instant> {
        (self.accepting && clock() < self.accept_from).then_some(self.accept_from)
    }

    /// A connection that already waits to be accepted.
    pub(crate) async fn accept_now(&mut self) -> Option<Accepted> {
        let accepts = self.accepting && !self.is_behind();
        let listeners = if accepts { &self.listeners[..] } else { &[] };
        // An error is returned again by `next`.
        poll_fn(|context| Poll::Ready(poll_own(listeners, self.next_conn, context)))
            .await
            .filter(Result::is_ok)
    }

    /// The next of the events that have arrived. Leaves out those of connections that this node has closed
    /// itself, and notes which connections have closed or sent their hellos.
    pub(crate) fn next_waiting(&mut self) -> Option<TaskEvent> {
        while let Some(event) = self.waiting.pop_front().or_else(|| self.events.try_recv().ok()) {
            let is_awaited = match &event {
                TaskEvent::Path(dial, PathNews::Arrived | PathNews::Failed(_)) => {
                    self.dials.remove(dial).is_some()
                }
                TaskEvent::Ended(conn) => {
                    self.guests.remove(*conn);
                    false
                }
                TaskEvent::Session(News::Opened { conn, frames, .. }) => {
                    self.frames.insert(*conn, frames.clone());
                    // A connection that this node has opened is no guest.
                    self.guests.identify(*conn);
                    if let Some(evicted) = self.guests.evict_prover() {
                        self.frames.remove(&evicted);
                        let closed = TaskEvent::Session(News::Closed(evicted, Ok(())));
                        let error = "as many nodes have one as this world and the limit of open files permit";
                        let warning = self.warn_once(error.to_owned()).map(TaskEvent::Warning);
                        self.waiting.extend([closed].into_iter().chain(warning));
                    }
                    true
                }
                TaskEvent::Session(News::Closed(conn, _)) => {
                    self.guests.remove(*conn);
                    self.frames.remove(conn);
                    true
                }
                _ => true,
            };
            if is_awaited {
                return Some(event);
            }
        }
        None
    }

    /// Takes an accepted connection. Returns a warning for the first error.
    pub(crate) fn accepted(&mut self, accepted: Accepted) -> Option<Warning> {
        let (stream, from, only) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example no file descriptor is left: closing a stranger frees one. The error returns at
                // once while its cause lasts, so accepting pauses.
                tracing::debug!(%error, "accepting");
                self.guests.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
                return self.warn_once(error.to_string());
            }
        };
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        // Dropping the stream closes it: there is no node yet that it could be meant for.
        if self.target.is_none() && self.carrier.is_none() {
            return None;
        }
        let sessions = self.carrier.clone().filter(|_| !only);
        let purposes = Purposes { paths: self.target.clone(), sessions, resets: self.resets };
        let events = self.sender.clone();
        let task = self.tasks.spawn(async move {
            if !connection::hold(conn, stream, purposes).await {
                let _ = events.send(TaskEvent::Ended(conn));
            }
        });
        self.guests.add(conn, from.ip().to_canonical(), task);
        None
    }

    fn warn_once(&mut self, error: String) -> Option<Warning> {
        let is_first = !std::mem::replace(&mut self.has_warned, true);
        is_first.then_some(Warning::NotAccepted { error })
    }

    /// Does what a session asks.
    pub(crate) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Dial { to, peer, dial, number } => self.dial(peer, dial, to, number),
            Order::Write(conn, frame) => {
                // Sending also fails if the connection has just ended, which is reported.
                let sent = self.frames.get(&conn).map(|frames| frames.try_send(frame));
                if let Some(Err(TrySendError::Full(_))) = sent {
                    tracing::debug!(?conn, "the other end reads nothing");
                    self.frames.remove(&conn);
                }
            }
            // The task ends when all is written.
            Order::Close(conn) => _ = self.frames.remove(&conn),
        }
    }

    /// Opens a connection of the session with this number.
    fn dial(&mut self, peer: NodeId, number: DialId, to: SocketAddr, session: u64) {
        let Some(carrier) = self.carrier.clone() else { return };
        match hello(self.own, peer, session) {
            Ok(hello) => {
                self.next_conn += 1;
                let dial = Dial { number, conn: ConnId(self.next_conn), to, hello };
                let alive = Arc::clone(&self.dialled);
                self.tasks.spawn(async move {
                    session::dial(dial, carrier).await;
                    drop(alive);
                });
            }
            Err(error) => {
                let failed = News::Failed(peer, number, io::Error::other(error));
                let _ = self.sender.send(TaskEvent::Session(failed));
            }
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

    /// Whether the node's own port is listened on, and the port for paths if the node has one.
    pub(crate) fn listens(&self, has_paths: bool) -> bool {
        let listens = |paths| self.listeners.iter().any(|listener| listener.paths == paths);
        self.accepting && listens(false) && (!has_paths || listens(true))
    }

    /// Listens no more.
    pub(crate) fn drop_listeners(&mut self) {
        self.listeners.clear();
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
        self.accepting = false;
        self.listeners.retain(|listener| listener.is_kept);
    }

    /// Closes every connection, drops their events, and goes on accepting.
    pub(crate) fn hang_up_all(&mut self) {
        for task in std::mem::take(&mut self.dials).into_values() {
            task.abort();
        }
        self.guests.close_all();
        self.frames.clear();
        self.waiting.clear();
        // The next node does not know the connections of events that are still queued.
        (self.sender, self.events) = unbounded_channel();
        if let Some(carrier) = &mut self.carrier {
            carrier.news = self.sender.clone();
        }
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
                if let TaskEvent::Session(News::Closed(conn, _)) = event {
                    open.remove(&conn);
                }
            }
        };
        let _ = tokio::time::timeout(FAREWELL, all).await;
        // Connections on the master's port are reset, so that nothing holds the port when the job binds it.
        self.tasks.shutdown().await;
        self.listeners.retain(|listener| listener.is_kept);
    }

    /// The listener of a family, if listeners were kept. Closes the other.
    pub(crate) fn take_listener(&mut self, ipv6: bool) -> Option<StdTcpListener> {
        let (paths, own) =
            std::mem::take(&mut self.listeners).into_iter().partition(|listener| listener.paths);
        self.listeners = paths;
        let mut own = <Vec<Listening>>::into_iter(own);
        let listener = own.nth(usize::from(ipv6)).and_then(|listener| listener.socket.into_std().ok());
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

/// Polls these listeners up to the first that is ready; if none is, each wakes this task. Returns with the
/// connection whether it has come to the port for paths.
///
/// Each turn begins with another listener: where strangers crowd on one port, connections to the other would
/// wait for ever.
fn poll_own(listeners: &[Listening], turn: u64, context: &mut Context<'_>) -> Option<Accepted> {
    let first = usize::try_from(turn).unwrap_or_default() % listeners.len().max(1);
    let (before, after) = listeners.split_at(first);
    after.iter().chain(before).find_map(|listener| match listener.socket.poll_accept(context) {
        Poll::Ready(accepted) => Some(accepted.map(|(stream, from)| (stream, from, listener.paths))),
        Poll::Pending => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as StdTcpStream;

    use super::*;

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
        let listeners = Listeners { own: vec![own], keep_own: false, paths: vec![paths] };
        let mut connections = Connections::open(listeners, World::new(4).unwrap()).unwrap();
        let mut accepted = Vec::new();
        while accepted.len() < 4 {
            if let Incoming::Accepted(next) = connections.next().await {
                accepted.push(next.as_ref().unwrap().2);
                connections.accepted(next);
            }
        }
        assert_eq!(accepted.iter().filter(|is_for_paths| **is_for_paths).count(), 1, "{accepted:?}");
    }

    #[tokio::test]
    async fn in_a_small_world_few_connections_wait_to_be_accepted_until_the_job_gets_the_listener() {
        const MORE: usize = 100;
        let ((first, _), (second, to)) = (listener(), listener());
        let mut connections = Connections::open(
            Listeners { own: vec![first, second], keep_own: true, paths: Vec::new() },
            World::new(4).unwrap(),
        )
        .unwrap();
        let waiting = fill(to, 256 + MORE);
        // One more than the backlog fits (listen(2) counts so on Linux).
        assert!(waiting.len() <= 257, "{}", waiting.len());
        // The second has the address of IPv6.
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
    async fn a_process_that_reads_nothing_of_what_is_written_loses_its_connection() {
        let listeners = Listeners { own: Vec::new(), keep_own: false, paths: Vec::new() };
        let mut connections = Connections::open(listeners, World::new(4).unwrap()).unwrap();
        let (frames, mut written) = tokio::sync::mpsc::channel(2);
        connections.frames.insert(ConnId(1), frames);
        for read in 0..5 {
            connections.carry_out(Order::Write(ConnId(1), Frame::acknowledgement(read)));
        }
        let mut read = Vec::new();
        while let Some(frame) = written.recv().await {
            read.push(frame.read);
        }
        assert_eq!(read, [0, 1]);
    }
}
