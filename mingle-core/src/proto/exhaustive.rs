//! All interleavings of a small world around prepare, ready and commit: the real state machine, with a
//! bounded number of losses, crashes and early timers.
//!
//! A world runs without faults until its leader prepares. From there every packet in flight may arrive next,
//! every datagram may be lost, every node may crash, and timers may fire although packets are in flight, each
//! as often as the budget says. Every reachable state is visited once. Where nothing is in flight, the next
//! timer fires.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::report::{Event, Failure, Formed};
use super::timer::Time;
use super::{Config, ConnId, DialId, Node, Output, TOKEN};
use crate::model::{JobId, JobTag};
use crate::wire::{Codec, Message};

/// By then every node has ended: its timeout is 30 s, and a round that began before has limits of its own.
const END: Time = Time::from_secs(60);

/// The faults that the network may still cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    losses: u32,
    crashes: u32,
    early_timers: u32,
}

#[derive(Debug, Clone)]
enum Packet {
    Datagram {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A connection is opened, and its token arrives.
    Connect {
        conn: u64,
        from: usize,
        dial: DialId,
        to: SocketAddr,
        token: [u8; TOKEN],
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

#[derive(Debug, Clone)]
struct State {
    now: Time,
    nodes: Vec<Option<Node>>,
    /// How each node ended; an error of none is a crash.
    outcomes: Vec<Option<Result<Formed, Option<Failure>>>>,
    accepting: Vec<bool>,
    flight: Vec<Packet>,
    conns: BTreeMap<u64, Conn>,
    next_conn: u64,
    /// The nodes that have sent ready, and the round.
    ready: BTreeSet<(usize, u64)>,
    prepared: bool,
    budget: Budget,
}

fn endpoint(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(node + 1).unwrap()], 29500))
}

fn tag() -> JobTag {
    "exhaustive".parse::<JobId>().unwrap().tag()
}

impl State {
    /// A world in which node `leader` starts first, so that it leads; ranks go by address all the same.
    fn new(world: usize, leader: usize, budget: Budget) -> Self {
        let mut state = Self {
            now: Time::ZERO,
            nodes: (0..world).map(|_| None).collect(),
            outcomes: (0..world).map(|_| None).collect(),
            accepting: vec![true; world],
            flight: Vec::new(),
            conns: BTreeMap::new(),
            next_conn: 0,
            ready: BTreeSet::new(),
            prepared: false,
            budget,
        };
        // The leader gets its first member before the others start, and so it stays the best candidate.
        let mut order: Vec<usize> = (0..world).filter(|&node| node != leader).collect();
        order.insert(0, leader);
        order[1..].reverse();
        for node in order {
            state.start(node, world);
            while !state.prepared && !state.flight.is_empty() {
                state.deliver(0);
            }
        }
        while !state.prepared {
            state.step_quietly();
        }
        state
    }

    fn start(&mut self, node: usize, world: usize) {
        let (number, size) = (u8::try_from(node + 1).unwrap(), u32::try_from(world).unwrap());
        let config = Config::plain(tag(), size, number, endpoint(node));
        self.nodes[node] = Some(Node::new(config, 1, self.now));
        self.with(node, Node::handle_timeout);
    }

