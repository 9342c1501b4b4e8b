//! The paths to partners: their pace, what proves one, and what a node finds out about one that it cannot
//! prove.

use std::net::SocketAddr;

use super::{Done, id, ms, shared};
use crate::model::Fault;
use crate::proto::prove::paths::PathProofs;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::proto::{DialId, PathNews};
use crate::wire::{Broken, BrokenTo, Partner};

const PORT: u16 = 40_000;
const OWN_PORT: u16 = 29_500;

fn path(node: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, node], port))
}

fn partner(node: u8) -> Partner {
    Partner { rank: 0, id: id(node), path: path(node, PORT), own_port: OWN_PORT }
}

/// The paths to the nodes 10 and so on.
struct Fixture {
    paths: PathProofs,
    shared: Shared,
}

impl Fixture {
    fn new(partners: u8) -> Self {
        let mut shared = shared(200);
        let all: Vec<Partner> = (10..10 + partners).map(partner).collect();
        let paths = PathProofs::start(all.iter().copied(), &mut shared);
        Self { paths, shared }
    }

    fn done(&mut self) -> Done {
        Done::by(&mut self.shared)
    }

    /// Fires the timer until `until`. Returns the connections and messages of each time.
    fn run(&mut self, until: Time) -> Vec<(u128, Done)> {
        let mut all = vec![(self.shared.now.as_millis(), self.done())];
        while let Some(next) = self.shared.timers.get(Timer::Dial).filter(|&next| next <= until) {
            self.shared.timers.stop(Timer::Dial);
            assert!(next > self.shared.now, "time goes on");
            self.shared.now = next;
            self.paths.advance(&mut self.shared);
            all.push((next.as_millis(), self.done()));
        }
        self.shared.now = until;
        all.retain(|(_, done)| *done != Done::default());
        all
    }

    /// The same, with how many connections are opened and closed.
    fn counts(&mut self, until: Time) -> Vec<(u128, usize, usize)> {
        self.run(until).into_iter().map(|(at, done)| (at, done.paths.len(), done.hung_up.len())).collect()
    }

    fn hear(&mut self, dial: DialId, news: PathNews) -> bool {
        self.paths.hear(dial, &news, &mut self.shared)
    }

    /// The dials that the first advance has opened, one to each partner.
    fn first(&mut self) -> Vec<DialId> {
        self.done().paths.into_iter().map(|(dial, _, _)| dial).collect()
    }

    fn fault(&self) -> (Fault, bool) {
        let broken = self.paths.broken().expect("a path is broken");
        let [BrokenTo { fault, own_port_answers, .. }] = broken.paths[..] else { panic!("{broken:?}") };
        (fault, own_port_answers)
    }
}

#[test]
fn a_path_is_proved_by_one_answer_and_all_are_when_each_is() {
    let mut fixture = Fixture::new(2);
    let first = fixture.first();
    fixture.counts(ms(20));
    assert!(!fixture.hear(DialId(99), PathNews::Arrived), "a dial of nobody");
    assert!(!fixture.hear(first[0], PathNews::Opened { packet: 1500 }) && !fixture.paths.are_proved());
    assert!(!fixture.hear(first[0], PathNews::Arrived) && !fixture.paths.are_proved());
    assert_eq!(fixture.done().hung_up, [DialId(3)], "the other connection to the one that is proved");
    assert!(!fixture.hear(first[0], PathNews::Arrived), "again");
    let later = fixture.run(ms(100));
    let dialled: Vec<SocketAddr> =
        later.iter().flat_map(|(_, done)| &done.paths).map(|(_, to, _)| *to).collect();
    assert_eq!(dialled, [path(11, PORT); 4], "the other alone");
    assert!(fixture.hear(first[1], PathNews::Arrived) && fixture.paths.are_proved());
    assert_eq!(fixture.paths.broken(), None);
    fixture.done();
    assert_eq!(fixture.run(ms(9000)), [], "nothing more is dialled, and nothing explained");
}

