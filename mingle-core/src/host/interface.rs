//! The host's network interfaces: which may be used, and in which order.
//!
//! [`list`] reads the system; everything else here is a pure function of what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use super::filter::{Filter, Filters, Opinion};

pub(crate) use super::system::list;

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its number in the kernel, unique in a network namespace.
    pub index: u32,
    /// What it is.
    pub kind: Kind,
    /// Whether the host's default route leaves by it: true of one interface at most.
    pub default_route: bool,
    /// Whether it is switched on and has a link: a NIC without its cable is as good as none.
    pub up: bool,
    /// Whether it says that it can do multicast.
    pub multicast: bool,
    /// Its addresses, the primary one first.
    pub addresses: Vec<IpNet>,
    /// Those of its addresses that are on their way out (RFC 4862): the last choice.
    pub deprecated: Vec<IpAddr>,
}

/// What an interface is, the best for a job's traffic first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Hardware (a virtual machine's counts), or a bond or VLAN on top of it.
    Physical,
    /// Anything else, such as a pod's `eth0`, a bridge that has a real port, or a VPN.
    Other,
    /// A network inside the host or an overlay: docker0 and the like. Other hosts often have the very same
    /// address there.
    Virtual,
    /// The host itself.
    Loopback,
}

/// The two kinds of IP addresses, which cannot talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) enum Family {
    /// IPv4: what every program of a job can use.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The one that `ip` belongs to.
    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The one that comes first where a host has both.
    pub(crate) fn preferred(prefers_ipv6: bool) -> Self {
        if prefers_ipv6 { Self::V6 } else { Self::V4 }
    }
}

/// The interfaces of this host to use: what [`select`] makes of them.
pub(crate) fn find(filters: &[Filter]) -> Result<Vec<Interface>, NoInterface> {
    let all = list().map_err(NoInterface::Unlisted)?;
    select(&all, filters)
}

/// Why no interface can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoInterface {
    /// The kernel did not list them.
    #[error("cannot list the network interfaces")]
    Unlisted(#[source] std::io::Error),
    /// None suits.
    #[error("no usable network interface: {reasons}")]
    Unsuitable {
        /// Which interfaces there are, and why each is refused.
        reasons: String,
        /// Whether filters leave interfaces out.
        is_filtered: bool,
    },
}

/// The interfaces to use, the best first, each with the addresses to use, the best first.
///
/// The best is what the earliest filter admits; among equals the interface of the default route, then the
/// better kind. What hardly serves stays behind whatever the filters prefer.
pub(crate) fn select(all: &[Interface], filters: &[Filter]) -> Result<Vec<Interface>, NoInterface> {
    let filters = Filters::new(filters);
    let mut chosen = Vec::new();
    let mut refused: BTreeMap<Refusal, Vec<&str>> = BTreeMap::new();
    for interface in all {
        match eligible(interface, &filters) {
            Ok((place, addresses)) => chosen.push((place, Interface { addresses, ..interface.clone() })),
            Err(why) => refused.entry(why).or_default().push(&interface.name),
        }
    }
    if filters.want_all() && chosen.iter().any(|(_, interface)| interface.kind != Kind::Loopback) {
        chosen.retain(|(_, interface)| interface.kind != Kind::Loopback);
    }
    if chosen.is_empty() {
        let is_filtered = !filters.is_empty();
        return Err(NoInterface::Unsuitable { reasons: explain(&refused, &filters), is_filtered });
    }
    chosen.sort_by_key(|(place, interface)| {
        let loopback = interface.kind == Kind::Loopback;
        (
            loopback,
            interface.is_makeshift(),
            *place,
            !interface.default_route,
            interface.kind,
            interface.index,
        )
    });
    Ok(chosen.into_iter().map(|(_, interface)| interface).collect())
}

/// Others are told six endpoints (`HINTED_ENDPOINTS`): so many are of the preferred family, where there are
/// enough of both.
const PREFERRED: usize = 4;
/// And so many of the other.
const OTHER: usize = 2;

/// Why [`select`] leaves this interface out, where it does.
pub(crate) fn refusal(interface: &Interface, filters: &[Filter]) -> String {
    match eligible(interface, &Filters::new(filters)) {
        Ok(_) => "loopback is used only where there is nothing else".to_owned(),
        Err(why) => why.to_string(),
    }
}

