//! The groups and broadcasts: the sockets that hear them, and the way to send to all by a certain interface.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, SockaddrIn6, sendmsg};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use super::endpoint::{deafen, enlarge, is_without_ipv6};
use crate::error::Error;
use crate::host::Interface;
use crate::model::JobId;
use crate::proto::Warning;

/// All by which a node speaks to all and hears: its own port, the groups of both families, and broadcasts.
#[derive(Debug)]
pub(crate) struct Air {
    /// The node's own port, IPv4 first. Sending needs no readiness: what does not fit is lost, as on any
    /// network.
    pub(crate) own: Vec<Arc<UdpSocket>>,
    pub(crate) groups: Vec<Groups>,
    /// Where broadcasts are wanted, what hears them, and where they go.
    pub(crate) broadcast: Option<(Arc<UdpSocket>, SocketAddr)>,
}

impl Air {
    /// Joins the IPv4 group and the job's of IPv6, where the kernel has that, on `interfaces`. `own` are the node's
    /// own sockets.
    pub(crate) fn open(
        own: Vec<UdpSocket>,
        job: &JobId,
        group: SocketAddrV4,
        broadcast: bool,
        interfaces: &[Interface],
    ) -> Result<Self, Error> {
        let both = [group.into(), SocketAddr::from((job.group_v6(), group.port()))];
        let groups = Groups::join_all(both.into_iter().take(own.len()), interfaces)?;
        let mut air = Self { own: own.into_iter().map(Arc::new).collect(), groups, broadcast: None };
        if broadcast {
            let failed = |source| Error::Socket { what: "cannot send broadcasts".to_owned(), source };
            SockRef::from(&*air.own[0]).set_broadcast(true).map_err(failed)?;
            let to = SocketAddr::from((Ipv4Addr::BROADCAST, group.port()));
            air.broadcast = Some((broadcast_receiver(group.port())?.into(), to));
        }
        Ok(air)
    }

    /// The own socket that sends there.
    pub(crate) fn socket(&self, to: SocketAddr) -> Option<&UdpSocket> {
        self.own.get(usize::from(to.is_ipv6())).map(Arc::as_ref)
    }

    /// Where to send what is for all.
    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        let groups = self.groups.iter().map(|groups| groups.group);
        groups.chain(self.broadcast.as_ref().map(|(_, to)| *to))
    }

    /// Sends one datagram to all by this interface. Nothing where that does not speak the family.
    pub(crate) fn send_by(&self, by: &Interface, to: SocketAddr, bytes: &[u8]) -> Option<io::Result<()>> {
        Some(send_by(self.socket(to)?, to, by.index, by.voice(to.is_ipv6())?, bytes))
    }
}

/// The sockets that hear a group, which several processes of a host may have at once.
///
/// They only receive: what a node sends leaves from its own port.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) group: SocketAddr,
    sockets: Vec<Arc<UdpSocket>>,
    /// How many of them have been [handed over](Groups::hand_over).
    handed_over: usize,
    memberships: Vec<Membership>,
}

#[derive(Debug)]
struct Membership {
    socket: usize,
    index: u32,
    name: String,
    /// Why it could not join, for people.
    failure: Option<Warning>,
}

