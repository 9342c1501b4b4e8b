//! What hosts that run the doctor at once tell each other.
//!
//! Each host has a record of itself and of what it knows of the others, and nothing in a record is ever taken
//! back. So any message may be lost, repeated or overtaken, and one working way is enough to learn of all
//! hosts: each host also passes on the records of those whom others do not hear. Nothing here is authentic,
//! and it can change nothing but a report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mingle_core::HostName;
use mingle_core::proto::{BrokenPath, JobTag, Link};
use mingle_core::tools::{from_bytes, to_bytes};
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
/// The most addresses of a host at which a way is remembered to work, of each family.
const ADDRESSES: usize = 8;
/// The length up to which a datagram is filled: it fits IPv6's least MTU.
const FULL: usize = 1200;
/// Magic and version of the doctor's own messages, which a rendezvous ignores.
const HEAD: [u8; 8] = *b"MNGD\x05\0\0\0";

/// How one host reaches another. The receiver knows that of datagrams, the sender of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// One host's knowledge of another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Contact {
    /// The ways that have worked, each with the address that the other host has there.
    pub(super) works: BTreeSet<(Way, IpAddr)>,
    /// The path that could not be proved.
    pub(super) broken: Option<BrokenWay>,
    /// The rate at which the other one's transfer has arrived, in kbit/s.
    pub(super) rate: Option<u32>,
}

/// A path that could not be proved, as a rendezvous would report it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BrokenWay {
    pub(super) path: BrokenPath,
    /// Why packets do not leave the host as they should.
    pub(super) blocked: Option<Blocked>,
}

impl Contact {
    pub(super) fn add(&mut self, way: Way, address: IpAddr) {
        let is_same = |(other, at): &&(Way, IpAddr)| *other == way && at.is_ipv6() == address.is_ipv6();
        if self.works.iter().filter(is_same).count() < ADDRESSES {
            self.works.insert((way, address));
        }
    }

    fn join(&mut self, other: Self) {
        other.works.into_iter().for_each(|(way, address)| self.add(way, address));
        self.broken = self.broken.take().or(other.broken);
        self.rate = self.rate.or(other.rate);
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
    /// The ports that it hears, each with its host: of its own host, the port itself as well.
    pub(super) heard: BTreeSet<(u32, String)>,
}

/// A host that runs the doctor, as it describes itself, and what it knows of the others by their IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Random, new for each run.
    pub(super) id: u32,
    pub(super) host: HostName,
    /// The preferred place first.
    pub(super) places: Vec<HostPlace>,
    /// The port to which the others prove their paths.
    pub(super) port: u16,
    /// Whether it takes part in transfers.
    pub(super) transfers: bool,
    /// Whether it has everything that it waits for.
    pub(super) done: bool,
    pub(super) about: BTreeMap<u32, Contact>,
    /// Its ports for RDMA, once it knows what they hear. Only connections carry them.
    pub(super) rails: Option<Vec<Rail>>,
}

impl Record {
    /// Adds what another message says of the same host.
    pub(super) fn join(&mut self, other: Self) {
        self.done |= other.done;
        self.rails = self.rails.take().or(other.rails);
        for (id, contact) in other.about {
            if self.about.len() < HOSTS || self.about.contains_key(&id) {
                self.about.entry(id).or_default().join(contact);
            }
        }
    }

    /// Datagrams of host `from` with all of this but the ports for RDMA.
    pub(super) fn datagrams(&self, tag: JobTag, from: u32) -> Vec<Vec<u8>> {
        let mut half = Self { rails: None, ..self.clone() };
        let bytes = encode(tag, &Message::News(from, vec![half.clone()]));
        let middle = half.about.keys().nth(half.about.len() / 2).copied();
        let Some(middle) = middle.filter(|_| bytes.len() > FULL && half.about.len() > 1) else {
            return vec![bytes];
        };
        let about = half.about.split_off(&middle);
        let other = Self { about, ..half.clone() };
        [half.datagrams(tag, from), other.datagrams(tag, from)].concat()
    }

