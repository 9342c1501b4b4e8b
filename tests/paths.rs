//! The paths from each node to each other one: those that are broken end every node with the pair, the
//! direction, the cause and the cure, and those that a job can use form a world.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lab::fabric::{Node, start};
use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, form, start_all};
use crate::lab::{Lab, Options, limit};

/// How long a world takes at most to say which path is broken.
const LIMIT: Duration = Duration::from_secs(15);

/// Checks that all nodes end in time with code 5 and these words.
fn fails(lab: &Lab, job: &str, more: &[&str], words: &[&str]) -> Vec<Outcome> {
    all_fail(start_all(lab, job, more), words)
}

fn all_fail(procs: Vec<Proc>, words: &[&str]) -> Vec<Outcome> {
    let started: Vec<_> = procs.iter().map(|proc| proc.started).collect();
    let outcomes = finish_all(procs);
    for (outcome, started) in outcomes.iter().zip(started) {
        outcome.failed(5, words);
        let took = outcome.ended - started;
        assert!(took < LIMIT, "{took:?}: {}", outcome.render());
    }
    outcomes
}

/// A rule of node 2's firewall: it drops what node 1 sends to the kernel's ports.
const NO_KERNEL_PORTS: &str = "ip saddr 10.77.0.11 tcp dport 32768-60999 tcp flags & (syn|ack) == syn";

#[test]
fn a_firewall_that_blocks_the_kernels_ports_one_way_is_named_with_the_pair_and_the_cure() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.firewall(2, &[NO_KERNEL_PORTS]);
    let words = [
        "node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ",
        " does not answer, port 29",
        "accept the ephemeral ports",
        "--paths master",
    ];
    let outcomes = fails(&lab, "one way", &[""; 4], &words);
    for outcome in &outcomes {
        let told =
            "mingle: warning: node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ";
        assert!(outcome.stderr.contains(told), "{}", outcome.render());
    }
    let named: BTreeSet<&str> =
        outcomes.iter().map(|outcome| outcome.stderr.lines().last().unwrap()).collect();
    assert_eq!(named.len(), 1, "all say the same: {named:?}");

    // The way round that the message names.
    form(&lab, "one way", &["--paths master"; 4]).expect(&lab, &[0, 1, 2, 3]);
}

#[test]
fn a_broken_path_is_said_on_all_nodes_after_the_first_round_and_is_the_reason_at_a_deadline_before_the_last()
{
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    lab.firewall(2, &[NO_KERNEL_PORTS]);
    let path = "node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ";
    let procs = start_all(&lab, "said", &["--timeout 6s"; 3]);
    for proc in &procs {
        proc.expect_stderr_within(limit(Duration::from_secs(8)), &format!("warning: {path}"));
        proc.expect_stderr("; the nodes try again; in the firewall of node2, accept the ephemeral ports");
    }
    for outcome in finish_all(procs) {
        outcome.failed(5, &[&format!("error: {path}"), "accept the ephemeral ports"]);
        assert!(!outcome.stderr.contains("missing"), "{}", outcome.render());
    }
    // The time of one member is up in the first round. When it has left, its absence is not why there is no
    // world.
    let procs = start_all(&lab, "member", &["--rank 0 --timeout 12s", "--timeout 7s", "--timeout 3s"]);
    for outcome in finish_all(procs) {
        let all_here = "all nodes were here, and not all paths between them were proved: ";
        outcome.failed(5, &[all_here, path, "accept the ephemeral ports"]);
    }
}

