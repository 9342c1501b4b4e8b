//! A node's own port, TCP and UDP, and the options of its connections.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::libc;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use super::watched::Watched;
use crate::model::JobId;
use crate::net::Network;
use crate::net::error::Error;

/// A node's own port. Every datagram, multicast included, is sent from one of `sockets`. So answers come back
/// to this port, which belongs to one process of several on a host, and a firewall needs no rule for other
/// ports.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// One for each family, listening on all its addresses, not blocking: IPv4 first, then IPv6 if the kernel
    /// has it.
    pub listeners: Vec<TcpListener>,
    /// On the same port, one for each family in the same order, not blocking.
    pub sockets: Vec<UdpSocket>,
    /// The port.
    pub port: u16,
}

/// Binds the given master port, or else the first port of the job that is free for both TCP and UDP, in both
/// families.
pub(crate) fn bind_endpoint(network: &Network, job: &JobId) -> Result<Endpoint, Error> {
    let Some(port) = network.master_port else { return bind_candidates(network, network.ports(job)) };
    bind_port(network.loopback, port, network.ttl).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortTaken { port, source },
        _ => Error::Socket { what: format!("cannot listen on port {port}"), source },
    })
}

/// Binds the first of `candidates` that is free for both TCP and UDP, in both families.
pub(crate) fn bind_candidates(
    network: &Network,
    candidates: impl Iterator<Item = u16>,
) -> Result<Endpoint, Error> {
    let mut last = (0, io::Error::from(io::ErrorKind::AddrInUse));
    for port in candidates {
        match bind_port(network.loopback, port, network.ttl) {
            Ok(endpoint) => return Ok(endpoint),
            Err(source) if is_of_this_port(&source) => last = (port, source),
            Err(source) => return Err(Error::socket(format!("cannot listen on port {port}"))(source)),
        }
    }
    let (port, source) = last;
    Err(Error::socket(format!("none of this job's ports is free on this host, the last of them {port}"))(
        source,
    ))
}

/// Binds a port on one address `only`, or on all addresses of both families.
fn bind_port(only: Option<Ipv4Addr>, port: u16, ttl: u8) -> io::Result<Endpoint> {
    let (listeners, port) = listen_at(only, port)?;
    let datagrams = |listener: &TcpListener| bind_datagrams(listener.local_addr()?, ttl);
    let sockets = listeners.iter().map(datagrams).collect::<io::Result<_>>()?;
    Ok(Endpoint { listeners, sockets, port })
}

/// Listens on a port, or for 0 on one that the kernel chooses, on one address `only` or on all addresses of
/// both families. Returns the listeners and the port.
fn listen_at(only: Option<Ipv4Addr>, port: u16) -> io::Result<(Vec<TcpListener>, u16)> {
    let first = listen((only.unwrap_or(Ipv4Addr::UNSPECIFIED), port).into())?;
    let port = first.local_addr()?.port();
    if only.is_some() {
        return Ok((vec![first], port));
    }
    Ok((and_in_ipv6(first, || listen((Ipv6Addr::UNSPECIFIED, port).into()))?, port))
}

/// What was opened for IPv4, and the same for IPv6 unless the kernel has none, or IPv6 is switched off.
fn and_in_ipv6<T>(first: T, open: impl FnOnce() -> io::Result<T>) -> io::Result<Vec<T>> {
    match open() {
        Ok(second) => Ok(vec![first, second]),
        Err(error) if is_without_ipv6(&error) => Ok(vec![first]),
        Err(error) => Err(error),
    }
}

/// Whether another port may be free: this port is taken, or denied to this user by a security module.
pub(super) fn is_of_this_port(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// Whether the error means that this kernel has no IPv6.
pub(crate) fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT))
}

/// How many connections of a large world may wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Listens again on the addresses of these datagram sockets, which were kept from an [`Endpoint`].
pub(crate) fn listen_again(sockets: &[Watched]) -> io::Result<Vec<TcpListener>> {
    sockets.iter().map(|socket| listen(socket.get_ref().local_addr()?)).collect()
}

/// How often the kernel is asked for a port for paths that is none of the jobs' and free in both families.
const ATTEMPTS: usize = 32;

