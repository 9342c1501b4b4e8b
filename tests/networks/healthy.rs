//! Networks on which nothing is wrong: a world forms on each, and no node warns of anything.

use std::time::Duration;

use crate::lab::world::{World, finish_all, line, start_all};
use crate::lab::{Lab, Options};

/// A test of one network: three nodes with these further arguments. `change` makes the network.
macro_rules! healthy {
    ($($name:ident: $options:expr, $more:expr, $change:expr;)*) => {
        $(#[test]
        fn $name() {
            let Some(lab) = $options.start() else { return };
            let change: fn(&Lab) = $change;
            change(&lab);
            forms(&lab, $more);
        })*
    };
}

fn forms(lab: &Lab, more: &str) {
    let outcomes = finish_all(start_all(lab, "healthy", &[more; 3]));
    World::of(&outcomes);
    for outcome in outcomes {
        let warns = ["warning", "error", "no world"].iter().any(|word| outcome.stderr.contains(word));
        assert!(!warns, "{}", outcome.render());
    }
}

#[test]
fn a_node_that_starts_after_the_15_s_is_waited_for_without_a_warning() {
    let Some(lab) = Options::nodes(3).start() else { return };
    lab.add_second_network();
    let args = |node: usize| lab.spawn(node, &line("late", 3));
    let mut procs = vec![args(0), args(1)];
    for proc in &procs {
        proc.expect_stderr_within(Duration::from_secs(25), "still waiting after 15 s: 2 of 3 nodes are here");
    }
    procs.push(args(2));
    let outcomes = finish_all(procs);
    World::of(&outcomes);
    assert!(outcomes.iter().all(|outcome| !outcome.stderr.contains("warning")), "{outcomes:?}");
}

fn each(lab: &Lab, script: &str) {
    for node in 0..lab.len() {
        lab.at(node, script);
    }
}

fn three() -> Options {
    Options::nodes(3)
}

healthy! {
    a_plain_link: three(), "", |_| {};
    no_default_route: three().without_default_route(), "", |_| {};
    docker_on_every_host: three().with_docker0(), "", |_| {};
    an_interface_that_leads_nowhere: three().with_dead_nic(), "", |_| {};
    a_default_route_that_leads_nowhere: three().with_route_into_dead_nic(), "", |_| {};
    names_at_127_0_1_1: three(), "", |lab| {
        each(lab, "echo \"127.0.0.1 localhost\n127.0.1.1 $(hostname)\" >/run/names.$(hostname)
            mount --bind /run/names.$(hostname) /etc/hosts");
    };
    both_families: three(), "", Lab::add_ipv6;
    ipv6_alone: three(), "", |lab| {
        lab.add_ipv6();
        (0..3).for_each(|node| lab.remove_ipv4(node));
    };
    two_networks: three(), "", Lab::add_second_network;
    a_host_on_the_second_network_alone: three(), "", |lab| {
        lab.add_second_network();
        lab.at(2, "ip address flush dev eth0; ip route flush dev eth0");
    };
    jumbo_frames: three(), "", |lab| lab.set_mtu(9000);
    short_packets: three(), "", |lab| lab.set_mtu(1280);
    routed_pods_with_a_seed: three(), "--multicast off --seed 10.77.0.10,10.77.0.11", Lab::route_everything;
    a_switch_without_a_querier_and_seeds: three(), "--seed 10.77.0.10,10.77.0.11,10.77.0.12", |lab| {
        lab.snoop_without_querier();
    };
    interfaces_without_multicast_and_seeds: three(), "--seed 10.77.0.10,10.77.0.11,10.77.0.12", |lab| {
        each(lab, "ip link set eth0 multicast off");
    };
    firewalls_that_open_the_documented_ports: three().with_filters(), "", |lab| {
        for node in 0..3 {
            let open = "udp dport != 29499 udp dport != 29500-29999 ct state new";
            let tcp = "tcp dport != 29500-29999 tcp dport != 32768-60999 ct state new";
            lab.firewall(node, &[open, tcp, "meta l4proto icmp"]);
        }
    };
    a_tenth_of_the_packets_is_lost: three().with_filters(), "", |lab| {
        lab.set(&crate::lab::Policy { loss: 10, ..Default::default() });
    };
    a_bridge_over_the_interface: three(), "", |lab| {
        each(lab, "address=$(ip -4 -o address show dev eth0 | awk '{print $4}')
            ip address flush dev eth0
            ip link add br0 type bridge stp_state 0 forward_delay 0
            ip link set eth0 master br0
            ip address add $address brd + dev br0
            ip link set br0 up
            until ip link show br0 | grep -q LOWER_UP; do :; done");
    };
    a_macvlan: three(), "", |lab| {
        each(
            lab,
            "address=$(ip -4 -o address show dev eth0 | awk '{print $4}')
            ip address flush dev eth0
            ip link add link eth0 name mac0 type macvlan mode bridge
            ip address add $address brd + dev mac0
            ip link set mac0 up",
        );
    };
    a_second_address_on_the_interface: three(), "", |lab| {
        each(lab, "ip address add 192.168.55.$(hostname | tr -dc 0-9)0/24 dev eth0");
    };
    the_same_address_beside_a_network_of_their_own: three(), "", |lab| {
        // As VirtualBox gives it to each machine behind its NAT.
        each(
            lab,
            "ip link add nat0 type veth peer name nat1
            ip link set nat1 up
            ip address add 10.0.2.15/24 dev nat0
            ip link set nat0 up
            ip route replace default via 10.0.2.2 dev nat0",
        );
    };
    strict_reverse_paths: three(), "", |lab| {
        each(lab, "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter");
    };
    every_path_of_a_ring: three(), "--paths ring", |_| {};
    several_slots: three(), "--slots 8", |_| {};
    a_secret: three(), "--secret-file /run/secret", |lab| {
        each(lab, "echo the secret of healthy networks >/run/secret; chmod 600 /run/secret");
    };
    a_folder_for_addresses: three(), "--multicast off --seed-dir /run/seeds", |lab| {
        each(lab, "mkdir -p /run/seeds");
    };
    a_job_that_tells_nobody_its_name: three(), "--private", |_| {};
}