#[test]
fn a_job_that_listens_on_the_nodes_own_ports_needs_no_others() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    for node in 0..4 {
        lab.firewall(node, &["tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
    }
    let outcomes = finish_all(start_all(&lab, "own ports", &["--format tf-config"; 4]));
    for outcome in &outcomes {
        assert!(outcome.status.success() && outcome.stdout.contains("\"cluster\""), "{}", outcome.render());
    }
}

/// Packets above `most` bytes vanish between two hosts, silently, where each has this MTU.
fn packets_vanish(mtu: u32, most: u32) {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.set_mtu(mtu);
    lab.drop_at_bridge(&[&format!("ip saddr 10.77.0.11 ip daddr 10.77.0.13 ip length > {most}")]);
    let words = [
        "TCP segments from node1 (10.77.0.11) to node3 (10.77.0.13) vanish",
        &format!("packets of {mtu} bytes do not arrive, those of {most} bytes do"),
        &format!("the MTU is {mtu} on both"),
        "let the routers between them send ICMP",
    ];
    fails(&lab, "hole", &[""; 4], &words);
}

#[test]
fn jumbo_frames_that_vanish_above_1500_bytes_are_named_with_the_length_that_passes() {
    packets_vanish(9000, 1500);
}

#[test]
fn jumbo_frames_that_vanish_above_1400_bytes_are_named_with_the_length_that_passes() {
    packets_vanish(9000, 1400);
}

#[test]
fn packets_of_ethernet_that_vanish_above_1400_bytes_are_named_with_the_length_that_passes() {
    packets_vanish(1500, 1400);
}

#[test]
fn packets_that_vanish_on_the_way_to_the_leader_are_named_although_what_nodes_compare_is_longer() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.drop_at_bridge(&["ip saddr 10.77.0.13 ip daddr 10.77.0.10 ip length > 1400"]);
    let same: Vec<String> =
        (0..32).map(|key| format!("--same a-key-of-usual-length-{key:02}={}", "v".repeat(32))).collect();
    let same = same.join(" ");
    let words = ["TCP segments from node3 (10.77.0.13) to node0 (10.77.0.10) vanish"];
    fails(&lab, "long joins", &[same.as_str(); 4], &words);
}

#[test]
fn a_network_that_shortens_packets_in_a_way_that_tcp_follows_forms_a_world() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    // Jumbo frames on one host alone: TCP takes the lesser MSS.
    lab.at(1, "ip link set eth0 mtu 9000");
    form(&lab, "one jumbo", &[""; 4]).expect(&lab, &[0, 1, 2, 3]);
    // WireGuard on one host alone.
    lab.at(1, "ip link set eth0 mtu 1420");
    form(&lab, "one tunnel", &[""; 4]).expect(&lab, &[0, 1, 2, 3]);
    lab.at(1, "ip link set eth0 mtu 1500");

    // A router clamps the MSS where packets above 1,400 bytes would vanish, and sends no ICMP.
    lab.drop_at_bridge(&["ip length > 1400"]);
    let clamp = "nft -f - <<'END'\n\
                 table inet clamp {\n chain out {\n type filter hook output priority 0\n \
                 tcp flags syn tcp option maxseg size set 1360\n }\n }\nEND";
    for node in 0..4 {
        lab.at(node, clamp);
    }
    form(&lab, "clamped", &[""; 4]).expect(&lab, &[0, 1, 2, 3]);
}

#[test]
fn a_router_that_answers_long_packets_by_icmp_forms_a_world() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.route_everything();
    lab.switch("ip link set p3 mtu 1400");
    let seeds = format!("--seed {}", lab.address(0));
    let world = form(&lab, "icmp", &[seeds.as_str(); 4]);
    assert_eq!(world.ranks(), [0, 1, 2, 3]);
    // The kernel has learned it from the router.
    let route = lab.at(0, "ip route get 10.77.0.13");
    assert!(route.contains("mtu 1400"), "{route}");
}

#[test]
fn an_interface_whose_first_address_is_out_of_reach_is_named_and_a_label_cures_it() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let addresses = |label: &str| {
        format!(
            "ip address flush dev eth0\nip address add 192.168.55.3/24 dev eth0 {label}\n\
             ip address add 10.77.0.13/24 dev eth0\nip route add default dev eth0\n"
        )
    };
    lab.at(3, &addresses(""));
    let words =
        ["to node3 (192.168.55.3): port ", "NCCL and Gloo take the first address of an interface", "label"];
    fails(&lab, "first address", &[""; 4], &words);

    // Where no path is proved, the address is that of the session with the leader.
    let outcomes = finish_all(start_all(&lab, "lease", &["--paths master --format hostfile"; 4]));
    for outcome in &outcomes {
        assert_eq!(outcome.stdout.lines().last(), Some("10.77.0.13 slots=1"), "{}", outcome.render());
    }

    lab.at(3, &addresses("label eth0:1"));
    let outcomes = finish_all(start_all(&lab, "label", &["--format hostfile"; 4]));
    for outcome in &outcomes {
        assert_eq!(outcome.stdout.lines().last(), Some("10.77.0.13 slots=1"), "{}", outcome.render());
    }
}

