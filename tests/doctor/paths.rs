//! The paths between hosts that form no world: the doctor says of them what a rendezvous would.

use super::{Report, together};
use crate::lab::{Lab, Options};

/// Checks that all hosts name one broken path with these words, and nothing else.
fn all_name(lab: &Lab, words: &[&str]) {
    let words: Vec<&str> = words.iter().copied().chain(["--paths master"]).collect();
    for report in together(lab, "") {
        report.ends_with(5).names("problem path", &words);
        assert_eq!(report.bad(), ["problem path"], "{}", report.rendered);
    }
}

/// Checks that all hosts have proved all paths.
fn all_are_fine(reports: &[Report], bad: &[&str]) {
    for report in reports {
        assert_eq!(report.bad(), bad, "{}", report.rendered);
        let ways = report.document["matrix"].as_array().unwrap();
        assert!(ways.iter().all(|way| way["path"]["works"] == true), "{}", report.rendered);
    }
}

#[test]
fn packets_that_vanish_above_1400_bytes_between_two_hosts_are_named_with_the_mtus() {
    let Some(lab) = Options::nodes(4).with_names().with_filters().start() else { return };
    lab.drop_at_bridge(&["ip saddr 10.77.0.11 ip daddr 10.77.0.13 ip length > 1400"]);
    let words = [
        "TCP segments from node1 (10.77.0.11) to node3 (10.77.0.13) vanish",
        "packets of 1500 bytes do not arrive, those of 1400 bytes do; the MTU is 1500 on both",
        "let its routers send ICMP",
    ];
    all_name(&lab, &words);
}

#[test]
fn a_firewall_that_blocks_the_kernels_ports_one_way_is_named_with_the_port_that_answers() {
    let Some(lab) = Options::nodes(3).with_names().with_filters().start() else { return };
    lab.firewall(2, &["ip saddr 10.77.0.11 tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
    let words = [
        "node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ",
        " does not answer, port 29",
        "open the kernel's ports",
    ];
    all_name(&lab, &words);
}

#[test]
fn networks_that_shorten_packets_in_a_way_that_tcp_follows_have_no_finding() {
    let Some(lab) = Options::nodes(3).with_names().with_filters().start() else { return };
    lab.at(1, "ip link set eth0 mtu 9000");
    all_are_fine(&together(&lab, ""), &[]);
    lab.at(1, "ip link set eth0 mtu 1500");

    // A router clamps the MSS where packets above 1,400 bytes would vanish, and sends no ICMP.
    lab.drop_at_bridge(&["ip length > 1400"]);
    let clamp = "nft -f - <<'END'\n\
                 table inet clamp {\n chain out {\n type filter hook output priority 0\n \
                 tcp flags syn tcp option maxseg size set 1360\n }\n }\nEND";
    for node in 0..lab.len() {
        lab.at(node, clamp);
    }
    all_are_fine(&together(&lab, ""), &[]);
}

#[test]
fn a_router_that_answers_long_packets_by_icmp_has_no_finding_but_that_of_multicast() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    lab.route_everything();
    lab.switch("ip link set p2 mtu 1400");
    let seeds = format!("--seed {}", lab.address(0));
    all_are_fine(&together(&lab, &seeds), &["warning multicast"]);
    // The kernel has learned it from the router.
    let route = lab.at(0, "ip route get 10.77.0.12");
    assert!(route.contains("mtu 1400"), "{route}");
}

#[test]
fn where_udp_is_blocked_the_paths_are_no_finding() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.firewall(1, &["udp dport 29499", "udp dport 29500-29999"]);
    let reports = together(&lab, "");
    all_are_fine(&reports[..1], &["problem udp"]);
    // This host has findings on its own firewall, too.
    assert!(!reports[1].bad().contains(&"problem path".to_owned()), "{}", reports[1].rendered);
}

#[test]
fn paths_of_ipv6_alone_are_proved_and_a_broken_one_is_named() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.add_ipv6();
    for node in 0..lab.len() {
        lab.remove_ipv4(node);
    }
    all_are_fine(&together(&lab, ""), &[]);
    let rule = format!("ip6 saddr {} tcp dport 32768-60999 tcp flags & (syn|ack) == syn", lab.address_v6(1));
    lab.firewall(0, &[&rule]);
    let names =
        [format!("node1 ({}) cannot", lab.address_v6(1)), format!("to node0 ({})", lab.address_v6(0))];
    all_name(&lab, &names.each_ref().map(String::as_str));
}

#[test]
fn on_hosts_whose_default_route_leads_nowhere_the_paths_are_those_between_their_common_addresses() {
    let Some(lab) = Options::nodes(3).with_names().with_route_into_dead_nic().start() else { return };
    all_are_fine(&together(&lab, ""), &[]);
}

#[test]
fn a_first_address_out_of_reach_is_named() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    lab.at(
        2,
        "ip address flush dev eth0\nip address add 192.168.55.3/24 dev eth0\n\
         ip address add 10.77.0.12/24 dev eth0\nip route add default dev eth0\n",
    );
    for report in together(&lab, "") {
        let words = ["to node2 (192.168.55.3): port ", "NCCL and Gloo use its first address", "label"];
        report.ends_with(5).names("problem path", &words);
    }
}
