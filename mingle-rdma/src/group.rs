//! The groups of ports among which a host chooses, and what a job gains by each. The ports of a group have
//! the same kind of RDMA, the same card and the same rate, and are in one network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::IpNet;

use super::choose::{PortChoice, own_gid};
use super::machine::{LinkLayer, Machine};
use super::pci::{self, Distance};
use super::reason::{GroupReason, PortReason};
use super::summary::Capability;

/// A group of ports of a machine, and whether a job should use it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The kind of RDMA that the ports support.
    pub kind: Capability,
    /// The PCI vendor and device of the cards. None if the cards differ or are unknown.
    pub card: Option<(u16, u16)>,
    /// The rate of each port that runs at full speed, in Mb/s.
    pub rate: Option<u32>,
    /// The ports, by their names in NCCL_IB_HCA.
    pub ports: Vec<String>,
    /// The bandwidth of all ports together, in Mb/s.
    pub bandwidth: u32,
    /// How many GPUs have a port of the group nearby (PIX or PXB).
    pub gpus: usize,
    /// Why a job should not use the group; `None` if it should.
    pub excluded: Option<GroupReason>,
}

/// What the choice needs to know about a port.
struct PortFacts {
    /// Its place among all ports.
    place: usize,
    kind: Capability,
    card: Option<(u16, u16)>,
    rate: Option<u32>,
    network: Option<Subnet>,
    /// The GPUs that are near, by their places in the machine's list.
    near: BTreeSet<usize>,
    has_default_route: bool,
    is_of_rendezvous: bool,
    physical: Physical,
    /// Its PCI address.
    address: Option<String>,
    /// What its PCIe link passes of its rate.
    carries: u32,
}

/// A network: that of an address, or an InfiniBand subnet's prefix.
type Subnet = (bool, IpNet);

/// The physical port behind a port. Several functions of a card may share it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Physical {
    card: String,
    function: String,
    number: u32,
}

/// A group while the choice is made.
struct Draft<'a> {
    group: Group,
    ports: Vec<&'a PortFacts>,
    /// Those that are left out, and why.
    outsiders: Vec<Outsider<'a>>,
    /// What the ports carry with those that have died.
    whole: u32,
}

type Outsider<'a> = (&'a PortFacts, PortReason);

