//! Worlds in trouble: several addresses a host, pauses, cuts, crashes at the worst moments, more nodes than
//! seats, other jobs, wrong options, networks without multicast or with two address families, and RDMA
//! devices.
//!
//! `worlds` makes the worlds, with `seeds` and `families` for these two kinds; `promises` checks how they
//! have ended; `scenarios` has single worlds.

mod families;
mod promises;
mod scenarios;
mod seeds;
mod worlds;

use mingle_core::proto::Time;

use crate::network::Network;
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
}

impl Trouble {
    fn cuts(self) -> bool {
        matches!(self, Self::Cut | Self::Partition)
    }

    /// Whether the world must form within the usual time.
    fn is_usual(self, net: &Network) -> bool {
        match self {
            Self::Seeds | Self::Fabric => true,
            Self::Families => !families::common_in_the_end(net).is_empty(),
            _ => false,
        }
    }

    /// How many worlds of this kind are run by default.
    fn runs(self) -> u64 {
        if matches!(self, Self::Seeds | Self::Families | Self::Fabric) { 2000 } else { 500 }
    }
}

const ALL: [Trouble; 15] = [
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
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
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
            let net = run(seed, trouble);
            eprintln!("{}\n{:?}", net.trace, check(trouble, &net));
        }
        return;
    }
    let mut wrong = Vec::new();
    for trouble in kinds {
        let mut took: Vec<(Time, u64)> = Vec::new();
        for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(trouble.runs()) {
            match check(trouble, &run(seed, trouble)) {
                Ok(time) => took.extend(time.map(|time| (time, seed))),
                Err(why) => wrong.push(format!("MINGLE_TROUBLE={trouble:?} MINGLE_SEED={seed}: {why}")),
            }
        }
        took.sort_unstable();
        if took.is_empty() {
            continue;
        }
        let at = |share: usize| took[(took.len() - 1) * share / 1000];
        eprintln!(
            "{trouble:?}: {} worlds formed; median {:?}, 99% {:?}, 99.9% {:?}, all {:?} (seed {})",
            took.len(),
            at(500).0,
            at(990).0,
            at(999).0,
            at(1000).0,
            at(1000).1
        );
    }
    assert!(
        wrong.is_empty(),
        "{} broken promises:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}
