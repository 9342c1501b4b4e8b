//! The sockets: the only place in the doctor that sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::Error;
use mingle_core::proto::JobTag;
use mingle_core::tools::{Station, reset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use super::matrix::{BROADCAST, Board, ECHO, LONGEST, MULTICAST, Notice, TCP, UNICAST, decode, encode};
use super::multicast::Trial;

/// How long to wait for the own multicast, which comes back within microseconds or never.
const BACK: Duration = Duration::from_millis(500);
const PERIOD: Duration = Duration::from_millis(150);
/// Three retries of a lost SYN would take 7 s; a new connection is quicker.
const DIAL: Duration = Duration::from_millis(900);
/// How long to go on after the last host has come; a path that does not work by then is broken.
const GRACE: Duration = Duration::from_secs(3);
/// How long to go on after everything works here, since others may still need this host.
const LINGER: Duration = Duration::from_secs(2);
/// The most connections that are served at once.
const VISITORS: usize = 128;
/// The most messages that wait; in a flood the rest is lost.
const QUEUE: usize = 1024;

enum Arrived {
    Datagram {
        way: Inbound,
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A connection to `id` has carried the rows of both hosts, and opened within this time.
    Dialled {
        id: u32,
        bytes: Vec<u8>,
        took: Duration,
    },
    Failed {
        id: u32,
    },
    Visited {
        bytes: Vec<u8>,
    },
}

/// The socket at which a datagram arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Own,
    Group,
    Broadcast,
}

/// Reads all sockets of a station.
pub(super) struct Wires {
    arrived: mpsc::Receiver<Arrived>,
    sender: mpsc::Sender<Arrived>,
    /// IPv4 first, and IPv6 where the kernel has it.
    own: Vec<Arc<UdpSocket>>,
}

impl Wires {
    pub(super) fn open(station: &Station) -> io::Result<Self> {
        let (sender, arrived) = mpsc::channel(QUEUE);
        let shared = |socket: &std::net::UdpSocket| -> io::Result<Arc<UdpSocket>> {
            Ok(Arc::new(UdpSocket::from_std(socket.try_clone()?)?))
        };
        let own = station.sockets().map(shared).collect::<io::Result<Vec<_>>>()?;
        for socket in &own {
            listen(Arc::clone(socket), Inbound::Own, sender.clone());
        }
        for ear in station.group_sockets() {
            listen(shared(ear)?, Inbound::Group, sender.clone());
        }
        if let Some(ear) = station.broadcast_socket() {
            listen(shared(ear)?, Inbound::Broadcast, sender.clone());
        }
        Ok(Self { arrived, sender, own })
    }

    async fn send(&self, bytes: &[u8], to: SocketAddr) {
        if let Some(socket) = self.own.get(usize::from(to.is_ipv6())) {
            // A datagram that cannot be sent is lost, as on any network.
            let _ = socket.send_to(bytes, to).await;
        }
    }
}

fn listen(socket: Arc<UdpSocket>, way: Inbound, sender: mpsc::Sender<Arrived>) {
    tokio::spawn(async move {
        let mut buffer = [0; LONGEST];
        while !sender.is_closed() {
            // An error here may belong to an earlier datagram (ECONNREFUSED), so it is ignored.
            if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let bytes = buffer[..length].to_vec();
                let _ = sender.try_send(Arrived::Datagram { way, from, bytes });
            }
        }
    });
}

impl Inbound {
    fn flag(self) -> u8 {
        match self {
            Self::Own => UNICAST,
            Self::Group => MULTICAST,
            Self::Broadcast => BROADCAST,
        }
    }
}

