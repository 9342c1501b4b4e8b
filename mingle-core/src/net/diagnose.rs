//! The sockets of a rendezvous, opened to be looked at: for a program that says why a network does not carry one.
//!
//! It is the code of the rendezvous itself, so that what works here works there.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::connection::Happened;
use super::endpoint::{bind_endpoint, reset_on_close};
use super::multicast::{Air, Groups};
use super::seed_dir::SeedDir;
use super::seeds::{Seed, Sources};
use crate::error::Error;
use crate::host::Filter;
use crate::host::{self, Family, Interface};
use crate::model::{HostName, JobId, NodeId};
use crate::proto::Warning;

/// An interface, and whether a rendezvous would use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The interface, with the addresses that would be used, or all of them where it would not be.
    pub interface: Interface,
    /// Why it is not used.
    pub refused: Option<String>,
}

/// All interfaces of this network namespace: those that would be used, in order of preference, then the others.
pub fn interfaces(filters: &[Filter]) -> io::Result<Vec<Judged>> {
    let all = host::list()?;
    let chosen = host::select(&all, filters).unwrap_or_default();
    let is_chosen = |other: &Interface| chosen.iter().any(|interface| interface.index == other.index);
    let refused = all.iter().filter(|interface| !is_chosen(interface)).map(|interface| Judged {
        interface: interface.clone(),
        refused: Some(host::refusal(interface, filters)),
    });
    let used = chosen.iter().cloned().map(|interface| Judged { interface, refused: None });
    Ok(used.chain(refused).collect())
}

/// A random number for this run of a program: no two hosts that meet may have the same.
///
/// # Errors
/// [`Error::Socket`] where the operating system gives no random bytes.
pub fn run_id() -> Result<u32, Error> {
    super::driver::random().map(u32::from_be_bytes)
}

/// What this host is called.
pub fn host_name() -> HostName {
    super::driver::host_name()
}

/// Lets a connection end by a reset, which leaves nothing on the master's port.
pub fn reset(stream: &impl std::os::fd::AsFd) {
    // Where it fails the connection has ended already.
    let _ = reset_on_close(stream);
}

/// What a node is told of where it stands on the network, as for a rendezvous.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Place {
    /// The job, whose tag, groups and ports are used.
    pub job: JobId,
    /// `MASTER_PORT`, where it was given.
    pub master_port: Option<u16>,
    /// The IPv4 group, and the port of both groups and of broadcasts.
    pub group: SocketAddrV4,
    /// How far multicast goes.
    pub ttl: u8,
    /// Whether to speak by broadcast as well.
    pub broadcast: bool,
    /// Whether IPv6 comes first where a host has both.
    pub prefers_ipv6: bool,
    /// Where others may be.
    pub seeds: Vec<Seed>,
    /// A folder in which others say where they are.
    pub seed_dir: Option<PathBuf>,
}

impl Place {
    /// The place of a job that is told nothing but its group.
    pub fn new(job: JobId, group: SocketAddrV4) -> Self {
        Self {
            job,
            master_port: None,
            group,
            ttl: 1,
            broadcast: false,
            prefers_ipv6: false,
            seeds: Vec::new(),
            seed_dir: None,
        }
    }
}

/// A node's own port and the groups, as a rendezvous opens them.
#[derive(Debug)]
pub struct Station {
    port: u16,
    listeners: Vec<TcpListener>,
    air: Air,
    interfaces: Vec<Interface>,
    place: Place,
}

impl Station {
    /// Binds the port, or else the first of the job's that is free, and joins the groups on `interfaces`.
    ///
    /// # Errors
    /// [`Error::PortTaken`] and [`Error::Socket`], as of a rendezvous.
    pub fn open(interfaces: Vec<Interface>, place: &Place) -> Result<Self, Error> {
        let endpoint = bind_endpoint(place.master_port, place.job.ports(), place.ttl)?;
        let air = Air::open(endpoint.sockets, &place.job, place.group, place.broadcast, &interfaces)?;
        Ok(Self { port: endpoint.port, listeners: endpoint.listeners, air, interfaces, place: place.clone() })
    }

