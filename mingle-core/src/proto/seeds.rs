//! Addresses where others may be, for networks that pass no multicast.
//!
//! Whatever a node says to all goes to its seeds as well, each by itself. A seed answers like anybody who
//! hears a multicast, but at once; and a member asks its seeds while the world is not full, so that islands
//! which only a seed joins become one world.

use std::net::SocketAddr;
use std::time::Duration;

use super::node::Node;
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::wire::Message;

/// Most seeds of a node: eight ports each of 500 addresses.
const SEEDS: usize = 4096;
/// Most seeds that are written to at once; the others have their turn next.
const AT_ONCE: usize = 256;
/// How often a member asks its seeds.
const PERIOD: Duration = Duration::from_secs(1);

/// The seeds that are known now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seeds {
    known: Vec<SocketAddr>,
    next: usize,
}

impl Seeds {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Those whose turn it is.
    pub(crate) fn turn(&mut self) -> Vec<SocketAddr> {
        let count = self.known.len();
        let turn = (0..count.min(AT_ONCE)).map(|i| self.known[(self.next + i) % count]).collect();
        self.next = (self.next + AT_ONCE) % count.max(1);
        turn
    }

    /// Takes the place of what was known. Returns whether there is any that was not.
    fn replace(&mut self, seeds: Vec<SocketAddr>, own: &[SocketAddr]) -> bool {
        let mut known: Vec<SocketAddr> = Vec::new();
        let mut source = std::collections::BTreeSet::new();
        for seed in seeds {
            if known.len() < SEEDS && !own.contains(&seed) && source.insert(seed) {
                known.push(seed);
            }
        }
        let before: std::collections::BTreeSet<_> = self.known.iter().copied().collect();
        let news = known.iter().any(|seed| !before.contains(seed));
        self.known = known;
        news
    }
}

impl Node {
    /// Where others may be, all of it: names resolve to other addresses as pods come and go. New ones are
    /// written to at once.
    pub fn handle_seeds(&mut self, now: Time, seeds: Vec<SocketAddr>) {
        self.at(now);
        let own = self.shared.config.node.endpoints.clone();
        if !self.shared.seeds.replace(seeds, &own) || self.ended {
            return;
        }
        self.shared.timers.set(Timer::Seed, self.shared.now);
        if self.gathers() && self.announced {
            self.announces.reset();
            self.shared.timers.set(Timer::Announce, self.shared.now);
        } else if self.follow.is_none() && !self.may_lead() {
            self.solicits.reset();
            self.shared.timers.set(Timer::Solicit, self.shared.now);
        }
    }

    /// A member asks its seeds, which may be members of another island.
    pub(super) fn ask_seeds(&mut self) {
        if self.shared.seeds.is_empty() {
            return;
        }
        if self.follow.as_ref().is_some_and(|follow| follow.is_joined() && !follow.in_round()) {
            self.shared.send_to_seeds(&self.shared.solicit());
        }
        self.shared.set_after(Timer::Seed, PERIOD);
    }
}

impl Shared {
    /// To all by multicast, and to the seeds.
    pub(crate) fn call(&mut self, message: &Message) {
        self.multicast(message);
        self.send_to_seeds(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, u8::try_from(n / 256).unwrap(), u8::try_from(n % 256).unwrap()], 29500))
    }

    #[test]
    fn every_seed_has_its_turn_and_none_is_written_to_twice() {
        let mut seeds = Seeds::default();
        assert_eq!(seeds.turn(), []);
        assert!(seeds.replace((0..600).chain(0..600).map(address).collect(), &[address(7)]));
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
