//! Hosts and the processes on them, which start, are paused and are killed.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::{Config, ConnId, Endpoints, Node, NodeId, NodeInfo, Time};
use mingle_core::{Failure, Formed, HostName, JobId, Trait, Traits, World};
use rand::{Rng, RngExt};

use super::queue::Happening;
use super::{Fabric, Fact, Network};

pub const PORT: u16 = 29500;
/// How long nodes wait if a test does not say.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

/// Why a node ended without a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unformed {
    Failed(Failure),
    /// Its process was killed.
    Killed,
}

impl fmt::Display for Unformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Killed => f.write_str("killed"),
        }
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Host {
    pub node: Option<Box<Node>>,
    pub config: Config,
    /// The multicast group of its job on its island. Two jobs may have the same one.
    pub group: u32,
    /// Counts starts and ends. Datagrams and segments to an earlier life are dropped.
    pub life: u32,
    pub accepting: bool,
    /// How the node has ended.
    pub outcome: Option<Result<Formed, Unformed>>,
    pub ended: Option<Time>,
    pub started: Option<Time>,
    /// The host that the node runs on: nodes on the same one reach each other by loopback.
    pub machine: u32,
    /// Its kernel runs.
    pub powered: bool,
    /// It is not started again.
    pub replaced: bool,
    /// A firewall on its way drops the RST with which its kernel answers segments of former connections.
    pub silent: bool,
    /// Behind a NAT: where its packets come from, as others see it.
    pub translated: Option<SocketAddr>,
    /// A firewall drops incoming SYNs.
    pub filtered: bool,
    pub warnings: Vec<String>,
    /// Whether others prove their paths to it.
    pub(super) proves_paths: bool,
    pub dials: u64,
    /// Datagrams sent; a multicast counts once.
    pub sent: u64,
    pub sent_bytes: u64,
    pub received: u64,
    /// Frames written, acknowledgements alone included.
    pub frames: u64,
    pub frame_bytes: u64,
    /// It hears no multicast.
    pub deaf: bool,
    /// Endpoints of this host that lead nowhere, as of a bridge or a dead link.
    pub dead: BTreeSet<SocketAddr>,
    /// Endpoints that other hosts have, too.
    pub shared: BTreeSet<SocketAddr>,
    /// The endpoints that its seeds resolve to now.
    pub seeds: Vec<SocketAddr>,
    /// It does not start before this time.
    pub not_before: Time,
    /// The endpoints that it has lost and gained since its start.
    pub lost: Vec<SocketAddr>,
    pub gained: Vec<SocketAddr>,
    pub fabric: Fabric,
    /// Its user requires RDMA.
    pub needs_rdma: bool,
    /// While the process is stopped: what happens when it goes on.
    pub(super) paused: Option<Vec<Happening>>,
    pub(super) paused_since: Option<Time>,
    /// How many datagrams have arrived while it is stopped.
    pub(super) unread: usize,
    /// How late most of its timers fire at most, once that is drawn.
    pub(super) lateness: Option<Duration>,
    /// The open connections that this life has dialled or accepted.
    pub(super) connections: BTreeSet<u64>,
    /// Its node was in a round after its last step.
    pub(super) bound: bool,
    /// The time of the last wake in the queue.
    pub(super) wake: Option<Time>,
}

impl Host {
    /// Whether the host has this endpoint or has lost it.
    pub fn has_had(&self, endpoint: SocketAddr) -> bool {
        self.config.node.endpoints.iter().chain(&self.lost).any(|own| *own == endpoint)
    }

    /// Changes its endpoints. One must be left.
    pub(super) fn edit_endpoints(&mut self, edit: impl FnOnce(&mut Vec<SocketAddr>)) {
        let mut endpoints = self.config.node.endpoints.to_vec();
        edit(&mut endpoints);
        self.config.node.endpoints = Endpoints::new(endpoints).expect("every host has an endpoint");
    }
}

impl Host {
    /// Gives it other traits, which it may require of all.
    pub fn set_traits(&mut self, traits: impl IntoIterator<Item = Trait>, required: bool) {
        self.config.traits = Traits::from_iter(traits).into();
        self.config.node.attributes.requires_same = required;
    }
}

impl Network {
    /// Adds a host with the address 10.0.0.0 + `number`, which starts its node at `start`.
    pub fn add(&mut self, number: u32, world: u32, rank: Option<u32>, start: Time) -> usize {
        self.add_to("sim", number, PORT, world, rank, start)
    }

