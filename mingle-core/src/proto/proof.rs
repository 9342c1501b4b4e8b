//! Proofs over TCP: the dials that race to a node, and the tokens that have arrived from others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::shared::Shared;
use super::timer::{Time, Timer};
use super::{ConnId, DialId};
use crate::model::NodeId;

/// Between two dials of one endpoint at first, and between the first dials of two endpoints. The
/// kernel repeats a lost SYN only after 1 s.
const STAGGER: Duration = Duration::from_millis(60);
/// Between two dials of one endpoint once [`RACE`] are open: then the oldest is replaced.
const REPLACE: Duration = Duration::from_millis(500);
/// Most dials open to one endpoint. At 30% loss one in three succeeds at once: of six all fail in one
/// race of twelve, of twelve in one of 140.
const RACE: usize = 12;
/// From so many tries on, [`REPLACE`] is the interval.
const HASTY: u32 = 12;
/// Most dials open in all.
const OPEN: usize = 16;
/// Most connections that are kept of one prover; more are a prover gone wrong.
const ARRIVED: usize = 2 * OPEN;

/// The race to one node: dials to its endpoints, until it names one that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Prover {
    target: NodeId,
    lanes: Vec<Lane>,
    won: Option<Won>,
}

/// One endpoint and the dials to it, oldest first.
#[derive(Debug, Clone)]
struct Lane {
    endpoint: SocketAddr,
    next: Time,
    tries: u32,
    open: Vec<Dialled>,
}

#[derive(Debug, Clone, Copy)]
struct Dialled {
    dial: DialId,
    /// The own address, once the connection stands.
    local: Option<IpAddr>,
}

/// The dial that the target has named.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Won {
    pub(crate) dial: DialId,
    pub(crate) endpoint: SocketAddr,
    /// The own address, if the driver has told it.
    pub(crate) local: Option<IpAddr>,
}

impl Prover {
    /// A race to `target` that starts after `delay`. Endpoints that are this node's own are left out: the
    /// same private address (172.17.0.1, say) may be found on every host.
    pub(crate) fn start(
        shared: &mut Shared,
        target: NodeId,
        endpoints: &[SocketAddr],
        delay: Duration,
    ) -> Self {
        let mut prover = Self { target, lanes: Vec::new(), won: None };
        // The preferred endpoint has a head start; the others follow one by one (RFC 8305).
        let mut next = shared.now + delay;
        for &endpoint in endpoints.iter().filter(|e| !shared.config.node.endpoints.contains(e)) {
            prover.lanes.push(Lane { endpoint, next, tries: 0, open: Vec::new() });
            next += STAGGER;
        }
        prover.advance(shared);
        prover
    }

