//! How a node finds its leader: when it announces itself or solicits, which candidate it follows, and which candidates
//! it ignores. The state here belongs to no leader and no follower; what follows from a choice is
//! [`Node`](super::Node)'s to do.

mod blocklist;
mod election;
mod rivals;
mod seeds;

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngExt;

use super::backoff::Backoff;
use super::follow::Follow;
use super::lead::Lead;
use super::outcome::Event;
use super::shared::{Recipient, Shared};
use super::timer::{Time, Timer};
use crate::model::NodeId;
use crate::wire::{Candidate, Introduction, Message};
use blocklist::Blocklist;
pub(crate) use election::Key;
use rivals::Rivals;
use seeds::Seeds;

/// The longest interval between two announces or solicits: with its jitter, a waiting node sends fewer than 1.4
/// datagrams a second.
const LONGEST_REPEAT: Duration = Duration::from_secs(1);
/// How long a node that nobody reached over TCP leaves leading to others.
const STEPPED_DOWN: Duration = Duration::from_secs(10);
/// Between two hints by multicast, by any members, that a leader exists.
const RELAY: Duration = Duration::from_secs(2);
/// Between two announces by multicast of a leader in a large world, because newcomers announce themselves.
const NEWCOMERS: Duration = Duration::from_millis(10);
/// Between two answers by multicast to a solicit.
const ANSWER_ALL: Duration = Duration::from_millis(50);

