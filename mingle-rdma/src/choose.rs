//! Which ports and GIDs a job should use: pure functions of a [`Machine`], with a reason for each port and
//! GID that is not used.

use std::borrow::Cow;

use super::frequent::{common, most_frequent};
use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::group::{self, Group};
use super::machine::{Address, Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation};
use super::name::is_nameable_device;
use super::nccl::{GidRule, Pin};
use super::network::Network;
use super::summary::Capability;
use super::verdict::Transport;

/// Amazon's PCI vendor number.
const AMAZON: u16 = 0x1d0f;

/// Why a job should not use a port, a group of ports or a GID.
pub type Reason = Cow<'static, str>;

/// The reason of a RoCE port without a GID of this network namespace.
pub(super) const NO_OWN_GID: Reason =
    Cow::Borrowed("no GID is an address of its interface in this network namespace");
const UNUSED: Reason = Cow::Borrowed("the port is not used");

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
    /// What NCCL cannot do because the ports need different GID indices.
    pub gid_warning: Option<String>,
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
    pub excluded: Option<Reason>,
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
    pub excluded: Option<Reason>,
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
            let reason = "a software device is not used beside hardware";
            exclude(&mut ports, |port| port.device.is_soft.then_some(reason.into()));
        }
        let groups = group::choose(self, &mut ports, kind);
        let best = groups.iter().find(|group| group.excluded.is_none()).map(|group| group.kind);
        let is_roce = best == Some(Capability::Roce);
        let addressing = if is_roce { wanted.or_else(|| best_addressing(&ports)) } else { None };
        if let Some(addressing) = addressing {
            exclude(&mut ports, |port| {
                let is_other = !offers(port, addressing) && port.has_address();
                is_other.then(|| format!("no GID for {addressing}, which the other ports use").into())
            });
        }
        for port in &mut ports {
            self.settle_gids(port, addressing);
        }
        let gid_warning = addressing.and_then(|addressing| settle_indices(&mut ports, addressing));
        let kind = match used(&ports).next().map(|used| group::kind_of(used.port)) {
            None if self.devices.is_empty() => Capability::NoDevice,
            None => Capability::NoUsablePort,
            Some(kind) => kind,
        };
        Choice { kind, addressing, ports, groups, gid_warning }
    }

    /// Judges a port without regard to the others.
    fn judge<'a>(&'a self, device: &'a Device, port: &'a Port) -> PortChoice<'a> {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| GidChoice { entry, excluded: self.foreign(port, entry) }).collect();
        let has_own = gids.iter().any(|gid| gid.excluded.is_none());
        PortChoice { device, port, excluded: unusable(device, port, has_own), gids }
    }

    /// Why a GID does not belong to this network namespace, or `None` if it does. By default the kernel shows
    /// every namespace the GIDs of all, and interfaces of different namespaces may have the same name. So
    /// both the address and the interface must agree.
    pub(super) fn foreign(&self, port: &Port, entry: &GidEntry) -> Option<Reason> {
        if port.link_layer != LinkLayer::Ethernet {
            return None;
        }
        if entry.is_link_local() {
            return Some("link-local".into());
        }
        if entry.interface.is_none() {
            return Some("it belongs to no network interface".into());
        }
        if entry.version.is_none() {
            return Some("its type cannot be read".into());
        }
        if self.held(entry).is_some() {
            return None;
        }
        let holder = self.addresses.iter().find(|held| held.net.addr() == entry.address());
        Some(match holder {
            None => "its address belongs to another network namespace".into(),
            Some(Address { interface, .. }) => {
                format!("its address is on {interface}, so it belongs to another network namespace").into()
            }
        })
    }
}

