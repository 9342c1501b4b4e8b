//! The surroundings of this host: container, Kubernetes and its network, cloud; and how multicast works
//! there.

use std::net::{IpAddr, Ipv4Addr};

use super::finding::{Finding, Status};
use super::interfaces::Nic;

/// The facts that are read from the host, most of them as text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Surroundings<'a> {
    /// Whether KUBERNETES_SERVICE_HOST is set, or a service account is mounted.
    pub(super) kubernetes: bool,
    /// Whether `/.dockerenv` or `/run/.containerenv` exists.
    pub(super) container: bool,
    /// `/proc/net/arp`.
    pub(super) arp: &'a str,
    /// `/proc/net/route`, read: the gateways of the default route are enough.
    pub(super) gateways: &'a [Ipv4Addr],
    /// `/proc/sys/kernel/osrelease`.
    pub(super) kernel: &'a str,
    /// `/sys/class/dmi/id/sys_vendor`.
    pub(super) vendor: &'a str,
}

/// A Kubernetes network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cni {
    name: &'static str,
    /// The beginnings of the names of its interfaces on a host.
    prefixes: &'static [&'static str],
    /// Whether it carries multicast between pods.
    multicast: &'static str,
    /// The setting with which a world forms there.
    cure: &'static str,
}

/// docs/networks.md has the sources.
const CNIS: &[Cni] = &[
    Cni {
        name: "Calico",
        prefixes: &["cali", "tunl0", "vxlan.calico"],
        multicast: "Calico routes to a /32 for each pod, and carries neither multicast nor broadcast",
        cure: SEED,
    },
    Cni {
        name: "Cilium",
        prefixes: &["cilium", "lxc"],
        multicast: "Cilium carries multicast only where it is enabled, and only for groups that are registered on every node",
        cure: "give --seed with a headless service (publishNotReadyAddresses), or the registered group as --group",
    },
    Cni {
        name: "Antrea",
        prefixes: &["antrea"],
        multicast: "Antrea carries only IPv4 multicast, and only where its Multicast feature is enabled",
        cure: "give --seed with a headless service (publishNotReadyAddresses), or with that feature --ttl 4",
    },
    Cni {
        name: "OVN-Kubernetes",
        prefixes: &["ovn-k8s"],
        multicast: "OVN-Kubernetes carries multicast only in a namespace that is annotated, and from node to node \
                    only with a TTL above 1",
        cure: "annotate the namespace k8s.ovn.org/multicast-enabled=true and give --ttl 4, or --seed",
    },
    Cni {
        name: "Kube-OVN",
        prefixes: &["ovn0"],
        multicast: "Kube-OVN carries multicast inside a subnet, and not from one to another",
        cure: "nothing inside a subnet; otherwise give --seed with a headless service (publishNotReadyAddresses)",
    },
    Cni {
        name: "flannel",
        prefixes: &["flannel"],
        multicast: "flannel does not carry multicast from host to host",
        cure: SEED,
    },
];

const SEED: &str = "give each node --seed with a headless service (publishNotReadyAddresses), or use --seed-dir or hostNetwork: true";

pub(super) fn examine(place: Surroundings<'_>, nics: &[Nic]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if place.kubernetes {
        findings.push(kubernetes(place, nics));
    } else if place.container {
        findings.push(container(nics));
    }
    if place.kernel.to_ascii_lowercase().contains("microsoft") {
        findings.push(Finding::new(
            Status::Warning,
            "wsl",
            "the kernel's release",
            "WSL2: by default its network is behind address translation, so other hosts cannot reach it",
            "set networkingMode=mirrored in .wslconfig, allow inbound connections (docs/networks.md), and give --seed",
        ));
    }
    findings.extend(cloud(place.vendor));
    findings
}

