//! The notice by which `mingle watch` lists the jobs of a link. It is no message of the protocol. A node
//! that has waited for long reads it, too, and names the jobs that its user may have meant.
//!
//! ```text
//! offset  size  field
//!      0     4  magic "MNGJ"
//!      4     1  version of the notice, 2
//!      5     1  0: open, 1: sealed
//!      6     1  length of the job ID in bytes; 0 where sealed
//!      7     1  zero
//!      8     8  first half of the tag of the job
//!     16     4  fewest nodes of the world, little endian; 0 where sealed
//!     20     4  most nodes of the world, little endian; 0 where sealed
//!     24     4  members so far, little endian; 0 where sealed
//!     28        job ID
//! ```

use super::{fixed, read_first, write};
use crate::model::{JobId, WorldSize};

const MAGIC: [u8; 4] = *b"MNGJ";
const VERSION: u8 = 2;

/// What is before the job ID.
type Head = ([u8; 4], u8, u8, u8, u8, [u8; 8], [u32; 3]);

/// A notice of a job, which the job's leader sends once a second to all nodes on the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A job without a secret.
    Open {
        /// The job's ID.
        job: JobId,
        /// How many nodes the world must have.
        world: WorldSize,
        /// How many members the job has.
        joined: u32,
    },
    /// A job with a secret: the first half of its tag, which distinguishes the job from other jobs. Anyone
    /// who knows the job ID can compute the tag.
    Sealed([u8; 8]),
}

impl Notice {
    /// The datagram.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (sealed, name, numbers) = match self {
            Self::Open { job, world, joined } => {
                (0, job.as_str(), [world.min().get(), world.max().get(), *joined])
            }
            Self::Sealed(_) => (1, "", [0; 3]),
        };
        // A job ID has at most 128 bytes.
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let head: Head = (MAGIC, VERSION, sealed, length, 0, self.tag(), numbers);
        [&write(&head, fixed()), name.as_bytes()].concat()
    }

    /// The first half of the job's tag.
    pub fn tag(&self) -> [u8; 8] {
        match self {
            Self::Open { job, .. } => job.tag().beginning(),
            Self::Sealed(tag) => *tag,
        }
    }

    /// The notice in a datagram; none if the datagram is not a notice.
    pub fn decode(mut name: &[u8]) -> Option<Self> {
        let head: Head = read_first(&mut name, fixed())?;
        let (magic, version, sealed, length, zero, tag, [min, max, joined]) = head;
        if (magic, version, usize::from(length), zero) != (MAGIC, VERSION, name.len(), 0) {
            return None;
        }
        match sealed {
            0 => {
                let job: JobId = std::str::from_utf8(name).ok()?.parse().ok()?;
                // A job ID that does not belong to the tag would stand for another job.
                let world = WorldSize::try_from((min, max)).ok()?;
                (job.tag().beginning() == tag).then_some(Self::Open { job, world, joined })
            }
            1 if name.is_empty() && [min, max, joined] == [0; 3] => Some(Self::Sealed(tag)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_document_and_come_back() {
        let job: JobId = "foo".parse().unwrap();
        let tag = job.tag().beginning();
        let open = Notice::Open { job: job.clone(), world: "2:4".parse().unwrap(), joined: 3 };
        let bytes_with_tag = |first: &[u8], rest: &[u8]| [first, &tag, rest].concat();
        for (notice, bytes) in [
            (open, bytes_with_tag(b"MNGJ\x02\x00\x03\x00", b"\x02\0\0\0\x04\0\0\0\x03\0\0\0foo")),
            (Notice::Sealed(tag), bytes_with_tag(b"MNGJ\x02\x01\x00\x00", &[0; 12])),
        ] {
            let written = notice.encode();
            assert_eq!(written, bytes);
            assert_eq!(Notice::decode(&written), Some(notice));
            for length in 0..written.len() {
                assert_eq!(Notice::decode(&written[..length]), None, "{length} bytes");
            }
            for (at, wrong) in [(0, 0), (4, 1), (5, 2), (6, 200), (7, 1), (8, !tag[0])] {
                let mut changed = written.clone();
                changed[at] = wrong;
                let is_other = at == 8 && matches!(Notice::decode(&changed), Some(Notice::Sealed(_)));
                assert!(is_other || Notice::decode(&changed).is_none(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_sealed_notice_has_nothing_but_half_of_a_tag() {
        let job: JobId = "foo".parse().unwrap();
        let sealed = Notice::Sealed(job.tag().beginning()).encode();
        for at in [16, 19, 20, 23, 24, 27] {
            let mut changed = sealed.clone();
            changed[at] = 1;
            assert_eq!(Notice::decode(&changed), None, "byte {at}");
        }
        let mut named = [&sealed[..], b"foo"].concat();
        named[6] = 3;
        assert_eq!(Notice::decode(&named), None, "a name");
        let open = Notice::Open { job: job.clone(), world: "2:4".parse().unwrap(), joined: 3 };
        let mut of_none = open.encode();
        of_none[16..20].copy_from_slice(&[0; 4]);
        assert_eq!(Notice::decode(&of_none), None, "a world of none");
        of_none[16] = 5;
        assert_eq!(Notice::decode(&of_none), None, "the fewest are above the most");
    }
}
