//! Why a rendezvous on real sockets failed.

use std::io;
use std::net::IpAddr;

use super::worlds::Outlook;
use crate::proto::{Failure, Over};

/// Why [`Rendezvous::join`](crate::Rendezvous::join) returned no assignment. Every error leaves all sockets
/// closed and nothing of the attempt behind.
///
/// The text states the fact. The operating system's error is the [source](std::error::Error::source), and not
/// part of the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This host has no usable network interface.
    #[error("no usable network interface: {reasons}")]
    NoInterface {
        /// The host's interfaces, and why each interface is not used.
        reasons: String,
        /// Whether the caller's filters leave interfaces out.
        is_filtered: bool,
    },
    /// Another program holds the port that the caller asked for.
    #[error("port {port} is taken on this host")]
    PortTaken {
        /// The port.
        port: u16,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another program holds the discovery port without sharing it.
    #[error("cannot hear group {group} on UDP port {port}, which another program holds for itself alone")]
    DiscoveryPortTaken {
        /// The port.
        port: u16,
        /// The group.
        group: IpAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// This host could not open or set up a socket.
    #[error("{what}")]
    Socket {
        /// What was tried, and on which address or interface.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// This host can hold fewer ports for the job's own use than the caller wants.
    #[error(
        "only {free} of {wanted} ports can be held for the job: the kernel chooses ports for connections from {chosen}, \
         which leaves {safe} of 20000-29399"
    )]
    TooFewPorts {
        /// How many ports the caller wants.
        wanted: usize,
        /// How many ports were free.
        free: usize,
        /// How many ports were tried: the ports of 20000 to 29399 that the kernel never picks for a
        /// connection.
        safe: usize,
        /// The range from which the kernel picks ports for connections.
        chosen: String,
        /// The operating system's error for the last port that was not free; none if all ports were free.
        source: Option<io::Error>,
    },
    /// The protocol ended without a world.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A [`Session`](crate::Session) is over, and this node takes part in no further world.
    #[error("{}; {}", .0.over, .0.outlook)]
    Ended(Box<Ended>),
}

/// How a job has ended for a node that stayed with its job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// Why the last world has ended.
    pub over: Over,
    /// Whether this node's own command ended the world.
    pub is_own: bool,
    /// Why no world follows.
    pub outlook: Outlook,
}

impl Error {
    /// What the operating system said of `what` was tried.
    pub(crate) fn socket(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { what: what.into(), source }
    }

    /// The error and its source in one line, for a warning.
    pub(crate) fn chain(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_operating_systems_error_is_the_source_and_not_in_the_text() {
        let denied = || io::Error::other("denied");
        let errors = [
            Error::PortTaken { port: 1, source: denied() },
            Error::DiscoveryPortTaken { port: 1, group: [239, 192, 0, 1].into(), source: denied() },
            Error::Socket { what: "cannot listen".to_owned(), source: denied() },
        ];
        for error in errors {
            assert!(!error.to_string().contains("denied"), "{error}");
            assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("denied"));
        }
    }
}
