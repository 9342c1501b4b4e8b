//! The host's network interfaces: which may be used, and in which order.
//!
//! [`list`] reads the system; everything else here is a pure function of what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::error::Error;

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

/// Which interfaces may be used: one by its name, or all addresses in a network.
///
/// ```
/// use mingle_core::net::Filter;
/// assert!(matches!("ib0".parse()?, Filter::Name(_)));
/// assert_eq!("10.1.0.0/16".parse::<Filter>()?.to_string(), "10.1.0.0/16");
/// assert_eq!("10.1.2.3".parse::<Filter>()?.to_string(), "10.1.2.3/32");
/// assert!("10.1.0.0/33".parse::<Filter>().is_err());
/// # Ok::<(), mingle_core::net::InvalidFilter>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// The interface of this name, with all of its addresses.
    Name(String),
    /// The addresses in this network, whichever interfaces hold them.
    Net(IpNet),
}

/// Why a text is no [`Filter`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFilter {
    /// It can only be meant as an address or a network, and is none.
    #[error("{0:?} is no IP address or network; write 10.1.2.3 or 10.1.0.0/16")]
    Net(String),
    /// No interface can have this name.
    #[error(
        "{0:?} cannot be an interface: a name has 1 to 15 characters, none of them '/', ':' or a space; \
         to name several, or a name and a network, give each on its own"
    )]
    Name(String),
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Net(IpNet::from(address)));
        }
        // "300.1.1.1" could be a name to the kernel, but nobody means one.
        let numeric = text.contains('.') && text.chars().all(|c| c.is_ascii_digit() || c == '.');
        if numeric || text.contains(['/', ':']) {
            return text.parse().map(Self::Net).map_err(|_| InvalidFilter::Net(text.to_owned()));
        }
        // The kernel's own rule (dev_valid_name): 15 bytes, no '/', no ':', no space. A comma is legal
        // there, but stands for an attempt to name several.
        let valid = (1..=15).contains(&text.len())
            && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',');
        if valid { Ok(Self::Name(text.to_owned())) } else { Err(InvalidFilter::Name(text.to_owned())) }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Net(net) => net.fmt(f),
        }
    }
}

impl Filter {
    fn admits(&self, interface: &Interface, address: &IpNet) -> bool {
        match self {
            Self::Name(name) => *name == interface.name,
            // 0.0.0.0/0 means "any network", hardly "also loopback, which no other host can reach".
            Self::Net(net) => {
                net.contains(&address.addr()) && (!address.addr().is_loopback() || net.addr().is_loopback())
            }
        }
    }
}

/// The interfaces to use, the best first, each with the addresses to use, the best first.
pub(crate) fn select(all: &[Interface], filters: &[Filter]) -> Result<Vec<Interface>, Error> {
    let mut chosen = Vec::new();
    let mut refused: BTreeMap<Refusal, Vec<&str>> = BTreeMap::new();
    for interface in all {
        match eligible(interface, filters) {
            Ok(addresses) => chosen.push(Interface { addresses, ..interface.clone() }),
            Err(why) => refused.entry(why).or_default().push(&interface.name),
        }
    }
    if filters.is_empty() && chosen.iter().any(|interface| interface.kind != Kind::Loopback) {
        chosen.retain(|interface| interface.kind != Kind::Loopback);
    }
    if chosen.is_empty() {
        return Err(Error::NoInterface(explain(&refused, filters)));
    }
    chosen.sort_by_key(|interface| {
        let makeshift = interface.addresses.iter().all(|address| link_local(address.addr()));
        let loopback = interface.kind == Kind::Loopback;
        (loopback, makeshift, !interface.default_route, interface.kind, interface.index)
    });
    Ok(chosen)
}

/// Up to `limit` endpoints of this node on `port`, in order of preference, none twice.
///
/// The first address of every interface comes before the second of any: a NIC that carries many service
/// addresses must not crowd out the other NICs. What is virtual or link-local stays behind all the same.
pub(crate) fn endpoints(selected: &[Interface], port: u16, limit: usize) -> Vec<SocketAddr> {
    let mut ranked = Vec::new();
    for (place, interface) in selected.iter().enumerate() {
        let inner = interface.kind >= Kind::Virtual;
        for makeshift in [false, true] {
            let alike = interface.addresses.iter().map(IpNet::addr).filter(|ip| link_local(*ip) == makeshift);
            for (nth, ip) in alike.enumerate() {
                ranked.push(((makeshift, inner, nth, place), SocketAddr::new(ip, port)));
            }
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut endpoints = Vec::new();
    for (_, endpoint) in ranked {
        if endpoints.len() < limit && !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// The interface that holds `ip`: the preferred one where several do.
pub(crate) fn holder_of(selected: &[Interface], ip: IpAddr) -> Option<&Interface> {
    selected.iter().find(|interface| interface.addresses.iter().any(|address| address.addr() == ip))
}

/// Why an interface is not used; the order is that of the explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    NotAsked,
    Down,
    NoAddress,
    NoMulticast,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "not what was asked for",
            Self::Down => "down, or without a link",
            Self::NoAddress => "without an IPv4 address",
            Self::NoMulticast => "without multicast (used only where --interface names it)",
        })
    }
}

fn eligible(interface: &Interface, filters: &[Filter]) -> Result<Vec<IpNet>, Refusal> {
    let named = filters.iter().any(|f| matches!(f, Filter::Name(name) if *name == interface.name));
    let admitted = |address: &&IpNet| {
        filters.is_empty() || filters.iter().any(|filter| filter.admits(interface, address))
    };
    let asked: Vec<IpNet> = interface.addresses.iter().filter(admitted).copied().collect();
    if !filters.is_empty() && !named && asked.is_empty() {
        return Err(Refusal::NotAsked);
    }
    if !interface.up {
        return Err(Refusal::Down);
    }
    let mut usable: Vec<IpNet> = asked.into_iter().filter(|address| supported(address.addr())).collect();
    if usable.is_empty() {
        return Err(Refusal::NoAddress);
    }
    // Loopback does not claim multicast, and delivers it all the same. Whoever names an interface without
    // multicast wants its TCP, and has other ways in.
    if !interface.multicast && interface.kind != Kind::Loopback && filters.is_empty() {
        return Err(Refusal::NoMulticast);
    }
    usable.sort_by_key(|address| link_local(address.addr()));
    Ok(usable)
}

/// Whether this release speaks over such an address. IPv6 is a matter of this line and of the group sockets.
fn supported(ip: IpAddr) -> bool {
    ip.is_ipv4() && !ip.is_unspecified() && !ip.is_multicast()
}

/// Whether the address is one that a host gave itself because nobody else did (RFC 3927).
fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn explain(refused: &BTreeMap<Refusal, Vec<&str>>, filters: &[Filter]) -> String {
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
    let advice = if filters.is_empty() {
        "bring one up and give it an IPv4 address; nodes on one host need only `ip link set lo up`".to_owned()
    } else {
        let asked: Vec<String> = filters.iter().map(Filter::to_string).collect();
        format!("--interface allows only {}; `ip -brief address` shows what there is", asked.join(", "))
    };
    format!("{}; {advice}", parts.join("; "))
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
