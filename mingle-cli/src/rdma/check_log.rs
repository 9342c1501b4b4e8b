//! `mingle rdma --check-log`: whether NCCL's log says RDMA or sockets, with GPUDirect or without, and between
//! which ranks.
//!
//! NCCL logs one line for each end of a channel: `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`.
//! The form is that of the sources of 2.10 to 2.32 (src/transport/net.cc, coll_net.cc, p2p.cc, shm.cc). A log
//! can have gigabytes and hold any bytes: it is read once, and only numbers are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read as _};

use serde_json::{Value, json};

/// How many bytes are read as a line at most: a file without line breaks may have any length.
const LONGEST_LINE: u64 = 1 << 20;
/// What NCCL's lines have, and others have not.
const OF_NCCL: [&str; 3] = ["NCCL INFO ", "NCCL WARN ", "NCCL version "];
/// The most pairs of ranks that are kept apart.
const PAIRS: usize = 4096;
/// The most pairs in the text. JSON has all that differ.
const SHOWN: usize = 16;

/// How a channel leads from node to node, the best first: its name for scripts, that in words, and what the
/// user can do where all do so. The last is a plugin that this program does not know.
const NETWORKS: [(&str, &str, &str); 4] = [
    ("rdma_with_gpudirect", "RDMA with GPUDirect", ""),
    (
        "rdma_without_gpudirect",
        "RDMA without GPUDirect",
        ". The data goes through the host's memory: load nvidia_peermem on the host, or use a GPU driver with DMA-BUF, \
         and see `nvidia-smi topo -m`",
    ),
    (
        "sockets",
        "sockets",
        ". RDMA is not used: `mingle rdma` shows the devices of a host, and the log's lines with NET/IB and libibverbs \
         say what NCCL found",
    ),
    ("other_network", "another network", ""),
];

/// The number of ends of channels on each of the [`NETWORKS`].
type Ends = [u64; 4];

/// The findings in a log.
#[derive(Debug, Default)]
pub(crate) struct LogReport {
    /// Each rank of a channel reports its own end.
    ends: Ends,
    /// The ends of each pair of ranks, as their communicator numbers them.
    pairs: BTreeMap<(u32, u32), Ends>,
    /// Whether channels lead from GPU to GPU within a node.
    within_nodes: bool,
}

/// Reads a log to its end. Without any NCCL line the error is [`io::ErrorKind::InvalidData`].
pub(crate) fn read(mut input: impl BufRead) -> io::Result<LogReport> {
    let mut report = LogReport::default();
    let mut is_of_nccl = false;
    let mut bytes = Vec::new();
    while input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)? > 0 {
        // Progress bars end their lines with CR alone.
        for line in String::from_utf8_lossy(&bytes).split('\r') {
            is_of_nccl |= OF_NCCL.iter().any(|text| line.contains(text));
            if let Some((ranks, way)) = channel(line) {
                report.note(ranks, way);
            }
        }
        bytes.clear();
    }
    if !is_of_nccl {
        let error = "this is not an NCCL log: no line contains `NCCL INFO`, `NCCL WARN` or `NCCL version`; to \
             make a log, run the job with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log, and then check these files";
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(report)
}

/// The two ranks of a channel, and the way that its data takes: `NET/IB/0/GDRDMA`, `P2P/CUMEM`. A CollNet
/// channel has no second rank.
fn channel(line: &str) -> Option<(Option<(u32, u32)>, &str)> {
    let (_, body) = line.split_once("NCCL INFO ")?;
    let (front, way) = body.split_once(" via ")?;
    // Two processes have written at once, and the end of the first message is unknown.
    let is_torn = body.contains("NCCL INFO ");
    let (kind, ranks) = front.split_once(" : ").filter(|_| !is_torn)?;
    // `Ring` up to 2.6.
    let is_channel = ["Channel ", "CollNet ", "Ring "].iter().any(|start| kind.starts_with(start));
    let rank = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    let pair = ranks.split_once(" -> ").and_then(|(from, to)| Some((rank(from)?, rank(to)?)));
    is_channel.then_some((pair, way))
}

/// The place of this way among the [`NETWORKS`]; none where it leads over no network.
fn network(way: &str) -> Option<usize> {
    let (kind, rest) = way.split_once('/')?;
    // A plugin's name can contain spaces. `IBext` is nccl-rdma-sharp-plugins, `gIB` is Google's plugin for
    // RoCE, and `AWS Libfabric` or `Libfabric` is the plugin for EFA. Others may say GDRDMA without RDMA.
    let name = rest.split('/').next()?;
    let is_rdma = matches!(name, "IB" | "gIB") || name.starts_with("IBext") || name.ends_with("Libfabric");
    match kind {
        // SHARP, a function of InfiniBand switches, serves COLLNET.
        "NET" | "COLLNET" if is_rdma || kind == "COLLNET" => Some(usize::from(!way.contains("/GDRDMA"))),
        "NET" => Some(if name == "Socket" { 2 } else { 3 }),
        _ => None,
    }
}

