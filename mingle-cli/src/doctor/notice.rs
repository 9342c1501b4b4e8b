//! The messages between hosts that run the doctor at once.
//!
//! Hosts send what they know of the others by multicast, by UDP and over TCP, and relay what others know, so
//! that one working path suffices to learn of all hosts. Nothing here is authentic, and it can change
//! nothing but a report.

use std::net::{IpAddr, SocketAddr};

use mingle_core::HostName;
use mingle_core::proto::{Fault, JobTag, Link};
use serde::{Deserialize, Serialize};

/// The largest world that the doctor compares.
pub(super) const LARGEST: u32 = 32;
/// The most endpoints of a host that are tried.
pub(super) const ENDPOINTS: usize = 4;
/// The most contacts in a message that is read.
const CONTACTS: usize = 32;
/// The longest message that is read, in bytes.
pub(super) const LONGEST: usize = 1400;
/// The length up to which a message is filled: it fits IPv6's least MTU.
const FULL: usize = 1200;
/// Magic and version of the doctor's own datagrams, which a rendezvous ignores.
const HEAD: [u8; 8] = *b"MNGD\x02\0\0\0";

/// Its multicast was heard.
pub(super) const MULTICAST: u8 = 1;
/// Its unicast was heard.
pub(super) const UNICAST: u8 = 2;
/// It has answered a ping.
pub(super) const ECHO: u8 = 4;
/// A connection to it has carried messages both ways.
pub(super) const TCP: u8 = 8;
/// Its broadcast was heard.
pub(super) const BROADCAST: u8 = 16;
/// The path to it is proved.
pub(super) const PATH: u8 = 32;

/// An endpoint of a host, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostPlace {
    pub(super) at: SocketAddr,
    /// The address that the job uses where the host is reached here.
    pub(super) link: Link,
    /// The hardware address of the interface, where it has one.
    pub(super) mac: Option<[u8; 6]>,
}

/// A host that runs the doctor.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contact {
    pub(super) id: u32,
    #[serde(rename = "f")]
    pub(super) flags: u8,
    /// The address to which the path could not be proved, and how it fails.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub(super) broken: Option<BrokenWay>,
    /// The rate at which the other one's transfer has arrived, in kbit/s; 0 if nothing has.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u32>,
    /// An address from which datagrams of the other one have come, and of a third host too.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) shared: Option<IpAddr>,
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
}

impl Contact {
    pub(super) fn unknown(id: u32) -> Self {
        Self { id, flags: 0, broken: None, rate: None, shared: None }
    }
}

/// The messages between hosts. The names of the variants are in the datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HostNotice {
    /// A host about itself: its card, the number of this row, and some of its contacts.
    Row(Card, u32, Vec<Contact>),
    /// The same about another host.
    Relay(Card, u32, Vec<Contact>),
    /// The sender, which asks for an answer.
    Ping(u32),
    /// The sender, which answers.
    Echo(u32),
    /// For the sender alone: its ID, and the interface that it sent by.
    Own(u32, u32),
    /// The first bytes of a connection that carries a transfer.
    Transfer(TransferOffer),
}

/// A connection for a transfer: who dials, in which round, and whether the dialling host sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TransferOffer {
    pub(super) id: u32,
    pub(super) round: u32,
    pub(super) sends: bool,
}

/// The message with its head. A card that is too large for the rest has no contact beside it.
pub(super) fn encode(tag: JobTag, message: &HostNotice) -> Vec<u8> {
    let body = serde_json::to_vec(message).unwrap_or_default();
    [&HEAD[..], &tag.0, &body].concat()
}

/// The contacts in as many groups as there must be messages, each with this card.
pub(super) fn groups(card: &Card, contacts: impl Iterator<Item = Contact>) -> Vec<Vec<Contact>> {
    let size = |value: &Contact| serde_json::to_vec(value).map_or(0, |bytes| bytes.len() + 1);
    // The head, the name of the variant, and the number of the row.
    let fixed = serde_json::to_vec(card).map_or(0, |bytes| bytes.len()) + HEAD.len() + 16 + 32;
    let (mut groups, mut length) = (vec![Vec::new()], fixed);
    for contact in contacts {
        let own = size(&contact);
        match groups.last_mut() {
            Some(last) if last.is_empty() || length + own <= FULL && last.len() < CONTACTS => {
                last.push(contact);
            }
            _ => {
                groups.push(vec![contact]);
                length = fixed;
            }
        }
        length += own;
    }
    groups
}

