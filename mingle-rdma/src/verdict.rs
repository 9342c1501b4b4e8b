//! The leader's conclusion from the summaries of all nodes.
//!
//! NCCL does not settle this by itself: a rank with InfiniBand and a rank without it wait for each other for
//! ever (NVIDIA/nccl#234), and a rank that can open fewer devices than another may hang once the job runs
//! (#2428). So each node sends a [`Summary`] when it joins, the leader compares them, and the commit brings
//! the same [`Verdict`] to every rank.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::choose::Choice;
use super::frequent::most_frequent;
use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::network::{self, Network};
use super::summary::{Capability, Summary};

/// The most ranks that a verdict names. Further ranks are counted.
pub const NAMED: usize = 6;

/// The most networks in a verdict.
const AGREED: usize = 16;

/// The transport that all ranks of a world use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Transport {
    /// No rank's devices were examined: NCCL decides by itself on each host.
    #[default]
    NotExamined,
    /// No host has an RDMA device.
    NoDevice,
    /// Some hosts have RDMA devices, but the ranks cannot all use RDMA together.
    Sockets,
    /// InfiniBand.
    InfiniBand,
    /// RoCE with this addressing on every rank.
    Roce(Addressing),
    /// EFA.
    Efa,
}

impl Transport {
    /// The transport of a host in a world of its own.
    pub fn alone(choice: &Choice<'_>) -> Self {
        match (choice.kind, choice.addressing) {
            (Capability::NoDevice, _) => Self::NoDevice,
            (Capability::InfiniBand, _) => Self::InfiniBand,
            (Capability::Efa, _) => Self::Efa,
            (Capability::Roce, Some(addressing)) => Self::Roce(addressing),
            _ => Self::Sockets,
        }
    }

    /// The kind of RDMA, if it is RDMA.
    pub(super) fn kind(self) -> Option<Capability> {
        match self {
            Self::InfiniBand => Some(Capability::InfiniBand),
            Self::Roce(_) => Some(Capability::Roce),
            Self::Efa => Some(Capability::Efa),
            Self::NotExamined | Self::NoDevice | Self::Sockets => None,
        }
    }

    /// All transports for RDMA, in the order in which they are preferred.
    fn rdma() -> impl DoubleEndedIterator<Item = Self> {
        let roce = Addressing::ALL.into_iter().map(Self::Roce);
        std::iter::once(Self::InfiniBand).chain(roce).chain([Self::Efa])
    }

    /// How the ports of RoCE are addressed.
    pub(super) fn addressing(self) -> Option<Addressing> {
        if let Self::Roce(addressing) = self { Some(addressing) } else { None }
    }

    /// Whether the transport is RDMA.
    pub fn is_rdma(self) -> bool {
        self.kind().is_some()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Scripts read this word in the JSON document.
            Self::NotExamined => f.write_str("unasked"),
            Self::NoDevice | Self::Sockets => f.write_str("sockets"),
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Roce(addressing) => addressing.fmt(f),
            Self::Efa => f.write_str("EFA"),
        }
    }
}

/// The conclusion from the summaries of all ranks. Every rank has the same verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The transport that all ranks use.
    pub transport: Transport,
    #[serde(deserialize_with = "few::<NAMED, _, _>")]
    /// The ranks that differ from most other ranks, in order: at most six.
    pub differences: Vec<RankDifference>,
    /// How many further ranks differ.
    pub unnamed: u32,
    /// The networks that all ranks use if they have several networks on a RoCE port, from best to worst.
    /// Empty if each rank chooses its networks by itself.
    #[serde(deserialize_with = "few::<AGREED, _, _>")]
    pub networks: Vec<Network>,
    /// Whether cables join each two hosts, without a switch, and if so, whether NCCL can do without plugins
    /// on all ranks: no user has chosen its network or a plugin.
    pub cables: Option<bool>,
}

/// A list from the network: no longer than a leader makes it.
fn few<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.len() > MOST { Err(D::Error::custom("too many")) } else { Ok(list) }
}

