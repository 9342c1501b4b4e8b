//! The token: the only bytes that a connection carries.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{MAGIC, VERSION, id};
use crate::id::{JobTag, NodeId};

/// The length of a token in bytes, the same for every one: there is no stream to parse.
pub const TOKEN: usize = 112;

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
///     80    32  zeros: the place of the MAC of a job with a secret
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) prover: NodeId,
    pub(crate) target: NodeId,
    pub(crate) dial: u32,
    pub(crate) dialled: SocketAddr,
}

impl Token {
    pub(crate) fn encode(&self, tag: JobTag) -> [u8; TOKEN] {
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
        bytes
    }

    /// The token in these bytes, or nothing where they are not one of the job `tag`.
    pub(crate) fn decode(tag: JobTag, bytes: &[u8; TOKEN]) -> Option<Self> {
        let zeros = |range: std::ops::Range<usize>| bytes[range].iter().all(|&b| b == 0);
        let clear = bytes[..4] == MAGIC && bytes[4] == VERSION && bytes[8..24] == tag.0;
        if !clear || !zeros(5..8) || !zeros(78..TOKEN) {
            return None;
        }
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[60..76]);
        let ip = Ipv6Addr::from(address).to_canonical();
        Some(Self {
            prover: id(&bytes[24..40]),
            target: id(&bytes[40..56]),
            dial: u32::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59]]),
            dialled: SocketAddr::new(ip, u16::from_le_bytes([bytes[76], bytes[77]])),
        })
    }
}
