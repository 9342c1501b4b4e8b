//! Ports for the job's own use, which this host gives to nobody else until the job's command has them.
//!
//! Linux takes a port away in two ways. It chooses free ports itself for connections and for port 0, all of
//! them in `net.ipv4.ip_local_port_range` and none in `ip_local_reserved_ports`
//! (Documentation/networking/ip-sysctl.rst): a port that it never chooses is safe from programs that name no
//! port. And a program names the port: it gets that unless a bound socket conflicts, and two sockets conflict
//! unless both have SO_REUSEADDR and neither listens (`inet_csk_bind_conflict` in
//! net/ipv4/inet_connection_sock.c).
//!
//! So a port is bound without SO_REUSEADDR and without listening, which keeps out everybody. When the command
//! starts, the bound socket gets SO_REUSEADDR, which the kernel reads at each later bind. A server with
//! SO_REUSEADDR, as nearly all set it, then binds the port by its number and listens beside the socket that
//! is held. All others are still kept out. A socket that listened from the beginning would keep out the
//! server, too.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use socket2::{Domain, Socket, Type};

use super::endpoint::{is_of_this_port, is_without_ipv6};
use crate::model::JobId;
use crate::net::Network;
use crate::net::error::Error;

/// Where the kernel says which ports it chooses, and which of these it does not, in this network namespace.
const CHOSEN: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Ports that mingle holds for a job: TCP, on all addresses of both families.
#[derive(Debug, Default)]
pub struct HeldPorts {
    sockets: Vec<Socket>,
    numbers: Vec<u16>,
}

/// While this value lives, processes that start inherit the sockets.
#[derive(Debug)]
#[must_use = "dropping this keeps the sockets from processes that start"]
pub struct Inherited<'a>(&'a [Socket]);

impl HeldPorts {
    /// Holds the first `count` free ports of a sequence that follows from the job. Two jobs on the same host
    /// rarely try the same ports, and never hold the same port.
    ///
    /// # Errors
    /// [`Error::TooFewPorts`], and [`Error::Socket`] if no socket can be opened.
    pub fn hold(count: usize, job: &JobId, network: &Network) -> Result<Self, Error> {
        let mut held = Self::default();
        if count == 0 {
            return Ok(held);
        }
        let (chosen, reserved) = (ranges(&read(CHOSEN)), ranges(&read(RESERVED)));
        let contains =
            |ranges: &[RangeInclusive<u16>], port: &u16| ranges.iter().any(|range| range.contains(port));
        let is_safe = |port: &u16| !contains(&chosen, port) || contains(&reserved, port);
        let (mut safe, mut last) = (0, None);
        for port in job.own_ports().filter(is_safe).filter(|port| Some(*port) != network.master_port) {
            safe += 1;
            match hold(port) {
                Ok(socket) => {
                    held.sockets.push(socket);
                    held.numbers.push(port);
                }
                Err(error) if is_of_this_port(&error) => last = Some(error),
                Err(source) => return Err(Error::socket(format!("cannot hold port {port}"))(source)),
            }
            if held.numbers.len() == count {
                return Ok(held);
            }
        }
        let (free, chosen) = (held.numbers.len(), read(CHOSEN));
        Err(Error::TooFewPorts { wanted: count, free, safe, chosen, source: last })
    }

    /// The numbers of the ports.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// Opens the ports for the command that starts next, and for the processes that the command starts.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn hand_over(&self) -> io::Result<Inherited<'_>> {
        for socket in &self.sockets {
            socket.set_reuse_address(true)?;
            socket.set_cloexec(false)?;
        }
        Ok(Inherited(&self.sockets))
    }
}

impl Drop for Inherited<'_> {
    fn drop(&mut self) {
        for socket in self.0 {
            let _ = socket.set_cloexec(true);
        }
    }
}

/// Binds the port for this process alone: one socket for both families, or for IPv4 if there is no IPv6.
fn hold(port: u16) -> io::Result<Socket> {
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if is_without_ipv6(&error) => bind((Ipv4Addr::UNSPECIFIED, port).into()),
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A setting of the kernel as a list of ranges, or nothing where this system does not have it.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().replace('\t', "-")
}

