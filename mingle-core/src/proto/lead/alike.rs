//! What should be the same on all nodes: which traits differ, and whether that keeps the world from forming.

use super::ranks::Applicant;
use super::unfit::Excluded;
use crate::model::{Sameness, Traits};
use crate::wire::Refusal;

/// The traits that differ between nodes, which are given in the order of their ranks. A world does not form
/// if there are any, and a node requires that there are none.
pub(super) fn compare(ranks: &[Applicant]) -> Result<Sameness, Box<Excluded>> {
    let traits: Vec<&Traits> = ranks.iter().map(|applicant| &*applicant.traits).collect();
    let sameness = Sameness::of(&traits);
    if sameness.is_same() || !ranks.iter().any(|applicant| applicant.node.attributes.requires_same) {
        return Ok(sameness);
    }
    Err(Excluded::new(Vec::new(), Refusal::Differs(sameness)))
}
