//! `mingle rdma --check-log`: whether NCCL's log says RDMA or sockets, with GPUDirect or without, and between
//! which ranks.
//!
//! NCCL logs one line for each end of a channel: `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`.
//! The form is that of the sources of 2.10 to 2.32 (src/transport/net.cc, coll_net.cc, p2p.cc, shm.cc). A log
//! can have gigabytes and hold any bytes: it is read once, and only numbers are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};

use serde::Serialize;

/// How many bytes of a line are examined.
const LONGEST_LINE: usize = 4096;
/// What NCCL's lines have, and others have not.
const OF_NCCL: [&str; 3] = ["NCCL INFO ", "NCCL WARN ", "NCCL version "];
/// The most pairs of ranks that are kept apart.
const PAIRS: usize = 4096;
/// The most pairs in the text. JSON has all that differ.
const SHOWN: usize = 16;

/// The findings in a log.
#[derive(Debug, Serialize)]
pub(crate) struct LogReport {
    verdict: LogVerdict,
    /// Each rank of a channel reports its own end.
    network_ends: LinkEnds,
    /// Pairs of ranks whose channels use another network than most.
    other_pairs: Vec<Pair>,
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

/// Two ranks as their communicator numbers them.
#[derive(Debug, Serialize)]
struct Pair {
    from: u32,
    to: u32,
    ends: LinkEnds,
}

/// Ends of channels, by the network that they use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct LinkEnds {
    gpudirect: u64,
    rdma: u64,
    sockets: u64,
    other: u64,
}