/// The ranges of a list such as `8080,9000-9010`.
fn ranges(list: &str) -> Vec<RangeInclusive<u16>> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse().ok()?..=high.parse().ok()?)
    };
    list.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};

    use super::*;

    fn two(job: &str) -> HeldPorts {
        HeldPorts::hold(2, &job.parse().unwrap(), &Network::default()).unwrap()
    }

    /// A server at this port.
    fn serve(ip: impl Into<std::net::IpAddr>, port: u16, reuses: bool) -> io::Result<Socket> {
        let address = SocketAddr::from((ip.into(), port));
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(reuses)?;
        socket.bind(&address.into())?;
        socket.listen(1)?;
        Ok(socket)
    }

    fn is_taken<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    #[test]
    fn a_held_port_is_taken_for_everybody_until_the_command_starts() {
        let held = two("held");
        for &port in held.numbers() {
            assert!(is_taken(serve(Ipv4Addr::UNSPECIFIED, port, true)));
            assert!(is_taken(serve(Ipv4Addr::LOCALHOST, port, true)));
            assert!(is_taken(serve(Ipv4Addr::UNSPECIFIED, port, false)));
            assert!(
                is_taken(serve(Ipv6Addr::LOCALHOST, port, true))
                    || !held.sockets[0].local_addr().unwrap().is_ipv6()
            );
        }
    }

    #[test]
    fn a_server_takes_a_port_that_is_handed_over_and_a_program_that_probes_does_not() {
        let held = two("handed over");
        drop(held.hand_over().unwrap());
        for &port in held.numbers() {
            assert!(is_taken(serve(Ipv4Addr::UNSPECIFIED, port, false)));
            // Closing would not do: a process that another test starts at this moment has the socket, too.
            serve(Ipv4Addr::LOCALHOST, port, true).unwrap().shutdown(Shutdown::Both).unwrap();
            let server = serve(Ipv4Addr::UNSPECIFIED, port, true).unwrap();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            server.accept().unwrap();
        }
    }

    #[test]
    fn only_a_process_that_starts_at_the_handover_inherits_the_sockets() {
        let held = two("inherited");
        let closes = |flags| held.sockets.iter().all(|socket| fcntl(socket, FcntlArg::F_GETFD) == Ok(flags));
        assert!(closes(FdFlag::FD_CLOEXEC.bits()));
        let inherited = held.hand_over().unwrap();
        assert!(closes(0));
        drop(inherited);
        assert!(closes(FdFlag::FD_CLOEXEC.bits()));
    }

    #[test]
    fn jobs_hold_different_ports_and_none_that_the_kernel_or_another_job_chooses() {
        let all = [two("same"), two("same"), two("other")];
        let mut ports: Vec<u16> = all.iter().flat_map(HeldPorts::numbers).copied().collect();
        let chosen = ranges(&read(CHOSEN));
        assert!(ports.iter().all(|port| !chosen.iter().any(|range| range.contains(port))));
        assert!(ports.iter().all(|port| !JobId::PORTS.contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
    }

    #[test]
    fn the_port_that_the_user_gives_the_master_is_not_held() {
        let job: JobId = "master".parse().unwrap();
        let network = Network { master_port: job.own_ports().next(), ..Network::default() };
        let held = HeldPorts::hold(1, &job, &network).unwrap();
        assert_ne!(held.numbers()[0], network.master_port.unwrap());
    }

    #[test]
    fn a_port_that_somebody_has_is_left_to_them() {
        let first = two("taken");
        let port = first.numbers()[1];
        drop(first);
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        assert!(!two("taken").numbers().contains(&port));
    }

    #[test]
    fn the_kernels_settings_are_read_as_it_writes_them() {
        assert_eq!(ranges("8080,9000-9010"), [8080..=8080, 9000..=9010]);
        assert!(ranges("").is_empty());
        assert_eq!(ranges(&read(CHOSEN)).len(), 1);
    }
}
