//! A link with a few real nodes, without loss or delay. The first is the one that is attacked; the others
//! keep to the protocol, and so bring it into any phase.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::testing::Phase;
use mingle_core::proto::{
    ConnId, DialId, Ending, Ends, Failed, Frame, Impossible, MAX_DATAGRAM, Node, NodeId, Order, Output,
    PathDial, PathNews, Time, Way,
};

use super::promises::Watch;
use super::stages::stranger;

/// A node.
#[derive(Clone)]
pub enum Actor {
    Node(Box<Node>),
    /// Its host has lost its power.
    Gone,
}

#[derive(Clone)]
struct Place {
    actor: Actor,
    id: NodeId,
    endpoint: SocketAddr,
    accepts: bool,
}

/// An event that is under way to a node.
#[derive(Clone)]
enum Packet {
    Datagram(SocketAddr, Vec<u8>),
    /// The hello of a process that dials.
    Asked(Dial),
    Opened(NodeId, Way, ConnId, (u64, u64)),
    Failed(Dial, Failed),
    Frame(ConnId, Frame),
    Closed(ConnId, Ending),
    Path(DialId, PathNews),
}

/// A dial of a session that has not been answered.
#[derive(Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the protocol has this name for it")]
pub struct Dial {
    from: usize,
    pub to: SocketAddr,
    pub peer: NodeId,
    pub dial: DialId,
    /// The number of the dialler's session.
    number: u64,
    /// When the dialler waits no longer.
    until: Time,
}

/// A connection between two nodes, and the name that each has for it.
#[derive(Clone, Copy)]
struct Connection {
    ends: [(usize, ConnId); 2],
}

impl Connection {
    fn has(&self, end: (usize, ConnId)) -> bool {
        self.ends.contains(&end)
    }

    fn other(&self, end: (usize, ConnId)) -> (usize, ConnId) {
        if self.ends[0] == end { self.ends[1] } else { self.ends[0] }
    }
}

/// A connection of the attacked node whose other end is the attacker's.
#[derive(Clone, Copy)]
pub struct Intrusion {
    pub conn: ConnId,
    /// In whose name.
    pub peer: NodeId,
    /// The number of the attacker's last frame.
    pub said: u64,
    /// The number of the last frame that the node has written here.
    pub read: u64,
}

#[derive(Clone)]
pub struct Link {
    pub now: Time,
    pub watch: Watch,
    places: Vec<Place>,
    queue: VecDeque<(usize, Packet)>,
    connections: Vec<Connection>,
    conns: u64,
    /// Dials that nobody answers, in the order in which they began.
    pub dials: Vec<Dial>,
    pub intrusions: Vec<Intrusion>,
    /// Datagrams to the attacked node, as an attacker has recorded them.
    pub recorded: Vec<(SocketAddr, Vec<u8>)>,
    /// Whether connections to the ports for paths are answered.
    pub answers_paths: bool,
}

/// The attacked node.
pub const TARGET: usize = 0;
/// The most datagrams that an attacker remembers.
const RECORDED: usize = 64;
/// How long the driver waits for the answer to a dial.
const OPENING: Duration = Duration::from_secs(10);

impl Link {
    pub fn new(watch: Watch) -> Self {
        Self {
            now: Time::ZERO,
            watch,
            places: Vec::new(),
            queue: VecDeque::new(),
            connections: Vec::new(),
            conns: 0,
            dials: Vec::new(),
            intrusions: Vec::new(),
            recorded: Vec::new(),
            answers_paths: true,
        }
    }

    pub fn add(&mut self, node: Node, id: NodeId, endpoint: SocketAddr) {
        let actor = Actor::Node(Box::new(node));
        self.places.push(Place { actor, id, endpoint, accepts: true });
        self.carry_out(self.places.len() - 1);
    }

    pub fn target(&self) -> &Actor {
        &self.places[TARGET].actor
    }

    pub fn phase(&self) -> Phase {
        match self.target() {
            Actor::Node(node) => node.phase(),
            Actor::Gone => Phase::Ended,
        }
    }

    /// Hands an event to the attacked node, and carries out what it says.
    pub fn node<T>(&mut self, act: impl FnOnce(&mut Node, Time) -> T) -> Option<T> {
        self.hand(TARGET, act)
    }

    fn hand<T>(&mut self, at: usize, act: impl FnOnce(&mut Node, Time) -> T) -> Option<T> {
        if at == TARGET {
            self.watch.input();
        }
        let Actor::Node(node) = &mut self.places[at].actor else { return None };
        let result = act(node, self.now);
        self.carry_out(at);
        Some(result)
    }

