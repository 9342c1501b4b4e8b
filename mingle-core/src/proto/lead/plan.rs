//! The plan of a round, made before any proof: ranks, master, roster, and the verdict on RDMA.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mingle_rdma::{Verdict, most_frequent};

use super::book::Book;
use super::networks::RoundNetwork;
use super::ranks::{self, Applicant};
use super::unfit::{self, Excluded, Planned};
use crate::model::{Digest, Link, Member, NodeId, Rank, Roster, Sameness, World};
use crate::proto::report::Formed;
use crate::proto::shared::Shared;
use crate::wire::world::Terms;
use crate::wire::{Partner, Prepare, Reach};

#[derive(Debug, Clone)]
pub(crate) struct RoundPlan {
    pub(super) number: u64,
    pub(crate) terms: Terms,
    pub(super) digest: Digest,
    /// For each rank the slots on lower ones, and then those of all.
    slots: Vec<u64>,
    pub(super) master: NodeId,
    /// MASTER_ADDR and MASTER_PORT.
    pub(super) master_at: SocketAddr,
}

/// The nodes of a full world, without ranks: this node and its members.
pub(super) fn applicants(book: &Book, shared: &Shared) -> Vec<Applicant> {
    let ends = |id| shared.links.get(id).and_then(|peer| peer.link.ends);
    let own_traits = &shared.config.traits;
    let traits = Arc::clone(own_traits);
    let node = shared.node_info();
    let own = Applicant { id: shared.me(), node, session: None, met: None, traits, is_former: false };
    let members: Vec<Applicant> = book
        .members()
        .map(|(id, entry)| {
            let (session, met) = (ends(id).map(|ends| ends.remote), ends(id).map(|ends| ends.local));
            let traits = Arc::clone(entry.differing.as_ref().unwrap_or(own_traits));
            Applicant { id, node: entry.node.clone(), session, met, traits, is_former: false }
        })
        .collect();
    std::iter::once(own).chain(members).collect()
}

/// Where most sessions of these nodes have reached the leader; of equally frequent addresses, the least.
fn most_met(applicants: &[Applicant]) -> Option<IpAddr> {
    let mut met: Vec<IpAddr> = applicants.iter().filter_map(|applicant| applicant.met).collect();
    met.sort_unstable();
    most_frequent(met.into_iter())
}

/// The plan of these nodes, after so many of their rounds have failed, in which these provers and masters did
/// not reach each other: each round tries another way, of which there are as many as is returned. So many
/// nodes can be left out.
///
/// # Errors
/// Why no world can form with these nodes, and without which of them it could: none, if these are too many.
pub(crate) fn plan_round(
    number: u64,
    mut applicants: Vec<Applicant>,
    own: (NodeId, bool),
    failed: u64,
    spare: usize,
    unproved: &BTreeSet<(NodeId, NodeId)>,
) -> Planned<(RoundPlan, u64)> {
    let can_spare = |mut unfit: Box<Excluded>| {
        if unfit.nodes.len() > spare {
            unfit.nodes.clear();
        }
        Some(unfit)
    };
    let family = ranks::settle_family(&mut applicants, own, failed);
    let (families, turn) = family.map_err(can_spare)?;
    // This node has met all others, if it is one of them.
    let me = applicants.iter().position(|applicant| applicant.id == own.0).unwrap_or_default();
    if applicants[me].id == own.0 {
        applicants[me].session = most_met(&applicants).or(applicants[me].session);
    }
    // The leader comes first here. Ranks do not depend on this order.
    applicants.swap(0, me);
    let network = RoundNetwork::settle(&applicants, turn);
    let applicants = ranks::order(applicants, unproved).ok_or(None)?;
    let verdict = unfit::compare_rdma(&applicants, spare).map_err(can_spare)?;
    let sameness = unfit::compare_traits(&applicants).map_err(can_spare)?;
    let plan = RoundPlan::new(number, &applicants, (verdict, sameness), &network);
    let ways = u64::try_from(families * network.ways).unwrap_or(u64::MAX);
    Ok((plan.ok_or(None)?, ways))
}