/// Listens on a port that the kernel chooses, as a job's programs do, on one address `only` or on all
/// addresses of both families. Returns the listeners and the port.
pub(crate) fn listen_for_paths(only: Option<Ipv4Addr>) -> Result<(Vec<TcpListener>, u16), Error> {
    let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..ATTEMPTS {
        match listen_at(only, 0) {
            Ok((_, port)) if JobId::PORTS.contains(&port) => {}
            Ok(listening) => return Ok(listening),
            Err(error) => failed = error,
        }
    }
    Err(Error::socket("cannot listen on a port of the kernel's")(failed))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let tcp = open(address, Type::STREAM)?;
    // The job binds this port next, while connections of the rendezvous may be in TIME_WAIT.
    tcp.set_reuse_address(true)?;
    tcp.bind(&address.into())?;
    // Two sockets with SO_REUSEADDR can both bind; only one can listen, so listen decides whether the port is
    // free. A large world dials at once. The kernel cuts the backlog to net.core.somaxconn, 4096 by default.
    tcp.listen(BACKLOG)?;
    Ok(TcpListener::from(tcp))
}

/// Opens the datagram sockets of an observer, at ports that the kernel chooses: IPv4 first, then IPv6 if the
/// kernel has it.
pub(crate) fn bind_observer(ttl: u8) -> io::Result<Vec<UdpSocket>> {
    let first = bind_datagrams((Ipv4Addr::UNSPECIFIED, 0).into(), ttl)?;
    and_in_ipv6(first, || bind_datagrams((Ipv6Addr::UNSPECIFIED, 0).into(), ttl))
}

fn bind_datagrams(address: SocketAddr, ttl: u8) -> io::Result<UdpSocket> {
    // Without SO_REUSEADDR: two sockets would share the port, and unicast would reach only the later one.
    let udp = open(address, Type::DGRAM)?;
    udp.bind(&address.into())?;
    // Other processes on this host may be nodes.
    if address.is_ipv6() {
        udp.set_multicast_loop_v6(true)?;
        udp.set_multicast_hops_v6(u32::from(ttl))?;
    } else {
        udp.set_multicast_loop_v4(true)?;
        udp.set_multicast_ttl_v4(u32::from(ttl))?;
    }
    set_up_receiver(&udp, address);
    Ok(UdpSocket::from(udp))
}

