//! Hosts that lose power: no FIN, no RST, and a kernel that knows no connection when it runs again.

use std::time::Duration;

use mingle_core::proto::Time;

use super::queue::Happening;
use super::{Ended, Fact, Network, Unformed};

/// Keepalive: the first probe of an idle connection, the next ones, and how many there are.
pub(super) const IDLE: Duration = Duration::from_secs(2);
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;
/// How long a kernel takes to find that the other end of a connection is gone: by its probes, or because what
/// it has written is not acknowledged.
pub(super) const KEEPALIVE: Duration = IDLE.saturating_add(PROBE.saturating_mul(PROBES));

impl Network {
    /// A host loses power at `at`: no FIN, no RST. From `at + length` on its kernel runs again, and answers
    /// segments of its former connections with RST.
    pub fn lose_power_at(&mut self, host: usize, at: Time, length: Duration) {
        self.at(at, Happening::PowerLoss(host));
        self.at(at + length, Happening::PowerOn(host));
    }

    pub(super) fn lose_power(&mut self, host: usize) {
        let was_bound = self.in_round(host);
        self.hosts[host].powered = false;
        if self.hosts[host].node.take().is_none() {
            return;
        }
        self.note(host, || "loses power".to_owned());
        self.healed = self.now;
        let connections = self.own_ends(host);
        self.forget_process(host);
        for (conn, end) in connections {
            if self.lose_end(conn, end) {
                self.saw(Fact::PowerLost);
                self.at(self.now + IDLE, Happening::Probe { conn, end: 1 - end, number: 0 });
            }
        }
        if was_bound {
            self.saw(Fact::PowerLostInRound);
        }
    }

    /// A process is gone.
    pub(super) fn forget_process(&mut self, host: usize) {
        self.ends(host, Ended::Killed);
        self.promises.release(host);
        self.set_outcome(host, Some(Err(Unformed::Killed)));
        let slot = &mut self.hosts[host];
        slot.paused = None;
        slot.accepting = false;
        slot.life += 1;
        if let Some(since) = slot.paused_since.take() {
            self.was_paused(host, since);
        }
    }

    pub(super) fn probe(&mut self, conn: u64, end: usize, number: u32) {
        let Some(dead) = self.dead_host(conn, end) else { return };
        let answers = self.hosts[dead].powered && !self.hosts[dead].silent;
        if answers || number >= PROBES {
            self.give_up(conn, end);
        } else {
            self.at(self.now + PROBE, Happening::Probe { conn, end, number: number + 1 });
        }
    }
}
