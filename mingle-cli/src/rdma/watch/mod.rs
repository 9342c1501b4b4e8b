//! `mingle rdma --watch`: the traffic of the RDMA ports and of the network interfaces.
//!
//! RoCE traffic is counted apart from the interface's, although both use one wire: the adapter sends it
//! without the network stack, so it is not in the interface's statistics (mlx5 has counters of its own for
//! it, see the kernel's Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst). The
//! traffic of a soft device (rxe) and IP over InfiniBand pass the network stack, so both counters have them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write};
use std::iter;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mingle_core::HostName;

/// The values of all counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The time since an origin that all samples share.
    at: Duration,
    links: BTreeMap<Link, Counters>,
}

/// A port or interface with counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    /// Device and port.
    Rdma(String, u32),
    Interface(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    sent: Option<Counter>,
    received: Option<Counter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counter {
    value: u64,
    unit: Unit,
}

/// The unit of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// "Total number of data octets, divided by 4 (lanes)", Documentation/ABI/stable/sysfs-class-infiniband.
    FourBytes,
    Bytes,
    Packets,
}

/// One line of the table: a link and its rates, or `None` if the link is gone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    link: Link,
    rates: Option<Rates>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    sent: Option<Rate>,
    received: Option<Rate>,
}

/// Units per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    bytes_or_packets: f64,
    is_packets: bool,
}

/// Prints a block of rates at each interval `every`, which is not zero: `count` blocks, or without end. On a
/// terminal (`live`) each block replaces the last. Ends without an error if nobody reads the output any more.
pub(crate) fn run(
    sys: &Path,
    every: Duration,
    out: &mut dyn Write,
    live: bool,
    count: Option<u64>,
) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the counters are those of the real machine")]
    let now = Instant::now;
    let started = now();
    let mut is_first = true;
    let samples = iter::from_fn(|| {
        if !is_first {
            #[expect(clippy::disallowed_methods, reason = "a rate needs two samples at different times")]
            thread::sleep(every);
        }
        is_first = false;
        Some(read(sys, now() - started))
    });
    match count {
        // A block needs two samples, so take one sample more than blocks.
        Some(count) => show((0..=count).zip(samples).map(|(_, sample)| sample), out, live),
        None => show(samples, out, live),
    }
}

