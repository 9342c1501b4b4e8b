//! A node as it describes itself to its leader.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use mingle_rdma::Summary;
use serde::{Deserialize, Serialize};

use crate::model::{Elsewhere, Endpoints, HostName, Link, List, Metadata, Paths, Peer, Rank, RankKey, User};

/// How a node describes itself to its leader. A join carries this description, and the leader's book of
/// members keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The rank that the user gave to the node; none if the leader assigns a rank.
    pub rank: Option<Rank>,
    /// The name that the host has for itself.
    pub host: HostName,
    /// The endpoints at which the node can be reached, each for TCP and UDP.
    pub endpoints: Endpoints,
    /// The addresses that the job uses, and the port to which paths are proved.
    pub reach: Reach,
    /// The other facts about the node, which the caller gives.
    pub attributes: Attributes,
}

/// The facts that the caller gives about a node, apart from the node's name and endpoints.
///
/// A new attribute of a node belongs here: the join carries the attributes to the leader, and all code reads
/// them from this struct. The order of the fields is their order on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// How many workers the node will run, usually one worker for each GPU.
    pub slots: u32,
    /// What the node's launcher tells the other nodes.
    pub metadata: Metadata,
    /// Whether the node may become the master without being given rank 0.
    pub may_be_master: bool,
    /// Whether the node wants the roster.
    pub wants_roster: bool,
    /// The port on which the node accepts sessions, if it stays with its world; otherwise 0. The rendezvous
    /// sets this field.
    pub session_port: u16,
    /// The RDMA devices of the node's host, which the leader compares.
    pub fabric: Summary,
    /// Whether no world may form whose nodes have different traits.
    pub requires_same: bool,
    /// Which paths between the nodes are proved.
    pub paths: Paths,
    /// The text by which the leader orders the nodes without a given rank.
    pub rank_key: RankKey,
    /// Who runs the node. A leader seats only nodes of its own user.
    pub user: User,
}

/// Where the job reaches a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reach {
    /// The port to which the others prove their paths, TCP. None for a node to which no path is proved.
    port: Option<NonZeroU16>,
    /// For each endpoint that a message carries, the link that the job uses where that endpoint is reached.
    links: List<Link, { Endpoints::ADVERTISED }>,
    /// Other addresses that the job uses, by the user's own variables for NCCL and Gloo.
    given: List<Link, GIVEN>,
}

/// The most addresses of a node that a message carries of those that the user's variables lead to.
pub(crate) const GIVEN: usize = 4;
/// To how many addresses of a node paths are proved at most: the one of its session, and [`GIVEN`] others.
pub(crate) const ADDRESSES: u32 = 5;

impl Reach {
    /// Other nodes prove their paths to `port`, or prove none if `port` is 0. `links` have the order of the
    /// endpoints.
    pub fn new(port: u16, links: impl IntoIterator<Item = Link>) -> Self {
        Self { port: NonZeroU16::new(port), links: links.into_iter().collect(), given: List::default() }
    }

    /// Also by these addresses: the first [`GIVEN`] of them.
    pub(crate) fn with(mut self, given: impl IntoIterator<Item = Link>) -> Self {
        self.given = given.into_iter().collect();
        self
    }

    /// The other addresses that the job uses.
    pub(crate) fn given(&self) -> &[Link] {
        &self.given
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    /// All addresses that the job uses.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().chain(self.given.iter())
    }

    /// The port to which paths are proved.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port.map(NonZeroU16::get)
    }
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            slots: 1,
            metadata: Metadata::default(),
            may_be_master: true,
            wants_roster: false,
            session_port: 0,
            fabric: Summary::default(),
            requires_same: false,
            paths: Paths::default(),
            rank_key: RankKey::default(),
            user: User::default(),
        }
    }
}

impl NodeInfo {
    /// A node without a given rank and with the default attributes.
    pub fn new(host: HostName, endpoints: Endpoints) -> Self {
        let (reach, attributes) = (Reach::default(), Attributes::default());
        Self { rank: None, host, endpoints, reach, attributes }
    }

    /// Leaves the endpoints of one family, with their links, if the node has any.
    pub(crate) fn keep_family(&mut self, is_ipv6: bool) {
        let Some(endpoints) = self.endpoints.of_family(is_ipv6) else { return };
        let links = self.endpoints.iter().zip(self.reach.links.iter());
        let kept = links.filter(|(endpoint, _)| endpoint.is_ipv6() == is_ipv6).map(|(_, link)| *link);
        self.reach.links = kept.collect();
        let given = self.reach.given.iter().filter(|link| link.address.is_ipv6() == is_ipv6);
        self.reach.given = given.copied().collect();
        self.endpoints = endpoints;
    }

    /// The link of the job in this family, where the node was reached at `at`, or else at the endpoint that
    /// it prefers.
    pub(crate) fn link(&self, at: Option<IpAddr>, is_ipv6: bool) -> Link {
        let links = self.endpoints.iter().zip(self.reach.links.iter());
        let mut of_family = links.filter(|(_, link)| link.address.is_ipv6() == is_ipv6);
        let found =
            of_family.clone().find(|(endpoint, _)| Some(endpoint.ip()) == at).or_else(|| of_family.next());
        let preferred =
            self.endpoints.of_family(is_ipv6).unwrap_or_else(|| self.endpoints.clone()).preferred();
        found.map_or_else(|| Link::unknown(preferred.ip()), |(_, link)| *link)
    }

