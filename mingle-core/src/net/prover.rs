//! Proves paths between hosts that form no world: for `mingle doctor`.
//!
//! Connections, tokens, times and explanations are those of a round, so a rendezvous would find the same.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use super::clock::{clock, random};
use super::network::Network;
use super::sockets::connection::TaskEvent;
use super::sockets::connections::Connections;
use super::sockets::endpoint::listen_for_paths;
use crate::host::host_name;
use crate::model::{BrokenPath, Fault, JobId, NodeId, Peer, World};
use crate::net::error::Error;
use crate::proto::{Config, NodeInfo, Output, PathProofs, PathTarget, Shared, Time, Timer};
use crate::wire::Partner;

/// Proves the paths from this host, and answers the proofs of other hosts on a port. Dropping a prover closes
/// all its sockets.
#[derive(Debug)]
pub struct Prover {
    shared: Shared,
    /// None before the proofs begin, and after their time.
    paths: Option<PathProofs>,
    verdicts: BTreeMap<NodeId, Result<(), Fault>>,
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
        let shared = Shared::new(config, u64::from_be_bytes(random()?), Time::ZERO);
        let mut connections = Connections::open(Vec::new(), paths, world)?;
        connections.set_target(PathTarget::new(&shared));
        let (paths, verdicts) = (None, BTreeMap::new());
        Ok(Self { shared, paths, verdicts, connections, port, origin: clock() })
    }

    /// The port to which other hosts prove their paths.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Proves the paths to other hosts, each with its ID, within the time of a round.
    pub fn prove(&mut self, hosts: impl IntoIterator<Item = (u32, SocketAddr)>) {
        self.shared.now = self.now();
        // The caller knows by itself whether a host's own port answers.
        let partner =
            |(id, path): (u32, SocketAddr)| Partner { id: node_id(id), rank: 0, path, own_port: path.port() };
        let partners: Vec<Partner> = hosts.into_iter().map(partner).collect();
        self.paths = Some(PathProofs::start(&partners, &mut self.shared));
        self.carry_out();
    }

    /// Whether the path to this host is proved, or how it fails. None while the proof runs.
    pub fn verdict(&self, id: u32) -> Option<Result<(), Fault>> {
        self.verdicts.get(&node_id(id)).copied()
    }

    /// Waits for the next event and handles it. Cancel-safe.
    pub async fn step(&mut self) {
        let due = self.shared.timers.next().and_then(|at| self.origin.checked_add(at));
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        let incoming = tokio::select! {
            biased;
            incoming = self.connections.next() => Some(incoming),
            () = timer => None,
        };
        self.shared.now = self.now();
        match (incoming, &mut self.paths) {
            (Some(Some(TaskEvent::Path(dial, news))), Some(paths)) => {
                paths.hear(dial, &news, &mut self.shared);
                self.verdicts.extend(paths.proved().map(|id| (id, Ok(()))));
            }
            // After an error, accepting pauses and is tried again: the doctor needs no warning.
            (Some(_), _) => {}
            (None, _) => self.fire_timers(),
        }
        self.carry_out();
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.shared.timers.expire(self.shared.now) {
            match (timer, self.paths.take()) {
                (Timer::ProofFailed, Some(paths)) => {
                    self.verdicts.extend(paths.unproved().map(|path| (path.partner, Err(path.fault))));
                    paths.stop(&mut self.shared);
                }
                (_, Some(mut paths)) => {
                    paths.advance(&mut self.shared);
                    self.paths = Some(paths);
                }
                (_, None) => {}
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.shared.next_output() {
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
