//! Which ports and GIDs a job should use: pure functions of a [`Machine`], with a reason for each port and
//! GID that is not used.

use std::fmt;

use super::gid::{Addressing, Offers, RoceVersion};
use super::machine::{Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation, Verbs};
use super::name::is_nameable_device;

/// Amazon's PCI vendor number.
const AMAZON: u16 = 0x1d0f;

/// What kind of RDMA a host offers to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RdmaKind {
    /// The host has no RDMA device.
    NoDevice,
    /// The host has RDMA devices, but a job can use none of their ports.
    NoUsablePort,
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    /// Amazon's EFA. NCCL uses it through a plugin (aws-ofi-nccl), not through its own InfiniBand transport.
    Efa,
}

/// Which ports and GIDs of a machine a job should use, and why not the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice<'a> {
    /// The kind of RDMA that the job can use.
    pub kind: RdmaKind,
    /// How the ports are addressed. Only RoCE has an addressing.
    pub addressing: Option<Addressing>,
    /// Every port of every device, in the machine's order.
    pub ports: Vec<PortChoice<'a>>,
}

/// A port, and whether a job should use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortChoice<'a> {
    /// Its device.
    pub device: &'a Device,
    /// The port.
    pub port: &'a Port,
    /// Why it is not used, or `None` if it is.
    pub excluded: Option<PortReason>,
    /// Each of its GIDs, in the order of the table.
    pub gids: Vec<GidChoice<'a>>,
}

/// A GID, and whether a job should use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidChoice<'a> {
    /// The GID.
    pub entry: &'a GidEntry,
    /// Why it is not used, or `None` if it is.
    pub excluded: Option<GidReason>,
}

/// Why a port is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortReason {
    /// Its state is not ACTIVE, or could not be read.
    State(Option<PortState>),
    /// Its link layer is neither InfiniBand nor Ethernet.
    LinkLayer,
    /// Its device speaks neither InfiniBand nor RoCE, or its type could not be read.
    NodeType(Option<NodeType>),
    /// No program can use the device.
    Verbs(Verbs),
    /// NCCL's list of devices cannot carry its device's name.
    Name,
    /// None of its GIDs is an address that its interface has in this network namespace.
    NoOwnGid,
    /// Its device is made by software, and the host has hardware devices too.
    Soft,
    /// It is not InfiniBand, and the host has InfiniBand too. The two are never mixed.
    BesideInfiniBand,
    /// It is EFA, and the host has RoCE too.
    BesideRdma,
    /// It is slower than others, as ports for storage or management are. Both rates are in Mb/s.
    Slower {
        /// Its own rate, if it could be read.
        rate: Option<u32>,
        /// The rate of the ports that are used.
        best: u32,
    },
    /// It has no GID of the addressing that the other ports use.
    Addressing(Addressing),
}

/// Why a GID is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidReason {
    /// Its port is not used.
    Port,
    /// InfiniBand ports are addressed by LID, so NCCL needs no GID index for them.
    InfiniBand,
    /// It is a link-local address.
    LinkLocal,
    /// Its type could not be read.
    Type,
    /// It belongs to no network interface.
    NoInterface,
    /// No interface of this network namespace has its address.
    Foreign,
    /// This interface of the namespace has its address, but the GID belongs to another interface.
    HeldBy(String),
    /// The ports use this other addressing.
    Addressing(Addressing),
    /// It belongs to a tunnel, and another interface has a suitable GID too.
    Tunnel,
    /// It belongs to another interface, and the port's own interface has a suitable GID too.
    OtherInterface,
    /// This lower index is equally suitable.
    Higher(u32),
}

