//! Every limit and interval that depends on the size of the world.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::session::PATIENCE;

/// The first interval of everything that is repeated, while a turn is shorter.
pub(crate) const FIRST_REPEAT: Duration = Duration::from_millis(20);

/// The size of a world, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale(pub(crate) u32);

impl Scale {
    /// Above 64 nodes, a message that every node sends or reads is a burden. A node listens before its first
    /// announce, dials its leader when that has answered it, and a leader answers newcomers by an early
    /// announce.
    pub(crate) fn is_large(self) -> bool {
        self.0 > 64
    }

    /// The time in which a leader answers one message of every node: 50 us each, 20,000 messages a second.
    /// Each interval below is a multiple of it, with the value of a small world as its least.
    pub(crate) fn turn(self) -> Duration {
        Duration::from_micros(50) * self.0
    }

    /// How long a node of a large world listens before its first announce, so that a start of thousands is
    /// not a storm: two fifths of a turn, up to 20 ms. With a whole turn, 256 nodes that start at once formed
    /// 17 ms later in the simulator, and sent no less.
    pub(crate) fn listening(self) -> Duration {
        (self.turn() * 2 / 5).min(Duration::from_millis(20))
    }

    /// How often a node that may not lead puts its solicit off because it has heard another node's: 3 times
    /// at least. In a large world one or two of all that wait for rank 0 solicit in a second, and each gets
    /// its turn. The number is drawn from this range, or nodes that were put off together would solicit
    /// together.
    pub(crate) fn put_off(self) -> RangeInclusive<u32> {
        const LEAST: u32 = 3;
        let half = self.0 / 2;
        if half <= LEAST { LEAST..=LEAST } else { half..=3 * half }
    }

    /// How long a leader collects changes of its members before it announces them: a turn, from 20 ms to
    /// 500 ms, because every node reads every announce.
    pub(crate) fn announce_delay(self) -> Duration {
        self.turn().clamp(Duration::from_millis(20), Duration::from_millis(500))
    }

    /// The first interval between repeats of a message that a leader must answer: a turn, from 20 ms to 1 s.
    /// A repeat before that makes the leader slower.
    pub(crate) fn first_repeat(self) -> Duration {
        self.turn().clamp(FIRST_REPEAT, Duration::from_secs(1))
    }

    /// How long a leader may be silent before a node has joined it: twenty turns, from 1 s to 4 s.
    pub(crate) fn leader_silence(self) -> Duration {
        (self.turn() * 20).clamp(Duration::from_secs(1), Duration::from_secs(4))
    }

    /// How long a node may take to acknowledge what was said, before another connection to it is tried: two
    /// turns, at least 40 ms (the kernel repeats a lost SYN only after 1 s). Otherwise the leader of a large
    /// world would meet six SYNs of each node within half a second.
    pub(crate) fn dial_interval(self) -> Duration {
        PATIENCE.max(self.turn() * 2)
    }

    /// With how many processes that have not joined a node has sessions at most, because IDs can be made up:
    /// every seat twice, and 64 more.
    pub(crate) fn most_entries(self) -> usize {
        2 * self.nodes().saturating_add(32)
    }

    /// How many nodes may have joined, for the same reason: as many as have room for a connection each.
    pub(crate) fn most_joined(self) -> usize {
        4 * self.most_entries()
    }

    fn nodes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}
