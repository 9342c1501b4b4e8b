//! What hosts that run the doctor at once tell each other.
//!
//! Each host keeps what it knows of all hosts, and nothing in that is ever taken back. So any message may be
//! lost, repeated or overtaken, and one working way is enough to learn of all hosts: each also tells of those
//! whom others do not hear. A datagram carries what fits of one host. Nothing here is authentic, and it can
//! change nothing but a report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mingle_core::HostName;
use mingle_core::proto::{Fault, JobTag, Link};
use serde::{Deserialize, Serialize};

use super::route::Blocked;

/// The largest world that the doctor compares.
pub(super) const LARGEST: u32 = 32;
/// The most hosts that are remembered; a stranger can make up any number.
pub(super) const HOSTS: usize = 64;
/// The most endpoints of a host that are tried.
pub(super) const ENDPOINTS: usize = 4;
/// The most ports for RDMA of a host that are told of, and the most networks of each.
pub(super) const RAILS: usize = 32;
/// The length up to which a datagram is filled: it fits IPv6's least MTU.
const FULL: usize = 1200;
/// Magic and version of the doctor's own messages, which a rendezvous ignores.
const HEAD: [u8; 8] = *b"MNGD\x04\0\0\0";

/// How one host reaches another. The receiver knows that of datagrams, the sender of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Multicast,
    Udp,
    Broadcast,
    /// A connection that carries messages both ways.
    Tcp,
    /// Long segments to a port that the kernel chose, at the address that the job uses.
    Path,
}

/// An endpoint of a host, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostPlace {
    pub(super) at: SocketAddr,
    /// The address that the job uses where the host is reached here.
    pub(super) link: Link,
    /// The interface.
    pub(super) by: String,
    /// The hardware address of the interface, where it has one.
    pub(super) mac: Option<[u8; 6]>,
}

/// A host that runs the doctor, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    /// Random, new for each run.
    pub(super) id: u32,
    pub(super) host: String,
    /// The preferred one first.
    pub(super) places: Vec<HostPlace>,
    /// The port to which the others prove their paths.
    pub(super) port: u16,
    /// Whether it takes part in transfers.
    pub(super) transfers: bool,
    /// Whether it has everything that it waits for.
    pub(super) done: bool,
}

/// One host's knowledge of another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Contact {
    /// The ways that work, in their order, one bit for each family: IPv4's, and IPv6's above it.
    #[serde(rename = "f")]
    pub(super) flags: u16,
    /// The address to which the path could not be proved, and how it fails.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub(super) broken: Option<BrokenWay>,
    /// The rate at which the other one's transfer has arrived, in kbit/s.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u32>,
    /// An address from which datagrams of the other one have come, and of a third host too.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) shared: Option<IpAddr>,
    /// The addresses from which this host itself has heard the other one.
    #[serde(skip)]
    pub(super) sources: BTreeSet<IpAddr>,
    /// The other one's endpoint to which a connection of this host itself has opened.
    #[serde(skip)]
    pub(super) reached: Option<SocketAddr>,
}

/// A path that could not be proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BrokenWay {
    /// The address and port that were tried.
    pub(super) to: SocketAddr,
    #[serde(rename = "how")]
    pub(super) fault: Fault,
    /// Whether the other one's own port answers at that address.
    #[serde(rename = "own")]
    pub(super) own_port_answers: bool,
    /// Why packets to that address do not leave the host as they should.
    #[serde(rename = "why", default, skip_serializing_if = "Option::is_none")]
    pub(super) blocked: Option<Blocked>,
}

impl Contact {
    #[cfg(test)]
    pub(super) fn new(flags: u16) -> Self {
        Self { flags, ..Self::default() }
    }

    /// Whether the way works in this family, or in any.
    pub(super) fn has(&self, way: Way, is_ipv6: Option<bool>) -> bool {
        let bits = is_ipv6.map_or(3, |is_ipv6| 1 << u16::from(is_ipv6));
        self.flags & bits << (2 * way as u16) != 0
    }

    pub(super) fn mark(&mut self, way: Way, is_ipv6: bool) {
        self.flags |= 1 << (2 * way as u16 + u16::from(is_ipv6));
    }

    fn join(&mut self, other: Self) {
        self.flags |= other.flags;
        self.broken = self.broken.or(other.broken);
        self.rate = self.rate.or(other.rate);
        self.shared = self.shared.or(other.shared);
    }
}

/// A port for RDMA over Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rail {
    /// Its network interface.
    pub(super) by: String,
    /// The networks of its addresses.
    pub(super) networks: Vec<String>,
    /// Whether the interface is up and has a link.
    pub(super) up: bool,
    /// The ports that it hears of each host: of its own, the port itself as well.
    pub(super) heard: BTreeMap<u32, BTreeSet<usize>>,
}