/// Sends by each interface to its group, and by broadcast with --broadcast, and waits for these datagrams to
/// come back.
pub(super) async fn own_multicast(station: &Station, wires: &mut Wires, tag: JobTag, id: u32) -> Vec<Trial> {
    let mut tried: Vec<(u32, Inbound, Trial)> = Vec::new();
    for interface in station.interfaces() {
        let (index, name) = (interface.index, &interface.name);
        let bytes = encode(tag, &Notice::Own(id, index));
        let mut add = |way, to: Option<SocketAddr>, sent: io::Result<()>| {
            let sent = sent.map_err(|error| error.to_string());
            tried.push((index, way, Trial { interface: name.clone(), to, sent, came_back: false }));
        };
        if let Some(group) = station.group_of(interface) {
            add(Inbound::Group, Some(group), station.send_by(interface, group, &bytes));
        }
        if let Some(sent) = station.broadcast_by(interface, &bytes) {
            add(Inbound::Broadcast, None, sent);
        }
    }
    let deadline = Instant::now() + BACK;
    while tried.iter().any(|(.., tried)| tried.sent.is_ok() && !tried.came_back) {
        let Ok(Some(arrived)) = timeout_at(deadline, wires.arrived.recv()).await else { break };
        if let Arrived::Datagram { way, bytes, .. } = arrived
            && let Some(Notice::Own(from, index)) = decode(tag, &bytes)
            && from == id
            && let Some((.., tried)) = tried.iter_mut().find(|(other, by, _)| (*other, *by) == (index, way))
        {
            tried.came_back = true;
        }
    }
    tried.into_iter().map(|(.., tried)| tried).collect()
}

/// One of several hosts that run the doctor at once.
pub(super) struct Meeting<'a> {
    pub(super) station: &'a Station,
    pub(super) wires: Wires,
    pub(super) tag: JobTag,
    /// None is for ever.
    pub(super) limit: Option<Duration>,
}

/// The state of a meeting.
struct Talk {
    board: Board,
    /// When each ping was sent.
    pings: BTreeMap<u32, Instant>,
    ping: u32,
    dialling: BTreeSet<u32>,
    seeds: Vec<SocketAddr>,
    last_newcomer: Instant,
}

