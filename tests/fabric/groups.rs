//! Worlds of hosts with two kinds of RDMA: the world chooses one that every rank has.

use super::all;
use crate::lab::Options;
use crate::lab::fabric::{Node, Vars, and, expect, four, hcas, pinned};
use crate::lab::machine::Machine;

const ROCE8: &str = "mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1,mlx5_10:1,mlx5_11:1";
const ADVICE: &str = "; 'mingle rdma' on that host shows why";

/// Four ports of InfiniBand with 200 Gb/s and eight of RoCE with 100 Gb/s, without some.
fn without(name: &str, lost: &[&str]) -> Node {
    let machine = Machine::like("ib4-roce8", name);
    for device in lost {
        machine.remove_device(device);
    }
    Node::on(machine.0)
}

/// What a rank prints that uses these ports of RoCE.
fn roce(ports: &str) -> Vars {
    pinned(ports, "3")
}

#[test]
fn a_dead_port_does_not_change_the_kind_and_all_ranks_hear_what_is_given_up() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let infiniband = hcas("mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1");
    expect(&lab, "both", &four("ib4-roce8"), &all(&infiniband), &[]);

    let given_up = "RoCE with 800 Gb/s is given up there, since all ranks use one kind";
    let mut nodes = four("ib4-roce8");
    nodes[2] = without("one dead", &["mlx5_1"]);
    let mut variables = all(&infiniband);
    variables[2] = hcas("mlx5_0:1,mlx5_2:1,mlx5_3:1");
    let line = format!(
        "rank 2 (10.77.0.12): its InfiniBand carries 600 Gb/s, that of most others 800 Gb/s; {given_up}{ADVICE}"
    );
    expect(&lab, "one", &nodes, &variables, &[&line]);

    // This host alone would use RoCE, and another one has lost some of that.
    nodes[2] = without("two dead", &["mlx5_1", "mlx5_2"]);
    nodes[0] = without("three dead", &["mlx5_5", "mlx5_6", "mlx5_7"]);
    variables[2] = hcas("mlx5_0:1,mlx5_3:1");
    let line = format!(
        "rank 2 (10.77.0.12): its InfiniBand carries 400 Gb/s, that of most others 800 Gb/s; {given_up}{ADVICE}"
    );
    expect(&lab, "apart", &nodes, &variables, &[&line]);
}

#[test]
fn a_rank_with_little_of_one_kind_makes_all_use_the_other_and_is_named() {
    let Some(lab) = Options::nodes(4).start() else { return };
    for (name, lost, has) in [
        (
            "two lost",
            &["mlx5_0", "mlx5_3"][..],
            "its InfiniBand carries 400 Gb/s, that of most others 800 Gb/s",
        ),
        (
            "all lost",
            &["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"],
            "it has no InfiniBand, most others have 800 Gb/s of it",
        ),
    ] {
        let mut nodes = four("ib4-roce8");
        nodes[1] = without(name, lost);
        let line = format!(
            "rank 1 (10.77.0.11): {has}; InfiniBand is given up, and all ranks use RoCE with 800 Gb/s{ADVICE}"
        );
        expect(&lab, name, &nodes, &all(&roce(ROCE8)), &[&line]);
    }
    // The same with InfiniBand for all.
    let mut nodes = four("ib4-roce8");
    nodes[3] = without("no roce", &ROCE8.split(',').map(|port| &port[..port.len() - 2]).collect::<Vec<_>>());
    let variables = all(&and(hcas("mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"), &[]));
    expect(&lab, "no roce", &nodes, &variables, &[]);
}