#[test]
fn an_address_that_has_a_label_alone_is_named_by_it_for_gloo_and_by_its_beginning_for_nccl() {
    let Some(lab) = Options::nodes(2).start() else { return };
    lab.at(1, "ip address flush dev eth0\nip address add 10.77.0.11/24 dev eth0 label eth0:1\n");
    let outcomes = finish_all(start_all(&lab, "label alone", &[""; 2]));
    let names = ["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];
    let of = |node: usize| {
        let vars = outcomes[node].formed();
        names.map(|name| vars.get(name).cloned().unwrap_or_default())
    };
    assert_eq!(of(0), ["=eth0", "", "eth0", "eth0"]);
    assert_eq!(of(1), ["eth0", "AF_INET", "eth0:1", "eth0:1"]);
}

#[test]
fn on_hosts_whose_default_route_leads_nowhere_every_list_of_hosts_has_addresses_that_work() {
    let Some(lab) = Options::nodes(4).with_route_into_dead_nic().start() else { return };
    for format in
        ["hostfile", "deepspeed", "hosts", "slots", "horovod", "ti-one", "skypilot", "tf-config", "json"]
    {
        let outcomes = finish_all(start_all(&lab, format, &[format!("--format {format}").as_str(); 4]));
        for outcome in &outcomes {
            assert!(outcome.status.success(), "{}", outcome.render());
            let is_listed = |node| outcome.stdout.contains(&format!("{}", lab.address(node)));
            assert!((0..4).all(is_listed) && !outcome.stdout.contains("10.88."), "{}", outcome.render());
        }
    }
}

#[test]
fn an_interface_that_the_user_has_given_to_nccl_or_gloo_is_proved_too() {
    let Some(lab) = Options::nodes(4).with_route_into_dead_nic().start() else { return };
    let nodes = |(name, value), more| vec![Node::of("none").set(name, value).with(more); 4];
    for given in [("NCCL_SOCKET_IFNAME", "=eth1"), ("GLOO_SOCKET_IFNAME", "eth1,eth0")] {
        let words = [" (10.88.", "port ", "change your own NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"];
        all_fail(start(&lab, "given", &nodes(given, "")), &words);
        // Without proofs of paths the user's word counts.
        for outcome in finish_all(start(&lab, "given", &nodes(given, "--paths master"))) {
            assert!(outcome.status.success(), "{}", outcome.render());
        }
    }
    for outcome in finish_all(start(&lab, "given", &nodes(("NCCL_SOCKET_IFNAME", "eth0"), ""))) {
        assert!(outcome.status.success(), "{}", outcome.render());
    }
}

#[test]
fn worlds_of_ipv6_alone_prove_their_paths() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.add_ipv6();
    for node in 0..4 {
        lab.remove_ipv4(node);
    }
    // The least MTU of IPv6, on one host.
    lab.at(1, "ip link set eth0 mtu 1280");
    let outcomes = finish_all(start_all(&lab, "six", &[""; 4]));
    assert_eq!(World::of(&outcomes).ranks(), [0, 1, 2, 3]);
    let rule = format!("ip6 saddr {} tcp dport 32768-60999 tcp flags & (syn|ack) == syn", lab.address_v6(3));
    lab.firewall(0, &[&rule]);
    let words = [format!("node3 ({})", lab.address_v6(3)), format!("node0 ({})", lab.address_v6(0))];
    fails(&lab, "six blocked", &[""; 4], &words.each_ref().map(String::as_str));
}
