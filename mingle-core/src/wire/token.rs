//! The token: the first bytes on a connection that proves a path.

use super::header::{HEADER, Header, KIND};
use super::session::HELLO;
use crate::model::{JobTag, NodeId};

/// The length of a token in bytes: that of a session's hello, so that either is read first.
pub const TOKEN: usize = HELLO;
/// The length of the answer to a path's token, in bytes.
pub const ANSWER: usize = 32;

/// What a session's hello never has in the place of a kind.
const PATH: u8 = 2;
/// The offset of the MAC.
const MAC: usize = HEADER + 8;

/// The answer to the token of a path: a BLAKE3 hash of it, keyed in a job with a secret.
pub(super) fn answer(token: &[u8; TOKEN], key: Option<&[u8; 32]>) -> [u8; ANSWER] {
    let mut hasher = key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
    *hasher.update(b"mingle 3 path").update(token).finalize().as_bytes()
}

/// Whether a connection that begins with these bytes proves a path. It may be a session's.
pub(crate) fn begins_path(bytes: &[u8; TOKEN]) -> bool {
    bytes[KIND] == PATH
}

/// The bytes that a node writes once on each connection by which it proves a path: that of the dial of this
/// number, from the sender of the header to its recipient.
///
/// ```text
/// offset  size  field
///      0     4  magic "MNGL"
///      4     1  protocol version
///      5     1  2, which the hello of a session never has here
///      6     2  zeros
///      8    16  tag of the job
///     24    16  ID of the prover, the node that dials
///     40    16  ID of the target, the node that it wants to reach
///     56     8  number of the dial, little endian
///     64    32  MAC over all bytes before it (BLAKE3, keyed); zeros in a job without a secret
/// ```
///
/// Every process has 128 random bits as its ID, so a MAC is good for these two processes alone, and the
/// number of the dial makes it good for one connection.
pub(super) fn encode(tag: JobTag, key: Option<&[u8; 32]>, header: Header, dial: u32) -> [u8; TOKEN] {
    let mut bytes = [0; TOKEN];
    bytes[..HEADER].copy_from_slice(&header.encode(tag, PATH, 0));
    bytes[HEADER..MAC].copy_from_slice(&u64::from(dial).to_le_bytes());
    if let Some(key) = key {
        let mac = blake3::keyed_hash(key, &bytes[..MAC]);
        bytes[MAC..].copy_from_slice(mac.as_bytes());
    }
    bytes
}

/// Answers when other nodes prove their paths to this node. It keeps no state: only the prover keeps track of
/// a path.
#[derive(Debug, Clone)]
pub struct PathTarget {
    pub(super) tag: JobTag,
    pub(super) key: Option<[u8; 32]>,
    pub(super) me: NodeId,
}

impl PathTarget {
    /// The answer to a connection that has brought this token. The answer is due when two more bytes, the
    /// length of the padding (little endian), and the padding itself have arrived. None if the bytes are not
    /// a token of a path to this node: then close the connection.
    #[must_use]
    pub fn answer(&self, token: &[u8; TOKEN]) -> Option<[u8; ANSWER]> {
        let (kind, length, header) = Header::decode(self.tag, token).ok()?;
        let is_authentic = match &self.key {
            // Compared in constant time.
            Some(key) => blake3::keyed_hash(key, &token[..MAC]) == token[MAC..],
            None => token[MAC..] == [0; TOKEN - MAC],
        };
        let is_for_this = kind == PATH && length == 0 && header.recipient == self.me;
        (is_authentic && is_for_this).then(|| answer(token, self.key.as_ref()))
    }
}
