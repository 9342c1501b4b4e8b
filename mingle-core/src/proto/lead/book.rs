//! The leader's book of members: the nodes that have joined, the seats, and the standbys.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::model::{HostName, NodeId, Peer, Rank, User};
use crate::proto::prove::Arrivals;
use crate::proto::report::RankRange;
use crate::proto::shared::Shared;
use crate::proto::timer::Time;
use crate::wire::{Join, Message, NEWEST, NodeInfo, RUNS};

/// A node that has joined but not proved is forgotten after this silence.
const FORGET: Duration = Duration::from_secs(10);

/// For this long after its question a member gets every announce by unicast: it asks every 15 s.
const DEAF: Duration = Duration::from_secs(40);

/// All nodes that have joined.
#[derive(Debug, Clone)]
pub(super) struct Book {
    entries: BTreeMap<NodeId, Entry>,
    /// The given ranks of the nodes with a seat, this node's own included.
    ranks: BTreeMap<u32, NodeId>,
    /// The nodes with a seat by their preferred endpoints.
    addresses: BTreeMap<SocketAddr, NodeId>,
    /// How many have a seat, this node included.
    seated: u32,
    /// The most that `seated` has been.
    high_water: u32,
    /// The nodes that have joined and proved while all seats were taken, in the order in which they came.
    standbys: Vec<NodeId>,
    /// The hosts of the nodes that were seated last, newest first.
    newest: VecDeque<HostName>,
}

/// A node that has joined.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) node: NodeInfo,
    /// The source address of its datagrams.
    pub(super) source: SocketAddr,
    pub(super) seated: bool,
    /// When it was last heard.
    pub(super) heard: Time,
    /// When it last solicited by unicast, since it hears no multicast.
    pub(super) asked: Option<Time>,
    /// It is in the queue of nodes to be welcomed.
    pub(super) queued: bool,
    /// In a round: it has said that it is ready.
    pub(super) is_ready: bool,
    /// It held up a round, and a standby has taken its seat.
    pub(super) replaced: bool,
    /// It knows that the world has formed, or has left.
    pub(super) done: bool,
}

impl Entry {
    fn new(node: NodeInfo, source: SocketAddr, now: Time) -> Self {
        Self {
            node,
            source,
            seated: false,
            heard: now,
            asked: None,
            queued: false,
            is_ready: false,
            replaced: false,
            done: false,
        }
    }

