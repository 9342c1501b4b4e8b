//! The sockets of a rendezvous without one: for `mingle doctor`, which says why a network does not carry a
//! rendezvous, and for `mingle watch`.
//!
//! This is the code of the rendezvous itself, so that what works here works there.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use super::discovery::advertiser;
use super::network::Network;
use super::sockets::endpoint::{Endpoint, bind_endpoint, bind_observer, reset_on_close};
use super::sockets::links::{Cast, Links};
use crate::host::{self, Interface};
use crate::model::JobId;
use crate::net::error::Error;
use crate::proto::Warning;

/// An interface, and whether a rendezvous would use the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The interface, with the addresses that a rendezvous would use, or with all addresses if it would not
    /// use the interface.
    pub interface: Interface,
    /// Why the interface is not used; none if it is used.
    pub refused: Option<String>,
    /// Whether the interface lacks only multicast, so that a rendezvous with seeds would use it.
    pub needs_seeds: bool,
}

/// All interfaces of this network namespace: first the interfaces that a rendezvous would use, in order of
/// preference, then all other interfaces.
///
/// # Errors
/// The error of getifaddrs(3).
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

/// Makes a connection end by a reset when it is closed, which leaves no TIME_WAIT on the master's port.
pub fn reset(stream: &impl AsFd) {
    // An error means that the connection has ended already.
    let _ = reset_on_close(stream);
}

/// The sockets of a node as a rendezvous opens them, or the datagram sockets of an observer, whose own port
/// is not a port of a job. A station notices new interfaces and addresses within 2 seconds.
#[derive(Debug)]
pub struct Station {
    network: Network,
    /// Whether it notices new interfaces and addresses.
    follows: bool,
    links: Links,
    port: u16,
    /// Hold the port.
    _listeners: Vec<TcpListener>,
}

impl Station {
    /// Binds the given port, or else the first free port of the job, and joins the groups on `interfaces`.
    ///
    /// # Errors
    /// [`Error::PortTaken`] and [`Error::Socket`], as for a rendezvous.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub fn of_node(interfaces: Vec<Interface>, job: &JobId, network: &Network) -> Result<Self, Error> {
        let Endpoint { listeners, sockets, port } = bind_endpoint(network, job)?;
        let links = Links::open(network.joined_groups(job), network, false, interfaces, sockets)?;
        Ok(Self { network: network.clone(), follows: true, links, port, _listeners: listeners })
    }

    /// Listens to a job's groups, and to broadcasts if [`Network::broadcast`] is set.
    ///
    /// # Errors
    /// [`Error::NoInterface`] and [`Error::Socket`], as for a rendezvous.
    ///
    /// # Panics
    /// As for [`Station::of_node`].
    pub fn of_observer(job: &JobId, network: &Network) -> Result<Self, Error> {
        Self::observe(network.groups(job), network.clone(), network.select_interfaces()?)
    }

    /// Listens to a job's groups on the link of this interface alone, and sends there in both families, if
    /// possible from the link-local address of IPv6: for `mingle doctor`, which tells the links of a host
    /// apart. Uses the addresses that the interface has now.
    ///
    /// # Errors
    /// [`Error::NoInterface`] if the interface is not there, or has no link or no address. [`Error::Socket`],
    /// as for a rendezvous, and where the kernel, before Linux 5.7, lets only root bind a socket to an
    /// interface.
    ///
    /// # Panics
    /// As for [`Station::of_node`].
    pub fn of_port(job: &JobId, network: &Network, interface: &str) -> Result<Self, Error> {
        let all = host::list().map_err(Error::socket("cannot list the network interfaces"))?;
        let is_it = |other: &Interface| other.name == interface && other.up && !other.addresses.is_empty();
        let Some(mut port) = all.into_iter().find(is_it) else {
            let reasons = format!("{interface}: down, or without a link or an address");
            return Err(Error::NoInterface { reasons, is_filtered: true });
        };
        port.addresses.sort_by_key(|own| match own.addr() {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        });
        let network = Network { broadcast: false, ttl: 1, ..network.clone() };
        let station = Self::observe(network.groups(job), network, vec![port])?;
        station.links.hear_only(interface)?;
        Ok(Self { follows: false, ..station })
    }

    /// Listens to the directory groups, in which the leaders of all jobs that are not private advertise.
    pub(super) fn of_all_jobs(network: &Network) -> Result<Self, Error> {
        let groups = advertiser::groups(network.discovery_port);
        // Advertisers send no broadcast.
        let own = Network { broadcast: false, ..network.clone() };
        Self::observe(groups, own, network.select_interfaces()?)
    }

    fn observe(groups: [SocketAddr; 2], network: Network, interfaces: Vec<Interface>) -> Result<Self, Error> {
        let own = bind_observer(network.ttl).map_err(Error::socket("cannot open a UDP port"))?;
        let links = Links::open(groups.to_vec(), &network, false, interfaces, own)?;
        Ok(Self { network, follows: true, links, port: 0, _listeners: Vec::new() })
    }

    /// The port of a node, for both TCP and UDP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> Vec<Warning> {
        self.links.warnings()
    }

    /// The next datagram from any sender: its source address, how it was sent, and its bytes. Cancel-safe.
    pub async fn receive(&mut self) -> (SocketAddr, Cast, Vec<u8>) {
        loop {
            if let Some(received) = self.received() {
                return received;
            }
            tokio::select! {
                () = self.links.readable() => {}
                () = tokio::time::sleep_until(self.links.due(Duration::ZERO).into()) => {}
            }
            if self.links.keep_up() && self.follows {
                let _ = self.links.follow(&self.network);
            }
        }
    }

    /// A datagram that has arrived.
    pub(crate) fn received(&self) -> Option<(SocketAddr, Cast, Vec<u8>)> {
        self.links.received()
    }

    /// Sends from the node's own port to all nodes, as a rendezvous does. Returns a warning, once, for each
    /// interface that cannot send to a group.
    pub fn send_to_all(&mut self, datagram: &[u8]) -> Vec<Warning> {
        self.links.multicast(datagram)
    }

    /// The group to which an interface can send: the IPv4 group if the interface has both families, unless
    /// the network prefers IPv6.
    pub fn group_of(&self, interface: &Interface) -> Option<SocketAddr> {
        let has = |group: &SocketAddr| interface.source(group.is_ipv6()).is_some();
        self.links.groups().filter(has).max_by_key(|group| group.is_ipv6() == self.network.prefers_ipv6)
    }

    /// The interfaces that the station uses.
    pub fn interfaces(&self) -> &[Interface] {
        self.links.interfaces()
    }
}
