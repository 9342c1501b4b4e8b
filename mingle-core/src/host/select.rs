//! Which interfaces and addresses of this host are used, and in which order: pure functions of the
//! interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::filter::{Filter, Filters};
use super::interface::{Interface, Kind};
use crate::model::Link;

/// The interfaces to use, the best first, each with the addresses to use, the best first. Where there are
/// none, the interfaces with the reason why each is refused.
///
/// The best is what the earliest filter admits; among equals the interface of the default route, then the
/// better kind. Loopback, and interfaces whose addresses are all a last resort, come last whatever the
/// filters prefer.
///
/// Interfaces without multicast are used only where there are no others but loopback, by a node that does not
/// need multicast to find others.
pub(crate) fn select(
    all: &[Interface],
    filters: &[Filter],
    needs_multicast: bool,
) -> Result<Vec<Interface>, String> {
    let chosen = choose(all, filters, true);
    if needs_multicast || chosen.as_ref().is_ok_and(|chosen| chosen[0].kind != Kind::Loopback) {
        return chosen;
    }
    choose(all, filters, false).or(chosen)
}

/// The interfaces that lack nothing but multicast.
pub(crate) fn without_multicast<'a>(all: &'a [Interface], filters: &[Filter]) -> Vec<&'a str> {
    let filters = Filters(filters);
    let lacks =
        |interface: &&Interface| matches!(eligible(interface, filters, true), Err(Unusable::NoMulticast));
    all.iter().filter(lacks).map(|interface| interface.name.as_str()).collect()
}

fn choose(all: &[Interface], filters: &[Filter], needs_multicast: bool) -> Result<Vec<Interface>, String> {
    let filters = Filters(filters);
    let mut chosen = Vec::new();
    let mut refused: BTreeMap<Unusable, Vec<&str>> = BTreeMap::new();
    for interface in all {
        match eligible(interface, filters, needs_multicast) {
            Ok((place, addresses)) => chosen.push((place, Interface { addresses, ..interface.clone() })),
            Err(why) => refused.entry(why).or_default().push(&interface.name),
        }
    }
    if filters.want_all() && chosen.iter().any(|(_, interface)| interface.kind != Kind::Loopback) {
        chosen.retain(|(_, interface)| interface.kind != Kind::Loopback);
    }
    if chosen.is_empty() {
        return Err(explain(&refused, filters));
    }
    chosen.sort_by_key(|(place, one)| {
        let is_loopback = one.kind == Kind::Loopback;
        (is_loopback, one.is_makeshift(), *place, !one.default_route, one.kind, one.index)
    });
    Ok(chosen.into_iter().map(|(_, interface)| interface).collect())
}

/// A node tells six endpoints ([`Endpoints::ADVERTISED`](crate::model::Endpoints::ADVERTISED)): this many of
/// the preferred family and this many of the other, if there are enough of both.
const PREFERRED: usize = 4;
const OTHER: usize = 2;

/// An address: how many of its class and family come before it on its interface, and the interface's place.
type Nth = (usize, usize, IpAddr);

/// Why [`select`] leaves out this interface.
pub(crate) fn refusal(interface: &Interface, filters: &[Filter]) -> String {
    match eligible(interface, Filters(filters), true) {
        Ok(_) => "loopback is used only where there is nothing else".to_owned(),
        Err(why) => why.to_string(),
    }
}

