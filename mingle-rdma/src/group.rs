//! The groups of ports among which a host chooses, and what a job gains by each. The ports of a group have
//! the same kind of RDMA, the same card and the same rate, and are in one network.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::choose::{NO_OWN_GID, PortChoice, Reason, own_gid};
use super::frequent::common;
use super::machine::{Device, LinkLayer, Machine, Port, Rate};
use super::pci::{self, Distance};
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
    pub excluded: Option<Reason>,
}

/// What the choice needs to know about a port.
struct PortFacts<'a> {
    /// Its place among all ports.
    place: usize,
    device: &'a Device,
    port: &'a Port,
    /// That of its address, or InfiniBand's subnet.
    network: Option<IpNet>,
    /// The GPUs that are near, by their places in the machine's list.
    near: BTreeSet<usize>,
    has_default_route: bool,
    is_of_rendezvous: bool,
    physical: Physical<'a>,
}

/// The physical port behind a port: its card, function and number. Several functions of a card may share it.
type Physical<'a> = (&'a str, &'a str, u32);

/// A group while the choice is made.
struct Draft<'a> {
    group: Group,
    ports: Vec<&'a PortFacts<'a>>,
    /// Those that are left out, and why.
    outsiders: Vec<(&'a PortFacts<'a>, &'static str)>,
    /// What the ports carry with those that have died.
    whole: u32,
}

/// Chooses a group, of this kind if the world uses that, and excludes the ports of the others.
pub(super) fn choose(
    machine: &Machine,
    ports: &mut [PortChoice<'_>],
    kind: Option<Capability>,
) -> Vec<Group> {
    let facts = without_address(facts(machine, ports), ports);
    let nearness_says = facts.iter().any(|port| !port.near.is_empty());
    let mut groups: Vec<Draft<'_>> =
        split(&facts, &networks(machine, ports)).into_iter().map(Draft::new).collect();
    mourn(&mut groups, machine, ports);
    settle(&mut groups, nearness_says);
    if let Some(kind) = kind
        && !groups.iter().any(|group| group.is_left() && group.group.kind == kind)
    {
        for group in &mut groups {
            let is_other = group.group.kind != kind;
            group.group.excluded = is_other.then_some("all ranks use another kind of RDMA".into());
        }
        settle(&mut groups, nearness_says);
    }
    for Draft { group, ports: members, outsiders, .. } in &groups {
        for member in members {
            ports[member.place].excluded.clone_from(&group.excluded);
        }
        for (outsider, reason) in outsiders {
            ports[outsider.place].excluded = group.excluded.clone().or(Some((*reason).into()));
        }
    }
    groups.into_iter().map(|draft| draft.group).collect()
}

/// A port without an IP address stays where none with an address can do its job: where it shares a cable with
/// one, as the twins of a DGX Spark do, is the only one near to a GPU, or where no port has an address.
fn without_address<'a>(mut facts: Vec<PortFacts<'a>>, ports: &mut [PortChoice<'_>]) -> Vec<PortFacts<'a>> {
    let has_address =
        |fact: &&PortFacts<'_>| kind_of(fact.port) == Capability::Roce && ports[fact.place].has_address();
    let with: Vec<&PortFacts<'_>> = facts.iter().filter(has_address).collect();
    let served = near(&with);
    let cables: BTreeSet<Physical<'_>> = with.iter().map(|port| port.physical).collect();
    facts.retain(|fact| {
        let port = &mut ports[fact.place];
        if !port.has_address() && cables.is_empty() {
            port.gids[0].excluded = None;
        } else if !port.has_address() && !cables.contains(&fact.physical) && fact.near.is_subset(&served) {
            port.excluded = Some(NO_OWN_GID);
        }
        port.is_used()
    });
    facts
}

pub(super) fn kind_of(port: &Port) -> Capability {
    match port.link_layer {
        LinkLayer::InfiniBand => Capability::InfiniBand,
        LinkLayer::Ethernet => Capability::Roce,
        LinkLayer::Unknown => Capability::Efa,
    }
}

fn facts<'a>(machine: &Machine, ports: &[PortChoice<'a>]) -> Vec<PortFacts<'a>> {
    let usable = || ports.iter().enumerate().filter(|(_, port)| port.is_used());
    let distances = usable().flat_map(|(_, port)| machine.gpus.iter().map(|gpu| gpu.distance(port.device)));
    // Where all distances are the same, as in many virtual machines, none says anything.
    let says = distances.collect::<BTreeSet<_>>().len() > 1;
    let mut addresses = BTreeMap::new();
    let fact = |(place, choice): (usize, &PortChoice<'a>)| {
        let PortChoice { device, port, .. } = *choice;
        let near = machine.gpus.iter().enumerate().filter(|(_, gpu)| {
            says && gpu.distance(device).is_some_and(|distance| distance <= Distance::Switches)
        });
        let is_of = |name: &str| interfaces(choice).any(|own| name == own);
        let mut preferred = machine.addresses.iter().filter(|held| held.preference.is_some());
        let own = physical(device, port);
        PortFacts {
            place,
            device,
            port,
            network: network(machine, choice),
            near: near.map(|(at, _)| at).collect(),
            has_default_route: machine.default_routes.iter().any(|name| is_of(name)),
            is_of_rendezvous: preferred.any(|held| is_of(&held.interface)),
            // Ports with the same address are the two halves of a bond.
            physical: own_gid(machine, choice)
                .map_or(own, |entry| *addresses.entry(entry.gid).or_insert(own)),
        }
    };
    usable().map(fact).collect()
}

