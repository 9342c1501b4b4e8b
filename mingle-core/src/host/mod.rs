//! The network interfaces of this host, and which of them may be used.

mod filter;
mod interface;
mod system;

pub use filter::{Filter, InvalidFilter};
pub(crate) use interface::{Family, NoInterface, endpoints, find, holder_of, list, refusal, select};
pub use interface::{Interface, Kind};
pub(crate) use system::addresses;
