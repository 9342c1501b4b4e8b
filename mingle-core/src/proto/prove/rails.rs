//! The rails of this host, and whether each reaches its counterpart on the neighbours: the nodes of the next
//! and the previous rank.
//!
//! A neighbour is asked for its rails, by TCP at its port for paths, and then each rail of this host opens
//! connections to one of them. A rail that fails is a warning, once the world has formed: RoCE bypasses the
//! host's firewall, and TCP does not. So a node waits for its rails, but not for long.

use std::time::Duration;

use super::tries::{Pace, Tries};
use crate::model::{Fault, HostName, Rank};
use crate::proto::output::{DialId, PathNews};
use crate::proto::report::{Event, Warning};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::rdma::{Addressing, BrokenRail, Rail};
use crate::wire::{Partner, RailList};

/// For how long a neighbour is asked for its rails.
const ASK: Duration = Duration::from_secs(2);
/// For how long its rails are tried. At 30% loss, one rail in a million takes longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most connections to all rails at the same time, but at least [`FEWEST`] to each.
const OPEN_TO_ALL: usize = 128;
const FEWEST: usize = 4;
/// How often a connection replaces the oldest to the same rail.
const REPLACE: Duration = Duration::from_millis(100);
/// The most rails that are named in warnings; the others are counted.
const NAMED: usize = 4;

/// The rails of one round.
#[derive(Debug, Clone)]
pub(super) struct RailProofs {
    /// None where no rail is proved.
    addressing: Option<Addressing>,
    /// The ranks after and before this node's.
    ranks: [Rank; 2],
    neighbours: Vec<Neighbour>,
}

/// A node to whose rails those of this host belong.
#[derive(Debug, Clone)]
struct Neighbour {
    partner: Partner,
    step: Step,
    /// When to give up this step.
    until: Time,
}

#[derive(Debug, Clone)]
enum Step {
    /// Asks for its rails.
    Asking(Tries),
    /// Connects to its rails.
    Proving(HostName, Vec<Lane>),
    /// These were not reached.
    Over(Vec<BrokenRail>),
}

/// A rail of this host, and its counterpart.
#[derive(Debug, Clone)]
struct Lane {
    from: Rail,
    to: Rail,
    tries: Tries,
    /// Whether it is proved, or nothing can be said of it.
    settled: bool,
    fault: Fault,
}

impl RailProofs {
    /// None are proved without an addressing.
    pub(super) fn new(addressing: Option<Addressing>, ranks: [Rank; 2], shared: &Shared) -> Self {
        let has_rails = |addressing: &Addressing| !shared.config.rails.with(*addressing).is_empty();
        Self { addressing: addressing.filter(has_rails), ranks, neighbours: Vec::new() }
    }

    /// The leader has named partners. Gives no rail up, since the caller does not look for that here.
    pub(super) fn add(&mut self, partners: &[Partner], shared: &mut Shared) {
        if self.addressing.is_none() {
            return;
        }
        let known = self.neighbours.len();
        for &partner in partners {
            let is_known = self.neighbours.iter().any(|known| known.partner.rank == partner.rank);
            if self.ranks.contains(&Rank(partner.rank)) && !is_known && partner.id != shared.me() {
                let step = Step::Asking(Tries::new(shared.now));
                self.neighbours.push(Neighbour { partner, step, until: shared.now + ASK });
            }
        }
        if self.neighbours.len() > known {
            self.advance(shared);
        }
    }

    /// Whether each rail of the known neighbours is proved or given up.
    pub(super) fn are_settled(&self) -> bool {
        self.neighbours.iter().all(Neighbour::is_over)
    }

    /// Opens the connections that are due, and gives up what has taken too long. Returns whether the last
    /// rail was given up by this.
    pub(super) fn advance(&mut self, shared: &mut Shared) -> bool {
        let Some(addressing) = self.addressing.filter(|_| !self.are_settled()) else { return false };
        let targets = self.neighbours.iter().map(Neighbour::targets).sum();
        let pace = Pace::new(targets, OPEN_TO_ALL, FEWEST, REPLACE);
        let next = self.neighbours.iter_mut().filter_map(|n| n.advance(addressing, pace, shared)).min();
        if let Some(next) = next {
            shared.timers.set_earlier(Timer::Dial, next);
        }
        self.are_settled()
    }

