//! How a node speaks to all: by multicast and broadcast on every interface, in both families.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use super::Builder;
use super::directory;
use super::multicast::{Air, Groups};
use super::watched::Watched;
use crate::error::Error;
use crate::host::Interface;
use crate::proto::Warning;

/// The sockets that datagrams leave from and arrive at, and the interfaces that they use.
#[derive(Debug)]
pub(super) struct Links {
    interfaces: Vec<Interface>,
    /// Whether the last [`change`](Self::change) has failed in part, and is to be tried again.
    unfinished: bool,
    /// A world of one has nobody to hear.
    alone: bool,
    air: Air,
    /// The node's own port, then those of broadcasts and of the groups.
    receivers: Vec<Watched>,
    /// Interfaces by which a group could not be reached; each is told once.
    mute: Vec<(u32, bool)>,
}

impl Links {
    /// Opens what hears the group on `interfaces`. `own` are the node's own sockets.
    pub(super) fn open(
        builder: &Builder,
        interfaces: Vec<Interface>,
        own: Vec<UdpSocket>,
    ) -> Result<Self, Error> {
        let alone = builder.world.get() == 1;
        let group = builder.group.unwrap_or_else(|| builder.job.group_v4());
        let group = SocketAddrV4::new(group, builder.discovery_port);
        let joined = if alone { &[] } else { &interfaces[..] };
        let air = Air::open(own, &builder.job, group, builder.broadcast && !alone, joined)?;
        let heard = air.own.iter().chain(air.broadcast.as_ref().map(|(socket, _)| socket));
        let receivers = heard.cloned().map(Watched::new).collect::<Result<_, _>>()?;
        let mut links = Self { interfaces, unfinished: false, alone, air, receivers, mute: Vec::new() };
        hear(&mut links.air.groups, &mut links.receivers)?;
        Ok(links)
    }

    /// The node's own port, in each family.
    pub(super) fn own(&self) -> &[Arc<UdpSocket>] {
        &self.air.own
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether there is nothing to [`change`](Self::change).
    pub(super) fn are_on(&self, interfaces: &[Interface]) -> bool {
        !self.unfinished && self.interfaces == interfaces
    }

    pub(super) fn receivers(&self) -> &[Watched] {
        &self.receivers
    }

    /// All of them, without the runtime.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Arc<UdpSocket>> {
        let broadcasts = self.air.broadcast.as_ref().map(|(socket, _)| socket);
        self.air.own.iter().chain(broadcasts).chain(self.air.groups.iter().flat_map(Groups::sockets))
    }

    /// What is wrong from the start, for people.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = self.air.groups.iter().flat_map(Groups::warnings).cloned().collect();
        let joined: usize = self.air.groups.iter().map(Groups::joined).sum();
        if joined == 0 && !self.alone {
            warnings.push(Warning::NoneJoined);
        }
        warnings
    }

    /// Takes other interfaces from now on: joins on those that are new, leaves those that have gone. What fails
    /// keeps nothing else from it, and is tried again by the next call.
    pub(super) fn change(&mut self, interfaces: Vec<Interface>) -> Result<(), Error> {
        if interfaces != self.interfaces {
            self.interfaces = interfaces;
            self.mute.clear();
        }
        let changed = hear_on(&mut self.air.groups, &self.interfaces, &mut self.receivers);
        self.unfinished = changed.is_err();
        changed
    }

    /// Joins again on all interfaces; see [`Groups::rejoin`].
    pub(super) fn rejoin(&self) {
        Groups::rejoin_all(&self.air.groups);
    }

    pub(super) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let sent = self.air.socket(to).map(|own| own.send_to(datagram, to));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "sending");
        }
    }

    /// Tells those who watch, by each interface in both families. What fails is lost.
    pub(super) fn notify(&self, port: u16, datagram: &[u8]) {
        for interface in &self.interfaces {
            for to in directory::groups(port) {
                let sent = self.air.send_by(interface, to, datagram);
                if let Some(Err(error)) = sent {
                    tracing::debug!(interface = interface.name, %to, %error, "telling those who watch");
                }
            }
        }
    }

    /// Speaks to all. Returns what people should know: by which interface that is not possible, once.
    pub(super) fn multicast(&mut self, datagram: &[u8]) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for interface in &self.interfaces {
            for to in self.air.all() {
                let sent = self.air.send_by(interface, to, datagram);
                let Some(Err(error)) = sent else { continue };
                tracing::debug!(interface = interface.name, %to, %error, "sending to all");
                let key = (interface.index, to.is_ipv6());
                // A broadcast goes where a group goes as well.
                if to.ip().is_multicast() && !is_passing(&error) && !self.mute.contains(&key) {
                    self.mute.push(key);
                    let (group, interface) = (to.ip(), interface.name.clone());
                    warnings.push(Warning::NotSent { group, interface, error: error.to_string() });
                }
            }
        }
        warnings
    }
}

/// Whether an error will pass by itself: a full buffer, an IPv6 address that the kernel still checks for
/// duplicates (RFC 4862, 5.4), or an interface that has just gone.
fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENODEV)
        || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::AddrNotAvailable)
}

/// Has groups take other interfaces from now on. All of them, also where one fails; the first failure is returned.
pub(super) fn hear_on(
    groups: &mut [Groups],
    interfaces: &[Interface],
    receivers: &mut Vec<Watched>,
) -> Result<(), Error> {
    let changed = groups.iter_mut().fold(Ok(()), |changed, groups| changed.and(groups.change(interfaces)));
    changed.and(hear(groups, receivers))
}

/// Takes sockets that groups have opened among the receivers.
pub(super) fn hear(groups: &mut [Groups], receivers: &mut Vec<Watched>) -> Result<(), Error> {
    for groups in groups {
        groups.hand_over(|socket| {
            receivers.push(Watched::new(Arc::clone(socket))?);
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::model::World;
    use crate::net::Rendezvous;

    #[tokio::test]
    async fn what_could_not_be_joined_is_tried_again_and_keeps_nothing_else_from_it() {
        let hog = UdpSocket::bind("0.0.0.0:0").unwrap();
        let builder = Rendezvous::builder("foo".parse().unwrap(), World::new(2).unwrap())
            .discovery_port(hog.local_addr().unwrap().port());
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut links = Links::open(&builder, Vec::new(), vec![own]).unwrap();
        // After the one whose port another program keeps to itself.
        let free = "239.192.1.2:0".parse().unwrap();
        links.air.groups.push(Groups::join(free, &[]).unwrap());
        let lo = vec![Interface::loopback(Ipv4Addr::LOCALHOST)];

        assert!(links.change(lo.clone()).is_err() && !links.are_on(&lo));
        assert_eq!(links.interfaces(), lo, "it speaks by them");
        assert_eq!(links.air.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(links.receivers().len(), 2);

        drop(hog);
        links.change(lo.clone()).unwrap();
        assert!(links.are_on(&lo));
        assert_eq!(links.air.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(links.receivers().len(), 3);
    }
}
