//! What a node tells its caller: what happens, and how it ended.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::model::{Digest, End, HostName, Lineage, Peer, Rank, Roster, Slots, World};
use crate::rdma::Verdict;

/// Something that the caller may want to show or act on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// This node gathers the others now.
    Leading,
    /// This node gathers the others no longer, and has joined nobody: none of them reaches it, or the world has
    /// formed without it.
    SteppedDown,
    /// This node has been counted by the node that gathers.
    Following(Peer),
    /// The node that gathered is gone or does not answer; this node looks for another.
    LostLeader(Peer),
    /// Who is there has changed.
    Progress(Progress),
    /// Something that does not end the rendezvous, but that somebody should know.
    Warning(String),
    /// All are there: ranks are agreed on and the master is being proved.
    Preparing {
        /// The number of the attempt, counted by the leader from 1.
        round: u64,
    },
    /// The end of this node: the job has started again meanwhile. A new node with this lineage takes part in that.
    Superseded(Lineage),
    /// The end: the world has formed.
    Formed(Formed),
    /// The end: no world has formed for this node.
    Failed(Failure),
}

/// How far the gathering has come, as the leader counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// How many nodes have joined and proved that they reach the leader, itself included.
    pub joined: u32,
    /// How many there must be.
    pub world: World,
    /// Hosts that joined last, newest first; not always all of those that are new.
    pub newest: Vec<HostName>,
    /// The given ranks that are still missing. Known only while every node present was given one.
    pub missing: Vec<RankRange>,
    /// The node that gathers.
    pub leader: Peer,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} nodes here", self.joined, self.world)?;
        if !self.missing.is_empty() {
            write!(f, ", missing {}", ranks(&self.missing))?;
        }
        Ok(())
    }
}

/// A run of ranks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankRange {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl RankRange {
    /// The ranks of `0..world` that are not in `present`, which is ordered; at most `limit` runs.
    pub fn missing(present: impl IntoIterator<Item = u32>, world: u32, limit: usize) -> Vec<Self> {
        let mut runs = Vec::new();
        let mut next = 0;
        for rank in present.into_iter().chain([world]) {
            if rank > next && runs.len() < limit {
                runs.push(Self { first: next, last: rank - 1 });
            }
            next = rank.saturating_add(1);
        }
        runs
    }
}

impl fmt::Display for RankRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last.checked_sub(self.first) {
            Some(0) | None => write!(f, "{}", self.first),
            Some(_) => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// `rank 3`, or `ranks 1, 4-7`.
fn ranks(runs: &[RankRange]) -> String {
    let list = runs.iter().map(RankRange::to_string).collect::<Vec<_>>().join(", ");
    let single = matches!(runs, [one] if one.first == one.last);
    if single { format!("rank {list}") } else { format!("ranks {list}") }
}

/// A formed world, as one of its nodes sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formed {
    /// This node's rank.
    pub rank: Rank,
    /// The world's size.
    pub world: World,
    /// MASTER_ADDR and MASTER_PORT: an endpoint of rank 0 to which this node has had a connection.
    pub master: SocketAddr,
    /// This node's own address on the way to the master; for rank 0, the master's address.
    pub local: IpAddr,
    /// The same on every node of this world.
    pub digest: Digest,
    /// All members, where this node asked for them.
    pub roster: Option<Roster>,
    /// What the ranks use to reach each other, and which of them differ: the same on every rank.
    pub verdict: Verdict,
    /// How many workers there are, here and in all.
    pub slots: Slots,
}

/// Why a world that stood is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The rank whose command failed, or that is gone. None where this node has only heard that the job has
    /// started again.
    pub rank: Option<Rank>,
    /// The node of that rank.
    pub peer: Option<Peer>,
    /// What happened to it.
    pub end: End,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, &self.peer) {
            (Some(rank), Some(peer)) => write!(f, "rank {rank}, {peer}, failed: {}", self.end),
            _ => f.write_str("the job has started again on other nodes"),
        }
    }
}

