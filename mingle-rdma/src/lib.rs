//! RDMA devices: what a host has, what a job should use of it, and what all hosts of a world can use
//! together.
//!
//! ```text
//! files -> read     sysfs, or a snapshot of one, to a Machine: plain facts
//! group             the groups of ports among which a host chooses, and what a job gains by each
//! nccl              NCCL's own choice of a GID, and what makes it choose the right one
//! network           the networks of RoCE ports, on which the ranks agree
//! choose            a Machine to a Choice: which ports and GIDs, with a reason for each
//! summary           a Machine to a Summary, which the node sends when it joins
//! verdict           the Summaries of all nodes to one Verdict on what all use, which the commit brings
//! devices           the libraries, and what the user's own variables say about the devices
//! variables         Machine and Verdict to variables for NCCL, UCX and NVSHMEM, beside the user's own
//! ```
//!
//! ```no_run
//! use mingle_rdma::Machine;
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
mod devices;
mod files;
mod frequent;
mod gid;
mod group;
mod list;
mod live;
mod machine;
mod name;
mod natural;
mod nccl;
mod network;
mod pci;
mod read;
mod save;
mod snapshot;
mod summary;
#[cfg(test)]
mod tests;
mod variables;
mod verdict;

pub use choose::{Choice, GidChoice, PortChoice, Reason};
pub use devices::Users;
pub use frequent::most_frequent;
pub use gid::{AddressFamily, Addressing, RoceVersion};
pub use group::Group;
pub use list::nccl_list_has;
pub use machine::{
    Address, Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Rate, Relation, Standing,
};
pub use name::is_nameable;
pub use natural::natural;
pub use network::{Network, Networks};
pub use pci::{Distance, Gpu};
pub use snapshot::InvalidAddress;
pub use summary::{Capability, GroupSummary, Summary};
pub use variables::{beside, is_switched_off, unusable, warnings};
pub use verdict::{Difference, NAMED, RankDifference, RankSummary, Transport, Verdict, VerdictWarning};
