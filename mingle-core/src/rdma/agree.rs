//! What the nodes of a world tell each other about their fabrics, and what follows for all of them.
//!
//! NCCL does not settle it by itself: one rank with InfiniBand and one without wait for each other for ever
//! (NVIDIA/nccl#234), and a rank that can open fewer devices than another may hang once the job runs (#2428). So
//! each node sends a [`Summary`] when it joins, whoever leads compares them, and the commit brings every rank the
//! same [`Verdict`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::choose::{Choice, Kind, Rate};
use super::gid::Addressing;
use super::machine::Machine;
use crate::model::List;

/// Most ranks that a verdict names, and most lines of warning that it is worth.
pub(crate) const NAMED: usize = 6;

/// What a node has: all that the others need to know of its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Summary {
    pub(crate) link: Link,
    /// Ports that a job would use; of RoCE, by the addressing that the world agrees on, in the order of
    /// [`Addressing::ALL`]. Of others the first counts.
    pub(crate) ports: [u16; 4],
    /// The rate of each, in Mb/s.
    pub(crate) rate: u32,
    /// A module for GPUDirect RDMA is loaded.
    pub(crate) peer_memory: bool,
    /// This node is of no use to its job without RDMA.
    pub(crate) required: bool,
}

/// What a node can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub(crate) enum Link {
    /// It was not looked, or mingle is to leave the fabric alone.
    #[default]
    Unasked,
    Nothing,
    Unusable,
    /// The user has told NCCL on this host not to use it.
    Disabled,
    InfiniBand,
    Roce,
    Efa,
}

impl Summary {
    /// What a machine has for a job.
    pub fn new(machine: &Machine) -> Self {
        let choice = machine.choose();
        let count = |choice: &Choice<'_>| u16::try_from(choice.used().count()).unwrap_or(u16::MAX);
        let (link, ports) = match choice.kind {
            Kind::Nothing => (Link::Nothing, [0; 4]),
            Kind::Unusable => (Link::Unusable, [0; 4]),
            Kind::InfiniBand => (Link::InfiniBand, [count(&choice), 0, 0, 0]),
            Kind::Roce => {
                (Link::Roce, Addressing::ALL.map(|addressing| count(&machine.choose_for(addressing))))
            }
            Kind::Efa => (Link::Efa, [count(&choice), 0, 0, 0]),
        };
        let rate = choice.rate().unwrap_or(0);
        Self { link, ports, rate, peer_memory: machine.peer_memory.is_some(), required: false }
    }

    /// A host that would have RDMA, and whose user has told NCCL not to use it (NCCL_IB_DISABLE=1).
    #[must_use]
    pub fn disabled(self) -> Self {
        if self.link.is_usable() { Self { link: Link::Disabled, ports: [0; 4], ..self } } else { self }
    }

    /// A node whose job must have RDMA: no world forms without it.
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }
}

impl Link {
    fn is_usable(self) -> bool {
        matches!(self, Self::InfiniBand | Self::Roce | Self::Efa)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unasked => "no fabric that mingle knows of",
            Self::Nothing => "no RDMA",
            Self::Unusable => "no usable RDMA",
            Self::Disabled => "RDMA switched off",
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Efa => "EFA",
        }
    }
}

/// What all ranks of a world use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Transport {
    /// Nobody looked: NCCL decides on each host for itself.
    #[default]
    Unasked,
    /// No host has an RDMA device.
    Nothing,
    /// Not all ranks can use RDMA together.
    Sockets,
    /// InfiniBand.
    InfiniBand,
    /// RoCE, addressed this way on every rank.
    Roce(Addressing),
    /// EFA.
    Efa,
}

impl Transport {
    /// What a host uses that is alone in the world.
    pub fn alone(choice: &Choice<'_>) -> Self {
        match (choice.kind, choice.addressing) {
            (Kind::Nothing, _) => Self::Nothing,
            (Kind::InfiniBand, _) => Self::InfiniBand,
            (Kind::Efa, _) => Self::Efa,
            (Kind::Roce, Some(addressing)) => Self::Roce(addressing),
            (Kind::Unusable | Kind::Roce, _) => Self::Sockets,
        }
    }

    /// Whether it is RDMA.
    pub fn is_rdma(self) -> bool {
        matches!(self, Self::InfiniBand | Self::Roce(_) | Self::Efa)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unasked => f.write_str("unasked"),
            Self::Nothing | Self::Sockets => f.write_str("sockets"),
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Roce(addressing) => addressing.fmt(f),
            Self::Efa => f.write_str("EFA"),
        }
    }
}

