//! The advice: the variables that mingle sets only where the user has not.

use super::PET_NPROC_PER_NODE;
use crate::env::shell::is_name;
use crate::model::JobId;

/// The prefixes of all advice except [`PET_NPROC_PER_NODE`]. Other names in MINGLE_SET are left alone, unless
/// they are a launcher's own variables.
const PREFIXES: [&str; 7] = ["FI_", "GLOO_", "NCCL_", "NVSHMEM_", "TORCHCOMM_", "TP_", "UCX_"];

/// Whether mingle may give advice by this name.
pub(super) fn is_advice(name: &str) -> bool {
    name == PET_NPROC_PER_NODE || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && is_name(name)
}

/// The advice for sockets: the interface, or its label (`eth0:1`) where all its addresses of the family have
/// labels; and the address family.
///
/// NCCL matches interfaces by prefix unless the list begins with `=`, and drops what is behind a colon
/// (`parseStringList` and `matchIf` in NCCL's `src/misc/utils.cc`), so only the prefix finds a label; the
/// family keeps it from the link-local address, which has none. NVSHMEM's bootstrap is a copy of that. Gloo,
/// torchcomms and TensorPipe compare whole names (`lookupAddrForIface` in Gloo's
/// `gloo/transport/tcp/device.cc`).
pub(super) fn sockets(
    interface: Option<&str>,
    ipv6: bool,
    users: impl Fn(&str) -> Option<String>,
) -> Vec<(&'static str, String)> {
    let mut advice = Vec::new();
    let label = interface.and_then(|interface| interface.split_once(':'));
    if let Some(interface) = interface {
        let list = label.map_or_else(|| format!("={interface}"), |(name, _)| name.to_owned());
        advice.push(("NCCL_SOCKET_IFNAME", list.clone()));
        advice.push(("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", list));
        for name in ["GLOO_SOCKET_IFNAME", "TORCHCOMM_GLOO_INTERFACE", "TP_SOCKET_IFNAME"] {
            advice.push((name, interface.to_owned()));
        }
    }
    // NCCL prefers IPv4 on an interface with both families, while an IPv6 world may include a host without
    // IPv4. NVSHMEM's default is IPv4 alone (`env_defs.h`).
    let family = if ipv6 { Some("AF_INET6") } else { label.map(|_| "AF_INET") };
    if let Some(family) = family.filter(|_| ipv6 || users("NCCL_SOCKET_IFNAME").is_none()) {
        advice.push(("NCCL_SOCKET_FAMILY", family.to_owned()));
    }
    // No path was proved to an interface that only NVSHMEM is given.
    if ipv6 && users("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME").is_none() {
        advice.push(("NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY", "AF_INET6".to_owned()));
    }
    advice
}

/// The ports from which a job's own for NCCL's RAS comes: above NCCL's default, and below those of mingle.
const RAS_PORTS: (u16, u16) = (28029, 1400);

/// Where NCCL's RAS listens for clients. By default all jobs of a host share `localhost:28028`, and a client
/// reaches any of them (`rasClientInitSocket` in NCCL's `src/ras/client_support.cc`).
pub(super) fn ras(job: &JobId) -> (&'static str, String) {
    let hash = blake3::Hasher::new_derive_key("mingle 1 RAS port").update(job.as_str().as_bytes()).finalize();
    let (first, count) = RAS_PORTS;
    let place = u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]) % count;
    ("NCCL_RAS_ADDR", format!("localhost:{}", first + place))
}
