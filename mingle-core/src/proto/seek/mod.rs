//! How a node finds its leader: when it announces itself or solicits, which candidate it follows, and which
//! candidates it ignores. The state here belongs to no leader and no follower; what follows from a choice is
//! [`Node`](super::Node)'s to do.

mod blocklist;
mod choose;
mod election;
mod rivals;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rand::RngExt;

use super::backoff::Backoff;
use super::follow::Follow;
use super::lead::Lead;
use super::report::Event;
use super::scale::FIRST_REPEAT;
use super::shared::Shared;
use super::timer::{Time, Timer};
use crate::wire::{Introduction, Message};
use blocklist::Blocklist;
use election::is_better;
use rivals::Rivals;

/// The longest interval between two announces or solicits: with its jitter, a waiting node sends fewer than
/// 1.4 datagrams a second.
const LONGEST_REPEAT: Duration = Duration::from_secs(1);
/// How often a member asks its seeds.
const ASK_SEEDS: Duration = Duration::from_secs(1);
/// Between two hints by multicast, by any members, that a leader exists.
const RELAY: Duration = Duration::from_secs(2);
/// Between two announces by multicast of a leader in a large world, because newcomers announce themselves.
const NEWCOMERS: Duration = Duration::from_millis(10);
/// How long a node that no other node reached over TCP leaves leading to others.
const STEPPED_DOWN: Duration = Duration::from_secs(10);
/// How long a node stands aside after it was last told that the job runs. It asks once a second meanwhile,
/// and each question is answered.
const STAND_ASIDE: Duration = Duration::from_secs(30);

/// The state of a node's search for its leader.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seek {
    calls: Backoff,
    /// This node has announced itself since it started to look for the others.
    pub(crate) announced: bool,
    /// When this node last announced itself to all.
    called: Option<Time>,
    /// Until when this node only listens, and so do others that started with it.
    listening: Time,
    /// The best candidate that has announced itself while this node only listens.
    best: Option<Introduction>,
    /// Until when this node leaves leading to others.
    leads_from: Time,
    pub(crate) blocklist: Blocklist,
    pub(crate) rivals: Rivals,
    /// How often this node's own solicit may still be put off.
    put_off: u32,
    /// When a member, this node or another, last multicast a hint to the leader.
    pub(crate) relayed: Option<Time>,
    /// Until when this node, without which the world has formed, neither leads nor follows.
    aside_until: Time,
}

/// How a candidate has become known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learned {
    /// By its announce to all.
    ByItself,
    /// By its announce to this node.
    Personally,
    /// By another node's hint.
    ByAnother,
}

impl Seek {
    pub(crate) fn new(shared: &mut Shared) -> Self {
        // In a small world the first question is not put off: nobody else may ask so that this node hears it.
        let put_off = if shared.scale().is_large() { draw_put_off(shared) } else { 0 };
        Self { calls: Backoff::new(FIRST_REPEAT, LONGEST_REPEAT), put_off, ..Self::default() }
    }

    /// Starts to look for the others: by announcing where this node may lead, else by soliciting.
    pub(crate) fn start(&mut self, shared: &mut Shared) {
        let delay = suppression(shared);
        // A candidate heard before may be gone by now, or could not be joined.
        self.best = None;
        self.listening = shared.now + shared.scale().listening();
        self.announced = false;
        self.calls.reset();
        shared.set_after(Timer::Call, delay);
    }

    /// Whether this node may lead now, if it follows nobody.
    pub(crate) fn may_lead(&self, shared: &Shared) -> bool {
        shared.config.is_candidate() && shared.now >= self.leads_from
    }

    /// Leaves leading to others for a while.
    pub(crate) fn step_down(&mut self, shared: &Shared) {
        self.leads_from = self.leads_from.max(shared.now + STEPPED_DOWN);
    }

    /// The world has formed without this node, which follows and leads nobody for a while: whoever says so
    /// may be wrong, and the world may end without a sign. Returns whether that is news.
    pub(crate) fn stand_aside(&mut self, now: Time) -> bool {
        let is_news = !self.stands_aside(now);
        self.aside_until = now + STAND_ASIDE;
        self.leads_from = self.leads_from.max(self.aside_until);
        is_news
    }

    pub(crate) fn stands_aside(&self, now: Time) -> bool {
        now < self.aside_until
    }

    /// Whether this node has not looked for the others since it stood aside, when it heard none of them: in a
    /// large world it listens before it announces itself, since others may stand aside no more at this time.
    pub(crate) fn stood_aside(&self) -> bool {
        self.listening < self.aside_until
    }

    /// Announces (where this node leads) or solicits at once, and often again for a while.
    pub(crate) fn call_at_once(&mut self, shared: &mut Shared) {
        self.calls.reset();
        shared.timers.set(Timer::Call, shared.now);
    }

    /// Announces this node to all, and sets the timer for the next time.
    pub(crate) fn announce(&mut self, lead: &Lead, shared: &mut Shared) {
        if !self.announced {
            self.announced = true;
            self.calls.reset();
            shared.event(Event::Leading);
        }
        self.called = Some(shared.now);
        shared.call(&lead.announce(shared));
        shared.set_repeat(Timer::Call, &mut self.calls);
    }

    /// Asks all for a leader, and sets the timer for the next time.
    pub(crate) fn solicit(&mut self, shared: &mut Shared) {
        shared.call(&shared.solicit());
        self.put_off = draw_put_off(shared);
        shared.set_repeat(Timer::Call, &mut self.calls);
        if shared.now < self.leads_from {
            shared.timers.set_earlier(Timer::Call, self.leads_from);
        }
    }

    /// A newcomer has announced itself, and others listen before they do: in a large world they hear this
    /// leader at once, or each of them would announce itself to all. But for a leader that waits until it
    /// follows the best that it has heard: its next call is that step.
    pub(crate) fn call_newcomers(&self, shared: &mut Shared) {
        if shared.scale().is_large() && self.best.is_none() {
            let at = self.called.map_or(shared.now, |at| shared.now.max(at + NEWCOMERS));
            shared.timers.set_earlier(Timer::Call, at);
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
    pub(crate) fn put_solicit_off(&mut self, shared: &mut Shared) {
        if let Some(left) = self.put_off.checked_sub(1) {
            self.put_off = left;
            shared.set_repeat(Timer::Call, &mut self.calls);
        }
    }

    /// A member asks its seeds, which may be members of another island.
    pub(crate) fn ask_seeds(follow: Option<&Follow>, shared: &mut Shared) {
        if shared.seeds.is_empty() {
            return;
        }
        if follow.is_some_and(Follow::waits) {
            shared.send_to_seeds(&shared.solicit());
        }
        shared.set_after(Timer::AskSeeds, ASK_SEEDS);
    }
}

fn draw_put_off(shared: &mut Shared) -> u32 {
    let range = shared.scale().put_off();
    if range.start() == range.end() { *range.start() } else { shared.rng.random_range(range) }
}

/// How long to listen before the first announce. Nothing in a small world, where it does no harm if all nodes
/// announce themselves at once; in a large world a random time, so that most nodes hear an announce first.
fn suppression(shared: &mut Shared) -> Duration {
    if !shared.scale().is_large() {
        return Duration::ZERO;
    }
    // Truncated exponential (RFC 5401, 3.2.1.1): few are early, most are late and hear those.
    let spread = f64::from(shared.most()).ln() + 1.0;
    let uniform = shared.rng.random_range(0.0..1.0_f64);
    let share = (uniform * spread.exp_m1()).ln_1p() / spread;
    shared.scale().listening().mul_f64(share)
}
