//! Which interfaces a rendezvous would use, and why not the others.

use std::net::IpAddr;

use mingle_core::tools::{Judged, Kind};

use super::finding::{Finding, Status};

const CHECK: &str = "interface";
/// The most unused interfaces that are listed; a Kubernetes host has hundreds of veths. The rest is counted.
const SHOWN: usize = 24;

/// An interface, as far as the doctor looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) up: bool,
    pub(super) default_route: bool,
    /// Addresses with the length of their prefixes.
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// Why it is not used.
    pub(super) refused: Option<String>,
}

impl Nic {
    pub(super) fn new(judged: &Judged) -> Self {
        let interface = &judged.interface;
        Self {
            name: interface.name.clone(),
            kind: interface.kind,
            up: interface.up,
            default_route: interface.default_route,
            addresses: interface.addresses.iter().map(|address| (address.ip, address.prefix)).collect(),
            refused: judged.refused.clone(),
        }
    }
}

/// A finding for each interface, and a problem where none can be used. Loopback alone is no problem where the
/// user has `chosen` it.
pub(super) fn examine(all: &[Nic], chosen: bool) -> Vec<Finding> {
    let used: Vec<&Nic> = all.iter().filter(|nic| nic.refused.is_none()).collect();
    let mut findings = Vec::new();
    if used.is_empty() {
        findings.push(Finding::new(
            Status::Problem,
            CHECK,
            "network interfaces",
            "none can be used",
            "bring one up and give it an address (ip link set eth0 up), or choose one with --interface",
        ));
    } else if used.iter().all(|interface| interface.kind == Kind::Loopback) {
        findings.push(Finding::new(
            if chosen { Status::Warning } else { Status::Problem },
            CHECK,
            "network interfaces",
            "only loopback can be used, which no other host can reach",
            "bring a NIC up and give it an address, unless all nodes are on this host",
        ));
    }
    findings.extend(used.iter().enumerate().map(|(place, interface)| in_use(place, interface, &used)));
    let refused = all.iter().filter_map(|nic| Some((nic, nic.refused.as_deref()?)));
    let refused: Vec<_> = refused.filter(|(interface, _)| interface.kind != Kind::Loopback).collect();
    findings.extend(refused.iter().take(SHOWN).map(|(interface, why)| not_in_use(interface, why)));
    if let Some(rest) = refused.len().checked_sub(SHOWN).filter(|rest| *rest > 0) {
        findings.push(Finding::ok(CHECK, "more interfaces", format!("{rest} that are not used")));
    }
    findings
}

fn in_use(place: usize, interface: &Nic, used: &[&Nic]) -> Finding {
    let looked = format!("interface {}", interface.name);
    let addresses: Vec<String> =
        interface.addresses.iter().map(|(ip, bits)| format!("{ip}/{bits}")).collect();
    let addresses = addresses.join(", ");
    let route = if interface.default_route { ", the default route" } else { "" };
    let seen = format!("{addresses}{route}; used, number {} of {}", place + 1, used.len());
    match interface.kind {
        Kind::Virtual => Finding::new(
            Status::Note,
            CHECK,
            looked,
            format!("{seen}, after all real ones: other hosts often have the same address there"),
            format!("exclude it with --interface '^{}', or name the right one", interface.name),
        ),
        _ => Finding::ok(CHECK, looked, seen),
    }
}

fn not_in_use(interface: &Nic, why: &str) -> Finding {
    let looked = format!("interface {}", interface.name);
    if interface.addresses.is_empty() && interface.kind != Kind::Physical {
        // The host's end of a container's veth is not needed.
        return Finding::ok(CHECK, looked, format!("not used: {why}"));
    }
    let name = &interface.name;
    let cure = if interface.up {
        format!(
            "if the job needs it, give it an address (IPv4, or IPv6 that is not link-local), or choose it with --interface {name}"
        )
    } else {
        format!("if the job needs it, bring it up (ip link set {name} up) and check its cable or peer")
    };
    Finding::new(Status::Note, CHECK, looked, format!("not used: {why}"), cure)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::doctor) fn nic(name: &str, kind: Kind, address: &str) -> Nic {
        let (ip, bits) = address.split_once('/').unwrap();
        Nic {
            name: name.to_owned(),
            kind,
            up: true,
            default_route: false,
            addresses: vec![(ip.parse().unwrap(), bits.parse().unwrap())],
            refused: None,
        }
    }

    #[test]
    fn a_used_interface_is_ok_and_an_unused_one_has_its_reason() {
        let docker = nic("docker0", Kind::Virtual, "172.17.0.1/16");
        let refused = Some("down, or without a link".to_owned());
        let dead = Nic { up: false, refused, ..nic("ib0", Kind::Physical, "10.9.0.1/24") };
        let found = examine(&[nic("eth0", Kind::Physical, "10.0.0.1/24"), docker, dead], false);
        let statuses: Vec<Status> = found.iter().map(|finding| finding.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Note, Status::Note], "{found:?}");
        assert_eq!(found[0].seen, "10.0.0.1/24; used, number 1 of 2");
        assert!(found[1].cure.as_ref().unwrap().contains("--interface '^docker0'"));
        assert!(found[2].seen.contains("without a link") && found[2].cure.as_ref().unwrap().contains("up"));
    }

    #[test]
    fn a_host_with_only_loopback_or_no_interface_is_a_problem_unless_loopback_was_chosen() {
        let lo = || vec![nic("lo", Kind::Loopback, "127.0.0.1/8")];
        for (all, chosen, expected) in [
            (vec![], false, Status::Problem),
            (vec![], true, Status::Problem),
            (lo(), false, Status::Problem),
            (lo(), true, Status::Warning),
        ] {
            assert_eq!(examine(&all, chosen)[0].status, expected, "{all:?}");
        }
    }
}