/// Up to `limit` endpoints of this node on `port`, in order of preference, none twice.
///
/// The first address of every interface comes before the second of any: a NIC that carries many service
/// addresses must not crowd out the other NICs. What is virtual, link-local or deprecated stays behind all the
/// same, whatever its family: on a host with IPv6 alone docker0 has an IPv4 address, the same on every host.
/// Within such a class `prefer` comes first, but does not crowd out the other family: another host may have
/// only that.
pub(crate) fn endpoints(selected: &[Interface], port: u16, limit: usize, prefer: Family) -> Vec<SocketAddr> {
    // A virtual interface that is before others here was preferred by a filter, and is not held back.
    let outer = |interface: &Interface| interface.kind < Kind::Virtual && !interface.is_makeshift();
    let last_outer = selected.iter().rposition(outer);
    let mut ranked = Vec::new();
    for (place, interface) in selected.iter().enumerate() {
        let inner = interface.kind >= Kind::Virtual && last_outer.is_none_or(|last| last < place);
        let mut seen: BTreeMap<_, usize> = BTreeMap::new();
        for ip in interface.addresses.iter().map(IpNet::addr) {
            let class = (interface.hardly_serves(ip), inner);
            let preferred = Family::of(ip) == prefer;
            let nth = seen.entry((class, preferred)).or_default();
            ranked.push((class, preferred, *nth, place, ip));
            *nth += 1;
        }
    }
    ranked.sort_by_key(|&(class, preferred, nth, place, _)| (class, preferred, nth, place));
    let mut known = BTreeSet::new();
    ranked.retain(|&(.., ip)| known.insert(ip));

    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    let mut turns: Vec<_> = ranked
        .into_iter()
        .map(|(class, preferred, _, _, ip)| {
            let count = counts.entry((class, preferred)).or_default();
            *count += 1;
            let turn = match preferred {
                true if *count <= PREFERRED => 0,
                false if *count <= OTHER => 1,
                true => 2,
                false => 3,
            };
            ((class, turn), SocketAddr::new(ip, port))
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn); // stable: what is alike keeps its order
    turns.into_iter().map(|(_, endpoint)| endpoint).take(limit).collect()
}

/// The interface that holds `ip`: the preferred one where several do.
pub(crate) fn holder_of(selected: &[Interface], ip: IpAddr) -> Option<&Interface> {
    selected.iter().find(|interface| interface.addresses.iter().any(|address| address.addr() == ip))
}

/// Why an interface is not used; the order is that of the explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    NotAsked,
    Excluded,
    Down,
    NoAddress,
    NoMulticast,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "not what was asked for",
            Self::Excluded => "excluded",
            Self::Down => "down, or without a link",
            Self::NoAddress => "without a usable address (an IPv6 link-local one is none)",
            Self::NoMulticast => "without multicast (used only where it is asked for)",
        })
    }
}

/// The addresses to use, the best first, and the place of the best among the filters.
fn eligible(interface: &Interface, filters: &Filters<'_>) -> Result<(usize, Vec<IpNet>), Refusal> {
    let mut excluded = false;
    let mut asked: Vec<(usize, IpNet)> = Vec::new();
    for address in interface.addresses.iter().filter(|address| interface.supports(address.addr())) {
        match filters.judge(interface, Some(address.addr())) {
            Opinion::Admitted(place) => asked.push((place, *address)),
            Opinion::Excluded => excluded = true,
            Opinion::NotAsked => {}
        }
    }
    if asked.is_empty() {
        match filters.judge(interface, None) {
            _ if excluded => return Err(Refusal::Excluded),
            Opinion::Excluded => return Err(Refusal::Excluded),
            Opinion::NotAsked => return Err(Refusal::NotAsked),
            Opinion::Admitted(_) => {}
        }
    }
    if !interface.up {
        return Err(Refusal::Down);
    }
    asked.sort_by_key(|(place, address)| (interface.hardly_serves(address.addr()), *place));
    let Some((place, _)) = asked.first() else { return Err(Refusal::NoAddress) };
    // Loopback does not claim multicast, and delivers it all the same. Whoever names an interface without
    // multicast wants its TCP, and has other ways in.
    if !interface.multicast && interface.kind != Kind::Loopback && filters.want_all() {
        return Err(Refusal::NoMulticast);
    }
    Ok((*place, asked.into_iter().map(|(_, address)| address).collect()))
}

impl Interface {
    /// The address from which it speaks to all in a family; none where it does not. The kernel delivers no IPv6
    /// multicast on the loopback interface.
    pub(crate) fn voice(&self, is_ipv6: bool) -> Option<IpAddr> {
        let first = self.addresses.iter().map(IpNet::addr).find(|ip| ip.is_ipv6() == is_ipv6)?;
        (first.is_ipv4() || !first.is_loopback()).then_some(first)
    }

    /// The loopback interface with this address alone. The kernel gives it the index 1 in every namespace.
    pub(crate) fn loopback(address: Ipv4Addr) -> Self {
        Self {
            name: "lo".to_owned(),
            index: 1,
            kind: Kind::Loopback,
            default_route: false,
            up: true,
            multicast: false,
            addresses: vec![IpAddr::from(address).into()],
            deprecated: Vec::new(),
        }
    }

    /// Whether this address of it can be told to others.
    fn supports(&self, ip: IpAddr) -> bool {
        let general = !ip.is_unspecified() && !ip.is_multicast();
        general
            && match ip {
                IpAddr::V4(_) => true,
                // A link-local one means a host only together with the asker's own interface, and MASTER_ADDR
                // has no room for that. A mapped one is IPv4 in disguise.
                IpAddr::V6(ip) => {
                    !ip.is_unicast_link_local()
                        && ip.to_ipv4_mapped().is_none()
                        && (!ip.is_loopback() || self.kind == Kind::Loopback)
                }
            }
    }

    /// Whether the address is one that a host gave itself because nobody else did (RFC 3927), or one that it
    /// is about to lose.
    fn hardly_serves(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if ip.is_link_local()) || self.deprecated.contains(&ip)
    }

    /// Whether it has no better address than such.
    fn is_makeshift(&self) -> bool {
        self.addresses.iter().all(|address| self.hardly_serves(address.addr()))
    }
}

fn explain(refused: &BTreeMap<Refusal, Vec<&str>>, filters: &Filters<'_>) -> String {
    // A Kubernetes host has hundreds of veths; one line shall still hold the reason.
    const SHOWN: usize = 8;
    let mut parts: Vec<String> = Vec::new();
    for (why, names) in refused {
        // An interface's name may hold escape sequences, and this goes to a terminal.
        let shown: Vec<String> =
            names.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect();
        let rest = names.len() - shown.len();
        let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
        parts.push(format!("{}{more}: {why}", shown.join(", ")));
    }
    if parts.is_empty() {
        parts.push("this host (or container) has none at all".to_owned());
    }
    if !filters.is_empty() {
        parts.push(format!("the filter {filters}"));
    }
    parts.join("; ")
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
