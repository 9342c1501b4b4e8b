//! What a state machine asks of its driver, and what the driver reports of the connections.

use std::net::SocketAddr;

use super::report::Event;
use super::session::Order;
use crate::model::Fault;
use crate::wire::{ANSWER, TOKEN};

/// A connection that this node opens. The node numbers those that prove paths, and each session its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u32);

/// What the driver reports about a connection that proves a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathNews {
    /// The connection is open.
    Opened {
        /// The length of a packet with a full segment, in bytes with the headers of IP and TCP.
        packet: u32,
    },
    /// The target has answered, so all bytes have arrived.
    Arrived,
    /// The connection could not be opened, or has closed.
    Failed(Fault),
}

/// An open connection of a session. The driver numbers these connections, and never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A connection to open, which proves a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathDial {
    /// The number of the connection.
    pub dial: DialId,
    /// The address to connect to.
    pub to: SocketAddr,
    /// The first bytes to write.
    pub token: [u8; TOKEN],
    /// The answer that the target must give.
    pub answer: [u8; ANSWER],
    /// The longest packet to send, in bytes with the headers of IP and TCP; none if the kernel decides.
    pub packet: Option<u32>,
}

/// An instruction for the driver, which carries out the outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send a datagram from the node's own port.
    Send {
        /// The address to send to.
        to: SocketAddr,
        /// The bytes, at most [`MAX_DATAGRAM`](crate::proto::MAX_DATAGRAM).
        datagram: Vec<u8>,
    },
    /// Send a datagram from the node's own port to the group, on every interface.
    Multicast {
        /// The bytes, at most [`MAX_DATAGRAM`](crate::proto::MAX_DATAGRAM).
        datagram: Vec<u8>,
    },
    /// Do what a session asks.
    Carry(Order),
    /// Open a TCP connection that proves a path. Write the token, the length of the padding (two bytes,
    /// little endian), and the padding, which fills two full segments of the connection. Report what happens
    /// by [`Node::handle_path`](crate::proto::Node::handle_path).
    DialPath(PathDial),
    /// Close a connection that proves a path, or stop dialing.
    HangUp(DialId),
    /// Accept no more connections: from now on the port belongs to the job.
    StopAccepting,
    /// Report this event to the caller.
    Event(Event),
}
