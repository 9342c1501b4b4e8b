//! What this node answers to the others that prove their paths to it.

use crate::model::NodeId;
use crate::proto::config::Config;
use crate::proto::shared::Shared;
use crate::wire::{ANSWER, Codec, TOKEN};

/// Answers when other nodes prove their paths to this node. It keeps no state: only the prover keeps track of
/// a path.
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

    /// The answer to a connection that has brought this token. The answer is due when two more bytes, the
    /// length of the padding (little endian), and the padding itself have arrived. None if the bytes are not
    /// a token of a path to this node: then close the connection.
    #[must_use]
    pub fn answer(&self, token: &[u8; TOKEN]) -> Option<[u8; ANSWER]> {
        self.codec.answer_path(token, self.me)
    }
}
