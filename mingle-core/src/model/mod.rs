//! Names, numbers and lists that exist only when they are valid. All other modules build on this one, and it
//! imports none of them.

mod endpoints;
mod id;
mod job_interfaces;
mod label;
mod list;
mod metadata;
mod misfit;
mod path;
mod peer;
mod rank_key;
mod rank_range;
mod roster;
mod sameness;
mod secret;
mod traits;
mod user;
mod world_size;

pub use endpoints::Endpoints;
pub(crate) use endpoints::{deserialize_unicast, deserialize_unicast_ip};
pub use id::{Epoch, HostName, InvalidId, JobId, JobTag, NodeId, Rank, World};
pub(crate) use id::{directory_v4, directory_v6};
pub use job_interfaces::JobInterfaces;
pub(crate) use label::Label;
pub(crate) use list::List;
pub use metadata::{InvalidMetadata, Metadata};
pub use misfit::{Misfit, Unfit};
pub use path::{BrokenPath, Elsewhere, Fault, Link, Paths};
pub use peer::{End, Peer};
pub use rank_key::RankKey;
pub use rank_range::RankRange;
pub use roster::{Digest, Member, Roster, Slots};
pub use sameness::Sameness;
pub use secret::{InvalidSecret, Keys, Secret};
pub(crate) use traits::{Sent, TraitKey};
pub use traits::{Trait, Traits};
pub use user::User;
pub use world_size::WorldSize;
