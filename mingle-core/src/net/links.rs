//! How a node speaks to all: by multicast and broadcast on every interface, in both families.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use super::Builder;
use super::interface::Interface;
use super::lobby;
use super::multicast::{Air, Groups};
use super::watched::Watched;
use crate::error::Error;

/// The sockets that datagrams leave from and arrive at, and the interfaces that they use.
#[derive(Debug)]
pub(super) struct Links {
    interfaces: Vec<Interface>,
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
        let mut links = Self { interfaces, alone, air, receivers, mute: Vec::new() };
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

    pub(super) fn receivers(&self) -> &[Watched] {
        &self.receivers
    }

    /// All of them, without the runtime.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Arc<UdpSocket>> {
        let broadcasts = self.air.broadcast.as_ref().map(|(socket, _)| socket);
        self.air.own.iter().chain(broadcasts).chain(self.air.groups.iter().flat_map(Groups::sockets))
    }

    /// What is wrong from the start, for people.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.air.groups.iter().flat_map(Groups::warnings).cloned().collect();
        let joined: usize = self.air.groups.iter().map(Groups::joined).sum();
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
        for groups in &mut self.air.groups {
            groups.change(&self.interfaces)?;
        }
        hear(&mut self.air.groups, &mut self.receivers)?;
        self.mute.clear();
        Ok(())
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
            for to in lobby::groups(port) {
                let sent = self.air.send_by(interface, to, datagram);
                if let Some(Err(error)) = sent {
                    tracing::debug!(interface = interface.name, %to, %error, "telling those who watch");
                }
            }
        }
    }

    /// Speaks to all. Returns what people should know: by which interface that is not possible, once.
    pub(super) fn multicast(&mut self, datagram: &[u8]) -> Vec<String> {
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
                    let (group, name) = (to.ip(), interface.name.escape_debug());
                    warnings.push(format!("cannot send to group {group} on {name}: {error}"));
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

/// Takes sockets that groups have opened among the receivers.
pub(super) fn hear(groups: &mut [Groups], receivers: &mut Vec<Watched>) -> Result<(), Error> {
    for groups in groups {
        for socket in groups.take_new() {
            receivers.push(Watched::new(Arc::clone(socket))?);
        }
    }
    Ok(())
}