/// The interfaces of a port. Those of RoCE come from its own GIDs: sysfs may name those of another namespace.
fn interfaces<'a>(port: &'a PortChoice<'_>) -> impl Iterator<Item = &'a str> {
    let of_gids = port.own().filter_map(|entry| entry.interface.as_deref());
    let is_infiniband = port.port.link_layer == LinkLayer::InfiniBand && port.device.ports.len() == 1;
    let of_device = if is_infiniband { port.device.interfaces.as_slice() } else { &[] };
    of_gids.chain(of_device.iter().map(String::as_str))
}

fn physical<'a>(device: &'a Device, port: &Port) -> Physical<'a> {
    let path = device.physical.as_deref().or(device.pci.as_deref()).map(pci::function);
    let (card, function) = match (path, &device.card_guid) {
        (Some(path), Some(guid)) => (guid.as_str(), path.rsplit('.').next().unwrap_or(path)),
        (Some(path), None) => (path, ""),
        (None, _) => (device.name.as_str(), ""),
    };
    (card, function, port.number)
}

/// The network of a port, as far as it is known.
fn network(machine: &Machine, port: &PortChoice<'_>) -> Option<IpNet> {
    if port.port.link_layer == LinkLayer::InfiniBand {
        return Some(IpNet::new(port.port.gids.first()?.gid.into(), 64).ok()?.trunc());
    }
    machine.held(own_gid(machine, port)?).map(|held| held.net.trunc())
}

/// How many ports each network has, by the card. Ports that are down count: they are in their network too.
type Networks = BTreeMap<(Option<(u16, u16)>, Option<IpNet>), usize>;

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
fn split<'a>(facts: &'a [PortFacts<'a>], networks: &Networks) -> Vec<Vec<&'a PortFacts<'a>>> {
    let kinds = divided(facts.iter().collect(), |port| kind_of(port.port), |_, _| false);
    let rates = kinds.into_iter().flat_map(|ports| divided(ports, |port| port.port.rate, is_slowed));
    let cards = rates.flat_map(|ports| divided(ports, |port| port.device.card, each_serves));
    let of_network = |ports: Vec<&'a PortFacts<'a>>| {
        let cards: BTreeSet<_> = ports.iter().map(|port| port.device.card).collect();
        // Networks with more or fewer ports than others serve another purpose.
        let size = |port: &PortFacts<'_>| -> usize {
            cards.iter().filter_map(|card| networks.get(&(*card, port.network))).sum()
        };
        // A port without an address belongs to the others.
        let most = ports.iter().filter(|port| port.network.is_some()).map(|port| size(port)).max();
        divided(ports, |port| port.network.map(|_| size(port)).or(most), each_serves)
    };
    let mut groups: Vec<_> = cards.flat_map(of_network).collect();
    groups.sort_by_key(|ports| ports[0].place);
    groups
}

