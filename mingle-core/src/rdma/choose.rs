//! Which ports and GIDs a job should use: pure functions of a [`Machine`], with a reason for everything
//! that is taken or left.

use std::fmt;

use super::gid::{Addressing, Offers, RoceVersion};
use super::machine::{Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation, Verbs};
use crate::env::is_nameable;

/// Amazon's PCI vendor.
const AMAZON: u16 = 0x1d0f;

/// The longest name that the kernel gives a device (`IB_DEVICE_NAME_MAX`), and that NCCL has room for
/// (`prefix` of `struct netIf`); only a snapshot can hold a longer one.
const LONGEST_NAME: usize = 63;

/// What a host offers to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// No RDMA device at all.
    Nothing,
    /// Devices, but no port that a job could use.
    Unusable,
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    /// Amazon's EFA, which NCCL uses by a plugin (aws-ofi-nccl) and not by its own InfiniBand transport.
    Efa,
}

/// What was chosen on a machine, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice<'a> {
    /// What the job can use.
    pub kind: Kind,
    /// How the ports are addressed; for RoCE alone.
    pub addressing: Option<Addressing>,
    /// Every port of every device, in the machine's order.
    pub ports: Vec<PortChoice<'a>>,
}

/// A port, and whether it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortChoice<'a> {
    /// Its device.
    pub device: &'a Device,
    /// The port.
    pub port: &'a Port,
    /// Why it is not used; none where it is.
    pub left: Option<PortReason>,
    /// Each of its GIDs, in the order of the table.
    pub gids: Vec<GidChoice<'a>>,
}

/// A GID, and whether it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidChoice<'a> {
    /// The GID.
    pub entry: &'a GidEntry,
    /// Why it is not used; none where it is.
    pub left: Option<GidReason>,
}

/// Why a port is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortReason {
    /// Its state is not ACTIVE, or could not be read.
    State(Option<PortState>),
    /// It is connected to neither InfiniBand nor Ethernet.
    LinkLayer,
    /// It speaks something else than InfiniBand or RoCE.
    NodeType(Option<NodeType>),
    /// No program can use the device.
    Verbs(Verbs),
    /// Its name holds what NCCL's list of devices cannot.
    Name,
    /// None of its GIDs is an address that its interface holds in this network namespace.
    NoOwnGid,
    /// It is made by software, and hardware is there.
    Soft,
    /// It is no InfiniBand, and InfiniBand is there: the two are never mixed.
    BesideInfiniBand,
    /// It is EFA, and InfiniBand or RoCE is there.
    BesideRdma,
    /// It is slower than others, as one for storage or management is. Both rates in Mb/s.
    Slower {
        /// Its own, where it could be read.
        rate: Option<u32>,
        /// That of the ports that are used.
        best: u32,
    },
    /// It has no GID of the kind that the other ports have in common.
    Addressing(Addressing),
}

/// Why a GID is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidReason {
    /// Its port is not used.
    Port,
    /// InfiniBand ports are addressed by LID, and NCCL needs no index for them.
    InfiniBand,
    /// It is link-local.
    LinkLocal,
    /// Its type could not be read.
    Type,
    /// It belongs to no network interface.
    NoInterface,
    /// No interface of this network namespace holds its address.
    Foreign,
    /// Its address is held by this interface of the namespace, which is not the one it belongs to.
    HeldBy(String),
    /// The ports are addressed another way.
    Addressing(Addressing),
    /// It is a tunnel's, and another interface has one.
    Tunnel,
    /// It is another interface's, and the port's own has one.
    OtherInterface,
    /// One with a lower index is as good.
    Higher(u32),
}

