//! Worlds on networks of every kind: which form, at which address, and the messages where none can.

mod changes;
mod cni;
mod commands;
mod folder;
mod healthy;
mod strangers;
mod unicast;

use crate::lab::proc::Outcome;
use crate::lab::world::{World, finish_all, form, line, line_with, start_all};
use crate::lab::{Lab, Options};

/// Checks ranks, the master's address, and that every node reaches it by this interface.
fn expect(world: &World, ranks: &[usize], master: &str, interface: &str) {
    assert_eq!(world.ranks(), ranks, "{world:?}");
    assert_eq!(world.common("MASTER_ADDR"), master);
    for vars in &world.nodes {
        assert_eq!(vars["GLOO_SOCKET_IFNAME"], interface, "{world:?}");
        let family = vars.get("NCCL_SOCKET_FAMILY").map(String::as_str);
        assert_eq!(family, master.contains(':').then_some("AF_INET6"), "{world:?}");
    }
}

/// Starts a world, each node with the same further arguments, and waits until it has formed.
fn form_with(lab: &Lab, job: &str, more: &str) -> World {
    form(lab, job, &vec![more; lab.len()])
}

fn warnings(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix("mingle: warning: ")).collect()
}

#[test]
fn hosts_with_two_common_networks_use_one_and_filters_choose_the_other() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_second_network();
    let (first, second) = (lab.address(0).to_string(), lab.second(0));
    let all = [0, 1, 2, 3];
    expect(&form_with(&lab, "by default route", ""), &all, &first, "eth0");
    for (more, master, interface) in [
        ("--interface eth1", &second, "eth1"),
        ("--interface eth? --interface ^eth0", &second, "eth1"),
        ("--interface ^10.77.0.0/16", &second, "eth1"),
        ("--interface 10.88.0.0/16", &second, "eth1"),
        ("--interface e*1,eth0", &second, "eth1"),
        ("--interface ^eth1", &first, "eth0"),
    ] {
        expect(&form_with(&lab, &format!("with {more}"), more), &all, master, interface);
    }
    // Each name exists on half of the nodes.
    let mixed = ["--interface eth1", "--interface 10.88.0.0/16", "--interface ^eth0", "--interface *1"];
    expect(&form(&lab, "each in its own words", &mixed), &all, &second, "eth1");

    for i in 0..lab.len() {
        lab.at(i, "ip route del default");
    }
    expect(&form_with(&lab, "no default route", ""), &all, &first, "eth0");
}

#[test]
fn with_a_host_on_only_the_second_network_all_use_that_one() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_second_network();
    lab.at(3, "ip link set eth0 down");
    let outcomes = finish_all(start_all(&lab, "only the second", &[]));
    let vars: Vec<_> = outcomes.iter().map(Outcome::formed).collect();
    let of_all = |name: &str| vars.iter().map(|vars| vars[name].clone()).collect::<Vec<_>>();
    // A mesh over both networks would not connect: the others' first addresses are out of that host's reach.
    assert_eq!(of_all("MASTER_ADDR"), [(); 4].map(|()| lab.second(0)));
    assert_eq!(of_all("GLOO_SOCKET_IFNAME"), ["eth1"; 4]);
    assert_eq!(of_all("RANK"), ["0", "1", "2", "3"]);
    assert!(of_all("MASTER_PORT").iter().all(|port| *port == vars[0]["MASTER_PORT"]));
    for outcome in &outcomes {
        assert_eq!(warnings(outcome), [""; 0], "{}", outcome.render());
    }
}

/// Checks that no scope is printed, and no address that would need one.
fn expect_global(outcomes: &[Outcome]) {
    for outcome in outcomes {
        for (name, value) in outcome.formed() {
            // The job ID is percent-encoded.
            let is_global = name == "MINGLE_JOB_ID" || !value.contains('%') && !value.contains("fe80");
            assert!(is_global, "{name} in {}", outcome.render());
        }
    }
}

#[test]
fn hosts_with_only_ipv6_form_a_world() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.add_ipv6();
    for i in 0..lab.len() {
        lab.remove_ipv4(i);
    }
    let master = lab.address_v6(0);
    let outcomes = finish_all(start_all(&lab, "only IPv6", &[]));
    expect_global(&outcomes);
    expect(&World::of(&outcomes), &[0, 1, 2, 3], &master, "eth0");

    lab.drop_at_bridge(&["ip6 daddr ff15::/16"]);
    let seed = format!("--seed {master}");
    expect(&form_with(&lab, "IPv6 seed", &seed), &[0, 1, 2, 3], &master, "eth0");
    let seed = format!("--seed [{master}]:23456 --master-port 23456");
    expect(&form_with(&lab, "IPv6 seed, port", &seed), &[0, 1, 2, 3], &master, "eth0");
}

