//! SkyPilot: the variables that `run` commands of a task have (docs/source/running-jobs/environment-variables.rst),
//! for scripts written for it. SKYPILOT_NODE_IPS has a line for each node, the head's first; there is none at the
//! end, since `wc -l` of what `echo` prints is the number of nodes.

use super::{Facts, Variable};
use crate::model::Roster;

pub(super) fn variables(facts: Facts<'_>, roster: &Roster) -> Vec<Variable> {
    let formed = facts.formed;
    let addresses: Vec<String> = roster.members().iter().map(|m| m.address.ip().to_string()).collect();
    vec![
        ("SKYPILOT_NODE_IPS".into(), addresses.join("\n")),
        ("SKYPILOT_NODE_RANK".into(), formed.rank.to_string()),
        ("SKYPILOT_NUM_NODES".into(), formed.world.to_string()),
        ("SKYPILOT_NUM_GPUS_PER_NODE".into(), formed.slots.own.to_string()),
    ]
}
