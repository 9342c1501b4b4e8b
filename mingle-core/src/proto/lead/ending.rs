//! The end of a leader for which no world can form: its members learn why.

use std::time::Duration;

use super::book::{Book, Entry};
use crate::model::NodeId;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Refusal, UNREADY};

/// How long the leader stays until all have read why.
const FAREWELL: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) refusal: Refusal,
    until: Time,
}

/// Why no world forms where these members were not ready in round after round.
pub(super) fn unready(unready: &[NodeId], book: &Book) -> Refusal {
    let named = unready.iter().filter_map(|&id| book.get(id).map(Entry::peer));
    Refusal::Unready(named.take(UNREADY).collect())
}

impl Ending {
    /// Tells the members and standbys.
    pub(super) fn start(refusal: Refusal, book: &Book, shared: &mut Shared) -> Self {
        book.refuse_all(&refusal, shared);
        let until = shared.now + FAREWELL;
        shared.timers.set(Timer::Round, until);
        Self { refusal, until }
    }

    /// Whether all have read it or left, or have had their time.
    pub(super) fn is_over(&self, book: &Book, shared: &Shared) -> bool {
        let knows =
            |id| shared.links.get(id).is_none_or(|peer| !peer.link.is_there() || peer.link.session.is_read());
        shared.now >= self.until || book.entries().all(|(id, _)| knows(id))
    }
}
