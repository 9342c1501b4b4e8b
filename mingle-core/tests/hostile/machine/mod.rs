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

use mingle_core::proto::testing::{Forger, Frame, KINDS, SAID, describe};
use mingle_core::proto::{
    ConnId, DialId, Ending, Endpoints, Failed, Fault, Frame as Written, NodeId, PathNews, Reach,
};

use cells::{Cell, Cells, RECIPIENTS, Recipient, Way};
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

/// How many operations there are. The first quarter of them are an attacker's datagrams and frames.
const OPERATIONS: u8 = 16;

/// What a leader says to a member in a round.
const ROUND: [&str; 3] = ["Roster", "Prepare", "Commit"];

/// The number of the kind of frames that has this name.
pub fn said(name: &str) -> u8 {
    SAID.iter().find(|(_, other)| *other == name).expect("a kind of frame").0
}

/// The number of a frame, as the log shows it.
pub fn number(frame: &Written) -> u64 {
    let text = describe(frame);
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// What an attacker sends.
#[derive(Clone, Copy)]
pub struct Attack {
    pub kind: u8,
    pub way: Way,
    pub sender: NodeId,
    /// Where a datagram comes from.
    pub source: SocketAddr,
}

impl Attack {
    /// A datagram.
    pub fn read(bytes: &mut Bytes<'_>, play: &Play) -> Self {
        let kind = bytes.pick(KINDS).0;
        let way = Way::Datagram(bytes.pick(&RECIPIENTS));
        let sender = sender(bytes, play);
        let sources = [stranger(1), stranger(2), endpoint(1), endpoint(2)];
        Self { kind, way, sender, source: bytes.pick(&sources) }
    }

    /// A frame, the first on a new connection.
    pub fn read_frame(bytes: &mut Bytes<'_>, play: &Play) -> Self {
        let (kind, sender) = (bytes.pick(SAID).0, sender(bytes, play));
        Self { kind, way: Way::Session(play.name(sender)), sender, source: stranger(1) }
    }

    /// The datagram, where it is one.
    pub fn datagram(&self, play: &mut Play, fields: &[u8]) -> Option<Vec<u8>> {
        let Way::Datagram(recipient) = self.way else { return None };
        let recipient = match recipient {
            Recipient::All => Frame::ALL,
            Recipient::Anyone => Frame::ANYONE,
            Recipient::One => play.link.own_id(),
        };
        let frame = Frame { sender: self.sender, recipient };
        play.forger.datagram(self.kind, frame, &play.scene, fields)
    }

    /// Sends it to the attacked node. Returns the cell that it reaches, where the node answers the connection
    /// and the decoder lets it pass.
    pub fn send(&self, play: &mut Play, fields: &[u8]) -> Option<Cell> {
        let phase = play.link.phase();
        let passes = if let Some(datagram) = self.datagram(play, fields) {
            let passes = play.forger.read(&datagram).is_ok();
            play.link.attack(self.source, &datagram);
            passes
        } else if let Way::Session(_) = self.way {
            let conn = play.intrude(self.sender)?;
            let scene = play.scene.clone();
            play.write(conn, self.kind, &scene, fields)
        } else {
            false
        };
        passes.then_some(Cell { phase, kind: self.kind, way: self.way })
    }
}

fn sender(bytes: &mut Bytes<'_>, play: &Play) -> NodeId {
    let from = bytes.next();
    match from % 4 {
        0 => id(20 + from / 64),
        _ => play.scene.nodes[usize::from(from / 4) % play.scene.nodes.len()],
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
enum End {
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
    let end = bytes.pick(&[End::Early, End::Among, End::Early, End::Alone]);
    if matches!(end, End::Alone) {
        play.link.silence();
    }
    while let Some(op) = bytes.byte() {
        let length = usize::from(op / OPERATIONS) * 4;
        match op % OPERATIONS {
            0 => {
                let attack = Attack::read(bytes, play);
                cells.extend(attack.send(play, bytes.take(length)));
            }
            1 => {
                let attack = Attack::read_frame(bytes, play);
                cells.extend(attack.send(play, bytes.take(length)));
            }
            2 => cells.extend(writes(play, bytes, length)),
            3 => {
                // A whole round of a leader that names the same things in each frame.
                let Some(conn) = connection(play, bytes) else { continue };
                let (scene, fields) = (play.scene.clone(), bytes.take(length / 4));
                let _ = ROUND.iter().all(|what| play.write(conn, said(what), &scene, fields));
            }
            op => other(op, play, bytes),
        }
    }
    if !matches!(end, End::Early) {
        let until = play.link.now.max(TIMEOUT) + GRACE;
        play.link.run_until(until);
        ends(play);
    }
    cells
}

/// One of the attacker's connections, or a new one.
fn connection(play: &mut Play, bytes: &mut Bytes<'_>) -> Option<ConnId> {
    let which = usize::from(bytes.next());
    if let Some(intrusion) = play.link.intrusions.get(which % 8) {
        return Some(intrusion.conn);
    }
    let name = sender(bytes, play);
    play.intrude(name)
}

/// A frame on one of the attacker's connections, with any numbers.
fn writes(play: &mut Play, bytes: &mut Bytes<'_>, length: usize) -> Option<Cell> {
    let conn = connection(play, bytes)?;
    let own = *play.link.intrusions.iter().find(|other| other.conn == conn)?;
    let (kind, how) = (bytes.pick(SAID).0, bytes.next());
    let number = match how % 4 {
        0 | 1 => own.said.saturating_add(1),
        2 => bytes.next().into(),
        _ => u64::MAX - u64::from(bytes.next()),
    };
    let read = match how / 4 % 8 {
        0 => u64::MAX,
        1 | 2 => bytes.next().into(),
        _ => own.read,
    };
    let frame = Forger::frame(kind, number, read, &play.scene, bytes.take(length))?;
    let phase = play.link.phase();
    let passes = play.link.write(conn, frame);
    passes.then(|| Cell { phase, kind, way: Way::Session(play.name(own.peer)) })
}

/// Carries out an operation that is nothing that an attacker says.
fn other(op: u8, play: &mut Play, bytes: &mut Bytes<'_>) {
    let link = &mut play.link;
    match op {
        4 => opens(play, bytes),
        5 => {
            let conns: Vec<ConnId> = link.intrusions.iter().map(|intrusion| intrusion.conn).collect();
            if !conns.is_empty() {
                let ending = bytes.pick(&[Ending::Closed, Ending::Broken]);
                link.hang_up(bytes.pick(&conns), ending);
            }
        }
        7 => {
            let dials = link.own_dials();
            if !dials.is_empty() {
                let at = bytes.pick(&dials);
                match bytes.next() {
                    how if how < 0x80 => _ = link.accept(at, u64::from(how % 4)),
                    how if how < 0xc0 => link.fail(at, Failed::Refused),
                    _ => link.fail(at, Failed::Silent),
                }
            }
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
        6 | 14 => {
            // As the driver reports of a path to the attacker.
            let dial = DialId(u32::from(bytes.next() % 16));
            let failed = PathNews::Failed(Fault::Silent);
            let news = bytes.pick(&[PathNews::Arrived, PathNews::Opened { packet: 1500 }, failed]);
            if news == PathNews::Arrived {
                link.watch.arrived(dial);
            }
            link.node(|node, now| node.handle_path(now, dial, &news));
        }
        _ => changes(play, bytes),
    }
}

/// The attacker opens a connection in anybody's name.
fn opens(play: &mut Play, bytes: &mut Bytes<'_>) {
    let (name, how) = (sender(bytes, play), bytes.next());
    // The attacker may take part in a session that is there, since each node tells its number to anybody.
    let known = play.link.number_of(name).unwrap_or(1);
    let number = match how % 4 {
        0 => known,
        1 => known.wrapping_sub(1),
        2 => play.later_number(name),
        _ => (how / 4).into(),
    };
    if how < 0xe0 {
        play.link.intrude(name, number);
    } else if let Some(own_number) = play.link.ask(name) {
        // The node answered some time ago, and has begun anew since.
        play.link.open(name, (own_number.wrapping_sub(1), number));
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
