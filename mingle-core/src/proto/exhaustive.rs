//! All interleavings of a small world, from its first datagram or its first round on: the real state machine,
//! with a bounded number of faults.
//!
//! Every packet in flight may arrive next. As often as the budget says, a datagram is lost or arrives twice,
//! a connection is reset, a node crashes or is stopped for a while, and a timer fires although packets are in
//! flight. Every reachable state is visited once. Where nothing is in flight, the next timer fires. A process
//! that was stopped reads what waits for it before its timers fire, as the driver does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::report::{Event, Failure, Formed};
use super::timer::Time;
use super::{ANSWER, Config, ConnId, DialId, Node, Output, PathDial, PathNews, TOKEN};
use crate::model::{Fault, JobId, JobTag, World, WorldSize};
use crate::wire::{Codec, Message};

/// The last call of a world that may have one of several sizes, and the timeout of its nodes.
const CALL: Duration = Duration::from_millis(50);
const SHORT_TIMEOUT: Duration = Duration::from_secs(8);
/// By then every node has ended: its timeout is 30 s, and a round that began before has limits of its own.
const END: Time = Time::from_secs(60);
/// Faults begin this early; later ones would only repeat states.
const FAULTS: Duration = Duration::from_millis(60);
/// The second copy of a datagram arrives this late at the latest.
const LATE: Duration = Duration::from_millis(400);
/// A process is stopped for less than it notices itself; for longer than its leader waits for it in a round;
/// and for longer than any node that is ready waits for its leader.
const SLOW: Duration = Duration::from_millis(60);
const ABSENT: Duration = Duration::from_secs(6);
const AWAY: Duration = Duration::from_secs(12);

/// The faults that may still occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    losses: u32,
    /// Datagrams that arrive twice.
    copies: u32,
    /// Connections that a device on the path resets.
    resets: u32,
    crashes: u32,
    early_timers: u32,
    /// For how long one process is stopped.
    stop: Option<Duration>,
}

/// The start of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// All nodes start at once, and none has said anything.
    Together,
    /// This node started first, and sends its first prepare.
    Prepare { leader: usize },
    /// Node 1 leads and node 2 is its member, if there is one, when node 0 starts, which was given rank 0.
    Yield,
    /// Two nodes are enough. This third one starts shortly before their last call is over, or with their
    /// first prepare.
    LastCall { late: usize, prepared: bool },
}

impl Start {
    /// The size of the world that is asked for.
    fn size(self, nodes: usize) -> WorldSize {
        match self {
            Self::LastCall { .. } => format!("{}:{nodes}", nodes - 1).parse().unwrap(),
            _ => WorldSize::of(u32::try_from(nodes).unwrap()),
        }
    }
}

