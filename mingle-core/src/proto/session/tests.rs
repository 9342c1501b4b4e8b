//! Two ends of a session on a network that loses packets, under kernels that repeat them: what it costs, and
//! how long it takes.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const PATIENCE: Duration = Duration::from_millis(60);
const ONE_WAY: Duration = Duration::from_micros(200);
/// Linux's first interval between two SYNs, and between two copies of a segment. Both double.
const SYN_AGAIN: Duration = Duration::from_secs(1);
const SEGMENT_AGAIN: Duration = Duration::from_millis(200);
/// When a kernel gives up a connection whose other end doesn't acknowledge: TCP_USER_TIMEOUT, keepalive.
const GIVEN_UP: Duration = Duration::from_secs(10);
const LEADER: usize = 0;
const MEMBER: usize = 1;

/// What arrives at one end.
#[derive(Debug, Clone)]
enum Arrival {
    /// A hello on a connection that the other end has dialled.
    Hello(DialId),
    /// The answer to it.
    Answer(u64, DialId),
    Refused(DialId),
    Frame(u64, Frame),
    End(u64),
    Timer,
}

#[derive(Debug, Clone, Default)]
struct Connection {
    /// Which ends have it open.
    open: [bool; 2],
    /// When what was sent last to each end arrives there.
    arrives: [Time; 2],
    /// One of the ends is gone, and the other kernel doesn't know.
    is_broken: bool,
}

/// Both ends, their kernels and the network between them.
struct Pair {
    now: Time,
    random: Xoshiro256PlusPlus,
    loss: f64,
    ends: [SessionEnd; 2],
    /// A process that is stopped until then. Its kernel goes on.
    stopped: [Time; 2],
    is_dead: [bool; 2],
    arrivals: BTreeMap<(Time, u64), (usize, Arrival)>,
    arrivals_so_far: u64,
    connections: BTreeMap<u64, Connection>,
    dials: [u32; 2],
    written: [u32; 2],
    /// What each end has read: when, and the body.
    read: [Vec<(Time, Body)>; 2],
}

impl Pair {
    fn new(seed: u64, loss: f64) -> Self {
        let mut pair = Self {
            now: Time::ZERO,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            loss,
            ends: [true, false].map(|closes| SessionEnd::new(closes, PATIENCE)),
            stopped: [Time::ZERO; 2],
            is_dead: [false; 2],
            arrivals: BTreeMap::new(),
            arrivals_so_far: 0,
            connections: BTreeMap::new(),
            dials: [0, 0],
            written: [0, 0],
            read: [vec![], vec![]],
        };
        pair.with(MEMBER, SessionEnd::advance);
        pair
    }

    /// Runs a step of one end, and carries out what it asks for.
    fn with<T>(&mut self, end: usize, step: impl FnOnce(&mut SessionEnd, Time) -> T) -> T {
        let done = step(&mut self.ends[end], self.now);
        while let Some(output) = self.ends[end].poll_output() {
            match output {
                SessionOutput::Dial(dial) => self.dial(end, dial),
                SessionOutput::Write(ConnId(conn), frame) => {
                    self.written[end] += 1;
                    self.send(conn, 1 - end, Arrival::Frame(conn, frame));
                }
                SessionOutput::Close(ConnId(conn)) => self.close(end, conn),
            }
        }
        if let Some(at) = self.ends[end].poll_timeout() {
            self.arrive(at.max(self.now), end, Arrival::Timer);
        }
        done
    }

    fn say(&mut self, end: usize, kind: u8, body: u8) {
        self.with(end, |session, now| session.say(now, [kind, body].into()));
    }

    fn arrive(&mut self, at: Time, end: usize, arrival: Arrival) {
        self.arrivals_so_far += 1;
        self.arrivals.insert((at, self.arrivals_so_far), (end, arrival));
    }

    fn is_lost(&mut self) -> bool {
        self.random.random_bool(self.loss)
    }

    /// The first copy of a segment, or one of the copies that follow at doubling intervals, arrives.
    fn delay(&mut self, mut again: Duration) -> Duration {
        let mut delay = ONE_WAY;
        while self.is_lost() {
            delay += again;
            again *= 2;
        }
        delay
    }

    fn dial(&mut self, from: usize, dial: DialId) {
        self.dials[from] += 1;
        let mut at = self.now;
        let mut again = SYN_AGAIN;
        // The SYN and its answer.
        while self.is_lost() || self.is_lost() {
            at += again;
            again *= 2;
        }
        if at > self.now + GIVEN_UP {
            self.arrive(self.now + GIVEN_UP, from, Arrival::Refused(dial));
        } else if self.is_dead[1 - from] {
            self.arrive(at + ONE_WAY + ONE_WAY, from, Arrival::Refused(dial));
        } else {
            let hello = self.delay(SEGMENT_AGAIN);
            self.arrive(at + ONE_WAY + ONE_WAY + hello, 1 - from, Arrival::Hello(dial));
        }
    }