/// Reads a log to its end. Without any NCCL line the error is [`io::ErrorKind::InvalidData`].
pub(crate) fn read(input: impl BufRead) -> io::Result<LogReport> {
    let (mut total, mut pairs, mut within_nodes) = (LinkEnds::default(), BTreeMap::new(), false);
    let (mut lines, mut of_nccl): (u64, u64) = (0, 0);
    each_line(input, |line| {
        lines += 1;
        of_nccl += u64::from(OF_NCCL.iter().any(|text| line.contains(text)));
        let Some((ranks, way)) = channel(line) else { return };
        within_nodes |= way.starts_with("P2P/") || way.starts_with("SHM/");
        let Some(count) = total.of(way) else { return };
        *count += 1;
        let has_room = pairs.len() < PAIRS;
        if let Some(pair) = ranks.filter(|pair| has_room || pairs.contains_key(pair)) {
            let ends: &mut LinkEnds = pairs.entry(pair).or_default();
            ends.of(way).into_iter().for_each(|count| *count += 1);
        }
    })?;
    if of_nccl == 0 {
        let error = format!(
            "this is not an NCCL log: none of its {lines} lines contains `NCCL INFO`, `NCCL WARN` or `NCCL version`; to \
             make a log, run the job with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log, and then check these files"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let differs = |ends: &LinkEnds| ends.used().len() > 1 || ends.most() != total.most();
    let other_pairs = pairs.into_iter().filter(|(_, ends)| differs(ends));
    let other_pairs = other_pairs.map(|((from, to), ends)| Pair { from, to, ends }).collect();
    Ok(LogReport { verdict: total.verdict(within_nodes), network_ends: total, other_pairs })
}

/// Calls `each` with the beginning of each line. Lines end with LF or CR: progress bars use CR alone.
fn each_line(input: impl BufRead, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut line = String::new();
    for byte in input.bytes().chain([Ok(b'\n')]) {
        match byte? {
            b'\n' | b'\r' if line.is_empty() => {}
            b'\n' | b'\r' => each(&std::mem::take(&mut line)),
            byte if line.len() < LONGEST_LINE => line.push(byte.into()),
            _ => {}
        }
    }
    Ok(())
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

impl LinkEnds {
    /// The count of this way; none where it leads over no network.
    fn of(&mut self, way: &str) -> Option<&mut u64> {
        let (kind, rest) = way.split_once('/')?;
        // A plugin's name can contain spaces. `IBext` is nccl-rdma-sharp-plugins, `gIB` is Google's plugin
        // for RoCE, and `AWS Libfabric` or `Libfabric` is the plugin for EFA. Others may say GDRDMA without
        // RDMA.
        let name = rest.split('/').next()?;
        let is_rdma =
            matches!(name, "IB" | "gIB") || name.starts_with("IBext") || name.ends_with("Libfabric");
        match kind {
            // SHARP, a function of InfiniBand switches, serves COLLNET.
            "NET" | "COLLNET" if is_rdma || kind == "COLLNET" => {
                Some(if way.contains("/GDRDMA") { &mut self.gpudirect } else { &mut self.rdma })
            }
            "NET" if name == "Socket" => Some(&mut self.sockets),
            "NET" => Some(&mut self.other),
            _ => None,
        }
    }

    fn all(&self) -> [(u64, LogVerdict, &'static str); 4] {
        [
            (self.gpudirect, LogVerdict::RdmaWithGpudirect, "RDMA with GPUDirect"),
            (self.rdma, LogVerdict::RdmaWithoutGpudirect, "RDMA without GPUDirect"),
            (self.sockets, LogVerdict::Sockets, "sockets"),
            (self.other, LogVerdict::OtherNetwork, "another network"),
        ]
    }

    fn used(&self) -> Vec<(u64, LogVerdict, &'static str)> {
        self.all().into_iter().filter(|(count, ..)| *count > 0).collect()
    }

    /// The most frequent network, the better one of two that are equally frequent.
    fn most(&self) -> LogVerdict {
        // `max_by_key` returns the last of several maxima.
        let most = self.all().into_iter().rev().max_by_key(|(count, ..)| *count);
        most.map_or(LogVerdict::NoChannel, |(_, verdict, _)| verdict)
    }

    fn verdict(&self, within_nodes: bool) -> LogVerdict {
        match self.used()[..] {
            [] if within_nodes => LogVerdict::OneNode,
            [] => LogVerdict::NoChannel,
            [(_, verdict, _)] => verdict,
            _ => LogVerdict::Mixed,
        }
    }
}

impl fmt::Display for LinkEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.used().into_iter().map(|(count, _, name)| format!("{count} {name}"));
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.network_ends.all().iter().map(|(count, ..)| count).sum();
        let ends = format!("all {all} ends of network channels");
        match self.verdict {
            LogVerdict::RdmaWithGpudirect => writeln!(f, "RDMA with GPUDirect: {ends}"),
            LogVerdict::RdmaWithoutGpudirect => writeln!(
                f,
                "RDMA without GPUDirect: {ends}. The data goes through the host's memory: load nvidia_peermem on the \
                 host, or use a GPU driver with DMA-BUF, and see `nvidia-smi topo -m`"
            ),
            LogVerdict::Sockets => writeln!(
                f,
                "sockets: {ends}. RDMA is not used: `mingle rdma` shows the devices of a host, and the log's lines with \
                 NET/IB and libibverbs say what NCCL found"
            ),
            LogVerdict::OtherNetwork => writeln!(f, "another network: {ends}"),
            LogVerdict::Mixed => {
                writeln!(f, "mixed: {} of {all} ends of network channels", self.network_ends)
            }
            LogVerdict::OneNode => writeln!(f, "one node: no channel uses a network"),
            LogVerdict::NoChannel => writeln!(
                f,
                "no channels: the log does not show how data is sent; run with NCCL_DEBUG=INFO \
                 NCCL_DEBUG_SUBSYS=INIT,ENV,NET"
            ),
        }?;
        for (at, Pair { from, to, ends }) in self.other_pairs.iter().take(SHOWN).enumerate() {
            let heading =
                if at == 0 { "\nranks whose channels use another network than most:\n" } else { "" };
            writeln!(f, "{heading}  {from} -> {to}: {ends}")?;
        }
        match self.other_pairs.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::{BufReader, Read};

    use super::*;

    fn report(log: &str) -> LogReport {
        read(log.as_bytes()).unwrap()
    }

    /// The verdict on one line of NCCL's.
    fn of(text: &str) -> LogVerdict {
        report(&format!("node-a:120890:121560 [0] NCCL INFO {text}")).verdict
    }

    #[test]
    fn channels_of_all_versions_are_read() {
        use LogVerdict::{
            NoChannel, OneNode, OtherNetwork, RdmaWithGpudirect, RdmaWithoutGpudirect, Sockets,
        };
        // NVIDIA/nccl#707, #1189, #1357, #1412, #1814, #1817, #367, #676; aws/aws-ofi-nccl#24. The forms with
        // a proxy, (PCI) and Shared are derived from src/transport/net.cc.
        for (text, verdict) in [
            ("Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA", RdmaWithGpudirect),
            ("Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA", RdmaWithGpudirect),
            ("Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3", RdmaWithoutGpudirect),
            ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared", RdmaWithGpudirect),
            ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/Shared", RdmaWithoutGpudirect),
            ("Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3", RdmaWithoutGpudirect),
            ("Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0", Sockets),
            ("Ring 00 : 15 -> 0 [receive] via NET/Socket/0", Sockets),
            ("Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0", RdmaWithoutGpudirect),
            ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA/Shared", RdmaWithGpudirect),
            ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FasTrak/0/GDRDMA", OtherNetwork),
            ("CollNet 00/0 : 3 [send] via COLLNET/SHARP/1/GDRDMA", RdmaWithGpudirect),
            ("Channel 07/0 : 3[1] -> 2[0] via P2P/CUMEM", OneNode),
            ("Channel 00 : 3[3] -> 4[4] via SHM/direct/direct", OneNode),
            ("Channel 00/02 :    0   1", NoChannel),
            ("Using network IBext_v8", NoChannel),
            ("Channel 0 : 0[0] -> 1[0] [send] via NET/IBn:3:4 [0] NCCL INFO Using network IB", NoChannel),
        ] {
            assert_eq!(of(text), verdict, "{text}");
        }
        assert_eq!(report("NCCL version 2.18.5+cuda12.0").verdict, NoChannel);
        let with_prefix =
            "[1,26]<stdout>:ip-1:8716:9558 [2] NCCL INFO Channel 0 : 1[0] -> 2[0] [send] via NET/IB/0";
        assert_eq!(report(with_prefix).verdict, RdmaWithoutGpudirect);
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
        let json = serde_json::to_value(report).unwrap();
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
        let mut longest = 0;
        let endless = BufReader::new(io::repeat(b'\xff').take(1 << 20));
        each_line(endless, |line| longest = line.chars().count()).unwrap();
        assert!((LONGEST_LINE / 2..=LONGEST_LINE).contains(&longest), "{longest}");
    }

    #[test]
    fn memory_is_bounded_whatever_the_log_holds() {
        let mut text = DIRECT.repeat(PAIRS * 2);
        for i in 10..3 * PAIRS {
            writeln!(text, "h:{i}:2 [0] NCCL INFO Channel 00/0 : {i}[0] -> 1[0] [send] via NET/IB/0")
                .unwrap();
        }
        let report = report(&text);
        assert_eq!(report.other_pairs.len(), PAIRS - 1);
        assert!(report.to_string().contains(&format!("and {} more", PAIRS - 1 - SHOWN)));
    }
}
