//! Multicast groups and broadcasts: the sockets that receive them, and how to send by a given interface.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, SockaddrIn6, sendmsg};
use socket2::{InterfaceIndexOrAddress, SockRef, Type};

use super::endpoint::{open, set_up_receiver};
use super::watched::{Watched, watch};
use crate::host::Interface;
use crate::net::error::Error;
use crate::proto::Warning;

/// The sockets that receive a group. Several processes of a host may receive the same one.
///
/// They only receive: a node sends from its own port.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) group: SocketAddr,
    sockets: Vec<Watched>,
    memberships: Vec<Membership>,
}

#[derive(Debug)]
struct Membership {
    socket: usize,
    index: u32,
    name: String,
    /// Why the interface could not join, as a warning.
    failure: Option<Warning>,
}

impl Groups {
    /// Joins `group` on each of the interfaces that has an address of its family. An interface that cannot
    /// join is a warning; see [`Groups::joined`] for how many did.
    pub(crate) fn join(group: SocketAddr, interfaces: &[Interface]) -> Result<Self, Error> {
        let mut groups = Self { group, sockets: Vec::new(), memberships: Vec::new() };
        groups.change(interfaces)?;
        Ok(groups)
    }

    fn open(&mut self) -> Result<(), Error> {
        let socket = receiver(self.group).map_err(|source| {
            let (group, port) = (self.group.ip(), self.group.port());
            match source.kind() {
                io::ErrorKind::AddrInUse => Error::DiscoveryPortTaken { port, group, source },
                _ => Error::Socket { what: format!("cannot hear group {group} on UDP port {port}"), source },
            }
        })?;
        self.sockets.push(watch(socket)?);
        Ok(())
    }

    /// Joins the group on one more interface.
    fn add(&mut self, interface: &Interface) -> Result<(), Error> {
        let mut membership =
            Membership { socket: 0, index: interface.index, name: interface.name.clone(), failure: None };
        let joined = loop {
            // A socket is opened only when it is needed: most hosts have no IPv6 address to join on.
            if membership.socket == self.sockets.len() {
                self.open()?;
            }
            let joined = self.enter(&membership);
            // A socket may have 20 memberships (net.ipv4.igmp_max_memberships). Then another socket is used:
            // one that interfaces have left, or a new one. If a socket without memberships is full, no other
            // would help.
            let full = joined.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOBUFS));
            let is_member = |other: &Membership| other.socket == membership.socket && other.failure.is_none();
            if !full || !self.memberships.iter().any(is_member) {
                break joined;
            }
            membership.socket += 1;
        };
        membership.failure = joined.err().map(|error| membership.warning(&error));
        // Kept after a failure, too: the interface may be ready at the next `rejoin`.
        self.memberships.push(membership);
        Ok(())
    }

    /// Uses other interfaces from now on: leaves the group on those that are no longer among these, and joins
    /// on the new ones that have an address of its family.
    pub(crate) fn change(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        let is_ipv6 = self.group.is_ipv6();
        let usable = || interfaces.iter().filter(move |interface| interface.source(is_ipv6).is_some());
        let (group, sockets) = (self.group, &self.sockets);
        self.memberships.retain(|membership| {
            let stays = usable().any(|interface| interface.index == membership.index);
            if !stays {
                // Fails if the interface is gone, and its membership with it.
                let _ = membership.leave(&sockets[membership.socket], group.ip());
            }
            stays
        });
        for interface in usable() {
            // It is a member, or joining has failed.
            if !self.memberships.iter().any(|membership| membership.index == interface.index) {
                self.add(interface)?;
            }
        }
        Ok(())
    }

    /// The receiving sockets.
    pub(crate) fn sockets(&self) -> &[Watched] {
        &self.sockets
    }

    /// The number of interfaces on which the group is joined. With none, no multicast is received.
    pub(crate) fn joined(&self) -> usize {
        self.memberships.iter().filter(|membership| membership.failure.is_none()).count()
    }

    /// Which interfaces could not join, and why.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.memberships.iter().filter_map(|membership| membership.failure.as_ref())
    }

    /// Leaves and joins the group on every interface, which makes the kernel report the membership on the
    /// network: a switch that snoops on IGMP without a querier forgets members after 260 s. (With IGMPv3 the
    /// kernel reports only the join, so a switch with fast leave cuts nothing off; and it reports nothing
    /// while another socket of this host is a member.)
    pub(crate) fn rejoin(&self) {
        for membership in &self.memberships {
            // Fails if the first join did, or if the interface went away and came back.
            let _ = membership.leave(&self.sockets[membership.socket], self.group.ip());
            if let Err(error) = self.enter(membership) {
                tracing::debug!(warning = %membership.warning(&error));
            }
        }
    }

    fn enter(&self, membership: &Membership) -> io::Result<()> {
        // By index: joining on an address, or on none, asks the routing table, which fails with ENODEV
        // without a default route.
        let socket = SockRef::from(self.sockets[membership.socket].get_ref());
        let joined = match self.group.ip() {
            IpAddr::V4(group) => {
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(membership.index))
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, membership.index),
        };
        match joined {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()), // already a member
            other => other,
        }
    }
}