/// A host, and what it knows of the others by their IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) card: Card,
    pub(super) about: BTreeMap<u32, Contact>,
    /// Its ports for RDMA, once it knows what they hear. Only connections carry them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rails: Option<Vec<Rail>>,
}

impl Row {
    pub(super) fn new(card: Card) -> Self {
        Self { card, about: BTreeMap::new(), rails: None }
    }

    /// Adds what another message says of the same host.
    pub(super) fn join(&mut self, other: Self) {
        self.card.done |= other.card.done;
        self.rails = self.rails.take().or(other.rails);
        for (id, contact) in other.about {
            if self.about.len() < HOSTS || self.about.contains_key(&id) {
                self.about.entry(id).or_default().join(contact);
            }
        }
    }

    /// A datagram of host `from` with this, and with as many of the contacts as fit; `turn` chooses them.
    pub(super) fn datagram(&self, tag: JobTag, from: u32, turn: usize) -> Vec<u8> {
        let encoded = |row: &Self| encode(tag, &HostNotice::News(from, vec![row.clone()]));
        // With the ID, its quotes, a colon and a comma.
        let length = |contact| serde_json::to_vec(contact).map_or(0, |bytes| bytes.len()) + 14;
        let mut part = Self::new(self.card.clone());
        let mut left = FULL.saturating_sub(encoded(&part).len());
        // Eight fit, but for the longest: four turns go around, and the next four begin one further.
        let first = (8 * turn + turn / 4).checked_rem(self.about.len()).unwrap_or_default();
        for (id, contact) in self.about.iter().skip(first).chain(self.about.iter().take(first)) {
            let Some(rest) = left.checked_sub(length(contact)) else { break };
            part.about.insert(*id, contact.clone());
            left = rest;
        }
        encoded(&part)
    }
}

/// The messages between hosts. The names of the variants are in the messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HostNotice {
    /// What this host knows of some hosts.
    News(u32, Vec<Row>),
    /// The host and the port for RDMA that has sent this multicast.
    Rail(u32, usize),
    /// The sender asks for a transfer on this connection.
    Transfer,
}

/// The message with its head.
pub(super) fn encode(tag: JobTag, message: &HostNotice) -> Vec<u8> {
    let body = serde_json::to_vec(message).unwrap_or_default();
    [&HEAD[..], &tag.0, &body].concat()
}

pub(super) fn decode(tag: JobTag, bytes: &[u8]) -> Option<HostNotice> {
    let body = bytes.strip_prefix(&HEAD)?.strip_prefix(&tag.0)?;
    let mut message: HostNotice = serde_json::from_slice(body).ok()?;
    if let HostNotice::News(_, rows) = &mut message {
        rows.truncate(HOSTS);
        // Names go to a terminal, and that of an interface into a command to copy. And a stranger must not
        // make this host send to a group or a broadcast address.
        for Row { card, rails, .. } in rows {
            HostName::new(&card.host).as_str().clone_into(&mut card.host);
            card.places.retain(|place| is_host(place.at) && is_name(&place.by));
            card.places.truncate(ENDPOINTS);
            let is_net = |text: &String| {
                text.len() < 50 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte))
            };
            let is_heard = |ports: &BTreeSet<usize>| ports.iter().all(|port| *port < RAILS);
            let is_sane = |rail: &Rail| {
                let is_short = rail.heard.len() <= HOSTS && rail.networks.len() <= RAILS;
                let are_fine = rail.networks.iter().all(is_net) && rail.heard.values().all(is_heard);
                is_short && is_name(&rail.by) && are_fine
            };
            // All or nothing: the place of a port is its number.
            rails.take_if(|rails| rails.len() > RAILS || !rails.iter().all(is_sane));
        }
    }
    Some(message)
}

fn is_host(at: SocketAddr) -> bool {
    let is_broadcast = matches!(at, SocketAddr::V4(v4) if v4.ip().is_broadcast());
    at.port() != 0 && !at.ip().is_multicast() && !at.ip().is_unspecified() && !is_broadcast
}

