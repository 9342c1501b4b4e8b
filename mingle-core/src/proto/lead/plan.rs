//! The plan of a round, made before any proof: ranks, master, roster, and the verdict on RDMA.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mingle_rdma::{Verdict, most_frequent};

use super::book::Book;
use super::networks::RoundNetwork;
use super::ranks::Applicant;
use crate::model::{BrokenPath, Digest, Link, Member, NodeId, Paths, Peer, Rank, Roster, Sameness};
use crate::proto::shared::Shared;
use crate::wire::{BrokenTo, Partner, Prepare};

#[derive(Debug, Clone)]
pub(super) struct RoundPlan {
    pub(super) number: u64,
    pub(super) roster: Roster,
    pub(super) digest: Digest,
    /// The rank of each node.
    ranks: BTreeMap<NodeId, u32>,
    /// For each rank the slots on lower ones, and then those of all.
    slots: Vec<u64>,
    pub(super) master: NodeId,
    /// MASTER_ADDR and MASTER_PORT.
    pub(super) master_at: SocketAddr,
    pub(super) verdict: Verdict,
    pub(super) sameness: Sameness,
    /// Which paths are proved.
    paths: Paths,
    /// How each node is reached, in the order of the ranks.
    reached: Vec<Reached>,
}

/// How the job reaches a node, and how others prove that.
#[derive(Debug, Clone)]
struct Reached {
    id: NodeId,
    link: Link,
    /// Other addresses, which the user has given to the job's libraries.
    given: Vec<Link>,
    /// The port for paths, where the node has one.
    port: Option<u16>,
    own_port: u16,
}

impl Reached {
    fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.link).chain(&self.given)
    }
}

/// The nodes of a full world, without ranks: this node and its members.
pub(super) fn applicants(book: &Book, shared: &Shared) -> Vec<Applicant> {
    let ends = |id| shared.links.get(id).and_then(|peer| peer.link.ends());
    let mut met: Vec<IpAddr> = book.members().filter_map(|(id, _)| Some(ends(id)?.local)).collect();
    // Among equally frequent ones, the least.
    met.sort_unstable();
    let session = most_frequent(met.into_iter());
    let own_traits = &shared.config.traits;
    let traits = Arc::clone(own_traits);
    let own = Applicant { id: shared.me(), node: shared.node_info(), session, met: None, traits };
    let members = book.members().map(|(id, entry)| {
        let (session, met) = (ends(id).map(|ends| ends.remote), ends(id).map(|ends| ends.local));
        let traits = Arc::clone(entry.differing.as_ref().unwrap_or(own_traits));
        Applicant { id, node: entry.node.clone(), session, met, traits }
    });
    std::iter::once(own).chain(members).collect()
}

impl RoundPlan {
    /// The plan for nodes in the order of their ranks, the master first.
    pub(super) fn new(
        number: u64,
        assigned: &[Applicant],
        (verdict, sameness): (Verdict, Sameness),
        network: &RoundNetwork,
    ) -> Option<Self> {
        let master = assigned.first()?;
        let reached = |a: &Applicant| {
            let link = network.links.get(&a.id).copied().unwrap_or_else(|| Link::unknown(a.address().ip()));
            let mut given = a.node.reach.given().to_vec();
            given.retain(|given| given.address != link.address);
            let (port, own_port) = (a.node.reach.port(), a.address().port());
            Reached { id: a.id, link, given, port, own_port }
        };
        let reached: Vec<Reached> = assigned.iter().map(reached).collect();
        let to_master = reached.first()?;
        let members = (0..).zip(assigned).zip(&reached).map(|((rank, a), reached)| Member {
            rank: Rank(rank),
            id: a.id,
            host: a.node.host.clone(),
            address: (reached.link.address, reached.own_port).into(),
            slots: a.node.attributes.slots,
            metadata: a.node.attributes.metadata.clone(),
            session_port: a.node.attributes.session_port,
        });
        let roster = Roster::new(members.collect())?;
        let mut slots = vec![0];
        slots.extend(roster.members().iter().scan(0, |sum, member| {
            *sum += u64::from(member.slots);
            Some(*sum)
        }));
        Some(Self {
            number,
            digest: roster.digest(),
            ranks: roster.members().iter().map(|member| (member.id, member.rank.get())).collect(),
            slots,
            roster,
            master: master.id,
            master_at: (to_master.link.address, to_master.own_port).into(),
            verdict,
            sameness,
            paths: network.paths,
            reached,
        })
    }

