//! The way of a node that stays to its next world: it waits for a plan, and proves its paths with the nodes
//! of the plan.
//!
//! A round is a rendezvous of exactly the nodes of a plan, whose ranks are given, under a tag that nobody
//! else knows. So nobody else can take a seat, and all know the address of the first rank as a seed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::interfaces::{own_endpoints, usable};
use super::running::RunningWorld;
use super::{Driver, connections, open_links};
use crate::model::{NodeId, Peer, Rank, World as Size};
use crate::net::assignment::Assignment;
use crate::net::clock::{clock, random};
use crate::net::error::Error;
use crate::net::sockets::endpoint::{bind_candidates, listen_again};
use crate::net::sockets::open_files::OpenFiles;
use crate::proto::{Change, Event, Failure, Formed, Heard, Node, Progress, RankRange, Report};
use crate::wire::world::{Contact, Phase, Plan, Reign};

/// How long the nodes of a plan have to prove their paths. Then the leader hears which are broken, before it
/// gives the round up.
const ROUND: Duration = Duration::from_secs(10);
/// A node that waits for a seat and hears no leader for so long looks for others.
const LEADERLESS: Duration = Duration::from_secs(10);

/// The pause between two questions of a node that is alone.
const ASK: Duration = Duration::from_secs(1);
/// How long nothing is said of the nodes that are not back: their commands stop.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// The proof of a plan's paths.
pub(super) struct Proving {
    plan: Plan,
    pub(super) node: Node,
    formed: Option<Formed>,
}

impl RunningWorld {
    /// Waits until the next world has formed.
    pub(super) async fn meet(mut self) -> Result<Assignment, Error> {
        let mut said: Option<(u32, Vec<u32>)> = None;
        let mut leaderless: Option<Instant> = None;
        // This node waits for a seat, and has met the leader: its wait has no limit while it has one.
        let mut has_met = false;
        loop {
            self.advance().await;
            self.advance_round().await?;
            if let Some(plan) = self.formed.take()
                && let Some(formed) =
                    self.round.take_if(|round| round.plan.round == plan.round).and_then(|round| round.formed)
            {
                return Ok(self.assignment(formed));
            }
            while let Some(change) = self.changes.pop_front() {
                if let Change::Cause(over) = change {
                    self.driver.settings.notify(Event::FirstCause(over));
                }
            }
            if std::mem::take(&mut self.may_end) {
                return Err(Error::Failed(Failure::JobFinished));
            }
            let now = clock();
            // A member that has lost the leader names itself to a node that waits, and may know nobody
            // either.
            let has_met_leader = self.world.reign().epoch.origin != 0;
            let leader = self.world.leader().filter(|_| has_met_leader);
            let has_leader = leader.is_some_and(|leader| self.world.leads() || self.world.hears(leader.id));
            if has_leader {
                leaderless = None;
                has_met |= self.rank.is_none();
            } else if self.rank.is_none() && now >= *leaderless.get_or_insert(now) + LEADERLESS {
                self.is_lost = true;
            }
            self.is_lost |= self.desk.knows_another() && self.world.is_alone();
            if self.is_lost {
                return Box::pin(self.look_for_others(has_met)).await;
            }
            self.ask_if_alone(now);
            self.say_progress(&mut said);
            if !has_met {
                self.check_deadline()?;
            }
            self.wait().await;
        }
    }

    /// Nobody is left but this node: others may have met without it.
    fn ask_if_alone(&mut self, now: Instant) {
        // Two that are alone must not ask at the same time again and again.
        let pause = ASK + Duration::from_millis(self.world.own().id.0[0].into());
        if !self.world.is_alone() || self.driver.settings.is_alone() {
            self.asks = None;
        } else if now >= *self.asks.get_or_insert(now + pause) {
            self.asks = Some(now + pause);
            self.desk.ask(&self.driver.peers.seeds);
        }
    }

    fn check_deadline(&self) -> Result<(), Error> {
        let is_bound = self.round.as_ref().is_some_and(|round| round.formed.is_none());
        let timeout = self.driver.settings.timeout.filter(|_| !is_bound);
        if timeout.is_none_or(|timeout| self.driver.began.elapsed() < timeout) {
            return Ok(());
        }
        Err(Error::Failed(Failure::Deadline(Box::new(self.deadline_report()))))
    }

