//! Fabrics: the RDMA devices of a host, and what a world of such hosts must agree on.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use mingle_core::rdma::{
    Address, AddressFamily, LinkLayer, Machine, NodeType, PortState, Rails, Summary, Transport, Verbs,
};
use mingle_core::{Trait, Traits};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The RDMA devices of a host, and what its user has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    NotExamined,
    Nothing,
    Unusable,
    Disabled,
    InfiniBand,
    Efa,
    /// RoCE, with GIDs of one family or of both.
    Roce4,
    Roce6,
    Roce,
}

use Fabric::{Disabled, Efa, InfiniBand, NotExamined, Nothing, Roce, Roce4, Roce6, Unusable};

const ALL: [Fabric; 9] = [NotExamined, Nothing, Unusable, Disabled, InfiniBand, Efa, Roce4, Roce6, Roce];

/// The fabrics of a world: most hosts have the usual one. They have random numbers of their own, so that a
/// change here does not change the rest of a seed's world.
pub(super) struct Fabrics {
    rng: Xoshiro256PlusPlus,
    usual: Fabric,
    odd: f64,
    values: u64,
}

impl Fabrics {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xfab);
        let usual = ALL[rng.random_range(0..ALL.len())];
        let odd = [0.0, 0.1, 0.5][rng.random_range(0..3)];
        // What was drawn here once: the rest of a seed's world stays what it was.
        let _ = rng.random_range(0..3);
        Self { rng, usual, odd, values: 1 }
    }

    /// From now on hosts may have other traits than the rest: in each third seed one of two, or each its own.
    pub(super) fn vary_traits(&mut self, seed: u64) {
        self.values = [1, 2, u64::MAX][usize::try_from(seed % 3).unwrap()];
    }

    /// The next host's fabric, its summary, and its traits.
    pub(super) fn next(&mut self) -> (Fabric, Summary, Traits) {
        let odd = self.rng.random_bool(self.odd);
        let fabric = if odd { ALL[self.rng.random_range(0..ALL.len())] } else { self.usual };
        let slow = self.rng.random_bool(self.odd);
        let value = self.rng.random_range(0..self.values);
        let traits = [Trait::shown("image", value.to_string()), Trait::shown("cpu", "any")];
        (fabric, fabric.summary(slow), traits.into_iter().collect())
    }
}

/// A machine with a RoCE port that has a GID of either family. All fabrics are variations of it.
fn machine() -> Machine {
    let folder = std::env::temp_dir().join(format!("sim-fabric-{}", std::process::id()));
    let port = "class/infiniband/mlx5_0/ports/1";
    for (file, text) in [
        ("addrs.txt".to_owned(), "eth0 inet 10.0.0.1/24\neth0 inet6 fd00::1/64\n"),
        ("class/infiniband/mlx5_0/node_type".to_owned(), "1: CA\n"),
        (format!("{port}/state"), "4: ACTIVE\n"),
        (format!("{port}/link_layer"), "Ethernet\n"),
        (format!("{port}/rate"), "400 Gb/sec (4X NDR)\n"),
        (format!("{port}/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        (format!("{port}/gids/1"), "fd00:0000:0000:0000:0000:0000:0000:0001\n"),
        (format!("{port}/gid_attrs/types/0"), "RoCE v2\n"),
        (format!("{port}/gid_attrs/types/1"), "RoCE v2\n"),
        (format!("{port}/gid_attrs/ndevs/0"), "eth0\n"),
        (format!("{port}/gid_attrs/ndevs/1"), "eth0\n"),
    ] {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut machine = Machine::from_snapshot(&folder).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    machine.devices[0].verbs = Verbs::Open;
    machine
}

/// The rails of a host whose ports have these addresses.
pub(super) fn rails(addresses: &[Ipv4Addr]) -> Rails {
    static MACHINE: LazyLock<Machine> = LazyLock::new(machine);
    let mut machine = MACHINE.clone();
    let device = machine.devices.remove(0);
    for (number, &address) in addresses.iter().enumerate() {
        let (mut device, interface) = (device.clone(), format!("rail{number}"));
        device.name = format!("mlx5_{number}");
        device.ports[0].gids.truncate(1);
        let gid = &mut device.ports[0].gids[0];
        (gid.gid, gid.interface) = (address.into(), Some(interface.clone()));
        machine.devices.push(device);
        machine.addresses.push(Address { interface, address: address.into(), prefix: 16 });
    }
    Rails::new(&machine)
}

impl Fabric {
    /// The summary that a host sends. The ports of a `slow` host have another rate than most.
    pub(super) fn summary(self, slow: bool) -> Summary {
        static SUMMARIES: LazyLock<Vec<[Summary; 2]>> = LazyLock::new(|| {
            let machine = machine();
            ALL.iter().map(|fabric| [false, true].map(|slow| fabric.of(&machine, slow))).collect()
        });
        let at = ALL.iter().position(|fabric| *fabric == self).unwrap();
        SUMMARIES[at][usize::from(slow)]
    }

    fn of(self, machine: &Machine, slow: bool) -> Summary {
        let mut machine = machine.clone();
        let device = &mut machine.devices[0];
        let port = &mut device.ports[0];
        port.rate = Some(if slow { 25_000 } else { 400_000 });
        match self {
            NotExamined => return Summary::default(),
            Disabled => return Summary::new(&machine).disabled(),
            Nothing => machine.devices.clear(),
            Unusable => port.state = Some(PortState(1)),
            InfiniBand => port.link_layer = LinkLayer::InfiniBand,
            Efa => {
                device.node_type = Some(NodeType::Unspecified);
                port.link_layer = LinkLayer::Unknown;
            }
            Roce4 => port.gids.retain(|entry| entry.gid.family() == AddressFamily::Ipv4),
            Roce6 => port.gids.retain(|entry| entry.gid.family() == AddressFamily::Ipv6),
            Roce => {}
        }
        Summary::new(&machine)
    }

    fn knows(self, family: AddressFamily) -> bool {
        match self {
            Roce => true,
            Roce4 => family == AddressFamily::Ipv4,
            Roce6 => family == AddressFamily::Ipv6,
            _ => false,
        }
    }

    /// Whether hosts with these fabrics may use `transport`: all that were asked must have it, and sockets
    /// are right only where they have nothing else in common.
    pub fn suits(transport: Transport, fabrics: &[Self]) -> bool {
        let asked = || fabrics.iter().copied().filter(|&fabric| fabric != NotExamined);
        let all = |wanted: Self| asked().all(|fabric| fabric == wanted);
        let know = |family| asked().all(|fabric| fabric.knows(family));
        if asked().next().is_none() {
            return transport == Transport::NotExamined;
        }
        match transport {
            Transport::NoDevice => all(Nothing),
            Transport::InfiniBand => all(InfiniBand),
            Transport::Efa => all(Efa),
            Transport::Roce(addressing) => know(addressing.family),
            Transport::Sockets => {
                let one = [Nothing, InfiniBand, Efa].into_iter().any(all);
                !one && !know(AddressFamily::Ipv4) && !know(AddressFamily::Ipv6)
            }
            _ => false,
        }
    }

    /// Whether hosts with these fabrics can do a job that requires RDMA: all were asked, and all have the
    /// same.
    pub fn are_enough(fabrics: &[Self]) -> bool {
        let know = |family| fabrics.iter().all(|fabric| fabric.knows(family));
        let all = |wanted: Self| fabrics.iter().all(|&fabric| fabric == wanted);
        all(InfiniBand) || all(Efa) || know(AddressFamily::Ipv4) || know(AddressFamily::Ipv6)
    }
}