fn show(mut samples: impl Iterator<Item = Sample>, out: &mut dyn Write, live: bool) -> io::Result<()> {
    let Some(mut before) = samples.next() else { return Ok(()) };
    let mut block = String::new();
    for mut after in samples {
        let drawn = block.lines().count();
        let lead = match (live, drawn) {
            (_, 0) => String::new(),
            // Move to the beginning of the last block and clear all below: it may have been longer.
            (true, lines) => format!("\x1b[{lines}A\x1b[J"),
            (false, _) => "\n".to_owned(),
        };
        block = table(&rates(&before, &after));
        // In one write, so that a terminal never shows half of it.
        match out.write_all((lead + &block).as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        // A port that is gone stays in the table without counters. Interfaces do not: they come and go with
        // containers.
        for port in before.links.into_keys().filter(|link| matches!(link, Link::Rdma(..))) {
            after.links.entry(port).or_default();
        }
        before = after;
    }
    Ok(())
}

/// The rates of each link between two samples, RDMA ports first.
pub(crate) fn rates(before: &Sample, after: &Sample) -> Vec<Row> {
    let elapsed = after.at.saturating_sub(before.at);
    let mut links: Vec<&Link> = before.links.keys().chain(after.links.keys()).collect();
    links.sort_by_key(|link| link.order());
    links.dedup();
    let row = |link: &Link| {
        let now = after.links.get(link);
        let was = before.links.get(link).copied().unwrap_or_default();
        let rates = now.map(|now| Rates {
            sent: rate(was.sent, now.sent, elapsed),
            received: rate(was.received, now.received, elapsed),
        });
        Row { link: link.clone(), rates }
    };
    // Leave out interfaces that have never carried a byte: machines have many of them.
    let is_idle = |link: &Link| {
        let counters = after.links.get(link).copied().unwrap_or_default();
        let is_zero = |counter: Option<Counter>| counter.is_some_and(|counter| counter.value == 0);
        matches!(link, Link::Interface(_)) && is_zero(counters.sent) && is_zero(counters.received)
    };
    links.into_iter().filter(|link| !is_idle(link)).map(row).collect()
}

/// The rate between two values of a counter. `None` if the counter is new, cannot be read, was reset, or is
/// full.
fn rate(before: Option<Counter>, after: Option<Counter>, elapsed: Duration) -> Option<Rate> {
    let (before, after) = (before?, after?);
    // The kernel's document of these files says 64 bits. An adapter without 64-bit counters reports the
    // 32-bit PortCounters of the InfiniBand specification. These stop at the largest value instead of
    // wrapping, so a counter that is full says nothing any more.
    let is_full = after.unit == Unit::FourBytes && after.value == u64::from(u32::MAX);
    if is_full || elapsed.is_zero() || before.unit != after.unit {
        return None;
    }
    let difference = after.value.checked_sub(before.value)?;
    let scale = if after.unit == Unit::FourBytes { 4.0 } else { 1.0 };
    #[expect(clippy::cast_precision_loss, reason = "only three digits are shown")]
    let units = difference as f64;
    let bytes_or_packets = units * scale / elapsed.as_secs_f64();
    Some(Rate { bytes_or_packets, is_packets: after.unit == Unit::Packets })
}

/// Reads the counters below `sys`, which is /sys. Counters that cannot be read are left out.
pub(crate) fn read(sys: &Path, at: Duration) -> Sample {
    let class = sys.join("class");
    let mut links = BTreeMap::new();
    for device in names(&class.join("infiniband")) {
        let ports = class.join("infiniband").join(&device).join("ports");
        for port in names(&ports).iter().filter_map(|port| port.parse().ok()) {
            let counters = port_counters(&ports.join(u32::to_string(&port)));
            links.insert(Link::Rdma(device.clone(), port), counters);
        }
    }
    for interface in names(&class.join("net")) {
        let counters =
            counters(&class.join("net").join(&interface).join("statistics"), "tx_bytes", "rx_bytes");
        // The file bonding_masters in this folder is not an interface.
        if counters != Counters::default() {
            links.insert(Link::Interface(interface), counters);
        }
    }
    Sample { at, links }
}

/// The counters of a port. InfiniBand and mlx5's RoCE have `counters`; `hw_counters` has bytes for EFA
/// (drivers/infiniband/hw/efa/efa_verbs.c) and packets for rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c).
fn port_counters(port: &Path) -> Counters {
    let hardware = port.join("hw_counters");
    let kinds = [
        (port.join("counters"), "port_xmit_data", "port_rcv_data", Unit::FourBytes),
        (hardware.clone(), "tx_bytes", "rx_bytes", Unit::Bytes),
        (hardware, "sent_pkts", "rcvd_pkts", Unit::Packets),
    ];
    let found = kinds.iter().map(|(folder, sent, received, unit)| Counters {
        sent: counter(&folder.join(sent), *unit),
        received: counter(&folder.join(received), *unit),
    });
    found.into_iter().find(|counters| *counters != Counters::default()).unwrap_or_default()
}

fn counters(folder: &Path, sent: &str, received: &str) -> Counters {
    Counters {
        sent: counter(&folder.join(sent), Unit::Bytes),
        received: counter(&folder.join(received), Unit::Bytes),
    }
}

fn counter(file: &Path, unit: Unit) -> Option<Counter> {
    // An adapter without the counter returns a text such as `N/A (no PMA)`.
    Some(Counter { value: fs::read_to_string(file).ok()?.trim().parse().ok()?, unit })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl Link {
    /// The sort key: names that differ only in their number are ordered by it, mlx5_2 before mlx5_10.
    fn order(&self) -> (bool, &str, usize, &str, u32) {
        let (is_interface, name, port) = match self {
            Self::Rdma(name, port) => (false, name, *port),
            Self::Interface(name) => (true, name, 0),
        };
        (is_interface, name.trim_end_matches(|c: char| c.is_ascii_digit()), name.len(), name, port)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The kernel allows any byte in a name except a slash, a colon and white space.
        match self {
            Self::Rdma(name, port) => write!(f, "{}:{port}", HostName::new(name)),
            Self::Interface(name) => HostName::new(name).fmt(f),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.is_packets { "pkt/s" } else { "B/s" };
        let mut value = self.bytes_or_packets;
        for prefix in ["", "k", "M", "G"] {
            // Values from 999.5 on would be rounded to 1000.
            if value < 999.5 {
                let digits = usize::from(value < 99.95 && !prefix.is_empty());
                return write!(f, "{value:.digits$} {prefix}{unit}");
            }
            value /= 1000.0;
        }
        write!(f, "{value:.1} T{unit}")
    }
}

/// The table: RDMA ports, then interfaces, each part with its heading.
fn table(rows: &[Row]) -> String {
    let (ports, interfaces): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| matches!(row.link, Link::Rdma(..)));
    let width = rows.iter().map(|row| row.link.to_string().len()).max().unwrap_or(0).max("interface".len());
    let mut text = String::new();
    for (heading, rows) in [("RDMA port", ports), ("interface", interfaces)] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{heading:width$}  {:>12}  {:>12}", "sent", "received");
        if rows.is_empty() {
            text.push_str("none\n");
        }
        for Row { link, rates } in rows {
            let show = |rate: Option<Rate>| rate.map_or("-".to_owned(), |rate| rate.to_string());
            let (sent, received) = match rates {
                Some(rates) => (show(rates.sent), show(rates.received)),
                None => ("gone".to_owned(), "gone".to_owned()),
            };
            let _ = writeln!(text, "{:width$}  {sent:>12}  {received:>12}", link.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests;