/// The ports by a key, the greatest first. Parts that belong `together` are one.
fn divided<'a, K: Ord>(
    ports: Vec<&'a PortFacts<'a>>,
    key: impl Fn(&PortFacts<'_>) -> K,
    together: impl Fn(&[&PortFacts<'_>], &[&PortFacts<'_>]) -> bool,
) -> Vec<Vec<&'a PortFacts<'a>>> {
    let mut parts: BTreeMap<K, Vec<&PortFacts<'_>>> = BTreeMap::new();
    for port in ports {
        parts.entry(key(port)).or_default().push(port);
    }
    let mut groups: Vec<Vec<&PortFacts<'_>>> = Vec::new();
    for part in parts.into_values().rev() {
        match groups.iter_mut().find(|group| together(group, &part)) {
            Some(group) => {
                group.extend(part);
                group.sort_unstable_by_key(|port| port.place);
            }
            None => groups.push(part),
        }
    }
    groups
}

/// Whether each of the two has a port near to a GPU to which the other has none. NCCL uses both.
fn each_serves(ports: &[&PortFacts<'_>], others: &[&PortFacts<'_>]) -> bool {
    let (own, theirs) = (near(ports), near(others));
    !own.is_subset(&theirs) && !theirs.is_subset(&own)
}

/// Whether these slower ports are of the same rails: each would run at the rate of the others if its cable
/// were whole. NCCL uses all, and a rank without a rail crosses to another one, which few networks route.
fn is_slowed(ports: &[&PortFacts<'_>], slower: &[&PortFacts<'_>]) -> bool {
    let is_same_card = ports.iter().any(|port| port.device.card == slower[0].device.card);
    let is_unknown = near(ports).is_empty() && near(slower).is_empty();
    is_same_card && (each_serves(ports, slower) || is_unknown && slower.len() < ports.len())
}

fn near(ports: &[&PortFacts<'_>]) -> BTreeSet<usize> {
    ports.iter().flat_map(|port| port.near.iter().copied()).collect()
}

/// Why a port belongs to a front end and is left out: few of the group have the default route, or are far
/// from every GPU, where most others are different.
fn outsider(port: &PortFacts<'_>, ports: &[&PortFacts<'_>]) -> Option<&'static str> {
    let is_rare = |is: &dyn Fn(&PortFacts<'_>) -> bool| {
        let others = ports.iter().filter(|other| !is(other)).count();
        is(port) && others * 2 > ports.len()
    };
    // A GPU keeps its only near port, whatever else that port is for. Any may be that where none is known.
    let is_only = |gpu| ports.iter().filter(|other| other.near.contains(gpu)).count() == 1;
    let is_needed = port.near.iter().any(is_only) || near(ports).is_empty();
    if is_rare(&|port| port.near.is_empty()) {
        Some("no GPU is near (PIX or PXB), most others have one")
    } else if is_needed {
        None
    } else if is_rare(&|port| port.has_default_route) {
        Some("its interface has the default route, those of most others have not")
    } else if is_rare(&|port| port.is_of_rendezvous) {
        Some("the rendezvous uses its interface, most others have another")
    } else {
        None
    }
}