    fn deadline_report(&self) -> Report {
        let Reign { here, absent, .. } = self.world.reign();
        let heard = |(rank, peer): (u32, &Peer)| {
            let is_back = !absent.contains(&rank);
            is_back.then(|| Heard { host: peer.host.clone(), address: Some(peer.address), rank: Some(rank) })
        };
        Report {
            joined: *here,
            heard: (0..).zip(&self.members).filter_map(heard).take(Report::NAMES).collect(),
            missing: ranges(absent),
            ..Report::new(self.driver.settings.world, self.driver.settings.rank)
        }
    }

    /// Reports how many nodes are ready for the next world, when that has changed.
    fn say_progress(&mut self, said: &mut Option<(u32, Vec<u32>)>) {
        let Reign { here, absent, phase, leader, .. } = self.world.reign();
        let is_over = matches!(phase, Phase::Over(_));
        self.over_since = self.over_since.filter(|_| is_over).or_else(|| is_over.then(clock));
        if *here == 0 || self.over_since.is_none_or(|since| since.elapsed() < QUIET) {
            return;
        }
        let new = Some((*here, absent.clone()));
        if *said != new {
            let address =
                leader.addresses.first().map_or(self.driver.endpoints.preferred(), |address| *address);
            let host = self.members.iter().find(|peer| peer.address.ip() == address.ip());
            let host = host.map_or_else(crate::host::host_name, |peer| peer.host.clone());
            let progress = Progress {
                joined: *here,
                world: self.driver.settings.world,
                newest: Vec::new(),
                missing: ranges(absent),
                leader: Peer { host, address },
            };
            *said = new;
            self.driver.settings.notify(Event::Progress(progress));
        }
    }

    /// Begins a round that is planned, and goes on with the one that is under way.
    async fn advance_round(&mut self) -> Result<(), Error> {
        if let Some(plan) = self.planned.take() {
            self.round = self.begin_round(plan).await?;
        }
        let Some(Proving { plan, node, formed }) = &mut self.round else { return Ok(()) };
        self.driver.fire_timers(node).await;
        let ended = self.driver.carry_out_all(node, |settings, event| match event {
            // The plan has said who takes part.
            Event::Leading | Event::Following(_) | Event::Progress(_) => {}
            event => settings.notify(event),
        });
        match ended {
            Some(Ok(new)) => {
                self.driver.connections.close_all(new.rank == Rank(0)).await;
                self.world.proved(self.driver.now(), plan.round, Vec::new());
                *formed = Some(new);
            }
            Some(Err(failure)) => {
                tracing::debug!(%failure, "a round has failed");
                let broken = broken(&failure, plan, self.world.own(), self.rank.is_some());
                if !broken.is_empty() {
                    self.world.proved(self.driver.now(), plan.round, broken);
                }
                self.round = None;
            }
            None => {}
        }
        Ok(())
    }

    async fn begin_round(&mut self, plan: Plan) -> Result<Option<Proving>, Error> {
        let size = Size::new(u32::try_from(plan.seats.len()).unwrap_or(u32::MAX)).ok();
        let rank = plan.rank_of(self.world.own().id);
        let (Some(size), Some(rank)) = (size, rank) else { return Ok(None) };
        if self.driver.settings.world.at_most(size.get()) != size.get() {
            let own = self.world.own().id;
            self.world.proved(self.driver.now(), plan.round, vec![own]);
            return Ok(None);
        }
        self.driver.listen_for_round().await?;
        let own = self.driver.contact(self.sessions.port());
        if own != *self.world.own() {
            // Another port had to be taken.
            self.world.set_own(self.driver.now(), own);
        }
        let mut config = self.driver.config(self.sessions.port());
        config.id = NodeId(random()?);
        config.tag = config.tag.of_round(plan.round.leader, plan.round.number);
        config.world = size.into();
        config.spare = size.get().saturating_sub(self.driver.settings.world.min().get());
        config.node.rank = Some(Rank(rank));
        config.node.former = self.rank;
        config.timeout = Some(ROUND);
        (config.stands_by, config.searches) = (false, false);
        config.listed.clear();
        let mut node = self.driver.start(config)?;
        if let Some(first) = plan.seats.first().filter(|_| rank != 0) {
            let seeds = first.addresses.iter().map(|address| SocketAddr::new(address.ip(), first.port));
            node.handle_seeds(self.driver.now(), seeds.collect());
        }
        Ok(Some(Proving { plan, node, formed: None }))
    }

