//! A machine as JSON: all that was found, and a reason for each port and GID that is not used.

use mingle_core::env::Variables;
use mingle_core::rdma::{
    Choice, GidChoice, Machine, NodeType, PortChoice, RdmaKind, RoceVersion, Transport, Verbs,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::table::{advice, card, nearest};

/// The document. Scripts rely on the names of its fields.
#[derive(Debug, Serialize)]
pub(super) struct RdmaDocument<'a> {
    /// `none`, `unusable`, `infiniband`, `roce` or `efa`.
    kind: &'static str,
    transport: String,
    env: Map<String, Value>,
    kept: Vec<&'a str>,
    warnings: &'a [String],
    ports: Vec<PortRow<'a>>,
    groups: Vec<GroupRow<'a>>,
    gpus: Vec<GpuRow<'a>>,
    /// The loaded kernel module for GPUDirect RDMA.
    peer_memory: Option<&'a str>,
    addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PortRow<'a> {
    device: &'a str,
    #[serde(rename = "port")]
    number: u32,
    node_type: Option<&'static str>,
    soft: bool,
    model: &'a str,
    firmware: &'a str,
    state: Option<String>,
    link_layer: String,
    /// In Gb/s.
    rate: Option<f64>,
    numa_node: Option<u32>,
    pci: Option<&'a str>,
    /// The PCI addresses of the nearest GPUs. `gpu_distance` is in the terms of `nvidia-smi topo -m`.
    gpus: Vec<&'a str>,
    gpu_distance: Option<String>,
    verbs: &'static str,
    traffic_class: Option<u8>,
    used: bool,
    /// Why it is not used.
    reason: Option<String>,
    gid_index: Option<u32>,
    gids: Vec<GidRow<'a>>,
}

#[derive(Debug, Serialize)]
struct GidRow<'a> {
    index: u32,
    #[serde(rename = "gid")]
    value: String,
    #[serde(rename = "type")]
    version: Option<&'static str>,
    interface: Option<&'a str>,
    address: Option<String>,
    used: bool,
    /// Why it is not used.
    reason: Option<String>,
}

/// A group of ports: those of one kind, card and rate, in one network.
#[derive(Debug, Serialize)]
struct GroupRow<'a> {
    kind: &'static str,
    /// The PCI vendor and device of the cards.
    card: Option<String>,
    ports: &'a [String],
    /// In Gb/s, as the next.
    rate: Option<f64>,
    bandwidth: f64,
    /// How many GPUs are near.
    gpus: usize,
    used: bool,
    /// Why it is not used.
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct GpuRow<'a> {
    pci: &'a str,
    numa_node: Option<u32>,
}

impl<'a> RdmaDocument<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        choice: &'a Choice<'a>,
        variables: &'a Variables,
        warnings: &'a [String],
    ) -> Self {
        Self {
            kind: word(choice.kind),
            transport: Transport::alone(choice).to_string(),
            env: advice(variables).map(|(name, value)| (name.to_owned(), value.into())).collect(),
            kept: variables.kept().iter().map(|kept| kept.name).collect(),
            warnings,
            ports: choice.ports.iter().map(|port| PortRow::new(machine, port)).collect(),
            groups: choice.groups.iter().map(GroupRow::new).collect(),
            gpus: machine
                .gpus
                .iter()
                .map(|gpu| GpuRow { pci: gpu.address(), numa_node: gpu.numa_node })
                .collect(),
            peer_memory: machine.peer_memory.as_deref(),
            addresses: machine.addresses.iter().map(ToString::to_string).collect(),
        }
    }
}

fn word(kind: RdmaKind) -> &'static str {
    match kind {
        RdmaKind::NoDevice => "none",
        RdmaKind::InfiniBand => "infiniband",
        RdmaKind::Roce => "roce",
        RdmaKind::Efa => "efa",
        _ => "unusable",
    }
}

impl<'a> GroupRow<'a> {
    fn new(group: &'a mingle_core::rdma::Group) -> Self {
        Self {
            kind: word(group.kind),
            card: card(group),
            ports: &group.ports,
            rate: group.rate.map(|rate| f64::from(rate) / 1000.0),
            bandwidth: f64::from(group.bandwidth) / 1000.0,
            gpus: group.gpus,
            used: group.excluded.is_none(),
            reason: group.excluded.map(|reason| reason.to_string()),
        }
    }
}

impl<'a> PortRow<'a> {
    fn new(machine: &'a Machine, choice: &PortChoice<'a>) -> Self {
        let (device, port) = (choice.device, choice.port);
        let near = nearest(machine, device);
        Self {
            device: &device.name,
            number: port.number,
            node_type: device.node_type.map(|node_type| match node_type {
                NodeType::Ca => "CA",
                NodeType::Rnic => "RNIC",
                NodeType::Unspecified => "unspecified",
                _ => "other",
            }),
            soft: device.is_soft,
            model: &device.model,
            firmware: &device.firmware,
            state: port.state.map(|state| state.to_string()),
            link_layer: port.link_layer.to_string(),
            rate: port.rate.map(|rate| f64::from(rate) / 1000.0),
            numa_node: device.numa_node,
            pci: device.pci.as_deref().and_then(|path| path.rsplit('/').next()),
            gpus: near.iter().map(|(gpu, _)| gpu.address()).collect(),
            gpu_distance: near.first().map(|(_, distance)| distance.to_string()),
            verbs: match device.verbs {
                Verbs::Open => "open",
                Verbs::Absent => "absent",
                Verbs::Refused { .. } => "refused",
                _ => "untried",
            },
            traffic_class: port.traffic_class,
            used: choice.is_used(),
            reason: choice.excluded.as_ref().map(ToString::to_string),
            gid_index: choice.gid_index(),
            gids: choice.gids.iter().map(GidRow::new).collect(),
        }
    }
}

impl<'a> GidRow<'a> {
    fn new(choice: &GidChoice<'a>) -> Self {
        let entry = choice.entry;
        Self {
            index: entry.index,
            value: entry.gid.to_string(),
            version: entry.version.map(|version| match version {
                RoceVersion::V1 => "RoCE v1",
                RoceVersion::V2 => "RoCE v2",
            }),
            interface: entry.interface.as_deref(),
            // InfiniBand GIDs are not IP addresses.
            address: entry.interface.as_ref().map(|_| entry.gid.address().to_string()),
            used: choice.excluded.is_none(),
            reason: choice.excluded.as_ref().map(ToString::to_string),
        }
    }
}
