//! The sockets of a node's sessions: a listener that stays as long as the node, and the open connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::task::Poll;
use std::time::Instant;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::clock::{clock, random};
use super::error::Error;
use super::session::{self, Dial, News};
use super::sockets::connections::{ACCEPT_PAUSE, poll_accept};
use super::sockets::endpoint::listen_for_paths;
use super::sockets::guests::Guests;
use super::sockets::open_files::Room;
use crate::model::{Lineage, NodeId, World};
use crate::proto::session::Order;
use crate::proto::{ConnId, DialId};
use crate::wire::session::{Hello, Hellos};
use crate::wire::{Frame, Header};

/// The longest body of a frame, in bytes: a plan of 10,000 nodes with 16 addresses each.
const LONGEST: usize = 8 << 20;

/// The connections of all sessions of one node. Dropping this closes them all.
#[derive(Debug)]
pub(crate) struct Sessions {
    hellos: Hellos,
    listeners: Vec<TcpListener>,
    port: u16,
    /// Accepts again from this time on, after an error.
    accept_from: Instant,
    tasks: JoinSet<()>,
    guests: Guests,
    /// Where the frames of each open connection go.
    frames: BTreeMap<ConnId, UnboundedSender<Frame>>,
    last_conn: u64,
    sender: UnboundedSender<News>,
    news: UnboundedReceiver<News>,
}

impl Sessions {
    /// Listens at a port that the kernel chooses, on one address `only` or on all addresses.
    pub(crate) fn open(only: Option<Ipv4Addr>, hellos: Hellos, world: World) -> Result<Self, Error> {
        let (listeners, port) = listen_for_paths(only)?;
        let newest = listeners.iter().map(AsRawFd::as_raw_fd).max().unwrap_or_default();
        let listeners = listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<_>>();
        let (sender, news) = unbounded_channel();
        Ok(Self {
            hellos,
            listeners: listeners.map_err(Error::socket("cannot watch the sockets"))?,
            port,
            accept_from: clock(),
            tasks: JoinSet::new(),
            guests: Guests::new(Room::above(newest, world)),
            frames: BTreeMap::new(),
            last_conn: 0,
            sender,
            news,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The next news of a connection. Cancel-safe.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            let accepts = clock() >= self.accept_from;
            let listeners = if accepts { &self.listeners[..] } else { &[] };
            tokio::select! {
                biased;
                // The channel stays open, since `self` holds a sender.
                Some(news) = self.news.recv() => {
                    self.note(&news);
                    return news;
                }
                accepted = accept(listeners, self.last_conn) => self.accepted(accepted),
                // Drops the result of a task that has ended.
                Some(_) = self.tasks.join_next() => {}
                () = tokio::time::sleep_until(self.accept_from.into()), if !accepts => {}
            }
        }
    }

    /// News that have arrived already.
    pub(crate) fn next_now(&mut self) -> Option<News> {
        self.news.try_recv().ok().inspect(|news| self.note(news))
    }

    fn note(&mut self, news: &News) {
        match news {
            News::Opened { conn, frames, .. } => {
                self.frames.insert(*conn, frames.clone());
                // A connection that this node has opened is no guest.
                self.guests.identify(*conn);
                if let Some(evicted) = self.guests.evict_prover() {
                    self.frames.remove(&evicted);
                    let _ = self.sender.send(News::Closed(evicted, Ok(())));
                }
            }
            News::Closed(conn, _) => {
                self.guests.remove(*conn);
                self.frames.remove(conn);
            }
            News::Asked { .. } | News::Failed(..) | News::Read(..) => {}
        }
    }

    fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, from)) => {
                let conn = self.next_conn();
                let accept = session::accept(conn, stream, self.hellos.clone(), LONGEST, self.sender.clone());
                let task = self.tasks.spawn(accept);
                self.guests.add(conn, from.ip().to_canonical(), task);
            }
            Err(error) => {
                // For example no file descriptor is left: closing a stranger frees one.
                tracing::debug!(%error, "accepting");
                self.guests.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
            }
        }
    }

    fn next_conn(&mut self) -> ConnId {
        self.last_conn += 1;
        ConnId(self.last_conn)
    }

    /// Does what a session of the process `own` asks.
    pub(crate) fn carry_out(&mut self, own: NodeId, order: Order) {
        match order {
            Order::Dial { to, peer, dial, number } => self.dial(own, peer, dial, to, number),
            Order::Write(conn, frame) => {
                if let Some(frames) = self.frames.get(&conn) {
                    // Sending fails if the connection has just ended, which is reported.
                    let _ = frames.send(frame);
                }
            }
            Order::Close(conn) => self.close(conn),
        }
    }

    /// Opens a connection of the session with this number.
    fn dial(&mut self, own: NodeId, peer: NodeId, number: DialId, to: SocketAddr, session: u64) {
        match hello(own, peer, session) {
            Ok(hello) => {
                let conn = self.next_conn();
                let dial = Dial { number, conn, to, hello, longest: LONGEST };
                self.tasks.spawn(session::dial(dial, self.hellos.clone(), self.sender.clone()));
            }
            Err(error) => {
                let _ = self.sender.send(News::Failed(peer, number, io::Error::other(error)));
            }
        }
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.frames.remove(&conn);
    }
}

/// The hello of a process to another, on a connection of the session with this number.
pub(crate) fn hello(own: NodeId, peer: NodeId, session: u64) -> Result<Hello, Error> {
    let header = Header { sender: own, recipient: peer, lineage: Lineage::default() };
    Ok(Hello { header, session, nonce: random()? })
}

/// The next connection. Waits forever without a listener.
async fn accept(listeners: &[TcpListener], turn: u64) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, from, _) = poll_fn(|context| {
        poll_accept(listeners, |listener| listener, turn, context).map_or(Poll::Pending, Poll::Ready)
    })
    .await?;
    Ok((stream, from))
}