impl Groups {
    /// Joins each group on the interfaces that speak its family; one of IPv6 only where the kernel has that.
    pub(crate) fn join_all(
        groups: impl IntoIterator<Item = SocketAddr>,
        interfaces: &[Interface],
    ) -> Result<Vec<Self>, Error> {
        let mut all = Vec::new();
        for group in groups {
            let speaking = interfaces.iter().filter(|interface| interface.voice(group.is_ipv6()).is_some());
            match Self::join(group, speaking) {
                Ok(groups) => all.push(groups),
                Err(Error::Socket { source, .. }) if group.is_ipv6() && is_without_ipv6(&source) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Joins `group` on each of the interfaces. One that cannot join is a warning; see [`Groups::joined`]
    /// for how many did.
    pub(crate) fn join<'a>(
        group: SocketAddr,
        interfaces: impl IntoIterator<Item = &'a Interface>,
    ) -> Result<Self, Error> {
        let mut groups = Self { group, sockets: Vec::new(), handed_over: 0, memberships: Vec::new() };
        for interface in interfaces {
            groups.add(interface)?;
        }
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
        self.sockets.push(socket.into());
        Ok(())
    }

    /// Joins on one more interface.
    fn add(&mut self, interface: &Interface) -> Result<(), Error> {
        let mut membership =
            Membership { socket: 0, index: interface.index, name: interface.name.clone(), failure: None };
        let joined = loop {
            // Not before: most hosts have no IPv6 address that is worth a socket.
            if membership.socket == self.sockets.len() {
                self.open()?;
            }
            let joined = self.enter(&membership);
            // A socket may have 20 memberships (net.ipv4.igmp_max_memberships), then it takes another: one that
            // interfaces have left, or a new one. Where one without any is full, no other would help.
            let full = joined.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOBUFS));
            let is_member = |other: &Membership| other.socket == membership.socket && other.failure.is_none();
            if !full || !self.memberships.iter().any(is_member) {
                break joined;
            }
            membership.socket += 1;
        };
        membership.failure = joined.err().map(|error| membership.warning(&error));
        // Kept even if it failed: the interface may be ready by the next `rejoin`.
        self.memberships.push(membership);
        Ok(())
    }

    /// Takes other interfaces from now on: leaves on those that are not among these any more, joins on those that are
    /// new and speak the family.
    pub(crate) fn change(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        let is_ipv6 = self.group.is_ipv6();
        let usable = || interfaces.iter().filter(move |interface| interface.voice(is_ipv6).is_some());
        let (group, sockets) = (self.group, &self.sockets);
        self.memberships.retain(|membership| {
            let stays = usable().any(|interface| interface.index == membership.index);
            if !stays {
                // Fails where the interface itself is gone, and its membership with it.
                let _ = membership.leave(&sockets[membership.socket], group.ip());
            }
            stays
        });
        for interface in usable() {
            if !self.has(interface) {
                self.add(interface)?;
            }
        }
        Ok(())
    }

    /// Whether the group was joined, or tried to be, on this interface.
    fn has(&self, interface: &Interface) -> bool {
        self.memberships.iter().any(|membership| membership.index == interface.index)
    }

    /// The receiving sockets, which do not block.
    pub(crate) fn sockets(&self) -> &[Arc<UdpSocket>] {
        &self.sockets
    }

    /// Hands over each of them once, and again where that has failed.
    pub(crate) fn hand_over(
        &mut self,
        mut take: impl FnMut(&Arc<UdpSocket>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while let Some(socket) = self.sockets.get(self.handed_over) {
            take(socket)?;
            self.handed_over += 1;
        }
        Ok(())
    }

    /// On how many interfaces the group was joined. With none, no multicast will be heard.
    pub(crate) fn joined(&self) -> usize {
        self.memberships.iter().filter(|membership| membership.failure.is_none()).count()
    }

    /// Which interfaces could not join, and why.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.memberships.iter().filter_map(|membership| membership.failure.as_ref())
    }

    /// Leaves and joins again on every interface, which makes the kernel report the membership on the
    /// network: a switch that snoops on IGMP, where no router asks for members, forgets them after 260 s.
    /// (With IGMPv3 the kernel reports the join alone, so a switch that obeys a leave at once cuts nothing
    /// off; and it reports nothing while another socket of this host is a member.) Returns warnings.
    pub(crate) fn rejoin(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for membership in &self.memberships {
            // Fails where the first join did, or where the interface went away and came back.
            let _ = membership.leave(&self.sockets[membership.socket], self.group.ip());
            if let Err(error) = self.enter(membership) {
                warnings.push(membership.warning(&error));
            }
        }
        warnings
    }

    /// The same for several groups; the warnings go to the log.
    pub(crate) fn rejoin_all(all: &[Self]) {
        for warning in all.iter().flat_map(Self::rejoin) {
            tracing::debug!(%warning);
        }
    }

