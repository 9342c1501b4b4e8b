//! The members of a world: the list that every node can hold, and the digest that proves that the lists are
//! equal.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::model::{HostName, Metadata, NodeId, Peer, Rank, deserialize_unicast};

/// A node of a formed world. The serde form is the form on the wire, without the rank, and not an API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The rank of the node. An encoded roster leaves the rank out, since it lists the nodes by rank.
    #[serde(skip)]
    pub rank: Rank,
    /// The ID of the node.
    pub id: NodeId,
    /// The name that the node's host has for itself.
    pub host: HostName,
    /// Where the job reaches the node, with the node's own port.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub address: SocketAddr,
    /// How many workers the node will run, usually one worker for each GPU.
    pub slots: u32,
    /// What the node's launcher tells the other nodes.
    pub metadata: Metadata,
    /// The port on which the node accepts sessions, if it stays with its world; otherwise 0.
    pub session_port: u16,
}

impl Member {
    /// The node as messages to the user name it.
    pub fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.address }
    }
}

/// The slots of a world as a node of the world sees them. Each slot is for one worker process of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// The slots of this node.
    pub own: u32,
    /// The slots of all nodes of lower ranks. This number is also the global rank of this node's first
    /// worker.
    pub before: u64,
    /// The slots of all nodes. This number is also the number of workers in the world.
    pub total: u64,
}

/// All members of a formed world, by rank. The serde form is the form on the wire, and not an API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Members")]
pub struct Roster {
    members: Vec<Member>,
    /// The members' places in `members`, in the order of their IDs.
    #[serde(skip)]
    by_id: Vec<usize>,
}

/// The members by rank, as they are on the wire.
#[derive(Deserialize)]
struct Members(Vec<Member>);

impl From<Members> for Roster {
    fn from(Members(mut members): Members) -> Self {
        for (rank, member) in (0..).zip(&mut members) {
            member.rank = Rank(rank);
        }
        Self::ranked(members)
    }
}

impl Roster {
    /// The roster of these members, in any order; none if their ranks are not exactly 0, 1, 2 and so on.
    pub fn new(mut members: Vec<Member>) -> Option<Self> {
        members.sort_by_key(|m| m.rank);
        let dense = members.iter().zip(0u32..).all(|(m, rank)| m.rank.get() == rank);
        dense.then(|| Self::ranked(members))
    }

    fn ranked(members: Vec<Member>) -> Self {
        let mut by_id: Vec<usize> = (0..members.len()).collect();
        by_id.sort_unstable_by_key(|&at| members[at].id);
        Self { members, by_id }
    }

    /// The member of this ID.
    pub(crate) fn find(&self, id: NodeId) -> Option<&Member> {
        let at = self.by_id.binary_search_by_key(&id, |&at| self.members[at].id).ok()?;
        self.members.get(self.by_id[at])
    }

    /// The members, ordered by rank.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The slots as the node of this rank sees them; none if the world has no such rank.
    pub fn slots(&self, rank: Rank) -> Option<Slots> {
        let index = usize::try_from(rank.get()).ok()?;
        let own = self.members.get(index)?.slots;
        let sum = |members: &[Member]| members.iter().map(|m| u64::from(m.slots)).sum();
        Some(Slots { own, before: sum(&self.members[..index]), total: sum(&self.members) })
    }

    /// A hash over every field of every member. Two nodes with the same digest have the same roster.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("mingle 1 roster");
        for member in &self.members {
            hasher.update(&member.rank.get().to_le_bytes());
            hasher.update(&member.id.0);
            put(&mut hasher, member.host.as_str());
            put(&mut hasher, &member.address.to_string());
            hasher.update(&member.slots.to_le_bytes());
            hasher.update(&member.session_port.to_le_bytes());
            // The number of pairs comes first, so that no two lists of pairs give the same bytes.
            let pairs: Vec<_> = member.metadata.iter().collect();
            hasher.update(&u64::try_from(pairs.len()).unwrap_or(u64::MAX).to_le_bytes());
            for (key, value) in pairs {
                put(&mut hasher, key);
                put(&mut hasher, value);
            }
        }
        Digest(hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default())
    }
}

/// Hashes the length of a text, then the text, so that no two lists of texts give the same bytes.
fn put(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// The digest of a [`Roster`]: 128 bits, displayed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, host: &str) -> Member {
        Member {
            rank: Rank(rank),
            id: NodeId([u8::try_from(rank).unwrap(); 16]),
            host: HostName::new(host),
            address: SocketAddr::from(([10, 0, 0, 1], 29500)),
            slots: 8,
            metadata: Metadata::default(),
            session_port: 0,
        }
    }

    #[test]
    fn a_roster_has_every_rank_once() {
        assert!(Roster::new(vec![member(1, "b"), member(0, "a")]).is_some());
        assert!(Roster::new(vec![member(0, "a"), member(0, "b")]).is_none());
        assert!(Roster::new(vec![member(1, "a"), member(2, "b")]).is_none());
    }

    #[test]
    fn the_digest_depends_on_the_members_and_not_on_their_order() {
        let one = Roster::new(vec![member(0, "a"), member(1, "b")]).unwrap();
        let two = Roster::new(vec![member(1, "b"), member(0, "a")]).unwrap();
        let other = Roster::new(vec![member(0, "a"), member(1, "c")]).unwrap();
        assert_eq!(one.digest(), two.digest());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(one.digest().to_string().len(), 32);
    }
}
