//! Settings of the kernel that silently drop packets.

use std::net::{IpAddr, Ipv4Addr};

use mingle_core::net::Kind;

use super::finding::{Finding, Status};
use super::firewall::holds;
use super::interfaces::Nic;

/// The receive buffer that a socket asks for, in bytes; the kernel limits it to `rmem_max`.
const WANTED: u64 = 4 << 20;
/// Reverse-path filtering that accepts only the interface of the best route back
/// (Documentation/networking/ip-sysctl.rst).
const STRICT: u8 = 1;

/// Reads a setting in `/proc/sys`; none where it is not readable.
pub(super) type Sysctl<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A route of `/proc/net/route`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) interface: String,
    pub(super) net: Ipv4Addr,
    pub(super) bits: u8,
    pub(super) metric: u32,
}

/// `/proc/net/route`, without reject routes.
pub(super) fn routes(text: &str) -> Vec<Route> {
    let address = |word: &str| Some(Ipv4Addr::from(u32::from_str_radix(word, 16).ok()?.to_ne_bytes()));
    let route = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[name, net, _gateway, flags, _refs, _use, metric, mask, ..] = words.as_slice() else {
            return None;
        };
        // RTF_UP without RTF_REJECT.
        let usable = u32::from_str_radix(flags, 16).ok()? & 0x201 == 1;
        let bits = u8::try_from(u32::from(address(mask)?).leading_ones()).ok()?;
        let route =
            Route { interface: name.to_owned(), net: address(net)?, bits, metric: metric.parse().ok()? };
        usable.then_some(route)
    };
    text.lines().skip(1).filter_map(route).collect()
}

/// The gateways of the default routes in `/proc/net/route`.
pub(super) fn gateways(text: &str) -> Vec<Ipv4Addr> {
    let gateway = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (net, gateway) = (words.next()?, words.next()?);
        let number = u32::from_str_radix(gateway, 16).ok().filter(|number| *number != 0)?;
        (net == "00000000").then(|| Ipv4Addr::from(number.to_ne_bytes()))
    };
    text.lines().skip(1).filter_map(gateway).collect()
}

/// How many packets the reverse-path filter has dropped: `IPReversePathFilter` of `TcpExt` in
/// `/proc/net/netstat`, of which names and numbers are two lines.
pub(super) fn reverse_path_drops(netstat: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|name| name == "IPReversePathFilter")?;
    numbers.split_ascii_whitespace().nth(place)?.parse().ok()
}

pub(super) fn examine(
    nics: &[Nic],
    setting: Sysctl<'_>,
    routes: &[Route],
    drops: Option<u64>,
) -> Vec<Finding> {
    let used = nics.iter().filter(|nic| nic.refused.is_none() && nic.kind != Kind::Loopback);
    let mut findings: Vec<Finding> =
        used.map(|nic| reverse_path(nic, nics, setting, routes, drops.unwrap_or(0))).collect();
    findings.push(buffer(setting));
    findings
}

fn reverse_path(nic: &Nic, nics: &[Nic], setting: Sysctl<'_>, routes: &[Route], drops: u64) -> Finding {
    const CHECK: &str = "reverse path";
    let name = &nic.name;
    let value = |name: &str| setting(&format!("net/ipv4/conf/{name}/rp_filter"))?.trim().parse::<u8>().ok();
    let looked = format!("reverse-path filter of {name}");
    let (Some(all), Some(own)) = (value("all"), value(name)) else {
        let cure = "nothing, unless multicast does not arrive: sysctl net.ipv4.conf.all.rp_filter";
        return Finding::unread(CHECK, looked, cure);
    };
    // The kernel uses the larger of both (ip-sysctl.rst).
    let value = all.max(own);
    if value != STRICT {
        let kind = if value == 0 { "off" } else { "loose" };
        return Finding::ok(CHECK, looked, format!("{kind} ({value})"));
    }
    let cure = format!(
        "sysctl -w net.ipv4.conf.{name}.rp_filter=2 (loose), or route the answer by {name}, or choose one network \
         with --interface"
    );
    if let Some((route, ip)) = crooked(nic, routes) {
        let seen = format!(
            "strict (1), but the route back to {}/{} in the network of {ip} goes by {}: packets from there are dropped \
             on {name}",
            route.net, route.bits, route.interface
        );
        return Finding::new(Status::Problem, CHECK, looked, seen, cure);
    }
    if drops > 0 {
        let seen = format!("strict (1), and the filter has dropped {drops} packets on this host so far");
        return Finding::new(Status::Warning, CHECK, looked, seen, cure);
    }
    let others = nics.iter().any(|other| {
        other.refused.is_none() && other.name != *name && other.kind != Kind::Loopback && !nic.default_route
    });
    if others {
        let seen = "strict (1): packets from behind a router are dropped here, since the route back goes by another interface";
        return Finding::new(Status::Note, CHECK, looked, seen, cure);
    }
    Finding::ok(CHECK, looked, "strict (1), and the route back goes by the same interface")
}

