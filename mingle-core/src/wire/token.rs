//! The token: the first bytes on a connection that proves a path.

use super::header::{self, HEADER, Header, VERSION, array};
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
    header::kind(bytes) == PATH && !header::is_sealed(bytes)
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

/// The target of the path that a token begins; nothing where the bytes are no token of this job.
pub(super) fn target(tag: JobTag, key: Option<&[u8; 32]>, bytes: &[u8; TOKEN]) -> Option<NodeId> {
    header::check(tag, VERSION, bytes).ok()?;
    let is_authentic = match key {
        // Compared in constant time.
        Some(key) => blake3::keyed_hash(key, &bytes[..MAC]) == blake3::Hash::from(array(&bytes[MAC..])),
        None => bytes[MAC..] == [0; TOKEN - MAC],
    };
    let is_well_formed = begins_path(bytes) && header::body_length(bytes) == 0;
    (is_authentic && is_well_formed).then(|| Header::decode(bytes).recipient)
}
