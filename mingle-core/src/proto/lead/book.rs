//! The leader's book of members: the nodes that have joined, the seats, and the standbys.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::model::{HostName, NodeId, Peer, Rank, RankRange, Traits};
use crate::proto::shared::Shared;
use crate::wire::{NEWEST, NodeInfo, RUNS, Refusal};

/// All nodes that have joined.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    entries: BTreeMap<NodeId, Entry>,
    /// The given ranks of the nodes with a seat, this node's own included.
    ranks: BTreeMap<u32, NodeId>,
    /// The nodes with a seat by their preferred endpoints.
    addresses: BTreeMap<SocketAddr, NodeId>,
    /// How many have a seat, this node included.
    pub(crate) seated: u32,
    /// The most that `seated` has been.
    pub(crate) high_water: u32,
    /// The nodes that have joined while all seats were taken, in the order in which they came.
    standbys: Vec<NodeId>,
    /// The hosts of the nodes that were seated last, newest first.
    newest: VecDeque<HostName>,
}

/// A node that has joined.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) node: NodeInfo,
    /// Its traits, where they differ from the leader's.
    pub(super) differing: Option<Arc<Traits>>,
    pub(super) seated: bool,
}

impl Entry {
    pub(super) fn peer(&self) -> Peer {
        self.node.peer()
    }
}

impl Book {
    pub(super) fn new(shared: &Shared) -> Self {
        let own_rank = shared.config.node.rank.map(|rank| (rank.get(), shared.me()));
        Self { ranks: own_rank.into_iter().collect(), seated: 1, high_water: 1, ..Self::default() }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    /// The members.
    pub(super) fn members(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.entries().filter(|(_, entry)| entry.seated)
    }

    /// How many nodes have joined.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn member(&self, id: NodeId) -> Option<&Entry> {
        self.get(id).filter(|entry| entry.seated)
    }

    /// The hosts that were seated last.
    pub(super) fn newest(&self) -> impl Iterator<Item = HostName> {
        self.newest.iter().cloned()
    }

    /// The ranks that must still come. Unknown while a member has no given rank, since that one may get any.
    pub(crate) fn missing(&self, shared: &Shared) -> Vec<RankRange> {
        if u32::try_from(self.ranks.len()) != Ok(self.seated) {
            return Vec::new();
        }
        RankRange::missing(self.ranks.keys().copied(), shared.most(), RUNS)
    }

    /// The node with a seat and this given rank.
    pub(super) fn holder(&self, rank: Rank) -> Option<NodeId> {
        self.ranks.get(&rank.get()).copied()
    }

    /// The host of the node with a seat that has this preferred endpoint, if it is another than this one.
    pub(crate) fn other_at(&self, endpoint: SocketAddr, id: NodeId) -> Option<&HostName> {
        let other = self.addresses.get(&endpoint).filter(|&&other| other != id)?;
        self.get(*other).map(|entry| &entry.node.host)
    }

    /// The node with a seat that has the address and port of this one: two processes cannot have the same.
    pub(super) fn ghost(&self, of: NodeId) -> Option<NodeId> {
        let preferred = self.get(of)?.node.endpoints.preferred();
        self.addresses.get(&preferred).copied().filter(|&id| id != of)
    }

    /// Records what a node says of itself.
    pub(super) fn join(&mut self, from: NodeId, node: NodeInfo, differing: Option<Arc<Traits>>) {
        match self.entries.get_mut(&from) {
            // Its addresses may have changed; its rank and the rest stay as they are.
            Some(entry) if entry.seated => {
                (entry.node.endpoints, entry.node.reach) = (node.endpoints, node.reach);
            }
            Some(entry) => (entry.node, entry.differing) = (node, differing),
            None => {
                self.entries.insert(from, Entry { node, differing, seated: false });
            }
        }
    }

    /// Gives the node a seat.
    pub(super) fn seat(&mut self, id: NodeId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.seated = true;
        if let Some(rank) = entry.node.rank {
            self.ranks.insert(rank.get(), id);
        }
        self.addresses.insert(entry.node.endpoints.preferred(), id);
        self.seated += 1;
        self.high_water = self.high_water.max(self.seated);
        self.newest.push_front(entry.node.host.clone());
        self.newest.truncate(NEWEST);
        self.remove_standby(id);
    }

    /// Removes a node, and its seat if it has one.
    pub(super) fn vacate(&mut self, id: NodeId) {
        let Some(entry) = self.entries.remove(&id).filter(|entry| entry.seated) else { return };
        self.seated -= 1;
        if let Some(rank) = entry.node.rank {
            self.ranks.remove(&rank.get());
        }
        let address = entry.node.endpoints.preferred();
        if self.addresses.get(&address) == Some(&id) {
            self.addresses.remove(&address);
        } else {
            // It had another address when it got its seat.
            self.addresses.retain(|_, holder| *holder != id);
        }
        self.newest.retain(|host| *host != entry.node.host);
    }

    pub(super) fn add_standby(&mut self, id: NodeId) {
        if !self.standbys.contains(&id) {
            self.standbys.push(id);
        }
    }

    pub(super) fn remove_standby(&mut self, id: NodeId) {
        self.standbys.retain(|&standby| standby != id);
    }

    pub(super) fn standbys(&self) -> &[NodeId] {
        &self.standbys
    }

    /// Says to all why there is no world for them with this leader.
    pub(crate) fn refuse_all(&self, refusal: &Refusal, shared: &mut Shared) {
        for &id in self.entries.keys() {
            shared.refuse(id, refusal.clone());
        }
    }

    /// Forgets all nodes. The most members that this node has had stay what they were.
    pub(super) fn clear(&mut self, shared: &Shared) {
        *self = Self { high_water: self.high_water, ..Self::new(shared) };
    }
}
