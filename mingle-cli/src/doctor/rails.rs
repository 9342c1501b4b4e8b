//! The ports of this host for RDMA over Ethernet.
//!
//! Each port multicasts its name in the group of the job, and listens there by itself. So a datagram
//! arrives on the port at the other end of the cable and on no other port: a multicast needs no ARP, which
//! Linux answers on every interface for every address of the host, and from a link-local address of IPv6 no
//! route back, which a strict reverse-path filter asks for (arp_ignore and rp_filter in
//! Documentation/networking/ip-sysctl.rst).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use mingle_core::Network;
use mingle_core::rdma::{LinkLayer, Machine, NodeType, Relation};
use mingle_core::tools::{Interface, interfaces};

use super::notice::{RAILS, Rail, is_name};

/// The ports for RDMA over Ethernet that have a network interface in this namespace and are not excluded;
/// none with `--multicast off`. Ports with an address come first: of very many virtual functions the rest is
/// left out.
pub(super) fn of_host(machine: &Machine, network: &Network) -> Vec<Rail> {
    let all = interfaces(network).unwrap_or_default();
    let mut names = BTreeSet::new();
    let is_wanted = |kind| network.multicast && kind != Some(NodeType::RNIC);
    for device in machine.devices.iter().filter(|device| is_wanted(device.node_type)) {
        for port in device.ports.iter().filter(|port| port.link_layer == LinkLayer::Ethernet) {
            // A bond or VLAN above the device's own interface has the addresses.
            let above = port.gids.iter().filter(|entry| entry.relation == Relation::Own);
            names.extend(above.filter_map(|entry| entry.interface.as_deref()));
            names.extend(device.interfaces.iter().map(String::as_str));
        }
    }
    let excludes = |interface: &Interface| {
        let has = |address: IpAddr| {
            network.interfaces.iter().any(|filter| filter.excludes(&interface.name, address))
        };
        // A port without an address is excluded by its name.
        has(Ipv4Addr::UNSPECIFIED.into()) || interface.addresses.iter().any(|net| has(net.addr()))
    };
    let is_rail = |interface: &&Interface| {
        names.contains(interface.name.as_str()) && is_name(&interface.name) && !excludes(interface)
    };
    let rail = |interface: &Interface| Rail {
        by: interface.name.clone(),
        networks: networks(interface),
        up: interface.up,
        heard: BTreeSet::new(),
    };
    let mut rails: Vec<Rail> = all.iter().map(|nic| &nic.interface).filter(is_rail).map(rail).collect();
    rails.sort_by_key(|rail| rail.networks.is_empty());
    rails.truncate(RAILS);
    rails
}

/// The networks of an interface, without those of IPv6's link-local addresses, which every interface has.
fn networks(interface: &Interface) -> Vec<String> {
    let is_everywhere = |address| matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let nets = interface.addresses.iter().filter(|net| !is_everywhere(net.addr()));
    nets.take(RAILS).map(|net| net.trunc().to_string()).collect()
}
