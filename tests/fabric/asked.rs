//! The user's wishes: RDMA is required, is not to be used, or variables are the user's own.

use std::time::Duration;

use super::{RAIL8, ROCE, all, but};
use crate::lab::fabric::{
    Node, Vars, advice, expect, four, lines, own, pinned, sockets, start, vars, without,
};
use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, line_with};
use crate::lab::{Lab, MINGLE, Options};

/// The advice beside a rank whose user has disabled RDMA.
const OFF: &str = "; check NCCL_IB_DISABLE and NCCL_NET in its environment";

#[test]
fn efa_is_disabled_only_by_the_variable_that_its_plugin_reads() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = four("efa");
    nodes[2] = nodes[2].clone().set("NCCL_IB_DISABLE", "1");
    expect(&lab, "efa not off", &nodes, &all(&vars(&[("FI_PROVIDER", "efa")])), &[]);
    nodes[2] = Node::of("efa").set("NCCL_NET", "Socket");
    let warning =
        format!("rank 2 (10.77.0.12): RDMA is disabled for NCCL on that host; all ranks use sockets{OFF}");
    expect(&lab, "efa off", &nodes, &but(2, &Vars::new(), &sockets()), &[&warning]);
}

/// Evaluates the result as users do. Prints `starts` if the job would start.
fn evaluates(lab: &Lab, i: usize, job: &str, size: usize, node: &Node) -> Proc {
    let mut command = lab.command(i, "bash");
    command.args(["-c", r#"eval "$("$mingle" "$@")" && echo starts; echo "$?""#, "bash"]);
    command.args(line_with(job, size, &node.more)).env("mingle", MINGLE);
    command.env("MINGLE_SYSFS_ROOT", &node.root);
    lab.start(i, command)
}

#[test]
fn if_one_rank_requires_rdma_and_one_has_none_no_job_starts() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = four("one-roce");
    nodes[1] = nodes[1].clone().with("--rdma require");
    nodes[3] = Node::of("none");
    let ended = |outcome: &Outcome| {
        assert_eq!(outcome.stdout, "4\n", "{}", outcome.render());
        let message = lines(outcome, "error: ").join("\n");
        for part in ["--rdma require", "rank 3 (10.77.0.13): no active RDMA port"] {
            assert!(message.contains(part), "no {part:?} in {}", outcome.render());
        }
    };
    let procs = nodes.iter().enumerate().map(|(i, node)| evaluates(&lab, i, "required", 4, node));
    finish_all(procs.collect()).iter().for_each(ended);

    // The same in JSON.
    for (i, node) in nodes.iter_mut().enumerate() {
        *node = node.clone().with(if i == 1 { "--format json --rdma require" } else { "--format json" });
    }
    for outcome in finish_all(start(&lab, "required, json", &nodes)) {
        assert_eq!(outcome.status.code(), Some(4), "{}", outcome.render());
        let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((&document["error"]["code"], &document["error"]["kind"]), (&4.into(), &"no_rdma".into()));
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains("rank 3 (10.77.0.13)"), "{}", outcome.render());
    }
}

#[test]
fn if_all_ranks_have_the_required_rdma_the_world_forms() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let nodes: Vec<_> = four("rail8-same").into_iter().map(|node| node.with("--rdma require")).collect();
    expect(&lab, "all have it", &nodes, &all(&own(RAIL8)), &[]);
}

#[test]
fn a_world_of_one_that_requires_rdma_and_has_none_ends_at_once() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let alone = |name: &str| start(&lab, name, &[Node::of(name).with("--rdma require")]).remove(0);
    for name in ["none", "iwarp"] {
        let outcome = alone(name).finish_within(Duration::from_secs(5));
        outcome.failed(4, &["--rdma require", "no rank has a port for it"]);
    }
    assert_eq!(alone("one-roce").finish().formed()["NCCL_IB_ROCE_VERSION_NUM"], "2");
}

#[test]
fn a_rank_with_no_rdma_is_named_and_gets_no_variables_for_rdma() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut nodes = four("rail8-same");
    nodes[2] = nodes[2].clone().with("--rdma off");
    let warning = "rank 2 (10.77.0.12): its RDMA devices were not examined and are not compared; it was started with --rdma off";
    let expected = but(2, &Vars::new(), &own(RAIL8));
    let near = "NIC-GPU distances differs: none on rank 2, \"3 NODE 1 PIX 4 SYS\" on the others";
    let ports = "RDMA ports differs: none on rank 2, \"8 x 400 Gb/s RoCE\" on the others";
    expect(&lab, "left alone by one", &nodes, &expected, &[near, ports, warning]);
    let nodes: Vec<_> = nodes.into_iter().map(|node| node.with("--rdma off")).collect();
    for outcome in expect(&lab, "left alone by all", &nodes, &all(&Vars::new()), &[]) {
        assert_eq!(lines(&outcome, "RDMA: "), [""; 0], "{}", outcome.render());
    }
}

