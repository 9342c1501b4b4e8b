//! Which host reaches which: the matrix from the messages of hosts that run the doctor at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use mingle_core::proto::{BrokenPath, Fault, Peer};
use mingle_core::tools::{Cast, broken_path};
use mingle_core::{HostName, Network, World, WorldSize};

use super::notice::{BrokenWay, Card, Contact, HOSTS, HostPlace, Row, Way};
use super::route::{self, Blocked};

/// The most addresses of a host that are remembered.
const SOURCES: usize = 8;

/// Everything known about the hosts.
#[derive(Debug, Clone)]
pub(super) struct Board {
    /// This host.
    pub(super) me: u32,
    /// The fewest hosts that can form a world, and the most, which are compared.
    pub(super) least: usize,
    pub(super) world: usize,
    pub(super) network: Network,
    /// Whether the world would use IPv6; none where the hosts have no family in common.
    pub(super) is_ipv6: Option<bool>,
    pub(super) rows: BTreeMap<u32, Row>,
}

impl Board {
    pub(super) fn new(me: Card, size: WorldSize, network: &Network) -> Self {
        let count = |world: World| usize::try_from(world.get()).unwrap_or(usize::MAX);
        let (least, world) = (count(size.min()), count(size.max()));
        let (id, network) = (me.id, network.clone());
        let rows = [(id, Row::new(me))].into();
        let mut board = Self { me: id, least, world, network, is_ipv6: None, rows };
        board.is_ipv6 = board.family();
        board
    }

    /// The family of the world: one that all known hosts have, and where they have both, IPv4 unless IPv6 is
    /// preferred. None where they have no family in common.
    fn family(&self) -> Option<bool> {
        let has = |card: &Card, is_ipv6| card.places.iter().any(|place| place.at.is_ipv6() == is_ipv6);
        let order = [self.network.prefers_ipv6, !self.network.prefers_ipv6];
        order.into_iter().find(|is_ipv6| self.rows.values().all(|row| has(&row.card, *is_ipv6)))
    }

    /// Whether the address is of the family that the world would use.
    fn counts(&self, at: SocketAddr) -> bool {
        self.is_ipv6.is_none_or(|is_ipv6| at.is_ipv6() == is_ipv6)
    }

    /// The endpoints of a host, those in the family that the world would use first.
    pub(super) fn ways_to(&self, card: &Card) -> Vec<SocketAddr> {
        let mut ways: Vec<SocketAddr> = card.places.iter().map(|place| place.at).collect();
        ways.sort_by_key(|at| !self.counts(*at));
        ways
    }

    /// Takes what a message says of a host. Returns whether the host is new.
    pub(super) fn learn(&mut self, row: Row) -> bool {
        let id = row.card.id;
        let is_new = !self.rows.contains_key(&id);
        if id == self.me || is_new && self.rows.len() >= HOSTS {
            return false;
        }
        self.rows.entry(id).or_insert_with(|| Row::new(row.card.clone())).join(row);
        self.change(id, |_| {});
        if is_new {
            self.is_ipv6 = self.family();
        }
        is_new
    }

