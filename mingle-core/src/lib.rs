//! Rendezvous for multi-node jobs: nodes that know only a job ID and how many they are find each
//! other, agree on ranks, and prove that every one of them reaches rank 0 over TCP.
//!
//! Most programs need only [`Rendezvous`]:
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
//! use mingle_core::{Rendezvous, World};
//!
//! let assignment = Rendezvous::builder("foo".parse()?, World::new(4)?).join().await?;
//! println!("rank {} of {}, master at {}", assignment.rank, assignment.world, assignment.master);
//! # Ok(())
//! # }
//! ```
//!
//! Underneath lies [`proto::Node`], the protocol as a state machine without sockets, clock or global
//! randomness; `net` drives it with real sockets (feature `net`, on by default), a simulation drives
//! it with a seed. `PROTOCOL.md` says what travels and what is promised.

pub mod env;
pub mod proto;
pub mod rdma;

#[cfg(feature = "net")]
mod host;
mod model;
mod wire;

#[cfg(feature = "net")]
mod error;
#[cfg(feature = "net")]
pub mod net;

pub use model::{
    Digest, End, Endpoints, HostName, InvalidId, InvalidMetadata, InvalidSecret, JobId, JobTag, Keys,
    Lineage, Member, Metadata, NodeId, Peer, Rank, Roster, Secret, Slots, World,
};
pub use proto::{
    Cause, Event, Failure, Formed, Heard, Over, Progress, RankBy, RankRange, Report, Tried, Unproved, Warning,
};
pub use wire::{Attributes, NodeInfo, VERSION};

#[cfg(feature = "net")]
pub use error::Error;
#[cfg(feature = "net")]
pub use net::{Assignment, Builder, Rendezvous};
