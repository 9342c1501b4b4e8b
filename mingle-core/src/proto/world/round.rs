//! A member's part in a round of its world: it proves the paths of the plan, beside the node of a rendezvous,
//! with timers and outputs of its own.

use std::time::Duration;

use super::Time;
use crate::model::{BrokenPath, NodeId};
use crate::proto::follow::check;
use crate::proto::lead::RoundPlan;
use crate::proto::prove::PathProofs;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::proto::{Config, DialId, Formed, Output, PathNews, PathTarget};
use crate::wire::Partner;
use crate::wire::world::{Plan, RoundId};

/// A process whose timers fire so late was stopped. On a busy host they may be late each time.
const STOPPED: Duration = Duration::from_secs(1);

/// The proof of a plan's paths.
pub(crate) struct WorldRound {
    pub(crate) id: RoundId,
    pub(crate) began: Time,
    plan: RoundPlan,
    shared: Shared,
    paths: PathProofs,
    /// The proofs have had their time.
    is_over: bool,
    /// The world that forms by it.
    pub(crate) formed: Formed,
    has_answered: bool,
}

impl WorldRound {
    /// Starts to prove the paths of the plan. None if no leader that keeps to the protocol plans that for
    /// this node.
    pub(crate) fn start(plan: Plan, config: Config, now: Time) -> Option<Self> {
        let (id, rank) = (plan.round, plan.rank_of(config.id)?);
        let plan = RoundPlan::of(id.number.into(), plan.terms)?;
        let prepare = plan.prepare(config.id).filter(|prepare| prepare.rank == rank)?;
        // Nothing here is random.
        let mut shared = Shared::new(config, 0, now);
        let checked = check::prepare(&prepare, None, &shared);
        let formed = checked.inspect_err(|wrong| tracing::debug!(?id, wrong, "plan ignored")).ok()?;
        let to_master = (rank != 0).then(|| Partner::master(prepare.master, prepare.master_at));
        let partners: Vec<Partner> = to_master.into_iter().chain(prepare.partners).collect();
        let paths = PathProofs::start(&partners, &mut shared);
        let formed = Formed {
            roster: Some(plan.terms.roster.clone()),
            verdict: plan.terms.verdict.clone(),
            sameness: plan.terms.sameness.clone(),
            ..formed
        };
        Some(Self { id, began: now, plan, shared, paths, is_over: false, formed, has_answered: false })
    }

    pub(crate) fn target(&self) -> PathTarget {
        PathTarget::new(&self.shared)
    }

    /// Something has happened on a connection.
    pub(crate) fn hear(&mut self, now: Time, dial: DialId, news: &PathNews) {
        self.shared.now = now;
        self.paths.hear(dial, news, &mut self.shared);
    }

    /// Time has passed.
    pub(crate) fn advance(&mut self, now: Time) {
        self.shared.now = now;
        let stopped = self.poll_timeout().map(|due| now.saturating_sub(due)).filter(|time| *time >= STOPPED);
        let ends = self.shared.timers.get(Timer::ProofFailed);
        if let Some((stopped, ends)) = stopped.zip(ends) {
            // What the others have answered meanwhile may have yet to be heard.
            self.shared.timers.set(Timer::ProofFailed, ends + stopped);
        }
        while let Some(timer) = self.shared.timers.expire(now) {
            self.is_over |= timer == Timer::ProofFailed && !self.paths.are_proved();
            if self.is_over {
                self.paths.stop(&mut self.shared);
            } else {
                self.paths.advance(&mut self.shared);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.shared.timers.next()
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }

    /// What has come of the proofs, once that is known: the nodes to which a path is broken, and the first
    /// of these paths.
    pub(crate) fn answer(&mut self) -> Option<(Vec<NodeId>, Option<BrokenPath>)> {
        if self.has_answered || !(self.is_over || self.paths.are_proved()) {
            return None;
        }
        self.has_answered = true;
        let broken = self.paths.unproved();
        let first = broken.first().and_then(|path| self.plan.broken(self.shared.me(), path));
        Some((broken.iter().map(|path| path.partner).collect(), first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, Lineage, Link, Member, Metadata, Paths, Rank, Roster};
    use crate::proto::tests::{endpoint, id, tag};
    use crate::wire::Reach;
    use crate::wire::world::Terms;

    #[test]
    fn a_node_that_was_stopped_hears_the_answers_before_it_says_that_paths_are_broken() {
        let member = |number: u8| Member {
            rank: Rank(u32::from(number) - 1),
            id: id(number),
            host: HostName::new("host"),
            address: endpoint(number),
            slots: 1,
            metadata: Metadata::default(),
            session_port: 1,
        };
        let link = |number: u8| Link { address: endpoint(number).ip(), prefix: 24, mtu: 1500 };
        let terms = Terms {
            roster: Roster::new((1..=3).map(member).collect()).unwrap(),
            reached: (1..=3).map(|number| Reach::new(40_000, [link(number)])).collect(),
            paths: Paths::All,
            ..Terms::default()
        };
        let plan = Plan { round: RoundId { leader: id(1), number: 1 }, epoch: Lineage::default(), terms };
        let config = Config::plain(tag(), 3, 1, endpoint(1));
        let mut round = WorldRound::start(plan, config, Time::ZERO).unwrap();
        let ms = Time::from_millis;
        let first = std::iter::from_fn(|| round.poll_output()).find_map(|output| match output {
            Output::DialPath(path) => Some(path.dial),
            _ => None,
        });
        round.advance(ms(5000));
        assert_eq!(round.answer(), None);
        round.hear(ms(5000), first.unwrap(), &PathNews::Arrived);
        // Nobody is stopped from here on, and one answer is still missing.
        let (broken, _) = loop {
            let due = round.poll_timeout().unwrap();
            assert!(due < ms(10_000), "{due:?}");
            round.advance(due);
            if let Some(answer) = round.answer() {
                break answer;
            }
        };
        assert_eq!(broken, [id(3)]);
    }
}
