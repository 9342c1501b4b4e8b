//! The sockets of a rendezvous, opened to be tried: for `mingle doctor`, which says why a network does not
//! carry one.
//!
//! This is the code of the rendezvous itself, so that what works here works there.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use tokio::sync::mpsc::unbounded_channel;

use super::clock::random;
use super::discovery::seed_dir::SeedDir;
use super::discovery::sources::Sources;
use super::network::Network;
use super::sockets::connection::TaskEvent;
use super::sockets::endpoint::{bind_endpoint, reset_on_close};
use super::sockets::multicast::{DatagramSockets, Groups};
use crate::host::{self, Interface};
use crate::model::{JobId, Link, NodeId};
use crate::net::error::Error;
use crate::proto::Warning;

/// How many endpoints are written to a seed folder.
const ENDPOINTS: usize = 6;

/// An interface, and whether a rendezvous would use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The interface, with the addresses that would be used, or with all addresses if it would not be used.
    pub interface: Interface,
    /// Why it is not used; none if it is used.
    pub refused: Option<String>,
    /// Whether it is not used because it has no multicast, and would be used with seeds.
    pub needs_seeds: bool,
}

/// All interfaces of this network namespace: those that would be used, in order of preference, then the
/// others.
///
/// # Errors
/// Those of getifaddrs(3).
pub fn interfaces(network: &Network) -> io::Result<Vec<Judged>> {
    let filters = &network.interfaces;
    let all = host::list()?;
    let chosen = network.select(&all).unwrap_or_default();
    let is_chosen = |other: &Interface| chosen.iter().any(|interface| interface.index == other.index);
    let lacking = host::without_multicast(&all, filters);
    let refused = all.iter().filter(|interface| !is_chosen(interface)).map(|interface| Judged {
        interface: interface.clone(),
        refused: Some(host::refusal(interface, filters)),
        needs_seeds: lacking.contains(&interface.name.as_str()),
    });
    let used =
        chosen.iter().cloned().map(|interface| Judged { interface, refused: None, needs_seeds: false });
    Ok(used.chain(refused).collect())
}

/// A random number that distinguishes this run from those on other hosts.
///
/// # Errors
/// [`Error::Socket`] if the operating system gives no random bytes.
pub fn run_id() -> Result<u32, Error> {
    random().map(u32::from_be_bytes)
}

/// A random ID for an observer, as a node draws its own.
///
/// # Errors
/// [`Error::Socket`] if the operating system gives no random bytes.
pub fn random_id() -> Result<NodeId, Error> {
    random().map(NodeId)
}

/// Makes a connection end by a reset when it is closed, which leaves no TIME_WAIT on the master's port.
pub fn reset(stream: &impl AsFd) {
    // An error means that the connection has ended already.
    let _ = reset_on_close(stream);
}

/// A node's own port and the groups of a job, as a rendezvous opens them.
#[derive(Debug)]
pub struct Station {
    port: u16,
    listeners: Vec<TcpListener>,
    sockets: DatagramSockets,
    interfaces: Vec<Interface>,
    job: JobId,
    network: Network,
}

impl Station {
    /// Binds the given port, or else the first of the job's ports that is free, and joins the groups on
    /// `interfaces`.
    ///
    /// # Errors
    /// [`Error::PortTaken`] and [`Error::Socket`], as for a rendezvous.
    pub fn open(interfaces: Vec<Interface>, job: &JobId, network: &Network) -> Result<Self, Error> {
        let endpoint = bind_endpoint(network, job)?;
        let sockets = DatagramSockets::open(
            endpoint.sockets,
            network.joined_groups(job),
            network.broadcasts(),
            &interfaces,
        )?;
        Ok(Self {
            port: endpoint.port,
            listeners: endpoint.listeners,
            sockets,
            interfaces,
            job: job.clone(),
            network: network.clone(),
        })
    }

