//! DGX Sparks with cables between them, or at a switch.

use std::net::IpAddr;

use ipnet::IpNet;
use mingle_rdma::{AddressFamily, Machine, PortState};

/// The ring of three as NVIDIA's playbook has it (connect-three-sparks/README.md): the addresses of each
/// host's enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1 and enP2p1s0f1np1.
pub(crate) const RING: [[&str; 4]; 3] = [
    ["192.168.0.1/24", "192.168.1.1/24", "192.168.2.1/24", "192.168.3.1/24"],
    ["192.168.4.1/24", "192.168.5.1/24", "192.168.0.2/24", "192.168.1.2/24"],
    ["192.168.2.2/24", "192.168.3.2/24", "192.168.4.2/24", "192.168.5.2/24"],
];

/// Each port of a host has a network of its own, which is that of the same port of the other hosts.
const RAILS: [[&str; 4]; 3] = [
    ["10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24"],
    ["10.0.0.2/24", "10.0.1.2/24", "10.0.2.2/24", "10.0.3.2/24"],
    ["10.0.0.3/24", "10.0.1.3/24", "10.0.2.3/24", "10.0.3.3/24"],
];

/// The other networks, each with its hosts; an empty text stands for a port that is down.
pub(crate) const OTHERS: [(&str, &[[&str; 4]]); 6] = [
    (
        "a pair with one cable",
        &[["10.0.0.1/24", "10.0.1.1/24", "", ""], ["10.0.0.2/24", "10.0.1.2/24", "", ""]],
    ),
    ("a pair with two cables", &[RAILS[0], RAILS[1]]),
    (
        "a switch with one network",
        &[
            ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24"],
            ["10.0.0.5/24", "10.0.0.6/24", "10.0.0.7/24", "10.0.0.8/24"],
            ["10.0.0.9/24", "10.0.0.10/24", "10.0.0.11/24", "10.0.0.12/24"],
        ],
    ),
    ("rails", &RAILS),
    (
        "a ring of three without one of its cables",
        &[
            ["10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24"],
            ["", "", "10.0.0.2/24", "10.0.1.2/24"],
            ["10.0.2.2/24", "10.0.3.2/24", "", ""],
        ],
    ),
    (
        "a ring of four",
        &[
            ["10.0.0.1/24", "", "10.0.1.1/24", ""],
            ["10.0.1.2/24", "", "10.0.2.1/24", ""],
            ["10.0.2.2/24", "", "10.0.3.1/24", ""],
            ["10.0.3.2/24", "", "10.0.0.2/24", ""],
        ],
    ),
];

/// A DGX Spark with these addresses.
pub(crate) fn spark(addresses: [&str; 4]) -> Machine {
    let mut machine = Machine::from_snapshot(&super::machines().join("dgx-spark")).expect("a saved machine");
    let names = ["rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"];
    for (name, address) in names.iter().zip(addresses) {
        let port = &mut machine
            .devices
            .iter_mut()
            .find(|device| device.name == *name)
            .expect("a device of it")
            .ports[0];
        let Ok(net) = address.parse::<IpNet>() else {
            port.state = Some(PortState(1));
            continue;
        };
        let IpAddr::V4(own) = net.addr() else { panic!("{address} is not of IPv4") };
        for entry in port.gids.iter_mut().filter(|entry| entry.family() == AddressFamily::Ipv4) {
            entry.gid = own.to_ipv6_mapped();
            let is_its = |held: &&mut mingle_rdma::Address| Some(&held.interface) == entry.interface.as_ref();
            machine.addresses.iter_mut().find(is_its).expect("an address of it").net = net;
        }
    }
    machine
}