/// A rank that differs from most other ranks. Its Display says how: `rank 3 (10.0.0.7): no active RDMA port`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDifference {
    /// The rank that differs.
    pub rank: u32,
    /// The rank's address.
    pub address: IpAddr,
    /// How the rank differs.
    pub difference: Difference,
}

/// How a rank differs from most other ranks, so that they cannot use RDMA together, or do not know whether
/// they can. The order is that of the numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Difference {
    /// The rank can use another kind of RDMA.
    Capability {
        /// What the rank can use.
        own: Capability,
        /// What most other ranks can use.
        most: Capability,
    },
    /// None of the rank's RoCE ports has a GID of the version and the address family that most other ranks
    /// have.
    Addressing,
}

impl Difference {
    /// Whether the difference keeps the ranks from using RDMA together.
    pub fn prevents_rdma(&self) -> bool {
        !matches!(self, Self::Capability { own: Capability::NotExamined, .. })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability { own: Capability::NotExamined, .. } => {
                f.write_str("its RDMA devices were not examined and are not compared")
            }
            Self::Capability { own: Capability::NoDevice, .. } => f.write_str("no active RDMA port"),
            Self::Capability { own: Capability::NoUsablePort, .. } => f.write_str("no usable RDMA port"),
            Self::Capability { own: Capability::Disabled, .. } => {
                f.write_str("RDMA is disabled for NCCL on that host")
            }
            Self::Capability { own, most } => write!(f, "it has {own}, most others have {most}"),
            Self::Addressing => f.write_str(
                "its RoCE ports have no GID of the version and address family that most others use",
            ),
        }
    }
}

impl fmt::Display for RankDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({}): {}", self.rank, self.address, self.difference)
    }
}

/// A warning that follows from a verdict: its text, and the rank that differs, if the warning is about a
/// single rank.
pub type VerdictWarning<'a> = (String, Option<&'a RankDifference>);

impl Verdict {
    /// Compares the ranks of a world. `ranks` has them in order.
    pub fn of(ranks: &[RankSummary]) -> Self {
        let comparison = Comparison { ranks };
        let usable = comparison.usable();
        let transport = comparison.transport(usable);
        let most = usable.unwrap_or(Capability::NoDevice);
        let favourite = usable.filter(|_| !transport.is_rdma()).and_then(|kind| comparison.favourite(kind));
        let difference = |summary: &Summary| {
            let is_without = favourite.is_some() && summary.group(most).is_none();
            if !summary.is_examined() || is_without {
                return Some(Difference::Capability { own: summary.capability, most });
            }
            favourite.filter(|favourite| summary.ports(*favourite) == 0).map(|_| Difference::Addressing)
        };
        let compared: &[RankSummary] = if transport == Transport::NotExamined { &[] } else { ranks };
        let differences = (0..).zip(compared).filter_map(|(rank, RankSummary { address, summary })| {
            Some(RankDifference { rank, address: *address, difference: difference(summary)? })
        });
        let unnamed = differences.clone().count().saturating_sub(NAMED);
        let usual = Addressing { version: RoceVersion::V2, family: AddressFamily::Ipv4 };
        Self {
            transport,
            differences: differences.take(NAMED).collect(),
            unnamed: u32::try_from(unnamed).unwrap_or(u32::MAX),
            networks: if transport.addressing().is_some() { comparison.networks() } else { Vec::new() },
            cables: if transport == Transport::Roce(usual) { comparison.cables() } else { None },
        }
    }

