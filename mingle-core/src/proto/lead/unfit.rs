//! What keeps a world from forming, and the members without which it can form: they are left out.

use std::collections::BTreeMap;
use std::time::Duration;

use mingle_rdma::{RankSummary, Verdict};

use super::Lead;
use super::book::Book;
use super::ranks::Applicant;
use super::rounds::Phase;
use crate::model::{NodeId, Sameness, Traits};
use crate::proto::report::{Event, Warning};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::Refusal;

/// The most nodes that were left out whose joins are remembered.
const REMEMBERED: usize = 64;
/// A node that was left out and joins again later than this did not hear the refusal. It was cut off then,
/// and the network may have healed.
const HEALED: Duration = Duration::from_secs(10);

/// Members that a leader leaves out, and the reason.
#[derive(Debug)]
pub(crate) struct Excluded {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) refusal: Refusal,
}

/// A part of the next round's plan; or none yet, or the reason why these nodes can form no world.
pub(crate) type Planned<T> = Result<T, Option<Box<Excluded>>>;

/// The nodes that were left out, when, and why.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut(BTreeMap<NodeId, (Time, Refusal)>);

impl LeftOut {
    pub(super) fn insert(&mut self, nodes: &[NodeId], refusal: &Refusal, now: Time) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.extend(nodes.iter().map(|&id| (id, (now, refusal.clone()))));
    }

    /// The reason why this node stays out.
    pub(super) fn refusal(&self, node: NodeId, now: Time) -> Option<&Refusal> {
        let (since, refusal) = self.0.get(&node)?;
        (now < *since + HEALED).then_some(refusal)
    }
}

impl Excluded {
    /// If there are no `nodes`, the fault is that of all.
    pub(super) fn new(nodes: Vec<NodeId>, refusal: Refusal) -> Box<Self> {
        Box::new(Self { nodes, refusal })
    }
}

impl Lead {
    /// These members learn why the world forms without them. If this node is one of them, the others look for
    /// another leader.
    pub(super) fn leave_out(&mut self, unfit: Excluded, shared: &mut Shared) {
        let Excluded { nodes, refusal } = unfit;
        let Some(failure) = shared.failure(refusal.clone(), shared.peer()) else { return };
        if nodes.contains(&shared.me()) {
            self.dismiss(shared);
            self.rounds.phase = Phase::Over(Event::Failed(failure));
            return;
        }
        for &id in &nodes {
            let Some(entry) = self.book.get(id) else { continue };
            let (node, failure) = (entry.peer(), Box::new(failure.clone()));
            shared.event(Event::Warning(Warning::LeftOut { node, failure }));
            shared.refuse(id, refusal.clone());
        }
        self.left_out.insert(&nodes, &refusal, shared.now);
        self.expelled.extend(nodes.into_iter().map(|id| (id, false)));
        if shared.config.world.is_range() {
            self.call.end(shared);
        }
        // The round begins once their seats are free.
        shared.timers.set(Timer::Round, shared.now);
    }
}

/// How many nodes can be left out: as many as are here beyond the fewest.
pub(super) fn spare(book: &Book, shared: &Shared) -> usize {
    let here = usize::try_from(book.seated).unwrap_or(usize::MAX).saturating_add(book.standbys().len());
    here.saturating_sub(usize::try_from(shared.config.world.min().get()).unwrap_or(usize::MAX))
}

/// Some nodes have IPv6 alone and some IPv4 alone, one at least: the fewer of them are left out. Of two sets
/// of one size, the leader stays.
pub(super) fn apart(six: &[&Applicant], four: &[&Applicant], me: NodeId) -> Box<Excluded> {
    let weight = |nodes: &[&Applicant]| (nodes.len(), nodes.iter().any(|applicant| applicant.id == me));
    let fewer = if weight(four) < weight(six) { four } else { six };
    let refusal = Refusal::NoCommonFamily(six[0].node.peer(), four[0].node.peer());
    Excluded::new(fewer.iter().map(|applicant| applicant.id).collect(), refusal)
}

/// Compares the RDMA devices of all nodes. A world cannot form where some nodes lack what others require; and
/// if so many nodes are to spare, no newcomer takes RDMA from nodes that were in the world before.
pub(super) fn compare_rdma(ranks: &[Applicant], spare: usize) -> Result<Verdict, Box<Excluded>> {
    let all: Vec<RankSummary> = ranks.iter().map(Applicant::comparable).collect();
    let verdict = Verdict::of(&all);
    let is_required = !verdict.is_enough(&all);
    let lacking = if is_required {
        lacking(ranks, spare)
    } else {
        let worsening = worsening(ranks, &verdict);
        if worsening.is_empty() || worsening.len() > spare {
            return Ok(verdict);
        }
        worsening
    };
    Err(Excluded::new(lacking, Refusal::NoRdma(verdict, is_required)))
}

/// The traits that differ between nodes, which are given in the order of their ranks. A world does not form
/// if there are any, and a node requires that there are none. Newcomers that differ from nodes that were in
/// the world before are the reason.
pub(super) fn compare_traits(ranks: &[Applicant]) -> Result<Sameness, Box<Excluded>> {
    let traits: Vec<&Traits> = ranks.iter().map(|applicant| &*applicant.traits).collect();
    let sameness = Sameness::of(&traits);
    if sameness.is_same() || !ranks.iter().any(|applicant| applicant.node.attributes.requires_same) {
        return Ok(sameness);
    }
    let former = ranks.iter().find(|applicant| applicant.is_former).map(|former| &former.traits);
    let differs = |new: &&Applicant| !new.is_former && former.is_some_and(|former| new.traits != *former);
    let newcomers = ranks.iter().filter(differs).map(|applicant| applicant.id).collect();
    Err(Excluded::new(newcomers, Refusal::Differs(sameness)))
}

/// At most so many nodes without which the others use RDMA together; or if these are too many, those that
/// require it.
fn lacking(ranks: &[Applicant], spare: usize) -> Vec<NodeId> {
    let (mut out, mut rest): (Vec<NodeId>, Vec<&Applicant>) = (Vec::new(), ranks.iter().collect());
    // A verdict names some of those that differ, and that without them the next.
    while out.len() <= spare {
        let summaries: Vec<RankSummary> = rest.iter().map(|applicant| applicant.comparable()).collect();
        let verdict = Verdict::of(&summaries);
        if verdict.is_enough(&summaries) {
            return out;
        }
        let ranks = verdict.differences.iter().filter_map(|other| usize::try_from(other.rank).ok());
        let named: Vec<NodeId> = ranks.map(|rank| rest[rank].id).collect();
        if named.is_empty() {
            break;
        }
        rest.retain(|applicant| !named.contains(&applicant.id));
        out.extend(named);
    }
    let requires = |applicant: &&Applicant| applicant.comparable().summary.required;
    ranks.iter().filter(requires).map(|applicant| applicant.id).collect()
}

/// The newcomers that would take RDMA from nodes that were in the world before.
fn worsening(ranks: &[Applicant], verdict: &Verdict) -> Vec<NodeId> {
    let (former, new): (Vec<_>, Vec<_>) = ranks.iter().partition(|applicant| applicant.is_former);
    let former: Vec<RankSummary> = former.into_iter().map(Applicant::comparable).collect();
    let best = Verdict::of(&former).transport;
    if !best.is_rdma() || verdict.transport.is_rdma() {
        return Vec::new();
    }
    let worsens = |applicant: &&Applicant| {
        let with = [&former[..], &[applicant.comparable()]].concat();
        !Verdict::of(&with).transport.is_rdma()
    };
    new.into_iter().filter(worsens).map(|applicant| applicant.id).collect()
}