/// A socket of the family of this address alone, which does not block.
pub(super) fn open(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Keeps a socket from receiving groups that only other sockets of the host have joined (IP_MULTICAST_ALL is
/// on by default). A sandbox without the option delivers stray datagrams, which the job tag filters out.
///
/// And makes room for the answers of a large world: the default receive buffer holds 166 small datagrams. The
/// kernel silently cuts the request to net.core.rmem_max.
pub(super) fn set_up_receiver(socket: &Socket, address: SocketAddr) {
    let _ = if address.is_ipv6() {
        socket.set_multicast_all_v6(false)
    } else {
        socket.set_multicast_all_v4(false)
    };
    let _ = socket.set_recv_buffer_size(4 << 20);
}

const WATCH: Duration = Duration::from_secs(2);
const WATCH_PROBES: u32 = 3;

/// Makes the kernel notice within 8 s that the remote host of an idle connection is silent. That of a process
/// that is stopped answers the probes.
pub(crate) fn make_watch(stream: &impl AsFd) -> io::Result<()> {
    let stream = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(WATCH).with_interval(WATCH).with_retries(WATCH_PROBES);
    stream.set_tcp_keepalive(&keepalive)?;
    stream.set_tcp_user_timeout(Some(WATCH + WATCH * WATCH_PROBES))
}

/// Makes the connection end by a reset when it is closed, which leaves no TIME_WAIT on the master's port.
pub(crate) fn reset_on_close(stream: &impl AsFd) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::iter;
    use std::net::TcpStream;

    use super::*;

    /// An endpoint at a port that the kernel chooses. Several attempts, since that port may be taken for UDP.
    fn any_port() -> Endpoint {
        bind_candidates(&Network::default(), iter::repeat_n(0, 20)).unwrap()
    }

    fn bind_given(port: u16) -> Result<Endpoint, Error> {
        let network = Network { master_port: Some(port), ..Network::default() };
        bind_endpoint(&network, &"foo".parse().unwrap())
    }

    #[test]
    fn an_endpoint_has_one_port_for_tcp_and_udp_and_does_not_block() {
        let network = Network { ttl: 7, ..Network::default() };
        let endpoint = bind_candidates(&network, iter::repeat_n(0, 20)).unwrap();
        assert_ne!(endpoint.port, 0);
        for (listener, socket) in endpoint.listeners.iter().zip(&endpoint.sockets) {
            assert_eq!(listener.local_addr().unwrap().port(), endpoint.port);
            assert_eq!(socket.local_addr().unwrap(), listener.local_addr().unwrap());
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }

        let (tcp, udp) = (SockRef::from(&endpoint.listeners[0]), SockRef::from(&endpoint.sockets[0]));
        assert!(tcp.reuse_address().unwrap());
        assert!(!udp.reuse_address().unwrap());
        assert!(udp.multicast_loop_v4().unwrap());
        assert!(!udp.multicast_all_v4().unwrap());
        assert_eq!(udp.multicast_ttl_v4().unwrap(), 7);
        if let (Some(listener), Some(socket)) = (endpoint.listeners.get(1), endpoint.sockets.get(1)) {
            let (tcp, udp) = (SockRef::from(listener), SockRef::from(socket));
            assert!(tcp.only_v6().unwrap() && udp.only_v6().unwrap());
            assert!(udp.multicast_loop_v6().unwrap() && !udp.multicast_all_v6().unwrap());
            assert_eq!(udp.multicast_hops_v6().unwrap(), 7);
        }
    }

    #[test]
    fn a_port_on_which_another_socket_is_bound_without_listening_is_free() {
        let rival = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        rival.set_reuse_address(true).unwrap();
        rival.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).unwrap();
        let port = rival.local_addr().unwrap().as_socket().unwrap().port();
        let endpoint = bind_given(port).unwrap();
        assert_eq!(endpoint.port, port);
        assert_eq!(rival.listen(1).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn the_error_says_when_no_port_of_the_job_is_free() {
        let holder = any_port();
        let refused = bind_candidates(&Network::default(), iter::once(holder.port)).unwrap_err();
        assert!(refused.to_string().contains("none of this job's ports is free"), "{refused}");
    }

    /// Both ends of a connection to `endpoint`.
    fn connection(endpoint: &Endpoint) -> (TcpStream, TcpStream) {
        let listener = &endpoint.listeners[0];
        listener.set_nonblocking(false).unwrap();
        let dialled = TcpStream::connect(("127.0.0.1", endpoint.port)).unwrap();
        (dialled, listener.accept().unwrap().0)
    }

    #[test]
    fn a_sessions_connection_has_the_keepalive_that_notices_a_host_that_is_gone() {
        let (dialled, accepted) = connection(&any_port());
        for stream in [&dialled, &accepted] {
            make_watch(stream).unwrap();
            let stream = SockRef::from(stream);
            assert!(stream.keepalive().unwrap());
            assert_eq!(stream.tcp_keepalive_time().unwrap(), WATCH);
            assert_eq!(stream.tcp_keepalive_interval().unwrap(), WATCH);
            assert_eq!(stream.tcp_keepalive_retries().unwrap(), WATCH_PROBES);
            assert_eq!(stream.tcp_user_timeout().unwrap(), Some(WATCH + WATCH * WATCH_PROBES));
        }
    }

    #[test]
    fn the_port_is_free_for_the_job_after_a_reset() {
        let is_free = |_| {
            let endpoint = any_port();
            let (mut dialled, accepted) = connection(&endpoint);
            reset_on_close(&accepted).unwrap();
            drop(accepted);
            assert_eq!(dialled.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
            let port = endpoint.port;
            drop(endpoint);
            // Without SO_REUSEADDR, as a careless job binds it.
            let job = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            job.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).is_ok()
        };
        // The kernel may give the port to another test in between.
        assert!((0..5).any(is_free));
    }
}
