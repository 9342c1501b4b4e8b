//! Sockets whose datagrams the runtime waits for.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;

/// A socket that the runtime watches for what arrives. Sending needs no readiness, so it can be sent from by whoever
/// else holds it, and that it can be written to wakes nobody.
#[derive(Debug)]
pub(super) struct Watched(AsyncFd<Arc<UdpSocket>>);

impl Watched {
    /// Watches a socket, which must not block.
    #[allow(
        deprecated,
        reason = "what takes its place is unsafe, as it must be of any descriptor; one that an Arc holds stays what it is"
    )]
    pub(super) fn new(socket: impl Into<Arc<UdpSocket>>) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot watch the sockets".to_owned(), source };
        Ok(Self(AsyncFd::with_interest(socket.into(), Interest::READABLE).map_err(failed)?))
    }

    /// The next datagram, if the runtime has seen that there is one.
    pub(super) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv_from(buffer))
    }
}

/// Until one of the sockets has something.
pub(super) async fn readable(sockets: &[Watched]) {
    std::future::poll_fn(|context| {
        let ready = sockets.iter().map(|socket| socket.0.poll_read_ready(context));
        // All of them are asked, so that each wakes this task.
        let ready = ready.filter(Poll::is_ready).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
