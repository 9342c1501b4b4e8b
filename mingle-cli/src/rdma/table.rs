//! A machine's document as tables.

use std::fmt::Write as _;

use serde_json::Value;

use crate::columns::align;
use crate::stderr::printable;

/// The headings of a table, each with the field of the document below it.
type Columns = &'static [(&'static str, &'static str)];

const PORT: Columns = &[
    ("DEVICE", "device"),
    ("PORT", "port"),
    ("STATE", "state"),
    ("LINK", "link_layer"),
    ("RATE", "rate"),
    ("NUMA", "numa_node"),
    ("GPUS", "gpus"),
    ("NEAR", "gpu_distance"),
];
const GID: Columns =
    &[("GID", "index"), ("TYPE", "type"), ("ADDRESS", "address"), ("INTERFACE", "interface")];
const GROUP: Columns = &[
    ("GROUP", "kind"),
    ("CARD", "card"),
    ("RATE", "rate"),
    ("PORTS", "ports"),
    ("BANDWIDTH", "bandwidth"),
    ("NEAR GPUS", "gpus"),
];

/// The tables of ports and groups, and below them the variables that a job would get.
pub(super) fn text(document: &Value) -> String {
    let (ports, groups) = (list(&document["ports"]), list(&document["groups"]));
    let mut text = String::new();
    if ports.is_empty() {
        text.push_str("This host has no RDMA port (nothing in /sys/class/infiniband).\n");
    } else {
        text.push_str(&align(&of_ports(ports), ""));
    }
    // One group is no choice.
    if groups.len() > 1 {
        let rows = groups.iter().map(|group| [cells(group, GROUP), vec![used(group)]].concat());
        let rows: Vec<_> = [headings(&[GROUP])].into_iter().chain(rows).collect();
        let _ = write!(text, "\n{}", align(&rows, ""));
    }
    if !list(&document["gpus"]).is_empty() && !ports.is_empty() {
        let loaded = document["peer_memory"].as_str().unwrap_or("none is loaded; DMA-BUF may serve instead");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nKernel module for GPUDirect RDMA: {loaded}");
    }
    for (at, (name, value)) in document["env"].as_object().into_iter().flatten().enumerate() {
        let _ = writeln!(text, "{}{name}={}", if at == 0 { "\n" } else { "" }, shown(value));
    }
    printable(&text).into_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A row for each port with the GID that it uses, and a row for each GID that it does not use.
fn of_ports(ports: &[Value]) -> Vec<Vec<String>> {
    let mut rows = vec![headings(&[PORT, GID])];
    let row = |port, gid, judged| [cells(port, PORT), cells(gid, GID), vec![used(judged)]].concat();
    for port in ports {
        let (chosen, others): (Vec<_>, Vec<_>) =
            list(&port["gids"]).iter().partition(|gid| gid["used"] == true);
        rows.push(row(port, chosen.first().copied().unwrap_or(&Value::Null), port));
        rows.extend(others.into_iter().map(|gid| row(&Value::Null, gid, gid)));
    }
    rows
}

fn headings(columns: &[Columns]) -> Vec<String> {
    let headings = columns.iter().copied().flatten().map(|(heading, _)| *heading);
    headings.chain(["USED"]).map(str::to_owned).collect()
}

fn cells(row: &Value, columns: Columns) -> Vec<String> {
    columns.iter().map(|(_, field)| shown(&row[*field])).collect()
}

fn used(row: &Value) -> String {
    row["reason"].as_str().map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.escape_debug().to_string(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(","),
        // Only rates are not whole.
        Value::Number(number) if number.is_f64() => {
            format!("{} Gb/s", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
