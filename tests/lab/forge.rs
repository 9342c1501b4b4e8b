//! Datagrams and hellos that mingle never sends, written by hand from PROTOCOL.md.

use std::net::{Ipv4Addr, SocketAddrV4};

use mingle_core::proto::VERSION;

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

pub type Id = [u8; 16];

/// A datagram of the first formation.
pub fn datagram(tag: Id, kind: u8, sender: Id, recipient: Id, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes();
    let mut bytes =
        [&b"MNGL"[..], &[VERSION, kind], &length, &tag, &sender, &recipient, &[0; 12], body].concat();
    if kind <= 4 {
        bytes.resize(bytes.len().max(576), 0);
    }
    bytes
}

/// A hello without traits; the last argument is the number of the dial.
pub fn hello(tag: Id, prover: Id, target: Id, to: SocketAddrV4, dial: u32) -> Vec<u8> {
    let address = to.ip().to_ipv6_mapped().octets();
    let port = to.port().to_le_bytes();
    let mut bytes =
        [&b"MNGL"[..], &[VERSION, 0, 0, 0], &tag, &prover, &target, &dial.to_le_bytes(), &address, &port]
            .concat();
    bytes.resize(114, 0);
    bytes
}

/// A body, put together field by field as bincode does.
#[derive(Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
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
    pub fn candidate(self, id: Id, host: &str, at: SocketAddrV4) -> Self {
        let best = self.bytes(&id).bytes(&[1]).number(u64::from(u32::MAX)).number(4).number(4);
        best.text(host).number(1).address(at)
    }

    pub fn announce(id: Id, host: &str, at: SocketAddrV4) -> Vec<u8> {
        let here = Self::default().candidate(id, host, at).number(3).number(3);
        // Of an unknown user.
        here.text(host).text(host).text(host).number(1).number(1).number(2).bytes(&[0, 0]).0
    }

    pub fn solicit(host: &str) -> Vec<u8> {
        Self::default().bytes(&[1]).number(3).text(host).0
    }

    pub fn join(rank: u8, host: &str, at: SocketAddrV4) -> Vec<u8> {
        // In a world of four, with this rank and no former one.
        let who = Self::default().number(4).number(4).bytes(&[1, rank, 0]).text(host);
        // One port of RoCE v1 over IPv4, without a rate, and nothing else.
        let fabric = [5, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // No port for paths, no links and no others; eight slots, no metadata, may be master, wants the
        // roster, has no port for sessions; RoCE; nothing to compare; paths to the master alone; no key; no
        // user.
        let who = who.number(1).address(at).bytes(&[0, 0, 0]);
        who.number(8).number(0).bytes(&[1, 1, 0]).bytes(&fabric).number(0).bytes(&[0, 0, 0, 0]).0
    }

    pub fn prepare(round: u64, lease: u32, rank: u32, master: Id, at: SocketAddrV4, to: Ipv4Addr) -> Vec<u8> {
        let round = Self::default().number(round).number(u64::from(lease)).number(4).number(u64::from(rank));
        let slots = round.bytes(&[9; 16]).number(0).number(4);
        let master = slots.bytes(&master).address(at);
        // No paths.
        master.bytes(&[0]).bytes(&to.octets()).number(0).number(0).0
    }
}