impl Machine {
    /// What a job should use here.
    pub fn choose(&self) -> Choice<'_> {
        self.choose_by(None)
    }

    /// What a job should use here where the world agreed on this addressing.
    pub fn choose_for(&self, addressing: Addressing) -> Choice<'_> {
        self.choose_by(Some(addressing))
    }

    fn choose_by(&self, wanted: Option<Addressing>) -> Choice<'_> {
        let mut ports: Vec<PortChoice<'_>> = Vec::new();
        for device in &self.devices {
            ports.extend(device.ports.iter().map(|port| self.judge(device, port)));
        }
        if ports.iter().any(|port| port.left.is_none() && !port.device.is_soft) {
            leave(&mut ports, |port| port.device.is_soft.then_some(PortReason::Soft));
        }
        let is = |port: &PortChoice<'_>, layer| port.left.is_none() && port.port.link_layer == layer;
        let infiniband = ports.iter().any(|port| is(port, LinkLayer::InfiniBand));
        let ethernet = ports.iter().any(|port| is(port, LinkLayer::Ethernet));
        if infiniband {
            leave(&mut ports, |port| {
                (port.port.link_layer != LinkLayer::InfiniBand).then_some(PortReason::BesideInfiniBand)
            });
        } else if ethernet {
            leave(&mut ports, |port| {
                (port.port.link_layer != LinkLayer::Ethernet).then_some(PortReason::BesideRdma)
            });
        }
        if let Some(best) = used(&ports).filter_map(|port| port.port.rate).max() {
            leave(&mut ports, |port| {
                let rate = port.port.rate;
                (rate != Some(best)).then_some(PortReason::Slower { rate, best })
            });
        }
        let addressing = if !infiniband && ethernet { wanted.or_else(|| common(&ports)) } else { None };
        if let Some(addressing) = addressing {
            leave(&mut ports, |port| {
                (!offers(port).has(addressing)).then_some(PortReason::Addressing(addressing))
            });
        }
        for port in &mut ports {
            settle_gids(port, addressing);
        }
        let kind = match used(&ports).next().map(|port| port.port.link_layer) {
            None if self.devices.is_empty() => Kind::Nothing,
            None => Kind::Unusable,
            Some(LinkLayer::InfiniBand) => Kind::InfiniBand,
            Some(LinkLayer::Ethernet) => Kind::Roce,
            Some(LinkLayer::Unknown) => Kind::Efa,
        };
        Choice { kind, addressing, ports }
    }

    /// A port by itself.
    fn judge<'a>(&'a self, device: &'a Device, port: &'a Port) -> PortChoice<'a> {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| GidChoice { entry, left: self.foreign(port, entry) }).collect();
        let own = gids.iter().any(|gid| gid.left.is_none());
        let efa = is_efa(device, port);
        let left = if port.state != Some(PortState::ACTIVE) {
            Some(PortReason::State(port.state))
        } else if !efa && device.node_type != Some(NodeType::Ca) {
            Some(PortReason::NodeType(device.node_type))
        } else if !efa && port.link_layer == LinkLayer::Unknown {
            Some(PortReason::LinkLayer)
        } else if !matches!(device.verbs, Verbs::Open | Verbs::Untried) {
            Some(PortReason::Verbs(device.verbs.clone()))
        } else if !is_nameable(&device.name) || device.name.len() > LONGEST_NAME {
            Some(PortReason::Name)
        } else if port.link_layer == LinkLayer::Ethernet && !own {
            Some(PortReason::NoOwnGid)
        } else {
            None
        };
        PortChoice { device, port, left, gids }
    }

    /// Why a GID is not this namespace's own. With the kernel's default, every namespace sees the GIDs of
    /// all, and interfaces of other namespaces have the same names; so both must agree, address and
    /// interface.
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

    /// The index that is right for all ports that are used; for RoCE alone, and none where they differ.
    pub fn gid_index(&self) -> Option<u32> {
        let mut indices = self.used().map(PortChoice::gid_index);
        let first = indices.next().flatten();
        first.filter(|_| indices.all(|index| index == first))
    }

    /// The rate of each port that is used, in Mb/s.
    pub fn rate(&self) -> Option<u32> {
        self.used().next().and_then(|port| port.port.rate)
    }

    /// The traffic class that all ports that are used were given.
    pub fn traffic_class(&self) -> Option<u8> {
        let mut classes = self.used().map(|port| port.port.traffic_class);
        let first = classes.next().flatten();
        first.filter(|_| classes.all(|class| class == first))
    }
}

impl PortChoice<'_> {
    /// Whether the port is used.
    pub fn is_used(&self) -> bool {
        self.left.is_none()
    }

    /// The index of its GID, where it is used and RoCE.
    pub fn gid_index(&self) -> Option<u32> {
        self.gids.iter().find(|gid| gid.left.is_none()).map(|gid| gid.entry.index)
    }
}

fn used<'b, 'a>(ports: &'b [PortChoice<'a>]) -> impl Iterator<Item = &'b PortChoice<'a>> {
    ports.iter().filter(|port| port.is_used())
}

