//! The network interfaces of this host, and which of them may be used.
//!
//! ```text
//! system      reads the kernel's list, /proc and /sys
//! interface   an interface and its addresses
//! filter      the user's choice of interfaces and networks
//! select      the interfaces and endpoints to use, in order
//! rdma        the addresses and routes beside which RDMA devices are read
//! ```

mod filter;
mod interface;
mod rdma;
mod select;
mod system;
#[cfg(test)]
mod tests;

pub use filter::{Filter, InvalidFilter};
pub use interface::{Interface, Kind};
pub use rdma::{probe, save, survey};
pub(crate) use select::{endpoints, holder_of, link_of, refusal, select, without_multicast};
pub use system::host_name;
pub(crate) use system::{addresses, flags_of_ipv6, list};
