//! Which candidate a node follows: it compares each that it hears of with itself or with its leader.

use rand::RngExt;

use super::{Learned, Seek, is_better};
use crate::proto::follow::Follow;
use crate::proto::lead::Lead;
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::{Introduction, Message};

/// Of all members about so many a second tell the better of two leaders of the worse: enough that it hardly
/// hears nothing for 4 s, which would look like the end of the other.
const TELL_BETTER: u32 = 8;

impl Seek {
    /// Whether this node only listens so far, in a world whose nodes do not all announce themselves at once.
    fn only_listens(&self, shared: &Shared) -> bool {
        !self.announced && shared.scale().is_large()
    }

    /// The time to announce has come. Returns the candidate to follow instead: the best that announced itself
    /// while this node listened.
    ///
    /// A node does not yield before that time. Half of all nodes start before the first one announces itself:
    /// if each of them announced itself at once, or answered, one announce would cause thousands. And a node
    /// that joins the first candidate joins several in turn.
    pub(crate) fn take_best(&mut self, lead: &Lead, shared: &Shared) -> Option<Introduction> {
        // Others may have joined meanwhile.
        let best = self.best.take().filter(|_| !(lead.is_decided() || lead.overdue))?;
        is_better(&best.candidate, &lead.candidate(shared)).then_some(best)
    }

    /// Remembers a candidate that announces itself while this node only listens. The node follows the best
    /// one that it has heard, once every candidate that started at about the same time had its chance to
    /// announce itself. If it followed the first one, it would change its leader each time a better one
    /// appears. And the leader would rarely become the master, which costs each node a second connection.
    fn remember(&mut self, heard: &Introduction, shared: &mut Shared) {
        match &mut self.best {
            Some(best) if !is_better(&heard.candidate, &best.candidate) => {}
            Some(best) => best.clone_from(heard),
            None => {
                self.best = Some(heard.clone());
                // Spread over time, or all would join in one moment.
                let longest = shared.scale().listening();
                let spread = (longest / 2).mul_f64(shared.rng.random_range(0.0..1.0));
                let at = self.listening.max(shared.now + longest) + spread;
                shared.timers.set(Timer::Call, at);
            }
        }
    }

    /// A candidate is known to a node that leads. Returns whether to follow it now.
    pub(crate) fn yields_to(
        &mut self,
        heard: &Introduction,
        learned: Learned,
        lead: &Lead,
        shared: &mut Shared,
    ) -> bool {
        let candidate = &heard.candidate;
        if is_better(candidate, &lead.candidate(shared)) {
            // A round is void for a candidate that this node can join, as far as it knows.
            let holds = lead.is_proving() && (lead.overdue || self.blocklist.knows(candidate.id));
            if self.blocklist.contains(candidate.id, shared.now) || lead.is_decided() || holds {
                return false;
            }
            let is_fresh = !candidate.explicit && candidate.members <= 1;
            // Even a node that has announced itself: it would be the first member of the candidate, which
            // then comes before all candidates with a lower address.
            let is_early = shared.now < self.listening && shared.scale().is_large();
            if is_fresh && (is_early || self.only_listens(shared)) {
                self.remember(heard, shared);
                return false;
            }
            return true;
        }
        if !self.only_listens(shared) {
            // The candidate need not wait for the next announce to learn of a better one.
            shared.send(heard.source, candidate.id, &lead.announce(shared));
            if !self.announced {
                self.announce(lead, shared);
            } else if learned == Learned::ByItself {
                self.call_newcomers(shared);
            }
        }
        false
    }

    /// A candidate is known to a node that follows. Returns whether to follow it instead of the leader.
    ///
    /// A member introduces it and its leader to each other, where they have evidently not heard each other:
    /// the worse is to follow the better, and if it cannot, both are to know.
    pub(crate) fn changes_leader(
        &mut self,
        heard: &Introduction,
        learned: Learned,
        follow: &Follow,
        shared: &mut Shared,
    ) -> bool {
        if follow.leader_id() == heard.candidate.id || follow.in_round() {
            return false;
        }
        let is_better = is_better(&heard.candidate, &follow.leader.candidate);
        if !follow.joined {
            return is_better && !self.blocklist.contains(heard.candidate.id, shared.now);
        }
        // The leader hears other nodes' hints as well, except the answers of this node's seeds.
        let is_known = learned == Learned::ByAnother && shared.seeds.is_empty();
        if is_known || !self.rivals.is_unaware(heard.candidate.id, learned, shared.now) {
            return false;
        }
        // The better only has to know; of many members some tell it.
        let members = follow.progress.as_ref().map_or(1, |progress| progress.joined.max(1));
        let tells_better = shared.rng.random_range(0..members) < TELL_BETTER;
        if is_better || tells_better {
            shared.send(follow.leader.source, follow.leader_id(), &Message::Hint(heard.clone()));
        }
        if !is_better || tells_better {
            shared.send(heard.source, heard.candidate.id, &Message::Hint(follow.leader.clone()));
        }
        false
    }

    /// The leader sends this node to another candidate. Returns whether to follow that one.
    pub(crate) fn obeys_redirect(&self, to: &Introduction, follow: &Follow, shared: &Shared) -> bool {
        let is_better = is_better(&to.candidate, &follow.leader.candidate);
        let is_other = to.candidate.id != shared.me();
        is_better && is_other && !self.blocklist.contains(to.candidate.id, shared.now) && !follow.is_ready()
    }
}
