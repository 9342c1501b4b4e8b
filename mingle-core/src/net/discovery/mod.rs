//! How nodes find each other without multicast, and how jobs are listed.
//!
//! ```text
//! seed        the text that names a host, or several
//! sources     seeds and folder as streams of addresses
//! seed_dir    a shared folder with a file of addresses per node
//! advertiser  a leader's datagram once a second to the directory groups
//! ```

pub(crate) mod advertiser;
mod seed;
pub(crate) mod seed_dir;
pub(crate) mod sources;

pub use seed::{InvalidSeed, Seed};
