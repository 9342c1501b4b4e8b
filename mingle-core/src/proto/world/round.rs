//! A member's part in a round of its world: it proves the paths of the plan.

use std::time::Duration;

use super::{Time, World, WorldChange};
use crate::model::NodeId;
use crate::proto::follow::check;
use crate::proto::lead::RoundPlan;
use crate::proto::prove::PathProofs;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::proto::{DialId, Event, Formed, PathNews, PathTarget};
use crate::wire::Partner;
use crate::wire::world::{BROKEN, Plan, RoundAnswer, RoundId};

/// A process whose timers fire so late was stopped. On a busy host they may be late each time.
const STOPPED: Duration = Duration::from_secs(1);

/// The proof of a plan's paths.
#[derive(Debug, Clone)]
pub(super) struct WorldRound {
    pub(super) id: RoundId,
    began: Time,
    plan: RoundPlan,
    paths: PathProofs,
    /// The proofs have had their time.
    is_over: bool,
    /// The world that forms by it.
    formed: Formed,
}

impl WorldRound {
    /// Starts to prove the paths of the plan. None if no leader that keeps to the protocol plans that for
    /// this node.
    fn start(plan: Plan, shared: &mut Shared) -> Option<Self> {
        let id = plan.round;
        let plan = RoundPlan::of(id.number.into(), plan.terms)?;
        let prepare = plan.prepare(shared.me())?;
        let checked = check::prepare(&prepare, None, shared);
        checked.inspect_err(|wrong| tracing::debug!(?id, wrong, "plan ignored")).ok()?;
        let formed = plan.formed(shared)?;
        let to_master = Partner::master(prepare.master, prepare.master_at);
        let paths = PathProofs::start(prepare.partners.into_iter().chain([to_master]), shared);
        Some(Self { id, began: shared.now, plan, paths, is_over: false, formed })
    }

    fn advance(&mut self, shared: &mut Shared) {
        while let Some(timer) = shared.timers.expire(shared.now) {
            self.is_over |= timer == Timer::ProofFailed && !self.paths.are_proved();
            if self.is_over {
                self.stop(shared);
            } else {
                self.paths.advance(shared);
            }
        }
    }

    /// Ends the proofs: once a round is void, or its world has formed, the ports may be a job's.
    fn stop(&mut self, shared: &mut Shared) {
        self.paths.stop(shared);
        shared.timers.stop(Timer::Dial);
    }

    /// What has come of the proofs, once that is known: the nodes to which a path is broken, and the first
    /// of these paths.
    fn answer(&self, me: NodeId) -> Option<RoundAnswer> {
        (self.is_over || self.paths.are_proved()).then(|| {
            let broken = self.paths.unproved();
            let path = broken.first().and_then(|path| self.plan.broken(me, path));
            let broken = broken.iter().map(|path| path.partner).take(BROKEN).collect();
            RoundAnswer { round: self.id, broken, path }
        })
    }
}

impl World {
    /// Begins to prove the paths of a plan, in the place of an earlier one.
    pub(super) fn begin_round(&mut self, plan: Plan) {
        self.end_round();
        let id = plan.round;
        self.round = WorldRound::start(plan, &mut self.shared);
        if self.round.is_some() {
            self.shared.event(Event::Preparing { round: id.number.into() });
            self.go_on_with_round();
        } else {
            // It cannot say which paths are broken.
            self.answer = Some(RoundAnswer { round: id, broken: vec![self.own.id], path: None });
        }
    }

    /// Something has happened on a connection that proves a path.
    pub(crate) fn handle_path(&mut self, now: Time, dial: DialId, news: &PathNews) {
        self.at(now);
        if let Some(round) = &mut self.round {
            round.paths.hear(dial, news, &mut self.shared);
            self.go_on_with_round();
        }
    }

    /// Goes on with the proofs that are due.
    pub(super) fn go_on_with_round(&mut self) {
        let Some(round) = &mut self.round else { return };
        round.advance(&mut self.shared);
        if self.answer.is_none() && self.proving.as_ref().is_some_and(|plan| plan.round == round.id) {
            self.answer = round.answer(self.own.id);
        }
    }

    /// This process was stopped for so long: what the others have answered meanwhile may have yet to be
    /// heard.
    pub(super) fn forgive_proofs(&mut self, stopped: Duration) {
        if let Some(ends) = self.shared.timers.get(Timer::ProofFailed).filter(|_| stopped >= STOPPED) {
            self.shared.timers.set(Timer::ProofFailed, ends + stopped);
        }
    }

    /// Ends the proofs of a round that is void.
    pub(super) fn end_void_round(&mut self) {
        if self.round.as_ref().is_some_and(|round| !self.may_form(round.id)) {
            self.end_round();
        }
    }

    fn end_round(&mut self) -> Option<WorldRound> {
        let mut round = self.round.take()?;
        round.stop(&mut self.shared);
        Some(round)
    }

    /// The world of this round has formed.
    pub(super) fn report_formed(&mut self, id: RoundId) {
        if let Some(round) = self.end_round().filter(|round| round.id == id) {
            let change = WorldChange::Formed(Box::new(round.formed));
            self.actions.push_back(super::Action::Report(change));
        }
    }

    /// When the round that is under way has begun.
    pub(crate) fn round_began(&self) -> Option<Time> {
        self.round.as_ref().map(|round| round.began)
    }

    /// What answers the connections of nodes that prove their paths to this one.
    pub(crate) fn path_target(&self) -> PathTarget {
        self.shared.codec.path_target(self.own.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Lineage, Link, Paths, Roster};
    use crate::proto::tests::{endpoint, id, seat, tag};
    use crate::proto::world::Action;
    use crate::proto::{Config, Output};
    use crate::wire::Reach;
    use crate::wire::world::Terms;

    #[test]
    fn a_node_that_was_stopped_hears_the_answers_before_it_says_that_paths_are_broken() {
        let link = |number: u8| Link { address: endpoint(number).ip(), prefix: 24, mtu: 1500 };
        let terms = Terms {
            roster: Roster::new((1..=3).map(seat).collect()).unwrap(),
            reached: (1..=3).map(|number| Reach::new(40_000, [link(number)])).collect(),
            paths: Paths::All,
            ..Terms::default()
        };
        let plan = |number| {
            let (round, generation) = (RoundId { leader: id(1), number }, number - 1);
            Plan { round, epoch: Lineage { generation, origin: 7 }, terms: terms.clone() }
        };
        let shared = Shared::new(Config::plain(tag(), 3, 1, endpoint(1)), 5, Time::ZERO);
        let mut world = World::member(shared, plan(1));
        world.prove(plan(2));
        let mut first = None;
        while let Some(action) = world.poll_action() {
            if let Action::Output(Output::DialPath(path)) = action {
                first.get_or_insert(path.dial);
            }
        }
        let ms = Time::from_millis;
        world.advance(ms(5000));
        assert_eq!(world.answer, None);
        world.handle_path(ms(5000), first.unwrap(), &PathNews::Arrived);
        // Nobody is stopped from here on, and one answer is still missing.
        while world.answer.is_none() {
            while world.poll_action().is_some() {}
            let due = world.poll_timeout().unwrap();
            assert!(due < ms(10_000), "{due:?}");
            world.advance(due);
        }
        assert_eq!(world.answer.unwrap().broken, [id(3)]);
    }
}
