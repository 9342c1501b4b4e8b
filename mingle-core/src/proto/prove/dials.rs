//! The dials to one node: several at once, to all its endpoints, until it names one that arrived.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::OPEN;
use crate::model::NodeId;
use crate::proto::DialId;
use crate::proto::scale::DIAL_STAGGER;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};

/// The most dials to one endpoint at the same time. At 30% loss one in three succeeds at once: six all fail
/// in one race of twelve, twelve in one of 140.
const OPEN_TO_ENDPOINT: usize = 12;
/// From this many dials to one endpoint on, [`REPLACE`] is the interval.
const HASTY: u32 = 12;
/// Between two dials of one endpoint once [`OPEN_TO_ENDPOINT`] are open: then the oldest is replaced.
const REPLACE: Duration = Duration::from_millis(500);

/// The dials to one node, which race.
#[derive(Debug, Clone)]
pub(crate) struct Dials {
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
    /// This node's address on the connection, once it is established.
    local: Option<IpAddr>,
}

/// The dial that the target has named.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Won {
    pub(super) dial: DialId,
    pub(super) endpoint: SocketAddr,
    /// This node's address on the connection, if the driver has reported it.
    pub(super) local: Option<IpAddr>,
}

/// The role of a dial that has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It was no dial to this target.
    Unknown,
    /// A dial that the target had not named.
    Dial,
    /// The dial that the target had named.
    Won,
}

impl Dials {
    /// Starts to dial `target` after `delay`. Endpoints that are this node's own are left out: the same
    /// private address (172.17.0.1, say) may be found on every host.
    pub(crate) fn start(
        shared: &mut Shared,
        target: NodeId,
        endpoints: &[SocketAddr],
        delay: Duration,
    ) -> Self {
        let mut dials = Self { target, lanes: Vec::new(), won: None };
        // The preferred endpoint has a head start; the others follow one by one (RFC 8305).
        let mut next = shared.now + delay;
        for &endpoint in endpoints.iter().filter(|e| !shared.config.node.endpoints.contains(e)) {
            dials.lanes.push(Lane { endpoint, next, tries: 0, open: Vec::new() });
            next += DIAL_STAGGER;
        }
        dials.advance(shared);
        dials
    }

    /// Opens the dials that are due, and sets the timer for the next.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if self.won.is_some() {
            return;
        }
        let hasty = shared.scale().dial_interval();
        for i in 0..self.lanes.len() {
            if self.lanes[i].next > shared.now {
                continue;
            }
            let crowded = self.lanes.iter().map(|lane| lane.open.len()).sum::<usize>() >= OPEN;
            if self.lanes[i].open.len() >= OPEN_TO_ENDPOINT || crowded {
                self.hang_up_oldest(i, shared);
            }
            let lane = &mut self.lanes[i];
            let dial = shared.dial(lane.endpoint, self.target);
            lane.open.push(Dialled { dial, local: None });
            lane.tries += 1;
            let interval = if lane.tries < HASTY { hasty } else { REPLACE.max(hasty) };
            lane.next = shared.now + interval;
        }
        if let Some(next) = self.lanes.iter().map(|lane| lane.next).min() {
            shared.timers.set_earlier(Timer::Dial, next);
        }
    }

    /// Closes the oldest dial to this endpoint; where it has none, to the endpoint with the most.
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

    /// The target has named a dial that arrived. Returns whether that one is still open; then it is kept, and
    /// the others are closed.
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

    /// A connection is established, on which this node has the address `local`.
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
    pub(crate) fn closed(&mut self, dial: DialId) -> Closed {
        if self.won.is_some_and(|won| won.dial == dial) {
            return Closed::Won;
        }
        for lane in &mut self.lanes {
            if let Some(at) = lane.open.iter().position(|d| d.dial == dial) {
                lane.open.remove(at);
                return Closed::Dial;
            }
        }
        Closed::Unknown
    }

    /// Closes all that are open.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        let open = self.lanes.iter_mut().flat_map(|lane| lane.open.drain(..)).map(|d| d.dial);
        for dial in open.chain(self.won.map(|won| won.dial)) {
            shared.hang_up(dial);
        }
    }
}
