//! Hosts that lose power, and paths that are cut for so long that connections break.

use std::time::Duration;

use mingle_core::proto::Time;

use super::queue::Happening;
use super::{Ended, Fact, Network, Unformed};

/// Keepalive: the first probe of an idle connection, the next ones, and how many there are.
const IDLE: Duration = Duration::from_secs(5);
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 10;
/// How long keepalive takes to find that the peer of a connection is gone.
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
        self.forget_process(host);
        let connections = std::mem::take(&mut self.hosts[host].connections);
        let open = connections.into_iter().filter(|&conn| self.leave_open(conn, host)).count();
        if open > 0 {
            self.saw(Fact::PowerLost);
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

    /// One end of a connection has lost power. Returns whether there is another one, which probes it.
    fn leave_open(&mut self, conn: u64, host: usize) -> bool {
        if !self.is_established(conn) {
            self.over(conn);
            return false;
        }
        self.mark_dead(conn, host);
        self.at(self.now + IDLE, Happening::Probe { conn, number: 0 });
        true
    }

    pub(super) fn probe(&mut self, conn: u64, number: u32) {
        let Some(dead) = self.dead_end(conn) else { return };
        let answers = self.hosts[dead].powered && !self.hosts[dead].silent;
        if answers || number >= PROBES {
            self.break_both(conn);
        } else {
            self.at(self.now + PROBE, Happening::Probe { conn, number: number + 1 });
        }
    }

    /// A cut begins: connections between the two hosts break if it lasts.
    pub(super) fn starve_connections(&mut self, from: usize, to: usize) {
        let between: Vec<u64> =
            self.hosts[from].connections.intersection(&self.hosts[to].connections).copied().collect();
        for conn in between {
            self.at(self.now + KEEPALIVE, Happening::Starved { conn, since: self.now });
        }
    }

    pub(super) fn starved(&mut self, conn: u64, since: Time) {
        let Some((a, b)) = self.open_ends(conn) else { return };
        if [(a, b), (b, a)].iter().any(|pair| self.cut.get(pair).is_some_and(|&start| start <= since)) {
            self.break_both(conn);
        }
    }
}
