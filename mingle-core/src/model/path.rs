//! The paths between the nodes of a world: which of them are proved, and how one fails.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Peer, deserialize_unicast_ip};

/// Which paths between the nodes are proved before a world forms, from the fewest paths to the most. Where
/// the nodes of a world ask for different values, the greatest value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Paths {
    /// The path from each node to MASTER_ADDR and MASTER_PORT, and no other path.
    Master,
    /// Also the paths to the nodes whose ranks are 1, 2, 4, 8 and so on above or below the node's own rank,
    /// between each node and rank 0 in both directions, and between each node and the roots of NCCL in both
    /// directions (NCCL's `src/bootstrap.cc` opens these connections at the start).
    Ring,
    /// [`Paths::All`] in a world of up to [`Paths::MESH`] nodes, [`Paths::Ring`] in a larger world.
    #[default]
    Auto,
    /// The path from each node to each other node.
    All,
}

impl Paths {
    /// The largest world, in nodes, in which [`Paths::Auto`] proves the path from each node to each other
    /// node.
    pub const MESH: u32 = 64;

    /// The ranks to which the node of this rank proves its path. `workers` has, for each rank, how many
    /// workers run on lower ones, and then how many run on all.
    pub(crate) fn partners(self, rank: u32, workers: &[u64]) -> Vec<u32> {
        let world = u32::try_from(workers.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let mesh = match self {
            Self::Master => return Vec::new(),
            Self::Ring => false,
            Self::Auto => world <= Self::MESH,
            Self::All => true,
        };
        if mesh || rank == 0 {
            return (0..world).filter(|&other| other != rank).collect();
        }
        let steps = (0..32).map(|bit| 1_u32 << bit).take_while(|&step| step < world);
        let near = steps.flat_map(|step| {
            let (rank, step, world) = (u64::from(rank), u64::from(step), u64::from(world));
            [(rank + step) % world, (rank + world - step) % world]
        });
        let mut ranks: Vec<u32> = near.filter_map(|rank| u32::try_from(rank).ok()).chain([0]).collect();
        ranks.extend(by_roots(rank, workers));
        ranks.sort_unstable();
        ranks.dedup();
        ranks.retain(|&other| other != rank);
        ranks
    }
}

/// The most workers that one root of NCCL serves, where PyTorch starts several
/// (`TORCH_NCCL_RANKS_PER_ROOT` in its `ProcessGroupNCCL.cpp`).
const PER_ROOT: u64 = 128;

/// The nodes with which this one has a path by the roots of NCCL. A root runs in the first worker that it
/// serves. Each worker connects to its root, the first of the next root does as well, and the root
/// connects to all of them (`bootstrapInit` and `bootstrapRoot` in NCCL's `src/bootstrap.cc`).
fn by_roots(rank: u32, workers: &[u64]) -> impl Iterator<Item = u32> {
    let node = |worker: u64| {
        let above = workers.partition_point(|&before| before <= worker);
        u32::try_from(above.saturating_sub(1)).unwrap_or(u32::MAX)
    };
    let at = |rank: u32| workers.get(usize::try_from(rank).ok()?).copied();
    let all = workers.last().copied().unwrap_or_default().max(1);
    let roots = all.div_ceil(PER_ROOT);
    let first = move |root: u64| root * (all / roots) + root.min(all % roots);
    let (begin, end) = (at(rank).unwrap_or_default(), at(rank.saturating_add(1)).unwrap_or_default());
    // Those that can serve this node, and a few more.
    let near = (begin / all.div_ceil(roots)).saturating_sub(1)..=(end / (all / roots)).min(roots - 1);
    let paths = near.filter_map(move |root| {
        let own = node(first(root));
        let served = own..=node(first(root + 1).min(all - 1));
        if own == rank { Some(served) } else { served.contains(&rank).then_some(own..=own) }
    });
    paths.flatten()
}

/// The address that a job uses on an interface of a node: the interface's first address of the world's
/// family, in the order of getifaddrs(3), which NCCL and Gloo follow (`findInterfaces` in NCCL's
/// `src/misc/socket.cc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The address.
    #[serde(deserialize_with = "deserialize_unicast_ip")]
    pub address: IpAddr,
    /// The length of the network's prefix: 0 to 32 bits for IPv4, 0 to 128 for IPv6.
    pub prefix: u8,
    /// The interface's MTU in bytes; 0 if it is unknown.
    pub mtu: u32,
}

