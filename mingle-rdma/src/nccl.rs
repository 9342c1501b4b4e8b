//! NCCL's own choice of a GID, and what makes it choose the right one on several ports at once.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::frequent::common;
use super::gid::{AddressFamily, Addressing};
use super::machine::{GidEntry, Port};

/// Why NCCL uses the right GID of each port of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GidRule {
    /// mingle sets this index (`NCCL_IB_GID_INDEX`), since NCCL would choose another GID.
    Index(u32),
    /// NCCL chooses the GID itself, among the GIDs of the family and the version.
    Own,
    /// NCCL chooses the GID itself, among the GIDs in this network (`NCCL_IB_ADDR_RANGE`).
    Range(IpNet),
}

/// Whether a library is given an index. One that was right when the job started may have become another's
/// half an hour later, and the job then hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pin {
    /// Never: the user says of which kind the GIDs are.
    Never,
    /// Where the library by itself would choose another GID, or that cannot be known.
    #[default]
    IfNeeded,
    /// Always: NCCL's version is known to have no rule of its own, or the user has given an index.
    Always,
}

impl GidRule {
    /// The rule by which NCCL and NVSHMEM use these ports, each with its right GID. None if they cannot use
    /// all of them at once.
    pub(crate) fn new(ports: &[(&Port, &GidEntry)], addressing: Addressing, pin: Pin) -> Option<Self> {
        let own = Self::without_index(ports, addressing);
        // NCCL before 2.26.2 ends where it cannot read a type.
        let is_known = ports.iter().all(|(port, _)| port.gids.iter().all(|entry| entry.version.is_some()));
        match pin {
            Pin::Never => own,
            Pin::IfNeeded if own == Some(Self::Own) && is_known => own,
            _ => Self::index(ports).or(own),
        }
    }

    /// The index that UCX is given, if any. By itself it takes the first GID of the best addressing, and a
    /// link-local one last (`uct_ib_device_select_gid` in UCX's `src/uct/ib/base/ib_device.c`).
    pub(crate) fn of_ucx(ports: &[(&Port, &GidEntry)], pin: Pin) -> Option<Self> {
        let first = |port: &Port| {
            let known = port
                .gids
                .iter()
                .filter_map(|entry| Some((entry.addressing()?.place(), entry.is_link_local(), entry.index)));
            known.min().map(|(.., index)| index)
        };
        // Of a port without an address, each GID reaches the others.
        let is_right =
            |(port, right): &(&Port, &GidEntry)| first(port) == Some(right.index) || right.is_link_local();
        let is_needed = pin == Pin::Always || pin == Pin::IfNeeded && !ports.iter().all(is_right);
        Self::index(ports).filter(|_| is_needed)
    }

    fn index(ports: &[(&Port, &GidEntry)]) -> Option<Self> {
        common(ports.iter().map(|(_, right)| Some(right.index))).map(Self::Index)
    }

    fn without_index(ports: &[(&Port, &GidEntry)], addressing: Addressing) -> Option<Self> {
        let is_right =
            |range| ports.iter().all(|(port, right)| chosen(port, addressing, range) == Some(right.index));
        if is_right(None) {
            return Some(Self::Own);
        }
        // The smallest network with all right GIDs admits the fewest others.
        let range = smallest_network(ports.iter().map(|(_, right)| right.address()))?;
        is_right(Some(range)).then_some(Self::Range(range))
    }
}

/// The index that NCCL 2.21.5 to 2.30.7 takes (`ncclIbGetGidIndex` and `ncclUpdateGidIndex` in
/// `src/transport/net_ib/connect.cc`). None if that cannot be known.
fn chosen(port: &Port, addressing: Addressing, range: Option<IpNet>) -> Option<u32> {
    let entry = |index: u32| port.gids.iter().find(|entry| entry.index == index);
    let last = port.gids.iter().map(|entry| entry.index).max()?;
    let gid = |index| entry(index).map_or(Ipv6Addr::UNSPECIFIED, |entry| entry.gid);
    let version = |index| entry(index).and_then(|entry| entry.version);
    let mut current = 0;
    for index in 1..=last.saturating_add(1) {
        let (own, candidate) = (gid(current), gid(index));
        let suits = is_of(candidate, addressing.family)
            && range.is_none_or(|range| range.contains(&candidate.to_canonical()));
        if !suits {
            continue;
        }
        if !is_of(own, addressing.family) {
            // Here it asks neither for the version nor whether the GID is link-local.
            current = index;
        } else if is_valid(candidate) {
            let (own_version, new) = (version(current), version(index));
            if is_valid(own) && own_version.is_none() {
                return None;
            }
            if (own_version != new || !is_valid(own)) && new == Some(addressing.version) {
                current = index;
            }
        }
    }
    Some(current)
}

fn is_of(gid: Ipv6Addr, family: AddressFamily) -> bool {
    AddressFamily::of(gid.to_canonical()) == family
}

