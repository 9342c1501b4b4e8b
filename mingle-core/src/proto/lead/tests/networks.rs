//! The addresses at which the nodes of a world are reached, if there are both families.

use std::net::{IpAddr, SocketAddr};

use super::id;
use crate::model::{Endpoints, HostName, Link, Paths};
use crate::proto::lead::networks::RoundNetwork;
use crate::proto::lead::ranks::Applicant;
use crate::wire::{NodeInfo, Reach};

/// A node with these addresses and links, whose lease has come from an address to one of the leader's.
fn applicant(number: u8, addresses: &[&str], lease: &str, met: &str) -> Applicant {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let endpoints = addresses.iter().map(|&address| SocketAddr::new(address, 29500)).collect();
    let prefix = |address: IpAddr| if address.is_ipv6() { 64 } else { 24 };
    let links = addresses.iter().map(|&address| Link { address, prefix: prefix(address), mtu: 1500 });
    let mut node =
        NodeInfo::new(HostName::new(&format!("host-{number}")), Endpoints::new(endpoints).unwrap());
    node.reach = Reach::new(40_000, links);
    Applicant { id: id(number), node, lease: lease.parse().ok(), met: met.parse().ok() }
}

fn reached(network: &RoundNetwork) -> Vec<String> {
    network.links.values().map(|link| link.address.to_string()).collect()
}

#[test]
fn a_world_of_ipv6_is_reached_at_addresses_of_ipv6() {
    let mut nodes = [
        applicant(1, &["fd02::1", "fd01::1"], "fd01::1", ""),
        applicant(2, &["fd02::2", "fd01::2"], "fd01::2", "fd01::1"),
        applicant(3, &["fd02::3"], "fd02::3", "fd02::1"),
    ];
    // The leases have come to two addresses, and there is one network that all are on.
    assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["fd02::1", "fd02::2", "fd02::3"]);
    nodes[2] = applicant(3, &["fd02::3", "fd01::3"], "fd01::3", "fd01::1");
    assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["fd01::1", "fd01::2", "fd01::3"]);
}

#[test]
fn leases_of_the_other_family_do_not_say_that_nodes_have_met_on_two_networks() {
    let nodes = [
        applicant(1, &["10.2.0.1", "10.1.0.1"], "10.1.0.1", ""),
        applicant(2, &["10.2.0.2", "10.1.0.2"], "10.1.0.2", "10.1.0.1"),
        applicant(3, &["10.2.0.3", "10.1.0.3"], "fd01::3", "fd01::1"),
    ];
    assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", "10.1.0.2", "10.2.0.3"]);
}

#[test]
fn where_only_the_master_is_proved_a_lease_of_the_other_family_is_no_address() {
    let mut nodes = [
        applicant(1, &["10.1.0.1"], "10.1.0.1", ""),
        applicant(2, &["10.2.0.2", "10.3.0.2", "fd01::2"], "fd01::2", "fd01::1"),
    ];
    for (lease, expected) in [("fd01::2", "10.2.0.2"), ("10.3.0.2", "10.3.0.2"), ("192.0.2.7", "10.2.0.2")] {
        nodes[1].lease = lease.parse().ok();
        for node in &mut nodes {
            node.node.attributes.paths = Paths::Master;
        }
        assert_eq!(reached(&RoundNetwork::settle(&nodes, 0)), ["10.1.0.1", expected], "{lease}");
    }
}