/// Chooses a group, of this kind if the world uses that, and excludes the ports of the others.
pub(super) fn choose(
    machine: &Machine,
    ports: &mut [PortChoice<'_>],
    kind: Option<Capability>,
) -> Vec<Group> {
    let facts = without_address(facts(machine, ports), ports);
    let nearness_says = facts.iter().any(|port| !port.near.is_empty());
    let groups =
        split(&facts, &networks(machine, ports)).into_iter().map(|of_group| Draft::new(of_group, ports));
    let mut groups: Vec<Draft<'_>> = groups.collect();
    mourn(&mut groups, machine, ports);
    settle(&mut groups, nearness_says);
    if let Some(kind) = kind
        && !groups.iter().any(|group| group.is_left() && group.group.kind == kind)
    {
        for group in &mut groups {
            group.group.excluded = (group.group.kind != kind).then_some(GroupReason::World);
        }
        settle(&mut groups, nearness_says);
    }
    let shown = groups.iter().map(|draft| draft.group.clone()).collect();
    for group in &groups {
        if let Some(lost) = group.group.excluded {
            for port in group.ports.iter().chain(group.outsiders.iter().map(|(port, _)| port)) {
                ports[port.place].excluded = Some(PortReason::Group(lost));
            }
        } else {
            for (port, reason) in &group.outsiders {
                ports[port.place].excluded = Some(reason.clone());
            }
        }
    }
    shown
}

/// A port without an IP address stays where none with an address can do its job: where it shares a cable with
/// one, as the twins of a DGX Spark do, is the only one near to a GPU, or where no port has an address.
fn without_address(mut facts: Vec<PortFacts>, ports: &mut [PortChoice<'_>]) -> Vec<PortFacts> {
    let with = facts.iter().filter(|fact| fact.kind == Capability::Roce && ports[fact.place].has_address());
    let with: Vec<&PortFacts> = with.collect();
    let served = near(&with);
    let cables: BTreeSet<Physical> = with.iter().map(|port| port.physical.clone()).collect();
    facts.retain(|fact| {
        let port = &mut ports[fact.place];
        if !port.has_address() && cables.is_empty() {
            port.gids[0].excluded = None;
        } else if !port.has_address() && !cables.contains(&fact.physical) && fact.near.is_subset(&served) {
            port.excluded = Some(PortReason::NoOwnGid);
        }
        port.is_used()
    });
    facts
}

pub(super) fn kind_of(port: &PortChoice<'_>) -> Capability {
    match port.port.link_layer {
        LinkLayer::InfiniBand => Capability::InfiniBand,
        LinkLayer::Ethernet => Capability::Roce,
        LinkLayer::Unknown => Capability::Efa,
    }
}

fn facts(machine: &Machine, ports: &[PortChoice<'_>]) -> Vec<PortFacts> {
    let usable = || ports.iter().enumerate().filter(|(_, port)| port.is_used());
    let distances = usable().flat_map(|(_, port)| machine.gpus.iter().map(|gpu| gpu.distance(port.device)));
    // Where all distances are the same, as in many virtual machines, none says anything.
    let says = distances.collect::<BTreeSet<_>>().len() > 1;
    let mut addresses = BTreeMap::new();
    usable()
        .map(|(place, port)| {
            let near = machine.gpus.iter().enumerate().filter(|(_, gpu)| {
                says && gpu.distance(port.device).is_some_and(|distance| distance <= Distance::Switches)
            });
            let is_of = |name: &str| interfaces(port).any(|own| name == own);
            let rate = port.port.rate;
            // Ports with the same address are the two halves of a bond.
            let address = own_gid(machine, port).map(|entry| entry.gid);
            let pci = port.device.pci.as_deref().map(pci::function);
            let physical = address.map_or_else(
                || physical(port),
                |address| addresses.entry(address).or_insert_with(|| physical(port)).clone(),
            );
            PortFacts {
                place,
                kind: kind_of(port),
                card: port.device.card,
                rate,
                network: network(machine, port),
                near: near.map(|(at, _)| at).collect(),
                has_default_route: machine.default_routes.iter().any(|name| is_of(name)),
                is_of_rendezvous: machine.preferred.iter().any(|(_, held)| is_of(&held.interface)),
                physical,
                address: pci.and_then(|path| path.rsplit('/').next()).map(str::to_owned),
                carries: rate.unwrap_or(0).min(port.device.link.unwrap_or(u32::MAX)),
            }
        })
        .collect()
}

/// The interfaces of a port. Those of RoCE come from its own GIDs: sysfs may name those of another namespace.
fn interfaces<'a>(port: &'a PortChoice<'_>) -> impl Iterator<Item = &'a str> {
    let own = port.gids.iter().filter(|gid| gid.excluded.is_none());
    let of_gids = own.filter_map(|gid| gid.entry.interface.as_deref());
    let is_infiniband = port.port.link_layer == LinkLayer::InfiniBand && port.device.ports.len() == 1;
    let of_device = if is_infiniband { port.device.interfaces.as_slice() } else { &[] };
    of_gids.chain(of_device.iter().map(String::as_str))
}

fn physical(port: &PortChoice<'_>) -> Physical {
    let device = port.device;
    let path = device.physical.as_deref().or(device.pci.as_deref()).map(pci::function);
    let (card, function) = match (path, &device.card_guid) {
        (Some(path), Some(guid)) => (guid.clone(), path.rsplit('.').next().unwrap_or(path).to_owned()),
        (Some(path), None) => (path.to_owned(), String::new()),
        (None, _) => (device.name.clone(), String::new()),
    };
    Physical { card, function, number: port.port.number }
}

/// The network of a port, as far as it is known.
fn network(machine: &Machine, port: &PortChoice<'_>) -> Option<Subnet> {
    if port.port.link_layer == LinkLayer::InfiniBand {
        let gid = Ipv6Addr::from(port.port.gids.first()?.gid.0);
        return Some((true, IpNet::new(gid.into(), 64).ok()?.trunc()));
    }
    machine.held(own_gid(machine, port)?).map(|held| (false, held.net.trunc()))
}

/// How many ports each network has, by the card. Ports that are down count: they are in their network too.
type Networks = BTreeMap<(Option<(u16, u16)>, Option<Subnet>), usize>;

fn networks(machine: &Machine, ports: &[PortChoice<'_>]) -> Networks {
    let mut networks = Networks::new();
    for port in ports {
        let network = network(machine, port);
        if port.is_used() || port.is_down() && network.is_some() {
            *networks.entry((port.device.card, network)).or_default() += 1;
        }
    }
    networks
}

/// The ports by kind, then by rate, card and network. Parts stay together where each serves GPUs of its own.
fn split<'a>(facts: &'a [PortFacts], networks: &Networks) -> Vec<Vec<&'a PortFacts>> {
    let kinds = parts(facts.iter().collect(), |port| port.kind);
    let rates = kinds.into_iter().flat_map(|ports| joined(parts(ports, |port| port.rate), is_slowed));
    let cards = rates.flat_map(|ports| joined(parts(ports, |port| port.card), each_serves));
    let of_network = |ports: Vec<&'a PortFacts>| {
        let cards: BTreeSet<_> = ports.iter().map(|port| port.card).collect();
        // Networks with more or fewer ports than others serve another purpose.
        let size = |port: &PortFacts| -> usize {
            cards.iter().filter_map(|card| networks.get(&(*card, port.network))).sum()
        };
        // A port without an address belongs to the others.
        let most = ports.iter().filter(|port| port.network.is_some()).map(|port| size(port)).max();
        let key = |port: &PortFacts| if port.network.is_some() { Some(size(port)) } else { most };
        joined(parts(ports, key), each_serves)
    };
    let mut groups: Vec<_> = cards.flat_map(of_network).collect();
    groups.sort_by_key(|ports| ports[0].place);
    groups
}

fn parts<K: Ord>(ports: Vec<&PortFacts>, key: impl Fn(&PortFacts) -> K) -> Vec<Vec<&PortFacts>> {
    let mut parts: BTreeMap<K, Vec<&PortFacts>> = BTreeMap::new();
    for port in ports {
        parts.entry(key(port)).or_default().push(port);
    }
    parts.into_values().rev().collect()
}

/// Joins those parts that belong `together`.
fn joined(
    parts: Vec<Vec<&PortFacts>>,
    together: impl Fn(&[&PortFacts], &[&PortFacts]) -> bool,
) -> Vec<Vec<&PortFacts>> {
    let mut groups: Vec<Vec<&PortFacts>> = Vec::new();
    for part in parts {
        match groups.iter_mut().find(|group| together(group, &part)) {
            Some(group) => group.extend(part),
            None => groups.push(part),
        }
    }
    for group in &mut groups {
        group.sort_unstable_by_key(|port| port.place);
    }
    groups
}

/// Whether each of the two has a port near to a GPU to which the other has none. NCCL uses both.
fn each_serves(ports: &[&PortFacts], others: &[&PortFacts]) -> bool {
    let (own, theirs) = (near(ports), near(others));
    !own.is_subset(&theirs) && !theirs.is_subset(&own)
}

/// Whether these slower ports are of the same rails: each would run at the rate of the others if its cable
/// were whole. NCCL uses all, and a rank without a rail crosses to another one, which few networks route.
fn is_slowed(ports: &[&PortFacts], slower: &[&PortFacts]) -> bool {
    let is_same_card = ports.iter().any(|port| port.card == slower[0].card);
    let is_unknown = near(ports).is_empty() && near(slower).is_empty();
    is_same_card && (each_serves(ports, slower) || is_unknown && slower.len() < ports.len())
}

fn near(ports: &[&PortFacts]) -> BTreeSet<usize> {
    ports.iter().flat_map(|port| port.near.iter().copied()).collect()
}

/// Leaves out the ports of a front end: few have the default route, or are far from every GPU, where most
/// others are different.
fn without_outsiders(ports: Vec<&PortFacts>) -> (Vec<&PortFacts>, Vec<Outsider<'_>>) {
    let all = ports.len();
    let is_rare = |is: &dyn Fn(&PortFacts) -> bool| {
        let others = ports.iter().filter(|port| !is(port)).count();
        others * 2 > all && others < all
    };
    let rare_route = is_rare(&|port| port.has_default_route);
    let rare_rendezvous = is_rare(&|port| port.is_of_rendezvous);
    let rare_distance = is_rare(&|port| port.near.is_empty());
    // A GPU keeps its only near port, whatever else that port is for. Any may be that where none is known.
    let is_needed = |port: &PortFacts| {
        let is_only = |gpu| ports.iter().filter(|other| other.near.contains(gpu)).count() == 1;
        port.near.iter().any(is_only) || near(&ports).is_empty()
    };
    let reason = |port: &PortFacts| match port {
        port if rare_distance && port.near.is_empty() => Some(PortReason::Far),
        port if rare_route && port.has_default_route && !is_needed(port) => Some(PortReason::FrontEnd),
        port if rare_rendezvous && port.is_of_rendezvous && !is_needed(port) => Some(PortReason::Rendezvous),
        _ => None,
    };
    let out: Vec<_> = ports.iter().filter_map(|port| Some((*port, reason(port)?))).collect();
    let kept = ports.iter().copied().filter(|port| reason(port).is_none()).collect();
    (kept, out)
}

/// Adds what the dead ports of each group would carry. Otherwise a host with a dead port could choose another
/// group than all other hosts, and all would use sockets.
fn mourn(groups: &mut [Draft<'_>], machine: &Machine, ports: &[PortChoice<'_>]) {
    for port in ports.iter().filter(|port| is_dead(machine, port)) {
        let is_like = |group: &&mut Draft<'_>| {
            group
                .ports
                .first()
                .is_some_and(|first| (first.kind, first.card) == (kind_of(port), port.device.card))
        };
        // Of several groups of this card, the one with the most ports.
        let group = groups.iter_mut().filter(is_like).max_by_key(|group| group.ports.len());
        if let Some(group) = group {
            let carries = group.ports.first().map_or(0, |first| first.carries);
            group.whole = group.whole.saturating_add(carries);
        }
    }
}

