//! The sockets of a rendezvous, opened to be looked at: for a program that says why a network does not carry one.
//!
//! It is the code of the rendezvous itself, so that what works here works there.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};

use super::endpoint::{Endpoint, bind_endpoint, reset_on_close};
use super::filter::Filter;
use super::interface::{self, Family, Interface};
use super::multicast::{Groups, send_by};
use crate::error::Error;
use crate::id::HostName;

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

/// A node's own port and the group, as a rendezvous opens them.
#[derive(Debug)]
pub struct Station {
    endpoint: Endpoint,
    group: SocketAddrV4,
    groups: Groups,
    interfaces: Vec<Interface>,
}

impl Station {
    /// Binds `port`, or else the first of `candidates` that is free, and joins `group` on `interfaces`.
    ///
    /// # Errors
    /// [`Error::PortTaken`] and [`Error::Socket`], as of a rendezvous.
    pub fn open(
        interfaces: Vec<Interface>,
        group: SocketAddrV4,
        port: Option<u16>,
        candidates: impl Iterator<Item = u16>,
        ttl: u8,
    ) -> Result<Self, Error> {
        let endpoint = bind_endpoint(port, candidates, ttl)?;
        let groups = Groups::join(SocketAddr::V4(group), &interfaces)?;
        Ok(Self { endpoint, group, groups, interfaces })
    }

    /// The port, of TCP and UDP.
    pub fn port(&self) -> u16 {
        self.endpoint.port
    }

    /// The node's own UDP socket, which does not block.
    pub fn socket(&self) -> &UdpSocket {
        &self.endpoint.sockets[0]
    }

    /// The listening socket, which does not block.
    pub fn listener(&self) -> &TcpListener {
        &self.endpoint.listeners[0]
    }

    /// The sockets that hear the group; they do not block.
    pub fn ears(&self) -> &[UdpSocket] {
        self.groups.sockets()
    }

    /// Which interfaces could not join the group, and why.
    pub fn warnings(&self) -> &[String] {
        self.groups.warnings()
    }

    /// Up to `limit` endpoints under which others may reach this node, the preferred one first.
    pub fn endpoints(&self, limit: usize) -> Vec<SocketAddr> {
        interface::endpoints(&self.interfaces, self.endpoint.port, limit, Family::V4)
    }

    /// Sends to the group by every interface, each its own bytes, and says by which (its index) it failed.
    pub fn multicast(&self, bytes: impl Fn(&Interface) -> Vec<u8>) -> Vec<(u32, io::Error)> {
        let send = |interface: &Interface| {
            let source = interface.addresses.iter().find_map(|address| match address.addr() {
                ip @ IpAddr::V4(_) => Some(ip),
                IpAddr::V6(_) => None,
            })?;
            let sent = send_by(
                self.socket(),
                SocketAddr::V4(self.group),
                interface.index,
                source,
                &bytes(interface),
            );
            sent.err().map(|error| (interface.index, error))
        };
        self.interfaces.iter().filter_map(send).collect()
    }
}
