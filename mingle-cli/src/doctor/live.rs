//! The course of a meeting of several hosts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::proto::JobTag;
use mingle_core::rdma::Machine;
use mingle_core::tools::{Cast, Prover, Station};
use mingle_core::{Error, JobId};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use super::exchange::{receive, visit};
use super::matrix::Board;
use super::notice::{Message, Record, Way, decode, encode};
use super::{rails, rates, transfer};

/// The pause between two messages of a host to all. It grows by `TURN` for each host of the world, since each
/// receives the messages of all.
const PERIOD: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_millis(10);
/// So many periods are between two connections to an endpoint.
const AGAIN: u32 = 4;
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

/// What the tasks of a meeting share.
pub(super) struct Shared {
    pub(super) tag: JobTag,
    pub(super) board: Mutex<Board>,
    /// A single permit, which whoever uses the link for a transfer holds; none before this host begins.
    pub(super) link: Semaphore,
}

impl Shared {
    /// What this host tells over a connection.
    pub(super) async fn news(&self) -> Vec<u8> {
        encode(self.tag, &self.board.lock().await.news())
    }
}

/// A host among several that run the doctor at once.
pub(super) struct Meeting {
    station: Station,
    prover: Prover,
    shared: Arc<Shared>,
    machine: Machine,
    /// The hosts whose endpoints are visited.
    visited: BTreeSet<u32>,
    /// The hosts to which the paths are being proved, and where.
    proving: Vec<(u32, SocketAddr)>,
    ticks: Interval,
    turn: usize,
    seeds: watch::Receiver<Vec<SocketAddr>>,
}

impl Meeting {
    /// Listens to the other hosts; `board` holds this host alone. `machine` has the ports for RDMA.
    pub(super) async fn open(
        station: Station,
        prover: Prover,
        job: &JobId,
        mut board: Board,
        machine: Machine,
    ) -> Result<Self, Error> {
        let (found, seeds) = watch::channel(Vec::new());
        let (me, network) = (board.own.id, board.network.clone());
        if let Some(follow) = station.follow(job, move |seeds| found.send(seeds).is_ok()).await? {
            tokio::spawn(follow);
        }
        let rails = rails::of_host(&machine, &network);
        // Otherwise the others get the time to be heard.
        board.own.rails = rails.is_empty().then(Vec::new);
        let hosts = u32::try_from(board.world).unwrap_or(u32::MAX);
        let mut ticks = interval(PERIOD + TURN.saturating_mul(hosts));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shared = Shared { tag: job.tag(), board: board.into(), link: Semaphore::new(0) };
        let shared = Arc::new(shared);
        for rail in rails {
            tokio::spawn(rails::listen(rail.by, me, job.clone(), network.clone(), Arc::clone(&shared)));
        }
        for listener in station.listeners() {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let listener =
                listener.map_err(|source| Error::Socket { what: "cannot listen".to_owned(), source })?;
            tokio::spawn(receive(listener, Arc::clone(&shared)));
        }
        let (visited, proving) = (BTreeSet::new(), Vec::new());
        Ok(Self { station, prover, shared, machine, visited, proving, ticks, turn: 0, seeds })
    }

    /// Runs until everything is known, or until the time has passed: `limit` is that for the other hosts to
    /// come; none means for ever.
    pub(super) async fn hold(mut self, limit: Option<Duration>) -> Board {
        let shared = Arc::clone(&self.shared);
        self.until(limit.map(|limit| Instant::now() + limit), is_settled).await;
        {
            let board = shared.board.lock().await;
            if board.others.is_empty() {
                return board.clone();
            }
            let target = |peer: &Record| {
                Some((peer.id, SocketAddr::new(board.reached(peer)?.link.address, peer.port)))
            };
            self.proving = board.others.values().take(board.world - 1).filter_map(target).collect();
        }
        self.prover.prove(self.proving.iter().copied());
        let limit = Some(Instant::now() + PATHS);
        let is_graced = |board: &Board| board.last_newcomer.elapsed() > GRACE;
        let is_fine = |board: &Board| board.is_complete() && board.own.rails.is_some();
        self.until(limit, |board| is_fine(board) || is_graced(board)).await;
        {
            let mut board = shared.board.lock().await;
            // Read again: a cable that is plugged in or pulled is known to the kernel about a second later,
            // and a port may get its address then.
            let mut rails = rails::of_host(&self.machine, &board.network);
            for rail in &mut rails {
                rail.heard = board.heard.remove(&rail.by).unwrap_or_default();
            }
            board.own.rails.get_or_insert(rails);
        }
        self.until(limit, |board| board.paths_are_known() && board.rails_are_known()).await;
        let transfers = shared.board.lock().await.own.transfers;
        if transfers {
            self.transfer().await;
        }
        shared.board.lock().await.own.done = true;
        // Each endpoint is visited once more.
        let linger = LINGER.max(2 * AGAIN * self.ticks.period());
        let linger = if transfers { LONG_LINGER.max(linger) } else { linger };
        let are_done = |board: &Board| board.others.values().all(|peer| peer.done);
        self.until(Some(Instant::now() + linger), are_done).await;
        let board = shared.board.lock().await;
        // Other hosts may lack the last news.
        self.speak(&board);
        board.clone()
    }

