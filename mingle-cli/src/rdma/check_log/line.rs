//! One line of NCCL's log.
//!
//! The forms are those in NCCL's sources, read in 2.10.3, 2.14.3, 2.18.3, 2.21.5, 2.23.4, 2.26.2, 2.27.3 and
//! 2.30.7. Lines of several processes may be mixed, and launchers put text of their own before them, so a
//! line of no known form is skipped.

/// The content of a line, and the process that wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) process: Option<Process<'a>>,
    pub(super) fact: Fact<'a>,
}

/// The `host:pid:tid` that src/debug.cc prints before every message, without the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process<'a> {
    pub(super) host: &'a str,
    pub(super) id: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fact<'a> {
    /// `2.21.5+cuda12.4`.
    Version(&'a str),
    /// The network that a communicator has chosen.
    Network(&'a str),
    /// One end of a channel between two ranks.
    Channel {
        from: u32,
        to: u32,
        way: Way<'a>,
    },
    /// One end of a CollNet channel. Its network computes, so it has no peer.
    CollNet(Way<'a>),
    /// The network devices with their numbers: `mlx5_0:1/RoCE`, `mlx5_0:1/IB+mlx5_1:1/IB`.
    Hcas(Vec<(u32, String)>),
    /// A network device made of others.
    Virtual(u32, &'a str),
    /// Whether GPU memory can be registered with a device.
    Registers {
        network: &'a str,
        device: &'a str,
        yes: bool,
    },
    /// `distance 5 > 4`: the device supports GPUDirect RDMA but is too far from the GPU.
    Far(&'a str),
    /// The GPU's driver can export its memory.
    DmaBuf,
    NoDevice,
    NoVerbs,
    /// The index of the GID of a connection.
    Gid(u32),
    Setting(&'a str, &'a str),
    Plugin(&'a str),
    Warning(&'a str),
    /// An NCCL message without a meaning for the report.
    Other,
}

/// How a channel sends its data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way<'a> {
    Net {
        network: &'a str,
        index: u32,
        gpudirect: bool,
    },
    /// Within a node or through NVLink: `P2P/CUMEM`, `SHM/direct/direct`.
    Local(&'a str),
}

/// Parses a line. `None` if it is not NCCL's.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    if let Some((head, body)) = line.split_once("NCCL WARN ") {
        return Some(Line { process: process(head), fact: fact(body, Fact::Warning(body)) });
    }
    let info = line.split_once("NCCL INFO ").or_else(|| line.split_once("NCCL TRACE "));
    if let Some((head, body)) = info {
        return Some(Line { process: process(head), fact: fact(body, Fact::Other) });
    }
    // NCCL prints its version without a process before it (src/init.cc, showVersion).
    version(line).map(|version| Line { process: None, fact: Fact::Version(version) })
}

/// Finds the process in the text before the message. mpirun and kubectl print a prefix of their own:
/// `[1,26]<stdout>:host:8719:9555 [5]`.
fn process(head: &str) -> Option<Process<'_>> {
    head.split(' ').find_map(|word| {
        let (rest, thread) = word.rsplit_once(':')?;
        let (rest, id) = rest.rsplit_once(':')?;
        number(thread)?;
        Some(Process { host: rest.rsplit(':').next()?, id: number(id)? })
    })
}

fn fact<'a>(body: &'a str, otherwise: Fact<'a>) -> Fact<'a> {
    // Two processes have written at once, and the end of the first message is unknown.
    if body.contains("NCCL INFO ") {
        return otherwise;
    }
    channel(body).or_else(|| device(body)).or_else(|| setting(body)).unwrap_or(otherwise)
}

/// src/transport/net.cc, p2p.cc, shm.cc, coll_net.cc: `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0`. Up
/// to 2.6 the first word is `Ring`. The number of the connection, after the slash, came with 2.12. The
/// brackets hold a bus up to 2.17, and a device since then.
fn channel(body: &str) -> Option<Fact<'_>> {
    let (front, way) = body.split_once(" via ")?;
    let (kind, ranks) = front.split_once(" : ")?;
    let way = way_of(way)?;
    if kind.starts_with("CollNet ") {
        return Some(Fact::CollNet(way));
    }
    if !kind.starts_with("Channel ") && !kind.starts_with("Ring ") {
        return None;
    }
    let (from, to) = ranks.split_once(" -> ")?;
    Some(Fact::Channel { from: leading(from)?.0, to: leading(to)?.0, way })
}

/// `NET/name/device`, or `device(rank)` for the device of another GPU (PXN, since 2.12), then `/GDRDMA`, with
/// `(PCI)` since 2.26, and `/Shared`. A plugin's name can contain spaces: `AWS Libfabric`.
fn way_of(text: &str) -> Option<Way<'_>> {
    let mut parts = text.split('/');
    match parts.next()? {
        kind @ ("NET" | "COLLNET") => {
            let network = text.get(..kind.len() + 1 + parts.next()?.len())?;
            let (index, _) = leading(parts.next()?)?;
            Some(Way::Net { network, index, gpudirect: parts.any(|part| part.starts_with("GDRDMA")) })
        }
        // Then comes the method by which the data is read or copied, or the GPU between: `P2P/CUMEM/read`,
        // `P2P/indirect/3[3]`.
        "P2P" => Some(Way::Local(text.get(..4 + parts.next()?.len())?)),
        _ if text.starts_with("SHM/") || text.starts_with("direct shared memory") => Some(Way::Local(text)),
        _ => None,
    }
}

fn device(body: &str) -> Option<Fact<'_>> {
    // src/transport/net_ib.cc, since 2.29 net_ib/init.cc; nccl-rdma-sharp-plugins prints the same.
    if let Some(list) = body.strip_prefix("NET/IB : Using") {
        return Some(Fact::Hcas(hcas(list)));
    }
    if let Some(made) = body.strip_prefix("NET/IB : Made virtual device [") {
        let (index, rest) = leading(made)?;
        return Some(Fact::Virtual(index, rest.split_once("name=")?.1.split(' ').next()?));
    }
    if body.starts_with("NET/IB : No device found") {
        return Some(Fact::NoDevice);
    }
    // src/misc/ibvwrap.cc, later ibvsymbols.cc. 2.30 reports each name that it tries, with a misspelled word.
    // A missing libibverbs.so does no harm if libibverbs.so.1, the last name, exists.
    if body.starts_with("Failed to open libibverbs") || body.starts_with("Count not open libibverbs.so.1") {
        return Some(Fact::NoVerbs);
    }
    // src/init.cc, dmaBufSupported: this is about the GPU only.
    if body.starts_with("DMA-BUF is available") {
        return Some(Fact::DmaBuf);
    }
    if let Some(name) = body.strip_prefix("Using network ") {
        return Some(Fact::Network(name));
    }
    if body.starts_with("NET/IB: ") {
        let (_, gid) = body.split_once(" GID ")?;
        return leading(gid).map(|(index, _)| Fact::Gid(index));
    }
    direct(body).or_else(|| plugin(body)).or_else(|| version(body).map(Fact::Version))
}

