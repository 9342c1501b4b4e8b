//! What is sent in parts: the roster, for nodes that want it, and the traits of a node, for a leader that
//! compares them. How each is cut, and put together.

use std::net::SocketAddr;

use crate::model::{Digest, NodeId, Rank, Roster, Slots, Stamp, Traits, World};
use crate::wire::{self, LONGEST_ENTRY, PART, Part, Want};

/// The most parts that are asked for at once: one for each bit of a want.
const WINDOW: usize = 32;

/// The most parts of traits that one question brings: the leader's address may be forged.
const AT_ONCE: usize = 4;

/// The place of this node in the world, as a prepare gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: NodeId,
    pub(crate) world: World,
    pub(crate) rank: Rank,
    pub(crate) slots: Slots,
    pub(crate) master: NodeId,
    pub(crate) master_at: SocketAddr,
}

impl Place {
    /// Whether the roster gives it the same place.
    fn is_in(&self, roster: &Roster) -> bool {
        let members = roster.members();
        let own = usize::try_from(self.rank.get()).ok().and_then(|rank| members.get(rank));
        let once = members.iter().filter(|member| member.id == self.id).count() == 1;
        once && own.is_some_and(|own| own.id == self.id)
            && members.first().is_some_and(|first| (first.id, first.address) == (self.master, self.master_at))
            && roster.slots(self.rank) == Some(self.slots)
    }
}

/// The effect of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// Nothing that this node would ask for now.
    Part,
    /// The last of those that were asked for is there: more can be asked for.
    Window,
    /// The roster is complete.
    Complete,
    /// The roster is not that of the prepare: all parts are missing again.
    Wrong,
}

/// The parts that have arrived, and the digest that they must have together.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    place: Place,
    digest: Digest,
    length: usize,
    arrived: Vec<Option<Vec<u8>>>,
    /// The index after the last part that was asked for.
    asked_to: usize,
    roster: Option<Roster>,
}

impl Parts {
    /// No parts yet, of a roster of this many bytes. A roster longer than any of this world is cut off, and
    /// so is never complete.
    pub(crate) fn new(digest: Digest, length: u32, place: Place) -> Self {
        let most = usize::try_from(place.world.get()).unwrap_or(usize::MAX).saturating_mul(LONGEST_ENTRY);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        Self { place, digest, length, arrived: vec![None; length.div_ceil(PART)], asked_to: 0, roster: None }
    }

    /// Adds a part.
    pub(crate) fn add(&mut self, part: Part) -> Added {
        let Some(index) = usize::try_from(part.index).ok().filter(|&index| index < self.arrived.len()) else {
            return Added::Part;
        };
        let slot = &mut self.arrived[index];
        if slot.is_some() || part.bytes.len() != (self.length - index * PART).min(PART) {
            return Added::Part;
        }
        *slot = Some(part.bytes.into_vec());
        match self.first_missing() {
            None => self.complete(),
            Some(missing) if missing >= self.asked_to => Added::Window,
            Some(_) => Added::Part,
        }
    }

    fn first_missing(&self) -> Option<usize> {
        self.arrived.iter().position(Option::is_none)
    }

    /// Puts the roster together, or starts again where it is not the one of the prepare.
    fn complete(&mut self) -> Added {
        let bytes: Vec<u8> = self.arrived.iter_mut().filter_map(Option::take).flatten().collect();
        let roster = wire::decode_roster(&bytes, self.place.world);
        self.roster = roster.filter(|roster| roster.digest() == self.digest && self.place.is_in(roster));
        if self.roster.is_some() { Added::Complete } else { Added::Wrong }
    }

    /// What to ask the leader for; nothing once all parts are there.
    pub(crate) fn want(&mut self, round: u64) -> Option<Want> {
        if self.roster.is_some() {
            return None;
        }
        let first = self.first_missing()?;
        self.asked_to = first + WINDOW;
        let window = self.arrived.iter().skip(first).take(WINDOW).enumerate();
        let mask = window.filter(|(_, part)| part.is_none()).fold(0, |mask, (bit, _)| mask | 1 << bit);
        Some(Want { round, first: u32::try_from(first).ok()?, mask })
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

/// The parts of a node's traits that have arrived. Their length is not known before: a part with fewer bytes
/// than it could have is the last.
#[derive(Debug, Clone)]
pub(crate) struct TraitParts {
    stamp: Stamp,
    arrived: [Option<Vec<u8>>; WINDOW],
}

impl TraitParts {
    pub(crate) fn new(stamp: Stamp) -> Self {
        Self { stamp, arrived: Default::default() }
    }

    /// What to ask for: the parts that are missing, as far as is known.
    pub(crate) fn want(&self) -> Want {
        let end = self.last().map_or(WINDOW, |last| last + 1);
        let missing = (0..end).filter(|&index| self.arrived[index].is_none());
        Want { round: self.stamp.0, first: 0, mask: missing.fold(0, |mask, index| mask | 1 << index) }
    }

    fn last(&self) -> Option<usize> {
        self.arrived.iter().position(|part| part.as_ref().is_some_and(|bytes| bytes.len() < PART))
    }

    /// Adds a part. Returns the traits once they are complete. If they are not those of the stamp, all parts
    /// are missing again.
    pub(crate) fn add(&mut self, part: Part) -> Option<Traits> {
        let slot = self.arrived.get_mut(usize::try_from(part.index).ok()?)?;
        slot.get_or_insert(part.bytes.into_vec());
        let last = self.last()?;
        let bytes: Option<Vec<&[u8]>> = self.arrived[..=last].iter().map(Option::as_deref).collect();
        let traits = wire::decode_traits(&bytes?.concat());
        let traits = traits.filter(|traits| traits.stamp(false) == self.stamp);
        if traits.is_none() {
            self.arrived = Default::default();
        }
        traits
    }
}

/// The first parts that a leader asks for, of the encoded traits.
pub(crate) fn traits(want: &Want, bytes: &[u8]) -> Vec<Part> {
    let mut parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    if parts.last().is_none_or(|last| last.len() == PART) {
        parts.push(&[]);
    }
    let wanted = (0..).zip(parts).take(WINDOW).filter(|(index, _)| want.mask & 1 << index != 0).take(AT_ONCE);
    wanted
        .map(|(index, bytes)| Part { round: want.round, index, bytes: bytes.iter().copied().collect() })
        .collect()
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
            session_port: 0,
        };
        Roster::new((0..size).map(member).collect()).unwrap()
    }

