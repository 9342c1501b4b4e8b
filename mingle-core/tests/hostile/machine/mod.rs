//! Reads bytes as a program of what happens to a node, for the property tests and the fuzz targets.
//!
//! The first bytes choose a situation, which real nodes bring about; what follows is what an attacker sends,
//! by the real encoder, and what else happens. `promises` checks each output.

#![allow(dead_code, reason = "the tests and each fuzz target use a part of this")]

pub mod cells;
pub mod link;
pub mod promises;
pub mod stages;

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::testing::{Frame, KINDS, kind};
use mingle_core::proto::{ConnId, DialId, Endpoints, Lineage, NodeId, Reach};

use cells::{Cell, Cells, RECIPIENTS, RELATIONS, Recipient, Relation};
use link::Actor;
use promises::{GRACE, TIMEOUT};
use stages::{Play, STAGES, endpoint, id, stranger};

/// The rest of the program.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.next()) % of.len()]
    }
}

/// How many operations there are. The first quarter of them are an attacker's datagrams.
const OPERATIONS: u8 = 16;

/// The messages from a leader to a member in a round.
const ROUND: [&str; 3] = ["Welcome", "Prepare", "Commit"];

/// An attacker's datagram.
#[derive(Clone, Copy)]
pub struct Attack {
    pub kind: u8,
    pub recipient: Recipient,
    pub relation: Relation,
    pub sender: NodeId,
    pub source: SocketAddr,
}

impl Attack {
    pub fn read(bytes: &mut Bytes<'_>, play: &Play) -> Self {
        let kind = bytes.pick(KINDS).0;
        let (recipient, relation) = (bytes.pick(&RECIPIENTS), bytes.pick(&RELATIONS));
        let from = bytes.next();
        let sender = match from % 4 {
            0 => id(20 + from / 64),
            _ => play.scene.nodes[usize::from(from / 4) % play.scene.nodes.len()],
        };
        let sources = [stranger(1), stranger(2), endpoint(1), endpoint(2)];
        Self { kind, recipient, relation, sender, source: bytes.pick(&sources) }
    }

    /// The datagram, where this lineage is possible.
    pub fn datagram(&self, play: &mut Play, fields: &[u8]) -> Option<Vec<u8>> {
        let lineage: Lineage = self.relation.to(play.lineage)?;
        let recipient = match self.recipient {
            Recipient::All => Frame::ALL,
            Recipient::Anyone => Frame::ANYONE,
            Recipient::One => play.link.own_id(),
        };
        let frame = Frame { sender: self.sender, recipient, lineage };
        play.forger.datagram(self.kind, frame, &play.scene, fields)
    }

    /// Sends it to the attacked node. Returns the cell that it reaches, where the decoder lets it pass.
    pub fn send(&self, play: &mut Play, fields: &[u8]) -> Option<Cell> {
        let datagram = self.datagram(play, fields)?;
        let (phase, kind) = (play.link.phase(), self.kind);
        let accepted = play.forger.read(&datagram).is_ok();
        play.link.attack(self.source, &datagram);
        accepted.then_some(Cell { phase, kind, recipient: self.recipient, relation: self.relation })
    }
}

/// Runs a program in one of the situations. Returns what it has reached.
pub fn run(program: &[u8]) -> Cells {
    let mut bytes = Bytes(program);
    let stage = bytes.pick(STAGES);
    let mut play = stage.play(bytes.next() % 2 == 1);
    run_in(&mut play, &mut bytes)
}

/// The end of a program.
#[derive(Clone, Copy)]
enum Ending {
    /// The node goes on to its end among the others.
    Among,
    /// The node goes on to its end alone: the others are silent from the start.
    Alone,
    /// Nothing more, which is quick.
    Early,
}

