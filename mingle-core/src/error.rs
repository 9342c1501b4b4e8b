//! Why a rendezvous failed, and why a text or number is not a valid name.
//!
//! [`Error`] has everything that ends a rendezvous on real sockets; [`Failure`] is how the protocol ends without a world.
//! An `Invalid...` is the error of the `FromStr` or constructor of that type.

use std::io;

#[cfg(feature = "net")]
pub use crate::host::InvalidFilter;
pub use crate::model::{InvalidId, InvalidMetadata, InvalidSecret};
#[cfg(feature = "net")]
pub use crate::net::InvalidSeed;
pub use crate::proto::{Failure, Heard, RankRange, Report, Unproved};

/// Why [`Rendezvous::join`](crate::Rendezvous::join) gave no assignment. In every case all sockets are
/// closed and nothing of the attempt is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No network interface can be used; the text says which there are and why each is not.
    #[error("no usable network interface: {0}")]
    NoInterface(String),
    /// The port that the caller asked for is held by another program.
    #[error("port {port} is taken on this host ({source}); choose another --master-port, or none")]
    PortTaken {
        /// The port.
        port: u16,
        /// What the operating system said.
        source: io::Error,
    },
    /// A socket could not be made or set up.
    #[error("{what}: {source}")]
    Socket {
        /// What was tried, on what.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The protocol ended without a world.
    #[error("{0}")]
    Failed(Failure),
}

impl Error {
    /// The exit code that stands for this error: see [`Failure::code`]; 5 where the network is at fault.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(failure) => failure.code(),
            Self::NoInterface(_) | Self::PortTaken { .. } | Self::Socket { .. } => 5,
        }
    }
}