    /// Whether a host may say this. Names of interfaces go to a terminal and into commands to copy, and a
    /// stranger must not make this host send to a group or a broadcast address.
    fn is_sane(&self) -> bool {
        // Ways of five kinds, at addresses of two families.
        let are_few = self.places.len() <= ENDPOINTS
            && self.about.len() <= HOSTS
            && self.about.values().all(|contact| contact.works.len() <= 10 * ADDRESSES);
        let is_sane = |rail: &Rail| {
            let is_short = rail.heard.len() <= HOSTS * RAILS && rail.networks.len() <= RAILS;
            let are_names = is_name(&rail.by) && rail.heard.iter().all(|(_, port)| is_name(port));
            is_short && are_names && rail.networks.iter().all(|network| is_net(network))
        };
        are_few
            && self.places.iter().all(|place| is_host(place.at) && is_name(&place.by))
            && self.rails.as_ref().is_none_or(|rails| rails.len() <= RAILS && rails.iter().all(is_sane))
    }
}

/// The messages between hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// What this host knows of some hosts.
    News(u32, Vec<Record>),
    /// The host and the port for RDMA that has sent this multicast.
    Rail(u32, String),
    /// The sender asks for a transfer on this connection.
    Transfer,
}

/// The message with its head.
pub(super) fn encode(tag: JobTag, message: &Message) -> Vec<u8> {
    [&HEAD[..], &tag.0, &to_bytes(message)].concat()
}

/// The message, if a host of this job may send it.
pub(super) fn decode(tag: JobTag, bytes: &[u8]) -> Option<Message> {
    let body = bytes.strip_prefix(&HEAD)?.strip_prefix(&tag.0)?;
    let message = from_bytes(body)?;
    let is_sane = match &message {
        Message::News(_, records) => records.len() <= HOSTS && records.iter().all(Record::is_sane),
        Message::Rail(_, port) => is_name(port),
        Message::Transfer => true,
    };
    is_sane.then_some(message)
}

fn is_host(at: SocketAddr) -> bool {
    let is_broadcast = matches!(at, SocketAddr::V4(v4) if v4.ip().is_broadcast());
    at.port() != 0 && !at.ip().is_multicast() && !at.ip().is_unspecified() && !is_broadcast
}

/// Whether a name of an interface means nothing else to a shell.
pub(super) fn is_name(name: &str) -> bool {
    name.len() < 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

fn is_net(text: &str) -> bool {
    text.len() < 50 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte))
}

#[cfg(test)]
pub(super) use tests::{about, record, record_at};

#[cfg(test)]
mod tests {
    use mingle_core::JobId;
    use mingle_core::proto::{Fault, Peer};
    use mingle_core::tools::broken_path;

    use super::*;

    /// The record of a host whose only place is this endpoint.
    pub(in crate::doctor) fn record_at(id: u32, at: &str) -> Record {
        let at: SocketAddr = at.parse().unwrap();
        let link = Link { address: at.ip(), prefix: 24, mtu: 1500 };
        let mac = u8::try_from(id % 250).ok().map(|last| [2, 0, 0, 0, 0, last]);
        let host = HostName::new(&format!("node{id}"));
        let places = vec![HostPlace { at, link, by: "eth0".to_owned(), mac }];
        let about = BTreeMap::new();
        Record { id, host, places, port: 40_000, transfers: false, done: false, about, rails: None }
    }

    /// The record of node `id` of a network, at 10.0.0.`id`.
    pub(in crate::doctor) fn record(id: u32) -> Record {
        record_at(id, &format!("10.0.0.{id}:29500"))
    }

    /// What a host knows of node `id`, which it reaches or hears by these ways.
    pub(in crate::doctor) fn about(id: u32, ways: &[Way]) -> Contact {
        let address = record(id % 250).places[0].at.ip();
        Contact { works: ways.iter().map(|way| (*way, address)).collect(), ..Contact::default() }
    }

    fn tag() -> JobTag {
        "foo".parse::<JobId>().unwrap().tag()
    }

    fn is_taken(record: Record) -> bool {
        let news = Message::News(7, vec![record]);
        let taken = decode(tag(), &encode(tag(), &news));
        assert!(taken.as_ref().is_none_or(|taken| *taken == news));
        taken.is_some()
    }

