//! Why no world formed for a node.

use std::error::Error;
use std::fmt;

use mingle_rdma::Verdict;

use super::Report;
use super::deadline::listed;
use crate::model::{BrokenPath, Peer, Rank, Sameness, User, WorldSize};

/// Why no world formed for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The timeout passed.
    Deadline(Box<Report>),
    /// Another node, which answers, holds the rank that was given to this node.
    RankTaken {
        /// The rank.
        rank: Rank,
        /// The node that holds the rank.
        holder: Peer,
    },
    /// The leader of this job expects a world of another size.
    WorldDiffers {
        /// The size that this node expects.
        ours: WorldSize,
        /// The size that the leader expects.
        theirs: WorldSize,
        /// The leader.
        leader: Peer,
    },
    /// The nodes of this job run as another user.
    UserDiffers {
        /// The user of this node.
        ours: Box<User>,
        /// The user of the other nodes.
        theirs: Box<User>,
        /// The node that says which user runs the job.
        node: Peer,
        /// How many nodes of that user are here; 0 if their world already runs.
        joined: u32,
    },
    /// The world formed while this node was a standby: it had joined, but all seats were taken.
    WorldFull {
        /// The size that was asked for.
        world: WorldSize,
        /// The leader.
        leader: Peer,
    },
    /// A node has only IPv6, and another node has only IPv4.
    NoCommonFamily {
        /// A node with only IPv6.
        six: Peer,
        /// A node with only IPv4.
        four: Peer,
    },
    /// Some paths that the job needs could not be proved.
    PathsBroken {
        /// The broken paths, two at most.
        paths: Vec<BrokenPath>,
        /// How many further paths are broken.
        more: u32,
    },
    /// Some nodes had joined and answered, but were not ready when a round was over.
    Unready {
        /// The nodes that were not ready, six at most.
        nodes: Vec<Peer>,
    },
    /// The ranks cannot all use RDMA together, and a node requires RDMA or the last world used RDMA.
    NoRdma {
        /// Which ranks differ, and how.
        verdict: Verdict,
        /// Whether a node requires RDMA.
        is_required: bool,
    },
    /// All commands of the world that this node waited for have succeeded, so no seat will become free.
    JobFinished,
    /// Traits differ between the nodes, and a node requires that they are the same.
    Differs {
        /// Which traits differ, and on which ranks.
        sameness: Sameness,
    },
    /// This node was ready, but the leader fell silent before it said whether the world formed.
    OutcomeUnknown {
        /// The leader.
        leader: Peer,
    },
}

impl Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(report) => report.fmt(f),
            Self::RankTaken { rank, holder } => {
                write!(f, "rank {rank} is taken by {holder}, which is alive")
            }
            Self::WorldDiffers { ours, theirs, leader } => write!(
                f,
                "this node expects a world of {ours}, but {leader} leads one of {theirs} under the same job ID"
            ),
            Self::UserDiffers { ours, theirs, node, joined } => {
                let has = match joined {
                    0 => "whose job runs".to_owned(),
                    1 => "1 node".to_owned(),
                    joined => format!("{joined} nodes"),
                };
                write!(f, "this job ID belongs to {theirs} ({node}, {has}), and this node runs as {ours}")
            }
            Self::WorldFull { world, leader } => {
                write!(f, "the world of {world} formed at {leader} without this node: no seat was left")
            }
            Self::NoCommonFamily { six, four } => {
                write!(
                    f,
                    "the nodes have no address family in common: {six} has IPv6 alone, {four} IPv4 alone"
                )
            }
            Self::PathsBroken { paths, more } => {
                let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
                f.write_str(&paths.join("; "))?;
                if *more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
            }
            Self::Unready { nodes } => {
                let nodes = listed(nodes);
                write!(f, "all nodes have joined, and some were not ready within 15 s: {nodes}")
            }
            Self::NoRdma { verdict, is_required } => {
                f.write_str(if *is_required {
                    "the job needs RDMA, and not all ranks can use it together"
                } else {
                    "the job has used RDMA so far, and with the newcomers not all ranks can use it together"
                })?;
                if verdict.differences.is_empty() {
                    f.write_str("; no rank has a port for it")?;
                }
                verdict.facts().iter().try_for_each(|(fact, _)| write!(f, "; {fact}"))
            }
            Self::JobFinished => f.write_str("the job has ended, and no seat has become free for this node"),
            Self::Differs { sameness } => {
                f.write_str("all nodes must be the same, and they are not")?;
                sameness.lines().iter().try_for_each(|line| write!(f, "; {line}"))
            }
            Self::OutcomeUnknown { leader } => write!(
                f,
                "{leader} fell silent after this node was ready: outcome unknown, other nodes may have started"
            ),
        }
    }
}
