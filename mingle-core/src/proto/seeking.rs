//! How a node finds who gathers: announce, solicit, follow the better one, give up, resign.

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngExt;

use super::election::Key;
use super::follower::{Follow, GaveUp, LARGE};
use super::node::{Learned, Node, REMEMBERED, Recipient};
use super::report::{Event, Warning};
use super::round::Phase;
use super::shared::Shared;
use super::timer::Timer;
use crate::model::NodeId;
use crate::wire::{self, Announce, Candidate, Introduction, Message, Solicit};

/// The longest random wait before a first announce; in a world of this size or more.
const SUPPRESSION: Duration = Duration::from_millis(20);
const SUPPRESSION_WORLD: u32 = 1000;
/// Up to this size nobody waits.
const SMALL_WORLD: u32 = 16;
/// How long a node that nobody reached over TCP leaves gathering to others.
const RESIGNED: Duration = Duration::from_secs(10);
/// A candidate that is still announcing after so long has not heard of its better: it is told.
const UNAWARE: Duration = Duration::from_secs(1);
/// Between two relays of a leader's call, by whichever members.
const RELAY: Duration = Duration::from_secs(2);
/// Between two answers to one that asks this node personally.
const PERSONAL: Duration = Duration::from_millis(100);
/// How often a solicit is put off at least because another node's was heard.
const PUT_OFF: u32 = 3;
/// Between two calls of a leader in a large world because of newcomers that call themselves.
const NEWCOMERS: Duration = Duration::from_millis(10);
/// Between two answers to all.
const ANSWER_ALL: Duration = Duration::from_millis(50);

impl Node {
    /// What may make this node a member. Where it does, its own members are sent after it.
    pub(super) fn joining(&mut self, act: impl FnOnce(&mut Follow, &mut Shared) -> bool) {
        let Some(follow) = &mut self.follow else { return };
        if act(follow, &mut self.shared) {
            self.blocklist.forgive(follow.leader.id);
            self.memory.unreached = None;
            self.memory.unanswered = None;
            // Those that have not proved have no connection whose end would tell that they have gone.
            let arrivals = &self.arrivals;
            self.lead.members.retain(|&id, _| arrivals.has(id));
            self.redirect();
        }
    }

    /// Whether this node may gather now.
    pub(super) fn may_lead(&self) -> bool {
        self.shared.config.is_candidate() && self.shared.now >= self.resigned && !self.formed_already
    }

    /// Whether this node gathers: it may, and follows nobody.
    pub(super) fn gathers(&self) -> bool {
        self.follow.is_none() && self.may_lead()
    }

    pub(super) fn key(&self) -> Key {
        let address = self.shared.config.node.endpoints.preferred().ip();
        let explicit = self.shared.config.node.rank.is_some();
        Key::new(explicit, self.lead.high_water, address, self.shared.me())
    }

    /// Starts to look for the others: by announcing where this node may gather, else by asking.
    pub(super) fn seek(&mut self) {
        let delay = self.suppression();
        self.listening = self.shared.now + self.listening_time();
        if self.shared.config.is_candidate() {
            self.announced = false;
            self.announces.reset();
            let at = (self.shared.now + delay).max(self.resigned);
            self.shared.timers.set(Timer::Announce, at);
        }
        if !self.may_lead() {
            self.solicits.reset();
            self.shared.set_after(Timer::Solicit, delay);
        }
    }

    /// How long to listen before the first word, so that a start of thousands is not a storm: at most
    /// 20 ms, and nothing in a world in which everybody may speak at once.
    pub(super) fn suppression(&mut self) -> Duration {
        let world = self.shared.world();
        if world <= SMALL_WORLD {
            return Duration::ZERO;
        }
        // Truncated exponential (RFC 5401, 3.2.1.1): few are early, most are late and hear those.
        let spread = f64::from(world).ln() + 1.0;
        let uniform = self.shared.rng.random_range(0.0..1.0_f64);
        let share = (uniform * spread.exp_m1()).ln_1p() / spread;
        self.listening_time().mul_f64(share)
    }

    fn listening_time(&self) -> Duration {
        SUPPRESSION * self.shared.world().min(SUPPRESSION_WORLD) / SUPPRESSION_WORLD
    }

