//! Which host reaches which: the messages of hosts that run the doctor at once, and the matrix from them.
//!
//! Each host keeps a row: what it has heard from each other host. Hosts send their rows by multicast, by UDP
//! and over TCP, and relay the rows of others, so that one working path suffices to learn of all hosts.
//! Nothing here is authentic, and it can change nothing but a report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use mingle_core::HostName;
use mingle_core::proto::JobTag;
use serde::{Deserialize, Serialize};

/// The largest world whose rows fit a datagram.
pub(super) const LARGEST: u32 = 32;
/// The most endpoints of a host that are tried.
pub(super) const ENDPOINTS: usize = 4;
/// The most hosts that are remembered; a stranger can make up any number.
const NODES: usize = 64;
/// The longest message that is read, in bytes.
pub(super) const LONGEST: usize = 1400;
/// Magic and version of the doctor's own datagrams, which a rendezvous ignores.
const HEAD: [u8; 8] = *b"MNGD\x01\0\0\0";

/// Its broadcast was heard.
pub(super) const BROADCAST: u8 = 16;
/// Its multicast was heard.
pub(super) const MULTICAST: u8 = 1;
/// Its unicast was heard.
pub(super) const UNICAST: u8 = 2;
/// It has answered a ping.
pub(super) const ECHO: u8 = 4;
/// A connection to it has carried rows both ways.
pub(super) const TCP: u8 = 8;

/// A host that runs the doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    /// Random, new for each run.
    pub(super) id: u32,
    pub(super) host: String,
    /// Its own endpoints, the preferred one first.
    pub(super) at: Vec<SocketAddr>,
    /// Whether it has everything that it waits for.
    pub(super) done: bool,
}

/// One host's knowledge of another: ID, flags, and round-trip times of UDP and TCP in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contact(pub(super) u32, pub(super) u8, pub(super) u32, pub(super) u32);

/// The messages between hosts. The names of the variants are in the datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// A host about itself: its card, the number of this row, and the row.
    #[serde(rename = "Word")]
    Row(Card, u32, Vec<Contact>),
    /// The same about another host.
    Relay(Card, u32, Vec<Contact>),
    /// Sender and number.
    Ping(u32, u32),
    /// Sender and the number that it answers.
    Echo(u32, u32),
    /// For the sender alone: its ID, and the interface that it sent by.
    Own(u32, u32),
}

pub(super) fn encode(tag: JobTag, message: &Notice) -> Vec<u8> {
    let body = serde_json::to_vec(message).unwrap_or_default();
    [&HEAD[..], &tag.0, &body].concat()
}

pub(super) fn decode(tag: JobTag, bytes: &[u8]) -> Option<Notice> {
    let body = bytes.strip_prefix(&HEAD)?.strip_prefix(&tag.0)?;
    let mut message: Notice = serde_json::from_slice(body).ok()?;
    if let Notice::Row(card, ..) | Notice::Relay(card, ..) = &mut message {
        // The name goes to a terminal, so it must hold no control characters. And a stranger must not make
        // this host send to a group or a broadcast address.
        HostName::new(&card.host).as_str().clone_into(&mut card.host);
        card.at.retain(|at| is_host(*at));
        card.at.truncate(ENDPOINTS);
    }
    Some(message)
}

fn is_host(at: SocketAddr) -> bool {
    let is_broadcast = matches!(at, SocketAddr::V4(v4) if v4.ip().is_broadcast());
    at.port() != 0 && !at.ip().is_multicast() && !at.ip().is_unspecified() && !is_broadcast
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownHost {
    card: Card,
    seq: u32,
    row: BTreeMap<u32, Contact>,
}

/// Everything known about the hosts.
#[derive(Debug, Clone)]
pub(super) struct Board {
    me: u32,
    world: usize,
    prefers_ipv6: bool,
    pub(super) tries_broadcast: bool,
    nodes: BTreeMap<u32, KnownHost>,
}

/// How one host reaches another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Multicast,
    Udp,
    Tcp,
}

/// Whether a path works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// It works; the round-trip time in microseconds, where it was measured.
    Works(Option<u32>),
    Broken,
    /// Not tried, or not reported.
    Unknown,
}

impl Cell {
    pub(super) fn works(self) -> bool {
        matches!(self, Self::Works(_))
    }
}

impl Board {
    pub(super) fn new(me: Card, world: usize, prefers_ipv6: bool) -> Self {
        let id = me.id;
        let node = KnownHost { card: me, seq: 0, row: BTreeMap::new() };
        Self { me: id, world, prefers_ipv6, tries_broadcast: false, nodes: BTreeMap::from([(id, node)]) }
    }

