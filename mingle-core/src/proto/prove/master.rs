//! A node's proof that it reaches the master, for one round.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::dials::{Dials, Won};
use crate::model::NodeId;
use crate::proto::DialId;
use crate::proto::backoff::Backoff;
use crate::proto::report::{Event, Warning};
use crate::proto::shared::Shared;
use crate::proto::timer::Timer;
use crate::wire::Message;

/// How long a node tries before it reports that it cannot reach the master.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest interval between two requests for the proof.
const LONGEST_REPEAT: Duration = Duration::from_millis(250);

/// The proof of one round's master.
#[derive(Debug, Clone)]
pub(crate) struct MasterProof {
    master: NodeId,
    endpoints: Vec<SocketAddr>,
    path: Path,
    backoff: Backoff,
}

#[derive(Debug, Clone)]
enum Path {
    /// This node is the master.
    Own,
    /// The master is the leader, and joining was the proof.
    Lease(Won),
    /// Dials race to the master.
    Race(Dials),
}

impl MasterProof {
    /// Starts the proof. `lease` is the connection to the leader, for a node that has one.
    pub(crate) fn start(
        shared: &mut Shared,
        master: NodeId,
        endpoints: &[SocketAddr],
        lease: Option<(NodeId, Won)>,
    ) -> Self {
        let to_leader = lease.filter(|(leader, won)| *leader == master && endpoints.contains(&won.endpoint));
        let path = match to_leader {
            _ if master == shared.me() => Path::Own,
            Some((_, won)) => Path::Lease(won),
            None => {
                let mut dials = Dials::new(shared, master, endpoints, Duration::ZERO);
                dials.advance(shared);
                Path::Race(dials)
            }
        };
        let backoff = Backoff::for_answer(shared.scale(), LONGEST_REPEAT);
        let mut proof = Self { master, endpoints: endpoints.to_vec(), path, backoff };
        if matches!(proof.path, Path::Race(_)) {
            shared.set_after(Timer::ProofFailed, PATIENCE);
            proof.ask(shared);
        }
        proof
    }

    /// Asks the master, at all its endpoints, whether a dial of this node's has arrived, until it answers.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        if self.is_given() {
            return;
        }
        for &endpoint in &self.endpoints {
            shared.send(endpoint, self.master, &Message::Prove);
        }
        shared.set_repeat_earlier(Timer::RepeatInRound, &mut self.backoff);
    }

    /// The master has named a dial. Returns whether that is the proof.
    pub(crate) fn on_proved(&mut self, from: NodeId, dial: DialId, shared: &mut Shared) -> bool {
        let is_proof = match &mut self.path {
            Path::Race(dials) if from == self.master => dials.win(dial, shared),
            _ => false,
        };
        if is_proof {
            shared.timers.stop(Timer::ProofFailed);
        }
        is_proof
    }

    /// Opens the dials that are due.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if let Path::Race(dials) = &mut self.path {
            dials.advance(shared);
        }
    }

    pub(crate) fn connected(&mut self, dial: DialId, local: IpAddr) {
        if let Path::Race(dials) = &mut self.path {
            dials.connected(dial, local);
        }
    }

    pub(crate) fn closed(&mut self, dial: DialId) {
        if let Path::Race(dials) = &mut self.path {
            // Even where the master has named this dial: the proof stays given, and the leader sees whether
            // the master lives.
            dials.closed(dial);
        }
    }

    /// The index of the master's endpoint that is proved, if one is.
    pub(crate) fn endpoint(&self) -> Option<u8> {
        let won = match &self.path {
            Path::Own => return Some(0),
            Path::Lease(won) => Some(*won),
            Path::Race(dials) => dials.won(),
        };
        let index = self.endpoints.iter().position(|&e| Some(e) == won.map(|won| won.endpoint))?;
        u8::try_from(index).ok()
    }

    pub(crate) fn is_given(&self) -> bool {
        self.endpoint().is_some()
    }

    /// The master's endpoint with this index.
    fn at(&self, endpoint: u8) -> Option<SocketAddr> {
        self.endpoints.get(usize::from(endpoint)).copied()
    }

    /// MASTER_ADDR and MASTER_PORT for this node, and its own address on the way there. The endpoint that the
    /// leader has published if this node has proved that one, else the one that it has proved, with a
    /// warning.
    pub(crate) fn publish(&self, endpoint: u8, shared: &mut Shared) -> Option<(SocketAddr, IpAddr)> {
        let (master, local) = match &self.path {
            Path::Own => {
                let own = self.at(endpoint).or_else(|| self.at(0))?;
                (own, own.ip())
            }
            Path::Lease(won) => (won.endpoint, won.local),
            Path::Race(dials) => dials.won().map(|won| (won.endpoint, won.local))?,
        };
        if self.at(endpoint) != Some(master) {
            shared.event(Event::Warning(Warning::MasterElsewhere { master }));
        }
        Some((master, local))
    }

    /// Ends the proof and closes its connections.
    pub(crate) fn stop(self, shared: &mut Shared) {
        shared.timers.stop(Timer::ProofFailed);
        if let Path::Race(dials) = self.path {
            dials.stop(shared);
        }
    }
}
