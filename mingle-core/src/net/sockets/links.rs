//! All datagram sockets of a node, and how it sends to all nodes: by multicast and broadcast on every
//! interface.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::multicast::{DatagramSockets, Groups};
use super::watched::Watched;
use crate::host::Interface;
use crate::net::Network;
use crate::net::clock::clock;
use crate::net::discovery::advertiser;
use crate::net::error::Error;
use crate::proto::{MAX_DATAGRAM, Warning};

/// How often the groups are joined again: switches that snoop on IGMP without a querier forget a member after
/// 260 s.
const REJOIN: Duration = Duration::from_secs(60);
/// How often the host's addresses are read again.
const LOOK: Duration = Duration::from_secs(2);

/// How a datagram was sent, as far as its receiver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cast {
    /// To this node's own port.
    Unicast,
    /// To a group of the job.
    Multicast,
    /// To all hosts of the link, or by unicast to the port of broadcasts.
    Broadcast,
}

/// The datagram sockets, and the interfaces that they use.
#[derive(Debug)]
pub(crate) struct Links {
    interfaces: Vec<Interface>,
    /// Whether the last [`change`](Self::change) failed in part, and must be repeated.
    unfinished: bool,
    /// In a world of one there is nothing to hear.
    alone: bool,
    sockets: DatagramSockets,
    /// The node's own port, then the sockets of broadcasts and of the groups.
    receivers: Vec<Watched>,
    /// The interfaces (by index) and families on which sending has failed: each is warned of once.
    failed: Vec<(u32, bool)>,
    /// When the groups are joined again, and when it is time to look at the interfaces.
    rejoin: Instant,
    look: Instant,
}

impl Links {
    /// Joins the groups on `interfaces`, unless the world is one node `alone`. `own` are the sockets of the
    /// node's own port.
    pub(crate) fn open(
        groups: Vec<SocketAddr>,
        network: &Network,
        alone: bool,
        interfaces: Vec<Interface>,
        own: Vec<UdpSocket>,
    ) -> Result<Self, Error> {
        let joined = if alone { &[] } else { &interfaces[..] };
        let broadcast = network.broadcasts().filter(|_| !alone);
        let sockets = DatagramSockets::open(own, groups, broadcast, joined)?;
        let mut links = Self {
            interfaces,
            unfinished: false,
            alone,
            sockets,
            receivers: Vec::new(),
            failed: Vec::new(),
            rejoin: clock() + REJOIN,
            look: clock() + LOOK,
        };
        links.watch()?;
        Ok(links)
    }

    /// Adds the sockets to the receivers that are none yet: all at the start, and those that the groups open
    /// later.
    fn watch(&mut self) -> Result<(), Error> {
        let is_new = |socket: &&Arc<UdpSocket>| !self.receivers.iter().any(|receiver| receiver.is(socket));
        let new: Vec<_> = self.sockets().map(|(socket, _)| socket).filter(is_new).cloned().collect();
        for socket in new {
            self.receivers.push(Watched::new(socket)?);
        }
        Ok(())
    }

    /// Hears from now on only what arrives by this interface. Otherwise a socket that has joined an IPv6
    /// group on a single interface hears the group on each interface where any socket has joined it
    /// (`inet6_mc_check` in Linux's net/ipv6/mcast.c compares the group alone).
    pub(crate) fn hear_only(&self, interface: &str) -> Result<(), Error> {
        let bind = |socket: &UdpSocket| SockRef::from(socket).bind_device(Some(interface.as_bytes()));
        let bound = self.sockets().try_for_each(|(socket, _)| bind(socket));
        bound.map_err(Error::socket("cannot bind a socket to an interface"))?;
        // What has arrived before may have come by another.
        for (socket, _) in self.sockets() {
            while socket.recv(&mut [0]).is_ok() {}
        }
        Ok(())
    }