/// A step that a search is about, and must have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// The second copy of a datagram has arrived.
    Copied,
    /// The same, after a later round has begun.
    Outdated,
    /// A node that leads joins another.
    Yielded,
    /// A member joins another leader by a redirect.
    Redirected,
    /// A node becomes ready after it was stopped.
    LateReady,
    /// A leader commits after it was stopped.
    LateCommit,
    /// A round is void.
    Void,
    /// A world of all nodes forms, or of fewer.
    Whole,
    Smaller,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Packet {
    Datagram {
        from: usize,
        to: usize,
        bytes: Rc<[u8]>,
    },
    /// The second copy of a datagram, for which nothing waits. It is lost if it has not arrived by then.
    Copy {
        from: usize,
        to: usize,
        bytes: Rc<[u8]>,
        until: Time,
    },
    /// A connection is opened, and its hello arrives.
    Connect {
        conn: u64,
        from: usize,
        dial: DialId,
        to: SocketAddr,
        hello: Vec<u8>,
    },
    /// The hello alone, where the kernel of a stopped process has accepted the connection.
    Hello {
        conn: u64,
        hello: Vec<u8>,
    },
    /// A connection that proves a path, up to its answer.
    Path {
        from: usize,
        to: usize,
        dial: DialId,
        token: [u8; TOKEN],
        answer: [u8; ANSWER],
    },
    /// The end of a connection, on its way to this side.
    End {
        conn: u64,
        to_dialer: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Conn {
    dialer: usize,
    dial: DialId,
    acceptor: usize,
    over: bool,
}

/// A node and the hash of its state: a step changes one node, and the others are only compared.
#[derive(Clone)]
struct Slot {
    node: Rc<Node>,
    hash: [u8; 32],
}

impl Slot {
    fn new(node: Rc<Node>) -> Self {
        Self { hash: *blake3::hash(format!("{node:?}").as_bytes()).as_bytes(), node }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash.fmt(f)
    }
}

/// The steps since the search started, the last first.
#[derive(Clone, Default)]
struct Path(Option<Rc<(Time, Step, Path)>>);

#[derive(Debug, Clone)]
#[allow(dead_code, reason = "printed with a failure")]
enum Step {
    Arrives(Packet),
    ArrivesTwice(Packet),
    IsLost(Packet),
    IsReset(Conn),
    Crashes(usize),
    Stops(usize, Duration),
    GoesOn(usize),
    Fires(usize),
}

/// Two ways to one state are no two states.
impl fmt::Debug for Path {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = &self.0 else { return Ok(()) };
        let (at, step, before) = &**last;
        before.fmt(f)?;
        match step {
            Step::Arrives(Packet::Datagram { from, to, bytes } | Packet::Copy { from, to, bytes, .. }) => {
                writeln!(f, "{at:?} {from} to {to}: {:?}", decoded(bytes))
            }
            step => writeln!(f, "{at:?} {step:?}"),
        }
    }
}

#[derive(Debug, Clone)]
struct State {
    now: Time,
    nodes: Vec<Option<Slot>>,
    /// How each node ended; an error of none is a crash.
    outcomes: Vec<Option<Result<Formed, Option<Failure>>>>,
    accepting: Vec<bool>,
    flight: Vec<Packet>,
    conns: BTreeMap<u64, Conn>,
    /// The node that is stopped, and until when.
    stopped: Option<(usize, Time)>,
    /// A timer has fired although packets were in flight.
    hurried: bool,
    /// The node whose connection was reset.
    reset: Option<usize>,
    /// The node that was stopped, and for how long.
    slow: Option<(usize, Duration)>,
    /// The nodes that announce themselves, and follow nobody.
    leading: BTreeSet<usize>,
    /// The leader, the round and the members that have sent ready.
    ready: BTreeMap<(usize, u64), BTreeSet<usize>>,
    /// The last round of each leader that has prepared.
    prepared: BTreeMap<usize, u64>,
    /// The size of the world in each leader's last prepare.
    sizes: BTreeMap<usize, u32>,
    /// The leader and the members that were ready when it committed.
    committed: Option<BTreeSet<usize>>,
    size: WorldSize,
    budget: Budget,
    /// The packets that have come while a node was stopped: its datagrams, and those of its connections.
    waiting: [VecDeque<Packet>; 2],
    /// The marks of the last step.
    marks: BTreeSet<Mark>,
    path: Path,
}

fn endpoint(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(node + 1).unwrap()], 29500))
}

fn node_at(endpoint: SocketAddr) -> usize {
    let SocketAddr::V4(address) = endpoint else { panic!("{endpoint}") };
    usize::from(address.ip().octets()[3]) - 1
}

fn tag() -> JobTag {
    "exhaustive".parse::<JobId>().unwrap().tag()
}

fn decoded(bytes: &[u8]) -> Message {
    Codec::new(tag(), None)
        .decode(bytes)
        .unwrap_or_else(|dropped| panic!("a node has sent this: {dropped}"))
        .1
}

/// The round that a message is about.
fn round_of(message: &Message) -> Option<u64> {
    match message {
        Message::Prepare(prepare) => Some(prepare.round),
        Message::Commit(commit) => Some(commit.round),
        Message::Ready(round) | Message::Void(round) | Message::Done(round) => Some(*round),
        _ => None,
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {:?}", self.now)?;
        for (node, outcome) in self.outcomes.iter().enumerate() {
            match outcome {
                None => writeln!(f, "{node} has not ended")?,
                Some(Ok(formed)) => writeln!(f, "{node} has rank {}, master {}", formed.rank, formed.master)?,
                Some(Err(None)) => writeln!(f, "{node} has crashed")?,
                Some(Err(Some(failure))) => writeln!(f, "{node} has failed: {failure}")?,
            }
        }
        self.path.fmt(f)
    }
}

