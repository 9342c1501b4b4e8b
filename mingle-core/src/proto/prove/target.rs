//! What this node answers to the others that prove their paths to it.

use crate::model::NodeId;
use crate::proto::config::Config;
use crate::proto::shared::Shared;
use crate::wire::{ANSWER, Codec, TOKEN};

/// Answers the paths of other nodes to this one. It keeps no state: a path is only the prover's business.
#[derive(Debug, Clone)]
pub struct PathTarget {
    codec: Codec,
    me: NodeId,
}

impl PathTarget {
    pub(crate) fn new(shared: &Shared) -> Self {
        let Config { id, tag, keys, .. } = &shared.config;
        Self { codec: Codec::new(*tag, keys.as_ref()), me: *id }
    }

    /// The answer to a connection that has brought this token, due when two more bytes, the length of the
    /// padding (little endian), and the padding itself have arrived. None where the bytes are no token of a
    /// path to this node: such a connection is closed.
    #[must_use]
    pub fn answer(&self, token: &[u8; TOKEN]) -> Option<[u8; ANSWER]> {
        self.codec.answer_path(token, self.me)
    }
}