    /// Opens the dials that are due, and sets the timer for the next.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if self.won.is_some() {
            return;
        }
        // In a large world a leader would otherwise meet world x 6 SYNs within half a second.
        let stagger = STAGGER.max(Duration::from_micros(100) * shared.world());
        for i in 0..self.lanes.len() {
            if self.lanes[i].next > shared.now {
                continue;
            }
            let crowded = self.lanes.iter().map(|lane| lane.open.len()).sum::<usize>() >= OPEN;
            if self.lanes[i].open.len() >= RACE || crowded {
                self.hang_up_oldest(i, shared);
            }
            let lane = &mut self.lanes[i];
            let dial = shared.dial(lane.endpoint, self.target);
            lane.open.push(Dialled { dial, local: None });
            lane.tries += 1;
            let interval = if lane.tries < HASTY { stagger } else { REPLACE.max(stagger) };
            lane.next = shared.now + interval;
        }
        if let Some(next) = self.lanes.iter().map(|lane| lane.next).min() {
            shared.timers.set_earlier(Timer::Dial, next);
        }
    }

    /// Of this endpoint, or of the one with the most dials where this one has none.
    fn hang_up_oldest(&mut self, lane: usize, shared: &mut Shared) {
        let lane = if self.lanes[lane].open.is_empty() {
            self.lanes.iter_mut().max_by_key(|lane| lane.open.len())
        } else {
            self.lanes.get_mut(lane)
        };
        if let Some(lane) = lane.filter(|lane| !lane.open.is_empty()) {
            shared.hang_up(lane.open.remove(0).dial);
        }
    }

    /// The target has named the dial that arrived. Returns whether it is one that is still open;
    /// then it is the lease, and the others are closed.
    pub(crate) fn win(&mut self, dial: DialId, shared: &mut Shared) -> bool {
        if let Some(won) = self.won {
            return won.dial == dial;
        }
        let found = self.lanes.iter().find_map(|lane| {
            let dialled = lane.open.iter().find(|d| d.dial == dial)?;
            Some(Won { dial, endpoint: lane.endpoint, local: dialled.local })
        });
        let Some(won) = found else { return false };
        self.won = Some(won);
        for loser in self.lanes.iter_mut().flat_map(|lane| lane.open.drain(..)).filter(|d| d.dial != dial) {
            shared.hang_up(loser.dial);
        }
        true
    }

    /// A dial has been answered: the connection stands, at this own address.
    pub(crate) fn connected(&mut self, dial: DialId, local: IpAddr) {
        if let Some(won) = self.won.as_mut().filter(|won| won.dial == dial) {
            won.local = Some(local);
        }
        for dialled in self.lanes.iter_mut().flat_map(|lane| &mut lane.open).filter(|d| d.dial == dial) {
            dialled.local = Some(local);
        }
    }

    pub(crate) fn won(&self) -> Option<Won> {
        self.won
    }

    /// A dial has failed or its connection has closed.
    pub(crate) fn lost(&mut self, dial: DialId) -> Lost {
        if self.won.is_some_and(|won| won.dial == dial) {
            return Lost::Lease;
        }
        for lane in &mut self.lanes {
            if let Some(at) = lane.open.iter().position(|d| d.dial == dial) {
                lane.open.remove(at);
                return Lost::Dial;
            }
        }
        Lost::Unknown
    }

    /// Closes all that is open.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        let open = self.lanes.iter_mut().flat_map(|lane| lane.open.drain(..)).map(|d| d.dial);
        for dial in open.chain(self.won.map(|won| won.dial)) {
            shared.hang_up(dial);
        }
    }
}

/// What a dial that ended was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Not of this race.
    Unknown,
    /// One of several.
    Dial,
    /// The one that the target had named.
    Lease,
}

/// The connections that have brought a token for this node, by the node that opened them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals {
    by_prover: BTreeMap<NodeId, Vec<Arrival>>,
    provers: BTreeMap<ConnId, NodeId>,
    /// The dials that have ever arrived, in a job with a secret: there only real processes can fill it.
    used: BTreeMap<NodeId, BTreeSet<u32>>,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    conn: ConnId,
    dial: u32,
}

impl Arrivals {
    /// Whether no connection has brought this token before. A recorded one, replayed, would keep the
    /// place of a node that is gone.
    pub(crate) fn is_first(&mut self, prover: NodeId, dial: u32) -> bool {
        self.used.entry(prover).or_default().insert(dial)
    }

    /// Counts a connection. Returns one that must be closed for it, where the prover has too many.
    pub(crate) fn add(&mut self, prover: NodeId, conn: ConnId, dial: u32) -> Option<ConnId> {
        let arrivals = self.by_prover.entry(prover).or_default();
        arrivals.push(Arrival { conn, dial });
        self.provers.insert(conn, prover);
        (arrivals.len() > ARRIVED).then(|| {
            let excess = arrivals.remove(0).conn;
            self.provers.remove(&excess);
            excess
        })
    }

    /// Forgets a connection that has closed. Returns its prover where that was the last one.
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

    /// Forgets a prover, and returns its connections.
    pub(crate) fn evict(&mut self, prover: NodeId) -> Vec<ConnId> {
        let arrivals = self.by_prover.remove(&prover).unwrap_or_default();
        for arrival in &arrivals {
            self.provers.remove(&arrival.conn);
        }
        arrivals.into_iter().map(|arrival| arrival.conn).collect()
    }

    /// The dial that is the prover's lease: the last that arrived. Before the prover knows of any, every
    /// one would do; afterwards it dials only where its lease has broken, and this side may not have
    /// noticed that yet.
    pub(crate) fn lease(&self, prover: NodeId) -> Option<u32> {
        self.by_prover.get(&prover)?.last().map(|arrival| arrival.dial)
    }

    pub(crate) fn has(&self, prover: NodeId) -> bool {
        self.by_prover.contains_key(&prover)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_prover.is_empty()
    }
}
