//! Two hosts with the same address, or the same hardware address, on one network.

use super::together;
use crate::lab::{Lab, Options};

/// Checks that the hosts beside node 0 and node 3 name these two. Whether a world forms with one of them is
/// chance.
fn all_name(lab: &Lab, what: &str, words: &[&str]) {
    let reports = together(lab, "--timeout 4s");
    for report in &reports[1..3] {
        report.names(what, words).names(what, &["node0 (10.77.0.10)", "node3 (10.77.0.1"]);
        assert_ne!(report.code, 0, "{}", report.rendered);
    }
}

#[test]
fn the_same_address_on_two_hosts_is_named_by_the_others() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    lab.at(
        3,
        "ip address flush dev eth0; ip address add 10.77.0.10/24 dev eth0; ip route add default dev eth0",
    );
    all_name(&lab, "problem duplicate address", &["both have the address 10.77.0.10"]);
}

#[test]
fn the_same_hardware_address_on_two_hosts_is_named_by_the_others() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    let address = lab.at(0, "cat /sys/class/net/eth0/address");
    lab.at(3, &format!("ip link set eth0 address {address}"));
    all_name(&lab, "problem duplicate hardware address", &[address.trim_end()]);
}

#[test]
fn docker0_with_the_same_address_on_all_hosts_is_no_finding() {
    let Some(lab) = Options::nodes(2).with_names().with_docker0().start() else { return };
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}
