//! Which ports and GIDs a job should use: pure functions of a [`Machine`], with a reason for each port and
//! GID that is not used.

use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::group::{self, Group};
use super::machine::{
    Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation, Standing, Verbs,
};
use super::name::is_nameable_device;
use super::nccl::{GidRule, Pin};
use super::network::Network;
use super::reason::{GidReason, PortReason};
use super::summary::Capability;
use super::verdict::Transport;

/// Amazon's PCI vendor number.
const AMAZON: u16 = 0x1d0f;

/// Which ports and GIDs of a machine a job should use, and why it should not use the others of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice<'a> {
    /// The kind of RDMA that the job can use.
    pub kind: Capability,
    /// How the ports are addressed. Only RoCE has an addressing.
    pub addressing: Option<Addressing>,
    /// Every port of every device, in the machine's order.
    pub ports: Vec<PortChoice<'a>>,
    /// The groups of ports from which the choice was made.
    pub groups: Vec<Group>,
    /// Why NCCL uses the right GIDs of the ports. Only RoCE has such a rule.
    pub gid_rule: Option<GidRule>,
}

/// A port, and whether a job should use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortChoice<'a> {
    /// The device that has the port.
    pub device: &'a Device,
    /// The port.
    pub port: &'a Port,
    /// Why a job should not use the port; `None` if it should.
    pub excluded: Option<PortReason>,
    /// Each GID of the port, in the order of the GID table.
    pub gids: Vec<GidChoice<'a>>,
}

/// A GID, and whether a job should use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidChoice<'a> {
    /// The GID.
    pub entry: &'a GidEntry,
    /// Why a job should not use the GID; `None` if it should.
    pub excluded: Option<GidReason>,
}

