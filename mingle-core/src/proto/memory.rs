//! What a node has heard, for the message at its deadline. Bounded, whatever is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::outcome::{Heard, Peer, Report};
use crate::id::{HostName, NodeId};

/// Most nodes that are remembered.
const NODES: usize = 256;
/// Most other versions that are remembered.
const VERSIONS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    nodes: BTreeMap<NodeId, Heard>,
    /// Told of by a leader, by name alone.
    told: BTreeSet<HostName>,
    versions: BTreeMap<u8, SocketAddr>,
    /// Somebody who may gather was heard.
    pub(crate) candidates: bool,
    /// The leader that was heard but not reached, last.
    pub(crate) unreached: Option<(Peer, Vec<SocketAddr>)>,
}

impl Memory {
    pub(crate) fn node(&mut self, id: NodeId, host: &HostName, address: SocketAddr, rank: Option<u32>) {
        if self.nodes.len() < NODES || self.nodes.contains_key(&id) {
            let heard = Heard { host: host.clone(), address: Some(address), rank };
            self.nodes.insert(id, heard);
        }
    }

    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    pub(crate) fn told(&mut self, hosts: &[HostName]) {
        for host in hosts {
            if self.told.len() < NODES {
                self.told.insert(host.clone());
            }
        }
    }

    pub(crate) fn version(&mut self, version: u8, from: SocketAddr) {
        if self.versions.len() < VERSIONS {
            self.versions.entry(version).or_insert(from);
        }
    }

    pub(crate) fn versions(&self) -> Vec<(u8, SocketAddr)> {
        self.versions.iter().map(|(&version, &from)| (version, from)).collect()
    }

    /// Those who were heard or told of, without this host, in order.
    pub(crate) fn heard(&self, me: &HostName) -> Vec<Heard> {
        let known: BTreeSet<&HostName> = self.nodes.values().map(|heard| &heard.host).collect();
        let told = self.told.iter().filter(|host| !known.contains(host) && *host != me);
        let told = told.map(|host| Heard { host: host.clone(), address: None, rank: None });
        let mut all: Vec<Heard> = self.nodes.values().cloned().chain(told).collect();
        all.sort();
        all.truncate(Report::NAMES);
        all
    }
}
