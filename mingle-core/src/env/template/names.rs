//! What a placeholder stands for.

use super::roster;
use crate::env::launcher::endpoint;
use crate::env::{Facts, Unfit, job_to_env};
use crate::model::Member;

/// The placeholders for what every node knows.
const OF_WORLD: &[&str] = &["rank", "world", "job", "slots", "master", "master_addr", "master_port", "addr"];
/// Those for what the roster has, of this node and of all with commas.
const OF_ROSTER: &[&str] = &["host", "port", "endpoint", "hosts", "addrs", "endpoints"];
/// Those for the node of a block.
const OF_NODE: &[&str] = &["node.rank", "node.host", "node.addr", "node.port", "node.endpoint", "node.slots"];

/// The most ports that a launcher holds for its job.
const MOST_PORTS: usize = 64;

/// Whether a placeholder has this name, in a block or outside.
pub(super) fn is_known(name: &str, in_block: bool) -> bool {
    let is_of_node = in_block && OF_NODE.contains(&name);
    is_of_node || OF_WORLD.contains(&name) || is_of_roster(name) || held_port(name).is_some()
}

pub(super) fn is_of_roster(name: &str) -> bool {
    OF_ROSTER.contains(&name)
}

/// All placeholders, for messages.
pub(super) fn list() -> String {
    let list = |names: &[&str]| format!("{{{}}}", names.join("}, {"));
    format!(
        "{}, {}, {{port1}} and so on, and between {{each node}} or {{each other}} and {{end}} {} and {{between}}",
        list(OF_WORLD),
        list(OF_ROSTER),
        list(OF_NODE)
    )
}

/// The value of a placeholder that is known, in a block for this node.
pub(super) fn value(name: &str, facts: Facts<'_>, node: Option<&Member>) -> Result<String, Unfit> {
    let formed = facts.formed;
    Ok(match name {
        "rank" => formed.rank.to_string(),
        "world" => formed.world.to_string(),
        "job" => job_to_env(facts.job),
        "slots" => formed.slots.own.to_string(),
        "master" => endpoint(formed.master),
        "master_addr" => formed.master.ip().to_string(),
        "master_port" => formed.master.port().to_string(),
        "addr" => formed.local.to_string(),
        "hosts" | "addrs" | "endpoints" => {
            let values = roster(facts)?.iter().map(|node| field(name.trim_end_matches('s'), node));
            values.collect::<Vec<_>>().join(",")
        }
        _ => match (name.strip_prefix("node."), held_port(name)) {
            (Some(name), _) => node.map(|node| field(name, node)).unwrap_or_default(),
            (_, Some(number)) => {
                let port = number.checked_sub(1).and_then(|index| facts.ports.get(index));
                port.ok_or(Unfit::NoPort(number))?.to_string()
            }
            _ => {
                let own = roster(facts)?.iter().find(|node| node.rank == formed.rank);
                own.map(|node| field(name, node)).unwrap_or_default()
            }
        },
    })
}

fn field(name: &str, node: &Member) -> String {
    match name {
        "rank" => node.rank.to_string(),
        "host" => node.host.to_string(),
        "addr" => node.address.ip().to_string(),
        "port" => node.address.port().to_string(),
        "endpoint" => endpoint(node.address),
        _ => node.slots.to_string(),
    }
}

/// 3 for `port3`.
fn held_port(name: &str) -> Option<usize> {
    let number = name.strip_prefix("port").filter(|number| !number.starts_with(['0', '+']))?;
    number.parse().ok().filter(|number| *number <= MOST_PORTS)
}