    /// A candidate calls while this node only listens: it joins the best of those that have called once all who have
    /// started with it have had their say. Who joined the first would join several, one after the other; and the leader
    /// would rarely be the one that becomes the master, which costs each node a second connection.
    fn consider(&mut self, candidate: &Candidate, source: SocketAddr) {
        let longest = self.listening_time();
        match &mut self.best {
            Some((best, _)) if Key::of(candidate) <= Key::of(best) => {}
            Some(best) => *best = (candidate.clone(), source),
            None => {
                self.best = Some((candidate.clone(), source));
                // Not all in one moment.
                let spread = (longest / 2).mul_f64(self.shared.rng.random_range(0.0..1.0));
                let at = self.listening.max(self.shared.now + longest) + spread;
                self.shared.timers.set(Timer::Announce, at);
            }
        }
    }

    /// Whether this node only listens so far, in a world in which not everybody may speak at once.
    fn listens(&self) -> bool {
        !self.announced && self.shared.world() > SMALL_WORLD
    }

    /// The time has come to speak: to the best that has called meanwhile, or else to all.
    ///
    /// Not before: half of all nodes are better than the first that calls. If each of them called at once, or answered
    /// it, one word would bring thousands; and whoever joins the first joins several, one after the other.
    pub(super) fn speak(&mut self) {
        // Others may have joined meanwhile, and nobody yields in a round.
        let may_yield = matches!(self.lead.phase, Phase::Gathering);
        match self.best.take().filter(|(best, _)| may_yield && Key::of(best) > self.key()) {
            Some((best, source)) if !self.blocklist.contains(best.id, self.shared.now) => {
                self.follow(&best, source);
            }
            _ => self.announce(),
        }
    }

    fn announce(&mut self) {
        if !self.announced {
            self.announced = true;
            self.shared.event(Event::Leading);
        }
        self.called = Some(self.shared.now);
        let announce = self.lead.announce(&self.shared);
        self.shared.call(&announce);
        self.lead.tell_the_deaf(&mut self.shared);
        let next = self.announces.after(self.shared.now, &mut self.shared.rng);
        self.shared.timers.set(Timer::Announce, next);
    }

    /// How often the next solicit may be put off: of all who wait for rank 0, one or two speak a second, and each has
    /// its turn. Not after the same number for all, or those who were put off together would speak together.
    pub(super) fn patience(&mut self) -> u32 {
        let half = self.shared.world() / 2;
        if half <= PUT_OFF { PUT_OFF } else { self.shared.rng.random_range(half..=3 * half) }
    }

    pub(super) fn solicit(&mut self) {
        if self.follow.is_some() || self.may_lead() {
            return;
        }
        self.shared.call(&self.shared.solicit());
        self.put_off = self.patience();
        let next = self.solicits.after(self.shared.now, &mut self.shared.rng);
        self.shared.timers.set(Timer::Solicit, next);
    }

    pub(super) fn on_announce(&mut self, announce: &Announce, source: SocketAddr, meant: Recipient) {
        let candidate = &announce.candidate;
        let rank = candidate.explicit.then_some(0);
        self.memory.node(candidate.id, &candidate.host, source, rank);
        self.memory.candidates = true;
        if meant == Recipient::This {
            // An answer to this node: whatever silence there was is over.
            self.blocklist.answered(candidate.id);
        }
        match &mut self.follow {
            Some(follow) if follow.leader.id == candidate.id => {
                follow.on_announce(announce, source, meant != Recipient::This, &mut self.shared);
                if follow.is_joined() {
                    self.memory.told(&announce.newest);
                }
            }
            _ => {
                // What it says to this node alone, its leader may never hear.
                let told = if meant == Recipient::All { Learned::ByItself } else { Learned::Personally };
                self.on_candidate(candidate, source, told);
            }
        }
    }

    /// Somebody gathers, or would.
    pub(super) fn on_candidate(&mut self, candidate: &Candidate, source: SocketAddr, told: Learned) {
        if candidate.id == self.shared.me() || self.formed_already {
            return;
        }
        let theirs = Key::of(candidate);
        let blocklist = self.blocklist.contains(candidate.id, self.shared.now);
        match &self.follow {
            Some(follow) if follow.leader.id == candidate.id => {}
            Some(follow) if follow.in_round() => {}
            Some(follow) if !follow.is_joined() && (theirs <= follow.key || blocklist) => {}
            Some(follow) if !follow.is_joined() => self.follow(candidate, source),
            Some(_) => self.introduce(candidate, source, theirs, told),
            None if self.may_lead() => {
                if theirs > self.key() {
                    if blocklist || !matches!(self.lead.phase, Phase::Gathering) {
                        return;
                    }
                    let fresh = !candidate.explicit && candidate.members <= 1;
                    // One that has called, too: it would be the first member of the next, which then comes before all
                    // whose address is lower.
                    let early = self.shared.now < self.listening && self.shared.world() > SMALL_WORLD;
                    if fresh && (early || self.listens()) {
                        self.consider(candidate, source);
                    } else {
                        self.follow(candidate, source);
                    }
                } else if !self.listens() {
                    // It need not wait for the next announce to learn of its better.
                    let announce = self.lead.announce(&self.shared);
                    self.shared.send(source, candidate.id, &announce);
                    if !self.announced {
                        self.announce();
                    } else if told == Learned::ByItself {
                        self.call_newcomers();
                    }
                }
            }
            None if !blocklist => self.follow(candidate, source),
            None => {}
        }
    }

