//! A member's part in a round of its world: it proves the paths of the plan.

use super::Time;
use crate::model::{BrokenPath, NodeId};
use crate::proto::follow::check;
use crate::proto::lead::RoundPlan;
use crate::proto::{Config, Formed, ProofRun};
use crate::wire::Partner;
use crate::wire::world::{Plan, RoundId};

/// The proof of a plan's paths.
pub(crate) struct WorldRound {
    pub(crate) id: RoundId,
    pub(crate) began: Time,
    me: NodeId,
    plan: RoundPlan,
    pub(crate) proofs: ProofRun,
    /// The world that forms by it.
    pub(crate) formed: Formed,
    has_answered: bool,
}

impl WorldRound {
    /// Starts to prove the paths of the plan. None if no leader that keeps to the protocol plans that for
    /// this node.
    pub(crate) fn start(plan: Plan, config: Config, now: Time) -> Option<Self> {
        let (id, me, rank) = (plan.round, config.id, plan.rank_of(config.id)?);
        let plan = RoundPlan::of(id.number.into(), plan.terms)?;
        let prepare = plan.prepare(me).filter(|prepare| prepare.rank == rank)?;
        let mut proofs = ProofRun::new(config, now);
        let checked = check::prepare(&prepare, None, &proofs.shared);
        let formed = checked.inspect_err(|wrong| tracing::debug!(?id, wrong, "plan ignored")).ok()?;
        let to_master = (rank != 0).then(|| Partner::master(prepare.master, prepare.master_at));
        let partners: Vec<Partner> = to_master.into_iter().chain(prepare.partners).collect();
        proofs.prove(now, &partners);
        let formed = Formed {
            roster: Some(plan.terms.roster.clone()),
            verdict: plan.terms.verdict.clone(),
            sameness: plan.terms.sameness.clone(),
            ..formed
        };
        Some(Self { id, began: now, me, plan, proofs, formed, has_answered: false })
    }

    /// What has come of the proofs, once that is known: the nodes to which a path is broken, and the first
    /// of these paths.
    pub(crate) fn answer(&mut self) -> Option<(Vec<NodeId>, Option<BrokenPath>)> {
        let broken = self.proofs.broken().filter(|_| !self.has_answered)?;
        self.has_answered = true;
        let first = broken.first().and_then(|path| self.plan.broken(self.me, path));
        Some((broken.iter().map(|path| path.partner).collect(), first))
    }
}
