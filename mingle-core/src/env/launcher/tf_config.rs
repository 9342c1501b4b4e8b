//! TensorFlow: `TF_CONFIG=$(mingle --format tf-config ...) && export TF_CONFIG && python train.py`.
//!
//! `cluster` maps each type of task to the endpoints of its tasks; `task` is this node's own type and index
//! (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py). The ports are those that the
//! nodes held during the rendezvous, so each was free on its host.

use super::{Input, Launcher, Syntax, Unfit, endpoint};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "tf-config",
    about: "the value of TensorFlow's TF_CONFIG",
    syntax: Syntax::Text(|input, _| Ok(value(input)? + "\n")),
    needs_roster: true,
    own_ports: true,
    owns: &[("TF_CONFIG", value)],
    ..Launcher::PLAIN
};

fn value(input: Input<'_>) -> Result<String, Unfit> {
    // An endpoint has no character that JSON would escape.
    let workers: Vec<String> =
        input.roster()?.members().iter().map(|member| format!("\"{}\"", endpoint(member.address))).collect();
    Ok(format!(
        "{{\"cluster\":{{\"worker\":[{}]}},\"task\":{{\"type\":\"worker\",\"index\":{}}}}}",
        workers.join(","),
        input.facts.formed.rank
    ))
}