    fn with(&mut self, at: usize, act: impl FnOnce(&mut Node, Time)) {
        let Some(mut node) = self.nodes[at].take() else { return };
        act(&mut node, self.now);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { to, datagram } => {
                    let to = (0..self.nodes.len()).find(|&n| endpoint(n) == to).unwrap();
                    self.send(at, to, datagram);
                }
                Output::Multicast { datagram } => {
                    for to in (0..self.nodes.len()).filter(|&to| to != at) {
                        self.send(at, to, datagram.clone());
                    }
                }
                Output::Dial { dial, to, token } => {
                    self.next_conn += 1;
                    self.flight.push(Packet::Connect { conn: self.next_conn, from: at, dial, to, token });
                }
                Output::HangUp(dial) => {
                    let conn = self.conns.iter().find(|(_, c)| c.dialer == at && c.dial == dial);
                    if let Some((&conn, _)) = conn {
                        self.close(conn, true);
                    }
                    self.flight.retain(
                        |p| !matches!(p, Packet::Connect { from, dial: d, .. } if *from == at && *d == dial),
                    );
                }
                Output::Close(conn) => self.close(conn.0, false),
                Output::StopAccepting => self.accepting[at] = false,
                Output::Event(Event::Formed(formed)) => self.outcomes[at] = Some(Ok(formed)),
                Output::Event(Event::Failed(failure)) => self.outcomes[at] = Some(Err(Some(failure))),
                Output::Event(_) => {}
            }
        }
        if node.has_ended() {
            self.vanish(at);
        } else {
            self.nodes[at] = Some(node);
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        match Codec::new(tag(), None).decode(&bytes) {
            Ok((_, Message::Ready(ready))) => {
                self.ready.insert((from, ready.round));
            }
            Ok((_, Message::Prepare(_))) => self.prepared = true,
            Ok(_) => {}
            Err(dropped) => panic!("a node has sent an undecodable datagram: {dropped}"),
        }
        // A copy of a datagram in flight arrives or is lost like the first.
        let double = |packet: &Packet| match packet {
            Packet::Datagram { from: f, to: t, bytes: b } => *f == from && *t == to && *b == bytes,
            _ => false,
        };
        if self.nodes[to].is_some() && !self.flight.iter().any(double) {
            self.flight.push(Packet::Datagram { from, to, bytes });
        }
    }

    fn close(&mut self, conn: u64, by_dialer: bool) {
        if let Some(c) = self.conns.get_mut(&conn).filter(|c| !c.over) {
            c.over = true;
            self.flight.push(Packet::End { conn, to_dialer: !by_dialer });
        }
    }

    /// The process is gone; its kernel closes its connections.
    fn vanish(&mut self, at: usize) {
        self.nodes[at] = None;
        self.accepting[at] = false;
        let held: Vec<(u64, bool)> = self
            .conns
            .iter()
            .filter(|(_, c)| c.dialer == at || c.acceptor == at)
            .map(|(&conn, c)| (conn, c.dialer == at))
            .collect();
        for (conn, by_dialer) in held {
            self.close(conn, by_dialer);
        }
        self.flight.retain(|packet| match packet {
            Packet::Datagram { to, .. } => *to != at,
            Packet::Connect { from, .. } => *from != at,
            Packet::End { .. } => true,
        });
    }

    fn deliver(&mut self, index: usize) {
        match self.flight.remove(index) {
            Packet::Datagram { from, to, bytes } => {
                self.with(to, |node, now| node.handle_datagram(now, endpoint(from), &bytes));
            }
            Packet::Connect { conn, from, dial, to, token } => {
                let acceptor = (0..self.nodes.len()).find(|&n| endpoint(n) == to).unwrap();
                if !self.accepting[acceptor] {
                    self.with(from, |node, now| node.handle_hung_up(now, dial));
                    return;
                }
                self.conns.insert(conn, Conn { dialer: from, dial, acceptor, over: false });
                let local: IpAddr = endpoint(from).ip();
                self.with(from, |node, now| node.handle_dialed(now, dial, local));
                self.with(acceptor, |node, now| node.handle_token(now, ConnId(conn), to.ip(), &token));
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

    /// The node whose timer is next, and its time.
    fn next_timer(&self) -> Option<(Time, usize)> {
        let timers = self.nodes.iter().enumerate();
        timers.filter_map(|(n, node)| Some((node.as_ref()?.poll_timeout()?, n))).min()
    }

    fn fire(&mut self) {
        let (at, node) = self.next_timer().unwrap();
        self.now = self.now.max(at);
        self.with(node, Node::handle_timeout);
    }

    /// The next step without a fault.
    fn step_quietly(&mut self) {
        if self.flight.is_empty() { self.fire() } else { self.deliver(0) }
    }

    fn is_over(&self) -> bool {
        self.nodes.iter().all(Option::is_none)
    }

    /// Every state that may be next.
    fn next(&self, until: Time) -> Vec<Self> {
        let mut next = Vec::new();
        let mut branch = |act: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            act(&mut state);
            next.push(state);
        };
        for index in 0..self.flight.len() {
            branch(&|state| state.deliver(index));
        }
        if self.flight.is_empty() {
            branch(&Self::fire);
        }
        // Faults come early; later ones would only repeat states.
        if self.now <= until {
            if self.budget.losses > 0 {
                for index in 0..self.flight.len() {
                    if matches!(self.flight[index], Packet::Datagram { .. }) {
                        branch(&|state| {
                            state.budget.losses -= 1;
                            state.flight.remove(index);
                        });
                    }
                }
            }
            if self.budget.crashes > 0 {
                for node in (0..self.nodes.len()).filter(|&node| self.nodes[node].is_some()) {
                    branch(&|state| {
                        state.budget.crashes -= 1;
                        state.outcomes[node] = Some(Err(None));
                        state.vanish(node);
                    });
                }
            }
            if self.budget.early_timers > 0 && !self.flight.is_empty() && self.next_timer().is_some() {
                branch(&|state| {
                    state.budget.early_timers -= 1;
                    state.fire();
                });
            }
        }
        next
    }

    /// Checks the promises that hold in every state.
    fn check(&self) {
        assert!(self.now < END, "no end: {self:#?}");
        let world = self.nodes.len();
        let formed: Vec<&Formed> = self.outcomes.iter().flatten().flatten().collect();
        let mut ranks: Vec<u32> = formed.iter().map(|f| f.rank.get()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        assert_eq!(ranks.len(), formed.len(), "two nodes have one rank: {self:#?}");
        assert!(formed.windows(2).all(|w| w[0].digest == w[1].digest), "two rosters: {self:#?}");
        assert!(formed.windows(2).all(|w| w[0].master == w[1].master), "two masters: {self:#?}");
        if !formed.is_empty() {
            // The leader sends no ready to itself.
            let rounds: BTreeSet<u64> = self.ready.iter().map(|&(_, round)| round).collect();
            let all_ready = |round| self.ready.iter().filter(|&&(_, r)| r == round).count() >= world - 1;
            assert!(rounds.into_iter().any(all_ready), "finished before all were ready: {self:#?}");
        }
    }

    /// Checks the promises that hold at the end.
    fn check_end(&self) {
        for outcome in &self.outcomes {
            assert!(outcome.is_some(), "a node has not ended: {self:#?}");
        }
        let crashed = self.outcomes.iter().flatten().any(|o| matches!(o, Err(None)));
        let formed = self.outcomes.iter().flatten().flatten().count();
        if !crashed {
            assert_eq!(formed, self.nodes.len(), "no crash, and not all have finished: {self:#?}");
        }
        for failure in self.outcomes.iter().flatten().filter_map(|o| o.as_ref().err()?.as_ref()) {
            let is_right = match failure {
                // In doubt only where the leader may have committed; out of time only where no node has.
                Failure::OutcomeUnknown { .. } => true,
                Failure::Deadline(_) => formed == 0,
                _ => false,
            };
            assert!(is_right, "{failure} although {formed} have finished: {self:#?}");
        }
    }
}

/// Visits every reachable state, and returns how many there are and how many ends.
fn explore(start: State, faults_for: Duration) -> (usize, usize) {
    let until = start.now + faults_for;
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    let mut ends = 0;
    while let Some(state) = open.pop() {
        let key = *blake3::hash(format!("{state:?}").as_bytes()).as_bytes();
        if !seen.insert(key) {
            continue;
        }
        state.check();
        if state.is_over() {
            state.check_end();
            ends += 1;
        } else {
            open.extend(state.next(until));
        }
    }
    (seen.len(), ends)
}

fn explore_world(world: usize, leader: usize, losses: u32, crashes: u32, early_timers: u32) {
    let budget = Budget { losses, crashes, early_timers };
    let (states, ends) = explore(State::new(world, leader, budget), Duration::from_millis(60));
    println!("{world} nodes, leader {leader}, {budget:?}: {states} states, {ends} ends");
    assert!(states > 10 && ends > 0);
}

#[test]
fn two_nodes_agree_despite_losses_and_crashes() {
    // Of two nodes without members, the one with the lower address leads, whichever starts first.
    explore_world(2, 0, 2, 1, 1);
}

#[test]
fn three_nodes_agree_despite_losses_and_crashes() {
    for leader in 0..2 {
        explore_world(3, leader, 1, 0, 0);
        explore_world(3, leader, 0, 1, 0);
    }
}
