//! The rendezvous of a node that stays with its worlds, one after the other.

use std::io;
use std::time::Instant;

use mingle_core::{Assignment, End, Error, Event, Failure, Metadata, RunningWorld};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::{Restarts, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::growth::Growth;
use crate::join;
use crate::progress::ProgressView;
use crate::signals::Signals;
use crate::stderr;

pub(crate) struct Meeting<'a> {
    config: &'a Settings,
    found: &'a Found,
    restarts: Restarts,
    /// The growths since the first world.
    growth: Option<Growth>,
    /// The reports of the current rendezvous.
    events: UnboundedReceiver<Event>,
    /// How often a rendezvous with an unknown outcome may still be followed by another.
    doubts: u32,
    metadata: Metadata,
}

impl<'a> Meeting<'a> {
    /// At most `doubts` times a rendezvous with an unknown outcome is followed by another.
    pub(crate) fn new((config, found): (&'a Settings, &'a Found), restarts: Restarts, doubts: u32) -> Self {
        let (_, events) = unbounded_channel();
        Self { config, found, restarts, growth: None, events, doubts, metadata: Metadata::default() }
    }

    /// The first world.
    ///
    /// If the leader dies at its commit, the other nodes may have started without this one. Nothing has
    /// started here, so this node joins again: as a newcomer, which takes its own seat if they have.
    pub(crate) async fn join(
        &mut self,
        signals: &mut Signals,
        journal: &mut Journal,
    ) -> Result<(Assignment, RunningWorld), Stop> {
        loop {
            let (sender, events) = unbounded_channel();
            self.events = events;
            let Restarts { stop_timeout, gone_after, .. } = self.restarts;
            let settings = self.config.rendezvous().stop_timeout(stop_timeout).gone_after(gone_after);
            let settings = settings.metadata(self.metadata.clone());
            let rendezvous = self.found.describe(settings);
            let joining = Box::pin(rendezvous.events(move |event| drop(sender.send(event))).join());
            let mut progress = ProgressView::new(self.config, journal);
            let joined = join::watch(joining, &mut self.events, &mut progress, signals).await;
            if !self.forgives(&joined) {
                return self.formed(joined?);
            }
        }
    }

    /// The world after this one, which has ended so. All nodes of the new world learn this metadata.
    pub(crate) async fn again(
        &mut self,
        (mut over, end): (RunningWorld, End),
        metadata: Metadata,
        signals: &mut Signals,
        journal: &mut Journal,
    ) -> Result<(Assignment, RunningWorld), Stop> {
        if let Some(growth) = self.growth.as_mut().filter(|_| end == End::Grows) {
            growth.grows(now());
        }
        journal.restart(over.generation());
        // Events of the last world do not belong to the next one.
        while self.events.try_recv().is_ok() {}
        self.metadata = metadata;
        over.set_metadata(self.metadata.clone());
        let mut progress = ProgressView::new(self.config, journal);
        let joined = join::watch(Box::pin(over.again()), &mut self.events, &mut progress, signals).await;
        drop(progress);
        if self.forgives(&joined) { self.join(signals, journal).await } else { self.formed(joined?) }
    }

    /// The world that has formed, which grows when its time has come.
    fn formed(&mut self, mut assignment: Assignment) -> Result<(Assignment, RunningWorld), Stop> {
        let missing = || Stop::System("stay with the world", io::Error::other("it has no roster"));
        let mut running = assignment.running.take().ok_or_else(missing)?;
        let growth = self.growth.get_or_insert_with(|| Growth::new(running.generation(), now()));
        if self.restarts.grows {
            running.set_growth(growth.wait(now()));
        }
        Ok((assignment, running))
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
        if !self.config.quiet {
            stderr::say(format_args!("{failure}; nothing has started here, so this node joins again"));
        }
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause between two growths")]
fn now() -> Instant {
    Instant::now()
}
