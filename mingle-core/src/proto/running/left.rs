//! The neighbours that have said farewell, and are watched no more.
//!
//! The command of such a neighbour has ended well, or the world is over for it. Then somebody notifies this
//! node, unless all have taken it for gone: it was stopped for long. So it asks the neighbour a few times
//! for a leader. One that has gone on answers with a later lineage, which ends this world.

use std::time::Duration;

use super::context::{Context, Timer};
use crate::model::NodeId;
use crate::proto::timer::Time;

/// When a neighbour is asked, after its farewell.
const ASK: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8), Duration::from_secs(16)];

/// Each neighbour that has said farewell, when it did, and how often it was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Left(Vec<(NodeId, Time, usize)>);

impl Left {
    /// A neighbour has said farewell.
    pub(super) fn insert(&mut self, id: NodeId, context: &mut Context) {
        if self.0.iter().all(|(known, ..)| *known != id) {
            self.0.push((id, context.now(), 0));
            self.plan(context);
        }
    }

    /// Asks those that are due.
    pub(super) fn ask(&mut self, context: &mut Context) {
        let now = context.now();
        for (id, since, asked) in &mut self.0 {
            if ASK.get(*asked).is_some_and(|&after| *since + after <= now) {
                *asked += 1;
                context.ask(*id);
            }
        }
        self.plan(context);
    }

    fn plan(&self, context: &mut Context) {
        let next = self.0.iter().filter_map(|(_, since, asked)| Some(*since + *ASK.get(*asked)?)).min();
        if let Some(next) = next {
            context.timers.set(Timer::Left, next);
        }
    }
}
