//! The rule above all rules: with mingle's variables no job is slower than without them, and none fails that
//! works without them. Models of NCCL and UCX say what two hosts like each saved machine would do, beside
//! many sets of the user's own variables. Gloo reads none of the variables of this crate.
//!
//! The models follow NCCL 2.30.7-1 (5067397c2676) and UCX of August 2026 (9466d104a317). Each function names
//! the lines. They know nothing of external plugins, and assume that a link-local GID reaches the other host.

mod machines;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use machines::cables::{OTHERS, RING, spark};
use machines::machines;
use mingle_rdma::{
    AddressFamily, Device, Distance, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, RankSummary,
    RoceVersion, Summary, Transport, Users, Verdict, beside, is_switched_off, nccl_list_has,
};

/// Cases in which the model says that mingle's choice is worse, and why it stays.
const KNOWN: &[(&str, &str)] = &[(
    "two-networks",
    "no GPU is shown, and two of its six ports are in a network of their own: for storage",
)];

/// What users and images set.
const USERS: &[&str] = &[
    "",
    "NCCL_IB_HCA=mlx5",
    "NCCL_IB_HCA=mlx5_0",
    "NCCL_IB_HCA=^mlx5_0",
    "NCCL_IB_HCA==mlx5_1:1",
    "NCCL_IB_GID_INDEX=3",
    "NCCL_IB_GID_INDEX=1 UCX_IB_GID_INDEX=1",
    "NCCL_IB_ADDR_FAMILY=AF_INET",
    "NCCL_IB_ADDR_FAMILY=AF_INET6",
    "NCCL_IB_ROCE_VERSION_NUM=1",
    "NCCL_IB_DISABLE=1",
    "NCCL_IB_DISABLE=0",
    "NCCL_NET=IB",
    "NCCL_NET=socket",
    "NCCL_NET=IB NCCL_IB_DISABLE=1",
    "NCCL_VERSION=2.20.5",
    "UCX_TLS=tcp,sm,self",
    "UCX_TLS=rc,sm,self",
    "UCX_TLS=^ib",
    "UCX_TLS=^rc",
    "UCX_TLS=all",
    "UCX_NET_DEVICES=all",
    "UCX_NET_DEVICES=mlx5_0:1",
    "UCX_IB_ROCE_SUBNETS=10.0.0.0/8",
    "UCX_IB_ROCE_SUBNETS=10.0.0.0/8 UCX_TLS=rc,sm,self",
    "NVSHMEM_HCA_PE_MAPPING=mlx5_0:1:1",
];

type Env = BTreeMap<String, String>;

/// How two such hosts run a job, the worst first. With RDMA, what the GPU gets that gets least, in Mb/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Run {
    Fails,
    Sockets,
    Rdma(u32),
}

/// The environment as it is, and with mingle's variables where the user has not set them.
fn environments(machine: &Machine, users: &str) -> (Env, Env) {
    let pairs = users.split_whitespace().filter_map(|pair| pair.split_once('='));
    let without: Env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let value = |name: &str| without.get(name).cloned();
    let choice = machine.choose();
    let is_off = is_switched_off(choice.kind, value);
    let transport = if is_off { Transport::Sockets } else { Transport::alone(&choice) };
    let mut with = without.clone();
    for (name, value) in beside(machine, transport, &Users::new(value)) {
        with.entry(name.to_owned()).or_insert(value);
    }
    (without, with)
}

fn nccl(machine: &Machine, env: &Env) -> Run {
    let value = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    // src/plugin/net.cc:322-350: the networks in turn, only those of the name.
    let wanted = |net: &str| value("NCCL_NET").is_none_or(|name| name.eq_ignore_ascii_case(net));
    let ports: Vec<_> = ports(machine).filter(|(device, port)| is_nccls(device, port, value)).collect();
    let has_ib = value("NCCL_IB_DISABLE").is_none_or(|text| text == "0") && !ports.is_empty();
    match (wanted("IB") && has_ib, wanted("Socket")) {
        (true, _) => {
            let used = shares(machine, &ports);
            let works =
                |(device, port): &(&Device, &Port)| connects(machine, device, port, nccls_gid(port, value));
            // A channel on a port without a peer ends the job.
            if used.values().flatten().all(|at| works(&ports[*at])) {
                least(machine, &ports, &used)
            } else {
                Run::Fails
            }
        }
        (false, true) => Run::Sockets,
        (false, false) => Run::Fails,
    }
}

