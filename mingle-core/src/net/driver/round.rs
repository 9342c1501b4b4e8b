//! The way of a node that stays to its next world: it waits for a plan, and proves its paths with the nodes
//! of the plan.
//!
//! The nodes meet on the sessions that are there: nobody searches.

use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::interfaces::{own_endpoints, usable};
use super::running::RunningWorld;
use super::{Driver, Met, connections, open_links, sessions};
use crate::model::{HostName, Member, NodeId, Peer, Rank};
use crate::net::assignment::Assignment;
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::sockets::endpoint::{bind_candidates, listen_again};
use crate::net::sockets::open_files::OpenFiles;
use crate::net::worlds::KEY;
use crate::proto::{Change, Event, Failure, Formed, Heard, Progress, RankRange, Report, Warning};
use crate::wire::world::{Phase, Reign};

/// A node that waits for a seat and hears no leader for so long looks for others.
const LEADERLESS: Duration = Duration::from_secs(10);

/// How long a round keeps a node from ending at its timeout.
const BOUND: Duration = Duration::from_secs(30);
/// How long a node whose time is up stays until the others know.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long nothing is said of the nodes that are not back: their commands stop.
pub(super) const QUIET: Duration = Duration::from_secs(2);

impl RunningWorld {
    /// Waits until the next world has formed.
    pub(super) async fn meet(mut self) -> Result<Met, Error> {
        let mut said: Option<(u32, Vec<u32>)> = None;
        let mut leaderless: Option<Instant> = None;
        while !self.is_lost || self.world.has_ended() {
            self.advance().await;
            if let Some(formed) = self.formed.take() {
                self.driver.connections.close_all(formed.rank == Rank(0)).await;
                let last = std::mem::take(&mut self.members);
                self.enter(&formed);
                // The others learn of the world before this node's command starts.
                self.carry_out();
                tokio::task::yield_now().await;
                return Ok(Met::World(Box::new(self.assignment(formed, &last))));
            }
            while let Some(change) = self.changes.pop_front() {
                if let Change::Cause(over) = change {
                    self.driver.settings.notify(Event::FirstCause(over));
                }
            }
            if self.world.has_ended() {
                return Err(Error::Failed(Failure::JobFinished));
            }
            let now = clock();
            // A member that has lost the leader names itself to a node that waits, and may know nobody
            // either.
            let has_met_leader = self.world.reign().epoch.origin != 0;
            let leader = self.world.leader().filter(|_| has_met_leader);
            let has_leader = leader.is_some_and(|leader| self.world.is_there(leader.id));
            if has_leader {
                leaderless = None;
                let is_news = self.world.is_guest() && !std::mem::replace(&mut self.was_guest, true);
                if is_news {
                    // When it gets a seat, the others may have forgotten the restarts that it has counted.
                    self.driver.settings.attributes.metadata.remove(KEY);
                    self.follow_addresses();
                }
                if is_news && self.rank.is_some() && !self.world.leads() {
                    // Another node has its seat.
                    self.driver.warn(Warning::AlreadyRunning { from: self.leader().address });
                }
            } else if self.world.is_guest() {
                // Where its leader is silent, a spare waits as long as members do.
                let gone_after = self.driver.settings.gone_after;
                let patience = if self.was_guest { gone_after.max(LEADERLESS) } else { LEADERLESS };
                let since = *leaderless.get_or_insert(now);
                self.is_lost |= now.duration_since(since) >= patience;
            }
            if self.is_lost {
                continue;
            }
            self.say_progress(&mut said);
            // A node that waits for a seat, and has met the leader, waits as long as it has one.
            if let Some(failure) = self.refused().or_else(|| self.overdue().filter(|_| !self.was_guest)) {
                // To the others this node has left, and is not gone.
                let _ = tokio::time::timeout(FAREWELL, self.leave()).await;
                return Err(Error::Failed(failure));
            }
            self.wait().await;
        }
        self.look_for_others()
    }

    /// Why this node gets no seat in the world in which it waits for one.
    fn refused(&self) -> Option<Failure> {
        let (ours, theirs) = (self.driver.settings.world, self.world.other_size()?);
        Some(Failure::WorldDiffers { ours, theirs, leader: self.leader() })
    }

