//! Which host reaches which: the matrix from the messages of hosts that run the doctor at once.
//!
//! Each host keeps a row: what it has found out about each other host. A host is known by its card.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mingle_core::HostName;
use mingle_core::proto::{BrokenPath, Fault, Peer};
use mingle_core::tools::broken_path;

use super::notice::{
    BROADCAST, BrokenWay, Card, Contact, ECHO, HostNotice, HostPlace, MULTICAST, PATH, TCP, UNICAST, groups,
};

/// The most hosts that are remembered; a stranger can make up any number.
const NODES: usize = 64;
/// The most addresses of a host that are remembered.
const SOURCES: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownHost {
    card: Card,
    seq: u32,
    /// Its contacts with the other hosts, each with the number of the row that brought it.
    row: BTreeMap<u32, (u32, Contact)>,
    /// The addresses from which this host has heard it.
    sources: BTreeSet<IpAddr>,
    /// Its endpoint that this host has reached.
    reached: Option<SocketAddr>,
}

impl KnownHost {
    fn new(card: Card) -> Self {
        Self { card, seq: 0, row: BTreeMap::new(), sources: BTreeSet::new(), reached: None }
    }

    fn contacts(&self) -> impl Iterator<Item = Contact> {
        self.row.values().map(|(_, contact)| *contact)
    }
}

/// Everything known about the hosts.
#[derive(Debug, Clone)]
pub(super) struct Board {
    me: u32,
    /// The most hosts that are compared, and the fewest that can form a world.
    world: usize,
    least: usize,
    prefers_ipv6: bool,
    pub(super) tries_broadcast: bool,
    nodes: BTreeMap<u32, KnownHost>,
}

/// How one host reaches another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Multicast,
    Udp,
    Tcp,
    /// Long segments to a port that the kernel chose, at the address that the job uses.
    Path,
}

/// Whether a way works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Works,
    Broken,
    /// Not tried, or not reported.
    Unknown,
}

impl Cell {
    pub(super) fn works(self) -> bool {
        self == Self::Works
    }
}

impl Board {
    pub(super) fn new(me: Card, world: usize, prefers_ipv6: bool) -> Self {
        let id = me.id;
        let nodes = BTreeMap::from([(id, KnownHost::new(me))]);
        Self { me: id, world, least: world, prefers_ipv6, tries_broadcast: false, nodes }
    }

    /// Whether the world would use IPv6: a family that all known hosts have, and where they have both, IPv4
    /// unless IPv6 is preferred. None where they have no family in common.
    pub(super) fn is_ipv6(&self) -> Option<bool> {
        let order = [self.prefers_ipv6, !self.prefers_ipv6];
        let all_have = |is_ipv6: &bool| {
            let mut nodes = self.nodes.values();
            nodes.all(|node| node.card.places.iter().any(|place| place.at.is_ipv6() == *is_ipv6))
        };
        order.into_iter().find(all_have)
    }

    /// Whether the address is of the family that the world would use.
    pub(super) fn counts(&self, at: SocketAddr) -> bool {
        self.is_ipv6().is_none_or(|is_ipv6| at.is_ipv6() == is_ipv6)
    }

    /// The endpoints of a host in the family that the world would use.
    pub(super) fn ways_to(&self, card: &Card) -> Vec<SocketAddr> {
        card.places.iter().map(|place| place.at).filter(|at| self.counts(*at)).collect()
    }