#[test]
fn a_partner_counts_once_and_this_node_itself_does_not() {
    let mut shared = shared(9);
    // The same again, with another port of its own.
    let all = [partner(2), partner(10), Partner { own_port: 1, ..partner(10) }];
    let mut paths = PathProofs::start(all.iter().copied(), &mut shared);
    assert_eq!(Done::by(&mut shared).paths, [(DialId(1), path(10, PORT), None)], "at once");
    assert!(paths.hear(DialId(1), &PathNews::Arrived, &mut shared));
}

/// The connections that find out why the paths are not proved.
fn explained(fixture: &mut Fixture) -> Vec<(DialId, SocketAddr, Option<u32>)> {
    let before = fixture.run(ms(2499));
    assert!(
        before
            .iter()
            .flat_map(|(_, done)| &done.paths)
            .all(|&(_, to, packet)| { to.port() == PORT && packet.is_none() })
    );
    let mut explained: Vec<_> = fixture.run(ms(2500)).into_iter().flat_map(|(_, done)| done.paths).collect();
    let later = fixture.run(ms(5000)).into_iter().flat_map(|(_, done)| done.paths);
    explained.retain(|&(_, to, packet)| to.port() != PORT || packet.is_some());
    assert!(later.into_iter().all(|(_, to, packet)| to.port() == PORT && packet.is_none()), "once");
    explained
}

#[test]
fn where_a_connection_opens_and_nothing_answers_shorter_segments_show_what_passes() {
    for (fails, lengths) in [
        (1500, vec![1492, 1476, 1450, 1420, 1400, 1372, 1280, 1000, 576]),
        (1501, vec![1500, 1492, 1476, 1450, 1420, 1400, 1372, 1280, 1000, 576]),
        (9000, vec![8950, 4050, 1500, 1492, 1476, 1450, 1420, 1400, 1372, 1280, 1000, 576]),
        (576, vec![]),
    ] {
        let mut fixture = Fixture::new(1);
        let first = fixture.first()[0];
        fixture.hear(first, PathNews::Opened { packet: fails });
        let dials = explained(&mut fixture);
        let expected: Vec<_> = lengths.iter().map(|&length| (path(10, PORT), Some(length))).collect();
        let dialled: Vec<_> = dials.iter().map(|&(_, to, packet)| (to, packet)).collect();
        assert_eq!(dialled, expected);
        assert_eq!(fixture.fault(), (Fault::Unanswered, false), "none of them has arrived");
        let of_length =
            |length| dials.iter().find(|(.., packet)| *packet == Some(length)).map(|(dial, ..)| *dial);
        for (length, longest) in [(1280, 1280), (1400, 1400), (576, 1400)] {
            let Some(dial) = of_length(length) else { continue };
            // The segments of this connection are short: that is no news.
            fixture.hear(dial, PathNews::Opened { packet: length });
            assert!(!fixture.hear(dial, PathNews::Arrived), "it is no proof");
            assert_eq!(fixture.fault(), (Fault::Size { passes: longest, fails }, false));
        }
    }
}

#[test]
fn where_no_connection_opens_the_partners_own_port_shows_whether_its_host_answers() {
    let mut fixture = Fixture::new(1);
    let dials = explained(&mut fixture);
    let [(dial, to, None)] = dials[..] else { panic!("{dials:?}") };
    assert_eq!(to, path(10, OWN_PORT));
    assert_eq!(fixture.fault(), (Fault::Silent, false));
    fixture.hear(dial, PathNews::Opened { packet: 1500 });
    assert_eq!(fixture.fault(), (Fault::Silent, false), "it has not answered");
    assert!(!fixture.hear(dial, PathNews::Arrived), "it is no proof of the path");
    assert_eq!(fixture.fault(), (Fault::Silent, true));
}