/// Whether a port is down although somebody has given its interface an address. An unused port has none.
fn is_dead(machine: &Machine, port: &PortChoice<'_>) -> bool {
    let has_address = || {
        interfaces(port)
            .any(|own| machine.addresses.iter().any(|held| held.interface == own && !held.is_link_local()))
    };
    port.is_down() && !port.device.is_soft && has_address()
}

/// Notes which groups lose, and why. Of those within a quarter of the largest bandwidth nearness decides,
/// then the default route, then the kind.
fn settle(groups: &mut [Draft<'_>], nearness_says: bool) {
    let left = groups.iter().filter(|group| group.is_left());
    let most = left.map(|group| group.whole).max().unwrap_or(0);
    let is_close = |own: u32| u64::from(own) * 4 >= u64::from(most) * 3;
    lose(
        groups,
        |group| is_close(group.whole),
        |group| GroupReason::Bandwidth { own: group.whole, best: most },
    );
    let left = |groups: &[Draft<'_>]| groups.iter().filter(|group| group.is_left()).count();
    let gpus = groups.iter().filter(|group| group.is_left()).map(|group| group.group.gpus).max().unwrap_or(0);
    lose(
        groups,
        |group| group.group.gpus == gpus,
        |group| GroupReason::Gpus { own: group.group.gpus, best: gpus },
    );
    let routed = |group: &Draft<'_>| group.ports.iter().any(|port| port.has_default_route);
    lose(groups, |group| !routed(group) || !nearness_says, |_| GroupReason::DefaultRoute);
    lose(groups, |group| group.group.kind == Capability::InfiniBand, |_| GroupReason::Kind);
    if nearness_says && left(groups) > 1 {
        // Each has a port near to the same GPUs, so using both gains nothing.
        let left = groups.iter().filter(|group| group.is_left());
        let first = left.filter_map(Draft::address).min().map(str::to_owned);
        lose(groups, |group| group.address() == first.as_deref(), |_| GroupReason::PciAddress);
        return;
    }
    // Nothing says what the ports are for: all of the best kind and the highest rate are used.
    lose(groups, |group| group.group.kind == Capability::Roce, |_| GroupReason::Kind);
    let rates = groups.iter().filter(|group| group.is_left()).map(|group| group.group.rate);
    let best = rates.max().flatten();
    lose(
        groups,
        |group| group.group.rate == best,
        |group| GroupReason::Rate { own: group.group.rate.unwrap_or(0), best: best.unwrap_or(0) },
    );
}

/// Those of the remaining groups lose that do not `win`, if any does.
fn lose(
    groups: &mut [Draft<'_>],
    wins: impl Fn(&Draft<'_>) -> bool,
    reason: impl Fn(&Draft<'_>) -> GroupReason,
) {
    if groups.iter().any(|group| group.is_left() && wins(group)) {
        for group in groups.iter_mut().filter(|group| group.is_left()) {
            group.group.excluded = if wins(group) { None } else { Some(reason(group)) };
        }
    }
}

impl<'a> Draft<'a> {
    fn new(ports: Vec<&'a PortFacts>, choices: &[PortChoice<'_>]) -> Self {
        let (ports, outsiders) = without_outsiders(ports);
        let whole = bandwidth(&ports);
        let name = |port: &&PortFacts| {
            let PortChoice { device, port, .. } = &choices[port.place];
            device.name_of(port)
        };
        let card = ports.first().and_then(|port| port.card);
        let group = Group {
            kind: ports.first().map_or(Capability::NoUsablePort, |port| port.kind),
            card: card.filter(|_| ports.iter().all(|port| port.card == card)),
            rate: ports.iter().filter_map(|port| port.rate).max(),
            ports: ports.iter().map(name).collect(),
            bandwidth: whole,
            gpus: near(&ports).len(),
            excluded: None,
        };
        Self { group, ports, outsiders, whole }
    }

    /// Whether no other group has won over this one.
    fn is_left(&self) -> bool {
        self.group.excluded.is_none()
    }

    /// The lowest PCI address of a port.
    fn address(&self) -> Option<&str> {
        self.ports.iter().filter_map(|port| port.address.as_deref()).min()
    }
}

/// What ports carry together: several functions of one physical port carry no more than that port.
fn bandwidth(ports: &[&PortFacts]) -> u32 {
    let mut physical: BTreeMap<&Physical, (u32, u32)> = BTreeMap::new();
    for port in ports {
        let (sum, most) = physical.entry(&port.physical).or_default();
        *sum = sum.saturating_add(port.carries);
        *most = port.rate.unwrap_or(0).max(*most);
    }
    physical.values().fold(0, |total, (sum, most)| total.saturating_add(*sum.min(most)))
}