    /// Notes that a datagram of another host has arrived from this address.
    pub(super) fn heard(&mut self, id: u32, flag: u8, from: SocketAddr) {
        if self.counts(from) {
            self.mark(id, flag);
        }
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.sources.len() < SOURCES) else { return };
        let ip = from.ip().to_canonical();
        if id == self.me || !node.sources.insert(ip) {
            return;
        }
        let both: Vec<u32> =
            self.others().filter(|node| node.sources.contains(&ip)).map(|node| node.card.id).collect();
        if both.len() > 1 {
            for id in both {
                self.change(id, |contact| contact.shared = Some(ip));
            }
        }
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Takes some contacts of a host. Returns whether the host is new.
    pub(super) fn learn(&mut self, card: Card, seq: u32, row: Vec<Contact>) -> bool {
        let id = card.id;
        let is_new = !self.nodes.contains_key(&id);
        let family = self.is_ipv6();
        if id == self.me || is_new && self.nodes.len() >= NODES {
            return false;
        }
        let node = self.nodes.entry(id).or_insert_with(|| KnownHost::new(card.clone()));
        if node.seq < seq {
            (node.card, node.seq) = (card, seq);
        }
        for contact in row {
            if node.row.len() < NODES || node.row.contains_key(&contact.id) {
                let (at, known) = node.row.entry(contact.id).or_insert((seq, contact));
                if *at <= seq {
                    (*at, *known) = (seq, contact);
                }
            }
        }
        // A new host of one family may change the family that counts.
        if self.is_ipv6() != family
            && let Some(own) = self.nodes.get_mut(&self.me)
        {
            own.row.values_mut().for_each(|(_, contact)| *contact = Contact::unknown(contact.id));
        }
        self.mark(id, 0);
        is_new
    }