impl Machine {
    /// The ports and GIDs that a job should use on this machine.
    pub fn choose(&self) -> Choice<'_> {
        self.choose_by(None, None)
    }

    /// The ports and GIDs that a job should use on this machine if its world uses this transport.
    pub fn choose_in(&self, transport: Transport) -> Choice<'_> {
        self.choose_by(transport.kind(), transport.addressing())
    }

    /// The ports and GIDs that a job should use on this machine in a world that uses this kind of RDMA, with
    /// the wanted addressing.
    pub(super) fn choose_by(&self, kind: Option<Capability>, wanted: Option<Addressing>) -> Choice<'_> {
        let mut ports: Vec<PortChoice<'_>> =
            self.ports().map(|(device, port)| self.judge(device, port)).collect();
        if ports.iter().any(|port| port.excluded.is_none() && !port.device.is_soft) {
            exclude(&mut ports, |port| port.device.is_soft.then_some(PortReason::Soft));
        }
        let groups = group::choose(self, &mut ports, kind);
        let best = groups.iter().find(|group| group.excluded.is_none()).map(|group| group.kind);
        let is_roce = best == Some(Capability::Roce);
        let addressing = if is_roce { wanted.or_else(|| common(&ports)) } else { None };
        if let Some(addressing) = addressing {
            exclude(&mut ports, |port| {
                let is_other = !offers(port, addressing) && port.has_address();
                is_other.then_some(PortReason::Addressing(addressing))
            });
        }
        for port in &mut ports {
            self.settle_gids(port, addressing);
        }
        let gid_rule = addressing.and_then(|addressing| settle_rule(&mut ports, addressing));
        let kind = match used(&ports).next().map(group::kind_of) {
            None if self.devices.is_empty() => Capability::NoDevice,
            None => Capability::NoUsablePort,
            Some(kind) => kind,
        };
        Choice { kind, addressing, ports, groups, gid_rule }
    }

    /// Whether several ports can be used, so that the choice depends on the GPUs.
    pub(super) fn has_several_ports(&self) -> bool {
        self.ports().filter(|(device, port)| self.judge(device, port).is_used()).nth(1).is_some()
    }

    /// The GID that a port of this device would use in a world with this addressing, whether or not the port
    /// is chosen. None if the port cannot be used.
    pub(crate) fn gid_of<'a>(
        &'a self,
        device: &'a Device,
        port: &'a Port,
        wanted: Addressing,
    ) -> Option<&'a GidEntry> {
        let mut judged = self.judge(device, port);
        self.settle_gids(&mut judged, Some(wanted));
        judged.is_used().then(|| judged.gid())?
    }

    /// Judges a port without regard to the others.
    fn judge<'a>(&'a self, device: &'a Device, port: &'a Port) -> PortChoice<'a> {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| GidChoice { entry, excluded: self.foreign(port, entry) }).collect();
        let own = gids.iter().any(|gid| gid.excluded.is_none());
        let efa = is_efa(device, port);
        let excluded = if port.state != Some(PortState::ACTIVE) {
            Some(PortReason::State(port.state))
        } else if !efa && device.node_type != Some(NodeType::CA) {
            Some(PortReason::NodeType(device.node_type))
        } else if !efa && port.link_layer == LinkLayer::Unknown {
            Some(PortReason::LinkLayer)
        } else if !matches!(device.verbs, Verbs::Open | Verbs::Untried) {
            Some(PortReason::Verbs(device.verbs.clone()))
        } else if !is_nameable_device(&device.name) {
            Some(PortReason::Name)
        } else if port.link_layer == LinkLayer::Ethernet && !own && !has_no_address(port) {
            Some(PortReason::NoOwnGid)
        } else {
            None
        };
        PortChoice { device, port, excluded, gids }
    }

    /// Why a GID does not belong to this network namespace, or `None` if it does. By default the kernel shows
    /// every namespace the GIDs of all, and interfaces of different namespaces may have the same name. So
    /// both the address and the interface must agree.
    pub(super) fn foreign(&self, port: &Port, entry: &GidEntry) -> Option<GidReason> {
        if port.link_layer != LinkLayer::Ethernet {
            return None;
        }
        if entry.gid.is_link_local() {
            return Some(GidReason::LinkLocal);
        }
        if entry.interface.is_none() {
            return Some(GidReason::NoInterface);
        }
        if entry.version.is_none() {
            return Some(GidReason::Type);
        }
        if self.held(entry).is_some() {
            return None;
        }
        let holder = self.addresses.iter().find(|held| held.net.addr() == entry.gid.address());
        Some(holder.map_or(GidReason::Foreign, |held| GidReason::HeldBy(held.interface.clone())))
    }
}

impl<'a> Choice<'a> {
    /// The ports that a job should use.
    pub fn used(&self) -> impl Iterator<Item = &PortChoice<'a>> {
        used(&self.ports)
    }

    /// The GID index that is right for all ports that a job should use. `None` if the ports need different
    /// indices, or are not RoCE ports.
    pub fn gid_index(&self) -> Option<u32> {
        let mut indices = self.used().map(PortChoice::gid_index);
        let first = indices.next().flatten();
        first.filter(|_| indices.all(|index| index == first))
    }

    /// The ports that are used, each with its GID.
    pub(super) fn gids(&self) -> Vec<(&'a Port, &'a GidEntry)> {
        self.used().filter_map(|port| Some((port.port, port.gid()?))).collect()
    }

    /// What the ports that are used carry together, in Mb/s.
    pub(super) fn bandwidth(&self) -> u32 {
        let used = self.groups.iter().filter(|group| group.excluded.is_none());
        used.fold(0, |total, group| total.saturating_add(group.bandwidth))
    }

    /// The rate of the slowest port that a job should use, in Mb/s.
    pub fn rate(&self) -> Option<u32> {
        self.used().map(|port| port.port.rate).min()?
    }

    /// The traffic class that the administrator has set on all ports that a job should use.
    pub fn traffic_class(&self) -> Option<u8> {
        let mut classes = self.used().map(|port| port.port.traffic_class);
        let first = classes.next().flatten();
        first.filter(|_| classes.all(|class| class == first))
    }
}

