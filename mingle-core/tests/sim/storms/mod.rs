//! Worlds in trouble: several addresses a host, pauses, cuts, crashes at the worst moments, more nodes than
//! seats, other jobs, wrong options, networks without multicast or with two address families, and RDMA
//! devices.
//!
//! `worlds` makes the worlds, with `seeds`, `families`, `stops` and `neighbours` for these kinds; `promises`
//! checks how they have ended, `excuses` why a node may end otherwise; `scenarios` has single worlds.

pub(crate) mod excuses;
mod families;
mod neighbours;
pub(crate) mod promises;
mod scenarios;
mod seeds;
mod stops;
mod worlds;

use std::collections::BTreeMap;

use mingle_core::proto::Time;

use crate::network::{Fact, Network};
use promises::check;
use worlds::run;

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

    /// The longest that a world takes where no node crashes in a round: a chain of seeds is walked hop by
    /// hop, and a connection whose address has vanished ends by keepalive, after 25 s.
    fn limit(self) -> Time {
        Time::from_secs(if self == Self::PowerLoss { 35 } else { 30 })
    }

    /// How many worlds of this kind are run by default.
    fn runs(self) -> u64 {
        if matches!(self, Self::Seeds | Self::Families | Self::Fabric) { 2000 } else { 500 }
    }

    /// What happens in at least so many of 1,000 worlds of this kind. Where it does not, the worlds have
    /// passed without the trouble that they are about.
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
            _ => &[],
        }
    }
}

const ALL: [Trouble; 21] = [
    Trouble::Addresses,
    Trouble::Pause,
    Trouble::Cut,
    Trouble::Partition,
    Trouble::EarlyCrash,
    Trouble::LateCrash,
    Trouble::Standby,
    Trouble::Deaf,
    Trouble::Jobs,
    Trouble::Mistaken,
    Trouble::WrongSize,
    Trouble::SameRank,
    Trouble::Seeds,
    Trouble::Families,
    Trouble::Fabric,
    Trouble::LongPause,
    Trouble::PowerLoss,
    Trouble::LateTimers,
    Trouble::Slow,
    Trouble::OneAddress,
    Trouble::Translated,
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The most broken promises of one kind that are printed.
const MOST: usize = 10;
/// From this many worlds on, the trouble must have been in the share of them that its kind says.
const ENOUGH: u64 = 500;

/// What the worlds of one kind have shown.
#[derive(Default)]
struct Tally {
    runs: u64,
    took: Vec<(Time, u64)>,
    excuses: BTreeMap<&'static str, u64>,
    facts: BTreeMap<Fact, u64>,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, trouble: Trouble, seed: u64) {
        let net = run(seed, trouble, false);
        self.runs += 1;
        for fact in net.history.facts.keys() {
            *self.facts.entry(*fact).or_default() += 1;
        }
        match check(trouble, &net) {
            Ok(checked) => {
                self.took.extend(checked.took.map(|time| (time, seed)));
                for excuse in checked.excuses {
                    *self.excuses.entry(excuse).or_default() += 1;
                }
            }
            Err(why) => self.wrong.push(format!("MINGLE_TROUBLE={trouble:?} MINGLE_SEED={seed}: {why}")),
        }
    }

    /// Prints what was seen. Returns the promises that were broken, and the trouble that was missing.
    fn finish(mut self, trouble: Trouble) -> Vec<String> {
        self.took.sort_unstable();
        if let Some(last) = self.took.len().checked_sub(1) {
            let at = |share: usize| self.took[last * share / 1000];
            eprintln!(
                "{trouble:?}: {} worlds formed; median {:?}, 99% {:?}, 99.9% {:?}, all {:?} (seed {})",
                self.took.len(),
                at(500).0,
                at(990).0,
                at(999).0,
                at(1000).0,
                at(1000).1
            );
        }
        for (excuse, worlds) in &self.excuses {
            eprintln!("    excused in {worlds} of {} worlds: {excuse}", self.runs);
        }
        for &(fact, least) in trouble.evidence() {
            let worlds = self.facts.get(&fact).copied().unwrap_or_default();
            eprintln!("    {fact:?} in {worlds} of {} worlds", self.runs);
            // A share of few worlds says nothing.
            if self.runs >= ENOUGH && worlds * 1000 < least * self.runs {
                self.wrong.push(format!("{trouble:?}: {fact:?} in {worlds} of {} worlds alone", self.runs));
            }
        }
        self.wrong.truncate(MOST);
        self.wrong
    }
}

/// `MINGLE_TROUBLE=Pause` runs that kind alone, and with `MINGLE_SEED=n` one world of it, whose trace is
/// printed.
#[test]
fn worlds_in_trouble_keep_every_promise() {
    let wanted = std::env::var("MINGLE_TROUBLE").ok();
    let kinds =
        ALL.into_iter().filter(|kind| wanted.as_ref().is_none_or(|name| format!("{kind:?}") == *name));
    if let (Some(seed), Some(_)) = (number("MINGLE_SEED"), &wanted) {
        for trouble in kinds {
            let net = run(seed, trouble, true);
            eprintln!("{}\n{:?}", net.trace, check(trouble, &net).map(|checked| checked.excuses));
        }
        return;
    }
    let mut wrong = Vec::new();
    for trouble in kinds {
        let mut tally = Tally::default();
        for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(trouble.runs()) {
            tally.add(trouble, seed);
        }
        wrong.extend(tally.finish(trouble));
    }
    assert!(wrong.is_empty(), "{} broken promises:\n{}", wrong.len(), wrong.join("\n"));
}
