//! Sockets whose datagrams the runtime waits for.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::net::error::Error;

/// A socket that the runtime watches for incoming datagrams. It is not watched for writing: a datagram is
/// sent at once or lost, also by other holders of the same socket.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<Arc<UdpSocket>>);

impl Watched {
    /// Watches a socket, which must not block.
    #[allow(
        deprecated,
        reason = "the replacement is unsafe for any descriptor; the one in an Arc<UdpSocket> stays open and the same"
    )]
    pub(crate) fn new(socket: Arc<UdpSocket>) -> Result<Self, Error> {
        let watched = AsyncFd::with_interest(socket, Interest::READABLE);
        watched.map(Self).map_err(Error::socket("cannot watch the sockets"))
    }

    /// Whether this is that socket.
    pub(crate) fn is(&self, socket: &Arc<UdpSocket>) -> bool {
        Arc::ptr_eq(self.0.get_ref(), socket)
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

/// Waits until one of the sockets has a datagram.
pub(crate) async fn readable(sockets: &[Watched]) {
    std::future::poll_fn(|context| {
        let ready = sockets.iter().map(|socket| socket.0.poll_read_ready(context));
        // Polls every socket, so that each wakes this task.
        let ready = ready.filter(Poll::is_ready).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
