//! Traits as they are sent, and how many of those that differ a commit can name.

use mingle_rdma::Verdict;

use super::forming::Commit;
use super::{config, read_first, write};
use crate::model::{Sameness, Sent, TraitKey, Traits};

/// The most bytes of a commit that names differences: whoever reads more of them looks at them with a tool.
const LONGEST: usize = 484;

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

/// Names fewer differences, until a commit with them and this verdict has at most [`LONGEST`] bytes.
pub(crate) fn fitting(mut sameness: Sameness, verdict: &Verdict) -> Sameness {
    loop {
        let verdict = verdict.clone();
        let commit = Commit { round: u64::MAX, verdict, sameness, left_over: u32::MAX };
        let length = write(&commit, config()).len();
        sameness = commit.sameness;
        if length <= LONGEST || !sameness.shorten() {
            return sameness;
        }
    }
}
