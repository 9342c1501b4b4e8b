//! Worlds of hosts with and without RDMA: the variables and warnings of each rank.

mod asked;
mod groups;

use std::fmt::Write as _;
use std::fs;

use crate::lab::MINGLE;
use crate::lab::fabric::{
    Node, Vars, and, expect, four, ipv6, lines, own, pinned, sockets, start, vars, warnings_of,
};
use crate::lab::machine::Machine;
use crate::lab::proc::GUARD;
use crate::lab::world::finish_all;
use crate::lab::{Options, Policy};

const RAIL8: &str = "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1";
const ROCE: &str = "mlx5_0:1";
const V6: [(&str, &str); 2] = [("NCCL_IB_ADDR_FAMILY", "AF_INET6"), ("NVSHMEM_IB_ADDR_FAMILY", "AF_INET6")];

/// The same variables on all four ranks.
fn all(variables: &Vars) -> Vec<Vars> {
    vec![variables.clone(); 4]
}

/// The same variables on all ranks but one.
fn but(node: usize, variables: &Vars, others: &Vars) -> Vec<Vars> {
    let mut each = all(others);
    each[node] = variables.clone();
    each
}

/// The warning of all ranks if this one has no RDMA device.
fn nothing(rank: usize) -> String {
    format!("rank {rank} (10.77.0.1{rank}): no active RDMA port; all ranks use sockets")
}

/// The same, where the others have these ports.
fn lacks(rank: usize, ports: &str) -> [String; 2] {
    [format!("RDMA ports differs: none on rank {rank}, \"{ports}\" on the others"), nothing(rank)]
}

#[test]
fn a_world_that_forms_again_uses_the_gids_that_its_hosts_have_by_then() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let machine = Machine::like("one-roce", "restarted");
    let script = "echo index $NCCL_IB_GID_INDEX
        [ $MINGLE_GENERATION = 1 ] || { until [ -e /run/fail ]; do sleep 0.05; done; exit 3; }";
    let mut command = lab.command(0, MINGLE);
    command.args(["run", "-j", "gids", "-w", "1", "--max-restarts", "1", "--", "sh", "-c", script]);
    // Of a version that chooses no GID itself.
    command.env("MINGLE_SYSFS_ROOT", &machine.0).env("NCCL_VERSION", "2.20.5");
    let node = lab.start(0, command);
    node.expect_stdout("index 3");
    machine.move_gid("mlx5_0", 3, 5);
    lab.shell(0, "sh", ">/run/fail");
    let outcome = node.finish();
    assert_eq!(outcome.stdout, "index 3\nindex 5\n", "{}", outcome.render());
}

#[test]
fn equal_ports_are_used_on_all_ranks_without_a_warning() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let used = format!("RoCE v2 over IPv4 on {}", RAIL8.replace(',', ", "));
    for outcome in expect(&lab, "rails", &four("rail8-same"), &all(&own(RAIL8)), &[]) {
        assert_eq!(lines(&outcome, "RDMA: "), [used.as_str()], "{}", outcome.render());
    }
}

#[test]
fn a_rank_without_rdma_is_named_on_all_and_all_use_sockets() {
    let Some(lab) = Options::nodes(4).start() else { return };
    for rank in [0, 3] {
        let mut nodes = four("one-roce");
        nodes[rank] = Node::of("none");
        let warnings = lacks(rank, "1 x 400 Gb/s RoCE");
        let warnings = warnings.each_ref().map(String::as_str);
        let outcomes = expect(&lab, &format!("none {rank}"), &nodes, &all(&sockets()), &warnings);
        for outcome in outcomes {
            assert_eq!(lines(&outcome, "RDMA: "), [""; 0], "{}", outcome.render());
        }
    }
}

