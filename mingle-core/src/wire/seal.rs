//! Sealed datagrams: encrypted, authenticated, and accepted once each.
//!
//! The cipher is XChaCha20-Poly1305. Its nonce of 24 bytes is the sender's ID, which is 128 random bits of
//! the operating system's for every process, and a counter. All nodes share one key, and still no nonce is
//! used twice; and since a node needs no randomness while it runs, a simulation is repeatable. The clear
//! header and the counter are authenticated with the body.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::model::NodeId;

pub(super) const COUNTER: usize = 8;

/// Seals and opens datagrams with a job's key, and counts the datagrams that this node sends.
#[derive(Clone)]
pub(super) struct Seal {
    cipher: XChaCha20Poly1305,
    counter: u64,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl Seal {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()), counter: 0 }
    }

    /// Seals the body, which begins at offset `header`. The counter goes between header and body, the tag
    /// after the body.
    pub(super) fn seal(&mut self, sender: NodeId, header: usize, bytes: &mut Vec<u8>) {
        self.counter += 1;
        let counter = self.counter.to_le_bytes();
        let body = bytes.split_off(header);
        bytes.extend(counter);
        let sealed = self.cipher.encrypt(&nonce(sender, counter), Payload { msg: &body, aad: bytes });
        // Fails above 256 GiB.
        debug_assert!(sealed.is_ok());
        bytes.extend(sealed.unwrap_or_default());
    }

    /// The datagram without counter and tag, and the counter; nothing where the datagram is not authentic.
    pub(super) fn open(&self, sender: NodeId, header: usize, bytes: &[u8]) -> Option<(Vec<u8>, u64)> {
        let (associated, sealed) = bytes.split_at_checked(header + COUNTER)?;
        let counter = *associated.last_chunk()?;
        let payload = Payload { msg: sealed, aad: associated };
        let body = self.cipher.decrypt(&nonce(sender, counter), payload).ok()?;
        Some(([&associated[..header], &body].concat(), u64::from_le_bytes(counter)))
    }
}

fn nonce(sender: NodeId, counter: [u8; COUNTER]) -> XNonce {
    let mut nonce = XNonce::default();
    nonce[..16].copy_from_slice(&sender.0);
    nonce[16..].copy_from_slice(&counter);
    nonce
}

/// The most senders that are remembered in a small world.
const SENDERS: usize = 4096;

/// The last datagram of each sender, so that no recording is accepted. Nor is a datagram that another of its
/// sender has overtaken: the later one says what is so now.
#[derive(Debug, Clone)]
pub(super) struct Replays {
    /// The newest counter of each sender, and the clock when it was heard last.
    senders: BTreeMap<NodeId, (u64, u64)>,
    /// The most senders that are remembered.
    most: usize,
    /// The number of datagrams so far. The sender that was not heard for the longest time is forgotten first.
    clock: u64,
}

impl Replays {
    /// For a world of `nodes`, each of which may start a second time.
    pub(super) fn new(nodes: usize) -> Self {
        Self { senders: BTreeMap::new(), most: nodes.saturating_mul(2).max(SENDERS), clock: 0 }
    }

    /// Returns whether this datagram is news of its sender, and remembers it.
    pub(super) fn accept(&mut self, sender: NodeId, counter: u64) -> bool {
        self.clock += 1;
        if self.senders.len() >= self.most && !self.senders.contains_key(&sender) {
            let oldest = self.senders.iter().min_by_key(|(_, (_, heard))| heard).map(|(&id, _)| id);
            oldest.map(|id| self.senders.remove(&id));
        }
        let (newest, heard) = self.senders.entry(sender).or_default();
        *heard = self.clock;
        let is_news = counter > *newest;
        *newest = counter.max(*newest);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId([1; 16]);

    #[test]
    fn a_counter_is_accepted_if_none_of_its_sender_was_as_high() {
        let mut replays = Replays::new(4);
        for (counter, accepted) in [(5, true), (5, false), (3, false), (900, true), (899, false), (901, true)]
        {
            assert_eq!(replays.accept(A, counter), accepted, "{counter}");
        }
        assert!(replays.accept(NodeId([2; 16]), 1), "each sender counts by itself");
        assert!(replays.accept(A, u64::MAX) && !replays.accept(A, u64::MAX));
    }

    #[test]
    fn the_memory_of_senders_is_bounded_and_keeps_those_that_go_on() {
        let mut replays = Replays::new(4);
        assert!(replays.accept(A, 1));
        for n in 1..20_000u128 {
            assert!(replays.accept(NodeId(n.to_be_bytes()), 1));
            assert!(!replays.accept(A, 1), "a sender that goes on is not forgotten");
        }
        assert_eq!(replays.senders.len(), SENDERS);
    }

    #[test]
    fn a_sealed_datagram_opens_as_it_was_and_not_if_any_bit_is_changed() {
        let mut seal = Seal::new(&[7; 32]);
        let plain = b"header..the body".to_vec();
        let mut sealed = plain.clone();
        seal.seal(A, 8, &mut sealed);
        assert_eq!(sealed.len(), plain.len() + COUNTER + 16);
        assert_eq!(seal.open(A, 8, &sealed), Some((plain, 1)));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(seal.open(A, 8, &changed), None, "byte {at}");
            }
        }
        for length in 0..sealed.len() {
            assert_eq!(seal.open(A, 8, &sealed[..length]), None, "{length} bytes");
        }
        assert_eq!(seal.open(NodeId([2; 16]), 8, &sealed), None, "another sender's nonce");
        assert_eq!(Seal::new(&[8; 32]).open(A, 8, &sealed), None, "another key");
    }

    #[test]
    fn the_sender_that_was_silent_longest_is_forgotten_first() {
        let mut replays = Replays::new(2);
        let most = replays.most;
        let id = |number: usize| NodeId(u128::try_from(number).unwrap().to_be_bytes());
        for number in 0..most {
            assert!(replays.accept(id(number), 1));
        }
        assert!(replays.accept(id(0), 2));
        assert!(replays.accept(id(most), 1), "one is forgotten");
        assert!(!replays.accept(id(0), 2), "a replay");
    }

    #[test]
    fn twice_as_many_senders_as_the_world_has_nodes_are_remembered_and_4096_at_least() {
        for (nodes, most) in [(0, 4096), (4, 4096), (2048, 4096), (2049, 4098), (10_000, 20_000)] {
            assert_eq!(Replays::new(nodes).most, most, "{nodes} nodes");
        }
    }
}
