//! What the kernel drops silently: by its reverse-path filter, packets that arrive by another interface than
//! that of the route back (Documentation/networking/ip-sysctl.rst); and packets to hosts that find no place
//! in a full table of neighbours (arp(7)).

use mingle_core::tools::{Judged, Kind};

use super::finding::{Finding, Severity};
use crate::host::HERE;

const CHECK: &str = "reverse path";
/// The filter accepts only the interface of the best route back.
const STRICT: u8 = 1;

pub(super) fn examine(all: &[Judged]) -> Vec<Finding> {
    let drops = HERE.text("/proc/net/netstat").and_then(|text| dropped(&text)).unwrap_or(0);
    let filter = |name: &str| -> u8 {
        let text = HERE.text(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let used = all.iter().filter(|nic| nic.refused.is_none()).map(|nic| &nic.interface);
    let names: Vec<&str> =
        used.filter(|nic| nic.kind != Kind::Loopback).map(|nic| nic.name.as_str()).collect();
    // The kernel uses the larger of both.
    let strict = names.iter().filter(|name| filter("all").max(filter(name)) == STRICT);
    let strict = strict.filter_map(|name| judge(name, names.len() > 1, drops));
    let tables = [("ipv4", "arp_cache"), ("ipv6", "ndisc_cache")].into_iter();
    let full = tables
        .filter_map(|(family, table)| neighbours(family, &HERE.text(&format!("/proc/net/stat/{table}"))?));
    strict.chain(full).collect()
}

/// A finding where the table of neighbours of this family was full; `stat` has a line of names, and for each
/// CPU one of hexadecimal numbers.
fn neighbours(family: &str, stat: &str) -> Option<Finding> {
    let (names, counts) = stat.split_once('\n')?;
    let place = names.split_ascii_whitespace().position(|name| name == "table_fulls")?;
    let count = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(place)?, 16).ok();
    let full: u64 = counts.lines().filter_map(count).sum();
    let seen = format!("was full {full} times so far: no packets leave for hosts that find no place in it");
    let cure = format!(
        "on this host: `sysctl -w net.{family}.neigh.default.gc_thresh2=8192 net.{family}.neigh.default.gc_thresh3=16384`"
    );
    let looked = format!("table of neighbours ({family})");
    (full > 0).then(|| Finding::new(Severity::Warning, "neighbours", looked, seen, cure))
}

fn judge(name: &str, has_others: bool, drops: u64) -> Option<Finding> {
    let (status, seen) = if drops > 0 {
        let seen = format!("strict (1), and the filter has dropped {drops} packets on this host so far");
        (Severity::Warning, seen)
    } else if has_others {
        let seen = "strict (1): packets are dropped here if the route back to their sender goes by another interface";
        (Severity::Note, seen.to_owned())
    } else {
        return None;
    };
    let looked = format!("reverse-path filter of {name}");
    let cure = format!(
        "sysctl -w net.ipv4.conf.{name}.rp_filter=2 (loose), or route the answer by {name}, or choose one network with \
         --interface"
    );
    Some(Finding::new(status, CHECK, looked, seen, cure))
}

/// How many packets the filter has dropped: `IPReversePathFilter` of `TcpExt` in `/proc/net/netstat`, of
/// which names and numbers are two lines.
fn dropped(netstat: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|name| name == "IPReversePathFilter")?;
    numbers.split_ascii_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_filter_that_has_dropped_packets_is_a_warning() {
        let netstat =
            "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 7\nIpExt: InNoRoutes\nIpExt: 1\n";
        assert_eq!((dropped(netstat), dropped("")), (Some(7), None));
        let found = judge("eth0", false, 7).unwrap();
        assert!(found.status == Severity::Warning && found.seen.contains("dropped 7 packets"), "{found:?}");
        assert_eq!(judge("eth0", true, 0).unwrap().status, Severity::Note);
        assert_eq!(judge("eth0", false, 0), None);
    }

    #[test]
    fn a_table_of_neighbours_that_was_full_is_a_warning() {
        let stat = |fulls| format!("entries allocs table_fulls\n0010 0020 00000000\n0010 0020 {fulls}");
        let found = neighbours("ipv4", &stat("0000001f")).unwrap();
        assert!(found.seen.starts_with("was full 31 times"), "{found:?}");
        assert_eq!((neighbours("ipv4", &stat("00000000")), neighbours("ipv4", "")), (None, None));
    }
}
