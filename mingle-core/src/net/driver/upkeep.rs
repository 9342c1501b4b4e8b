//! What a driver does every few seconds beside the protocol.

use std::collections::BTreeMap;
use std::iter;
use std::time::{Duration, Instant};

use super::Driver;
use crate::host::Interface;
use crate::net::Network;
use crate::net::clock::clock;
use crate::net::discovery::advertiser::Advertiser;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;
use crate::net::sockets::links::Links;
use crate::net::station::Station;
use crate::proto::{Node, OtherJob, Tried};
use crate::wire::Notice;

/// The look at the interfaces may be so much later than it is due, since a datagram mostly wakes the process
/// before.
const LOOK_SLACK: Duration = Duration::from_secs(2);
/// After this long, say who is here, or that multicast may not pass.
const QUIET: Duration = Duration::from_secs(15);
/// After this long it listens to the leaders of other jobs, which advertise once a second.
const LONELY: Duration = Duration::from_secs(12);
/// The most notices of jobs that are read, and the most jobs that are named.
const NOTICES: usize = 1024;
const JOBS: usize = 8;

/// When each of these is due, and the advertiser.
pub(super) struct Upkeep {
    began: Instant,
    /// None once that is said.
    quiet: Option<Instant>,
    /// Hear other jobs, once this node has waited for long.
    listeners: Vec<Station>,
    advertiser: Option<Advertiser>,
}

impl Upkeep {
    pub(super) fn new(settings: &Rendezvous) -> Self {
        let began = clock();
        Self {
            began,
            quiet: Some(began + LONELY).filter(|_| !settings.is_alone()),
            listeners: Vec::new(),
            advertiser: Advertiser::new(settings),
        }
    }

    /// The latest time at which [`Driver::advertise`] and [`Driver::keep_up`] must run.
    pub(super) fn due(&self, links: &Links) -> Instant {
        let advertiser = self.advertiser.as_ref().and_then(Advertiser::due);
        [self.quiet, advertiser].into_iter().flatten().fold(links.due(LOOK_SLACK), Instant::min)
    }
}

/// Hear the leaders of all jobs at this port of multicast, and at the usual one.
fn listeners(network: &Network) -> Vec<Station> {
    let mut ports = vec![network.discovery_port, Network::DISCOVERY_PORT];
    ports.dedup();
    let open = |discovery_port| {
        let opened = Station::of_all_jobs(&Network { discovery_port, ..network.clone() });
        opened.inspect_err(|error| tracing::debug!(%error, "listening to other jobs")).ok()
    };
    ports.into_iter().filter(|_| network.multicast).filter_map(open).collect()
}

impl Driver {
    /// Advertises the job, if the node leads and it is time.
    pub(super) fn advertise(&self, node: &Node, upkeep: &mut Upkeep) {
        let advertiser = upkeep.advertiser.as_mut();
        if let Some(notice) = advertiser.and_then(|own| own.advertise(clock(), node.advertised())) {
            self.links.advertise(self.settings.network.discovery_port, &notice);
        }
    }

    /// Does what else is due.
    pub(super) fn keep_up(&mut self, node: &mut Node, upkeep: &mut Upkeep) -> Result<(), Error> {
        if self.links.keep_up() {
            self.look_at_interfaces(node)?;
        }
        if upkeep.quiet.take_if(|at| clock() >= *at).is_none() {
            return Ok(());
        }
        if clock() < upkeep.began + QUIET {
            upkeep.quiet = Some(upkeep.began + QUIET);
            upkeep.listeners = listeners(&self.settings.network);
            return Ok(());
        }
        let jobs = self.jobs(&std::mem::take(&mut upkeep.listeners));
        let tried = match self.tried() {
            Tried::Seeds if self.peers.seeds.iter().all(Vec::is_empty) => Tried::NoSeedKnown,
            tried => tried,
        };
        node.handle_wait(self.now(), QUIET, tried, jobs, self.links.multicasts());
        Ok(())
    }

    /// The jobs that others advertise on the link.
    fn jobs(&self, listeners: &[Station]) -> Vec<OtherJob> {
        let mut jobs = BTreeMap::new();
        let own = self.settings.tag().beginning();
        // Of nodes that try the job itself is none that they look for.
        let tried = self.settings.tries.then(|| self.settings.job.tag().beginning());
        let received =
            listeners.iter().flat_map(|listener| iter::from_fn(|| listener.received()).take(NOTICES));
        for (from, _, datagram) in received {
            let Some(notice) = Notice::decode(&datagram) else { continue };
            let tag = notice.tag();
            let is_own = tag == own;
            // What comes from this host says nothing of the network, unless all nodes are on this host.
            let is_here = self.links.interfaces().iter().flat_map(Interface::ips).any(|ip| ip == from.ip());
            let says_nothing = tried == Some(tag) || is_here && (is_own || !from.ip().is_loopback());
            if !says_nothing && (jobs.len() < JOBS || jobs.contains_key(&tag)) {
                jobs.insert(tag, OtherJob { notice, address: from.ip(), is_own });
            }
        }
        jobs.into_values().collect()
    }

    /// How this node looks for others.
    pub(super) fn tried(&self) -> Tried {
        if !self.settings.network.multicast {
            return Tried::SeedsAlone;
        }
        match (self.peers.following.is_some(), self.settings.network.broadcast) {
            (false, true) => Tried::Broadcast,
            (false, false) => Tried::Multicast,
            (true, _) => Tried::Seeds,
        }
    }
}