/// `validGid`: neither empty nor fe80::/64.
fn is_valid(gid: Ipv6Addr) -> bool {
    !gid.is_unspecified() && gid.segments()[..4] != [0xfe80, 0, 0, 0]
}

/// The smallest network with all these addresses. None if only all addresses are one.
fn smallest_network(addresses: impl Iterator<Item = IpAddr>) -> Option<IpNet> {
    let addresses: Vec<IpAddr> = addresses.collect();
    let mut networks =
        std::iter::successors(addresses.first().map(|first| IpNet::from(*first)), IpNet::supernet);
    networks
        .find(|network| addresses.iter().all(|address| network.contains(address)))
        .filter(|network| network.prefix_len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::RoceVersion;
    use crate::machine::Relation;

    const V4: Addressing = Addressing { version: RoceVersion::V2, family: AddressFamily::Ipv4 };
    const V6: Addressing = Addressing { version: RoceVersion::V2, family: AddressFamily::Ipv6 };

    /// A port whose table has these addresses, each first for v1 and then for v2.
    fn port(addresses: &[&str]) -> Port {
        let versions = [RoceVersion::V1, RoceVersion::V2];
        let entries = addresses.iter().flat_map(|address| versions.map(|version| (address, version)));
        let gids = (0..).zip(entries).map(|(index, (address, version))| GidEntry {
            index,
            gid: match address.parse().unwrap() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            },
            version: Some(version),
            interface: None,
            relation: Relation::Own,
        });
        Port { gids: gids.collect(), ..Port::default() }
    }

    fn rule(ports: &[(&Port, usize)], addressing: Addressing) -> Option<GidRule> {
        let right: Vec<_> = ports.iter().map(|(port, index)| (*port, &port.gids[*index])).collect();
        GidRule::new(&right, addressing, Pin::IfNeeded)
    }

    #[test]
    fn nccl_takes_the_first_gid_of_the_family_and_the_version_and_of_the_range() {
        let table = port(&["fe80::1", "10.0.0.1", "fe80::2", "10.77.0.50", "10.77.0.51", "fd00::1"]);
        let range = |text: &str| Some(text.parse().unwrap());
        assert_eq!(chosen(&table, V4, None), Some(3));
        assert_eq!(chosen(&table, V4, range("10.77.0.0/16")), Some(7));
        assert_eq!(chosen(&table, V4, range("10.77.0.51/32")), Some(9));
        assert_eq!(chosen(&table, V6, None), Some(11));
        let v1 = Addressing { version: RoceVersion::V1, ..V4 };
        assert_eq!(chosen(&table, v1, None), Some(2));
        assert_eq!(chosen(&port(&["10.0.0.1"]), V4, None), Some(1));
        assert_eq!(chosen(&port(&["fe80::1"]), V4, None), Some(0), "none is suitable");
        assert_eq!(chosen(&Port::default(), V4, None), None);
    }

    #[test]
    fn an_empty_slot_is_taken_for_ipv6_where_the_first_gid_is_ipv4() {
        assert_eq!(chosen(&port(&["10.0.0.1"]), V6, None), Some(2));
    }

    #[test]
    fn a_range_is_given_where_nccl_would_take_the_hosts_gid() {
        let (a, b) = (
            port(&["fe80::1", "10.0.0.1", "10.77.0.50"]),
            port(&["fe80::1", "10.0.0.2", "fe80::2", "10.77.0.51"]),
        );
        assert_eq!(rule(&[(&a, 5), (&b, 7)], V4), Some(GidRule::Range("10.77.0.50/31".parse().unwrap())));
        assert_eq!(rule(&[(&a, 5)], V4), Some(GidRule::Index(5)));
        assert_eq!(rule(&[(&a, 3), (&b, 3)], V4), Some(GidRule::Own));
        let c = port(&["fe80::1", "fe80::2", "10.0.0.3"]);
        assert_eq!(rule(&[(&a, 3), (&c, 5)], V4), Some(GidRule::Own), "the first ones");
        // The smallest network with both has the host's address too.
        let d = port(&["fe80::1", "10.0.0.1", "fe80::2", "10.128.0.50"]);
        assert_eq!(rule(&[(&a, 5), (&d, 7)], V4), None);
    }

    #[test]
    fn the_smallest_network_has_all_addresses() {
        let network = |texts: &[&str]| smallest_network(texts.iter().map(|text| text.parse().unwrap()));
        let expected = |text: &str| Some(text.parse().unwrap());
        assert_eq!(network(&["10.1.2.3"]), expected("10.1.2.3/32"));
        assert_eq!(network(&["10.1.2.3", "10.1.2.4"]), expected("10.1.2.0/29"));
        assert_eq!(network(&["fd00::1", "fd00::2:1"]), expected("fd00::/110"));
        assert_eq!(network(&["10.0.0.1", "200.0.0.1"]), None);
        assert_eq!(network(&[]), None);
    }
}