impl<'a> Choice<'a> {
    /// The ports that a job should use.
    pub fn used(&self) -> impl Iterator<Item = &PortChoice<'a>> {
        used(&self.ports)
    }

    /// The names of the ports that are used, or of those that are not, each with its reason.
    pub fn names(&self, used: bool) -> String {
        let ports = self.ports.iter().filter(|port| port.is_used() == used);
        let names = ports.map(|port| {
            let name = port.device.name_of(port.port);
            let reason = port.excluded.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            // Names in a snapshot may have any character, and this text goes to a terminal.
            format!("{}{reason}", name.escape_debug())
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// The GID index that is right for all ports that a job should use. `None` if the ports need different
    /// indices, or are not RoCE ports.
    pub fn gid_index(&self) -> Option<u32> {
        common(self.used().map(PortChoice::gid_index))
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

    /// The traffic class that the administrator has set on all ports that a job should use.
    pub fn traffic_class(&self) -> Option<u8> {
        common(self.used().map(|port| port.port.traffic_class))
    }
}

impl<'a> PortChoice<'a> {
    /// Its GIDs that are not excluded so far.
    pub(super) fn own(&self) -> impl Iterator<Item = &'a GidEntry> {
        self.gids.iter().filter(|gid| gid.excluded.is_none()).map(|gid| gid.entry)
    }

    /// The GID that a job uses on this port.
    pub fn gid(&self) -> Option<&'a GidEntry> {
        self.own().next()
    }

    /// Whether a job should use this port.
    pub fn is_used(&self) -> bool {
        self.excluded.is_none()
    }

    /// Whether it has a GID of this host, or needs none.
    pub(super) fn has_address(&self) -> bool {
        self.port.link_layer != LinkLayer::Ethernet || self.gid().is_some()
    }

    /// Whether the port is not used because it is down.
    pub(super) fn is_down(&self) -> bool {
        self.port.state.is_some_and(|state| state != PortState::ACTIVE)
    }

    /// The index of the GID that a job uses on this port. Only RoCE ports have an index.
    pub fn gid_index(&self) -> Option<u32> {
        self.gid().map(|entry| entry.index)
    }
}

/// Why no job can use a port, whatever the others are.
fn unusable(device: &Device, port: &Port, has_own_gid: bool) -> Option<Reason> {
    let is_efa = is_efa(device, port);
    let reason = match (port.state, device.node_type, &device.unusable) {
        (None, ..) => "its state cannot be read",
        (Some(state), ..) if state != PortState::ACTIVE => {
            return Some(format!("{state}, not ACTIVE").into());
        }
        (_, None, _) if !is_efa => "its node type cannot be read",
        (_, Some(NodeType::RNIC), _) => "iWARP, which NCCL cannot use",
        (_, Some(node_type), _) if !is_efa && node_type != NodeType::CA => {
            "its device is neither InfiniBand nor RoCE"
        }
        _ if !is_efa && port.link_layer == LinkLayer::Unknown => {
            "its link layer is neither InfiniBand nor Ethernet"
        }
        (.., Some(reason)) => return Some(reason.clone().into()),
        _ if !is_nameable_device(&device.name) => "NCCL's list of devices cannot carry its name",
        _ if port.link_layer == LinkLayer::Ethernet && !has_own_gid && !has_no_address(port) => {
            return Some(NO_OWN_GID);
        }
        _ => return None,
    };
    Some(reason.into())
}

/// Whether the interface of this port is in this network namespace and has no address: NCCL uses the
/// link-local GID at index 0, as on the other hosts.
fn has_no_address(port: &Port) -> bool {
    let is_own = |entry: &GidEntry| entry.is_link_local() && entry.relation == Relation::Own;
    port.gids.first().is_some_and(|entry| entry.index == 0 && entry.version.is_some())
        && port.gids.iter().all(is_own)
}

fn used<'b, 'a>(ports: &'b [PortChoice<'a>]) -> impl Iterator<Item = &'b PortChoice<'a>> {
    ports.iter().filter(|port| port.is_used())
}

/// Excludes each port that is still used and for which `reason` returns a reason.
fn exclude(ports: &mut [PortChoice<'_>], reason: impl Fn(&PortChoice<'_>) -> Option<Reason>) {
    for port in ports.iter_mut().filter(|port| port.excluded.is_none()) {
        port.excluded = reason(port);
    }
}

/// Whether the port has an own GID for this addressing, before one of them is chosen.
fn offers(port: &PortChoice<'_>, addressing: Addressing) -> bool {
    port.own().any(|entry| entry.addressing() == Some(addressing))
}

