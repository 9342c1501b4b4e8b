//! What should be the same on all nodes: which traits differ, and whether that keeps the world from forming.

use mingle_rdma::Verdict;

use super::ranks::Applicant;
use crate::model::{Sameness, Traits};
use crate::proto::report::Failure;
use crate::wire::{self, Refusal};

/// The traits that differ between nodes, which are given in the order of their ranks; named as far as they
/// fit into a commit.
pub(super) fn compare(ranks: &[Applicant], verdict: &Verdict) -> Sameness {
    let traits: Vec<&Traits> = ranks.iter().map(|applicant| &*applicant.traits).collect();
    wire::fitting(Sameness::of(&traits), verdict)
}

/// Why a world does not form: its traits differ, and a node requires that they do not.
pub(super) fn refusal(ranks: &[Applicant], sameness: &Sameness) -> Option<(Refusal, Failure)> {
    let is_required = ranks.iter().any(|applicant| applicant.node.attributes.requires_same);
    let sameness = Some(sameness).filter(|sameness| is_required && !sameness.is_same())?;
    Some((Refusal::Differs(sameness.clone()), Failure::Differs { sameness: sameness.clone() }))
}
