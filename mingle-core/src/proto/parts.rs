//! The roster as it arrives in parts, for a node that wants it.

use crate::id::{Rank, World};
use crate::roster::{Digest, Member, Roster};
use crate::wire::{PART, Part, RosterEntry, Want};

/// The parts that have arrived, and the digest that they must have together.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    world: World,
    digest: Digest,
    arrived: Vec<Option<Vec<RosterEntry>>>,
    roster: Option<Roster>,
}

/// How many members come before part `index`.
pub(crate) fn offset(index: u32) -> u32 {
    index.saturating_mul(size())
}

fn size() -> u32 {
    u32::try_from(PART).unwrap_or(u32::MAX)
}

impl Parts {
    pub(crate) fn new(world: World, digest: Digest) -> Self {
        let count = world.get().div_ceil(size());
        Self { world, digest, arrived: (0..count).map(|_| None).collect(), roster: None }
    }

    /// Takes a part in. Returns whether it changed what is wanted.
    pub(crate) fn add(&mut self, part: Part) -> bool {
        let expected = self.world.get().saturating_sub(offset(part.index)).min(size());
        let fits = u32::try_from(part.members.len()) == Ok(expected);
        let Some(slot) = usize::try_from(part.index).ok().and_then(|i| self.arrived.get_mut(i)) else {
            return false;
        };
        if !fits || slot.is_some() {
            return false;
        }
        *slot = Some(part.members.into_vec());
        if self.arrived.iter().all(Option::is_some) {
            self.complete();
        }
        // The end of a window of requests, or of all.
        self.roster.is_some() || self.first_missing().is_some_and(|missing| missing % 32 == 0)
    }

    fn first_missing(&self) -> Option<usize> {
        self.arrived.iter().position(Option::is_none)
    }

    /// Puts the roster together, or starts again where it is not the one that the leader meant.
    fn complete(&mut self) {
        let entries = self.arrived.iter_mut().filter_map(Option::take).flatten();
        let members = (0..).zip(entries).map(|(rank, entry)| Member {
            rank: Rank(rank),
            id: entry.id,
            host: entry.host,
            address: entry.address,
            slots: entry.slots,
        });
        self.roster = Roster::new(members.collect()).filter(|roster| roster.digest() == self.digest);
    }

    /// What to ask the leader for; nothing once all is there.
    pub(crate) fn want(&self, round: u64) -> Option<Want> {
        if self.roster.is_some() {
            return None;
        }
        let first = self.first_missing()?;
        let window = self.arrived.iter().skip(first).take(32).enumerate();
        let mask = window.filter(|(_, part)| part.is_none()).fold(0, |mask, (bit, _)| mask | 1 << bit);
        Some(Want { round, first: u32::try_from(first).ok()?, mask })
    }

    pub(crate) fn into_roster(self) -> Option<Roster> {
        self.roster
    }
}

/// The parts of a roster that a node asks for.
pub(crate) fn answer(want: &Want, roster: &Roster) -> Vec<Part> {
    let wanted = (0..32).filter(|bit| want.mask & 1 << bit != 0).map(|bit| want.first.saturating_add(bit));
    let parts = wanted.filter_map(|index| {
        let start = usize::try_from(offset(index)).ok()?;
        let members = roster.members().get(start..)?;
        let entry =
            |m: &Member| RosterEntry { id: m.id, host: m.host.clone(), address: m.address, slots: m.slots };
        (!members.is_empty()).then(|| Part {
            round: want.round,
            index,
            members: members.iter().take(PART).map(entry).collect(),
        })
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::id::{HostName, NodeId};

    fn roster(size: u32) -> Roster {
        let member = |rank: u32| Member {
            rank: Rank(rank),
            id: NodeId(u128::from(rank).to_be_bytes()),
            host: HostName::new(&format!("node-{rank}")),
            address: SocketAddr::from((rank.to_be_bytes(), 29500)),
            slots: 8,
        };
        Roster::new((0..size).map(member).collect()).unwrap()
    }

    #[test]
    fn a_roster_arrives_whole_whatever_is_lost_on_the_way() {
        for size in [1, 9, 10, 11, 320, 321, 1000] {
            let sent = roster(size);
            let mut parts = Parts::new(World::new(size).unwrap(), sent.digest());
            let mut asked = 0;
            while let Some(want) = parts.want(1) {
                asked += 1;
                assert!(asked < 1000, "no end with {size} members");
                // Of every answer, each third datagram is lost.
                for (i, part) in answer(&want, &sent).into_iter().enumerate() {
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
        let mut parts = Parts::new(World::new(4).unwrap(), roster(5).digest());
        let want = parts.want(1).unwrap();
        for part in answer(&want, &sent) {
            parts.add(part);
        }
        assert_eq!(parts.want(1), Some(want));
    }

    #[test]
    fn a_want_beyond_the_end_gets_nothing() {
        let want = Want { round: 1, first: u32::MAX, mask: u32::MAX };
        assert!(answer(&want, &roster(4)).is_empty());
    }
}
