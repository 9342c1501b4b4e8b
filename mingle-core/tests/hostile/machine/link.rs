//! A link with a few real nodes, without loss or delay. The first is the one that is attacked; the others
//! keep to the protocol, and so bring it into any phase.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::Event;
use mingle_core::proto::testing::Phase;
use mingle_core::proto::{ConnId, DialId, Formed, Node, NodeId, Output, PathDial, PathNews, Time};

use super::promises::Watch;
use super::stages::stranger;

/// A node.
#[derive(Clone)]
pub enum Actor {
    Node(Box<Node>),
    /// Its process has ended.
    Gone,
}

#[derive(Clone)]
struct Place {
    actor: Actor,
    endpoint: SocketAddr,
    accepts: bool,
    formed: Option<Formed>,
}

/// An event that is under way to a node.
#[derive(Clone)]
enum Packet {
    Datagram(SocketAddr, Vec<u8>),
    Dialed(DialId),
    Hello(ConnId, Vec<u8>),
    Roster(DialId, Vec<u8>),
    Closed(ConnId),
    HungUp(DialId),
    Path(DialId, PathNews),
}

#[derive(Clone)]
struct Connection {
    dialer: usize,
    dial: DialId,
    acceptor: usize,
    conn: ConnId,
}

#[derive(Clone)]
pub struct Link {
    pub now: Time,
    pub watch: Watch,
    places: Vec<Place>,
    queue: VecDeque<(usize, Packet)>,
    connections: Vec<Connection>,
    conns: u64,
    /// Datagrams to the attacked node, as an attacker has recorded them.
    pub recorded: Vec<(SocketAddr, Vec<u8>)>,
    /// Whether connections to the ports for paths are answered.
    pub answers_paths: bool,
}

/// The attacked node.
pub const TARGET: usize = 0;
/// The most datagrams that an attacker remembers.
const RECORDED: usize = 64;

impl Link {
    pub fn new(watch: Watch) -> Self {
        Self {
            now: Time::ZERO,
            watch,
            places: Vec::new(),
            queue: VecDeque::new(),
            connections: Vec::new(),
            conns: 0,
            recorded: Vec::new(),
            answers_paths: true,
        }
    }