fn ports(machine: &Machine) -> impl Iterator<Item = (&Device, &Port)> {
    machine.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
}

fn is_open(device: &Device, port: &Port) -> bool {
    device.unusable.is_none()
        && port.state == Some(PortState::ACTIVE)
        && port.link_layer != LinkLayer::Unknown
}

/// src/transport/net_ib/init.cc:359-372. No saved machine has a device with two ports.
fn is_nccls<'a>(device: &Device, port: &Port, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let list = value("NCCL_IB_HCA").unwrap_or_default();
    is_open(device, port) && nccl_list_has(list, &device.name)
}

/// src/transport/net_ib/connect.cc:268-330. Before 2.21 index 0.
fn nccls_gid<'a>(port: &Port, value: impl Fn(&str) -> Option<&'a str>) -> u32 {
    if let Some(index) = value("NCCL_IB_GID_INDEX").and_then(|text| text.parse().ok()) {
        return index;
    }
    if value("NCCL_VERSION").is_some() {
        return 0;
    }
    let is_v6 = value("NCCL_IB_ADDR_FAMILY") == Some("AF_INET6");
    let family = if is_v6 { AddressFamily::Ipv6 } else { AddressFamily::Ipv4 };
    let is_v1 = value("NCCL_IB_ROCE_VERSION_NUM") == Some("1");
    let wanted = Some(if is_v1 { RoceVersion::V1 } else { RoceVersion::V2 });
    let range = value("NCCL_IB_ADDR_RANGE").and_then(|text| text.split_once('/'));
    let range = range.and_then(|(network, length)| Some((network.parse().ok()?, length.parse().ok()?)));
    let at = |index: u32| port.gids.iter().find(|entry| entry.index == index);
    let (gid, version) = (
        |at: Option<&GidEntry>| at.map_or(Ipv6Addr::UNSPECIFIED, |entry| entry.gid),
        |at: Option<&GidEntry>| at?.version,
    );
    let is_valid = |gid: Ipv6Addr| !gid.is_unspecified() && gid.segments()[..4] != [0xfe80, 0, 0, 0];
    let family_of = |gid: Ipv6Addr| {
        if gid.to_canonical().is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 }
    };
    let mut current = 0;
    for index in 1..=port.gids.last().map_or(0, |entry| entry.index) {
        let (own, other) = (at(current), at(index));
        if family_of(gid(other)) != family || range.is_some_and(|range| !is_in(gid(other), range)) {
            continue;
        }
        let is_better = version(own) != version(other) || !is_valid(gid(own));
        if family_of(gid(own)) != family || is_valid(gid(other)) && is_better && version(other) == wanted {
            current = index;
        }
    }
    current
}

fn is_in(gid: Ipv6Addr, (network, length): (IpAddr, u32)) -> bool {
    let bits = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    (bits(gid.to_canonical()) ^ bits(network)).leading_zeros() >= length
}

/// Whether a queue pair of this port reaches its peer, the same port of the other host: iWARP knows no queue
/// pairs without a connection manager, and a GID of another namespace is another's. Of a table with such GIDs
/// the link-local ones are another's too.
fn connects(machine: &Machine, device: &Device, port: &Port, index: u32) -> bool {
    let has = |entry: &GidEntry| {
        let is = |held: &mingle_rdma::Address| {
            held.net.addr() == entry.address() && Some(&held.interface) == entry.interface.as_ref()
        };
        machine.addresses.iter().any(is)
    };
    let is_whole = port.gids.iter().all(|entry| entry.is_link_local() || has(entry));
    let reaches = |entry: &GidEntry| if entry.is_link_local() { is_whole } else { has(entry) };
    let entry = port.gids.iter().find(|entry| entry.index == index);
    device.node_type == Some(NodeType::CA)
        && (port.link_layer == LinkLayer::InfiniBand || entry.is_some_and(reaches))
}

