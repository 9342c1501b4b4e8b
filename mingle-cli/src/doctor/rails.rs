//! The ports of this host for RDMA over Ethernet, and which ports of other hosts each of them hears.
//!
//! Each port multicasts its number in the group of the job, and listens there by itself. So a datagram
//! arrives on the port at the other end of the cable and on no other port: a multicast needs neither a route
//! nor ARP, which Linux answers on every interface for every address of the host (arp_ignore in
//! Documentation/networking/ip-sysctl.rst).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use mingle_core::rdma::{LinkLayer, Machine, NodeType, Relation};
use mingle_core::tools::{Cast, Interface, Station, interfaces};
use mingle_core::{JobId, Network};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::live::Arrived;
use super::notice::{HOSTS, HostNotice, RAILS, Rail, decode, encode, is_name};

/// The pause between two multicasts of a port.
const PERIOD: Duration = Duration::from_millis(200);

/// The ports for RDMA over Ethernet that have a network interface in this namespace.
pub(super) fn of_host<'a>(machine: &Machine, all: impl Iterator<Item = &'a Interface>) -> Vec<Rail> {
    let is_roce = |kind: Option<NodeType>| kind != Some(NodeType::RNIC);
    let mut names = BTreeSet::new();
    for device in machine.devices.iter().filter(|device| is_roce(device.node_type)) {
        for port in device.ports.iter().filter(|port| port.link_layer == LinkLayer::Ethernet) {
            // A bond or VLAN above the device's own interface has the addresses.
            let above = port.gids.iter().filter(|entry| entry.relation == Relation::Own);
            names.extend(above.filter_map(|entry| entry.interface.as_deref()));
            names.extend(device.interfaces.iter().map(String::as_str));
        }
    }
    let rail = |interface: &Interface| {
        let networks = interface.addresses.iter().filter(|net| !is_link_local(net.addr()));
        Rail {
            by: interface.name.clone(),
            networks: networks.take(RAILS).map(|net| net.trunc().to_string()).collect(),
            up: interface.up,
            heard: BTreeMap::new(),
        }
    };
    let is_its = |name: &str| names.contains(name) && is_name(name);
    all.filter(|interface| is_its(&interface.name)).map(rail).take(RAILS).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Notes which ports have a link now: the kernel learns of a cable that was pulled about a second later.
pub(super) fn update(rails: &mut [Rail], network: &Network) {
    let Ok(all) = interfaces(network) else { return };
    for rail in rails {
        rail.up = all.iter().any(|nic| nic.interface.name == rail.by && nic.interface.up);
    }
}

/// Lets each port send and listen, until the meeting is over. A port without an address does neither.
pub(super) fn listen(
    rails: &[Rail],
    me: u32,
    job: &JobId,
    network: &Network,
    sender: &mpsc::Sender<Arrived>,
) {
    for (here, rail) in rails.iter().enumerate() {
        let Ok(filter) = rail.by.parse() else { continue };
        let mut alone = network.clone();
        (alone.interfaces, alone.broadcast) = (vec![filter], false);
        let Ok(station) = Station::of_observer(job, &alone) else { continue };
        let (tag, hello) = (job.tag(), encode(job.tag(), &HostNotice::Rail(me, here)));
        tokio::spawn(exchange(station, hello, sender.clone(), move |bytes| match decode(tag, bytes) {
            Some(HostNotice::Rail(id, there)) if (id, there) != (me, here) && there < RAILS => {
                Some(Arrived::Rail { here, id, there })
            }
            _ => None,
        }));
    }
}

/// Sends the hello of a port again and again, and passes on what the port hears, each once.
async fn exchange(
    mut station: Station,
    hello: Vec<u8>,
    sender: mpsc::Sender<Arrived>,
    read: impl Fn(&[u8]) -> Option<Arrived>,
) {
    let (mut ticks, mut known) = (interval(PERIOD), BTreeSet::new());
    while !sender.is_closed() {
        tokio::select! {
            (_, cast, bytes) = station.receive() => {
                let is_new = cast == Cast::Multicast && known.len() < HOSTS * RAILS && !known.contains(&bytes);
                if is_new && let Some(arrived) = read(&bytes) {
                    known.insert(bytes);
                    // An error means that the meeting is over.
                    let _ = sender.send(arrived).await;
                }
            }
            // A port that cannot send is heard by nobody, which the others say.
            _ = ticks.tick() => drop(station.send_to_all(&hello)),
        }
    }
}
