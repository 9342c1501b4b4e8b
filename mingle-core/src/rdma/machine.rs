//! What a host has: RDMA devices, their ports and GIDs, and the addresses of this network namespace.
//!
//! These are the facts as they were read. `choose` decides what to use.

use std::fmt;
use std::net::IpAddr;

use super::gid::{Addressing, Gid, RoceVersion};
use super::pci::Gpu;

/// The RDMA devices of one host, with all that matters for choosing among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Machine {
    /// The RDMA devices, in natural order of their names (`mlx5_2` before `mlx5_10`).
    pub devices: Vec<Device>,
    /// The addresses of this network namespace.
    pub addresses: Vec<Address>,
    /// The loaded kernel module for GPUDirect RDMA: `nvidia_peermem` or `nv_peer_mem`. Without one, GPUDirect
    /// RDMA needs DMA-BUF; no file shows whether that works.
    pub peer_memory: Option<String>,
    /// The GPUs. Empty unless the caller asked for them: a job's variables do not depend on them.
    pub gpus: Vec<Gpu>,
}

/// An address of this network namespace, and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix, in bits.
    pub prefix: u8,
}

/// An RDMA device: a folder in `/sys/class/infiniband`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Device {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// The number in `node_type` (`enum rdma_node_type`, include/rdma/ib_verbs.h): see [`NodeType`].
    pub node_type: Option<NodeType>,
    /// Whether it is made by software (rxe, siw). Such a device has no `device` link.
    pub is_soft: bool,
    /// Its PCI vendor, such as 0x15b3 for Mellanox.
    pub vendor: Option<u16>,
    /// `hca_type` or `board_id`, for display.
    pub model: String,
    /// `fw_ver`, for display.
    pub firmware: String,
    /// The path of its PCI device below `/sys/devices`, such as `pci0000:1a/0000:1a:01.0/0000:1b:00.0`.
    pub pci: Option<String>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// Whether programs can use it.
    pub verbs: Verbs,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// The protocol of a device's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeType {
    /// 1, a channel adapter: InfiniBand or RoCE.
    Ca,
    /// 4, an iWARP adapter.
    Rnic,
    /// 7, unspecified: Amazon's EFA.
    Unspecified,
    /// Any other number: switches, routers, usNIC.
    Other(u8),
}

impl From<u8> for NodeType {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Ca,
            4 => Self::Rnic,
            7 => Self::Unspecified,
            other => Self::Other(other),
        }
    }
}

/// Whether `/dev/infiniband/uverbsN` can be opened. If not, no program can use the device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Verbs {
    /// It can be opened.
    Open,
    /// No `uverbsN` belongs to the device: the module ib_uverbs is not loaded.
    Absent,
    /// The system refuses to open it.
    Refused {
        /// The file's name, such as `uverbs0`.
        name: String,
        /// The system's error.
        reason: String,
    },
    /// Not tried, because `/dev/infiniband` cannot be read.
    #[default]
    Untried,
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// The number in `state`: 4 is ACTIVE.
    pub state: Option<PortState>,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its rate in Mb/s.
    pub rate: Option<u32>,
    /// The traffic class that the administrator has forced on it (`tc/P/traffic_class`).
    pub traffic_class: Option<u8>,
    /// Its GIDs, without the empty slots.
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
        match self.0 {
            0 => f.write_str("NOP"),
            1 => f.write_str("DOWN"),
            2 => f.write_str("INIT"),
            3 => f.write_str("ARMED"),
            4 => f.write_str("ACTIVE"),
            5 => f.write_str("ACTIVE_DEFER"),
            other => write!(f, "state {other}"),
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
    /// Neither, or it could not be read. EFA ports have the link layer `Unknown`.
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

/// A slot of a port's GID table that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The slot.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// The version of RoCE that it is for, or `None` if that could not be read.
    pub version: Option<RoceVersion>,
    /// The network interface that it belongs to. InfiniBand, EFA and iWARP have none.
    pub interface: Option<String>,
    /// How that interface is related to the port.
    pub relation: Relation,
}

impl GidEntry {
    /// The RoCE addressing of this GID.
    pub fn addressing(&self) -> Option<Addressing> {
        self.version.map(|version| Addressing { version, family: self.gid.family() })
    }
}

/// How the network interface of a GID is related to the port, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Relation {
    /// The port's own interface, or a bond or VLAN above it.
    Own,
    /// Another interface, such as a macvlan or ipvlan of a pod.
    #[default]
    Other,
    /// A tunnel: packets through it are encapsulated once more, if the device can do that.
    Tunnel,
}
