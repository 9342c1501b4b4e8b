use std::fmt::Write as _;
use std::io::{BufReader, Read};

use super::*;

/// NVIDIA/nccl#1189 and #1537, shortened: two nodes with RoCE.
const DIRECT: &str = "\
NCCL version 2.21.5+cuda12.4
H20-GPU-05:1789225:1789736 [1] NCCL INFO NCCL_IB_HCA set to mlx5
H20-GPU-05:1789225:1789736 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.10.10.5<0>
H20-GPU-05:1789225:1789736 [1] NCCL INFO Using network IB
H20-GPU-06:4015540:4015653 [1] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB bond0:10.10.10.6<0>
H20-GPU-06:4015540:4015653 [1] NCCL INFO Using network IB
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [receive] via NET/IB/1/GDRDMA
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [receive] via NET/IB/1/GDRDMA
H20-GPU-05:1789225:1789736 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
H20-GPU-05:1789225:1789736 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
H20-GPU-06:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM
";

/// NVIDIA/nccl#1537 and #1412, shortened: the module is missing.
const WITHOUT: &str = "\
hostname1:25668:27396 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB primaryip:10.10.10.10<0>
hostname1:25668:27396 [0] NCCL INFO Using non-device net plugin version 0
hostname1:25668:27396 [0] NCCL INFO Using network IB
hostname1:25668:27396 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
hostname1:25668:27396 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'
swat1-04:2017630:2017699 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3
";

/// NVIDIA/nccl#1410 and #367, shortened: a container without libibverbs.
const SOCKETS: &str = "\
h100:2340:2384 [4] NCCL INFO Failed to open libibverbs.so[.1]
h100:2340:2384 [4] NCCL INFO NET/Socket : Using [0]eth0:10.177.137.15<0>
h100:2340:2384 [4] NCCL INFO Using network Socket
h100:2340:2384 [4] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'
h100:2340:2384 [4] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0
";

fn report(log: &str) -> Report {
    read(log.as_bytes()).unwrap()
}

fn verdict(log: &str) -> String {
    report(log).to_string().lines().next().unwrap().to_owned()
}

#[test]
fn the_verdict_is_the_first_line() {
    for (log, line) in [
        (DIRECT, "RDMA with GPUDirect: 4 of 4 ends of network channels (NET/IB/GDRDMA)"),
        (
            WITHOUT,
            "RDMA without GPUDirect: 1 of 1 ends of network channels (NET/IB): all data goes through the \
             host's memory",
        ),
        (SOCKETS, "sockets: 1 of 1 ends of network channels (NET/Socket): RDMA is not used"),
        (
            "n:1:2 [0] NCCL INFO Channel 00 : 3[3] -> 4[4] via SHM/direct/direct",
            "one node: no channel uses a network",
        ),
        ("NCCL version 2.18.5+cuda12.0", "no channels: the log does not show how data is sent"),
        (
            "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/FasTrak/0/GDRDMA",
            "another network: 1 of 1 ends of network channels (NET/FasTrak/GDRDMA)",
        ),
        (
            "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA/Shared",
            "RDMA with GPUDirect: 1 of 1 ends of network channels (NET/AWS Libfabric/GDRDMA)",
        ),
    ] {
        assert_eq!(verdict(log), line);
    }
}

#[test]
fn each_device_has_the_name_that_its_process_gave_it() {
    let report = report(DIRECT);
    assert_eq!(
        report.to_string(),
        "RDMA with GPUDirect: 4 of 4 ends of network channels (NET/IB/GDRDMA)\n\
         \n\
         NCCL: 2.21.5+cuda12.4\n\
         network: IB\n\
         HCAs: mlx5_0:1/RoCE (1), mlx5_1:1/RoCE (1), mlx5_2:1/RoCE (1), mlx5_3:1/RoCE (1)\n\
         settings: NCCL_IB_HCA=mlx5\n\
         within nodes: P2P/CUMEM\n\
         \n\
         ends of channels at each device:\n\
         \u{20} NET/IB/0 (mlx5_0:1/RoCE): 2 RDMA with GPUDirect\n\
         \u{20} NET/IB/1 (mlx5_3:1/RoCE): 2 RDMA with GPUDirect\n"
    );
}

#[test]
fn the_json_report_has_the_same_facts() {
    let json = serde_json::to_value(report(&(DIRECT.to_owned() + SOCKETS))).unwrap();
    assert_eq!(json["verdict"], "mixed");
    assert_eq!(json["network_ends"]["gpudirect"], 4);
    assert_eq!(json["network_ends"]["sockets"], 1);
    assert_eq!(json["devices"][1]["name"], "mlx5_3:1/RoCE");
    assert_eq!(json["other_pairs"][0]["from"], 15);
    assert_eq!(json["ways"]["counts"][1]["name"], "NET/Socket");
    assert!(json["causes"][0]["cure"].is_string());
}