    /// Something arrives that says nothing in the name of the node's leader: a node that has said that it is
    /// ready stays so.
    fn binds<T>(&mut self, act: impl FnOnce(&mut Node, Time) -> T) -> Option<T> {
        let before = self.phase();
        let is_bound = matches!(before, Phase::Ready | Phase::Overdue) && self.watch.is_bound();
        let result = self.node(act);
        assert!(!is_bound || self.phase() == before, "{before:?} and now {:?}", self.phase());
        result
    }

    /// A datagram of an attacker arrives at the attacked node.
    pub fn attack(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.watch.longest = datagram.len();
        self.binds(|node, now| node.handle_datagram(now, from, datagram));
        self.watch.longest = MAX_DATAGRAM;
    }

    /// The attacker dials in this name. Returns the number of the node's session, if the node answers.
    pub fn ask(&mut self, peer: NodeId) -> Option<u64> {
        let meant = self.own_id();
        self.binds(|node, now| node.handle_asked(now, peer, meant)).flatten()
    }

    /// The attacker opens a connection in this name, of a session with this number, from the address of the
    /// process that it passes for: at any other it cannot speak for a process that is there.
    pub fn intrude(&mut self, peer: NodeId, number: u64) -> Option<ConnId> {
        let own_number = self.ask(peer)?;
        Some(self.open(peer, (own_number, number)))
    }

    /// The node has answered the attacker's hello with this number, now or some time ago.
    pub fn open(&mut self, peer: NodeId, numbers: (u64, u64)) -> ConnId {
        let place = self.places.iter().find(|place| place.id == peer);
        let remote = place.map_or(stranger(1), |place| place.endpoint);
        self.open_from(remote, peer, numbers)
    }

    /// The same from this address.
    pub fn open_from(&mut self, remote: SocketAddr, peer: NodeId, numbers: (u64, u64)) -> ConnId {
        let ends = Ends { local: self.places[TARGET].endpoint.ip(), remote: remote.ip() };
        self.opened(peer, Way::Accepted(ends), numbers)
    }

    fn opened(&mut self, peer: NodeId, way: Way, numbers: (u64, u64)) -> ConnId {
        let conn = self.next_conn();
        self.intrusions.push(Intrusion { conn, peer, said: 0, read: 0 });
        self.watch.opened(conn, peer);
        self.binds(|node, now| node.handle_opened(now, peer, way, conn, numbers));
        conn
    }

    /// Which of the dials are the attacked node's.
    pub fn own_dials(&self) -> Vec<usize> {
        (0..self.dials.len()).filter(|&at| self.dials[at].from == TARGET).collect()
    }

    /// The attacker answers a dial of the attacked node as the process that is meant.
    pub fn accept(&mut self, at: usize, number: u64) -> ConnId {
        let Dial { to, peer, dial, number: own_number, .. } = self.dials.remove(at);
        self.watch.connected(to);
        self.opened(peer, Way::Dialled(dial), (own_number, number))
    }

    /// The attacker, or nobody, lets a dial fail.
    pub fn fail(&mut self, at: usize, failed: Failed) {
        let dial = self.dials.remove(at);
        if dial.from == TARGET {
            self.binds(|node, now| node.handle_dial_failed(now, dial.peer, dial.dial, failed));
        } else {
            self.hand(dial.from, |node, now| node.handle_dial_failed(now, dial.peer, dial.dial, failed));
        }
    }

    /// A frame of the attacker arrives. Returns whether the connection stays open.
    pub fn write(&mut self, conn: ConnId, frame: Frame) -> bool {
        let Some(intrusion) = self.intrusions.iter().find(|other| other.conn == conn) else { return false };
        let act = |node: &mut Node, now| node.handle_frame(now, conn, frame);
        let is_leader = self.watch.leader == Some(intrusion.peer);
        let read = if is_leader { self.node(act) } else { self.binds(act) };
        if read == Some(Err(Impossible)) {
            self.hang_up(conn, Ending::Broken);
        }
        read == Some(Ok(()))
    }

    /// The attacker's connection ends.
    pub fn hang_up(&mut self, conn: ConnId, ending: Ending) {
        self.intrusions.retain(|other| other.conn != conn);
        self.watch.closed(conn);
        self.binds(|node, now| node.handle_closed(now, conn, ending));
    }

    /// The number of the session of this node with the attacked one. It tells anybody who asks.
    pub fn number_of(&mut self, id: NodeId) -> Option<u64> {
        let (me, now) = (self.own_id(), self.now);
        let place = self.places[1..].iter_mut().find(|place| place.id == id)?;
        match &mut place.actor {
            Actor::Node(node) => node.handle_asked(now, me, id),
            Actor::Gone => None,
        }
    }

