//! Worlds in trouble: several addresses a host, pauses, cuts, crashes at the worst moments, more nodes than
//! seats, other jobs, wrong options, networks without multicast or with two address families, and RDMA
//! devices.
//!
//! `worlds` makes the worlds, with `seeds`, `families`, `stops` and `neighbours` for these kinds; `promises`
//! checks how they have ended, `excuses` why a node may end otherwise; `scenarios` has single worlds.

mod elastic;
pub(crate) mod excuses;
mod families;
mod neighbours;
pub(crate) mod promises;
mod scenarios;
mod seeds;
mod stops;
pub(crate) mod worlds;

use mingle_core::proto::Time;

use crate::network::{Fact, Network};
use crate::tally::{Checked, Kind, keep_every_promise};
use promises::check;
use worlds::run;

/// The longest that a world takes where no node crashes in a round: a chain of seeds is walked hop by hop,
/// and a kernel gives up a connection whose address has vanished after 8 s.
const LONGEST: Time = Time::from_secs(20);

/// A kind of trouble for a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Hosts have bridges with the same address, preferred or not, and dead links.
    Addresses,
    /// A process is stopped for a while.
    Pause,
    /// For a while, nothing passes from one host to another.
    Cut,
    /// For a while, nothing passes between two halves of the network.
    Partition,
    /// A node is killed and started again while the world is not full.
    EarlyCrash,
    /// A node is killed near the commit.
    LateCrash,
    /// There is one node more than seats.
    Standby,
    /// Nodes want the roster, and some receive no multicast.
    Deaf,
    /// Two jobs share a network, often with the same group.
    Jobs,
    /// The same, and several hosts share some addresses, so that datagrams and connections reach the wrong
    /// node.
    Mistaken,
    /// One or two nodes have another world size.
    WrongSize,
    /// Two nodes were given the same rank.
    SameRank,
    /// Multicast passes nowhere or on islands only; nodes know each other by seeds, which are late, change
    /// and mislead.
    Seeds,
    /// Hosts have IPv4, IPv6 or both, and addresses appear and vanish.
    Families,
    /// Some nodes require RDMA.
    Fabric,
    /// Processes are stopped for up to 60 s, most of them in a round.
    LongPause,
    /// Hosts lose power, and start again.
    PowerLoss,
    /// Timers fire late, and in another order on each node.
    LateTimers,
    /// Packets take up to 400 ms.
    Slow,
    /// Several nodes have the same address.
    OneAddress,
    /// Nodes are behind NATs, several behind one.
    Translated,
    /// The world may have one of several sizes, and something happens at the end of the last call.
    Elastic,
    /// Firewalls and links between some hosts break paths, many of them for a while only.
    Paths,
}

impl Trouble {
    /// Whether the world must form within the usual time.
    fn is_usual(self, net: &Network) -> bool {
        match self {
            Self::Seeds
            | Self::Fabric
            | Self::LateTimers
            | Self::Slow
            | Self::OneAddress
            | Self::Translated
            | Self::LongPause
            | Self::PowerLoss => true,
            Self::Families => !families::common_in_the_end(net).is_empty(),
            _ => false,
        }
    }

    /// Whether each host can have a port for paths at all of its addresses.
    fn can_prove_paths(self) -> bool {
        !matches!(
            self,
            Self::OneAddress
                | Self::Translated
                | Self::Jobs
                | Self::Mistaken
                | Self::Addresses
                | Self::Families
        )
    }
}

impl Kind for Trouble {
    const ALL: &'static [Self] = &[
        Self::Addresses,
        Self::Pause,
        Self::Cut,
        Self::Partition,
        Self::EarlyCrash,
        Self::LateCrash,
        Self::Standby,
        Self::Deaf,
        Self::Jobs,
        Self::Mistaken,
        Self::WrongSize,
        Self::SameRank,
        Self::Seeds,
        Self::Families,
        Self::Fabric,
        Self::LongPause,
        Self::PowerLoss,
        Self::LateTimers,
        Self::Slow,
        Self::OneAddress,
        Self::Translated,
        Self::Elastic,
        Self::Paths,
    ];
    // A share of few worlds says nothing.
    const ENOUGH: u64 = 500;

    fn runs(self) -> u64 {
        if matches!(self, Self::Seeds | Self::Families | Self::Fabric) { 2000 } else { 500 }
    }

    fn evidence(self) -> &'static [(Fact, u64)] {
        match self {
            Self::Pause => &[(Fact::PausedInRound, 20)],
            Self::Cut | Self::Partition => &[(Fact::CutInRound, 20)],
            Self::EarlyCrash | Self::LateCrash => &[(Fact::KilledMember, 500)],
            Self::LongPause => &[(Fact::PausedLongInRound, 200), (Fact::LeaderPausedLong, 100)],
            Self::PowerLoss => &[(Fact::PowerLost, 500), (Fact::PowerLostInRound, 50), (Fact::GhostMet, 300)],
            Self::LateTimers => &[(Fact::VeryLate, 350)],
            Self::Slow => &[(Fact::VerySlow, 500)],
            Self::OneAddress => &[(Fact::Neighbours, 500)],
            Self::Translated => &[(Fact::Translated, 500)],
            Self::Elastic => &[
                (Fact::Smaller, 400),
                (Fact::LeftOut, 100),
                (Fact::KilledMember, 100),
                (Fact::CutInRound, 20),
                (Fact::NoneFormed, 20),
            ],
            Self::Fabric => &[(Fact::TwoKinds, 350), (Fact::KindGivenUp, 70)],
            Self::Paths => &[(Fact::PathBroken, 100), (Fact::PathHealed, 100)],
            _ => &[],
        }
    }

    fn run(self, seed: u64, tracing: bool) -> (Network, Result<Checked, String>) {
        let mut net = run(seed, self, tracing);
        count_kinds(&mut net);
        let checked = elastic::check(&mut net).and_then(|()| check(self, &net));
        (net, checked)
    }
}

#[test]
fn worlds_in_trouble_keep_every_promise() {
    keep_every_promise::<Trouble>();
}

/// Counts a world in which kinds of RDMA were chosen.
fn count_kinds(net: &mut Network) {
    let formed = net.hosts.iter().filter_map(|host| Some((host, host.outcome.as_ref()?.as_ref().ok()?)));
    let formed: Vec<_> = formed.map(|(host, formed)| (host.fabric, formed.verdict.transport)).collect();
    let used = formed.iter().filter(|(_, transport)| transport.is_rdma());
    let mixed = used.clone().any(|(fabric, _)| fabric.is_mixed());
    let given_up = used.clone().any(|(fabric, transport)| fabric.gives_up(*transport));
    for (fact, is_so) in [(Fact::TwoKinds, mixed), (Fact::KindGivenUp, given_up)] {
        if is_so {
            *net.history.facts.entry(fact).or_default() += 1;
        }
    }
}
