//! The container of this host, and how multicast works there. docs/networks.md has the sources.

use std::net::IpAddr;
use std::path::Path;

use mingle_core::tools::Judged;

use super::finding::{Finding, Severity};
use super::interfaces::used;
use crate::nccl_conf::environment;

const LOOKED: &str = "surroundings";
/// The beginnings of names of interfaces that exist only in a host's own network namespace: bridges of
/// containers, and interfaces of Calico, Cilium, Antrea, OVN-Kubernetes, Kube-OVN and flannel.
const OF_HOST: &str =
    "antrea cali cilium cni docker flannel kube- lxc ovn-k8s ovn0 podman tunl0 vxlan.calico";

pub(super) fn examine(all: &[Judged]) -> Option<Finding> {
    let has = |path: &str| Path::new(path).exists();
    let is_pod = environment("KUBERNETES_SERVICE_HOST").is_some() || has("/var/run/secrets/kubernetes.io");
    if !is_pod && !has("/.dockerenv") && !has("/run/.containerenv") {
        return None;
    }
    let mut addresses =
        used(all).flat_map(|nic| nic.addresses.iter().map(|own| (own.addr(), own.prefix_len())));
    let names: Vec<&str> = all.iter().map(|nic| nic.interface.name.as_str()).collect();
    Some(judge(is_pod, &names, addresses.any(|(address, length)| is_bridge(address, length))))
}

fn judge(is_pod: bool, names: &[&str], has_bridge: bool) -> Finding {
    let check = if is_pod { "kubernetes" } else { "container" };
    let is_of_host = |name: &&str| OF_HOST.split(' ').any(|beginning| name.starts_with(beginning));
    let (seen, cure) = if names.iter().any(is_of_host) {
        return Finding::ok(check, LOOKED, "a container on the host's own network");
    } else if is_pod {
        (
            "a Kubernetes pod: most networks of pods drop multicast",
            "give each node --seed with a headless service (publishNotReadyAddresses), or use --seed-dir or \
             hostNetwork: true; docs/networks.md has each network",
        )
    } else if has_bridge {
        (
            "a container on Docker's bridge, which other hosts cannot reach",
            "docker run --network host; containers that are all on one host can stay as they are",
        )
    } else {
        return Finding::ok(check, LOOKED, "a container with a network of its own");
    };
    Finding::new(Severity::Warning, check, LOOKED, seen, cure)
}

/// Whether the address is in 172.16.0.0/12, Docker's default for the networks of its bridges.
fn is_bridge(address: IpAddr, length: u8) -> bool {
    matches!(address, IpAddr::V4(v4) if matches!(v4.octets(), [172, 16..=31, ..])) && length == 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_of_the_host_show_that_a_pod_or_a_container_uses_its_network() {
        let status = |is_pod, names: &[&str], has_bridge| judge(is_pod, names, has_bridge).status;
        let host = ["eth0", "flannel.1"];
        assert_eq!(status(true, &["eth0"], false), Severity::Warning);
        assert_eq!(status(true, &host, false), Severity::Ok);
        assert_eq!(status(false, &["eth0"], true), Severity::Warning);
        assert_eq!(status(false, &["eth0"], false), Severity::Ok);
        assert_eq!(status(false, &host, true), Severity::Ok);
        assert!(is_bridge([172, 17, 0, 2].into(), 16) && !is_bridge([172, 17, 0, 2].into(), 24));
        assert!(!is_bridge([172, 32, 0, 2].into(), 16) && !is_bridge([10, 1, 0, 2].into(), 16));
    }
}