    /// The warnings for a user of a world that has formed with this verdict.
    pub fn warnings(&self) -> Vec<VerdictWarning<'_>> {
        self.lines(self.transport == Transport::Sockets)
    }

    /// The differences without their consequences, for a world that does not form.
    pub fn facts(&self) -> Vec<VerdictWarning<'_>> {
        self.lines(false)
    }

    fn lines(&self, sockets: bool) -> Vec<VerdictWarning<'_>> {
        let ranks = self.differences.iter().map(|rank| {
            let end = if sockets && rank.difference.prevents_rdma() { "; all ranks use sockets" } else { "" };
            (format!("{rank}{end}"), Some(rank))
        });
        let more = format!("{} more ranks differ from the others", self.unnamed);
        ranks.chain((self.unnamed > 0).then_some((more, None))).collect()
    }

    /// Whether the world may form. If a rank requires RDMA, all ranks must have been examined and must be
    /// able to use RDMA together.
    pub fn is_enough(&self, ranks: &[RankSummary]) -> bool {
        let all_use_rdma = self.transport.is_rdma() && ranks.iter().all(|rank| rank.summary.is_examined());
        all_use_rdma || !ranks.iter().any(|rank| rank.summary.required)
    }
}

/// The facts about a rank that are compared with the facts about the other ranks.
#[derive(Debug, Clone, Copy)]
pub struct RankSummary {
    /// The rank's address, for messages.
    pub address: IpAddr,
    /// What the rank has reported.
    pub summary: Summary,
}

/// What all ranks can use together.
struct Offer {
    transport: Transport,
    /// The ports of the rank that has the fewest.
    fewest: u16,
    /// What the rank carries that carries least, in Gb/s.
    smallest: u16,
}

/// The ranks of a world, as they are compared.
struct Comparison<'a> {
    ranks: &'a [RankSummary],
}