#[test]
fn of_many_paths_those_that_are_named_are_among_those_that_are_explained() {
    let mut shared = shared(200);
    // The later a partner's ID, the lower its rank; each has two addresses.
    let ways = |node: u8| {
        let partner = Partner { rank: u32::from(100 - node), ..partner(node) };
        [partner, Partner { path: SocketAddr::from(([10, 2, 0, node], PORT)), ..partner }]
    };
    let all: Vec<Partner> = (10..30).flat_map(ways).collect();
    let mut paths = PathProofs::start(all.iter().copied(), &mut shared);
    Done::by(&mut shared);
    shared.now = ms(2500);
    paths.advance(&mut shared);
    let explained: Vec<_> = Done::by(&mut shared).paths;
    let explained = explained.into_iter().filter(|(_, to, _)| to.port() == OWN_PORT);
    for (dial, ..) in explained.collect::<Vec<_>>() {
        paths.hear(dial, &PathNews::Arrived, &mut shared);
    }
    let named = paths.broken().unwrap().paths.into_vec();
    let partners: Vec<_> = named.iter().map(|path| path.partner).collect();
    assert!(partners.iter().copied().eq((22..30).rev().map(id)), "the lowest ranks, each once: {partners:?}");
    assert!(named.iter().all(|path| path.own_port_answers), "{named:?}");
}

#[test]
fn where_paths_are_proved_to_the_partners_own_port_there_is_nothing_to_find_out() {
    let mut shared = shared(9);
    let partner = Partner { path: path(10, OWN_PORT), ..partner(10) };
    let mut paths = PathProofs::start([partner], &mut shared);
    Done::by(&mut shared);
    shared.now = ms(2500);
    paths.advance(&mut shared);
    assert_eq!(Done::by(&mut shared).paths.len(), 1, "one more proof");
}

#[test]
fn the_fault_of_a_path_is_that_of_its_own_last_connection_and_not_of_those_that_explain_it() {
    let mut fixture = Fixture::new(1);
    let first = fixture.first()[0];
    fixture.hear(first, PathNews::Failed(Fault::Refused));
    assert_eq!(fixture.fault(), (Fault::Refused, false));
    let second = fixture.run(ms(20))[0].1.paths[0].0;
    fixture.hear(second, PathNews::Failed(Fault::NoRoute));
    assert_eq!(fixture.fault(), (Fault::NoRoute, false));
    let own = explained(&mut fixture)[0].0;
    fixture.hear(own, PathNews::Failed(Fault::Unreachable));
    assert_eq!(fixture.fault(), (Fault::NoRoute, false));
    assert!(!fixture.hear(own, PathNews::Arrived), "it has failed");
    assert_eq!(fixture.fault(), (Fault::NoRoute, false));
}

#[test]
fn eight_broken_paths_are_named_and_the_others_counted() {
    for (partners, proved, named, more) in
        [(1, 0, 1, 0), (8, 0, 8, 0), (9, 0, 8, 1), (14, 2, 8, 4), (5, 5, 0, 0)]
    {
        let mut fixture = Fixture::new(partners);
        for dial in &fixture.first()[..proved] {
            fixture.hear(*dial, PathNews::Arrived);
        }
        let broken = fixture.paths.broken();
        let of = |Broken { paths, more }: Broken| {
            let partners: Vec<_> = paths.iter().map(|to| to.partner).collect();
            (partners, more)
        };
        let first = 10 + u8::try_from(proved).unwrap();
        let expected: Vec<_> = (first..first + named).map(id).collect();
        assert_eq!(broken.map(of), (named > 0).then_some((expected, more)), "{partners} partners");
    }
}

#[test]
fn a_round_that_ends_closes_what_it_has_opened() {
    let mut fixture = Fixture::new(3);
    let first = fixture.first();
    fixture.hear(first[1], PathNews::Arrived);
    fixture.done();
    fixture.paths.stop(&mut fixture.shared);
    assert_eq!(Done::by(&mut fixture.shared).hung_up, [first[0], first[2]]);
}
