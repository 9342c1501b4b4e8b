//! The watch of the neighbours: what each sign leads to, and when.

use std::net::SocketAddr;

use super::*;
use crate::proto::{DialId, WatchNews};
use crate::wire::{Look, Partner, Sight, Suspicion};

const PATHS: u16 = 41_877;

fn path(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], PATHS))
}

/// The node of rank 1, node 2, of a world of nodes 1, 2 and so on, and the time that it has been told.
struct Watcher {
    running: RunningNode,
    now: Time,
}

/// Its connections, messages and changes.
#[derive(Debug, Default)]
struct Done {
    dials: Vec<(DialId, SocketAddr)>,
    closed: Vec<DialId>,
    sent: Vec<(SocketAddr, Message)>,
    multicast: Vec<Message>,
    changes: Vec<Change>,
}

impl Watcher {
    fn new(size: u8) -> (Self, Vec<(DialId, SocketAddr)>) {
        Self::of(config(1), size, |_| true)
    }

    /// Some of the nodes may not stay with their world.
    fn of(config: Config, size: u8, stays: impl Fn(u8) -> bool) -> (Self, Vec<(DialId, SocketAddr)>) {
        let mut node = Node::new(config, 1, Time::ZERO);
        while node.poll_output().is_some() {}
        let partner = |number: u8| Partner {
            id: id(number),
            rank: u32::from(number) - 1,
            path: path(number),
            own_port: address(number).port(),
            stays: stays(number),
        };
        node.set_neighbours((1..=size).filter(|&number| number != 2).map(partner).collect());
        let running = node.into_running(&formed(size, 1)).unwrap();
        let mut watcher = Self { running, now: Time::ZERO };
        let dials = watcher.done().dials;
        (watcher, dials)
    }

    /// Watches its neighbours, which have greeted: those of rank 0 and 2, in this order.
    fn greeted(size: u8) -> (Self, [DialId; 2]) {
        let (watcher, dials) = Self::new(size);
        watcher.greet(dials)
    }

    fn greet(mut self, dials: Vec<(DialId, SocketAddr)>) -> (Self, [DialId; 2]) {
        let of = |number| dials.iter().find(|(_, to)| *to == path(number)).unwrap().0;
        let dials = [of(1), of(3)];
        for dial in dials {
            self.hear(dial, WatchNews::Opened);
            self.hear(dial, WatchNews::Greeted);
        }
        assert_eq!(self.running.poll_timeout(), None, "nothing is sent while all is well");
        (self, dials)
    }

    fn hear(&mut self, dial: DialId, news: WatchNews) -> Done {
        self.running.handle_watch(self.now, dial, news);
        self.done()
    }

    fn message(&mut self, from: u8, message: &Message) -> Done {
        self.deliver(from, message);
        self.done()
    }

    /// A message to this node alone.
    fn deliver(&mut self, from: u8, message: &Message) {
        let (sender, recipient) = (id(from), self.running.context.own_id());
        let header = Header { sender, recipient, lineage: self.running.lineage() };
        let datagram = Codec::new(tag(), None).encode(header, message);
        self.running.handle_datagram(self.now, address(from), &datagram);
    }

    fn done(&mut self) -> Done {
        let mut done = Done::default();
        let mut codec = Codec::new(tag(), None);
        while let Some(output) = self.running.poll_output() {
            match output {
                Output::Watch { dial, to } => done.dials.push((dial, to)),
                Output::HangUp(dial) => done.closed.push(dial),
                Output::Send { to, datagram } => done.sent.push((to, codec.decode(&datagram).unwrap().1)),
                Output::Multicast { datagram } => done.multicast.push(codec.decode(&datagram).unwrap().1),
                other => panic!("{other:?}"),
            }
        }
        done.changes.extend(std::iter::from_fn(|| self.running.poll_change()));
        done
    }

    /// The next timer fires, if it does by then.
    fn next(&mut self, until: Time) -> Option<Done> {
        self.now = self.running.poll_timeout().filter(|&at| at <= until)?;
        self.running.handle_timeout(self.now);
        Some(self.done())
    }

    /// Lets time pass. Every connection that is opened ends so; each member of `answer` answers a Look so.
    fn run(&mut self, until: Time, dials: WatchNews, answer: &[(u8, bool)]) -> Done {
        let mut all = Done::default();
        while let Some(mut done) = self.next(until) {
            for (dial, _) in std::mem::take(&mut done.dials) {
                done.changes.extend(self.hear(dial, dials).changes);
            }
            let looks = done.sent.iter().filter_map(|(to, message)| match message {
                Message::Look(Look { rank, .. }) => Some((*to, *rank)),
                _ => None,
            });
            for (to, rank) in looks.collect::<Vec<_>>() {
                for &(number, reached) in answer.iter().filter(|(number, _)| address(*number) == to) {
                    done.changes
                        .extend(self.message(number, &Message::Sight(Sight { rank, reached })).changes);
                }
            }
            all.sent.extend(done.sent);
            all.multicast.extend(done.multicast);
            all.changes.extend(done.changes);
        }
        self.now = until;
        all
    }

