//! The attacker: a program of its own, run in a node. It knows the job ID, and no secret.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use mingle_core::JobId;

use crate::lab::forge::{Body, HOSTILE, Id, Wire, datagram, frame, hello, opening, token};
use crate::lab::random::Random;
use crate::lab::setting;

const PORT: u16 = 29499;
/// The port of the attacker's forged endpoint.
const OWN: u16 = 29777;
const ME: Id = [0x66; 16];
const ALL: Id = [0; 16];
/// The most sessions that the attacker keeps as a leader.
const WIRES: usize = 64;
/// The most connections on which it pours.
const POURS: usize = 600;
/// The group of the flood, which several jobs use.
const SHARED: Ipv4Addr = Ipv4Addr::new(239, 255, 7, 7);

/// Everything that a leader can send to a node, and more.
pub(crate) fn datagrams(host: &str, own: SocketAddrV4) -> [(u8, Vec<u8>); 2] {
    [(3, Body::hint(ME, host, own)), (4, Body::running(ME, host, own))]
}

struct Attacker {
    tag: Id,
    own: SocketAddrV4,
    group: SocketAddrV4,
    /// Receives datagrams to the group.
    ear: UdpSocket,
    /// Sends, and receives datagrams to the attacker itself.
    mouth: UdpSocket,
    random: Random,
    hits: u64,
    turn: usize,
    reported: Instant,
    began: Instant,
}

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_attacks() {
    let job: JobId = setting("LAB_JOB");
    let address: Ipv4Addr = setting("LAB_SELF");
    let how: String = setting("LAB_ATTACK");
    let group = if how == "flood" { SHARED } else { job.group_v4() };
    let ear = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    ear.join_multicast_v4(&group, &address).unwrap();
    ear.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    let mouth = UdpSocket::bind((address, OWN)).unwrap();
    mouth.set_nonblocking(true).unwrap();
    let mut attacker = Attacker {
        tag: job.tag().0,
        own: SocketAddrV4::new(address, OWN),
        group: SocketAddrV4::new(group, PORT),
        ear,
        mouth,
        random: Random::announced(&how),
        hits: 0,
        turn: 0,
        reported: Instant::now(),
        began: Instant::now(),
    };
    attacker.report();
    match how.as_str() {
        "lead" => attacker.lead(false),
        "refuse" => attacker.lead(true),
        "join" => attacker.join(),
        "replay" => attacker.replay(),
        "connect" => attacker.connect(),
        "malformed" => attacker.malformed(),
        "flood" => attacker.flood(),
        "short frames" => attacker.pour(&frame(1, 0, &Body::part()).repeat(2000)),
        "long frames" => attacker.pour(&[&[17, 0, 0x80, 0][..], &vec![0; 1 << 16]].concat()),
        other => panic!("no attack {other}"),
    }
}

impl Attacker {
    /// Reports the number of hits, for which the test waits.
    fn report(&mut self) {
        self.reported = Instant::now();
        let seconds = self.began.elapsed().as_millis().max(1);
        let rate = u128::from(self.hits) * 1000 / seconds;
        let line = format!("hits {} in all, {rate}/s\n", self.hits);
        io::stdout().write_all(line.as_bytes()).unwrap();
    }

    fn hit(&mut self) {
        self.hits += 1;
        if self.reported.elapsed() > Duration::from_millis(20) {
            self.report();
        }
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) {
        let _ = self.mouth.send_to(bytes, to);
        self.hit();
    }

    fn say(&mut self, kind: u8, sender: Id, to: (Id, SocketAddr), body: &[u8]) {
        let bytes = datagram(self.tag, kind, sender, to.0, body);
        self.send(&bytes, to.1);
    }

    /// The number of another session.
    fn session(&mut self) -> u64 {
        self.turn += 1;
        self.turn as u64
    }