    /// Sends a segment on a connection, behind all that was sent before it.
    fn send(&mut self, conn: u64, to: usize, arrival: Arrival) {
        let at = self.now + self.delay(SEGMENT_AGAIN);
        let Some(connection) = self.connections.get_mut(&conn).filter(|c| !c.is_broken) else { return };
        connection.arrives[to] = connection.arrives[to].max(at);
        let at = connection.arrives[to];
        self.arrive(at, to, arrival);
    }

    fn close(&mut self, end: usize, conn: u64) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && std::mem::take(&mut connection.open[end])
        {
            self.send(conn, 1 - end, Arrival::End(conn));
        }
    }

    /// A middlebox ends a connection towards one end alone, and drops what is sent on it.
    fn break_all(&mut self, end: usize) {
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            let connection = self.connections.get_mut(&conn).unwrap();
            connection.is_broken = true;
            let was_open = std::mem::take(&mut connection.open[end]);
            self.arrive(self.now + GIVEN_UP, 1 - end, Arrival::End(conn));
            if was_open {
                self.with(end, |session, now| session.closed(now, ConnId(conn)));
            }
        }
    }

    /// Stops a process for so long, or as long as it is stopped already.
    fn stop(&mut self, end: usize, length: Duration) {
        self.stopped[end] = self.stopped[end].max(self.now + length);
    }

    /// A process ends, and its kernel says so.
    fn kill(&mut self, end: usize) {
        self.is_dead[end] = true;
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            self.close(end, conn);
        }
    }

    fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), (end, arrival)) = entry.remove_entry();
            self.now = at;
            if self.stopped[end] > at {
                // A process reads what waits for it before its timers fire.
                let wakes =
                    self.stopped[end] + if matches!(arrival, Arrival::Timer) { ONE_WAY } else { Time::ZERO };
                self.arrive(wakes, end, arrival);
            } else if !self.is_dead[end] {
                self.arrives(end, arrival);
            }
        }
        self.now = end;
    }

    fn arrives(&mut self, end: usize, arrival: Arrival) {
        match arrival {
            Arrival::Hello(dial) => {
                let conn = self.arrivals_so_far;
                let mut open = [false; 2];
                open[end] = true;
                self.connections.insert(conn, Connection { open, ..Connection::default() });
                self.send(conn, 1 - end, Arrival::Answer(conn, dial));
                self.with(end, |session, now| session.opened(now, None, ConnId(conn)));
            }
            Arrival::Answer(conn, dial) => {
                let connection = self.connections.get_mut(&conn).unwrap();
                if connection.is_broken {
                    self.arrive(self.now + GIVEN_UP, end, Arrival::Refused(dial));
                } else {
                    connection.open[end] = true;
                    self.with(end, |session, now| session.opened(now, Some(dial), ConnId(conn)));
                }
            }
            Arrival::Refused(dial) => self.with(end, |session, now| session.dial_failed(now, dial)),
            Arrival::Frame(conn, frame) => {
                let connection = &self.connections[&conn];
                if connection.open[end] && !connection.is_broken {
                    let read = self.with(end, |session, now| session.receive(now, ConnId(conn), frame));
                    let now = self.now;
                    self.read[end].extend(read.unwrap().map(|frame| (now, frame.body)));
                }
            }
            Arrival::End(conn) => {
                if std::mem::take(&mut self.connections.get_mut(&conn).unwrap().open[end]) {
                    self.with(end, |session, now| session.closed(now, ConnId(conn)));
                }
            }
            Arrival::Timer => self.with(end, SessionEnd::advance),
        }
    }

    fn open(&self) -> usize {
        self.connections.values().filter(|c| c.open == [true, true] && !c.is_broken).count()
    }
}

fn secs(secs: u64) -> Time {
    Time::from_secs(secs)
}

/// The times at which `count` states of one kind were read, each said when the one before was.
fn exchange(seed: u64, loss: f64, count: u8) -> Vec<Time> {
    let mut pair = Pair::new(seed, loss);
    let mut taken = Vec::new();
    for turn in 0..count {
        let (from, to) = if turn % 2 == 0 { (MEMBER, LEADER) } else { (LEADER, MEMBER) };
        let (begun, read) = (pair.now, pair.read[to].len());
        pair.say(from, 1, turn);
        while pair.read[to].len() == read {
            assert!(pair.now < begun + secs(60), "seed {seed}: nothing was read for 60 s");
            let next = pair.arrivals.first_key_value().unwrap().0.0;
            pair.run_until(next);
        }
        taken.push(pair.now.saturating_sub(begun));
    }
    taken
}

