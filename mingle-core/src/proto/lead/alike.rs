//! What should be the same on all nodes: which traits differ, and whether that keeps the world from forming.

use mingle_rdma::Verdict;

use super::ranks::Applicant;
use super::unfit::Excluded;
use crate::model::{Sameness, Traits};
use crate::wire::{self, Refusal};

/// The traits that differ between nodes, which are given in the order of their ranks; named as far as they
/// fit into a commit. A world does not form if there are any, and a node requires that there are none.
pub(super) fn compare(ranks: &[Applicant], verdict: &Verdict) -> Result<Sameness, Box<Excluded>> {
    let traits: Vec<&Traits> = ranks.iter().map(|applicant| &*applicant.traits).collect();
    let sameness = wire::fitting(Sameness::of(&traits), verdict);
    if sameness.is_same() || !ranks.iter().any(|applicant| applicant.node.attributes.requires_same) {
        return Ok(sameness);
    }
    Err(Excluded::new(Vec::new(), Refusal::Differs(sameness)))
}