    #[test]
    fn a_message_that_no_host_sends_is_dropped() {
        let good = record(7);
        assert!(is_taken(good.clone()));
        for at in ["224.0.0.1:1", "0.0.0.0:1", "255.255.255.255:1", "10.0.0.1:0"] {
            assert!(!is_taken(record_at(7, at)), "{at}");
        }
        let mut bad = good.clone();
        bad.places[0].by = "x;reboot".to_owned();
        assert!(!is_taken(bad));
        assert!(!is_taken(Record { places: vec![good.places[0].clone(); ENDPOINTS + 1], ..good.clone() }));
        assert_eq!(decode(tag(), &encode(tag(), &Message::Rail(7, "$(reboot)".to_owned()))), None);
        let many = encode(tag(), &Message::News(7, vec![good.clone(); HOSTS + 1]));
        assert_eq!(decode(tag(), &many), None);
        let bytes = encode(tag(), &Message::News(7, vec![good]));
        assert_eq!(decode(JobTag([0; 16]), &bytes), None);
        assert!((0..bytes.len()).all(|cut| decode(tag(), &bytes[..cut]).is_none()));
        // A host's name is cleaned.
        let at = bytes.windows(5).position(|part| part == b"node7").unwrap();
        let hostile = [&bytes[..at], b"$(re)", &bytes[at + 5..]].concat();
        let Some(Message::News(7, records)) = decode(tag(), &hostile) else { panic!() };
        assert_eq!(records[0].host.as_str(), "__re_");
    }

    #[test]
    fn ports_for_rdma_are_taken_as_they_are_or_not_at_all() {
        let good = Rail {
            by: "enp1s0f0np0".to_owned(),
            networks: vec!["10.0.0.0/24".to_owned(), "fd00::/64".to_owned()],
            up: true,
            heard: (0..RAILS).map(|port| (7, format!("enp{port}"))).collect(),
        };
        let are_taken = |rails: Vec<Rail>| is_taken(Record { rails: Some(rails), ..record(7) });
        assert!(are_taken(vec![good.clone(); RAILS]));
        for bad in [
            Rail { by: "x;reboot".to_owned(), ..good.clone() },
            Rail { networks: vec!["\u{1b}[2J".to_owned()], ..good.clone() },
            Rail { networks: vec![String::new(); RAILS + 1], ..good.clone() },
            Rail { heard: [(7, "`x`".to_owned())].into(), ..good.clone() },
            Rail { heard: (0..2049).map(|id| (id, String::new())).collect(), ..good.clone() },
        ] {
            assert!(!are_taken(vec![good.clone(), bad]));
        }
        assert!(!are_taken(vec![good; RAILS + 1]));
    }

    #[test]
    fn a_record_of_more_ways_than_a_host_has_is_not_taken() {
        let is_taken = |count: usize| {
            let ways = (0..count)
                .map(|number| (Way::Tcp, IpAddr::from(u128::try_from(number).unwrap().to_be_bytes())));
            let mut record = record(1);
            record.about.insert(2, Contact { works: ways.collect(), ..Contact::default() });
            decode(tag(), &encode(tag(), &Message::News(1, vec![record]))).is_some()
        };
        assert!(is_taken(10 * ADDRESSES) && !is_taken(10 * ADDRESSES + 1));
    }

    #[test]
    fn datagrams_fit_the_least_mtu_and_carry_the_largest_record() {
        let at: SocketAddr = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
        let link = Link { address: at.ip(), prefix: 128, mtu: 65_535 };
        let place = HostPlace { at, link, by: "x".repeat(15), mac: Some([255; 6]) };
        let peer = || Peer { host: HostName::new(&"x".repeat(63)), address: at };
        let fault = Fault::Size { passes: 65_535, fails: 65_535 };
        let path = broken_path(peer(), peer(), fault, Some(65_535), (65_535, 65_535));
        let broken = BrokenWay { path, blocked: Some(Blocked::Rule) };
        let works: BTreeSet<_> = [(Way::Multicast, at.ip()), (Way::Udp, at.ip()), (Way::Tcp, at.ip())].into();
        let worst = Contact { works: works.clone(), broken: Some(broken), rate: Some(u32::MAX) };
        let usual = Contact { works, ..Contact::default() };
        for (places, contact) in [(1, worst), (ENDPOINTS, usual)] {
            let mut whole = record(1);
            whole.host = HostName::new(&"x".repeat(63));
            whole.places = vec![place.clone(); places];
            whole.about = (0..LARGEST).map(|id| (u32::MAX - id, contact.clone())).collect();
            let mut heard = Record { about: BTreeMap::new(), ..whole.clone() };
            for bytes in whole.datagrams(tag(), 1) {
                assert!(bytes.len() <= FULL, "{}", bytes.len());
                let Some(Message::News(1, records)) = decode(tag(), &bytes) else { panic!() };
                heard.join(records[0].clone());
            }
            assert!(heard == whole);
        }
    }
}
