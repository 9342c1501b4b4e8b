//! The course of a meeting of several hosts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::{Cast, Prover, Station};
use mingle_core::{Error, JobId};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::exchange::{dial, framed, receive};
use super::matrix::Board;
use super::notice::{Card, HOSTS, HostNotice, Rail, Way, decode, encode};
use super::transfer::Transfers;
use super::{rails, rates};

/// The pause between two messages of a host to all. It grows by `TURN` for each host of the world, since each
/// receives the messages of all.
const PERIOD: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_millis(10);
/// After so many messages connections carry the latest news.
const AGAIN: usize = 4;
/// How long to go on after the last host has appeared. A way that does not work by then is broken.
const GRACE: Duration = Duration::from_secs(3);
/// How long to go on after the proofs of paths have begun here. They take up to 5 s, and another host may
/// begin later.
const PATHS: Duration = Duration::from_secs(7);
/// How long all hosts may take to answer before the proofs of paths begin.
const SETTLE: Duration = Duration::from_secs(1);
/// How long to go on after everything is known here, since others may still need this host. After transfers
/// it is longer: another host may have waited for its partner.
const LINGER: Duration = Duration::from_secs(2);
const LONG_LINGER: Duration = Duration::from_secs(8);
/// How long all transfers may take, and more for each host: those with one host take 0.7 s.
const TRANSFERS: Duration = Duration::from_secs(10);
const EACH: Duration = Duration::from_secs(2);
/// The most messages that wait; in a flood the rest is lost.
const QUEUE: usize = 1024;

/// What has happened on a connection.
pub(super) enum Arrived {
    /// One to `id` has opened at this endpoint, and brought this message.
    Answer { id: u32, at: SocketAddr, bytes: Vec<u8> },
    /// No endpoint of `id` could be reached.
    Failed { id: u32 },
    /// One of another host has brought this message.
    Visit { bytes: Vec<u8> },
    /// The transfer of `id` has arrived at this rate in kbit/s.
    Rate { id: u32, rate: u32 },
    /// The transfers are over.
    Transferred,
    /// This host's port for RDMA hears that of host `id`.
    Rail { here: usize, id: u32, there: usize },
}

/// One of several hosts that run the doctor at once, and all that it knows.
pub(super) struct Meeting {
    station: Station,
    prover: Prover,
    job: JobId,
    board: Board,
    /// This host's ports for RDMA, until all others have had the time to be heard.
    rails: Option<Vec<Rail>>,
    /// Until when to wait for the other hosts; none means for ever.
    deadline: Option<Instant>,
    last_newcomer: Instant,
    stage: Stage,
    /// The hosts to which the paths are proved, and where.
    proving: Vec<(u32, SocketAddr)>,
    dialling: BTreeSet<u32>,
    /// The hosts that know this host's ports for RDMA, or are being told.
    told: BTreeSet<u32>,
    seeds: Vec<SocketAddr>,
    /// The latest message for connections.
    latest: watch::Sender<Arc<Vec<u8>>>,
    transfers: Transfers,
    arrived: mpsc::Receiver<Arrived>,
}

/// What a host waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Hosts,
    /// The proofs of paths, which have begun at this time.
    Paths(Instant),
    Transfers,
    /// Everything is known here since then; others may still need this host.
    Done(Instant),
}

impl Meeting {
    /// Listens to the other hosts; `board` holds this one alone.
    pub(super) fn open(
        station: Station,
        prover: Prover,
        job: &JobId,
        board: Board,
        rails: Vec<Rail>,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        let (latest, answer) = watch::channel(Arc::default());
        let (sender, arrived) = mpsc::channel(QUEUE);
        let transfers = Transfers { tag: job.tag(), link: Semaphore::new(0).into(), sender };
        for listener in station.listeners() {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let listener =
                listener.map_err(|source| Error::Socket { what: "cannot listen".to_owned(), source })?;
            receive(listener, answer.clone(), transfers.clone());
        }
        rails::listen(&rails, board.me, job, &board.network, &transfers.sender);
        let started = Instant::now();
        Ok(Self {
            station,
            prover,
            job: job.clone(),
            board,
            rails: Some(rails),
            deadline: limit.map(|limit| started + limit),
            last_newcomer: started,
            stage: Stage::Hosts,
            proving: Vec::new(),
            dialling: BTreeSet::new(),
            told: BTreeSet::new(),
            seeds: Vec::new(),
            latest,
            transfers,
            arrived,
        })
    }

