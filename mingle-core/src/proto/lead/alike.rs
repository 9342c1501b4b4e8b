//! What the leader knows of the traits of the others: it asks only where stamps differ.

use std::collections::BTreeMap;
use std::time::Duration;

use mingle_rdma::Verdict;

use super::book::Book;
use super::ranks::Applicant;
use crate::model::{NodeId, Sameness, Stamp, Traits};
use crate::proto::backoff::Backoff;
use crate::proto::parts::TraitParts;
use crate::proto::report::Failure;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{self, Message, Part, Refusal};

/// How many different stamps are asked about at most, the most frequent ones.
const ASKED: usize = 16;
/// How long a leader waits for the answers. Nodes that do not give any are named, and the round begins.
const LONGEST: Duration = Duration::from_secs(2);
/// A question that is so late says nothing of those that should have been asked.
const LATE: Duration = Duration::from_millis(500);
/// The longest pause between two questions.
const AGAIN: Duration = Duration::from_millis(80);

/// The traits by their stamps. All nodes of one stamp have the same, so that one of them is asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Alike {
    /// Without traits are the stamps of which nobody has told them in time.
    known: BTreeMap<Stamp, Option<Traits>>,
    asking: Option<Asking>,
}

/// Questions under way.
#[derive(Debug, Clone)]
struct Asking {
    since: Time,
    next: Time,
    backoff: Backoff,
    /// How often each was asked: the next question goes to the next node of the same stamp.
    attempt: usize,
    parts: BTreeMap<Stamp, TraitParts>,
}

impl Alike {
    /// Whether a round may begin: the traits of all nodes are the same or known, or nobody has told them in
    /// time. Otherwise asks for those that are missing.
    pub(super) fn settle(&mut self, book: &Book, shared: &mut Shared) -> bool {
        let own = shared.config.node.attributes.same.bare();
        // The nodes of each stamp but this node's own.
        let mut others: BTreeMap<Stamp, Vec<NodeId>> = BTreeMap::new();
        for (id, entry) in book.members() {
            let stamp = entry.node.attributes.same.bare();
            if stamp != own && stamp != Stamp::default() {
                others.entry(stamp).or_default().push(id);
            }
        }
        let mut asked: Vec<(Stamp, Vec<NodeId>)> = others.into_iter().collect();
        asked.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
        asked.truncate(ASKED);
        self.known.retain(|stamp, _| asked.iter().any(|(other, _)| other == stamp));
        asked.retain(|(stamp, _)| !self.known.contains_key(stamp));
        if asked.is_empty() {
            self.asking = None;
            return true;
        }
        // This node was stopped, or has followed another one meanwhile: the others had no chance to answer.
        self.asking.take_if(|asking| shared.now > asking.next + LATE);
        let asking = self.asking.get_or_insert_with(|| Asking::new(shared));
        if shared.now >= asking.since + LONGEST {
            self.known.extend(asked.into_iter().map(|(stamp, _)| (stamp, None)));
            self.asking = None;
            return true;
        }
        asking.ask(&asked, book, shared);
        false
    }

    /// A member has told a part of its traits.
    pub(super) fn add(&mut self, part: Part, shared: &mut Shared) {
        let stamp = Stamp(part.round);
        let Some(asking) = &mut self.asking else { return };
        if let Some(traits) = asking.parts.get_mut(&stamp).and_then(|parts| parts.add(part)) {
            self.known.insert(stamp, Some(traits));
            // The round may begin.
            shared.timers.set(Timer::Wave, shared.now);
        }
    }

    /// The traits that differ between nodes, which are given in the order of their ranks; named as far as
    /// they fit into a commit.
    pub(super) fn compare(&self, ranks: &[Applicant], verdict: &Verdict, shared: &Shared) -> Sameness {
        let stamps: Vec<Stamp> = ranks.iter().map(|a| a.node.attributes.same).collect();
        let told = self.known.iter().filter_map(|(stamp, traits)| Some((*stamp, traits.clone()?)));
        let own = (shared.config.node.attributes.same.bare(), shared.config.traits.clone());
        let mut known: BTreeMap<Stamp, Traits> = told.chain([own]).collect();
        known.remove(&Stamp::default());
        wire::fitting(Sameness::of(&stamps, &known), verdict)
    }
}

/// Why a world does not form: its traits differ, and a node requires that they do not.
pub(super) fn refusal(ranks: &[Applicant], sameness: &Sameness) -> Option<(Refusal, Failure)> {
    let is_required = ranks.iter().any(|a| a.node.attributes.same.is_required());
    let sameness = Some(sameness).filter(|sameness| is_required && !sameness.is_same())?;
    Some((Refusal::Differs(sameness.clone()), Failure::Differs { sameness: sameness.clone() }))
}

impl Asking {
    fn new(shared: &Shared) -> Self {
        let backoff = Backoff::for_answer(shared.scale(), AGAIN);
        Self { since: shared.now, next: shared.now, backoff, attempt: 0, parts: BTreeMap::new() }
    }

    /// Asks one node of each stamp, if the time has come.
    fn ask(&mut self, asked: &[(Stamp, Vec<NodeId>)], book: &Book, shared: &mut Shared) {
        if shared.now >= self.next {
            for (stamp, nodes) in asked {
                let id = nodes[self.attempt % nodes.len()];
                let parts = self.parts.entry(*stamp).or_insert_with(|| TraitParts::new(*stamp));
                if let Some(entry) = book.get(id) {
                    entry.reach(id, self.attempt, &Message::Want(parts.want()), shared);
                }
            }
            self.attempt += 1;
            self.next = self.backoff.after(shared.now, &mut shared.rng);
        }
        shared.timers.set_earlier(Timer::Wave, self.next.min(self.since + LONGEST));
    }
}
