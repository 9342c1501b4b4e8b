//! Traits as they are sent.

use super::{config, read_first, write};
use crate::model::{Sent, TraitKey, Traits};

/// Encodes traits.
pub(crate) fn encode_traits(traits: &Traits) -> Vec<u8> {
    traits.sent().flat_map(|sent| write(&sent, config())).collect()
}

/// Decodes traits. Returns nothing where the bytes are none.
pub(crate) fn decode_traits(mut bytes: &[u8]) -> Option<Traits> {
    let mut all: Vec<(TraitKey, Sent)> = Vec::new();
    while !bytes.is_empty() && all.len() <= Traits::MOST {
        all.push(read_first(&mut bytes, config())?);
    }
    Traits::received(all)
}
