//! The sockets of a rendezvous, opened to be looked at: for a program that says why a network does not carry one.
//!
//! It is the code of the rendezvous itself, so that what works here works there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;

use ipnet::IpNet;
use socket2::SockRef;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::connection::Happened;
use super::endpoint::{Endpoint, bind_endpoint, is_without_ipv6, reset_on_close};
use super::filter::Filter;
use super::interface::{self, Family, Interface};
use super::multicast::{Groups, broadcast_receiver, send_by};
use super::seed_dir::SeedDir;
use super::seeds::{Seed, Sources};
use crate::error::Error;
use crate::id::{HostName, JobId, NodeId};

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
    let all = interface::list()?;
    let chosen = interface::select(&all, filters).unwrap_or_default();
    let is_chosen = |other: &Interface| chosen.iter().any(|interface| interface.index == other.index);
    let refused = all.iter().filter(|interface| !is_chosen(interface)).map(|interface| Judged {
        interface: interface.clone(),
        refused: Some(interface::refusal(interface, filters)),
    });
    let used = chosen.iter().cloned().map(|interface| Judged { interface, refused: None });
    Ok(used.chain(refused).collect())
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
    endpoint: Endpoint,
    groups: Vec<(SocketAddr, Groups)>,
    /// What hears broadcasts, and their port.
    broadcasts: Option<(UdpSocket, u16)>,
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
        let v4 = SocketAddr::V4(place.group);
        let mut groups = vec![(v4, Groups::join(v4, speaking(&interfaces, false))?)];
        if endpoint.sockets.len() > 1 {
            let v6 = SocketAddr::from((place.job.group_v6(), place.group.port()));
            match Groups::join(v6, speaking(&interfaces, true)) {
                Ok(joined) => groups.push((v6, joined)),
                Err(Error::Socket { source, .. }) if is_without_ipv6(&source) => {}
                Err(error) => return Err(error),
            }
        }
        let mut broadcasts = None;
        if place.broadcast {
            let failed = |source| Error::Socket { what: "cannot send broadcasts".to_owned(), source };
            SockRef::from(&endpoint.sockets[0]).set_broadcast(true).map_err(failed)?;
            broadcasts = Some((broadcast_receiver(place.group.port())?, place.group.port()));
        }
        Ok(Self { endpoint, groups, broadcasts, interfaces, place: place.clone() })
    }

    /// The port, of TCP and UDP.
    pub fn port(&self) -> u16 {
        self.endpoint.port
    }

    /// The node's own UDP sockets, IPv4 first, and IPv6 where the kernel has it. They do not block.
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.endpoint.sockets
    }

    /// The listening sockets, in the same order; they do not block.
    pub fn listeners(&self) -> &[TcpListener] {
        &self.endpoint.listeners
    }

    /// The sockets that hear the groups; they do not block.
    pub fn ears(&self) -> impl Iterator<Item = &UdpSocket> {
        self.groups.iter().flat_map(|(_, groups)| groups.sockets())
    }

    /// What hears broadcasts, where those are wanted. It may hear unicast to that port as well.
    pub fn broadcasts(&self) -> Option<&UdpSocket> {
        self.broadcasts.as_ref().map(|(socket, _)| socket)
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().flat_map(|(_, groups)| groups.warnings())
    }

    /// Up to `limit` endpoints under which others may reach this node, the preferred one first. Where it has
    /// addresses of both families, both are among them: others may have one alone.
    pub fn endpoints(&self, limit: usize) -> Vec<SocketAddr> {
        let prefer = if self.place.prefers_ipv6 { Family::V6 } else { Family::V4 };
        let all = interface::endpoints(&self.interfaces, self.endpoint.port, usize::MAX, prefer);
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
        let has = |is_ipv6: &bool| speaks(interface, *is_ipv6);
        let family = order.into_iter().find(has)?;
        self.groups.iter().map(|(group, _)| *group).find(|group| group.is_ipv6() == family)
    }

    /// Sends by one interface to a group. [`io::ErrorKind::Unsupported`] where it has no address for that.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_by(&self, interface: &Interface, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let source = addresses(interface, to.is_ipv6()).next().ok_or(io::ErrorKind::Unsupported)?;
        let socket =
            self.endpoint.sockets.get(usize::from(to.is_ipv6())).ok_or(io::ErrorKind::Unsupported)?;
        send_by(socket, to, interface.index, source, bytes)
    }

    /// Sends by one interface to all of its link, where broadcasts are wanted and it has IPv4.
    pub fn broadcast_by(&self, interface: &Interface, bytes: &[u8]) -> Option<io::Result<()>> {
        let (_, port) = self.broadcasts.as_ref()?;
        addresses(interface, false).next()?;
        Some(self.send_by(interface, SocketAddr::from((Ipv4Addr::BROADCAST, *port)), bytes))
    }

    /// Speaks to all, as a rendezvous: to each group by each interface, and by broadcast where that is wanted.
    /// What fails is lost, as on any network.
    pub fn speak(&self, bytes: &[u8]) {
        for interface in &self.interfaces {
            for (group, _) in &self.groups {
                if speaks(interface, group.is_ipv6()) {
                    let _ = self.send_by(interface, *group, bytes);
                }
            }
            let _ = self.broadcast_by(interface, bytes);
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
    pub fn follow(
        &self,
        id: [u8; 16],
        told: UnboundedSender<Vec<SocketAddr>>,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<>>, Error> {
        let Place { job, seeds, seed_dir, master_port, .. } = &self.place;
        let folder = seed_dir.as_ref().map(|folder| {
            let own = self.endpoints(ENDPOINTS);
            SeedDir::open(folder, job.tag(), NodeId(id), &own).map_err(|source| Error::Socket {
                what: format!("cannot write to the seed folder {}", folder.display()),
                source,
            })
        });
        // The file goes when whoever follows does.
        let (folder, own) = folder.transpose()?.unzip();
        let sources =
            Sources { seeds: seeds.clone(), folder, ports: Sources::ports(*master_port, job.ports()) };
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

fn speaking(interfaces: &[Interface], is_ipv6: bool) -> impl Iterator<Item = &Interface> {
    interfaces.iter().filter(move |interface| speaks(interface, is_ipv6))
}

fn addresses(interface: &Interface, is_ipv6: bool) -> impl Iterator<Item = IpAddr> {
    interface.addresses.iter().map(IpNet::addr).filter(move |address| address.is_ipv6() == is_ipv6)
}

/// As `links::speaks`: the kernel delivers no IPv6 multicast on the loopback interface.
fn speaks(interface: &Interface, is_ipv6: bool) -> bool {
    addresses(interface, is_ipv6).any(|address| !(is_ipv6 && address.is_loopback()))
}