    /// Runs until everything is known, or until the time has passed.
    pub(super) async fn hold(mut self) -> Result<Board, Error> {
        let (sender, mut seeds) = unbounded_channel();
        let mut id = [0; 16];
        id[..4].copy_from_slice(&self.board.me.to_be_bytes());
        if let Some(follow) =
            self.station.follow(&self.job, id, move |found| sender.send(found).is_ok()).await?
        {
            tokio::spawn(follow);
        }
        let hosts = u32::try_from(self.board.world).unwrap_or(u32::MAX);
        let mut ticks = interval(PERIOD + TURN.saturating_mul(hosts));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0;
        loop {
            tokio::select! {
                (from, cast, bytes) = self.station.receive() => {
                    self.hear(&bytes, Some((from, cast)));
                }
                Some(arrived) = self.arrived.recv() => self.take(arrived),
                Some(found) = seeds.recv() => self.seeds = found,
                () = self.prover.step() => {}
                _ = ticks.tick() => {
                    self.speak(turn);
                    turn += 1;
                    if self.is_over() {
                        // Other hosts may lack the last news.
                        self.speak(turn);
                        return Ok(self.board);
                    }
                }
            }
        }
    }

    /// Moves on to the next stage once this one has its result. Returns whether the last one is over.
    fn is_over(&mut self) -> bool {
        for (id, to) in &self.proving {
            if let Some(verdict) = self.prover.verdict(*id) {
                self.board.proved(*id, *to, verdict);
            }
        }
        let now = Instant::now();
        let is_graced = now - self.last_newcomer > GRACE;
        let is_heard = is_graced && self.stage != Stage::Hosts;
        if let Some(mut rails) = self.rails.take_if(|rails| is_heard || rails.is_empty()) {
            rails::update(&mut rails, &self.board.network);
            self.board.rows.entry(self.board.me).and_modify(|own| own.rails = Some(rails));
            self.refresh();
        }
        let board = &self.board;
        match self.stage {
            Stage::Hosts => {
                let is_late = self.deadline.is_some_and(|deadline| now > deadline);
                let answers = board.peers().filter(|card| board.reached(card.id).is_some()).count();
                let is_settled = answers + 1 >= board.world || now - self.last_newcomer > SETTLE;
                if is_late || board.others_prove() || board.is_full() && is_settled {
                    let target = |card: &Card| Some((card.id, board.path_to(card)?));
                    self.proving = board.peers().take(board.world - 1).filter_map(target).collect();
                    self.prover.prove(self.proving.iter().copied());
                    self.stage = Stage::Paths(now);
                }
                is_late && self.proving.is_empty()
            }
            Stage::Paths(since) => {
                let is_known = board.is_complete() || is_graced && board.paths_are_known();
                if is_known && board.rails_are_known() || now - since > PATHS {
                    self.stage = self.transfer().unwrap_or(Stage::Done(now));
                }
                false
            }
            Stage::Transfers => false,
            Stage::Done(at) => {
                // A host that has everything may have left.
                let owed = |card: &Card| {
                    !card.done && board.has(board.me, card.id, Way::Tcp) && !self.told.contains(&card.id)
                };
                let owes = board.has_rails(board.me) && board.peers().any(owed);
                let linger = if board.transfers() || owes { LONG_LINGER } else { LINGER };
                let is_over = board.peers().all(|card| card.done) && !owes || now - at > linger;
                self.board.rows.entry(self.board.me).and_modify(|own| own.card.done = true);
                is_over
            }
        }
    }

    /// Begins the transfers, if this host takes part in them.
    fn transfer(&mut self) -> Option<Stage> {
        let (board, own) = (&self.board, self.board.me);
        let ids = rates::hosts(board);
        let me = ids.iter().position(|id| *id == own)?;
        let host = |id: u32| {
            let connects = board.works(Way::Path, own, id) && board.works(Way::Path, id, own);
            Some((id, board.reached(id).filter(|_| connects)?))
        };
        // Not all ask the same host first.
        let others = ids[me + 1..].iter().chain(&ids[..me]);
        let hosts = others.filter_map(|id| host(*id)).collect();
        let limit = TRANSFERS + EACH * u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let transfers = self.transfers.clone();
        transfers.link.add_permits(1);
        tokio::spawn(async move {
            // The rates that are missing then stay unknown.
            let _ = timeout(limit, transfers.run(hosts)).await;
            let _ = transfers.sender.send(Arrived::Transferred).await;
        });
        Some(Stage::Transfers)
    }

