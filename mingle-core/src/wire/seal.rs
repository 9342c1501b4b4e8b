//! Sealed datagrams: encrypted, authenticated, and accepted once each.
//!
//! The cipher is XChaCha20-Poly1305. Its nonce of 24 bytes is the sender's ID, which is 128 random bits of
//! the operating system's for every process, and a counter. All nodes share one key, and still no nonce is
//! used twice; and since a node needs no randomness while it runs, a simulation is repeatable. The clear
//! header and the counter are authenticated with the body.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use crate::model::NodeId;

pub(super) const COUNTER: usize = 8;
const TAG: usize = 16;

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
        bytes.splice(header..header, counter);
        let (associated, body) = bytes.split_at_mut(header + COUNTER);
        let sealed = self.cipher.encrypt_inout_detached(&nonce(sender, counter), associated, body.into());
        // Fails above 256 GiB.
        debug_assert!(sealed.is_ok());
        bytes.extend_from_slice(&sealed.unwrap_or_default());
    }

    /// The datagram without counter and tag, and the counter; nothing where the datagram is not authentic.
    pub(super) fn open(&self, sender: NodeId, header: usize, bytes: &[u8]) -> Option<(Vec<u8>, u64)> {
        let (rest, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG)?)?;
        let (associated, sealed) = rest.split_at_checked(header + COUNTER)?;
        let mut counter = [0; COUNTER];
        counter.copy_from_slice(&associated[header..]);
        let mut body = sealed.to_vec();
        let tag = Tag::try_from(tag).ok()?;
        let nonce = nonce(sender, counter);
        self.cipher.decrypt_inout_detached(&nonce, associated, body.as_mut_slice().into(), &tag).ok()?;
        let mut plain = associated[..header].to_vec();
        plain.append(&mut body);
        Some((plain, u64::from_le_bytes(counter)))
    }
}

fn nonce(sender: NodeId, counter: [u8; COUNTER]) -> XNonce {
    let mut nonce = XNonce::default();
    nonce[..16].copy_from_slice(&sender.0);
    nonce[16..].copy_from_slice(&counter);
    nonce
}

/// How far behind the newest counter a datagram may arrive. A leader has one counter for all its members, so
/// the counters of two datagrams to one member can be far apart.
const WINDOW: usize = 1024;
/// The most senders that are remembered in a small world.
const SENDERS: usize = 4096;

/// The datagrams of each sender that have been accepted, so that none is accepted twice (as RFC 4303, section
/// 3.4.3).
#[derive(Debug, Clone)]
pub(super) struct Replays {
    senders: BTreeMap<NodeId, ReplayWindow>,
    /// The most senders that are remembered.
    most: usize,
    /// The number of datagrams so far. The sender that was not heard for the longest time is forgotten first.
    clock: u64,
}

#[derive(Debug, Clone)]
struct ReplayWindow {
    newest: u64,
    /// A bit for each of the last counters that has been accepted.
    accepted: [u64; WINDOW / 64],
    /// The clock when the sender was heard last.
    heard: u64,
}

impl Replays {
    /// For a world of `nodes`, each of which may start a second time.
    pub(super) fn new(nodes: usize) -> Self {
        Self { senders: BTreeMap::new(), most: nodes.saturating_mul(2).max(SENDERS), clock: 0 }
    }

    /// Returns whether this datagram is new, and remembers it.
    pub(super) fn accept(&mut self, sender: NodeId, counter: u64) -> bool {
        self.clock += 1;
        if self.senders.len() >= self.most && !self.senders.contains_key(&sender) {
            let oldest = self.senders.iter().min_by_key(|(_, window)| window.heard).map(|(&id, _)| id);
            oldest.map(|id| self.senders.remove(&id));
        }
        let fresh = || ReplayWindow { newest: 0, accepted: [0; WINDOW / 64], heard: 0 };
        let window = self.senders.entry(sender).or_insert_with(fresh);
        window.heard = self.clock;
        window.accept(counter)
    }
}

impl ReplayWindow {
    fn accept(&mut self, counter: u64) -> bool {
        let size = WINDOW as u64;
        if counter.saturating_add(size) <= self.newest {
            return false;
        }
        if counter > self.newest {
            // The counters in between have not arrived.
            for missed in self.newest.max(counter.saturating_sub(size)) + 1..=counter {
                let (index, bit) = place(missed);
                self.accepted[index] &= !bit;
            }
            self.newest = counter;
        }
        let (index, bit) = place(counter);
        let is_new = self.accepted[index] & bit == 0;
        self.accepted[index] |= bit;
        is_new
    }
}

/// The index and the bit of a counter in [`ReplayWindow::accepted`].
#[allow(clippy::cast_possible_truncation, reason = "a remainder of 1,024 fits")]
fn place(counter: u64) -> (usize, u64) {
    let at = (counter % WINDOW as u64) as usize;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId([1; 16]);

    #[test]
    fn every_counter_is_accepted_once_in_any_order_within_the_window() {
        let mut replays = Replays::new(4);
        for counter in [5, 3, 4, 900, 1, 2, 2000, 1999, 977] {
            assert!(replays.accept(A, counter), "{counter}");
            assert!(!replays.accept(A, counter), "{counter} again");
        }
        for old in [1, 5, 900, 976] {
            assert!(!replays.accept(A, old), "{old} is too old");
        }
        assert!(replays.accept(A, 978));
        assert!(replays.accept(A, u64::MAX - 1));
        assert!(!replays.accept(A, 2000));
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
        assert_eq!(sealed.len(), plain.len() + COUNTER + TAG);
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
    fn each_of_many_windows_of_counters_is_accepted_once_although_some_are_lost() {
        for step in [1, 7, 1000, 1024, 5000] {
            let mut replays = Replays::new(2);
            for counter in (1..40_000).step_by(step) {
                assert!(replays.accept(A, counter), "{counter} of every {step}");
                assert!(!replays.accept(A, counter), "{counter} again");
            }
        }
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

    #[test]
    fn whatever_comes_between_no_counter_within_the_window_is_accepted_twice() {
        for step in [1, 2, 63, 64, 65, 1023, 1024] {
            let mut replays = Replays::new(2);
            let sent: Vec<u64> = (1..2500).step_by(step).collect();
            for (at, &counter) in sent.iter().enumerate() {
                assert!(replays.accept(A, counter), "{counter}");
                for earlier in &sent[..=at] {
                    assert!(!replays.accept(A, *earlier), "{earlier} after {counter}");
                }
            }
        }
    }

    #[test]
    fn a_counter_that_was_passed_over_is_accepted_until_1024_others_could_have_come() {
        for (behind, accepted) in [(1, true), (1022, true), (1023, true), (1024, false), (5000, false)] {
            let mut replays = Replays::new(2);
            assert!(replays.accept(A, 9000));
            assert_eq!(replays.accept(A, 9000 - behind), accepted, "{behind} behind");
            assert!(!replays.accept(A, 9000 - behind));
        }
    }
}
