//! Traits as they are sent, and how many of those that differ a commit can name.

use mingle_rdma::Verdict;

use super::config;
use super::forming::Commit;
use super::message::put;
use crate::model::{Sameness, Sent, TraitKey, Traits};

/// The most bytes of a commit that names differences: whoever reads more of them looks at them with a tool.
const LONGEST: usize = 484;

/// Encodes traits.
pub(crate) fn encode_traits(traits: &Traits) -> Vec<u8> {
    let mut bytes = Vec::new();
    for sent in traits.sent() {
        put(&sent, config(), &mut bytes);
    }
    bytes
}

/// Decodes traits. Returns nothing where the bytes are none.
pub(crate) fn decode_traits(mut bytes: &[u8]) -> Option<Traits> {
    let mut all = Vec::new();
    while !bytes.is_empty() && all.len() <= Traits::MOST {
        let decoded = bincode::serde::borrow_decode_from_slice::<(TraitKey, Sent), _>(bytes, config());
        let (sent, used) = decoded.ok()?;
        bytes = &bytes[used..];
        all.push(sent);
    }
    Traits::received(all)
}

/// Names fewer differences, until a commit with them and this verdict has at most [`LONGEST`] bytes.
pub(crate) fn fitting(mut sameness: Sameness, verdict: &Verdict) -> Sameness {
    loop {
        let verdict = verdict.clone();
        let commit = Commit { round: u64::MAX, verdict, sameness, left_over: u32::MAX };
        let mut bytes = Vec::new();
        put(&commit, config(), &mut bytes);
        sameness = commit.sameness;
        if bytes.len() <= LONGEST || !sameness.shorten() {
            return sameness;
        }
    }
}
