//! The dials to a leader: several at once, to all its endpoints, until it names one that arrived.

use std::net::SocketAddr;
use std::time::Duration;

use super::OPEN;
use crate::model::NodeId;
use crate::proto::output::DialId;
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
    /// One dial and no more: the target has not written to this node, and the address may be forged.
    waits: bool,
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
    established: bool,
}

/// The dial that the target has named.
#[derive(Debug, Clone, Copy)]
struct Won {
    dial: DialId,
    endpoint: SocketAddr,
}

impl Dials {
    /// Dials to `target` after `delay`, which [`Dials::advance`] opens. Endpoints that are this node's own
    /// are left out: the same private address (172.17.0.1, say) may be found on every host. So are loopback
    /// addresses beside others.
    pub(crate) fn new(shared: &Shared, target: NodeId, endpoints: &[SocketAddr], delay: Duration) -> Self {
        let mut dials = Self { target, lanes: Vec::new(), won: None, waits: false };
        // The preferred endpoint has a head start; the others follow one by one (RFC 8305).
        let mut next = shared.now + delay;
        let own = &shared.config.node.endpoints;
        let is_everywhere = |endpoint: &SocketAddr| endpoint.ip().is_loopback();
        let leaves_out = !is_everywhere(&own.preferred()) && !endpoints.iter().all(is_everywhere);
        let others = endpoints.iter().filter(|e| !(own.contains(e) || leaves_out && is_everywhere(e)));
        for &endpoint in others {
            dials.lanes.push(Lane { endpoint, next, tries: 0, open: Vec::new() });
            next += DIAL_STAGGER;
        }
        dials
    }

    /// Opens the first dial only, until [`Dials::go_on`].
    pub(crate) fn wait_after_first(&mut self) {
        self.waits = true;
    }

    /// The target has written to this node: the other dials may follow.
    pub(crate) fn go_on(&mut self, shared: &mut Shared) {
        if std::mem::take(&mut self.waits) {
            let mut next = shared.now;
            for lane in &mut self.lanes {
                lane.next = lane.next.max(next);
                next += DIAL_STAGGER;
            }
            self.advance(shared);
        }
    }

    /// Opens the dials that are due, and sets the timer for the next.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if self.won.is_some() || self.waits && self.lanes.iter().any(|lane| lane.tries > 0) {
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
            lane.open.push(Dialled { dial, established: false });
            lane.tries += 1;
            let interval = if lane.tries < HASTY { hasty } else { REPLACE.max(hasty) };
            lane.next = shared.now + interval;
            if self.waits {
                return;
            }
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

    /// The target has named a dial that arrived. Returns whether that one is established and still open; then
    /// it is kept, and the others are closed. One that is not established cannot have arrived.
    pub(crate) fn win(&mut self, dial: DialId, shared: &mut Shared) -> bool {
        if let Some(won) = self.won {
            return won.dial == dial;
        }
        let found = self.lanes.iter().find_map(|lane| {
            let named = lane.open.iter().any(|d| d.dial == dial && d.established);
            named.then_some(Won { dial, endpoint: lane.endpoint })
        });
        let Some(won) = found else { return false };
        self.won = Some(won);
        for loser in self.lanes.iter_mut().flat_map(|lane| lane.open.drain(..)).filter(|d| d.dial != dial) {
            shared.hang_up(loser.dial);
        }
        true
    }

    /// A connection is established.
    pub(crate) fn connected(&mut self, dial: DialId) {
        for dialled in self.lanes.iter_mut().flat_map(|lane| &mut lane.open).filter(|d| d.dial == dial) {
            dialled.established = true;
        }
    }

    /// The endpoint of the dial that the target has named.
    pub(crate) fn won(&self) -> Option<SocketAddr> {
        self.won.map(|won| won.endpoint)
    }

    /// The dial that the target has named.
    pub(crate) fn lease(&self) -> Option<DialId> {
        self.won.map(|won| won.dial)
    }

    /// Whether it is the dial that the target has named, or before that any open dial.
    pub(crate) fn has(&self, dial: DialId) -> bool {
        let is_open = |lane: &Lane| lane.open.iter().any(|open| open.dial == dial);
        self.lease().map_or_else(|| self.lanes.iter().any(is_open), |lease| lease == dial)
    }

    /// A dial has failed or its connection has closed. Returns whether it is the one that the target had
    /// named.
    pub(crate) fn closed(&mut self, dial: DialId) -> bool {
        for lane in &mut self.lanes {
            lane.open.retain(|open| open.dial != dial);
        }
        self.won.is_some_and(|won| won.dial == dial)
    }