    /// Members answer while it is counted how many are there.
    fn count(&mut self, numbers: impl IntoIterator<Item = u8>) {
        for number in numbers {
            self.message(number, &Message::Pong);
        }
    }
}

fn gone(changes: &[Change]) -> Option<u32> {
    changes.iter().find_map(|change| match change {
        Change::Over(over) if over.end == End::Gone => over.rank.map(Rank::get),
        _ => None,
    })
}

fn suspected(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::Suspected(..)))
}

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

#[test]
fn a_node_connects_to_its_two_neighbours_and_to_one_in_a_world_of_two() {
    for (size, watched) in [(2, vec![path(1)]), (3, vec![path(1), path(3)]), (9, vec![path(1), path(3)])] {
        let mut to: Vec<SocketAddr> = Watcher::new(size).1.into_iter().map(|(_, to)| to).collect();
        to.sort_unstable();
        assert_eq!(to, watched);
    }
}

#[test]
fn a_neighbour_that_was_never_there_is_gone_if_it_refuses_and_suspected_if_it_is_silent() {
    for (news, expected) in [(WatchNews::Refused, Some(0)), (WatchNews::Silent, None)] {
        let (mut watcher, dials) = Watcher::new(2);
        watcher.hear(dials[0].0, news);
        assert!(watcher.run(ms(499), news, &[]).changes.is_empty(), "{news:?}");
        let done = watcher.run(ms(1010), news, &[]);
        assert_eq!(gone(&done.changes), expected, "{news:?}");
        assert_eq!(suspected(&done.changes), expected.is_none(), "{news:?}");
    }
}

#[test]
fn a_node_that_does_not_stay_with_its_world_is_not_watched() {
    assert_eq!(Watcher::of(config(1), 3, |number| number != 3).1.len(), 1);
}

/// A watcher of five that suspects its next neighbour, and the connection to it that is being opened.
fn suspecting() -> (Watcher, DialId) {
    let (mut watcher, [_, next]) = Watcher::greeted(5);
    watcher.hear(next, WatchNews::Silent);
    assert!(suspected(&watcher.run(ms(1500), WatchNews::Silent, &[]).changes));
    loop {
        if let [(dial, _)] = watcher.next(ms(5000)).unwrap().dials[..] {
            return (watcher, dial);
        }
    }
}

#[test]
fn a_suspected_member_is_back_when_it_greets_and_not_when_its_kernel_accepts() {
    let (mut watcher, dial) = suspecting();
    assert_eq!(watcher.hear(dial, WatchNews::Opened).changes, [], "a sidecar may have accepted");
    let back = watcher.hear(dial, WatchNews::Greeted);
    assert!(matches!(back.changes[..], [Change::Back(Rank(2), _)]), "{:?}", back.changes);
    assert_eq!(back.multicast, [Message::Suspicion(Suspicion { rank: 2, is_over: true })]);
    assert_eq!(watcher.run(ms(60_000), WatchNews::Silent, &[]).changes, []);

    let (mut watcher, dial) = suspecting();
    for news in [WatchNews::Opened, WatchNews::Closed] {
        let done = watcher.hear(dial, news);
        assert_eq!((done.changes, done.multicast), (vec![], vec![]), "{news:?}");
    }
    let mut all = Vec::new();
    while watcher.now < Time::from_secs(60) {
        watcher.count([1, 4, 5]);
        let fail = [(1, false), (4, false), (5, false)];
        all.extend(watcher.run(watcher.now + ms(500), WatchNews::Silent, &fail).changes);
    }
    assert_eq!(gone(&all), Some(2));
    assert!(!suspected(&all), "once");
}

#[test]
fn a_stopped_process_whose_connections_are_reset_now_and_then_stays() {
    let (mut watcher, [_, mut open]) = Watcher::greeted(3);
    let mut all = Vec::new();
    for minute in 1..=5 {
        watcher.hear(open, WatchNews::Closed);
        watcher.running.handle_timeout(watcher.now);
        open = watcher.done().dials[0].0;
        watcher.hear(open, WatchNews::Opened);
        all.extend(watcher.run(ms(60_000 * minute), WatchNews::Refused, &[]).changes);
    }
    assert_eq!(all, []);
}

