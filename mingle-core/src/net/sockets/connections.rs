//! All connections of a node: those that it opens, those that it accepts, and their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::{self, TaskEvent};
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::proto::{ConnId, DialId, TOKEN, Warning};

/// The most accepted connections without a token. One more closes the oldest.
const STRANGERS: usize = 1024;
/// The pause after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An accepted connection, or why accepting failed.
pub(crate) type Accepted = io::Result<(TcpStream, SocketAddr)>;

/// The events that [`Connections::next`] waits for.
#[derive(Debug)]
pub(crate) enum Incoming {
    Event(TaskEvent),
    Accepted(Accepted),
}

/// A task for every connection. Dropping this closes them all.
#[derive(Debug)]
pub(crate) struct Connections {
    /// IPv4 first.
    listeners: Vec<TcpListener>,
    keep_listeners: bool,
    accepting: bool,
    /// Accepts again from this time on, after an error.
    accept_from: Instant,
    has_warned: bool,
    tasks: JoinSet<()>,
    dials: BTreeMap<DialId, AbortHandle>,
    conns: BTreeMap<ConnId, AbortHandle>,
    /// The connections in `conns` that have sent no token.
    strangers: BTreeSet<ConnId>,
    next_conn: u64,
    sender: UnboundedSender<TaskEvent>,
    events: UnboundedReceiver<TaskEvent>,
    /// Events that [`Connections::take_dialed`] has passed over.
    waiting: VecDeque<TaskEvent>,
}

impl Connections {
    /// Accepts on `listeners`. They close with the connections, unless `keep_listeners` keeps them.
    pub(crate) fn open(listeners: Vec<StdTcpListener>, keep_listeners: bool) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot watch the sockets".to_owned(), source };
        let listeners = listeners.into_iter().map(TcpListener::from_std);
        let (sender, events) = unbounded_channel();
        Ok(Self {
            listeners: listeners.collect::<io::Result<_>>().map_err(failed)?,
            keep_listeners,
            accepting: true,
            accept_from: clock(),
            has_warned: false,
            tasks: JoinSet::new(),
            dials: BTreeMap::new(),
            conns: BTreeMap::new(),
            strangers: BTreeSet::new(),
            next_conn: 0,
            sender,
            events,
            waiting: VecDeque::new(),
        })
    }

    /// The next event, or else the next connection. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Incoming {
        if let Some(event) = self.waiting.pop_front() {
            return Incoming::Event(event);
        }
        loop {
            let listeners =
                if self.accepting && clock() >= self.accept_from { &self.listeners[..] } else { &[] };
            tokio::select! {
                biased;
                // The channel stays open, since `self` holds a sender.
                Some(event) = self.events.recv() => return Incoming::Event(event),
                accepted = accept(listeners) => return Incoming::Accepted(accepted),
                // Drops the result of a task that has ended.
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// When to call [`Connections::next`] again, while an error pauses accepting.
    pub(crate) fn accept_again(&self) -> Option<Instant> {
        (self.accepting && clock() < self.accept_from).then_some(self.accept_from)
    }

    /// A connection that already waits to be accepted.
    pub(crate) async fn accept_now(&self) -> Option<Accepted> {
        let listeners = if self.accepting { &self.listeners[..] } else { &[] };
        poll_fn(|context| {
            // An error is returned again by `next`.
            let ready = listeners.iter().find_map(|listener| match listener.poll_accept(context) {
                Poll::Ready(Ok(accepted)) => Some(Ok(accepted)),
                Poll::Ready(Err(_)) | Poll::Pending => None,
            });
            Poll::Ready(ready)
        })
        .await
    }

    /// Passes every dial that has been established to `dialed`. Other events wait for [`Connections::next`].
    pub(crate) fn take_dialed(&mut self, mut dialed: impl FnMut(DialId, IpAddr)) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                TaskEvent::Dialed(dial, local) => dialed(dial, local),
                later => self.waiting.push_back(later),
            }
        }
    }

    /// The events that [`Connections::take_dialed`] has passed over.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<TaskEvent> {
        std::mem::take(&mut self.waiting)
    }

    /// Takes an accepted connection. Returns a warning for the first error.
    pub(crate) fn accepted(&mut self, accepted: Accepted) -> Option<Warning> {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example no file descriptor is left: closing the oldest stranger frees one. The error
                // returns at once while its cause lasts, so accepting pauses.
                tracing::debug!(%error, "accepting");
                self.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
                let is_first = !std::mem::replace(&mut self.has_warned, true);
                return is_first.then(|| Warning::NotAccepted { error: error.to_string() });
            }
        };
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let task = connection::hold(conn, stream, self.sender.clone());
        self.conns.insert(conn, self.tasks.spawn(task));
        self.strangers.insert(conn);
        if self.strangers.len() > STRANGERS {
            self.evict_stranger();
        }
        None
    }

    fn evict_stranger(&mut self) {
        if let Some(conn) = self.strangers.pop_first() {
            self.close(conn);
        }
    }

    /// Notes that a connection has sent its token. Returns whether the token was awaited.
    pub(crate) fn identify(&mut self, conn: ConnId) -> bool {
        self.strangers.remove(&conn)
    }

    /// Forgets an accepted connection that has closed. Returns false if this node closed it itself.
    pub(crate) fn forget(&mut self, conn: ConnId) -> bool {
        self.strangers.remove(&conn);
        self.conns.remove(&conn).is_some()
    }

    /// As [`Connections::forget`], for a connection that this node opened.
    pub(crate) fn forget_dial(&mut self, dial: DialId) -> bool {
        self.dials.remove(&dial).is_some()
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.strangers.remove(&conn);
        if let Some(task) = self.conns.remove(&conn) {
            task.abort();
        }
    }

    pub(crate) fn dial(&mut self, dial: DialId, to: SocketAddr, token: [u8; TOKEN]) {
        let task = connection::dial(dial, to, token, self.sender.clone());
        self.dials.insert(dial, self.tasks.spawn(task));
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
        self.accepting = false;
        if !self.keep_listeners {
            self.listeners.clear();
        }
    }

    /// Closes every connection, drops their events, and goes on accepting.
    pub(crate) fn hang_up_all(&mut self) {
        let dials = std::mem::take(&mut self.dials).into_values();
        for task in dials.chain(std::mem::take(&mut self.conns).into_values()) {
            task.abort();
        }
        self.strangers.clear();
        self.waiting.clear();
        // The next node does not know the connections of events that are still queued.
        (self.sender, self.events) = unbounded_channel();
    }

    /// Closes everything.
    pub(crate) async fn close_all(&mut self) {
        // Connections on the master's port are reset, so that nothing holds the port when the job binds it.
        self.tasks.shutdown().await;
        if !self.keep_listeners {
            self.listeners.clear();
        }
    }

    /// The listener of a family, if listeners were kept. Closes the other.
    pub(crate) fn take_listener(&mut self, ipv6: bool) -> Option<StdTcpListener> {
        let mut listeners = std::mem::take(&mut self.listeners).into_iter();
        listeners.nth(usize::from(ipv6)).and_then(|listener| listener.into_std().ok())
    }
}

/// The next connection. Waits forever without a listener.
async fn accept(listeners: &[TcpListener]) -> Accepted {
    poll_fn(|context| {
        // Polls the listeners up to the first that is ready; if none is, each wakes this task.
        let ready = listeners.iter().find_map(|listener| match listener.poll_accept(context) {
            Poll::Ready(accepted) => Some(accepted),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