impl Link {
    /// An address of which nothing else is known.
    pub(crate) fn unknown(address: IpAddr) -> Self {
        Self { address, prefix: bits(address), mtu: 0 }
    }

    /// Whether other hosts can be on its network.
    pub(crate) fn is_network(&self) -> bool {
        self.prefix < bits(self.address)
    }

    /// Whether the address lies in the link's network.
    pub fn has(&self, other: IpAddr) -> bool {
        let prefix = self.prefix.min(bits(self.address));
        IpNet::new(self.address, prefix).is_ok_and(|net| net.contains(&other))
    }
}

/// An address that is in none of this host's networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The address.
    pub address: IpAddr,
    /// The networks of this host, each with this host's own address in the network.
    pub networks: Vec<Link>,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks = self.networks.iter().map(|link| format!("{}/{}", link.address, link.prefix));
        let networks = networks.collect::<Vec<_>>().join(", ");
        write!(f, "{} is in no network of this host ({networks})", self.address)
    }
}

/// The length of an address of this family.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// How a path fails, as the prover at its start sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The prover could open no connection: nothing answered.
    Silent,
    /// The target refused the connection: no program listens on the port, or a firewall rejects the
    /// connection.
    Refused,
    /// The prover's host has no route to the address.
    NoRoute,
    /// The connection opened, but the node did not answer: another program did, or none.
    Unanswered,
    /// Short TCP segments arrive, and long segments vanish.
    Size {
        /// The length of the longest packet that arrived, in bytes, with the headers of IP and TCP.
        passes: u32,
        /// The length of the packets that vanished, in bytes, with the headers of IP and TCP.
        fails: u32,
    },
    /// A host or a router on the way has answered that the address cannot be reached: a firewall rejects the
    /// connection, or the host does not exist.
    Unreachable,
    /// The prover could not open a connection for a reason on its own host, such as too few file descriptors.
    Local,
}

/// A path that could not be proved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BrokenPath {
    /// The node that opened the connections, with the node's address that the job uses.
    pub from: Peer,
    /// The node that `from` tried to reach, with the address and the port that `from` tried.
    pub to: Peer,
    /// How the path failed.
    pub fault: Fault,
    /// The target's own port, if it answers at the same address: then only the port in `to` is blocked.
    pub answers: Option<u16>,
    /// Whether the path leads to MASTER_ADDR and MASTER_PORT.
    pub to_master: bool,
    /// The MTUs of the interfaces of `from` and `to`, in bytes; 0 where the MTU is unknown.
    pub mtus: (u32, u32),
}

impl BrokenPath {
    /// Whether both lead from one host to one other, so that users need not be told twice.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.from.host == other.from.host && self.to.host == other.to.host
    }
}

