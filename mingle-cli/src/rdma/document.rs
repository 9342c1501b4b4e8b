//! A machine as JSON: all that was found, and a reason for each port and GID that is not used.

use std::collections::BTreeMap;

use mingle_core::env::{MINGLE_SET, Variables};
use mingle_core::rdma::{Choice, Device, Distance, GidChoice, Gpu, Group, Machine, PortChoice, Transport};
use serde_json::{Value, json};

/// The recommended variables, without MINGLE_SET, which lists them.
pub(super) fn advice(variables: &Variables) -> BTreeMap<&str, &str> {
    let all = variables.set().iter().map(|(name, value)| (*name, value.as_str()));
    all.filter(|(name, _)| *name != MINGLE_SET).collect()
}

/// The document. Scripts rely on the names of its fields.
pub(super) fn document(
    machine: &Machine,
    choice: &Choice<'_>,
    variables: &Variables,
    warnings: &[String],
) -> Value {
    json!({
        "kind": choice.kind.to_string(),
        "transport": Transport::alone(choice).to_string(),
        "env": advice(variables),
        "kept": variables.kept().iter().map(|kept| kept.name).collect::<Vec<_>>(),
        "warnings": warnings,
        "ports": choice.ports.iter().map(|choice| port(machine, choice)).collect::<Vec<_>>(),
        "groups": choice.groups.iter().map(group).collect::<Vec<_>>(),
        "gpus": machine.gpus.iter().map(Gpu::address).collect::<Vec<_>>(),
        "peer_memory": machine.peer_memory,
        "addresses": machine.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Mb/s in Gb/s.
fn gigabits(rate: u32) -> f64 {
    f64::from(rate) / 1000.0
}

fn group(group: &Group) -> Value {
    json!({
        "kind": group.kind.to_string(),
        // As `lspci -n` prints them.
        "card": group.card.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
        "ports": group.ports,
        "rate": group.rate.map(gigabits),
        "bandwidth": gigabits(group.bandwidth),
        "gpus": group.gpus,
        "used": group.excluded.is_none(),
        "reason": group.excluded,
    })
}

fn port(machine: &Machine, choice: &PortChoice<'_>) -> Value {
    let (device, port) = (choice.device, choice.port);
    let near = nearest(machine, device);
    json!({
        "device": device.name,
        "port": port.number,
        "state": port.state.map(|state| state.to_string()),
        "link_layer": port.link_layer.to_string(),
        "rate": port.rate.map(gigabits),
        "numa_node": device.numa_node,
        "pci": device.pci.as_deref().and_then(|path| path.rsplit('/').next()),
        "gpus": near.iter().map(|(gpu, _)| gpu.address()).collect::<Vec<_>>(),
        "gpu_distance": near.first().map(|(_, distance)| distance.to_string()),
        "traffic_class": port.traffic_class,
        "used": choice.is_used(),
        "reason": choice.excluded,
        "gid_index": choice.gid_index(),
        "gids": choice.gids.iter().map(gid).collect::<Vec<_>>(),
    })
}

/// The GPUs nearest to a device, and how near they are. A GPU on another NUMA node is not near.
fn nearest<'a>(machine: &'a Machine, device: &Device) -> Vec<(&'a Gpu, Distance)> {
    let gpus = machine.gpus.iter().filter_map(|gpu| Some((gpu, gpu.distance(device)?)));
    let least = gpus.clone().map(|(_, distance)| distance).min();
    gpus.filter(|(_, distance)| Some(*distance) == least && *distance < Distance::System).collect()
}

fn gid(choice: &GidChoice<'_>) -> Value {
    let entry = choice.entry;
    json!({
        "index": entry.index,
        // The kernel's form.
        "gid": entry.gid.segments().map(|group| format!("{group:04x}")).join(":"),
        "type": entry.version.map(|version| version.to_string()),
        "interface": entry.interface,
        // InfiniBand GIDs are not IP addresses.
        "address": entry.interface.as_ref().map(|_| entry.address().to_string()),
        "used": choice.excluded.is_none(),
        "reason": choice.excluded,
    })
}
