//! A machine as a table.

use std::fmt::Write as _;

use mingle_core::env::{MINGLE_SET, Variables};
use mingle_core::rdma::{
    Choice, Device, Distance, Gpu, Group, Machine, PortChoice, Rate, RdmaKind, RoceVersion,
};

use crate::stderr::printable;

const HEAD: [&str; 12] = [
    "DEVICE",
    "PORT",
    "STATE",
    "LINK",
    "RATE",
    "NUMA",
    "GPUS",
    "GID",
    "TYPE",
    "ADDRESS",
    "INTERFACE",
    "USED",
];

/// The recommended variables, without MINGLE_SET, which lists them.
pub(super) fn advice(variables: &Variables) -> impl Iterator<Item = (&str, &str)> {
    variables
        .set()
        .iter()
        .filter(|(name, _)| name != MINGLE_SET)
        .map(|(name, value)| (&**name, value.as_str()))
}

/// The GPUs nearest to a device, and how near they are. A GPU on another NUMA node is not near.
pub(super) fn nearest<'a>(machine: &'a Machine, device: &Device) -> Vec<(&'a Gpu, Distance)> {
    let gpus = machine.gpus.iter().filter_map(|gpu| Some((gpu, gpu.distance(device)?)));
    let Some(least) = gpus.clone().map(|(_, distance)| distance).min() else { return Vec::new() };
    gpus.filter(|(_, distance)| *distance == least && least < Distance::System).collect()
}

/// The table, and below it the variables that a job would get.
pub(super) fn text(machine: &Machine, choice: &Choice<'_>, variables: &Variables) -> String {
    let mut text = String::new();
    if machine.devices.is_empty() {
        text.push_str("This host has no RDMA device (nothing in /sys/class/infiniband).\n");
    } else {
        let mut rows = vec![HEAD.map(str::to_owned)];
        for port in &choice.ports {
            rows.extend(self::rows(machine, port));
        }
        text.push_str(&align(&rows));
        text.push_str(&groups(choice));
    }
    if !machine.gpus.is_empty() && !machine.devices.is_empty() {
        let module = machine.peer_memory.as_deref();
        let loaded = module.map_or("none is loaded; DMA-BUF may serve instead".to_owned(), str::to_owned);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nKernel module for GPUDirect RDMA: {loaded}");
    }
    let advice: Vec<_> = advice(variables).collect();
    if !advice.is_empty() {
        text.push('\n');
        for (name, value) in advice {
            let _ = writeln!(text, "{name}={value}");
        }
    }
    printable(&text).into_owned()
}

/// The groups of ports, where there is a choice among several.
fn groups(choice: &Choice<'_>) -> String {
    if choice.groups.len() < 2 {
        return String::new();
    }
    let mut rows =
        vec![["GROUP", "CARD", "RATE", "PORTS", "BANDWIDTH", "NEAR GPUS", "USED"].map(str::to_owned)];
    for group in &choice.groups {
        rows.push([
            name(group.kind).to_owned(),
            card(group).unwrap_or_default(),
            group.rate.map_or_else(|| "?".to_owned(), |rate| Rate(rate).to_string()),
            group.ports.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(","),
            Rate(group.bandwidth).to_string(),
            if group.gpus == 0 { String::new() } else { group.gpus.to_string() },
            group.excluded.map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}")),
        ]);
    }
    format!("\n{}", align(&rows))
}

fn name(kind: RdmaKind) -> &'static str {
    match kind {
        RdmaKind::InfiniBand => "InfiniBand",
        RdmaKind::Roce => "RoCE",
        _ => "EFA",
    }
}

/// The PCI vendor and device of a group's cards, as `lspci -n` prints them.
pub(super) fn card(group: &Group) -> Option<String> {
    group.card.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}"))
}

/// A row for the port with the GID that it uses, and a row for each GID that it does not use.
fn rows(machine: &Machine, choice: &PortChoice<'_>) -> Vec<[String; 12]> {
    let (device, port) = (choice.device, choice.port);
    let unknown = || "?".to_owned();
    let near = nearest(machine, device);
    let gpus: Vec<_> = near.iter().map(|(gpu, _)| gpu.address()).collect();
    let gpus =
        near.first().map_or_else(String::new, |(_, distance)| format!("{} {distance}", gpus.join(",")));
    let head = [
        device.name.escape_debug().to_string(),
        port.number.to_string(),
        port.state.map_or_else(unknown, |state| state.to_string()),
        port.link_layer.to_string(),
        port.rate.map_or_else(unknown, |rate| Rate(rate).to_string()),
        device.numa_node.map_or_else(String::new, |node| node.to_string()),
        gpus,
    ];
    let with = |head: [String; 7], gid: [String; 5]| {
        let mut cells = head.into_iter().chain(gid);
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    };
    let used = choice.excluded.as_ref().map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}"));
    let mut rows = Vec::new();
    let chosen = choice.gids.iter().find(|gid| gid.excluded.is_none());
    let cells = |gid: &mingle_core::rdma::GidChoice<'_>, used: String| {
        let entry = gid.entry;
        let version = entry.version.map_or("", |version| match version {
            RoceVersion::V1 => "v1",
            RoceVersion::V2 => "v2",
        });
        let address = entry.interface.as_ref().map(|_| entry.gid.address().to_string());
        [
            entry.index.to_string(),
            version.to_owned(),
            address.unwrap_or_else(|| entry.gid.to_string()),
            entry.interface.as_ref().map_or_else(String::new, |name| name.escape_debug().to_string()),
            used,
        ]
    };
    let blank = |used: String| [String::new(), String::new(), String::new(), String::new(), used];
    rows.push(with(head, chosen.map_or_else(|| blank(used.clone()), |gid| cells(gid, used.clone()))));
    for gid in &choice.gids {
        if let Some(reason) = &gid.excluded {
            rows.push(with(Default::default(), cells(gid, format!("no: {reason}"))));
        }
    }
    rows
}

/// Makes columns as wide as their widest cell. Leaves out columns that have only a heading.
fn align<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let filled = |column: usize| rows.iter().skip(1).any(|row| !row[column].is_empty());
    let columns: Vec<(usize, usize)> =
        (0..COLUMNS).filter(|column| filled(*column)).map(|column| (column, width(column))).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> =
            columns.iter().map(|&(column, width)| format!("{:width$}", row[column])).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