impl Meeting<'_> {
    /// Runs until everything is known, or until the time has passed.
    pub(super) async fn hold(mut self, board: Board) -> Result<Board, Error> {
        let started = Instant::now();
        let mut talk = Talk {
            board,
            pings: BTreeMap::new(),
            ping: 0,
            dialling: BTreeSet::new(),
            seeds: Vec::new(),
            last_newcomer: started,
        };
        let (rows, latest) = watch::channel(Vec::new());
        for listener in self.station.listeners() {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let listener =
                listener.map_err(|source| Error::Socket { what: "cannot listen".to_owned(), source })?;
            receive(listener, latest.clone(), self.wires.sender.clone());
        }
        let (tell, mut seeds) = unbounded_channel();
        let mut id = [0; 16];
        id[..4].copy_from_slice(&talk.board.me().to_be_bytes());
        if let Some(follow) = self.station.follow(id, move |found| tell.send(found).is_ok()).await? {
            tokio::spawn(follow);
        }
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut complete: Option<Instant> = None;
        let mut turn = 0;
        loop {
            tokio::select! {
                Some(arrived) = self.wires.arrived.recv() => self.take(&mut talk, arrived).await,
                Some(found) = seeds.recv() => talk.seeds = found,
                _ = ticks.tick() => {
                    self.speak(&mut talk, &rows, turn).await;
                    turn += 1;
                    let now = Instant::now();
                    if talk.board.is_complete() {
                        complete.get_or_insert(now);
                    }
                    let settled = complete.is_some_and(|at| talk.board.all_done() || now - at > LINGER);
                    let graced = talk.board.is_full() && now - talk.last_newcomer > GRACE;
                    let late = self.limit.is_some_and(|limit| now - started > limit);
                    if settled || graced || late {
                        // Other hosts may lack the last row.
                        self.speak(&mut talk, &rows, turn).await;
                        return Ok(talk.board);
                    }
                }
            }
        }
    }

    async fn take(&self, talk: &mut Talk, arrived: Arrived) {
        match arrived {
            Arrived::Datagram { way, from, bytes } => match decode(self.tag, &bytes) {
                Some(Notice::Row(card, seq, row)) => {
                    let id = card.id;
                    learn(talk, Notice::Row(card, seq, row));
                    talk.board.heard(id, way.flag(), from);
                }
                Some(Notice::Ping(id, number)) if id != talk.board.me() => {
                    talk.board.heard(id, UNICAST, from);
                    // The answer is no longer than the ping, so a forged sender gains nothing.
                    self.send(&Notice::Echo(talk.board.me(), number), from).await;
                }
                Some(Notice::Echo(id, number)) => {
                    if let Some(at) = talk.pings.get(&number)
                        && talk.board.counts(from)
                    {
                        talk.board.measured(id, ECHO | UNICAST, micros(at.elapsed()));
                    }
                }
                Some(relay @ Notice::Relay(..)) => learn(talk, relay),
                _ => {}
            },
            Arrived::Dialled { id, bytes, took } => {
                talk.dialling.remove(&id);
                // The address may belong to another host, or to this one.
                if let Some(Notice::Row(card, seq, row)) = decode(self.tag, &bytes)
                    && card.id == id
                {
                    learn(talk, Notice::Row(card, seq, row));
                    talk.board.measured(id, TCP, micros(took));
                }
            }
            Arrived::Failed { id } => {
                talk.dialling.remove(&id);
            }
            Arrived::Visited { bytes } => {
                if let Some(row @ Notice::Row(..)) = decode(self.tag, &bytes) {
                    learn(talk, row);
                }
            }
        }
    }

    async fn speak(&self, talk: &mut Talk, rows: &watch::Sender<Vec<u8>>, turn: usize) {
        let own = encode(self.tag, &talk.board.own_row());
        rows.send_replace(own.clone());
        // The test of the own multicast has reported interfaces that cannot send.
        self.station.send_to_all(&own);
        let relay = talk.board.relay(turn).map(|relay| encode(self.tag, &relay));
        if let Some(relay) = &relay {
            self.station.send_to_all(relay);
        }
        talk.ping += 1;
        talk.pings.insert(talk.ping, Instant::now());
        talk.pings.retain(|number, _| number + 40 > talk.ping);
        let ping = encode(self.tag, &Notice::Ping(talk.board.me(), talk.ping));
        let peers = talk.board.peers();
        for at in peers.iter().flat_map(|card| &card.at) {
            for bytes in [Some(&own), Some(&ping), relay.as_ref()].into_iter().flatten() {
                self.wires.send(bytes, *at).await;
            }
        }
        for seed in &talk.seeds {
            self.wires.send(&own, *seed).await;
        }
        for card in peers {
            // A host that hears no datagrams gets the news over a new connection.
            let again = turn.is_multiple_of(4) && talk.board.is_deaf(card.id);
            if (again || talk.board.lacks_tcp(card.id)) && talk.dialling.insert(card.id) {
                let at = talk.board.ways_to(&card);
                tokio::spawn(dial(card.id, at, own.clone(), self.wires.sender.clone()));
            }
        }
    }

    async fn send(&self, message: &Notice, to: SocketAddr) {
        self.wires.send(&encode(self.tag, message), to).await;
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn learn(talk: &mut Talk, message: Notice) {
    if let Notice::Row(card, seq, row) | Notice::Relay(card, seq, row) = message
        && talk.board.learn(card, seq, row)
    {
        talk.last_newcomer = Instant::now();
    }
}

/// Tries the endpoints of a host one after the other: sends the own row and reads the row of that host.
async fn dial(id: u32, at: Vec<SocketAddr>, row: Vec<u8>, sender: mpsc::Sender<Arrived>) {
    for to in at {
        let started = Instant::now();
        let Ok(Ok(mut stream)) = timeout(DIAL, TcpStream::connect(to)).await else { continue };
        let took = started.elapsed();
        let exchange = async {
            write(&mut stream, &row).await?;
            read(&mut stream).await
        };
        if let Ok(Ok(bytes)) = timeout(DIAL, exchange).await {
            let _ = sender.send(Arrived::Dialled { id, bytes, took }).await;
            return;
        }
    }
    let _ = sender.send(Arrived::Failed { id }).await;
}

fn receive(listener: TcpListener, latest: watch::Receiver<Vec<u8>>, sender: mpsc::Sender<Arrived>) {
    let slots = Arc::new(Semaphore::new(VISITORS));
    tokio::spawn(async move {
        while !sender.is_closed() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let Ok((mut stream, _)) = listener.accept().await else { continue };
            let (latest, sender) = (latest.clone(), sender.clone());
            tokio::spawn(async move {
                let exchange = async {
                    let bytes = read(&mut stream).await?;
                    let row = latest.borrow().clone();
                    write(&mut stream, &row).await?;
                    // The dialling host closes first, so that the master's port keeps no closed connection.
                    let _ = stream.read(&mut [0; 1]).await;
                    io::Result::Ok(bytes)
                };
                if let Ok(Ok(bytes)) = timeout(DIAL, exchange).await {
                    let _ = sender.send(Arrived::Visited { bytes }).await;
                }
                reset(&stream);
                drop(slot);
            });
        }
    });
}

async fn write(stream: &mut TcpStream, row: &[u8]) -> io::Result<()> {
    let length = u16::try_from(row.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), row].concat()).await
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
