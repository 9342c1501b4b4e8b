//! The group: the sockets that hear it, and the way to send to it by a certain interface.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use super::endpoint::{deafen, enlarge};
use super::interface::Interface;
use crate::error::Error;

/// The sockets that hear the group, which several processes of a host may have at once.
///
/// They only receive: what a node sends leaves from its own port.
#[derive(Debug)]
pub(crate) struct Groups {
    group: SocketAddrV4,
    sockets: Vec<UdpSocket>,
    memberships: Vec<Membership>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Membership {
    socket: usize,
    index: u32,
    name: String,
}

impl Groups {
    /// Joins `group` on each of the interfaces. One that cannot join is a warning; see [`Groups::joined`]
    /// for how many did.
    pub(crate) fn join(group: SocketAddrV4, interfaces: &[Interface]) -> Result<Self, Error> {
        let mut groups = Self { group, sockets: Vec::new(), memberships: Vec::new(), warnings: Vec::new() };
        groups.open()?;
        for interface in interfaces {
            groups.add(interface)?;
        }
        Ok(groups)
    }

    fn open(&mut self) -> Result<(), Error> {
        let socket = receiver(self.group).map_err(|source| {
            let (ip, port) = (self.group.ip(), self.group.port());
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => ", which another program keeps to itself; see --discovery-port",
                _ => "",
            };
            Error::Socket { what: format!("cannot hear group {ip} on UDP port {port}{hint}"), source }
        })?;
        self.sockets.push(socket);
        Ok(())
    }

    fn add(&mut self, interface: &Interface) -> Result<(), Error> {
        let mut membership = Membership {
            socket: self.sockets.len() - 1,
            index: interface.index,
            name: interface.name.clone(),
        };
        let mut joined = self.enter(&membership);
        // A socket may have 20 memberships (net.ipv4.igmp_max_memberships), then it takes another socket.
        let full = |joined: &io::Result<()>| {
            joined.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOBUFS))
        };
        if full(&joined) && self.memberships.iter().any(|other| other.socket == membership.socket) {
            self.open()?;
            membership.socket += 1;
            joined = self.enter(&membership);
        }
        if let Err(error) = joined {
            self.warnings.push(membership.warning(&error));
        }
        // Kept even if it failed: the interface may be ready by the next `rejoin`.
        self.memberships.push(membership);
        Ok(())
    }

    /// The receiving sockets, which do not block. A runtime that wants to own one takes a clone
    /// (`try_clone`); both are then the same socket.
    pub(crate) fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// On how many interfaces the group was joined. With none, no multicast will be heard.
    pub(crate) fn joined(&self) -> usize {
        self.memberships.len() - self.warnings.len()
    }

    /// Which interfaces could not join, and why, for people.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Leaves and joins again on every interface, which makes the kernel report the membership on the
    /// network: a switch that snoops on IGMP, where no router asks for members, forgets them after 260 s.
    /// (With IGMPv3 the kernel reports the join alone, so a switch that obeys a leave at once cuts nothing
    /// off; and it reports nothing while another socket of this host is a member.) Returns warnings.
    pub(crate) fn rejoin(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for membership in &self.memberships {
            let socket = SockRef::from(&self.sockets[membership.socket]);
            // Fails where the first join did, or where the interface went away and came back.
            let _ = socket.leave_multicast_v4_n(self.group.ip(), &membership.interface());
            if let Err(error) = self.enter(membership) {
                warnings.push(membership.warning(&error));
            }
        }
        warnings
    }

    fn enter(&self, membership: &Membership) -> io::Result<()> {
        // By index: joining on an address, or on none, asks the routing table, and without a default route
        // that is ENODEV.
        let socket = SockRef::from(&self.sockets[membership.socket]);
        match socket.join_multicast_v4_n(self.group.ip(), &membership.interface()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()), // is a member already
            other => other,
        }
    }
}

impl Membership {
    fn interface(&self) -> InterfaceIndexOrAddress {
        InterfaceIndexOrAddress::Index(self.index)
    }

    fn warning(&self, error: &io::Error) -> String {
        format!("cannot join the multicast group on {}: {error}", self.name.escape_debug())
    }
}

fn receiver(group: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Several sockets share a multicast port this way, and each one gets every datagram.
    socket.set_reuse_address(true)?;
    // Bound to the group itself the socket hears neither unicast nor broadcast.
    socket.bind(&SocketAddr::V4(group).into())?;
    socket.set_nonblocking(true)?;
    deafen(&socket);
    enlarge(&socket);
    Ok(socket.into())
}

/// Sends one datagram to the group by the interface of this index, from `source`, which must be one of that
/// interface's addresses. Never blocks: a full buffer is [`io::ErrorKind::WouldBlock`].
///
/// Both are needed: by the index alone the kernel may take another interface's address for the source, and
/// by the address alone it may find another interface that holds the same one.
pub(crate) fn send_multicast(
    socket: &impl AsFd,
    group: SocketAddrV4,
    index: u32,
    source: Ipv4Addr,
    bytes: &[u8],
) -> io::Result<()> {
    let info = libc::in_pktinfo {
        ipi_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
        ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    sendmsg(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        &[ControlMessage::Ipv4PacketInfo(&info)],
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
        Some(&SockaddrIn::from(group)),
    )?;
    Ok(())
}
