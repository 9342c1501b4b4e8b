//! What travels: datagrams with a clear header and a bincode body, and the token of a proof.
//!
//! ```text
//! offset  size  header of a datagram
//!      0     4  magic "MNGL"
//!      4     1  protocol version
//!      5     1  kind of the message
//!      6     2  length of the body, little endian
//!      8    16  tag of the job
//!     24    16  ID of the sender
//!     40    16  ID of the recipient; zeros for everybody, ones for whoever is there
//!     56     4  generation of the job, little endian
//!     60     8  its origin, little endian
//!     68        body, then zeros where the kind is padded
//! ```
//!
//! In a job with a secret the kind has its highest bit set, a counter of 8 bytes follows the header,
//! the rest is encrypted, and 16 bytes at the end authenticate all of it; see `seal`.
//!
//! Everything that arrives is hostile until decoded: lengths are checked against what is there,
//! lists have a limit each, nothing is allocated by a length from outside, and a body that leaves
//! bytes over is refused. bincode is used in this module alone, so that it can be replaced; the
//! golden bytes in the tests pin what it writes.

mod message;
mod node_info;
mod notice;
mod seal;
mod token;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};

use crate::model::{JobTag, Keys, Lineage, NodeId};
use seal::{Replays, Seal};

pub(crate) use message::{
    Announce, Candidate, Commit, Ended, Introduction, Join, LONGEST_ENTRY, MISSING, Message, NEWEST, PART,
    Part, Prepare, RUNS, Ready, Refusal, Solicit, Want, Welcome, decode_roster, encode_roster,
};
pub use node_info::{Attributes, NodeInfo};
pub use notice::Notice;
pub use token::TOKEN;
pub(crate) use token::Token;

/// The version of the protocol that this library speaks.
pub const VERSION: u8 = 1;

/// The largest datagram that is sent or read: it passes every link unfragmented (IPv6 asks for
/// 1,280 bytes, RFC 8200 section 5, and its headers and a tunnel's need the rest).
pub const MAX_DATAGRAM: usize = 1200;

/// A solicit or a join is padded to this length, and no answer to one is longer: a forged sender
/// address gains nothing.
pub(crate) const PADDED: usize = 576;

const MAGIC: [u8; 4] = *b"MNGL";
const HEADER: usize = 68;
/// What the headers of all versions have in common: up to the tag.
const COMMON: usize = 24;
/// Set in the kind of a sealed datagram.
const SEALED: u8 = 0x80;

/// The clear part of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sender: NodeId,
    /// [`NodeId::ALL`] where everybody is meant, [`NodeId::ANYONE`] where it is not known who is there.
    pub(crate) recipient: NodeId,
    /// Which formation of the job the sender takes part in.
    pub(crate) lineage: Lineage,
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("not a mingle datagram")]
    Foreign,
    #[error("protocol version {0}")]
    Version(u8),
    #[error("another job's")]
    OtherJob,
    #[error("malformed")]
    Malformed,
    /// Sealed with another secret or none, or sealed where this node has none.
    #[error("not authentic")]
    Unauthentic,
    #[error("replayed")]
    Replayed,
}

type Config = Configuration<LittleEndian, Varint, Limit<MAX_DATAGRAM>>;

fn config() -> Config {
    bincode::config::standard().with_little_endian().with_variable_int_encoding().with_limit::<MAX_DATAGRAM>()
}

/// Reads and writes the datagrams of one job; sealed, where the job has a secret.
#[derive(Debug, Clone)]
pub(crate) struct Codec {
    tag: JobTag,
    sealed: Option<(Seal, Replays)>,
    token_key: Option<[u8; 32]>,
}