    /// Whether this connection is one of these.
    pub(super) fn has(&self, dial: DialId) -> bool {
        self.neighbours.iter().any(|neighbour| neighbour.has(dial))
    }

    /// Something has happened on a connection. Returns whether all is settled by it.
    pub(super) fn hear(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) -> bool {
        let (Some(addressing), Some(neighbour)) =
            (self.addressing, self.neighbours.iter_mut().find(|neighbour| neighbour.has(dial)))
        else {
            return false;
        };
        neighbour.hear(dial, news, addressing, shared);
        self.advance(shared);
        self.are_settled()
    }

    /// A connection has closed or could not be opened.
    pub(super) fn closed(&mut self, dial: DialId) {
        for tries in self.neighbours.iter_mut().flat_map(Neighbour::tries) {
            tries.closed(dial);
        }
    }

    /// Warns of the rails that were not reached.
    pub(super) fn warn(&self, shared: &mut Shared) {
        let broken = || {
            self.neighbours.iter().flat_map(|neighbour| match &neighbour.step {
                Step::Over(broken) => broken.as_slice(),
                _ => &[],
            })
        };
        for rail in broken().take(NAMED) {
            shared.event(Event::Warning(Warning::RailBroken(Box::new(rail.clone()))));
        }
        let more = broken().count().saturating_sub(NAMED);
        if more > 0 {
            shared.event(Event::Warning(Warning::MoreRailsBroken { more }));
        }
    }

    pub(super) fn stop(mut self, shared: &mut Shared) {
        for tries in self.neighbours.iter_mut().flat_map(Neighbour::tries) {
            tries.stop(shared);
        }
    }
}

impl Neighbour {
    fn is_over(&self) -> bool {
        matches!(self.step, Step::Over(_))
    }

    /// How many targets it has.
    fn targets(&self) -> usize {
        match &self.step {
            Step::Asking(_) => 1,
            Step::Proving(_, lanes) => lanes.len(),
            Step::Over(_) => 0,
        }
    }

    fn tries(&mut self) -> Vec<&mut Tries> {
        match &mut self.step {
            Step::Asking(tries) => vec![tries],
            Step::Proving(_, lanes) => lanes.iter_mut().map(|lane| &mut lane.tries).collect(),
            Step::Over(_) => Vec::new(),
        }
    }

    fn has(&self, dial: DialId) -> bool {
        match &self.step {
            Step::Asking(tries) => tries.has(dial),
            Step::Proving(_, lanes) => lanes.iter().any(|lane| lane.tries.has(dial)),
            Step::Over(_) => false,
        }
    }

    /// Opens the connections that are due. Returns when to do so again.
    fn advance(&mut self, addressing: Addressing, pace: Pace, shared: &mut Shared) -> Option<Time> {
        if shared.now >= self.until && !self.is_over() {
            self.end(shared);
        }
        let (to, target) = (self.partner.path, self.partner.id);
        let next = match &mut self.step {
            Step::Asking(tries) => {
                if tries.next() <= shared.now {
                    tries.repeat(pace, shared, |shared| shared.dial_ask(to, target, addressing));
                }
                tries.next()
            }
            Step::Proving(_, lanes) => {
                let unproved = lanes.iter_mut().filter(|lane| !lane.settled);
                let next = unproved.map(|lane| {
                    let to = (lane.to.address, to.port()).into();
                    let from = &lane.from;
                    if lane.tries.next() <= shared.now {
                        lane.tries.repeat(pace, shared, |shared| shared.dial_rail(from, to, target));
                    }
                    lane.tries.next()
                });
                next.min()?
            }
            Step::Over(_) => return None,
        };
        Some(next.min(self.until))
    }

