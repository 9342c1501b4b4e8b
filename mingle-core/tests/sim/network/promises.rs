//! What is promised at every step, checked when a node sends, receives or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use mingle_core::proto::testing::{Seen, seen};
use mingle_core::proto::{Frame, NodeId, Paths, Time};
use mingle_core::{Formed, World};

use super::{Ended, Network};

/// What each node is bound to by the frames that it has written.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The leader and the round for which a host's node is ready, until it reads void or commit of that
    /// round.
    bound: BTreeMap<usize, (NodeId, u64)>,
    /// The last round of each leader that has released a host's node. A frame that was not acknowledged is
    /// written again, whatever has been read since.
    released: BTreeMap<(usize, NodeId), u64>,
    /// The last round in which a host's node takes part.
    rounds: BTreeMap<usize, u64>,
    /// The nodes that have written ready, by leader and round.
    ready: BTreeMap<(NodeId, u64), BTreeSet<NodeId>>,
    /// The worlds that were committed, by leader and round.
    pub(super) commits: BTreeMap<(NodeId, u64), Commit>,
    /// How many connections to a process the kernel of a host takes for open.
    pub(super) open: BTreeMap<(NodeId, usize), u32>,
    /// The sessions' connections and the paths that have reached a node: (dialer, its life, address dialled,
    /// acceptor).
    pub(super) proved: BTreeSet<(usize, u32, SocketAddr, usize)>,
    /// The nodes between which a path was proved: from, to.
    pub(super) paths: BTreeSet<(NodeId, NodeId)>,
}

/// A world that was committed.
#[derive(Debug)]
pub struct Commit {
    pub leader: NodeId,
    pub at: Time,
    /// The leader and all that were ready.
    pub members: BTreeSet<NodeId>,
}

impl Promises {
    /// The leader for which a host's node is ready.
    pub(super) fn bound_to(&self, host: usize) -> Option<NodeId> {
        self.bound.get(&host).map(|(leader, _)| *leader)
    }

    /// A host's node has ended.
    pub(super) fn release(&mut self, host: usize) {
        self.bound.remove(&host);
        self.rounds.remove(&host);
        self.released.retain(|(other, _), _| *other != host);
    }
}

impl Network {
    /// Whether a host's node may act on this datagram: it is of its job, and the node is a recipient.
    pub(super) fn is_recipient(&self, host: usize, bytes: &[u8]) -> bool {
        let config = &self.hosts[host].config;
        let recipient = &bytes[40..56];
        bytes[8..24] == config.tag.0
            && (recipient == config.id.0 || recipient == [0; 16] || recipient == [0xff; 16])
    }

    /// Notes the ready that binds its writer, and checks the join and the commit.
    pub(super) fn check_written(&mut self, host: usize, reader: NodeId, frame: &Frame) {
        let me = self.hosts[host].config.id;
        match seen(frame) {
            Seen::Ready(round) => {
                self.promises.ready.entry((reader, round)).or_default().insert(me);
                if self.promises.released.get(&(host, reader)).is_none_or(|&released| round > released) {
                    self.promises.bound.insert(host, (reader, round));
                }
            }
            Seen::Join => {
                if let Some((leader, round)) = self.promises.bound.get(&host)
                    && *leader != reader
                {
                    self.broken.push(format!("{host} is ready for {leader} in {round} and joins {reader}"));
                }
            }
            Seen::Commit(round) => self.check_commit(host, (me, round)),
            _ => {}
        }
    }

    pub(super) fn prepares(&mut self, host: usize, round: u64) {
        self.promises.rounds.insert(host, round);
    }

    /// A host's node has decided that the world of its round has formed. It may not have written that yet.
    pub(super) fn decides(&mut self, host: usize) {
        if let Some(&round) = self.promises.rounds.get(&host) {
            self.check_commit(host, (self.hosts[host].config.id, round));
        }
    }

    /// Checks a commit once: all others are ready, and none of them has ended so that the leader's kernel
    /// knows it.
    fn check_commit(&mut self, host: usize, key: (NodeId, u64)) {
        if self.promises.commits.contains_key(&key) {
            return;
        }
        let me = key.0;
        let mut members = self.promises.ready.get(&key).cloned().unwrap_or_default();
        let world = self.hosts[host].config.world;
        let size = World::new(u32::try_from(members.len() + 1).unwrap()).unwrap();
        if !world.contains(size) {
            self.broken.push(format!("{host} commits with {} ready members of {world}", members.len()));
        }
        let left = |id: &&NodeId| {
            let ended =
                self.history.ends.iter().any(|end| end.id == **id && !matches!(end.how, Ended::Formed(_)));
            ended && self.promises.open.get(&(**id, host)).is_none_or(|&open| open == 0)
        };
        if let Some(gone) = members.iter().find(left) {
            let gone = self.history.host_of[gone];
            self.broken.push(format!("{host} commits although it could know that {gone} has left"));
        }
        members.insert(me);
        self.check_paths(host, &members);
        self.promises.commits.insert(key, Commit { leader: me, at: self.now, members });
    }

    /// Checks that of the nodes of a world that is committed each has proved its paths to the others.
    fn check_paths(&mut self, host: usize, members: &BTreeSet<NodeId>) {
        let wishes = self.hosts.iter().map(|host| host.config.node.attributes.paths).max();
        if members.len() > 64 || !self.hosts[host].proves_paths || wishes == Some(Paths::Master) {
            return;
        }
        let pairs = members.iter().flat_map(|&from| members.iter().map(move |&to| (from, to)));
        let mut unproved =
            pairs.filter(|(from, to)| from != to && !self.promises.paths.contains(&(*from, *to)));
        if let Some((from, to)) = unproved.next() {
            self.broken.push(format!("{host} commits although {from} has not proved its path to {to}"));
        }
    }

    /// The worlds that were committed.
    pub fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.promises.commits.values()
    }

    /// Notes the void or the commit that ends what its reader is bound to, or a prepare of a later round,
    /// which says the same.
    pub(super) fn check_read(&mut self, host: usize, leader: NodeId, frame: &Frame) {
        let released = match seen(frame) {
            Seen::Void(round) | Seen::Commit(round) => round,
            Seen::Prepare(round) => round.saturating_sub(1),
            _ => return,
        };
        let known = self.promises.released.entry((host, leader)).or_default();
        *known = released.max(*known);
        if self.promises.bound.get(&host).is_some_and(|bound| bound.0 == leader && bound.1 <= *known) {
            self.promises.bound.remove(&host);
        }
    }

    /// Checks that a node whose world has formed has reached the master's endpoint, by a session or a path.
    pub(super) fn formed(&mut self, host: usize, formed: &Formed) {
        let life = self.hosts[host].life;
        let at = |acceptor| (host, life, formed.master, acceptor);
        let mut proofs = self.promises.proved.range(at(0)..=at(usize::MAX));
        if formed.rank.get() != 0 && proofs.next().is_none() {
            self.broken.push(format!("{host} has not proved {}", formed.master));
        }
    }
}
