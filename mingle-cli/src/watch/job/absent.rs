//! The hosts that should be in a job, and are not.

use std::time::Duration;

use mingle_core::Expected;

use super::Job;
use crate::watch::is_silent;

impl Job {
    /// The same, which names those of these hosts that are absent.
    pub(in crate::watch) fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }

    /// The expected hosts that are absent: as the leader announces them, or else those that are not heard.
    pub(super) fn absent(&self, now: Duration) -> Option<Vec<String>> {
        self.expected.hash()?;
        let announced = self.leader(now).and_then(|leader| leader.candidacy.absent.as_ref());
        if let Some((_, runs)) = announced.filter(|(hash, _)| Some(*hash) == self.expected.hash()) {
            return Some(self.expected.names(runs.iter().copied()));
        }
        let heard = self.nodes.values().filter(|node| !is_silent(now, node.last));
        let heard = heard.map(|node| (&node.host, Some(node.address.ip())));
        let places = self.expected.absent(heard.chain(self.named.keys().map(|host| (host, None))));
        Some(self.expected.at(places))
    }
}
