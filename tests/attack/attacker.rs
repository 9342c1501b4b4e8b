//! The attacker: a program of its own, run in a node. It knows the job ID, and no secret.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use mingle_core::JobId;

use crate::lab::forge::{Body, HOSTILE, Id, datagram, hello};
use crate::lab::random::Random;
use crate::lab::setting;

const PORT: u16 = 29499;
/// The port of the attacker's forged endpoint.
const OWN: u16 = 29777;
const ME: Id = [0x66; 16];
const ALL: Id = [0; 16];
/// The group of the flood, which several jobs use.
const SHARED: Ipv4Addr = Ipv4Addr::new(239, 255, 7, 7);

/// Everything that a leader can send to a node at `to`, and more.
pub(crate) fn leads(
    host: &str,
    own: SocketAddrV4,
    to: Ipv4Addr,
    (dial, rank, round): (u32, u32, u64),
) -> Vec<(u8, Vec<u8>)> {
    let introduction = Body::default().candidate(ME, host, own).address(own).0;
    // No verdict, network and cables of RDMA, no trait that differs, nobody left over.
    let commit = Body::default().number(round).bytes(&[0; 10]).0;
    vec![
        // It has a seat, and another node has a rank twice.
        (
            5,
            Body::default()
                .bytes(&[1])
                .number(u64::from(dial))
                .bytes(&[1, 1, 0])
                .text(host)
                .address(own)
                .bytes(&[2, 1])
                .0,
        ),
        (3, introduction),
        (9, Body::prepare(round, dial, rank, ME, own, to)),
        (13, commit),
        (12, Body::default().number(u64::MAX).0),
        (7, Vec::new()),
        // Of a user of this name.
        (
            15,
            Body::default()
                .bytes(&ME)
                .bytes(&[1])
                .address(own)
                .text(host)
                .bytes(&[1])
                .text(host)
                .bytes(&[0])
                .0,
        ),
    ]
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
        std::io::stdout().write_all(line.as_bytes()).unwrap();
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

    /// Announces itself as better than every real candidate.
    fn lead(&mut self, refuses: bool) {
        let listener = TcpListener::bind(self.own).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut leases = Vec::new();
        let group = (ALL, SocketAddr::V4(self.group));
        loop {
            let body = Body::announce(ME, self.host(), self.own);
            self.say(1, ME, group, &body);
            let mut dial = 1;
            while let Ok((mut stream, _)) = listener.accept() {
                let mut bytes = [0; 112];
                let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                if stream.read_exact(&mut bytes).is_ok() {
                    dial = u32::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59]]);
                }
                leases.push(stream);
            }
            for (bytes, from) in self.heard() {
                let node: Id = bytes[24..40].try_into().unwrap();
                self.mislead((node, from), dial, refuses);
            }
        }
    }

    /// Answers a node with everything that a leader can send, and more.
    fn mislead(&mut self, to: (Id, SocketAddr), dial: u32, refuses: bool) {
        let (own, host) = (self.own, self.host());
        let announce = Body::announce(ME, host, own);
        self.say(1, ME, to, &announce);
        if refuses {
            // A refusal: another node, whose host has a hostile name, holds the rank.
            let body = Body::default().number(0).text(host).address(own).0;
            self.say(6, ME, to, &body);
            return;
        }
        let ranks = [u32::MAX, 4, 1, 1];
        let rank = ranks[self.random.below(ranks.len())];
        let SocketAddr::V4(at) = to.1 else { return };
        for (kind, body) in leads(host, own, *at.ip(), (dial, rank, self.turn as u64)) {
            self.say(kind, ME, to, &body);
        }
    }

    /// Joins every node with every rank, proves the connection as a real node does, and never becomes ready.
    fn join(&mut self) {
        let mut leases = Vec::new();
        loop {
            for (bytes, from) in self.heard() {
                let node: Id = bytes[24..40].try_into().unwrap();
                let SocketAddr::V4(at) = from else { continue };
                for rank in 0..4 {
                    let me = [0x70 + rank; 16];
                    let body = Body::join(rank, self.host(), self.own);
                    self.say(4, me, (node, from), &body);
                    self.say(8, me, (node, from), &[]);
                    let body = Body::solicit(self.host());
                    self.say(2, me, (node, from), &body);
                    if leases.len() < 400 {
                        let timeout = Duration::from_millis(20);
                        if let Ok(mut stream) = TcpStream::connect_timeout(&from, timeout) {
                            let _ = stream.write_all(&hello(self.tag, me, node, at, 1));
                            leases.push(stream);
                        }
                    }
                }
            }
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

    /// Opens connections to all ports that it hears of, and sends half hellos, wrong hellos, or none.
    fn connect(&mut self) {
        let mut nodes = BTreeSet::new();
        let mut open = std::collections::VecDeque::new();
        loop {
            nodes.extend(self.heard().into_iter().map(|(bytes, from)| {
                let node: Id = bytes[24..40].try_into().unwrap();
                (node, from)
            }));
            for (node, to) in nodes.clone() {
                let SocketAddr::V4(at) = to else { continue };
                let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_millis(20)) else {
                    continue;
                };
                let mut bytes = hello(self.tag, ME, node, at, 1);
                match self.random.below(8) {
                    0 => bytes.truncate(50),
                    5 => bytes.truncate(113),
                    6 => bytes[112..].fill(0xff),
                    1 => bytes[40] ^= 1,
                    2 => bytes[111] = 1,
                    3 => bytes.fill(0xff),
                    4 => bytes = bytes.repeat(200),
                    _ => bytes.clear(),
                }
                let _ = stream.write_all(&bytes);
                open.push_back(stream);
                if open.len() > 600 {
                    open.pop_front();
                }
                self.hit();
            }
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
                        2 => bytes[68..].fill(0xff),
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
