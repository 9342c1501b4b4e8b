//! The token: the first bytes on a connection that proves a path.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use super::Dropped;
use super::header::{MAGIC, TAG, VERSION, array, id};
use crate::model::{JobTag, NodeId};

/// The length of every token, in bytes.
pub const TOKEN: usize = 112;

const KIND: usize = 5;
/// What a session's hello never has in this place.
const PATH: u8 = 2;
const PROVER: Range<usize> = 24..40;
const TARGET: Range<usize> = 40..56;
const DIAL: Range<usize> = 56..60;
const ADDRESS: Range<usize> = 60..76;
const PORT: Range<usize> = 76..78;
/// The offset of the MAC.
const MAC: usize = 80;

/// The bytes that a node writes once on each connection by which it proves a path: which node dials which, at
/// which endpoint.
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
///     56     4  number of the dial, little endian
///     60    16  address dialled (an IPv4 address as ::ffff:a.b.c.d)
///     76     2  port dialled, little endian
///     78     2  zeros
///     80    32  MAC over all bytes before it (BLAKE3, keyed); zeros in a job without a secret
/// ```
///
/// Every process has 128 random bits as its ID, so a MAC is good for these two processes alone, and the
/// number of the dial makes it good for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) prover: NodeId,
    pub(crate) target: NodeId,
    pub(crate) dial: u32,
    pub(crate) dialled: SocketAddr,
}

/// The length of the answer to a path's token, in bytes.
pub const ANSWER: usize = 32;

/// The answer to the token of a path: a BLAKE3 hash of it, keyed in a job with a secret.
pub(super) fn answer(token: &[u8; TOKEN], key: Option<&[u8; 32]>) -> [u8; ANSWER] {
    let mut hasher = key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
    *hasher.update(b"mingle 3 path").update(token).finalize().as_bytes()
}

/// Whether a connection that begins with these bytes proves a path. It may be a session's.
pub(crate) fn begins_path(bytes: &[u8]) -> bool {
    bytes.get(KIND) == Some(&PATH)
}

impl Token {
    pub(super) fn encode(&self, tag: JobTag, key: Option<&[u8; 32]>) -> [u8; TOKEN] {
        let mut bytes = [0; TOKEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[KIND] = PATH;
        bytes[TAG].copy_from_slice(&tag.0);
        bytes[PROVER].copy_from_slice(&self.prover.0);
        bytes[TARGET].copy_from_slice(&self.target.0);
        bytes[DIAL].copy_from_slice(&self.dial.to_le_bytes());
        let address = match self.dialled.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[ADDRESS].copy_from_slice(&address.octets());
        bytes[PORT].copy_from_slice(&self.dialled.port().to_le_bytes());
        if let Some(key) = key {
            let mac = blake3::keyed_hash(key, &bytes[..MAC]);
            bytes[MAC..].copy_from_slice(mac.as_bytes());
        }
        bytes
    }

    pub(super) fn decode(tag: JobTag, key: Option<&[u8; 32]>, bytes: &[u8; TOKEN]) -> Result<Self, Dropped> {
        let zeros = |range: Range<usize>| bytes[range].iter().all(|&byte| byte == 0);
        if bytes[..4] != MAGIC || bytes[4] != VERSION || !zeros(6..TAG.start) || !zeros(PORT.end..MAC) {
            return Err(Dropped::Foreign);
        }
        if bytes[KIND] != PATH {
            return Err(Dropped::Malformed);
        }
        if bytes[TAG] != tag.0 {
            return Err(Dropped::OtherJob);
        }
        let is_authentic = match key {
            // Compared in constant time.
            Some(key) => blake3::keyed_hash(key, &bytes[..MAC]) == blake3::Hash::from(array(&bytes[MAC..])),
            None => zeros(MAC..TOKEN),
        };
        if !is_authentic {
            return Err(Dropped::Unauthentic);
        }
        let ip = Ipv6Addr::from(array::<16>(&bytes[ADDRESS])).to_canonical();
        Ok(Self {
            prover: id(&bytes[PROVER]),
            target: id(&bytes[TARGET]),
            dial: u32::from_le_bytes(array(&bytes[DIAL])),
            dialled: SocketAddr::new(ip, u16::from_le_bytes(array(&bytes[PORT]))),
        })
    }
}