impl<'a> Comparison<'a> {
    /// The summaries of the ranks whose devices were examined.
    fn examined(&self) -> impl Iterator<Item = Summary> + Clone + use<'a> {
        self.ranks.iter().map(|rank| rank.summary).filter(|summary| summary.is_examined())
    }

    /// What each of these would use alone.
    fn capabilities(&self) -> impl Iterator<Item = Capability> + Clone + use<'a> {
        self.examined().map(|summary| summary.capability)
    }

    /// The kind of RDMA that most would use alone.
    fn usable(&self) -> Option<Capability> {
        most_frequent(self.capabilities().filter(|capability| capability.is_usable()))
    }

    /// The best transport that all ranks can use together: of the kinds that every rank has, the one whose
    /// smallest total is largest; of those within a quarter of it, the kind that most would use alone, then
    /// InfiniBand. Of RoCE's addressings v2 comes before v1, then the addressing with the most ports on the
    /// rank that has the fewest for it.
    fn transport(&self, usable: Option<Capability>) -> Transport {
        if self.examined().next().is_none() {
            return Transport::NotExamined;
        }
        if usable.is_none() {
            // No rank differs in a way that matters. Where devices exist, NCCL must still be kept from them.
            let no_device = self.capabilities().all(|capability| capability == Capability::NoDevice);
            return if no_device { Transport::NoDevice } else { Transport::Sockets };
        }
        let offers: Vec<Offer> = Transport::rdma().filter_map(|transport| self.offer(transport)).collect();
        let best = offers.iter().map(|offer| offer.smallest).max().unwrap_or(0);
        let is_close = |offer: &&Offer| u32::from(offer.smallest) * 4 >= u32::from(best) * 3;
        let prefer = |kind| self.capabilities().filter(|capability| Some(*capability) == kind).count();
        // Each host knows why it prefers one of two kinds that carry about the same, such as its GPUs. Of
        // several maxima the first, while `max_by_key` returns the last.
        let chosen = offers.iter().filter(is_close).rev().max_by_key(|offer| {
            let kind = offer.transport.kind();
            let version = offer.transport.addressing().map(|addressing| addressing.version);
            (prefer(kind), Reverse(kind), version, offer.fewest)
        });
        chosen.map_or(Transport::Sockets, |offer| offer.transport)
    }

    /// What all ranks would have of a transport, where all have it.
    fn offer(&self, transport: Transport) -> Option<Offer> {
        let kind = transport.kind()?;
        let totals = self.examined().map(|summary| summary.total(kind));
        let ports = self.examined().map(|summary| summary.ports(transport));
        let fewest = ports.min().filter(|fewest| *fewest > 0)?;
        Some(Offer { transport, fewest, smallest: totals.min()? })
    }

    /// The transport of this kind that most ranks have: those without it keep all from RDMA.
    fn favourite(&self, kind: Capability) -> Option<Transport> {
        let ranks_with =
            |transport: &Transport| self.examined().filter(|summary| summary.ports(*transport) > 0).count();
        // `max_by_key` returns the last of several maxima, so reverse the order to get the best.
        let of_kind = Transport::rdma().rev().filter(|transport| transport.kind() == Some(kind));
        of_kind.max_by_key(ranks_with)
    }

    /// The networks that all ranks have, and some rank would use by itself, in the order of these ranks; none
    /// where all would use them anyway. Hosts that are routed to have none in common, or a network beside
    /// those, which no rank would use.
    fn networks(&self) -> Vec<Network> {
        let networks = self.examined().map(|summary| summary.networks.unwrap_or_default());
        let all = |is: &dyn Fn(Network) -> bool| networks.clone().all(|own| own.into_iter().any(is));
        let firsts = networks.clone().flatten().filter(|network| network.is_first());
        let mut agreed: Vec<Network> = Vec::new();
        for first in firsts.map(Network::plain) {
            if all(&|own| own.plain() == first) && !agreed.contains(&first) {
                agreed.push(first);
            }
        }
        let is_needed = agreed.iter().any(|network| !all(&|own| own == network.first()));
        agreed.truncate(if is_needed { AGREED } else { 0 });
        agreed
    }

    /// Whether the hosts are those of a ring of three or of a larger mesh, where each two have cables between
    /// them, with a network for each: at least three hosts, each network on two of them, and each two with
    /// one in common. A switch, rails, and a pair have a network that is on all hosts. Two networks with one
    /// hash make a ring of none, unless each was on a single host.
    fn cables(&self) -> Option<bool> {
        let mut hosts: BTreeMap<IpAddr, BTreeSet<Network>> = BTreeMap::new();
        for RankSummary { address, summary } in self.ranks {
            // With all slots in use, some networks may have found none.
            let networks = summary.networks.filter(|all| all[network::MOST - 1] == Network::default())?;
            let used = networks.into_iter().map(Network::plain).filter(|own| *own != Network::default());
            hosts.entry(*address).or_default().extend(used);
        }
        let (sets, most) = (hosts.into_values().collect::<Vec<_>>(), network::MOST);
        let of_two = |network| sets.iter().filter(|own| own.contains(network)).count() == 2;
        let is_mesh = (3..=most).contains(&sets.len())
            && sets.iter().flatten().all(of_two)
            && (1..sets.len()).all(|at| sets[..at].iter().all(|other| !other.is_disjoint(&sets[at])));
        is_mesh.then(|| !self.ranks.iter().any(|rank| rank.summary.own_net))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{GroupSummary, KINDS};

    const V4: Addressing = Addressing { version: RoceVersion::V2, family: AddressFamily::Ipv4 };
    const V6: Addressing = Addressing { version: RoceVersion::V2, family: AddressFamily::Ipv6 };

    fn rank(last: u8, capability: Capability) -> RankSummary {
        let mut summary = Summary { capability, ..Summary::default() };
        if let Some(at) = KINDS.iter().position(|kind| *kind == capability) {
            let ports = [8, 0, 0, 0];
            summary.groups[at] = Some(GroupSummary { ports, total: 3200 });
        }
        RankSummary { address: IpAddr::from([10, 0, 0, last]), summary }
    }

    /// What a rank with RoCE has of it.
    fn of_roce(rank: &mut RankSummary) -> &mut GroupSummary {
        rank.summary.groups[1].as_mut().unwrap()
    }

    fn roce(last: u8) -> RankSummary {
        rank(last, Capability::Roce)
    }

    fn concluded(ranks: &[RankSummary]) -> (Transport, Vec<String>) {
        let verdict = Verdict::of(ranks);
        (verdict.transport, verdict.warnings().into_iter().map(|(text, _)| text).collect())
    }

    #[test]
    fn equal_ranks_use_what_they_have_and_no_warning_follows() {
        let silent = |transport| (transport, Vec::<String>::new());
        assert_eq!(concluded(&[roce(1), roce(2)]), silent(Transport::Roce(V4)));
        assert_eq!(concluded(&[rank(1, Capability::InfiniBand); 4]), silent(Transport::InfiniBand));
        assert_eq!(concluded(&[rank(1, Capability::Efa); 2]), silent(Transport::Efa));
        assert_eq!(concluded(&[rank(1, Capability::NoDevice); 3]), silent(Transport::NoDevice));
        assert_eq!(concluded(&[rank(1, Capability::NotExamined); 3]), silent(Transport::NotExamined));
        assert_eq!(
            concluded(&[rank(1, Capability::NoUsablePort), rank(2, Capability::NoDevice)]),
            silent(Transport::Sockets)
        );
        assert_eq!(concluded(&[rank(1, Capability::NoDevice)]), silent(Transport::NoDevice));
    }

    #[test]
    fn one_rank_without_rdma_makes_all_use_sockets_and_is_named() {
        for (capability, fact) in [
            (Capability::NoDevice, "no active RDMA port"),
            (Capability::NoUsablePort, "no usable RDMA port"),
            (Capability::Disabled, "RDMA is disabled for NCCL on that host"),
            (Capability::InfiniBand, "it has InfiniBand, most others have RoCE"),
            (Capability::Efa, "it has EFA, most others have RoCE"),
        ] {
            let (transport, lines) = concluded(&[roce(4), roce(5), roce(6), rank(7, capability)]);
            assert_eq!(transport, Transport::Sockets);
            assert_eq!(lines, [format!("rank 3 (10.0.0.7): {fact}; all ranks use sockets")]);
        }
    }

    #[test]
    fn where_two_capabilities_are_equally_frequent_rank_0_counts_as_most() {
        let (_, lines) = concluded(&[rank(1, Capability::InfiniBand), roce(2)]);
        assert_eq!(
            lines,
            ["rank 1 (10.0.0.2): it has RoCE, most others have InfiniBand; all ranks use sockets"]
        );
    }

    #[test]
    fn ranks_use_the_addressing_that_all_of_them_have() {
        let (mut both, mut other) = (roce(2), roce(3));
        of_roce(&mut both).ports = [8, 8, 8, 8];
        of_roce(&mut other).ports = [0, 8, 0, 8];
        assert_eq!(concluded(&[both, both]), (Transport::Roce(V4), vec![]));
        assert_eq!(concluded(&[both, other]), (Transport::Roce(V6), vec![]));
        // A rank that loses a port does not take all others off RDMA.
        let mut most = both;
        of_roce(&mut most).ports = [7, 8, 0, 0];
        assert_eq!(concluded(&[most, roce(3), roce(4)]), (Transport::Roce(V4), vec![]));
        let (transport, lines) = concluded(&[roce(1), roce(2), other]);
        assert_eq!(transport, Transport::Sockets);
        let fact = "its RoCE ports have no GID of the version and address family that most others use";
        assert_eq!(lines, [format!("rank 2 (10.0.0.3): {fact}; all ranks use sockets")]);
    }

    /// A rank with InfiniBand and RoCE of these totals in Gb/s, that prefers the larger one.
    fn both(last: u8, infiniband: u16, roce: u16) -> RankSummary {
        let group = |total: u16, rate: u16| {
            let ports = [total / rate, 0, 0, 0];
            (total > 0).then_some(GroupSummary { ports, total })
        };
        let capability = if infiniband >= roce { Capability::InfiniBand } else { Capability::Roce };
        let groups = [group(infiniband, 200), group(roce, 100), None];
        let summary = Summary { capability, groups, ..Summary::default() };
        RankSummary { address: IpAddr::from([10, 0, 0, last]), summary }
    }

    #[test]
    fn a_dead_port_does_not_change_the_kind_for_all() {
        let silent = |transport| (transport, Vec::<String>::new());
        let healthy = [both(1, 800, 800), both(2, 800, 800), both(3, 800, 800)];
        assert_eq!(concluded(&healthy), silent(Transport::InfiniBand));
        // One of four InfiniBand ports is dead: that host alone would use RoCE.
        let mut ranks = healthy.to_vec();
        ranks.push(both(4, 600, 800));
        assert_eq!(concluded(&ranks), silent(Transport::InfiniBand));
        // In a world of two the ranks prefer different kinds.
        assert_eq!(concluded(&[both(1, 800, 800), both(4, 600, 800)]), silent(Transport::InfiniBand));
        // Two are dead, or all: RoCE carries more than a quarter more on every rank.
        for left in [400, 0] {
            ranks[3] = both(4, left, 800);
            assert_eq!(concluded(&ranks), silent(Transport::Roce(V4)), "{left}");
        }
        // Nothing is left that all have.
        ranks[2] = both(3, 800, 0);
        let line = "rank 3 (10.0.0.4): it has RoCE, most others have InfiniBand; all ranks use sockets";
        assert_eq!(concluded(&ranks), (Transport::Sockets, vec![line.to_owned()]));
    }

    #[test]
    fn hosts_that_are_alike_use_what_each_would_use_alone() {
        // Its GPUs may be nearer to RoCE, although InfiniBand carries as much.
        let mut rank = both(1, 800, 800);
        rank.summary.capability = Capability::Roce;
        assert_eq!(concluded(&[rank; 3]), (Transport::Roce(V4), vec![]));
        // One with another taste does not change that, and gives nothing up.
        assert_eq!(concluded(&[rank, rank, both(2, 800, 800)]), (Transport::Roce(V4), vec![]));
        // Of two kinds within a quarter that are preferred equally often, InfiniBand is used.
        let other = both(2, 600, 800);
        assert_eq!(concluded(&[other, both(3, 800, 600)]).0, Transport::InfiniBand);
    }

    #[test]
    fn a_rank_that_was_not_examined_is_named_and_prevents_nothing() {
        let (transport, lines) = concluded(&[roce(1), rank(2, Capability::NotExamined)]);
        assert_eq!(transport, Transport::Roce(V4));
        assert_eq!(lines, ["rank 1 (10.0.0.2): its RDMA devices were not examined and are not compared"]);
    }

    #[test]
    fn if_one_rank_requires_rdma_all_must_have_it() {
        let needs = |rank: RankSummary| RankSummary { summary: rank.summary.required(true), ..rank };
        let is_enough = |ranks: &[RankSummary]| Verdict::of(ranks).is_enough(ranks);
        assert!(is_enough(&[roce(1), rank(2, Capability::NoDevice)]), "no rank requires it");
        assert!(is_enough(&[needs(roce(1)), roce(2)]));
        assert!(!is_enough(&[needs(roce(1)), rank(2, Capability::NoDevice)]));
        assert!(!is_enough(&[needs(roce(1)), rank(2, Capability::NotExamined)]));
    }

    #[test]
    fn a_thousand_ranks_that_differ_are_counted_and_not_listed() {
        let mut ranks = vec![roce(1); 1001];
        ranks.extend(vec![rank(2, Capability::NoDevice); 1000]);
        let (transport, lines) = concluded(&ranks);
        assert_eq!(transport, Transport::Sockets);
        assert_eq!(lines.len(), NAMED + 1);
        assert_eq!(lines[NAMED], "994 more ranks differ from the others");
        let verdict = Verdict::of(&ranks);
        let difference = Difference::Capability { own: Capability::NoDevice, most: Capability::Roce };
        assert_eq!(verdict.warnings()[0].1.map(|rank| rank.difference), Some(difference));
        assert_eq!(verdict.warnings()[NAMED].1, None);
        assert_eq!((verdict.differences.len(), verdict.unnamed), (6, 994));
    }
}
