use super::*;

/// A folder like /sys that is removed at the end.
struct Sys(std::path::PathBuf);

impl Sys {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("mingle-watch-{test}-{}", std::process::id()));
        let sys = Self(root);
        sys.write(files);
        sys
    }

    fn write(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.0.join("class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

impl Drop for Sys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Samples of one link, a second apart. `None` means that the link is gone.
fn life(link: &Link, unit: Unit, values: &[Option<u64>]) -> Vec<Sample> {
    let sample = |(second, value): (u64, &Option<u64>)| {
        let counter = value.map(|value| Counter { value, unit });
        let links = value.map(|_| (link.clone(), Counters { sent: counter, received: None }));
        Sample { at: Duration::from_secs(second), links: links.into_iter().collect() }
    };
    (0..).zip(values).map(sample).collect()
}

fn sent(samples: &[Sample]) -> Vec<String> {
    let rates = samples.windows(2).map(|pair| rates(&pair[0], &pair[1]));
    rates
        .map(|rows| match rows[0].rates {
            Some(rates) => rates.sent.map_or("-".to_owned(), |rate| rate.to_string()),
            None => "gone".to_owned(),
        })
        .collect()
}

fn port(name: &str) -> Link {
    Link::Rdma(name.to_owned(), 1)
}

#[test]
fn a_counter_of_a_port_counts_four_bytes() {
    let values = [Some(0), Some(800_000_000), Some(800_000_000)];
    assert_eq!(sent(&life(&port("mlx5_0"), Unit::FourBytes, &values)), ["3.2 GB/s", "0 B/s"]);
    assert_eq!(sent(&life(&port("efa0"), Unit::Bytes, &values)), ["800 MB/s", "0 B/s"]);
    assert_eq!(sent(&life(&port("rxe0"), Unit::Packets, &values)), ["800 Mpkt/s", "0 pkt/s"]);
}

#[test]
fn a_counter_that_is_reset_or_full_has_no_rate() {
    let full = u64::from(u32::MAX);
    let values = [Some(100), Some(7), Some(8), None, Some(9), Some(10), Some(full), Some(full)];
    let rates = sent(&life(&port("mlx4_0"), Unit::FourBytes, &values));
    assert_eq!(rates, ["-", "4 B/s", "gone", "-", "4 B/s", "-", "-"]);
    // A counter of 64 bits may exceed the 32-bit maximum.
    let values = [Some(full - 250), Some(full + 250)];
    assert_eq!(sent(&life(&port("mlx5_0"), Unit::FourBytes, &values)), ["2.0 kB/s"]);
}

#[test]
fn two_samples_of_the_same_moment_have_no_rate() {
    let sample = life(&port("mlx5_0"), Unit::FourBytes, &[Some(1)]).remove(0);
    assert_eq!(sent(&[sample.clone(), sample]), ["-"]);
}

#[test]
fn rates_are_short_to_read() {
    for (bytes_or_packets, text) in [
        (0.0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.6, "1.0 kB/s"),
        (99_940.0, "99.9 kB/s"),
        (99_960.0, "100 kB/s"),
        (999_600.0, "1.0 MB/s"),
        (48_123_456_789.0, "48.1 GB/s"),
        (1.5e12, "1.5 TB/s"),
        (1.5e15, "1500.0 TB/s"),
    ] {
        assert_eq!(Rate { bytes_or_packets, is_packets: false }.to_string(), text);
    }
}

#[test]
fn each_kind_of_device_is_read_from_its_own_counters() {
    let sys = Sys::new(
        "kinds",
        &[
            ("infiniband/mlx5_10/ports/1/counters/port_xmit_data", "10\n"),
            ("infiniband/mlx5_10/ports/1/counters/port_rcv_data", "20\n"),
            ("infiniband/mlx5_2/ports/1/counters/port_xmit_data", "N/A (no PMA)\n"),
            ("infiniband/efa_0/ports/1/hw_counters/tx_bytes", "30\n"),
            ("infiniband/efa_0/ports/1/hw_counters/rx_bytes", "40\n"),
            ("infiniband/rxe0/ports/1/hw_counters/sent_pkts", "50\n"),
            ("infiniband/rxe0/ports/x/state", "4: ACTIVE\n"),
            ("net/eth0/statistics/tx_bytes", "60\n"),
            ("net/eth0/statistics/rx_bytes", "70\n"),
            ("net/dummy0/statistics/tx_bytes", "0\n"),
            ("net/dummy0/statistics/rx_bytes", "0\n"),
            ("net/bonding_masters", "bond0\n"),
        ],
    );
    let before = read(&sys.0, Duration::ZERO);
    sys.write(&[
        ("infiniband/mlx5_10/ports/1/counters/port_xmit_data", "11\n"),
        ("infiniband/efa_0/ports/1/hw_counters/tx_bytes", "31\n"),
        ("infiniband/rxe0/ports/1/hw_counters/sent_pkts", "51\n"),
        ("net/eth0/statistics/tx_bytes", "61\n"),
    ]);
    let after = read(&sys.0, Duration::from_secs(1));
    let table = table(&rates(&before, &after));
    let expected = "\
RDMA port          sent      received
efa_0:1           1 B/s         0 B/s
mlx5_2:1              -             -
mlx5_10:1         4 B/s         0 B/s
rxe0:1          1 pkt/s             -
interface          sent      received
eth0              1 B/s         0 B/s
";
    assert_eq!(table, expected);
}

#[test]
fn a_machine_without_devices_has_an_empty_table() {
    let sys = Sys::new("empty", &[]);
    let sample = read(&sys.0, Duration::ZERO);
    assert_eq!(table(&rates(&sample, &sample)).matches("none").count(), 2);
}

#[test]
fn a_port_that_is_gone_stays_in_the_table_until_it_comes_back() {
    let mut out = Vec::new();
    let values = [Some(1), None, None, Some(5), Some(6)];
    show(life(&port("mlx5_0"), Unit::Bytes, &values).into_iter(), &mut out, false).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("mlx5_0:1")).collect();
    let last = rows.iter().map(|row| row.split_whitespace().nth(1).unwrap()).collect::<Vec<_>>();
    assert_eq!(last, ["gone", "gone", "-", "1"]);
}

#[test]
fn a_terminal_is_redrawn_and_a_file_grows() {
    let samples = || life(&port("mlx5_0"), Unit::Bytes, &[Some(1), Some(2), Some(3)]).into_iter();
    let (mut live, mut file) = (Vec::new(), Vec::new());
    show(samples(), &mut live, true).unwrap();
    show(samples(), &mut file, false).unwrap();
    let (live, file) = (String::from_utf8(live).unwrap(), String::from_utf8(file).unwrap());
    let block = file.split("\n\n").next().unwrap();
    assert_eq!(file, format!("{block}\n\n{block}\n"));
    assert_eq!(live, format!("{block}\n\x1b[4A\x1b[J{block}\n"));
}

#[test]
fn no_name_reaches_the_terminal_raw() {
    let link = Link::Interface("eth\u{1b}[2J\u{202e}0".to_owned());
    assert_eq!(link.to_string(), "eth__2J_0");
}

#[test]
fn a_closed_pipe_ends_the_watch_without_an_error() {
    struct Closed(io::ErrorKind);
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sys = Sys::new("closed", &[]);
    let run = |kind| run(&sys.0, Duration::from_nanos(1), &mut Closed(kind), false, Some(1));
    assert!(run(io::ErrorKind::BrokenPipe).is_ok());
    assert!(run(io::ErrorKind::StorageFull).is_err());
}

#[test]
fn the_number_of_blocks_is_the_one_that_was_asked_for() {
    let sys = Sys::new("count", &[]);
    let mut out = Vec::new();
    run(&sys.0, Duration::from_nanos(1), &mut out, false, Some(3)).unwrap();
    assert_eq!(String::from_utf8(out).unwrap().matches("RDMA port").count(), 3);
}