    pub fn add(&mut self, node: Node, endpoint: SocketAddr) {
        let actor = Actor::Node(Box::new(node));
        self.places.push(Place { actor, endpoint, accepts: true, formed: None });
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

    /// Hands an event to the attacked node, where it is one of a world that has not formed, and carries out
    /// what it says.
    pub fn node(&mut self, act: impl FnOnce(&mut Node, Time)) {
        self.watch.input();
        if let Actor::Node(node) = &mut self.places[TARGET].actor {
            act(node, self.now);
            self.carry_out(TARGET);
        }
    }

    /// A datagram of an attacker arrives at the attacked node.
    pub fn attack(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.watch.input();
        self.hand_over(TARGET, from, datagram);
    }

    fn hand_over(&mut self, at: usize, from: SocketAddr, datagram: &[u8]) {
        let now = self.now;
        match &mut self.places[at].actor {
            Actor::Node(node) => node.handle_datagram(now, from, datagram),
            Actor::Gone => return,
        }
        self.carry_out(at);
    }

    /// Delivers what is next under way. Returns whether anything was.
    pub fn deliver(&mut self) -> bool {
        let Some((at, packet)) = self.queue.pop_front() else { return false };
        if at == TARGET {
            self.watch.input();
        }
        let (now, endpoint) = (self.now, self.places[at].endpoint);
        if let Packet::Datagram(from, datagram) = packet {
            if at == TARGET && self.recorded.len() < RECORDED {
                self.recorded.push((from, datagram.clone()));
            }
            self.hand_over(at, from, &datagram);
            return true;
        }
        if let Actor::Node(node) = &mut self.places[at].actor {
            match packet {
                Packet::Dialed(dial) => {
                    if at == TARGET {
                        self.watch.connected(dial);
                    }
                    node.handle_dialed(now, dial);
                }
                Packet::Hello(conn, hello) => {
                    node.handle_hello(now, conn, endpoint.ip(), endpoint.ip(), &hello);
                }
                Packet::Roster(dial, roster) => node.handle_roster(now, dial, &roster),
                Packet::Closed(conn) => node.handle_closed(now, conn),
                Packet::HungUp(dial) => node.handle_hung_up(now, dial),
                Packet::Path(dial, news) => {
                    if at == TARGET {
                        self.watch.connected(dial);
                    }
                    node.handle_path(now, dial, &news);
                }
                Packet::Datagram(..) => {}
            }
            self.carry_out(at);
        }
        true
    }

    /// Loses what is next under way, if it is a datagram.
    pub fn lose(&mut self) {
        if matches!(self.queue.front(), Some((_, Packet::Datagram(..)))) {
            self.queue.pop_front();
        }
    }

    /// Ends the others without a word, and loses what is under way: only the attacked node and an attacker
    /// are left.
    pub fn silence(&mut self) {
        self.queue.clear();
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

    /// Delivers the next datagram, or fires the next timer that is due by `until`. Returns whether anything
    /// happened.
    pub fn step(&mut self, until: Time) -> bool {
        if self.deliver() {
            return true;
        }
        let Some((time, at)) = self.next_timeout().filter(|&(time, _)| time <= until) else { return false };
        self.now = self.now.max(time);
        let now = self.now;
        if at == TARGET {
            self.watch.input();
        }
        match &mut self.places[at].actor {
            Actor::Node(node) => node.handle_timeout(now),
            Actor::Gone => {}
        }
        self.carry_out(at);
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
            let place = &mut self.places[at];
            let output = match &mut place.actor {
                Actor::Node(node) => node.poll_output(),
                Actor::Gone => None,
            };
            let Some(output) = output else { break };
            if at == TARGET {
                self.watch.output(&output, self.now);
            }
            self.route(at, output);
        }
        let place = &self.places[at];
        if matches!(&place.actor, Actor::Node(node) if node.has_ended()) {
            self.close_all(at);
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
            Output::Dial { dial, to, hello } => {
                // An address of nobody does not answer.
                let Some(acceptor) = self.place_of(to) else { return };
                if !self.places[acceptor].accepts || matches!(self.places[acceptor].actor, Actor::Gone) {
                    self.queue.push_back((at, Packet::HungUp(dial)));
                    return;
                }
                self.conns += 1;
                let conn = ConnId(self.conns);
                self.connections.push(Connection { dialer: at, dial, acceptor, conn });
                self.queue.push_back((at, Packet::Dialed(dial)));
                self.queue.push_back((acceptor, Packet::Hello(conn, hello)));
            }
            Output::DialPath(PathDial { dial, to, token, answer, .. }) if self.answers_paths => {
                let mut targets = self.places.iter().filter(|place| place.endpoint.ip() == to.ip());
                let arrives = match targets.next().map(|place| &place.actor) {
                    Some(Actor::Node(target)) => target.path_target().answer(&token) == Some(answer),
                    Some(_) => false,
                    // The attacker keeps to the protocol.
                    None => to.ip() == stranger(1).ip(),
                };
                if arrives {
                    self.queue.push_back((at, Packet::Path(dial, PathNews::Arrived)));
                }
            }
            Output::Tell(conn, roster) => {
                let lease = self.connections.iter().find(|c| c.acceptor == at && c.conn == conn);
                if let Some(&Connection { dialer, dial, .. }) = lease {
                    self.queue.push_back((dialer, Packet::Roster(dial, roster.to_vec())));
                }
            }
            Output::HangUp(dial) => self.close(|c| c.dialer == at && c.dial == dial, at),
            Output::Close(conn) => self.close(|c| c.acceptor == at && c.conn == conn, at),
            Output::StopAccepting => self.places[at].accepts = false,
            Output::Event(Event::Formed(formed)) => self.places[at].formed = Some(formed),
            _ => {}
        }
    }

    fn close_all(&mut self, at: usize) {
        self.places[at].accepts = false;
        self.close(|c| c.dialer == at || c.acceptor == at, at);
    }

    /// Ends these connections; the other side learns it.
    fn close(&mut self, which: impl Fn(&Connection) -> bool, by: usize) {
        let (ended, open) = std::mem::take(&mut self.connections).into_iter().partition(|c| which(c));
        self.connections = open;
        let ended: Vec<Connection> = ended;
        for Connection { dialer, dial, acceptor, conn } in ended {
            self.queue.push_back(if dialer == by {
                (acceptor, Packet::Closed(conn))
            } else {
                (dialer, Packet::HungUp(dial))
            });
        }
    }

    /// The ID of the attacked node.
    pub fn own_id(&self) -> NodeId {
        self.watch.id
    }
}
