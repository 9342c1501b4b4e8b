//! A node's proof that it reaches the master, for one round.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::DialId;
use super::backoff::Backoff;
use super::proof::{Prover, Won};
use super::shared::Shared;
use super::timer::Timer;
use crate::model::NodeId;
use crate::wire::Message;

/// How long a node tries before it says that it cannot reach the master.
const PATIENCE: Duration = Duration::from_secs(5);

/// The proof of one round's master.
#[derive(Debug, Clone)]
pub(crate) struct MasterProof {
    master: NodeId,
    endpoints: Vec<SocketAddr>,
    way: Way,
    backoff: Backoff,
}

#[derive(Debug, Clone)]
enum Way {
    /// This node is the master.
    Own,
    /// The master is the leader, and joining was the proof.
    Lease(Won),
    /// Dials race to the master.
    Race(Prover),
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
        let way = match to_leader {
            _ if master == shared.me() => Way::Own,
            Some((_, won)) => Way::Lease(won),
            None => Way::Race(Prover::start(shared, master, endpoints, Duration::ZERO)),
        };
        let backoff = Backoff::of_words(shared.world(), Duration::from_millis(250));
        let mut proof = Self { master, endpoints: endpoints.to_vec(), way, backoff };
        if matches!(proof.way, Way::Race(_)) {
            shared.set_after(Timer::ProofFailed, PATIENCE);
            proof.ask(shared);
        }
        proof
    }

    /// Asks the master whether a dial of this node's has arrived, on every way to it, until it
    /// answers.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        if self.endpoint().is_some() {
            return;
        }
        for &endpoint in &self.endpoints {
            shared.send(endpoint, self.master, &Message::Prove);
        }
        let next = self.backoff.after(shared.now, &mut shared.rng);
        shared.timers.set_earlier(Timer::Proof, next);
    }

    /// The master has named a dial. Returns whether that is the proof.
    pub(crate) fn proved(&mut self, from: NodeId, dial: DialId, shared: &mut Shared) -> bool {
        let proved = match &mut self.way {
            Way::Race(prover) if from == self.master => prover.win(dial, shared),
            _ => false,
        };
        if proved {
            shared.timers.stop(Timer::ProofFailed);
        }
        proved
    }

    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if let Way::Race(prover) = &mut self.way {
            prover.advance(shared);
        }
    }

    pub(crate) fn connected(&mut self, dial: DialId, local: IpAddr) {
        match &mut self.way {
            Way::Race(prover) => prover.connected(dial, local),
            Way::Lease(won) if won.dial == dial => won.local = Some(local),
            Way::Lease(_) | Way::Own => {}
        }
    }

    pub(crate) fn lost(&mut self, dial: DialId) {
        if let Way::Race(prover) = &mut self.way {
            // Even where it was the one that the master named: the proof has been given, and
            // whether the master lives is for the leader to see.
            prover.lost(dial);
        }
    }

    /// Which of the master's endpoints is proved, as an index; nothing while none is.
    pub(crate) fn endpoint(&self) -> Option<u8> {
        let won = match &self.way {
            Way::Own => return Some(0),
            Way::Lease(won) => Some(*won),
            Way::Race(prover) => prover.won(),
        };
        let index = self.endpoints.iter().position(|&e| Some(e) == won.map(|won| won.endpoint))?;
        u8::try_from(index).ok()
    }

    /// The master's endpoint with this index.
    pub(crate) fn at(&self, endpoint: u8) -> Option<SocketAddr> {
        self.endpoints.get(usize::from(endpoint)).copied()
    }

    /// MASTER_ADDR and MASTER_PORT for this node, and its own address on the way there: the endpoint
    /// that the leader published if this node has proved that one, else the one that it has proved.
    pub(crate) fn published(&self, endpoint: u8, shared: &Shared) -> Option<(SocketAddr, IpAddr)> {
        let (master, local) = match &self.way {
            Way::Own => {
                let own = self.at(endpoint).or_else(|| self.at(0))?;
                (own, Some(own.ip()))
            }
            Way::Lease(won) => (won.endpoint, won.local),
            Way::Race(prover) => prover.won().map(|won| (won.endpoint, won.local))?,
        };
        // A driver tells the own address of every connection; the preferred one stands in.
        let local = local.unwrap_or_else(|| shared.config.node.endpoints.preferred().ip());
        Some((master, local))
    }

    /// Ends the proof and closes its connections.
    pub(crate) fn stop(self, shared: &mut Shared) {
        shared.timers.stop(Timer::ProofFailed);
        if let Way::Race(prover) = self.way {
            prover.stop(shared);
        }
    }
}
