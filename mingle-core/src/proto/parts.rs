//! The roster in parts, for nodes that want it: how a leader cuts it, and how a follower puts it together.

use crate::model::{Digest, Roster, World};
use crate::wire::{self, LONGEST_ENTRY, PART, Part, Want};

/// The parts that have arrived, and the digest that they must have together.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    world: World,
    digest: Digest,
    length: usize,
    arrived: Vec<Option<Vec<u8>>>,
    roster: Option<Roster>,
}

impl Parts {
    /// No parts yet, of a roster of this many bytes. A roster longer than any of this world is cut off, and
    /// so is never complete.
    pub(crate) fn new(world: World, digest: Digest, length: u32) -> Self {
        let most = usize::try_from(world.get()).unwrap_or(usize::MAX).saturating_mul(LONGEST_ENTRY);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        Self { world, digest, length, arrived: vec![None; length.div_ceil(PART)], roster: None }
    }

    /// Adds a part. Returns whether it changed what is wanted.
    pub(crate) fn add(&mut self, part: Part) -> bool {
        let Some(index) = usize::try_from(part.index).ok().filter(|&index| index < self.arrived.len()) else {
            return false;
        };
        let slot = &mut self.arrived[index];
        if slot.is_some() || part.bytes.len() != (self.length - index * PART).min(PART) {
            return false;
        }
        *slot = Some(part.bytes.into_vec());
        if self.arrived.iter().all(Option::is_some) {
            self.complete();
        }
        // The end of a window of requests, or of the roster.
        self.roster.is_some() || self.first_missing().is_some_and(|missing| missing % 32 == 0)
    }

    fn first_missing(&self) -> Option<usize> {
        self.arrived.iter().position(Option::is_none)
    }

    /// Puts the roster together, or starts again where its digest differs.
    fn complete(&mut self) {
        let bytes: Vec<u8> = self.arrived.iter_mut().filter_map(Option::take).flatten().collect();
        let roster = wire::decode_roster(&bytes, self.world);
        self.roster = roster.filter(|roster| roster.digest() == self.digest);
    }

    /// What to ask the leader for; nothing once all parts are there.
    pub(crate) fn want(&self, round: u64) -> Option<Want> {
        if self.roster.is_some() {
            return None;
        }
        let first = self.first_missing()?;
        let window = self.arrived.iter().skip(first).take(32).enumerate();
        let mask = window.filter(|(_, part)| part.is_none()).fold(0, |mask, (bit, _)| mask | 1 << bit);
        Some(Want { round, first: u32::try_from(first).ok()?, mask })
    }

    /// Whether all parts are there.
    pub(crate) fn is_complete(&self) -> bool {
        self.roster.is_some()
    }

    pub(crate) fn into_roster(self) -> Option<Roster> {
        self.roster
    }
}

/// The parts that a node asks for, of the encoded roster.
pub(crate) fn answer(want: &Want, roster: &[u8]) -> Vec<Part> {
    let wanted = (0..32).filter(|bit| want.mask & 1 << bit != 0).map(|bit| want.first.saturating_add(bit));
    let parts = wanted.filter_map(|index| {
        let start = usize::try_from(index).ok()?.checked_mul(PART)?;
        let bytes = roster.get(start..).filter(|rest| !rest.is_empty())?;
        Some(Part { round: want.round, index, bytes: bytes.iter().copied().take(PART).collect() })
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::{HostName, Member, Metadata, NodeId, Rank};

    fn roster(size: u32) -> Roster {
        let member = |rank: u32| Member {
            rank: Rank(rank),
            id: NodeId(u128::from(rank).to_be_bytes()),
            host: HostName::new(&format!("node-{rank}")),
            address: SocketAddr::from((rank.to_be_bytes(), 29500)),
            slots: 8,
            metadata: Metadata::default(),
        };
        Roster::new((0..size).map(member).collect()).unwrap()
    }

    fn expected(roster: &Roster, digest: Digest) -> Parts {
        let world = World::new(u32::try_from(roster.members().len()).unwrap()).unwrap();
        Parts::new(world, digest, u32::try_from(wire::encode_roster(roster).len()).unwrap())
    }

    #[test]
    fn a_roster_arrives_whole_although_parts_are_lost() {
        for size in [1, 9, 40, 1000, 3000] {
            let sent = roster(size);
            let bytes = wire::encode_roster(&sent);
            let mut parts = expected(&sent, sent.digest());
            let mut asked = 0;
            while let Some(want) = parts.want(1) {
                asked += 1;
                assert!(asked < 1000, "no end with {size} members");
                // Of every answer, each third datagram is lost.
                for (i, part) in answer(&want, &bytes).into_iter().enumerate() {
                    if (i + asked) % 3 != 0 {
                        parts.add(part);
                    }
                }
            }
            assert_eq!(parts.into_roster().as_ref(), Some(&sent));
        }
    }

    #[test]
    fn a_roster_with_another_digest_is_asked_for_again() {
        let sent = roster(4);
        let mut parts = expected(&sent, roster(5).digest());
        let want = parts.want(1).unwrap();
        for part in answer(&want, &wire::encode_roster(&sent)) {
            parts.add(part);
        }
        assert_eq!(parts.want(1), Some(want));
    }

    #[test]
    fn a_roster_longer_than_any_of_its_world_takes_no_memory() {
        assert_eq!(Parts::new(World::new(4).unwrap(), roster(4).digest(), u32::MAX).arrived.len(), 4);
        let mut longest = roster(1).members()[0].clone();
        longest.host = HostName::new(&"n".repeat(HostName::MAX));
        longest.address = "[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        for key in 0..Metadata::PAIRS {
            longest.metadata.insert(&key.to_string(), &"v".repeat(14)).unwrap();
        }
        let roster = Roster::new(vec![longest]).unwrap();
        assert!(wire::encode_roster(&roster).len() <= LONGEST_ENTRY);
    }

    #[test]
    fn a_want_beyond_the_end_gets_no_parts() {
        let want = Want { round: 1, first: u32::MAX, mask: u32::MAX };
        assert!(answer(&want, &wire::encode_roster(&roster(4))).is_empty());
    }
}
