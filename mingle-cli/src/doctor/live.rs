//! The sockets, and the course of a meeting of several hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::Error;
use mingle_core::proto::JobTag;
use mingle_core::tools::{Prover, Station};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use super::exchange::{dial, receive};
use super::matrix::{Board, Cell, Way};
use super::multicast::Trial;
use super::notice::{
    BROADCAST, ECHO, HostNotice, LONGEST, MULTICAST, TCP, TransferOffer, UNICAST, decode, encode,
};
use super::rounds;
use super::transfer::{TransferHost, Transfers};

/// How long to wait for this host's own multicast, which comes back within microseconds or never.
const BACK: Duration = Duration::from_millis(500);
/// The pause between two messages of a host to all. It grows by `TURN` for each host of the world, since each
/// receives the messages of all.
const PERIOD: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_millis(10);
/// How long to go on after the last host has appeared. A way that does not work by then is broken.
const GRACE: Duration = Duration::from_secs(3);
/// The same for paths, whose proofs take up to 5 s and begin within [`SETTLE`].
const PATHS: Duration = Duration::from_secs(7);
/// How long all hosts may take to answer before the proofs of paths begin: those that are late get less time.
const SETTLE: Duration = Duration::from_secs(1);
/// How long to go on after everything is known here, since others may still need this host. After transfers
/// it is longer: another host may have waited for its partner.
const LINGER: Duration = Duration::from_secs(2);
const LONG_LINGER: Duration = Duration::from_secs(8);
/// How long all transfers may take, and more for each host: a round takes 0.7 s.
const TRANSFERS: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_secs(2);
/// The most messages that wait; in a flood the rest is lost.
const QUEUE: usize = 1024;
/// The most connections that wait for the transfers to begin; each holds a descriptor.
const GUESTS: usize = 64;

pub(super) enum Arrived {
    Datagram {
        way: Inbound,
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A connection to `id` has opened at this endpoint, and carried the messages of both.
    Dialled {
        id: u32,
        messages: Vec<Vec<u8>>,
        at: SocketAddr,
    },
    /// No endpoint of `id` could be reached.
    Failed {
        id: u32,
    },
    /// A connection of another host has carried these messages.
    Visited {
        messages: Vec<Vec<u8>>,
    },
    /// The transfer of `id` has arrived at this rate in kbit/s.
    Rate {
        id: u32,
        rate: u32,
    },
    /// The transfers are over.
    Transferred,
}

/// The socket at which a datagram arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inbound {
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
        for socket in station.group_sockets() {
            listen(shared(socket)?, Inbound::Group, sender.clone());
        }
        if let Some(socket) = station.broadcast_socket() {
            listen(shared(socket)?, Inbound::Broadcast, sender.clone());
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
        let bytes = encode(tag, &HostNotice::Own(id, index));
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
            && let Some(HostNotice::Own(from, index)) = decode(tag, &bytes)
            && from == id
            && let Some((.., tried)) = tried.iter_mut().find(|(other, by, _)| (*other, *by) == (index, way))
        {
            tried.came_back = true;
        }
    }
    tried.into_iter().map(|(.., tried)| tried).collect()
}

/// One of several hosts that run the doctor at once.
pub(super) struct Participant<'a> {
    pub(super) station: &'a Station,
    pub(super) wires: Wires,
    pub(super) prover: Prover,
    pub(super) tag: JobTag,
    /// How long to wait for the other hosts; none means for ever.
    pub(super) limit: Option<Duration>,
    /// Whether this host takes part in transfers.
    pub(super) transfers: bool,
}

/// The state of a meeting.
struct Talk {
    board: Board,
    dialling: BTreeSet<u32>,
    seeds: Vec<SocketAddr>,
    started: Instant,
    last_newcomer: Instant,
    /// The hosts to which the path is being proved, or was, and where.
    proving: BTreeMap<u32, SocketAddr>,
    /// Connections for transfers, until these begin.
    guests: Option<mpsc::Receiver<(TransferOffer, TcpStream)>>,
    stage: Stage,
}

/// The result that a host waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Matrix,
    Transfers,
    /// Everything is known here since then; others may still need this host.
    Done(Instant),
}