/// Two lines with the same beginning: src/graph/topo.cc (up to 2.12 net_ib.cc, and only for failures) reports
/// for each device whether it can register GPU memory, src/graph/paths.cc for each pair whether they are near
/// enough. The second is a TRACE in 2.30.
fn direct(body: &str) -> Option<Fact<'_>> {
    let (before, text) = body.split_once("GPU Direct RDMA ")?;
    if let Some((_, device)) = text.split_once(" for HCA ") {
        let network = before.strip_prefix("NET/")?.split(' ').next()?;
        let device = device.split('\'').nth(1)?;
        return Some(Fact::Registers { network, device, yes: !text.starts_with("Disabled") });
    }
    let (_, distance) = text.strip_prefix("Disabled for GPU")?.split_once("distance ")?;
    let end = distance.find(')')?;
    let start = body.len() - distance.len() - "distance ".len();
    Some(Fact::Far(body.get(start..start + "distance ".len() + end)?))
}

/// src/net.cc, later src/plugin/net/net_v8.cc and the like, and since 2.28 src/plugin/net.cc.
fn plugin(body: &str) -> Option<Fact<'_>> {
    let name = body
        .strip_prefix("NET/Plugin: Loaded net plugin ")
        .or_else(|| body.strip_prefix("Successfully loaded external network plugin "))
        // aws-ofi-nccl; its provider may be TCP (NVIDIA/nccl#1597).
        .or_else(|| body.strip_prefix("NET/OFI ").filter(|text| text.starts_with("Selected ")))?;
    Some(Fact::Plugin(name))
}

/// src/misc/param.cc: `NCCL_IB_DISABLE set by environment to 1.`; src/transport/net_ib.cc: `NCCL_IB_HCA set
/// to mlx5_4`.
fn setting(body: &str) -> Option<Fact<'_>> {
    let (name, value) = body.split_once(" set by environment to ").or_else(|| body.split_once(" set to "))?;
    let is_name = name.starts_with("NCCL_") && !name.contains(' ');
    // NCCL puts a full stop after a number.
    let value = value.strip_suffix('.').filter(|value| value.parse::<i64>().is_ok()).unwrap_or(value);
    is_name.then_some(Fact::Setting(name, value))
}

