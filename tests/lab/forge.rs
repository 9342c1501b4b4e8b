//! Datagrams, hellos and frames that mingle never sends, written by hand from PROTOCOL.md.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use mingle_core::proto::{TOKEN, VERSION};

/// Names that would harm a shell or a terminal, or mislead a reader.
pub const HOSTILE: [&str; 8] = [
    "$(reboot)",
    "`reboot`",
    "';reboot;'",
    "\";reboot;\"",
    "a\nexport HIJACKED='1'",
    "\u{1b}]0;owned\u{7}\u{1b}[2J",
    "\u{202e}toober\u{2066}",
    "\0\r\u{9b}31m&|<>\\",
];

/// Texts that no such name may leave on an output.
pub const RAW: [&str; 9] =
    ["$(", "`reboot", ";reboot", "export HIJACKED", "\u{1b}", "\u{202e}", "\u{2066}", "\u{9b}", "\0"];

/// The kinds of frames.
const JOIN: u8 = 0;
const PART: u8 = 1;
const WELCOME: u8 = 2;
const ROSTER: u8 = 3;
const PREPARE: u8 = 4;
const COMMIT: u8 = 5;
const REFUSE: u8 = 6;

/// The length of a hello in bytes, and where its proof begins.
const HELLO: usize = PROOF + 16;
const PROOF: usize = 80;

pub type Id = [u8; 16];

/// A datagram.
pub fn datagram(tag: Id, kind: u8, sender: Id, recipient: Id, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes();
    let mut bytes = [&b"MNGL"[..], &[VERSION, kind], &length, &tag, &sender, &recipient, body].concat();
    if [1, 2, 3, 5].contains(&kind) {
        bytes.resize(bytes.len().max(576), 0);
    }
    bytes
}

/// The token of a path; the last argument is the number of the dial.
pub fn token(tag: Id, prover: Id, target: Id, dial: u64) -> Vec<u8> {
    let mut bytes = [&b"MNGL"[..], &[VERSION, 2, 0, 0], &tag, &prover, &target, &dial.to_le_bytes()].concat();
    bytes.resize(TOKEN, 0);
    bytes
}

/// The hello of a process that dials.
pub fn hello(tag: Id, sender: Id, recipient: Id, session: u64) -> Vec<u8> {
    let session = session.to_le_bytes();
    let mut bytes = [&b"MNGL"[..], &[VERSION, 0, 0, 0], &tag, &sender, &recipient, &session].concat();
    bytes.resize(HELLO, 0);
    bytes
}

/// A frame of this number, which acknowledges all up to `read`.
pub fn frame(number: u64, read: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap().to_le_bytes();
    [&length[..], &number.to_le_bytes(), &read.to_le_bytes(), body].concat()
}

/// What a process sends first on a connection that it has dialled.
pub fn opening(tag: Id, sender: Id, recipient: Id, session: u64) -> Vec<u8> {
    [hello(tag, sender, recipient, session), frame(0, 0, &[])].concat()
}

/// A connection of a session, whose end here reads and acknowledges all, as a process of mingle does.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    said: u64,
    read: u64,
    /// What has arrived of the next frame, behind the hello that has still to arrive.
    buffer: Vec<u8>,
    hello: usize,
}

impl Wire {
    /// Dials the process `peer`. Each connection is a session of its own, so that nothing is held for read.
    pub fn dial(tag: Id, own: Id, (peer, to): (Id, SocketAddr), session: u64) -> Option<Self> {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(20)).ok()?;
        stream.write_all(&opening(tag, own, peer, session)).ok()?;
        Some(Self::open(stream, HELLO))
    }

    /// Reads the hello of a process that has dialled, which must come at once, and answers whoever is meant.
    /// Returns also the process.
    pub fn accept(tag: Id, mut stream: TcpStream, session: u64) -> Option<(Id, Self)> {
        let mut asked = [0; HELLO];
        stream.set_read_timeout(Some(Duration::from_millis(50))).ok()?;
        stream.read_exact(&mut asked).ok()?;
        if asked[5] != 0 {
            // The token of a path.
            return None;
        }
        let [peer, own] = [24, 40].map(|at| asked[at..at + 16].try_into().unwrap());
        let mut answer = hello(tag, own, peer, session);
        let hash = blake3::hash(&[&b"mingle 3 proof"[..], &asked, &answer].concat());
        answer[PROOF..].copy_from_slice(&hash.as_bytes()[..16]);
        stream.write_all(&answer).ok()?;
        Some((peer, Self::open(stream, 0)))
    }

    fn open(stream: TcpStream, hello: usize) -> Self {
        let _ = stream.set_nonblocking(true);
        Self { stream, said: 0, read: 0, buffer: Vec::new(), hello }
    }

    /// The address of the other process.
    pub fn peer(&self) -> Ipv4Addr {
        match self.stream.peer_addr() {
            Ok(SocketAddr::V4(peer)) => *peer.ip(),
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    pub fn say(&mut self, body: &[u8]) {
        self.said += 1;
        let _ = self.stream.write_all(&frame(self.said, self.read, body));
    }

    /// Reads and acknowledges what has arrived. Returns whether the connection is still open.
    pub fn keep_up(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let ended = loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(length) => self.buffer.extend_from_slice(&bytes[..length]),
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        let skipped = self.hello.min(self.buffer.len());
        self.buffer.drain(..skipped);
        self.hello -= skipped;
        let before = self.read;
        while let Some(length) = self.buffer.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) {
            let length = 4 + usize::try_from(length).unwrap();
            let Some(whole) = self.buffer.get(..length) else { break };
            self.read = self.read.max(u64::from_le_bytes(whole[4..12].try_into().unwrap()));
            self.buffer.drain(..length);
        }
        if self.read > before {
            let _ = self.stream.write_all(&frame(0, self.read, &[]));
        }
        !ended
    }
}

