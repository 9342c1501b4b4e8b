//! Fabrics: the RDMA devices of a host, and what a world of such hosts must agree on.

use std::fs;
use std::sync::LazyLock;

use mingle_core::rdma::{AddressFamily, LinkLayer, Machine, NodeType, PortState, Summary, Transport};
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
    /// Ports of InfiniBand and of RoCE with GIDs of both families, which carry this much together, in Gb/s.
    Both(u16, u16),
}

use Fabric::{Both, Disabled, Efa, InfiniBand, NotExamined, Nothing, Roce, Roce4, Roce6, Unusable};

const ALL: [Fabric; 9] = [NotExamined, Nothing, Unusable, Disabled, InfiniBand, Efa, Roce4, Roce6, Roce];

/// The fabrics of a world whose hosts have two kinds of RDMA: both carry the same; a port of InfiniBand is
/// dead; so many are that their host alone would use RoCE; RoCE carries less.
const BOTH: [Fabric; 4] = [Both(800, 800), Both(600, 800), Both(400, 800), Both(800, 500)];

/// What else a host of such a world may have. The ports of these carry 400 Gb/s.
const BESIDE: [Fabric; 8] = [BOTH[0], BOTH[1], BOTH[2], BOTH[3], InfiniBand, Roce, Roce4, NotExamined];

/// The fabrics of a world: most hosts have the usual one. They have random numbers of their own, so that a
/// change here does not change the rest of a seed's world.
pub(super) struct Fabrics {
    rng: Xoshiro256PlusPlus,
    usual: Fabric,
    /// What a host may have that is not as most.
    others: &'static [Fabric],
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
        Self { rng, usual, others: &ALL, odd, values: 1 }
    }

    /// From now on hosts may have other traits than the rest: in each third seed one of two, or each its own.
    pub(super) fn vary_traits(&mut self, seed: u64) {
        self.values = [1, 2, u64::MAX][usize::try_from(seed % 3).unwrap()];
    }

    /// In each second world, most hosts from now on have two kinds of RDMA.
    pub(super) fn mix_kinds(&mut self) {
        if self.rng.random_bool(0.5) {
            self.usual = BOTH[self.rng.random_range(0..BOTH.len())];
            self.others = &BESIDE;
        }
    }

    /// The next host's fabric, its summary, and its traits.
    pub(super) fn next(&mut self) -> (Fabric, Summary, Traits) {
        let odd = self.rng.random_bool(self.odd);
        let fabric = if odd { self.others[self.rng.random_range(0..self.others.len())] } else { self.usual };
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
    let machine = Machine::from_snapshot(&folder).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    machine
}