    /// The port, of TCP and UDP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The node's own UDP sockets, IPv4 first, and IPv6 where the kernel has it. They do not block.
    pub fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.air.own.iter().map(AsRef::as_ref)
    }

    /// The listening sockets, in the same order; they do not block.
    pub fn listeners(&self) -> &[TcpListener] {
        &self.listeners
    }

    /// The sockets that hear the groups; they do not block.
    pub fn listener(&self) -> impl Iterator<Item = &UdpSocket> {
        self.air.groups.iter().flat_map(Groups::sockets).map(AsRef::as_ref)
    }

    /// What hears broadcasts, where those are wanted. It may hear unicast to that port as well.
    pub fn broadcasts(&self) -> Option<&UdpSocket> {
        self.air.broadcast.as_ref().map(|(socket, _)| socket.as_ref())
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.air.groups.iter().flat_map(Groups::warnings)
    }

    /// Up to `limit` endpoints under which others may reach this node, the preferred one first. Where it has
    /// addresses of both families, both are among them: others may have one alone.
    pub fn endpoints(&self, limit: usize) -> Vec<SocketAddr> {
        let prefer = Family::preferred(self.place.prefers_ipv6);
        let all = host::endpoints(&self.interfaces, self.port, usize::MAX, prefer);
        let mut first: Vec<SocketAddr> = all.iter().copied().take(limit).collect();
        let is_one = |is_ipv6| first.iter().all(|at| at.is_ipv6() == is_ipv6);
        if let Some(only) = first.first().map(SocketAddr::is_ipv6).filter(|only| is_one(*only))
            && let Some(other) = all.iter().find(|at| at.is_ipv6() != only)
            && let Some(last) = first.last_mut()
        {
            *last = *other;
        }
        first
    }

    /// Whom an interface speaks to, by multicast: the group of the family that is tried on it, where it has
    /// one. That is IPv4 where it has both, unless IPv6 is preferred.
    pub fn group_of(&self, interface: &Interface) -> Option<SocketAddr> {
        let order = [self.place.prefers_ipv6, !self.place.prefers_ipv6];
        let family = order.into_iter().find(|is_ipv6| interface.voice(*is_ipv6).is_some())?;
        self.air.groups.iter().map(|groups| groups.group).find(|group| group.is_ipv6() == family)
    }

    /// Sends by one interface to a group. [`io::ErrorKind::Unsupported`] where it has no address for that.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_by(&self, interface: &Interface, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        self.air.send_by(interface, to, bytes).unwrap_or(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Sends by one interface to all of its link, where broadcasts are wanted and it has IPv4.
    pub fn broadcast_by(&self, interface: &Interface, bytes: &[u8]) -> Option<io::Result<()>> {
        let (_, to) = self.air.broadcast.as_ref()?;
        self.air.send_by(interface, *to, bytes)
    }

    /// Speaks to all, as a rendezvous: to each group by each interface, and by broadcast where that is wanted.
    /// What fails is lost, as on any network.
    pub fn speak(&self, bytes: &[u8]) {
        for interface in &self.interfaces {
            for to in self.air.all() {
                let _ = self.air.send_by(interface, to, bytes);
            }
        }
    }

    /// The interfaces that are used.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Where others may be, by seeds and folder: what to run, which tells it by the channel again and again.
    /// None where there is neither. `id` is random.
    ///
    /// # Errors
    /// [`Error::Socket`] where the folder cannot be written to.
    pub async fn follow(
        &self,
        id: [u8; 16],
        told: UnboundedSender<Vec<SocketAddr>>,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<>>, Error> {
        let Place { job, seeds, seed_dir, master_port, .. } = &self.place;
        let endpoints = self.endpoints(ENDPOINTS);
        let opened = match seed_dir {
            Some(path) => Some(SeedDir::new(path, job.tag(), NodeId(id), &endpoints).open().await?),
            None => None,
        };
        // The file goes when whoever follows does.
        let (folder, own) = opened.unzip();
        let sources = Sources::new(seeds, folder, *master_port, job);
        if sources.is_empty() {
            return Ok(None);
        }
        Ok(Some(async move {
            let _own = own;
            let (sender, mut happened) = unbounded_channel();
            let tell = async {
                while let Some(happened) = happened.recv().await {
                    if let Happened::Seeds(found) = happened
                        && told.send(found).is_err()
                    {
                        return;
                    }
                }
            };
            tokio::join!(sources.follow(sender), tell);
        }))
    }
}

/// So many are written to a seed folder.
const ENDPOINTS: usize = 6;
