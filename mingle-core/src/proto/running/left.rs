//! The neighbours that have said farewell.
//!
//! The world is over for such a neighbour. Then somebody notifies this node, unless all have taken it for
//! gone: it was stopped for long. So it asks the neighbour a few times for a leader. One that has gone on
//! answers with a later lineage, which ends this world. After that the neighbour is watched again: a stranger
//! may have said farewell in its name.

use std::time::Duration;

use super::context::{Context, RunningTimer};
use super::watch::Neighbour;
use super::{RunningNode, State};
use crate::model::NodeId;
use crate::proto::timer::Time;

/// When a neighbour is asked, after its farewell.
const ASK: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8), Duration::from_secs(16)];
/// When it is watched again.
const RESUME: Duration = Duration::from_secs(32);

/// The neighbours that have said farewell to a world that goes on here.
#[derive(Debug, Clone, Default)]
pub(super) struct Left(Vec<Farewell>);

#[derive(Debug, Clone)]
struct Farewell {
    neighbour: Neighbour,
    since: Time,
    asked: usize,
}

impl Farewell {
    fn next(&self) -> Time {
        self.since + ASK.get(self.asked).copied().unwrap_or(RESUME)
    }
}

impl Left {
    fn insert(&mut self, neighbour: Neighbour, context: &mut Context) {
        self.0.push(Farewell { neighbour, since: context.now(), asked: 0 });
        self.plan(context);
    }

    /// Asks the neighbours that are due, and returns those that were asked often enough.
    fn ask(&mut self, context: &mut Context) -> Vec<Neighbour> {
        let now = context.now();
        let is_done = |left: &mut Farewell| left.asked == ASK.len() && left.next() <= now;
        let done = self.0.extract_if(.., is_done).map(|left| left.neighbour).collect();
        for left in self.0.iter_mut().filter(|left| left.next() <= now) {
            left.asked += 1;
            context.ask(left.neighbour.id);
        }
        self.plan(context);
        done
    }

    fn plan(&self, context: &mut Context) {
        if let Some(next) = self.0.iter().map(Farewell::next).min() {
            context.timers.set(RunningTimer::Left, next);
        }
    }
}

impl RunningNode {
    /// A neighbour's world is over, if it is the neighbour that says so.
    pub(super) fn on_farewell(&mut self, sender: NodeId) {
        let neighbour = self.watch.forget(sender, &mut self.context);
        if let Some(neighbour) = neighbour.filter(|_| !self.is_over()) {
            self.left.insert(neighbour, &mut self.context);
        }
    }

    pub(super) fn ask_those_that_left(&mut self) {
        let watches = matches!(self.state, State::Running | State::AwaitingOthers);
        for neighbour in self.left.ask(&mut self.context) {
            if watches {
                self.watch.resume(neighbour, &mut self.context);
            }
        }
    }
}