#[test]
fn each_problem_has_its_cause() {
    let socket = "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n";
    let ib = "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n";
    let far = "n:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 1000 / HCA 0 (distance 5 > 4)\n";
    for (log, expected) in [
        (format!("{WITHOUT}{SOCKETS}"), "is off for mlx5_0, mlx5_1: neither"),
        (SOCKETS.to_owned(), "libibverbs could not be opened"),
        (WITHOUT.to_owned(), "GPUDirect RDMA is off for mlx5_0, mlx5_1: neither"),
        (
            format!("{WITHOUT}n:1:2 [0] NCCL INFO DMA-BUF is available on GPU device 0"),
            "does not, and no peer memory module",
        ),
        (format!("{ib}{far}"), "too far from each other for GPUDirect RDMA (distance 5 > 4)"),
        (
            format!("{ib}n:1:2 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to LOC"),
            "turns GPUDirect RDMA off",
        ),
        (
            format!("{ib}n:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"),
            "some channels do not use it",
        ),
        (ib.to_owned(), "probably no peer memory module"),
        (
            format!("{socket}n:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1."),
            "NCCL_IB_DISABLE is set",
        ),
        (
            format!("{socket}n:1:2 [0] NCCL INFO NCCL_NET set by environment to Socket"),
            "NCCL_NET selects sockets",
        ),
        (format!("{socket}n:1:2 [0] NCCL INFO NET/IB : No device found."), "NET/IB has found no device"),
        (
            format!("{socket}n:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB x:1<0>"),
            "but sockets are used: mlx5_0:1/IB",
        ),
        (socket.to_owned(), "the log does not say why"),
        (format!("{DIRECT}{SOCKETS}"), "different networks: IB, Socket"),
        (format!("{DIRECT}NCCL version 2.18.5+cuda12.0"), "2.18.5+cuda12.0, 2.21.5+cuda12.4"),
        ("n:1:2 [0] NCCL INFO Using network Socket".to_owned(), "no rank reports a channel"),
    ] {
        let text = report(&log).to_string();
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn a_setting_that_disables_nothing_is_not_a_cause() {
    let log = format!("{SOCKETS}n:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.");
    assert!(!report(&log).to_string().contains("NCCL_IB_DISABLE is set"));
    assert!(report(DIRECT).causes.is_empty());
    // Empty parts of the report leave no blank lines.
    let direct = "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA";
    assert!(!report(direct).to_string().contains("\n\n\n"));
}

#[test]
fn pairs_of_ranks_that_differ_from_most_are_named() {
    let odd = "n:1:2 [0] NCCL INFO Channel 01/0 : 4[4] -> 12[4] [send] via NET/IB/0\n";
    let text = report(&(DIRECT.to_owned() + odd)).to_string();
    assert!(text.contains("mixed: 4 RDMA with GPUDirect, 1 RDMA without GPUDirect of 5"), "{text}");
    assert!(text.contains("\n  4 -> 12: 1 RDMA without GPUDirect\n"), "{text}");
    assert!(!text.contains("1 -> 3"), "{text}");
    // A pair is also named if only some of its channels differ from those of most pairs.
    let partly = "n:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 3[1] [send] via NET/IB/0\n";
    let text = report(&(DIRECT.to_owned() + partly)).to_string();
    assert!(text.contains("\n  1 -> 3: 4 RDMA with GPUDirect, 1 RDMA without GPUDirect\n"), "{text}");
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
    log.extend(b"n:1:2 [0] NCCL INFO Using network \xff\x1b\n");
    log.extend(DIRECT.as_bytes());
    // A reader of one byte at a time gives the same.
    let whole = read(log.as_slice()).unwrap().to_string();
    let bytewise = read(BufReader::with_capacity(1, log.as_slice())).unwrap().to_string();
    assert_eq!(whole, bytewise);
    assert!(whole.contains("_]0;x___ oh no") && whole.contains("IB (2), __ (1)"), "{whole}");
    assert!(whole.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{whole:?}");
}

#[test]
fn memory_is_bounded_whatever_the_log_holds() {
    let mut text = String::new();
    for i in 0..3 * PARTIES {
        writeln!(text, "h{i}:{i}:2 [0] NCCL INFO NET/IB : Using [0]mlx5_{i}:1/IB ; OOB e:1<0>").unwrap();
        writeln!(text, "h{i}:{i}:2 [0] NCCL INFO Channel 00/0 : {i}[0] -> 1[0] [send] via NET/IB/{i}")
            .unwrap();
        writeln!(text, "h{i}:{i}:2 [0] NCCL WARN trouble {i} {}", "x".repeat(300)).unwrap();
    }
    let mut log = Log::default();
    each_line(text.as_bytes(), |line| log.add(&line::parse(line).unwrap())).unwrap();
    assert_eq!((log.pairs.len(), log.numbered.len()), (PARTIES, PARTIES));
    assert_eq!((log.devices.len(), log.hcas.counts.len(), log.warnings.counts.len()), (NAMES, NAMES, NAMES));
    assert!(log.warnings.names().all(|text| text.len() <= LONGEST_TEXT));
    assert_eq!(log.total.rdma, 3 * PARTIES as u64);
    assert!(log.report().to_string().contains("and 48 more"));
}

#[test]
fn an_endless_line_is_not_kept() {
    let mut longest = 0;
    let endless = BufReader::new(io::repeat(b'x').take(1 << 20));
    each_line(endless, |line| longest = line.len()).unwrap();
    assert_eq!(longest, LONGEST_LINE);
}
