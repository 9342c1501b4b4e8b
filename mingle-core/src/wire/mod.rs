//! The wire format: datagrams with a clear header and a bincode body, and the token of a proof.
//!
//! `header` has the clear part of a datagram, `message` what its body says, `seal` what a job's secret adds;
//! `session` the bytes of a session, `forming` and `world` what its frames say before and after a world has
//! formed; `node_info` and `traits` what a node says of itself; `token` the first bytes on a connection that
//! proves a path; `notice` the datagram to the directory group.
//!
//! All input is hostile until it is decoded: lengths are checked against the bytes that are there, every list
//! has a limit, no length from the network decides an allocation, and a body with bytes left over is dropped.
//! bincode is used in this module alone, so that it can be replaced; the golden bytes in the tests pin what
//! it writes.

mod forming;
mod header;
mod message;
mod node_info;
mod notice;
mod seal;
pub(crate) mod session;
#[cfg(feature = "testing")]
#[path = "../../testing/mod.rs"]
pub mod testing;
#[cfg(test)]
mod tests;
mod token;
mod traits;
pub(crate) mod world;

use crate::model::{JobTag, Keys, NodeId, WorldSize};
use bincode::config::{Config, Configuration, Limit, LittleEndian, Varint};
use header::{HEADER, SEALED};
use seal::{Replays, Seal};
use serde::{Deserialize, Serialize};

pub(crate) use forming::{
    Answer, BROKEN, Broken, BrokenTo, Commit, Join, PART, Part, Partner, Prepare, REFUSED, Refusal, Said,
    Trouble, UNREADY, WELCOME, Welcome,
};
pub(crate) use header::Header;
pub use header::VERSION;
pub(crate) use header::may_be_for_group;
pub(crate) use message::{Announce, Candidate, Count, Introduction, Message, NEWEST, RUNS, Running, Solicit};
pub(crate) use node_info::ADDRESSES;
pub use node_info::{Attributes, NodeInfo, Reach};
pub use notice::Notice;
pub use session::Frame;
pub(crate) use session::{Body, kind_of};
pub(crate) use token::begins_path;
pub use token::{ANSWER, PathTarget, TOKEN};
pub(crate) use traits::{decode_traits, encode_traits};

/// The largest datagram that mingle sends or reads, in bytes. It passes every link unfragmented: IPv6
/// requires 1,280 bytes (RFC 8200, section 5), and the rest is for the headers of IPv6 and of a tunnel.
pub const MAX_DATAGRAM: usize = 1200;

/// The least length, in bytes, of each message after which its recipient writes to an address that it has
/// not heard before: an announce, a solicit, a hint and a query. No single answer is longer, so a
/// forged address gains little.
pub(crate) const PADDED: usize = 576;

/// The longest padding: that of a datagram is compared with a part of it, all bytes at once.
const ZEROS: &[u8] = &[0; MAX_DATAGRAM];

/// Why a datagram or a token was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    Foreign,
    Version(u8),
    OtherJob,
    Malformed,
    /// Sealed with another secret, not sealed where this node has a secret, or sealed where it has none.
    Unauthentic,
    /// The same, of an observer, which needs no secret to ask. It says nothing of the job's nodes.
    Observer,
    Replayed,
}

/// The most bytes that a datagram may claim: bincode counts numbers and lengths at their full width, and not
/// as they are written.
const CLAIMED: usize = 2 * MAX_DATAGRAM;

fn config() -> Configuration<LittleEndian, Varint, Limit<CLAIMED>> {
    bincode::config::standard().with_limit()
}

/// The most bytes that the body of a frame may claim, as bincode counts numbers and lengths: a plan of 10,000
/// nodes with 16 addresses each.
const CLAIMED_BY_FRAME: usize = 8 << 20;

fn frame_config() -> Configuration<LittleEndian, Varint, Limit<CLAIMED_BY_FRAME>> {
    bincode::config::standard().with_limit()
}

/// The numbers of headers have a fixed length.
fn fixed() -> impl Config {
    bincode::config::standard().with_fixed_int_encoding()
}

fn write<T: Serialize>(value: &T, config: impl Config) -> Vec<u8> {
    let bytes = bincode::serde::encode_to_vec(value, config);
    debug_assert!(bytes.is_ok(), "writing to a vector does not fail: {bytes:?}");
    bytes.unwrap_or_default()
}

/// The value in these bytes; nothing where some are left over.
fn read<'a, T: Deserialize<'a>>(mut bytes: &'a [u8], config: impl Config) -> Option<T> {
    let value = read_first(&mut bytes, config)?;
    bytes.is_empty().then_some(value)
}