impl<'a> PortChoice<'a> {
    /// The GID that a job uses on this port.
    pub fn gid(&self) -> Option<&'a GidEntry> {
        self.gids.iter().find(|gid| gid.excluded.is_none()).map(|gid| gid.entry)
    }

    /// Whether a job should use this port.
    pub fn is_used(&self) -> bool {
        self.excluded.is_none()
    }

    /// Whether it has a GID of this host, or needs none.
    pub(super) fn has_address(&self) -> bool {
        self.port.link_layer != LinkLayer::Ethernet || self.gids.iter().any(|gid| gid.excluded.is_none())
    }

    /// Whether the port is not used because it is down.
    pub(super) fn is_down(&self) -> bool {
        matches!(&self.excluded, Some(PortReason::State(Some(state))) if *state != PortState::ACTIVE)
    }

    /// The index of the GID that a job uses on this port. Only RoCE ports have an index.
    pub fn gid_index(&self) -> Option<u32> {
        self.gid().map(|entry| entry.index)
    }
}

/// Whether the interface of this port is in this network namespace and has no address: NCCL uses the
/// link-local GID at index 0, as on the other hosts.
fn has_no_address(port: &Port) -> bool {
    let is_own = |entry: &GidEntry| entry.gid.is_link_local() && entry.relation == Relation::Own;
    port.gids.first().is_some_and(|entry| entry.index == 0 && entry.version.is_some())
        && port.gids.iter().all(is_own)
}

fn used<'b, 'a>(ports: &'b [PortChoice<'a>]) -> impl Iterator<Item = &'b PortChoice<'a>> {
    ports.iter().filter(|port| port.is_used())
}

/// Excludes each port that is still used and for which `reason` returns a reason.
pub(super) fn exclude(ports: &mut [PortChoice<'_>], reason: impl Fn(&PortChoice<'_>) -> Option<PortReason>) {
    for port in ports.iter_mut().filter(|port| port.excluded.is_none()) {
        port.excluded = reason(port);
    }
}

/// Whether the port has an own GID for this addressing, before one of them is chosen.
fn offers(port: &PortChoice<'_>, addressing: Addressing) -> bool {
    port.gids.iter().any(|gid| gid.excluded.is_none() && gid.entry.addressing() == Some(addressing))
}

/// The addressing for all ports: v2 if any port has it, then the one that most ports have, then the best of
/// [`Addressing::ALL`]. NCCL has one family and one version for all devices of a process.
fn common(ports: &[PortChoice<'_>]) -> Option<Addressing> {
    let ports_with = |addressing| used(ports).filter(|port| offers(port, addressing)).count();
    let candidates = Addressing::ALL.into_iter().filter(|&addressing| ports_with(addressing) > 0);
    // `max_by_key` returns the last of several maxima, so reverse the order to get the best.
    candidates.rev().max_by_key(|&addressing| (addressing.version, ports_with(addressing)))
}

/// The own GID of a port that its network is known by, before an addressing is chosen.
pub(super) fn own_gid<'a>(machine: &Machine, port: &PortChoice<'a>) -> Option<&'a GidEntry> {
    if port.port.link_layer != LinkLayer::Ethernet {
        return None;
    }
    let own = port.gids.iter().filter(|gid| gid.excluded.is_none()).map(|gid| gid.entry);
    own.min_by_key(|entry| {
        let is_second = entry.version != Some(RoceVersion::V2);
        (is_second, entry.gid.family() != AddressFamily::Ipv4, machine.rank(entry))
    })
}

/// How good a GID is, the best first: whether the world has agreed on its network, whether the user has
/// chosen its address, the interface's relation to the port, and what is known about the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GidRank {
    agreed: usize,
    preference: usize,
    is_tunnel: bool,
    /// Whether the host gave itself the address for lack of another (RFC 3927).
    is_makeshift: bool,
    relation: Relation,
    standing: Option<Standing>,
    is_alone: bool,
    index: u32,
}

