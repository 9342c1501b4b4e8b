//! Reading the sockets. A node must not take its own pause for the silence of others, so what has arrived is
//! read before a timer fires.

use std::io;
use std::net::SocketAddr;

use super::Driver;
use crate::net::sockets::links::Cast;
use crate::net::sockets::watched::{Watched, try_recv_from};
use crate::proto::{MAX_DATAGRAM, Node, Time, was_stopped};
use crate::wire::may_be_for_group;

/// The most datagrams that are read from a socket before timers and connections are served.
pub(super) const BATCH: usize = 256;
/// How often the runtime's other tasks run before a late timer fires: a connection is accepted, then its task
/// starts, then it reads.
pub(super) const SETTLE: usize = 4;
/// The most datagrams that are read from a socket after a pause. A receive buffer rarely holds more.
pub(super) const BACKLOG: usize = 8192;

impl Driver {
    /// Fires the timers that are due.
    pub(super) async fn fire_timers(&mut self, node: &mut Node) {
        let now = self.now();
        let Some(due) = node.poll_timeout().filter(|&due| due <= now) else { return };
        if was_stopped(due, now) {
            // This process was stopped, or the machine slept: the others' messages wait unread.
            for _ in 0..SETTLE {
                self.settle(node).await;
                self.receive(node, BACKLOG);
            }
        } else {
            // The sockets may hold an answer that the runtime has not reported yet. Without this look, each
            // of a thousand nodes in one thread would solicit all the others.
            let recv_from = |socket: &Watched, buffer: &mut [u8]| socket.get_ref().recv_from(buffer);
            self.read(recv_from, BATCH, |now, from, datagram| node.handle_datagram(now, from, datagram));
            if node.is_about_to_commit() {
                // A member whose connection has ended is gone, although its ready has arrived. The runtime
                // polls the sockets once, and then their tasks.
                self.settle(node).await;
                self.settle(node).await;
            }
        }
        node.handle_timeout(self.now());
    }

    /// Lets the runtime's other tasks run, and handles what they report: the runtime polls sockets and tasks
    /// only while this one yields.
    pub(super) async fn settle(&mut self, node: &mut Node) {
        tokio::task::yield_now().await;
        self.connections.accept_waiting().await;
        while let Some(event) = self.connections.next_waiting() {
            self.handle(node, event);
        }
    }

    /// Reads at most `most` datagrams from each socket. Returns whether there may be more.
    pub(super) fn receive(&mut self, node: &mut Node, most: usize) -> bool {
        self.read(try_recv_from, most, |now, from, datagram| node.handle_datagram(now, from, datagram))
    }

    /// Passes at most `most` datagrams from each socket to `handle`; if it is not one of the node's own port,
    /// those to all alone, so that nobody draws an answer of each node by one datagram. Returns whether there
    /// may be more.
    pub(super) fn read(
        &self,
        receive: impl Fn(&Watched, &mut [u8]) -> io::Result<(usize, SocketAddr)>,
        most: usize,
        mut handle: impl FnMut(Time, SocketAddr, &[u8]),
    ) -> bool {
        let (mut more, mut buffer) = (false, [0; MAX_DATAGRAM + 1]);
        for (socket, cast) in self.links.receivers() {
            more |= (0..most).all(|_| match receive(socket, &mut buffer) {
                Ok((length, from)) => {
                    let datagram = &buffer[..length];
                    if length <= MAX_DATAGRAM && (cast == Cast::Unicast || may_be_for_group(datagram)) {
                        handle(self.now(), from, datagram);
                    }
                    true
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        tracing::debug!(%error, "receiving");
                    }
                    false
                }
            });
        }
        more
    }
}
