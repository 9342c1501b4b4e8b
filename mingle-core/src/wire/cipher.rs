//! The cipher of what TCP carries in a job with a secret: ChaCha20-Poly1305 (RFC 8439), with a number as the
//! nonce, which is used once with each key.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};

/// How many bytes longer what is sealed is: the tag at its end.
pub(super) const SEAL: usize = 16;

/// The cipher with one key.
pub(super) struct Cipher(ChaCha20Poly1305);

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(ChaCha20Poly1305::new(key.into()))
    }

    /// Seals what is behind the first `clear` bytes, which are authenticated with it. No two calls may have
    /// the same number and other bytes.
    pub(super) fn close(&self, number: u64, clear: usize, bytes: &mut Vec<u8>) {
        let (associated, body) = bytes.split_at_mut(clear);
        let tag = self.0.encrypt_inout_detached(&nonce(number), associated, body.into());
        // Fails above 256 GiB.
        debug_assert!(tag.is_ok());
        bytes.extend_from_slice(&tag.unwrap_or_default());
    }

    /// What was sealed behind the first `clear` bytes; nothing where it is not authentic.
    pub(super) fn open(&self, number: u64, clear: usize, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let end = bytes.len().checked_sub(SEAL).filter(|end| *end >= clear)?;
        let tag = Tag::try_from(&bytes[end..]).ok()?;
        bytes.truncate(end);
        let (associated, body) = bytes.split_at_mut(clear);
        self.0.decrypt_inout_detached(&nonce(number), associated, body.into(), &tag).ok()?;
        bytes.drain(..clear);
        Some(bytes)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce
}