pub(super) fn decode(tag: JobTag, bytes: &[u8]) -> Option<HostNotice> {
    let body = bytes.strip_prefix(&HEAD)?.strip_prefix(&tag.0)?;
    let mut message: HostNotice = serde_json::from_slice(body).ok()?;
    if let HostNotice::Row(card, _, row) | HostNotice::Relay(card, _, row) = &mut message {
        // The name goes to a terminal, so it must hold no control characters. And a stranger must not make
        // this host send to a group or a broadcast address.
        HostName::new(&card.host).as_str().clone_into(&mut card.host);
        card.places.retain(|place| is_host(place.at) && is_host((place.link.address, 1).into()));
        card.places.truncate(ENDPOINTS);
        row.truncate(CONTACTS);
    }
    Some(message)
}

fn is_host(at: SocketAddr) -> bool {
    let is_broadcast = matches!(at, SocketAddr::V4(v4) if v4.ip().is_broadcast());
    at.port() != 0 && !at.ip().is_multicast() && !at.ip().is_unspecified() && !is_broadcast
}

#[cfg(test)]
pub(super) use tests::{card, card_at};

#[cfg(test)]
mod tests {
    use mingle_core::JobId;

    use super::*;

    /// A card whose only place is this endpoint.
    pub(in crate::doctor) fn card_at(id: u32, at: &str) -> Card {
        let at: SocketAddr = at.parse().unwrap();
        let link = Link { address: at.ip(), prefix: 24, mtu: 1500 };
        let mac = u8::try_from(id % 250).ok().map(|last| [2, 0, 0, 0, 0, last]);
        let host = format!("node{id}");
        let places = vec![HostPlace { at, link, mac }];
        Card { id, host, places, port: 40_000, transfers: false, done: false }
    }

    /// Node `id` of a network, at 10.0.0.`id`.
    pub(in crate::doctor) fn card(id: u32) -> Card {
        card_at(id, &format!("10.0.0.{id}:29500"))
    }

    #[test]
    fn a_datagram_is_sanitised_or_dropped() {
        let tag = "foo".parse::<JobId>().unwrap().tag();
        let mut bad = card(7);
        bad.host = "\u{1b}[2J$(reboot)".to_owned();
        let link = bad.places[0].link;
        bad.places = ["224.0.0.1:1", "0.0.0.0:1", "255.255.255.255:1", "10.0.0.1:0", "10.0.0.1:5"]
            .map(|at| HostPlace { at: at.parse().unwrap(), link, mac: None })
            .to_vec();
        let bytes = encode(tag, &HostNotice::Row(bad, 1, vec![]));
        let Some(HostNotice::Row(card, ..)) = decode(tag, &bytes) else { panic!() };
        assert_eq!(card.host, "__2J__reboot_");
        let kept: Vec<SocketAddr> = card.places.iter().map(|place| place.at).collect();
        assert_eq!(kept, ["10.0.0.1:5".parse().unwrap()]);
        assert_eq!(decode(JobTag([0; 16]), &bytes), None);
        for cut in 0..bytes.len() {
            assert_eq!(decode(tag, &bytes[..cut]), None);
        }
    }

    #[test]
    fn every_part_of_the_largest_row_fits_a_datagram() {
        let at: SocketAddr = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
        let place =
            HostPlace { at, link: Link { address: at.ip(), prefix: 128, mtu: 65_535 }, mac: Some([255; 6]) };
        let places = vec![place; ENDPOINTS];
        let largest = Card { host: "x".repeat(63), places, port: 65_535, id: u32::MAX, ..card(1) };
        let broken = BrokenWay {
            to: at,
            fault: Fault::Size { passes: 65_535, fails: 65_535 },
            own_port_answers: false,
        };
        let row = (0..LARGEST).map(|id| Contact {
            id: u32::MAX - id,
            flags: 63,
            broken: Some(broken),
            rate: Some(u32::MAX),
            shared: Some(at.ip()),
        });
        let tag = "foo".parse::<JobId>().unwrap().tag();
        let groups = groups(&largest, row.clone());
        assert!(groups.concat().into_iter().eq(row));
        for group in groups {
            let length = encode(tag, &HostNotice::Relay(largest.clone(), u32::MAX, group)).len();
            assert!(length <= LONGEST, "{length}");
        }
        let all = super::groups(&card(1), (0..LARGEST - 1).map(Contact::unknown));
        assert!(all.len() <= 2, "{}", all.len());
    }
}