/// Whether a name of an interface means nothing else to a shell.
pub(super) fn is_name(name: &str) -> bool {
    name.len() < 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

#[cfg(test)]
pub(super) use tests::{MULTICAST, PATH, TCP, UNICAST, card, card_at};

#[cfg(test)]
mod tests {
    use mingle_core::JobId;

    use super::*;

    // The ways in IPv4, as a contact has them.
    pub(in crate::doctor) const MULTICAST: u16 = 1;
    pub(in crate::doctor) const UNICAST: u16 = 1 << 2;
    pub(in crate::doctor) const TCP: u16 = 1 << 6;
    pub(in crate::doctor) const PATH: u16 = 1 << 8;

    /// A card whose only place is this endpoint.
    pub(in crate::doctor) fn card_at(id: u32, at: &str) -> Card {
        let at: SocketAddr = at.parse().unwrap();
        let link = Link { address: at.ip(), prefix: 24, mtu: 1500 };
        let mac = u8::try_from(id % 250).ok().map(|last| [2, 0, 0, 0, 0, last]);
        let host = format!("node{id}");
        let places = vec![HostPlace { at, link, by: "eth0".to_owned(), mac }];
        Card { id, host, places, port: 40_000, transfers: false, done: false }
    }

    /// Node `id` of a network, at 10.0.0.`id`.
    pub(in crate::doctor) fn card(id: u32) -> Card {
        card_at(id, &format!("10.0.0.{id}:29500"))
    }

    fn tag() -> JobTag {
        "foo".parse::<JobId>().unwrap().tag()
    }

    #[test]
    fn a_message_is_sanitised_or_dropped() {
        let mut bad = card(7);
        bad.host = "\u{1b}[2J$(reboot)".to_owned();
        let place = bad.places[0].clone();
        bad.places = ["224.0.0.1:1", "0.0.0.0:1", "255.255.255.255:1", "10.0.0.1:0", "10.0.0.1:5"]
            .map(|at| HostPlace { at: at.parse().unwrap(), ..place.clone() })
            .to_vec();
        bad.places.push(HostPlace { by: "x;reboot".to_owned(), ..place });
        let bytes = encode(tag(), &HostNotice::News(7, vec![Row::new(bad); 2 * HOSTS]));
        let Some(HostNotice::News(7, rows)) = decode(tag(), &bytes) else { panic!() };
        assert_eq!((rows.len(), rows[0].card.host.as_str()), (HOSTS, "__2J__reboot_"));
        let kept: Vec<SocketAddr> = rows[0].card.places.iter().map(|place| place.at).collect();
        assert_eq!(kept, ["10.0.0.1:5".parse().unwrap()]);
        assert_eq!(decode(JobTag([0; 16]), &bytes), None);
        for cut in 0..200 {
            assert_eq!(decode(tag(), &bytes[..cut]), None);
        }
    }

    #[test]
    fn ports_for_rdma_are_taken_as_they_are_or_not_at_all() {
        let good = Rail {
            by: "enp1s0f0np0".to_owned(),
            networks: vec!["10.0.0.0/24".to_owned(), "fd00::/64".to_owned()],
            up: true,
            heard: [(7, (0..RAILS).collect())].into(),
        };
        let kept = |rails: Vec<Rail>| {
            let row = Row { rails: Some(rails), ..Row::new(card(7)) };
            match decode(tag(), &encode(tag(), &HostNotice::News(7, vec![row]))) {
                Some(HostNotice::News(7, rows)) => rows[0].rails.as_ref().map(Vec::len),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(kept(vec![good.clone(); RAILS]), Some(RAILS));
        for bad in [
            Rail { by: "x;reboot".to_owned(), ..good.clone() },
            Rail { networks: vec!["\u{1b}[2J".to_owned()], ..good.clone() },
            Rail { networks: vec![String::new(); RAILS + 1], ..good.clone() },
            Rail { heard: [(7, [RAILS].into())].into(), ..good.clone() },
            Rail { heard: (0..65).map(|id| (id, BTreeSet::new())).collect(), ..good.clone() },
        ] {
            assert_eq!(kept(vec![good.clone(), bad]), None);
        }
        assert_eq!(kept(vec![good; RAILS + 1]), None);
    }

    #[test]
    fn datagrams_fit_the_least_mtu_and_a_few_of_them_carry_the_largest_row() {
        let at: SocketAddr = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
        let link = Link { address: at.ip(), prefix: 128, mtu: 65_535 };
        let place = HostPlace { at, link, by: "x".repeat(15), mac: Some([255; 6]) };
        let card = Card { host: "x".repeat(63), places: vec![place; ENDPOINTS], port: 65_535, ..card(1) };
        let broken = BrokenWay {
            to: at,
            fault: Fault::Size { passes: 65_535, fails: 65_535 },
            own_port_answers: false,
            blocked: Some(Blocked::Gateway { by: at.ip(), net: at.ip(), prefix: 128 }),
        };
        let mut worst = Contact::new(1023);
        (worst.broken, worst.rate, worst.shared) = (Some(broken), Some(u32::MAX), Some(at.ip()));
        let usual = Card { places: card.places[..1].to_vec(), ..card.clone() };
        for (card, contact, turns) in [(usual, worst, 128), (card, Contact::new(1023), 8)] {
            let mut row = Row::new(card.clone());
            row.about = (0..LARGEST).map(|id| (u32::MAX - id, contact.clone())).collect();
            let mut heard = Row::new(card.clone());
            for turn in 0..turns {
                let bytes = row.datagram(tag(), 1, turn);
                assert!(bytes.len() <= FULL, "{}", bytes.len());
                let Some(HostNotice::News(1, rows)) = decode(tag(), &bytes) else { panic!() };
                heard.join(rows[0].clone());
            }
            assert!(heard == row);
        }
    }
}
