//! Which host reaches which: the matrix from the records of hosts that run the doctor at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mingle_core::proto::{Fault, Peer};
use mingle_core::tools::broken_path;
use mingle_core::{Network, World, WorldSize};
use tokio::time::Instant;

use super::notice::{BrokenWay, Contact, HOSTS, HostPlace, Message, Record, Way};
use super::route::{self, Blocked};

/// Everything known about the hosts.
#[derive(Debug, Clone)]
pub(super) struct Board {
    /// This host, and the others by their IDs.
    pub(super) own: Record,
    pub(super) others: BTreeMap<u32, Record>,
    pub(super) last_newcomer: Instant,
    /// What each of this host's ports for RDMA hears.
    pub(super) heard: BTreeMap<String, BTreeSet<(u32, String)>>,
    /// The fewest hosts that can form a world, and the most, which are compared.
    pub(super) least: usize,
    pub(super) world: usize,
    pub(super) network: Network,
}

impl Board {
    pub(super) fn new(own: Record, size: WorldSize, network: &Network) -> Self {
        let count = |world: World| usize::try_from(world.get()).unwrap_or(usize::MAX);
        let (least, world) = (count(size.min()), count(size.max()));
        let (others, heard, network) = (BTreeMap::new(), BTreeMap::new(), network.clone());
        Self { own, others, last_newcomer: Instant::now(), heard, least, world, network }
    }

    /// Whether the world would use IPv6: the family that all known hosts have, and where they have both, IPv4
    /// unless IPv6 is preferred. None where they have no family in common.
    pub(super) fn is_ipv6(&self) -> Option<bool> {
        let has = |record: &Record, is_ipv6| record.places.iter().any(|place| place.at.is_ipv6() == is_ipv6);
        let order = [self.network.prefers_ipv6, !self.network.prefers_ipv6];
        order.into_iter().find(|is_ipv6| self.all().all(|record| has(record, *is_ipv6)))
    }

    /// Takes what a message of host `from` says of hosts, and the way that has brought the message.
    pub(super) fn hear(&mut self, from: u32, records: Vec<Record>, by: Option<(Way, IpAddr)>) {
        for record in records {
            self.learn(record);
        }
        if let Some((way, address)) = by
            && let Some(contact) = self.own.about.get_mut(&from)
        {
            contact.add(way, address);
        }
    }

    /// Takes what a message says of a host.
    pub(super) fn learn(&mut self, record: Record) {
        let id = record.id;
        let is_new = id != self.own.id && !self.others.contains_key(&id) && self.others.len() + 1 < HOSTS;
        if is_new {
            self.own.about.entry(id).or_default();
            self.others.insert(id, record);
            self.last_newcomer = Instant::now();
        } else if let Some(known) = self.others.get_mut(&id) {
            known.join(record);
        }
    }

    /// Notes the result of the proof of the path to another host, at this address and port.
    pub(super) fn proved(&mut self, id: u32, to: SocketAddr, verdict: Result<(), Fault>) {
        let broken = verdict.err().and_then(|fault| self.broken(id, to, fault));
        let Some(contact) = self.own.about.get_mut(&id) else { return };
        if verdict.is_ok() {
            contact.add(Way::Path, to.ip());
        }
        contact.broken = contact.broken.take().or(broken);
    }

    /// What is known of the path to another host that fails in this way.
    fn broken(&self, id: u32, to: SocketAddr, fault: Fault) -> Option<BrokenWay> {
        let here = self.nearest(self.own.id, to.ip())?;
        let peer = self.others.get(&id)?;
        let there = peer.places.iter().find(|place| place.link.address == to.ip())?;
        let answers = self.own.about.get(&id)?.works.contains(&(Way::Tcp, to.ip()));
        let own =
            Peer { host: self.own.host.clone(), address: SocketAddr::new(here.link.address, here.at.port()) };
        let path = broken_path(
            own,
            Peer { host: peer.host.clone(), address: to },
            fault,
            answers.then(|| there.at.port()),
            (here.link.mtu, there.link.mtu),
        );
        Some(BrokenWay { path, blocked: route::examine(to.ip(), here.link.has(to.ip())) })
    }