impl Participant<'_> {
    /// Runs until everything is known, or until the time has passed.
    pub(super) async fn hold(mut self, board: Board) -> Result<Board, Error> {
        let started = Instant::now();
        let (rows, latest) = watch::channel(Arc::default());
        let (offers, guests) = mpsc::channel(GUESTS);
        for listener in self.station.listeners() {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let listener =
                listener.map_err(|source| Error::Socket { what: "cannot listen".to_owned(), source })?;
            receive(self.tag, listener, latest.clone(), self.wires.sender.clone(), offers.clone());
        }
        let mut talk = Talk {
            board,
            dialling: BTreeSet::new(),
            seeds: Vec::new(),
            started,
            last_newcomer: started,
            proving: BTreeMap::new(),
            guests: Some(guests),
            stage: Stage::Matrix,
        };
        let (sender, mut seeds) = unbounded_channel();
        let mut id = [0; 16];
        id[..4].copy_from_slice(&talk.board.me().to_be_bytes());
        if let Some(follow) = self.station.follow(id, move |found| sender.send(found).is_ok()).await? {
            tokio::spawn(follow);
        }
        let hosts = u32::try_from(talk.board.world()).unwrap_or(u32::MAX);
        let mut ticks = interval(PERIOD + TURN.saturating_mul(hosts));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0;
        loop {
            tokio::select! {
                Some(arrived) = self.wires.arrived.recv() => self.take(&mut talk, arrived).await,
                Some(found) = seeds.recv() => talk.seeds = found,
                () = self.prover.step() => {}
                _ = ticks.tick() => {
                    self.prove(&mut talk);
                    self.speak(&mut talk, &rows, turn).await;
                    turn += 1;
                    if self.is_over(&mut talk) {
                        // Other hosts may lack the last row.
                        self.speak(&mut talk, &rows, turn).await;
                        return Ok(talk.board);
                    }
                }
            }
        }
    }

    /// Moves on to the next stage once this one has its result. Returns whether the last one is over.
    fn is_over(&self, talk: &mut Talk) -> bool {
        let now = Instant::now();
        let (board, since) = (&talk.board, now - talk.last_newcomer);
        match talk.stage {
            Stage::Matrix => {
                let graced = since > GRACE && board.paths_are_known() || since > PATHS;
                let more = if board.is_full() { PATHS } else { Duration::ZERO };
                let late = self.limit.is_some_and(|limit| now - talk.started > limit.saturating_add(more));
                if board.is_full() && (graced || board.is_complete()) {
                    talk.stage = self.transfer(talk).unwrap_or(Stage::Done(now));
                }
                late
            }
            Stage::Transfers => false,
            Stage::Done(at) => {
                let linger = if self.transfers { LONG_LINGER } else { LINGER };
                talk.board.all_done() || now - at > linger
            }
        }
    }

    /// Begins the transfers, if this host takes part in them.
    fn transfer(&self, talk: &mut Talk) -> Option<Stage> {
        let (board, own) = (&talk.board, talk.board.me());
        let ids = rounds::hosts(board);
        let me = ids.iter().position(|id| *id == own)?;
        let works = |way, from, to| board.cell(way, from, to) == Cell::Works;
        let host = |(at, id): (usize, &u32)| {
            let (first, second) = if at < me { (*id, own) } else { (own, *id) };
            let connects = works(Way::Tcp, first, second)
                && works(Way::Path, first, second)
                && works(Way::Path, second, first);
            // Any address that is known will do, since only one of the two dials.
            let at = board.reached(*id).or_else(|| board.path_to(*id));
            TransferHost { id: *id, at: at.filter(|_| connects) }
        };
        let hosts = ids.iter().enumerate().map(host).collect();
        let guests = talk.guests.take()?;
        let transfers = Transfers { tag: self.tag, hosts, me, guests, waiting: Vec::new() };
        let sender = self.wires.sender.clone();
        let limit = TRANSFERS + ROUND * u32::try_from(ids.len()).unwrap_or(u32::MAX);
        tokio::spawn(async move {
            // The rates that are missing then stay unknown.
            let _ = timeout(limit, transfers.run(&sender)).await;
            let _ = sender.send(Arrived::Transferred).await;
        });
        Some(Stage::Transfers)
    }

    /// Begins the proofs of paths once all hosts have answered, and takes the results.
    fn prove(&mut self, talk: &mut Talk) {
        let board = &mut talk.board;
        if !board.is_full() {
            return;
        }
        let targets: Vec<(u32, SocketAddr)> =
            board.peers().iter().filter_map(|card| Some((card.id, board.path_to(card.id)?))).collect();
        if targets.len() + 1 >= board.world() || talk.last_newcomer.elapsed() > SETTLE {
            for (id, to) in targets {
                if talk.proving.len() + 1 < board.world() && !talk.proving.contains_key(&id) {
                    talk.proving.insert(id, to);
                    self.prover.add(id, to);
                }
            }
        }
        for (id, to) in &talk.proving {
            if let Some(verdict) = self.prover.verdict(*id) {
                board.proved(*id, *to, verdict);
            }
        }
    }

    async fn take(&self, talk: &mut Talk, arrived: Arrived) {
        match arrived {
            Arrived::Datagram { way, from, bytes } => match decode(self.tag, &bytes) {
                Some(HostNotice::Row(card, seq, row)) => {
                    let id = card.id;
                    learn(talk, HostNotice::Row(card, seq, row));
                    talk.board.heard(id, way.flag(), from);
                }
                Some(HostNotice::Ping(id)) if id != talk.board.me() => {
                    talk.board.heard(id, UNICAST, from);
                    // The answer is no longer than the ping, so a forged sender gains nothing.
                    self.send(&HostNotice::Echo(talk.board.me()), from).await;
                }
                Some(HostNotice::Echo(id)) if talk.board.counts(from) => {
                    talk.board.answered(id, ECHO | UNICAST, from);
                }
                Some(relay @ HostNotice::Relay(..)) => learn(talk, relay),
                _ => {}
            },
            Arrived::Dialled { id, messages, at } => {
                talk.dialling.remove(&id);
                let messages: Vec<HostNotice> =
                    messages.iter().filter_map(|bytes| decode(self.tag, bytes)).collect();
                // The address may belong to another host, or to this one.
                let is_its =
                    |message: &HostNotice| matches!(message, HostNotice::Row(card, ..) if card.id == id);
                if !messages.is_empty() && messages.iter().all(is_its) {
                    for message in messages {
                        learn(talk, message);
                    }
                    talk.board.answered(id, TCP, at);
                }
            }
            Arrived::Failed { id } => {
                talk.dialling.remove(&id);
            }
            Arrived::Visited { messages } => {
                for bytes in messages {
                    if let Some(row @ HostNotice::Row(..)) = decode(self.tag, &bytes) {
                        learn(talk, row);
                    }
                }
            }
            Arrived::Rate { id, rate } => talk.board.change(id, |contact| contact.rate = Some(rate)),
            Arrived::Transferred => talk.stage = Stage::Done(Instant::now()),
        }
    }

    async fn speak(&self, talk: &mut Talk, rows: &watch::Sender<Arc<Vec<Vec<u8>>>>, turn: usize) {
        let done = matches!(talk.stage, Stage::Done(_));
        let parts: Vec<Vec<u8>> =
            talk.board.own_row(done).iter().map(|part| encode(self.tag, part)).collect();
        let parts = Arc::new(parts);
        rows.send_replace(Arc::clone(&parts));
        let Some(own) = parts.get(turn % parts.len().max(1)) else { return };
        // The test of the own multicast has reported interfaces that cannot send.
        self.station.send_to_all(own);
        let relay = talk.board.relay(turn).map(|relay| encode(self.tag, &relay));
        if let Some(relay) = &relay {
            self.station.send_to_all(relay);
        }
        let ping = encode(self.tag, &HostNotice::Ping(talk.board.me()));
        let peers = talk.board.peers();
        for card in &peers {
            // The multicast that a host hears need not reach it twice.
            let news =
                [Some(own), relay.as_ref()].into_iter().filter(|_| talk.board.is_deaf_to_group(card.id));
            let asks = talk.board.lacks_echo(card.id);
            let all: Vec<&Vec<u8>> = news.flatten().chain(asks.then_some(&ping)).collect();
            for (place, bytes) in
                card.places.iter().flat_map(|place| all.iter().map(move |bytes| (place, bytes)))
            {
                self.wires.send(bytes, place.at).await;
            }
        }
        for seed in &talk.seeds {
            self.wires.send(own, *seed).await;
        }
        for card in peers {
            // A host that hears no datagrams gets the news over a new connection.
            let again = turn.is_multiple_of(4) && talk.board.is_deaf(card.id);
            if (again || talk.board.lacks_tcp(card.id)) && talk.dialling.insert(card.id) {
                let at = talk.board.ways_to(&card);
                tokio::spawn(dial(card.id, at, Arc::clone(&parts), self.wires.sender.clone()));
            }
        }
    }

    async fn send(&self, message: &HostNotice, to: SocketAddr) {
        self.wires.send(&encode(self.tag, message), to).await;
    }
}

fn learn(talk: &mut Talk, message: HostNotice) {
    if let HostNotice::Row(card, seq, row) | HostNotice::Relay(card, seq, row) = message
        && talk.board.learn(card, seq, row)
    {
        talk.last_newcomer = Instant::now();
    }
}