impl Machine {
    pub(super) fn rank(&self, entry: &GidEntry) -> GidRank {
        let held = self.held(entry);
        let network = held.map(Network::of);
        let agreed = self.agreed.iter().position(|agreed| Some(*agreed) == network);
        let preference = self.preferred.iter().find(|(_, chosen)| Some(chosen) == held);
        GidRank {
            agreed: agreed.unwrap_or(usize::MAX),
            preference: preference.map_or(usize::MAX, |(place, _)| *place),
            is_tunnel: entry.relation == Relation::Tunnel,
            is_makeshift: held.is_some_and(super::Address::is_link_local),
            relation: entry.relation,
            standing: held.and_then(|held| held.standing),
            is_alone: held.is_some_and(super::Address::is_alone),
            index: entry.index,
        }
    }

    /// Keeps one of the port's own GIDs, and excludes the others.
    fn settle_gids(&self, port: &mut PortChoice<'_>, addressing: Option<Addressing>) {
        let infiniband = port.port.link_layer == LinkLayer::InfiniBand;
        let Some(addressing) = addressing.filter(|_| port.is_used()) else {
            let reason = if port.is_used() && infiniband { GidReason::InfiniBand } else { GidReason::Port };
            forget_gids(port, &reason);
            return;
        };
        let suits =
            |gid: &GidChoice<'_>| gid.excluded.is_none() && gid.entry.addressing() == Some(addressing);
        let best = port.gids.iter().filter(|gid| suits(gid)).map(|gid| self.rank(gid.entry)).min();
        for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
            let own = self.rank(gid.entry);
            gid.excluded = match best {
                _ if gid.entry.addressing() != Some(addressing) => Some(GidReason::Addressing(addressing)),
                Some(best) if own != best => Some(own.reason(best)),
                _ => None,
            };
        }
    }
}

impl GidRank {
    /// Why a GID of this rank comes after the best.
    fn reason(self, best: Self) -> GidReason {
        match self {
            _ if self.agreed != best.agreed => GidReason::Network,
            _ if self.preference != best.preference => GidReason::NotChosen,
            _ if self.is_tunnel != best.is_tunnel => GidReason::Tunnel,
            _ if self.is_makeshift != best.is_makeshift => GidReason::LinkLocal,
            _ if self.relation != best.relation => GidReason::OtherInterface,
            Self { standing: Some(standing), .. } if best.standing != Some(standing) => {
                GidReason::Standing(standing)
            }
            _ if self.is_alone != best.is_alone => GidReason::Alone,
            _ => GidReason::Higher(best.index),
        }
    }
}

fn forget_gids(port: &mut PortChoice<'_>, reason: &GidReason) {
    for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
        gid.excluded = Some(reason.clone());
    }
}

/// Finds how NCCL comes to use the GIDs of all ports. Where it cannot, keeps the ports that share an index.
fn settle_rule(ports: &mut [PortChoice<'_>], addressing: Addressing) -> Option<GidRule> {
    let with_gids: Vec<_> = used(ports).filter_map(|port| Some((port.port, port.gid()?))).collect();
    if with_gids.is_empty() {
        return None;
    }
    let (rule, all) = (GidRule::new(&with_gids, addressing, Pin::IfNeeded), used(ports).count());
    // An index is right for no port without an address.
    if rule.is_some_and(|rule| all == with_gids.len() || !matches!(rule, GidRule::Index(_))) {
        return rule;
    }
    let sharing = |index| with_gids.iter().filter(|(_, gid)| gid.index == index).count();
    // Of several maxima the one of the first port.
    let used = with_gids.iter().rev().map(|(_, gid)| gid.index).max_by_key(|index| sharing(*index))?;
    exclude(ports, |port| match port.gid_index() {
        Some(own) => (own != used).then_some(PortReason::Index { own, used }),
        None => Some(PortReason::NoOwnGid),
    });
    for port in ports.iter_mut().filter(|port| !port.is_used()) {
        forget_gids(port, &GidReason::Port);
    }
    Some(GidRule::Index(used))
}

fn is_efa(device: &Device, port: &Port) -> bool {
    device.node_type == Some(NodeType::UNSPECIFIED)
        && port.link_layer == LinkLayer::Unknown
        && device.vendor.is_none_or(|vendor| vendor == AMAZON)
}
