//! What a host has: RDMA devices, their ports and GIDs, and the addresses of this network namespace.
//!
//! These are the facts as they were read. `choose` decides what to use.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::network::Network;
use super::pci::Gpu;
use super::verdict::Verdict;

/// The RDMA devices of a host, with everything that the choice among them depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Machine {
    /// The RDMA devices, in natural order of their names (`mlx5_2` before `mlx5_10`).
    pub devices: Vec<Device>,
    /// The addresses of this network namespace.
    pub addresses: Vec<Address>,
    /// The interfaces that have the default route.
    pub default_routes: Vec<String>,
    /// The networks on which the world has agreed, from best to worst; see [`Machine::agree`].
    pub agreed: Vec<Network>,
    /// Whether cables join the hosts of the world; see [`Verdict::cables`].
    pub cables: Option<bool>,
    /// The loaded kernel module for GPUDirect RDMA: `nvidia_peermem` or `nv_peer_mem`. Without such a module,
    /// GPUDirect RDMA needs DMA-BUF; no file shows whether DMA-BUF works.
    pub peer_memory: Option<String>,
    /// The GPUs, by PCI address. The choice among several ports depends on them.
    pub gpus: Vec<Gpu>,
}

impl Machine {
    /// All ports of all devices.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&Device, &Port)> {
        self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }

    /// Prefers the addresses to which `preference` gives a number, the lowest number first. The GIDs of these
    /// addresses come before all other GIDs, since the user has chosen the addresses for the rendezvous.
    #[must_use]
    pub fn prefer(mut self, preference: impl Fn(&Address) -> Option<usize>) -> Self {
        for address in &mut self.addresses {
            address.preference = preference(address);
        }
        self
    }

    /// Prefers the networks on which the ranks of this verdict's world have agreed, and knows how they are
    /// joined.
    #[must_use]
    pub fn agree(mut self, verdict: &Verdict) -> Self {
        self.agreed.clone_from(&verdict.networks);
        self.cables = verdict.cables;
        self
    }

    /// The address of this namespace that is the GID's.
    pub(super) fn held(&self, entry: &GidEntry) -> Option<&Address> {
        let is = |held: &&Address| {
            held.net.addr() == entry.address() && entry.interface.as_ref() == Some(&held.interface)
        };
        self.addresses.iter().find(is)
    }
}

/// Why an address is a second choice, from the weakest reason to the strongest. The words are those of `ip
/// address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Standing {
    /// The address has a lifetime, which the network renews.
    Dynamic,
    /// The interface has an earlier address in the same network.
    Secondary,
    /// The address changes within a day (RFC 8981).
    Temporary,
    /// The address is about to be removed.
    Deprecated,
}

impl Standing {
    /// All standings, with their words.
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Dynamic, "dynamic"),
        (Self::Secondary, "secondary"),
        (Self::Temporary, "temporary"),
        (Self::Deprecated, "deprecated"),
    ];
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(own, _)| own == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

/// An address of this network namespace, and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address, with the prefix of its network.
    pub net: IpNet,
    /// Why other hosts should rather use another address; none if there is no reason.
    pub standing: Option<Standing>,
    /// The place of the address among those that the user has chosen for the rendezvous; see
    /// [`Machine::prefer`].
    pub preference: Option<usize>,
}

impl Address {
    /// Whether every interface has such an address, whatever its use.
    pub(super) fn is_link_local(&self) -> bool {
        match self.net.addr() {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }

    /// Whether it is a network of its own (/32 or /128), as the addresses of services are.
    pub(super) fn is_alone(&self) -> bool {
        self.net.prefix_len() == self.net.max_prefix_len()
    }
}

/// An RDMA device: a folder in `/sys/class/infiniband`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Device {
    /// The device's name, such as `mlx5_0`.
    pub name: String,
    /// The number in the file `node_type`.
    pub node_type: Option<NodeType>,
    /// Whether the device is made by software (rxe, siw). Such a device has no `device` link.
    pub is_soft: bool,
    /// The PCI vendor and device of the device's card; the vendor is 0x15b3 for Mellanox. A virtual function
    /// has the numbers of its physical function.
    pub card: Option<(u16, u16)>,
    /// The number that all functions of a card share (`sys_image_guid`).
    pub card_guid: Option<String>,
    /// The PCI path of the physical function, if the device is a virtual function.
    pub physical: Option<String>,
    /// The data rate of the device's PCIe link, in Mb/s.
    pub link: Option<u32>,
    /// The device's own network interfaces.
    pub interfaces: Vec<String>,
    /// The path of the device's PCI device below `/sys/devices`, such as
    /// `pci0000:1a/0000:1a:01.0/0000:1b:00.0`.
    pub pci: Option<String>,
    /// The NUMA node that the device is attached to.
    pub numa_node: Option<u32>,
    /// Why no program can use the device; `None` if programs can, or if that is unknown because
    /// `/dev/infiniband` cannot be listed.
    pub unusable: Option<String>,
    /// The device's ports.
    pub ports: Vec<Port>,
}