/// A body, put together field by field as bincode does.
#[derive(Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// The body of a frame of this kind.
    fn of(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn number(self, number: u64) -> Self {
        let bytes = number.to_le_bytes();
        match number {
            0..=250 => self.bytes(&bytes[..1]),
            251..=0xffff => self.bytes(&[251]).bytes(&bytes[..2]),
            0x1_0000..=0xffff_ffff => self.bytes(&[252]).bytes(&bytes[..4]),
            _ => self.bytes(&[253]).bytes(&bytes),
        }
    }

    pub fn text(self, text: &str) -> Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    pub fn address(self, address: SocketAddrV4) -> Self {
        self.bytes(&[0]).bytes(&address.ip().octets()).number(u64::from(address.port()))
    }

    /// A candidate with a given rank 0 and more members than any other: better than every real one.
    fn candidate(self, id: Id, host: &str, at: SocketAddrV4) -> Self {
        let best = self.bytes(&id).bytes(&[1]).number(u64::from(u32::MAX)).number(4).number(4);
        best.text(host).number(1).address(at)
    }

    /// Three are here, the last of these names, and two ranks are missing.
    fn count(self, host: &str) -> Self {
        self.number(3).number(2).text(host).text(host).number(1).number(1).number(2)
    }

    pub fn announce(id: Id, host: &str, at: SocketAddrV4) -> Vec<u8> {
        // Of an unknown user.
        Self::default().candidate(id, host, at).count(host).bytes(&[0, 0]).0
    }

    pub fn solicit(host: &str) -> Vec<u8> {
        Self::default().bytes(&[1]).number(3).text(host).0
    }

    /// Introduces a candidate at its own address.
    pub fn hint(id: Id, host: &str, at: SocketAddrV4) -> Vec<u8> {
        Self::default().candidate(id, host, at).address(at).0
    }

    /// The job runs, as the job of a user of this name.
    pub fn running(leader: Id, host: &str, at: SocketAddrV4) -> Vec<u8> {
        let leader = Self::default().bytes(&leader).number(0).number(1).address(at);
        leader.text(host).bytes(&[1]).text(host).bytes(&[0]).0
    }

    pub fn join(rank: u8, host: &str, at: SocketAddrV4) -> Vec<u8> {
        // In a world of four, with this rank.
        let who = Self::of(JOIN).number(4).number(4).bytes(&[1, rank]).text(host);
        // One port of RoCE v2 over IPv4, without a rate, and nothing else.
        let fabric = [5, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        // No port for paths, no links and no others; eight slots, no metadata, may be master, wants the
        // roster, has no port for sessions; RoCE; nothing must be the same; paths to the master alone; no
        // key; no user; no traits; a node that wants a world of three.
        let who = who.number(1).address(at).bytes(&[0, 0, 0]);
        let who = who.number(8).number(0).bytes(&[1, 1, 0]).bytes(&fabric).bytes(&[0, 0, 0, 0, 0]).number(0);
        who.bytes(&[1]).text(host).address(at).bytes(&[0, 3, 3]).0
    }

    /// It is ready in a round that there is not.
    pub fn part() -> Vec<u8> {
        Self::of(PART).number(0).bytes(&[0]).0
    }

    /// A node wants the rank of another.
    pub fn welcome(host: &str, at: SocketAddrV4, void: u64) -> Vec<u8> {
        let counted = Self::of(WELCOME).count(host);
        counted.bytes(&[1, 0]).text(host).address(at).bytes(&[2, 1]).number(void).0
    }

    /// In a round without paths to other nodes than the master.
    pub fn prepare(round: u64, rank: u32, (master, at): (Id, SocketAddrV4), to: Ipv4Addr) -> Vec<u8> {
        let round = Self::of(PREPARE).number(round).number(4).number(u64::from(rank));
        let master = round.bytes(&[9; 16]).number(0).number(4).bytes(&master).address(at);
        master.bytes(&[0]).bytes(&to.octets()).number(0).0
    }

    /// A single member, of one slot.
    pub fn roster(round: u64, host: &str) -> Vec<u8> {
        let member = Self::of(ROSTER).number(round).number(1).bytes(&[9; 16]).text(host);
        member.address(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9)).bytes(&[1, 0, 0]).0
    }

    /// No verdict, network and cables of RDMA, no trait that differs, nobody left over.
    pub fn commit(round: u64) -> Vec<u8> {
        Self::of(COMMIT).number(round).bytes(&[0; 10]).0
    }

    /// Another node, whose host has this name, holds the rank.
    pub fn rank_taken(host: &str, at: SocketAddrV4) -> Vec<u8> {
        Self::of(REFUSE).number(0).text(host).address(at).0
    }

    pub fn redirect(id: Id, host: &str, at: SocketAddrV4) -> Vec<u8> {
        Self::of(REFUSE).number(4).candidate(id, host, at).address(at).0
    }
}