    fn expected(roster: &Roster, digest: Digest) -> Parts {
        let length = u32::try_from(wire::encode_roster(roster).len()).unwrap();
        Parts::new(digest, length, place(roster, 0))
    }

    fn place(roster: &Roster, rank: u32) -> Place {
        let members = roster.members();
        let id = members[usize::try_from(rank).unwrap()].id;
        let world = World::new(u32::try_from(members.len()).unwrap()).unwrap();
        Place {
            id,
            world,
            rank: Rank(rank),
            slots: roster.slots(Rank(rank)).unwrap(),
            master: members[0].id,
            master_at: members[0].address,
        }
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
            assert_eq!(parts.add(part), Added::Wrong);
        }
        assert_eq!(parts.want(1), Some(want));
    }

    #[test]
    fn a_roster_in_which_this_node_has_another_place_than_in_the_prepare_is_wrong() {
        let sent = roster(4);
        let length = u32::try_from(wire::encode_roster(&sent).len()).unwrap();
        let arrives = |place| {
            let mut parts = Parts::new(sent.digest(), length, place);
            let want = parts.want(1).unwrap();
            answer(&want, &wire::encode_roster(&sent)).into_iter().map(|part| parts.add(part)).last()
        };
        let right = place(&sent, 2);
        assert_eq!(arrives(right), Some(Added::Complete));
        let slots = Slots { total: 31, ..right.slots };
        for wrong in [
            Place { id: NodeId([9; 16]), ..right },
            Place { rank: Rank(3), ..right },
            Place { master: right.id, ..right },
            Place { slots, ..right },
        ] {
            assert_eq!(arrives(wrong), Some(Added::Wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_roster_longer_than_any_of_its_world_takes_no_memory() {
        let four = roster(4);
        let parts = Parts::new(four.digest(), u32::MAX, place(&four, 0));
        assert_eq!(parts.arrived.len(), 4);
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
    fn a_part_of_a_wrong_length_takes_no_place() {
        let sent = roster(40);
        let mut parts = expected(&sent, sent.digest());
        let want = parts.want(1).unwrap();
        let right = answer(&want, &wire::encode_roster(&sent));
        assert!(right.len() > 1);
        let wrong = Part { round: 1, index: 0, bytes: [0; 3].into_iter().collect() };
        parts.add(wrong);
        let (first, others) = right.split_first().unwrap();
        for part in others {
            assert_ne!(parts.add(part.clone()), Added::Wrong);
        }
        assert_eq!(parts.add(first.clone()), Added::Complete);
    }

    fn many_traits() -> Traits {
        let one = |n: u32| crate::model::Trait::shown(format!("a-key-of-usual-length-{n:04}"), "a value");
        (0..150).map(one).collect()
    }

    #[test]
    fn traits_arrive_whole_although_parts_are_lost_four_at_a_time() {
        for traits in
            [Traits::default(), [crate::model::Trait::hidden("k", "v")].into_iter().collect(), many_traits()]
        {
            let (stamp, bytes) = (traits.stamp(false), wire::encode_traits(&traits));
            let mut arriving = TraitParts::new(stamp);
            let (mut asked, mut arrived) = (0, None);
            while arrived.is_none() {
                asked += 1;
                assert!(asked < 100, "no end");
                let parts = super::traits(&arriving.want(), &bytes);
                assert!((1..=AT_ONCE).contains(&parts.len()));
                for (i, part) in parts.into_iter().enumerate() {
                    if (i + asked) % 3 != 0 {
                        arrived = arrived.or(arriving.add(part));
                    }
                }
            }
            assert_eq!(arrived, Some(traits));
        }
    }

    #[test]
    fn traits_of_whole_parts_end_with_an_empty_one() {
        let want = TraitParts::new(Stamp(2)).want();
        let lengths =
            |bytes| traits(&want, &vec![0; bytes]).iter().map(|part| part.bytes.len()).collect::<Vec<_>>();
        assert_eq!(lengths(0), [0]);
        assert_eq!(lengths(999), [999]);
        assert_eq!(lengths(1000), [1000, 0]);
        assert_eq!(lengths(2001), [1000, 1000, 1]);
    }

    #[test]
    fn traits_with_another_stamp_are_asked_for_again_and_a_part_that_cannot_be_is_dropped() {
        let traits = many_traits();
        let bytes = wire::encode_traits(&traits);
        let mut parts = TraitParts::new(Stamp(4));
        let before = parts.want();
        for _ in 0..8 {
            for part in super::traits(&parts.want(), &bytes) {
                assert_eq!(parts.add(part), None);
            }
        }
        assert_eq!(parts.add(Part { round: 4, index: 99, bytes: [1].into_iter().collect() }), None);
        assert_eq!(parts.add(Part { round: 4, index: 0, bytes: [].into_iter().collect() }), None);
        assert_eq!(parts.want(), before, "all of them are missing again");
    }
}
