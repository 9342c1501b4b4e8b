//! The driver: real sockets, a real clock and real randomness under the state machine.
//!
//! This is the only module with sockets. [`Rendezvous`] is the way in.

mod connection;
mod connections;
pub mod diagnose;
mod directory;
mod driver;
mod endpoint;
mod links;
mod multicast;
pub mod observe;
mod running;
mod seed_dir;
mod seeds;
mod watched;

#[cfg(test)]
mod namespace_tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::error::Error;
use crate::model::{Digest, HostName, JobId, Lineage, Metadata, Rank, Roster, Secret, Slots, World};
use crate::proto::{self, Event, Formed, RankBy};
use crate::rdma::{Summary, Verdict};

pub use crate::host::{Filter, InvalidFilter};
pub use crate::host::{Interface, Kind};
use crate::wire::Attributes;
pub use running::RunningWorld;
pub use seeds::{InvalidSeed, Seed};

/// The UDP port of every job's multicast group, unless told otherwise.
pub const DISCOVERY_PORT: u16 = 29499;

/// The way into a world; see [`Rendezvous::builder`].
#[derive(Debug)]
pub struct Rendezvous(());

impl Rendezvous {
    /// Starts the description of a rendezvous of `world` nodes under the name `job`.
    pub fn builder(job: JobId, world: World) -> Builder {
        Builder {
            job,
            world,
            rank: None,
            lineage: Lineage::default(),
            interfaces: Vec::new(),
            loopback: None,
            master_port: None,
            rank_by: RankBy::Address,
            discovery_port: DISCOVERY_PORT,
            group: None,
            seeds: Vec::new(),
            seed_dir: None,
            broadcast: false,
            private: false,
            prefers_ipv6: false,
            ttl: 1,
            timeout: Some(proto::TIMEOUT),
            secret: None,
            host: None,
            attributes: Attributes::default(),
            keep_listener: false,
            stays: false,
            events: None,
        }
    }
}

/// What a node brings to its rendezvous. Every setting has a default; [`Builder::join`] starts it.
#[derive(Debug)]
#[must_use = "nothing happens before `join` is awaited"]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Builder {
    job: JobId,
    world: World,
    rank: Option<Rank>,
    lineage: Lineage,
    interfaces: Vec<Filter>,
    loopback: Option<Ipv4Addr>,
    master_port: Option<u16>,
    rank_by: RankBy,
    discovery_port: u16,
    group: Option<Ipv4Addr>,
    seeds: Vec<Seed>,
    seed_dir: Option<PathBuf>,
    broadcast: bool,
    private: bool,
    prefers_ipv6: bool,
    ttl: u8,
    timeout: Option<Duration>,
    secret: Option<Secret>,
    host: Option<HostName>,
    attributes: Attributes,
    keep_listener: bool,
    stays: bool,
    events: Option<UnboundedSender<Event>>,
}

impl Builder {
    /// This node's rank. Without it (the default) the world assigns one.
    pub fn rank(mut self, rank: Option<Rank>) -> Self {
        self.rank = rank;
        self
    }

    /// Which interfaces may be used: those that any of these admits and none of them excludes, in their order of
    /// preference. None (the default) means every interface that suits.
    pub fn interfaces(mut self, filters: Vec<Filter>) -> Self {
        self.interfaces = filters;
        self
    }

    /// Takes part by this address of the loopback interface and by nothing else, for worlds within one process: each
    /// node has an address in 127.0.0.0/8, all of which the kernel takes for its own. Default: none, and the
    /// interfaces decide.
    pub fn loopback(mut self, address: Option<Ipv4Addr>) -> Self {
        self.loopback = address;
        self
    }

    /// The port of this node, which is MASTER_PORT where it becomes rank 0. Without it (the default)
    /// the first free port of [`JobId::ports`].
    pub fn master_port(mut self, port: Option<u16>) -> Self {
        self.master_port = port;
        self
    }

    /// How nodes without a given rank are ordered; must be the same on all. Default: by address.
    pub fn rank_by(mut self, order: RankBy) -> Self {
        self.rank_by = order;
        self
    }

    /// The UDP port of the group; must be the same on all. Default: [`DISCOVERY_PORT`].
    pub fn discovery_port(mut self, port: u16) -> Self {
        self.discovery_port = port;
        self
    }

    /// The group, where the network passes only certain ones; must be the same on all. Default:
    /// [`JobId::group_v4`].
    pub fn group(mut self, group: Option<Ipv4Addr>) -> Self {
        self.group = group;
        self
    }

    /// Where others may be, beside who hears a multicast: for networks that pass none. One node that is
    /// reachable by any of the nodes' seeds is enough. Default: none.
    pub fn seeds(mut self, seeds: Vec<Seed>) -> Self {
        self.seeds = seeds;
        self
    }

    /// A folder that all nodes share, in which each leaves a file with its addresses for the others, and
    /// removes it at the end. Default: none.
    pub fn seed_dir(mut self, folder: Option<PathBuf>) -> Self {
        self.seed_dir = folder;
        self
    }

