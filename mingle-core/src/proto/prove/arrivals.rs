//! The connections that have brought a hello for this node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::OPEN;
use crate::model::{NodeId, Traits};
use crate::proto::output::ConnId;

/// The most connections that are kept of one prover. One that opens more has gone wrong.
const KEPT: usize = 2 * OPEN;
/// The same of a stranger, which has not joined: its messages may be lost, or its ID made up.
const KEPT_OF_STRANGER: usize = 2;
/// How far behind the highest a dial number may be, in a job with a secret. A prover numbers its dials from
/// 1, and has few open at a time.
const WINDOW: u32 = 1024;

/// The connections of each node that has proved that it reaches this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals {
    /// The connections of each prover, oldest first.
    by_prover: BTreeMap<NodeId, Vec<Arrival>>,
    /// The traits of the provers that do not have this node's own, by their first hello: in a job without a
    /// secret others can send hellos in their names later.
    differing: BTreeMap<NodeId, Arc<Traits>>,
    provers: BTreeMap<ConnId, NodeId>,
    /// The dials that have arrived, in a job with a secret: only its nodes can make this grow.
    used: BTreeMap<NodeId, Used>,
    /// How many tokens have arrived, in a job with a secret.
    tokens: u64,
}

/// A connection on which a hello has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) conn: ConnId,
    /// The number of the dial.
    pub(crate) dial: u32,
    pub(crate) ends: Ends,
}

/// The addresses of a connection that this node has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    /// This node's own.
    pub(crate) local: IpAddr,
    /// The other node's.
    pub(crate) remote: IpAddr,
}

/// The dials of one prover that have arrived.
#[derive(Debug, Clone, Default)]
struct Used {
    dials: BTreeSet<u32>,
    /// The number of tokens of all provers when the latest of this one arrived.
    clock: u64,
}

impl Used {
    fn is_first(&mut self, dial: u32) -> bool {
        let highest = self.dials.last().copied().unwrap_or(dial);
        let oldest = highest.saturating_sub(WINDOW);
        self.dials = self.dials.split_off(&oldest);
        dial >= oldest && self.dials.insert(dial)
    }
}

impl Arrivals {
    /// Whether no connection has brought this token before, as far as the dials of the `most` provers tell
    /// that are remembered. A replay of a recorded token would keep the seat of a node that is gone.
    pub(crate) fn is_first(&mut self, prover: NodeId, dial: u32, most: usize) -> bool {
        self.tokens += 1;
        if self.used.len() >= most && !self.used.contains_key(&prover) {
            // One with a connection may still have a seat, which a replay would keep.
            let gone = self.used.iter().filter(|(id, _)| !self.by_prover.contains_key(id));
            let oldest = gone.min_by_key(|(_, used)| used.clock).map(|(&id, _)| id);
            oldest.map(|id| self.used.remove(&id));
        }
        let used = self.used.entry(prover).or_default();
        used.clock = self.tokens;
        used.is_first(dial)
    }

