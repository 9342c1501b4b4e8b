//! The bytes of a lease: the hello of the node that dials, which is a token and its traits, and in the other
//! direction the roster of a round, to a node that wants it.
//!
//! ```text
//! hello                                        roster
//! offset  size  field                          offset  size  field
//!      0   112  token                               0     4  length of the rest, little endian
//!    112     2  length of the rest, little endian   4     8  number of the round, little endian
//!    114        traits                             12        roster
//!               tag of 16 bytes, where sealed                tag of 16 bytes, where sealed
//! ```
//!
//! With a secret traits and rosters are sealed, with all that is before them as associated data. The key of
//! traits depends on the secret, both nodes and the number of the dial, and a token is accepted once. The key
//! of rosters depends on the secret and the leader, and the nonce is the number of the round: a roster is
//! sealed once for all members.

#[cfg(feature = "net")]
use super::LONGEST_ENTRY;
use super::cipher::{Cipher, SEAL};
use super::header::array;
use super::{Dropped, TOKEN, Token, decode_traits};
#[cfg(feature = "net")]
use crate::model::World;
use crate::model::{NodeId, Traits};

/// The length of a hello without traits, in bytes.
pub(crate) const HELLO: usize = TOKEN + 2;
/// The most bytes that follow it.
#[cfg(any(feature = "net", test))]
pub(crate) const LONGEST_TRAITS: usize = 16 * 1024;
/// The length of a roster's clear length, and of what precedes the roster.
const LENGTH: usize = 4;
const HEAD: usize = LENGTH + 8;

/// How many bytes follow these first ones of a hello; none if they are too many.
#[cfg(feature = "net")]
pub(crate) fn rest_of_hello(first: &[u8; HELLO]) -> Option<usize> {
    let rest = usize::from(u16::from_le_bytes(array(&first[TOKEN..])));
    (rest <= LONGEST_TRAITS).then_some(rest)
}

/// How many bytes follow the length of a roster of at most this many nodes; none if they are too many.
#[cfg(feature = "net")]
pub(crate) fn rest_of_roster(length: [u8; LENGTH], world: World) -> Option<usize> {
    let rest = usize::try_from(u32::from_le_bytes(length)).ok()?;
    (rest <= HEAD + longest_roster(world) + SEAL).then_some(rest)
}

/// The most bytes of a roster of this many nodes.
#[cfg(feature = "net")]
fn longest_roster(world: World) -> usize {
    usize::try_from(world.get()).unwrap_or(usize::MAX).saturating_mul(LONGEST_ENTRY)
}

/// The cipher of the traits behind this token, in a job with a secret.
fn of_traits(key: Option<&[u8; 32]>, token: &Token) -> Option<Cipher> {
    let mut hasher = blake3::Hasher::new_keyed(key?);
    hasher.update(b"mingle 2 traits").update(&token.prover.0).update(&token.target.0);
    Some(Cipher::new(hasher.update(&token.dial.to_le_bytes()).finalize().as_bytes()))
}

/// The cipher of a leader's rosters, in a job with a secret.
fn of_rosters(key: Option<&[u8; 32]>, leader: NodeId) -> Option<Cipher> {
    let mut hasher = blake3::Hasher::new_keyed(key?);
    Some(Cipher::new(hasher.update(b"mingle 2 roster").update(&leader.0).finalize().as_bytes()))
}

/// The hello of the node that dials, whose encoded token this is. `traits` are encoded.
pub(super) fn encode_hello(
    key: Option<&[u8; 32]>,
    token: &Token,
    encoded: &[u8; TOKEN],
    traits: &[u8],
) -> Vec<u8> {
    let sealed = if key.is_some() { SEAL } else { 0 };
    let length = u16::try_from(traits.len() + sealed).unwrap_or(u16::MAX);
    let mut hello = [encoded, &length.to_le_bytes()[..], traits].concat();
    if let Some(cipher) = of_traits(key, token) {
        cipher.close(0, HELLO, &mut hello);
    }
    hello
}

/// The traits in a hello that begins with this token.
pub(super) fn decode_hello(key: Option<&[u8; 32]>, token: &Token, hello: &[u8]) -> Result<Traits, Dropped> {
    let (first, rest) = hello.split_at_checked(HELLO).ok_or(Dropped::Malformed)?;
    if usize::from(u16::from_le_bytes(array(&first[TOKEN..]))) != rest.len() {
        return Err(Dropped::Malformed);
    }
    let traits = match of_traits(key, token) {
        Some(cipher) => decode_traits(&cipher.open(0, HELLO, hello.to_vec()).ok_or(Dropped::Unauthentic)?),
        None => decode_traits(rest),
    };
    traits.ok_or(Dropped::Malformed)
}

/// The roster of a round, as its leader writes it to all members.
pub(super) fn encode_roster(key: Option<&[u8; 32]>, leader: NodeId, round: u64, roster: &[u8]) -> Vec<u8> {
    let sealed = if key.is_some() { SEAL } else { 0 };
    let length = u32::try_from(HEAD - LENGTH + roster.len() + sealed).unwrap_or(u32::MAX);
    let mut bytes = [&length.to_le_bytes()[..], &round.to_le_bytes(), roster].concat();
    if let Some(cipher) = of_rosters(key, leader) {
        cipher.close(round, HEAD, &mut bytes);
    }
    bytes
}

/// The number of the round and the encoded roster in these bytes of a leader.
pub(super) fn decode_roster(key: Option<&[u8; 32]>, leader: NodeId, bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let round = u64::from_le_bytes(array(&head[LENGTH..]));
    let roster = match of_rosters(key, leader) {
        Some(cipher) => cipher.open(round, HEAD, bytes.to_vec())?,
        None => rest.to_vec(),
    };
    Some((round, roster))
}