impl Membership {
    fn leave(&self, socket: &Watched, group: IpAddr) -> io::Result<()> {
        let socket = SockRef::from(socket.get_ref());
        match group {
            IpAddr::V4(group) => {
                socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(self.index))
            }
            IpAddr::V6(group) => socket.leave_multicast_v6(&group, self.index),
        }
    }

    fn warning(&self, error: &io::Error) -> Warning {
        Warning::NotJoined { interface: self.name.clone(), error: error.to_string() }
    }
}

fn receiver(group: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(group, Type::DGRAM)?;
    // Lets several sockets share a multicast port; each receives every datagram.
    socket.set_reuse_address(true)?;
    // Bound to the group address, the socket receives neither unicast nor broadcast.
    socket.bind(&group.into())?;
    set_up_receiver(&socket, group);
    Ok(socket.into())
}

/// A socket that receives broadcasts to this port, beside those of other processes.
///
/// A socket that is bound to a group receives no broadcast, so this one is bound to all addresses, and may
/// receive unicast to the port as well.
pub(crate) fn broadcast_receiver(port: u16) -> Result<UdpSocket, Error> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    receiver(any).map_err(Error::socket(format!("cannot hear broadcasts on UDP port {port}")))
}

/// Sends one datagram to a group or broadcast address by the interface of this index, from `source`, which
/// must be one of that interface's addresses. Never blocks: a full buffer is [`io::ErrorKind::WouldBlock`].
///
/// Both the interface index and the source address are needed. With the index alone the kernel may use the
/// source address of another interface. With the source address alone it may send by another interface that
/// holds the same one.
pub(crate) fn send_by(
    socket: &impl AsFd,
    to: SocketAddr,
    index: u32,
    source: IpAddr,
    bytes: &[u8],
) -> io::Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let (fd, bytes) = (socket.as_fd().as_raw_fd(), [IoSlice::new(bytes)]);
    match (to, source) {
        (SocketAddr::V4(to), IpAddr::V4(source)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let info = [ControlMessage::Ipv4PacketInfo(&info)];
            sendmsg(fd, &bytes, &info, flags, Some(&SockaddrIn::from(to)))?;
        }
        (SocketAddr::V6(to), IpAddr::V6(source)) => {
            let info = libc::in6_pktinfo {
                ipi6_ifindex: index,
                ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            };
            let info = [ControlMessage::Ipv6PacketInfo(&info)];
            sendmsg(fd, &bytes, &info, flags, Some(&SockaddrIn6::from(to)))?;
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_interface_that_could_not_join_is_forgotten_once_it_is_gone() {
        let lo = Interface::loopback(Ipv4Addr::LOCALHOST);
        let broken = Interface { index: u32::MAX >> 1, name: "broken".to_owned(), ..lo.clone() };
        let mut groups = Groups::join("239.192.1.2:0".parse().unwrap(), &[lo.clone(), broken]).unwrap();
        assert_eq!((groups.joined(), groups.warnings().count()), (1, 1));
        groups.change(&[lo]).unwrap();
        assert_eq!((groups.joined(), groups.warnings().count()), (1, 0));
        groups.change(&[]).unwrap();
        assert_eq!(groups.joined(), 0);
    }
}
