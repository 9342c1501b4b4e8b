//! The advice: the variables that mingle sets only where the user has not.

use super::PET_NPROC_PER_NODE;
use crate::env::shell::is_name;

/// The prefixes of all advice except [`PET_NPROC_PER_NODE`]. Other names in MINGLE_SET are left alone, unless
/// they are a launcher's own variables.
const PREFIXES: [&str; 5] = ["FI_", "GLOO_", "NCCL_", "NVSHMEM_", "UCX_"];

/// For each library: its list of devices, and its index into the GID tables of these devices. The index is
/// right for the devices that were chosen, and for no others.
const GID_INDICES: [(&str, &str); 3] = [
    ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
    ("UCX_NET_DEVICES", "UCX_IB_GID_INDEX"),
    ("NVSHMEM_HCA_LIST", "NVSHMEM_IB_GID_INDEX"),
];

/// Whether mingle may give advice by this name.
pub(super) fn is_advice(name: &str) -> bool {
    name == PET_NPROC_PER_NODE || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && is_name(name)
}

/// The variable with the list of devices that the GID index in the variable `name` belongs to; None if `name`
/// holds no GID index.
pub(super) fn devices_of(name: &str) -> Option<&'static str> {
    GID_INDICES.iter().find(|(_, index)| *index == name).map(|(devices, _)| *devices)
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

/// Whether the user's list of devices and ports `theirs` is a part of `ours`, in the variable `name`. NCCL
/// compares prefixes unless the list begins with `=`; UCX and NVSHMEM compare whole names.
pub(super) fn is_among(name: &str, theirs: &str, ours: &str) -> bool {
    let ours: Vec<&str> = ours.trim_start_matches('=').split(',').collect();
    let exact = if name == "NCCL_IB_HCA" { theirs.strip_prefix('=') } else { Some(theirs) };
    exact.is_some_and(|theirs| theirs.split(',').all(|port| ours.contains(&port)))
}
