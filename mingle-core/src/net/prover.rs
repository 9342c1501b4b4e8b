//! Proves paths between hosts that form no world: for `mingle doctor`.
//!
//! Connections, tokens, times and explanations are those of a round, so a rendezvous would find the same.

use std::net::SocketAddr;
use std::time::Instant;

use super::clock::clock;
use super::network::Network;
use super::sockets::connection::TaskEvent;
use super::sockets::connections::Connections;
use super::sockets::endpoint::listen_for_paths;
use crate::host::host_name;
use crate::model::{BrokenPath, Fault, JobId, NodeId, Peer, World};
use crate::net::error::Error;
use crate::proto::{Config, NodeInfo, Output, ProofRun, Time};
use crate::wire::Partner;

/// Proves the paths from this host, and answers the proofs of other hosts on a port. Dropping a prover closes
/// all its sockets.
#[derive(Debug)]
pub struct Prover {
    proofs: ProofRun,
    connections: Connections,
    port: u16,
    origin: Instant,
}

impl Prover {
    /// Listens on a port that the kernel picks. `id` is the ID of this host. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Socket`] if no port can be opened.
    pub fn open(id: u32, job: &JobId, world: World, network: &Network) -> Result<Self, Error> {
        let (paths, port) = listen_for_paths(network.loopback)?;
        let own = SocketAddr::new(network.loopback.map_or([0; 4].into(), Into::into), port);
        let config = Config::new(node_id(id), job.tag(), world, NodeInfo::new(host_name(), own.into()));
        let proofs = ProofRun::new(config, Time::ZERO);
        let mut connections = Connections::open(Vec::new(), paths, world)?;
        connections.set_target(proofs.target());
        Ok(Self { proofs, connections, port, origin: clock() })
    }

    /// The port to which other hosts prove their paths.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Proves the paths to other hosts, each with its ID, within the time of a round.
    pub fn prove(&mut self, hosts: impl IntoIterator<Item = (u32, SocketAddr)>) {
        // The caller knows by itself whether a host's own port answers.
        let partner =
            |(id, path): (u32, SocketAddr)| Partner { id: node_id(id), rank: 0, path, own_port: path.port() };
        let partners: Vec<Partner> = hosts.into_iter().map(partner).collect();
        self.proofs.prove(self.now(), &partners);
        self.carry_out();
    }

    /// Whether the path to this host is proved, or how it fails. None while the proof runs.
    pub fn verdict(&self, id: u32) -> Option<Result<(), Fault>> {
        let id = node_id(id);
        if self.proofs.has_proved(id) {
            return Some(Ok(()));
        }
        self.proofs.broken()?.iter().find(|path| path.partner == id).map(|path| Err(path.fault))
    }

    /// Waits for the next event and handles it. Cancel-safe.
    pub async fn step(&mut self) {
        let due = self.proofs.poll_timeout().and_then(|at| self.origin.checked_add(at));
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // After an error, accepting pauses and is tried again: the doctor needs no warning.
            event = self.connections.next() => if let Some(TaskEvent::Path(dial, news)) = event {
                self.proofs.hear(self.now(), dial, &news);
            },
            () = timer => self.proofs.advance(self.now()),
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.proofs.poll_output() {
            match output {
                Output::DialPath(path) => self.connections.prove(path),
                Output::HangUp(dial) => self.connections.hang_up(dial),
                _ => {}
            }
        }
    }

    fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }
}

fn node_id(id: u32) -> NodeId {
    NodeId(u128::from(id).to_be_bytes())
}

/// A path between hosts that form no world, in the form in which a rendezvous reports it: both ends, how the
/// path fails, the port of `to` that answers at the same address, and the MTUs of both ends.
pub fn broken_path(from: Peer, to: Peer, fault: Fault, answers: Option<u16>, mtus: (u32, u32)) -> BrokenPath {
    BrokenPath { from, to, fault, answers, to_master: false, mtus }
}
