//! All connections of a node: those that it opens, those that it accepts, and what they have to tell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::{self, Happened};
use super::driver::clock;
use crate::error::Error;
use crate::proto::{ConnId, DialId, TOKEN, Warning};

/// Most accepted connections without a token; then the oldest goes.
const STRANGERS: usize = 1024;
/// Between two tries to accept where the first has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection that was accepted, or why it was not.
pub(super) type Accepted = io::Result<(TcpStream, SocketAddr)>;

/// What comes next.
#[derive(Debug)]
pub(super) enum What {
    Happened(Happened),
    Accepted(Accepted),
}

/// A task for every connection. Dropping it closes them all.
#[derive(Debug)]
pub(super) struct Connections {
    /// IPv4 first.
    listeners: Vec<TcpListener>,
    keep_listeners: bool,
    accepting: bool,
    /// After an error, when to try again.
    accept_from: Instant,
    told_of_accepting: bool,
    tasks: JoinSet<()>,
    dials: BTreeMap<DialId, AbortHandle>,
    conns: BTreeMap<ConnId, AbortHandle>,
    /// Those of `conns` that have sent no token yet.
    strangers: BTreeSet<ConnId>,
    next_conn: u64,
    tell: UnboundedSender<Happened>,
    happenings: UnboundedReceiver<Happened>,
    /// Happenings that have been looked at, and wait for their turn.
    waiting: VecDeque<Happened>,
}

impl Connections {
    /// Accepts on `listeners` from now on. They are closed with everything else, unless they are to be kept.
    pub(super) fn open(listeners: Vec<StdTcpListener>, keep_listeners: bool) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot watch the sockets".to_owned(), source };
        let listeners = listeners.into_iter().map(TcpListener::from_std);
        let (tell, happenings) = unbounded_channel();
        Ok(Self {
            listeners: listeners.collect::<io::Result<_>>().map_err(failed)?,
            keep_listeners,
            accepting: true,
            accept_from: clock(),
            told_of_accepting: false,
            tasks: JoinSet::new(),
            dials: BTreeMap::new(),
            conns: BTreeMap::new(),
            strangers: BTreeSet::new(),
            next_conn: 0,
            tell,
            happenings,
            waiting: VecDeque::new(),
        })
    }

    /// What happens next: what connections tell comes before what is new.
    pub(super) async fn next(&mut self) -> What {
        if let Some(happened) = self.waiting.pop_front() {
            return What::Happened(happened);
        }
        loop {
            let listeners =
                if self.accepting && clock() >= self.accept_from { &self.listeners[..] } else { &[] };
            tokio::select! {
                biased;
                // It stays open, since this end has a sender too.
                Some(happened) = self.happenings.recv() => return What::Happened(happened),
                accepted = accept(listeners) => return What::Accepted(accepted),
                // What has ended is forgotten.
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// When to ask for the next again, where an error keeps connections from being accepted.
    pub(super) fn again(&self) -> Option<Instant> {
        (self.accepting && clock() < self.accept_from).then_some(self.accept_from)
    }

    /// A connection that waits to be accepted, if there is one.
    pub(super) async fn accept_now(&self) -> Option<Accepted> {
        let listeners = if self.accepting { &self.listeners[..] } else { &[] };
        poll_fn(|context| {
            // An error comes again when a connection is waited for.
            let ready = listeners.iter().find_map(|listener| match listener.poll_accept(context) {
                Poll::Ready(Ok(accepted)) => Some(Ok(accepted)),
                Poll::Ready(Err(_)) | Poll::Pending => None,
            });
            Poll::Ready(ready)
        })
        .await
    }

    /// Looks at all that has happened. Of connections that stand now, `dialed` is told at once; the rest waits
    /// for its turn.
    pub(super) fn look(&mut self, mut dialed: impl FnMut(DialId, IpAddr)) {
        while let Ok(happened) = self.happenings.try_recv() {
            match happened {
                Happened::Dialed(dial, local) => dialed(dial, local),
                later => self.waiting.push_back(later),
            }
        }
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<Happened> {
        std::mem::take(&mut self.waiting)
    }

    /// Holds a connection that was accepted. Returns what people should know, once.
    pub(super) fn accepted(&mut self, accepted: Accepted) -> Option<Warning> {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, say: the oldest stranger makes room. The error comes back at
                // once while its cause lasts, so the next try waits.
                tracing::debug!(%error, "accepting");
                self.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
                let told = std::mem::replace(&mut self.told_of_accepting, true);
                return (!told).then(|| Warning::NotAccepted { error: error.to_string() });
            }
        };
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let task = connection::hold(conn, stream, self.tell.clone());
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

    /// The token has come. Returns whether it was waited for.
    pub(super) fn introduce(&mut self, conn: ConnId) -> bool {
        self.strangers.remove(&conn)
    }

    /// It has closed. Returns whether this node has not closed it itself before.
    pub(super) fn forget(&mut self, conn: ConnId) -> bool {
        self.strangers.remove(&conn);
        self.conns.remove(&conn).is_some()
    }

    /// As [`Connections::forget`], for one that this node has opened.
    pub(super) fn forget_dial(&mut self, dial: DialId) -> bool {
        self.dials.remove(&dial).is_some()
    }

    pub(super) fn close(&mut self, conn: ConnId) {
        self.strangers.remove(&conn);
        if let Some(task) = self.conns.remove(&conn) {
            task.abort();
        }
    }

    pub(super) fn dial(&mut self, dial: DialId, to: SocketAddr, token: [u8; TOKEN]) {
        let task = connection::dial(dial, to, token, self.tell.clone());
        self.dials.insert(dial, self.tasks.spawn(task));
    }

    pub(super) fn hang_up(&mut self, dial: DialId) {
        if let Some(task) = self.dials.remove(&dial) {
            task.abort();
        }
    }

    /// Runs something beside the connections that has things to tell as they do.
    pub(super) fn run_beside<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        start: impl FnOnce(UnboundedSender<Happened>) -> F,
    ) -> AbortHandle {
        self.tasks.spawn(start(self.tell.clone()))
    }

    /// The port belongs to the job from now on.
    pub(super) fn stop_accepting(&mut self) {
        self.accepting = false;
        if !self.keep_listeners {
            self.listeners.clear();
        }
    }

    /// Closes every connection, and hears of none any more, but accepts others.
    pub(super) fn hang_up_all(&mut self) {
        let dials = std::mem::take(&mut self.dials).into_values();
        for task in dials.chain(std::mem::take(&mut self.conns).into_values()) {
            task.abort();
        }
        self.strangers.clear();
        self.waiting.clear();
        // What is under way already is of connections that the next node does not know.
        (self.tell, self.happenings) = unbounded_channel();
    }

    /// Closes everything.
    pub(super) async fn close_all(&mut self) {
        // On the master's port, strays and leftovers are reset: nothing may hold it when the job binds it.
        self.tasks.shutdown().await;
        if !self.keep_listeners {
            self.listeners.clear();
        }
    }

    /// The listener of a family, where it was kept; the other is closed.
    pub(super) fn take_listener(&mut self, ipv6: bool) -> Option<StdTcpListener> {
        let mut listeners = std::mem::take(&mut self.listeners).into_iter();
        listeners.nth(usize::from(ipv6)).and_then(|listener| listener.into_std().ok())
    }
}

/// The next connection; none without a listener.
async fn accept(listeners: &[TcpListener]) -> Accepted {
    poll_fn(|context| {
        // Each is asked until one has something, and wakes this task where none has.
        let ready = listeners.iter().find_map(|listener| match listener.poll_accept(context) {
            Poll::Ready(accepted) => Some(accepted),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
