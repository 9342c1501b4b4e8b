//! Addresses where other nodes may be, for networks that pass no multicast.
//!
//! A node sends each announce and each solicit to all to its seeds as well. A seed answers as a node that
//! hears the multicast, but at once. A member asks its seeds while it is in no round, so that islands that
//! only a seed joins become one world.

use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The most seeds of a node: eight ports each of 500 addresses.
const SEEDS: usize = 4096;
/// The most seeds that are written to at once; the others follow the next time.
const AT_ONCE: usize = 256;

/// The seeds that are known now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seeds {
    known: Vec<SocketAddr>,
    next: usize,
}

impl Seeds {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The seeds whose turn it is.
    pub(super) fn turn(&mut self) -> Vec<SocketAddr> {
        let count = self.known.len();
        let turn = (0..count.min(AT_ONCE)).map(|i| self.known[(self.next + i) % count]).collect();
        self.next = (self.next + AT_ONCE).checked_rem(count).unwrap_or_default();
        turn
    }

    /// Replaces what was known by `seeds`, without this node's own addresses. Returns whether any of them is
    /// new.
    pub(crate) fn replace(&mut self, seeds: Vec<SocketAddr>, own: &[SocketAddr]) -> bool {
        let mut known: Vec<SocketAddr> = Vec::new();
        let mut unique = BTreeSet::new();
        for seed in seeds {
            if known.len() < SEEDS && !own.contains(&seed) && unique.insert(seed) {
                known.push(seed);
            }
        }
        let before: BTreeSet<_> = self.known.iter().copied().collect();
        let is_new = known.iter().any(|seed| !before.contains(seed));
        self.known = known;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, u8::try_from(n / 256).unwrap(), u8::try_from(n % 256).unwrap()], 29500))
    }

    #[test]
    fn every_seed_gets_its_turn_and_none_is_written_to_twice() {
        let mut seeds = Seeds::default();
        assert_eq!(seeds.turn(), []);
        assert!(seeds.replace((0..600).chain(0..600).map(address).collect(), &[address(7)]));
        assert_eq!(seeds.known.len(), 599);
        let mut written: Vec<_> = (0..3).flat_map(|_| seeds.turn()).collect();
        written.sort_unstable();
        written.dedup();
        assert_eq!(written.len(), 599);
        assert!(!written.contains(&address(7)), "this node itself");
        assert!(!seeds.replace((1..599).map(address).collect(), &[address(7)]), "nothing new");
        assert!(seeds.replace(vec![address(0), address(600)], &[]));
    }

    #[test]
    fn the_number_of_seeds_is_bounded() {
        let mut seeds = Seeds::default();
        seeds.replace((0..10_000).map(address).collect(), &[]);
        assert_eq!(seeds.known.len(), SEEDS);
    }
}
