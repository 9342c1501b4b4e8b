//! What a node has heard, for the message at its deadline. Bounded, whatever is sent.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::report::{Heard, Report};
use crate::model::{HostName, NodeId, Peer};

/// Most nodes that are remembered.
const NODES: usize = 256;
/// Most other versions that are remembered.
const VERSIONS: usize = 8;
/// Most senders of what is not authentic that are remembered.
const SOURCES: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    nodes: BTreeMap<NodeId, Heard>,
    /// Told of by a leader, by name alone.
    told: BTreeSet<HostName>,
    versions: BTreeMap<u8, SocketAddr>,
    /// Datagrams of this job that were sealed with another secret or none, by sender.
    unauthentic: BTreeMap<IpAddr, u64>,
    /// How many came from senders that are not remembered.
    unauthentic_others: u64,
    /// Somebody who may gather was heard.
    pub(crate) candidates: bool,
    /// The candidate that was heard of but did not answer, last.
    pub(crate) unanswered: Option<Peer>,
    /// The leader that was heard but not reached, last.
    pub(crate) unreached: Option<(Peer, Vec<SocketAddr>)>,
    /// A node of this job whose command runs, last.
    pub(crate) running: Option<SocketAddr>,
}

impl Memory {
    pub(crate) fn node(&mut self, id: NodeId, host: &HostName, address: SocketAddr, rank: Option<u32>) {
        let is_full = self.nodes.len() >= NODES;
        match self.nodes.entry(id) {
            Entry::Occupied(mut known) => {
                let heard = known.get_mut();
                (heard.address, heard.rank) = (Some(address), rank);
                // Most datagrams tell nothing new.
                if heard.host != *host {
                    heard.host = host.clone();
                }
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(new) => {
                new.insert(Heard { host: host.clone(), address: Some(address), rank });
            }
        }
    }

    /// Whether nothing of this job was heard.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.versions.is_empty()
            && self.unauthentic.is_empty()
            && self.running.is_none()
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

    pub(crate) fn unauthentic(&mut self, from: IpAddr) {
        if self.unauthentic.len() < SOURCES || self.unauthentic.contains_key(&from) {
            *self.unauthentic.entry(from).or_default() += 1;
        } else {
            self.unauthentic_others += 1;
        }
    }

    pub(crate) fn all_unauthentic(&self) -> Vec<(IpAddr, u64)> {
        self.unauthentic.iter().map(|(&from, &count)| (from, count)).collect()
    }

    pub(crate) fn unauthentic_others(&self) -> u64 {
        self.unauthentic_others
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
