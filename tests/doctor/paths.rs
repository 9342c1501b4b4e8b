//! The paths between hosts: the doctor says of them what a rendezvous would.

use super::together;
use crate::lab::{Lab, Options};

/// Checks that all hosts name one broken path with these words, and nothing else.
fn all_name(lab: &Lab, words: &[&str]) {
    let words: Vec<&str> = words.iter().copied().chain(["--paths master"]).collect();
    for report in together(lab, "") {
        report.ends_with(5).names("problem path", &words);
        assert_eq!(report.bad(), ["problem path"], "{}", report.rendered);
    }
}

#[test]
fn packets_that_vanish_above_1400_bytes_between_two_hosts_are_named_with_the_length_that_passes() {
    let Some(lab) = Options::nodes(4).with_names().with_filters().start() else { return };
    lab.drop_at_bridge(&["ip saddr 10.77.0.11 ip daddr 10.77.0.13 ip length > 1400"]);
    let words = [
        "TCP segments from node1 (10.77.0.11) to node3 (10.77.0.13) vanish",
        "packets of 1500 bytes do not arrive, those of 1400 bytes do",
        "set the MTU of the interfaces to 1400 on all hosts, or let the routers between them send ICMP",
    ];
    all_name(&lab, &words);
}

#[test]
fn hosts_whose_mtus_differ_are_told_which_have_which() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    lab.at(1, "ip link set eth0 mtu 1400");
    for report in together(&lab, "") {
        report.ends_with(0).names("warning sameness", &["MTU differs", "1400", "1500"]);
        assert_eq!(report.bad(), ["warning sameness"], "{}", report.rendered);
    }
}