#[test]
fn without_loss_one_connection_is_enough_and_an_idle_session_writes_nothing() {
    let mut pair = Pair::new(1, 0.0);
    pair.run_until(secs(1));
    for turn in 0..10 {
        pair.say(turn % 2, 1, 0);
        pair.run_until(pair.now + Duration::from_millis(10));
    }
    assert_eq!((pair.dials, pair.open(), pair.read.each_ref().map(Vec::len)), ([0, 1], 1, [5, 5]));
    assert_eq!(pair.written, [10, 10], "a state and an acknowledgement each");
    pair.run_until(secs(3600));
    assert_eq!((pair.dials, pair.written), ([0, 1], [10, 10]));
}

#[test]
fn a_process_that_is_stopped_for_an_hour_finds_the_last_state_of_each_kind_and_a_few_old_ones() {
    let mut pair = Pair::new(2, 0.0);
    pair.run_until(secs(1));
    pair.stop(MEMBER, secs(3599));
    for state in 0..200 {
        pair.run_until(secs(2 + u64::from(state) * 15));
        pair.say(LEADER, 1 + state % 3, state);
    }
    assert!(pair.written[LEADER] <= 12, "{} frames to a stopped process", pair.written[LEADER]);
    pair.run_until(secs(3610));
    let bodies: Vec<u8> = pair.read[MEMBER].iter().map(|(_, body)| body[1]).collect();
    assert_eq!(bodies[bodies.len() - 3..], [197, 198, 199]);
    assert!(bodies.is_sorted() && bodies.len() <= 7, "{bodies:?}");
    assert!(pair.ends[LEADER].is_read());
    assert_eq!(pair.open(), 1);
}

#[test]
fn a_dead_process_is_asked_ever_less_often() {
    let mut pair = Pair::new(3, 0.0);
    pair.run_until(secs(1));
    pair.kill(MEMBER);
    pair.say(LEADER, 1, 0);
    pair.run_until(secs(2));
    assert!((5..=9).contains(&pair.dials[LEADER]), "{} dials in the first second", pair.dials[LEADER]);
    pair.run_until(secs(62));
    assert!(pair.dials[LEADER] <= 40, "{} dials in a minute", pair.dials[LEADER]);
}

#[test]
fn a_connection_that_one_end_alone_has_lost_is_replaced_without_waiting_for_the_other_kernel() {
    for broken_at in [LEADER, MEMBER] {
        let mut pair = Pair::new(4, 0.0);
        pair.run_until(secs(1));
        pair.break_all(broken_at);
        for end in [LEADER, MEMBER] {
            pair.say(end, 1, 7);
        }
        pair.run_until(secs(1) + 3 * PATIENCE);
        assert_eq!(pair.read.each_ref().map(Vec::len), [1, 1], "broken at {broken_at}");
        pair.run_until(secs(30));
        assert_eq!(pair.open(), 1);
    }
}

#[test]
fn two_ends_to_which_many_connections_open_in_another_order_keep_some_in_common() {
    let order: Vec<u64> = (1..=8).collect();
    let orders = [order.clone(), order.iter().rev().copied().collect()];
    let mut kept = [true, false].into_iter().zip(orders).map(|(role, order)| {
        let mut session = SessionEnd::new(role, PATIENCE);
        for conn in order {
            session.opened(Time::ZERO, None, ConnId(conn));
        }
        session.connections.iter().map(|connection| connection.conn).collect::<BTreeSet<_>>()
    });
    let kept = [kept.next().unwrap(), kept.next().unwrap()];
    // A connection that one end has closed is closed.
    assert_eq!(kept[0].intersection(&kept[1]).count(), MOST);
}

#[test]
fn a_peer_that_acknowledges_what_was_never_said_changes_nothing() {
    let mut session = SessionEnd::new(true, PATIENCE);
    session.opened(Time::ZERO, None, ConnId(1));
    session.say(Time::ZERO, [1, 7].into());
    let before = format!("{session:?}");
    let hostile = Frame { number: 1, read: 2, body: [1, 0].into() };
    assert_eq!(session.receive(Time::ZERO, ConnId(1), hostile), Err(Impossible));
    assert_eq!(format!("{session:?}"), before);
    assert!(!session.is_read());
}