/// Adds the state that a step leads to.
type Branch<'a> = dyn FnMut(&dyn Fn(&mut State)) + 'a;

impl State {
    fn new(world: usize, start: Start, budget: Budget) -> Self {
        let mut state = Self {
            now: Time::ZERO,
            nodes: vec![None; world],
            outcomes: vec![None; world],
            accepting: vec![true; world],
            flight: Vec::new(),
            conns: BTreeMap::new(),
            stopped: None,
            hurried: false,
            reset: None,
            slow: None,
            leading: BTreeSet::new(),
            ready: BTreeMap::new(),
            prepared: BTreeMap::new(),
            sizes: BTreeMap::new(),
            committed: None,
            size: start.size(world),
            budget,
            waiting: [VecDeque::new(), VecDeque::new()],
            marks: BTreeSet::new(),
            path: Path::default(),
        };
        state.begin(start);
        state.marks.clear();
        state.path = Path::default();
        state
    }

    /// Runs without faults to the start of the search.
    fn begin(&mut self, start: Start) {
        let world = self.nodes.len();
        match start {
            Start::Together => (0..world).for_each(|node| self.start(node, None)),
            Start::Prepare { leader } => {
                // The leader gets its first member before the others start, and stays the best candidate.
                let mut order: Vec<usize> = (0..world).filter(|&node| node != leader).collect();
                order.insert(0, leader);
                order[1..].reverse();
                for node in order {
                    self.start(node, None);
                    while self.prepared.is_empty() && !self.flight.is_empty() {
                        self.deliver(0);
                    }
                }
                while self.prepared.is_empty() {
                    if self.flight.is_empty() { self.fire() } else { self.deliver(0) }
                }
            }
            Start::Yield => {
                for node in 1..world {
                    self.start(node, None);
                    while !self.flight.is_empty() {
                        self.deliver(0);
                    }
                }
                assert_eq!(self.leading, BTreeSet::from([1]));
                self.start(0, Some(0));
            }
            Start::LastCall { late, prepared } => {
                for node in (0..world).filter(|&node| node != late) {
                    self.start(node, None);
                }
                while self.prepared.is_empty()
                    && (prepared || self.next_timer().is_some_and(|(at, _)| at < CALL))
                {
                    if self.flight.is_empty() { self.fire() } else { self.deliver(0) }
                }
                self.start(late, None);
            }
        }
    }

    fn start(&mut self, node: usize, rank: Option<u32>) {
        let world = u32::try_from(self.nodes.len()).unwrap();
        let mut config = Config::plain(tag(), world, u8::try_from(node + 1).unwrap(), endpoint(node));
        config.node.rank = rank.map(|rank| config.world.max().rank(rank).unwrap());
        config.world = self.size;
        if self.size.is_range() {
            (config.last_call, config.timeout) = (CALL, Some(SHORT_TIMEOUT));
        }
        self.nodes[node] = Some(Slot::new(Rc::new(Node::new(config, 1, self.now))));
        self.with(node, Node::handle_timeout);
    }

