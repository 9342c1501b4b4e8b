//! All datagram sockets of a node, and how it sends to all nodes: by multicast and broadcast on every
//! interface.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::endpoint::is_without_ipv6;
use super::multicast::{Groups, broadcast_receiver, send_by};
use super::watched::{Watched, try_recv_from, watch};
use crate::host::{Interface, Kind};
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
    /// The sockets of the node's own port, IPv4 first. Sending does not wait: a datagram that does not fit
    /// the buffer is lost, as on any network.
    pub(crate) own: Vec<Watched>,
    /// Of both families.
    groups: Vec<Groups>,
    /// If broadcasts are wanted, the socket that receives them and the address to send them to.
    broadcast: Option<(Watched, SocketAddr)>,
    /// The interfaces (by index) and families on which sending has failed: each is warned of once.
    failed: BTreeSet<(u32, bool)>,
    /// When the groups are joined again, and when it is time to look at the interfaces.
    rejoin: Instant,
    look: Instant,
}

impl Links {
    /// Joins the groups, IPv4 first and IPv6 if the kernel has it, on the `interfaces` that have an address
    /// of the family, unless the world is one node `alone`, which has nothing to hear. `own` are the sockets
    /// of the node's own port, which broadcasts use, too.
    pub(crate) fn open(
        groups: Vec<SocketAddr>,
        network: &Network,
        alone: bool,
        interfaces: Vec<Interface>,
        own: Vec<UdpSocket>,
    ) -> Result<Self, Error> {
        let joined = if alone { &[] } else { &interfaces[..] };
        let mut all = Vec::new();
        for group in groups.into_iter().take(own.len()) {
            match Groups::join(group, joined) {
                Ok(groups) => all.push(groups),
                Err(Error::Socket { source, .. }) if group.is_ipv6() && is_without_ipv6(&source) => {}
                Err(error) => return Err(error),
            }
        }
        let mut broadcast = None;
        if network.broadcast && !alone {
            let set = SockRef::from(&own[0]).set_broadcast(true);
            set.map_err(Error::socket("cannot send broadcasts"))?;
            let (port, any) = (network.discovery_port, Ipv4Addr::BROADCAST);
            broadcast = Some((watch(broadcast_receiver(port)?)?, (any, port).into()));
        }
        Ok(Self {
            interfaces,
            own: own.into_iter().map(watch).collect::<Result<_, _>>()?,
            groups: all,
            broadcast,
            failed: BTreeSet::new(),
            rejoin: clock() + REJOIN,
            look: clock() + LOOK,
        })
    }

    /// Hears from now on only what arrives by this interface. Otherwise a socket that has joined an IPv6
    /// group on a single interface hears the group on each interface where any socket has joined it
    /// (`inet6_mc_check` in Linux's net/ipv6/mcast.c compares the group alone).
    pub(crate) fn hear_only(&self, interface: &str) -> Result<(), Error> {
        for (socket, _) in self.receivers() {
            let bound = SockRef::from(socket.get_ref()).bind_device(Some(interface.as_bytes()));
            bound.map_err(Error::socket("cannot bind a socket to an interface"))?;
            // What has arrived before may have come by another.
            while socket.get_ref().recv_from(&mut [0]).is_ok() {}
        }
        Ok(())
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The sockets, and how the datagrams of each were sent. Those of the node's own port come first.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = (&Watched, Cast)> {
        let own = self.own.iter().map(|socket| (socket, Cast::Unicast));
        let broadcasts = self.broadcast.iter().map(|(socket, _)| (socket, Cast::Broadcast));
        let groups = self.groups.iter().flat_map(Groups::sockets).map(|socket| (socket, Cast::Multicast));
        own.chain(broadcasts).chain(groups)
    }