    /// Where one calls that has just started, others listen before they do: in a large world they are told at once, or
    /// each of them would call to all.
    fn call_newcomers(&mut self) {
        if self.shared.world() > LARGE {
            let at = self.called.map_or(self.shared.now, |at| self.shared.now.max(at + NEWCOMERS));
            self.shared.timers.set_earlier(Timer::Announce, at);
        }
    }

    /// A member that learns of another candidate tells the better one to the worse one, when the
    /// leader itself has evidently not been heard.
    fn introduce(&mut self, candidate: &Candidate, source: SocketAddr, theirs: Key, told: Learned) {
        // Of what others tell, all but the answers of seeds is known to the leader as well.
        if told == Learned::ByAnother && self.shared.seeds.is_empty() || !self.is_unaware(candidate.id, told)
        {
            return;
        }
        let Some(follow) = &self.follow else { return };
        if theirs > follow.key {
            let better = Introduction { candidate: candidate.clone(), source };
            self.shared.send(follow.leader.source, follow.leader.id, &Message::Hint(better));
        } else {
            let better = follow.introduction();
            self.shared.send(source, candidate.id, &Message::Hint(better));
        }
    }

    /// Whether a node still calls for all to hear, although this one has had a leader for a while; at
    /// most once a second for each. What it says to this node personally, its leader has not heard: then it is
    /// told at once, and ten times a second.
    fn is_unaware(&mut self, id: NodeId, how: Learned) -> bool {
        let now = self.shared.now;
        let (patience, pause) = match how {
            Learned::Personally => (Duration::ZERO, PERSONAL),
            Learned::ByItself | Learned::ByAnother => (UNAWARE, UNAWARE),
        };
        if self.rivals.len() >= REMEMBERED {
            self.rivals.retain(|_, (since, told)| told.unwrap_or(*since) + 2 * UNAWARE > now);
        }
        if self.rivals.len() >= REMEMBERED {
            return false;
        }
        let (since, told) = self.rivals.entry(id).or_insert((now, None));
        let unaware = now >= *since + patience && told.is_none_or(|told| now >= told + pause);
        if unaware {
            *told = Some(now);
        }
        unaware
    }