/// The ports of each GPU, by their places: those of the widest path, then the nearest
/// (src/graph/topo.cc:1943). Of one GPU where there is none.
fn shares(machine: &Machine, ports: &[(&Device, &Port)]) -> BTreeMap<usize, Vec<usize>> {
    let gpus = machine.gpus.len().max(1);
    let path = |gpu: usize, device: &Device, port: &Port| {
        let distance =
            machine.gpus.get(gpu).and_then(|gpu| gpu.distance(device)).unwrap_or(Distance::HostBridge);
        // SRP_QPI_BW of src/graph/topo.h, 22 GB/s.
        let cap = if distance == Distance::System { 176_000 } else { u32::MAX };
        (carried(device, port).min(cap), std::cmp::Reverse(distance))
    };
    let local = |gpu| {
        let paths: Vec<_> = ports.iter().map(|(device, port)| path(gpu, device, port)).collect();
        let best = paths.iter().max();
        (0..ports.len()).filter(|at| Some(&paths[*at]) == best).collect()
    };
    (0..gpus).map(|gpu| (gpu, local(gpu))).collect()
}

fn carried(device: &Device, port: &Port) -> u32 {
    port.rate.unwrap_or(0).min(device.link.unwrap_or(u32::MAX))
}

/// What the GPU gets that gets least: several GPUs share a port, and several functions a cable.
fn least(machine: &Machine, ports: &[(&Device, &Port)], used: &BTreeMap<usize, Vec<usize>>) -> Run {
    let cable = |at: usize| {
        let (device, port) = ports[at];
        let function = |path: &str| path.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
        let path = device.physical.as_deref().or(device.pci.as_deref()).unwrap_or(&device.name);
        let card = device.card_guid.clone().unwrap_or_else(|| path.to_owned());
        (card, function(path), port.number)
    };
    let mut carries: BTreeMap<_, (u32, u32)> = BTreeMap::new();
    let mut takers: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    let all: BTreeSet<usize> = used.values().flatten().copied().collect();
    for at in all {
        let (device, port) = ports[at];
        let (sum, most) = carries.entry(cable(at)).or_default();
        (*sum, *most) = (*sum + carried(device, port), port.rate.unwrap_or(0).max(*most));
    }
    for (gpu, places) in used {
        for at in places {
            takers.entry(cable(*at)).or_default().insert(*gpu);
        }
    }
    let mut gets = vec![0; machine.gpus.len().max(1)];
    for (cable, takers) in &takers {
        let (sum, most) = carries[cable];
        let each = sum.min(most) / u32::try_from(takers.len()).expect("there are few GPUs");
        for gpu in takers {
            gets[*gpu] += each;
        }
    }
    Run::Rdma(gets.into_iter().min().unwrap_or(0))
}