/// What follows from the summaries of all ranks. The same on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// What all ranks use.
    pub transport: Transport,
    findings: List<Finding, NAMED>,
    /// Findings that are not named.
    unnamed: u32,
}

/// A rank that differs from the others, and in what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Finding {
    rank: u32,
    address: IpAddr,
    fact: Fact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Fact {
    /// It has one thing, most others the other.
    Link(Link, Link),
    /// Its ports are addressed in none of the ways that the others know.
    Addressing,
    /// Its ports, and those of most others.
    Ports(u16, u16),
    /// The rate of its ports, and of most others'.
    Rate(u32, u32),
    /// It lacks a module for GPUDirect that others have loaded.
    PeerMemory,
    /// Its `--set` differs.
    Settings,
}

impl Fact {
    fn topic(self) -> Topic {
        match self {
            Self::Link(Link::Unusable, _) => Topic::Unusable,
            Self::Link(Link::Unasked, _) => Topic::LeftOut,
            Self::Settings => Topic::Settings,
            _ => Topic::Other,
        }
    }
}

/// How one rank differs from the others, as a line of text that states facts alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    text: String,
    topic: Topic,
}

/// What a [`Difference`] is about, where there is something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// A host has RDMA ports, and none that a job can use.
    Unusable,
    /// A node was started to leave RDMA alone.
    LeftOut,
    /// The settings of a node differ: the variables that it was given, or whether it restarts with its world.
    Settings,
    /// Anything else.
    Other,
}