    fn next_conn(&mut self) -> ConnId {
        self.conns += 1;
        ConnId(self.conns)
    }

    /// Delivers what is next under way. Returns whether anything was.
    pub fn deliver(&mut self) -> bool {
        let Some((at, packet)) = self.queue.pop_front() else { return false };
        match packet {
            Packet::Datagram(from, datagram) => {
                if at == TARGET && self.recorded.len() < RECORDED {
                    self.recorded.push((from, datagram.clone()));
                }
                self.hand(at, |node, now| node.handle_datagram(now, from, &datagram));
            }
            Packet::Asked(dial) => self.asked(at, dial),
            Packet::Opened(peer, way, conn, numbers) => {
                if at == TARGET {
                    self.watch.opened(conn, peer);
                }
                self.hand(at, |node, now| node.handle_opened(now, peer, way, conn, numbers));
            }
            Packet::Failed(Dial { peer, dial, .. }, failed) => {
                self.hand(at, |node, now| node.handle_dial_failed(now, peer, dial, failed));
            }
            Packet::Frame(conn, frame) => {
                let read = self.hand(at, |node, now| node.handle_frame(now, conn, frame));
                if read == Some(Err(Impossible)) {
                    self.close(|connection| connection.has((at, conn)), at);
                    self.closed(at, conn, Ending::Broken);
                }
            }
            Packet::Closed(conn, ending) => self.closed(at, conn, ending),
            Packet::Path(dial, news) => {
                if at == TARGET {
                    self.watch.arrived(dial);
                }
                self.hand(at, |node, now| node.handle_path(now, dial, &news));
            }
        }
        true
    }

    /// A node's dial has arrived at another.
    fn asked(&mut self, at: usize, dial: Dial) {
        let Dial { from, to, peer: meant, dial: number, .. } = dial;
        let Place { id: peer, endpoint, .. } = self.places[from];
        let own = self.hand(at, |node, now| node.handle_asked(now, peer, meant)).flatten();
        let Some(own) = own else {
            return self.queue.push_back((from, Packet::Failed(dial, Failed::Silent)));
        };
        let conns = [self.next_conn(), self.next_conn()];
        self.connections.push(Connection { ends: [(from, conns[0]), (at, conns[1])] });
        if from == TARGET {
            self.watch.connected(to);
        }
        let opened = Packet::Opened(meant, Way::Dialled(number), conns[0], (dial.number, own));
        self.queue.push_back((from, opened));
        let ends = Ends { local: to.ip(), remote: endpoint.ip() };
        self.queue.push_back((at, Packet::Opened(peer, Way::Accepted(ends), conns[1], (own, dial.number))));
    }

    fn closed(&mut self, at: usize, conn: ConnId, ending: Ending) {
        if at == TARGET {
            self.watch.closed(conn);
        }
        self.hand(at, |node, now| node.handle_closed(now, conn, ending));
    }

    /// Loses what is next under way, if it is a datagram.
    pub fn lose(&mut self) {
        if matches!(self.queue.front(), Some((_, Packet::Datagram(..)))) {
            self.queue.pop_front();
        }
    }

    /// Ends the others without a word, and loses what is under way, but for the answers to paths: only the
    /// attacked node and an attacker are left.
    pub fn silence(&mut self) {
        self.queue.retain(|(at, packet)| *at == TARGET && matches!(packet, Packet::Path(..)));
        for place in &mut self.places[1..] {
            place.actor = Actor::Gone;
        }
    }

    fn next_timeout(&self) -> Option<(Time, usize)> {
        let timeouts = self.places.iter().enumerate().filter_map(|(at, place)| {
            let time = match &place.actor {
                Actor::Node(node) => node.poll_timeout(),
                Actor::Gone => None,
            };
            Some((time?, at))
        });
        timeouts.min()
    }

    /// Delivers what is next under way, or fires the next timer that is due by `until`. Returns whether
    /// anything happened.
    pub fn step(&mut self, until: Time) -> bool {
        if self.deliver() {
            return true;
        }
        let fires = self.next_timeout();
        let fails = self.dials.first().map(|dial| dial.until);
        let next = fires.map(|(time, _)| time).into_iter().chain(fails).min();
        let Some(time) = next.filter(|time| *time <= until) else { return false };
        self.now = self.now.max(time);
        if fails == Some(time) {
            self.fail(0, Failed::Silent);
        } else if let Some((_, at)) = fires {
            self.hand(at, Node::handle_timeout);
        }
        true
    }

