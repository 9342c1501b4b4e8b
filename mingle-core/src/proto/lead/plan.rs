//! The plan of a round, made before any proof: ranks, master, roster, and the verdict on RDMA.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::book::Book;
use super::networks::Network;
use super::ranks::Applicant;
use crate::model::{BrokenPath, Digest, Endpoints, Link, Member, NodeId, Paths, Peer, Rank, Roster};
use crate::proto::prove::{Arrivals, Ends};
use crate::proto::shared::Shared;
use crate::rdma::Verdict;
use crate::wire::{self, BrokenTo, PARTNERS, Partner, Prepare};

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
    /// Which paths are proved.
    paths: Paths,
    /// How each node is reached, in the order of the ranks.
    reached: Vec<Reached>,
}

/// How the job reaches a node, and how others prove that.
#[derive(Debug, Clone, Copy)]
struct Reached {
    id: NodeId,
    link: Link,
    /// The port for paths, where the node has one.
    port: Option<u16>,
    own_port: u16,
}

/// The nodes of a full world, without ranks: this node and its members.
pub(super) fn applicants(book: &Book, arrivals: &Arrivals, shared: &Shared) -> Vec<Applicant> {
    let leases: Vec<_> = book.members().filter_map(|(id, _)| arrivals.ends(id)).collect();
    let own =
        Applicant { id: shared.me(), node: shared.node_info(), lease: most_frequent(leases), met: None };
    let members = book.members().map(|(id, entry)| {
        let ends = arrivals.ends(id);
        let (lease, met) = (ends.map(|ends| ends.remote), ends.map(|ends| ends.local));
        Applicant { id, node: entry.node.clone(), lease, met }
    });
    std::iter::once(own).chain(members).collect()
}

/// The address of this node that most members have reached.
fn most_frequent(leases: Vec<Ends>) -> Option<IpAddr> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for ends in leases {
        *counts.entry(ends.local).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|&(address, count)| (count, std::cmp::Reverse(address)))
        .map(|(address, _)| address)
}

impl Plan {
    /// The plan for nodes in the order of their ranks, the master first.
    pub(super) fn new(
        number: u64,
        assigned: &[Applicant],
        verdict: Verdict,
        wants_roster: bool,
        network: &Network,
    ) -> Option<Self> {
        let master = assigned.first()?;
        let reached = |a: &Applicant| Reached {
            id: a.id,
            link: network.links.get(&a.id).copied().unwrap_or_else(|| Link::unknown(a.address().ip())),
            port: a.node.reach.port(),
            own_port: a.address().port(),
        };
        let reached: Vec<Reached> = assigned.iter().map(reached).collect();
        let members = (0..).zip(assigned).zip(&reached).map(|((rank, a), reached)| Member {
            rank: Rank(rank),
            id: a.id,
            host: a.node.host.clone(),
            address: (reached.link.address, reached.own_port).into(),
            slots: a.node.attributes.slots,
            metadata: a.node.attributes.metadata.clone(),
        });
        let roster = Roster::new(members.collect())?;
        let (mut places, mut slots) = (BTreeMap::new(), 0);
        for member in roster.members() {
            places.insert(member.id, (member.rank.get(), slots));
            slots += u64::from(member.slots);
        }
        Some(Self {
            number,
            digest: roster.digest(),
            places,
            slots,
            parts: if wants_roster { wire::encode_roster(&roster) } else { Vec::new() },
            roster,
            master: master.id,
            endpoints: network.endpoints(&master.node.endpoints),
            verdict,
            paths: network.paths,
            reached,
        })
    }

    /// The address of a node, as the others reach it.
    pub(super) fn address(&self, id: NodeId) -> Option<IpAddr> {
        self.reached(id).map(|reached| reached.link.address)
    }

    fn reached(&self, id: NodeId) -> Option<&Reached> {
        let &(rank, _) = self.places.get(&id)?;
        self.reached.get(usize::try_from(rank).ok()?)
    }

    /// The nodes to which this one proves its path: all those that have a port for that.
    pub(super) fn partners(&self, id: NodeId) -> Vec<Partner> {
        let Some(&(rank, _)) = self.places.get(&id) else { return Vec::new() };
        if self.reached(id).is_none_or(|own| own.port.is_none()) {
            return Vec::new();
        }
        let world = u32::try_from(self.reached.len()).unwrap_or(u32::MAX);
        let partners = self.paths.partners(rank, world).into_iter().filter_map(|rank| {
            let partner = self.reached.get(usize::try_from(rank).ok()?)?;
            let path = SocketAddr::new(partner.link.address, partner.port?);
            Some(Partner { id: partner.id, path, own_port: partner.own_port })
        });
        partners.collect()
    }

    /// A broken path as messages name it.
    pub(super) fn broken(&self, from: NodeId, to: &BrokenTo) -> Option<BrokenPath> {
        let peer = |reached: &Reached, port: u16| {
            let &(rank, _) = self.places.get(&reached.id)?;
            let member = self.roster.members().get(usize::try_from(rank).ok()?)?;
            Some(Peer { host: member.host.clone(), address: (reached.link.address, port).into() })
        };
        let (from, target) = (self.reached(from)?, self.reached(to.partner)?);
        Some(BrokenPath {
            from: peer(from, from.own_port)?,
            to: peer(target, target.port?)?,
            fault: to.fault,
            answers: to.own_port_answers.then_some(target.own_port),
            mtus: (from.link.mtu, target.link.mtu),
        })
    }

    /// The prepares for one member, each with some of its partners.
    pub(super) fn prepare(&self, id: NodeId, lease: u32) -> Vec<Prepare> {
        let (Some(&(rank, slots_before)), Some(address)) = (self.places.get(&id), self.address(id)) else {
            return Vec::new();
        };
        let partners = self.partners(id);
        let with = |some: &[Partner]| Prepare {
            round: self.number,
            lease,
            rank,
            digest: self.digest,
            slots_before,
            slots_total: self.slots,
            roster_bytes: u32::try_from(self.parts.len()).unwrap_or(u32::MAX),
            master: self.master,
            endpoints: self.endpoints.clone(),
            address,
            paths: u32::try_from(partners.len()).unwrap_or(u32::MAX),
            partners: some.iter().copied().collect(),
        };
        if partners.is_empty() { vec![with(&[])] } else { partners.chunks(PARTNERS).map(with).collect() }
    }
}
