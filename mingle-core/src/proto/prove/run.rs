//! Proofs outside of a rendezvous: for a world that forms again.

use std::time::Duration;

use super::{PathProofs, PathTarget};
use crate::proto::config::Config;
use crate::proto::output::{DialId, Output, PathNews};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{BrokenTo, Partner};

/// A process whose timers fire so late was stopped. On a busy host they may be late each time.
const STOPPED: Duration = Duration::from_secs(1);

/// The proofs of one node, with their own timers and outputs.
#[derive(Debug)]
pub(crate) struct ProofRun {
    pub(crate) shared: Shared,
    paths: PathProofs,
    /// The proofs have had their time.
    is_over: bool,
}

impl ProofRun {
    /// A node that has no path to prove yet.
    pub(crate) fn new(config: Config, now: Time) -> Self {
        // Nothing here is random.
        let mut shared = Shared::new(config, 0, now);
        let paths = PathProofs::start(&[], &mut shared);
        Self { shared, paths, is_over: false }
    }

    /// Starts to prove the paths to these partners.
    pub(crate) fn prove(&mut self, now: Time, partners: &[Partner]) {
        self.shared.now = now;
        self.paths = PathProofs::start(partners, &mut self.shared);
        self.is_over = false;
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

    /// The paths that are broken, none if all are proved; nothing while the proofs go on.
    pub(crate) fn broken(&self) -> Option<Vec<BrokenTo>> {
        (self.is_over || self.paths.are_proved()).then(|| self.paths.unproved())
    }
}
