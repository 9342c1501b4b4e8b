//! Members whose seat another node wants: they are pinged, and a silent one loses its seat.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::REPEAT;
use super::book::{Book, Entry};
use crate::model::NodeId;
use crate::proto::backoff::Backoff;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Message, Refusal};

/// How long a challenged member may be silent.
const SILENCE: Duration = Duration::from_secs(3);

/// The challenges, by the member that is challenged.
#[derive(Debug, Clone, Default)]
pub(super) struct Challenges(BTreeMap<NodeId, Challenge>);

#[derive(Debug, Clone)]
struct Challenge {
    since: Time,
    backoff: Backoff,
    next: Time,
    pings: usize,
    /// Nodes that were given the same rank, to be refused if the member answers.
    contenders: BTreeSet<NodeId>,
}

impl Challenges {
    /// Challenges the holder of a seat; the contender is a node with the same given rank.
    pub(super) fn add(&mut self, holder: NodeId, contender: Option<NodeId>, shared: &mut Shared) {
        let challenge = self.0.entry(holder).or_insert_with(|| Challenge {
            since: shared.now,
            backoff: Backoff::up_to(REPEAT),
            next: shared.now,
            pings: 0,
            contenders: BTreeSet::new(),
        });
        challenge.contenders.extend(contender);
        shared.timers.set_earlier(Timer::PingChallenged, shared.now);
    }

    /// Pings the challenged members. Returns those that were silent for too long.
    pub(super) fn ping(&mut self, book: &Book, shared: &mut Shared) -> Vec<NodeId> {
        let mut silent = Vec::new();
        for (&id, challenge) in &mut self.0 {
            if shared.now >= challenge.since + SILENCE {
                silent.push(id);
            } else if challenge.next <= shared.now
                && let Some(entry) = book.get(id)
            {
                entry.reach(id, challenge.pings, &Message::Ping, shared);
                challenge.pings += 1;
                challenge.next = challenge.backoff.after(shared.now, &mut shared.rng);
            }
        }
        self.0.retain(|id, _| !silent.contains(id));
        if let Some(next) = self.0.values().map(|challenge| challenge.next).min() {
            shared.timers.set_earlier(Timer::PingChallenged, next);
        }
        silent
    }

    /// A challenged member lives: the nodes that were given its rank are refused. Returns these.
    pub(super) fn on_pong(&mut self, from: NodeId, book: &Book, shared: &mut Shared) -> Vec<NodeId> {
        let Some(holder) = book.get(from).map(Entry::peer) else { return Vec::new() };
        let Some(challenge) = self.0.get_mut(&from) else { return Vec::new() };
        challenge.contenders.retain(|&contender| book.get(contender).is_some());
        challenge.since = shared.now;
        if challenge.contenders.is_empty() {
            self.0.remove(&from);
            return Vec::new();
        }
        // The refusal may be lost: the pings go on until the contenders have left.
        for &contender in &challenge.contenders {
            if let Some(entry) = book.get(contender) {
                let refusal = Refusal::RankTaken(holder.clone());
                shared.send(entry.source, contender, &Message::Refuse(refusal));
            }
        }
        challenge.contenders.iter().copied().collect()
    }

    /// Ends the challenge of a member that has left.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