    /// Waits until one of the sockets has a datagram.
    pub(crate) async fn readable(&self) {
        poll_fn(|context| {
            // Polls every socket, so that each wakes this task.
            let ready =
                self.receivers().filter(|(socket, _)| socket.poll_read_ready(context).is_ready()).count();
            if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A datagram that has arrived, with its source address.
    pub(crate) fn received(&self) -> Option<(SocketAddr, Cast, Vec<u8>)> {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for (socket, cast) in self.receivers() {
            match try_recv_from(socket, &mut buffer) {
                // Too long for the protocol: a node drops it, too.
                Ok((length, _)) if length > MAX_DATAGRAM => {}
                Ok((length, from)) => return Some((from, cast, buffer[..length].to_vec())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => tracing::debug!(%error, "receiving"),
            }
        }
        None
    }

    /// The groups, IPv4 first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups.iter().map(|groups| groups.group)
    }

    /// The socket of the own port that sends to this address.
    fn socket(&self, to: SocketAddr) -> Option<&UdpSocket> {
        self.own.get(usize::from(to.is_ipv6())).map(Watched::get_ref)
    }

    /// Sends one datagram to these groups or broadcast addresses, by each interface that has an address of
    /// their family. Returns what has failed.
    fn send_by_each(&self, groups: &[SocketAddr], bytes: &[u8]) -> Vec<(&Interface, SocketAddr, io::Error)> {
        let mut failures = Vec::new();
        for by in &self.interfaces {
            for &to in groups {
                let from = self.socket(to).zip(by.source(to.is_ipv6()));
                let sent = from.map(|(own, source)| send_by(own, to, by.index, source, bytes));
                if let Some(Err(error)) = sent {
                    tracing::debug!(interface = by.name, %to, %error, "sending to all");
                    failures.push((by, to, error));
                }
            }
        }
        failures
    }

    /// Warnings for the caller, after the start.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = self.groups.iter().flat_map(Groups::warnings).cloned().collect();
        let joined: usize = self.groups.iter().map(Groups::joined).sum();
        if joined == 0 && !self.groups.is_empty() {
            warnings.push(Warning::NoneJoined);
        }
        warnings
    }

    /// Uses other interfaces from now on: joins the groups on new ones, and leaves them on those that have
    /// gone. An error on one interface does not stop the others, and the next call tries it again.
    fn change(&mut self, interfaces: Vec<Interface>) -> Result<(), Error> {
        if interfaces != self.interfaces {
            self.interfaces = interfaces;
            self.failed.clear();
        }
        let changed = self.groups.iter_mut().map(|groups| groups.change(&self.interfaces));
        changed.fold(Ok(()), Result::and)
    }

    /// Uses the interfaces from now on that the network selects. Nothing changes where all are gone, or all
    /// but loopback, at which no other host could reach this one: they may come back, as after a switch has
    /// restarted. Returns the error of a change to other interfaces than before.
    pub(crate) fn follow(&mut self, network: &Network) -> Option<Error> {
        let selected = network.select_interfaces().ok()?;
        let are_loopback = |all: &[Interface]| all.iter().all(|interface| interface.kind == Kind::Loopback);
        if are_loopback(&selected) && !are_loopback(&self.interfaces) {
            return None;
        }
        let again = selected == self.interfaces;
        let error = self.change(selected).err()?;
        tracing::debug!(error = error.chain(), again, "changing the interfaces");
        Some(error).filter(|_| !again)
    }

    /// When to call [`Links::keep_up`], if it may look at the interfaces so much later than [`LOOK`].
    pub(crate) fn due(&self, slack: Duration) -> Instant {
        self.look + slack
    }

    /// Returns whether it is time to look at the interfaces. At some of these times joins the groups again on
    /// all interfaces; see [`Groups::rejoin`].
    pub(crate) fn keep_up(&mut self) -> bool {
        let now = clock();
        if now < self.look {
            return false;
        }
        self.look = now + LOOK;
        if now >= self.rejoin {
            self.rejoin = now + REJOIN;
            self.groups.iter().for_each(Groups::rejoin);
        }
        true
    }

    pub(crate) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let sent = self.socket(to).map(|own| own.send_to(datagram, to));
        if let Some(Err(error)) = sent {
            tracing::debug!(%to, %error, "sending");
        }
    }

    /// Sends to the directory groups, by each interface in both families. A datagram that cannot be sent is
    /// lost.
    pub(crate) fn advertise(&self, port: u16, datagram: &[u8]) {
        self.send_by_each(&advertiser::groups(port), datagram);
    }

    /// Whether this node has joined a group, and can send to all: then it hears its own multicasts.
    pub(crate) fn multicasts(&self) -> bool {
        let groups = &self.groups;
        groups.iter().any(|groups| groups.joined() > 0) && self.failed.is_empty()
    }

    /// Sends to all nodes. Returns a warning for each interface that cannot send to a group, once.
    pub(crate) fn multicast(&mut self, datagram: &[u8]) -> Vec<Warning> {
        let all: Vec<SocketAddr> = self.groups().chain(self.broadcast.as_ref().map(|(_, to)| *to)).collect();
        let mut failures = self.send_by_each(&all, datagram);
        // No warning for a broadcast: it leaves by the same interface as the group, which is warned of.
        failures.retain(|(_, to, error)| to.ip().is_multicast() && !is_temporary(error));
        let warning = |(by, to, error): (&Interface, SocketAddr, io::Error)| {
            let (group, interface, error) = (to.ip(), by.name.clone(), error.to_string());
            ((by.index, to.is_ipv6()), Warning::NotSent { group, interface, error })
        };
        let warnings: Vec<_> = failures.into_iter().map(warning).collect();
        let new = |(key, warning)| self.failed.insert(key).then_some(warning);
        warnings.into_iter().filter_map(new).collect()
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
        links.groups.push(Groups::join(free, &[]).unwrap());
        let lo = vec![Interface::loopback(Ipv4Addr::LOCALHOST)];

        assert!(links.change(lo.clone()).is_err());
        assert_eq!(links.interfaces(), lo, "it sends by them");
        assert_eq!(links.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(links.receivers().count(), 2);

        // If it gave the port up, another program could take it.
        SockRef::from(&hog).set_reuse_address(true).unwrap();
        links.change(lo).unwrap();
        assert_eq!(links.groups.iter().map(Groups::joined).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(links.receivers().count(), 3);

        // A switch forgets a group in which nobody says that it is.
        (links.look, links.rejoin) = (clock(), clock());
        assert!(links.keep_up());
        let rejoin = links.rejoin;
        assert!(rejoin > clock() && rejoin <= clock() + REJOIN);
        links.look = clock();
        assert!(links.keep_up() && links.rejoin == rejoin, "a look between puts it off");
    }
}
