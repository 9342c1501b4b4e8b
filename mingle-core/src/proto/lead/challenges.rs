//! Members whose seat another node wants: they are asked whether they are there, and a silent one loses its
//! seat.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use crate::model::NodeId;
use crate::proto::session::PeerLinks;
use crate::proto::timer::Time;

/// How long a challenged member may be silent.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// The challenges, by the member that is challenged.
#[derive(Debug, Clone, Default)]
pub(super) struct Challenges(BTreeMap<NodeId, Challenge>);

#[derive(Debug, Clone)]
struct Challenge {
    since: Time,
    /// The number of the frame that asks.
    question: u64,
    /// Nodes that were given the same rank, to be refused if the member answers.
    contenders: BTreeSet<NodeId>,
}

impl Challenges {
    /// Challenges the holder of a seat; the contender is a node with the same given rank. `ask` asks the
    /// holder, unless it has been asked and has not answered yet, and returns the number of the frame.
    pub(super) fn add(
        &mut self,
        holder: NodeId,
        contender: Option<NodeId>,
        now: Time,
        ask: impl FnOnce() -> u64,
    ) {
        let new = || Challenge { since: now, question: ask(), contenders: BTreeSet::new() };
        self.0.entry(holder).or_insert_with(new).contenders.extend(contender);
    }

    /// When the next challenged member has been silent for too long.
    pub(super) fn due(&self) -> Option<Time> {
        self.0.values().map(|challenge| challenge.since + SILENCE).min()
    }

    /// Ends the challenges of members that were silent for too long, and returns these.
    pub(super) fn take_silent(&mut self, now: Time) -> Vec<NodeId> {
        let is_silent = |challenge: &Challenge| now >= challenge.since + SILENCE;
        let silent = self.0.iter().filter(|(_, challenge)| is_silent(challenge)).map(|(&id, _)| id);
        let silent: Vec<NodeId> = silent.collect();
        self.0.retain(|_, challenge| !is_silent(challenge));
        silent
    }

    /// Something was read of this member: if it was challenged, and has read the question, the challenge is
    /// over. Returns the nodes that were given its rank.
    pub(super) fn answered(&mut self, member: NodeId, links: &PeerLinks<()>) -> BTreeSet<NodeId> {
        let Entry::Occupied(challenge) = self.0.entry(member) else { return BTreeSet::new() };
        let link = links.get(member).map(|peer| &peer.link).filter(|link| link.is_there());
        let has_answered = link.is_some_and(|link| link.session.has_read(challenge.get().question));
        if has_answered { challenge.remove().contenders } else { BTreeSet::new() }
    }

    /// Ends the challenge of a member that has left.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// This process was stopped for so long.
    pub(super) fn forgive(&mut self, stopped: Duration) {
        for challenge in self.0.values_mut() {
            challenge.since += stopped;
        }
    }
}