fn kubernetes(place: Surroundings<'_>, nics: &[Nic]) -> Finding {
    const CHECK: &str = "kubernetes";
    let looked = "surroundings";
    let of_host = CNIS
        .iter()
        .find(|cni| nics.iter().any(|nic| cni.prefixes.iter().any(|prefix| nic.name.starts_with(prefix))));
    // Such interfaces, and bridges of containers, exist only in the host's own network namespace.
    let bridges = nics.iter().any(|nic| ["cni", "docker", "kube-"].iter().any(|p| nic.name.starts_with(p)));
    if of_host.is_some() || bridges {
        let name = of_host.map_or(String::new(), |cni| format!(" beside {}'s interfaces", cni.name));
        let seen = format!("Kubernetes with hostNetwork{name}: the job uses the hosts' own network");
        return Finding::ok(CHECK, looked, seen);
    }
    let (seen, cure) = of_pod(place, nics).map_or_else(
        || {
            (
                "a Kubernetes pod, on a network that its interfaces do not identify; most networks drop multicast"
                    .to_owned(),
                SEED,
            )
        },
        |cni| {
            (
                format!("a Kubernetes pod, probably on {} (judging by its interfaces): {}", cni.name, cni.multicast),
                cni.cure,
            )
        },
    );
    Finding::new(Status::Warning, CHECK, looked, seen, cure)
}