/// The bytes of a message that hosts exchange beside the protocol, with the limits of a frame.
pub fn to_bytes<T: Serialize>(message: &T) -> Vec<u8> {
    write(message, frame_config())
}

/// The message in these bytes; none if they are no such message, or more.
pub fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    read(bytes, frame_config())
}

/// The first value in these bytes, of which it leaves the others.
fn read_first<'a, T: Deserialize<'a>>(bytes: &mut &'a [u8], config: impl Config) -> Option<T> {
    let (value, used) = bincode::serde::borrow_decode_from_slice(bytes, config).ok()?;
    *bytes = &bytes[used..];
    Some(value)
}

/// Reads and writes the datagrams and tokens of one job; sealed, where the job has a secret.
#[derive(Debug, Clone)]
pub(crate) struct Codec {
    tag: JobTag,
    sealed: Option<(Seal, Replays)>,
    token_key: Option<[u8; 32]>,
}

impl Codec {
    pub(crate) fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        let sealed = keys.map(|keys| (Seal::new(&keys.seal), Replays::new(0)));
        Self { tag, sealed, token_key: keys.map(|keys| keys.token) }
    }

    /// The same for a node of a world of this size, every node of which may send to it.
    pub(crate) fn for_world(mut self, world: WorldSize) -> Self {
        if let Some((_, replays)) = &mut self.sealed {
            *replays = Replays::new(usize::try_from(world.max().get()).unwrap_or(usize::MAX));
        }
        self
    }

    /// The datagram that carries `message`.
    ///
    /// # Panics
    /// If the message does not fit. The limit of every list in a message keeps it below; a test encodes each
    /// message at its largest.
    pub(crate) fn encode(&mut self, header: Header, message: &Message) -> Vec<u8> {
        let (kind, body) = message.encode();
        let sealed = if self.sealed.is_some() { SEALED } else { 0 };
        let mut bytes = header.encode(self.tag, kind | sealed, body.len());
        bytes.extend(body);
        if message.is_padded() {
            bytes.resize(bytes.len().max(PADDED), 0);
        }
        if let Some((seal, _)) = &mut self.sealed {
            seal.seal(header.sender, HEADER, &mut bytes);
        }
        assert!(bytes.len() <= MAX_DATAGRAM, "a message of kind {kind} has {} bytes", bytes.len());
        bytes
    }

    /// The header and the message of a datagram of this job.
    ///
    /// # Errors
    /// [`Dropped`], with the reason, for any other datagram.
    pub(crate) fn decode(&mut self, datagram: &[u8]) -> Result<(Header, Message), Dropped> {
        let (kind, length, header) = Header::decode(self.tag, datagram)?;
        let (is_sealed, kind, sender) = (kind & SEALED != 0, kind & !SEALED, header.sender);
        if sender == NodeId::ALL || sender == NodeId::ANYONE || datagram.len() > MAX_DATAGRAM {
            return Err(Dropped::Malformed);
        }
        let unauthentic = if kind == message::QUERY { Dropped::Observer } else { Dropped::Unauthentic };
        let message = match &mut self.sealed {
            Some((seal, replays)) if is_sealed => {
                let (plain, counter) = seal.open(sender, HEADER, datagram).ok_or(unauthentic)?;
                // The sender is authentic, so it may take up memory.
                if !replays.accept(sender, counter) {
                    return Err(Dropped::Replayed);
                }
                decode_body(kind, length, &plain[HEADER..])
            }
            None if !is_sealed => decode_body(kind, length, &datagram[HEADER..]),
            _ => return Err(unauthentic),
        };
        let message = message.filter(|message| message.may_be_to(header.recipient));
        Ok((header, message.ok_or(Dropped::Malformed)?))
    }

    /// The token of a path, and the answer of its target.
    pub(crate) fn encode_path(&self, header: Header, dial: u32) -> ([u8; TOKEN], [u8; ANSWER]) {
        let bytes = token::encode(self.tag, self.token_key.as_ref(), header, dial);
        (bytes, token::answer(&bytes, self.token_key.as_ref()))
    }

    /// What answers the tokens of paths to the node `me`.
    pub(crate) fn path_target(&self, me: NodeId) -> PathTarget {
        PathTarget { tag: self.tag, key: self.token_key, me }
    }
}

/// The message of this kind, whose body has this length, in the bytes behind a header. Nothing where these
/// are malformed.
fn decode_body(kind: u8, length: usize, bytes: &[u8]) -> Option<Message> {
    let (body, padding) = bytes.split_at_checked(length)?;
    let message = Message::decode(kind, body)?;
    let is_well_padded = if message.is_padded() {
        HEADER + bytes.len() >= PADDED && ZEROS.get(..padding.len()) == Some(padding)
    } else {
        padding.is_empty()
    };
    is_well_padded.then_some(message)
}