impl Machine {
    /// The ports and GIDs that a job should use on this machine.
    pub fn choose(&self) -> Choice<'_> {
        self.choose_by(None)
    }

    /// The ports and GIDs that a job should use on this machine in a world with this RoCE addressing.
    pub fn choose_for(&self, addressing: Addressing) -> Choice<'_> {
        self.choose_by(Some(addressing))
    }

    fn choose_by(&self, wanted: Option<Addressing>) -> Choice<'_> {
        let mut ports: Vec<PortChoice<'_>> = Vec::new();
        for device in &self.devices {
            ports.extend(device.ports.iter().map(|port| self.judge(device, port)));
        }
        if ports.iter().any(|port| port.excluded.is_none() && !port.device.is_soft) {
            exclude(&mut ports, |port| port.device.is_soft.then_some(PortReason::Soft));
        }
        let is = |port: &PortChoice<'_>, layer| port.excluded.is_none() && port.port.link_layer == layer;
        let infiniband = ports.iter().any(|port| is(port, LinkLayer::InfiniBand));
        let ethernet = ports.iter().any(|port| is(port, LinkLayer::Ethernet));
        if infiniband {
            exclude(&mut ports, |port| {
                (port.port.link_layer != LinkLayer::InfiniBand).then_some(PortReason::BesideInfiniBand)
            });
        } else if ethernet {
            exclude(&mut ports, |port| {
                (port.port.link_layer != LinkLayer::Ethernet).then_some(PortReason::BesideRdma)
            });
        }
        if let Some(best) = used(&ports).filter_map(|port| port.port.rate).max() {
            exclude(&mut ports, |port| {
                let rate = port.port.rate;
                (rate != Some(best)).then_some(PortReason::Slower { rate, best })
            });
        }
        let addressing = if !infiniband && ethernet { wanted.or_else(|| common(&ports)) } else { None };
        if let Some(addressing) = addressing {
            exclude(&mut ports, |port| {
                (!offers(port).has(addressing)).then_some(PortReason::Addressing(addressing))
            });
        }
        for port in &mut ports {
            settle_gids(port, addressing);
        }
        let kind = match used(&ports).next().map(|port| port.port.link_layer) {
            None if self.devices.is_empty() => RdmaKind::NoDevice,
            None => RdmaKind::NoUsablePort,
            Some(LinkLayer::InfiniBand) => RdmaKind::InfiniBand,
            Some(LinkLayer::Ethernet) => RdmaKind::Roce,
            Some(LinkLayer::Unknown) => RdmaKind::Efa,
        };
        Choice { kind, addressing, ports }
    }

    /// Judges a port without regard to the others.
    fn judge<'a>(&'a self, device: &'a Device, port: &'a Port) -> PortChoice<'a> {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| GidChoice { entry, excluded: self.foreign(port, entry) }).collect();
        let own = gids.iter().any(|gid| gid.excluded.is_none());
        let efa = is_efa(device, port);
        let excluded = if port.state != Some(PortState::ACTIVE) {
            Some(PortReason::State(port.state))
        } else if !efa && device.node_type != Some(NodeType::Ca) {
            Some(PortReason::NodeType(device.node_type))
        } else if !efa && port.link_layer == LinkLayer::Unknown {
            Some(PortReason::LinkLayer)
        } else if !matches!(device.verbs, Verbs::Open | Verbs::Untried) {
            Some(PortReason::Verbs(device.verbs.clone()))
        } else if !is_nameable_device(&device.name) {
            Some(PortReason::Name)
        } else if port.link_layer == LinkLayer::Ethernet && !own {
            Some(PortReason::NoOwnGid)
        } else {
            None
        };
        PortChoice { device, port, excluded, gids }
    }

    /// Why a GID does not belong to this network namespace, or `None` if it does. By default the kernel shows
    /// every namespace the GIDs of all, and interfaces of different namespaces may have the same name. So
    /// both the address and the interface must agree.
    fn foreign(&self, port: &Port, entry: &GidEntry) -> Option<GidReason> {
        if port.link_layer != LinkLayer::Ethernet {
            return None;
        }
        if entry.gid.is_link_local() {
            return Some(GidReason::LinkLocal);
        }
        let Some(interface) = &entry.interface else { return Some(GidReason::NoInterface) };
        if entry.version.is_none() {
            return Some(GidReason::Type);
        }
        let address = entry.gid.address();
        let mut holders = self.addresses.iter().filter(|held| held.address == address);
        if holders.clone().any(|held| held.interface == *interface) {
            return None;
        }
        Some(holders.next().map_or(GidReason::Foreign, |held| GidReason::HeldBy(held.interface.clone())))
    }
}

impl<'a> Choice<'a> {
    /// The ports that are used.
    pub fn used(&self) -> impl Iterator<Item = &PortChoice<'a>> {
        used(&self.ports)
    }

    /// The GID index that is right for all ports that are used. `None` if they need different ones, or not
    /// RoCE.
    pub fn gid_index(&self) -> Option<u32> {
        let mut indices = self.used().map(PortChoice::gid_index);
        let first = indices.next().flatten();
        first.filter(|_| indices.all(|index| index == first))
    }

    /// The rate of each port that is used, in Mb/s.
    pub fn rate(&self) -> Option<u32> {
        self.used().next().and_then(|port| port.port.rate)
    }

    /// The traffic class that the administrator has set on all ports that are used.
    pub fn traffic_class(&self) -> Option<u8> {
        let mut classes = self.used().map(|port| port.port.traffic_class);
        let first = classes.next().flatten();
        first.filter(|_| classes.all(|class| class == first))
    }
}

impl PortChoice<'_> {
    /// Whether the port is used.
    pub fn is_used(&self) -> bool {
        self.excluded.is_none()
    }

    /// The index of the GID that the port uses. Only a RoCE port has one.
    pub fn gid_index(&self) -> Option<u32> {
        self.gids.iter().find(|gid| gid.excluded.is_none()).map(|gid| gid.entry.index)
    }
}

fn used<'b, 'a>(ports: &'b [PortChoice<'a>]) -> impl Iterator<Item = &'b PortChoice<'a>> {
    ports.iter().filter(|port| port.is_used())
}

/// Excludes each port that is still used and for which `reason` returns a reason.
fn exclude(ports: &mut [PortChoice<'_>], reason: impl Fn(&PortChoice<'_>) -> Option<PortReason>) {
    for port in ports.iter_mut().filter(|port| port.excluded.is_none()) {
        port.excluded = reason(port);
    }
}

/// The addressings for which the port has own GIDs, before one of them is chosen.
fn offers(port: &PortChoice<'_>) -> Offers {
    port.gids.iter().filter(|gid| gid.excluded.is_none()).filter_map(|gid| gid.entry.addressing()).collect()
}