    fn with(&mut self, at: usize, act: impl FnOnce(&mut Node, Time)) {
        let Some(mut slot) = self.nodes[at].take() else { return };
        let node = Rc::make_mut(&mut slot.node);
        act(node, self.now);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { to, datagram } => self.send(at, node_at(to), datagram.into()),
                Output::Multicast { datagram } => {
                    let datagram: Rc<[u8]> = datagram.into();
                    for to in (0..self.nodes.len()).filter(|&to| to != at) {
                        self.send(at, to, Rc::clone(&datagram));
                    }
                }
                Output::Dial { dial, to, hello } => {
                    // The order in which the nodes dial makes no difference.
                    let conn = u64::from(dial.0) * 8 + u64::try_from(at).unwrap();
                    self.flight.push(Packet::Connect { conn, from: at, dial, to, hello });
                }
                Output::DialPath(PathDial { dial, to, token, answer, .. }) => {
                    self.flight.push(Packet::Path { from: at, to: node_at(to), dial, token, answer });
                }
                Output::HangUp(dial) => {
                    let conn = self.conns.iter().find(|(_, c)| c.dialer == at && c.dial == dial);
                    if let Some((&conn, _)) = conn {
                        self.close(conn, true);
                    }
                    self.flight.retain(|packet| match packet {
                        Packet::Connect { from, dial: other, .. }
                        | Packet::Path { from, dial: other, .. } => (*from, *other) != (at, dial),
                        _ => true,
                    });
                }
                Output::Close(conn) => self.close(conn.0, false),
                Output::StopAccepting => {
                    self.accepting[at] = false;
                    if self.leading.contains(&at) {
                        self.commit(at);
                    }
                }
                Output::Event(Event::Leading) => _ = self.leading.insert(at),
                Output::Event(Event::Formed(formed)) => self.outcomes[at] = Some(Ok(formed)),
                Output::Event(Event::Failed(failure)) => self.outcomes[at] = Some(Err(Some(failure))),
                // No node of these worlds wants the roster.
                Output::Tell(..) | Output::Event(_) => {}
            }
        }
        if node.has_ended() {
            self.vanish(at);
        } else {
            self.nodes[at] = Some(Slot::new(slot.node));
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: Rc<[u8]>) {
        self.note(from, to, &decoded(&bytes));
        // A copy of a datagram in flight arrives or is lost like the first.
        let packet = Packet::Datagram { from, to, bytes };
        if self.nodes[to].is_none() || self.flight.contains(&packet) {
            return;
        }
        self.put(packet);
    }

    /// Sends a packet. The kernel of a process that is stopped keeps those for it, in their order.
    fn put(&mut self, packet: Packet) {
        if self.may_arrive(&packet) {
            self.flight.push(packet);
            return;
        }
        let queue = &mut self.waiting[usize::from(!matches!(packet, Packet::Datagram { .. }))];
        if !queue.contains(&packet) {
            queue.push_back(packet);
        }
    }

    /// Notes what a message says of the state of its sender.
    fn note(&mut self, from: usize, to: usize, message: &Message) {
        let was_slow = self.slow.is_some_and(|(node, _)| node == from);
        match message {
            Message::Join(_) if self.leading.remove(&from) => _ = self.marks.insert(Mark::Yielded),
            Message::Prepare(prepare) => {
                self.prepared.insert(from, prepare.round);
                self.sizes.insert(from, prepare.world);
            }
            Message::Ready(round) => {
                let is_first = self.ready.entry((to, *round)).or_default().insert(from);
                if is_first && was_slow {
                    self.marks.insert(Mark::LateReady);
                }
            }
            Message::Void(_) => _ = self.marks.insert(Mark::Void),
            _ => {}
        }
    }

    /// A leader has committed.
    fn commit(&mut self, leader: usize) {
        if self.slow.is_some_and(|(node, _)| node == leader) {
            self.marks.insert(Mark::LateCommit);
        }
        // The leader sends no ready to itself.
        let ready = self.prepared.get(&leader).and_then(|&round| self.ready.get(&(leader, round)));
        let mut members = ready.cloned().unwrap_or_default();
        members.insert(leader);
        let size = u32::try_from(members.len()).unwrap();
        let expected = self.sizes.get(&leader).copied();
        assert_eq!(Some(size), expected, "committed before all were ready: {self}");
        assert!(self.size.contains(World::new(size).unwrap()), "a world of {size} of {}: {self}", self.size);
        self.marks.insert(if size == self.size.max().get() { Mark::Whole } else { Mark::Smaller });
        // The ends of connections are read before, unless they are slower than a timer.
        let gone = members.iter().any(|&member| matches!(self.outcomes[member], Some(Err(_))));
        assert!(!gone || self.hurried, "committed although a node has gone: {self}");
        assert!(self.committed.replace(members).is_none(), "committed twice: {self}");
    }

    fn close(&mut self, conn: u64, by_dialer: bool) {
        if let Some(c) = self.conns.get_mut(&conn).filter(|c| !c.over) {
            c.over = true;
            self.put(Packet::End { conn, to_dialer: !by_dialer });
        }
    }

    /// The process is gone; its kernel closes its connections.
    fn vanish(&mut self, at: usize) {
        self.nodes[at] = None;
        self.accepting[at] = false;
        self.stopped = self.stopped.filter(|&(node, _)| node != at);
        if self.slow.is_some_and(|(node, _)| node == at) {
            self.waiting.iter_mut().for_each(VecDeque::clear);
        }
        let held: Vec<(u64, bool)> = self
            .conns
            .iter()
            .filter(|(_, c)| c.dialer == at || c.acceptor == at)
            .map(|(&conn, c)| (conn, c.dialer == at))
            .collect();
        for (conn, by_dialer) in held {
            self.close(conn, by_dialer);
        }
        let conns = &self.conns;
        self.flight.retain(|packet| match packet {
            Packet::Datagram { to, .. } | Packet::Copy { to, .. } => *to != at,
            Packet::Connect { from, .. } | Packet::Path { from, .. } => *from != at,
            Packet::Hello { conn, .. } => conns[conn].acceptor != at,
            Packet::End { .. } => true,
        });
    }

    /// Whether a packet may arrive now: its recipient, or the process that dials, is not stopped.
    fn may_arrive(&self, packet: &Packet) -> bool {
        let Some((stopped, _)) = self.stopped else { return true };
        stopped
            != match packet {
                Packet::Datagram { to, .. } | Packet::Copy { to, .. } => *to,
                Packet::Connect { from, .. } => *from,
                Packet::Path { from, to, .. } => {
                    if stopped == *from {
                        *from
                    } else {
                        *to
                    }
                }
                Packet::End { conn, to_dialer: true } => self.conns[conn].dialer,
                Packet::Hello { conn, .. } | Packet::End { conn, to_dialer: false } => {
                    self.conns[conn].acceptor
                }
            }
    }

    fn deliver(&mut self, index: usize) {
        let packet = self.flight.remove(index);
        self.took(Step::Arrives(packet.clone()));
        self.arrive(packet);
    }

    fn took(&mut self, step: Step) {
        self.path = Path(Some(Rc::new((self.now, step, self.path.clone()))));
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Datagram { from, to, bytes } => self.receive(from, to, &bytes),
            Packet::Copy { from, to, bytes, .. } => {
                self.marks.insert(Mark::Copied);
                let last = [from, to].iter().filter_map(|node| self.prepared.get(node)).max();
                if round_of(&decoded(&bytes)).is_some_and(|round| Some(&round) < last) {
                    self.marks.insert(Mark::Outdated);
                }
                self.receive(from, to, &bytes);
            }
            Packet::Connect { conn, from, dial, to, hello } => {
                let acceptor = node_at(to);
                if !self.accepting[acceptor] {
                    self.with(from, |node, now| node.handle_hung_up(now, dial));
                    return;
                }
                self.conns.insert(conn, Conn { dialer: from, dial, acceptor, over: false });
                self.with(from, |node, now| node.handle_dialed(now, dial));
                let hello = Packet::Hello { conn, hello };
                if self.may_arrive(&hello) { self.arrive(hello) } else { self.put(hello) }
            }
            Packet::Hello { conn, hello } => {
                let acceptor = self.conns[&conn].acceptor;
                let local = endpoint(acceptor).ip();
                self.with(acceptor, |node, now| node.handle_hello(now, ConnId(conn), local, local, &hello));
            }
            Packet::Path { from, to, dial, token, answer } => {
                let target = self.nodes[to].as_ref().filter(|_| self.accepting[to]);
                let answered = target.and_then(|slot| slot.node.path_target().answer(&token));
                let fault = PathNews::Failed(Fault::Refused);
                let news = if answered == Some(answer) { PathNews::Arrived } else { fault };
                self.with(from, |node, now| node.handle_path(now, dial, &news));
            }
            Packet::End { conn, to_dialer } => {
                let c = self.conns[&conn];
                if to_dialer {
                    self.with(c.dialer, |node, now| node.handle_hung_up(now, c.dial));
                } else {
                    self.with(c.acceptor, |node, now| node.handle_closed(now, ConnId(conn)));
                }
            }
        }
    }

    fn receive(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let is_redirect = matches!(decoded(bytes), Message::Hint(_)) && !self.leading.contains(&to);
        let joins = |state: &Self| {
            let joins = state.flight.iter().filter(|packet| match packet {
                Packet::Datagram { from, bytes, .. } => {
                    *from == to && matches!(decoded(bytes), Message::Join(_))
                }
                _ => false,
            });
            joins.count()
        };
        let before = if is_redirect { joins(self) } else { 0 };
        self.with(to, |node, now| node.handle_datagram(now, endpoint(from), bytes));
        if is_redirect && joins(self) > before {
            self.marks.insert(Mark::Redirected);
        }
    }

    /// The node whose timer is next, and its time.
    fn next_timer(&self) -> Option<(Time, usize)> {
        let nodes = self.nodes.iter().enumerate();
        let awake = nodes.filter(|&(n, _)| self.stopped.is_none_or(|(stopped, _)| n != stopped));
        awake.filter_map(|(n, slot)| Some((slot.as_ref()?.node.poll_timeout()?, n))).min()
    }

    /// Time passes until the next timer fires, or the node that is stopped goes on.
    fn fire(&mut self) {
        let timer = self.next_timer();
        match self.stopped {
            Some((stopped, until)) if timer.is_none_or(|(at, _)| at >= until) => {
                self.now = self.now.max(until);
                self.stopped = None;
                self.took(Step::GoesOn(stopped));
            }
            _ => {
                let (at, node) = timer.unwrap();
                self.now = self.now.max(at);
                self.took(Step::Fires(node));
                self.with(node, Node::handle_timeout);
            }
        }
        let now = self.now;
        self.flight.retain(|packet| !matches!(packet, Packet::Copy { until, .. } if *until < now));
    }

    fn is_over(&self) -> bool {
        self.nodes.iter().all(Option::is_none)
    }

    /// Every state that may be next.
    fn next(&self, until: Time) -> Vec<Self> {
        let mut next = Vec::new();
        let mut branch = |act: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            state.marks.clear();
            act(&mut state);
            state.flight.sort_unstable();
            next.push(state);
        };
        let arriving: Vec<usize> =
            (0..self.flight.len()).filter(|&index| self.may_arrive(&self.flight[index])).collect();
        for &index in &arriving {
            branch(&|state| state.deliver(index));
        }
        let mut is_quiet = arriving.iter().all(|&index| matches!(self.flight[index], Packet::Copy { .. }));
        for queue in (0..2).filter(|&queue| self.stopped.is_none() && !self.waiting[queue].is_empty()) {
            is_quiet = false;
            branch(&|state| {
                let Some(packet) = state.waiting[queue].pop_front() else { return };
                state.took(Step::Arrives(packet.clone()));
                state.arrive(packet);
            });
        }
        if is_quiet {
            branch(&Self::fire);
        }
        if self.now <= until {
            self.branch_into_faults(&mut branch);
            if self.budget.early_timers > 0 && !is_quiet && self.next_timer().is_some() {
                branch(&|state| {
                    state.budget.early_timers -= 1;
                    state.hurried = true;
                    state.fire();
                });
            }
        }
        next
    }

    fn branch_into_faults(&self, branch: &mut Branch<'_>) {
        for (index, packet) in self.flight.iter().enumerate() {
            let Packet::Datagram { from, to, bytes } = packet else { continue };
            if self.budget.losses > 0 {
                branch(&|state| {
                    state.budget.losses -= 1;
                    let packet = state.flight.remove(index);
                    state.took(Step::IsLost(packet));
                });
            }
            if self.budget.copies > 0 && self.may_arrive(packet) {
                branch(&|state| {
                    state.budget.copies -= 1;
                    let (from, to, bytes) = (*from, *to, Rc::clone(bytes));
                    let packet = state.flight.remove(index);
                    state.flight.push(Packet::Copy { from, to, bytes, until: state.now + LATE });
                    state.took(Step::ArrivesTwice(packet.clone()));
                    state.arrive(packet);
                });
            }
        }
        if self.budget.resets > 0 {
            for (&conn, c) in self.conns.iter().filter(|(_, c)| !c.over) {
                branch(&|state| {
                    state.budget.resets -= 1;
                    state.took(Step::IsReset(*c));
                    state.reset = Some(c.dialer);
                    state.close(conn, true);
                    state.flight.push(Packet::End { conn, to_dialer: true });
                });
            }
        }
        for node in (0..self.nodes.len()).filter(|&node| self.nodes[node].is_some()) {
            if self.budget.crashes > 0 {
                branch(&|state| {
                    state.budget.crashes -= 1;
                    state.took(Step::Crashes(node));
                    state.outcomes[node] = Some(Err(None));
                    state.vanish(node);
                });
            }
            if let Some(long) = self.budget.stop {
                branch(&|state| {
                    state.budget.stop = None;
                    state.took(Step::Stops(node, long));
                    state.stopped = Some((node, state.now + long));
                    state.slow = Some((node, long));
                });
            }
        }
    }

    /// Checks the promises that hold in every state.
    fn check(&self) {
        assert!(self.now < END, "no end: {self}");
        let formed: Vec<&Formed> = self.outcomes.iter().flatten().flatten().collect();
        let mut ranks: Vec<u32> = formed.iter().map(|f| f.rank.get()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        assert_eq!(ranks.len(), formed.len(), "two nodes have one rank: {self}");
        assert!(formed.windows(2).all(|w| w[0].digest == w[1].digest), "two rosters: {self}");
        assert!(formed.windows(2).all(|w| w[0].master == w[1].master), "two masters: {self}");
        assert!(formed.is_empty() || self.committed.is_some(), "finished without a commit: {self}");
    }

    /// Checks the promises that hold at the end.
    fn check_end(&self) {
        for outcome in &self.outcomes {
            assert!(outcome.is_some(), "a node has not ended: {self}");
        }
        let crashed = self.outcomes.iter().flatten().any(|o| matches!(o, Err(None)));
        // To the others a node that is stopped for so long is like one that has crashed.
        let was_away = self.slow.is_some_and(|(_, long)| long >= AWAY);
        let formed = self.outcomes.iter().flatten().flatten().count();
        // A leader takes the end of a connection for the end of the process.
        let in_doubt = self.reset.is_some_and(|node| {
            matches!(self.outcomes[node], Some(Err(Some(Failure::OutcomeUnknown { .. }))))
        });
        let members = self.committed.clone().unwrap_or_default();
        let is_unknown =
            |outcome: &Option<_>| matches!(outcome, Some(Err(Some(Failure::OutcomeUnknown { .. }))));
        let has_world = !members.is_empty() || self.outcomes.iter().any(is_unknown);
        assert!(!self.size.is_range() || has_world, "enough nodes, and no world: {self}");
        if !crashed && !was_away && !in_doubt {
            assert_eq!(formed, members.len(), "no crash, and not all have finished: {self}");
            assert!(members.len() >= usize::try_from(self.size.min().get()).unwrap(), "no world: {self}");
        }
        for (node, outcome) in self.outcomes.iter().enumerate() {
            let Some(Err(Some(failure))) = outcome else { continue };
            let is_right = match failure {
                // In doubt only where the leader may have committed; out of time only where no node has.
                Failure::OutcomeUnknown { .. } => true,
                Failure::Deadline(_) => formed == 0 || !members.contains(&node),
                _ => false,
            };
            assert!(is_right, "{failure} although {formed} have finished: {self}");
        }
    }
}

