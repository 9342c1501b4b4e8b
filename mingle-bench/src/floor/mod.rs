//! What the same result costs at least: roles are given, and nothing is elected, checked or encrypted.
//!
//! A word is three bytes, its kind and the rank that it concerns. Who waits repeats itself as mingle does: after 20 ms,
//! then doubling to 250 ms; and dials race 60 ms apart, twelve of them, so that a lost SYN costs both the same.

mod follower;
mod leader;
mod within;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

pub use within::within;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 195, 7, 7), 29498);

/// The kinds of words.
const WHO: u8 = 1;
const HERE: u8 = 2;
const JOIN: u8 = 3;
const PREPARE: u8 = 4;
const READY: u8 = 5;
const COMMIT: u8 = 6;
const DONE: u8 = 7;

/// Takes part in a world with this rank, to the end. Rank 0 gathers the others.
///
/// # Errors
/// Where the kernel refuses something.
pub fn take_part(rank: u16, world: u16) -> io::Result<()> {
    if rank == 0 { leader::gather(world) } else { follower::follow(rank) }
}

fn word(kind: u8, rank: u16) -> [u8; 3] {
    let [low, high] = rank.to_le_bytes();
    [kind, low, high]
}

/// The next word that has arrived.
fn hear(socket: &UdpSocket) -> Option<(u8, u16, SocketAddr)> {
    let mut bytes = [0; 3];
    let (_, from) = socket.recv_from(&mut bytes).ok()?;
    Some((bytes[0], u16::from_le_bytes([bytes[1], bytes[2]]), from))
}

/// A socket that hears the group by one interface, or by that of the default route.
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

/// When something is repeated next.
struct Repeat {
    at: Instant,
    pause: Duration,
}

impl Repeat {
    fn new() -> Self {
        let pause = Duration::from_millis(20);
        Self { at: Instant::now() + pause, pause }
    }

    /// Whether it is time; then the next time comes later.
    fn due(&mut self) -> bool {
        let due = Instant::now() >= self.at;
        if due {
            self.pause = (self.pause * 2).min(Duration::from_millis(250));
            self.at = Instant::now() + self.pause;
        }
        due
    }
}

/// Waits until one of these can be read, or one of those written, or it is time.
fn wait(read: &[BorrowedFd<'_>], write: &[BorrowedFd<'_>], until: Instant) -> io::Result<()> {
    let readers = read.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN));
    let writers = write.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLOUT));
    let mut all: Vec<_> = readers.chain(writers).collect();
    let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    poll(&mut all, timeout)?;
    Ok(())
}