    /// How many nodes the world of this round has.
    pub(super) fn world(&self) -> u32 {
        u32::try_from(self.reached.len()).unwrap_or(u32::MAX)
    }

    /// The address of a node, as the others reach it.
    pub(super) fn address(&self, id: NodeId) -> Option<IpAddr> {
        self.reached(id).map(|reached| reached.link.address)
    }

    fn reached(&self, id: NodeId) -> Option<&Reached> {
        let &rank = self.ranks.get(&id)?;
        self.reached.get(usize::try_from(rank).ok()?)
    }

    /// The addresses to which this node proves its path, beside the master's own port: those of all partners
    /// that have a port for that.
    pub(super) fn partners(&self, id: NodeId) -> Vec<Partner> {
        let Some(&rank) = self.ranks.get(&id) else { return Vec::new() };
        if self.reached(id).is_none_or(|own| own.port.is_none()) {
            return Vec::new();
        }
        let ranks = self.paths.partners(rank, &self.slots).into_iter();
        let partners = ranks.filter_map(|rank| Some((rank, self.reached.get(usize::try_from(rank).ok()?)?)));
        let ways = partners.filter_map(|(rank, partner)| Some((rank, partner, partner.port?))).flat_map(
            |(rank, partner, port)| {
                let &Reached { id, own_port, .. } = partner;
                let path = move |link: &Link| SocketAddr::new(link.address, port);
                partner.links().map(move |link| Partner { id, rank, path: path(link), own_port })
            },
        );
        // The path to the master's own port is proved in any case.
        ways.filter(|way| !self.is_to_master(way.id, way.path)).collect()
    }

    /// Whether it is the path to the master's own port.
    fn is_to_master(&self, partner: NodeId, path: SocketAddr) -> bool {
        (partner, path) == (self.master, self.master_at)
    }

    /// A broken path as messages name it.
    pub(super) fn broken(&self, from: NodeId, to: &BrokenTo) -> Option<BrokenPath> {
        let peer = |reached: &Reached, address: IpAddr, port: u16| {
            let &rank = self.ranks.get(&reached.id)?;
            let member = self.roster.members().get(usize::try_from(rank).ok()?)?;
            Some(Peer { host: member.host.clone(), address: (address, port).into() })
        };
        let (from, target) = (self.reached(from)?, self.reached(to.partner)?);
        let link = target.links().find(|link| link.address == to.path.ip())?;
        let is_known = [Some(target.own_port), target.port].contains(&Some(to.path.port()));
        // A node reaches itself.
        if !is_known || from.id == target.id {
            return None;
        }
        Some(BrokenPath {
            from: peer(from, from.link.address, from.own_port)?,
            to: peer(target, to.path.ip(), to.path.port())?,
            fault: to.fault,
            answers: to.own_port_answers.then_some(target.own_port),
            to_master: self.is_to_master(to.partner, to.path),
            mtus: (from.link.mtu, link.mtu),
        })
    }

    /// What one member learns of it.
    pub(super) fn prepare(&self, id: NodeId) -> Option<Prepare> {
        let &rank = self.ranks.get(&id)?;
        Some(Prepare {
            round: self.number,
            world: self.world(),
            rank,
            digest: self.digest,
            slots_before: self.slots.get(usize::try_from(rank).ok()?).copied().unwrap_or_default(),
            slots_total: self.slots.last().copied().unwrap_or_default(),
            master: self.master,
            master_at: self.master_at,
            address: self.address(id)?,
            partners: self.partners(id),
        })
    }
}
