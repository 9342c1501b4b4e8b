//! How a node answers others that look for a leader: as the leader, as a member, or as one that looks itself.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Learned, Seek};
use crate::model::NodeId;
use crate::proto::follow::Follow;
use crate::proto::lead::Lead;
use crate::proto::shared::{Recipient, Shared};
use crate::proto::timer::Timer;
use crate::wire::Message;

/// Between two hints by multicast, by any members, that a leader exists.
const RELAY: Duration = Duration::from_secs(2);
/// Between two announces by multicast of a leader in a large world, because newcomers announce themselves.
const NEWCOMERS: Duration = Duration::from_millis(10);

impl Seek {
    /// A newcomer has announced itself, and others listen before they do: in a large world they hear this
    /// leader at once, or each of them would announce itself to all. But for a leader that waits until it
    /// follows the best that it has heard: its next call is that step.
    pub(super) fn call_newcomers(&self, shared: &mut Shared) {
        if shared.scale().is_large() && self.best.is_none() {
            let at = self.called.map_or(shared.now, |at| shared.now.max(at + NEWCOMERS));
            shared.timers.set_earlier(Timer::Call, at);
        }
    }

    /// Another node asks a node that leads and has announced itself.
    pub(crate) fn answer_as_leader(
        &self,
        from: NodeId,
        source: SocketAddr,
        to_all: bool,
        lead: &Lead,
        shared: &mut Shared,
    ) {
        let announce = lead.announce(shared);
        shared.send(source, from, &announce);
        if to_all {
            self.call_newcomers(shared);
        }
    }

    /// Another node asks a member. If that node asks all, its leader evidently has not heard it, or it has
    /// not heard its leader.
    pub(crate) fn answer_as_member(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        to_all: bool,
        follow: &Follow,
        shared: &mut Shared,
    ) {
        if !to_all || self.rivals.is_unaware(from, Learned::ByItself, shared.now) {
            shared.send(source, from, &Message::Hint(follow.leader.clone()));
        }
    }

    /// Another node asks a node that may not lead and follows nobody.
    pub(crate) fn answer_as_seeker(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        recipient: Recipient,
        shared: &mut Shared,
    ) {
        match recipient {
            // The sender may have a leader, and this node, its seed, need not know it.
            Recipient::Anyone => shared.send(source, from, &shared.solicit()),
            Recipient::All => self.put_solicit_off(shared),
            Recipient::This => {}
        }
    }

    /// A member's leader was silent, and is asked by unicast. Others may not have found it: multicasts a hint
    /// to it, unless another member has just done so.
    pub(crate) fn relay(&mut self, follow: &Follow, shared: &mut Shared) {
        if follow.waits() && self.relayed.is_none_or(|at| shared.now >= at + RELAY) {
            self.relayed = Some(shared.now);
            shared.multicast(&Message::Hint(follow.leader.clone()));
        }
    }

    /// Another node has just asked for a leader, so that this node need not (Trickle, RFC 6206). A node that
    /// put its own solicit off for ever would never be heard, and the others could not name it at their
    /// deadline.
    fn put_solicit_off(&mut self, shared: &mut Shared) {
        if let Some(left) = self.put_off.checked_sub(1) {
            self.put_off = left;
            shared.set_repeat(Timer::Call, &mut self.calls);
        }
    }
}