/// The state of a node's search for its leader.
#[derive(Debug, Clone)]
pub(crate) struct Seek {
    announces: Backoff,
    solicits: Backoff,
    /// This node has announced itself since it started to look for the others.
    announced: bool,
    /// When this node last announced itself to all.
    called: Option<Time>,
    /// Until when this node only listens, and so do others that started with it.
    listening: Time,
    /// The best candidate that has announced itself while this node only listens, and its source address.
    best: Option<(Candidate, SocketAddr)>,
    /// Until when this node leaves leading to others.
    stepped_down_until: Time,
    blocklist: Blocklist,
    rivals: Rivals,
    /// How often this node's own solicit may still be put off.
    put_off: u32,
    /// When a solicit was last answered by multicast.
    answered_all: Option<Time>,
    /// When a member, this node or another, last multicast a hint to the leader.
    relayed: Option<Time>,
    /// A world of this lineage has formed without this node.
    formed_already: bool,
    seeds: Seeds,
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
        Self {
            announces: Backoff::up_to(LONGEST_REPEAT),
            solicits: Backoff::up_to(LONGEST_REPEAT),
            announced: false,
            called: None,
            listening: Time::ZERO,
            best: None,
            stepped_down_until: Time::ZERO,
            blocklist: Blocklist::default(),
            rivals: Rivals::default(),
            put_off: draw_put_off(shared),
            answered_all: None,
            relayed: None,
            formed_already: false,
            seeds: Seeds::default(),
        }
    }

    /// Starts to look for the others: by announcing where this node may lead, else by soliciting.
    pub(crate) fn start(&mut self, shared: &mut Shared) {
        let delay = suppression(shared);
        self.listening = shared.now + shared.scale().listening();
        if shared.config.is_candidate() {
            self.announced = false;
            self.announces.reset();
            let at = (shared.now + delay).max(self.stepped_down_until);
            shared.timers.set(Timer::Announce, at);
        }
        if !self.may_lead(shared) {
            self.solicits.reset();
            shared.set_after(Timer::Solicit, delay);
        }
    }

    /// Stops announcing and soliciting: this node follows a candidate.
    pub(crate) fn stop(&mut self, shared: &mut Shared) {
        self.best = None;
        shared.timers.stop(Timer::Announce);
        shared.timers.stop(Timer::Solicit);
    }

    /// Whether this node may lead now, if it follows nobody.
    pub(crate) fn may_lead(&self, shared: &Shared) -> bool {
        shared.config.is_candidate() && shared.now >= self.stepped_down_until && !self.formed_already
    }

    pub(crate) fn has_announced(&self) -> bool {
        self.announced
    }

    /// Leaves leading to others for a while.
    pub(crate) fn step_down(&mut self, shared: &Shared) {
        self.stepped_down_until = shared.now + STEPPED_DOWN;
    }

    /// Whether the world of this lineage has formed without this node.
    pub(crate) fn has_missed_world(&self) -> bool {
        self.formed_already
    }

    /// The world of this lineage has formed without this node, which follows and leads nobody any more. Returns
    /// whether that is news.
    pub(crate) fn miss_world(&mut self) -> bool {
        !std::mem::replace(&mut self.formed_already, true)
    }

    /// Announces (where this node leads) or solicits at once, and often again for a while.
    pub(crate) fn call_at_once(&mut self, leads: bool, shared: &mut Shared) {
        let (backoff, timer) =
            if leads { (&mut self.announces, Timer::Announce) } else { (&mut self.solicits, Timer::Solicit) };
        backoff.reset();
        shared.timers.set(timer, shared.now);
    }

    /// Multicasts a message, and sends it to the seeds.
    fn call(&mut self, message: &Message, shared: &mut Shared) {
        shared.multicast(message);
        self.seeds.send(message, shared);
    }

    /// Announces this node to all, and sets the timer for the next time.
    pub(crate) fn announce(&mut self, lead: &Lead, shared: &mut Shared) {
        if !self.announced {
            self.announced = true;
            shared.event(Event::Leading);
        }
        self.called = Some(shared.now);
        self.call(&lead.announce(shared), shared);
        lead.announce_to_deaf(shared);
        shared.set_repeat(Timer::Announce, &mut self.announces);
    }

    /// Asks all for a leader, and sets the timer for the next time.
    pub(crate) fn solicit(&mut self, shared: &mut Shared) {
        self.call(&shared.solicit(), shared);
        self.put_off = draw_put_off(shared);
        shared.set_repeat(Timer::Solicit, &mut self.solicits);
    }

    /// Another node has just asked for a leader, so that this node need not (Trickle, RFC 6206). A node that put its
    /// own solicit off for ever would never be heard, and the others could not name it at their deadline.
    pub(crate) fn put_solicit_off(&mut self, shared: &mut Shared) {
        if let Some(left) = self.put_off.checked_sub(1) {
            self.put_off = left;
            shared.set_repeat(Timer::Solicit, &mut self.solicits);
        }
    }

    fn key(lead: &Lead, shared: &Shared) -> Key {
        let node = &shared.config.node;
        Key::new(node.rank.is_some(), lead.high_water(), node.endpoints.preferred().ip(), shared.me())
    }

    fn is_blocked(&self, id: NodeId, shared: &Shared) -> bool {
        self.blocklist.contains(id, shared.now)
    }

    /// Whether this node only listens so far, in a world whose nodes do not all announce themselves at once.
    fn only_listens(&self, shared: &Shared) -> bool {
        !self.announced && !shared.scale().is_small()
    }

    /// The time to announce has come. Returns the candidate to follow instead: the best that announced itself while
    /// this node listened.
    ///
    /// Not before: half of all nodes come before the first that announces. If each of them announced itself at once,
    /// or answered, one announce would cause thousands; and a node that joins the first joins several in turn.
    pub(crate) fn take_best(&mut self, lead: &Lead, shared: &Shared) -> Option<(Candidate, SocketAddr)> {
        // Others may have joined meanwhile, and nobody yields in a round.
        let (best, source) = self.best.take().filter(|_| lead.is_collecting())?;
        let is_better = Key::of(&best) > Self::key(lead, shared) && !self.is_blocked(best.id, shared);
        is_better.then_some((best, source))
    }

    /// A candidate announces itself while this node only listens, and joins the best of them when all that started
    /// with it have had their turn. A node that joined the first would join several in turn; and the leader would
    /// rarely be the node that becomes the master, which costs each node a second connection.
    fn remember(&mut self, candidate: &Candidate, source: SocketAddr, shared: &mut Shared) {
        match &mut self.best {
            Some((best, _)) if Key::of(candidate) <= Key::of(best) => {}
            Some(best) => *best = (candidate.clone(), source),
            None => {
                self.best = Some((candidate.clone(), source));
                // Spread, or all join in one moment.
                let longest = shared.scale().listening();
                let spread = (longest / 2).mul_f64(shared.rng.random_range(0.0..1.0));
                let at = self.listening.max(shared.now + longest) + spread;
                shared.timers.set(Timer::Announce, at);
            }
        }
    }

    /// A candidate is known to a node that leads. Returns whether to follow it now.
    pub(crate) fn yields_to(
        &mut self,
        candidate: &Candidate,
        source: SocketAddr,
        learned: Learned,
        lead: &Lead,
        shared: &mut Shared,
    ) -> bool {
        if Key::of(candidate) > Self::key(lead, shared) {
            if self.is_blocked(candidate.id, shared) || !lead.is_collecting() {
                return false;
            }
            let is_fresh = !candidate.explicit && candidate.members <= 1;
            // Even a node that has announced itself: it would be the first member of the candidate, which then comes
            // before all candidates with a lower address.
            let is_early = shared.now < self.listening && !shared.scale().is_small();
            if is_fresh && (is_early || self.only_listens(shared)) {
                self.remember(candidate, source, shared);
                return false;
            }
            return true;
        }
        if !self.only_listens(shared) {
            // The candidate need not wait for the next announce to learn of a better one.
            shared.send(source, candidate.id, &lead.announce(shared));
            if !self.announced {
                self.announce(lead, shared);
            } else if learned == Learned::ByItself {
                self.call_newcomers(shared);
            }
        }
        false
    }

    /// A candidate is known to a node that follows. Returns whether to follow it instead of the leader.
    pub(crate) fn changes_leader(
        &mut self,
        candidate: &Candidate,
        source: SocketAddr,
        learned: Learned,
        follow: &Follow,
        shared: &mut Shared,
    ) -> bool {
        if follow.is_led_by(candidate.id) || follow.in_round() {
            return false;
        }
        if !follow.is_joined() {
            let is_better = Key::of(candidate) > Key::of(follow.candidate());
            return is_better && !self.is_blocked(candidate.id, shared);
        }
        self.introduce(candidate, source, learned, follow, shared);
        false
    }

    /// A candidate is known to a node that neither leads nor follows. Returns whether to follow it.
    pub(crate) fn accepts(&self, candidate: &Candidate, shared: &Shared) -> bool {
        !self.is_blocked(candidate.id, shared)
    }

    /// The leader sends this node to another candidate. Returns whether to follow that one.
    pub(crate) fn obeys_redirect(&self, to: &Introduction, follow: &Follow, shared: &Shared) -> bool {
        let is_better = Key::of(&to.candidate) > Key::of(follow.candidate());
        let is_other = to.candidate.id != shared.me();
        is_better && is_other && !self.is_blocked(to.candidate.id, shared) && !follow.is_ready()
    }

    /// A newcomer has announced itself, and others listen before they do: in a large world they hear this leader at
    /// once, or each of them would announce itself to all.
    fn call_newcomers(&self, shared: &mut Shared) {
        if shared.scale().is_large() {
            let at = self.called.map_or(shared.now, |at| shared.now.max(at + NEWCOMERS));
            shared.timers.set_earlier(Timer::Announce, at);
        }
    }

    /// A member that learns of another candidate gives the worse of that and its leader a hint to the better one,
    /// where the worse has evidently not heard it.
    fn introduce(
        &mut self,
        candidate: &Candidate,
        source: SocketAddr,
        learned: Learned,
        follow: &Follow,
        shared: &mut Shared,
    ) {
        // The leader hears other nodes' hints as well, except the answers of this node's seeds.
        let is_known = learned == Learned::ByAnother && self.seeds.is_empty();
        if is_known || !self.rivals.is_unaware(candidate.id, learned, shared.now) {
            return;
        }
        if Key::of(candidate) > Key::of(follow.candidate()) {
            let better = Introduction { candidate: candidate.clone(), source };
            follow.send_to_leader(&Message::Hint(better), shared);
        } else {
            shared.send(source, candidate.id, &Message::Hint(follow.introduction()));
        }
    }

    /// Another node asks a node that leads and has announced itself. `again` is whether it was heard before.
    pub(crate) fn answer_as_leader(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        to_all: bool,
        again: bool,
        lead: &Lead,
        shared: &mut Shared,
    ) {
        let recent = self.answered_all.is_some_and(|at| shared.now < at + ANSWER_ALL);
        let announce = lead.announce(shared);
        shared.send(source, from, &announce);
        if to_all {
            self.call_newcomers(shared);
        }
        if to_all && again && !recent {
            // Our unicast may not reach it.
            self.answered_all = Some(shared.now);
            shared.multicast(&announce);
        }
    }

    /// Another node asks a member. If it asks all, its leader evidently has not heard it, or is not heard by it.
    pub(crate) fn answer_as_member(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        to_all: bool,
        follow: &Follow,
        shared: &mut Shared,
    ) {
        if !to_all || self.rivals.is_unaware(from, Learned::ByItself, shared.now) {
            shared.send(source, from, &Message::Hint(follow.introduction()));
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

    /// A member's leader was silent, and is asked by unicast. Others may not have found it: multicasts a hint to it,
    /// unless another member has just done so.
    pub(crate) fn relay(&mut self, follow: &Follow, shared: &mut Shared) {
        if follow.waits() && self.relayed.is_none_or(|at| shared.now >= at + RELAY) {
            self.relayed = Some(shared.now);
            shared.multicast(&Message::Hint(follow.introduction()));
        }
    }

    /// Another member has multicast a hint to this node's leader.
    pub(crate) fn hear_relay(&mut self, shared: &Shared) {
        self.relayed = Some(shared.now);
    }

    /// Ignores a candidate that did not answer.
    pub(crate) fn block_silent(&mut self, id: NodeId, shared: &Shared) {
        self.blocklist.silent(id, shared.now);
    }

    /// Ignores a candidate that answers, but cannot be reached over TCP or refuses everybody.
    pub(crate) fn block_unreached(&mut self, id: NodeId, shared: &Shared) {
        self.blocklist.unreached(id, shared.now);
    }

    /// A candidate has answered this node.
    pub(crate) fn answered(&mut self, id: NodeId) {
        self.blocklist.answered(id);
    }

    /// This node has joined the candidate.
    pub(crate) fn joined(&mut self, id: NodeId) {
        self.blocklist.forgive(id);
    }

    /// Replaces the seeds. Returns whether any of them is new.
    pub(crate) fn set_seeds(&mut self, seeds: Vec<SocketAddr>, shared: &Shared) -> bool {
        self.seeds.replace(seeds, &shared.config.node.endpoints)
    }

    /// A member asks its seeds, which may be members of another island.
    pub(crate) fn ask_seeds(&mut self, follow: Option<&Follow>, shared: &mut Shared) {
        if self.seeds.is_empty() {
            return;
        }
        if follow.is_some_and(Follow::waits) {
            self.seeds.send(&shared.solicit(), shared);
        }
        shared.set_after(Timer::AskSeeds, seeds::PERIOD);
    }
}

fn draw_put_off(shared: &mut Shared) -> u32 {
    let range = shared.scale().put_off();
    if range.start() == range.end() { *range.start() } else { shared.rng.random_range(range) }
}

/// How long to listen before the first announce: nothing in a small world, in which all may announce themselves at
/// once.
fn suppression(shared: &mut Shared) -> Duration {
    if shared.scale().is_small() {
        return Duration::ZERO;
    }
    // Truncated exponential (RFC 5401, 3.2.1.1): few are early, most are late and hear those.
    let spread = f64::from(shared.world()).ln() + 1.0;
    let uniform = shared.rng.random_range(0.0..1.0_f64);
    let share = (uniform * spread.exp_m1()).ln_1p() / spread;
    shared.scale().listening().mul_f64(share)
}