/// Why no world formed for this node. [`Failure::code`] is the exit code of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The time was up.
    Deadline(Box<Report>),
    /// Another node holds the rank that was given to this one, and it answers.
    RankTaken {
        /// The rank.
        rank: Rank,
        /// Who holds it.
        holder: Peer,
    },
    /// The leader of this job gathers a world of another size.
    WorldDiffers {
        /// What this node was told.
        ours: World,
        /// What the leader was told.
        theirs: u32,
        /// The leader.
        leader: Peer,
    },
    /// The world formed without this node, which was one too many.
    WorldFull {
        /// The world's size.
        world: World,
        /// The leader.
        leader: Peer,
    },
    /// No node that may be rank 0 could be reached by all the others.
    MasterUnproved {
        /// Who failed to reach whom.
        pairs: Vec<Unproved>,
    },
    /// Somebody asked for RDMA or nothing, and not all ranks can use it together.
    NoRdma {
        /// Who lacks what.
        verdict: Verdict,
    },
    /// This node was ready, and the leader fell silent before it said whether the world formed.
    OutcomeUnknown {
        /// The leader.
        leader: Peer,
    },
    /// This node was told to leave.
    Left,
}

/// A node that could not reach another's endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unproved {
    /// The node that tried.
    pub prover: Peer,
    /// The node that it tried to reach, at its preferred endpoint.
    pub master: Peer,
}

impl Failure {
    /// The exit code that stands for this failure: 3 deadline, 4 conflict, 5 network,
    /// 6 deadline where the secrets do not match, 1 other.
    pub fn code(&self) -> u8 {
        match self {
            Self::Deadline(report) if report.blames_the_secret() => 6,
            Self::Deadline(_) => 3,
            Self::RankTaken { .. }
            | Self::WorldDiffers { .. }
            | Self::WorldFull { .. }
            | Self::NoRdma { .. } => 4,
            Self::MasterUnproved { .. } | Self::OutcomeUnknown { .. } => 5,
            Self::Left => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(report) => report.fmt(f),
            Self::RankTaken { rank, holder } => write!(
                f,
                "rank {rank} is taken by {holder}, which is alive; give each node a rank of its own, or none"
            ),
            Self::WorldDiffers { ours, theirs, leader } => write!(
                f,
                "this node expects a world of {ours}, but {leader} gathers one of {theirs} under the same \
                 job ID; give every node the same --world"
            ),
            Self::WorldFull { world, leader } => {
                write!(f, "the world of {world} formed at {leader} without this node, which was one too many")
            }
            Self::MasterUnproved { pairs } => {
                f.write_str("no node that may be rank 0 can be reached by all others over TCP: ")?;
                for (i, pair) in pairs.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "; " };
                    write!(f, "{comma}{} cannot reach {}", pair.prover, pair.master)?;
                }
                f.write_str("; check the firewall for TCP on that port, or choose an --interface")
            }
            Self::NoRdma { verdict } => {
                f.write_str("RDMA is required (--require-rdma), and not all ranks can use it together")?;
                if verdict.differences().is_empty() {
                    f.write_str("; no rank has a port for it ('mingle rdma' says why)")?;
                }
                verdict.facts().iter().try_for_each(|line| write!(f, "; {line}"))
            }
            Self::OutcomeUnknown { leader } => write!(
                f,
                "{leader} fell silent after this node was ready: outcome unknown, others may have started"
            ),
            Self::Left => f.write_str("left before the world formed"),
        }
    }
}