/// Adds what the dead ports of each group would carry. Otherwise a host with a dead port could choose another
/// group than all other hosts, and all would use sockets.
fn mourn(groups: &mut [Draft<'_>], machine: &Machine, ports: &[PortChoice<'_>]) {
    for port in ports.iter().filter(|port| is_dead(machine, port)) {
        let is_like = |group: &&mut Draft<'_>| {
            group.ports.first().is_some_and(|first| {
                (kind_of(first.port), first.device.card) == (kind_of(port.port), port.device.card)
            })
        };
        // Of several groups of this card, the one with the most ports.
        let group = groups.iter_mut().filter(is_like).max_by_key(|group| group.ports.len());
        if let Some(group) = group {
            let carries = group.ports.first().map_or(0, |first| first.carries());
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
    let most = best_of(groups, |group| group.whole).unwrap_or(0);
    let carries_less = |group: &Draft<'_>| {
        let (own, best) = (Rate(group.whole), Rate(most));
        format!("its group carries {own}, the one that is used {best}").into()
    };
    lose(groups, |group| u64::from(group.whole) * 4 >= u64::from(most) * 3, carries_less);
    let gpus = best_of(groups, |group| group.group.gpus).unwrap_or(0);
    let is_near_to_fewer = |group: &Draft<'_>| {
        let own = group.group.gpus;
        format!("its group is near to {own} GPUs (PIX or PXB), the one that is used to {gpus}").into()
    };
    lose(groups, |group| group.group.gpus == gpus, is_near_to_fewer);
    let routed = |group: &Draft<'_>| group.ports.iter().any(|port| port.has_default_route);
    let route = "its group has the default route, the one that is used has not";
    lose(groups, |group| !routed(group) || !nearness_says, |_| route.into());
    let another = "another kind of RDMA is used";
    lose(groups, |group| group.group.kind == Capability::InfiniBand, |_| another.into());
    if nearness_says && groups.iter().filter(|group| group.is_left()).count() > 1 {
        // Each has a port near to the same GPUs, so using both gains nothing.
        let left = groups.iter().filter(|group| group.is_left());
        let first = left.filter_map(Draft::address).min().map(str::to_owned);
        let lower = "the group that is used has the lower PCI address";
        lose(groups, |group| group.address() == first.as_deref(), |_| lower.into());
        return;
    }
    // Nothing says what the ports are for: all of the best kind and the highest rate are used.
    lose(groups, |group| group.group.kind == Capability::Roce, |_| another.into());
    let best = best_of(groups, |group| group.group.rate).flatten();
    let is_slower = |group: &Draft<'_>| {
        let [own, best] = [group.group.rate, best].map(|rate| Rate(rate.unwrap_or(0)));
        format!("{own} is slower than {best}").into()
    };
    lose(groups, |group| group.group.rate == best, is_slower);
}

/// The greatest value among the remaining groups.
fn best_of<'a, T: Ord>(groups: &'a [Draft<'_>], value: impl Fn(&'a Draft<'_>) -> T) -> Option<T> {
    groups.iter().filter(|group| group.is_left()).map(value).max()
}

/// Those of the remaining groups lose that do not `win`, if any does.
fn lose(groups: &mut [Draft<'_>], wins: impl Fn(&Draft<'_>) -> bool, reason: impl Fn(&Draft<'_>) -> Reason) {
    if groups.iter().any(|group| group.is_left() && wins(group)) {
        for group in groups.iter_mut().filter(|group| group.is_left() && !wins(group)) {
            group.group.excluded = Some(reason(group));
        }
    }
}

impl PortFacts<'_> {
    /// What its PCIe link passes of its rate.
    fn carries(&self) -> u32 {
        self.port.rate.unwrap_or(0).min(self.device.link.unwrap_or(u32::MAX))
    }
}

impl<'a> Draft<'a> {
    fn new(all: Vec<&'a PortFacts<'a>>) -> Self {
        let out = |port: &&'a PortFacts<'a>| Some((*port, outsider(port, &all)?));
        let outsiders: Vec<_> = all.iter().filter_map(out).collect();
        let ports: Vec<_> = all.iter().copied().filter(|port| outsider(port, &all).is_none()).collect();
        let whole = bandwidth(&ports);
        let group = Group {
            kind: ports.first().map_or(Capability::NoUsablePort, |port| kind_of(port.port)),
            card: common(ports.iter().map(|port| port.device.card)),
            rate: ports.iter().filter_map(|port| port.port.rate).max(),
            ports: ports.iter().map(|port| port.device.name_of(port.port)).collect(),
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
        let paths = self.ports.iter().filter_map(|port| port.device.pci.as_deref());
        paths.filter_map(|path| pci::function(path).rsplit('/').next()).min()
    }
}

/// What ports carry together: several functions of one physical port carry no more than that port.
fn bandwidth(ports: &[&PortFacts<'_>]) -> u32 {
    let mut physical: BTreeMap<Physical<'_>, (u32, u32)> = BTreeMap::new();
    for port in ports {
        let (sum, most) = physical.entry(port.physical).or_default();
        *sum = sum.saturating_add(port.carries());
        *most = port.port.rate.unwrap_or(0).max(*most);
    }
    physical.values().fold(0, |total, (sum, most)| total.saturating_add(*sum.min(most)))
}
