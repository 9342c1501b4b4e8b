//! The sockets of a node.
//!
//! ```text
//! endpoint      the node's own port, TCP and UDP, and the options of its connections
//! multicast     groups and broadcasts: how they are heard, and how to send by one interface
//! watched       a datagram socket that the runtime waits for
//! links         all datagram sockets together, and the interfaces that they use
//! connection    the life of one TCP connection
//! connections   all TCP connections of a node
//! path          a connection that proves a path, at both ends
//! guests        the accepted ones, and which of them makes room for another
//! held          ports for the job's own use, until its command has them
//! open_files    the limit of open files, and how many connections fit under it
//! ```

pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod endpoint;
pub(crate) mod guests;
pub(crate) mod held;
pub(crate) mod links;
pub(crate) mod multicast;
pub(crate) mod open_files;
pub(crate) mod path;
pub(crate) mod watched;
