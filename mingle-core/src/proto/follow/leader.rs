//! The leader of a follower: the candidate as it was last heard, and the source address of its datagrams.

use std::net::SocketAddr;

use crate::model::{Endpoints, NodeId, Peer};
use crate::proto::shared::Shared;
use crate::wire::{Candidate, Introduction, Message};

#[derive(Debug, Clone)]
pub(super) struct Leader {
    candidate: Candidate,
    source: SocketAddr,
}

impl Leader {
    pub(super) fn new(candidate: &Candidate, source: SocketAddr) -> Self {
        Self { candidate: candidate.clone(), source }
    }

    pub(super) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    pub(super) fn id(&self) -> NodeId {
        self.candidate.id
    }

    pub(super) fn source(&self) -> SocketAddr {
        self.source
    }

    pub(super) fn set_source(&mut self, source: SocketAddr) {
        self.source = source;
    }

    /// In its order of preference.
    pub(super) fn endpoints(&self) -> &Endpoints {
        &self.candidate.endpoints
    }

    /// The leader as messages to the user name it: by its preferred endpoint.
    pub(super) fn peer(&self) -> Peer {
        self.candidate.peer()
    }

    /// The leader as a message to other nodes describes it.
    pub(super) fn introduction(&self) -> Introduction {
        Introduction { candidate: self.candidate.clone(), source: self.source }
    }

    /// Sends a message to the source address of the leader's datagrams.
    pub(super) fn send(&self, message: &Message, shared: &mut Shared) {
        shared.send(self.source, self.id(), message);
    }

    pub(super) fn send_to(&self, address: SocketAddr, message: &Message, shared: &mut Shared) {
        shared.send(address, self.id(), message);
    }
}
