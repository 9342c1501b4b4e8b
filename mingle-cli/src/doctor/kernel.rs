//! The kernel's reverse-path filter, which silently drops packets that arrive by another interface than that
//! of the route back (Documentation/networking/ip-sysctl.rst).

use mingle_core::tools::{Judged, Kind};

use super::finding::{Finding, Severity};
use super::interfaces::used;
use super::notice::for_shell;
use crate::host::HERE;

/// The filter accepts only the interface of the best route back.
const STRICT: u8 = 1;

/// A warning for each interface with a strict filter, if a filter has dropped packets.
pub(super) fn examine(all: &[Judged]) -> Vec<Finding> {
    let drops = HERE.text("/proc/net/netstat").and_then(|text| dropped(&text)).unwrap_or(0);
    let filter = |name: &str| -> u8 {
        let text = HERE.text(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let names = used(all).filter(|nic| nic.kind != Kind::Loopback).map(|nic| nic.name.as_str());
    // The kernel uses the larger of both.
    let strict = names.filter(|name| drops > 0 && filter("all").max(filter(name)) == STRICT);
    strict.map(|name| judge(name, drops)).collect()
}

fn judge(name: &str, drops: u64) -> Finding {
    let looked = format!("reverse-path filter of {name}");
    let seen = format!("strict (1), and the filter has dropped {drops} packets on this host so far");
    // A dot separates the parts of a key; VLANs have one in their names (sysctl(8)).
    let key = for_shell(name).replace('.', "/");
    let cure = format!(
        "sysctl -w net.ipv4.conf.{key}.rp_filter=2 (loose), or route the answer by {name}, or choose one network with \
         --interface"
    );
    Finding::new(Severity::Warning, "reverse path", looked, seen, cure)
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
        let found = judge("eth0", 7);
        assert!(found.status == Severity::Warning && found.seen.contains("dropped 7 packets"), "{found:?}");
    }
}