/// The addressing for all ports: v2 if any port has it, then the one that most ports have, then the best of
/// [`Addressing::ALL`]. NCCL has one family and one version for all devices of a process.
fn best_addressing(ports: &[PortChoice<'_>]) -> Option<Addressing> {
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
    port.own().min_by_key(|entry| {
        let is_second = entry.version != Some(RoceVersion::V2);
        (is_second, entry.family() != AddressFamily::Ipv4, machine.rank(entry))
    })
}

impl Machine {
    /// How good a GID is, the best first, in the order of docs/rdma.md.
    pub(super) fn rank(&self, entry: &GidEntry) -> impl Ord + use<> {
        let held = self.held(entry);
        let network = held.map(Network::of);
        let agreed = self.agreed.iter().position(|agreed| Some(*agreed) == network);
        let preference = held.and_then(|held| held.preference);
        (
            agreed.unwrap_or(usize::MAX),
            preference.unwrap_or(usize::MAX),
            entry.relation == Relation::Tunnel,
            held.is_some_and(Address::is_link_local),
            entry.relation,
            held.and_then(|held| held.standing),
            held.is_some_and(Address::is_alone),
            entry.index,
        )
    }

    /// Keeps one of the port's own GIDs, and excludes the others.
    fn settle_gids(&self, port: &mut PortChoice<'_>, addressing: Option<Addressing>) {
        let infiniband = port.port.link_layer == LinkLayer::InfiniBand;
        let Some(addressing) = addressing.filter(|_| port.is_used()) else {
            let needs_none = port.is_used() && infiniband;
            forget_gids(port, if needs_none { "InfiniBand needs no GID index".into() } else { UNUSED });
            return;
        };
        let own = port.own().filter(|entry| entry.addressing() == Some(addressing));
        let best = own.min_by_key(|entry| self.rank(entry)).map(|entry| entry.index);
        for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
            gid.excluded = match gid.entry.addressing() {
                own if own != Some(addressing) => Some(format!("{addressing} is used").into()),
                _ if Some(gid.entry.index) == best => None,
                _ => Some("another GID comes before it".into()),
            };
        }
    }
}

fn forget_gids(port: &mut PortChoice<'_>, reason: Reason) {
    for gid in port.gids.iter_mut().filter(|gid| gid.excluded.is_none()) {
        gid.excluded = Some(reason.clone());
    }
}

/// Finds whether NCCL can use the GIDs of all ports. Where it cannot, keeps the ports that share an index.
/// Returns a warning where NCCL needs a network to choose from, or where ports with another index are given
/// up.
fn settle_indices(ports: &mut [PortChoice<'_>], addressing: Addressing) -> Option<String> {
    let with_gids: Vec<_> = used(ports).filter_map(|port| Some((port.port, port.gid()?))).collect();
    let all_have_gids = with_gids.len() == used(ports).count();
    match GidRule::new(&with_gids, addressing, Pin::IfNeeded) {
        Some(GidRule::Range(_)) => {
            return Some(
                "no GID index is right for all RoCE ports of this host, so NCCL must choose from \
                 NCCL_IB_ADDR_RANGE: that takes NCCL 2.21.5 or later, in a pod 2.26.2 or later; UCX chooses by itself"
                    .to_owned(),
            );
        }
        Some(GidRule::Own) => return None,
        // An index is right for no port without an address.
        Some(GidRule::Index(_)) if all_have_gids => return None,
        _ => {}
    }
    let used = most_frequent(with_gids.iter().map(|(_, gid)| gid.index))?;
    let mut apart = Vec::new();
    for port in ports.iter_mut().filter(|port| port.is_used() && port.gid_index() != Some(used)) {
        port.excluded = Some(port.gid_index().map_or(NO_OWN_GID, |own| {
            apart.push(format!("{} (index {own})", port.device.name_of(port.port)));
            format!("its GID has index {own}, NCCL can only use index {used} for all ports").into()
        }));
        forget_gids(port, UNUSED);
    }
    let apart = Some(apart.join(", ")).filter(|names| !names.is_empty())?;
    Some(format!(
        "{apart} cannot be used together with the other ports (index {used}): NCCL has one GID index for all \
         ports, and without one it would choose GIDs that are not this host's own"
    ))
}

fn is_efa(device: &Device, port: &Port) -> bool {
    device.node_type == Some(NodeType::UNSPECIFIED)
        && port.link_layer == LinkLayer::Unknown
        && device.card.is_none_or(|(vendor, _)| vendor == AMAZON)
}
