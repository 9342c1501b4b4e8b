//! The bytes of a session's connection: a hello from each end, and then frames.
//!
//! ```text
//! hello                                           frame
//! offset  size  field                             offset  size  field
//!      0     4  magic "MNGL"                           0     4  length of the rest, little endian
//!      4     1  protocol version                    4     8  number; 0 acknowledges alone
//!      5     1  1 where the frames are sealed          12     8  number of the last frame read here
//!      6     2  zeros                                  20        body, which begins with its kind
//!      8    16  tag of the job                                   tag of 16 bytes, where sealed
//!     24    16  ID of the sender
//!     40    16  ID of the process that is meant
//!     56     8  number of the sender's session, little endian
//!     64    16  nonce, random
//!     80    16  proof: zeros from the dialer; from the acceptor a hash of both hellos
//! ```
//!
//! With a secret the proof is keyed, and everything after a frame's length is sealed: ChaCha20-Poly1305
//! (RFC 8439) with the frame's position on its connection as the nonce, the length as associated data, and a
//! key for each direction that depends on the secret and on both hellos. So a recorded connection is worth
//! nothing: its frames open only with the nonce that the other end drew for it.

use std::sync::Arc;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};

use super::header::{HEADER, Header};
use super::{Dropped, fixed, read_first};
use crate::model::{JobTag, Keys, NodeId};

/// The length of a hello in bytes.
pub(crate) const HELLO: usize = PROOF + 16;
const NONCE: usize = HEADER + 8;
const PROOF: usize = NONCE + 16;
/// The length of a frame's clear length, and of what precedes a body behind it.
const LENGTH: usize = 4;
const HEAD: usize = 8 + 8;
/// How many bytes longer what is sealed is: the tag at its end.
const SEAL: usize = 16;

/// What a frame says, written once and shared by all connections that carry it.
pub(crate) type Body = Arc<[u8]>;

/// The kind of the state that a body says: its first byte.
pub(crate) fn kind_of(body: &[u8]) -> u8 {
    body.first().copied().unwrap_or_default()
}

/// A state that one process tells the other, or an acknowledgement alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// 1 for the first frame of a process in its session; 0 where nothing but `read` is said.
    pub(crate) number: u64,
    /// The number of the last frame that the sender has read on the same connection.
    pub(crate) read: u64,
    pub(crate) body: Body,
}

impl Frame {
    /// How many bytes it has on a connection without a secret.
    #[must_use]
    pub fn length(&self) -> usize {
        LENGTH + HEAD + self.body.len()
    }

    pub(crate) fn acknowledgement(read: u64) -> Self {
        Self { number: 0, read, body: Arc::new([]) }
    }

    pub(crate) fn is_acknowledgement(&self) -> bool {
        self.number == 0
    }
}

/// The first bytes of each end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Its recipient is the process that is meant: at an address, any process may answer.
    pub(crate) header: Header,
    /// Names this end's session: the other end begins anew where it has heard another number.
    pub(crate) session: u64,
    pub(crate) nonce: [u8; 16],
}

/// Reads and writes the hellos of one job, and makes the keys of each connection.
#[derive(Debug, Clone)]
pub(crate) struct Hellos {
    tag: JobTag,
    keys: Option<Keys>,
}

