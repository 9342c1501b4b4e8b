//! The end of a leader for which no world can form: its members learn why.

use std::time::Duration;

use super::book::{Book, Entry};
use crate::model::{NodeId, Peer};
use crate::proto::report::Failure;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::proto::waves::Waves;
use crate::wire::{Message, Refusal, UNREADY};

/// How long the refusal is repeated.
const FAREWELL: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(super) struct Ending {
    refusal: Refusal,
    failure: Failure,
    until: Time,
    waves: Waves,
}

/// Why no world forms where one node has IPv6 alone, and another IPv4 alone.
pub(super) fn apart(six: NodeId, four: NodeId, book: &Book, shared: &Shared) -> Option<(Refusal, Failure)> {
    let peer =
        |id: NodeId| if id == shared.me() { Some(shared.peer()) } else { book.get(id).map(Entry::peer) };
    let (six, four) = (peer(six)?, peer(four)?);
    Some((Refusal::NoCommonFamily(six.clone(), four.clone()), Failure::NoCommonFamily { six, four }))
}

/// Why no world forms where these members were not ready in round after round.
pub(super) fn unready(unready: &[NodeId], book: &Book) -> (Refusal, Failure) {
    let named = unready.iter().filter_map(|&id| book.get(id).map(Entry::peer));
    let nodes: Vec<Peer> = named.take(UNREADY).collect();
    (Refusal::Unready(nodes.iter().cloned().collect()), Failure::Unready { nodes })
}

impl Ending {
    pub(super) fn start(refusal: Refusal, failure: Failure, book: &mut Book, shared: &mut Shared) -> Self {
        book.retain_members_and_standbys();
        shared.timers.set(Timer::Wave, shared.now);
        let waves = Waves::in_round(shared.scale(), shared.now);
        Self { refusal, failure, until: shared.now + FAREWELL, waves }
    }

    pub(super) fn refusal(&self) -> Message {
        Message::Refuse(self.refusal.clone())
    }

    /// The failure that this node itself returns, once all have left or have had their time.
    pub(super) fn over(&self, book: &Book, now: Time) -> Option<Failure> {
        (now >= self.until || book.is_empty()).then(|| self.failure.clone())
    }

    /// Sends the refusal to those that have not left.
    pub(super) fn repeat(&mut self, book: &Book, shared: &mut Shared) {
        let burst = self.waves.burst(|| book.entries().map(|(id, _)| id).collect(), shared);
        let refusal = self.refusal();
        for id in burst {
            if let Some(entry) = book.get(id) {
                entry.reach(id, self.waves.number(), &refusal, shared);
            }
        }
    }
}
