//! The members of a running world, and which of them this node is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::model::{End, Member, NodeId, Peer, Rank, Roster};
use crate::proto::report::{Formed, Over};

/// The roster, and which of its members this node is.
#[derive(Debug, Clone)]
pub(super) struct Members {
    index: Arc<Index>,
    own: Rank,
}

/// The roster, found by rank, by ID and by address. Shared, so that a test can hold ten thousand nodes.
#[derive(Debug)]
struct Index {
    by_rank: Vec<Member>,
    ranks: BTreeMap<NodeId, Rank>,
    ids: BTreeMap<SocketAddr, NodeId>,
}

impl Members {
    /// The members of the world that has formed; nothing where its roster was not asked for.
    pub(super) fn new(formed: &Formed) -> Option<Self> {
        let mut by_rank = formed.roster.as_ref().map(Roster::members)?.to_vec();
        if formed.rank.get() != 0 {
            // This node has proved that it reaches the master at this endpoint, which need not be the
            // preferred one.
            by_rank[0].address = formed.master;
        }
        let index = Index {
            ranks: by_rank.iter().map(|member| (member.id, member.rank)).collect(),
            ids: by_rank.iter().map(|member| (member.address, member.id)).collect(),
            by_rank,
        };
        Some(Self { index: Arc::new(index), own: formed.rank })
    }

    pub(super) fn own_rank(&self) -> Rank {
        self.own
    }

    /// This node.
    pub(super) fn own(&self) -> &Member {
        &self.index.by_rank[usize::try_from(self.own.get()).unwrap_or_default()]
    }

    /// How many there are, this node included.
    pub(super) fn count(&self) -> usize {
        self.index.by_rank.len()
    }

    pub(super) fn contains(&self, id: NodeId) -> bool {
        self.index.ranks.contains_key(&id)
    }

    pub(super) fn rank_of(&self, id: NodeId) -> Option<Rank> {
        self.index.ranks.get(&id).copied()
    }

    pub(super) fn id_of(&self, rank: Rank) -> Option<NodeId> {
        self.get(rank).map(|member| member.id)
    }

    pub(super) fn address_of(&self, id: NodeId) -> Option<SocketAddr> {
        self.rank_of(id).and_then(|rank| self.get(rank)).map(|member| member.address)
    }

    /// The member that had this address when the world formed.
    pub(super) fn at(&self, address: SocketAddr) -> Option<NodeId> {
        self.index.ids.get(&address).copied()
    }

    /// The member of rank 0.
    pub(super) fn first(&self) -> &Member {
        &self.index.by_rank[0]
    }

    /// All members but this node, by rank.
    pub(super) fn others(&self) -> impl Iterator<Item = &Member> {
        self.index.by_rank.iter().filter(|member| member.rank != self.own)
    }

    /// The IDs of all members but this node.
    pub(super) fn other_ids(&self) -> BTreeSet<NodeId> {
        self.others().map(|member| member.id).collect()
    }

    /// The world is over because this rank's command ended so, or its node is gone.
    pub(super) fn over(&self, rank: Rank, end: End) -> Over {
        Over { rank: Some(rank), peer: self.peer(rank), end }
    }

    /// The node of this rank as messages to the user name it.
    pub(super) fn peer(&self, rank: Rank) -> Option<Peer> {
        self.get(rank).map(Member::peer)
    }

    fn get(&self, rank: Rank) -> Option<&Member> {
        self.index.by_rank.get(usize::try_from(rank.get()).ok()?)
    }
}