    /// Whether the world would use IPv6: a family that all known hosts have, and where they have both, IPv4
    /// unless IPv6 is preferred. None where they have no family in common.
    pub(super) fn is_ipv6(&self) -> Option<bool> {
        let order = [self.prefers_ipv6, !self.prefers_ipv6];
        let all_have = |is_ipv6: &bool| {
            let mut nodes = self.nodes.values();
            nodes.all(|node| node.card.at.iter().any(|at| at.is_ipv6() == *is_ipv6))
        };
        order.into_iter().find(all_have)
    }

    /// Whether the address is of the family that the world would use.
    pub(super) fn counts(&self, at: SocketAddr) -> bool {
        self.is_ipv6().is_none_or(|is_ipv6| at.is_ipv6() == is_ipv6)
    }

    /// The endpoints of a host in the family that the world would use.
    pub(super) fn ways_to(&self, card: &Card) -> Vec<SocketAddr> {
        card.at.iter().copied().filter(|at| self.counts(*at)).collect()
    }

    /// Notes that a datagram of another host has arrived from this address.
    pub(super) fn heard(&mut self, id: u32, flag: u8, from: SocketAddr) {
        if self.counts(from) {
            self.mark(id, flag);
        }
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Takes a row. Returns whether its host is new.
    pub(super) fn learn(&mut self, card: Card, seq: u32, row: Vec<Contact>) -> bool {
        let id = card.id;
        let is_new = !self.nodes.contains_key(&id);
        let family = self.is_ipv6();
        if id == self.me || is_new && self.nodes.len() >= NODES {
            return false;
        }
        if self.nodes.get(&id).is_none_or(|node| node.seq < seq) {
            let row = row.into_iter().take(NODES).map(|entry| (entry.0, entry)).collect();
            self.nodes.insert(id, KnownHost { card, seq, row });
        }
        // A new host of one family may change the family that counts.
        if self.is_ipv6() != family
            && let Some(own) = self.nodes.get_mut(&self.me)
        {
            own.row.values_mut().for_each(|entry| *entry = Contact(entry.0, 0, 0, 0));
        }
        self.mark(id, 0);
        is_new
    }

    /// Notes what this host has found out about a known host.
    pub(super) fn mark(&mut self, id: u32, flag: u8) {
        if self.nodes.contains_key(&id)
            && id != self.me
            && let Some(own) = self.nodes.get_mut(&self.me)
        {
            own.row.entry(id).or_insert(Contact(id, 0, 0, 0)).1 |= flag;
        }
    }

    /// As [`Board::mark`], with the time that it took: the shortest counts.
    pub(super) fn measured(&mut self, id: u32, flag: u8, micros: u32) {
        self.mark(id, flag);
        let own = self.nodes.get_mut(&self.me).and_then(|own| own.row.get_mut(&id));
        if let Some(entry) = own {
            let time = if flag == TCP { &mut entry.3 } else { &mut entry.2 };
            *time = if *time == 0 { micros } else { micros.min(*time) }.clamp(1, 999_999);
        }
    }

    /// This host's own row, numbered one higher than the last.
    pub(super) fn own_row(&mut self) -> Notice {
        let done = self.is_complete();
        let Some(own) = self.nodes.get_mut(&self.me) else { return Notice::Ping(self.me, 0) };
        own.seq += 1;
        own.card.done = done;
        Notice::Row(own.card.clone(), own.seq, own.row.values().copied().collect())
    }

    /// The row of another host; `turn` chooses which.
    pub(super) fn relay(&self, turn: usize) -> Option<Notice> {
        let others: Vec<&KnownHost> = self.others().collect();
        let node = others.get(turn.checked_rem(others.len())?)?;
        Some(Notice::Relay(node.card.clone(), node.seq, node.row.values().copied().collect()))
    }

    fn others(&self) -> impl Iterator<Item = &KnownHost> {
        self.nodes.values().filter(|node| node.card.id != self.me)
    }

    /// The other hosts and their endpoints.
    pub(super) fn peers(&self) -> Vec<Card> {
        self.others().map(|node| node.card.clone()).collect()
    }

    /// Whether a connection to this host is still to be made.
    pub(super) fn lacks_tcp(&self, id: u32) -> bool {
        self.entry(self.me, id).is_none_or(|entry| entry.1 & TCP == 0)
    }

    /// Whether this host's messages reach the other host by TCP alone, as far as is known.
    pub(super) fn is_deaf(&self, id: u32) -> bool {
        self.entry(id, self.me).is_none_or(|entry| entry.1 & (UNICAST | MULTICAST) == 0)
    }

    pub(super) fn is_full(&self) -> bool {
        self.nodes.len() >= self.world
    }

    /// Whether all hosts are here and every path works.
    pub(super) fn is_complete(&self) -> bool {
        let ways = [Way::Multicast, Way::Udp, Way::Tcp];
        self.is_full()
            && self.pairs().all(|(from, to)| ways.iter().all(|way| self.cell(*way, from, to).works()))
    }

    /// Whether all others say that they have found everything.
    pub(super) fn all_done(&self) -> bool {
        self.others().all(|node| node.card.done)
    }

    pub(super) fn world(&self) -> usize {
        self.world
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.nodes.keys().copied().collect();
        // The same order on every host.
        ids.sort_by_key(|id| self.nodes.get(id).map(|node| (node.card.at.first().copied(), *id)));
        ids
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let ids = self.ids();
        let all =
            ids.clone().into_iter().flat_map(move |from| ids.clone().into_iter().map(move |to| (from, to)));
        all.filter(|(from, to)| from != to)
    }

    /// The host as the report names it: by its name and its preferred address.
    pub(super) fn name(&self, id: u32) -> String {
        self.nodes.get(&id).map_or_else(String::new, |node| match node.card.at.first() {
            Some(at) => format!("{} ({})", node.card.host, at.ip()),
            None => node.card.host.clone(),
        })
    }

    pub(super) fn port(&self, id: u32) -> u16 {
        self.nodes.get(&id).and_then(|node| node.card.at.first()).map_or(0, SocketAddr::port)
    }

    fn entry(&self, of: u32, about: u32) -> Option<&Contact> {
        self.nodes.get(&of)?.row.get(&about)
    }

    /// Whether what `from` sends by `way` arrives at `to`.
    pub(super) fn cell(&self, way: Way, from: u32, to: u32) -> Cell {
        let (sent, heard) = (self.entry(from, to), self.entry(to, from));
        let has = |entry: Option<&Contact>, flag| entry.is_some_and(|entry| entry.1 & flag != 0);
        let time = |micros: u32| Cell::Works((micros > 0).then_some(micros));
        match way {
            Way::Multicast if has(heard, MULTICAST) => Cell::Works(None),
            Way::Udp if has(heard, UNICAST) || has(sent, ECHO) => time(sent.map_or(0, |entry| entry.2)),
            Way::Tcp if has(sent, TCP) => time(sent.map_or(0, |entry| entry.3)),
            // A host that does not know of another has not tried to reach it.
            Way::Udp | Way::Tcp if sent.is_none() => Cell::Unknown,
            _ => Cell::Broken,
        }
    }

    /// Whether a world can form: all hosts are here, and all others reach one of them, in both directions.
    pub(super) fn can_form(&self) -> bool {
        let ids = self.ids();
        let reached = |master: &u32| {
            let others = ids.iter().filter(|id| *id != master);
            others.into_iter().all(|id| {
                self.cell(Way::Tcp, *id, *master).works()
                    && self.cell(Way::Udp, *id, *master).works()
                    && self.cell(Way::Udp, *master, *id).works()
            })
        };
        self.is_full() && ids.iter().any(reached)
    }

    /// Whether broadcasts pass between all hosts; none where they were not tried.
    pub(super) fn broadcast(&self) -> Option<bool> {
        let heard = |(from, to)| self.entry(to, from).is_some_and(|entry| entry.1 & BROADCAST != 0);
        self.tries_broadcast.then(|| self.pairs().all(heard))
    }

    /// The matrix for people.
    pub(super) fn text(&self) -> String {
        let ids = self.ids();
        let mut rows = vec![vec!["from \\ to".to_owned()]];
        rows[0].extend(ids.iter().map(|id| self.name(*id)));
        for from in &ids {
            let mut row = vec![self.name(*from)];
            row.extend(ids.iter().map(|to| self.cell_text(*from, *to)));
            rows.push(row);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=ids.len()).map(width).collect();
        let mut text = "multicast, UDP and TCP (round trips in ms; - lost, ? not known):\n".to_owned();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        text
    }

    fn cell_text(&self, from: u32, to: u32) -> String {
        if from == to {
            return ".".to_owned();
        }
        let one = |way: Way, works: &str| match self.cell(way, from, to) {
            Cell::Works(Some(micros)) => format!("{:.1}", f64::from(micros) / 1000.0),
            Cell::Works(None) => works.to_owned(),
            Cell::Broken => "-".to_owned(),
            Cell::Unknown => "?".to_owned(),
        };
        format!("m {}  u {}  t {}", one(Way::Multicast, "ok"), one(Way::Udp, "ok"), one(Way::Tcp, "ok"))
    }
}
