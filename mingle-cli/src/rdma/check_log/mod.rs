//! `mingle rdma --check-log`: what NCCL's log says about the network that it uses.
//!
//! A log can have gigabytes, mix the lines of many ranks, and hold any bytes. It is read once; only counts
//! and a bounded number of names are kept, and all text is reduced to printable ASCII.

mod cause;
mod count;
mod line;
mod show;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, BufRead};

use serde::Serialize;

use count::{Counts, Ends, NAMES};
use line::{Fact, Line, Way};

/// How many bytes of a line are examined. The message of an NCCL line has at most 2048 bytes
/// (src/transport/net_ib.cc, the list of devices).
const LONGEST_LINE: usize = 4096;

/// The most processes whose devices are kept apart, and the most pairs of ranks whose channels are.
const PARTIES: usize = 4096;

/// The longest text of a line that is kept, in bytes.
const LONGEST_TEXT: usize = 160;

/// The findings in a log.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    verdict: LogVerdict,
    /// Ends of channels that use a network. Each rank of a channel reports its own end.
    network_ends: Ends,
    /// The networks that they use, in NCCL's terms: `NET/IB/GDRDMA`.
    ways: Counts<String>,
    /// The transports of channels within a node: `P2P/CUMEM`.
    within_nodes: Counts<String>,
    devices: Vec<Device>,
    /// Pairs of ranks whose channels use another network than most.
    other_pairs: Vec<Pair>,
    versions: Counts<String>,
    /// The networks that communicators have chosen.
    networks: Counts<String>,
    /// The devices that NCCL has found: `mlx5_0:1/RoCE`.
    hcas: Counts<String>,
    gid_indices: Counts<u32>,
    plugins: Counts<String>,
    /// NCCL's variables, as `NAME=value`.
    settings: Counts<String>,
    warnings: Counts<String>,
    causes: Vec<Cause>,
}

/// The conclusion from a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum LogVerdict {
    RdmaWithGpudirect,
    RdmaWithoutGpudirect,
    Sockets,
    /// A plugin that this program does not know.
    OtherNetwork,
    Mixed,
    OneNode,
    NoChannel,
}

/// A network device, as channels name it.
#[derive(Debug, Serialize)]
struct Device {
    network: String,
    index: u32,
    name: Option<String>,
    ends: Ends,
}

/// Two ranks as their communicator numbers them. A job has several communicators, and the log does not say
/// which one a rank belongs to.
#[derive(Debug, Serialize)]
struct Pair {
    from: u32,
    to: u32,
    ends: Ends,
}

/// A cause of what the log shows, and what to do about it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Cause {
    cause: String,
    cure: &'static str,
}

/// Reads a log to its end. Without any NCCL line the error is [`io::ErrorKind::InvalidData`].
pub(crate) fn read(input: impl BufRead) -> io::Result<Report> {
    let mut log = Log::default();
    let mut lines: u64 = 0;
    each_line(input, |line| {
        lines += 1;
        if let Some(line) = line::parse(line) {
            log.lines += 1;
            log.add(&line);
        }
    })?;
    if log.lines == 0 {
        let error = format!(
            "this is not an NCCL log: none of its {lines} lines contains `NCCL INFO`, `NCCL WARN` or `NCCL \
             version`; to make a log, run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET \
             NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log, and then check these files"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(log.report())
}

/// Calls `each` with the beginning of each line. Lines end with LF or CR: progress bars use CR alone.
fn each_line(mut input: impl BufRead, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut line = String::new();
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            if !line.is_empty() {
                each(&line);
            }
            return Ok(());
        }
        let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let part = &buffer[..end.unwrap_or(buffer.len())];
        line.extend(part.iter().take(LONGEST_LINE.saturating_sub(line.len())).map(|&byte| printable(byte)));
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() && !line.is_empty() {
            each(&line);
            line.clear();
        }
    }
}

/// Replaces bytes that are not printable ASCII: the text may reach a terminal.
fn printable(byte: u8) -> char {
    match byte {
        b' '..=b'~' => char::from(byte),
        b'\t' => ' ',
        _ => '_',
    }
}

/// The log as far as it has been read.
#[derive(Debug, Default)]
struct Log {
    lines: u64,
    total: Ends,
    ways: Counts<String>,
    within_nodes: Counts<String>,
    devices: BTreeMap<(String, u32, Option<String>), Ends>,
    pairs: BTreeMap<(u32, u32), Ends>,
    /// The devices of each process, by the process's own numbers.
    numbered: BTreeMap<(String, u32), BTreeMap<u32, String>>,
    versions: Counts<String>,
    networks: Counts<String>,
    hcas: Counts<String>,
    gids: Counts<u32>,
    plugins: Counts<String>,
    settings: Counts<String>,
    warnings: Counts<String>,
    /// The devices with which GPU memory cannot be registered, and those with which it can.
    refuse: Counts<String>,
    register: Counts<String>,
    far: Counts<String>,
    dma_buf: bool,
    no_device: bool,
    no_verbs: bool,
}

