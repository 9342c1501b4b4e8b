//! RDMA: what a host has, what a job should use of it, and what all hosts of a world can use together.
//!
//! ```text
//! files -> read     sysfs, or a snapshot of one, to a Machine: plain facts
//! group             the groups of ports among which a host chooses, and what a job gains by each
//! nccl              NCCL's own choice of a GID, and what makes it choose the right one
//! choose            a Machine to a Choice: which ports and GIDs, with a reason for each
//! reason            why a port, a group or a GID is not used
//! summary           a Machine to a Summary, which the node sends when it joins
//! verdict           the Summaries of all nodes to one Verdict on what all use, which the commit brings
//! rails             a Machine to Rails, which its neighbours try to reach
//! tally             how many nodes can use RDMA so far, for observers
//! env::fabric       Machine and Verdict to variables for NCCL, UCX and NVSHMEM
//! ```
//!
//! ```no_run
//! use mingle_core::rdma::Machine;
//! # let folder = std::path::Path::new("/nonexistent");
//! let machine = Machine::from_snapshot(folder)?;
//! let choice = machine.choose();
//! for port in &choice.ports {
//!     match &port.excluded {
//!         None => println!("{}: used, GID {:?}", port.device.name, port.gid_index()),
//!         Some(reason) => println!("{}: {reason}", port.device.name),
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `docs/rdma.md` has the rules, with their sources.

mod choose;
mod files;
mod gid;
mod group;
#[cfg(feature = "net")]
mod live;
mod machine;
mod name;
mod nccl;
mod pci;
mod rails;
mod read;
mod reason;
#[cfg(any(feature = "net", test))]
mod save;
mod snapshot;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod verdict;

pub use choose::{Choice, GidChoice, PortChoice, RdmaKind};
pub use gid::{AddressFamily, Addressing, Gid, InvalidGid, RoceVersion};
pub use group::Group;
pub use machine::{
    Address, Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation, Standing, Verbs,
};
pub use nccl::GidRule;
pub use pci::{Distance, Gpu};
pub use rails::{BrokenRail, Rail, Rails};
pub use reason::{GidReason, GroupReason, PortReason, Rate};
pub use snapshot::InvalidAddress;
pub use summary::{Capability, Summary};
pub use tally::Tally;
pub use verdict::{Difference, RankDifference, Transport, Verdict, VerdictWarning};

pub(crate) use name::is_nameable;
pub(crate) use rails::RAILS;
pub(crate) use tally::Counted;
pub(crate) use verdict::RankSummary;