/// The states and steps that a search has visited.
#[derive(Debug, Default)]
struct Explored {
    states: usize,
    ends: usize,
    /// How many steps were of each kind.
    marks: BTreeMap<Mark, usize>,
}

/// Visits every reachable state.
fn explore(start: State) -> Explored {
    let until = start.now + FAULTS;
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    let mut explored = Explored::default();
    while let Some(mut state) = open.pop() {
        for mark in std::mem::take(&mut state.marks) {
            *explored.marks.entry(mark).or_default() += 1;
        }
        let key = *blake3::hash(format!("{state:?}").as_bytes()).as_bytes();
        if !seen.insert(key) {
            continue;
        }
        state.check();
        if state.is_over() {
            state.check_end();
            explored.ends += 1;
        } else {
            open.extend(state.next(until));
        }
    }
    explored.states = seen.len();
    explored
}

fn explore_world(world: usize, start: Start, budget: Budget, marks: &[Mark]) {
    let explored = explore(State::new(world, start, budget));
    let Explored { states, ends, marks: reached } = &explored;
    println!("{world} nodes, {start:?}, {budget:?}: {states} states, {ends} ends, {reached:?}");
    assert!(*states > 10 && *ends > 0);
    for mark in marks {
        assert!(reached.contains_key(mark), "{mark:?} was not reached");
    }
}

