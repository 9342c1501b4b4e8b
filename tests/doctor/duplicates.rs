//! Two hosts with the same address, or the same hardware address, on one network.

use super::together;
use crate::lab::{Lab, Options};

/// Checks that all hosts name node 0 and node 3, and nothing else, in one of so many runs.
fn all_name(lab: &Lab, what: &str, words: &[&str], runs: usize) {
    let mut reports = together(lab, "");
    for _ in 1..runs {
        if reports.iter().any(|report| report.bad() != [what]) {
            reports = together(lab, "");
        }
    }
    for report in reports {
        report.ends_with(5).names(what, words).names(what, &["node0 (10.77.0.10)", "node3 (10.77.0.1"]);
        assert_eq!(report.bad(), [what], "{}", report.rendered);
    }
}

#[test]
fn the_same_address_on_two_hosts_is_named_by_all() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    lab.at(
        3,
        "ip address flush dev eth0; ip address add 10.77.0.10/24 dev eth0; ip route add default dev eth0",
    );
    all_name(&lab, "problem duplicate address", &["both have the address 10.77.0.10"], 1);
}

#[test]
fn the_same_hardware_address_on_two_hosts_is_named_by_all() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    let address = lab.at(0, "cat /sys/class/net/eth0/address");
    lab.at(3, &format!("ip link set eth0 address {address}"));
    // The bridge sends frames to the port that it has heard last, so now and then a connection is lucky.
    all_name(&lab, "problem duplicate hardware address", &[address.trim_end()], 5);
}

#[test]
fn docker0_with_the_same_address_on_all_hosts_is_no_finding() {
    let Some(lab) = Options::nodes(2).with_names().with_docker0().start() else { return };
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}
