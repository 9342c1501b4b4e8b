//! Hosts with only IPv6 or with both families, and the ways to find others without multicast.

use super::{alone, shell, together};
use crate::lab::{Lab, Options, Policy};

/// Replaces the IPv4 addresses by IPv6 addresses.
fn ipv6_alone(lab: &Lab) {
    for node in 0..lab.len() {
        shell(
            lab,
            node,
            &format!("ip -4 addr flush dev eth0 && ip addr add fd77::1{node}/64 dev eth0 nodad"),
        );
    }
}

#[test]
fn one_host_and_two_hosts_find_nothing_on_a_healthy_network_with_only_ipv6() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    ipv6_alone(&lab);
    let report = alone(&lab, 0, "");
    assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    report.names("ok own multicast", &["[ff15:", "eth0", "came back"]);
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
        for way in report.document["matrix"].as_array().unwrap() {
            assert!(way["from"].as_str().unwrap().contains("(fd77::1"), "{way}");
            for one in ["multicast", "path"] {
                assert!(way[one]["works"] == true, "{one} of {way}");
            }
        }
    }
}

#[test]
fn a_rule_that_drops_ipv6_multicast_is_named() {
    let Some(lab) = Options::nodes(1).with_names().with_filters().start() else { return };
    ipv6_alone(&lab);
    lab.firewall(0, &["ip6 daddr ff15::/16"]);
    let report = alone(&lab, 0, "");
    report.ends_with(5).names("problem own multicast", &["[ff15:", "did not come back", "--seed"]);
    // A rule for IPv4 is no finding.
    lab.firewall(0, &["ip daddr 224.0.0.0/4"]);
    assert_eq!(alone(&lab, 0, "").ends_with(0).bad(), Vec::<String>::new());
}

#[test]
fn with_both_families_ipv4_counts_unless_ipv6_is_preferred_or_one_host_has_only_ipv6() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    for node in 0..2 {
        shell(&lab, node, &format!("ip addr add fd77::1{node}/64 dev eth0 nodad"));
    }
    // Only one family is cut off.
    lab.firewall(1, &["ip saddr 10.77.0.10"]);
    for report in together(&lab, "--ipv6") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
    // As in a rendezvous, the hosts try IPv4 first, and then IPv6.
    for report in together(&lab, "") {
        report.ends_with(0).names("ok hosts", &["node0 (fd77::10)", "node1 (fd77::11)"]);
    }
    shell(&lab, 0, "ip -4 addr flush dev eth0");
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}

#[test]
fn broadcast_is_tried_with_its_option() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.switch(
        "nft add chain bridge lab f '{ type filter hook forward priority 0; }'
         nft add rule bridge lab f ip daddr 224.0.0.0/4 drop",
    );
    for report in together(&lab, "--broadcast") {
        report.ends_with(0).names("ok broadcast", &["eth0", "came back"]);
        report.names("warning multicast", &["no two hosts", "--broadcast, which passes here"]);
    }
}

#[test]
fn a_shared_folder_is_another_way_to_find_the_others() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    shell(&lab, 0, "mkdir -p /run/seeds");
    for report in together(&lab, "--seed-dir /run/seeds") {
        report.ends_with(0).names("warning multicast", &["no two hosts"]);
    }
    // No file is left in the folder.
    assert_eq!(lab.shell(0, "sh", "ls -A /run/seeds").stdout, "");
}