/// ` [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`; in 2.20 to 2.23 a device made of others
/// is `[0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE}`; in 2.30 a rail and a plane may follow the port.
fn hcas(list: &str) -> Vec<(u32, String)> {
    let mut list = list.split(';').next().unwrap_or_default();
    let mut found = Vec::new();
    while let Some((_, rest)) = list.split_once('[') {
        list = rest;
        let Some((index, rest)) = leading(rest) else { continue };
        let Some(rest) = rest.strip_prefix(']') else { continue };
        let name = if let Some(group) = rest.strip_prefix("={") {
            let (group, after) = group.split_once('}').unwrap_or((group, ""));
            list = after;
            let members = group.split(',').filter_map(|member| member.rsplit(' ').next());
            members.collect::<Vec<_>>().join("+")
        } else {
            rest.split(' ').next().unwrap_or_default().to_owned()
        };
        found.push((index, name));
    }
    found
}

fn version(text: &str) -> Option<&str> {
    let (_, version) = text.split_once("NCCL version ")?;
    version.split(' ').next().filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// The number at the beginning of a text, and the rest of the text.
fn leading(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((number(digits)?, rest))
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact_of(line: &str) -> Fact<'_> {
        parse(line).unwrap().fact
    }

    fn net(network: &str, index: u32, gpudirect: bool) -> Way<'_> {
        Way::Net { network, index, gpudirect }
    }

    #[test]
    fn channels_of_all_versions_are_read() {
        // NVIDIA/nccl#707, #1189, #1357, #1412, #1814, #1817, #367, #676; aws/aws-ofi-nccl#24. The forms with
        // a proxy, (PCI) and Shared are derived from src/transport/net.cc.
        for (text, from, to, way) in [
            ("Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA", 2, 0, net("NET/IB", 5, true)),
            ("Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA", 0, 2, net("NET/IB", 3, true)),
            ("Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3", 5, 12, net("NET/IB", 3, false)),
            (
                "Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared",
                1,
                9,
                net("NET/IB", 0, true),
            ),
            ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/0(3)/Shared", 1, 9, net("NET/IB", 0, false)),
            (
                "Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3",
                36,
                20,
                net("NET/IBext_v8", 3, false),
            ),
            ("Ring 00 : 15 -> 0 [receive] via NET/Socket/0", 15, 0, net("NET/Socket", 0, false)),
            ("Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0", 7, 8, net("NET/AWS Libfabric", 0, false)),
            ("Channel 07/0 : 3[1] -> 2[0] via P2P/CUMEM", 3, 2, Way::Local("P2P/CUMEM")),
            (
                "Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer/read",
                7,
                6,
                Way::Local("P2P/direct pointer"),
            ),
            ("Channel 00/0 : 0[0] -> 5[5] via P2P/indirect/3[3]", 0, 5, Way::Local("P2P/indirect")),
            ("Channel 00 : 3[3] -> 4[4] via SHM/direct/direct", 3, 4, Way::Local("SHM/direct/direct")),
            ("Ring 00 : 2[0] -> 3[0] via direct shared memory", 2, 3, Way::Local("direct shared memory")),
        ] {
            let line = format!("node-a:120890:121560 [0] NCCL INFO {text}");
            assert_eq!(fact_of(&line), Fact::Channel { from, to, way }, "{text}");
        }
        let line = "n:1:2 [0] NCCL INFO CollNet 00/0 : 3 [send] via COLLNET/SHARP/1/GDRDMA";
        assert_eq!(fact_of(line), Fact::CollNet(net("COLLNET/SHARP", 1, true)));
    }

    #[test]
    fn the_process_is_found_after_a_prefix_from_the_launcher() {
        for (line, host, id) in [
            ("node-a:25668:27396 [0] NCCL INFO x", "node-a", 25_668),
            ("[1,26]<stdout>:ip-172-32-36-209:8716:9558 [2] NCCL INFO x", "ip-172-32-36-209", 8716),
            ("worker-0: worker-0:19487:21056 [3] NCCL INFO x", "worker-0", 19_487),
            ("[2025-10-16 22:16:08] ip-1:1929:1937 [0] init:7978 NCCL WARN x", "ip-1", 1929),
        ] {
            assert_eq!(parse(line).unwrap().process, Some(Process { host, id }), "{line}");
        }
    }

    #[test]
    fn single_devices_and_groups_of_devices_are_read() {
        for (list, found) in [
            (" [0]mlx5_1:1/IB [1]mlx5_3:1/IB ; OOB eth0:10.100.62.64<0>", "0 mlx5_1:1/IB, 1 mlx5_3:1/IB"),
            (" [0]mlx5_0:1/IB/SHARP [RO]; OOB ibp25s0:10.20.0.119<0>", "0 mlx5_0:1/IB/SHARP"),
            (
                " [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[2] mlx5_0:1/RoCE} [RO]; OOB b:1<0>",
                "0 mlx5_2:1/RoCE+mlx5_3:1/RoCE, 1 mlx5_0:1/RoCE",
            ),
            (" [0]mlx5_0:1:2:1/IB [RO]; OOB eth0:10.0.0.1<0>", "0 mlx5_0:1:2:1/IB"),
            ("", ""),
            (" [0", ""),
        ] {
            let text: Vec<_> = hcas(list).iter().map(|(index, name)| format!("{index} {name}")).collect();
            assert_eq!(text.join(", "), found, "{list}");
        }
    }

    #[test]
    fn lines_that_explain_nccls_choice_are_read() {
        let registers = |network, device, yes| Fact::Registers { network, device, yes };
        for (text, fact) in [
            // NVIDIA/nccl#1537, #1410, #952, #1053, #1052, #1357, #1597; the rest from the sources.
            ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", registers("IB", "mlx5_0", false)),
            (
                "NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1' (no module)",
                registers("IB", "mlx5_1", false),
            ),
            (
                "NET/IBext_v8 : GPU Direct RDMA Enabled for HCA 8 'mlx5_0+mlx5_1'",
                registers("IBext_v8", "mlx5_0+mlx5_1", true),
            ),
            ("GPU Direct RDMA Disabled for GPU 1000 / HCA 0 (distance 5 > 4)", Fact::Far("distance 5 > 4")),
            (
                "GPU Direct RDMA Disabled for GPU/0-1 (rank 1) - NET/0-3 (distance 5 > 4)",
                Fact::Far("distance 5 > 4"),
            ),
            (
                "NET/OFI Selected Provider is efa (found 16 nics)",
                Fact::Plugin("Selected Provider is efa (found 16 nics)"),
            ),
            ("GPU Direct RDMA Enabled for GPU 1000 / HCA 0 (distance 3 <= 4), read 0", Fact::Other),
            ("DMA-BUF is available on GPU device 0", Fact::DmaBuf),
            ("NET/IB : No device found.", Fact::NoDevice),
            ("Failed to open libibverbs.so[.1]", Fact::NoVerbs),
            ("Count not open libibverbs.so", Fact::Other),
            ("Count not open libibverbs.so.1", Fact::NoVerbs),
            ("Using network IBext_v8", Fact::Network("IBext_v8")),
            ("NCCL_IB_DISABLE set by environment to 1.", Fact::Setting("NCCL_IB_DISABLE", "1")),
            ("NCCL_IB_HCA set to mlx5_4", Fact::Setting("NCCL_IB_HCA", "mlx5_4")),
            (
                "NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)",
                Fact::Plugin("NCCL RDMA Plugin v6 (v6)"),
            ),
            ("NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 7 mtu 5 GID 3 (80FE/1) fifoRkey=0x1", Fact::Gid(3)),
            (
                "NET/IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=800000 ndevs=2",
                Fact::Virtual(8, "mlx5_0+mlx5_1"),
            ),
            ("NCCL version 2.27.3+cuda12.9", Fact::Version("2.27.3+cuda12.9")),
            ("Channel 00/02 :    0   1", Fact::Other),
        ] {
            assert_eq!(fact_of(&format!("n:1:2 [0] NCCL INFO {text}")), fact, "{text}");
        }
        assert_eq!(fact_of("NCCL version 2.18.5+cuda12.0"), Fact::Version("2.18.5+cuda12.0"));
        let warning = "n:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]";
        assert_eq!(fact_of(warning), Fact::NoVerbs);
        assert_eq!(fact_of("n:1:2 [0] x.cc:1 NCCL WARN oh no"), Fact::Warning("oh no"));
        assert_eq!(parse("step 17: loss 3.14"), None);
        let torn = "n:1:2 [0] NCCL INFO Using network IBn:3:4 [0] NCCL INFO Using network IB";
        assert_eq!(fact_of(torn), Fact::Other);
    }

    #[test]
    fn no_prefix_of_a_line_does_harm() {
        let line = "a:1:2 [0] NCCL INFO Channel 01/0 : 2[c7] -> 0[87] [receive] via NET/IB/5(1)/GDRDMA \
                    NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} GPU Direct RDMA Disabled";
        for end in 0..line.len() {
            for start in 0..end {
                parse(&line[start..end]);
                fact(&line[start..end], Fact::Other);
            }
        }
    }
}
