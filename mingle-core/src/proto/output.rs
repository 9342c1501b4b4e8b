//! What a state machine asks of its driver, and what the driver reports of the connections.

use std::net::SocketAddr;
use std::sync::Arc;

use super::report::Event;
use crate::model::Fault;
use crate::wire::{ANSWER, TOKEN};

/// A connection that this node opens, numbered by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u32);

/// A report of the driver on a connection that proves a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathNews {
    /// The connection is open.
    Opened {
        /// The length of a packet with a full segment, in bytes with the headers of IP and TCP.
        packet: u32,
    },
    /// The target has answered: all has arrived.
    Arrived,
    /// The connection was not opened, or has closed.
    Failed(Fault),
}

/// A connection that this node has accepted, numbered by the driver; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A connection to open, which proves a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathDial {
    /// The name of the connection.
    pub dial: DialId,
    /// Where to.
    pub to: SocketAddr,
    /// The first bytes.
    pub token: [u8; TOKEN],
    /// The answer of the target.
    pub answer: [u8; ANSWER],
    /// The longest packet to send, in bytes with the headers of IP and TCP; none as the kernel decides.
    pub packet: Option<u32>,
}

/// An instruction for the driver, which carries out the outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send a datagram from the node's own port.
    Send {
        /// Where to.
        to: SocketAddr,
        /// At most [`MAX_DATAGRAM`](crate::proto::MAX_DATAGRAM) bytes.
        datagram: Vec<u8>,
    },
    /// Send a datagram from the node's own port to the group, on every interface.
    Multicast {
        /// At most [`MAX_DATAGRAM`](crate::proto::MAX_DATAGRAM) bytes.
        datagram: Vec<u8>,
    },
    /// Open a TCP connection, write the hello, and keep it open. Report each roster that arrives on it by
    /// [`Node::handle_roster`](crate::proto::Node::handle_roster).
    Dial {
        /// The name of the connection.
        dial: DialId,
        /// Where to.
        to: SocketAddr,
        /// The only bytes that are written.
        hello: Vec<u8>,
    },
    /// Open a TCP connection that proves a path: write the token, the length of the padding (two bytes,
    /// little endian), and the padding, two full segments of the connection. Report what happens by
    /// [`Node::handle_path`](crate::proto::Node::handle_path).
    DialPath(PathDial),
    /// Close a connection that this node has opened, or stop opening it.
    HangUp(DialId),
    /// Write a roster on a connection that this node has accepted, in place of an earlier roster of which
    /// nothing is written yet.
    Tell(ConnId, Arc<[u8]>),
    /// Reset a connection that this node has accepted.
    Close(ConnId),
    /// Accept no more connections: the port belongs to the job from now on.
    StopAccepting,
    /// Report to the caller.
    Event(Event),
}