    /// Why no world has formed in time, once the time is up.
    fn overdue(&self) -> Option<Failure> {
        let is_in_round = self.world.is_in_round();
        let is_late = self.world.round_began().is_some_and(|began| self.driver.now() >= began + BOUND);
        let is_bound = is_in_round && !is_late;
        let timeout = self.driver.settings.timeout.filter(|_| !is_bound)?;
        if self.driver.began.elapsed() < timeout {
            return None;
        }
        if is_in_round {
            return Some(Failure::OutcomeUnknown { leader: self.leader() });
        }
        let trouble = self.world.reign().trouble.clone().and_then(|refusal| self.world.failure(refusal));
        trouble.or_else(|| Some(Failure::Deadline(Box::new(self.deadline_report()))))
    }

    fn deadline_report(&self) -> Report {
        let Reign { here, absent, .. } = self.world.reign();
        let are_silent = *here <= 1;
        let heard = |member: &Member| {
            let rank = member.rank.get();
            let is_named = self.rank != Some(member.rank) && (are_silent || !absent.contains(&rank));
            let (host, address) = (member.host.clone(), Some(member.address));
            is_named.then_some(Heard { host, address, rank: Some(rank) })
        };
        Report {
            joined: *here,
            heard: self.members.iter().filter_map(heard).take(Report::NAMES).collect(),
            are_silent,
            missing: RankRange::runs(absent.iter().copied()),
            ..Report::new(self.driver.settings.world, self.driver.settings.rank)
        }
    }

    fn leader(&self) -> Peer {
        let address = self.world.reign().leader.addresses.first().copied();
        let address = address.unwrap_or(self.driver.endpoints.preferred());
        let member = self.members.iter().find(|member| member.address.ip() == address.ip());
        let own = self.world.leads().then(crate::host::host_name);
        let host = member.map(|member| member.host.clone()).or(own);
        Peer { host: host.unwrap_or_else(|| HostName::new(&address.ip().to_string())), address }
    }

    /// Reports how many nodes are ready for the next world, when that has changed.
    fn say_progress(&mut self, said: &mut Option<(u32, Vec<u32>)>) {
        let Reign { here, absent, phase, .. } = self.world.reign();
        let is_over = matches!(phase, Phase::Over(_));
        self.over_since = self.over_since.filter(|_| is_over).or_else(|| is_over.then(clock));
        if *here == 0 || self.over_since.is_none_or(|since| since.elapsed() < QUIET) {
            return;
        }
        let new = Some((*here, absent.clone()));
        if *said != new {
            let progress = Progress {
                joined: *here,
                world: self.driver.settings.world,
                newest: Vec::new(),
                missing: RankRange::runs(absent.iter().copied()),
                leader: self.leader(),
            };
            *said = new;
            self.driver.settings.notify(Event::Progress(progress));
        }
    }

    fn assignment(mut self, formed: Formed, last: &[Member]) -> Assignment {
        let seated: BTreeSet<NodeId> = self.members.iter().map(|member| member.id).collect();
        let left_out = last.iter().filter(|member| !seated.contains(&member.id));
        let without = left_out.map(|member| (member.rank, member.peer())).collect();
        let assignment = self.driver.assignment(formed);
        Assignment { without, running: Some(self), ..assignment }
    }

    /// Nobody is left: as at the start.
    fn look_for_others(self) -> Result<Met, Error> {
        let mut driver = *self.driver;
        if self.was_guest {
            // It has waited for as long as the job has run.
            (driver.began, driver.was_guest) = (clock(), true);
        }
        driver.hang_up_all();
        // The others learn at once that the node with the former ID is gone.
        driver.sessions = sessions(&mut driver.settings)?;
        driver.renew()?;
        Ok(Met::Nobody(Box::new(driver)))
    }
}

impl Driver {
    /// Closes every connection, and goes on accepting.
    pub(super) fn hang_up_all(&mut self) {
        self.connections.hang_up_all();
        // The task that did it has ended with the connections.
        self.keep_seed_file();
    }

    /// Listens on this node's port, or on another if it is taken; and returns whether it does. A port that is
    /// given may be taken for a while, unless this node `must` listen now.
    pub(super) async fn listen(&mut self, must: bool) -> Result<bool, Error> {
        // Strangers may hold as many files as the usual limit leaves.
        self.open_files.get_or_insert_with(OpenFiles::raise);
        let own = match (listen_again(&self.links.own), self.settings.network.master_port) {
            (Ok(listeners), _) => listeners,
            (Err(_), None) => self.listen_elsewhere().await?,
            (Err(error), _) if error.kind() == io::ErrorKind::AddrInUse && !must => return Ok(false),
            (Err(source), Some(port)) => return Err(Error::PortTaken { port, source }),
        };
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