    fn assignment(mut self, mut formed: Formed) -> Assignment {
        formed.asked = self.driver.settings.world;
        self.enter(&formed);
        let (interface, listener) = self.driver.take_sockets(&formed);
        Assignment { job: self.driver.settings.job.clone(), interface, listener, running: Some(self), formed }
    }

    /// Nobody is left: as at the start.
    async fn look_for_others(self, has_waited: bool) -> Result<Assignment, Error> {
        let mut driver = *self.driver;
        drop(self.sessions);
        if has_waited {
            // It has waited for as long as the job has run.
            driver.began = clock();
        }
        driver.listen_for_round().await?;
        driver.renew()?;
        driver.rendezvous().await
    }
}

impl Driver {
    /// Listens for a round, unless this node does already.
    async fn listen_for_round(&mut self) -> Result<(), Error> {
        self.connections.hang_up_all();
        if self.connections.listens(self.path_port != 0 && !self.settings.own_ports) {
            // The task that did it has ended with the connections.
            self.keep_seed_file();
            return Ok(());
        }
        self.connections.drop_listeners();
        self.listen(true).await.map(drop)
    }

    /// Listens on this node's port, and returns whether it does. While the port is taken it does not, unless
    /// that `must` be: it takes another port then, if this one is not given.
    pub(super) async fn listen(&mut self, must: bool) -> Result<bool, Error> {
        let own = match listen_again(&self.links.own) {
            Ok(listeners) => listeners,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !must => return Ok(false),
            Err(source) => match self.settings.network.master_port {
                Some(port) => return Err(Error::PortTaken { port, source }),
                None => self.listen_elsewhere().await?,
            },
        };
        self.open_files.get_or_insert_with(OpenFiles::raise);
        (self.connections, self.path_port) = connections(&self.settings, own, self.port)?;
        self.endpoints = own_endpoints(&self.settings.network, &self.links, self.port);
        // The task that did it has ended with the connections.
        self.keep_seed_file();
        Ok(true)
    }

    /// Listens on another port of the job's.
    async fn listen_elsewhere(&mut self) -> Result<Vec<TcpListener>, Error> {
        let interfaces = usable(&self.settings).await?;
        let network = &self.settings.network;
        let endpoint = bind_candidates(network, network.ports(&self.settings.job))?;
        self.links = open_links(&self.settings, interfaces, endpoint.sockets)?;
        self.port = endpoint.port;
        Ok(endpoint.listeners)
    }
}

/// The nodes of the plan to which this node's paths are broken by this failure of its round, or the node
/// itself where it cannot take part; none where the failure is another's.
fn broken(failure: &Failure, plan: &Plan, own: &Contact, is_member: bool) -> Vec<NodeId> {
    let id_of = |peer: &Peer| {
        let has = |seat: &&Contact| seat.addresses.iter().any(|address| address.ip() == peer.address.ip());
        plan.seats.iter().find(has).map(|seat| seat.id)
    };
    let of_own = |(from, to): (&Peer, &Peer)| (id_of(from) == Some(own.id)).then(|| id_of(to)).flatten();
    match failure {
        Failure::PathsBroken { paths, .. } => {
            paths.iter().map(|path| (&path.from, &path.to)).filter_map(of_own).collect()
        }
        Failure::NoCommonFamily { six, four } => of_own((six, four)).into_iter().collect(),
        Failure::Unready { nodes } => nodes.iter().filter_map(id_of).collect(),
        Failure::NoRdma { .. } | Failure::Differs { .. } if is_member => Vec::new(),
        _ => vec![own.id],
    }
}

/// The ranges of ranks that are in this list, which is ordered.
fn ranges(ranks: &[u32]) -> Vec<RankRange> {
    let mut ranges: Vec<RankRange> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(rank) => range.last = rank,
            _ => ranges.push(RankRange { first: rank, last: rank }),
        }
    }
    ranges
}