#[test]
fn a_suspected_member_whose_connections_a_sidecar_closes_is_gone_once_the_members_are_counted() {
    let (mut watcher, _) = suspecting();
    let mut all = Vec::new();
    while gone(&all).is_none() && watcher.now < ms(60_000) {
        let mut done = watcher.next(ms(61_000)).unwrap();
        for (dial, _) in std::mem::take(&mut done.dials) {
            for news in [WatchNews::Opened, WatchNews::Closed] {
                done.changes.extend(watcher.hear(dial, news).changes);
            }
        }
        for number in [1, 4, 5] {
            watcher.deliver(number, &Message::Sight(Sight { rank: 2, reached: false }));
        }
        watcher.count([1, 4, 5]);
        all.extend(done.changes);
    }
    assert_eq!(gone(&all), Some(2), "{:?}", watcher.now);
    assert!(!suspected(&all), "again");
}

#[test]
fn a_new_process_at_the_address_of_a_member_that_is_gone_hides_no_cause() {
    let (mut watcher, [_, next]) = Watcher::greeted(3);
    let later = watcher.running.lineage().next().unwrap();
    hear(&mut watcher.running, ms(50), 1, later, &over(0));
    watcher.now = ms(100);
    watcher.hear(next, WatchNews::Closed);
    let header = Header { sender: id(9), recipient: NodeId::ALL, lineage: later };
    let solicit = Message::Solicit(Solicit { rank: None, host: config(3).node.host });
    let datagram = Codec::new(tag(), None).encode(header, &solicit);
    watcher.running.handle_datagram(ms(200), address(3), &datagram);
    let mut changes = watcher.done().changes;
    changes.extend(watcher.run(ms(3000), WatchNews::Refused, &[]).changes);
    assert!(matches!(changes[..], [Change::Cause(_), Change::Notified]), "{changes:?}");
}

#[test]
fn a_farewell_in_the_name_of_a_neighbour_keeps_its_death_unseen_for_32_s_at_most() {
    let (mut watcher, [_, next]) = Watcher::greeted(3);
    assert_eq!(watcher.message(3, &Message::Leaving).closed, [next]);
    let before = watcher.run(ms(31_999), WatchNews::Refused, &[]);
    assert_eq!((before.sent.len(), before.changes), (4, vec![]), "asked for a leader, and not watched");
    assert_eq!(gone(&watcher.run(ms(33_000), WatchNews::Refused, &[]).changes), Some(2));
    // One that is there is watched as before.
    let (mut watcher, _) = Watcher::greeted(3);
    watcher.message(3, &Message::Leaving);
    let after = watcher.run(ms(600_000), WatchNews::Opened, &[]);
    assert_eq!((after.sent.len(), after.changes), (4, vec![]));
    let again = watcher.running.watch.forget(id(3), &mut watcher.running.context);
    assert!(again.is_some(), "it is watched again");
    // A node whose command has ended well watches nobody.
    let (mut watcher, _) = Watcher::greeted(3);
    watcher.message(3, &Message::Leaving);
    watcher.running.handle_success(ms(1));
    let dials =
        |done: &Done| done.sent.iter().any(|(to, message)| *to == address(3) && *message == Message::Ping);
    assert!(!dials(&watcher.run(ms(40_000), WatchNews::Refused, &[])));
}

#[test]
fn of_many_connections_that_are_being_opened_to_a_neighbour_the_oldest_makes_room() {
    let (mut watcher, [_, next]) = Watcher::greeted(3);
    let mut dials = watcher.hear(next, WatchNews::Silent).dials;
    let mut closed = Vec::new();
    while let Some(done) = watcher.next(ms(899)) {
        dials.extend(done.dials);
        closed.extend(done.closed);
    }
    let dials: Vec<_> = dials.into_iter().map(|(dial, _)| dial).collect();
    assert_eq!((dials.len(), &closed[..]), (9, &dials[..5]), "four remain");
}

#[test]
fn a_node_looks_for_eight_members_at_most() {
    let (mut watcher, _) = Watcher::greeted(20);
    let look = Message::Look(Look { rank: 4, port: 7 });
    let dials = (6..=20).map(|asker| watcher.message(asker, &look).dials.len());
    assert_eq!(dials.sum::<usize>(), 8);
}

#[test]
fn a_node_that_was_stopped_begins_its_doubts_anew() {
    let (mut watcher, [_, next]) = Watcher::greeted(3);
    watcher.hear(next, WatchNews::Closed);
    watcher.run(ms(300), WatchNews::Refused, &[]);
    watcher.now = Time::from_secs(50);
    watcher.running.handle_timeout(watcher.now);
    assert_eq!(gone(&watcher.done().changes), None);
    watcher.message(3, &Message::Pong);
    assert_eq!(gone(&watcher.run(Time::from_secs(51), WatchNews::Silent, &[]).changes), None);
}

#[test]
fn a_node_whose_command_has_ended_well_watches_nobody() {
    let (mut watcher, dials) = Watcher::greeted(3);
    watcher.running.handle_success(Time::ZERO);
    assert_eq!(watcher.done().closed, dials);
}