    /// Whether to speak by IPv4 broadcast as well, for switches that drop groups which nobody has registered.
    /// It does not leave the link. Default: no.
    pub fn broadcast(mut self, wanted: bool) -> Self {
        self.broadcast = wanted;
        self
    }

    /// Whether the job is kept out of the list of all jobs on the link. Default: no, whoever gathers says there once a
    /// second what the job is called and how many are here, or of a job with a secret that there is one.
    pub fn private(mut self, wanted: bool) -> Self {
        self.private = wanted;
        self
    }

    /// Whether a world of nodes that all have both families is one of IPv6; must be the same on all. Default:
    /// no, of IPv4.
    pub fn prefer_ipv6(mut self, preferred: bool) -> Self {
        self.prefers_ipv6 = preferred;
        self
    }

    /// How many routers a multicast datagram may pass, plus one (IP TTL, 1 to 255). Default: 1, the
    /// link itself.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the world; nothing waits for ever. Default: ten minutes.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// The secret of the job; must be the same on all. Without one (the default) whoever knows the job's
    /// name can take part.
    pub fn secret(mut self, secret: Option<Secret>) -> Self {
        self.secret = secret;
        self
    }

    /// What this host is called in messages and in the roster. Default: the system's host name.
    pub fn host(mut self, host: HostName) -> Self {
        self.host = Some(host);
        self
    }

    /// How many workers this node will run. Default: 1.
    pub fn slots(mut self, slots: u32) -> Self {
        self.attributes.slots = slots;
        self
    }

    /// What the others' launchers shall know of this node: it arrives in every roster. Default: nothing.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.attributes.metadata = metadata;
        self
    }

    /// What RDMA this host has, so that it is compared with the others': see [`Summary::new`]. Default:
    /// nothing is known, and nothing is compared.
    pub fn fabric(mut self, summary: Summary) -> Self {
        self.attributes.fabric = summary;
        self
    }

    /// A hash of what must be the same on all nodes beside the world's size; a rank whose hash differs from
    /// most others' is named in the verdict. For variables: [`Setting::hash`](crate::env::Setting::hash).
    /// Default: 0.
    pub fn settings(mut self, hash: u64) -> Self {
        self.attributes.settings = hash;
        self
    }

    /// Whether the assignment shall carry the whole roster. Default: no, which saves its transfer.
    pub fn roster(mut self, wanted: bool) -> Self {
        self.attributes.wants_roster = wanted;
        self
    }

    /// Whether rank 0 hands its listening socket over in [`Assignment::listener`], so that the port
    /// is never free between the rendezvous and the job. Default: no; it is closed.
    ///
    /// Nodes that have finished before rank 0 may have connected already: they are in its queue. So
    /// may be a late dial of the rendezvous, which ends without a word or after a token.
    pub fn keep_listener(mut self, keep: bool) -> Self {
        self.keep_listener = keep;
        self
    }

    /// Whether this node stays with its world, as [`Assignment::running`], so that all start again where one
    /// fails. It costs the transfer of the roster. Default: no. Should be the same on all nodes.
    pub fn stay(mut self, wanted: bool) -> Self {
        self.stays = wanted;
        self
    }

    /// Where to send what happens on the way. A receiver that is gone is no error.
    pub fn events(mut self, events: UnboundedSender<Event>) -> Self {
        self.events = Some(events);
        self
    }

    /// Takes part in the rendezvous until the world has formed.
    ///
    /// Cancel-safe: dropping the future closes all sockets, which tells the other nodes at once that
    /// this one is gone.
    ///
    /// # Errors
    /// See [`Error`]. A failed rendezvous leaves nothing behind and may be tried again.
    pub async fn join(self) -> Result<Assignment, Error> {
        driver::join(self).await
    }
}

/// What a node knows once its world has formed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// This node's rank.
    pub rank: Rank,
    /// The number of nodes.
    pub world: World,
    /// MASTER_ADDR and MASTER_PORT, to which this node has had a connection.
    pub master: SocketAddr,
    /// This node's own address on the way to the master.
    pub local: IpAddr,
    /// The interface that holds [`Assignment::local`].
    pub interface: Option<String>,
    /// The digest of the roster, equal on all nodes of this world.
    pub digest: Digest,
    /// All members, where [`Builder::roster`] asked for them.
    pub roster: Option<Roster>,
    /// What the ranks use to reach each other, from what [`Builder::fabric`] said of each.
    pub verdict: Verdict,
    /// How many workers there are, here and in all, from what [`Builder::slots`] said of each.
    pub slots: Slots,
    /// The listening socket on the master's port, where [`Builder::keep_listener`] asked for it and
    /// this node is rank 0. It does not block.
    pub listener: Option<TcpListener>,
    /// This node's part in the running world, where [`Builder::stay`] asked for it.
    pub running: Option<RunningWorld>,
}

impl Assignment {
    /// The same without what belongs to this process: what [`env`](crate::env) makes variables of.
    pub fn formed(&self) -> Formed {
        Formed {
            rank: self.rank,
            world: self.world,
            master: self.master,
            local: self.local,
            digest: self.digest,
            roster: self.roster.clone(),
            verdict: self.verdict.clone(),
            slots: self.slots,
        }
    }
}
