//! Names, numbers and lists that exist only when they are valid. All other modules build on this one, and it
//! imports none of them.

mod endpoints;
mod frequent;
mod id;
mod job_interfaces;
mod list;
mod metadata;
mod natural;
mod path;
mod peer;
mod roster;
mod secret;

pub use endpoints::Endpoints;
pub(crate) use endpoints::{deserialize_unicast, deserialize_unicast_ip};
pub(crate) use frequent::most_frequent;
pub use id::{HostName, InvalidId, JobId, JobTag, Lineage, NodeId, Rank, World};
#[cfg(feature = "net")]
pub(crate) use id::{directory_v4, directory_v6};
pub use job_interfaces::JobInterfaces;
pub(crate) use job_interfaces::nccl_list_has;
pub(crate) use list::List;
pub use metadata::{InvalidMetadata, Metadata};
pub(crate) use natural::natural;
pub use path::{BrokenPath, Fault, Link, Paths};
pub use peer::{End, Peer};
pub use roster::{Digest, Member, Roster, Slots};
pub use secret::{InvalidSecret, Keys, Secret};
