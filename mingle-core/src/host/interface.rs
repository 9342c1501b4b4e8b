//! A network interface of this host.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::model::Link;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// The interface's index in the kernel, unique in a network namespace.
    pub index: u32,
    /// Whether the interface is hardware, virtual or something else.
    pub kind: Kind,
    /// Whether the host's default route uses the interface: true for at most one interface.
    pub default_route: bool,
    /// Whether the interface is up and has a link (IFF_UP and IFF_RUNNING).
    pub up: bool,
    /// Whether the interface supports multicast (IFF_MULTICAST).
    pub multicast: bool,
    /// The interface's addresses with the prefixes of their networks, the primary address first.
    pub addresses: Vec<IpNet>,
    /// The interface's deprecated addresses (RFC 4862, 5.5.4), the last in the order of preference.
    pub deprecated: Vec<IpAddr>,
    /// The first address of each family in the order of getifaddrs(3), which NCCL and Gloo use, whether this
    /// node uses it or not. A labelled address counts where there is no other: it belongs to an interface of
    /// another name.
    pub(crate) firsts: Vec<IpNet>,
    /// The label of the first IPv4 address, such as `eth0:1`, if all have labels.
    pub(crate) label: Option<String>,
    /// The hardware address; empty if there is none.
    pub(crate) mac: String,
    /// The interface's MTU in bytes; 0 if it is unknown.
    pub mtu: u32,
}

/// The kind of an interface, the best for a job's traffic first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Hardware, also that of a virtual machine, or a bond or VLAN on top of hardware.
    Physical,
    /// Any other interface, such as a pod's `eth0`, a bridge that has a real port, or a VPN.
    #[default]
    Other,
    /// A network inside the host, such as docker0, or an overlay. Other hosts often have the same address on
    /// such an interface.
    Virtual,
    /// The loopback interface.
    Loopback,
}

impl Interface {
    /// The source address for multicast in a family; none if it has no such address. The kernel delivers no
    /// IPv6 multicast on the loopback interface.
    pub(crate) fn source(&self, is_ipv6: bool) -> Option<IpAddr> {
        let first = self.ips().find(|ip| ip.is_ipv6() == is_ipv6)?;
        (first.is_ipv4() || !first.is_loopback()).then_some(first)
    }

    /// The address of this family that a job uses on it.
    pub(crate) fn first(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.firsts.iter().map(IpNet::addr).find(|ip| ip.is_ipv6() == is_ipv6)
    }

    /// The name by which a job finds that address.
    pub(crate) fn name_in(&self, is_ipv6: bool) -> &str {
        self.label.as_deref().filter(|_| !is_ipv6).unwrap_or(&self.name)
    }

    /// The link of a job on it, in this family.
    pub(crate) fn link(&self, is_ipv6: bool) -> Option<Link> {
        let unknown = Link::unknown(self.first(is_ipv6)?);
        let prefix = self.prefix(unknown.address).unwrap_or(unknown.prefix);
        Some(Link { prefix, mtu: self.mtu, ..unknown })
    }

    /// The length of the prefix of the network of this address.
    pub(crate) fn prefix(&self, ip: IpAddr) -> Option<u8> {
        let mut all = self.firsts.iter().chain(&self.addresses);
        all.find(|address| address.addr() == ip).map(IpNet::prefix_len)
    }

    /// Its addresses without the prefixes.
    pub(crate) fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(IpNet::addr)
    }

    /// The loopback interface with this address alone. Its index is 1 in every network namespace.
    pub(crate) fn loopback(address: Ipv4Addr) -> Self {
        Self {
            name: "lo".to_owned(),
            index: 1,
            kind: Kind::Loopback,
            up: true,
            addresses: vec![IpAddr::from(address).into()],
            firsts: vec![IpAddr::from(address).into()],
            ..Self::default()
        }
    }

    /// Whether other hosts can use this address of the interface.
    pub(super) fn supports(&self, ip: IpAddr) -> bool {
        let general = !ip.is_unspecified() && !ip.is_multicast();
        general
            && match ip {
                IpAddr::V4(_) => true,
                // A link-local address identifies a host only together with the reader's interface, for which
                // MASTER_ADDR has no room. A mapped address is an IPv4 address.
                IpAddr::V6(ip) => {
                    !ip.is_unicast_link_local()
                        && ip.to_ipv4_mapped().is_none()
                        && (!ip.is_loopback() || self.kind == Kind::Loopback)
                }
            }
    }

    /// Whether the address is the last choice: one that the host gave itself for lack of another (RFC 3927),
    /// or a deprecated one.
    pub(super) fn is_last_resort(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if ip.is_link_local()) || self.deprecated.contains(&ip)
    }

    /// Whether all its addresses are the last choice.
    pub(super) fn is_makeshift(&self) -> bool {
        self.ips().all(|ip| self.is_last_resort(ip))
    }
}
