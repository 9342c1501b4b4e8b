//! SkyPilot: the variables of a task's `run` commands (docs/source/running-jobs/environment-variables.rst),
//! for scripts that were written for it.
//!
//! SKYPILOT_NODE_IPS has one line for each node, the head's first. The last line has no end, since scripts
//! count the nodes by `echo "$SKYPILOT_NODE_IPS" | wc -l`.

use super::{Input, Launcher, Unfit};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "skypilot",
    about: "the variables of a SkyPilot task",
    needs_roster: true,
    owns: &[
        ("SKYPILOT_NODE_IPS", addresses),
        ("SKYPILOT_NODE_RANK", |input| Ok(input.facts.formed.rank.to_string())),
        ("SKYPILOT_NUM_NODES", |input| Ok(input.facts.formed.world.to_string())),
        ("SKYPILOT_NUM_GPUS_PER_NODE", |input| Ok(input.facts.formed.slots.own.to_string())),
    ],
    ..Launcher::PLAIN
};

fn addresses(input: Input<'_>) -> Result<String, Unfit> {
    let addresses = input.roster()?.members().iter().map(|member| member.address.ip().to_string());
    Ok(addresses.collect::<Vec<_>>().join("\n"))
}
