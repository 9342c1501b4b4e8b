//! Which interfaces a rendezvous would use, and why not the others.

use mingle_core::tools::{Interface, Judged, Kind};

use super::finding::{Finding, Severity};
use super::notice::for_shell;

const CHECK: &str = "interface";
/// The most unused interfaces that are listed; a Kubernetes host has hundreds of veths.
const SHOWN: usize = 24;

/// The interfaces that a rendezvous uses.
pub(super) fn used(all: &[Judged]) -> impl Iterator<Item = &Interface> {
    all.iter().filter(|nic| nic.refused.is_none()).map(|nic| &nic.interface)
}

/// A finding for each interface, and a problem where none can be used, or loopback alone, unless the user has
/// `chosen` it.
pub(super) fn examine(all: &[Judged], chosen: bool) -> Vec<Finding> {
    let count = used(all).count();
    let mut findings = Vec::new();
    if count == 0 {
        let cure =
            "bring one up and give it an address (ip link set eth0 up), or choose one with --interface";
        findings.push(Finding::new(Severity::Problem, CHECK, "network interfaces", "none can be used", cure));
    } else if !chosen && used(all).all(|nic| nic.kind == Kind::Loopback) {
        let seen = "only loopback can be used, which no other host can reach";
        let cure = if all.iter().any(|nic| nic.needs_seeds) {
            "give --seed with the address of another node: an interface without multicast is used then"
        } else {
            "bring a NIC up and give it an address, unless all nodes are on this host"
        };
        findings.push(Finding::new(Severity::Problem, CHECK, "network interfaces", seen, cure));
    }
    findings.extend(used(all).enumerate().map(|(at, nic)| in_use(nic, at + 1, count)));
    let refused = all.iter().filter_map(|nic| Some((&nic.interface, nic.refused.as_deref()?)));
    // The host's end of a container's veth has no address, and needs none.
    let refused = refused.filter(|(nic, _)| {
        nic.kind == Kind::Physical || nic.kind != Kind::Loopback && !nic.addresses.is_empty()
    });
    findings.extend(refused.take(SHOWN).map(|(nic, why)| not_in_use(nic, why)));
    findings
}

fn in_use(nic: &Interface, number: usize, count: usize) -> Finding {
    let looked = format!("interface {}", nic.name);
    let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
    let route = if nic.default_route { ", the default route" } else { "" };
    let seen = format!("{}{route}; used, number {number} of {count}", addresses.join(", "));
    match nic.kind {
        Kind::Virtual => {
            let seen = format!("{seen}, after all real ones: other hosts often have the same address there");
            let cure =
                format!("exclude it with --interface '^{}', or name the right one", for_shell(&nic.name));
            Finding::new(Severity::Note, CHECK, looked, seen, cure)
        }
        _ => Finding::ok(CHECK, looked, seen),
    }
}

fn not_in_use(nic: &Interface, why: &str) -> Finding {
    let (name, shown) = (&nic.name, for_shell(&nic.name));
    let cure = format!(
        "if the job needs it, bring it up (ip link set {shown} up) and check its cable or peer, give it an address (IPv4, or \
         IPv6 that is not link-local), or choose it with --interface {shown}"
    );
    Finding::new(Severity::Note, CHECK, format!("interface {name}"), format!("not used: {why}"), cure)
}
