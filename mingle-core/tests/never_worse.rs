//! The rule above all rules, for sockets: no job is worse off with the interfaces that mingle names than
//! without them. Models of NCCL, NVSHMEM's bootstrap, Gloo, torchcomms and TensorPipe say which addresses a
//! host would use, beside variables of the user's own. `mingle-rdma/tests/never_worse.rs` has the same for
//! RDMA.
//!
//! The models follow NCCL 2.30.7-1 (5067397c2676), NVSHMEM 3.4.5-0, Gloo 70dc360272df, torchcomms
//! 59426ba4bfee and PyTorch's `torch/csrc/distributed/rpc/tensorpipe_agent.cpp`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use mingle_core::env::{Facts, Variables};
use mingle_core::proto::Digest;
use mingle_core::{Formed, World};

/// Cases in which the model says that mingle's line is worse, and why it stays.
const KNOWN: &[(&str, &str, &str)] = &[(
    "two networks",
    "NCCL",
    "paths are proved on one interface of each host, and NCCL by itself uses both",
)];

/// A host: its addresses in the order of getifaddrs(3), IPv4 first; which of them the other hosts reach; the
/// address of its name; and the name and the address by which it is in the world.
struct Host {
    title: &'static str,
    held: &'static [(&'static str, &'static str)],
    reached: &'static [&'static str],
    own_name: Option<&'static str>,
    at: (&'static str, &'static str),
}