    fn hear(&mut self, dial: DialId, news: &PathNews, addressing: Addressing, shared: &mut Shared) {
        match &mut self.step {
            Step::Asking(tries) => match news {
                PathNews::Rails(answer) => {
                    let read =
                        shared.read_rails(self.partner.path, self.partner.id, dial, addressing, answer);
                    match read {
                        Ok(list) => self.start(list, addressing, shared),
                        Err(dropped) => tracing::debug!(%dropped, "an answer without rails"),
                    }
                }
                PathNews::Failed(_) => {
                    tries.closed(dial);
                }
                PathNews::Opened { .. } | PathNews::Arrived => {}
            },
            Step::Proving(_, lanes) => {
                let Some(lane) = lanes.iter_mut().find(|lane| lane.tries.has(dial)) else {
                    return;
                };
                lane.hear(dial, news, shared);
                if lanes.iter().all(|lane| lane.settled) {
                    self.end(shared);
                }
            }
            Step::Over(_) => {}
        }
    }

    /// The neighbour has named its rails.
    fn start(&mut self, list: RailList, addressing: Addressing, shared: &mut Shared) {
        for tries in self.tries() {
            tries.stop(shared);
        }
        let own = shared.config.rails.with(addressing);
        let serves = |from: &Rail, to: &Rail| {
            let is_own = own.iter().any(|own| own.address == to.address);
            from.address.is_ipv4() == to.address.is_ipv4() && !to.address.is_loopback() && !is_own
        };
        let pairs = Rail::pair(own, &list.rails).into_iter().filter(|(from, to)| serves(from, to));
        let tries = Tries::new(shared.now);
        let lane = |(from, to)| Lane { from, to, tries: tries.clone(), settled: false, fault: Fault::Silent };
        let lanes: Vec<Lane> = pairs.map(lane).collect();
        self.until = shared.now + PATIENCE;
        self.step = if lanes.is_empty() { Step::Over(Vec::new()) } else { Step::Proving(list.host, lanes) };
    }

    /// Ends the connections, and notes which rails were not reached.
    fn end(&mut self, shared: &mut Shared) {
        for tries in self.tries() {
            tries.stop(shared);
        }
        let port = self.partner.path.port();
        let (host, lanes) = match std::mem::replace(&mut self.step, Step::Over(Vec::new())) {
            Step::Proving(host, lanes) => (host, lanes),
            Step::Asking(_) | Step::Over(_) => return,
        };
        let broken = lanes.into_iter().filter(|lane| !lane.settled).map(|lane| BrokenRail {
            from_host: shared.config.node.host.clone(),
            from: lane.from,
            to_host: host.clone(),
            to: lane.to,
            port,
            fault: lane.fault,
        });
        self.step = Step::Over(broken.collect());
    }
}