fn ucx(machine: &Machine, env: &Env) -> Run {
    let value = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    // src/ucp/core/ucp_context.c:764 has the aliases, and src/ucp/core/ucp_context.c:1227 the list.
    let tls = value("UCX_TLS").unwrap_or("all");
    let names = || tls.trim_start_matches('^').split(',');
    let lists =
        |wanted: &str| names().any(|name| name == wanted || name == "all" || wanted == "rc" && name == "ib");
    let allows = |wanted: &str| lists(wanted) != tls.starts_with('^');
    let devices = value("UCX_NET_DEVICES").unwrap_or("all");
    let is_listed = |name: &str| devices.split(',').any(|listed| listed == "all" || listed == name);
    let is_used =
        |(device, port): &(&Device, &Port)| is_open(device, port) && is_listed(&device.name_of(port));
    let rdma: Vec<_> =
        ports(machine).filter(|_| allows("rc") || allows("ud") && !lists("ib")).filter(is_used).collect();
    let has_tcp = allows("tcp") && machine.addresses.iter().any(|held| is_listed(&held.interface));
    let index = value("UCX_IB_GID_INDEX").and_then(|text| text.parse().ok());
    // src/uct/ib/base/ib_iface.c:1438: both are refused.
    if rdma.iter().any(|(_, port)| port.link_layer == LinkLayer::Ethernet)
        && index.is_some()
        && value("UCX_IB_ROCE_SUBNETS").is_some()
    {
        return Run::Fails;
    }
    // Each process takes the widest device, of several the nearest (src/ucp/wireup/select.c), and one that
    // does not connect ends the job.
    let used = shares(machine, &rdma);
    let works = |at: &usize| {
        let (device, port) = rdma[*at];
        connects(machine, device, port, index.unwrap_or_else(|| ucxs_gid(port)))
    };
    match rdma.is_empty() {
        false if used.values().flatten().all(works) => least(machine, &rdma, &used),
        true if has_tcp => Run::Sockets,
        _ => Run::Fails,
    }
}

/// src/uct/ib/base/ib_device.c:1134-1213, the order of `roce_prio`.
fn ucxs_gid(port: &Port) -> u32 {
    let place = |entry: &GidEntry| {
        let (is_v1, is_v6) = (entry.version? == RoceVersion::V1, entry.family() == AddressFamily::Ipv6);
        Some((is_v1, is_v6, entry.is_link_local(), entry.index))
    };
    port.gids.iter().filter_map(place).min().map_or(0, |(.., index)| index)
}

#[test]
fn no_job_is_worse_off_with_mingles_variables_than_without_them() {
    let (mut cases, mut worse) = (0, Vec::new());
    for folder in fs::read_dir(machines()).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(machine) = Machine::from_snapshot(&folder) else { continue };
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        for users in USERS {
            let (without, with) = environments(&machine, users);
            for (library, run) in [("NCCL", nccl as fn(&Machine, &Env) -> Run), ("UCX", ucx)] {
                cases += 1;
                let (before, after) = (run(&machine, &without), run(&machine, &with));
                if after < before {
                    worse.push(format!(
                        "{name}, {library}, {users:?}: {before:?} without, {after:?} with {with:?}"
                    ));
                }
            }
        }
    }
    let is_known = |case: &String| KNOWN.iter().any(|(name, _)| case.starts_with(name));
    let (known, new): (Vec<_>, Vec<_>) = worse.into_iter().partition(is_known);
    println!("{cases} cases, {} worse and known", known.len());
    assert!(cases > 2500, "{cases} cases");
    assert!(new.is_empty(), "{} cases are worse with mingle:\n{}", new.len(), new.join("\n"));
    for (name, why) in KNOWN {
        assert!(known.iter().any(|case| case.starts_with(name)), "{name} ({why}) is no longer worse");
    }
}

/// The ports of each of NCCL's devices, by GID and the length of its network. It merges the functions of a
/// card (src/transport/net_ib/init.cc:198, src/graph/topo.cc).
fn devices_of(host: &Machine, env: &Env) -> Vec<Vec<(Ipv6Addr, u32)>> {
    let is_merging = env.get("NCCL_IB_MERGE_NICS").is_none_or(|value| value != "0");
    let mut devices: BTreeMap<String, Vec<(Ipv6Addr, u32)>> = BTreeMap::new();
    for (device, port) in ports(host).filter(|(device, port)| is_open(device, port)) {
        let name =
            if is_merging { device.name.rsplit_once('f').expect("a function").0 } else { &device.name };
        let index = nccls_gid(port, |name| env.get(name).map(String::as_str));
        let gid = port.gids.iter().find(|entry| entry.index == index).expect("its own index").gid;
        let held = host.addresses.iter().find(|held| held.net.addr() == gid.to_canonical());
        let length = held.map_or(64, |held| u32::from(held.net.prefix_len()));
        devices.entry(name.to_owned()).or_default().push((gid, length));
    }
    devices.into_values().collect()
}

