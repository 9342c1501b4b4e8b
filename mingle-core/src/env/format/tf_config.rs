//! TensorFlow: `TF_CONFIG=$(mingle --format tf-config ...) && export TF_CONFIG && python train.py`.
//!
//! `cluster` maps each sort of task to `HOST:PORT` of its tasks, `task` says which of them this one is
//! (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py). The ports are those that the nodes
//! held during the rendezvous, so they were free on each.

use super::{Facts, Unfit, endpoint};
use crate::model::Roster;

pub(super) fn value(facts: Facts<'_>, roster: &Roster) -> Result<String, Unfit> {
    let (rank, world) = (facts.formed.rank.get(), facts.formed.world.get());
    let servers = facts.parameter_servers;
    if servers >= world {
        return Err(Unfit::NoWorkers(servers, world));
    }
    // Addresses hold nothing that JSON would escape.
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