impl Hellos {
    pub(crate) fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        Self { tag, keys: keys.cloned() }
    }

    /// The hello of the process that dials.
    pub(crate) fn encode(&self, hello: Hello) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..HEADER].copy_from_slice(&hello.header.encode(self.tag, self.keys.is_some().into(), 0));
        bytes[HEADER..NONCE].copy_from_slice(&hello.session.to_le_bytes());
        bytes[NONCE..PROOF].copy_from_slice(&hello.nonce);
        bytes
    }

    /// The hello of the process that has accepted the connection on which `asked` has arrived.
    pub(crate) fn answer(&self, asked: &[u8; HELLO], hello: Hello) -> [u8; HELLO] {
        let mut bytes = self.encode(hello);
        let proof = self.hash("mingle 3 proof", asked, &bytes);
        bytes[PROOF..].copy_from_slice(&proof[..16]);
        bytes
    }

    /// The hello in these bytes of a process that has dialled.
    ///
    /// # Errors
    /// [`Dropped`], with the reason, for any other bytes.
    pub(crate) fn decode(&self, bytes: &[u8; HELLO]) -> Result<Hello, Dropped> {
        let (sealed, length, header) = Header::decode(self.tag, bytes)?;
        if sealed != u8::from(self.keys.is_some()) {
            return Err(Dropped::Unauthentic);
        }
        let (session, nonce) = read_first(&mut &bytes[HEADER..], fixed()).ok_or(Dropped::Malformed)?;
        let has_name = header.sender != NodeId::ALL && header.sender != NodeId::ANYONE;
        if has_name && length == 0 { Ok(Hello { header, session, nonce }) } else { Err(Dropped::Malformed) }
    }

    /// The hello in the answer to `asked`: that of the process which was meant, and no recording.
    ///
    /// # Errors
    /// [`Dropped`], with the reason, for any other bytes.
    pub(crate) fn decode_answer(&self, asked: &[u8; HELLO], bytes: &[u8; HELLO]) -> Result<Hello, Dropped> {
        let hello = self.decode(bytes)?;
        let mut unproved = *bytes;
        unproved[PROOF..].fill(0);
        let proof = blake3::Hash::from_bytes(self.hash("mingle 3 proof", asked, &unproved));
        // As blake3 compares: in a time that does not depend on the bytes.
        let mut given = *proof.as_bytes();
        given[..16].copy_from_slice(&bytes[PROOF..]);
        if proof == given { Ok(hello) } else { Err(Dropped::Unauthentic) }
    }

    /// What one end of a connection writes with and reads with, after both hellos.
    pub(crate) fn ends(
        &self,
        asked: &[u8; HELLO],
        answer: &[u8; HELLO],
        is_dialer: bool,
    ) -> (Writer, Reader) {
        let seal = |context| self.keys.is_some().then(|| Seal::new(&self.hash(context, asked, answer)));
        let (dialer, acceptor) = (seal("mingle 3 dialer"), seal("mingle 3 acceptor"));
        let (own, other) = if is_dialer { (dialer, acceptor) } else { (acceptor, dialer) };
        (Writer { seal: own }, Reader { seal: other, buffer: Vec::new() })
    }

    fn hash(&self, context: &str, asked: &[u8; HELLO], answer: &[u8; HELLO]) -> [u8; 32] {
        let mut hasher = self
            .keys
            .as_ref()
            .map_or_else(blake3::Hasher::new, |keys| blake3::Hasher::new_keyed(&keys.token));
        *hasher.update(context.as_bytes()).update(asked).update(answer).finalize().as_bytes()
    }
}

/// One direction of a sealed connection. Each frame has the next nonce, so that none can be left out,
/// repeated or moved.
struct Seal {
    cipher: ChaCha20Poly1305,
    position: u64,
}

impl Seal {
    fn new(key: &[u8; 32]) -> Self {
        Self { cipher: ChaCha20Poly1305::new(key.into()), position: 0 }
    }

    /// The nonce of the next frame.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = Nonce::default();
        nonce[..8].copy_from_slice(&self.position.to_le_bytes());
        self.position += 1;
        nonce
    }
}

/// Writes the frames of one direction of a connection.
pub(crate) struct Writer {
    seal: Option<Seal>,
}

impl Writer {
    /// The bytes of a frame. Each frame is encoded once for each connection, in the order of writing.
    pub(crate) fn encode(&mut self, frame: &Frame) -> Vec<u8> {
        let sealed = if self.seal.is_some() { SEAL } else { 0 };
        let length = u32::try_from(HEAD + frame.body.len() + sealed).unwrap_or(u32::MAX).to_le_bytes();
        let (number, read) = (frame.number.to_le_bytes(), frame.read.to_le_bytes());
        let mut bytes = [&length[..], &number, &read, &frame.body].concat();
        if let Some(seal) = &mut self.seal {
            let nonce = seal.nonce();
            let sealed = seal.cipher.encrypt(&nonce, Payload { msg: &bytes[length.len()..], aad: &length });
            // Fails above 256 GiB.
            debug_assert!(sealed.is_ok());
            bytes = [&length[..], &sealed.unwrap_or_default()].concat();
        }
        bytes
    }
}