const NO_FAULT: Budget = Budget { losses: 0, copies: 0, resets: 0, crashes: 0, early_timers: 0, stop: None };
const A_LOSS: Budget = Budget { losses: 1, ..NO_FAULT };
const A_COPY: Budget = Budget { copies: 1, ..NO_FAULT };

/// The leader has all members.
const FULL: Start = Start::Prepare { leader: 0 };
/// The same, and a node with a lower address is to be the master.
const FULL_WITHOUT_MASTER: Start = Start::Prepare { leader: 1 };

#[test]
fn two_nodes_agree_despite_losses_and_crashes() {
    // Of two nodes without members, the one with the lower address leads, whichever starts first.
    explore_world(2, FULL, Budget { losses: 2, crashes: 1, early_timers: 1, ..NO_FAULT }, &[]);
    explore_world(2, Start::Together, Budget { losses: 1, crashes: 1, ..NO_FAULT }, &[Mark::Yielded]);
}

#[test]
fn three_nodes_agree_despite_a_loss_or_a_crash() {
    for start in [FULL, FULL_WITHOUT_MASTER] {
        explore_world(3, start, A_LOSS, &[]);
        explore_world(3, start, Budget { crashes: 1, ..NO_FAULT }, &[Mark::Void]);
    }
}

#[test]
fn a_datagram_that_arrives_twice_changes_nothing() {
    explore_world(2, FULL, Budget { losses: 1, copies: 1, ..NO_FAULT }, &[Mark::Copied]);
    explore_world(3, FULL, A_COPY, &[Mark::Copied]);
    explore_world(3, FULL_WITHOUT_MASTER, A_COPY, &[Mark::Copied]);
}

