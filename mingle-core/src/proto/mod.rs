//! The protocol as a state machine: no socket, no clock, no global randomness.
//!
//! The caller hands events to a [`Node`] (`handle_*`, most with the time), and asks the node what to do
//! ([`Node::poll_output`], [`Node::poll_timeout`]). The driver in `net` does so with real sockets. A
//! simulation does so with a seed, and the same seed gives the same run. Most programs want `Rendezvous`
//! instead.
//!
//! `node` hands each event to its parts, each of which owns its state: `seek` finds the leader, `lead` keeps
//! the book of members and runs the rounds, `follow` joins a leader and takes part in the leader's rounds,
//! `prove` has the proofs of paths. A node and its leader speak over a `session`; so do the nodes of a
//! `world` that stays.
//! `shared`, `timer`, `backoff` and `scale` serve all parts; `report` is what the caller gets. `PROTOCOL.md`
//! has the reasons.

mod backoff;
mod config;
#[cfg(test)]
mod exhaustive;
mod follow;
mod lead;
mod node;
mod output;
mod pause;
mod prove;
mod report;
mod scale;
mod seeds;
mod seek;
pub(crate) mod session;
mod shared;
#[cfg(test)]
mod tests;
mod timer;
pub(crate) mod world;

pub use crate::model::{
    BrokenPath, Digest, Elsewhere, Endpoints, Epoch, Fault, JobTag, Keys, Link, Misfit, NodeId, Paths, Peer,
    RankRange, Slots, Unfit,
};
#[cfg(feature = "testing")]
pub use crate::wire::testing;
pub use crate::wire::{ANSWER, Attributes, Frame, MAX_DATAGRAM, NodeInfo, PathTarget, Reach, TOKEN, VERSION};
pub use config::Config;
pub(crate) use config::{GONE_AFTER, LAST_CALL, STOP_TIMEOUT, TIMEOUT};
pub use node::Node;
pub use output::{ConnId, DialId, Output, PathDial, PathNews};
pub(crate) use pause::was_stopped;
pub use report::{
    Cause, Change, Event, Failure, Formed, Heard, OtherJob, Over, Progress, Report, Tried, Warning,
};
pub use session::{Ending, Ends, Failed, Impossible, Order, Way};
pub(crate) use shared::Shared;
pub use timer::Time;
