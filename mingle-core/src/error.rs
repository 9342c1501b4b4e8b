//! Why a rendezvous on real sockets failed.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;

use crate::host::NoInterface;
use crate::proto::Failure;

/// Why [`Builder::join`](crate::Builder::join) gave no assignment. In every case all sockets are closed and
/// nothing of the attempt is left behind.
///
/// The text states the fact; what the operating system said is the [source](std::error::Error::source), and
/// not also in the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No network interface can be used.
    #[error("no usable network interface: {reasons}")]
    NoInterface {
        /// Which interfaces there are, and why each is not used.
        reasons: String,
        /// Whether the caller's filters leave interfaces out.
        is_filtered: bool,
    },
    /// Another program holds the port that the caller asked for.
    #[error("port {port} is taken on this host")]
    PortTaken {
        /// The port.
        port: u16,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another program holds the discovery port alone, so that no other can share it.
    #[error("cannot hear group {group} on UDP port {port}, which another program does not share")]
    DiscoveryPortTaken {
        /// The port.
        port: u16,
        /// The group.
        group: IpAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A socket could not be made or set up.
    #[error("{what}")]
    Socket {
        /// What was tried, on what.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The protocol ended without a world.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Error {
    /// The error and its sources in one line, for a warning.
    pub(crate) fn chain(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl From<NoInterface> for Error {
    fn from(error: NoInterface) -> Self {
        match error {
            NoInterface::Unlisted(source) => {
                Self::Socket { what: "cannot list the network interfaces".to_owned(), source }
            }
            NoInterface::Unsuitable { reasons, is_filtered } => Self::NoInterface { reasons, is_filtered },
        }
    }
}
