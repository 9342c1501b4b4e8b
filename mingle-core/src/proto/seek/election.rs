//! The order of candidates: the greatest leads.

use std::cmp::Reverse;

use crate::wire::Candidate;

/// Whether a candidate comes before another: the first leads.
///
/// First comes a given rank 0, so that the user's choice of master leads; then the candidate with more
/// members, so that the leader does not change for every newcomer; then the lowest preferred address, then
/// the lowest ID. `members` is a high-water mark: a key only grows, so that a candidate that was yielded to
/// stays better, and no two candidates can yield to each other.
pub(super) fn is_better(one: &Candidate, other: &Candidate) -> bool {
    let key = |c: &Candidate| (c.explicit, c.members, Reverse(c.endpoints.preferred().ip()), Reverse(c.id));
    key(one) > key(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, NodeId, World};
    use crate::proto::tests::endpoint;

    fn candidate(explicit: bool, members: u32, last: u8, id: u8) -> Candidate {
        let (host, world) = (HostName::new("host"), World::new(4).unwrap().into());
        Candidate { id: NodeId([id; 16]), explicit, members, world, host, endpoints: endpoint(last).into() }
    }

    #[test]
    fn the_order_is_explicit_then_members_then_lowest_address_then_lowest_id() {
        let ordered = [
            candidate(true, 1, 9, 9),
            candidate(false, 3, 9, 9),
            candidate(false, 2, 1, 1),
            candidate(false, 1, 1, 2),
            candidate(false, 1, 1, 3),
            candidate(false, 1, 2, 1),
            candidate(false, 1, 10, 1),
        ];
        for (i, better) in ordered.iter().enumerate() {
            for worse in &ordered[i + 1..] {
                assert!(is_better(better, worse), "{better:?} comes before {worse:?}");
                assert!(!is_better(worse, better));
            }
        }
    }
}
