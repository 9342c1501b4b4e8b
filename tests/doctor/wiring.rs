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

/// A port: its host and its interface.
type Port<'a> = (usize, &'a str);

/// Puts a cable between two ports.
fn cable(lab: &Lab, (a, here): Port<'_>, (b, there): Port<'_>) {
    lab.switch(&format!("ip link add {here} netns n{a} type veth peer name {there} netns n{b}"));
    for (node, port) in [(a, here), (b, there)] {
        lab.at(node, &format!("ip link set {port} addrgenmode none up"));
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
        lab.at(node, &format!("ip link set {port} addrgenmode none up"));
    }
}

fn give(lab: &Lab, (node, port): Port<'_>, address: &str) {
    lab.at(node, &format!("ip addr add {address} brd + dev {port}"));
}

/// The reports of all hosts, which have the devices of this machine.
fn reports(lab: &Lab, machine: &str) -> Vec<Report> {
    let world = lab.len().to_string();
    let spawn = |node| {
        let mut command = lab.command(node, MINGLE);
        command.args(["doctor", "-j", "wiring", "-w", &world, "--timeout", "12s", "--format", "json"]);
        lab.start(node, {
            command.env("MINGLE_SYSFS_ROOT", fixture(machine));
            command
        })
    };
    let all: Vec<Proc> = (0..lab.len()).map(spawn).collect();
    all.into_iter().map(|proc| Report::of(&proc.finish())).collect()
}

/// The ports of each segment, as `0 enp0`.
fn segments(report: &Report) -> Vec<BTreeSet<String>> {
    let port = |port: &Value| {
        let host = port["host"].as_str().unwrap().trim_start_matches("node");
        format!("{host} {}", port["interface"].as_str().unwrap())
    };
    let segments = report.document["wiring"].as_array().unwrap().iter();
    segments.map(|segment| segment.as_array().unwrap().iter().map(port).collect()).collect()
}

/// Checks that the hosts see this and nothing bad.
fn all_see(reports: &[Report], shape: &str, expected: usize) {
    for report in reports {
        report.ends_with(0).names("ok wiring", &[shape]);
        assert_eq!(report.bad(), [""; 0], "{}", report.rendered);
        assert_eq!(segments(report).len(), expected, "{}", report.rendered);
    }
}

/// Checks that all hosts have so many warnings about the wiring, with these words, and nothing else.
fn all_warn(reports: &[Report], count: usize, words: &[&str]) {
    for report in reports {
        report.ends_with(0).names("warning wiring", words);
        assert_eq!(report.bad(), vec!["warning wiring"; count], "{}", report.rendered);
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
    all_see(&healthy, "cables join each two of the 3 hosts", 6);
    for (report, (one, other)) in healthy.iter().flat_map(|report| cables.map(|cable| (report, cable))) {
        let pair = [one, other].map(|(node, port)| format!("{node} {port}")).into();
        assert!(segments(report).contains(&pair), "{pair:?} in\n{}", report.rendered);
    }

    lab.at(2, "ip link set enp2 down");
    let words = [
        "ports for RDMA in 192.168.4.0/24",
        "enp0 of node1 reaches nothing (no link); enp2 of node2 reaches nothing (no link)",
    ];
    all_warn(&reports(&lab, SPARK), 1, &words);
}

#[test]
fn crossed_cables_of_a_pair_are_named_by_their_ends_whatever_answers_arp() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let address = |net: usize, node: usize| format!("10.0.{net}.{}/24", node + 1);
    cable(&lab, (0, "enp0"), (1, "enp0"));
    (0..2).for_each(|node| give(&lab, (node, "enp0"), &address(0, node)));
    all_see(&reports(&lab, SPARK), "one switch or cable joins the ports of all 2 hosts", 1);

    cable(&lab, (0, "enp2"), (1, "enp2"));
    (0..2).for_each(|node| give(&lab, (node, "enp2"), &address(2, node)));
    all_see(&reports(&lab, SPARK), "2 rails or cables, each of which joins all 2 hosts", 2);

    for ignore in [0, 1] {
        // Deletes both ends.
        lab.at(0, "ip link del enp0; ip link del enp2");
        cable(&lab, (0, "enp0"), (1, "enp2"));
        cable(&lab, (0, "enp2"), (1, "enp0"));
        for (node, net) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
            give(&lab, (node, OF_SPARK[net]), &address(net, node));
            lab.at(node, &format!("echo {ignore} > /proc/sys/net/ipv4/conf/{}/arp_ignore", OF_SPARK[net]));
        }
        for report in reports(&lab, SPARK) {
            for (network, reaches) in [
                ("10.0.0.0/24", "enp0 of node0 reaches enp2 of node1; enp0 of node1 reaches enp2 of node0"),
                ("10.0.2.0/24", "enp2 of node0 reaches enp0 of node1; enp2 of node1 reaches enp0 of node0"),
            ] {
                report.names("warning wiring", &[network, reaches, "the cables are crossed"]);
            }
            assert_eq!(report.bad(), ["warning wiring"; 2], "{}", report.rendered);
            assert_eq!(segments(&report).len(), 2, "{}", report.rendered);
        }
    }
}

#[test]
fn eight_rails_of_three_hosts_are_told_from_one_switch() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    for net in 0..8 {
        let port = format!("ens{net}np0");
        rail(&lab, &port);
        (0..3).for_each(|node| give(&lab, (node, &port), &format!("10.20.{net}.{}/24", node + 1)));
    }
    all_see(&reports(&lab, "rail8-same"), "8 rails or cables, each of which joins all 3 hosts", 8);

    let Some(lab) = Options::nodes(3).with_names().beside(&lab).start() else { return };
    for (place, port) in OF_SPARK.iter().enumerate() {
        for node in 0..3 {
            lab.plug(node, port);
            give(&lab, (node, port), &format!("10.20.0.{}/24", 10 * node + place + 1));
        }
    }
    all_see(&reports(&lab, SPARK), "one switch or cable joins the ports of all 3 hosts", 1);
}
