//! Tencent TI-ONE: the variables that its DDP, MPI and Ray jobs have, for scripts written for them.
//!
//! Such scripts run `torchrun --nnodes $NODE_NUM --node_rank $INDEX`, `mpirun -np $GPU_NUM -H $NODE_IP_SLOT_LIST` and
//! `ray start --address=$HEAD_ADDR:$HEAD_PORT`. GPU_NUM counts all GPUs, GPU_NUM_PER_NODE those of this node.

use super::{Facts, Format, Unfit, Variable, nodes};
use crate::model::Roster;

pub(super) fn variables(facts: Facts<'_>, roster: &Roster) -> Result<Vec<Variable>, Unfit> {
    let formed = facts.formed;
    let list = nodes::counted(Format::TiOne, roster)?.join(",");
    Ok(vec![
        ("NODE_LIST".into(), list.clone()),
        ("INDEX".into(), formed.rank.to_string()),
        ("GPU_NUM".into(), formed.slots.total.to_string()),
        ("GPU_NUM_PER_NODE".into(), formed.slots.own.to_string()),
        ("HEAD_ADDR".into(), formed.master.ip().to_string()),
        ("HEAD_PORT".into(), formed.master.port().to_string()),
        ("NODE_IP_SLOT_LIST".into(), list),
    ])
}