    /// Adds a connection, and the prover's traits where they differ from this node's own. Returns the
    /// connection to close where the prover has too many.
    pub(crate) fn add(
        &mut self,
        prover: NodeId,
        arrival: Arrival,
        differing: Option<Traits>,
        is_stranger: bool,
    ) -> Option<ConnId> {
        let kept = if is_stranger { KEPT_OF_STRANGER } else { KEPT };
        self.provers.insert(arrival.conn, prover);
        if let Some(traits) = differing.filter(|_| !self.has(prover)) {
            self.differing.insert(prover, Arc::new(traits));
        }
        let arrivals = self.by_prover.entry(prover).or_default();
        arrivals.push(arrival);
        (arrivals.len() > kept).then(|| {
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
        self.differing.remove(&prover);
        Some(prover)
    }

    /// Removes a prover, and returns its connections.
    pub(crate) fn evict(&mut self, prover: NodeId) -> Vec<ConnId> {
        self.differing.remove(&prover);
        let arrivals = self.by_prover.remove(&prover).unwrap_or_default();
        for arrival in &arrivals {
            self.provers.remove(&arrival.conn);
        }
        arrivals.into_iter().map(|arrival| arrival.conn).collect()
    }

    /// Removes all provers, and returns their connections.
    pub(crate) fn evict_all(&mut self) -> Vec<ConnId> {
        self.by_prover.clear();
        self.differing.clear();
        std::mem::take(&mut self.provers).into_keys().collect()
    }

    /// The prover's lease: the last connection that arrived. Until the prover knows of one, any would do.
    /// Afterwards it dials only when its lease has broken, which this node may not have noticed yet.
    pub(crate) fn lease(&self, prover: NodeId) -> Option<&Arrival> {
        self.by_prover.get(&prover)?.last()
    }

    /// The connections of this prover.
    pub(crate) fn connections(&self, prover: NodeId) -> impl Iterator<Item = ConnId> {
        self.by_prover.get(&prover).into_iter().flatten().map(|arrival| arrival.conn)
    }

    /// The traits of this prover, where they differ from this node's own.
    pub(crate) fn differing(&self, prover: NodeId) -> Option<&Arc<Traits>> {
        self.differing.get(&prover)
    }

    /// The number of the dial that is the prover's lease.
    pub(crate) fn dial(&self, prover: NodeId) -> Option<u32> {
        self.lease(prover).map(|arrival| arrival.dial)
    }

    /// How many provers have a connection.
    pub(crate) fn count(&self) -> usize {
        self.by_prover.len()
    }

    /// The prover of which `is_stranger` is true whose oldest connection arrived first.
    pub(crate) fn oldest(&self, is_stranger: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        self.provers.values().copied().find(|&prover| is_stranger(prover))
    }

    pub(crate) fn has(&self, prover: NodeId) -> bool {
        self.by_prover.contains_key(&prover)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_prover.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// The connection of this number, which is that of the dial.
    fn arrival(number: u64) -> Arrival {
        let [local, remote] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let dial = u32::try_from(number).unwrap();
        let ends = Ends { local, remote };
        Arrival { conn: ConnId(number), dial, ends }
    }

    #[test]
    fn a_dial_counts_once_and_the_memory_of_dials_and_provers_is_bounded() {
        let mut arrivals = Arrivals::default();
        let id = |number: u32| NodeId(u128::from(number).to_be_bytes());
        assert!(arrivals.is_first(id(0), 1, 100));
        arrivals.add(id(0), arrival(1), None, false);
        for dial in 2..20_000 {
            assert!(arrivals.is_first(id(0), dial, 100) && !arrivals.is_first(id(0), dial, 100), "{dial}");
        }
        assert!(!arrivals.is_first(id(0), 1, 100), "too old");
        assert!(arrivals.used[&id(0)].dials.len() <= 1 + usize::try_from(WINDOW).unwrap());
        for prover in 1..20_000 {
            assert!(arrivals.is_first(id(prover), 1, 100));
        }
        assert_eq!(arrivals.used.len(), 100);
        assert!(!arrivals.is_first(id(0), 19_999, 100), "a prover with a connection is not forgotten");
    }

    #[test]
    fn a_prover_has_32_connections_and_a_stranger_two_and_the_newest_stay() {
        for (is_stranger, kept) in [(false, 32), (true, 2)] {
            let mut arrivals = Arrivals::default();
            let prover = NodeId([1; 16]);
            for number in 1..=100 {
                let excess = arrivals.add(prover, arrival(number), None, is_stranger);
                assert_eq!(excess, number.checked_sub(kept).filter(|&oldest| oldest > 0).map(ConnId));
            }
            assert_eq!(arrivals.remove(ConnId(100 - kept)), None, "it is not known any more");
            assert_eq!(arrivals.dial(prover), Some(100));
            assert_eq!(arrivals.evict(prover), (101 - kept..=100).map(ConnId).collect::<Vec<_>>());
            assert!(arrivals.is_empty() && arrivals.evict(prover).is_empty());
        }
    }

    #[test]
    fn a_dial_counts_if_it_is_at_most_1024_behind_the_highest() {
        for (behind, counts) in [(0, false), (1, true), (1024, true), (1025, false)] {
            let mut arrivals = Arrivals::default();
            assert!(
                arrivals.is_first(NodeId([1; 16]), 4500, 9) && arrivals.is_first(NodeId([1; 16]), 5000, 9)
            );
            assert_eq!(arrivals.is_first(NodeId([1; 16]), 5000 - behind, 9), counts, "{behind} behind");
        }
    }
}
