//! Proves paths between hosts that form no world: for `mingle doctor`.
//!
//! Connections, tokens, times and explanations are those of a round, so a rendezvous would find the same.

use std::net::SocketAddr;
use std::time::Instant;

use super::clock::{clock, random};
use super::network::Network;
use super::sockets::connection::TaskEvent;
use super::sockets::connections::{Connections, Incoming, Listeners};
use super::sockets::endpoint::listen_for_paths;
use crate::host::host_name;
use crate::model::{BrokenPath, Fault, JobId, NodeId, Peer, World};
use crate::net::error::Error;
use crate::proto::{Config, NodeInfo, Output, Survey, Time};

/// A port for paths, and the proofs of the paths from this host. Dropping it closes everything.
#[derive(Debug)]
pub struct Prover {
    survey: Survey,
    connections: Connections,
    port: u16,
    origin: Instant,
}

impl Prover {
    /// Listens on a port that the kernel chooses. `id` is this host's. Needs a runtime of tokio.
    ///
    /// # Errors
    /// [`Error::Socket`] if no port can be had.
    pub fn open(id: u32, job: &JobId, world: World, network: &Network) -> Result<Self, Error> {
        let (paths, port) = listen_for_paths(network.loopback)?;
        let own = SocketAddr::new(network.loopback.map_or([0; 4].into(), Into::into), port);
        let node = NodeInfo::new(host_name(), own.into());
        let config = Config::new(node_id(id), job.tag(), world, node);
        let survey = Survey::new(config, u64::from_be_bytes(random()?), Time::ZERO);
        let listeners = Listeners { own: Vec::new(), keep_own: false, paths };
        let mut connections = Connections::open(listeners, world)?;
        connections.set_target(survey.target());
        Ok(Self { survey, connections, port, origin: clock() })
    }

    /// The port to which the others prove their paths.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Proves the path to another host, which has this ID. The time for all proofs begins with the first.
    pub fn add(&mut self, id: u32, to: SocketAddr) {
        self.survey.add(self.now(), node_id(id), to);
        self.carry_out();
    }

    /// Whether the path to this host is proved, or how it fails. None until that is known.
    pub fn verdict(&self, id: u32) -> Option<Result<(), Fault>> {
        self.survey.verdict(node_id(id))
    }

    /// Waits until something happens, and handles it. Cancel-safe.
    pub async fn step(&mut self) {
        let due = self.survey.poll_timeout().and_then(|at| self.origin.checked_add(at));
        let due = [due, self.connections.accept_again()].into_iter().flatten().min();
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            incoming = self.connections.next() => self.handle(incoming),
            () = timer => {
                let now = self.now();
                self.survey.handle_timeout(now);
            }
        }
        self.carry_out();
    }

    fn handle(&mut self, incoming: Incoming) {
        let now = self.now();
        match incoming {
            Incoming::Accepted(accepted) => {
                // After an error, accepting pauses and is tried again: the doctor needs no warning.
                let _ = self.connections.accepted(accepted);
            }
            Incoming::Event(TaskEvent::Path(dial, news)) => self.survey.hear(now, dial, &news),
            Incoming::Event(TaskEvent::HungUp(dial)) => self.survey.closed(dial),
            Incoming::Event(_) => {}
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.survey.poll_output() {
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

/// A path between hosts that form no world, as a rendezvous names it: its ends, how it fails, the port of
/// `to` that answers at the same address, and the MTUs of both ends.
pub fn broken_path(from: Peer, to: Peer, fault: Fault, answers: Option<u16>, mtus: (u32, u32)) -> BrokenPath {
    BrokenPath { from, to, fault, answers, mtus }
}