impl Log {
    fn add(&mut self, line: &Line<'_>) {
        match &line.fact {
            Fact::Version(version) => self.versions.add(short(version)),
            Fact::Network(name) => self.networks.add(short(name)),
            Fact::Channel { from, to, way } => self.channel(line, Some((*from, *to)), way),
            Fact::CollNet(way) => self.channel(line, None, way),
            Fact::Hcas(hcas) => {
                for (index, name) in hcas {
                    self.hcas.add(short(name));
                    self.number(line, *index, name);
                }
            }
            Fact::Virtual(index, name) => self.number(line, *index, name),
            // NCCL reports this for interfaces too (NVIDIA/nccl#1053), where it means nothing.
            Fact::Registers { network: "Socket", .. } | Fact::Other => {}
            Fact::Registers { device, yes: true, .. } => self.register.add(short(device)),
            Fact::Registers { device, yes: false, .. } => self.refuse.add(short(device)),
            Fact::Far(distance) => self.far.add(short(distance)),
            Fact::DmaBuf => self.dma_buf = true,
            Fact::NoDevice => self.no_device = true,
            Fact::NoVerbs => self.no_verbs = true,
            Fact::Gid(index) => self.gids.add(*index),
            Fact::Setting(name, value) => self.settings.add(short(&format!("{name}={value}"))),
            Fact::Plugin(name) => self.plugins.add(short(name)),
            Fact::Warning(text) => self.warnings.add(short(text)),
        }
    }

    fn channel(&mut self, line: &Line<'_>, ranks: Option<(u32, u32)>, way: &Way<'_>) {
        let (network, index, gpudirect) = match *way {
            Way::Local(way) => return self.within_nodes.add(short(way)),
            Way::Net { network, index, gpudirect } => (network, index, gpudirect),
        };
        let end = Ends::one(network, gpudirect);
        self.total += end;
        self.ways.add(short(&format!("{network}{}", if gpudirect { "/GDRDMA" } else { "" })));
        let numbered = process(line).and_then(|process| self.numbered.get(&process));
        let name = numbered.and_then(|names| names.get(&index)).cloned();
        bump(&mut self.devices, (short(network), index, name), end, NAMES);
        if let Some(ranks) = ranks {
            bump(&mut self.pairs, ranks, end, PARTIES);
        }
    }

    /// Each process numbers its own devices: NCCL_IB_HCA may differ even within a node.
    fn number(&mut self, line: &Line<'_>, index: u32, name: &str) {
        let Some(process) = process(line) else { return };
        let is_full = self.numbered.len() >= PARTIES;
        let names = match self.numbered.entry(process) {
            Entry::Vacant(_) if is_full => return,
            entry => entry.or_default(),
        };
        if names.len() < NAMES {
            names.insert(index, short(name));
        }
    }

    fn report(self) -> Report {
        let verdict = self.verdict();
        let causes = cause::find(&self, verdict);
        let most = self.total.most();
        let other_pairs =
            self.pairs.into_iter().filter(|(_, ends)| ends.most() != most || !ends.is_uniform());
        Report {
            verdict,
            network_ends: self.total,
            ways: self.ways,
            within_nodes: self.within_nodes,
            devices: self
                .devices
                .into_iter()
                .map(|((network, index, name), ends)| Device { network, index, name, ends })
                .collect(),
            other_pairs: other_pairs.take(NAMES).map(|((from, to), ends)| Pair { from, to, ends }).collect(),
            versions: self.versions,
            networks: self.networks,
            hcas: self.hcas,
            gid_indices: self.gids,
            plugins: self.plugins,
            settings: self.settings,
            warnings: self.warnings,
            causes,
        }
    }

    fn verdict(&self) -> LogVerdict {
        let Ends { gpudirect, rdma, sockets, other } = self.total;
        match (gpudirect, rdma, sockets, other) {
            (0, 0, 0, 0) if self.within_nodes.is_empty() => LogVerdict::NoChannel,
            (0, 0, 0, 0) => LogVerdict::OneNode,
            (_, 0, 0, 0) => LogVerdict::RdmaWithGpudirect,
            (0, _, 0, 0) => LogVerdict::RdmaWithoutGpudirect,
            (0, 0, _, 0) => LogVerdict::Sockets,
            (0, 0, 0, _) => LogVerdict::OtherNetwork,
            _ => LogVerdict::Mixed,
        }
    }
}

fn process(line: &Line<'_>) -> Option<(String, u32)> {
    line.process.map(|process| (short(process.host), process.id))
}

/// The beginning of a text. All texts are ASCII here.
fn short(text: &str) -> String {
    text.trim_end().chars().take(LONGEST_TEXT).collect()
}

fn bump<K: Ord>(map: &mut BTreeMap<K, Ends>, key: K, end: Ends, most: usize) {
    let is_full = map.len() >= most;
    match map.entry(key) {
        Entry::Vacant(_) if is_full => {}
        entry => *entry.or_default() += end,
    }
}

#[cfg(test)]
mod tests;