/// A route by another interface to a part of this interface's own network, and this interface's address.
fn crooked<'a>(nic: &Nic, routes: &'a [Route]) -> Option<(&'a Route, Ipv4Addr)> {
    nic.addresses.iter().find_map(|(ip, bits)| {
        let IpAddr::V4(ip) = *ip else { return None };
        let own = |route: &&Route| {
            route.interface == nic.name && route.bits == *bits && holds(route.net.into(), *bits, ip.into())
        };
        let metric = routes.iter().find(own).map_or(u32::MAX, |route| route.metric);
        let crooked = routes.iter().find(|route| {
            let inside = route.bits >= *bits && holds(ip.into(), *bits, route.net.into());
            // Of routes with equal metrics the first wins.
            let first = routes.iter().find(|other| other.bits == *bits && other.net == route.net);
            let wins = route.bits > *bits
                || route.metric < metric
                || route.metric == metric && first.is_some_and(|first| first == *route);
            inside && route.interface != nic.name && wins && *bits < 32
        });
        crooked.map(|route| (route, ip))
    })
}

fn buffer(setting: Sysctl<'_>) -> Finding {
    const CHECK: &str = "receive buffer";
    let looked = "net.core.rmem_max";
    let cure = format!(
        "nothing below some hundred nodes; otherwise sysctl -w net.core.rmem_max={WANTED} on the host"
    );
    match setting("net/core/rmem_max").and_then(|text| text.trim().parse::<u64>().ok()) {
        // Older kernels show it only in the initial network namespace.
        None => {
            Finding::new(Status::Note, CHECK, looked, "not readable in this container or namespace", cure)
        }
        Some(bytes) if bytes < WANTED => {
            // A small datagram takes some 1,280 bytes of the buffer.
            let seen = format!("{bytes} bytes, which hold some {} small datagrams", bytes / 1280);
            Finding::new(Status::Note, CHECK, looked, seen, cure)
        }
        Some(bytes) => Finding::ok(CHECK, looked, format!("{bytes} bytes, enough for a large world")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interfaces::tests::nic;
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
    const OWN: &str = "eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

    const STRICTLY: Sysctl<'_> =
        &|name| Some(if name.ends_with("rp_filter") { "1\n" } else { "212992\n" }.to_owned());

    fn verdict(rows: &str, drops: u64) -> Finding {
        let nics = [nic("eth0", Kind::Other, "10.77.0.10/24")];
        examine(&nics, STRICTLY, &routes(&format!("{HEAD}{rows}")), Some(drops)).swap_remove(0)
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_strict_filter_is_a_problem_where_the_route_back_goes_by_another_interface() {
        let aside = "eth1\t0B004D0A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
        let found = verdict(&format!("{OWN}{aside}"), 0);
        assert_eq!(found.status, Status::Problem);
        assert!(found.seen.contains("10.77.0.11/32") && found.seen.contains("by eth1"), "{found:?}");
        // Outside the own network it does not matter.
        let elsewhere = aside.replace("0B004D0A", "0B004E0A");
        assert_eq!(verdict(&format!("{OWN}{elsewhere}"), 0).status, Status::Ok);
        // A reject route does not count.
        let refused = aside.replace("0005", "0205");
        assert_eq!(verdict(&format!("{OWN}{refused}"), 0).status, Status::Ok);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_same_network_on_two_interfaces_is_answered_by_the_first() {
        let twin = OWN.replace("eth0", "eth1");
        assert_eq!(verdict(&format!("{twin}{OWN}"), 0).status, Status::Problem);
        assert_eq!(verdict(&format!("{OWN}{twin}"), 0).status, Status::Ok);
    }

    #[test]
    fn packets_that_the_filter_has_dropped_are_a_warning() {
        assert_eq!(verdict(OWN, 0).status, Status::Ok);
        assert_eq!(verdict(OWN, 3).status, Status::Warning);
        let netstat = "TcpExt: A IPReversePathFilter B\nTcpExt: 1 5 2\nIpExt: A\nIpExt: 9\n";
        assert_eq!(reverse_path_drops(netstat), Some(5));
        assert_eq!(reverse_path_drops("TcpExt: A\n"), None);
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_a_note() {
        let nics = [nic("eth0", Kind::Other, "10.77.0.10/24")];
        for finding in examine(&nics, &|_| None, &[], None) {
            assert!(
                finding.status == Status::Note && finding.seen.starts_with("not readable"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_buffer_that_holds_a_large_world_is_fine() {
        assert_eq!(buffer(STRICTLY).status, Status::Note);
        assert_eq!(buffer(&|_| Some("4194304\n".to_owned())).status, Status::Ok);
    }
}
