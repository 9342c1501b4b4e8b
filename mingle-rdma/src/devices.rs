//! The user's own lists of devices: which variables for GIDs are right for the ports that they select.

use super::gid::Addressing;
use super::list::nccl_list_has;
use super::machine::{Device, LinkLayer, Machine, Port, PortState};
use super::nccl::GidRule;
use super::variables::{gids, variables};
use super::verdict::Transport;

/// A library, and its variables.
struct Library {
    /// How the names of its variables begin.
    prefix: &'static str,
    list: &'static str,
    index: &'static str,
}

const LIBRARIES: [Library; 3] = [
    Library { prefix: "NCCL_", list: "NCCL_IB_HCA", index: "NCCL_IB_GID_INDEX" },
    Library { prefix: "UCX_", list: "UCX_NET_DEVICES", index: "UCX_IB_GID_INDEX" },
    Library { prefix: "NVSHMEM_", list: "NVSHMEM_HCA_LIST", index: "NVSHMEM_IB_GID_INDEX" },
];

/// By any of these the user lets NCCL choose among the GIDs of a kind. An index would overrule them.
const KINDS_OF_GIDS: [&str; 3] = ["NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM"];

/// What the user's own variables say about the devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// The lists of devices that the user has given to NCCL, UCX and NVSHMEM, in this order.
    lists: [Option<String>; 3],
    /// Whether the user says of which kind the GIDs are, so that no index is given.
    pub(crate) choose_gid: bool,
}

impl Users {
    /// What the variables say that `users` looks up. It has to leave out those that mingle has set itself.
    pub fn new(users: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| users(name).filter(|value| !value.is_empty());
        // If the user has given an index too, both are the user's business.
        let lists = LIBRARIES.map(|library| value(library.list).filter(|_| value(library.index).is_none()));
        Self { lists, choose_gid: KINDS_OF_GIDS.iter().any(|name| value(name).is_some()) }
    }
}

/// The variables of [`variables`], beside the user's own lists of devices. A GID index is right for the ports
/// on which it was found, and the user's list may select others. Also returns what was left out for that
/// reason, each with the fact.
pub fn beside(
    machine: &Machine,
    transport: Transport,
    users: &Users,
) -> (Vec<(&'static str, String)>, Vec<String>) {
    let mut advice = variables(machine, transport, !users.choose_gid);
    let mut dropped = Vec::new();
    let Transport::Roce(addressing) = transport else { return (advice, dropped) };
    for (library, list) in LIBRARIES.iter().zip(&users.lists) {
        let Some(list) = list else { continue };
        // Nothing was found on this host.
        if !advice.iter().any(|(name, _)| *name == library.list) {
            continue;
        }
        let is_of = |name: &str| is_for_gids(name) && name.starts_with(library.prefix);
        let had_index = advice.iter().any(|(name, _)| *name == library.index);
        match rule(machine, addressing, !users.choose_gid, library, list) {
            Ok(rule) => {
                let place = advice.iter().position(|(name, _)| is_of(name)).unwrap_or(advice.len());
                advice.retain(|(name, _)| !is_of(name));
                let own = gids(Some(rule), addressing).into_iter().filter(|(name, _)| is_of(name));
                let place = place.min(advice.len());
                advice.splice(place..place, own);
            }
            Err(fact) => {
                let is_wrong =
                    |name: &str| name == library.index || is_of(name) && name.ends_with("_ADDR_RANGE");
                advice.retain(|(name, _)| !is_wrong(name));
                if had_index {
                    dropped
                        .push(format!("{} is not set: your {}={list} {fact}", library.index, library.list));
                }
            }
        }
    }
    (advice, dropped)
}

fn is_for_gids(name: &str) -> bool {
    ["_IB_GID_INDEX", "_IB_ADDR_FAMILY", "_IB_ADDR_RANGE", "_IB_ROCE_VERSION_NUM"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// How a library comes to use the GIDs of the ports that the user's list selects, or why it cannot.
fn rule(
    machine: &Machine,
    addressing: Addressing,
    with_index: bool,
    library: &Library,
    list: &str,
) -> Result<GidRule, String> {
    let selected = match library.prefix {
        "NCCL_" => by_nccl(machine, list),
        _ => by_name(machine, list)?,
    };
    let mut ports = Vec::new();
    // The index has no effect on InfiniBand.
    for (device, port) in selected.into_iter().filter(|(_, port)| port.link_layer != LinkLayer::InfiniBand) {
        let gid = machine.gid_of(device, port, addressing);
        let gid = gid.ok_or_else(|| {
            format!("selects {}, which has no GID of this host for {addressing}", device.name_of(port))
        })?;
        ports.push((device, port, gid));
    }
    if ports.is_empty() {
        return Err("selects no RoCE port that is ACTIVE".to_owned());
    }
    let pairs: Vec<_> = ports.iter().map(|(_, port, gid)| (*port, *gid)).collect();
    let rule = if with_index {
        GidRule::new(&pairs, addressing)
    } else {
        GidRule::without_index(&pairs, addressing)
    };
    let needs_index = library.prefix == "UCX_" && with_index;
    rule.filter(|rule| !needs_index || matches!(rule, GidRule::Index(_))).ok_or_else(|| {
        let indices =
            ports.iter().map(|(device, port, gid)| format!("{} (index {})", device.name_of(port), gid.index));
        format!("selects {}, for which no index is right", indices.collect::<Vec<_>>().join(", "))
    })
}

/// The ports that NCCL uses with this list: those that are ACTIVE, whatever their GIDs.
fn by_nccl<'a>(machine: &'a Machine, list: &str) -> Vec<(&'a Device, &'a Port)> {
    let is_used = |device: &Device, port: &Port| {
        port.state == Some(PortState::ACTIVE)
            && port.link_layer != LinkLayer::Unknown
            && nccl_list_has(list, &device.name, Some(&port.number.to_string()))
    };
    machine.ports().filter(|(device, port)| is_used(device, port)).collect()
}

/// The ports of a list of whole names, as UCX and NVSHMEM read it.
fn by_name<'a>(machine: &'a Machine, list: &str) -> Result<Vec<(&'a Device, &'a Port)>, String> {
    let mut found = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let is_named = |device: &Device, port: &Port| match entry.strip_prefix(device.name.as_str()) {
            Some(rest) => rest.is_empty() || rest.strip_prefix(':') == Some(&port.number.to_string()),
            None => false,
        };
        let before = found.len();
        found.extend(machine.ports().filter(|(device, port)| is_named(device, port)));
        if found.len() == before {
            return Err(format!("has {entry}, which is no RDMA port of this host"));
        }
    }
    Ok(found)
}
