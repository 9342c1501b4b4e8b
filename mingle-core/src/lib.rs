//! Rendezvous for multi-node jobs: nodes that know only a job ID and the size of their world find each other,
//! agree on ranks, and prove that every node reaches rank 0 over TCP.
//!
//! Most programs need only [`Rendezvous`]:
//!
//! ```no_run
//! # async fn launch() -> Result<(), Box<dyn std::error::Error>> {
//! use mingle_core::{Rendezvous, World};
//!
//! let formed = Rendezvous::new("foo".parse()?, World::new(4)?).join().await?.formed;
//! println!("rank {} of {}, master at {}", formed.rank, formed.world, formed.master);
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! | --- | --- |
//! | choose interfaces, ports and seeds | [`Network`] |
//! | show progress and warnings | [`Rendezvous::on_event`], [`Event`] |
//! | know all members | [`Rendezvous::attributes`], [`Roster`] |
//! | restart all nodes if a node fails | [`Rendezvous::session`], [`Session`] |
//! | start a launcher with the right variables | [`mod@env`] |
//! | choose RDMA devices | [`rdma`] |
//! | simulate the protocol | [`proto`] |
//!
//! The protocol is the state machine [`proto::Node`], without sockets, clock or global randomness.
//! [`Rendezvous`] drives it with real sockets on a tokio runtime, a simulation from a random seed.
//! `PROTOCOL.md` defines the messages and what they guarantee.

pub mod env;
pub mod error;
mod model;
pub mod proto;
pub mod rdma;
pub mod tools;
mod wire;

mod host;
mod net;

#[doc(inline)]
pub use error::Error;
#[doc(inline)]
pub use error::Failure;
pub use model::{
    End, HostName, JobId, JobInterfaces, Member, Metadata, Rank, RankKey, Roster, Sameness, Secret, Trait,
    Traits, User, World, WorldSize,
};
#[doc(inline)]
pub use proto::{Change, Event, Formed, Paths, Warning};

pub use host::Filter;
pub use net::{Assignment, Happening, Network, Outlook, Rendezvous, Restarts, Seed, Session};

impl Assignment {
    /// The variables of this world for a command: MASTER_ADDR, RANK and the other names of the world, and
    /// advice for NCCL and Gloo where the environment of this process has no value. Variables for RDMA and
    /// for launchers are not included.
    pub fn variables(&self) -> env::Variables {
        let mut facts = env::Facts::new(&self.job, &self.formed);
        facts.interface = self.interface.as_deref();
        env::Variables::new(facts, |name| std::env::var(name).ok())
    }
}
