//! The clear header of a datagram, and where its fields lie.
//!
//! ```text
//! offset  size  field
//!      0     4  magic "MNGL"
//!      4     1  protocol version
//!      5     1  kind of the message; the highest bit is set where the datagram is sealed
//!      6     2  length of the body in bytes, little endian
//!      8    16  tag of the job
//!     24    16  ID of the sender
//!     40    16  ID of the recipient; zeros for all nodes, ones (0xff) for any node at the address
//!     56        body, then zeros where the kind is padded
//! ```
//!
//! Every version of the protocol has the same first 24 bytes. A token has the same first 8 bytes but for the
//! kind and the length, and the same tag.

use std::ops::Range;

use super::{Dropped, fixed, read_first, write};
use crate::model::{JobTag, NodeId};

/// The version of the protocol that this library speaks.
pub const VERSION: u8 = 3;

const MAGIC: [u8; 4] = *b"MNGL";
/// The length of a header in bytes.
pub(super) const HEADER: usize = 56;

/// The length of the part that is the same in every version of the protocol.
const COMMON: usize = 24;
pub(super) const KIND: usize = 5;
const TAG: Range<usize> = 8..24;
const RECIPIENT: Range<usize> = 40..56;
/// Set in the kind of a sealed datagram.
pub(super) const SEALED: u8 = 0x80;

/// All fields, in their order.
type Fields = ([u8; 4], u8, u8, u16, JobTag, NodeId, NodeId);

/// The part of the header that the protocol's logic reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sender: NodeId,
    /// One node, [`NodeId::ALL`] in a multicast, or [`NodeId::ANYONE`] in a datagram to a seed.
    pub(crate) recipient: NodeId,
}

impl Header {
    /// A header of this kind, before a body of this length.
    pub(super) fn encode(self, tag: JobTag, kind: u8, body: usize) -> Vec<u8> {
        let body = u16::try_from(body).unwrap_or(u16::MAX);
        let fields: Fields = (MAGIC, VERSION, kind, body, tag, self.sender, self.recipient);
        write(&fields, fixed())
    }

    /// The kind, the length of the body and the header of a datagram of this job. Compares before it decodes,
    /// so that the traffic of other jobs in the same group costs little.
    pub(super) fn decode(tag: JobTag, mut datagram: &[u8]) -> Result<(u8, usize, Self), Dropped> {
        if datagram.len() < COMMON || datagram[..4] != MAGIC {
            return Err(Dropped::Foreign);
        }
        // Before the version, so that a node can warn that another node of its own job has another version.
        if datagram[TAG] != tag.0 {
            return Err(Dropped::OtherJob);
        }
        if datagram[4] != VERSION {
            return Err(Dropped::Version(datagram[4]));
        }
        let fields: Option<Fields> = read_first(&mut datagram, fixed());
        let (_, _, kind, body, _, sender, recipient) = fields.ok_or(Dropped::Malformed)?;
        Ok((kind, body.into(), Self { sender, recipient }))
    }
}

/// Whether a datagram may arrive at a group: its clear header names all nodes as the recipient, or it is of
/// another version, whose header is not known.
pub(crate) fn may_be_for_group(datagram: &[u8]) -> bool {
    datagram.get(4) != Some(&VERSION) || datagram.get(RECIPIENT).is_some_and(|to| to == NodeId::ALL.0)
}
