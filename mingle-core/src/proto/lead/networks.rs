//! Which network the nodes of a world use, where their hosts are on several.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::ranks::Applicant;
use crate::model::{HostName, Link, NodeId, Paths};

/// How the job reaches the nodes of a round.
#[derive(Debug)]
pub(super) struct RoundNetwork {
    /// Which paths are proved.
    pub(super) paths: Paths,
    /// Where each node is reached.
    pub(super) links: BTreeMap<NodeId, Link>,
    /// How many possibilities there are.
    pub(super) ways: usize,
}

impl RoundNetwork {
    /// The network for these nodes, of which the leader is the first, in their `turn`th attempt.
    ///
    /// Each node is reached where its session has come from. If the sessions have reached the leader on
    /// several networks, nodes of one may not reach those of another, so a network that all are on comes
    /// first. After a round of broken paths the next possibility is tried.
    pub(super) fn settle(applicants: &[Applicant], turn: usize) -> Self {
        let is_ipv6 = applicants.first().is_some_and(|leader| leader.address().is_ipv6());
        let paths = applicants.iter().map(|a| a.node.attributes.paths).max().unwrap_or_default();
        let mut ways: Vec<Option<Link>> = common(applicants, is_ipv6).into_iter().map(Some).collect();
        ways.insert(if meet_on_one(applicants, is_ipv6) { 0 } else { ways.len() }, None);
        let link = |a: &Applicant, common: Option<Link>| match common {
            Some(network) => a.link_on(&network).unwrap_or(network),
            None => by_session(a, paths, is_ipv6),
        };
        // The sessions may have come by one of the networks that all are on, or one has come twice: that is
        // no other way.
        let mut tried: Vec<Vec<Link>> = Vec::new();
        for common in ways {
            let links: Vec<Link> = applicants.iter().map(|a| link(a, common)).collect();
            if !tried.contains(&links) {
                tried.push(links);
            }
        }
        let ways = tried.len();
        let links = tried.swap_remove(turn % ways);
        Self { paths, links: applicants.iter().map(|a| a.id).zip(links).collect(), ways }
    }
}

/// Whether all sessions have reached the leader at one address.
fn meet_on_one(applicants: &[Applicant], is_ipv6: bool) -> bool {
    let met = applicants.iter().skip(1).filter_map(|applicant| applicant.met);
    let mut met = met.filter(|address| address.is_ipv6() == is_ipv6);
    let first = met.next();
    met.all(|address| Some(address) == first)
}

/// The networks that all nodes are on, as the leader's links to them. One on which it has two links comes
/// twice.
fn common(applicants: &[Applicant], is_ipv6: bool) -> Vec<Link> {
    let Some((leader, others)) = applicants.split_first() else { return Vec::new() };
    let own = leader.node.reach.links().iter().copied();
    own.filter(|link| link.address.is_ipv6() == is_ipv6 && link.is_network())
        .filter(|link| others.iter().all(|other| other.link_on(link).is_some()))
        .filter(|link| !is_everywhere(applicants, link))
        .collect()
}

/// Whether hosts have one address on this network, as on a bridge inside each of them (172.17.0.1, say).
fn is_everywhere(applicants: &[Applicant], network: &Link) -> bool {
    let mut hosts: BTreeMap<IpAddr, &HostName> = BTreeMap::new();
    applicants.iter().any(|applicant| {
        let link = applicant.link_on(network);
        link.is_some_and(|link| {
            *hosts.entry(link.address).or_insert(&applicant.node.host) != &applicant.node.host
        })
    })
}