impl Device {
    /// The name of a port of this device in `NCCL_IB_HCA`, such as `mlx5_0:1`.
    pub fn name_of(&self, port: &Port) -> String {
        format!("{}:{}", self.name, port.number)
    }
}

/// The protocol of a device's ports (`enum rdma_node_type`, include/rdma/ib_verbs.h), by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeType(pub u8);

impl NodeType {
    /// A channel adapter: InfiniBand or RoCE.
    pub const CA: Self = Self(1);
    /// An iWARP adapter.
    pub const RNIC: Self = Self(4);
    /// Amazon's EFA, whose type the kernel calls unspecified.
    pub const UNSPECIFIED: Self = Self(7);
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Port {
    /// The port's number, counted from 1.
    pub number: u32,
    /// The number in the file `state`: 4 is ACTIVE.
    pub state: Option<PortState>,
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// The port's rate in Mb/s.
    pub rate: Option<u32>,
    /// The traffic class that the administrator has forced on the port (`tc/P/traffic_class`).
    pub traffic_class: Option<u8>,
    /// The port's GIDs, without the empty slots of the GID table.
    pub gids: Vec<GidEntry>,
}

/// The state of a port (`enum ib_port_state`, include/rdma/ib_verbs.h), by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortState(pub u8);

impl PortState {
    /// The only state in which a port carries data.
    pub const ACTIVE: Self = Self(4);
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
        match words.get(usize::from(self.0)) {
            Some(word) => f.write_str(word),
            None => write!(f, "state {}", self.0),
        }
    }
}

/// The link layer of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Another link layer, or one that could not be read. EFA ports have the link layer `Unknown`.
    #[default]
    Unknown,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unknown => "Unknown",
        })
    }
}

/// A slot of a port's GID table that has a GID.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The number of the slot.
    pub index: u32,
    /// The GID (InfiniBand Architecture Specification, 4.1.1), which is written like an IPv6 address. A RoCE
    /// GID *is* the address of a network interface.
    pub gid: Ipv6Addr,
    /// The version of RoCE that the GID is for; `None` if the version could not be read.
    pub version: Option<RoceVersion>,
    /// The network interface that the GID belongs to. GIDs of InfiniBand, EFA and iWARP belong to none.
    pub interface: Option<String>,
    /// How `interface` is related to the port.
    pub relation: Relation,
}

impl GidEntry {
    /// The IP address that a RoCE GID stands for. A mapped address (`::ffff:10.0.0.1`) is returned as IPv4.
    pub fn address(&self) -> IpAddr {
        IpAddr::V6(self.gid).to_canonical()
    }

    /// The family of [`GidEntry::address`].
    pub fn family(&self) -> AddressFamily {
        AddressFamily::of(self.address())
    }

    /// Whether the GID is valid only on the link, and is not routed (`fe80::/10`).
    pub fn is_link_local(&self) -> bool {
        self.gid.is_unicast_link_local()
    }

    /// The RoCE addressing of this GID.
    pub fn addressing(&self) -> Option<Addressing> {
        self.version.map(|version| Addressing { version, family: self.family() })
    }
}

/// How the network interface of a GID is related to the port, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Relation {
    /// The port's own interface, or a bond or VLAN above it.
    Own,
    /// Another interface, such as a macvlan or ipvlan of a pod.
    #[default]
    Other,
    /// A tunnel: its packets are encapsulated once more, if the device supports that.
    Tunnel,
}

/// A rate in Mb/s, which is displayed in Gb/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(
    /// The rate in Mb/s.
    pub u32,
);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Gb/s", f64::from(self.0 / 100) / 10.0)
    }
}