impl RoundPlan {
    /// The plan for nodes in the order of their ranks, the master first.
    fn new(
        number: u64,
        assigned: &[Applicant],
        (verdict, sameness): (Verdict, Sameness),
        network: &RoundNetwork,
    ) -> Option<Self> {
        let link = |a: &Applicant| {
            network.links.get(&a.id).copied().unwrap_or_else(|| Link::unknown(a.address().ip()))
        };
        let reached = |a: &Applicant| {
            let link = link(a);
            let given = a.node.reach.given().iter().filter(|given| given.address != link.address);
            Reach::new(a.node.reach.port().unwrap_or_default(), [link]).with(given.copied())
        };
        let members = (0..).zip(assigned).map(|(rank, a)| Member {
            rank: Rank(rank),
            id: a.id,
            host: a.node.host.clone(),
            address: (link(a).address, a.address().port()).into(),
            slots: a.node.attributes.slots,
            metadata: a.node.attributes.metadata.clone(),
            session_port: a.node.attributes.session_port,
        });
        let roster = Roster::new(members.collect())?;
        let reached = assigned.iter().map(reached).collect();
        Self::of(number, Terms { roster, reached, paths: network.paths, verdict, sameness })
    }

    /// The plan that a leader has written as these terms; none if they are not of one world.
    pub(crate) fn of(number: u64, terms: Terms) -> Option<Self> {
        let members = terms.roster.members();
        let (master, master_at) = members.first().map(|first| (first.id, first.address))?;
        let mut slots = vec![0];
        slots.extend(members.iter().scan(0, |sum, member| {
            *sum += u64::from(member.slots);
            Some(*sum)
        }));
        let is_whole = members.len() == terms.reached.len();
        let digest = terms.roster.digest();
        is_whole.then_some(Self { number, terms, digest, slots, master, master_at })
    }

    /// The world of this round, as this node sees it.
    pub(crate) fn formed(&self, shared: &Shared) -> Option<Formed> {
        let Terms { roster, verdict, sameness, .. } = &self.terms;
        let (own, world) = (roster.find(shared.me())?, World::new(self.world()).ok()?);
        Some(Formed {
            asked: shared.config.world,
            slots: roster.slots(own.rank)?,
            roster: shared.config.node.attributes.wants_roster.then(|| roster.clone()),
            verdict: verdict.clone(),
            sameness: sameness.clone(),
            ..Formed::new(own.rank, world, self.master_at, own.address.ip(), self.digest)
        })
    }

    /// How many nodes the world of this round has.
    pub(super) fn world(&self) -> u32 {
        u32::try_from(self.terms.reached.len()).unwrap_or(u32::MAX)
    }

    /// The addresses to which this node proves its path, beside the master's own port: those of all partners
    /// that have a port for that.
    pub(super) fn partners(&self, id: NodeId) -> Vec<Partner> {
        let Some((own, reached)) = self.terms.reached(id) else { return Vec::new() };
        if reached.port().is_none() {
            return Vec::new();
        }
        let ranks = self.terms.paths.partners(own.rank.get(), &self.slots).into_iter();
        let partners = ranks.filter_map(|rank| self.terms.at(rank));
        let partners = partners.filter_map(|(partner, reached)| Some((partner, reached, reached.port()?)));
        let ways = partners.flat_map(|(partner, reached, port)| {
            let &Member { id, rank: Rank(rank), address, .. } = partner;
            let path = move |link: &Link| (link.address, port).into();
            reached.all().map(move |link| Partner { id, rank, path: path(link), own_port: address.port() })
        });
        // The path to the master's own port is proved in any case.
        ways.filter(|way| (way.id, way.path) != (self.master, self.master_at)).collect()
    }

    /// What one member learns of it.
    pub(crate) fn prepare(&self, id: NodeId) -> Option<Prepare> {
        let &Member { rank: Rank(rank), address, .. } = self.terms.roster.find(id)?;
        Some(Prepare {
            round: self.number,
            world: self.world(),
            rank,
            digest: self.digest,
            slots_before: self.slots.get(usize::try_from(rank).ok()?).copied().unwrap_or_default(),
            slots_total: self.slots.last().copied().unwrap_or_default(),
            master: self.master,
            master_at: self.master_at,
            address: address.ip(),
            partners: self.partners(id),
        })
    }
}