impl Codec {
    pub(crate) fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        let sealed = keys.map(|keys| (Seal::new(&keys.seal), Replays::default()));
        Self { tag, sealed, token_key: keys.map(|keys| keys.token) }
    }

    /// The datagram that carries `message`.
    ///
    /// # Panics
    /// Where the message does not fit. Every list in a message has a limit that keeps it below; a test
    /// encodes each message at its largest.
    pub(crate) fn encode(&mut self, header: Header, message: &Message) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = message.kind();
        bytes[8..24].copy_from_slice(&self.tag.0);
        bytes[24..40].copy_from_slice(&header.sender.0);
        bytes[40..56].copy_from_slice(&header.recipient.0);
        bytes[56..60].copy_from_slice(&header.lineage.generation.to_le_bytes());
        bytes[60..68].copy_from_slice(&header.lineage.origin.to_le_bytes());
        message.encode_body(config(), &mut bytes);
        let length = u16::try_from(bytes.len() - HEADER).unwrap_or(u16::MAX);
        bytes[6..8].copy_from_slice(&length.to_le_bytes());
        if message.is_padded() {
            bytes.resize(bytes.len().max(PADDED), 0);
        }
        if let Some((seal, _)) = &mut self.sealed {
            bytes[5] |= SEALED;
            seal.seal(header.sender, HEADER, &mut bytes);
        }
        assert!(
            bytes.len() <= MAX_DATAGRAM,
            "a message of kind {} has {} bytes",
            message.kind(),
            bytes.len()
        );
        bytes
    }

    /// The message in a datagram of this job.
    ///
    /// The job is compared before anything is decoded, so that the traffic of other jobs on the same
    /// group costs a comparison.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<(Header, Message), Dropped> {
        let (head, _) = bytes.split_at_checked(COMMON).ok_or(Dropped::Foreign)?;
        if head[..4] != MAGIC {
            return Err(Dropped::Foreign);
        }
        // The tag's place is the same in every version, so that another version of *this* job is told.
        if head[8..24] != self.tag.0 {
            return Err(Dropped::OtherJob);
        }
        if head[4] != VERSION {
            return Err(Dropped::Version(head[4]));
        }
        let (head, _) = bytes.split_at_checked(HEADER).ok_or(Dropped::Malformed)?;
        let sender = id(&head[24..40]);
        if sender == NodeId::ALL || sender == NodeId::ANYONE || bytes.len() > MAX_DATAGRAM {
            return Err(Dropped::Malformed);
        }
        match &mut self.sealed {
            None if head[5] & SEALED != 0 => Err(Dropped::Unauthentic),
            None => decode_plain(bytes),
            Some(_) if head[5] & SEALED == 0 => Err(Dropped::Unauthentic),
            Some((seal, replays)) => {
                let (mut plain, counter) = seal.open(sender, HEADER, bytes).ok_or(Dropped::Unauthentic)?;
                // Authentic beyond doubt, so its sender may take up memory.
                if !replays.accept(sender, counter) {
                    return Err(Dropped::Replayed);
                }
                plain[5] &= !SEALED;
                decode_plain(&plain)
            }
        }
    }

    pub(crate) fn encode_token(&self, token: &Token) -> [u8; TOKEN] {
        token.encode(self.tag, self.token_key.as_ref())
    }

    /// The token in these bytes, or why there is none.
    pub(crate) fn decode_token(&self, bytes: &[u8; TOKEN]) -> Result<Token, Dropped> {
        Token::decode(self.tag, self.token_key.as_ref(), bytes)
    }
}

fn decode_plain(bytes: &[u8]) -> Result<(Header, Message), Dropped> {
    let (head, rest) = bytes.split_at_checked(HEADER).ok_or(Dropped::Malformed)?;
    let length = usize::from(u16::from_le_bytes([head[6], head[7]]));
    let (body, padding) = rest.split_at_checked(length).ok_or(Dropped::Malformed)?;
    let message = Message::decode_body(head[5], body, config()).ok_or(Dropped::Malformed)?;
    let well_padded = if message.is_padded() {
        bytes.len() >= PADDED && padding.iter().all(|&b| b == 0)
    } else {
        padding.is_empty()
    };
    let lineage = Lineage {
        generation: u32::from_le_bytes(head[56..60].try_into().unwrap_or_default()),
        origin: u64::from_le_bytes(head[60..68].try_into().unwrap_or_default()),
    };
    let header = Header { sender: id(&head[24..40]), recipient: id(&head[40..56]), lineage };
    if well_padded { Ok((header, message)) } else { Err(Dropped::Malformed) }
}

fn id(bytes: &[u8]) -> NodeId {
    let mut id = [0; 16];
    id.copy_from_slice(bytes);
    NodeId(id)
}

#[cfg(test)]
mod tests;
