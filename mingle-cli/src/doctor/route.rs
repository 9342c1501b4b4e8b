//! Why packets to another host do not leave this one as they should: no route, a route that rejects or leads
//! elsewhere, or a rule before all routes.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use mingle_core::tools::Judged;
use serde::{Deserialize, Serialize};

use crate::host::HERE;

/// What keeps packets on the host, or leads them elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Blocked {
    /// There is no route.
    NoRoute,
    /// A route of the main table rejects or drops them, or leads to a gateway, although the address is in the
    /// host's own network.
    Route(Route),
    /// A rule, or a route of another table.
    Rule,
}

/// A route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Route {
    net: Ipv4Addr,
    prefix: u8,
    /// Unspecified where there is none.
    gateway: Ipv4Addr,
    rejects: bool,
}

impl Blocked {
    /// Whether packets cannot leave the host at all; a gateway may be right.
    pub(super) fn rejects(self) -> bool {
        !matches!(self, Self::Route(Route { rejects: false, .. }))
    }

    /// What is wrong on `host` with the way to an address, and the command there that mends it. `by` is the
    /// interface to the address, if that is on the same link.
    pub(super) fn explain(self, host: &str, to: IpAddr, by: Option<&str>) -> (String, String) {
        let v6 = if to.is_ipv6() { " -6" } else { "" };
        match (self, by) {
            (Self::NoRoute, by) => (
                format!("no route of {host} leads to {to}"),
                by.map_or_else(
                    || format!("add a route to {to} on {host}, or choose another --interface"),
                    |by| format!("on {host}: `ip{v6} route add {to} dev {by}`; or give both an address of one network"),
                ),
            ),
            (Self::Route(Route { net, prefix, rejects: true, .. }), _) => (
                format!("a route of {host} rejects packets to {net}/{prefix}"),
                format!("on {host}: `ip route del {net}/{prefix}`"),
            ),
            (Self::Route(Route { net, prefix, gateway, .. }), _) => (
                format!(
                    "a route of {host} sends packets to {net}/{prefix} to the gateway {gateway}, although {to} is in its own network"
                ),
                format!("on {host}: `ip route del {net}/{prefix} via {gateway}`"),
            ),
            (Self::Rule, _) if to.is_ipv6() => (
                format!("a route or rule of {host} rejects packets to {to}"),
                format!("on {host}, delete what `ip -6 route get {to}` and `ip -6 rule` show"),
            ),
            (Self::Rule, _) => (
                format!(
                    "a rule (`ip rule`) of {host}, or a route of another table than main, rejects packets to {to}"
                ),
                format!("on {host}: `ip rule add to {to} lookup main pref 1`, or delete that rule"),
            ),
        }
    }
}

/// Whether the address is in the network of an own interface.
pub(super) fn is_near(all: &[Judged], to: IpAddr) -> bool {
    all.iter().any(|judged| judged.interface.addresses.iter().any(|net| net.contains(&to)))
}

/// Asks this host's kernel for the way to an address, which is in the network of an own interface or not.
pub(super) fn examine(to: IpAddr, is_near: bool) -> Option<Blocked> {
    let any: IpAddr = if to.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
    // Sends nothing.
    let refused = UdpSocket::bind((any, 0)).ok()?.connect((to, 9)).err().map(|error| error.kind());
    let table = HERE.text("/proc/net/route").unwrap_or_default();
    let route = match to {
        IpAddr::V4(to) => route(&table, to),
        IpAddr::V6(_) => None,
    };
    judge(refused, route, is_near)
}

fn judge(refused: Option<ErrorKind>, route: Option<Route>, is_near: bool) -> Option<Blocked> {
    match (refused, route) {
        (Some(_), Some(route)) if route.rejects => Some(Blocked::Route(route)),
        (Some(ErrorKind::NetworkUnreachable), None) => Some(Blocked::NoRoute),
        (Some(_), _) => Some(Blocked::Rule),
        (None, Some(route)) if is_near && !route.gateway.is_unspecified() => Some(Blocked::Route(route)),
        (None, _) => None,
    }
}

/// The route to an address, by the text of /proc/net/route: interface, destination, gateway, flags, three
/// numbers of which the last is the metric, mask.
fn route(table: &str, to: Ipv4Addr) -> Option<Route> {
    let address =
        |hex: &str| u32::from_str_radix(hex, 16).ok().map(|bits| Ipv4Addr::from(bits.to_ne_bytes()));
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [by, net, gateway, _, _, _, metric, mask, ..] = fields[..] else { return None };
        let (net, mask) = (address(net)?, address(mask)?);
        let prefix = u8::try_from(mask.to_bits().count_ones()).ok()?;
        let route = Route { net, prefix, gateway: address(gateway)?, rejects: by == "*" };
        let metric: u32 = metric.parse().ok()?;
        (to.to_bits() & mask.to_bits() == net.to_bits()).then_some((prefix, u32::MAX - metric, route))
    });
    routes.max_by_key(|(prefix, metric, _)| (*prefix, *metric)).map(|(.., route)| route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_route_counts_and_of_equal_ones_that_with_the_least_metric() {
        let hex = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |by: &str, net, gateway, metric: u32, mask| {
            format!("{by}\t{}\t{}\t0003\t0\t0\t{metric}\t{}\t0\t0\t0\n", hex(net), hex(gateway), hex(mask))
        };
        let table = "Iface\tDestination\n".to_owned()
            + &line("eth0", [0; 4], [10, 0, 0, 1], 0, [0; 4])
            + &line("eth0", [10, 0, 0, 0], [0; 4], 100, [255, 255, 255, 0])
            + &line("eth0", [10, 0, 0, 0], [10, 0, 0, 9], 200, [255, 255, 255, 0])
            + &line("*", [10, 0, 0, 7], [0; 4], 0, [255; 4]);
        let found = |last| {
            let route = route(&table, Ipv4Addr::new(10, 0, 0, last)).unwrap();
            (route.prefix, route.gateway, route.rejects)
        };
        assert_eq!(found(7), (32, Ipv4Addr::UNSPECIFIED, true));
        assert_eq!(found(8), (24, Ipv4Addr::UNSPECIFIED, false));
        assert_eq!(route(&table, Ipv4Addr::new(11, 0, 0, 1)).unwrap().gateway, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(route("", Ipv4Addr::new(11, 0, 0, 1)), None);
    }

    #[test]
    fn a_gateway_is_blamed_in_the_own_network_alone_and_a_rule_where_the_route_is_good() {
        let gateway = Ipv4Addr::new(10, 0, 0, 200);
        let route = Route { net: [10, 0, 0, 0].into(), prefix: 24, gateway, rejects: false };
        assert_eq!(judge(None, Some(route), false), None);
        let elsewhere = judge(None, Some(route), true);
        assert!(matches!(elsewhere, Some(Blocked::Route(_))) && !elsewhere.unwrap().rejects());
        assert_eq!(judge(Some(ErrorKind::InvalidInput), Some(route), true), Some(Blocked::Rule));
        assert_eq!(judge(Some(ErrorKind::NetworkUnreachable), None, true), Some(Blocked::NoRoute));
    }
}
