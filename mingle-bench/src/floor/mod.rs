//! The least that a program must do for the same result. Roles are given; nothing is elected, checked or
//! encrypted.
//!
//! A message has three bytes: its kind and the rank that it concerns. A waiting node repeats its message as
//! mingle does, after 20 ms, then doubling to 250 ms. It starts up to twelve dials 40 ms apart, so a lost SYN
//! costs as much as in mingle. Each node proves its path to each other one before it is ready.

mod follower;
mod leader;
mod paths;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 195, 7, 7), 29498);

/// The kinds of messages.
const WHO: u8 = 1;
const HERE: u8 = 2;
const JOIN: u8 = 3;
const PREPARE: u8 = 4;
const READY: u8 = 5;
const COMMIT: u8 = 6;
const DONE: u8 = 7;

/// Takes part in a world with this rank, to the end. Rank 0 leads.
///
/// # Errors
/// If a system call fails.
pub fn take_part(rank: u16, world: u16) -> io::Result<()> {
    if rank == 0 { leader::lead(world) } else { follower::follow(rank, world) }
}

fn message(kind: u8, rank: u16) -> [u8; 3] {
    let [low, high] = rank.to_le_bytes();
    [kind, low, high]
}

/// The next message that has arrived.
fn receive(socket: &UdpSocket) -> Option<(u8, u16, SocketAddr)> {
    let mut bytes = [0; 3];
    let (_, from) = socket.recv_from(&mut bytes).ok()?;
    Some((bytes[0], u16::from_le_bytes([bytes[1], bytes[2]]), from))
}

/// A socket that has joined the group on this interface, or on that of the default route.
fn group(interface: Option<u32>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(GROUP).into())?;
    let interface = interface
        .map_or(InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED), InterfaceIndexOrAddress::Index);
    socket.join_multicast_v4_n(GROUP.ip(), &interface)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// When the next repetition is due.
struct Repeat {
    at: Instant,
    pause: Duration,
}

impl Repeat {
    fn new() -> Self {
        let pause = Duration::from_millis(20);
        Self { at: Instant::now() + pause, pause }
    }

    /// Whether the repetition is due. If so, sets the time of the next one.
    fn due(&mut self) -> bool {
        let due = Instant::now() >= self.at;
        if due {
            self.pause = (self.pause * 2).min(Duration::from_millis(250));
            self.at = Instant::now() + self.pause;
        }
        due
    }
}

/// Waits until one of `read` is readable, one of `write` is writable, or `until` has come.
fn wait(read: &[BorrowedFd<'_>], write: &[BorrowedFd<'_>], until: Instant) -> io::Result<()> {
    let readers = read.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN));
    let writers = write.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLOUT));
    let mut all: Vec<_> = readers.chain(writers).collect();
    let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    poll(&mut all, timeout)?;
    Ok(())
}
