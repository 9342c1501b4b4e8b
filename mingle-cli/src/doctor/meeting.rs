//! The course of a meeting of several hosts: they form a world in which no command will run, find out what
//! passes between them, and tell that to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use mingle_core::rdma::Machine;
use mingle_core::tools::{self, Cast, Station, host_name};
use mingle_core::{Assignment, Formed, JobId, Network, Paths};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::board::Board;
use super::notice::{BrokenWay, HEARD, Heard, Hello, LARGEST, RAILS, Record, decode, encode};
use super::transfer::{self, Link};
use super::{exchange, rails, rates, route};
use crate::config::{LONGEST, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::join;
use crate::signals::{ENDING, Signals};

/// The pause between two hellos of a host or a port.
const PERIOD: Duration = Duration::from_millis(200);
/// When a port that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after the world has formed hosts and their ports for RDMA are listened to.
const GRACE: Duration = Duration::from_secs(3);
/// How often to look whether all is heard.
const LOOK: Duration = Duration::from_millis(20);
/// How long all transfers may take, and more for each host: those with one host take 0.7 s.
const TRANSFERS: Duration = Duration::from_secs(10);
const EACH: Duration = Duration::from_secs(2);
/// How long rank 0 waits for the others longer than for itself, and the others for it: a leader may come out
/// of its round 10 s after them, and one of them may have listened for longer.
const PATIENCE: Duration = Duration::from_secs(12);
const PATIENCE_WITH_RANK_0: Duration = Duration::from_secs(30);

/// What this host has heard since the start.
#[derive(Debug, Clone, Default)]
pub(super) struct HeardSoFar {
    pub(super) hosts: BTreeSet<Heard>,
    /// What each of its ports for RDMA hears: the numbers of hosts, and their ports.
    pub(super) rails: BTreeMap<String, BTreeSet<(u32, String)>>,
    /// The hosts of the world that has formed.
    members: BTreeSet<u32>,
}

impl HeardSoFar {
    /// Notes what has arrived, at this port for RDMA or by all interfaces. A stranger can make up any number,
    /// and keeps no host of the world from being heard.
    fn hear(&mut self, at: Option<&str>, hello: Hello, address: IpAddr) {
        let Hello { id, host, port } = hello;
        match (at, port) {
            (None, None) => {
                let is_new = || self.hosts.iter().all(|other| other.id != id);
                if self.hosts.len() < HEARD || self.members.contains(&id) && is_new() {
                    self.hosts.insert(Heard { id, host, address });
                }
            }
            (Some(at), Some(port)) => {
                let heard = self.rails.entry(at.to_owned()).or_default();
                if heard.len() < LARGEST as usize * RAILS {
                    heard.insert((id, port));
                }
            }
            _ => {}
        }
    }
}

pub(super) type Ears = Arc<Mutex<HeardSoFar>>;

/// A host among several that run the doctor at once.
pub(super) struct Meeting {
    /// The number of this run, by which the others hear it.
    id: u32,
    machine: Machine,
    /// For transfers, if it takes part in them.
    listener: Option<TcpListener>,
    pub(super) ears: Ears,
}

impl Meeting {
    /// Begins to tell the other hosts of this one, and to hear them. The world of `config` becomes a trial.
    pub(super) async fn open(
        config: &mut Settings,
        id: u32,
        machine: Machine,
        transfers: bool,
    ) -> Result<Self, Stop> {
        let rendezvous = &mut config.rendezvous;
        let (job, network) = (&rendezvous.job, &rendezvous.network);
        let ears = Ears::default();
        for rail in rails::of_host(&machine, network) {
            tokio::spawn(listen(Some(rail.by), id, job.clone(), network.clone(), Arc::clone(&ears)));
        }
        if network.multicast {
            tokio::spawn(listen(None, id, job.clone(), network.clone(), Arc::clone(&ears)));
        }
        let listener = if transfers {
            // The first is for both families, where there are both.
            let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
            let opened = TcpListener::bind(&any.map(|address| (address, 0).into())[..]).await;
            Some(opened.map_err(|error| Stop::System("listen for transfers", error))?)
        } else {
            None
        };
        (rendezvous.tries, rendezvous.stays, rendezvous.private) = (true, false, true);
        (rendezvous.rank, rendezvous.last_call, rendezvous.keep_listener) = (None, LONGEST, true);
        let attributes = &mut rendezvous.attributes;
        attributes.paths = Paths::All;
        let port = listener.as_ref().and_then(|listener| Some(listener.local_addr().ok()?.port()));
        let pairs = [Some(("id", id)), port.map(|port| ("port", port.into()))];
        for (key, number) in pairs.into_iter().flatten() {
            // Two short pairs fit.
            let _ = attributes.metadata.insert(key, &number.to_string());
        }
        Ok(Self { id, machine, listener, ears })
    }

    /// Forms the world, and finds out what passes between its hosts.
    pub(super) async fn hold(&mut self, config: &Settings, journal: &mut Journal) -> Result<Board, Stop> {
        let mut signals = Signals::new(&ENDING)?;
        let mut session = config.session();
        let assignment = join::meet(&mut session, config, journal, &mut signals).await?;
        tokio::select! {
            board = self.compare(assignment, &config.rendezvous.network) => Ok(board),
            signal = signals.ending() => Err(Stop::Signal(signal)),
        }
    }

    async fn compare(&mut self, assignment: Assignment, network: &Network) -> Board {
        let Assignment { formed, listener, .. } = assignment;
        let mut board = Board::new(&formed, network);
        let token = formed.digest.0;
        let link = Link::new(Semaphore::new(1));
        if let Some(listener) = self.listener.take() {
            let link = Arc::clone(&link);
            let answer = move |stream| transfer::answer(Arc::clone(&link), stream);
            tokio::spawn(exchange::serve(listener, token, answer));
        }
        let own = board.own;
        let found = self.listen_for(&board, Instant::now() + GRACE).await;
        board.hosts[own as usize].record = Some(self.record(&formed, &board, found));
        let slots = u32::try_from(rates::hosts(&board).len()).unwrap_or(u32::MAX);
        let limit = if slots > 0 { TRANSFERS + EACH * slots } else { Duration::ZERO };
        let now = Instant::now();
        if board.host(own).transfers.is_some() {
            let partners = rates::partners(&board);
            let rates = transfer::measure_all(&link, token, partners, Instant::now() + limit).await;
            board.hosts[own as usize].record.iter_mut().for_each(|record| record.rates.clone_from(&rates));
        }
        let record = board.record(own).cloned().unwrap_or_default();
        let told = if let Some(listener) = listener {
            let mut records = vec![None; board.hosts.len()];
            records[own as usize] = Some(record);
            exchange::collect(listener, token, records, now + limit + PATIENCE).await
        } else {
            exchange::tell(formed.master, token, (own, &record), now + limit + PATIENCE_WITH_RANK_0).await
        };
        board.take(told);
        board
    }

    /// Waits until all hosts of the world are heard, but at most until then, and as long where there are
    /// ports for RDMA.
    async fn listen_for(&self, board: &Board, until: Instant) -> HeardSoFar {
        self.ears.lock().await.members = board.hosts.iter().map(|host| host.id).collect();
        let has_rails = !rails::of_host(&self.machine, &board.network).is_empty();
        while board.network.multicast && Instant::now() < until {
            let ears = self.ears.lock().await;
            let is_heard = |id: u32| id == self.id || ears.hosts.iter().any(|heard| heard.id == id);
            if !has_rails && board.hosts.iter().all(|host| is_heard(host.id)) {
                break;
            }
            drop(ears);
            sleep(LOOK).await;
        }
        self.ears.lock().await.clone()
    }

    /// What this host has found, but for transfers.
    fn record(&self, formed: &Formed, board: &Board, found: HeardSoFar) -> Record {
        let all = tools::interfaces(&board.network).unwrap_or_default();
        let broken = formed.broken.iter().map(|(to, path)| {
            let at = path.to.address.ip();
            let blocked = route::examine(at, route::is_near(&all, at));
            BrokenWay { to: to.get(), path: path.clone(), blocked }
        });
        // Read again: a cable that is plugged in or pulled is known to the kernel about a second later, and a
        // port may get its address then.
        let mut rails = rails::of_host(&self.machine, &board.network);
        for rail in &mut rails {
            let heard = found.rails.get(&rail.by).into_iter().flatten();
            let rank = |id: u32| board.ranks().find(|rank| board.host(*rank).id == id);
            rail.heard = heard.filter_map(|(id, port)| Some((rank(*id)?, port.clone()))).collect();
        }
        Record {
            heard: board.network.multicast.then_some(found.hosts),
            broken: broken.collect(),
            rates: BTreeMap::new(),
            rails,
        }
    }
}

/// Tells all hosts again and again of this one, or of this port of it, and notes what is heard there. What
/// cannot be opened yet, such as a port without a link or address, is tried again.
async fn listen(port: Option<String>, id: u32, job: JobId, network: Network, ears: Ears) {
    let open = || match &port {
        None => Station::of_observer(&job, &network),
        Some(port) => Station::of_port(&job, &network, port),
    };
    let (tag, mut ticks, mut opened) = (job.tag(), interval(PERIOD), open());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let own = encode(tag, &Hello { id, host: host_name(), port: port.clone() });
    loop {
        let Ok(station) = &mut opened else {
            sleep(AGAIN).await;
            opened = open();
            continue;
        };
        tokio::select! {
            (from, cast, bytes) = station.receive() => {
                // A port hears itself, too, unless this host drops multicast.
                let counts = |hello: &Hello| cast == Cast::Multicast && (port.is_some() || hello.id != id);
                if let Some(hello) = decode(tag, &bytes).filter(counts) {
                    ears.lock().await.hear(port.as_deref(), hello, from.ip().to_canonical());
                }
            }
            // The test of the own multicast has reported interfaces that cannot send, and a port that cannot
            // is heard by nobody, which the others say.
            _ = ticks.tick() => drop(station.send_to_all(&own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use mingle_core::HostName;

    use super::*;

    #[test]
    fn strangers_who_make_up_hosts_and_names_void_no_record_and_hide_no_host() {
        let mut ears = HeardSoFar::default();
        let hear = |ears: &mut HeardSoFar, id, name: u32| {
            let host = HostName::new(&format!("node{name}"));
            ears.hear(None, Hello { id, host, port: None }, [10, 0, 0, 1].into());
        };
        (1000..2000).for_each(|id| hear(&mut ears, id, id));
        ears.members = (1..33).collect();
        for name in 0..50 {
            (1..33).for_each(|id| hear(&mut ears, id, name));
        }
        assert!((1..33).all(|id| ears.hosts.iter().any(|heard| heard.id == id)));
        assert!(Record { heard: Some(ears.hosts), ..Record::default() }.is_sane());
    }
}