    pub(super) fn on_solicit(
        &mut self,
        from: NodeId,
        source: SocketAddr,
        meant: Recipient,
        solicit: &Solicit,
    ) {
        let to_all = meant == Recipient::All;
        let again = self.memory.knows(from);
        self.memory.node(from, &solicit.host, source, solicit.rank);
        if self.gathers() && self.announced {
            if meant == Recipient::This {
                self.lead.on_ask(from, source, &mut self.shared);
                return;
            }
            let now = self.shared.now;
            let recent = self.answered_all.is_some_and(|at| now < at + ANSWER_ALL);
            let announce = self.lead.announce(&self.shared);
            self.shared.send(source, from, &announce);
            if to_all {
                self.call_newcomers();
            }
            if to_all && again && !recent {
                // Our unicast may not reach it.
                self.answered_all = Some(now);
                self.shared.multicast(&announce);
            }
        } else if !to_all && let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.shared.send(source, from, &Message::Hint(introduction));
        } else if to_all && let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            // Its leader has evidently not heard it, or is not heard by it.
            let introduction = follow.introduction();
            if self.is_unaware(from, Learned::ByItself) {
                self.shared.send(source, from, &Message::Hint(introduction));
            }
        } else if meant == Recipient::Anyone && self.follow.is_none() && !self.may_lead() {
            // This node is a seed of one that it need not know itself, and that may have a leader.
            self.shared.send(source, from, &self.shared.solicit());
        } else if to_all && self.follow.is_none() && !self.may_lead() {
            // Somebody else has just asked the same (Trickle, RFC 6206). But whoever is always put off is
            // never heard, and then the others cannot say at their deadline that it was here.
            if let Some(left) = self.put_off.checked_sub(1) {
                self.put_off = left;
                let next = self.solicits.after(self.shared.now, &mut self.shared.rng);
                self.shared.timers.set(Timer::Solicit, next);
            }
        }
    }

    pub(super) fn on_join(&mut self, from: NodeId, source: SocketAddr, join: wire::Join) {
        if self.gathers() {
            self.lead.on_join(from, source, join, &self.arrivals, &mut self.shared);
        } else if let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.shared.send(source, from, &Message::Redirect(introduction));
        }
    }

    pub(super) fn follow(&mut self, candidate: &Candidate, source: SocketAddr) {
        tracing::debug!(id = %candidate.id, host = %candidate.host, %source, "joining");
        if let Some(old) = self.follow.take() {
            old.stop(&mut self.shared);
        }
        self.best = None;
        self.lead.freeze();
        for timer in [Timer::Announce, Timer::Solicit, Timer::Resign, Timer::Challenge] {
            self.shared.timers.stop(timer);
        }
        self.follow = Some(Follow::start(&mut self.shared, candidate, source));
    }

    /// The leader did not answer, or could not be reached: back to where it was before.
    pub(super) fn give_up(&mut self) {
        let Some(follow) = self.follow.take() else { return };
        let (id, peer) = (follow.leader.id, follow.leader.peer());
        match follow.give_up(self.shared.now) {
            GaveUp::Silent => {
                self.memory.unanswered = Some(peer.clone());
                self.blocklist.silent(id, self.shared.now);
            }
            GaveUp::Unreached => {
                self.memory.unreached = Some((peer.clone(), follow.leader.endpoints.to_vec()));
                if self.may_lead() {
                    self.blocklist.unreached(id, self.shared.now);
                }
                // A node that may not lead has nobody else: it tries again as soon as it hears it.
            }
        }
        tracing::debug!(%id, "not joined");
        self.shared.event(Event::LostLeader(peer));
        self.leave(follow);
    }

    /// Follows nobody from now on.
    pub(super) fn leave(&mut self, follow: Follow) {
        follow.stop(&mut self.shared);
        self.follow = None;
        self.lead.frozen = false;
        self.shared.timers.stop(Timer::Redirect);
        self.seek();
        self.lead.seat_waiting(&self.arrivals, &mut self.shared);
        self.lead.start_round_if_full(&self.arrivals, &mut self.shared);
    }

    pub(super) fn on_redirect(&mut self, to: &Introduction) {
        let Some(follow) = &self.follow else { return };
        let better = Key::of(&to.candidate) > follow.key;
        let own = to.candidate.id == self.shared.me();
        let blocklist = self.blocklist.contains(to.candidate.id, self.shared.now);
        if better && !own && !blocklist && !follow.is_ready() {
            self.follow(&to.candidate, to.source);
        }
    }

    /// The leader has been quiet: this node asks it. It hears its leader by unicast alone, and so may others who
    /// have not found it yet: it tells all of it, unless another member has just done so.
    pub(super) fn ask(&mut self) {
        self.with_follow(Follow::ask);
        let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined() && !follow.in_round())
        else {
            return;
        };
        let now = self.shared.now;
        if self.relayed.is_none_or(|at| now >= at + RELAY) {
            self.relayed = Some(now);
            let introduction = follow.introduction();
            self.shared.multicast(&Message::Hint(introduction));
        }
    }

    /// Another member tells all of the leader.
    pub(super) fn hear_relay(&mut self, candidate: &Candidate) {
        if self.follow.as_ref().is_some_and(|follow| follow.leader.id == candidate.id) {
            self.relayed = Some(self.shared.now);
        }
    }

    /// Sends this node's own members to the leader that it has joined.
    pub(super) fn redirect(&mut self) {
        if let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_joined()) {
            let introduction = follow.introduction();
            self.lead.redirect(&introduction, &mut self.shared);
        }
    }

    /// Others join, but their connections do not arrive: somebody else gathers for a while, and this
    /// node is not the master unless it was given rank 0.
    pub(super) fn resign(&mut self) {
        if !self.gathers() || !self.arrivals.is_empty() || self.lead.members.is_empty() {
            return;
        }
        let now = self.shared.now;
        if self.lead.members.values().all(|entry| entry.heard + UNAWARE < now) {
            // They have stopped asking: it is they who are gone.
            self.lead.resign();
            return;
        }
        let endpoint = self.shared.config.node.endpoints.preferred();
        self.shared.event(Event::Warning(Warning::Unconnectable { endpoint }));
        self.shared.event(Event::SteppedDown);
        self.resigned = self.shared.now + RESIGNED;
        self.shared.unreached = true;
        self.lead.resign();
        self.seek();
    }
}