    /// Hears and speaks until this holds, or until the time has passed.
    async fn until(&mut self, limit: Option<Instant>, holds: impl Fn(&Board) -> bool) {
        let shared = Arc::clone(&self.shared);
        loop {
            tokio::select! {
                (from, cast, bytes) = self.station.receive() => {
                    let way = match cast {
                        Cast::Multicast => Way::Multicast,
                        Cast::Broadcast => Way::Broadcast,
                        _ => Way::Udp,
                    };
                    if let Some(Message::News(id, records)) = decode(shared.tag, &bytes) {
                        shared.board.lock().await.hear(id, records, Some((way, from.ip())));
                    }
                }
                () = self.prover.step() => {}
                _ = self.ticks.tick() => {
                    let mut board = shared.board.lock().await;
                    self.proving.retain(|(id, to)| {
                        let verdict = self.prover.verdict(*id);
                        if let Some(verdict) = verdict {
                            board.proved(*id, *to, verdict);
                        }
                        verdict.is_none()
                    });
                    for peer in board.others.values().filter(|peer| self.visited.insert(peer.id)) {
                        let again = AGAIN * self.ticks.period();
                        for place in &peer.places {
                            tokio::spawn(visit(peer.id, place.at, again, Arc::clone(&shared)));
                        }
                    }
                    self.speak(&board);
                    self.turn += 1;
                    if holds(&board) || limit.is_some_and(|limit| Instant::now() > limit) {
                        return;
                    }
                }
            }
        }
    }

    /// Measures the transfers of the other hosts that take part in transfers.
    async fn transfer(&mut self) {
        let (hosts, partners) = rates::partners(&*self.shared.board.lock().await);
        let limit = TRANSFERS + EACH * u32::try_from(hosts).unwrap_or(u32::MAX);
        self.shared.link.add_permits(1);
        // The rates that are missing then stay unknown.
        let task = tokio::spawn(timeout(limit, transfer::run(Arc::clone(&self.shared), partners)));
        self.until(None, |_| task.is_finished()).await;
    }

    /// Tells the other hosts of this host, and by turns of another host that not all hear.
    fn speak(&mut self, board: &Board) {
        let unheard: Vec<&Record> = board.unheard().collect();
        let other = self.turn.checked_rem(unheard.len()).map(|at| unheard[at]);
        let mut news = board.own.datagrams(self.shared.tag, board.own.id);
        if let Some(other) = other {
            let mut parts = other.datagrams(self.shared.tag, board.own.id);
            news.push(parts.swap_remove(self.turn / unheard.len() % parts.len()));
        }
        for bytes in &news {
            // The test of the own multicast has reported interfaces that cannot send.
            let _ = self.station.send_to_all(bytes);
        }
        // The multicast that a host hears need not reach it twice.
        let hears = |way, peer: &Record| board.works(way, board.own.id, peer.id);
        let deaf =
            board.others.values().filter(|peer| !hears(Way::Multicast, peer) || !hears(Way::Udp, peer));
        let places = deaf.flat_map(|peer| &peer.places).map(|place| place.at);
        for to in places.chain(self.seeds.borrow().iter().copied()) {
            for bytes in &news {
                self.station.send(to, bytes);
            }
        }
    }
}

/// Whether all hosts have come and had the time to answer, or another host will not stay for long.
fn is_settled(board: &Board) -> bool {
    let reached = board.others.keys().filter(|id| board.works(Way::Tcp, board.own.id, **id));
    let have_answered = reached.count() + 1 >= board.world || board.last_newcomer.elapsed() > SETTLE;
    board.others_prove() || board.is_full() && have_answered
}