    /// Changes what this host knows of another.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(&mut Contact)) {
        if self.nodes.contains_key(&id)
            && id != self.me
            && let Some(own) = self.nodes.get_mut(&self.me)
        {
            change(&mut own.row.entry(id).or_insert((0, Contact::unknown(id))).1);
        }
    }

    /// Notes what this host has found out about a known host.
    pub(super) fn mark(&mut self, id: u32, flag: u8) {
        self.change(id, |contact| contact.flags |= flag);
    }

    /// As [`Board::mark`], with the endpoint that has answered.
    pub(super) fn answered(&mut self, id: u32, flag: u8, at: SocketAddr) {
        self.mark(id, flag);
        if let Some(node) = self.nodes.get_mut(&id)
            && (flag == TCP || node.reached.is_none())
        {
            node.reached = Some(at);
        }
    }

    /// Notes the result of the proof of the path to another host, at this address and port.
    pub(super) fn proved(&mut self, id: u32, to: SocketAddr, verdict: Result<(), Fault>) {
        let own_port_answers = self.entry(self.me, id).is_some_and(|contact| contact.flags & TCP != 0)
            && self.nodes.get(&id).and_then(|node| node.reached).is_some_and(|at| at.ip() == to.ip());
        self.change(id, |contact| match verdict {
            Ok(()) => contact.flags |= PATH,
            Err(fault) => contact.broken = Some(BrokenWay { to, fault, own_port_answers }),
        });
    }

    /// The address and port to which the path to a host is proved: that of its interface at which it has
    /// answered, or else of its preferred one. None before it has answered.
    pub(super) fn path_to(&self, id: u32) -> Option<SocketAddr> {
        let has_answered = self.entry(self.me, id).is_some_and(|entry| entry.flags & (ECHO | TCP) != 0);
        let node = self.nodes.get(&id).filter(|node| has_answered && node.card.port != 0)?;
        let place = |at: Option<SocketAddr>| {
            let mut places = node.card.places.iter().filter(|place| self.counts(place.at));
            places.find(|place| at.is_none_or(|at| place.at.ip() == at.ip()))
        };
        let place = node.reached.and_then(|at| place(Some(at))).or_else(|| place(None))?;
        Some(SocketAddr::new(place.link.address, node.card.port))
    }

    /// The endpoint at which a host has answered.
    pub(super) fn reached(&self, id: u32) -> Option<SocketAddr> {
        self.nodes.get(&id)?.reached
    }

    /// This host's own row, numbered one higher than the last, in parts.
    pub(super) fn own_row(&mut self, done: bool) -> Vec<HostNotice> {
        let Some(own) = self.nodes.get_mut(&self.me) else { return Vec::new() };
        own.seq += 1;
        own.card.done = done;
        let parts = groups(&own.card, own.contacts());
        parts.into_iter().map(|part| HostNotice::Row(own.card.clone(), own.seq, part)).collect()
    }

    /// A part of the row of another host that is not heard by all; `turn` chooses which.
    pub(super) fn relay(&self, turn: usize) -> Option<HostNotice> {
        let is_heard = |node: &&KnownHost| {
            let mut listeners = self.others().filter(|other| other.card.id != node.card.id);
            listeners.all(|other| !self.is_deaf_of(other.card.id, node.card.id))
        };
        let others: Vec<&KnownHost> = self.others().filter(|node| !is_heard(node)).collect();
        let node = others.get(turn.checked_rem(others.len())?)?;
        let parts = groups(&node.card, node.contacts());
        let part = parts.get((turn / others.len()) % parts.len())?;
        // One contact in the row may be older than the rest.
        let known = part.iter().filter_map(|contact| Some(node.row.get(&contact.id)?.0)).min();
        Some(HostNotice::Relay(node.card.clone(), known.unwrap_or(node.seq), part.clone()))
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
        self.entry(self.me, id).is_none_or(|entry| entry.flags & TCP == 0)
    }

    /// Whether an answer of this host is still to come.
    pub(super) fn lacks_echo(&self, id: u32) -> bool {
        self.entry(self.me, id).is_none_or(|entry| entry.flags & ECHO == 0)
    }

    /// Whether this host's messages reach the other host by TCP alone, as far as is known.
    pub(super) fn is_deaf(&self, id: u32) -> bool {
        self.is_deaf_of(id, self.me)
    }

    fn is_deaf_of(&self, id: u32, speaker: u32) -> bool {
        self.entry(id, speaker).is_none_or(|entry| entry.flags & (UNICAST | MULTICAST) == 0)
    }

    /// Whether this host's multicast does not reach the other host, as far as is known.
    pub(super) fn is_deaf_to_group(&self, id: u32) -> bool {
        self.entry(id, self.me).is_none_or(|entry| entry.flags & MULTICAST == 0)
    }

    /// Whether all hosts are known.
    pub(super) fn is_full(&self) -> bool {
        self.nodes.len() >= self.world
    }

    /// Whether all hosts are known and every way works.
    pub(super) fn is_complete(&self) -> bool {
        let ways = [Way::Multicast, Way::Udp, Way::Tcp, Way::Path];
        self.is_full()
            && self.pairs().all(|(from, to)| ways.iter().all(|way| self.cell(*way, from, to).works()))
    }

    /// Whether each path is proved or broken, or its proof could not begin.
    pub(super) fn paths_are_known(&self) -> bool {
        self.pairs().all(|(from, to)| {
            let reaches = self.entry(from, to).is_some_and(|entry| entry.flags & (ECHO | TCP) != 0);
            !reaches || self.cell(Way::Path, from, to) != Cell::Unknown
        })
    }

    /// Whether all others say that they have found everything.
    pub(super) fn all_done(&self) -> bool {
        self.others().all(|node| node.card.done)
    }

    /// Whether this host takes part in transfers.
    pub(super) fn transfers(&self) -> bool {
        self.card(self.me).is_some_and(|card| card.transfers)
    }

    pub(super) fn world(&self) -> usize {
        self.world
    }

    /// Sets the fewest hosts that can form a world.
    pub(super) fn set_least(&mut self, least: usize) {
        self.least = least;
    }

    /// Whether enough hosts are here, and not too many.
    pub(super) fn has_enough(&self) -> bool {
        (self.least..=self.world).contains(&self.nodes.len())
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.nodes.keys().copied().collect();
        // The same order on every host.
        let first = |node: &KnownHost| node.card.places.first().map(|place| place.at);
        ids.sort_by_key(|id| self.nodes.get(id).map(|node| (first(node), *id)));
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
        self.card(id).map_or_else(String::new, |card| match card.places.first() {
            Some(place) => format!("{} ({})", card.host, place.at.ip()),
            None => card.host.clone(),
        })
    }

    pub(super) fn port(&self, id: u32) -> u16 {
        let card = self.card(id);
        card.and_then(|card| card.places.first()).map_or(0, |place| place.at.port())
    }

    pub(super) fn card(&self, id: u32) -> Option<&Card> {
        self.nodes.get(&id).map(|node| &node.card)
    }

    /// The findings of one host about another.
    pub(super) fn entry(&self, of: u32, about: u32) -> Option<&Contact> {
        self.nodes.get(&of)?.row.get(&about).map(|(_, contact)| contact)
    }

    /// The path from one host to another as a rendezvous would name it, if it is broken.
    pub(super) fn broken(&self, from: u32, to: u32) -> Option<BrokenPath> {
        let BrokenWay { to: tried, fault, own_port_answers } = self.entry(from, to)?.broken?;
        let (own, target) = (self.card(from)?, self.card(to)?);
        let near = |place: &&HostPlace| holds(place.link.address, place.link.prefix, tried.ip());
        let of_family = |place: &&HostPlace| place.at.is_ipv6() == tried.is_ipv6();
        let here = own.places.iter().find(near).or_else(|| own.places.iter().find(of_family))?;
        let there = target.places.iter().find(|place| place.link.address == tried.ip())?;
        let peer = |card: &Card, address| Peer { host: HostName::new(&card.host), address };
        Some(broken_path(
            peer(own, SocketAddr::new(here.link.address, here.at.port())),
            peer(target, tried),
            fault,
            own_port_answers.then(|| there.at.port()),
            (here.link.mtu, there.link.mtu),
        ))
    }

    /// The rate at which transfers of one host arrive at another, in kbit/s, if that was tried.
    pub(super) fn rate(&self, from: u32, to: u32) -> Option<u32> {
        self.entry(to, from)?.rate
    }

    /// Whether what `from` sends by `way` arrives at `to`.
    pub(super) fn cell(&self, way: Way, from: u32, to: u32) -> Cell {
        let (sent, heard) = (self.entry(from, to), self.entry(to, from));
        let has = |entry: Option<&Contact>, flag| entry.is_some_and(|entry| entry.flags & flag != 0);
        match way {
            Way::Multicast if has(heard, MULTICAST) => Cell::Works,
            Way::Udp if has(heard, UNICAST) || has(sent, ECHO) => Cell::Works,
            Way::Tcp if has(sent, TCP) => Cell::Works,
            Way::Path if has(sent, PATH) => Cell::Works,
            Way::Path if sent.is_none_or(|entry| entry.broken.is_none()) => Cell::Unknown,
            // A host that does not know of another has not tried to reach it.
            Way::Udp | Way::Tcp if sent.is_none() => Cell::Unknown,
            _ => Cell::Broken,
        }
    }

    /// Whether a world can form: all hosts are here, all others reach one of them, in both directions, and
    /// no path is broken.
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
        let connects = |(from, to)| match self.cell(Way::Path, from, to) {
            Cell::Works => true,
            Cell::Broken => false,
            // No connection opens if no packet of the other host arrives.
            Cell::Unknown => self.cell(Way::Tcp, from, to).works() || self.cell(Way::Udp, from, to).works(),
        };
        self.nodes.len() >= self.least && ids.iter().any(reached) && self.pairs().all(connects)
    }

    /// Whether broadcasts pass between all hosts; none where they were not tried.
    pub(super) fn broadcast(&self) -> Option<bool> {
        let heard = |(from, to)| self.entry(to, from).is_some_and(|entry| entry.flags & BROADCAST != 0);
        self.tries_broadcast.then(|| self.pairs().all(heard))
    }
}

/// Whether the address lies in the network of these bits.
pub(super) fn holds(net: IpAddr, bits: u8, ip: IpAddr) -> bool {
    match (net, ip) {
        (IpAddr::V4(net), IpAddr::V4(ip)) => {
            let shift = 32 - u32::from(bits.min(32));
            (u32::from(net) ^ u32::from(ip)).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(net), IpAddr::V6(ip)) => {
            let shift = 128 - u32::from(bits.min(128));
            (u128::from(net) ^ u128::from(ip)).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}