#[test]
fn in_any_weather_what_was_said_last_is_read_and_few_connections_are_left() {
    for seed in 0..if cfg!(debug_assertions) { 300 } else { 20_000 } {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let loss = [0.0, 0.05, 0.3][random.random_range(0..3)];
        let mut pair = Pair::new(seed, loss);
        let mut last: [BTreeMap<u8, u8>; 2] = Default::default();
        for state in 0..random.random_range(1..60) {
            pair.run_until(pair.now + Duration::from_millis(random.random_range(0..300)));
            let end = random.random_range(0..2);
            match random.random_range(0..12) {
                0 => pair.break_all(end),
                1 => pair.stop(end, Duration::from_millis(random.random_range(0..20_000))),
                _ => {
                    let kind = random.random_range(1..4);
                    last[end].insert(kind, state);
                    pair.say(end, kind, state);
                }
            }
        }
        pair.run_until(pair.now + secs(90));
        for (end, last) in last.iter().enumerate() {
            let read: BTreeMap<u8, u8> =
                pair.read[1 - end].iter().map(|(_, body)| (body[0], body[1])).collect();
            assert_eq!(&read, last, "seed {seed}: what was read last of end {end}");
            let bodies = pair.read[end].iter().map(|(_, body)| body[1]);
            assert!(bodies.is_sorted(), "seed {seed}: the order at end {end}");
        }
        assert!(pair.ends.iter().all(SessionEnd::is_read), "seed {seed}");
        // A connection is kept until a frame was read on another.
        assert!((1..=MOST).contains(&pair.open()), "seed {seed}: {}", pair.open());
    }
}

#[test]
fn a_lost_packet_delays_four_exchanges_by_the_patience_and_not_by_a_kernels_timeout() {
    let measure = |loss: f64| {
        let total = |seed: u64| exchange(seed, loss, 8).into_iter().sum::<Duration>();
        let mut totals: Vec<Duration> = (0..1000).map(total).collect();
        totals.sort();
        println!("{loss}: median {:?}, 99% {:?}, worst {:?}", totals[500], totals[990], totals[999]);
        (totals[500], totals[990])
    };
    let milliseconds = Duration::from_millis;
    let (median, most) = measure(0.3);
    assert!(median < milliseconds(800) && most < milliseconds(3000), "at 30%: {median:?}, {most:?}");
    let (median, most) = measure(0.01);
    assert!(median < milliseconds(10) && most < milliseconds(150), "at 1%: {median:?}, {most:?}");
}

#[test]
fn all_that_is_said_in_one_turn_is_one_batch() {
    let mut session = SessionEnd::new(true, PATIENCE);
    session.opened(Time::ZERO, None, ConnId(1));
    while session.poll_output().is_some() {}
    for kind in [1, 2] {
        session.say(Time::ZERO, [kind, 0].into());
    }
    let written = std::iter::from_fn(|| session.poll_output());
    assert_eq!(written.filter(|output| matches!(output, SessionOutput::Write(..))).count(), 2);
}

#[test]
fn what_is_said_when_a_batch_is_acknowledged_late_is_written_and_needs_no_dial() {
    let written = |session: &mut SessionEnd| {
        let outputs: Vec<SessionOutput> = std::iter::from_fn(|| session.poll_output()).collect();
        let dials = outputs.iter().filter(|output| matches!(output, SessionOutput::Dial(_))).count();
        (outputs.len() - dials, dials)
    };
    let mut session = SessionEnd::new(true, PATIENCE);
    session.opened(Time::ZERO, None, ConnId(1));
    session.say(Time::ZERO, [1, 0].into());
    assert_eq!(written(&mut session), (1, 0));
    session.receive(PATIENCE, ConnId(1), Frame::acknowledgement(1)).unwrap();
    session.say(PATIENCE, [1, 1].into());
    // The timer of the first batch is due.
    session.advance(PATIENCE);
    assert_eq!(written(&mut session), (1, 0));
    session.say(PATIENCE, [2, 1].into());
    session.drop_unwritten();
    assert_eq!(written(&mut session), (0, 0), "it has left");
}

#[test]
fn a_process_that_answers_owes_what_has_replaced_a_frame_from_then_on() {
    let ms = Time::from_millis;
    let mut session = SessionEnd::new(true, PATIENCE);
    session.opened(ms(0), None, ConnId(1));
    // It is told something new faster than it can answer.
    for at in (0..5000).step_by(10) {
        session.say(ms(at), vec![1, 0].into());
        if let Some(read) = (at / 10).checked_sub(3).filter(|read| *read > 0) {
            session.receive(ms(at), ConnId(1), Frame::acknowledgement(read)).unwrap();
        }
    }
    assert!(!session.is_read() && session.waiting[0].since >= ms(4900), "{:?}", session.waiting);
}