    /// The sockets of the node's own port, one for each family.
    pub(crate) fn own(&self) -> &[Arc<UdpSocket>] {
        &self.sockets.own
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether these interfaces are in use, so that there is nothing to [`change`](Self::change).
    pub(crate) fn are_on(&self, interfaces: &[Interface]) -> bool {
        !self.unfinished && self.interfaces == interfaces
    }

    pub(crate) fn receivers(&self) -> &[Watched] {
        &self.receivers
    }

    /// The receivers, and whether each is a socket of the node's own port. These come first.
    pub(crate) fn receivers_in_order(&self) -> impl DoubleEndedIterator<Item = (&Watched, bool)> {
        let (own, groups) = self.receivers.split_at(self.sockets.own.len());
        own.iter().map(|socket| (socket, true)).chain(groups.iter().map(|socket| (socket, false)))
    }

    /// A datagram that has arrived, with its source address.
    pub(crate) fn received(&self) -> Option<(SocketAddr, Cast, Vec<u8>)> {
        let own = self.sockets.own.len();
        let groups = own + usize::from(self.sockets.broadcast.is_some());
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for (at, socket) in self.receivers.iter().enumerate() {
            match socket.try_recv_from(&mut buffer) {
                // Too long for the protocol: a node drops it, too.
                Ok((length, _)) if length > MAX_DATAGRAM => {}
                Ok((length, from)) => {
                    let group = if at < groups { Cast::Broadcast } else { Cast::Multicast };
                    let cast = if at < own { Cast::Unicast } else { group };
                    return Some((from, cast, buffer[..length].to_vec()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => tracing::debug!(%error, "receiving"),
            }
        }
        None
    }

    /// The groups, IPv4 first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.groups.iter().map(|groups| groups.group)
    }

    /// All sockets, to be read without the runtime, and whether each is one of the node's own port.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (&Arc<UdpSocket>, bool)> {
        let own = self.sockets.own.iter().map(|socket| (socket, true));
        let broadcasts = self.sockets.broadcast.as_ref().map(|(socket, _)| socket);
        let groups = broadcasts.into_iter().chain(self.sockets.groups.iter().flat_map(Groups::sockets));
        own.chain(groups.map(|socket| (socket, false)))
    }

    /// Warnings for the caller, after the start.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> =
            self.sockets.groups.iter().flat_map(Groups::warnings).cloned().collect();
        let joined: usize = self.sockets.groups.iter().map(Groups::joined).sum();
        if joined == 0 && !self.alone && !self.sockets.groups.is_empty() {
            warnings.push(Warning::NoneJoined);
        }
        warnings
    }

    /// Uses other interfaces from now on: joins the groups on new ones, and leaves them on those that have
    /// gone. Does nothing if these are in use. An error on one interface does not stop the others, and the
    /// next call tries it again.
    pub(crate) fn change(&mut self, interfaces: Vec<Interface>) -> Result<(), Error> {
        if self.are_on(&interfaces) {
            return Ok(());
        }
        if interfaces != self.interfaces {
            self.interfaces = interfaces;
            self.failed.clear();
        }
        let mut changed = Ok(());
        for groups in &mut self.sockets.groups {
            changed = changed.and(groups.change(&self.interfaces));
        }
        changed = changed.and(self.watch());
        self.unfinished = changed.is_err();
        changed
    }

    /// Uses the interfaces from now on that the network selects. Those that are all gone may come back.
    pub(crate) fn follow(&mut self, network: &Network) {
        if let Ok(interfaces) = network.select_interfaces()
            && let Err(error) = self.change(interfaces)
        {
            tracing::debug!(error = error.chain(), "changing the interfaces");
        }
    }

    /// When to call [`Links::keep_up`], which may look at the interfaces so much later than [`LOOK`].
    pub(crate) fn due(&self, slack: Duration) -> Instant {
        self.rejoin.min(self.look + slack)
    }

    /// Joins the groups again on all interfaces, if it is time to; see [`Groups::rejoin`]. Returns whether to
    /// look at the interfaces.
    pub(crate) fn keep_up(&mut self) -> bool {
        let now = clock();
        if now >= self.rejoin {
            self.rejoin = now + REJOIN;
            self.sockets.groups.iter().for_each(Groups::rejoin);
        }
        let is_time_to_look = now >= self.look;
        if is_time_to_look {
            self.look = now + LOOK;
        }
        is_time_to_look
    }

    pub(crate) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let sent = self.sockets.socket(to).map(|own| own.send_to(datagram, to));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "sending");
        }
    }

    /// Sends to the directory groups, by each interface in both families. A datagram that cannot be sent is
    /// lost.
    pub(crate) fn advertise(&self, port: u16, datagram: &[u8]) {
        for interface in &self.interfaces {
            for to in advertiser::groups(port) {
                let sent = self.sockets.send_by(interface, to, datagram);
                if let Some(Err(error)) = sent {
                    tracing::debug!(interface = interface.name, %to, %error, "advertising");
                }
            }
        }
    }

    /// Whether this node has joined a group, and can send to all: then it hears its own multicasts.
    pub(crate) fn multicasts(&self) -> bool {
        let groups = &self.sockets.groups;
        groups.iter().any(|groups| groups.joined() > 0) && self.failed.is_empty()
    }

    /// Sends to all nodes. Returns a warning for each interface that cannot send to a group, once.
    pub(crate) fn multicast(&mut self, datagram: &[u8]) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for interface in &self.interfaces {
            for to in self.sockets.all() {
                let sent = self.sockets.send_by(interface, to, datagram);
                let Some(Err(error)) = sent else { continue };
                tracing::debug!(interface = interface.name, %to, %error, "sending to all");
                let key = (interface.index, to.is_ipv6());
                // No warning for a broadcast: it leaves by the same interface as the group, which is warned
                // of.
                if to.ip().is_multicast() && !is_temporary(&error) && !self.failed.contains(&key) {
                    self.failed.push(key);
                    let (group, interface) = (to.ip(), interface.name.clone());
                    warnings.push(Warning::NotSent { group, interface, error: error.to_string() });
                }
            }
        }
        warnings
    }
}

/// Whether an error is temporary: a full buffer, an IPv6 address that the kernel still checks for duplicates
/// (RFC 4862, 5.4), or an interface that has just gone.
fn is_temporary(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENODEV)
        || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_group_that_could_not_be_joined_is_tried_again_and_does_not_stop_the_others() {
        let hog = UdpSocket::bind("0.0.0.0:0").unwrap();
        let network = Network { discovery_port: hog.local_addr().unwrap().port(), ..Network::default() };
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let job = "foo".parse().unwrap();
        let mut links =
            Links::open(network.joined_groups(&job), &network, false, Vec::new(), vec![own]).unwrap();
        // Pushed behind the group whose port another program holds without sharing it.
        let free = "239.192.1.2:0".parse().unwrap();
        links.sockets.groups.push(Groups::join(free, &[]).unwrap());
        let lo = vec![Interface::loopback(Ipv4Addr::LOCALHOST)];

        assert!(links.change(lo.clone()).is_err() && !links.are_on(&lo));
        assert_eq!(links.interfaces(), lo, "it sends by them");
        assert_eq!(links.sockets.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(links.receivers().len(), 2);

        // If it gave the port up, another program could take it.
        SockRef::from(&hog).set_reuse_address(true).unwrap();
        links.change(lo.clone()).unwrap();
        assert!(links.are_on(&lo));
        assert_eq!(links.sockets.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(links.receivers().len(), 3);
    }
}