#[test]
fn a_world_uses_the_common_family_and_of_two_ipv4_by_default() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_ipv6();
    let (v4, v6) = (lab.address(0).to_string(), lab.address_v6(0));
    let all = [0, 1, 2, 3];
    expect(&form_with(&lab, "both", ""), &all, &v4, "eth0");
    let outcomes = finish_all(start_all(&lab, "both, IPv6 asked for", &["--ipv6"; 4]));
    let unproved = "warning: Gloo takes the IPv4 address 10.77.0.1";
    assert!(outcomes.iter().all(|outcome| outcome.stderr.contains(unproved)), "{}", outcomes[0].render());
    expect_global(&outcomes);
    expect(&World::of(&outcomes), &all, &v6, "eth0");

    // A node in the middle, neither the first nor the last, decides for all, whichever node leads.
    lab.at(2, "ip -6 addr flush dev eth0");
    expect(&form_with(&lab, "one with IPv4 only", ""), &all, &v4, "eth0");
    expect(&form_with(&lab, "one with IPv4 only, IPv6 asked for", "--ipv6"), &all, &v4, "eth0");
}

#[test]
fn one_host_with_only_ipv6_makes_the_world_use_ipv6() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_ipv6();
    for only in [0, 3] {
        lab.remove_ipv4(only);
        let outcomes = finish_all(start_all(&lab, &format!("IPv6 alone on {only}"), &[]));
        expect_global(&outcomes);
        expect(&World::of(&outcomes), &[0, 1, 2, 3], &lab.address_v6(0), "eth0");
        lab.restore_ipv4(only);
    }
}

#[test]
fn hosts_without_a_common_family_form_no_world_although_one_has_both() {
    let Some(lab) = Options::nodes(3).start() else { return };
    lab.add_ipv6();
    lab.remove_ipv4(2);
    lab.at(1, "ip -6 addr flush dev eth0");
    for proc in (0..3).map(|i| lab.spawn(i, &line("no family", 3))).collect::<Vec<_>>() {
        proc.finish().failed(
            5,
            &["the nodes have no address family in common: node2 ([", "has IPv6 alone, node1 (10.77.0.11"],
        );
    }
}

#[test]
fn a_world_forms_where_half_of_the_nodes_cannot_send_or_cannot_hear_multicast() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    for (job, rule) in [
        ("the first half is not heard", "iifname { p0, p1 } ip daddr 224.0.0.0/4"),
        ("the second half is not heard", "iifname { p2, p3 } ip daddr 224.0.0.0/4"),
        ("the first half hears nothing", "oifname { p0, p1 } ip daddr 224.0.0.0/4"),
        ("one way between the halves", "iifname { p0, p1 } oifname { p2, p3 } ip daddr 224.0.0.0/4"),
        ("the other way", "iifname { p2, p3 } oifname { p0, p1 } ip daddr 224.0.0.0/4"),
    ] {
        lab.forget();
        lab.drop_at_bridge(&[rule]);
        form(&lab, job, &[]).expect(&lab, &[0, 1, 2, 3]);
    }
}

#[test]
fn with_unregistered_groups_dropped_broadcast_or_seeds_form_a_world_and_the_warning_names_both() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.snoop_without_querier();
    // The timeout is longer than the silence after which a warning comes.
    let neither: Vec<_> = (0..4).map(|i| lab.spawn(i, &line_with("neither", 4, "--timeout 17s"))).collect();
    form_with(&lab, "broadcast", "--broadcast").expect(&lab, &[0, 1, 2, 3]);
    let seed = format!("--seed {}", lab.address(2));
    form_with(&lab, "seed", &seed).expect(&lab, &[0, 1, 2, 3]);
    // A node hears broadcasts only with the option; one node of that half has the seed as well.
    let both = format!("--broadcast {seed}");
    form(&lab, "both", &["--broadcast", &both, &seed, &seed]).expect(&lab, &[0, 1, 2, 3]);
    for outcome in finish_all(neither) {
        outcome.failed(3, &["nobody else was heard", "multicast does not pass"]);
        let warnings = warnings(&outcome);
        let silence = warnings.iter().find(|warning| warning.contains("after 15 s"));
        assert!(
            silence.is_some_and(|text| text.contains("--seed with the addresses of one or two nodes")),
            "{}",
            outcome.render()
        );
    }
}