/// The endpoints of this node on `port`, in order of preference, without duplicates.
///
/// The first address of every interface comes before the second of any: a NIC with many service addresses
/// must not crowd out the other NICs. Virtual, link-local and deprecated addresses come last whatever their
/// family: on a host with IPv6 alone docker0 has an IPv4 address, the same on every host. Within such a class
/// the preferred family comes first, but does not crowd out the other one, since another host may have only
/// that.
pub(crate) fn endpoints(selected: &[Interface], port: u16, prefers_ipv6: bool) -> Vec<SocketAddr> {
    // A virtual interface before others was preferred by a filter, and keeps its place.
    let outer = |interface: &Interface| interface.kind < Kind::Virtual && !interface.is_makeshift();
    let last_outer = selected.iter().rposition(outer);
    let mut classes: BTreeMap<_, [Vec<Nth>; 2]> = BTreeMap::new();
    for (place, interface) in selected.iter().enumerate() {
        let inner = interface.kind >= Kind::Virtual && last_outer.is_none_or(|last| last < place);
        for ip in interface.ips() {
            let families = classes.entry((interface.is_last_resort(ip), inner)).or_default();
            let family = &mut families[usize::from(ip.is_ipv6() != prefers_ipv6)];
            let last = family.last().filter(|(_, other, _)| *other == place);
            family.push((last.map_or(0, |(nth, ..)| nth + 1), place, ip));
        }
    }
    let (mut known, mut all) = (BTreeSet::new(), Vec::new());
    for families in classes.into_values() {
        let [preferred, other] = families.map(|mut family| {
            family.sort_unstable();
            family.retain(|(.., ip)| known.insert(*ip));
            family
        });
        let (first, rest) = preferred.split_at(PREFERRED.min(preferred.len()));
        let (second, others) = other.split_at(OTHER.min(other.len()));
        all.extend([first, second, rest, others].concat());
    }
    all.into_iter().map(|(.., ip)| SocketAddr::new(ip, port)).collect()
}

/// The interface that holds `ip`: the preferred one if several do.
pub(crate) fn holder_of(selected: &[Interface], ip: IpAddr) -> Option<&Interface> {
    let holds = |interface: &&Interface| interface.prefix(ip).is_some();
    selected.iter().find(holds)
}

/// The address that a job uses where a node is reached at this one.
pub(crate) fn link_of(selected: &[Interface], ip: IpAddr) -> Link {
    holder_of(selected, ip).and_then(|holder| holder.link(ip.is_ipv6())).unwrap_or_else(|| Link::unknown(ip))
}

/// Why an interface is not used, in the order of the explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unusable {
    NotAsked,
    Excluded,
    Down,
    NoAddress,
    NoMulticast,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "not what was asked for",
            Self::Excluded => "excluded",
            Self::Down => "down, or without a link",
            Self::NoAddress => "without a usable address (an IPv6 link-local one is none)",
            Self::NoMulticast => "without multicast (used only with seeds, or where it is asked for)",
        })
    }
}

/// The addresses to use, the best first, and the position of the filter that admits the best.
fn eligible(
    interface: &Interface,
    filters: Filters<'_>,
    needs_multicast: bool,
) -> Result<(usize, Vec<IpNet>), Unusable> {
    let mut excluded = false;
    let mut asked: Vec<(usize, IpNet)> = Vec::new();
    for address in interface.addresses.iter().filter(|address| interface.supports(address.addr())) {
        match filters.judge(interface, Some(address.addr())) {
            Ok(place) => asked.push((place, *address)),
            Err(why) => excluded |= why == Unusable::Excluded,
        }
    }
    if asked.is_empty() {
        if excluded {
            return Err(Unusable::Excluded);
        }
        filters.judge(interface, None)?;
    }
    if !interface.up {
        return Err(Unusable::Down);
    }
    asked.sort_by_key(|(place, address)| (interface.is_last_resort(address.addr()), *place));
    let Some((place, _)) = asked.first() else { return Err(Unusable::NoAddress) };
    // Loopback delivers multicast without the flag. A user who names an interface without multicast wants its
    // TCP, and has seeds or a folder to find others.
    let lacks_multicast = !interface.multicast && interface.kind != Kind::Loopback;
    if lacks_multicast && needs_multicast && filters.want_all() {
        return Err(Unusable::NoMulticast);
    }
    Ok((*place, asked.into_iter().map(|(_, address)| address).collect()))
}

fn explain(refused: &BTreeMap<Unusable, Vec<&str>>, filters: Filters<'_>) -> String {
    // A Kubernetes host has hundreds of veths, and the reasons must fit one line.
    const SHOWN: usize = 8;
    let mut parts: Vec<String> = Vec::new();
    for (why, names) in refused {
        // The text goes to a terminal, and a name may hold escape sequences.
        let shown: Vec<String> =
            names.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect();
        let rest = names.len() - shown.len();
        let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
        parts.push(format!("{}{more}: {why}", shown.join(", ")));
    }
    if parts.is_empty() {
        parts.push("this host (or container) has none at all".to_owned());
    }
    if !filters.0.is_empty() {
        parts.push(format!("the filter {filters}"));
    }
    parts.join("; ")
}