impl Fabric {
    /// The summary that a host sends. The ports of a `slow` host have another rate than most.
    pub(super) fn summary(self, slow: bool) -> Summary {
        static SUMMARIES: LazyLock<Vec<[Summary; 2]>> = LazyLock::new(|| {
            let machine = machine();
            let all = ALL.iter().chain(&BOTH);
            all.map(|fabric| [false, true].map(|slow| fabric.of(&machine, slow))).collect()
        });
        let at = ALL.iter().chain(&BOTH).position(|fabric| *fabric == self).unwrap();
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
                device.node_type = Some(NodeType::UNSPECIFIED);
                port.link_layer = LinkLayer::Unknown;
            }
            Roce4 => port.gids.retain(|entry| entry.family() == AddressFamily::Ipv4),
            Roce6 => port.gids.retain(|entry| entry.family() == AddressFamily::Ipv6),
            Roce => {}
            Both(infiniband, roce) => {
                port.rate = Some(u32::from(roce) * 1000);
                let mut other = device.clone();
                "mlx5_1".clone_into(&mut other.name);
                let port = &mut other.ports[0];
                port.link_layer = LinkLayer::InfiniBand;
                port.rate = Some(u32::from(infiniband) * 1000);
                machine.devices.push(other);
            }
        }
        Summary::new(&machine)
    }

    fn knows(self, family: AddressFamily) -> bool {
        match self {
            Roce | Both(..) => true,
            Roce4 => family == AddressFamily::Ipv4,
            Roce6 => family == AddressFamily::Ipv6,
            _ => false,
        }
    }

    /// What its InfiniBand, RoCE and EFA carry, in Gb/s, where it has that.
    fn totals(self) -> [Option<u16>; 3] {
        match self {
            InfiniBand => [Some(400), None, None],
            Roce | Roce4 | Roce6 => [None, Some(400), None],
            Efa => [None, None, Some(400)],
            Both(infiniband, roce) => [Some(infiniband), Some(roce), None],
            NotExamined | Nothing | Unusable | Disabled => [None; 3],
        }
    }

    /// Whether a host has two kinds of RDMA.
    pub fn is_mixed(self) -> bool {
        matches!(self, Both(..))
    }

    /// Whether the host alone would use another kind of RDMA than `transport`.
    pub fn gives_up(self, transport: Transport) -> bool {
        transport.is_rdma() && self.alone().is_some_and(|kind| Some(kind) != kind_of(transport))
    }

    /// What the host alone would use: InfiniBand, if it carries three quarters of what its RoCE does.
    fn alone(self) -> Option<usize> {
        match self {
            Both(infiniband, roce) => Some(usize::from(u32::from(infiniband) * 4 < u32::from(roce) * 3)),
            _ => self.totals().iter().position(Option::is_some),
        }
    }

    /// The kind that hosts with these fabrics have to use: of those that all have, the one whose smallest
    /// total is largest; of those that carry three quarters of it, the one that most would use alone; of
    /// several such the first.
    fn common(fabrics: &[Self]) -> Option<usize> {
        let know = |family| fabrics.iter().all(|fabric| fabric.knows(family));
        let has_roce = know(AddressFamily::Ipv4) || know(AddressFamily::Ipv6);
        let smallest = |kind: usize| -> Option<u16> {
            let totals: Option<Vec<u16>> = fabrics.iter().map(|fabric| fabric.totals()[kind]).collect();
            totals?.into_iter().min().filter(|_| kind != 1 || has_roce)
        };
        let best = (0..3).filter_map(smallest).max()?;
        let votes = |kind| fabrics.iter().filter(|fabric| fabric.alone() == Some(kind)).count();
        let is_close = |kind: usize| smallest(kind).is_some_and(|total| total * 4 >= best * 3);
        let most = (0..3).filter(|&kind| is_close(kind)).map(votes).max()?;
        (0..3).find(|&kind| is_close(kind) && votes(kind) == most)
    }

    /// Whether hosts with these fabrics may use `transport`: those that were asked must have it, and no
    /// other kind may be better. Sockets are right only where they have nothing else in common.
    pub fn suits(transport: Transport, fabrics: &[Self]) -> bool {
        let asked: Vec<Self> = fabrics.iter().copied().filter(|&fabric| fabric != NotExamined).collect();
        let is_right = kind_of(transport) == Self::common(&asked);
        match transport {
            _ if asked.is_empty() => transport == Transport::NotExamined,
            Transport::NoDevice => asked.iter().all(|&fabric| fabric == Nothing),
            Transport::Roce(addressing) => {
                is_right && asked.iter().all(|fabric| fabric.knows(addressing.family))
            }
            Transport::InfiniBand | Transport::Efa => is_right,
            Transport::Sockets => is_right && asked.iter().any(|&fabric| fabric != Nothing),
            _ => false,
        }
    }

    /// Whether hosts with these fabrics can do a job that requires RDMA: all were asked, and all have the
    /// same kind.
    pub fn are_enough(fabrics: &[Self]) -> bool {
        Self::common(fabrics).is_some()
    }
}

/// The place of its kind in [`Fabric::totals`]; none where it is no RDMA.
fn kind_of(transport: Transport) -> Option<usize> {
    match transport {
        Transport::InfiniBand => Some(0),
        Transport::Roce(_) => Some(1),
        Transport::Efa => Some(2),
        _ => None,
    }
}