    /// Closes all that are open.
    pub(crate) fn stop(mut self, shared: &mut Shared) {
        let open = self.lanes.iter_mut().flat_map(|lane| lane.open.drain(..)).map(|d| d.dial);
        for dial in open.chain(self.won.map(|won| won.dial)) {
            shared.hang_up(dial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobId;
    use crate::proto::{Config, Output};

    const TARGET: NodeId = NodeId([9; 16]);

    fn endpoint(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 29500))
    }

    fn shared() -> Shared {
        let tag = "dials".parse::<JobId>().unwrap().tag();
        Shared::new(Config::plain(tag, 4, 2, endpoint(2)), 1, Time::ZERO)
    }

    /// The dials that are opened, with their endpoints, and the dials that are closed.
    fn outputs(shared: &mut Shared) -> (Vec<(DialId, SocketAddr)>, Vec<DialId>) {
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        while let Some(output) = shared.next_output() {
            match output {
                Output::Dial { dial, to, .. } => opened.push((dial, to)),
                Output::HangUp(dial) => closed.push(dial),
                other => panic!("{other:?}"),
            }
        }
        (opened, closed)
    }

    /// Each millisecond until `until` in which a dial is due, with how many are opened and closed.
    fn run(dials: &mut Dials, shared: &mut Shared, until: Time) -> Vec<(u128, usize, usize)> {
        let mut all = Vec::new();
        loop {
            dials.advance(shared);
            let (opened, closed) = outputs(shared);
            all.push((shared.now.as_millis(), opened.len(), closed.len()));
            let next = shared.timers.get(Timer::Dial).expect("there is a next dial");
            shared.timers.stop(Timer::Dial);
            assert!(next > shared.now, "time goes on");
            if next > until {
                return all;
            }
            shared.now = next;
        }
    }

    #[test]
    fn sixteen_dials_are_open_in_all() {
        let mut shared = shared();
        let endpoints = [endpoint(1), endpoint(3), endpoint(4)];
        let mut dials = Dials::new(&shared, TARGET, &endpoints, Duration::ZERO);
        let mut open = 0;
        for (at, opened, closed) in run(&mut dials, &mut shared, Time::from_secs(5)) {
            open = open + opened - closed;
            assert!(open <= 16 && (open == 16 || at < 400), "{open} open after {at} ms");
        }
    }

    #[test]
    fn the_dial_that_the_target_names_is_kept_if_it_is_established_and_the_others_are_closed() {
        let mut shared = shared();
        let mut dials = Dials::new(&shared, TARGET, &[endpoint(1)], Duration::ZERO);
        run(&mut dials, &mut shared, Time::from_millis(150));
        dials.connected(DialId(2));
        assert!(!dials.closed(DialId(1)));
        for wrong in [DialId(1), DialId(3), DialId(9)] {
            assert!(!dials.win(wrong, &mut shared) && dials.won().is_none(), "{wrong:?}");
        }
        assert!(dials.win(DialId(2), &mut shared));
        assert_eq!(outputs(&mut shared), (vec![], vec![DialId(3)]));
        assert_eq!(dials.won(), Some(endpoint(1)));
        assert!(dials.win(DialId(2), &mut shared) && !dials.win(DialId(3), &mut shared));
        shared.now = Time::from_secs(9);
        dials.advance(&mut shared);
        assert_eq!(outputs(&mut shared), (vec![], vec![]), "nothing more is dialled");
        assert_eq!((dials.closed(DialId(3)), dials.closed(DialId(2))), (false, true));
        dials.stop(&mut shared);
        assert_eq!(outputs(&mut shared).1, [DialId(2)]);
    }

    #[test]
    fn loopback_addresses_are_dialled_only_beside_no_others_or_by_a_node_that_has_one() {
        let local = SocketAddr::from(([127, 0, 0, 1], 29501));
        for (own, endpoints, dialled) in [
            (endpoint(2), vec![local, endpoint(3)], vec![endpoint(3)]),
            (endpoint(2), vec![local], vec![local]),
            (SocketAddr::from(([127, 0, 0, 1], 29500)), vec![local, endpoint(3)], vec![local, endpoint(3)]),
        ] {
            let tag = "dials".parse::<JobId>().unwrap().tag();
            let mut shared = Shared::new(Config::plain(tag, 4, 2, own), 1, Time::ZERO);
            let mut dials = Dials::new(&shared, TARGET, &endpoints, Duration::ZERO);
            shared.now = Time::from_secs(1);
            dials.advance(&mut shared);
            let to: Vec<_> = outputs(&mut shared).0.into_iter().map(|(_, to)| to).collect();
            assert_eq!(to, dialled, "{endpoints:?} by {own}");
        }
    }
}
