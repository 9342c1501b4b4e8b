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
    arguments: None,
    left_out: &[],
    owns: &[("TF_CONFIG", value)],
};

fn value(input: Input<'_>) -> Result<String, Unfit> {
    let (roster, facts) = (input.roster()?, input.facts);
    let (rank, world) = (facts.formed.rank.get(), facts.formed.world.get());
    let servers = facts.parameter_servers;
    if servers >= world {
        return Err(Unfit::NoWorkers(servers, world));
    }
    // An endpoint has no character that JSON would escape.
    let list = |is_server: bool| {
        let members = roster.members().iter().filter(|m| (m.rank.get() < servers) == is_server);
        members.map(|m| format!("\"{}\"", endpoint(m.address))).collect::<Vec<_>>().join(",")
    };
    let ps = if servers == 0 { String::new() } else { format!("\"ps\":[{}],", list(true)) };
    let (task, index) = if rank < servers { ("ps", rank) } else { ("worker", rank - servers) };
    Ok(format!(
        "{{\"cluster\":{{{ps}\"worker\":[{}]}},\"task\":{{\"type\":\"{task}\",\"index\":{index}}}}}",
        list(false)
    ))
}
