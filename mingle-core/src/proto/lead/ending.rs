//! The end of a leader for which no world can form: its members learn why.

use std::time::Duration;

use super::book::{Book, Entry};
use crate::model::{NodeId, Peer};
use crate::proto::report::Failure;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{Refusal, UNREADY};

/// How long the leader stays until all have read why.
const FAREWELL: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) refusal: Refusal,
    failure: Failure,
    until: Time,
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
    /// Tells the members and standbys.
    pub(super) fn start(refusal: Refusal, failure: Failure, book: &Book, shared: &mut Shared) -> Self {
        book.refuse_all(&refusal, shared);
        let until = shared.now + FAREWELL;
        shared.timers.set(Timer::Round, until);
        Self { refusal, failure, until }
    }

    /// The failure that this node itself returns, once all have read it or left, or have had their time.
    pub(super) fn over(&self, book: &Book, shared: &Shared) -> Option<Failure> {
        let knows =
            |id| shared.links.get(id).is_none_or(|peer| !peer.link.is_there() || peer.link.session.is_read());
        (shared.now >= self.until || book.entries().all(|(id, _)| knows(id))).then(|| self.failure.clone())
    }
}
