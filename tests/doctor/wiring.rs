//! How cables and switches join the ports for RDMA of several hosts. Each host reads the devices of a saved
//! machine, whose ports have the names of real interfaces here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Report;
use crate::lab::machine::fixture;
use crate::lab::proc::Proc;
use crate::lab::{Lab, MINGLE, Options};

const SPARK: &str = "dgx-spark";
const OF_SPARK: [&str; 4] = ["enp0", "enp1", "enp2", "enp3"];

/// The check of IPv6 for duplicates would delay link-local addresses.
const NODAD: &str =
    "echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";

/// A port: its host and its interface.
type Port<'a> = (usize, &'a str);

/// Puts a cable between two ports.
fn cable(lab: &Lab, (a, here): Port<'_>, (b, there): Port<'_>) {
    lab.switch(&format!("ip link add {here} netns n{a} type veth peer name {there} netns n{b}"));
    for (node, port) in [(a, here), (b, there)] {
        lab.at(node, &format!("{NODAD}; ip link set {port} up"));
    }
}

/// Plugs ports of this name on all hosts into a switch of their own.
fn rail(lab: &Lab, port: &str) {
    lab.switch(&format!(
        "ip link add b{port} type bridge mcast_snooping 0; ip link set b{port} addrgenmode none up"
    ));
    for node in 0..lab.len() {
        let end = format!("{node}{port}");
        lab.switch(&format!(
            "ip link add {end} type veth peer name {port} netns n{node}
             ip link set {end} addrgenmode none master b{port} up"
        ));
        lab.at(node, &format!("{NODAD}; ip link set {port} up"));
    }
}

fn give(lab: &Lab, (node, port): Port<'_>, address: &str) {
    lab.at(node, &format!("ip addr add {address} dev {port}"));
}

/// The doctor on a host that has the devices of this machine.
fn doctor(lab: &Lab, node: usize, machine: &str) -> Proc {
    let mut command = lab.command(node, MINGLE);
    let world = lab.len().to_string();
    command.args(["doctor", "-j", "wiring", "-w", &world, "--timeout", "12s", "--format", "json"]);
    command.env("MINGLE_SYSFS_ROOT", fixture(machine));
    lab.start(node, command)
}

/// The reports of all hosts, which have the devices of this machine.
fn reports(lab: &Lab, machine: &str) -> Vec<Report> {
    let all: Vec<Proc> = (0..lab.len()).map(|node| doctor(lab, node, machine)).collect();
    all.into_iter().map(|proc| Report::of(&proc.finish())).collect()
}

/// The ports of each segment, as `0 enp0`.
fn segments(report: &Report) -> Vec<BTreeSet<String>> {
    let port = |port: &Value| {
        let host = port["host"].as_str().unwrap().trim_start_matches("node");
        format!("{} {}", host.split(' ').next().unwrap(), port["interface"].as_str().unwrap())
    };
    let segments = report.document["wiring"].as_array().unwrap().iter();
    segments.map(|segment| segment.as_array().unwrap().iter().map(port).collect()).collect()
}

/// Checks that the hosts see so many cables or switches, and nothing bad.
fn all_see(reports: &[Report], expected: usize) {
    for report in reports {
        assert_eq!(report.ends_with(0).bad(), [""; 0], "{}", report.rendered);
        assert_eq!(segments(report).len(), expected, "{}", report.rendered);
    }
}

#[test]
fn a_ring_of_three_sparks_is_told_from_a_switch_and_its_dead_cable_is_named_by_both_ends() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    // As NVIDIA's playbook connect-three-sparks has it: each cable carries two networks.
    let cables = [
        ((0, "enp0"), (1, "enp2")),
        ((0, "enp1"), (1, "enp3")),
        ((0, "enp2"), (2, "enp0")),
        ((0, "enp3"), (2, "enp1")),
        ((1, "enp0"), (2, "enp2")),
        ((1, "enp1"), (2, "enp3")),
    ];
    for (net, (one, other)) in cables.into_iter().enumerate() {
        cable(&lab, one, other);
        give(&lab, one, &format!("192.168.{net}.1/24"));
        give(&lab, other, &format!("192.168.{net}.2/24"));
    }
    let healthy = reports(&lab, SPARK);
    all_see(&healthy, 6);
    for (report, (one, other)) in healthy.iter().flat_map(|report| cables.map(|cable| (report, cable))) {
        let pair = [one, other].map(|(node, port)| format!("{node} {port}")).into();
        assert!(segments(report).contains(&pair), "{pair:?} in\n{}", report.rendered);
    }

    lab.at(2, "ip link set enp2 down");
    for report in reports(&lab, SPARK) {
        for (by, node) in [("enp0", 1), ("enp2", 2)] {
            let (end, cure) = (format!("{by} of node{node}"), format!("`ethtool {by}` on node{node}"));
            report.ends_with(0).names("warning wiring", &[&end, "has no link", &cure]);
        }
        assert_eq!(report.bad(), ["warning wiring"; 2], "{}", report.rendered);
    }
}

