//! How a node speaks to all: by multicast and broadcast on every interface, in both families.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket as StdUdpSocket};

use ipnet::IpNet;
use socket2::SockRef;
use tokio::net::UdpSocket;

use super::Builder;
use super::endpoint::is_without_ipv6;
use super::interface::Interface;
use super::multicast::{Groups, broadcast_receiver, send_by};
use crate::error::Error;

/// The sockets that datagrams leave from and arrive at, and the interfaces that they use.
#[derive(Debug)]
pub(super) struct Links {
    interfaces: Vec<Interface>,
    /// A world of one has nobody to hear.
    alone: bool,
    /// The node's own port, IPv4 first. Sending needs no readiness: what does not fit is lost, as on any
    /// network.
    senders: Vec<StdUdpSocket>,
    groups: Vec<(SocketAddr, Groups)>,
    /// How many sockets of each group are among the receivers.
    received: Vec<usize>,
    /// The port of broadcasts, where those are wanted.
    broadcast: Option<u16>,
    /// The node's own port, then those of the groups and of broadcasts.
    receivers: Vec<UdpSocket>,
    /// Interfaces by which a group could not be reached; each is told once.
    mute: Vec<(u32, bool)>,
}

impl Links {
    /// Opens what hears the group on `interfaces`. `senders` are the node's own sockets.
    pub(super) fn open(
        builder: &Builder,
        interfaces: Vec<Interface>,
        senders: Vec<StdUdpSocket>,
    ) -> Result<Self, Error> {
        let alone = builder.world.get() == 1;
        let mut links = Self {
            interfaces,
            alone,
            senders,
            groups: Vec::new(),
            received: Vec::new(),
            broadcast: (builder.broadcast && !alone).then_some(builder.discovery_port),
            receivers: Vec::new(),
            mute: Vec::new(),
        };
        for socket in &links.senders {
            links.receivers.push(watched(socket)?);
        }
        let group = builder.group.unwrap_or_else(|| builder.job.group_v4());
        links.join(SocketAddr::from((group, builder.discovery_port)))?;
        if links.senders.len() > 1 {
            links.join(SocketAddr::from((builder.job.group_v6(), builder.discovery_port)))?;
        }
        if let Some(port) = links.broadcast {
            let failed = |source| Error::Socket { what: "cannot send broadcasts".to_owned(), source };
            SockRef::from(&links.senders[0]).set_broadcast(true).map_err(failed)?;
            links.receivers.push(watched(&broadcast_receiver(port)?)?);
        }
        Ok(links)
    }

    fn join(&mut self, group: SocketAddr) -> Result<(), Error> {
        let usable =
            self.interfaces.iter().filter(|interface| !self.alone && speaks(interface, group.is_ipv6()));
        match Groups::join(group, usable) {
            Ok(groups) => {
                for socket in groups.sockets() {
                    self.receivers.push(watched(socket)?);
                }
                self.received.push(groups.sockets().len());
                self.groups.push((group, groups));
                Ok(())
            }
            Err(Error::Socket { source, .. }) if group.is_ipv6() && is_without_ipv6(&source) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn receivers(&self) -> &[UdpSocket] {
        &self.receivers
    }

    /// What is wrong from the start, for people.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.groups.iter().flat_map(|(_, groups)| groups.warnings()).cloned().collect();
        let joined: usize = self.groups.iter().map(|(_, groups)| groups.joined()).sum();
        if joined == 0 && !self.alone {
            warnings.push(
                "no interface has joined the multicast group: this node hears only who answers it".to_owned(),
            );
        }
        warnings
    }

    /// Takes other interfaces from now on: joins on those that are new, leaves those that have gone.
    pub(super) fn change(&mut self, interfaces: Vec<Interface>) -> Result<(), Error> {
        self.interfaces = interfaces;
        for ((group, groups), received) in self.groups.iter_mut().zip(&mut self.received) {
            let usable: Vec<Interface> = self
                .interfaces
                .iter()
                .filter(|interface| speaks(interface, group.is_ipv6()))
                .cloned()
                .collect();
            groups.retain(&usable);
            for interface in &usable {
                if !groups.has(interface) {
                    groups.add(interface)?;
                }
            }
            for socket in &groups.sockets()[*received..] {
                self.receivers.push(watched(socket)?);
            }
            *received = groups.sockets().len();
        }
        self.mute.clear();
        Ok(())
    }

    /// Joins again on all interfaces; see [`Groups::rejoin`].
    pub(super) fn rejoin(&self) {
        for warning in self.groups.iter().flat_map(|(_, groups)| groups.rejoin()) {
            tracing::debug!(warning);
        }
    }

    pub(super) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let sender = self.senders.get(usize::from(to.is_ipv6()));
        let sent = sender.map(|sender| sender.send_to(datagram, to));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "sending");
        }
    }

    /// Speaks to all. Returns what people should know: by which interface that is not possible, once.
    pub(super) fn multicast(&mut self, datagram: &[u8]) -> Vec<String> {
        let mut warnings = Vec::new();
        for interface in &self.interfaces {
            for (group, _) in &self.groups {
                let sent = self.send_by(interface, *group, datagram);
                let Some(Err(error)) = sent else { continue };
                tracing::debug!(interface = interface.name, %error, "sending to the group");
                let key = (interface.index, group.is_ipv6());
                if !is_passing(&error) && !self.mute.contains(&key) {
                    self.mute.push(key);
                    let (group, name) = (group.ip(), interface.name.escape_debug());
                    warnings.push(format!("cannot send to group {group} on {name}: {error}"));
                }
            }
            if let Some(port) = self.broadcast {
                let all = SocketAddr::from((Ipv4Addr::BROADCAST, port));
                if let Some(Err(error)) = self.send_by(interface, all, datagram) {
                    tracing::debug!(interface = interface.name, %error, "sending to all by broadcast");
                }
            }
        }
        warnings
    }

    /// Nothing where the interface does not speak that family.
    fn send_by(&self, interface: &Interface, to: SocketAddr, datagram: &[u8]) -> Option<io::Result<()>> {
        let source = addresses(interface, to.is_ipv6()).next()?;
        if source.is_ipv6() && source.is_loopback() {
            return None;
        }
        let sender = self.senders.get(usize::from(to.is_ipv6()))?;
        Some(send_by(sender, to, interface.index, source, datagram))
    }
}

fn addresses(interface: &Interface, ipv6: bool) -> impl Iterator<Item = IpAddr> {
    interface.addresses.iter().map(IpNet::addr).filter(move |address| address.is_ipv6() == ipv6)
}

fn speaks(interface: &Interface, ipv6: bool) -> bool {
    // The kernel delivers no IPv6 multicast on the loopback interface.
    addresses(interface, ipv6).any(|address| !(ipv6 && address.is_loopback()))
}

/// Whether an error will pass by itself: a full buffer, an IPv6 address that the kernel still checks for
/// duplicates (RFC 4862, 5.4), or an interface that has just gone.
fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENODEV)
        || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::AddrNotAvailable)
}

/// The same socket for the runtime.
fn watched(socket: &StdUdpSocket) -> Result<UdpSocket, Error> {
    let failed = |source| Error::Socket { what: "cannot watch the sockets".to_owned(), source };
    UdpSocket::from_std(socket.try_clone().map_err(failed)?).map_err(failed)
}
