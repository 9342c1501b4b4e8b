//! What a node and its leader tell each other on their session, until their world has formed.
//!
//! Each kind of frame is a whole state, as in [`world`](super::world): a later frame of a kind says all that
//! still holds of an earlier one.

use std::net::{IpAddr, SocketAddr};

use mingle_rdma::Verdict;
use serde::{Deserialize, Serialize};

use super::message::{Count, Introduction};
use super::session::Body;
use super::{NodeInfo, frame_config, read, write};
use crate::model::{
    BrokenPath, Digest, Fault, List, Member, Misfit, NodeId, Peer, Rank, Roster, Sameness, User, WorldSize,
    deserialize_unicast, deserialize_unicast_ip,
};

/// The most members in a refusal that were not ready.
pub(crate) const UNREADY: usize = 6;
/// The most broken paths in a report to the leader.
pub(crate) const BROKEN: usize = 8;
/// The most broken paths in a refusal.
pub(crate) const REFUSED: usize = 2;

/// The kind of a frame that says what comes of a member's proofs in a round.
pub(crate) const PART: u8 = 1;
/// The kind of a frame that tells a node what its leader knows.
pub(crate) const WELCOME: u8 = 2;

/// What a frame says, whose kind is the number of the variant, from 0. The node says the first two, its
/// leader the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    Join(Box<Join>),
    Part(Part),
    Welcome(Welcome),
    /// The roster of the round of this number, for a member that wants it. A session that begins anew says
    /// all in the order of the kinds, so that the roster is read before the prepare.
    Roster(u64, Roster),
    /// A leader begins a round: it tells each member its rank, the master, and the paths that the member must
    /// prove.
    Prepare(Prepare),
    /// All were ready: the world has formed. The acknowledgement says that the node knows it.
    Commit(Commit),
    /// There is no world for the node with this leader.
    Refuse(Refusal),
}

impl Said {
    pub(crate) fn encode(&self) -> Body {
        write(self, frame_config()).into()
    }

    /// Nothing where the bytes are no frame of these, or more than that.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        read(body, frame_config())
    }
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) world: WorldSize,
    pub(crate) node: NodeInfo,
    /// As [`encode_traits`](super::encode_traits) writes them.
    pub(crate) traits: Vec<u8>,
    /// A node that this node knows as a misfit: it may have led before, and have refused that node.
    pub(crate) misfit: Option<Misfit>,
}

/// What comes of a member's proofs in the round of this number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) round: u64,
    pub(crate) answer: Answer,
}

/// What comes of a member's proofs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The member has all that it needs. It is bound to the round until commit or void.
    Ready,
    /// Paths that it could not prove.
    Broken(Broken),
}

/// What a leader tells a node that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) count: Count,
    /// What keeps the world from forming, as far as the leader knows.
    pub(crate) trouble: Option<Trouble>,
    /// The last round that is void, and with it all before it.
    pub(crate) void: u64,
}

/// What a leader tells its members as soon as it knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trouble {
    /// A node could not be seated.
    Misfit(Misfit),
    /// A path could not be proved in a round.
    Broken(BrokenPath),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Another node, which answers, holds the rank.
    RankTaken(Peer),
    /// The leader expects a world of this size.
    WorldDiffers(WorldSize),
    /// The world has formed without this node, which was a standby.
    WorldFull,
    /// The leader stops leading: the world has formed, or another node takes the leader's place.
    Closing,
    /// The leader has joined this one itself.
    Redirect(Introduction),
    /// The first of these nodes has IPv6 alone, the other IPv4 alone.
    NoCommonFamily(Peer, Peer),
    /// Not all nodes have RDMA, which a node requires (true), or which the world before used (false).
    NoRdma(Verdict, bool),
    /// These members answer, and were not ready when a round of 15 s was over.
    Unready(List<Peer, UNREADY>),
    /// Paths could not be proved: these, and how many more.
    PathsBroken(List<BrokenPath, REFUSED>, u32),
    /// A node requires that all traits are the same, and they are not.
    Differs(Sameness),
    /// The leader runs as this user, and has so many members, itself included.
    UserDiffers(User, u32),
}

impl Refusal {
    /// Whether users need not be told of it after the other one.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::PathsBroken(paths, _), Self::PathsBroken(others, _)) => {
                paths.iter().all(|path| others.iter().any(|other| path.repeats(other)))
            }
            _ => self == other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) round: u64,
    /// The size of the world that this round forms.
    pub(crate) world: u32,
    pub(crate) rank: u32,
    pub(crate) digest: Digest,
    /// The workers on all nodes of lower ranks.
    pub(crate) slots_before: u64,
    /// The workers in the whole world.
    pub(crate) slots_total: u64,
    pub(crate) master: NodeId,
    /// MASTER_ADDR and MASTER_PORT.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) master_at: SocketAddr,
    /// The address at which the others reach this node.
    #[serde(deserialize_with = "deserialize_unicast_ip")]
    pub(crate) address: IpAddr,
    /// The addresses of other nodes to which it must prove its path, beside that to the master's own port.
    pub(crate) partners: Vec<Partner>,
}

/// A node to which a path is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partner {
    pub(crate) id: NodeId,
    pub(crate) rank: u32,
    /// The address that the job uses there, and the port for paths.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) path: SocketAddr,
    /// The node's own port, which shows whether a firewall blocks ports or the host.
    pub(crate) own_port: u16,
}

impl Partner {
    /// The master, to which each node proves the path to its own port.
    pub(crate) fn master(id: NodeId, at: SocketAddr) -> Self {
        Self { id, rank: 0, path: at, own_port: at.port() }
    }
}

/// Paths that a member could not prove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) paths: List<BrokenTo, BROKEN>,
    /// How many more there are.
    pub(crate) more: u32,
}

/// A path that the sender could not prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BrokenTo {
    pub(crate) partner: NodeId,
    /// Which of the partner's addresses, and the port.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) path: SocketAddr,
    pub(crate) fault: Fault,
    /// Whether the partner's own port answers at the same address.
    pub(crate) own_port_answers: bool,
}

impl BrokenTo {
    /// The path as messages to users name it: from this node, to the partner as it is in the roster.
    pub(crate) fn path(&self, from: Peer, to: &Member, mtus: (u32, u32)) -> BrokenPath {
        BrokenPath {
            from,
            to: Peer { host: to.host.clone(), address: self.path },
            fault: self.fault,
            answers: self.own_port_answers.then_some(to.address.port()),
            to_master: to.rank == Rank(0) && self.path == to.address,
            mtus,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) round: u64,
    /// What all nodes use to reach each other.
    pub(crate) verdict: Verdict,
    /// The traits that differ.
    pub(crate) sameness: Sameness,
    /// How many nodes have joined and have no seat.
    pub(crate) left_over: u32,
}