/// Leaves those of the ports that are still used for which there is a reason.
fn leave(ports: &mut [PortChoice<'_>], reason: impl Fn(&PortChoice<'_>) -> Option<PortReason>) {
    for port in ports.iter_mut().filter(|port| port.left.is_none()) {
        port.left = reason(port);
    }
}

/// What the port's own GIDs can be used for, before one of them is chosen.
fn offers(port: &PortChoice<'_>) -> Offers {
    port.gids.iter().filter(|gid| gid.left.is_none()).filter_map(|gid| gid.entry.addressing()).collect()
}

/// How the ports should be addressed: by v2 where any port can; then the way that most of them know, and of
/// these the best. NCCL has one family and one version for all devices of a process.
fn common(ports: &[PortChoice<'_>]) -> Option<Addressing> {
    let known = |addressing| used(ports).filter(|port| offers(port).has(addressing)).count();
    let candidates = Addressing::ALL.into_iter().filter(|&addressing| known(addressing) > 0);
    // The first of the largest, so the order backwards: `max_by_key` takes the last.
    candidates.rev().max_by_key(|&addressing| (addressing.version, known(addressing)))
}

/// Of the GIDs that are left, one is used.
fn settle_gids(port: &mut PortChoice<'_>, addressing: Option<Addressing>) {
    let infiniband = port.port.link_layer == LinkLayer::InfiniBand;
    let Some(addressing) = addressing.filter(|_| port.is_used()) else {
        let reason = if port.is_used() && infiniband { GidReason::InfiniBand } else { GidReason::Port };
        for gid in port.gids.iter_mut().filter(|gid| gid.left.is_none()) {
            gid.left = Some(reason.clone());
        }
        return;
    };
    let suits = |gid: &GidChoice<'_>| gid.left.is_none() && gid.entry.addressing() == Some(addressing);
    let best = port.gids.iter().filter(|gid| suits(gid));
    let Some(best) = best.map(|gid| (gid.entry.relation, gid.entry.index)).min() else { return };
    for gid in port.gids.iter_mut().filter(|gid| gid.left.is_none()) {
        let entry = gid.entry;
        gid.left = if entry.addressing() != Some(addressing) {
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
            Self::LinkLayer => f.write_str("neither InfiniBand nor Ethernet"),
            Self::NodeType(Some(NodeType::Rnic)) => f.write_str("iWARP, which NCCL cannot use"),
            Self::NodeType(Some(_)) => f.write_str("neither InfiniBand nor RoCE"),
            Self::NodeType(None) => f.write_str("its node type cannot be read"),
            Self::Verbs(Verbs::Refused { name, reason }) => {
                write!(f, "/dev/infiniband/{name} cannot be opened: {reason}")
            }
            Self::Verbs(_) => f.write_str("no uverbs device: the module ib_uverbs is not loaded"),
            Self::Name => f.write_str("NCCL cannot be told its name"),
            Self::NoOwnGid => f.write_str("no GID is an address that its interface holds here"),
            Self::Soft => f.write_str("made by software, and hardware is there"),
            Self::BesideInfiniBand => f.write_str("Ethernet is not used beside InfiniBand"),
            Self::BesideRdma => f.write_str("EFA is not used beside RoCE"),
            Self::Slower { rate: Some(rate), best } => {
                write!(f, "{} is slower than {}", Rate(*rate), Rate(*best))
            }
            Self::Slower { rate: None, best } => {
                write!(f, "its rate cannot be read, and others have {}", Rate(*best))
            }
            Self::Addressing(addressing) => write!(f, "no GID for {addressing}, which the others use"),
        }
    }
}

impl fmt::Display for GidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("the port is not used"),
            Self::InfiniBand => f.write_str("InfiniBand needs no index"),
            Self::LinkLocal => f.write_str("link-local"),
            Self::Type => f.write_str("its type cannot be read"),
            Self::NoInterface => f.write_str("it belongs to no network interface"),
            Self::Foreign => f.write_str("its address belongs to another network namespace"),
            Self::HeldBy(interface) => {
                write!(f, "its address is held by {interface}: it belongs to another network namespace")
            }
            Self::Addressing(addressing) => write!(f, "{addressing} is used"),
            Self::Tunnel => f.write_str("a tunnel's, and there is one without"),
            Self::OtherInterface => f.write_str("the port's own interface has one"),
            Self::Higher(index) => write!(f, "{index} is as good and comes first"),
        }
    }
}

/// A rate in Mb/s, as people say it.
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
    /// As NCCL_IB_ROCE_VERSION_NUM counts them.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}
