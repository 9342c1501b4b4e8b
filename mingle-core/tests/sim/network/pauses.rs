//! Processes that are stopped for a while, and timers that fire late.

use std::time::Duration;

use mingle_core::proto::{Node, Time};
use rand::RngExt;

use super::queue::Happening;
use super::{Fact, Network};

/// How many datagrams wait unread while a process is stopped: what comes later is dropped. A default receive
/// buffer (net.core.rmem_max of 212,992 bytes, doubled by the kernel) holds about that many small ones.
const UNREAD: usize = 330;
/// A member that is silent for this long in a round is expelled.
const LONG: Duration = Duration::from_secs(5);
/// A ready member leaves a leader that is silent for this long.
const VERY_LONG: Duration = Duration::from_secs(10);

/// How late timers fire, each by a random time of its own: most up to a host's own lateness, which is up to
/// `most`, and some up to `rare`.
#[derive(Debug, Clone, Copy)]
pub struct Lateness {
    pub most: Duration,
    pub rare: Duration,
}

impl Network {
    /// Stops the process of a host at `at` for `length`.
    pub fn pause_at(&mut self, host: usize, at: Time, length: Duration) {
        self.at(at, Happening::Pause(host));
        self.at(at + length, Happening::Resume(host));
    }

    pub(super) fn pause(&mut self, host: usize) {
        if self.hosts[host].node.is_some() && self.hosts[host].paused.is_none() {
            self.note(host, || "paused".to_owned());
            self.hosts[host].paused = Some(Vec::new());
            self.hosts[host].paused_since = Some(self.now);
            self.hosts[host].unread = 0;
            if self.in_round(host) {
                self.saw(Fact::PausedInRound);
            }
        }
    }

    /// Keeps what happens to a stopped process until it goes on.
    pub(super) fn hold(&mut self, host: usize, happening: Happening) {
        let slot = &mut self.hosts[host];
        if matches!(happening, Happening::Datagram { .. }) {
            slot.unread += 1;
            if slot.unread > UNREAD {
                return;
            }
        }
        slot.paused.get_or_insert_default().push(happening);
    }

    pub(super) fn resume(&mut self, host: usize) {
        let Some(mut held) = self.hosts[host].paused.take() else { return };
        self.note(host, || "goes on".to_owned());
        self.healed = self.now;
        if let Some(since) = self.hosts[host].paused_since.take() {
            self.was_paused(host, since);
            let length = self.now.saturating_sub(since);
            if self.in_round(host) && length > LONG {
                self.saw(Fact::PausedLongInRound);
                if length > VERY_LONG && self.promises.bound_to(host).is_none() {
                    self.saw(Fact::LeaderPausedLong);
                }
            }
        }
        // Connections first and then datagrams, or the other way round, and then timers, as the driver does.
        let datagrams = self.rng.random_range(0..=1);
        held.sort_by_key(|happening| match happening {
            Happening::Datagram { .. } => 2 * datagrams,
            Happening::Wake(..) | Happening::DialExpires { .. } => 3,
            _ => 1,
        });
        for happening in held {
            self.happen(happening);
        }
        self.with(host, Node::handle_timeout);
    }

    /// Whether a host's node is in a round.
    pub fn in_round(&self, host: usize) -> bool {
        self.hosts[host].node.as_ref().is_some_and(|node| node.is_bound())
    }

    /// The timer of a host fires at `at`, or late.
    pub(super) fn wake_at(&mut self, host: usize, at: Time) {
        if self.hosts[host].wake.replace(at) == Some(at) {
            return;
        }
        let late = self.lateness.map_or(Duration::ZERO, |lateness| {
            if self.rng.random_bool(0.01) {
                return self.rng.random_range(Duration::ZERO..lateness.rare);
            }
            let drawn = self.hosts[host].lateness;
            let own = drawn.unwrap_or_else(|| self.rng.random_range(Duration::ZERO..lateness.most));
            self.hosts[host].lateness = Some(own);
            self.rng.random_range(Duration::ZERO..=own)
        });
        if late > Duration::from_millis(100) {
            self.saw(Fact::VeryLate);
        }
        self.at(at.max(self.now) + late, Happening::Wake(host, at));
    }
}
