//! A node's proof that it reaches the master, for one round.

use std::net::SocketAddr;
use std::time::Duration;

use super::dials::{Dials, Won};
use crate::model::NodeId;
use crate::proto::backoff::Backoff;
use crate::proto::output::DialId;
use crate::proto::report::{Event, Warning};
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::Message;

/// The longest interval between two requests for the proof.
const LONGEST_REPEAT: Duration = Duration::from_millis(250);

/// The proof of one round's master.
#[derive(Debug, Clone)]
pub(super) struct MasterProof {
    master: NodeId,
    endpoints: Vec<SocketAddr>,
    path: MasterPath,
    backoff: Backoff,
}

#[derive(Debug, Clone)]
enum MasterPath {
    /// This node is the master.
    Own,
    /// The master is the leader, and joining was the proof.
    Lease(Won),
    /// Dials race to the master.
    Race(Dials),
}

impl MasterProof {
    /// Starts the proof. `lease` is the connection to the leader, for a node that has one.
    pub(super) fn start(
        shared: &mut Shared,
        master: NodeId,
        endpoints: &[SocketAddr],
        lease: Option<(NodeId, Won)>,
    ) -> Self {
        let to_leader = lease.filter(|(leader, won)| *leader == master && endpoints.contains(&won.endpoint));
        let path = match to_leader {
            _ if master == shared.me() => MasterPath::Own,
            Some((_, won)) => MasterPath::Lease(won),
            None => {
                let mut dials = Dials::new(shared, master, endpoints, Duration::ZERO);
                dials.advance(shared);
                MasterPath::Race(dials)
            }
        };
        let backoff = Backoff::for_answer(shared.scale(), LONGEST_REPEAT);
        let mut proof = Self { master, endpoints: endpoints.to_vec(), path, backoff };
        if matches!(proof.path, MasterPath::Race(_)) {
            proof.ask(shared);
        }
        proof
    }

    /// Asks the master, at all its endpoints, whether a dial of this node's has arrived, until it answers.
    pub(super) fn ask(&mut self, shared: &mut Shared) {
        if self.is_given() {
            return;
        }
        for &endpoint in &self.endpoints {
            shared.send(endpoint, self.master, &Message::Prove);
        }
        shared.set_repeat_earlier(Timer::RepeatInRound, &mut self.backoff);
    }

    /// The master has named a dial. Returns whether that is the proof.
    pub(super) fn on_proved(&mut self, from: NodeId, dial: DialId, shared: &mut Shared) -> bool {
        match &mut self.path {
            MasterPath::Race(dials) if from == self.master => dials.win(dial, shared),
            _ => false,
        }
    }

    /// Opens the dials that are due.
    pub(super) fn advance(&mut self, shared: &mut Shared) {
        if let MasterPath::Race(dials) = &mut self.path {
            dials.advance(shared);
        }
    }

    pub(super) fn connected(&mut self, dial: DialId) {
        if let MasterPath::Race(dials) = &mut self.path {
            dials.connected(dial);
        }
    }

    pub(super) fn closed(&mut self, dial: DialId) {
        if let MasterPath::Race(dials) = &mut self.path {
            // Even where the master has named this dial: the proof stays given, and the leader sees whether
            // the master lives.
            dials.closed(dial);
        }
    }

    /// The index of the master's endpoint that is proved, if one is.
    pub(super) fn endpoint(&self) -> Option<u8> {
        let won = match &self.path {
            MasterPath::Own => return Some(0),
            MasterPath::Lease(won) => Some(*won),
            MasterPath::Race(dials) => dials.won(),
        };
        let index = self.endpoints.iter().position(|&e| Some(e) == won.map(|won| won.endpoint))?;
        u8::try_from(index).ok()
    }

    pub(super) fn is_given(&self) -> bool {
        self.endpoint().is_some()
    }

    /// The master's endpoint with this index.
    fn at(&self, endpoint: u8) -> Option<SocketAddr> {
        self.endpoints.get(usize::from(endpoint)).copied()
    }

    /// MASTER_ADDR and MASTER_PORT for this node. The endpoint that the leader has published if this node
    /// has proved that one, else the one that it has proved, with a warning.
    pub(super) fn publish(&self, endpoint: u8, shared: &mut Shared) -> Option<SocketAddr> {
        let master = match &self.path {
            MasterPath::Own => self.at(endpoint).or_else(|| self.at(0))?,
            MasterPath::Lease(won) => won.endpoint,
            MasterPath::Race(dials) => dials.won()?.endpoint,
        };
        if self.at(endpoint) != Some(master) {
            shared.event(Event::Warning(Warning::MasterElsewhere { master }));
        }
        Some(master)
    }

    /// Ends the proof and closes its connections.
    pub(super) fn stop(self, shared: &mut Shared) {
        if let MasterPath::Race(dials) = self.path {
            dials.stop(shared);
        }
    }
}
