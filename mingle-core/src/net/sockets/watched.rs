//! A socket whose datagrams the runtime waits for.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::task::Context;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::net::error::Error;

/// A socket that the runtime watches for incoming datagrams. It is not watched for writing: a datagram is
/// sent at once or lost.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<UdpSocket>);

impl Watched {
    /// Watches a socket, which must not block.
    #[allow(
        deprecated,
        reason = "the replacement is unsafe for any descriptor; that of a UdpSocket stays open and the same"
    )]
    pub(crate) fn new(socket: UdpSocket) -> Result<Self, Error> {
        let watched = AsyncFd::with_interest(socket, Interest::READABLE);
        watched.map(Self).map_err(Error::socket("cannot watch the sockets"))
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        self.0.get_ref()
    }

    /// Whether it has a datagram; if it has none, it wakes this task when one arrives.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> bool {
        self.0.poll_read_ready(context).is_ready()
    }

    /// The next datagram, whether or not the runtime has seen one.
    pub(crate) fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.get_ref().recv_from(buffer)
    }

    /// The next datagram. [`io::ErrorKind::WouldBlock`] if the runtime has seen none.
    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv_from(buffer))
    }
}