/// The numbers that are not 0, each with its place.
fn used(ends: Ends) -> Vec<(usize, u64)> {
    ends.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
}

/// The numbers in words, such as `3 sockets`.
fn counts(ends: Ends) -> String {
    let counts = used(ends).into_iter().map(|(at, count)| format!("{count} {}", NETWORKS[at].1));
    counts.collect::<Vec<_>>().join(", ")
}

impl LogReport {
    fn note(&mut self, ranks: Option<(u32, u32)>, way: &str) {
        self.within_nodes |= way.starts_with("P2P/") || way.starts_with("SHM/");
        let Some(at) = network(way) else { return };
        self.ends[at] += 1;
        let has_room = self.pairs.len() < PAIRS;
        if let Some(pair) = ranks.filter(|pair| has_room || self.pairs.contains_key(pair)) {
            self.pairs.entry(pair).or_default()[at] += 1;
        }
    }

    /// The verdict, and the same in words.
    fn verdict(&self) -> (&'static str, String) {
        let all: u64 = self.ends.iter().sum();
        let ends = format!("{all} ends of network channels");
        match used(self.ends)[..] {
            [] if self.within_nodes => ("one_node", "one node: no channel uses a network".to_owned()),
            [] => {
                let text = "no channels: the log does not show how data is sent; run with NCCL_DEBUG=INFO \
                            NCCL_DEBUG_SUBSYS=INIT,ENV,NET";
                ("no_channel", text.to_owned())
            }
            [(at, _)] => {
                let (verdict, words, cure) = NETWORKS[at];
                (verdict, format!("{words}: all {ends}{cure}"))
            }
            _ => ("mixed", format!("mixed: {} of {ends}", counts(self.ends))),
        }
    }

    /// Pairs of ranks whose channels use another network than most.
    fn others(&self) -> Vec<((u32, u32), Ends)> {
        // Of two equally frequent networks the better, while `max_by_key` returns the last.
        let most = (0..NETWORKS.len()).rev().max_by_key(|at| self.ends[*at]);
        let differs = |ends: Ends| used(ends).iter().any(|(at, _)| Some(*at) != most);
        self.pairs.iter().map(|(pair, ends)| (*pair, *ends)).filter(|(_, ends)| differs(*ends)).collect()
    }

