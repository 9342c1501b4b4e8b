//! What is promised at every step, checked when a node sends, receives or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use mingle_core::proto::{NodeId, Paths, Time};
use mingle_core::{Formed, World};

use super::{Ended, Network};

/// The kinds of the messages that these promises are about.
const JOIN: u8 = 4;
const PREPARE: u8 = 9;
const READY: u8 = 10;
const VOID: u8 = 12;
const COMMIT: u8 = 13;

/// What each node is bound to by the messages that it has sent.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The leader and the round for which a host's node is ready, until it hears void or commit of that
    /// round.
    bound: BTreeMap<usize, (NodeId, Vec<u8>)>,
    /// The nodes that have sent ready, by leader and round.
    ready: BTreeMap<(NodeId, Vec<u8>), BTreeSet<NodeId>>,
    /// The worlds that were committed, by leader and round.
    pub(super) commits: BTreeMap<(NodeId, Vec<u8>), Commit>,
    /// How many connections of a prover the kernel of a host takes for open.
    pub(super) leases: BTreeMap<(NodeId, usize), u32>,
    /// The tokens and paths that have arrived: (dialer, its life, address dialled, acceptor).
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

    pub(super) fn release(&mut self, host: usize) {
        self.bound.remove(&host);
    }
}

/// The encoded round at the start of a body. The first byte of a long number is its length (bincode).
fn round(bytes: &[u8]) -> &[u8] {
    let length = match bytes[68] {
        251 => 3,
        252 => 5,
        253 => 9,
        _ => 1,
    };
    &bytes[68..68 + length]
}

/// The number that is encoded so: its first byte, or the little-endian bytes after that.
fn number(round: &[u8]) -> u64 {
    match round {
        [one] => u64::from(*one),
        [_, bytes @ ..] => bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        [] => 0,
    }
}

fn id(bytes: &[u8]) -> NodeId {
    NodeId(bytes.try_into().unwrap())
}

impl Network {
    /// Whether a host's node may act on this datagram: it is of its job, and the node is a recipient.
    pub(super) fn is_recipient(&self, host: usize, bytes: &[u8]) -> bool {
        let config = &self.hosts[host].config;
        let recipient = &bytes[40..56];
        bytes[8..24] == config.tag.0
            && (recipient == config.id.0 || recipient == [0; 16] || recipient == [0xff; 16])
    }

    /// Notes the ready that binds its sender, and checks the join and the commit.
    pub(super) fn check_sent(&mut self, host: usize, bytes: &[u8]) {
        let (me, to) = (id(&bytes[24..40]), id(&bytes[40..56]));
        match bytes[5] {
            READY => {
                let round = round(bytes).to_vec();
                self.promises.ready.entry((to, round.clone())).or_default().insert(me);
                self.promises.bound.insert(host, (to, round));
            }
            JOIN => {
                if let Some((leader, round)) = self.promises.bound.get(&host)
                    && *leader != to
                {
                    self.broken.push(format!("{host} is ready for {leader} in {round:?} and joins {to}"));
                }
            }
            COMMIT => self.check_commit(host, (me, round(bytes).to_vec())),
            _ => {}
        }
    }

    /// Checks a commit when it is sent first: all others are ready, and none of them has ended so that the
    /// leader's kernel knows it.
    fn check_commit(&mut self, host: usize, key: (NodeId, Vec<u8>)) {
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
            ended && self.promises.leases.get(&(**id, host)).is_none_or(|&open| open == 0)
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

    /// Notes the void or the commit that ends what its recipient is bound to, or a prepare or void of a later
    /// round, which says the same.
    pub(super) fn check_received(&mut self, host: usize, bytes: &[u8]) {
        let Some((leader, bound)) = self.promises.bound.get(&host) else { return };
        if !matches!(bytes[5], PREPARE | VOID | COMMIT) || leader.0 != bytes[24..40] {
            return;
        }
        let round = round(bytes);
        let is_later = number(round) > number(bound) && bytes[5] != COMMIT;
        if is_later || round == bound && bytes[5] != PREPARE {
            self.promises.bound.remove(&host);
        }
    }

    /// Checks that a node whose world has formed has reached the master's endpoint, by its lease or a path.
    pub(super) fn formed(&mut self, host: usize, formed: &Formed) {
        let life = self.hosts[host].life;
        let at = |acceptor| (host, life, formed.master, acceptor);
        let mut proofs = self.promises.proved.range(at(0)..=at(usize::MAX));
        if formed.rank.get() != 0 && proofs.next().is_none() {
            self.broken.push(format!("{host} has not proved {}", formed.master));
        }
    }
}