impl fmt::Display for BrokenPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, fault, answers, mtus, .. } = self;
        let [source, target] = [from, to].map(|node| format!("{} ({})", node.host, node.address.ip()));
        let (host, port) = (&from.host, to.address.port());
        let why = match *fault {
            Fault::Size { passes, fails } => {
                write!(f, "TCP segments from {source} to {target} vanish: ")?;
                write!(f, "packets of {fails} bytes do not arrive, those of {passes} bytes do")?;
                return match *mtus {
                    (0, _) | (_, 0) => Ok(()),
                    (a, b) if a == b => write!(f, "; the MTU is {a} on both"),
                    (a, b) => write!(f, "; the MTU is {a} and {b}"),
                };
            }
            Fault::Refused => format!("port {port} refuses them"),
            Fault::NoRoute => format!("{host} has no route there, port {port}"),
            Fault::Unreachable => format!("port {port} is rejected on the way, or no host has that address"),
            Fault::Local => format!("{host} cannot open a connection to port {port}"),
            Fault::Unanswered => format!("port {port} accepts them, and that node does not answer"),
            Fault::Silent => format!("port {port} does not answer"),
        };
        write!(f, "{source} cannot open TCP connections to {target}: {why}")?;
        answers.map_or(Ok(()), |own| write!(f, ", port {own} does"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `partners` takes of a world in which each node has so many workers.
    fn workers(world: u32, each: u64) -> Vec<u64> {
        (0..=u64::from(world)).map(|rank| rank * each).collect()
    }

    #[test]
    fn each_node_has_a_path_to_each_other_one_up_to_64_nodes() {
        assert_eq!(Paths::Auto.partners(1, &workers(4, 1)), [0, 2, 3]);
        assert_eq!(Paths::Auto.partners(63, &workers(64, 8)).len(), 63);
        assert_eq!(Paths::All.partners(5, &workers(1000, 8)).len(), 999);
        assert_eq!(Paths::Master.partners(1, &workers(4, 1)), []);
        assert_eq!(Paths::Auto.partners(0, &workers(1, 1)), []);
    }

    #[test]
    fn a_link_has_the_addresses_of_its_network() {
        let link = |address: &str, prefix| Link { address: address.parse().unwrap(), prefix, mtu: 0 };
        let has = |link: Link, other: &str| link.has(other.parse().unwrap());
        assert!(has(link("10.77.0.10", 24), "10.77.0.99") && !has(link("10.77.0.10", 24), "10.77.1.10"));
        assert!(has(link("10.77.0.10", 0), "8.8.8.8") && !has(link("10.77.0.10", 24), "fd00::1"));
        assert!(has(link("10.77.0.10", 32), "10.77.0.10") && !has(link("10.77.0.10", 32), "10.77.0.11"));
        assert!(has(link("fd00::1", 64), "fd00::2") && !has(link("fd00::1", 64), "fd00:0:0:1::2"));
        assert!(link("10.0.0.1", 31).is_network() && !link("10.0.0.1", 32).is_network());
        assert!(link("fd00::1", 64).is_network() && !link("fd00::1", 128).is_network());
    }

    #[test]
    fn a_larger_world_has_a_ring_with_steps_of_powers_of_two_and_rank_0() {
        assert_eq!(Paths::Ring.partners(3, &workers(8, 1)), [0, 1, 2, 4, 5, 7]);
        let of_65 = Paths::Auto.partners(40, &workers(65, 1));
        assert_eq!(of_65, [0, 7, 8, 24, 32, 36, 38, 39, 41, 42, 44, 48, 56]);
    }

    #[test]
    fn in_a_ring_each_node_has_a_path_to_the_roots_of_its_workers_and_back() {
        let few = Paths::Ring.partners(17, &workers(128, 1));
        // 800 workers have 7 roots, of which 2 serve 115 and the others 114: workers 0, 115, 230, 344, 458,
        // 572 and 686 run them, on the nodes 0, 14, 28, 43, 57, 71 and 85.
        let all = workers(100, 8);
        let of = |rank| Paths::Ring.partners(rank, &all);
        assert!(!few.contains(&14) && of(17).contains(&14) && of(27).contains(&14));
        // Of the first worker of the next root.
        assert!(of(28).contains(&14) && of(14).contains(&28) && of(14).contains(&0));
        assert!((15..=28).all(|served| of(14).contains(&served)), "{:?}", of(14));
        assert!((86..100).all(|served| of(85).contains(&served) && of(served).contains(&85)));
        // Node 14 runs the last workers of the first root as well, and node 29 has nothing to do with it.
        assert!(!of(29).contains(&14) && of(29).contains(&28));
        for (world, each) in [(65, 1), (65, 64), (1000, 1), (1000, 8), (10_000, 8)] {
            let all = workers(world, each);
            let count = |rank| Paths::Auto.partners(rank, &all).len();
            assert_eq!(count(0), usize::try_from(world - 1).unwrap());
            let total: usize = (1..world).map(count).sum();
            // The ring and rank 0, and the path to a root and back.
            let most = 2 * world.next_power_of_two().ilog2() + 1 + 2;
            assert!(total <= usize::try_from(most * world).unwrap(), "{world} of {each}: {total}");
            for rank in [1, 2, world / 2, world - 1] {
                for &other in &Paths::Auto.partners(rank, &all) {
                    assert!(Paths::Auto.partners(other, &all).contains(&rank), "{rank} and {other}");
                }
            }
        }
    }
}