    /// The findings for scripts.
    pub(crate) fn json(&self) -> Value {
        let named =
            |ends: Ends| NETWORKS.map(|(name, ..)| name).into_iter().zip(ends).collect::<BTreeMap<_, _>>();
        let pair = |((from, to), ends)| json!({ "from": from, "to": to, "ends": named(ends) });
        json!({
            "verdict": self.verdict().0,
            "network_ends": named(self.ends),
            "other_pairs": self.others().into_iter().map(pair).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict().1)?;
        let others = self.others();
        for (at, ((from, to), ends)) in others.iter().take(SHOWN).enumerate() {
            let heading =
                if at == 0 { "\nranks whose channels use another network than most:\n" } else { "" };
            writeln!(f, "{heading}  {from} -> {to}: {}", counts(*ends))?;
        }
        match others.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::BufReader;

    use super::*;

    fn report(log: &str) -> LogReport {
        read(log.as_bytes()).unwrap()
    }

    /// The verdict on one line of NCCL's.
    fn of(text: &str) -> &'static str {
        report(&format!("node-a:120890:121560 [0] NCCL INFO {text}")).verdict().0
    }

    #[test]
    fn channels_of_all_versions_are_read() {
        // NVIDIA/nccl#707, #1189, #1357, #1412, #1814, #1817, #367, #676; aws/aws-ofi-nccl#24. The forms with
        // a proxy, (PCI) and Shared are derived from src/transport/net.cc.
        for (text, verdict) in [
            ("Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA", "rdma_with_gpudirect"),
            ("Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA", "rdma_with_gpudirect"),
            ("Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3", "rdma_without_gpudirect"),
            ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared", "rdma_with_gpudirect"),
            ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/Shared", "rdma_without_gpudirect"),
            ("Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3", "rdma_without_gpudirect"),
            ("Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0", "sockets"),
            ("Ring 00 : 15 -> 0 [receive] via NET/Socket/0", "sockets"),
            ("Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0", "rdma_without_gpudirect"),
            (
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA/Shared",
                "rdma_with_gpudirect",
            ),
            ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FasTrak/0/GDRDMA", "other_network"),
            ("CollNet 00/0 : 3 [send] via COLLNET/SHARP/1/GDRDMA", "rdma_with_gpudirect"),
            ("Channel 07/0 : 3[1] -> 2[0] via P2P/CUMEM", "one_node"),
            ("Channel 00 : 3[3] -> 4[4] via SHM/direct/direct", "one_node"),
            ("Channel 00/02 :    0   1", "no_channel"),
            ("Using network IBext_v8", "no_channel"),
            ("Channel 0 : 0[0] -> 1[0] [send] via NET/IBn:3:4 [0] NCCL INFO Using network IB", "no_channel"),
        ] {
            assert_eq!(of(text), verdict, "{text}");
        }
        assert_eq!(report("NCCL version 2.18.5+cuda12.0").verdict().0, "no_channel");
        let with_prefix =
            "[1,26]<stdout>:ip-1:8716:9558 [2] NCCL INFO Channel 0 : 1[0] -> 2[0] [send] via NET/IB/0";
        assert_eq!(report(with_prefix).verdict().0, "rdma_without_gpudirect");
    }

    /// NVIDIA/nccl#1189, shortened: two nodes with RoCE.
    const DIRECT: &str = "\
NCCL version 2.21.5+cuda12.4
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [receive] via NET/IB/1/GDRDMA
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [receive] via NET/IB/1/GDRDMA
H20-GPU-05:1789225:1789736 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM
";

    #[test]
    fn the_verdict_is_the_first_line_and_pairs_of_ranks_that_differ_are_named() {
        assert_eq!(report(DIRECT).to_string(), "RDMA with GPUDirect: all 3 ends of network channels\n");
        let odd = "n:1:2 [0] NCCL INFO Channel 01/0 : 4[4] -> 12[4] [send] via NET/IB/0\n";
        let partly = "n:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 3[1] [send] via NET/Socket/0\n";
        let report = report(&(DIRECT.to_owned() + odd + partly));
        assert_eq!(
            report.to_string(),
            "mixed: 3 RDMA with GPUDirect, 1 RDMA without GPUDirect, 1 sockets of 5 ends of network channels\n\n\
             ranks whose channels use another network than most:\n\
             \u{20} 1 -> 3: 3 RDMA with GPUDirect, 1 sockets\n\
             \u{20} 4 -> 12: 1 RDMA without GPUDirect\n"
        );
        let json = report.json();
        assert_eq!((&json["verdict"], &json["other_pairs"][1]["from"]), (&"mixed".into(), &4.into()));
        assert_eq!(json["network_ends"]["sockets"], 1);
    }

    #[test]
    fn a_file_that_is_not_an_nccl_log_is_refused_with_how_to_make_one() {
        for text in ["", "epoch 1: loss 2.5\nepoch 2: loss 2.4\n", "NCCL"] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("NCCL_DEBUG=INFO"), "{error}");
        }
    }

    #[test]
    fn logs_of_any_bytes_and_any_length_are_read() {
        let mut log = b"\x00\xff\xfe".repeat(10_000);
        log.extend(b"\r\nn\x1b[2J\xe2\x80\xae:1:2 [0] NCCL WARN \x1b]0;x\x07\xc2\x9b oh no\r");
        log.extend(DIRECT.replace('\n', "\r").as_bytes());
        // A reader of one byte at a time gives the same.
        let whole = read(log.as_slice()).unwrap().to_string();
        assert_eq!(whole, read(BufReader::with_capacity(1, log.as_slice())).unwrap().to_string());
        assert_eq!(whole, report(DIRECT).to_string());
        let line = DIRECT.lines().nth(1).unwrap();
        for end in 0..line.len() {
            for start in 0..end {
                let _ = channel(&line[start..end]);
            }
        }
        // A file without line breaks.
        let endless = io::repeat(b'\xff').take(2 * LONGEST_LINE + 1);
        let endless = BufReader::new(endless.chain(&b"\n"[..]).chain(DIRECT.as_bytes()));
        assert_eq!(whole, read(endless).unwrap().to_string());
    }

    #[test]
    fn memory_is_bounded_whatever_the_log_holds() {
        let mut text = DIRECT.repeat(PAIRS * 2);
        for i in 10..3 * PAIRS {
            writeln!(text, "h:{i}:2 [0] NCCL INFO Channel 00/0 : {i}[0] -> 1[0] [send] via NET/IB/0")
                .unwrap();
        }
        let report = report(&text);
        assert_eq!(report.others().len(), PAIRS - 1);
        assert!(report.to_string().contains(&format!("and {} more", PAIRS - 1 - SHOWN)));
    }
}
