//! The token: the only bytes that a connection carries.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Dropped, MAGIC, VERSION, id};
use crate::model::{JobTag, NodeId};

/// The length of a token in bytes, the same for every one: there is no stream to parse.
pub const TOKEN: usize = 112;
/// Where the MAC starts.
const MAC: usize = 80;

/// What a node sends first, and alone, on a connection that it opens: who dials whom, at which
/// address.
///
/// ```text
/// offset  size
///      0     4  magic "MNGL"
///      4     1  protocol version
///      5     3  zeros
///      8    16  tag of the job
///     24    16  ID of the node that dials
///     40    16  ID of the node that it means to reach
///     56     4  number of the dial, little endian
///     60    16  address dialled (an IPv4 address as ::ffff:a.b.c.d)
///     76     2  port dialled, little endian
///     78     2  zeros
///     80    32  MAC over all that is before it (BLAKE3, keyed); zeros in a job without a secret
/// ```
///
/// The IDs are 128 random bits for every process, so a MAC is of use for these two alone; the number
/// of the dial makes it good for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) prover: NodeId,
    pub(crate) target: NodeId,
    pub(crate) dial: u32,
    pub(crate) dialled: SocketAddr,
}

impl Token {
    pub(super) fn encode(&self, tag: JobTag, key: Option<&[u8; 32]>) -> [u8; TOKEN] {
        let mut bytes = [0; TOKEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[8..24].copy_from_slice(&tag.0);
        bytes[24..40].copy_from_slice(&self.prover.0);
        bytes[40..56].copy_from_slice(&self.target.0);
        bytes[56..60].copy_from_slice(&self.dial.to_le_bytes());
        let address = match self.dialled.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[60..76].copy_from_slice(&address.octets());
        bytes[76..78].copy_from_slice(&self.dialled.port().to_le_bytes());
        if let Some(key) = key {
            let mac = blake3::keyed_hash(key, &bytes[..MAC]);
            bytes[MAC..].copy_from_slice(mac.as_bytes());
        }
        bytes
    }

    /// The token in these bytes, or why they are none of the job `tag`.
    pub(super) fn decode(tag: JobTag, key: Option<&[u8; 32]>, bytes: &[u8; TOKEN]) -> Result<Self, Dropped> {
        let zeros = |range: std::ops::Range<usize>| bytes[range].iter().all(|&b| b == 0);
        if bytes[..4] != MAGIC || bytes[4] != VERSION || !zeros(5..8) || !zeros(78..MAC) {
            return Err(Dropped::Foreign);
        }
        if bytes[8..24] != tag.0 {
            return Err(Dropped::OtherJob);
        }
        let authentic = match key {
            // Compared in constant time.
            Some(key) => blake3::keyed_hash(key, &bytes[..MAC]) == blake3::Hash::from(array(&bytes[MAC..])),
            None => zeros(MAC..TOKEN),
        };
        if !authentic {
            return Err(Dropped::Unauthentic);
        }
        let ip = Ipv6Addr::from(array::<16>(&bytes[60..76])).to_canonical();
        Ok(Self {
            prover: id(&bytes[24..40]),
            target: id(&bytes[40..56]),
            dial: u32::from_le_bytes(array(&bytes[56..60])),
            dialled: SocketAddr::new(ip, u16::from_le_bytes(array(&bytes[76..78]))),
        })
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