    /// The port, of TCP and UDP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The node's own UDP sockets, IPv4 first, and IPv6 if the kernel has it. They do not block.
    pub fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.own.iter().map(AsRef::as_ref)
    }

    /// The listening sockets, in the same order. They do not block.
    pub fn listeners(&self) -> &[TcpListener] {
        &self.listeners
    }

    /// The sockets that receive the groups. They do not block.
    pub fn group_sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.groups.iter().flat_map(Groups::sockets).map(AsRef::as_ref)
    }

    /// The socket that receives broadcasts, if those are wanted. It may receive unicast to that port as well.
    pub fn broadcast_socket(&self) -> Option<&UdpSocket> {
        self.sockets.broadcast.as_ref().map(|(socket, _)| socket.as_ref())
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.sockets.groups.iter().flat_map(Groups::warnings)
    }

    /// Up to `limit` endpoints at which others may reach this node, the preferred one first. If it has
    /// addresses of both families, both are among them, since another host may have only one.
    pub fn endpoints(&self, limit: usize) -> Vec<SocketAddr> {
        let all = host::endpoints(&self.interfaces, self.port, usize::MAX, self.network.prefers_ipv6);
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

    /// The address that a job uses where this node is reached at `ip`, as it is in a Join.
    pub fn link(&self, ip: IpAddr) -> Link {
        host::link_of(&self.interfaces, ip)
    }

    /// The group to try on an interface: that of IPv4 if the interface has both families, unless IPv6 is
    /// preferred. None if it can send to neither.
    pub fn group_of(&self, interface: &Interface) -> Option<SocketAddr> {
        let order = [self.network.prefers_ipv6, !self.network.prefers_ipv6];
        let family = order.into_iter().find(|is_ipv6| interface.source(*is_ipv6).is_some())?;
        self.sockets.groups.iter().map(|groups| groups.group).find(|group| group.is_ipv6() == family)
    }

    /// Sends by one interface to a group.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the interface has no address of that family; else the kernel's.
    pub fn send_by(&self, interface: &Interface, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        self.sockets.send_by(interface, to, bytes).unwrap_or(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Sends a broadcast by one interface. None unless broadcasts are wanted and the interface has IPv4.
    pub fn broadcast_by(&self, interface: &Interface, bytes: &[u8]) -> Option<io::Result<()>> {
        let (_, to) = self.sockets.broadcast.as_ref()?;
        self.sockets.send_by(interface, *to, bytes)
    }

    /// Sends to all nodes as a rendezvous does: to each group by each interface, and by broadcast if that is
    /// wanted. A datagram that cannot be sent is lost, as on any network.
    pub fn send_to_all(&self, bytes: &[u8]) {
        for interface in &self.interfaces {
            for to in self.sockets.all() {
                let _ = self.sockets.send_by(interface, to, bytes);
            }
        }
    }

    /// The interfaces that are used.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Follows seeds and shared folder: the returned future passes all known addresses to `found` whenever
    /// they change, until `found` returns false. None if there are neither seeds nor a folder. `id` is
    /// random, and names this host's file.
    ///
    /// # Errors
    /// [`Error::Socket`] if the folder cannot be written to.
    pub async fn follow<F>(
        &self,
        id: [u8; 16],
        mut found: F,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<F>>, Error>
    where
        F: FnMut(Vec<SocketAddr>) -> bool + Send,
    {
        let endpoints = self.endpoints(ENDPOINTS);
        let opened = match &self.network.seed_dir {
            Some(path) => Some(SeedDir::new(path, self.job.tag(), NodeId(id), &endpoints).open().await?),
            None => None,
        };
        let (folder, own_file) = opened.unzip();
        let sources = Sources::new(&self.network, &self.job, folder);
        if sources.is_empty() {
            return Ok(None);
        }
        Ok(Some(async move {
            // Removed with this future.
            let _own_file = own_file;
            let (sender, mut events) = unbounded_channel();
            let pass_on = async {
                while let Some(event) = events.recv().await {
                    if let TaskEvent::Seeds(seeds) = event
                        && !found(seeds)
                    {
                        return;
                    }
                }
            };
            tokio::select! {
                () = pass_on => {}
                // Without names and a folder this ends, and `pass_on` after the last address.
                () = async { sources.follow(sender).await; pending().await } => {}
            }
        }))
    }
}
