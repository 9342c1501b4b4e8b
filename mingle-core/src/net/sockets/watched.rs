//! A socket whose datagrams the runtime waits for.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::net::error::Error;

/// A socket that the runtime watches for incoming datagrams. It is not watched for writing: a datagram is
/// sent at once or lost.
pub(crate) type Watched = AsyncFd<UdpSocket>;

/// Watches a socket, which must not block.
#[allow(
    deprecated,
    reason = "the replacement is unsafe for any descriptor; that of a UdpSocket stays open and the same"
)]
pub(crate) fn watch(socket: UdpSocket) -> Result<Watched, Error> {
    AsyncFd::with_interest(socket, Interest::READABLE).map_err(Error::socket("cannot watch the sockets"))
}

/// The next datagram. [`io::ErrorKind::WouldBlock`] if the runtime has seen none.
pub(crate) fn try_recv_from(socket: &Watched, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    socket.try_io(Interest::READABLE, |socket| socket.recv_from(buffer))
}
