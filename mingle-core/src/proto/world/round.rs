//! A member's part in a round of its world: it proves the paths of the plan.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Time, World, WorldChange};
use crate::proto::follow::check;
use crate::proto::lead::RoundPlan;
use crate::proto::prove::PathProofs;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::proto::{DialId, Event, Formed, PathNews, PathTarget};
use crate::wire::world::{Command, Plan};
use crate::wire::{Answer, Broken, Partner};

/// A process whose timers fire so late was stopped. On a busy host they may be late each time.
const STOPPED: Duration = Duration::from_secs(1);

/// A member's part in a round, until that is void, or until its world begins here or another is planned.
#[derive(Debug, Clone)]
pub(super) struct WorldRound {
    pub(super) plan: Arc<Plan>,
    began: Time,
    /// None if no leader that keeps to the protocol plans that for this node.
    proof: Option<Proof>,
    /// Whether the paths are proved, once that is known.
    pub(super) answer: Option<Answer>,
}

/// The proof of a plan's paths.
#[derive(Debug, Clone)]
struct Proof {
    paths: PathProofs,
    /// The world that forms by it.
    formed: Formed,
}

impl WorldRound {
    /// Whether all paths are proved: the world may form, or may have formed.
    pub(super) fn is_ready(&self) -> bool {
        self.answer == Some(Answer::Ready)
    }
}

impl Proof {
    fn start(plan: &Plan, shared: &mut Shared) -> Option<Self> {
        let id = plan.round;
        let plan = RoundPlan::of(id.number.into(), plan.terms.clone())?;
        let prepare = plan.prepare(shared.me())?;
        let checked = check::prepare(&prepare, None, shared);
        checked.inspect_err(|wrong| tracing::debug!(?id, wrong, "plan ignored")).ok()?;
        let formed = plan.formed(shared)?;
        let to_master = Partner::master(prepare.master, prepare.master_at);
        let paths = PathProofs::start(prepare.partners.into_iter().chain([to_master]), shared);
        shared.event(Event::Preparing { round: id.number.into() });
        Some(Self { paths, formed })
    }
}

impl World {
    /// Begins to prove the paths of a plan that has a seat for this node, in the place of an earlier one.
    pub(super) fn prove(&mut self, plan: Plan) {
        if plan.rank_of(self.own.id).is_none() {
            return;
        }
        self.end_round();
        let proof = Proof::start(&plan, &mut self.shared);
        // It cannot say which paths are broken.
        let answer = proof.is_none().then(|| Answer::Broken(Broken::default()));
        self.round = Some(WorldRound { plan: Arc::new(plan), began: self.shared.now, proof, answer });
        self.go_on_with_round();
    }

    /// Something has happened on a connection that proves a path.
    pub(crate) fn handle_path(&mut self, now: Time, dial: DialId, news: &PathNews) {
        self.at(now);
        if let Some(proof) = self.round.as_mut().and_then(|round| round.proof.as_mut()) {
            proof.paths.hear(dial, news, &mut self.shared);
            self.go_on_with_round();
        }
    }

    /// Goes on with the proofs that are due. They end when all paths are proved, or when they have had their
    /// time.
    pub(super) fn go_on_with_round(&mut self) {
        let Some(WorldRound { proof: Some(proof), answer, .. }) = &mut self.round else { return };
        let mut is_over = false;
        while let Some(timer) = self.shared.timers.expire(self.shared.now) {
            is_over |= timer == Timer::ProofFailed;
            if !is_over {
                proof.paths.advance(&mut self.shared);
            }
        }
        if answer.is_none() && (is_over || proof.paths.are_proved()) {
            proof.paths.stop(&mut self.shared);
            *answer = Some(proof.paths.broken().map_or(Answer::Ready, Answer::Broken));
        }
    }

    /// The round whose world this node has not counted as formed.
    pub(super) fn under_way(&self) -> Option<&WorldRound> {
        self.round.as_ref().filter(|round| round.plan.epoch > self.epoch)
    }

    /// This process was stopped for so long: what the others have answered meanwhile may have yet to be
    /// heard.
    pub(super) fn forgive_proofs(&mut self, stopped: Duration) {
        if let Some(ends) = self.shared.timers.get(Timer::ProofFailed).filter(|_| stopped >= STOPPED) {
            self.shared.timers.set(Timer::ProofFailed, ends + stopped);
        }
    }

    /// The round is void for this node, or is over. Returns what there was to prove.
    pub(super) fn end_round(&mut self) -> Option<WorldRound> {
        let mut round = self.round.take()?;
        if let Some(proof) = &mut round.proof {
            proof.paths.stop(&mut self.shared);
        }
        Some(round)
    }

    /// The world of the round has formed, and this node's command starts.
    pub(super) fn enter(&mut self) {
        let Some(WorldRound { plan, proof: Some(proof), .. }) = self.end_round() else { return };
        if self.epoch.origin == 0 {
            // The world has just grown by this node.
            self.grows();
        }
        (self.epoch, self.plan) = (plan.epoch, Some(plan));
        (self.command, self.over) = (Command::Runs, None);
        self.forget_former();
        self.suspected.clear();
        (self.is_cut_off, self.trouble) = (false, None);
        let change = WorldChange::Formed(Box::new(proof.formed));
        self.actions.push_back(Action::Report(change));
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
    use crate::model::{Epoch, Link, Paths, Roster};
    use crate::proto::tests::{endpoint, id, seat, tag};
    use crate::proto::{Config, Output};
    use crate::wire::Reach;
    use crate::wire::world::{RoundId, Terms};

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
            Plan { round, epoch: Epoch { generation, origin: 7 }, terms: terms.clone() }
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
        assert_eq!(world.status().answer, None);
        world.handle_path(ms(5000), first.unwrap(), &PathNews::Arrived);
        // Nobody is stopped from here on, and one answer is still missing.
        while world.status().answer.is_none() {
            while world.poll_action().is_some() {}
            let due = world.poll_timeout().unwrap();
            assert!(due < ms(10_000), "{due:?}");
            world.advance(due);
        }
        let Some((_, Answer::Broken(broken))) = world.status().answer else { panic!() };
        assert_eq!(broken.paths.iter().map(|path| path.partner).collect::<Vec<_>>(), [id(3)]);
    }
}