#[test]
fn the_json_document_has_the_verdict() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes: Vec<_> = four("one-roce").into_iter().map(|node| node.with("--format json")).collect();
    for (job, transport, warnings) in
        [("json", "RoCE v2 over IPv4", vec![]), ("json without", "sockets", vec![nothing(2)])]
    {
        for outcome in finish_all(start(&lab, job, &nodes)) {
            assert!(outcome.status.success(), "{}", outcome.render());
            let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
            let expected = serde_json::json!({ "transport": transport, "warnings": warnings });
            assert_eq!(document["fabric"], expected, "{}", outcome.render());
            let is_off = document["env"].get("NCCL_NET").is_some();
            assert_eq!(is_off, transport == "sockets", "{}", outcome.render());
        }
        nodes[2] = Node::of("none").with("--format json");
    }
}

#[test]
fn only_a_host_where_nccl_would_choose_anothers_gid_prints_an_index() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let node = |index: u32| {
        let machine = Machine::like("one-roce", &format!("index {index}"));
        machine.move_gid("mlx5_0", 3, index);
        Node::on(machine.0)
    };
    let nodes = [node(9), Node::of("one-roce"), node(5), Node::of("pod-shared-foreign")];
    expect(&lab, "indices", &nodes, &but(3, &pinned(ROCE, "7"), &own(ROCE)), &[]);
}

#[test]
fn hosts_with_the_same_networks_in_another_order_use_that_of_rank_0() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let port = "mlx5_bond_0:1";
    let nodes = ["lag-vlan", "lag-vlan-first", "lag-vlan", "lag-vlan-first"].map(Node::of);
    let [own, pinned] = [own(port), pinned(port, "5")];
    expect(&lab, "networks", &nodes, &[own.clone(), pinned.clone(), own, pinned], &[]);
}

/// A DGX Spark with these networks, 192.168.N.0/24, on its enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1 and
/// enP2p1s0f1np1, as host 1 or 2 of each.
fn spark(name: &str, addresses: [(u8, u8); 4]) -> Node {
    let machine = Machine::like("dgx-spark", name);
    let devices = ["rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"];
    let mut held = "enP7s7 inet 192.168.100.5/24\n".to_owned();
    for ((device, interface), (network, host)) in
        devices.iter().zip(["enp0", "enp2", "enp1", "enp3"]).zip(addresses)
    {
        let gid = format!("0000:0000:0000:0000:0000:ffff:c0a8:{network:02x}{host:02x}");
        machine.set_gid(device, 2, [&gid, "IB/RoCE v1", interface]);
        machine.set_gid(device, 3, [&gid, "RoCE v2", interface]);
        writeln!(held, "{interface} inet 192.168.{network}.{host}/24").unwrap();
    }
    fs::write(machine.0.join("addrs.txt"), held).unwrap();
    Node::on(machine.0)
}

#[test]
fn three_sparks_in_a_ring_get_what_nccl_needs_for_cables() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let mut nodes = [
        spark("ring 1", [(0, 1), (1, 1), (2, 1), (3, 1)]),
        spark("ring 2", [(4, 1), (5, 1), (0, 2), (1, 2)]),
        spark("ring 3", [(2, 2), (3, 2), (4, 2), (5, 2)]),
    ];
    let ports = "roceP2p1s0f0:1,roceP2p1s0f1:1,rocep1s0f0:1,rocep1s0f1:1";
    let routed = and(own(ports), &[("NCCL_IB_SUBNET_AWARE_ROUTING", "1"), ("NCCL_IB_MERGE_NICS", "0")]);
    let without_plugin = and(routed.clone(), &[("NCCL_NET_PLUGIN", "none")]);
    let used = format!("RoCE v2 over IPv4, cables between each two hosts, on {}", ports.replace(',', ", "));
    for outcome in expect(&lab, "ring", &nodes, &vec![without_plugin; 3], &[]) {
        assert_eq!(lines(&outcome, "RDMA: "), [used.as_str()], "{}", outcome.render());
    }
    nodes[1] = nodes[1].clone().set("NCCL_NET", "IB");
    let differs = "NCCL_NET differs: \"IB\" on rank 1, none on the others";
    expect(&lab, "ring with a network", &nodes, &vec![routed; 3], &[differs]);
}