    /// The same for a node of any job and on any port.
    pub fn add_to(
        &mut self,
        job: &str,
        number: u32,
        port: u16,
        world: u32,
        rank: Option<u32>,
        start: Time,
    ) -> usize {
        let world = World::new(world).unwrap();
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number);
        let endpoint = SocketAddr::from((ip, port));
        let (fabric, summary, traits) = self.fabrics.next();
        let tag = job.parse::<JobId>().unwrap().tag();
        let mut node = NodeInfo::new(HostName::new(&format!("host-{number}")), endpoint.into());
        node.rank = rank.map(|rank| world.rank(rank).unwrap());
        node.attributes.fabric = summary;
        let traits = traits.into();
        let config = Config { timeout: TIMEOUT, traits, ..Config::new(NodeId([0; 16]), tag, world, node) };
        self.hosts.push(Host {
            node: None,
            config,
            group: 0,
            life: 0,
            accepting: false,
            outcome: None,
            ended: None,
            started: None,
            machine: number,
            powered: true,
            silent: false,
            replaced: false,
            translated: None,
            filtered: false,
            proves_paths: false,
            warnings: Vec::new(),
            dials: 0,
            sent: 0,
            sent_bytes: 0,
            received: 0,
            frames: 0,
            frame_bytes: 0,
            deaf: false,
            dead: BTreeSet::new(),
            shared: BTreeSet::new(),
            seeds: Vec::new(),
            not_before: Time::ZERO,
            lost: Vec::new(),
            gained: Vec::new(),
            fabric,
            needs_rdma: false,
            paused: None,
            paused_since: None,
            unread: 0,
            lateness: None,
            connections: BTreeSet::new(),
            bound: false,
            wake: None,
        });
        self.unfinished += 1;
        let host = self.hosts.len() - 1;
        self.by_address.entry(endpoint).or_default().push(host);
        self.at(start, Happening::Start(host));
        host
    }

    /// Gives a host one more address, before or after those that it has. A `dead` one leads nowhere from
    /// other hosts.
    pub fn add_address(&mut self, host: usize, ip: Ipv4Addr, preferred: bool, dead: bool) {
        let endpoint = SocketAddr::from((ip, self.hosts[host].config.node.endpoints.preferred().port()));
        self.hosts[host].edit_endpoints(|endpoints| {
            endpoints.insert(if preferred { 0 } else { endpoints.len() }, endpoint);
        });
        self.by_address.entry(endpoint).or_default().push(host);
        if dead {
            self.hosts[host].dead.insert(endpoint);
        }
    }

    /// Gives a host an address that other hosts may have, too, as where every rack has a private network of
    /// the same range. Each packet to the address reaches one of the hosts; none leaves from it.
    pub fn add_shared_address(&mut self, host: usize, ip: Ipv4Addr, preferred: bool) {
        self.add_address(host, ip, preferred, false);
        self.hosts[host].shared.insert(SocketAddr::from((ip, PORT)));
    }

    /// In each second world, hosts that are added from now on have two kinds of RDMA, or one of the two.
    pub fn mix_kinds(&mut self) {
        self.fabrics.mix_kinds();
    }

    /// Replaces the RDMA devices that were drawn for a host.
    pub fn set_fabric(&mut self, host: usize, fabric: Fabric) {
        let host = &mut self.hosts[host];
        host.fabric = fabric;
        host.config.node.attributes.fabric = fabric.summary(false);
    }

    /// The user of this host requires RDMA.
    pub fn need_rdma(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.needs_rdma = true;
        host.config.node.attributes.fabric = host.config.node.attributes.fabric.required(true);
    }

    /// Delays the start of a host to `start`.
    pub fn delay_start(&mut self, host: usize, start: Time) {
        self.hosts[host].not_before = start;
        self.at(start, Happening::Start(host));
    }

    pub fn kill_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Kill(host));
    }

    pub fn restart_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Start(host));
    }

    pub(super) fn start(&mut self, host: usize) {
        // Only a process that was killed, or whose failure is covered, is started again.
        let slot = &self.hosts[host];
        let early = self.now < slot.not_before || !slot.powered;
        let over = slot.outcome.as_ref().is_some_and(|outcome| match outcome {
            Ok(_) => true,
            Err(Unformed::Failed(failure)) => !self.restarts.covers(failure),
            Err(Unformed::Killed) => false,
        });
        if early || over || slot.replaced && slot.started.is_some() || slot.node.is_some() {
            return;
        }
        if self.has_ghost(host) {
            self.saw(Fact::GhostMet);
        }
        self.launch(host);
        self.note(host, || "start".to_owned());
        let seeds = self.hosts[host].seeds.clone();
        self.with(host, |node, now| node.handle_seeds(now, seeds));
    }

    /// Starts a node with a new ID.
    pub(super) fn launch(&mut self, host: usize) {
        let mut id = [0; 16];
        self.rng.fill_bytes(&mut id);
        let seed = self.rng.random();
        self.set_outcome(host, None);
        let slot = &mut self.hosts[host];
        slot.life += 1;
        slot.paused = None;
        slot.paused_since = None;
        slot.bound = false;
        slot.wake = None;
        slot.config.id = NodeId(id);
        slot.accepting = true;
        slot.started = Some(self.now);
        slot.node = Some(Box::new(Node::new(slot.config.clone(), seed, self.now)));
        self.history.host_of.insert(NodeId(id), host);
    }

    pub(super) fn kill(&mut self, host: usize) {
        if self.hosts[host].node.take().is_some() {
            self.note(host, || "killed".to_owned());
            self.saw(Fact::KilledMember);
            let connections = self.own_ends(host);
            self.forget_process(host);
            for (conn, end) in connections {
                self.abandon(conn, end);
            }
        }
    }

    /// A process has ended by itself: it closes its connections.
    pub(super) fn close_all(&mut self, host: usize) {
        for (conn, end) in self.own_ends(host) {
            self.close(conn, end);
        }
        self.hosts[host].accepting = false;
        self.hosts[host].life += 1;
    }

    /// The open connections of a host's process, and at which end of each it is.
    pub(super) fn own_ends(&self, host: usize) -> Vec<(u64, usize)> {
        let connections = self.hosts[host].connections.iter();
        connections.filter_map(|&conn| Some((conn, self.end_of(host, ConnId(conn))?))).collect()
    }

    /// Sets how a node has ended; nothing while it runs.
    pub(super) fn set_outcome(&mut self, host: usize, outcome: Option<Result<Formed, Unformed>>) {
        let slot = &mut self.hosts[host].outcome;
        self.unfinished += usize::from(outcome.is_none());
        self.unfinished -= usize::from(slot.is_none());
        *slot = outcome;
    }
}
