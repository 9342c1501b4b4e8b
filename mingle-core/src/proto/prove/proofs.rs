//! All that a node proves in one round: the master, and the paths to its partners.

use std::net::SocketAddr;

use super::dials::Won;
use super::master::MasterProof;
use super::paths::PathProofs;
use crate::model::NodeId;
use crate::proto::output::{DialId, PathNews};
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::{Broken, Partner};

/// The proofs of one round.
#[derive(Debug, Clone)]
pub(crate) struct Proofs {
    master: MasterProof,
    paths: PathProofs,
}

impl Proofs {
    /// Starts the proof of the master; the `partners` may come later. `lease` is the connection to the
    /// leader, for a node that has one.
    pub(crate) fn start(
        shared: &mut Shared,
        master: NodeId,
        endpoints: &[SocketAddr],
        lease: Option<(NodeId, Won)>,
        partners: u32,
    ) -> Self {
        let paths = PathProofs::new(partners, shared.now);
        let proofs = Self { master: MasterProof::start(shared, master, endpoints, lease), paths };
        if !proofs.are_proved() {
            shared.set_after(Timer::ProofFailed, super::PATIENCE);
        }
        proofs
    }

    /// The leader has named partners. Returns whether any of them is new.
    pub(crate) fn add(&mut self, partners: &[Partner], shared: &mut Shared) -> bool {
        self.paths.add(partners, shared)
    }

    /// Asks the master again whether a dial has arrived.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        self.master.ask(shared);
    }

    /// The master has named a dial. Returns whether all is proved by that.
    pub(crate) fn on_proved(&mut self, from: NodeId, dial: DialId, shared: &mut Shared) -> bool {
        self.master.on_proved(from, dial, shared) && self.are_proved()
    }

    /// Something has happened on a connection to a partner. Returns whether all is proved by that.
    pub(crate) fn on_path(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) -> bool {
        self.paths.hear(dial, news, shared) && self.are_proved()
    }

    /// Opens the connections that are due.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        self.master.advance(shared);
        self.paths.advance(shared);
    }

    pub(crate) fn connected(&mut self, dial: DialId) {
        self.master.connected(dial);
    }

    pub(crate) fn closed(&mut self, dial: DialId) {
        self.master.closed(dial);
        self.paths.closed(dial);
    }

    /// The index of the master's endpoint that is proved, if one is.
    pub(crate) fn endpoint(&self) -> Option<u8> {
        self.master.endpoint()
    }

    /// Whether the master and all paths are proved.
    pub(crate) fn are_proved(&self) -> bool {
        self.master.is_given() && self.paths.are_proved()
    }

    /// The paths that are not proved, where the master is.
    pub(crate) fn broken(&self, round: u64) -> Option<Broken> {
        self.paths.broken(round).filter(|_| self.master.is_given())
    }

    /// MASTER_ADDR and MASTER_PORT for this node, once the world has formed.
    pub(crate) fn publish(&self, endpoint: u8, shared: &mut Shared) -> Option<SocketAddr> {
        self.master.publish(endpoint, shared)
    }

    /// Ends the proofs and closes their connections.
    pub(crate) fn stop(self, shared: &mut Shared) {
        shared.timers.stop(Timer::ProofFailed);
        self.master.stop(shared);
        self.paths.stop(shared);
    }
}