#[test]
fn a_host_with_several_indices_leaves_the_choice_to_nccl() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = four("rail8-same");
    nodes[1] = Node::of("rail8-diff");
    expect(&lab, "several", &nodes, &all(&own(RAIL8)), &[]);
}

#[test]
fn if_one_rank_has_only_ipv6_and_the_others_have_both_all_use_ipv6() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let nodes = [
        ipv6("both, 4", 0x10, 4, true),
        ipv6("both, 5", 0x11, 5, true),
        ipv6("ipv6, 2", 0x12, 2, false),
        ipv6("both, 11", 0x13, 11, true),
    ];
    // UCX prefers IPv4, where a port has that.
    let with = |index| and(and(own(ROCE), &V6), &[("UCX_IB_GID_INDEX", index)]);
    let expected = [with("4"), with("5"), and(own(ROCE), &V6), with("11")];
    for outcome in expect(&lab, "ipv6", &nodes, &expected, &[]) {
        let used = lines(&outcome, "RDMA: ");
        assert_eq!(used, ["RoCE v2 over IPv6 on mlx5_0:1"], "{}", outcome.render());
    }
}

#[test]
fn if_no_rank_has_rdma_nothing_is_printed_about_it() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let nodes = [Node::of("none"), Node::of("empty"), Node::of("none"), Node::of("none")];
    expect(&lab, "nobody", &nodes, &all(&Vars::new()), &[]);
}

#[test]
fn a_rank_without_a_usable_port_is_named_and_prints_the_reason() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let why = "this host has RDMA devices, but none that NCCL can use: siw0:1 (iWARP, which NCCL cannot use)";
    let mut nodes = four("one-roce");
    nodes[1] = Node::of("iwarp");
    let differs = "RDMA ports differs: none on rank 1, \"1 x 400 Gb/s RoCE\" on the others";
    let named = "rank 1 (10.77.0.11): no usable RDMA port; all ranks use sockets; 'mingle rdma' on that host shows why";
    let outcomes = finish_all(start(&lab, "iwarp", &nodes));
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(crate::lab::fabric::advice(&outcome.formed()), sockets(), "{}", outcome.render());
        let own: &[&str] = if rank == 1 { &[why, differs, named] } else { &[differs, named] };
        assert_eq!(warnings_of(outcome), own, "{}", outcome.render());
    }
    // If all hosts are like that, no rank differs; NCCL must be kept from the devices all the same.
    expect(&lab, "iwarp everywhere", &four("iwarp"), &all(&sockets()), &[why]);
}

#[test]
fn efa_needs_only_the_variable_of_libfabric() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = four("efa");
    expect(&lab, "efa", &nodes, &all(&vars(&[("FI_PROVIDER", "efa")])), &[]);
    nodes[3] = Node::of("none");
    let warnings = lacks(3, "4 x 100 Gb/s EFA");
    expect(&lab, "efa and none", &nodes, &all(&sockets()), &warnings.each_ref().map(String::as_str));
}

#[test]
fn a_root_that_is_not_a_snapshot_is_a_usage_error() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let outcome = start(&lab, "no root", &[Node::on("/nonexistent".into())]).remove(0).finish();
    outcome.failed(2, &["MINGLE_SYSFS_ROOT=/nonexistent: ", "addrs.txt"]);
    assert!(outcome.stdout.starts_with(GUARD));
}

#[test]
fn all_ranks_get_the_same_verdict_if_packets_are_lost() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.set(&Policy { loss: 30, ..Policy::default() });
    for round in 0..6 {
        lab.forget();
        let mut nodes = four("one-roce");
        let (mut expected, mut warnings) = (own(ROCE), Vec::new());
        if round % 2 == 0 {
            nodes[round / 2] = Node::of("none");
            (expected, warnings) = (sockets(), lacks(round / 2, "1 x 400 Gb/s RoCE").to_vec());
        }
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        expect(&lab, &format!("30% loss {round}"), &nodes, &all(&expected), &warnings);
    }
}
