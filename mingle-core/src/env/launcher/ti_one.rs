//! Tencent TI-ONE: the variables of its DDP, MPI and Ray jobs, for scripts that were written for them.
//!
//! Such scripts run `torchrun --nnodes $NODE_NUM --node_rank $INDEX`,
//! `mpirun -np $GPU_NUM -H $NODE_IP_SLOT_LIST` and `ray start --address=$HEAD_ADDR:$HEAD_PORT`. GPU_NUM is
//! the number of all GPUs, GPU_NUM_PER_NODE that of this node.

use super::{Launcher, node_list};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "ti-one",
    about: "the variables of Tencent TI-ONE's jobs",
    needs_roster: true,
    owns: &[
        ("NODE_LIST", node_list::comma_separated),
        ("INDEX", |input| Ok(input.facts.formed.rank.to_string())),
        ("GPU_NUM", |input| Ok(input.facts.formed.slots.total.to_string())),
        ("GPU_NUM_PER_NODE", |input| Ok(input.facts.formed.slots.own.to_string())),
        ("HEAD_ADDR", |input| Ok(input.facts.formed.master.ip().to_string())),
        ("HEAD_PORT", |input| Ok(input.facts.formed.master.port().to_string())),
        ("NODE_IP_SLOT_LIST", node_list::comma_separated),
    ],
    ..Launcher::PLAIN
};
