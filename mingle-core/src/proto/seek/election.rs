//! The order of candidates: the greatest leads.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::model::NodeId;
use crate::wire::Candidate;

/// A candidate's place in the order; the greater leads.
///
/// First comes a given rank 0, so that the user's choice of master leads; then the candidate with more
/// members, so that the leader does not change for every newcomer; then the lowest preferred address, then
/// the lowest ID. `members` is a high-water mark: a key only grows, so that a candidate that was yielded to
/// stays better, and no two candidates can yield to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ElectionKey {
    explicit: bool,
    members: u32,
    address: Reverse<IpAddr>,
    id: Reverse<NodeId>,
}

impl ElectionKey {
    pub(crate) fn new(explicit: bool, members: u32, address: IpAddr, id: NodeId) -> Self {
        Self { explicit, members, address: Reverse(address), id: Reverse(id) }
    }

    pub(crate) fn of(candidate: &Candidate) -> Self {
        Self::new(candidate.explicit, candidate.members, candidate.endpoints.preferred().ip(), candidate.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(explicit: bool, members: u32, last: u8, id: u8) -> ElectionKey {
        ElectionKey::new(explicit, members, IpAddr::from([10, 0, 0, last]), NodeId([id; 16]))
    }

    #[test]
    fn the_order_is_explicit_then_members_then_lowest_address_then_lowest_id() {
        let ordered = [
            key(true, 1, 9, 9),
            key(false, 3, 9, 9),
            key(false, 2, 1, 1),
            key(false, 1, 1, 2),
            key(false, 1, 1, 3),
            key(false, 1, 2, 1),
            key(false, 1, 10, 1),
        ];
        for (i, better) in ordered.iter().enumerate() {
            for worse in &ordered[i + 1..] {
                assert!(better > worse, "{better:?} comes before {worse:?}");
                assert!(worse < better);
            }
        }
    }
}
