//! The advice: the variables that mingle sets only where the user has not.

use super::PET_NPROC_PER_NODE;
use crate::env::shell::is_name;

/// The prefixes of all advice except [`PET_NPROC_PER_NODE`]. Other names in MINGLE_SET are left alone, unless
/// they are a launcher's own variables.
const PREFIXES: [&str; 5] = ["FI_", "GLOO_", "NCCL_", "NVSHMEM_", "UCX_"];

/// Whether mingle may give advice by this name.
pub(super) fn is_advice(name: &str) -> bool {
    name == PET_NPROC_PER_NODE || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && is_name(name)
}

/// The advice for sockets: the interface, and the address family.
pub(super) fn sockets(interface: Option<&str>, ipv6: bool) -> impl Iterator<Item = (&'static str, String)> {
    // NCCL matches interfaces by prefix unless the list begins with `=` (src/misc/socket.cc).
    let names = [("NCCL_SOCKET_IFNAME", "="), ("GLOO_SOCKET_IFNAME", "")];
    let names = names
        .into_iter()
        .filter_map(move |(name, prefix)| interface.map(|interface| (name, format!("{prefix}{interface}"))));
    // NCCL prefers IPv4 on an interface with both families. An IPv6 world may include a host without IPv4.
    names.chain(ipv6.then(|| ("NCCL_SOCKET_FAMILY", "AF_INET6".to_owned())))
}