    /// The place of a host, in the family that the world would use, at which a connection has opened, or else
    /// from which the host was heard, or else its preferred place.
    pub(super) fn reached<'a>(&self, peer: &'a Record) -> Option<&'a HostPlace> {
        let family = self.is_ipv6();
        let met = self.own.about.get(&peer.id);
        let works = |way, ip| met.is_some_and(|met| met.works.contains(&(way, ip)));
        let rank = |place: &&HostPlace| {
            let ip = place.at.ip();
            let is_heard = [Way::Multicast, Way::Udp, Way::Broadcast].iter().any(|way| works(*way, ip));
            (!works(Way::Tcp, ip), !is_heard)
        };
        let places = peer.places.iter();
        places.filter(|place| family.is_none_or(|is_ipv6| place.at.is_ipv6() == is_ipv6)).min_by_key(rank)
    }

    /// All hosts that are known.
    fn all(&self) -> impl Iterator<Item = &Record> {
        std::iter::once(&self.own).chain(self.others.values())
    }

    /// A host that is known.
    pub(super) fn host(&self, id: u32) -> &Record {
        self.others.get(&id).unwrap_or(&self.own)
    }

    /// Whether all hosts are known.
    pub(super) fn is_full(&self) -> bool {
        self.others.len() + 1 >= self.world
    }

    /// Whether all hosts are known and every way works.
    pub(super) fn is_complete(&self) -> bool {
        let ways = [Way::Multicast, Way::Udp, Way::Tcp, Way::Path];
        self.is_full() && self.pairs().all(|(from, to)| ways.iter().all(|way| self.works(*way, from, to)))
    }

    /// Whether each path that can be tried is proved or broken.
    pub(super) fn paths_are_known(&self) -> bool {
        let is_tried = |from, to| self.entry(from, to).is_some();
        self.pairs().all(|(from, to)| !is_tried(from, to) || self.cell(Way::Path, from, to).is_some())
    }

    /// Whether all hosts to which this host connects have told what their ports for RDMA hear.
    pub(super) fn rails_are_known(&self) -> bool {
        self.others.values().all(|peer| peer.rails.is_some() || !self.works(Way::Tcp, self.own.id, peer.id))
    }

    /// The other hosts of which some third host hears nothing from themselves.
    pub(super) fn unheard(&self) -> impl Iterator<Item = &Record> {
        let hears = |peer: &Record, id| peer.about.get(&id).is_some_and(|contact| !contact.works.is_empty());
        let misses = move |peer: &Record, id| peer.id != id && !hears(peer, id);
        self.others.values().filter(move |record| self.others.values().any(|peer| misses(peer, record.id)))
    }

    /// All that this host tells over a connection: of itself, and of hosts whom not all hear.
    pub(super) fn news(&self) -> Message {
        Message::News(self.own.id, std::iter::once(&self.own).chain(self.unheard()).cloned().collect())
    }

    /// Whether another host has begun to prove its paths, so that it will not stay for long.
    pub(super) fn others_prove(&self) -> bool {
        let is_path = |(way, _): &(Way, IpAddr)| *way == Way::Path;
        let begun = |contact: &Contact| contact.broken.is_some() || contact.works.iter().any(is_path);
        self.others.values().any(|peer| peer.about.values().any(begun))
    }

    /// In the same order on every host.
    pub(super) fn ids(&self) -> Vec<u32> {
        let mut all: Vec<&Record> = self.all().collect();
        all.sort_by_key(|record| record.places.first().map(|place| place.at));
        all.into_iter().map(|record| record.id).collect()
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let ids = self.ids();
        let all =
            ids.clone().into_iter().flat_map(move |from| ids.clone().into_iter().map(move |to| (from, to)));
        all.filter(|(from, to)| from != to)
    }

    /// The host as the report names it: by its name and its preferred address.
    pub(super) fn name(&self, id: u32) -> String {
        let Record { host, places, .. } = self.host(id);
        places.first().map_or_else(|| host.to_string(), |place| format!("{host} ({})", place.at.ip()))
    }

    /// The findings of one host about another.
    pub(super) fn entry(&self, of: u32, about: u32) -> Option<&Contact> {
        self.host(of).about.get(&about)
    }

    /// The place of a host that is nearest to an address: in its network, or else of its family.
    fn nearest(&self, id: u32, to: IpAddr) -> Option<&HostPlace> {
        let places = &self.host(id).places;
        let near = places.iter().find(|place| place.link.has(to));
        near.or_else(|| places.iter().find(|place| place.at.is_ipv6() == to.is_ipv6()))
    }

    /// Why packets of one host to another do not leave it as they should, and what helps.
    pub(super) fn blocked(&self, from: u32, to: u32) -> Option<(String, String)> {
        let BrokenWay { path, blocked } = self.entry(from, to)?.broken.as_ref()?;
        let address = path.to.address.ip();
        let passes = |way| self.works(way, from, to);
        let here = self.nearest(from, address)?;
        // A multicast that passes no router arrives.
        let is_one_link = passes(Way::Multicast) && self.network.ttl == 1;
        let is_apart = is_one_link && !passes(Way::Udp) && !passes(Way::Tcp) && !here.link.has(address);
        let blocked = blocked.or(is_apart.then_some(Blocked::NoRoute))?;
        let by = is_one_link.then_some(here.by.as_str());
        Some(blocked.explain(path.from.host.as_str(), address, by))
    }

    /// The rate at which transfers of one host arrive at another, in kbit/s, if that was tried.
    pub(super) fn rate(&self, from: u32, to: u32) -> Option<u32> {
        self.entry(to, from)?.rate
    }

    /// Whether what `from` sends by `way` is known to arrive at `to`.
    pub(super) fn works(&self, way: Way, from: u32, to: u32) -> bool {
        self.cell(way, from, to) == Some(true)
    }

    /// Whether what `from` sends by `way` arrives at `to`, in the family that the world would use; none if
    /// that was not tried, or not reported.
    pub(super) fn cell(&self, way: Way, from: u32, to: u32) -> Option<bool> {
        let (sent, received) = (self.entry(from, to), self.entry(to, from));
        let (teller, is_known) = match way {
            Way::Path => (sent, sent.is_some_and(|contact| contact.broken.is_some())),
            // A host that does not know of another has not tried to reach it.
            Way::Tcp => (sent, sent.is_some()),
            Way::Udp => (received, sent.is_some()),
            Way::Multicast | Way::Broadcast => (received, true),
        };
        let family = self.is_ipv6();
        let counts = |ip: &IpAddr| family.is_none_or(|is_ipv6| ip.is_ipv6() == is_ipv6);
        let is_it = |(other, ip): &(Way, IpAddr)| *other == way && counts(ip);
        let works = teller.is_some_and(|contact| contact.works.iter().any(is_it));
        (works || is_known).then_some(works)
    }

    /// Whether a world can form: all hosts are here, all others reach one of them, in both directions, and
    /// no path is broken.
    pub(super) fn can_form(&self) -> bool {
        let ids = self.ids();
        let reached = |master: &u32| {
            let others = ids.iter().filter(|id| *id != master);
            others.into_iter().all(|id| {
                self.works(Way::Tcp, *id, *master)
                    && self.works(Way::Udp, *id, *master)
                    && self.works(Way::Udp, *master, *id)
            })
        };
        let connects = |(from, to)| {
            // No connection opens if no packet of the other host arrives.
            let may = || self.works(Way::Tcp, from, to) || self.works(Way::Udp, from, to);
            self.cell(Way::Path, from, to).unwrap_or_else(may)
        };
        ids.len() >= self.least && ids.iter().any(reached) && self.pairs().all(connects)
    }

    /// Whether broadcasts pass between all hosts; none where they were not tried.
    pub(super) fn broadcast(&self) -> Option<bool> {
        self.network.broadcast.then(|| self.pairs().all(|(from, to)| self.works(Way::Broadcast, from, to)))
    }
}

/// The board of a host in a world of this size.
#[cfg(test)]
pub(super) fn board_at(own: Record, world: u32, prefers_ipv6: bool) -> Board {
    let mut network = Network::default();
    network.prefers_ipv6 = prefers_ipv6;
    Board::new(own, World::new(world).unwrap().into(), &network)
}
