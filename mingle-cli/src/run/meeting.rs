//! The rendezvous of one run, one after the other.

use mingle_core::{Assignment, Error, Event, Failure, RunningWorld};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::parent::Run;
use crate::config::Restarts;
use crate::events::Journal;
use crate::exit::Stop;
use crate::join;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::stderr;

pub(super) struct Meeting<'a> {
    run: &'a Run<'a>,
    restarts: Restarts,
    /// What the current rendezvous reports.
    events: UnboundedReceiver<Event>,
    /// How often a rendezvous with an unknown outcome may still be followed by another.
    doubts: u32,
}

impl<'a> Meeting<'a> {
    pub(super) fn new(run: &'a Run<'a>, restarts: Restarts) -> Self {
        let (_, events) = unbounded_channel();
        Self { run, restarts, events, doubts: restarts.most }
    }

    /// The first world.
    ///
    /// If the leader dies at its commit, the other nodes may have started without this one. Nothing has
    /// started here, so this node joins again: as a newcomer, which takes its own seat if they have.
    pub(super) async fn join(
        &mut self,
        signals: &mut Signals,
        journal: &mut Journal,
    ) -> Result<Assignment, Stop> {
        loop {
            let (sender, events) = unbounded_channel();
            self.events = events;
            let settings = self.run.config().rendezvous().stop_timeout(self.restarts.stop_timeout);
            let joining = Box::pin(
                self.run.found().describe(settings).events(move |event| drop(sender.send(event))).join(),
            );
            let mut progress = Progress::new(self.run.config(), journal);
            let joined = join::watch(joining, &mut self.events, &mut progress, signals).await;
            if !self.forgives(&joined) {
                return joined;
            }
        }
    }

    /// The world after this one, which is over.
    pub(super) async fn again(
        &mut self,
        over: RunningWorld,
        signals: &mut Signals,
        journal: &mut Journal,
    ) -> Result<Assignment, Stop> {
        // Events of the last world do not belong to the next one.
        while self.events.try_recv().is_ok() {}
        let mut progress = Progress::new(self.run.config(), journal);
        let joined = join::watch(Box::pin(over.again()), &mut self.events, &mut progress, signals).await;
        drop(progress);
        if self.forgives(&joined) { self.join(signals, journal).await } else { joined }
    }

    /// Whether the outcome is unknown, and another try is left.
    fn forgives(&mut self, joined: &Result<Assignment, Stop>) -> bool {
        let Err(Stop::Rendezvous(Error::Failed(failure @ Failure::OutcomeUnknown { .. }))) = joined else {
            return false;
        };
        if self.doubts == 0 {
            return false;
        }
        self.doubts -= 1;
        if !self.run.config().quiet {
            stderr::say(format_args!("{failure}; nothing has started here, so this node joins again"));
        }
        true
    }
}