/// The link of the job where the session has come from. Where no path to the node is proved beside that to
/// the master, the session is the only proof of an address, but for one that was translated on the way, which
/// is not the node's.
fn by_session(applicant: &Applicant, paths: Paths, is_ipv6: bool) -> Link {
    let link = applicant.node.link(applicant.session, is_ipv6);
    let has = |ip: IpAddr| applicant.node.endpoints.iter().any(|endpoint| endpoint.ip() == ip);
    let proved = applicant.session.filter(|&session| session.is_ipv6() == is_ipv6 && has(session));
    let is_proof = paths == Paths::Master || applicant.node.reach.port().is_none();
    let address = proved.filter(|_| is_proof).unwrap_or(link.address);
    Link { address, ..link }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::{Endpoints, HostName};
    use crate::wire::{NodeInfo, Reach};

    /// A node with these addresses, whose session has come from the last of them to this address of the
    /// leader.
    fn applicant(number: u8, addresses: &[&str], met: &str) -> Applicant {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let endpoints = addresses.iter().map(|&address| SocketAddr::new(address, 29500)).collect();
        let prefix = |address: IpAddr| if address.is_ipv6() { 64 } else { 24 };
        let links = addresses.iter().map(|&address| Link { address, prefix: prefix(address), mtu: 1500 });
        let mut node = NodeInfo::new(HostName::new("host"), Endpoints::new(endpoints).unwrap());
        node.reach = Reach::new(40_000, links);
        let session = addresses.last().copied();
        Applicant {
            id: NodeId([number; 16]),
            node,
            session,
            met: met.parse().ok(),
            traits: std::sync::Arc::default(),
            is_former: false,
        }
    }

    fn reached(network: &RoundNetwork) -> Vec<String> {
        network.links.values().map(|link| link.address.to_string()).collect()
    }

    fn in_three_turns(nodes: &[Applicant]) -> [Vec<String>; 3] {
        [0, 1, 2].map(|turn| reached(&RoundNetwork::settle(nodes, turn)))
    }

    const BOTH: [&str; 2] = ["10.2.0.1", "10.1.0.1"];

    #[test]
    fn nodes_are_reached_where_their_sessions_have_come_from() {
        let nodes = [
            applicant(1, &BOTH, ""),
            applicant(2, &["10.2.0.2", "10.1.0.2"], "10.1.0.1"),
            applicant(3, &["10.2.0.3", "10.1.0.3"], "10.1.0.1"),
        ];
        let network = RoundNetwork::settle(&nodes, 0);
        assert_eq!(reached(&network), ["10.1.0.1", "10.1.0.2", "10.1.0.3"]);
        // After a round of broken paths the other network follows, and then the first again.
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 1)), ["10.2.0.1", "10.2.0.2", "10.2.0.3"]);
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 2)), reached(&network));
    }

    #[test]
    fn nodes_that_have_met_on_several_networks_use_one_that_all_are_on() {
        let nodes = [
            applicant(1, &BOTH, ""),
            applicant(2, &["10.2.0.2", "10.1.0.2"], "10.1.0.1"),
            applicant(3, &["10.2.0.3"], "10.2.0.1"),
        ];
        let network = RoundNetwork::settle(&nodes, 0);
        assert_eq!(reached(&network), ["10.2.0.1", "10.2.0.2", "10.2.0.3"]);
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 1)), ["10.1.0.1", "10.1.0.2", "10.2.0.3"]);
    }

    #[test]
    fn a_second_address_on_a_network_is_no_other_way() {
        let nodes = [
            applicant(1, &["10.2.0.1", "10.2.0.9", "10.1.0.1"], ""),
            applicant(2, &["10.2.0.2", "10.2.0.8", "10.1.0.2"], "10.1.0.1"),
        ];
        assert_eq!(
            in_three_turns(&nodes),
            [["10.1.0.1", "10.1.0.2"], ["10.2.0.1", "10.2.0.2"], ["10.1.0.1", "10.1.0.2"]]
        );
    }

    #[test]
    fn a_bridge_with_one_address_on_every_host_is_no_common_network() {
        let both = ["172.17.0.1", "10.1.0.1"];
        let mut nodes = [applicant(1, &both, ""), applicant(2, &["172.17.0.1", "10.1.0.2"], "10.1.0.1")];
        nodes[1].node.host = HostName::new("other");
        for turn in 0..3 {
            assert_eq!(reached(&RoundNetwork::settle(&nodes, turn)), ["10.1.0.1", "10.1.0.2"]);
        }
        // Two nodes on one host do share its addresses.
        nodes[1].node.host = nodes[0].node.host.clone();
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 1)), ["172.17.0.1", "172.17.0.1"]);
    }

    #[test]
    fn a_network_of_the_other_address_family_is_no_way() {
        let nodes = [
            applicant(1, &["10.1.0.1", "fd00::1", "10.2.0.1"], ""),
            applicant(2, &["10.1.0.2", "fd00::2", "10.2.0.2"], "10.2.0.1"),
        ];
        assert_eq!(
            in_three_turns(&nodes),
            [["10.2.0.1", "10.2.0.2"], ["10.1.0.1", "10.1.0.2"], ["10.2.0.1", "10.2.0.2"]]
        );
    }

    #[test]
    fn without_a_common_network_nodes_are_reached_by_their_sessions_alone() {
        let nodes = [applicant(1, &BOTH, ""), applicant(2, &["10.9.0.2"], "10.1.0.1")];
        for turn in 0..3 {
            assert_eq!(reached(&RoundNetwork::settle(&nodes, turn)), ["10.1.0.1", "10.9.0.2"]);
        }
    }

    #[test]
    fn where_only_the_master_is_proved_an_address_is_that_of_the_lease() {
        let mut nodes = [applicant(1, &BOTH, ""), applicant(2, &["10.1.0.2", "10.1.0.9"], "10.1.0.1")];
        // The first address of the interface is another one.
        let first = Link { address: "10.1.0.2".parse().unwrap(), prefix: 24, mtu: 1500 };
        nodes[1].node.reach = Reach::new(40_000, [first, first]);
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", "10.1.0.2"]);
        for node in &mut nodes {
            node.node.attributes.paths = Paths::Master;
        }
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", "10.1.0.9"]);
    }

    #[test]
    fn where_only_the_master_is_proved_a_session_that_is_no_address_of_the_node_is_not_used() {
        let mut nodes =
            [applicant(1, &["10.1.0.1"], ""), applicant(2, &["10.2.0.2", "10.3.0.2", "fd01::2"], "fd01::1")];
        for node in &mut nodes {
            node.node.attributes.paths = Paths::Master;
        }
        // It has come by the other family, or through a translation.
        for (session, expected) in
            [("fd01::2", "10.2.0.2"), ("10.3.0.2", "10.3.0.2"), ("192.0.2.7", "10.2.0.2")]
        {
            nodes[1].session = session.parse().ok();
            assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", expected], "{session}");
        }
    }

    #[test]
    fn a_world_of_ipv6_is_reached_at_addresses_of_ipv6() {
        let mut nodes = [
            applicant(1, &["fd02::1", "fd01::1"], ""),
            applicant(2, &["fd02::2", "fd01::2"], "fd01::1"),
            applicant(3, &["fd02::3"], "fd02::1"),
        ];
        // The sessions have come to two addresses, and there is one network that all are on.
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["fd02::1", "fd02::2", "fd02::3"]);
        nodes[2] = applicant(3, &["fd02::3", "fd01::3"], "fd01::1");
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["fd01::1", "fd01::2", "fd01::3"]);
    }

    #[test]
    fn leases_of_the_other_family_do_not_say_that_nodes_have_met_on_two_networks() {
        let mut nodes = [
            applicant(1, &BOTH, ""),
            applicant(2, &["10.2.0.2", "10.1.0.2"], "10.1.0.1"),
            applicant(3, &["10.2.0.3", "10.1.0.3"], "fd01::1"),
        ];
        nodes[2].session = "fd01::3".parse().ok();
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", "10.1.0.2", "10.2.0.3"]);
    }
}
