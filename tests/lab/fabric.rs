//! Worlds of machines with RDMA, and the output that each of their ranks must print.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::lab::machine::{Machine, fixture};
use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, line_with};
use crate::lab::{Lab, MINGLE};

pub type Vars = BTreeMap<String, String>;

/// A node: its machine, its arguments, and the variables of its shell.
#[derive(Debug, Clone, Default)]
pub struct Node {
    pub root: PathBuf,
    pub more: String,
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Node {
    pub fn on(root: PathBuf) -> Self {
        Self { root, ..Self::default() }
    }

    pub fn of(name: &str) -> Self {
        Self::on(fixture(name))
    }

    pub fn with(mut self, more: &str) -> Self {
        more.clone_into(&mut self.more);
        self
    }

    pub fn set(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }
}

/// Four nodes with the same machine.
pub fn four(name: &str) -> Vec<Node> {
    vec![Node::of(name); 4]
}

pub fn start(lab: &Lab, job: &str, nodes: &[Node]) -> Vec<Proc> {
    let spawn = |(i, node): (usize, &Node)| {
        let mut command = lab.command(i, MINGLE);
        command.args(line_with(job, nodes.len(), &node.more)).env("MINGLE_SYSFS_ROOT", &node.root);
        command.envs(node.environment.iter().copied());
        lab.start(i, command)
    };
    nodes.iter().enumerate().map(spawn).collect()
}

/// Forms a world, and checks the fabric's variables and the warnings of every rank.
pub fn expect(lab: &Lab, job: &str, nodes: &[Node], variables: &[Vars], warnings: &[&str]) -> Vec<Outcome> {
    let outcomes = finish_all(start(lab, job, nodes));
    let ranks: Vec<usize> = (0..nodes.len()).collect();
    let world = World::of(&outcomes);
    world.expect(lab, &ranks);
    for ((printed, expected), outcome) in world.nodes.iter().zip(variables).zip(&outcomes) {
        assert_eq!(&advice(printed), expected, "variables of {}", outcome.render());
        let mut own: Vec<&str> = expected.keys().map(String::as_str).collect();
        own.extend(OF_SOCKETS);
        own.extend([
            "GLOO_SOCKET_IFNAME",
            "TORCHCOMM_GLOO_INTERFACE",
            "TP_SOCKET_IFNAME",
            "PET_NPROC_PER_NODE",
        ]);
        let listed = printed["MINGLE_SET"].split(',');
        let mut listed: Vec<&str> = listed.map(|entry| entry.split(':').next().unwrap()).collect();
        own.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, own, "MINGLE_SET of {}", outcome.render());
        assert_eq!(warnings_of(outcome), warnings, "warnings of {}", outcome.render());
    }
    outcomes
}

/// The variables of NCCL and NVSHMEM that are not for the fabric.
const OF_SOCKETS: [&str; 3] = ["NCCL_SOCKET_IFNAME", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "NCCL_RAS_ADDR"];

/// The variables for the fabric, without the interfaces of sockets.
pub fn advice(printed: &Vars) -> Vars {
    let prefixes = ["NCCL_", "UCX_", "NVSHMEM_", "FI_"];
    let of_fabric =
        |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix)) && !OF_SOCKETS.contains(&name);
    printed.clone().into_iter().filter(|(name, _)| of_fabric(name)).collect()
}

/// The lines on stderr with this prefix, which is removed.
pub fn lines<'a>(outcome: &'a Outcome, beginning: &str) -> Vec<&'a str> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix("mingle: ")?.strip_prefix(beginning)).collect()
}

/// The warnings on stderr.
pub fn warnings_of(outcome: &Outcome) -> Vec<&str> {
    lines(outcome, "warning: ")
}

pub fn vars(pairs: &[(&str, &str)]) -> Vars {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub fn and(mut all: Vars, pairs: &[(&str, &str)]) -> Vars {
    all.extend(vars(pairs));
    all
}

pub fn without(mut all: Vars, name: &str) -> Vars {
    assert!(all.remove(name).is_some(), "{name}");
    all
}

/// The HCA trio.
pub fn hcas(ports: &str) -> Vars {
    let nccl = format!("={ports}");
    vars(&[("NCCL_IB_HCA", &nccl), ("UCX_NET_DEVICES", ports), ("NVSHMEM_HCA_LIST", ports)])
}

/// The variables by which NCCL and NVSHMEM choose an index themselves.
const CHOOSE: [(&str, &str); 4] = [
    ("NCCL_IB_ADDR_FAMILY", "AF_INET"),
    ("NVSHMEM_IB_ADDR_FAMILY", "AF_INET"),
    ("NCCL_IB_ROCE_VERSION_NUM", "2"),
    ("NVSHMEM_IB_ROCE_VERSION_NUM", "2"),
];

/// The HCA trio, where each library chooses the right GIDs by itself.
pub fn own(ports: &str) -> Vars {
    and(hcas(ports), &CHOOSE)
}

/// The HCA trio and the GID trio.
pub fn pinned(ports: &str, index: &str) -> Vars {
    let names = ["NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX"];
    and(hcas(ports), &names.map(|name| (name, index)))
}

pub fn sockets() -> Vars {
    vars(&[("NCCL_NET", "Socket")])
}

/// One RoCE port whose IPv6 GID is at `index`, beside IPv4 or alone.
pub fn ipv6(name: &str, host: u32, index: u32, beside_ipv4: bool) -> Node {
    let machine = Machine::like("one-roce", name);
    if !beside_ipv4 {
        machine.clear_gid("mlx5_0", 2).clear_gid("mlx5_0", 3);
    }
    let gid = format!("fd00:0010:0000:0000:0000:0000:0000:{host:04x}");
    machine.set_gid("mlx5_0", index, [&gid, "RoCE v2", "ens1np0"]);
    machine.add_address(&format!("ens1np0 inet6 fd00:10::{host:x}/64"));
    Node::on(machine.0)
}