#[test]
fn the_users_own_variables_are_kept() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let agreed = pinned(ROCE, "7");
    let nodes = |value| {
        let mut nodes = four("pod-shared-foreign");
        nodes[1] = nodes[1].clone().set("NCCL_IB_HCA", value);
        nodes
    };
    // Nor is the index, since the GIDs are the user's business too.
    let kept = without(without(agreed.clone(), "NCCL_IB_HCA"), "NCCL_IB_GID_INDEX");
    expect(&lab, "the same", &nodes("=mlx5_0:1"), &but(1, &kept, &agreed), &[]);

    // For another device a warning names the difference.
    let outcomes = finish_all(start(&lab, "another", &nodes("=mine:1")));
    let world = World::of(&outcomes);
    for (rank, (printed, outcome)) in world.nodes.iter().zip(&outcomes).enumerate() {
        assert_eq!(&advice(printed), if rank == 1 { &kept } else { &agreed }, "{}", outcome.render());
        let differs = "NCCL_IB_HCA==mine:1 is kept as you set it; =mlx5_0:1 would match";
        assert_eq!(outcome.stderr.contains(differs), rank == 1, "{}", outcome.render());
    }
}

#[test]
fn the_gid_belongs_to_the_interface_that_interface_names() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // The interfaces of the machine are those of its snapshot; an address stands for one of them here.
    let (port, untagged) = ("mlx5_bond_0:1", "10.77.0.0/24,10.10.0.0/24");
    for (filter, expected) in [("10.77.0.0/24,10.10.7.0/24", pinned(port, "5")), (untagged, own(port))] {
        let node = Node::of("lag-vlan").with(&format!("--interface {filter}"));
        let outcomes = finish_all(start(&lab, filter, &[node.clone(), node]));
        let world = World::of(&outcomes);
        for (printed, outcome) in world.nodes.iter().zip(&outcomes) {
            assert_eq!(advice(printed), expected, "{}", outcome.render());
        }
    }
}

#[test]
fn a_user_who_forces_rdma_where_all_use_sockets_gets_a_warning() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let nodes = [Node::of("one-roce").set("NCCL_NET", "IB"), Node::of("none")];
    let outcomes = finish_all(start(&lab, "forced", &nodes));
    World::of(&outcomes);
    let warning = "NCCL_NET=IB is kept as you set it; Socket would match what the ranks agreed on; NCCL ends";
    assert!(outcomes[0].stderr.contains(warning), "{}", outcomes[0].render());
    // No other variable contradicts it, with which NCCL would end on this rank too.
    assert_eq!(advice(&outcomes[0].formed()), Vars::new(), "{}", outcomes[0].render());
    assert!(!outcomes[1].stderr.contains("is kept"), "{}", outcomes[1].render());
}

#[test]
fn a_rank_that_was_not_examined_does_not_satisfy_require_rdma() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let nodes = [Node::of("one-roce").with("--rdma require"), Node::of("one-roce").with("--rdma off")];
    for process in start(&lab, "unasked", &nodes) {
        process.finish().failed(4, &["--rdma require", "its RDMA devices were not examined"]);
    }
}

#[test]
fn if_the_user_has_disabled_rdma_on_one_rank_all_use_sockets() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let warning =
        format!("rank 1 (10.77.0.11): RDMA is disabled for NCCL on that host; all ranks use sockets{OFF}");
    for (name, value, there) in [("NCCL_IB_DISABLE", "1", sockets()), ("NCCL_NET", "socket", Vars::new())] {
        let mut nodes = four("one-roce");
        nodes[1] = nodes[1].clone().set(name, value);
        expect(&lab, name, &nodes, &but(1, &there, &sockets()), &[&warning]);
    }
    // A zero disables nothing.
    let nodes: Vec<_> = four("one-roce").into_iter().map(|node| node.set("NCCL_IB_DISABLE", "0")).collect();
    expect(&lab, "not off", &nodes, &all(&own(ROCE)), &[]);
}