    /// Takes what a host says, by a datagram from this address or over a connection. Returns who says it.
    fn hear(&mut self, bytes: &[u8], datagram: Option<(SocketAddr, Cast)>) -> Option<u32> {
        let Some(HostNotice::News(id, rows)) = decode(self.job.tag(), bytes) else { return None };
        for row in rows {
            if self.board.learn(row) {
                self.last_newcomer = Instant::now();
            }
        }
        if let Some((from, cast)) = datagram {
            self.board.heard(id, cast, from);
        }
        Some(id)
    }

    fn take(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Answer { id, at, bytes } => {
                self.dialling.remove(&id);
                // The address may belong to another host, or to this one.
                if self.hear(&bytes, None) == Some(id) {
                    self.board.answered(id, at);
                }
            }
            Arrived::Failed { id } => {
                self.dialling.remove(&id);
                self.told.remove(&id);
            }
            Arrived::Visit { bytes } => {
                self.hear(&bytes, None);
            }
            Arrived::Rate { id, rate } => self.board.change(id, |contact| contact.rate = Some(rate)),
            Arrived::Transferred => self.stage = Stage::Done(Instant::now()),
            Arrived::Rail { here, id, there } => {
                let rail = self.rails.as_mut().and_then(|rails| rails.get_mut(here));
                // A stranger can make up any number of hosts.
                if let Some(rail) =
                    rail.filter(|rail| rail.heard.len() < HOSTS || rail.heard.contains_key(&id))
                {
                    rail.heard.entry(id).or_default().insert(there);
                }
            }
        }
    }

    /// Gives the latest news to connections.
    fn refresh(&self) {
        let (board, me) = (&self.board, self.board.me);
        // By now each host knows whom it hears.
        let knows = self.last_newcomer.elapsed() > SETTLE;
        let rows = board.rows.values();
        let rows = rows.filter(|row| row.card.id == me || knows && !board.is_heard(row.card.id));
        let news = HostNotice::News(me, rows.cloned().collect());
        self.latest.send_replace(framed(&encode(self.job.tag(), &news)).into());
    }

    /// Tells the other hosts of this one, and by turns of others whom not all hear.
    fn speak(&mut self, turn: usize) {
        let (board, me) = (&self.board, self.board.me);
        if turn.is_multiple_of(AGAIN) {
            self.refresh();
        }
        let datagram = |id: &u32| Some(board.rows.get(id)?.datagram(self.job.tag(), me, turn));
        // Another one whom not all hear.
        let unheard = board.peers().map(|card| card.id).filter(|id| !board.is_heard(*id));
        let unheard: Vec<u32> = unheard.collect();
        let other = turn.checked_rem(unheard.len()).and_then(|at| datagram(&unheard[at]));
        let own = datagram(&me).unwrap_or_default();
        for bytes in [Some(&own), other.as_ref()].into_iter().flatten() {
            // The test of the own multicast has reported interfaces that cannot send.
            let _ = self.station.send_to_all(bytes);
        }
        for card in board.peers() {
            let hears = |way| board.has(card.id, me, way);
            // The multicast that a host hears need not reach it twice.
            let own = (!hears(Way::Multicast) || !hears(Way::Udp)).then_some(&own);
            let news = [own, other.as_ref().filter(|_| !hears(Way::Multicast))].into_iter().flatten();
            for bytes in news {
                card.places.iter().for_each(|place| self.station.send(place.at, bytes));
            }
            // A host that hears no datagrams gets the news over a new connection. The ports for RDMA need a
            // connection in each direction.
            let (is_due, has_rails) = (turn.is_multiple_of(AGAIN), board.has_rails(me));
            let is_told = self.told.contains(&card.id) || !has_rails;
            let is_asked =
                !hears(Way::Multicast) && !hears(Way::Udp) || board.lacks_rails_of(card.id) || !is_told;
            if (is_due && is_asked || !board.has(me, card.id, Way::Tcp)) && self.dialling.insert(card.id) {
                if has_rails {
                    self.told.insert(card.id);
                }
                let (at, own) = (board.ways_to(card), Arc::clone(&self.latest.borrow()));
                tokio::spawn(dial(card.id, at, own, self.transfers.sender.clone()));
            }
        }
        for seed in &self.seeds {
            self.station.send(*seed, &own);
        }
    }
}
