//! A node as it describes itself to its leader.

use std::net::IpAddr;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::model::{Endpoints, HostName, Link, List, Metadata, Paths, Peer, Rank};
use crate::rdma::Summary;

/// A node as it describes itself to its leader. A join carries it, and the leader's book of members keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The rank that the user gave to the node; none where the leader assigns one.
    pub rank: Option<Rank>,
    /// The name that the host has for itself.
    pub host: HostName,
    /// The endpoints at which the node can be reached, TCP and UDP.
    pub endpoints: Endpoints,
    /// The addresses that the job uses, and the port to which paths are proved.
    pub reach: Reach,
    /// The other facts about the node, which the caller gives.
    pub attributes: Attributes,
}

/// The facts that the caller gives about a node, beside its name and its endpoints.
///
/// A new attribute of a node goes here: the join carries it to the leader, and all code reads it from here.
/// The order of the fields is their order on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// How many workers the node will run, usually one for each GPU.
    pub slots: u32,
    /// What the node's launcher wants the other nodes to know.
    pub metadata: Metadata,
    /// Whether the node may become the master without having been given rank 0.
    pub may_be_master: bool,
    /// Whether the node wants the roster.
    pub wants_roster: bool,
    /// The host's RDMA devices, for the leader to compare.
    pub fabric: Summary,
    /// A hash of the variables that the user sets for all ranks, for the leader to compare; 0 where there are
    /// none.
    pub settings: u64,
    /// Which paths between the nodes are proved.
    pub paths: Paths,
}

/// Where the job reaches a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reach {
    /// The port to which the others prove their paths, TCP. None for a node to which no path is proved.
    port: Option<NonZeroU16>,
    /// For each endpoint that a message carries, the link that the job uses where that endpoint is reached.
    links: List<Link, { Endpoints::ADVERTISED }>,
}

impl Reach {
    /// Others prove their paths to `port`; none do if it is 0. `links` are in the order of the endpoints.
    pub fn new(port: u16, links: impl IntoIterator<Item = Link>) -> Self {
        Self { port: NonZeroU16::new(port), links: links.into_iter().collect() }
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether the job uses this address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.links.iter().any(|link| link.address == address)
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
            fabric: Summary::default(),
            settings: 0,
            paths: Paths::default(),
        }
    }
}

impl NodeInfo {
    /// A node without a given rank and with the default attributes.
    pub fn new(host: HostName, endpoints: Endpoints) -> Self {
        Self { rank: None, host, endpoints, reach: Reach::default(), attributes: Attributes::default() }
    }

    /// Leaves the endpoints of one family, with their links, if the node has any.
    pub(crate) fn keep_family(&mut self, is_ipv6: bool) {
        let Some(endpoints) = self.endpoints.of_family(is_ipv6) else { return };
        let links = self.endpoints.iter().zip(self.reach.links.iter());
        let kept = links.filter(|(endpoint, _)| endpoint.is_ipv6() == is_ipv6).map(|(_, link)| *link);
        self.reach.links = kept.collect();
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

    /// The name and the preferred endpoint of the node, by which people recognize it.
    pub fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}