    fn host(&mut self) -> &'static str {
        self.turn += 1;
        HOSTILE[self.turn % HOSTILE.len()]
    }

    /// All datagrams from others, to the group and to the attacker.
    fn heard(&mut self) -> Vec<(Vec<u8>, SocketAddr)> {
        let mut heard = Vec::new();
        let mut buffer = [0; 2048];
        for socket in [&self.ear, &self.mouth] {
            for _ in 0..32 {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
                if from.ip() != *self.own.ip() && length >= 68 {
                    heard.push((buffer[..length].to_vec(), from));
                }
            }
        }
        heard
    }

    /// Announces itself as better than every real candidate, and speaks as the leader on the sessions that
    /// nodes open, and on some that it opens itself.
    fn lead(&mut self, refuses: bool) {
        let listener = TcpListener::bind(self.own).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut wires: VecDeque<(Id, Wire)> = VecDeque::new();
        let group = (ALL, SocketAddr::V4(self.group));
        loop {
            let body = Body::announce(ME, self.host(), self.own);
            self.say(1, ME, group, &body);
            while let Ok((stream, _)) = listener.accept() {
                let session = self.session();
                wires.extend(Wire::accept(self.tag, stream, session));
            }
            for (bytes, from) in self.heard() {
                let node: Id = bytes[24..40].try_into().unwrap();
                self.mislead((node, from), refuses);
                let session = self.session();
                let dialled = Wire::dial(self.tag, ME, (node, from), session);
                wires.extend(dialled.map(|wire| (node, wire)));
            }
            wires.drain(..wires.len().saturating_sub(WIRES));
            wires.retain_mut(|(_, wire)| wire.keep_up());
            for (_, wire) in &mut wires {
                self.lead_on(wire, refuses);
            }
        }
    }

    /// Answers a node with every datagram that a leader can send, and more.
    fn mislead(&mut self, to: (Id, SocketAddr), refuses: bool) {
        let (own, host) = (self.own, self.host());
        let announce = Body::announce(ME, host, own);
        self.say(1, ME, to, &announce);
        for (kind, body) in datagrams(host, own).into_iter().filter(|_| !refuses) {
            self.say(kind, ME, to, &body);
        }
    }

    /// Says everything that a leader can say on a session, in the order of a formation.
    fn lead_on(&mut self, wire: &mut Wire, refuses: bool) {
        let (own, host) = (self.own, self.host());
        self.hit();
        if refuses {
            return wire.say(&Body::rank_taken(host, own));
        }
        let ranks = [u32::MAX, 4, 1, 1];
        let rank = ranks[self.random.below(ranks.len())];
        let round = self.turn as u64;
        // Now and then all rounds are void, and the node is sent away.
        let is_last = self.turn.is_multiple_of(64);
        wire.say(&Body::welcome(host, own, if is_last { u64::MAX } else { 0 }));
        wire.say(&Body::roster(round, host));
        wire.say(&Body::prepare(round, rank, (ME, own), wire.peer()));
        wire.say(&Body::commit(round));
        if is_last {
            wire.say(&Body::redirect([0x67; 16], host, own));
        }
    }

    /// Joins every node with every rank, acknowledges all that it is told, and never becomes ready.
    fn join(&mut self) {
        let mut wires: Vec<Wire> = Vec::new();
        loop {
            for (bytes, from) in self.heard() {
                let node: Id = bytes[24..40].try_into().unwrap();
                for rank in 0..4 {
                    let me = [0x70 + rank; 16];
                    let body = Body::solicit(self.host());
                    self.say(2, me, (node, from), &body);
                    let session = self.session();
                    if wires.len() >= 400 {
                        continue;
                    }
                    if let Some(mut wire) = Wire::dial(self.tag, me, (node, from), session) {
                        wire.say(&Body::join(rank, self.host(), self.own));
                        wire.say(&Body::part());
                        wires.push(wire);
                    }
                }
            }
            wires.retain_mut(Wire::keep_up);
        }
    }

    /// Replays the datagrams that it hears: to the group and to their sender, at once and later.
    fn replay(&mut self) {
        let mut recorded: Vec<(Vec<u8>, SocketAddr)> = Vec::new();
        loop {
            for (bytes, from) in self.heard() {
                self.send(&bytes, SocketAddr::V4(self.group));
                self.send(&bytes, from);
                recorded.push((bytes, from));
            }
            for _ in 0..8.min(recorded.len()) {
                let (bytes, _) = recorded[self.random.below(recorded.len())].clone();
                let (_, to) = recorded[self.random.below(recorded.len())];
                self.send(&bytes, to);
            }
        }
    }

    /// Opens connections to all ports that it hears of, and sends half of a token, a hello or a frame, wrong
    /// ones, or none.
    fn connect(&mut self) {
        let mut nodes = BTreeSet::new();
        let mut open = VecDeque::new();
        loop {
            nodes.extend(self.heard().into_iter().map(|(bytes, from)| {
                let node: Id = bytes[24..40].try_into().unwrap();
                (node, from)
            }));
            for (node, to) in nodes.clone() {
                let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_millis(20)) else {
                    continue;
                };
                let _ = stream.write_all(&self.wrong(node));
                open.push_back(stream);
                if open.len() > 600 {
                    open.pop_front();
                }
                self.hit();
            }
        }
    }

    /// What no node sends on a connection to this one.
    fn wrong(&mut self, node: Id) -> Vec<u8> {
        let token = || token(self.tag, ME, node, 1);
        // A later one is read although a connection of an earlier one is open.
        let session = 1 + self.hits;
        let hello = || hello(self.tag, ME, node, session);
        let opened = |frame: Vec<u8>| [opening(self.tag, ME, node, session), frame].concat();
        let changed = |mut bytes: Vec<u8>, at: usize, value: u8| {
            bytes[at] = value;
            bytes
        };
        match self.random.below(18) {
            0 => token()[..50].to_vec(),
            1 => changed(token(), 40, !node[0]),
            2 => changed(token(), 95, 1),
            3 => vec![0xff; 96],
            4 => token().repeat(200),
            5 => hello()[..95].to_vec(),
            6 => changed(hello(), 40, !node[0]),
            7 => changed(hello(), 6, 1),
            // A hello of a job with a secret.
            8 => changed(opened(Vec::new()), 5, 1),
            // The acknowledgement does not come first.
            9 => [hello(), frame(1, 0, &Body::join(0, "early", self.own))].concat(),
            10 => opened(vec![0xff; 100]),
            // Shorter than any frame.
            11 => opened([&[15, 0, 0, 0], &[0; 15][..]].concat()),
            // It has read what was never written.
            12 => opened(frame(1, u64::MAX, &Body::part())),
            13 => opened(frame(0, 0, &Body::part())),
            14 => opened(frame(1, 0, &[99; 300])),
            15 => opened(frame(1, 0, &Body::part()[..1])),
            // Half of a join, and a commit of nobody's leader.
            16 => {
                let join = frame(2, 0, &Body::join(0, "half", self.own));
                opened([frame(1, 0, &Body::commit(1)), join[..60].to_vec()].concat())
            }
            _ => Vec::new(),
        }
    }

    /// Opens sessions of processes that do not exist, and writes on each as much as the node takes: frames
    /// that change nothing, or the beginning of the longest one.
    fn pour(&mut self, bytes: &[u8]) {
        let mut nodes = BTreeSet::new();
        let mut open: VecDeque<TcpStream> = VecDeque::new();
        loop {
            nodes.extend(self.heard().into_iter().map(|(bytes, from)| {
                let node: Id = bytes[24..40].try_into().unwrap();
                (node, from)
            }));
            for (node, to) in &nodes {
                if open.len() >= POURS {
                    break;
                }
                let Ok(mut stream) = TcpStream::connect_timeout(to, Duration::from_millis(20)) else {
                    continue;
                };
                let mut id = ME;
                id[..8].copy_from_slice(&self.hits.to_le_bytes());
                self.hits += 1;
                let _ = stream.write_all(&opening(self.tag, id, *node, 1));
                stream.set_nonblocking(true).unwrap();
                open.push_back(stream);
            }
            open.retain_mut(|stream| match stream.write(bytes) {
                Ok(_) => {
                    self.hits += 1;
                    true
                }
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            });
            self.report();
        }
    }

    /// Datagrams with every kind, length and flag wrong in some way.
    fn malformed(&mut self) {
        let group = SocketAddr::V4(self.group);
        loop {
            let targets: Vec<SocketAddr> = self.heard().into_iter().map(|(_, from)| from).collect();
            for to in targets.into_iter().chain([group]) {
                for kind in 0..=255 {
                    let (host, own) = (self.host(), self.own);
                    let body = Body::announce(ME, host, own);
                    let mut bytes = datagram(self.tag, kind, ME, ALL, &body);
                    let at = self.random.below(bytes.len());
                    match self.random.below(5) {
                        0 => bytes.truncate(at),
                        1 => bytes[at] ^= 0xff,
                        2 => bytes[56..].fill(0xff),
                        3 => bytes.resize(60_000, b'$'),
                        // Only the kind is wrong.
                        _ => {}
                    }
                    self.send(&bytes, to);
                }
                let long = "$(reboot)".repeat(7_000);
                let body = Body::announce(ME, &long, self.own);
                self.say(1, ME, (ALL, to), &body);
            }
        }
    }

    /// Sends as much as this machine can: junk, and announcements of other jobs and of this one.
    fn flood(&mut self) {
        let _ = self.mouth.set_nonblocking(false);
        let group = SocketAddr::V4(self.group);
        let mut turn: u64 = 0;
        loop {
            turn += 1;
            let mut id = ME;
            id[..8].copy_from_slice(&turn.to_le_bytes());
            let tag = if turn.is_multiple_of(3) { self.tag } else { id };
            let body = Body::announce(id, HOSTILE[0], self.own);
            // Half of those for this job claim to be sealed, which takes longer to refuse; not in an
            // unoptimized build, where a refusal takes most of a millisecond.
            let claims = turn.is_multiple_of(6);
            let kind = if claims { 0x81 } else { 1 };
            let mut bytes = datagram(tag, kind, id, ALL, &body);
            if turn % 3 == 1 {
                bytes[0] = 0;
            }
            self.send(&bytes, group);
        }
    }
}