/// Reads the frames of one direction of a connection from bytes that arrive in any pieces.
pub(crate) struct Reader {
    seal: Option<Seal>,
    buffer: Vec<u8>,
}

impl Reader {
    /// Takes bytes that have arrived. Call [`Reader::next_frame`] until it has no more.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame whose body has at most `most` bytes; nothing until more bytes arrive.
    ///
    /// # Errors
    /// [`Dropped`] for a frame that is too long, too short or not authentic. Nothing after it can be read.
    pub(crate) fn next_frame(&mut self, most: usize) -> Result<Option<Frame>, Dropped> {
        let Some(&length) = self.buffer.first_chunk::<LENGTH>() else { return Ok(None) };
        let sealed = if self.seal.is_some() { SEAL } else { 0 };
        let rest = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if rest.checked_sub(HEAD + sealed).is_none_or(|body| body > most) {
            return Err(Dropped::Malformed);
        }
        if self.buffer.len() < LENGTH + rest {
            return Ok(None);
        }
        let mut bytes = self.buffer[LENGTH..LENGTH + rest].to_vec();
        self.buffer.drain(..LENGTH + rest);
        if let Some(seal) = &mut self.seal {
            let nonce = seal.nonce();
            let opened = seal.cipher.decrypt(&nonce, Payload { msg: &bytes, aad: &length });
            bytes = opened.map_err(|_| Dropped::Unauthentic)?;
        }
        let mut body = &bytes[..];
        let (number, read) = read_first(&mut body, fixed()).ok_or(Dropped::Malformed)?;
        let frame = Frame { number, read, body: body.into() };
        // An acknowledgement says nothing else, and every other frame says something.
        if frame.is_acknowledgement() == frame.body.is_empty() {
            Ok(Some(frame))
        } else {
            Err(Dropped::Malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JobId, Secret};
    use crate::wire::VERSION;

    const A: NodeId = NodeId([1; 16]);
    const B: NodeId = NodeId([2; 16]);

    fn hellos(secret: Option<&str>) -> Hellos {
        let job: JobId = "foo".parse().unwrap();
        let keys = secret.map(|secret| Secret::new(secret.as_bytes()).unwrap().keys(&job));
        Hellos::new(job.tag(), keys.as_ref())
    }

    fn hello(sender: NodeId, recipient: NodeId, nonce: u8) -> Hello {
        Hello { header: Header { sender, recipient }, session: 7, nonce: [nonce; 16] }
    }

    /// Both ends of a connection between A, which dials, and B.
    fn connected(hellos: &Hellos, nonces: [u8; 2]) -> [(Writer, Reader); 2] {
        let asked = hellos.encode(hello(A, B, nonces[0]));
        assert_eq!(hellos.decode(&asked), Ok(hello(A, B, nonces[0])));
        let answer = hellos.answer(&asked, hello(B, A, nonces[1]));
        assert_eq!(hellos.decode_answer(&asked, &answer), Ok(hello(B, A, nonces[1])));
        [hellos.ends(&asked, &answer, true), hellos.ends(&asked, &answer, false)]
    }

    fn frames() -> Vec<Frame> {
        let frame = |number, body: &[u8]| Frame { number, read: 7, body: body.into() };
        vec![frame(1, b"k"), Frame::acknowledgement(u64::MAX), frame(u64::MAX, b"body"), frame(3, &[0; 4000])]
    }

    const SECRETS: [Option<&str>; 2] = [None, Some("a secret of many bytes")];

    #[test]
    fn frames_arrive_as_they_were_in_pieces_of_any_length_and_in_both_directions() {
        for secret in SECRETS {
            let [mut a, mut b] = connected(&hellos(secret), [3, 4]);
            for piece in [1, 2, 5, 100, 10_000] {
                for (writer, reader) in [(&mut a.0, &mut b.1), (&mut b.0, &mut a.1)] {
                    let bytes: Vec<u8> = frames().iter().flat_map(|frame| writer.encode(frame)).collect();
                    let mut read = Vec::new();
                    for piece in bytes.chunks(piece) {
                        reader.push(piece);
                        while let Some(frame) = reader.next_frame(4000).unwrap() {
                            read.push(frame);
                        }
                    }
                    assert_eq!(read, frames(), "{secret:?}, pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn a_changed_hello_is_refused_and_its_reason_is_known() {
        for secret in SECRETS {
            let hellos = hellos(secret);
            let asked = hellos.encode(hello(A, B, 3));
            let answer = hellos.answer(&asked, hello(B, A, 4));
            for at in 0..HELLO {
                let mut changed = answer;
                changed[at] ^= 1;
                let reason = match at {
                    0..4 => Dropped::Foreign,
                    4 => Dropped::Version(VERSION ^ 1),
                    6 | 7 => Dropped::Malformed,
                    8..24 => Dropped::OtherJob,
                    _ => Dropped::Unauthentic,
                };
                assert_eq!(hellos.decode_answer(&asked, &changed), Err(reason), "byte {at}");
            }
            let other = hellos.encode(hello(A, B, 5));
            assert_eq!(hellos.decode_answer(&other, &answer), Err(Dropped::Unauthentic), "an old answer");
        }
        let [without, with] = SECRETS.map(hellos);
        let other = hellos(Some("another secret of many bytes"));
        for (one, another) in [(&with, &other), (&without, &with), (&with, &without)] {
            let asked = one.encode(hello(A, B, 3));
            let answer = another.answer(&asked, hello(B, A, 4));
            assert_eq!(one.decode_answer(&asked, &answer), Err(Dropped::Unauthentic));
        }
    }

    #[test]
    fn with_a_secret_no_byte_of_a_frame_can_be_changed_left_out_repeated_or_recorded() {
        let hellos = hellos(SECRETS[1]);
        let frame = Frame { number: 1, read: 0, body: (*b"body").into() };
        let [(mut writer, _), (_, mut reader)] = connected(&hellos, [3, 4]);
        let bytes = writer.encode(&frame);
        for at in LENGTH..bytes.len() {
            let [_, (_, mut fresh)] = connected(&hellos, [3, 4]);
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fresh.push(&changed);
            assert_eq!(fresh.next_frame(100), Err(Dropped::Unauthentic), "byte {at}");
        }
        // The answer's nonce is another.
        let [_, (_, mut later)] = connected(&hellos, [3, 5]);
        later.push(&bytes);
        assert_eq!(later.next_frame(100), Err(Dropped::Unauthentic), "a recorded frame");
        let second = writer.encode(&frame);
        let [_, (_, mut fresh)] = connected(&hellos, [3, 4]);
        fresh.push(&second);
        assert_eq!(fresh.next_frame(100), Err(Dropped::Unauthentic), "the first is left out");
        reader.push(&bytes);
        assert_eq!(reader.next_frame(100), Ok(Some(frame)));
        reader.push(&bytes);
        assert_eq!(reader.next_frame(100), Err(Dropped::Unauthentic), "the first is repeated");
    }

    #[test]
    fn an_acknowledgement_that_says_more_is_malformed_and_so_is_a_frame_that_says_nothing() {
        let hellos = hellos(None);
        for frame in [
            Frame { number: 1, ..Frame::acknowledgement(7) },
            Frame { body: (*b"body").into(), ..Frame::acknowledgement(7) },
        ] {
            let [(mut writer, _), (_, mut reader)] = connected(&hellos, [3, 4]);
            reader.push(&writer.encode(&frame));
            assert_eq!(reader.next_frame(100), Err(Dropped::Malformed), "{frame:?}");
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_its_bytes_arrive() {
        for secret in SECRETS {
            let shortest = HEAD + secret.map_or(0, |_| SEAL);
            for (length, is_refused) in [
                (0, true),
                (shortest - 1, true),
                (shortest, false),
                (shortest + 100, false),
                (shortest + 101, true),
                (u32::MAX as usize, true),
            ] {
                let [_, (_, mut reader)] = connected(&hellos(secret), [3, 4]);
                reader.push(&u32::try_from(length).unwrap().to_le_bytes());
                let refused = reader.next_frame(100) == Err(Dropped::Malformed);
                assert_eq!(refused, is_refused, "{length} bytes, {secret:?}");
            }
        }
    }
}