/// The addressing for all ports: v2 if any port has it, then the one that most ports have, then the best of
/// [`Addressing::ALL`]. NCCL has one family and one version for all devices of a process.
fn common(ports: &[PortChoice<'_>]) -> Option<Addressing> {
    let ports_with = |addressing| used(ports).filter(|port| offers(port).has(addressing)).count();
    let candidates = Addressing::ALL.into_iter().filter(|&addressing| ports_with(addressing) > 0);
    // `max_by_key` returns the last of several maxima, so reverse the order to get the best.
    candidates.rev().max_by_key(|&addressing| (addressing.version, ports_with(addressing)))
}

/// Keeps one of the port's own GIDs, and excludes the others.
fn settle_gids(port: &mut PortChoice<'_>, addressing: Option<Addressing>) {
    let infiniband = port.port.link_layer == LinkLayer::InfiniBand;
    let Some(addressing) = addressing.filter(|_| port.is_used()) else {
        let reason = if port.is_used() && infiniband { GidReason::InfiniBand } else { GidReason::Port };
        for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
            gid.excluded = Some(reason.clone());
        }
        return;
    };
    let suits = |gid: &GidChoice<'_>| gid.excluded.is_none() && gid.entry.addressing() == Some(addressing);
    let best = port.gids.iter().filter(|gid| suits(gid));
    let Some(best) = best.map(|gid| (gid.entry.relation, gid.entry.index)).min() else { return };
    for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
        let entry = gid.entry;
        gid.excluded = if entry.addressing() != Some(addressing) {
            Some(GidReason::Addressing(addressing))
        } else if entry.index == best.1 {
            None
        } else if entry.relation != best.0 {
            let tunnel = entry.relation == Relation::Tunnel;
            Some(if tunnel { GidReason::Tunnel } else { GidReason::OtherInterface })
        } else {
            Some(GidReason::Higher(best.1))
        };
    }
}

fn is_efa(device: &Device, port: &Port) -> bool {
    device.node_type == Some(NodeType::Unspecified)
        && port.link_layer == LinkLayer::Unknown
        && device.vendor.is_none_or(|vendor| vendor == AMAZON)
}

impl fmt::Display for PortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(Some(state)) => write!(f, "{state}, not ACTIVE"),
            Self::State(None) => f.write_str("its state cannot be read"),
            Self::LinkLayer => f.write_str("its link layer is neither InfiniBand nor Ethernet"),
            Self::NodeType(Some(NodeType::Rnic)) => f.write_str("iWARP, which NCCL cannot use"),
            Self::NodeType(Some(_)) => f.write_str("its device is neither InfiniBand nor RoCE"),
            Self::NodeType(None) => f.write_str("its node type cannot be read"),
            Self::Verbs(Verbs::Refused { name, reason }) => {
                write!(f, "/dev/infiniband/{name} cannot be opened: {reason}")
            }
            Self::Verbs(_) => f.write_str("no uverbs device: the module ib_uverbs is not loaded"),
            Self::Name => f.write_str("NCCL's list of devices cannot carry its name"),
            Self::NoOwnGid => f.write_str("no GID is an address of its interface in this network namespace"),
            Self::Soft => f.write_str("a software device is not used beside hardware"),
            Self::BesideInfiniBand => f.write_str("Ethernet is not used beside InfiniBand"),
            Self::BesideRdma => f.write_str("EFA is not used beside RoCE"),
            Self::Slower { rate: Some(rate), best } => {
                write!(f, "{} is slower than {}", Rate(*rate), Rate(*best))
            }
            Self::Slower { rate: None, best } => {
                write!(f, "its rate cannot be read, other ports have {}", Rate(*best))
            }
            Self::Addressing(addressing) => write!(f, "no GID for {addressing}, which the other ports use"),
        }
    }
}

impl fmt::Display for GidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("the port is not used"),
            Self::InfiniBand => f.write_str("InfiniBand needs no GID index"),
            Self::LinkLocal => f.write_str("link-local"),
            Self::Type => f.write_str("its type cannot be read"),
            Self::NoInterface => f.write_str("it belongs to no network interface"),
            Self::Foreign => f.write_str("its address belongs to another network namespace"),
            Self::HeldBy(interface) => {
                write!(f, "its address is on {interface}, so it belongs to another network namespace")
            }
            Self::Addressing(addressing) => write!(f, "{addressing} is used"),
            Self::Tunnel => f.write_str("it belongs to a tunnel, another GID does not"),
            Self::OtherInterface => f.write_str("the port's own interface has a suitable GID"),
            Self::Higher(index) => write!(f, "index {index} is equally suitable and lower"),
        }
    }
}

/// A rate in Mb/s, shown in Gb/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(
    /// In Mb/s.
    pub u32,
);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{} Gb/s", self.0 / 1000),
            rest => write!(f, "{}.{} Gb/s", self.0 / 1000, rest / 100),
        }
    }
}

impl RoceVersion {
    /// The number that NCCL_IB_ROCE_VERSION_NUM takes.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}
