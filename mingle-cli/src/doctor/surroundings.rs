//! The surroundings of this host: container, Kubernetes, WSL, cloud; and how multicast works there.
//! docs/networks.md has the sources.

use std::net::IpAddr;

use mingle_core::tools::Judged;

use super::finding::{Finding, Severity};
use crate::host::HERE;
use crate::nccl_conf::environment;

const SEED: &str = "give each node --seed with a headless service (publishNotReadyAddresses), or use --seed-dir or \
                    hostNetwork: true; docs/networks.md has each network";
/// The beginnings of names of interfaces that exist only in a host's own network namespace: bridges of
/// containers, and interfaces of Calico, Cilium, Antrea, OVN-Kubernetes, Kube-OVN and flannel.
const OF_HOST: [&str; 13] = [
    "antrea",
    "cali",
    "cilium",
    "cni",
    "docker",
    "flannel",
    "kube-",
    "lxc",
    "ovn-k8s",
    "ovn0",
    "podman",
    "tunl0",
    "vxlan.calico",
];

pub(super) fn examine(all: &[Judged]) -> Vec<Finding> {
    let names = all.iter().map(|nic| nic.interface.name.as_str());
    let used = all.iter().filter(|nic| nic.refused.is_none());
    let addresses =
        used.flat_map(|nic| nic.interface.addresses.iter().map(|own| (own.addr(), own.prefix_len())));
    let has = |path: &str| std::path::Path::new(path).exists();
    let container =
        if environment("KUBERNETES_SERVICE_HOST").is_some() || has("/var/run/secrets/kubernetes.io") {
            kubernetes(names).into()
        } else if has("/.dockerenv") || has("/run/.containerenv") {
            docker(names, addresses).into()
        } else {
            None
        };
    let kernel = HERE.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let vendor = HERE.text("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    [container, wsl(&kernel), cloud(&vendor)].into_iter().flatten().collect()
}

fn is_of_host<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| OF_HOST.iter().any(|prefix| name.starts_with(prefix)))
}

fn kubernetes<'a>(names: impl Iterator<Item = &'a str>) -> Finding {
    let (check, looked) = ("kubernetes", "surroundings");
    if is_of_host(names) {
        let seen = "Kubernetes with hostNetwork: the job uses the hosts' own network";
        return Finding::ok(check, looked, seen);
    }
    let seen = "a Kubernetes pod: most networks of pods drop multicast";
    Finding::new(Severity::Warning, check, looked, seen, SEED)
}

fn docker<'a>(
    names: impl Iterator<Item = &'a str>,
    mut addresses: impl Iterator<Item = (IpAddr, u8)>,
) -> Finding {
    let (check, looked) = ("container", "surroundings");
    if is_of_host(names) {
        return Finding::ok(check, looked, "a container on the host's own network");
    }
    // 172.16.0.0/12: Docker's default for the networks of its bridges.
    let is_bridge = |(ip, bits)| match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 172 && ip.octets()[1] & 0xf0 == 16 && bits == 16,
        IpAddr::V6(_) => false,
    };
    if !addresses.any(is_bridge) {
        return Finding::ok(check, looked, "a container with a network of its own");
    }
    let seen = "a container on Docker's bridge, which other hosts cannot reach";
    let cure = "docker run --network host; containers that are all on one host can stay as they are";
    Finding::new(Severity::Warning, check, looked, seen, cure)
}

fn wsl(kernel: &str) -> Option<Finding> {
    let seen = "WSL2: by default its network is behind address translation, so other hosts cannot reach it";
    let cure = "set networkingMode=mirrored in .wslconfig, allow inbound connections (docs/networks.md), and give --seed";
    let is_wsl = kernel.to_ascii_lowercase().contains("microsoft");
    is_wsl.then(|| Finding::new(Severity::Warning, "wsl", "the kernel's release", seen, cure))
}

fn cloud(vendor: &str) -> Option<Finding> {
    let seen = match vendor.trim() {
        "Amazon EC2" => {
            "AWS: a VPC carries no broadcast, and multicast only through a transit gateway's multicast domain"
        }
        "Google" | "Google Compute Engine" => {
            "Google Cloud: its networks carry no broadcast, and multicast only for registered groups"
        }
        "Microsoft Corporation" => "Azure (or Hyper-V): Azure's networks carry no multicast and no broadcast",
        _ => return None,
    };
    let cure = "give --seed or --seed-dir on each node; docs/networks.md has what else is possible";
    Some(Finding::new(Severity::Note, "cloud", "the maker of the machine", seen, cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_of_the_host_show_that_a_pod_or_a_container_uses_its_network() {
        let (inside, host) = (["eth0"], ["eth0", "flannel.1"]);
        assert_eq!(kubernetes(inside.into_iter()).status, Severity::Warning);
        assert_eq!(kubernetes(host.into_iter()).status, Severity::Ok);
        let at = |address: [u8; 4], bits| [(IpAddr::from(address), bits)].into_iter();
        assert_eq!(docker(host.into_iter(), at([172, 17, 0, 2], 16)).status, Severity::Ok);
        assert_eq!(docker(inside.into_iter(), at([172, 17, 0, 2], 16)).status, Severity::Warning);
        assert_eq!(docker(inside.into_iter(), at([10, 1, 0, 2], 24)).status, Severity::Ok);
    }

    #[test]
    fn a_cloud_and_wsl_are_findings_and_a_plain_host_is_none() {
        assert!(cloud("Amazon EC2\n").is_some_and(|finding| finding.seen.starts_with("AWS")));
        assert!(wsl("5.15.90.1-microsoft-standard-WSL2\n").is_some());
        assert_eq!((cloud("Dell Inc.\n"), wsl("6.1.0-18-amd64\n")), (None, None));
    }
}