    /// Sends a message that is repeated until it is answered; `attempt` counts from 0. The observed source
    /// address may be unreachable from here, or belong to a node that replays datagrams, so repeats also go
    /// to an endpoint.
    pub(super) fn reach(&self, id: NodeId, attempt: usize, message: &Message, shared: &mut Shared) {
        shared.send(self.source, id, message);
        if attempt > 0 {
            let other = self.node.endpoints[(attempt - 1) % self.node.endpoints.len()];
            if other != self.source {
                shared.send(other, id, message);
            }
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.node.peer()
    }

    /// Whether it hears no multicast: it asks again every 15 s.
    pub(super) fn is_deaf(&self, now: Time) -> bool {
        self.asked.is_some_and(|asked| now < asked + DEAF)
    }
}

impl Book {
    pub(super) fn new(shared: &Shared) -> Self {
        let own_rank = shared.config.node.rank.map(|rank| (rank.get(), shared.me()));
        Self {
            entries: BTreeMap::new(),
            ranks: own_rank.into_iter().collect(),
            addresses: BTreeMap::new(),
            seated: 1,
            high_water: 1,
            standbys: Vec::new(),
            newest: VecDeque::new(),
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut Entry)> {
        self.entries.iter_mut().map(|(&id, entry)| (id, entry))
    }

    /// The members.
    pub(super) fn members(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.entries().filter(|(_, entry)| entry.seated)
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn member(&self, id: NodeId) -> Option<&Entry> {
        self.get(id).filter(|entry| entry.seated)
    }

    pub(super) fn member_mut(&mut self, id: NodeId) -> Option<&mut Entry> {
        self.get_mut(id).filter(|entry| entry.seated)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn seated(&self) -> u32 {
        self.seated
    }

    pub(super) fn high_water(&self) -> u32 {
        self.high_water
    }

    /// The hosts that were seated last, as many as an announce has room for beside the name of its user.
    pub(super) fn newest(&self, user: &User) -> impl Iterator<Item = HostName> {
        let mut room = (NEWEST * (HostName::MAX + 1)).saturating_sub(user.length());
        let fits = move |host: &&HostName| {
            let left = room.checked_sub(host.as_str().len() + 1);
            room = left.unwrap_or_default();
            left.is_some()
        };
        self.newest.iter().take_while(fits).cloned()
    }

    /// The ranks that must still come. Unknown while a member has no given rank, since that one may get any.
    pub(super) fn missing(&self, shared: &Shared) -> Vec<RankRange> {
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
    pub(super) fn other_at(&self, endpoint: SocketAddr, id: NodeId) -> Option<&HostName> {
        let other = self.addresses.get(&endpoint).filter(|&&other| other != id)?;
        self.get(*other).map(|entry| &entry.node.host)
    }

    /// The node with a seat that has the address and port of this one: two processes cannot have the same.
    pub(super) fn ghost(&self, of: NodeId) -> Option<NodeId> {
        let preferred = self.get(of)?.node.endpoints.preferred();
        self.addresses.get(&preferred).copied().filter(|&id| id != of)
    }

    /// Records a join, whose address may be forged.
    pub(super) fn join(&mut self, from: NodeId, source: SocketAddr, join: Join, now: Time) {
        let entry = self.entries.entry(from).or_insert_with(|| Entry::new(join.node.clone(), source, now));
        entry.heard = now;
        entry.source = source;
        if entry.seated {
            // Its addresses may have changed; its rank and the rest stay as they are.
            entry.node.endpoints = join.node.endpoints;
            entry.node.reach = join.node.reach;
        } else {
            entry.node = join.node;
        }
    }

    /// Makes room for one more where there are `most` entries: forged joins without a proof cost nothing.
    pub(super) fn make_room(&mut self, most: usize, arrivals: &Arrivals, now: Time) {
        if self.entries.len() < most {
            return;
        }
        self.entries.retain(|&id, entry| arrivals.has(id) || entry.heard + FORGET > now);
        if self.entries.len() >= most {
            let unproved = self.entries.iter().filter(|&(&id, _)| !arrivals.has(id));
            let oldest = unproved.min_by_key(|(_, entry)| entry.heard).map(|(&id, _)| id);
            oldest.map(|id| self.entries.remove(&id));
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

    /// Takes the seat of a member.
    pub(super) fn unseat(&mut self, id: NodeId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.seated) else { return };
        entry.seated = false;
        self.seated -= 1;
        self.ranks.retain(|_, holder| *holder != id);
        self.addresses.retain(|_, holder| *holder != id);
        self.newest.retain(|host| *host != entry.node.host);
    }

    /// Takes the seat of a member that holds up a round, which becomes the last of the standbys.
    pub(super) fn replace(&mut self, id: NodeId) {
        self.unseat(id);
        self.add_standby(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.replaced = true;
        }
    }

    /// Removes a node with a seat.
    pub(super) fn vacate(&mut self, id: NodeId) {
        self.unseat(id);
        self.entries.remove(&id);
    }

    /// Removes a node without a seat, or any where its seat does not matter any more.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.entries.remove(&id);
    }

    /// Adds a standby. Returns whether it was none before.
    pub(super) fn add_standby(&mut self, id: NodeId) -> bool {
        let is_new = !self.is_standby(id);
        if is_new {
            self.standbys.push(id);
        }
        is_new
    }

    pub(super) fn remove_standby(&mut self, id: NodeId) {
        self.standbys.retain(|&standby| standby != id);
    }

    /// The first standby, but for those that are `taken` or were replaced themselves, that may take the seat
    /// of this member: its given rank is free then.
    pub(super) fn successor(&self, of: NodeId, taken: &[NodeId], arrivals: &Arrivals) -> Option<NodeId> {
        self.member(of)?;
        let fits = |id: &NodeId| {
            let Some(entry) = self.get(*id).filter(|entry| !entry.replaced) else { return false };
            let holder = entry.node.rank.and_then(|rank| self.holder(rank));
            !taken.contains(id) && arrivals.has(*id) && holder.is_none_or(|holder| holder == of)
        };
        self.standbys.iter().copied().find(fits)
    }

    pub(super) fn is_standby(&self, id: NodeId) -> bool {
        self.standbys.contains(&id)
    }

    pub(super) fn standbys(&self) -> &[NodeId] {
        &self.standbys
    }

    /// Forgets the nodes without a connection.
    pub(super) fn retain_proved(&mut self, arrivals: &Arrivals) {
        self.entries.retain(|&id, _| arrivals.has(id));
    }

    /// Forgets the nodes that have neither a seat nor a standby's place.
    pub(super) fn retain_members_and_standbys(&mut self) {
        let standbys: BTreeSet<NodeId> = self.standbys.iter().copied().collect();
        self.entries.retain(|id, entry| entry.seated || standbys.contains(id));
    }

    /// Forgets all nodes. The most members that this node has had stay what they were.
    pub(super) fn clear(&mut self, shared: &Shared) {
        *self = Self { high_water: self.high_water, ..Self::new(shared) };
    }
}