/// Runs a program in a situation. Returns what it has reached.
pub fn run_in(play: &mut Play, bytes: &mut Bytes<'_>) -> Cells {
    let mut cells = Cells::default();
    let ending = bytes.pick(&[Ending::Early, Ending::Among, Ending::Early, Ending::Alone]);
    if matches!(ending, Ending::Alone) {
        play.link.silence();
    }
    while let Some(op) = bytes.byte() {
        match op % OPERATIONS {
            0..=2 => {
                let attack = Attack::read(bytes, play);
                let length = usize::from(op / OPERATIONS) * 4;
                cells.extend(attack.send(play, bytes.take(length)));
            }
            3 => {
                // A whole round of a leader that names the same things in each message.
                let attack = Attack::read(bytes, play);
                let fields = bytes.take(usize::from(op / OPERATIONS));
                for message in ROUND {
                    cells.extend(Attack { kind: kind(message), ..attack }.send(play, fields));
                }
            }
            op => other(op, play, bytes),
        }
    }
    if !matches!(ending, Ending::Early) {
        let until = play.link.now.max(TIMEOUT) + GRACE;
        play.link.run_until(until);
        ends(play);
    }
    cells
}

/// Carries out an operation that is no datagram of an attacker.
fn other(op: u8, play: &mut Play, bytes: &mut Bytes<'_>) {
    let link = &mut play.link;
    match op {
        4 => {
            let (conn, prover, dial) = (bytes.next(), bytes.next(), bytes.next());
            let target = if conn < 0xe0 { link.own_id() } else { id(prover) };
            let hello = play.forger.hello(id(prover % 24), target, dial.into(), endpoint(1));
            let conn = ConnId(100 + u64::from(conn));
            link.node(|node, now| node.handle_hello(now, conn, endpoint(1).ip(), endpoint(1).ip(), &hello));
        }
        5 => {
            let conn = ConnId(90 + u64::from(bytes.next() % 32));
            link.node(|node, now| node.handle_closed(now, conn));
        }
        6 => {
            let dial = DialId(u32::from(bytes.next() % 16));
            link.node(|node, now| node.handle_hung_up(now, dial));
        }
        7 => {
            // As the driver does for a connection to a stranger that accepts.
            let dial = DialId(u32::from(bytes.next() % 16));
            link.watch.connected(dial);
            link.node(|node, now| node.handle_dialed(now, dial));
        }
        8 | 9 => {
            let most = if op == 8 { 1 } else { 64 };
            let _ = (0..most).all(|_| link.deliver());
        }
        10 => link.lose(),
        11 | 12 => {
            let until = link.now + Duration::from_millis(1 << (bytes.next() % 14));
            link.run_until(until);
        }
        13 => {
            let recorded = link.recorded.clone();
            if !recorded.is_empty() {
                let (from, mut datagram) = bytes.pick(&recorded.iter().collect::<Vec<_>>()).clone();
                let at = usize::from(bytes.next()) % datagram.len();
                datagram[at] ^= bytes.next();
                link.attack(from, &datagram);
            }
        }
        14 => {
            // As an acceptor of one of the node's dials.
            let (teller, dial, round) = (bytes.pick(&play.scene.nodes), bytes.next() % 16, bytes.next());
            let roster = &play.scene.rosters[usize::from(round / 128) % play.scene.rosters.len()];
            let round = u64::from(round % 4);
            let roster = play.forger.roster(teller, round, roster);
            link.node(|node, now| node.handle_roster(now, DialId(dial.into()), &roster));
        }
        _ => changes(play, bytes),
    }
}

/// The driver tells a node of a change of its network.
fn changes(play: &mut Play, bytes: &mut Bytes<'_>) {
    let own = endpoint(play.own());
    let what = bytes.next();
    play.link.node(|node, now| match what % 4 {
        0 => node.handle_seeds(now, vec![endpoint(what % 8), stranger(what % 4)]),
        1 if what > 0xf0 => node.handle_departure(now),
        _ => {
            let endpoints = Endpoints::new(vec![own, endpoint(what)]);
            node.handle_endpoints(now, endpoints.unwrap_or_else(|| own.into()), Reach::default());
        }
    });
}

/// Checks that a node ends by its deadline, with a reason.
fn ends(play: &Play) {
    match play.link.target() {
        Actor::Node(node) => {
            assert!(node.has_ended(), "the node does not end");
            let at = play.link.watch.end.as_ref().map(|(_, at)| *at);
            assert!(at.is_some_and(|at| at <= TIMEOUT + GRACE), "the node ends at {at:?}");
        }
        Actor::Gone => {}
    }
}