    fn enter(&self, membership: &Membership) -> io::Result<()> {
        // By index: joining on an address, or on none, asks the routing table, and without a default route
        // that is ENODEV.
        let socket = SockRef::from(&*self.sockets[membership.socket]);
        let joined = match self.group.ip() {
            IpAddr::V4(group) => socket.join_multicast_v4_n(&group, &membership.interface()),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, membership.index),
        };
        match joined {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()), // is a member already
            other => other,
        }
    }
}

impl Membership {
    fn interface(&self) -> InterfaceIndexOrAddress {
        InterfaceIndexOrAddress::Index(self.index)
    }

    fn leave(&self, socket: &UdpSocket, group: IpAddr) -> io::Result<()> {
        let socket = SockRef::from(socket);
        match group {
            IpAddr::V4(group) => socket.leave_multicast_v4_n(&group, &self.interface()),
            IpAddr::V6(group) => socket.leave_multicast_v6(&group, self.index),
        }
    }

    fn warning(&self, error: &io::Error) -> Warning {
        Warning::NotJoined { interface: self.name.clone(), error: error.to_string() }
    }
}

fn receiver(group: SocketAddr) -> io::Result<UdpSocket> {
    let family = Domain::for_address(group);
    let socket = Socket::new(family, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if family == Domain::IPV6 {
        socket.set_only_v6(true)?;
    }
    // Several sockets share a multicast port this way, and each one gets every datagram.
    socket.set_reuse_address(true)?;
    // Bound to the group itself the socket hears neither unicast nor broadcast.
    socket.bind(&group.into())?;
    deafen(&socket, family);
    enlarge(&socket);
    Ok(socket.into())
}

/// A socket that hears broadcasts to this port, beside those of other processes.
///
/// One that is bound to a group hears none, so it is bound to all addresses; what is sent to the port by
/// unicast, it may hear as well.
pub(crate) fn broadcast_receiver(port: u16) -> Result<UdpSocket, Error> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    receiver(any).map_err(|source| Error::Socket {
        what: format!("cannot hear broadcasts on UDP port {port}"),
        source,
    })
}

/// Sends one datagram to a group, or to all by broadcast, by the interface of this index, from `source`, which
/// must be one of that interface's addresses. Never blocks: a full buffer is [`io::ErrorKind::WouldBlock`].
///
/// Both are needed: by the index alone the kernel may take another interface's address for the source, and
/// by the address alone it may find another interface that holds the same one.
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

    #[test]
    fn the_socket_of_an_interface_that_comes_later_is_handed_over_until_somebody_takes_it() {
        let mut groups = Groups::join("239.192.1.2:0".parse().unwrap(), &[]).unwrap();
        let refuse = |_: &_| Err(Error::NoInterface { reasons: String::new(), is_filtered: false });
        groups.hand_over(refuse).unwrap();
        groups.change(&[Interface::loopback(Ipv4Addr::LOCALHOST)]).unwrap();
        assert_eq!(groups.joined(), 1);
        assert!(groups.hand_over(refuse).is_err());
        let mut taken = 0;
        for _ in 0..2 {
            groups
                .hand_over(|_| {
                    taken += 1;
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(taken, 1);
        groups.change(&[]).unwrap();
        assert_eq!(groups.joined(), 0);
    }

    #[test]
    fn an_interface_that_could_not_join_counts_and_warns_no_more_once_it_is_gone() {
        let lo = Interface::loopback(Ipv4Addr::LOCALHOST);
        let broken = Interface { index: u32::MAX >> 1, name: "broken".to_owned(), ..lo.clone() };
        let mut groups = Groups::join("239.192.1.2:0".parse().unwrap(), &[lo.clone(), broken]).unwrap();
        assert_eq!((groups.joined(), groups.warnings().count()), (1, 1));
        groups.change(&[lo]).unwrap();
        assert_eq!((groups.joined(), groups.warnings().count()), (1, 0));
    }
}
