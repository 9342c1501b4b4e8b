//! Why no world formed for a node.

use mingle_rdma::Verdict;

use super::Report;
use super::deadline::listed;
use crate::model::{BrokenPath, Peer, Rank, Sameness, User, WorldSize};

/// Why no world formed for this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The timeout passed.
    #[error("{0}")]
    Deadline(Box<Report>),
    /// Another node, which answers, holds the rank that was given to this node.
    #[error("rank {rank} is taken by {holder}, which is alive")]
    RankTaken {
        /// The rank.
        rank: Rank,
        /// The node that holds the rank.
        holder: Peer,
    },
    /// The leader of this job expects a world of another size.
    #[error("this node expects a world of {ours}, but {leader} leads one of {theirs} under the same job ID")]
    WorldDiffers {
        /// The size that this node expects.
        ours: WorldSize,
        /// The size that the leader expects.
        theirs: WorldSize,
        /// The leader.
        leader: Peer,
    },
    /// The nodes of this job run as another user.
    #[error("this job ID belongs to {theirs} ({node}, {}), and this node runs as {ours}", who_is_here(*.joined))]
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
    #[error("the world of {world} formed at {leader} without this node: no seat was left")]
    WorldFull {
        /// The size that was asked for.
        world: WorldSize,
        /// The leader.
        leader: Peer,
    },
    /// A node has only IPv6, and another node has only IPv4.
    #[error("the nodes have no address family in common: {six} has IPv6 alone, {four} IPv4 alone")]
    NoCommonFamily {
        /// A node with only IPv6.
        six: Peer,
        /// A node with only IPv4.
        four: Peer,
    },
    /// Some paths that the job needs could not be proved.
    #[error("{}", broken(.paths, *.more))]
    PathsBroken {
        /// The broken paths, two at most.
        paths: Vec<BrokenPath>,
        /// How many further paths are broken.
        more: u32,
    },
    /// Some nodes had joined and answered, but were not ready when a round was over.
    #[error("all nodes have joined, and some were not ready within 15 s: {}", listed(.nodes))]
    Unready {
        /// The nodes that were not ready, six at most.
        nodes: Vec<Peer>,
    },
    /// The ranks cannot all use RDMA together, and a node requires RDMA or the last world used RDMA.
    #[error("{}", no_rdma(.verdict, *.is_required))]
    NoRdma {
        /// Which ranks differ, and how.
        verdict: Verdict,
        /// Whether a node requires RDMA.
        is_required: bool,
    },
    /// All commands of the world that this node waited for have succeeded, so no seat will become free.
    #[error("the job has ended, and no seat has become free for this node")]
    JobFinished,
    /// Traits differ between the nodes, and a node requires that they are the same.
    #[error("{}", clauses("all nodes must be the same, and they are not", .sameness.lines()))]
    Differs {
        /// Which traits differ, and on which ranks.
        sameness: Sameness,
    },
    /// This node was ready, but the leader fell silent before it said whether the world formed.
    #[error("{leader} fell silent after this node was ready: outcome unknown, other nodes may have started")]
    OutcomeUnknown {
        /// The leader.
        leader: Peer,
    },
}

/// How many nodes of the other user are here.
fn who_is_here(joined: u32) -> String {
    match joined {
        0 => "whose job runs".to_owned(),
        1 => "1 node".to_owned(),
        joined => format!("{joined} nodes"),
    }
}

fn broken(paths: &[BrokenPath], more: u32) -> String {
    let more = (more > 0).then(|| format!("and {more} more"));
    paths.iter().map(ToString::to_string).chain(more).collect::<Vec<_>>().join("; ")
}

fn no_rdma(verdict: &Verdict, is_required: bool) -> String {
    let what = if is_required {
        "the job needs RDMA, and not all ranks can use it together"
    } else {
        "the job has used RDMA so far, and with the newcomers not all ranks can use it together"
    };
    let nobody = verdict.differences.is_empty().then(|| "no rank has a port for it".to_owned());
    clauses(what, nobody.into_iter().chain(verdict.facts().into_iter().map(|(fact, _)| fact)))
}

fn clauses(first: &str, others: impl IntoIterator<Item = String>) -> String {
    std::iter::once(first.to_owned()).chain(others).collect::<Vec<_>>().join("; ")
}
