//! A member's questions to a leader that it does not hear, or whose address another node has taken.

use std::net::SocketAddr;
use std::time::Duration;

use super::Follow;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;

/// How long a leader may be silent after another node wrote from its address.
const SUSPECTED: Duration = Duration::from_secs(2);

impl Follow {
    /// Asks a silent leader by unicast, which it answers by its announce. Only the end of the lease ends a
    /// leader, or its silence after another node took its address.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        if !self.joined {
            return;
        }
        if self.suspected.is_some_and(|since| shared.now >= since + SUSPECTED) && !self.is_ready() {
            self.rejoin(shared);
            return;
        }
        let solicit = shared.solicit();
        self.leader.send(&solicit, shared);
        if self.suspected.is_some() {
            shared.set_after(Timer::AskLeader, SUSPECTED / 8);
        } else {
            shared.set_repeat(Timer::AskLeader, &mut self.asks);
        }
    }

    /// Another node has written from this address. If it is the leader's, a new process may have it, after a
    /// power loss that has closed no connection: asks the leader whether it is there.
    pub(crate) fn suspect(&mut self, source: SocketAddr, shared: &mut Shared) {
        if self.joined && source == self.leader.source() && self.suspected.is_none() {
            self.suspected = Some(shared.now);
            shared.timers.set(Timer::AskLeader, shared.now);
        }
    }
}
