//! What this node answers to the others that prove their paths to it.

use crate::model::{HostName, NodeId};
use crate::proto::config::Config;
use crate::proto::shared::Shared;
use crate::rdma::Rails;
use crate::wire::{Codec, TOKEN};

/// Answers the paths of other nodes to this one. It keeps no state: a path is only the prover's business.
#[derive(Debug, Clone)]
pub struct PathTarget {
    codec: Codec,
    me: NodeId,
    host: HostName,
    rails: Rails,
}

impl PathTarget {
    pub(in crate::proto) fn new(shared: &Shared) -> Self {
        let Config { id, tag, keys, node, rails, .. } = &shared.config;
        let codec = Codec::new(*tag, keys.as_ref());
        Self { codec, me: *id, host: node.host.clone(), rails: rails.clone() }
    }

    /// The answer to a connection that has brought this token, due when two more bytes, the length of the
    /// padding (little endian), and the padding itself have arrived. None where the bytes are no token of a
    /// path to this node, nor ask for its rails: such a connection is closed.
    #[must_use]
    pub fn answer(&self, token: &[u8; TOKEN]) -> Option<Vec<u8>> {
        let path = self.codec.answer_path(token, self.me).map(|answer| answer.to_vec());
        path.or_else(|| self.codec.answer_ask(token, self.me, &self.host, &self.rails))
    }
}