impl Lane {
    fn hear(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) {
        match news {
            PathNews::Opened { .. } => self.fault = Fault::Unanswered,
            // A host that cannot try, as where the address has gone, learns nothing of the network.
            PathNews::Arrived | PathNews::Failed(Fault::Local) => {
                self.settled = true;
                self.tries.stop(shared);
            }
            PathNews::Failed(fault) => {
                self.tries.closed(dial);
                // That one has opened says more.
                if self.fault != Fault::Unanswered {
                    self.fault = *fault;
                }
            }
            PathNews::Rails(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use crate::model::{JobId, NodeId};
    use crate::proto::{Config, Output, PathTarget, TOKEN};
    use crate::rdma::Rails;

    const V2: Addressing = Addressing::ALL[0];
    const NEXT: NodeId = NodeId([3; 16]);

    fn shared_of(number: u8, rails: &[Rail]) -> Shared {
        let tag = "rails".parse::<JobId>().unwrap().tag();
        let mut config = Config::plain(tag, 4, number, ([10, 0, 0, number], 29500).into());
        config.rails = Rails::example(rails);
        Shared::new(config, 1, Time::ZERO)
    }

    fn rails<A: AsRef<str>>(addresses: &[A]) -> Vec<Rail> {
        let rail = |(number, address): (usize, &A)| {
            Rail::example(&format!("mlx5_{number}:1"), "eth1", address.as_ref())
        };
        addresses.iter().enumerate().map(rail).collect()
    }

    /// The addresses of so many rails of a host.
    fn many(count: usize, host: u8) -> Vec<String> {
        (0..count).map(|rail| format!("10.{rail}.0.{host}")).collect()
    }

    fn partner(id: NodeId, rank: u32) -> Partner {
        Partner { id, rank, path: ([10, 0, 0, 3], 41_877).into(), own_port: 29500, stays: true }
    }

    /// The connections that are opened and closed.
    #[derive(Debug, Default)]
    struct Outputs {
        /// With the token.
        asks: Vec<(DialId, [u8; TOKEN])>,
        /// With the target and the rail's address.
        dials: Vec<(DialId, SocketAddr, IpAddr)>,
        closed: usize,
    }

    fn outputs(shared: &mut Shared) -> Outputs {
        let mut outputs = Outputs::default();
        while let Some(output) = shared.next_output() {
            match output {
                Output::AskRails { dial, token, .. } => outputs.asks.push((dial, token)),
                Output::DialPath { dial, to, from: Some(from), packet: None, .. } => {
                    outputs.dials.push((dial, to, from.address));
                }
                Output::HangUp(_) => outputs.closed += 1,
                other => panic!("{other:?}"),
            }
        }
        outputs
    }

    /// The rails of node 2, rank 1, which asks these partners.
    fn asking<A: AsRef<str>>(own: &[A], partners: &[Partner]) -> (RailProofs, Shared) {
        let mut shared = shared_of(2, &rails(own));
        let mut proofs = RailProofs::new(Some(V2), Rank(1).neighbours(shared.most()), &shared);
        proofs.add(partners, &mut shared);
        (proofs, shared)
    }

    /// The rails of node 2, rank 1, which has asked the node of rank 2 and was answered with these.
    fn answered<A: AsRef<str>>(own: &[A], theirs: &[Rail]) -> (RailProofs, Shared) {
        let (mut proofs, mut shared) = asking(own, &[partner(NEXT, 2)]);
        assert!(!proofs.are_settled());
        answer(&mut proofs, (3, theirs), &mut shared);
        (proofs, shared)
    }

    /// The node that was asked answers with its rails.
    fn answer(proofs: &mut RailProofs, (number, theirs): (u8, &[Rail]), shared: &mut Shared) {
        let Outputs { asks, dials, .. } = outputs(shared);
        let &[(dial, token)] = &asks[..] else { panic!("{asks:?}") };
        assert!(dials.is_empty());
        let answer = PathTarget::new(&shared_of(number, theirs)).answer(&token).unwrap();
        proofs.hear(dial, &PathNews::Rails(answer[2..].to_vec()), shared);
    }

    fn warnings(proofs: &RailProofs, shared: &mut Shared) -> Vec<Warning> {
        while shared.next_output().is_some() {}
        proofs.warn(shared);
        let said = std::iter::from_fn(|| shared.next_output()).map(|output| match output {
            Output::Event(Event::Warning(warning)) => warning,
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    #[test]
    fn only_the_nodes_of_the_next_ranks_are_asked_once_each_and_only_where_there_are_rails() {
        let partners: Vec<Partner> =
            (0..4).map(|rank| partner(NodeId([rank + 1; 16]), rank.into())).collect();
        for (own, addressing, asked) in
            [(&["10.1.0.2"][..], Some(V2), 2), (&[], Some(V2), 0), (&["10.1.0.2"], None, 0)]
        {
            let mut shared = shared_of(2, &rails(own));
            let mut proofs = RailProofs::new(addressing, Rank(1).neighbours(shared.most()), &shared);
            for _ in 0..2 {
                proofs.add(&partners, &mut shared);
                // A leader that names many nodes of one rank.
                proofs.add(&[partner(NodeId([9; 16]), 2)], &mut shared);
            }
            assert_eq!(outputs(&mut shared).asks.len(), asked);
            assert_eq!(proofs.neighbours.len(), asked);
        }
    }

    #[test]
    fn a_neighbour_that_does_not_answer_is_asked_for_two_seconds_and_is_not_named() {
        let (mut proofs, mut shared) = asking(&["10.1.0.2"], &[partner(NEXT, 2)]);
        let (mut asked, mut closed) = (outputs(&mut shared).asks.len(), 0);
        assert_eq!(shared.timers.get(Timer::Dial), Some(Time::from_millis(20)));
        while let Some(next) = shared.timers.get(Timer::Dial).filter(|_| !proofs.are_settled()) {
            shared.timers.stop(Timer::Dial);
            assert!(next > shared.now, "time goes on");
            shared.now = next;
            proofs.advance(&mut shared);
            let outputs = outputs(&mut shared);
            (asked, closed) = (asked + outputs.asks.len(), closed + outputs.closed);
            assert!(asked - closed <= 12, "{asked} asked, {closed} closed");
        }
        assert_eq!((shared.now, closed), (Time::from_secs(2), asked));
        assert!((25..=32).contains(&asked), "{asked}");
        assert_eq!(warnings(&proofs, &mut shared), []);
    }

    #[test]
    fn a_list_makes_a_node_dial_one_unicast_address_of_the_family_from_each_of_its_rails() {
        let own = ["10.1.0.2", "10.2.0.2", "10.3.0.2", "10.4.0.2"];
        let theirs = rails(&["10.1.0.3", "127.0.0.1", "10.1.0.2", "fd00::1", "10.5.0.3", "10.6.0.3"]);
        let (mut proofs, mut shared) = answered(&own, &theirs);
        let Outputs { asks, dials, closed } = outputs(&mut shared);
        assert!(asks.is_empty() && closed == 1, "the question is over");
        let [(dial, to, from)] = &dials[..] else { panic!("{dials:?}") };
        assert_eq!((to.to_string(), from.to_string()), ("10.1.0.3:41877".into(), "10.1.0.2".into()));
        assert!(proofs.has(*dial) && !proofs.hear(*dial, &PathNews::Opened { packet: 1500 }, &mut shared));
        assert!(proofs.hear(*dial, &PathNews::Arrived, &mut shared));
        assert_eq!((outputs(&mut shared).closed, warnings(&proofs, &mut shared)), (1, vec![]));
        let (nothing, _) = answered(&own, &rails(&["127.0.0.1"]));
        assert!(nothing.are_settled(), "no rail to dial");
    }

    #[test]
    fn a_prepare_that_comes_again_when_the_last_rail_is_due_to_be_given_up_leaves_that_to_the_timer() {
        let (mut proofs, mut shared) = answered(&["10.1.0.2"], &rails(&["10.1.0.3"]));
        shared.now = Time::from_secs(3);
        proofs.add(&[partner(NEXT, 2)], &mut shared);
        assert!(!proofs.are_settled());
        assert!(proofs.advance(&mut shared), "settled by this");
    }

    #[test]
    fn a_node_that_is_named_as_its_own_neighbour_asks_nobody() {
        let (proofs, mut shared) = asking(&["10.1.0.2"], &[partner(NodeId([2; 16]), 2)]);
        assert!(outputs(&mut shared).asks.is_empty() && proofs.are_settled());
    }

    #[test]
    fn a_neighbour_is_asked_again_after_20_ms_and_a_question_that_has_failed_is_over() {
        let (mut proofs, mut shared) = asking(&["10.1.0.2"], &[partner(NEXT, 2)]);
        let (first, _) = outputs(&mut shared).asks[0];
        assert!(!proofs.hear(first, &PathNews::Failed(Fault::Refused), &mut shared));
        assert!(!proofs.has(first) && outputs(&mut shared).asks.is_empty(), "not yet");
        for (at, asks) in [(1, 0), (19, 0), (20, 1), (21, 0)] {
            shared.now = Time::from_millis(at);
            proofs.advance(&mut shared);
            assert_eq!(outputs(&mut shared).asks.len(), asks, "after {at} ms");
        }
        proofs.stop(&mut shared);
        assert_eq!(outputs(&mut shared).closed, 1, "the second alone is open");
    }

    #[test]
    fn the_rails_of_a_neighbour_that_answers_late_are_tried_for_two_seconds_too() {
        let (mut proofs, mut shared) = asking(&["10.1.0.2"], &[partner(NEXT, 2)]);
        shared.now = Time::from_millis(1900);
        answer(&mut proofs, (3, &rails(&["10.1.0.3"])), &mut shared);
        for (at, is_last) in [(2000, false), (3899, false), (3900, true)] {
            shared.now = Time::from_millis(at);
            assert_eq!(proofs.advance(&mut shared), is_last, "after {at} ms");
        }
    }

    #[test]
    fn an_answer_to_another_question_is_no_answer() {
        let (mut proofs, mut shared) = asking(&["10.1.0.2"], &[partner(NEXT, 2)]);
        let (dial, token) = outputs(&mut shared).asks[0];
        let target = PathTarget::new(&shared_of(3, &rails(&["10.1.0.3"])));
        let answer = target.answer(&token).unwrap()[2..].to_vec();
        for at in [0, 10, answer.len() - 1] {
            let mut wrong = answer.clone();
            wrong[at] ^= 1;
            assert!(!proofs.hear(dial, &PathNews::Rails(wrong), &mut shared));
        }
        assert!(outputs(&mut shared).dials.is_empty());
        let other = PathTarget::new(&shared_of(4, &rails(&["10.1.0.3"])));
        assert_eq!(other.answer(&token), None, "another node was asked");
        proofs.hear(dial, &PathNews::Rails(answer), &mut shared);
        assert_eq!(outputs(&mut shared).dials.len(), 1);
    }

    #[test]
    fn a_connection_that_has_closed_is_not_closed_again() {
        let (mut proofs, mut shared) = answered(&["10.1.0.2"], &rails(&["10.1.0.3"]));
        let (dial, ..) = outputs(&mut shared).dials[0];
        proofs.closed(dial);
        assert!(!proofs.has(dial));
        proofs.stop(&mut shared);
        assert_eq!(outputs(&mut shared).closed, 0);
    }

    #[test]
    fn a_rail_is_tried_again_after_2_ms_for_each_that_is_tried_and_none_for_a_neighbour_that_is_done() {
        let (mut proofs, mut shared) = answered(&many(11, 2), &[]);
        assert!(proofs.are_settled(), "it has no rails");
        proofs.add(&[partner(NodeId([4; 16]), 0)], &mut shared);
        shared.timers.stop(Timer::Dial);
        answer(&mut proofs, (4, &rails(&many(11, 4))), &mut shared);
        assert_eq!(outputs(&mut shared).dials.len(), 11);
        assert_eq!(shared.timers.get(Timer::Dial), Some(Time::from_millis(22)));
    }

    #[test]
    fn a_neighbour_that_is_still_asked_counts_as_one_more_that_is_tried() {
        let (mut proofs, mut shared) = asking(&many(10, 2), &[partner(NEXT, 2), partner(NodeId([4; 16]), 0)]);
        let (dial, token) = outputs(&mut shared).asks[0];
        let answer = PathTarget::new(&shared_of(3, &rails(&many(10, 3)))).answer(&token).unwrap();
        proofs.hear(dial, &PathNews::Rails(answer[2..].to_vec()), &mut shared);
        for (at, dials) in [(0, 10), (20, 0), (21, 0), (22, 10)] {
            shared.now = Time::from_millis(at);
            proofs.advance(&mut shared);
            assert_eq!(outputs(&mut shared).dials.len(), dials, "after {at} ms");
        }
    }

    #[test]
    fn four_broken_rails_are_named_and_the_others_counted() {
        for (rails_of_each, named, counted) in [(4, 4, None), (5, 4, Some(1)), (6, 4, Some(2))] {
            let (mut proofs, mut shared) = answered(&many(rails_of_each, 2), &rails(&many(rails_of_each, 3)));
            shared.now = Time::from_secs(2);
            assert!(proofs.advance(&mut shared));
            let said = warnings(&proofs, &mut shared);
            let (first, others) = said.split_at(named);
            assert!(first.iter().all(|warning| matches!(warning, Warning::RailBroken(_))), "{first:?}");
            let expected = counted.map(|more| Warning::MoreRailsBroken { more });
            assert_eq!(others, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_was_seen_of_a_rail_is_named_and_a_host_that_cannot_try_says_nothing() {
        use Fault::{Local, NoRoute, Refused, Silent, Unanswered};
        let opened = PathNews::Opened { packet: 1500 };
        for (news, named) in [
            (vec![], Some(Silent)),
            (vec![PathNews::Failed(Refused)], Some(Refused)),
            (vec![PathNews::Failed(Refused), PathNews::Failed(NoRoute)], Some(NoRoute)),
            (vec![opened, PathNews::Failed(Refused)], Some(Unanswered)),
            (vec![PathNews::Failed(Local)], None),
        ] {
            let (mut proofs, mut shared) = answered(&["10.1.0.2"], &rails(&["10.1.0.3"]));
            for news in &news {
                let dial = outputs(&mut shared).dials[0].0;
                proofs.hear(dial, news, &mut shared);
                shared.now += Duration::from_millis(20);
                proofs.advance(&mut shared);
            }
            assert_eq!(proofs.are_settled(), named.is_none());
            shared.now = Time::from_secs(2);
            assert_eq!(proofs.advance(&mut shared), named.is_some(), "settled by this");
            assert!(!proofs.advance(&mut shared), "and not again");
            let said = warnings(&proofs, &mut shared);
            let seen: Vec<Fault> = said
                .iter()
                .map(|warning| match warning {
                    Warning::RailBroken(broken) => broken.fault,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(seen, named.into_iter().collect::<Vec<_>>(), "{news:?}");
        }
    }

    #[test]
    fn the_connections_of_all_rails_have_a_limit_and_end_with_the_round() {
        let (mut proofs, mut shared) = answered(&many(16, 2), &rails(&many(16, 3)));
        let first = outputs(&mut shared);
        // The question has ended, too.
        let (mut opened, mut closed) = (first.dials.len() + 1, first.closed);
        while shared.now < Time::from_millis(1990) {
            shared.now += Duration::from_millis(1);
            proofs.advance(&mut shared);
            let outputs = outputs(&mut shared);
            (opened, closed) = (opened + outputs.dials.len(), closed + outputs.closed);
            assert!(opened - closed <= OPEN_TO_ALL, "{opened} opened, {closed} closed");
        }
        assert!((300..600).contains(&opened), "{opened}");
        proofs.stop(&mut shared);
        assert_eq!(closed + outputs(&mut shared).closed, opened);
    }

    #[test]
    fn the_most_rails_of_two_neighbours_have_128_connections_together() {
        let (mut proofs, mut shared) = answered(&many(16, 2), &rails(&many(16, 3)));
        let mut open = outputs(&mut shared).dials.len();
        proofs.add(&[partner(NodeId([4; 16]), 0)], &mut shared);
        answer(&mut proofs, (4, &rails(&many(16, 4))), &mut shared);
        open += outputs(&mut shared).dials.len();
        assert_eq!(open, 32, "one to each rail");
        let mut most = open;
        while shared.now < Time::from_millis(1990) {
            shared.now += Duration::from_millis(1);
            proofs.advance(&mut shared);
            let outputs = outputs(&mut shared);
            open = open + outputs.dials.len() - outputs.closed;
            most = most.max(open);
        }
        assert_eq!(most, OPEN_TO_ALL);
    }
}
