//! The connections that have brought a token for this node, and the nodes that want to hear of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::OPEN;
use crate::model::NodeId;
use crate::proto::ConnId;

/// The most connections that are kept of one prover. One that opens more has gone wrong.
const KEPT: usize = 2 * OPEN;

/// The connections of each node that has proved that it reaches this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals {
    by_prover: BTreeMap<NodeId, Vec<Arrival>>,
    provers: BTreeMap<ConnId, NodeId>,
    /// All dials that ever arrived, in a job with a secret: only its nodes can make this grow.
    used: BTreeMap<NodeId, BTreeSet<u32>>,
    /// Nodes that prove this one as their master, while another node is their leader.
    askers: BTreeMap<NodeId, SocketAddr>,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    conn: ConnId,
    dial: u32,
}

impl Arrivals {
    /// Whether no connection has brought this token before. A replay of a recorded token would keep the seat
    /// of a node that is gone.
    pub(crate) fn is_first(&mut self, prover: NodeId, dial: u32) -> bool {
        self.used.entry(prover).or_default().insert(dial)
    }

    /// Adds a connection. Returns the one to close where the prover has too many.
    pub(crate) fn add(&mut self, prover: NodeId, conn: ConnId, dial: u32) -> Option<ConnId> {
        let arrivals = self.by_prover.entry(prover).or_default();
        arrivals.push(Arrival { conn, dial });
        self.provers.insert(conn, prover);
        (arrivals.len() > KEPT).then(|| {
            let excess = arrivals.remove(0).conn;
            self.provers.remove(&excess);
            excess
        })
    }

    /// Removes a connection that has closed. Returns its prover where that was its last.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<NodeId> {
        let prover = self.provers.remove(&conn)?;
        let arrivals = self.by_prover.get_mut(&prover)?;
        arrivals.retain(|arrival| arrival.conn != conn);
        if !arrivals.is_empty() {
            return None;
        }
        self.by_prover.remove(&prover);
        Some(prover)
    }

    /// Removes a prover, and returns its connections.
    pub(crate) fn evict(&mut self, prover: NodeId) -> Vec<ConnId> {
        let arrivals = self.by_prover.remove(&prover).unwrap_or_default();
        for arrival in &arrivals {
            self.provers.remove(&arrival.conn);
        }
        arrivals.into_iter().map(|arrival| arrival.conn).collect()
    }

    /// The dial that is the prover's lease: the last that arrived. Until the prover knows of one, any would
    /// do. Afterwards it dials only when its lease has broken, which this node may not have noticed yet.
    pub(crate) fn lease(&self, prover: NodeId) -> Option<u32> {
        self.by_prover.get(&prover)?.last().map(|arrival| arrival.dial)
    }

    pub(crate) fn has(&self, prover: NodeId) -> bool {
        self.by_prover.contains_key(&prover)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_prover.is_empty()
    }

    /// Remembers a node that asks for its proof, unless there are `most` already.
    pub(crate) fn add_asker(&mut self, prover: NodeId, source: SocketAddr, most: usize) {
        if self.askers.len() < most || self.askers.contains_key(&prover) {
            self.askers.insert(prover, source);
        }
    }

    pub(crate) fn remove_asker(&mut self, prover: NodeId) {
        self.askers.remove(&prover);
    }

    /// Where to tell the prover that its token has arrived, if it has asked.
    pub(crate) fn asker(&self, prover: NodeId) -> Option<SocketAddr> {
        self.askers.get(&prover).copied()
    }
}
