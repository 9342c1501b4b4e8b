//! `mingle rdma --watch`: what RDMA ports and network interfaces carry each second.
//!
//! RoCE traffic is counted apart from the interface's, although both use one wire: the adapter sends it
//! without the network stack, so it is not in the interface's statistics (mlx5 has counters of its own for
//! it, see the kernel's Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst). The
//! traffic of a soft device (rxe) and IP over InfiniBand pass the network stack, so both counters have them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use mingle_core::HostName;
use mingle_core::rdma::natural;

use crate::events::now;
use crate::host::Host;

/// A counter's value, and the unit of its rate.
type Counter = Option<(u64, &'static str)>;

/// A port or interface with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedLink {
    name: String,
    /// What it has sent, and received.
    counters: [Counter; 2],
}

/// Prints a table of rates at each interval, without end, or until nobody reads it.
pub(crate) fn run(host: &Host, every: Duration, out: &mut dyn Write) -> io::Result<()> {
    let (mut before, mut at) = (read(host), now());
    loop {
        #[expect(clippy::disallowed_methods, reason = "a rate needs two samples at different times")]
        thread::sleep(every);
        let (after, then) = (read(host), now());
        let written = out.write_all(table(&before, &after, then - at).as_bytes()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        (before, at) = (after, then);
    }
}

/// The links that have ever carried a byte, RDMA ports first, with the rates between two samples.
fn table(before: &[WatchedLink], after: &[WatchedLink], elapsed: Duration) -> String {
    let is_idle = |link: &&WatchedLink| link.counters.iter().all(|c| matches!(c, None | Some((0, _))));
    let links: Vec<&WatchedLink> = after.iter().filter(|link| !is_idle(link)).collect();
    let width = links.iter().map(|link| link.name.len()).max().unwrap_or(0).max("name".len());
    let mut text = format!("{:width$}  {:>12}  {:>12}\n", "name", "sent", "received");
    for link in links {
        let was = before.iter().find(|was| was.name == link.name);
        let shown = |at: usize| rate(was.and_then(|was| was.counters[at]), link.counters[at], elapsed);
        let [sent, received] = [0, 1].map(shown);
        let _ = writeln!(text, "{:width$}  {sent:>12}  {received:>12}", link.name);
    }
    text + "\n"
}

/// The rate between two values of a counter, or `-` if the counter is new, cannot be read or was reset.
fn rate(before: Counter, after: Counter, elapsed: Duration) -> String {
    let difference = before.zip(after).and_then(|((before, _), (after, unit))| {
        Some((after.checked_sub(before)?, unit)).filter(|_| !elapsed.is_zero())
    });
    let Some((difference, unit)) = difference else { return "-".to_owned() };
    #[expect(clippy::cast_precision_loss, reason = "only three digits are shown")]
    let mut value = difference as f64 / elapsed.as_secs_f64();
    for prefix in ["", "k", "M", "G"] {
        // Values from 999.5 on would be rounded to 1000.
        if value < 999.5 {
            let digits = usize::from(value < 99.95 && !prefix.is_empty());
            return format!("{value:.digits$} {prefix}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} T{unit}")
}

/// The counters of a host, in natural order of the names. What cannot be read is left out.
fn read(host: &Host) -> Vec<WatchedLink> {
    let mut links = Vec::new();
    for device in names(host, "/sys/class/infiniband") {
        let ports = format!("/sys/class/infiniband/{device}/ports");
        for number in names(host, &ports) {
            let name = format!("{}:{}", shown(&device), shown(&number));
            links.push(WatchedLink { name, counters: of_port(host, &format!("{ports}/{number}")) });
        }
    }
    for name in names(host, "/sys/class/net") {
        let count = |file: &str| counter(host, &format!("/sys/class/net/{name}/statistics/{file}"), 1, "B/s");
        links.push(WatchedLink { name: shown(&name), counters: ["tx_bytes", "rx_bytes"].map(count) });
    }
    links
}

/// InfiniBand and mlx5's RoCE have `counters` in units of four bytes
/// (Documentation/ABI/stable/sysfs-class-infiniband); `hw_counters` has bytes for EFA
/// (drivers/infiniband/hw/efa/efa_verbs.c) and packets for rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c).
fn of_port(host: &Host, port: &str) -> [Counter; 2] {
    let kinds = [
        ("counters", ["port_xmit_data", "port_rcv_data"], 4, "B/s"),
        ("hw_counters", ["tx_bytes", "rx_bytes"], 1, "B/s"),
        ("hw_counters", ["sent_pkts", "rcvd_pkts"], 1, "pkt/s"),
    ];
    let found = kinds.map(|(folder, files, scale, unit)| {
        files.map(|file| counter(host, &format!("{port}/{folder}/{file}"), scale, unit))
    });
    found.into_iter().find(|counters| *counters != [None; 2]).unwrap_or_default()
}

/// None where an adapter has no such counter: it returns a text such as `N/A (no PMA)`. One of 32 bits stops
/// at its largest value, and then says nothing.
fn counter(host: &Host, file: &str, scale: u64, unit: &'static str) -> Counter {
    let value: u64 = host.text(file)?.parse().ok()?;
    let is_full = scale == 4 && value == u64::from(u32::MAX);
    (!is_full).then_some((value.saturating_mul(scale), unit))
}

/// The kernel allows any byte in a name except a slash, a colon and white space.
fn shown(name: &str) -> String {
    HostName::new(name).to_string()
}

fn names(host: &Host, folder: &str) -> Vec<String> {
    let mut names = host.list(folder);
    names.sort_by(|a, b| natural(a, b));
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(sys: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = sys.join("class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn ports_of_each_kind_and_interfaces_have_rates() {
        let sys = std::env::temp_dir().join(format!("mingle-watch-{}", std::process::id()));
        write(
            &sys,
            &[
                ("infiniband/mlx5_10/ports/1/counters/port_xmit_data", "0\n"),
                ("infiniband/mlx5_10/ports/1/counters/port_rcv_data", "N/A (no PMA)\n"),
                ("infiniband/mlx5_2/ports/1/counters/port_xmit_data", "5\n"),
                ("infiniband/mlx5_2/ports/1/counters/port_rcv_data", "4294967295\n"),
                ("infiniband/efa\u{1b}/ports/1/hw_counters/tx_bytes", "1000\n"),
                ("infiniband/rxe0/ports/1/hw_counters/sent_pkts", "7\n"),
                ("net/eth0/statistics/tx_bytes", "500\n"),
                ("net/eth0/statistics/rx_bytes", "500\n"),
                ("net/idle/statistics/tx_bytes", "0\n"),
                ("net/bonding_masters", "bond0\n"),
            ],
        );
        let host = Host(Some(sys.clone()));
        let before = read(&host);
        write(
            &sys,
            &[
                ("infiniband/mlx5_2/ports/1/counters/port_xmit_data", "800000005\n"),
                ("infiniband/efa\u{1b}/ports/1/hw_counters/tx_bytes", "1999\n"),
                ("infiniband/rxe0/ports/1/hw_counters/sent_pkts", "1234567\n"),
                ("net/eth0/statistics/tx_bytes", "400\n"),
            ],
        );
        let table = table(&before, &read(&host), Duration::from_secs(1));
        fs::remove_dir_all(&sys).unwrap();
        assert_eq!(
            table,
            "name              sent      received\n\
             efa_:1         999 B/s             -\n\
             mlx5_2:1      3.2 GB/s             -\n\
             rxe0:1      1.2 Mpkt/s             -\n\
             eth0                 -         0 B/s\n\n"
        );
    }

    #[test]
    fn two_samples_of_the_same_moment_have_no_rate() {
        assert_eq!(rate(Some((1, "B/s")), Some((2, "B/s")), Duration::ZERO), "-");
        assert_eq!(rate(None, Some((2, "B/s")), Duration::from_secs(1)), "-");
        assert_eq!(rate(Some((0, "B/s")), Some((999_500, "B/s")), Duration::from_secs(1)), "1.0 MB/s");
    }

    #[test]
    fn a_reader_that_goes_away_ends_it_without_an_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        run(&Host(Some("/nonexistent".into())), Duration::from_millis(1), &mut Closed).unwrap();
    }
}
