//! A world that has formed, and why it ended.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use mingle_rdma::Verdict;

use crate::model::{BrokenPath, Digest, End, Member, Peer, Rank, Roster, Sameness, Slots, World, WorldSize};
use crate::wire::world::FirstCause;

/// A formed world, as a node of the world sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Formed {
    /// This node's rank.
    pub rank: Rank,
    /// The size of the world, in nodes.
    pub world: World,
    /// The size that was asked for, which may be a range.
    pub asked: WorldSize,
    /// MASTER_ADDR and MASTER_PORT: an endpoint of rank 0 to which this node has had a connection.
    pub master: SocketAddr,
    /// This node's own address at which the other nodes reach it, and which their rosters have.
    pub local: IpAddr,
    /// The digest of the roster, which is the same on every node of this world.
    pub digest: Digest,
    /// All members, if this node asked for the roster.
    pub roster: Option<Roster>,
    /// The transport that the ranks use, and which ranks differ. Every rank has the same verdict.
    pub verdict: Verdict,
    /// The traits that differ between the ranks. Every rank has the same value.
    pub sameness: Sameness,
    /// How many workers run on this node, on lower ranks and on all nodes.
    pub slots: Slots,
    /// How many nodes have joined but got no seat, because all seats were taken.
    pub left_over: u32,
    /// The paths that this node could not prove, each with the rank to which it leads, where the nodes only
    /// [try](crate::Rendezvous::tries) a formation. An MTU that this node does not know is 0.
    pub broken: Vec<(Rank, BrokenPath)>,
}

impl Formed {
    /// A world of the size that was asked for, whose nodes have a single worker each and whose roster and
    /// RDMA are not known.
    pub fn new(rank: Rank, world: World, master: SocketAddr, local: IpAddr, digest: Digest) -> Self {
        Self {
            rank,
            world,
            asked: world.into(),
            master,
            local,
            digest,
            roster: None,
            verdict: Verdict::default(),
            sameness: Sameness::default(),
            slots: Slots { own: 1, before: rank.get().into(), total: world.get().into() },
            left_over: 0,
            broken: Vec::new(),
        }
    }
}

/// Why a running world ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The rank whose command failed or whose node is dead. None if this node knows only that the job has
    /// restarted.
    pub rank: Option<Rank>,
    /// The node of that rank.
    pub peer: Option<Peer>,
    /// How that rank's command ended.
    pub end: End,
}

impl Over {
    /// The first cause, of a world of these members by rank.
    pub(crate) fn of(cause: FirstCause, members: &[Member]) -> Self {
        let member = cause.rank.and_then(|rank| members.get(usize::try_from(rank).ok()?));
        Self { rank: cause.rank.map(Rank), peer: member.map(Member::peer), end: cause.end }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, &self.peer) {
            (Some(rank), Some(peer)) if self.end == End::Left => write!(f, "rank {rank}, {peer}, leaves"),
            (Some(rank), Some(peer)) if self.end == End::Grows => {
                write!(f, "rank {rank}, {peer}, lets nodes in that wait")
            }
            (Some(rank), Some(peer)) => write!(f, "rank {rank}, {peer}, failed: {}", self.end),
            _ => f.write_str("the job has started again on other nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_of_which_nothing_else_is_known_has_one_worker_on_each_node() {
        let master = SocketAddr::from(([10, 0, 0, 1], 29500));
        let formed = Formed::new(Rank(2), World::new(5).unwrap(), master, master.ip(), Digest([0; 16]));
        assert_eq!(formed.slots, Slots { own: 1, before: 2, total: 5 });
    }
}
