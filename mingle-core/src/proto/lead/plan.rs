//! The plan of a round, made before any proof: ranks, master, roster, and the verdict on RDMA.

use std::collections::BTreeMap;

use super::book::Book;
use super::ranks::Applicant;
use crate::model::{Digest, Endpoints, Member, NodeId, Rank, Roster};
use crate::proto::shared::Shared;
use crate::rdma::Verdict;
use crate::wire::{self, Prepare};

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) number: u64,
    pub(super) roster: Roster,
    /// The roster as it is sent; empty where no member wants it.
    pub(super) parts: Vec<u8>,
    pub(super) digest: Digest,
    /// The rank of each node, and the slots on lower ranks.
    places: BTreeMap<NodeId, (u32, u64)>,
    /// The slots of all.
    slots: u64,
    pub(super) master: NodeId,
    pub(super) endpoints: Endpoints,
    pub(super) verdict: Verdict,
}

/// The nodes of a full world, without ranks: this node and its members.
pub(super) fn applicants(book: &Book, shared: &Shared) -> Vec<Applicant> {
    let own = Applicant { id: shared.me(), node: shared.node_info() };
    let members = book.members().map(|(id, entry)| Applicant { id, node: entry.node.clone() });
    std::iter::once(own).chain(members).collect()
}

impl Plan {
    /// The plan for nodes in the order of their ranks, the master first.
    pub(super) fn new(
        number: u64,
        assigned: &[Applicant],
        verdict: Verdict,
        wants_roster: bool,
    ) -> Option<Self> {
        let members = (0..).zip(assigned).map(|(rank, a)| Member {
            rank: Rank(rank),
            id: a.id,
            host: a.node.host.clone(),
            address: a.address(),
            slots: a.node.attributes.slots,
            metadata: a.node.attributes.metadata.clone(),
        });
        let roster = Roster::new(members.collect())?;
        let (mut places, mut slots) = (BTreeMap::new(), 0);
        for member in roster.members() {
            places.insert(member.id, (member.rank.get(), slots));
            slots += u64::from(member.slots);
        }
        let master = assigned.first()?;
        Some(Self {
            number,
            digest: roster.digest(),
            places,
            slots,
            parts: if wants_roster { wire::encode_roster(&roster) } else { Vec::new() },
            roster,
            master: master.id,
            endpoints: master.node.endpoints.advertised(),
            verdict,
        })
    }

    /// The prepare for one member.
    pub(super) fn prepare(&self, id: NodeId, lease: u32) -> Option<Prepare> {
        let &(rank, slots_before) = self.places.get(&id)?;
        Some(Prepare {
            round: self.number,
            lease,
            rank,
            digest: self.digest,
            slots_before,
            slots_total: self.slots,
            roster_bytes: u32::try_from(self.parts.len()).unwrap_or(u32::MAX),
            master: self.master,
            endpoints: self.endpoints.clone(),
        })
    }
}