/// Crosses the cables of a pair whose ports enp0 and enp2 have a network each, and checks that both hosts say
/// so.
fn cross(lab: &Lab, networks: [(&str, &str, &str); 2]) {
    cable(lab, (0, "enp0"), (1, "enp2"));
    cable(lab, (0, "enp2"), (1, "enp0"));
    for (port, beginning, length) in networks {
        for node in 0..2 {
            give(lab, (node, port), &format!("{beginning}{}{length}", node + 1));
        }
    }
    for report in reports(lab, SPARK) {
        for (here, there) in [(0, 1), (1, 0)] {
            for (by, heard) in [("enp0", "enp2"), ("enp2", "enp0")] {
                let end = format!("{by} of node{here} (10.77.0.1{here})");
                let hears = format!("hears {heard} of node{there} (10.77.0.1{there})");
                report.names("warning wiring", &[&end, &hears, "the cables are crossed"]);
            }
        }
        // A strict filter has a warning of its own.
        let mut bad = report.bad();
        bad.retain(|what| what != "warning reverse path");
        assert_eq!(bad, ["warning wiring"; 4], "{}", report.rendered);
        assert_eq!(segments(&report).len(), 2, "{}", report.rendered);
    }
    // With the other ends.
    lab.at(0, "ip link del enp0; ip link del enp2");
}

const V4: [(&str, &str, &str); 2] = [("enp0", "10.0.0.", "/24"), ("enp2", "10.0.2.", "/24")];
const V6: [(&str, &str, &str); 2] = [("enp0", "fd00::", "/64 nodad"), ("enp2", "fd02::", "/64 nodad")];

#[test]
fn crossed_cables_of_a_pair_are_named_whatever_answers_arp_and_the_reverse_path_filter_drops() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    for (arp, reverse) in [(0, 1), (1, 0)] {
        for node in 0..2 {
            let set = format!("echo {arp} > all/arp_ignore; echo {reverse} > all/rp_filter");
            lab.at(node, &format!("cd /proc/sys/net/ipv4/conf; {set}"));
        }
        cross(&lab, V4);
    }
    cross(&lab, V6);
}

#[test]
fn a_pair_has_one_cable_or_two_and_a_port_whose_link_comes_late_is_heard() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    cable(&lab, (0, "enp0"), (1, "enp0"));
    (0..2).for_each(|node| give(&lab, (node, "enp0"), &format!("10.0.0.{}/24", node + 1)));
    all_see(&reports(&lab, SPARK), 1);

    cable(&lab, (0, "enp2"), (1, "enp2"));
    (0..2).for_each(|node| give(&lab, (node, "enp2"), &format!("10.0.2.{}/24", node + 1)));
    all_see(&reports(&lab, SPARK), 2);

    // The other host is switched on last, and drops what arrives at one of its ports, though not its own
    // multicast.
    lab.firewall(1, &["iifname enp0 ip saddr 10.0.0.1", "iifname enp0 ip6 saddr fe80::/10"]);
    lab.at(1, "ip link set enp0 down; ip link set enp2 down");
    let first = doctor(&lab, 0, SPARK);
    // It listens at the groups' port, 29499.
    lab.at(0, "timeout 10 sh -c 'until grep -qi :733b /proc/net/udp; do sleep 0.05; done'");
    lab.at(1, "ip link set enp0 up; ip link set enp2 up");
    let both = [first, doctor(&lab, 1, SPARK)];
    let both = both.map(|proc| Report::of(&proc.finish()));
    all_see(&both, 2);
}

#[test]
fn eight_rails_of_three_hosts_are_told_from_one_switch() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    for net in 0..8 {
        let port = format!("ens{net}np0");
        rail(&lab, &port);
        (0..3).for_each(|node| give(&lab, (node, &port), &format!("10.20.{net}.{}/24", node + 1)));
    }
    all_see(&reports(&lab, "rail8-same"), 8);

    let Some(lab) = Options::nodes(3).with_names().beside(&lab).start() else { return };
    for (place, port) in OF_SPARK.iter().enumerate() {
        for node in 0..3 {
            lab.plug(node, port);
            give(&lab, (node, port), &format!("10.20.0.{}/24", 10 * node + place + 1));
        }
    }
    all_see(&reports(&lab, SPARK), 1);
}
