//! Each cure, applied word by word, makes the world form: a fault is planted, all hosts blame it and nothing
//! else, and the commands of the report are carried out as they stand there.

use super::{Report, together};
use crate::lab::world::form;
use crate::lab::{Lab, Options};

/// The cures of all findings of this check.
fn cures(report: &Report, check: &str) -> Vec<String> {
    let findings = report.document["findings"].as_array().unwrap().iter();
    findings.filter(|f| f["check"] == check).filter_map(|f| f["cure"].as_str().map(str::to_owned)).collect()
}

/// Runs the commands of the report that stand behind "on HOST: ", each between backticks.
fn apply(lab: &Lab, report: &Report, check: &str) {
    for cure in cures(report, check) {
        let (host, rest) = cure.strip_prefix("on node").and_then(|cure| cure.split_once(": `")).expect(&cure);
        lab.at(host.parse().unwrap(), rest.split_once('`').unwrap().0);
    }
}

/// Checks that all hosts have so many problems of this check, with these words, and nothing else.
fn all_blame(lab: &Lab, count: usize, check: &str, words: &[&str]) -> Vec<Report> {
    let what = format!("problem {check}");
    let reports = together(lab, "");
    for report in &reports {
        report.ends_with(5).names(&what, words);
        assert_eq!(report.bad(), vec![what.clone(); count], "{}", report.rendered);
    }
    reports
}

#[test]
fn routes_and_rules_that_lead_nowhere_are_named_with_the_command_that_mends_them() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    for (plant, words) in [
        ("route add unreachable 10.77.0.12/32", "rejects packets to 10.77.0.12/32"),
        ("route add prohibit 10.77.0.12/31", "rejects packets to 10.77.0.12/31"),
        ("route add blackhole 10.77.0.12/32", "rejects packets to 10.77.0.12/32"),
        ("route add 10.77.0.12/32 via 10.77.0.200", "the gateway 10.77.0.200"),
        ("rule add to 10.77.0.12 blackhole", "a rule (`ip rule`) of node1"),
    ] {
        lab.at(1, &format!("ip {plant}"));
        let name = "from node1 (10.77.0.11) to node2 (10.77.0.12)";
        let reports = all_blame(&lab, 1, "route", &[name, "nothing passes, but multicast", words]);
        apply(&lab, &reports[0], "route");
        form(&lab, "cured", &[]).expect(&lab, &[0, 1, 2]);
    }
}

#[test]
fn hosts_of_two_networks_on_one_link_get_routes_to_each_other() {
    // With a router for each network, which is not there, and without.
    for router in [true, false] {
        let Some(lab) = Options::nodes(3).with_names().without_default_route().start() else { return };
        lab.at(2, "ip address flush dev eth0; ip address add 10.78.0.12/24 dev eth0");
        for (node, net) in [(0, 77), (1, 77), (2, 78)].into_iter().filter(|_| router) {
            lab.at(node, &format!("ip route add default via 10.{net}.0.1"));
        }
        // Those of one network form a world, and each side names the others that it has heard.
        let reports = together(&lab, "--timeout 4s");
        // With a router the addresses may be no fault.
        let (what, words) = if router {
            ("warning route", "10.78.0.12 is in no network of this host")
        } else {
            ("problem route", "no route of node0 leads to 10.78.0.12")
        };
        for (report, count) in reports.iter().zip([1, 1, 2]) {
            assert_ne!(report.code, 0, "{}", report.rendered);
            assert_eq!(report.bad().iter().filter(|bad| **bad == what).count(), count, "{}", report.rendered);
            apply(&lab, report, "route");
        }
        reports[0].names(what, &["to node2 (10.78.0.12)", words]);
        form(&lab, "cured", &[]).expect(&lab, &[0, 1, 2]);
    }
}

#[test]
fn on_a_host_with_two_networks_no_command_names_an_interface_that_has_not_heard_the_other_host() {
    let Some(lab) = Options::nodes(3).with_names().without_default_route().start() else { return };
    lab.at(2, "ip address flush dev eth0; ip address add 10.78.0.12/24 dev eth0");
    // This interface comes first, since it has the default route.
    let other =
        "ip link add e0 type veth peer name e1; ip address add 10.99.0.10/24 dev e0; ip link set e1 up";
    lab.at(0, &format!("{other}; ip link set e0 up; ip route add default via 10.99.0.1"));
    let words = ["to node2 (10.78.0.12)", "add a route to 10.78.0.12 on node0"];
    together(&lab, "--timeout 4s")[0].names("warning route", &words);
}

#[test]
fn a_firewall_that_knows_only_some_ports_is_opened_by_the_command_of_its_own_host() {
    let only_mingles = "type filter hook input priority 0; policy drop; iif lo accept; ct state established accept; \
                        meta l4proto { icmp, icmpv6 } accept; udp dport 29499-29999 accept; tcp dport 29500-29999 accept;";
    let not_the_kernels = "type filter hook input priority 0; \
                           ip saddr 10.77.0.11 tcp dport 32768-60999 tcp flags & (syn|ack) == syn drop;";
    for (rules, provers) in [(only_mingles, 2), (not_the_kernels, 1)] {
        let Some(lab) = Options::nodes(3).with_names().with_filters().start() else { return };
        lab.at(2, &format!("nft 'table inet strict {{ chain input {{ {rules} }}; }}'"));
        let cannot = "node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ";
        let words = [
            "32768-60999",
            "does not answer, port 29",
            "--paths master",
            "the report of node2 has the command",
        ];
        let reports = all_blame(&lab, provers, "path", &[&[cannot][..], &words].concat());
        let own = cures(&reports[2], "firewall").remove(0);
        lab.at(2, own.split_once("other hosts: ").unwrap().1);
        form(&lab, "cured", &[]).expect(&lab, &[0, 1, 2]);
    }
}

#[test]
fn two_hosts_with_one_address_are_told_to_compare_their_addresses() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    lab.at(1, "ip address flush dev eth0; ip address add 10.77.0.10/24 dev eth0");
    for report in together(&lab, "--timeout 1s") {
        report
            .ends_with(3)
            .names("problem hosts", &["nobody else was heard", "`ip -brief address`", "one address"]);
    }
    lab.at(1, "ip address flush dev eth0; ip address add 10.77.0.11/24 dev eth0");
    form(&lab, "cured", &[]).expect(&lab, &[0, 1]);
}

#[test]
fn one_address_of_two_hosts_is_named_by_the_others() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    lab.at(
        3,
        "ip address flush dev eth0; ip address add 10.77.0.10/24 dev eth0; ip route add default dev eth0",
    );
    // The two are told apart where both are heard by turns. A busy machine may hear one of them join first.
    let is_named = |report: &Report| {
        let words = ["node0", "node3", "have the same IP address, 10.77.0.10"];
        report.code != 0 && words.iter().all(|word| report.rendered.contains(word))
    };
    let are_named = |_| together(&lab, "--timeout 4s")[1..3].iter().all(is_named);
    assert!((0..3).any(are_named), "in none of three runs");
}