/// src/transport/net_ib/connect.cc:524-593, since 2.30.7: the device whose ports all share a network with the
/// other side's, first the one at hand.
fn routed(devices: &[Vec<(Ipv6Addr, u32)>], others: &[(Ipv6Addr, u32)], at: usize, env: &Env) -> usize {
    if env.get("NCCL_IB_SUBNET_AWARE_ROUTING").is_none_or(|value| value == "0") {
        return at;
    }
    let length = env.get("NCCL_IB_SUBNET_PREFIX_LEN").map_or(24, |length| length.parse().expect("a number"));
    let meets = |gid: &Ipv6Addr| others.iter().any(|(other, _)| is_in(*gid, (other.to_canonical(), length)));
    let suits = |at: &usize| devices[*at].iter().all(|(gid, _)| meets(gid));
    std::iter::once(at).chain(0..devices.len()).find(suits).unwrap_or(at)
}

/// Whether each host reaches the next one: channel by channel each end takes a device, the one that listens
/// tells two of its GIDs (src/transport/net_ib/connect.cc:608 and :802), the one that connects all
/// (:1465-1480), and each port of a device meets its counterpart.
fn is_joined(hosts: &[Machine], env: &[Env]) -> bool {
    let devices: Vec<_> = hosts.iter().zip(env).map(|(host, env)| devices_of(host, env)).collect();
    let joins = |from: usize, channel: usize| {
        let to = (from + 1) % hosts.len();
        let (listens, starts) = (channel % devices[to].len(), channel % devices[from].len());
        let told: Vec<_> = devices[to][listens].iter().take(2).copied().collect();
        let sender = &devices[from][routed(&devices[from], &told, starts, &env[from])];
        let receiver = &devices[to][routed(&devices[to], sender, listens, &env[to])];
        let meets = |((own, _), (other, length)): (&(Ipv6Addr, u32), &(Ipv6Addr, u32))| {
            is_in(*own, (other.to_canonical(), *length))
        };
        sender.len() == receiver.len() && sender.iter().zip(receiver).all(meets)
    };
    (0..hosts.len()).all(|from| (0..devices[from].len()).all(|channel| joins(from, channel)))
}

#[test]
fn no_world_is_worse_off_with_mingles_variables_and_a_ring_of_cables_works_with_them_alone() {
    let of_ring = [("the ring of three", &RING as &[_])];
    for users in
        ["", "NCCL_IB_MERGE_NICS=1", "NCCL_IB_SUBNET_AWARE_ROUTING=0", "NCCL_IB_SUBNET_PREFIX_LEN=16"]
    {
        for (name, hosts) in OTHERS.into_iter().chain(of_ring) {
            let hosts: Vec<Machine> = hosts.iter().map(|addresses| spark(*addresses)).collect();
            let rank =
                |(at, host)| RankSummary { address: [10, 9, 0, at].into(), summary: Summary::new(host) };
            let verdict = Verdict::of(&(0..).zip(&hosts).map(rank).collect::<Vec<_>>());
            let pairs = users.split_whitespace().filter_map(|pair| pair.split_once('='));
            let own: Env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let with = |host: &Machine| {
                let host = host.clone().agree(&verdict);
                let mut env = own.clone();
                let advice = beside(&host, verdict.transport, &Users::new(|name| own.get(name).cloned()));
                for (name, value) in advice {
                    env.entry(name.to_owned()).or_insert(value);
                }
                env
            };
            let before = is_joined(&hosts, &vec![own.clone(); hosts.len()]);
            let after = is_joined(&hosts, &hosts.iter().map(with).collect::<Vec<_>>());
            println!("{name}, {users:?}: {before} without, {after} with");
            assert!(after || !before, "{name}, {users:?}");
            if users.is_empty() {
                assert_eq!(
                    (before, after),
                    (!name.contains("ring"), !name.contains("ring of four") && !name.contains("without")),
                    "{name}"
                );
            }
        }
    }
}