    /// Lets time pass.
    pub fn run_until(&mut self, until: Time) {
        let mut steps = 0;
        while self.step(until) {
            steps += 1;
            assert!(steps < 200_000, "no end of events at {:?}", self.now);
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass until the attacked node is in this phase.
    pub fn run_to(&mut self, phase: Phase, within: Duration) {
        let until = self.now + within;
        while self.phase() != phase {
            assert!(self.step(until), "the node is {:?} and not {phase:?}", self.phase());
        }
    }

    fn place_of(&self, endpoint: SocketAddr) -> Option<usize> {
        self.places.iter().position(|place| place.endpoint == endpoint)
    }

    /// Carries out what a node says, as the driver does.
    fn carry_out(&mut self, at: usize) {
        loop {
            let output = match &mut self.places[at].actor {
                Actor::Node(node) => node.poll_output(),
                Actor::Gone => None,
            };
            let Some(output) = output else { break };
            if at == TARGET {
                self.watch.output(&output, self.now);
            }
            self.route(at, output);
        }
        let has_ended = matches!(&self.places[at].actor, Actor::Node(node) if node.has_ended());
        if at == TARGET {
            self.watch.carried_out(has_ended);
        }
        if has_ended {
            if at == TARGET {
                self.intrusions.clear();
            }
            self.places[at].accepts = false;
            self.close(|connection| connection.ends.iter().any(|end| end.0 == at), at);
        }
    }

    fn route(&mut self, at: usize, output: Output) {
        let own = self.places[at].endpoint;
        match output {
            Output::Send { to, datagram } => {
                if let Some(place) = self.place_of(to) {
                    self.queue.push_back((place, Packet::Datagram(own, datagram)));
                }
            }
            Output::Multicast { datagram } => {
                for place in (0..self.places.len()).filter(|&place| place != at) {
                    self.queue.push_back((place, Packet::Datagram(own, datagram.clone())));
                }
            }
            Output::Carry(order) => self.carry(at, order),
            Output::DialPath(PathDial { dial, to, token, answer, .. }) if self.answers_paths => {
                let mut targets = self.places.iter().filter(|place| place.endpoint.ip() == to.ip());
                let arrives = match targets.next().map(|place| &place.actor) {
                    Some(Actor::Node(target)) => target.path_target().answer(&token) == Some(answer),
                    Some(Actor::Gone) => false,
                    // The attacker keeps to the protocol.
                    None => to.ip() == stranger(1).ip(),
                };
                if arrives {
                    self.queue.push_back((at, Packet::Path(dial, PathNews::Arrived)));
                }
            }
            Output::StopAccepting => self.places[at].accepts = false,
            _ => {}
        }
    }

    fn carry(&mut self, at: usize, order: Order) {
        match order {
            Order::Dial { to, peer, dial, number } => {
                let dial = Dial { from: at, to, peer, dial, number, until: self.now + OPENING };
                let place =
                    self.place_of(to).filter(|&place| matches!(self.places[place].actor, Actor::Node(_)));
                match place {
                    // Nobody is at an address of the attacker's, and nothing answers, unless the attacker
                    // does.
                    None => self.dials.push(dial),
                    Some(place) if self.places[place].accepts => {
                        self.queue.push_back((place, Packet::Asked(dial)));
                    }
                    Some(_) => self.queue.push_back((at, Packet::Failed(dial, Failed::Refused))),
                }
            }
            Order::Write(conn, frame) => {
                if let Some(intrusion) = self.intrusions.iter_mut().find(|other| other.conn == conn) {
                    intrusion.read = intrusion.read.max(super::number(&frame));
                } else if let Some(connection) = self.connections.iter().find(|other| other.has((at, conn))) {
                    let (to, conn) = connection.other((at, conn));
                    self.queue.push_back((to, Packet::Frame(conn, frame)));
                }
            }
            Order::Close(conn) => {
                if at == TARGET {
                    self.intrusions.retain(|other| other.conn != conn);
                }
                self.close(|connection| connection.has((at, conn)), at);
            }
        }
    }

    /// A node ends these connections; the other side learns it.
    fn close(&mut self, which: impl Fn(&Connection) -> bool, by: usize) {
        for connection in self.connections.extract_if(.., |connection| which(connection)) {
            let [one, other] = connection.ends;
            let (to, conn) = if one.0 == by { other } else { one };
            self.queue.push_back((to, Packet::Closed(conn, Ending::Closed)));
        }
    }

    /// The ID of the attacked node.
    pub fn own_id(&self) -> NodeId {
        self.watch.id
    }
}