#[test]
fn a_datagram_of_an_earlier_round_changes_nothing() {
    // A connection that is reset voids the first round.
    let budget = Budget { resets: 1, copies: 1, ..NO_FAULT };
    explore_world(2, FULL, budget, &[Mark::Void, Mark::Outdated]);
}

#[test]
fn a_node_that_is_slow_takes_part() {
    let budget = Budget { stop: Some(SLOW), ..NO_FAULT };
    explore_world(2, Start::Together, budget, &[Mark::LateReady, Mark::LateCommit]);
    explore_world(3, FULL, budget, &[Mark::LateReady, Mark::LateCommit]);
}

#[test]
fn a_node_that_is_stopped_in_a_round_is_waited_for_or_replaces_itself() {
    let budget = Budget { stop: Some(ABSENT), ..NO_FAULT };
    explore_world(2, FULL, budget, &[Mark::LateReady, Mark::Void]);
}

#[test]
fn a_leader_that_was_stopped_commits_no_world_that_its_members_have_left() {
    let budget = Budget { stop: Some(AWAY), ..NO_FAULT };
    explore_world(2, FULL, budget, &[Mark::LateReady, Mark::Void]);
}

#[test]
fn a_leader_that_yields_takes_its_member_along() {
    explore_world(2, Start::Yield, Budget { losses: 1, copies: 1, ..NO_FAULT }, &[Mark::Yielded]);
    explore_world(3, Start::Yield, A_LOSS, &[Mark::Yielded, Mark::Redirected]);
    explore_world(3, Start::Yield, A_COPY, &[Mark::Yielded, Mark::Redirected, Mark::Copied]);
}

#[test]
fn a_leader_that_yields_takes_its_member_along_although_one_of_them_is_slow() {
    let budget = Budget { stop: Some(SLOW), ..NO_FAULT };
    explore_world(3, Start::Yield, budget, &[Mark::Yielded, Mark::Redirected, Mark::LateReady]);
}

#[test]
fn two_or_three_nodes_agree_although_one_comes_when_the_last_call_ends_and_one_crashes() {
    let crash = Budget { crashes: 1, ..NO_FAULT };
    // With the lowest address the late node would lead, which takes 40 times as many states.
    let early = Start::LastCall { late: 2, prepared: false };
    explore_world(3, early, crash, &[Mark::Whole, Mark::Smaller]);
    for late in [0, 2] {
        let late = Start::LastCall { late, prepared: true };
        explore_world(3, late, crash, &[Mark::Smaller, Mark::Void]);
        explore_world(3, late, A_LOSS, &[Mark::Smaller]);
    }
}