    /// The node's name, with each of its addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&HostName, IpAddr)> {
        self.endpoints.iter().map(|endpoint| (&self.host, endpoint.ip()))
    }

    /// Whether the node has this address.
    pub(crate) fn is_at(&self, address: IpAddr) -> bool {
        self.hosts().any(|(_, own)| own == address)
    }

    /// The first of another node's endpoints, if none is in any of this node's networks and all of these are
    /// known: of an interface that has several addresses the link is that of the first.
    pub(crate) fn elsewhere(&self, endpoints: &[SocketAddr]) -> Option<Elsewhere> {
        let networks: Vec<Link> =
            self.reach.links().iter().filter(|link| link.is_network()).copied().collect();
        let is_within = |endpoint: &SocketAddr| networks.iter().any(|link| link.has(endpoint.ip()));
        let address = endpoints.first()?.ip();
        let is_elsewhere = self.endpoints.iter().all(is_within) && !endpoints.iter().any(is_within);
        is_elsewhere.then_some(Elsewhere { address, networks })
    }

    /// The name and the preferred endpoint of the node, by which people recognize it.
    pub fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn link(text: &str) -> Link {
        Link { address: ip(text), prefix: 24, mtu: 1500 }
    }

    /// A node with two addresses of each family; on the link of the second, another one is first.
    fn node() -> NodeInfo {
        let endpoints =
            ["10.0.0.1", "fd00::1", "10.0.1.2", "fd01::2"].map(|text| SocketAddr::new(ip(text), 29500));
        let mut node = NodeInfo::new(HostName::new("a"), Endpoints::new(endpoints.to_vec()).unwrap());
        node.reach = Reach::new(40_000, ["10.0.0.1", "fd00::1", "10.0.1.1", "fd01::1"].map(link));
        node
    }

    #[test]
    fn an_address_is_elsewhere_if_no_network_of_its_family_has_it() {
        let mut node = node();
        node.keep_family(false);
        let at = |addresses: &[&str]| {
            addresses.iter().map(|text| SocketAddr::new(ip(text), 29500)).collect::<Vec<_>>()
        };
        for (addresses, is_elsewhere) in [
            (vec!["10.0.1.9"], false),
            (vec!["10.0.2.9"], true),
            (vec!["10.0.2.9", "10.0.0.9"], false),
            (vec![], false),
        ] {
            assert_eq!(node.elsewhere(&at(&addresses)).is_some(), is_elsewhere, "{addresses:?}");
        }
        let text = "10.0.2.9 is in no network of this host (10.0.0.1/24, 10.0.1.1/24)";
        assert_eq!(node.elsewhere(&at(&["10.0.2.9"])).unwrap().to_string(), text);
        // A network of this node is not known: its interface has another address before this one.
        let other = at(&["192.168.55.1"]);
        let mut second = NodeInfo::new(HostName::new("a"), other[0].into());
        second.reach = Reach::new(40_000, [link("10.0.0.1")]);
        assert_eq!(second.elsewhere(&at(&["192.168.55.3"])), None);
        // A pod's own address is no network, so that nothing can be said.
        let alone = NodeInfo::new(HostName::new("a"), at(&["10.0.0.1"])[0].into());
        assert_eq!(alone.elsewhere(&at(&["10.0.2.9"])), None);
    }

    #[test]
    fn the_endpoints_of_one_family_keep_their_links() {
        for (is_ipv6, endpoints, links) in [
            (false, ["10.0.0.1", "10.0.1.2"], ["10.0.0.1", "10.0.1.1"]),
            (true, ["fd00::1", "fd01::2"], ["fd00::1", "fd01::1"]),
        ] {
            let mut node = node();
            node.keep_family(is_ipv6);
            let kept: Vec<IpAddr> = node.endpoints.iter().map(SocketAddr::ip).collect();
            assert_eq!(kept, endpoints.map(ip));
            assert_eq!(node.reach.links(), links.map(link));
            // It has none of the other.
            let before = node.clone();
            node.keep_family(!is_ipv6);
            assert_eq!(node, before);
        }
    }

    #[test]
    fn of_the_other_addresses_that_a_job_uses_those_of_the_family_stay() {
        for (is_ipv6, given) in [(false, ["10.2.0.1", "10.3.0.1"]), (true, ["fd02::1", "fd03::1"])] {
            let mut node = node();
            node.reach = node.reach.with(["10.2.0.1", "fd02::1", "fd03::1", "10.3.0.1"].map(link));
            node.keep_family(is_ipv6);
            assert_eq!(node.reach.given(), given.map(link));
        }
    }

    #[test]
    fn the_link_is_that_of_the_endpoint_that_was_reached_or_else_the_first_of_the_family() {
        let node = node();
        for (at, is_ipv6, expected) in [
            (None, false, "10.0.0.1"),
            (None, true, "fd00::1"),
            (Some("10.0.1.2"), false, "10.0.1.1"),
            (Some("fd01::2"), true, "fd01::1"),
            (Some("192.0.2.1"), false, "10.0.0.1"),
            (Some("10.0.1.2"), true, "fd00::1"),
            // The link's own address is no endpoint.
            (Some("10.0.1.1"), false, "10.0.0.1"),
        ] {
            assert_eq!(node.link(at.map(ip), is_ipv6), link(expected), "{at:?}, IPv6: {is_ipv6}");
        }
    }

    #[test]
    fn without_links_the_preferred_endpoint_of_the_family_is_the_address() {
        let mut node = node();
        node.reach = Reach::default();
        assert_eq!(node.link(Some(ip("10.0.1.2")), false), Link::unknown(ip("10.0.0.1")));
        assert_eq!(node.link(None, true), Link::unknown(ip("fd00::1")));
        node.keep_family(true);
        assert_eq!(node.link(None, false), Link::unknown(ip("fd00::1")), "it has no other");
    }

    #[test]
    fn a_port_to_which_paths_are_proved_is_not_zero() {
        assert_eq!((node().reach.port(), Reach::new(0, []).port()), (Some(40_000), None));
    }
}