    /// Changes what this host knows of another.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(&mut Contact)) {
        if self.rows.contains_key(&id)
            && id != self.me
            && let Some(own) = self.rows.get_mut(&self.me)
        {
            change(own.about.entry(id).or_default());
        }
    }

    /// Notes that a datagram of another host has arrived from this address.
    pub(super) fn heard(&mut self, id: u32, cast: Cast, from: SocketAddr) {
        let way = match cast {
            Cast::Multicast => Way::Multicast,
            Cast::Broadcast => Way::Broadcast,
            _ => Way::Udp,
        };
        let (ip, mut is_new) = (from.ip().to_canonical(), false);
        self.change(id, |contact| {
            contact.mark(way, from.is_ipv6());
            is_new = contact.sources.len() < SOURCES && contact.sources.insert(ip);
        });
        let own = self.rows.get_mut(&self.me).filter(|_| is_new);
        let contacts = own.into_iter().flat_map(|own| own.about.values_mut());
        let both: Vec<&mut Contact> = contacts.filter(|contact| contact.sources.contains(&ip)).collect();
        if both.len() > 1 {
            for contact in both {
                contact.shared = Some(ip);
            }
        }
    }

    /// Notes the endpoint at which a known host has answered over a connection.
    pub(super) fn answered(&mut self, id: u32, at: SocketAddr) {
        let counts = self.counts(at);
        self.change(id, |contact| {
            contact.mark(Way::Tcp, at.is_ipv6());
            contact.reached = Some(at).filter(|_| counts).or(contact.reached);
        });
    }

    /// Notes the result of the proof of the path to another host, at this address and port.
    pub(super) fn proved(&mut self, id: u32, to: SocketAddr, verdict: Result<(), Fault>) {
        let Err(fault) = verdict else {
            self.change(id, |contact| contact.mark(Way::Path, to.is_ipv6()));
            return;
        };
        let own_port_answers = self.reached(id).is_some_and(|at| at.ip() == to.ip());
        let is_near = |place: &HostPlace| place.link.has(to.ip());
        let is_near = self.card(self.me).is_some_and(|own| own.places.iter().any(is_near));
        self.change(id, |contact| {
            contact.broken.get_or_insert_with(|| BrokenWay {
                to,
                fault,
                own_port_answers,
                blocked: route::examine(to.ip(), is_near),
            });
        });
    }

    /// The address and port to which the path to a host is proved: that of its interface at which a
    /// connection has opened, or else from which it was heard, or else of its preferred one.
    pub(super) fn path_to(&self, card: &Card) -> Option<SocketAddr> {
        let met = self.entry(self.me, card.id);
        let rank = |place: &&HostPlace| {
            let ip = place.at.ip();
            let is_reached = met.is_some_and(|met| met.reached.is_some_and(|at| at.ip() == ip));
            (!is_reached, !met.is_some_and(|met| met.sources.contains(&ip)))
        };
        let place = card.places.iter().filter(|place| self.counts(place.at)).min_by_key(rank)?;
        Some(SocketAddr::new(place.link.address, card.port))
    }

    /// The endpoint at which a connection to a host has opened.
    pub(super) fn reached(&self, id: u32) -> Option<SocketAddr> {
        self.entry(self.me, id)?.reached
    }

    /// The cards of the other hosts.
    pub(super) fn peers(&self) -> impl Iterator<Item = &Card> {
        self.rows.values().map(|row| &row.card).filter(|card| card.id != self.me)
    }

    /// Whether one host has found that this way from or to another works, in the family that counts.
    pub(super) fn has(&self, of: u32, about: u32, way: Way) -> bool {
        self.entry(of, about).is_some_and(|contact| contact.has(way, self.is_ipv6))
    }

    /// Whether all hosts are known.
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.world
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

    /// Whether a host has told that it has ports for RDMA.
    pub(super) fn has_rails(&self, id: u32) -> bool {
        self.rows.get(&id).and_then(|row| row.rails.as_ref()).is_some_and(|rails| !rails.is_empty())
    }

    /// Whether a host to which this host connects has not told yet what its ports for RDMA hear.
    pub(super) fn lacks_rails_of(&self, id: u32) -> bool {
        self.works(Way::Tcp, self.me, id) && self.rows.get(&id).is_some_and(|row| row.rails.is_none())
    }

    /// Whether this host knows what its ports for RDMA hear, and all hosts to which it connects have told
    /// what their ports hear.
    pub(super) fn rails_are_known(&self) -> bool {
        self.rows[&self.me].rails.is_some() && !self.peers().any(|card| self.lacks_rails_of(card.id))
    }

    /// Whether each third host hears this one's datagrams.
    pub(super) fn is_heard(&self, id: u32) -> bool {
        let hears = |card: &Card| self.has(card.id, id, Way::Multicast) || self.has(card.id, id, Way::Udp);
        self.peers().all(|card| card.id == id || hears(card))
    }

    /// Whether another host has begun to prove its paths, so that it will not stay for long.
    pub(super) fn others_prove(&self) -> bool {
        let begun = |contact: &Contact| contact.broken.is_some() || contact.has(Way::Path, None);
        self.peers().any(|card| self.rows[&card.id].about.values().any(begun))
    }

    /// Whether this host takes part in transfers.
    pub(super) fn transfers(&self) -> bool {
        self.card(self.me).is_some_and(|card| card.transfers)
    }

    /// In the same order on every host.
    pub(super) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.rows.keys().copied().collect();
        ids.sort_by_key(|id| self.rows[id].card.places.first().map(|place| place.at));
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

    pub(super) fn card(&self, id: u32) -> Option<&Card> {
        self.rows.get(&id).map(|row| &row.card)
    }

    /// The findings of one host about another.
    pub(super) fn entry(&self, of: u32, about: u32) -> Option<&Contact> {
        self.rows.get(&of)?.about.get(&about)
    }

    /// The place of a host that is nearest to an address: in its network, or else of its family.
    fn nearest(&self, id: u32, to: IpAddr) -> Option<&HostPlace> {
        let places = &self.card(id)?.places;
        let near = places.iter().find(|place| place.link.has(to));
        near.or_else(|| places.iter().find(|place| place.at.is_ipv6() == to.is_ipv6()))
    }

    /// Why packets of one host to another do not leave it as they should, and what helps.
    pub(super) fn blocked(&self, from: u32, to: u32) -> Option<(String, String)> {
        let broken = self.entry(from, to)?.broken?;
        let passes = |way| self.works(way, from, to);
        let here = self.nearest(from, broken.to.ip())?;
        // A multicast that passes no router arrives.
        let is_one_link = passes(Way::Multicast) && self.network.ttl == 1;
        let is_apart =
            is_one_link && !passes(Way::Udp) && !passes(Way::Tcp) && !here.link.has(broken.to.ip());
        let blocked = broken.blocked.or(is_apart.then_some(Blocked::NoRoute))?;
        let by = is_one_link.then_some(here.by.as_str());
        Some(blocked.explain(&self.card(from)?.host, broken.to.ip(), by))
    }

    /// The path from one host to another as a rendezvous would name it, if it is broken.
    pub(super) fn broken(&self, from: u32, to: u32) -> Option<BrokenPath> {
        let BrokenWay { to: tried, fault, own_port_answers, .. } = self.entry(from, to)?.broken?;
        let (own, target) = (self.card(from)?, self.card(to)?);
        let here = self.nearest(from, tried.ip())?;
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

    /// Whether what `from` sends by `way` is known to arrive at `to`.
    pub(super) fn works(&self, way: Way, from: u32, to: u32) -> bool {
        self.cell(way, from, to) == Some(true)
    }

    /// Whether what `from` sends by `way` arrives at `to`; none if that was not tried, or not reported.
    pub(super) fn cell(&self, way: Way, from: u32, to: u32) -> Option<bool> {
        let sent = self.entry(from, to);
        let (works, is_known) = match way {
            Way::Path => (self.has(from, to, way), sent.is_some_and(|entry| entry.broken.is_some())),
            // A host that does not know of another has not tried to reach it.
            Way::Tcp => (self.has(from, to, way), sent.is_some()),
            Way::Udp => (self.has(to, from, way), sent.is_some()),
            Way::Multicast | Way::Broadcast => (self.has(to, from, way), true),
        };
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
        self.rows.len() >= self.least && ids.iter().any(reached) && self.pairs().all(connects)
    }

    /// Whether broadcasts pass between all hosts; none where they were not tried.
    pub(super) fn broadcast(&self) -> Option<bool> {
        self.network.broadcast.then(|| self.pairs().all(|(from, to)| self.works(Way::Broadcast, from, to)))
    }
}

/// The board of a host in a world of this size.
#[cfg(test)]
pub(super) fn board_at(me: Card, world: u32, prefers_ipv6: bool) -> Board {
    let mut network = Network::default();
    network.prefers_ipv6 = prefers_ipv6;
    Board::new(me, World::new(world).unwrap().into(), &network)
}
