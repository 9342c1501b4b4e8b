//! Whether the RoCE ports of a host reach their counterparts on the hosts of the next and the previous rank.
//! The ports are files, and their interfaces and networks are real.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::lab::fabric::{Node, expect, pinned, start, warnings_of};
use crate::lab::machine::Machine;
use crate::lab::proc::Outcome;
use crate::lab::world::{finish_all, took};
use crate::lab::{Lab, Options, Policy};

const RAILS: usize = 3;
const ALL: &str = "mlx5_0:1,mlx5_1:1,mlx5_2:1";

/// Four nodes with three rails each, whose machines have this name.
fn nodes(lab: &Lab, name: &str) -> Vec<Node> {
    lab.add_rails(RAILS);
    (0..4).map(|node| machine(name, node, |rail| lab.rail(node, rail).into())).collect()
}

/// A node that meets the others on eth0 alone, so that no other warning depends on the rails.
fn machine(name: &str, node: usize, address: impl Fn(usize) -> IpAddr) -> Node {
    let machine = Machine::like("rail8-same", &format!("{name} {node}"));
    for device in RAILS..8 {
        machine.remove_device(&format!("mlx5_{device}"));
    }
    for rail in 0..RAILS {
        let (address, interface) = (address(rail), format!("rail{rail}"));
        let (gid, family, length) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), "inet", 24),
            IpAddr::V6(v6) => (v6, "inet6", 64),
        };
        let gid = gid.segments().map(|group| format!("{group:04x}")).join(":");
        for (index, version) in [(2, "IB/RoCE v1"), (3, "RoCE v2")] {
            machine.set_gid(&format!("mlx5_{rail}"), index, [&gid, version, &interface]);
        }
        machine.add_address(&format!("{interface} {family} {address}/{length}"));
    }
    Node::on(machine.0).with("--interface eth0")
}

/// Forms a world, in which RDMA is used on all rails. Returns what each rank says of its rails, and the
/// time.
fn warnings(lab: &Lab, job: &str, nodes: &[Node]) -> (Vec<Vec<String>>, Duration) {
    let procs = start(lab, job, nodes);
    let started = procs[0].started;
    let outcomes = finish_all(procs);
    for outcome in &outcomes {
        assert_eq!(crate::lab::fabric::advice(&outcome.formed()), pinned(ALL, "3"), "{}", outcome.render());
    }
    (outcomes.iter().map(of_rails).collect(), took(&outcomes, started))
}

/// The warnings of a node that name a rail.
fn of_rails(outcome: &Outcome) -> Vec<String> {
    let lines = warnings_of(outcome).into_iter().filter(|line| line.contains("may not reach"));
    lines.map(str::to_owned).collect()
}

/// The beginning of the warning that one rail of a node does not reach the same one of another.
fn broken(lab: &Lab, rail: usize, from: usize, to: usize) -> String {
    format!(
        "rail mlx5_{rail}:1 (rail{rail}, {}) of node{from} may not reach mlx5_{rail}:1 (rail{rail}, {}) of node{to}: ",
        lab.rail(from, rail),
        lab.rail(to, rail)
    )
}

/// Checks that each node warns of these of its rails, by their number and the other node, and of no others.
fn assert_named(lab: &Lab, said: &[Vec<String>], named: &[&[(usize, usize)]]) {
    for (node, (said, named)) in said.iter().zip(named).enumerate() {
        let is_said = |&(rail, to): &(usize, usize)| {
            let beginning = broken(lab, rail, node, to);
            said.iter().any(|line| line.starts_with(&beginning))
        };
        assert!(said.len() == named.len() && named.iter().all(is_said), "node {node}: {said:#?}");
    }
}

/// Forms a world, whatever it uses, and checks that no node names a rail.
fn assert_none_named(lab: &Lab, job: &str, nodes: &[Node]) {
    for outcome in finish_all(start(lab, job, nodes)) {
        let is_quiet = outcome.status.success() && !outcome.stderr.contains("may not reach");
        assert!(is_quiet, "{}", outcome.render());
    }
}

#[test]
fn rails_that_reach_their_counterparts_are_not_named() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let nodes = nodes(&lab, "well");
    expect(&lab, "well", &nodes, &vec![pinned(ALL, "3"); 4], &[]);
}

#[test]
fn a_rail_that_is_blocked_one_way_is_named_with_the_pair_and_the_direction_and_the_world_forms() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    let mut nodes = nodes(&lab, "one way");
    let rule = format!("ip saddr {} tcp flags & (syn|ack) == syn", lab.rail(1, 2));
    lab.firewall(2, &[&rule]);
    nodes[0] = nodes[0].clone().with("--interface eth0 --require-rdma");
    let events = crate::lab::machine::scratch("rails.events");
    nodes[1] = nodes[1].clone().with(&format!("--interface eth0 --events {}", events.display()));
    let (said, took) = warnings(&lab, "one way", &nodes);
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_named(&lab, &said, &[&[], &[(2, 2)], &[], &[]]);
    assert!(said[1][0].contains("does not answer; check cable, switch port, VLAN and routes"), "{said:?}");
    let lines = std::fs::read_to_string(&events).unwrap();
    let warned = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let warned: Vec<_> = warned.filter(|line| line["event"] == "warning").collect();
    assert_eq!(warned.len(), 1, "{lines}");
    assert_eq!(warned[0]["message"].as_str(), Some(said[1][0].as_str()));
}