const HOSTS: &[Host] = &[
    Host {
        title: "one network",
        held: &[("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("docker0", "172.17.0.1"), ("eth0", "fe80::1")],
        reached: &["10.0.0.1"],
        own_name: Some("10.0.0.1"),
        at: ("eth0", "10.0.0.1"),
    },
    Host {
        title: "a name at loopback",
        held: &[("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth0", "fe80::1")],
        reached: &["10.0.0.1"],
        own_name: Some("127.0.1.1"),
        at: ("eth0", "10.0.0.1"),
    },
    Host {
        title: "a network that leads nowhere first",
        held: &[("lo", "127.0.0.1"), ("eth0", "192.168.0.1"), ("eth1", "10.0.0.1"), ("eth1", "fe80::1")],
        reached: &["10.0.0.1"],
        own_name: Some("192.168.0.1"),
        at: ("eth1", "10.0.0.1"),
    },
    Host {
        title: "two networks",
        held: &[("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth1", "10.1.0.1")],
        reached: &["10.0.0.1", "10.1.0.1"],
        own_name: Some("10.0.0.1"),
        at: ("eth0", "10.0.0.1"),
    },
    Host {
        title: "a label alone",
        held: &[("lo", "127.0.0.1"), ("eth0:1", "10.0.0.1"), ("eth0", "fe80::1")],
        reached: &["10.0.0.1"],
        own_name: Some("10.0.0.1"),
        at: ("eth0:1", "10.0.0.1"),
    },
    Host {
        title: "a label beside",
        held: &[("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth0:1", "192.168.0.1"), ("eth0", "fe80::1")],
        reached: &["10.0.0.1"],
        own_name: Some("192.168.0.1"),
        at: ("eth0", "10.0.0.1"),
    },
    Host {
        title: "IPv6",
        held: &[("lo", "127.0.0.1"), ("lo", "::1"), ("eth0", "fd00::1"), ("eth0", "fe80::1")],
        reached: &["fd00::1"],
        own_name: Some("fd00::1"),
        at: ("eth0", "fd00::1"),
    },
    Host {
        title: "IPv6, and IPv4 that leads nowhere",
        held: &[("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("lo", "::1"), ("eth0", "fd00::1")],
        reached: &["fd00::1"],
        own_name: None,
        at: ("eth0", "fd00::1"),
    },
];

/// What users set.
const USERS: &[&str] = &[
    "",
    "NCCL_SOCKET_IFNAME=eth",
    "NCCL_SOCKET_IFNAME==eth0",
    "NCCL_SOCKET_IFNAME=^docker0,lo",
    "NCCL_SOCKET_FAMILY=AF_INET",
    "NCCL_SOCKET_FAMILY=AF_INET6",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=eth0",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=AF_INET6",
    "GLOO_SOCKET_IFNAME=eth0",
    "GLOO_SOCKET_IFNAME=eth0:1",
    "TORCHCOMM_GLOO_INTERFACE=eth0",
    "TP_SOCKET_IFNAME=lo",
];

type Env = BTreeMap<String, String>;
type Held = (&'static str, IpAddr);

/// On how many addresses a job works: none where it fails.
type Run = fn(&Host, &Env) -> usize;

const LIBRARIES: [(&str, Run); 5] = [
    ("NCCL", |host, env| {
        // Each address of NET/Socket carries channels, and the first the bootstrap.
        let found = interfaces(host, value(env, "NCCL_SOCKET_IFNAME"), value(env, "NCCL_SOCKET_FAMILY"));
        if found.iter().all(|(_, address)| host.is_reached(*address)) { found.len() } else { 0 }
    }),
    ("NVSHMEM", |host, env| {
        let family = value(env, "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY").or(Some("AF_INET"));
        let found = interfaces(host, value(env, "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"), family);
        usize::from(found.first().is_some_and(|(_, address)| host.is_reached(*address)))
    }),
    ("Gloo", |host, env| by_name(host, value(env, "GLOO_SOCKET_IFNAME"))),
    ("torchcomms", |host, env| by_name(host, value(env, "TORCHCOMM_GLOO_INTERFACE"))),
    ("TensorPipe", |host, env| by_name(host, value(env, "TP_SOCKET_IFNAME"))),
];

fn value<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

impl Host {
    fn held(&self) -> impl Iterator<Item = Held> {
        self.held.iter().map(|(name, address)| (*name, address.parse().expect("an address")))
    }

    fn is_reached(&self, address: IpAddr) -> bool {
        self.reached.iter().any(|reached| reached.parse() == Ok(address))
    }
}

/// NCCL's src/misc/socket.cc:190-235, and NVSHMEM's copy of it (ncclsocket_socket.cpp:333-366).
fn interfaces(host: &Host, list: Option<&str>, family: Option<&str>) -> Vec<Held> {
    let find = |list: &str| found(host, list, family);
    match list {
        Some(list) => find(list),
        None => ["ib", "^docker,lo,virbr", "docker", "lo"]
            .into_iter()
            .map(find)
            .find(|found| !found.is_empty())
            .unwrap_or_default(),
    }
}

/// NCCL's src/os/linux.cc:379-437, with src/misc/utils.cc:190-243.
fn found(host: &Host, list: &str, family: Option<&str>) -> Vec<Held> {
    let (is_not, list) = list.strip_prefix('^').map_or((false, list), |list| (true, list));
    let (is_exact, list) = list.strip_prefix('=').map_or((false, list), |list| (true, list));
    let mut found: Vec<Held> = Vec::new();
    for (name, address) in host.held() {
        let is_family = match family {
            Some("AF_INET") => address.is_ipv4(),
            Some("AF_INET6") => address.is_ipv6(),
            _ => true,
        };
        let is_named = list
            .split(',')
            .map(|entry| entry.split_once(':').map_or(entry, |(name, _)| name))
            .any(|entry| if is_exact { name == entry } else { name.starts_with(entry) });
        let is_new = found.iter().all(|(other, _)| *other != name);
        if is_family && (is_named != is_not) && is_new && address != IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) {
            found.push((name, address));
        }
    }
    found
}

/// Gloo's gloo/transport/tcp/device.cc:30-122: the first address of the name, or that of the host's name.
fn by_name(host: &Host, name: Option<&str>) -> usize {
    let address = match name {
        Some(name) => host.held().find(|(own, _)| *own == name).map(|(_, address)| address),
        None => host.own_name.map(|address| address.parse().expect("an address")),
    };
    usize::from(address.is_some_and(|address| host.is_reached(address)))
}

/// The environment as it is, and with mingle's variables where the user has not set them.
fn environments(host: &Host, users: &str) -> (Env, Env) {
    let pairs = users.split_whitespace().filter_map(|pair| pair.split_once('='));
    let without: Env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (job, world) = ("foo".parse().expect("a job"), World::new(4).expect("a world"));
    let local: IpAddr = host.at.1.parse().expect("an address");
    let master = SocketAddr::new(local, 29503);
    let formed = Formed::new(world.rank(0).expect("a rank"), world, master, local, Digest([0; 16]));
    let mut facts = Facts::new(&job, &formed);
    facts.interface = Some(host.at.0);
    let variables = Variables::new(facts, |name| without.get(name).cloned());
    let mut with = without.clone();
    with.extend(variables.set().iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    (without, with)
}

#[test]
fn no_job_is_worse_off_with_the_interfaces_that_mingle_names() {
    let (mut cases, mut better, mut known) = (0, 0, 0);
    for host in HOSTS {
        for users in USERS {
            let (without, with) = environments(host, users);
            for (library, run) in LIBRARIES {
                cases += 1;
                let (before, after) = (run(host, &without), run(host, &with));
                better += usize::from(after > before);
                if KNOWN.iter().any(|(title, of, _)| (*title, *of) == (host.title, library)) && after < before
                {
                    known += 1;
                    continue;
                }
                let title = host.title;
                assert!(
                    after >= before,
                    "{title}, {library}, {users:?}: {before} without, {after} with {with:?}"
                );
            }
        }
    }
    println!("{cases} cases, {better} better, {known} worse and known");
    assert!(cases > 500 && better > 100 && known > 0, "{cases} cases, {better} better, {known} known");
}
