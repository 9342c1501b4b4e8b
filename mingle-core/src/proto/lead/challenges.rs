//! Members whose seat another node wants: they are asked whether they are there, and a silent one loses its
//! seat.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::NodeId;
use crate::proto::session::Links;
use crate::proto::timer::Time;

/// How long a challenged member may be silent.
const SILENCE: Duration = Duration::from_secs(3);

/// The challenges, by the member that is challenged.
#[derive(Debug, Clone, Default)]
pub(super) struct Challenges(BTreeMap<NodeId, Challenge>);

#[derive(Debug, Clone)]
struct Challenge {
    since: Time,
    /// Nodes that were given the same rank, to be refused if the member answers.
    contenders: BTreeSet<NodeId>,
}

impl Challenges {
    /// Challenges the holder of a seat, which is to be asked now; the contender is a node with the same given
    /// rank.
    pub(super) fn add(&mut self, holder: NodeId, contender: Option<NodeId>, now: Time) {
        let challenge =
            self.0.entry(holder).or_insert_with(|| Challenge { since: now, contenders: BTreeSet::new() });
        challenge.contenders.extend(contender);
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

    /// Something was read of this member: if it was challenged and is there, the challenge is over. Returns
    /// the nodes that were given its rank.
    pub(super) fn answered(&mut self, member: NodeId, links: &Links<()>) -> BTreeSet<NodeId> {
        let is_there = links.get(member).is_some_and(|peer| peer.link.is_there() && peer.link.is_read());
        let challenge = if is_there { self.0.remove(&member) } else { None };
        challenge.map(|challenge| challenge.contenders).unwrap_or_default()
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
