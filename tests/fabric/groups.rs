//! Worlds of hosts with two kinds of RDMA: the world chooses one that every rank has.

use super::all;
use crate::lab::Options;
use crate::lab::fabric::{Node, expect, four, hcas};
use crate::lab::machine::Machine;

/// Four ports of InfiniBand with 200 Gb/s and eight of RoCE with 100 Gb/s, without some.
fn without(name: &str, lost: &[&str]) -> Node {
    let machine = Machine::like("ib4-roce8", name);
    for device in lost {
        machine.remove_device(device);
    }
    Node::on(machine.0)
}

#[test]
fn a_dead_port_does_not_change_the_kind_and_all_ranks_hear_of_it() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let infiniband = hcas("mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1");
    expect(&lab, "both", &four("ib4-roce8"), &all(&infiniband), &[]);

    let mut nodes = four("ib4-roce8");
    nodes[2] = without("one dead", &["mlx5_1"]);
    let mut variables = all(&infiniband);
    variables[2] = hcas("mlx5_0:1,mlx5_2:1,mlx5_3:1");
    let differs = |ports: &str| {
        format!("RDMA ports differs: \"{ports}\" on rank 2, \"4 x 200 Gb/s InfiniBand\" on the others")
    };
    expect(&lab, "one", &nodes, &variables, &[&differs("3 x 200 Gb/s InfiniBand")]);

    // This host alone would use RoCE, and another one has lost some of that.
    nodes[2] = without("two dead", &["mlx5_1", "mlx5_2"]);
    nodes[0] = without("three dead", &["mlx5_5", "mlx5_6", "mlx5_7"]);
    variables[2] = hcas("mlx5_0:1,mlx5_3:1");
    expect(&lab, "apart", &nodes, &variables, &[&differs("8 x 100 Gb/s RoCE")]);
}
