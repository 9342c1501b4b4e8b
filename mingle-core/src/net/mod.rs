//! The driver: real sockets, a real clock and real randomness under the state machine. No other module opens
//! a socket.
//!
//! ```text
//! rendezvous, network, assignment   what a caller gives and gets
//! driver/       the loop between sockets and state machine; the node of a running world
//! sockets/      a node's own port, the multicast groups, and TCP connections
//! session       the connections of a session: hellos, and then frames
//! worlds/       a node that stays with its job: the supervisor of its worlds
//! discovery/    seeds, the shared folder, and the advertiser for those who list jobs
//! station       the same datagram sockets for `mingle doctor`; observer: and for `mingle watch`
//! ```

mod assignment;
mod clock;
mod discovery;
mod driver;
mod error;
mod network;
mod observer;
mod rendezvous;
mod session;
mod sockets;
mod station;
mod worlds;

#[cfg(test)]
mod namespace_tests;

pub use assignment::Assignment;
pub use clock::random;
pub use discovery::{InvalidSeed, Seed};
pub use error::{Ended, Error};
pub use network::Network;
pub use observer::{Observer, Run, Sighting};
pub use rendezvous::Rendezvous;
pub use sockets::held::HeldPorts;
pub use sockets::links::Cast;
pub use station::{Judged, Station, interfaces, reset};
pub use worlds::{Happening, Outlook, Restarts, Session, duration};