/// What a node knows when its time is up: the facts behind the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many nodes there should have been.
    pub world: World,
    /// This node's given rank.
    pub rank: Option<Rank>,
    /// How many were counted, this one included where it was.
    pub joined: u32,
    /// Those that were heard or told of, up to [`Report::NAMES`]; not this node.
    pub heard: Vec<Heard>,
    /// Given ranks known to be missing.
    pub missing: Vec<RankRange>,
    /// A leader whose words arrived, but that could not be reached over TCP on any of these endpoints.
    pub unreached: Option<(Peer, Vec<SocketAddr>)>,
    /// A node that gathers was heard of, but never answered this one.
    pub unanswered: Option<Peer>,
    /// Nobody who was heard, nor this node, may be rank 0.
    pub nobody_leads: bool,
    /// A node of this job said that the job runs already, with all its nodes.
    pub running: Option<SocketAddr>,
    /// Other protocol versions that were heard, with one node that speaks each.
    pub versions: Vec<(u8, SocketAddr)>,
    /// Senders of datagrams that were sealed with another secret or with none, and how many: the first senders
    /// alone, since an address can be forged.
    pub unauthentic: Vec<(IpAddr, u64)>,
    /// How many such datagrams came from others than these.
    pub unauthentic_others: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.get();
        if let Some(from) = self.running.filter(|_| self.joined <= 1) {
            write!(
                f,
                "no place in time: the job runs already with all its {world} nodes, says {from}; another job needs \
                 another job ID"
            )?;
        } else if self.heard.is_empty() && self.joined <= 1 && self.unanswered.is_none() {
            write!(
                f,
                "no world of {world} in time: nobody else was heard; the others have not started, or \
                 multicast does not pass between them and this node"
            )?;
        } else if let Some((leader, endpoints)) = &self.unreached {
            let list = endpoints.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
            write!(
                f,
                "no world of {world} in time: {leader} gathers and was heard, but could not be reached over \
                 TCP at {list}; check the firewall for these ports"
            )?;
        } else if self.nobody_leads {
            write!(
                f,
                "no world of {world} in time: nobody who may be rank 0 was heard; start the node with \
                 rank 0, or leave --rank away on one node"
            )?;
            self.present(f)?;
        } else {
            write!(f, "no world of {world} in time: {} of {world} nodes were here", self.joined)?;
            self.present(f)?;
            if self.missing.is_empty() {
                write!(f, "; {} missing", world.saturating_sub(self.joined))?;
            } else {
                write!(f, "; missing {}", ranks(&self.missing))?;
            }
        }
        if let Some(((first, _), others)) = self.unauthentic.split_first() {
            let count =
                self.unauthentic.iter().map(|(_, count)| count).sum::<u64>() + self.unauthentic_others;
            write!(f, "; {count} datagrams of this job were not authentic, from {first}")?;
            for (from, _) in others {
                write!(f, ", {from}")?;
            }
            if self.unauthentic_others > 0 {
                f.write_str(" and others")?;
            }
            f.write_str(": give every node the same secret")?;
        }
        if let Some(peer) = &self.unanswered {
            write!(f, "; {peer} gathers, but does not answer this node: check the firewall for UDP and TCP")?;
        }
        for (version, from) in &self.versions {
            write!(f, "; {from} speaks protocol version {version}, this node {}", crate::wire::VERSION)?;
        }
        Ok(())
    }
}

/// Another node of the job, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heard {
    /// What its host calls itself.
    pub host: HostName,
    /// Where it was heard from; absent where the leader told of it.
    pub address: Option<SocketAddr>,
    /// The rank that it was given.
    pub rank: Option<u32>,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if let Some(address) = self.address {
            write!(f, " ({address})")?;
        }
        if let Some(rank) = self.rank {
            write!(f, " with rank {rank}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Most names in a report.
    pub const NAMES: usize = 16;

    /// Whether a secret that differs is what keeps the nodes apart: something was not authentic, and
    /// nothing else explains it.
    pub fn blames_the_secret(&self) -> bool {
        !self.unauthentic.is_empty() && self.unreached.is_none() && self.versions.is_empty()
    }

    fn present(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.heard.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { "; heard: " } else { ", " })?;
        }
        Ok(())
    }
}