/// The network of a pod, identified by the address, gateway and ARP entries of `eth0`.
fn of_pod(place: Surroundings<'_>, nics: &[Nic]) -> Option<&'static Cni> {
    let named = |name: &str| CNIS.iter().find(|cni| cni.name == name);
    let eth0 = nics.iter().find(|nic| nic.name == "eth0")?;
    let host_route = eth0.addresses.iter().any(|(ip, bits)| ip.is_ipv4() && *bits == 32);
    // Calico answers ARP for this gateway with this hardware address (its FAQ, "Why can't I see the
    // 169.254.1.1 address").
    if host_route && place.arp.contains("ee:ee:ee:ee:ee:ee") {
        return named("Calico");
    }
    let gateway = place.gateways.first()?;
    let link_local = gateway.is_link_local();
    // Cilium's gateway is a host's address in the pods' network, behind a /32 as well.
    match (host_route, link_local) {
        (true, true) => named("Calico"),
        (true, false) => named("Cilium"),
        _ => None,
    }
}

fn container(nics: &[Nic]) -> Finding {
    const CHECK: &str = "container";
    let looked = "surroundings";
    if nics.iter().any(|nic| nic.name.starts_with("docker") || nic.name.starts_with("podman")) {
        return Finding::ok(CHECK, looked, "a container on the host's own network");
    }
    // 172.16.0.0/12: Docker's default for the networks of its bridges.
    let bridged = nics.iter().any(|nic| {
        nic.refused.is_none()
            && nic.addresses.iter().any(|(ip, bits)| match ip {
                IpAddr::V4(ip) => ip.octets()[0] == 172 && ip.octets()[1] & 0xf0 == 16 && *bits == 16,
                IpAddr::V6(_) => false,
            })
    });
    if bridged {
        let seen = "a container on Docker's bridge, which other hosts cannot reach";
        return Finding::new(
            Status::Warning,
            CHECK,
            looked,
            seen,
            "docker run --network host; containers that are all on one host can stay as they are",
        );
    }
    Finding::ok(CHECK, looked, "a container with a network of its own")
}

fn cloud(vendor: &str) -> Option<Finding> {
    let (seen, cure) = match vendor.trim() {
        "Amazon EC2" => (
            "AWS: a VPC carries no broadcast, and multicast only through a transit gateway's multicast domain",
            "give --seed or --seed-dir on each node; with a multicast domain, force_igmp_version=2 and --ttl 8",
        ),
        "Google" | "Google Compute Engine" => (
            "Google Cloud: its networks carry no broadcast, and multicast only for registered groups",
            "give --seed or --seed-dir on each node, or a registered group as --group",
        ),
        "Microsoft Corporation" => (
            "Azure (or Hyper-V): Azure's networks carry no multicast and no broadcast",
            "give --seed or --seed-dir on each node",
        ),
        _ => return None,
    };
    Some(Finding::new(Status::Note, "cloud", "the maker of the machine", seen, cure))
}

#[cfg(test)]
mod tests {
    use mingle_core::tools::Kind;

    use super::super::interfaces::tests::nic;
    use super::*;

    fn seen(place: Surroundings<'_>, nics: &[Nic]) -> Vec<(Status, String)> {
        examine(place, nics).into_iter().map(|finding| (finding.status, finding.seen)).collect()
    }

    #[test]
    fn a_plain_host_has_no_finding() {
        let place =
            Surroundings { kernel: "6.1.0-18-amd64", vendor: "Dell Inc.\n", ..Surroundings::default() };
        assert_eq!(seen(place, &[nic("eth0", Kind::Physical, "10.0.0.1/24")]), []);
    }

    #[test]
    fn the_network_of_a_pod_is_guessed_from_its_interfaces() {
        let pod = Surroundings { kubernetes: true, ..Surroundings::default() };
        let host = [nic("eth0", Kind::Other, "10.244.1.7/32")];
        let gateway = [Ipv4Addr::new(169, 254, 1, 1)];
        let calico = seen(Surroundings { gateways: &gateway, ..pod }, &host);
        assert!(calico[0].1.contains("Calico") && calico[0].0 == Status::Warning, "{calico:?}");
        let arp = Surroundings { arp: "169.254.1.1 0x1 0x2 ee:ee:ee:ee:ee:ee * eth0", ..pod };
        assert!(seen(arp, &host)[0].1.contains("Calico"));
        let gateway = [Ipv4Addr::new(10, 244, 1, 1)];
        assert!(seen(Surroundings { gateways: &gateway, ..pod }, &host)[0].1.contains("Cilium"));
        let plain = [nic("eth0", Kind::Other, "10.244.1.7/24")];
        assert!(seen(Surroundings { gateways: &gateway, ..pod }, &plain)[0].1.contains("do not identify"));
    }

    #[test]
    fn the_cure_for_each_network_has_the_flag_of_the_document() {
        for (name, flag) in [
            ("Calico", "--seed"),
            ("Cilium", "--group"),
            ("Antrea", "--ttl 4"),
            ("OVN-Kubernetes", "k8s.ovn.org/multicast-enabled=true and give --ttl 4"),
            ("Kube-OVN", "nothing inside a subnet"),
            ("flannel", "--seed"),
        ] {
            let cni = CNIS.iter().find(|cni| cni.name == name);
            assert!(cni.is_some_and(|cni| cni.cure.contains(flag)), "{cni:?}");
        }
        assert_eq!(CNIS.len(), 6, "each has a section in docs/networks.md");
    }

    #[test]
    fn the_interfaces_of_the_host_show_that_a_pod_uses_its_network() {
        let pod = Surroundings { kubernetes: true, ..Surroundings::default() };
        let nics =
            [nic("eth0", Kind::Physical, "10.0.0.1/24"), nic("flannel.1", Kind::Virtual, "10.244.1.0/32")];
        let found = seen(pod, &nics);
        assert_eq!(found[0].0, Status::Ok);
        assert!(found[0].1.contains("hostNetwork beside flannel"), "{found:?}");
    }

    #[test]
    fn a_docker_bridge_a_cloud_and_wsl_are_findings() {
        let place = Surroundings { container: true, ..Surroundings::default() };
        let found = seen(place, &[nic("eth0", Kind::Other, "172.17.0.2/16")]);
        assert!(found[0].1.contains("Docker's bridge") && found[0].0 == Status::Warning, "{found:?}");
        assert_eq!(seen(place, &[nic("eth0", Kind::Other, "10.1.0.2/24")])[0].0, Status::Ok);
        let kernel =
            Surroundings { kernel: "5.15.90.1-microsoft-standard-WSL2\n", ..Surroundings::default() };
        assert!(seen(kernel, &[])[0].1.starts_with("WSL2"));
        assert!(
            seen(Surroundings { vendor: "Amazon EC2\n", ..Surroundings::default() }, &[])[0]
                .1
                .starts_with("AWS")
        );
    }
}