#[test]
fn a_rail_without_its_cable_is_named_by_its_node_and_by_both_neighbours() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let nodes = nodes(&lab, "cable");
    // The interface keeps its carrier: a switch has the port in another VLAN.
    lab.switch("ip link set r1n3 nomaster");
    let (said, _) = warnings(&lab, "cable", &nodes);
    assert_named(&lab, &said, &[&[(1, 3)], &[], &[(1, 3)], &[(1, 0), (1, 2)]]);
    // Paths of the lease's interface alone, and nothing of the rails.
    let master: Vec<_> =
        nodes.iter().map(|node| node.clone().with("--interface eth0 --paths master")).collect();
    let (said, _) = warnings(&lab, "master", &master);
    assert_named(&lab, &said, &[&[], &[], &[], &[]]);
}

#[test]
fn long_segments_that_vanish_on_a_rail_are_named() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    let nodes = nodes(&lab, "hole");
    let rule = format!("ip saddr {} ip daddr {} ip length > 1400", lab.rail(0, 0), lab.rail(1, 0));
    lab.drop_at_bridge(&[&rule]);
    let (said, _) = warnings(&lab, "hole", &nodes);
    assert_named(&lab, &said, &[&[(0, 1)], &[], &[], &[]]);
    assert!(said[0][0].contains("full segments are not answered; check the MTU"), "{said:?}");
}

#[test]
fn a_list_of_devices_of_the_users_own_leaves_the_other_rails_alone() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = nodes(&lab, "own list");
    lab.switch("ip link set r1n3 nomaster");
    for node in &mut nodes {
        *node = node.clone().set("NCCL_IB_HCA", "=mlx5_0:1,mlx5_2:1");
    }
    assert_none_named(&lab, "own list", &nodes);
}

#[test]
fn rails_of_hosts_that_lose_packets_are_not_named() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    let nodes = nodes(&lab, "loss");
    for loss in [5, 30] {
        lab.set(&Policy { loss, ..Policy::default() });
        for round in 0..5 {
            lab.forget();
            let (said, _) = warnings(&lab, &format!("loss {loss} {round}"), &nodes);
            assert_named(&lab, &said, &[&[], &[], &[], &[]]);
        }
    }
}

#[test]
fn where_a_rank_has_no_rdma_its_neighbours_name_no_rail() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = nodes(&lab, "sockets");
    lab.switch("ip link set r1n3 nomaster");
    nodes[1] = Node::of("none").with("--interface eth0");
    assert_none_named(&lab, "sockets", &nodes);
}

#[test]
fn rails_in_one_subnet_work_where_each_interface_answers_for_its_own_address_alone() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.add_rails(RAILS);
    let address =
        |node: usize, rail: usize| Ipv4Addr::from([10, 20, 0, u8::try_from(10 + node + 20 * rail).unwrap()]);
    let mut nodes = Vec::new();
    for node in 0..4 {
        for rail in 1..RAILS {
            let address = address(node, rail);
            lab.switch(&format!("ip link set r{rail}n{node} master rail0"));
            lab.at(node, &format!("ip addr flush dev rail{rail}; ip addr add {address}/24 dev rail{rail}"));
        }
        lab.at(node, "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
        nodes.push(machine("subnet", node, |rail| address(node, rail).into()));
    }
    let (said, _) = warnings(&lab, "subnet", &nodes);
    assert_named(&lab, &said, &[&[], &[], &[], &[]]);
    // A connection leaves by the rail itself, wherever the routes lead.
    lab.drop_at_bridge(&["iifname r1n3 tcp flags & (syn|ack) == syn"]);
    let (said, _) = warnings(&lab, "own rail", &nodes);
    let count: Vec<usize> = said.iter().map(Vec::len).collect();
    assert_eq!(count, [0, 0, 0, 2], "{said:#?}");
    assert!(said[3].iter().all(|line| line.starts_with("rail mlx5_1:1 (rail1, 10.20.0.33)")), "{said:#?}");
    lab.drop_at_bridge(&[]);
    // Otherwise packets go to any of a host's rails, those of RoCE as well.
    for node in 0..4 {
        lab.at(node, "sysctl -qw net.ipv4.conf.all.arp_ignore=0; ip neigh flush all");
    }
    let (said, _) = warnings(&lab, "flux", &nodes);
    assert!(said.iter().any(|said| !said.is_empty()), "{said:?}");
}

#[test]
fn rails_of_ipv6_are_tried_by_ipv6() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_rails(RAILS);
    let address = |node: usize, rail: usize| IpAddr::V6(format!("fd00:{rail}::1{node}").parse().unwrap());
    let mut nodes = Vec::new();
    for node in 0..4 {
        for rail in 0..RAILS {
            let address = address(node, rail);
            lab.at(
                node,
                &format!("ip addr flush dev rail{rail}; ip addr add {address}/64 dev rail{rail} nodad"),
            );
        }
        nodes.push(machine("six", node, |rail| address(node, rail)));
    }
    let named = |job: &str| -> Vec<String> {
        let outcomes = finish_all(start(&lab, job, &nodes));
        let said = outcomes.iter().flat_map(|outcome| {
            let printed = outcome.formed();
            assert_eq!(printed["NCCL_IB_ADDR_FAMILY"], "AF_INET6", "{}", outcome.render());
            of_rails(outcome)
        });
        said.collect()
    };
    assert_eq!(named("six"), [""; 0]);
    lab.switch("ip link set r2n0 nomaster");
    let said = named("six broken");
    assert_eq!(said.len(), 4, "{said:#?}");
    let broken =
        "rail mlx5_2:1 (rail2, fd00:2::11) of node1 may not reach mlx5_2:1 (rail2, fd00:2::10) of node0: ";
    assert!(said.iter().any(|line| line.starts_with(broken)), "{said:#?}");
}