impl Difference {
    /// What it is about.
    pub fn topic(&self) -> Topic {
        self.topic
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A rank as the verdict sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rank {
    pub(crate) address: IpAddr,
    pub(crate) fabric: Summary,
    /// The hash of its `--set`.
    pub(crate) settings: u64,
}

impl Verdict {
    /// Compares the ranks, which are in order.
    pub(crate) fn of(ranks: &[Rank]) -> Self {
        let mut facts: BTreeMap<usize, Fact> = BTreeMap::new();
        let transport = transport(ranks, &mut facts);
        if transport.is_rdma() {
            let asked = || ranks.iter().enumerate().filter(|(_, rank)| asked(rank));
            let lane = if let Transport::Roce(addressing) = transport { addressing.place() } else { 0 };
            compare(asked().map(|(i, rank)| (i, rank.fabric.ports[lane])), Fact::Ports, &mut facts);
            compare(asked().map(|(i, rank)| (i, rank.fabric.rate)), Fact::Rate, &mut facts);
            // EFA has a module of its own.
            let loaded = |rank: &Rank| rank.fabric.peer_memory || transport == Transport::Efa;
            if ranks.iter().any(loaded) {
                for (i, _) in asked().filter(|(_, rank)| !loaded(rank)) {
                    facts.entry(i).or_insert(Fact::PeerMemory);
                }
            }
        }
        // Of each rank the worst; only where nothing else is to be said of it, its settings.
        compare(ranks.iter().map(|rank| rank.settings).enumerate(), |_, _| Fact::Settings, &mut facts);
        let findings = facts.iter().map(|(&i, &fact)| Finding {
            rank: u32::try_from(i).unwrap_or(u32::MAX),
            address: ranks[i].address,
            fact,
        });
        Self {
            transport,
            findings: findings.collect(),
            unnamed: u32::try_from(facts.len().saturating_sub(NAMED)).unwrap_or(u32::MAX),
        }
    }

    /// The ranks that differ and what follows, a line for each: `rank 3 (10.0.0.7): no active RDMA port; all ranks
    /// use sockets`.
    pub fn warnings(&self) -> Vec<Difference> {
        self.lines(if self.transport == Transport::Sockets { "; all ranks use sockets" } else { "" })
    }

    /// The ranks that differ, a line for each, where no world forms.
    pub fn facts(&self) -> Vec<Difference> {
        self.lines("")
    }

    fn lines(&self, then: &str) -> Vec<Difference> {
        let line =
            |finding: &Finding| Difference { text: Self::line(finding, then), topic: finding.fact.topic() };
        let mut lines: Vec<Difference> = self.findings.iter().map(line).collect();
        if self.unnamed > 0 {
            let text = format!("{} more ranks differ from the others", self.unnamed);
            lines.push(Difference { text, topic: Topic::Other });
        }
        lines
    }

    /// Whether that is enough where some rank needs RDMA: all have looked, and can use it together.
    pub(crate) fn is_enough(&self, ranks: &[Rank]) -> bool {
        self.transport.is_rdma() && ranks.iter().all(asked) || !ranks.iter().any(|rank| rank.fabric.required)
    }

    /// Whether no rank differs from the others.
    pub fn names_nobody(&self) -> bool {
        self.findings.is_empty()
    }

    fn line(finding: &Finding, then: &str) -> String {
        let Finding { rank, address, fact } = finding;
        let who = format!("rank {rank} ({address})");
        match fact {
            Fact::Link(Link::Nothing, _) => format!("{who}: no active RDMA port{then}"),
            Fact::Link(Link::Unusable, _) => {
                format!("{who}: no usable RDMA port{then}")
            }
            Fact::Link(Link::Disabled, _) => format!("{who}: NCCL is told not to use RDMA there{then}"),
            Fact::Link(Link::Unasked, _) => {
                format!("{who}: the fabric was left out there, and is not compared")
            }
            Fact::Link(own, most) => format!("{who}: {}, most others {}{then}", own.name(), most.name()),
            Fact::Addressing => format!("{who}: its RoCE ports have no GID of the others' kind{then}"),
            Fact::Ports(own, most) => {
                format!("{who}: {own} RDMA port{}, most others {most}", if *own == 1 { "" } else { "s" })
            }
            Fact::Rate(own, most) => {
                format!("{who}: RDMA ports of {}, most others {}", Rate(*own), Rate(*most))
            }
            Fact::PeerMemory => {
                format!("{who}: nvidia_peermem is not loaded; GPUDirect RDMA needs it there, or DMA-BUF")
            }
            Fact::Settings => format!("{who}: its settings differ from those of most others"),
        }
    }
}

fn asked(rank: &Rank) -> bool {
    rank.fabric.link != Link::Unasked
}

/// What all can use together, and who stands in the way of more.
fn transport(ranks: &[Rank], facts: &mut BTreeMap<usize, Fact>) -> Transport {
    if !ranks.iter().any(asked) {
        return Transport::Unasked;
    }
    let links = || ranks.iter().map(|rank| rank.fabric.link).filter(|link| *link != Link::Unasked);
    let usable = most(links().filter(|link| link.is_usable()));
    for (i, rank) in ranks.iter().enumerate().filter(|(_, rank)| !asked(rank)) {
        facts.insert(i, Fact::Link(rank.fabric.link, usable.unwrap_or(Link::Nothing)));
    }
    let Some(usable) = usable else {
        // Nobody misses anything. Where devices are, NCCL must still be kept from them.
        let nothing = links().all(|link| link == Link::Nothing);
        return if nothing { Transport::Nothing } else { Transport::Sockets };
    };
    let others = ranks.iter().enumerate().filter(|(_, rank)| asked(rank) && rank.fabric.link != usable);
    let differ: Vec<_> = others.map(|(i, rank)| (i, Fact::Link(rank.fabric.link, usable))).collect();
    if !differ.is_empty() {
        facts.extend(differ);
        return Transport::Sockets;
    }
    match usable {
        Link::Roce => addressing(ranks, facts).map_or(Transport::Sockets, Transport::Roce),
        Link::Efa => Transport::Efa,
        _ => Transport::InfiniBand,
    }
}

/// The addressing with which the rank that has the fewest ports for it has the most, v2 before v1; or who has
/// none for the one that most know.
fn addressing(ranks: &[Rank], facts: &mut BTreeMap<usize, Fact>) -> Option<Addressing> {
    let ports = |addressing: Addressing| {
        let asked = ranks.iter().enumerate().filter(|(_, rank)| asked(rank));
        asked.map(move |(i, rank)| (i, rank.fabric.ports[addressing.place()]))
    };
    let fewest = |addressing| ports(addressing).map(|(_, ports)| ports).min().unwrap_or(0);
    // The first of the largest, so the order backwards: `max_by_key` takes the last.
    let candidates = || Addressing::ALL.into_iter().rev();
    let common = candidates().filter(|&addressing| fewest(addressing) > 0);
    let common = common.max_by_key(|&addressing| (addressing.version, fewest(addressing)));
    if common.is_none() {
        let known = |addressing| ports(addressing).filter(|(_, ports)| *ports > 0).count();
        let favourite = candidates().max_by_key(|&addressing| known(addressing))?;
        let without = ports(favourite).filter(|(_, ports)| *ports == 0);
        facts.extend(without.map(|(i, _)| (i, Fact::Addressing)));
    }
    common
}

/// The value that most have; of several, the one that comes first.
fn most<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: Vec<(T, usize)> = Vec::new();
    let mut places: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        let place = *places.entry(value).or_insert_with(|| {
            counts.push((value, 0));
            counts.len() - 1
        });
        counts[place].1 += 1;
    }
    // The first of the largest: `max_by_key` takes the last.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

/// Notes the ranks whose value is not the one that most have, where nothing worse is known of them.
fn compare<T: Copy + Ord>(
    values: impl Iterator<Item = (usize, T)> + Clone,
    fact: impl Fn(T, T) -> Fact,
    facts: &mut BTreeMap<usize, Fact>,
) {
    let Some(most) = most(values.clone().map(|(_, value)| value)) else { return };
    for (i, value) in values.filter(|(_, value)| *value != most) {
        facts.entry(i).or_insert_with(|| fact(value, most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::gid::{Family, RoceVersion};

    impl Summary {
        /// As long as one can be on the wire.
        pub(crate) fn largest() -> Self {
            Self { link: Link::Efa, ports: [u16::MAX; 4], rate: u32::MAX, peer_memory: true, required: true }
        }
    }

    impl Verdict {
        /// As long as one can be on the wire.
        pub(crate) fn largest() -> Self {
            let fact = Fact::Rate(u32::MAX, u32::MAX);
            let finding = Finding { rank: u32::MAX, address: IpAddr::from([0xff; 16]), fact };
            let findings = (0..99).map(|_| finding.clone()).collect();
            Self { transport: Transport::Roce(Addressing::ALL[3]), findings, unnamed: u32::MAX }
        }

        /// Rank 3 has nothing.
        pub(crate) fn example() -> Self {
            Self::of(&[roce(4), roce(5), roce(6), rank(7, Link::Nothing)])
        }
    }

    const V4: Addressing = Addressing { version: RoceVersion::V2, family: Family::Ipv4 };
    const V6: Addressing = Addressing { version: RoceVersion::V2, family: Family::Ipv6 };

    fn rank(last: u8, link: Link) -> Rank {
        let usable = link.is_usable();
        let fabric = Summary {
            link,
            ports: if usable { [8, 0, 0, 0] } else { [0; 4] },
            rate: if usable { 400_000 } else { 0 },
            ..Summary::default()
        };
        Rank { address: IpAddr::from([10, 0, 0, last]), fabric, settings: 0 }
    }

    fn roce(last: u8) -> Rank {
        rank(last, Link::Roce)
    }

    fn told(ranks: &[Rank]) -> (Transport, Vec<String>) {
        let verdict = Verdict::of(ranks);
        (verdict.transport, verdict.warnings().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn equal_ranks_use_what_they_have_without_a_word() {
        let silent = |transport| (transport, Vec::<String>::new());
        assert_eq!(told(&[roce(1), roce(2)]), silent(Transport::Roce(V4)));
        assert_eq!(told(&[rank(1, Link::InfiniBand); 4]), silent(Transport::InfiniBand));
        assert_eq!(told(&[rank(1, Link::Efa); 2]), silent(Transport::Efa));
        assert_eq!(told(&[rank(1, Link::Nothing); 3]), silent(Transport::Nothing));
        assert_eq!(told(&[rank(1, Link::Unasked); 3]), silent(Transport::Unasked));
        assert_eq!(told(&[rank(1, Link::Unusable), rank(2, Link::Nothing)]), silent(Transport::Sockets));
        assert_eq!(told(&[rank(1, Link::Nothing)]), silent(Transport::Nothing));
    }

    #[test]
    fn one_rank_without_rdma_makes_all_use_sockets_and_is_named() {
        for (link, fact) in [
            (Link::Nothing, "no active RDMA port"),
            (Link::Unusable, "no usable RDMA port"),
            (Link::Disabled, "NCCL is told not to use RDMA there"),
            (Link::InfiniBand, "InfiniBand, most others RoCE"),
            (Link::Efa, "EFA, most others RoCE"),
        ] {
            let (transport, lines) = told(&[roce(4), roce(5), roce(6), rank(7, link)]);
            assert_eq!(transport, Transport::Sockets);
            assert_eq!(lines, [format!("rank 3 (10.0.0.7): {fact}; all ranks use sockets")]);
        }
    }

    #[test]
    fn where_as_many_have_the_one_as_the_other_rank_0_is_right() {
        let (_, lines) = told(&[rank(1, Link::InfiniBand), roce(2)]);
        assert_eq!(lines, ["rank 1 (10.0.0.2): RoCE, most others InfiniBand; all ranks use sockets"]);
    }

    #[test]
    fn ranks_settle_on_the_addressing_that_all_know() {
        let (mut both, mut other) = (roce(2), roce(3));
        both.fabric.ports = [8, 8, 8, 8];
        other.fabric.ports = [0, 8, 0, 8];
        assert_eq!(told(&[both, both]), (Transport::Roce(V4), vec![]));
        assert_eq!(told(&[both, other]), (Transport::Roce(V6), vec![]));
        // One that loses a rail by it does not take all others off RDMA.
        let mut most = both;
        most.fabric.ports = [7, 8, 0, 0];
        let (transport, lines) = told(&[most, roce(3), roce(4)]);
        assert_eq!(transport, Transport::Roce(V4));
        assert_eq!(lines, ["rank 0 (10.0.0.2): 7 RDMA ports, most others 8"]);
        let (transport, lines) = told(&[roce(1), roce(2), other]);
        assert_eq!(transport, Transport::Sockets);
        let fact = "its RoCE ports have no GID of the others' kind";
        assert_eq!(lines, [format!("rank 2 (10.0.0.3): {fact}; all ranks use sockets")]);
    }

    #[test]
    fn what_does_not_keep_ranks_apart_is_a_warning_only() {
        let mut few = roce(2);
        few.fabric.ports = [1, 0, 0, 0];
        let mut slow = roce(3);
        slow.fabric.rate = 2_500;
        let mut other = roce(4);
        other.settings = 7;
        let (transport, lines) = told(&[roce(1), few, slow, other, roce(5)]);
        assert_eq!(transport, Transport::Roce(V4));
        assert_eq!(
            lines,
            [
                "rank 1 (10.0.0.2): 1 RDMA port, most others 8",
                "rank 2 (10.0.0.3): RDMA ports of 2.5 Gb/s, most others 400 Gb/s",
                "rank 3 (10.0.0.4): its settings differ from those of most others",
            ]
        );
        let mut loaded = roce(1);
        loaded.fabric.peer_memory = true;
        let fact = "nvidia_peermem is not loaded; GPUDirect RDMA needs it there, or DMA-BUF";
        assert_eq!(told(&[loaded, roce(2)]).1, [format!("rank 1 (10.0.0.2): {fact}")]);
    }

    #[test]
    fn a_rank_whose_fabric_is_left_out_is_told_and_keeps_nobody_from_rdma() {
        let (transport, lines) = told(&[roce(1), rank(2, Link::Unasked)]);
        assert_eq!(transport, Transport::Roce(V4));
        assert_eq!(lines, ["rank 1 (10.0.0.2): the fabric was left out there, and is not compared"]);
    }

    #[test]
    fn where_one_needs_rdma_all_must_have_it_and_nothing_else_matters() {
        let needs = |rank: Rank| Rank { fabric: rank.fabric.required(true), ..rank };
        let is_enough = |ranks: &[Rank]| Verdict::of(ranks).is_enough(ranks);
        assert!(is_enough(&[roce(1), rank(2, Link::Nothing)]), "nobody needs it");
        assert!(is_enough(&[needs(roce(1)), roce(2)]));
        assert!(!is_enough(&[needs(roce(1)), rank(2, Link::Nothing)]));
        assert!(!is_enough(&[needs(roce(1)), rank(2, Link::Unasked)]));
        // More that differ in something else than a verdict names.
        let mut ranks = vec![needs(roce(1)); 20];
        for (i, rank) in ranks.iter_mut().enumerate() {
            rank.settings = u64::try_from(i).unwrap();
        }
        assert!(is_enough(&ranks));
    }

    #[test]
    fn a_thousand_that_differ_are_counted_and_not_listed() {
        let mut ranks = vec![roce(1); 1001];
        ranks.extend(vec![rank(2, Link::Nothing); 1000]);
        let (transport, lines) = told(&ranks);
        assert_eq!(transport, Transport::Sockets);
        assert_eq!(lines.len(), NAMED + 1);
        assert_eq!(lines[NAMED], "994 more ranks differ from the others");
    }
}
