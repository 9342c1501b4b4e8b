//! Why no world formed for a node.

use std::error::Error;
use std::fmt;

use mingle_rdma::Verdict;

use super::Report;
use crate::model::{BrokenPath, Peer, Rank, Sameness, User, WorldSize};

/// Why no world formed for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The timeout passed.
    Deadline(Box<Report>),
    /// Another node holds the rank that was given to this one, and that node answers.
    RankTaken {
        /// The rank.
        rank: Rank,
        /// The node that holds it.
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
        /// The user of the others.
        theirs: Box<User>,
        /// The node that says so.
        node: Peer,
        /// How many nodes that user has here; 0 where their world runs.
        joined: u32,
    },
    /// The world formed while this node was a standby.
    WorldFull {
        /// The size that was asked for.
        world: WorldSize,
        /// The leader.
        leader: Peer,
    },
    /// A node has IPv6 alone, and another IPv4 alone.
    NoCommonFamily {
        /// A node with IPv6 alone.
        six: Peer,
        /// A node with IPv4 alone.
        four: Peer,
    },
    /// Some paths that the job needs could not be proved.
    PathsBroken {
        /// The paths, two at most.
        paths: Vec<BrokenPath>,
        /// How many more there are.
        more: u32,
    },
    /// Nodes that had joined answered, and were not ready in one round after another.
    Unready {
        /// The nodes, six at most.
        nodes: Vec<Peer>,
    },
    /// Not all ranks can use RDMA together, and a node requires it or the world before used it.
    NoRdma {
        /// Which ranks differ, and in what.
        verdict: Verdict,
        /// Whether a node requires it.
        is_required: bool,
    },
    /// All commands of the world that this node waited for have ended well, so no seat will be free.
    JobFinished,
    /// A node requires that what should be the same on all nodes is, and it is not.
    Differs {
        /// What differs, and on which ranks.
        sameness: Sameness,
    },
    /// This node was ready, and the leader fell silent before it said whether the world formed.
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
                let nodes: Vec<_> = nodes.iter().map(ToString::to_string).collect();
                let nodes = nodes.join(", ");
                write!(f, "all nodes have joined, and round after round some were not ready: {nodes}")
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
            Self::JobFinished => {
                f.write_str("the job has ended well, and no seat has become free for this node")
            }
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
