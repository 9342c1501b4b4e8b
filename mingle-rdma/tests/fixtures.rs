//! Machines as folders (`tests/fixtures/rdma.tar.gz`), each with the variables that are right for it:
//! `expected.env` lists those that must be printed, and no others may be; `# must not:` names likely ones.

mod machines;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use machines::cables::{OTHERS, RING, spark};
use machines::machines;
use mingle_rdma::{Capability, GidChoice, Machine, RankSummary, Summary, Transport, Users, Verdict};

fn variables(machine: &Machine) -> BTreeMap<&'static str, String> {
    let transport = Transport::alone(&machine.choose());
    mingle_rdma::beside(machine, transport, &Users::default()).into_iter().collect()
}

#[test]
fn every_machine_gets_exactly_its_expected_variables() {
    let mut seen = 0;
    for folder in fs::read_dir(machines()).unwrap().map(|entry| entry.unwrap().path()) {
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let machine = Machine::from_snapshot(&folder).unwrap();
        let found = variables(&machine);
        let expected = fs::read_to_string(folder.join("expected.env")).unwrap();
        let wanted = expected.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let wanted: BTreeMap<&str, String> = wanted
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        assert_eq!(found, wanted, "{name}");
        for port in &machine.choose().ports {
            let all_have_reasons = port.gids.iter().all(|gid| {
                gid.excluded.as_ref().map_or(port.is_used(), |reason| !reason.to_string().is_empty())
            });
            assert!(all_have_reasons, "{name}: {port:?}");
            assert!(port.excluded.as_ref().is_none_or(|reason| !reason.to_string().is_empty()), "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 54, "{seen} machines");
}

#[test]
fn ports_and_gids_that_are_not_used_have_the_right_reason() {
    let reasons = |name: &str| {
        let machine = Machine::from_snapshot(&machines().join(name)).unwrap();
        let choice = machine.choose();
        let ports = choice.ports.iter().map(|port| {
            let gids = port.gids.iter().filter_map(|gid| gid.excluded.as_ref().map(ToString::to_string));
            (port.excluded.as_ref().map(ToString::to_string).unwrap_or_default(), gids.collect::<Vec<_>>())
        });
        ports.collect::<Vec<_>>()
    };
    let states: Vec<_> = reasons("port-states").into_iter().map(|(port, _)| port).collect();
    assert_eq!(
        states,
        ["DOWN, not ACTIVE", "INIT, not ACTIVE", "ARMED, not ACTIVE", "ACTIVE_DEFER, not ACTIVE", ""]
    );
    let elsewhere = "its address belongs to another network namespace";
    let (v1, far) = ("RoCE v2 over IPv4 is used", elsewhere);
    let pod = ["link-local", "link-local", far, far, "link-local", "link-local", v1, far, far];
    assert_eq!(reasons("pod-shared-foreign")[0].1, pod);
    let carries = "its group carries 25 Gb/s, the one that is used 1600 Gb/s";
    assert_eq!(reasons("ib-plus-roce-mgmt")[2].0, carries);
    assert_eq!(reasons("iwarp")[0].0, "iWARP, which NCCL cannot use");
    assert_eq!(reasons("ib4")[0].1, ["InfiniBand needs no GID index"]);
}

#[test]
fn nccl_chooses_the_index_where_the_user_names_the_kind_of_gid() {
    let machine = Machine::from_snapshot(&machines().join("one-roce")).unwrap();
    let transport = Transport::alone(&machine.choose());
    for (name, value) in [
        ("NCCL_IB_ADDR_FAMILY", "AF_INET"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0.0/8"),
        ("NCCL_IB_ROCE_VERSION_NUM", "2"),
    ] {
        let users = Users::new(|asked| (asked == name).then(|| value.to_owned()));
        let variables = mingle_rdma::beside(&machine, transport, &users);
        let names: Vec<_> = variables.into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "NCCL_IB_HCA",
                "UCX_NET_DEVICES",
                "NVSHMEM_HCA_LIST",
                "NCCL_IB_ADDR_FAMILY",
                "NCCL_IB_ROCE_VERSION_NUM",
                "NVSHMEM_IB_ADDR_FAMILY",
                "NVSHMEM_IB_ROCE_VERSION_NUM",
            ]
        );
    }
}

#[test]
fn a_single_host_is_warned_of_what_no_variable_can_fix() {
    let warnings = |name: &str| {
        let machine = Machine::from_snapshot(&machines().join(name)).unwrap();
        let transport = Transport::alone(&machine.choose());
        let mut warnings = mingle_rdma::warnings(&machine, transport, &Users::default());
        warnings.extend(mingle_rdma::unusable(&machine));
        warnings.join("\n")
    };
    let local = "no RoCE port has an IP address; link-local GIDs are used, which no router passes on";
    assert_eq!([warnings("roce-link-local"), warnings("rails-no-address")], [local; 2]);
    let slow =
        "mlx5_5:1 runs at 200 Gb/s, others at 400 Gb/s, and the job waits for it: check its cable and switch";
    assert_eq!([warnings("rails-slow-port"), warnings("rails-slow-port-vm")], [slow; 2]);
    assert!(warnings("iwarp").contains("siw0:1 (iWARP, which NCCL cannot use)"));
    let apart = warnings("pod-shared-index");
    assert!(apart.starts_with("mlx5_1:1 (index 9) cannot be used together with the other ports (index 7)"));
    assert!(warnings("pod-two-indices").contains("must choose from NCCL_IB_ADDR_RANGE"));
    for quiet in [
        "spark-one-address",
        "rails-one-without-address",
        "rail8-same",
        "rail8-diff",
        "ib4",
        "none",
        "empty",
        "efa",
        "one-roce",
    ] {
        assert_eq!(warnings(quiet), "", "{quiet}");
    }
}

fn machine(name: &str) -> Machine {
    Machine::from_snapshot(&machines().join(name)).expect("a saved machine")
}

#[test]
fn the_group_that_carries_most_is_used_and_the_others_say_why_not() {
    let groups = |name: &str| {
        let machine = machine(name);
        let choice = machine.choose();
        let group = |group: &mingle_rdma::Group| {
            let why = group.excluded.as_ref().map_or_else(|| "used".to_owned(), ToString::to_string);
            (group.ports.len(), group.bandwidth / 1000, why)
        };
        choice.groups.iter().map(group).collect::<Vec<_>>()
    };
    let used = |ports, bandwidth| (ports, bandwidth, "used".to_owned());
    let carries = |ports: usize, own: u32, best: u32| {
        (ports, own, format!("its group carries {own} Gb/s, the one that is used {best} Gb/s"))
    };
    assert_eq!(groups("roce8-ib-storage"), [used(8, 3200), carries(1, 100, 3200)]);
    assert_eq!(groups("hdr8-ndr-storage"), [used(8, 1600), carries(1, 400, 1600)]);
    assert_eq!(groups("roce8-dpu"), [used(8, 1600), carries(1, 400, 1600)]);
    assert_eq!(groups("oci-a100"), [used(16, 1600)]);
    assert_eq!(groups("pod-vfs"), [carries(4, 200, 400), used(1, 400)]);
    assert_eq!(groups("dgx-spark"), [used(4, 400)]);
    assert_eq!(groups("spark-one-address"), [used(4, 400)]);
    assert_eq!(groups("dual-plane"), [used(16, 6400)]);
    assert_eq!(groups("mixed-cards"), [used(8, 3200)]);
    let kind = (8, 800, "another kind of RDMA is used".to_owned());
    assert_eq!(groups("ib4-roce8"), [used(4, 800), kind]);
    assert_eq!(groups("two-networks")[0], used(4, 1600));
}

#[test]
fn ports_of_another_group_and_those_left_out_have_a_reason() {
    let reason = |name: &str, port: usize| {
        machine(name).choose().ports[port].excluded.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(reason("oci-a100", 16), "no GPU is near (PIX or PXB), most others have one");
    // Where no GPU is near to any port, each may be some GPU's rail, whatever its route.
    assert_eq!(reason("oci-a100-no-gpus", 16), "");
    let carries = "its group carries 100 Gb/s, the one that is used 3200 Gb/s";
    assert_eq!(reason("roce8-ib-storage", 8), carries);
    let carries = "its group carries 400 Gb/s, the one that is used 1600 Gb/s";
    assert_eq!(reason("hdr8-ndr-storage", 8), carries);
    assert_eq!(reason("pod-vfs", 0), "its group carries 200 Gb/s, the one that is used 400 Gb/s");
    assert_eq!(reason("ib4-roce8", 4), "another kind of RDMA is used");
    let index = "its GID has index 9, NCCL can only use index 7 for all ports";
    assert_eq!(reason("pod-shared-index", 1), index);
    for name in ["vip", "secondary", "temporary"] {
        let machine = machine(name);
        let gids = machine.choose().ports[0].gids.clone();
        let is_second = |gid: &GidChoice<'_>| gid.excluded.as_deref() == Some("another GID comes before it");
        assert!(gids.iter().any(is_second), "{name}: {gids:?}");
    }
}

#[test]
fn the_gid_of_the_interface_that_the_user_has_chosen_is_used() {
    let index = |name: &str, chosen: &[&str]| {
        let place = |interface: &str| chosen.iter().position(|chosen| *chosen == interface);
        machine(name).prefer(|address| place(&address.interface)).choose().gid_index()
    };
    assert_eq!(index("lag-vlan", &[]), Some(3));
    assert_eq!(index("lag-vlan", &["bond0.7"]), Some(5));
    assert_eq!(index("lag-vlan", &["bond0"]), Some(3));
    assert_eq!(index("pod-two-interfaces", &["net1", "eth0"]), Some(5));
    assert_eq!(index("pod-two-interfaces", &["eth0", "net1"]), Some(3));
    // A rail that the user has chosen stays, as it may be some GPU's only one.
    let rails =
        machine("oci-a100-no-gpus").prefer(|address| (address.interface == "ens300f0np0").then_some(0));
    assert_eq!(rails.choose().used().count(), 17);
}

/// The variables for the GIDs, beside the user's own.
fn gids(name: &str, settings: &[&str]) -> Vec<String> {
    let machine = machine(name);
    let value = |name: &str| {
        let (_, value) =
            settings.iter().filter_map(|text| text.split_once('=')).find(|(own, _)| *own == name)?;
        Some(value.to_owned())
    };
    let users = Users::new(value);
    let transport = Transport::alone(&machine.choose());
    let variables = mingle_rdma::beside(&machine, transport, &users).into_iter();
    let of_gids = variables.filter(|(name, _)| name.contains("_IB_") && *name != "NCCL_IB_HCA");
    of_gids.map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn an_nccl_of_a_version_without_a_rule_of_its_own_gets_an_index() {
    let of_nccl = |version: &str| {
        let all = gids("rail8-same", &[&format!("NCCL_VERSION={version}")]).into_iter();
        all.filter(|line| line.starts_with("NCCL_")).collect::<Vec<_>>()
    };
    for version in ["2.20.5-1", "1.9"] {
        assert_eq!(of_nccl(version), ["NCCL_IB_GID_INDEX=3"], "{version}");
    }
    for version in ["2.21.5", "3"] {
        assert_eq!(
            of_nccl(version),
            ["NCCL_IB_ADDR_FAMILY=AF_INET", "NCCL_IB_ROCE_VERSION_NUM=2"],
            "{version}"
        );
    }
}

#[test]
fn a_library_whose_devices_the_user_lists_is_told_nothing_of_gids() {
    for machine in ["one-roce", "pod-shared-foreign", "pod-two-indices", "roce-ipv6"] {
        let lists = ["NCCL_IB_HCA=mine", "UCX_NET_DEVICES=all", "NVSHMEM_HCA_LIST=mlx5_1:1"];
        for list in lists {
            let prefix = &list[..list.find('_').unwrap()];
            let (with, without) = (gids(machine, &[list]), gids(machine, &[]));
            let others = without.into_iter().filter(|line| !line.starts_with(prefix));
            assert_eq!(with, others.collect::<Vec<_>>(), "{machine}, {list}");
        }
        assert_eq!(gids(machine, &lists), [""; 0], "{machine}");
    }
}

#[test]
fn nothing_is_printed_that_the_users_own_variables_contradict() {
    let left = |setting: &str| {
        let machine = machine("pod-shared-foreign");
        let (own, value) = setting.split_once('=').unwrap();
        let users = Users::new(|name| (name == own).then(|| value.to_owned()));
        let variables = mingle_rdma::beside(&machine, Transport::alone(&machine.choose()), &users);
        variables.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    for transports in ["all", "rc,sm,self", "^rc", "tcp,sm,self", "^ib"] {
        let setting = format!("UCX_TLS={transports}");
        assert_eq!(left(&setting), "NCCL_IB_HCA NVSHMEM_HCA_LIST NCCL_IB_GID_INDEX NVSHMEM_IB_GID_INDEX");
    }
    let without_index = "NCCL_IB_HCA UCX_NET_DEVICES NVSHMEM_HCA_LIST NCCL_IB_GID_INDEX NVSHMEM_IB_GID_INDEX";
    assert_eq!(left("UCX_IB_ROCE_SUBNETS=10.77.0.0/24"), without_index);
    let others = "NCCL_IB_HCA UCX_NET_DEVICES NCCL_IB_GID_INDEX UCX_IB_GID_INDEX";
    assert_eq!(left("NVSHMEM_HCA_PE_MAPPING=mlx5_0:1:2"), others);
    assert_eq!(left("NVSHMEM_HCA_PE_MAPPING="), left("NOTHING=1"));
}

#[test]
fn the_gpu_nearest_to_each_device_is_behind_the_same_switch() {
    let machine = Machine::from_snapshot(&machines().join("rail8-same")).unwrap();
    assert_eq!(machine.choose().kind, Capability::Roce);
    assert_eq!(machine.gpus.len(), 8);
    for device in &machine.devices {
        let near = machine.gpus.iter().filter(|gpu| gpu.distance(device).unwrap().to_string() == "PIX");
        assert_eq!(near.count(), 1, "{}", device.name);
    }
}

#[test]
fn a_folder_that_is_not_a_snapshot_is_an_error() {
    let error = Machine::from_snapshot(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("addrs.txt"), "{error}");
}

/// The indices that the ranks of a world of these machines use, each on its own.
fn indices(names: &[&str]) -> Vec<Option<u32>> {
    let machines: Vec<Machine> = names.iter().map(|name| machine(name)).collect();
    let ranks = machines
        .iter()
        .map(|machine| RankSummary { address: [10, 0, 0, 1].into(), summary: Summary::new(machine) });
    let verdict = Verdict::of(&ranks.collect::<Vec<_>>());
    let index = |machine: Machine| machine.agree(&verdict).choose_in(verdict.transport).gid_index();
    machines.into_iter().map(index).collect()
}

#[test]
fn ranks_with_the_same_networks_in_another_order_use_that_of_the_first() {
    let (plain, vlan) = ("lag-vlan", "lag-vlan-first");
    assert_eq!(indices(&[plain, plain]), [Some(3); 2]);
    assert_eq!(indices(&[vlan, vlan]), [Some(3); 2]);
    // 10.10.0.0/24, and then 10.10.7.0/24.
    assert_eq!(indices(&[plain, vlan, plain]), [Some(3), Some(5), Some(3)]);
    assert_eq!(indices(&[vlan, plain]), [Some(3), Some(5)]);
    // The third has 10.10.0.0/24 alone, the fourth neither.
    assert_eq!(indices(&[vlan, vlan, "one-roce"]), [Some(5), Some(5), Some(3)]);
    assert_eq!(indices(&[vlan, plain, "secondary"]), [Some(3), Some(3), indices(&["secondary"])[0]]);
}

#[test]
fn an_address_that_the_host_gave_itself_is_used_where_it_has_no_other_or_another_rank_has_none() {
    let (beside, alone) = ("makeshift-beside", "makeshift-alone");
    assert_eq!([indices(&[beside, beside]), indices(&[alone, alone])], [[Some(5); 2], [Some(3); 2]]);
    assert_eq!(indices(&[beside, alone]), [Some(3); 2]);
    let machine = machine(beside);
    let reasons: Vec<_> =
        machine.choose().ports[0].gids.iter().filter_map(|gid| gid.excluded.clone()).collect();
    assert_eq!(reasons[3], "another GID comes before it", "{reasons:?}");
}

#[test]
fn a_network_chooses_among_the_addresses_of_an_interface() {
    let of = |network: &str| {
        let is_in = |held: &mingle_rdma::Address| held.net.addr().to_string().starts_with(network);
        machine("secondary").prefer(|held| is_in(held).then_some(0)).choose().gid_index()
    };
    let all: Vec<String> =
        machine("secondary").addresses.iter().map(|held| held.net.addr().to_string()).collect();
    assert!(all.len() >= 2, "{all:?}");
    assert_ne!(of(&all[0]), of(&all[1]), "{all:?}");
}

/// The verdict of a world of these hosts, with some ranks on each.
fn world(hosts: &[Machine], ranks: usize) -> Verdict {
    let rank = |(at, host): (usize, &Machine)| {
        let address = [10, 9, 0, u8::try_from(at).expect("few hosts")].into();
        vec![RankSummary { address, summary: Summary::new(host) }; ranks]
    };
    Verdict::of(&hosts.iter().enumerate().flat_map(rank).collect::<Vec<_>>())
}

/// The variables for cables that each host of such a world prints.
fn for_cables(hosts: &[Machine], verdict: &Verdict) -> Vec<String> {
    let of = |host: &Machine| {
        let host = host.clone().agree(verdict);
        let all = mingle_rdma::beside(&host, verdict.transport, &Users::default()).into_iter();
        let names = ["NCCL_IB_SUBNET", "NCCL_IB_MERGE", "NCCL_NET"];
        let own = all.filter(|(name, _)| names.iter().any(|beginning| name.starts_with(beginning)));
        own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    hosts.iter().map(of).collect()
}

const FOR_CABLES: &str = "NCCL_IB_SUBNET_AWARE_ROUTING=1 NCCL_IB_MERGE_NICS=0 NCCL_NET_PLUGIN=none";

#[test]
fn a_ring_of_three_gets_what_nvidias_playbook_sets_and_no_other_network_does() {
    let ring = RING.map(spark);
    for ranks in [1, 4] {
        assert_eq!(for_cables(&ring, &world(&ring, ranks)), [FOR_CABLES; 3], "{ranks} ranks on each host");
    }
    for (name, hosts) in OTHERS {
        let hosts: Vec<Machine> = hosts.iter().map(|addresses| spark(*addresses)).collect();
        for ranks in [1, 4] {
            let verdict = world(&hosts, ranks);
            assert_eq!(verdict.cables, None, "{name}");
            assert!(for_cables(&hosts, &verdict).iter().all(String::is_empty), "{name}");
        }
    }
    assert_eq!(world(&vec![machine("rail8-same"); 4], 1).cables, None);
}

#[test]
fn two_nodes_on_a_host_are_no_ring_with_a_third_host() {
    let pair = [spark(RING[0]), spark(RING[1])];
    assert_eq!(world(&pair, 2).cables, None);
    assert_eq!(world(&[spark(RING[0]), spark(RING[0]), spark(RING[1])], 1).cables, None);
}

#[test]
fn four_hosts_of_which_each_two_share_a_cable_are_a_mesh() {
    let mesh = [
        ["10.0.1.1/30", "10.0.2.1/30", "10.0.3.1/30", ""],
        ["10.0.1.2/30", "10.0.4.1/30", "10.0.5.1/30", ""],
        ["10.0.2.2/30", "10.0.4.2/30", "10.0.6.1/30", ""],
        ["10.0.3.2/30", "10.0.5.2/30", "10.0.6.2/30", ""],
    ];
    let mut hosts = mesh.map(spark);
    let with_length = format!("{FOR_CABLES} NCCL_IB_SUBNET_PREFIX_LEN=30");
    assert_eq!(for_cables(&hosts, &world(&hosts, 1)), [with_length.as_str(); 4]);
    // The prefixes of the first and the second host differ among themselves.
    hosts[0] = spark(["10.0.1.1/29", mesh[0][1], mesh[0][2], ""]);
    hosts[1] = spark(["10.0.1.2/29", mesh[1][1], mesh[1][2], ""]);
    let expected = [FOR_CABLES, FOR_CABLES, with_length.as_str(), with_length.as_str()];
    assert_eq!(for_cables(&hosts, &world(&hosts, 1)), expected);
}

#[test]
fn a_user_with_a_network_or_a_plugin_of_their_own_keeps_all_ranks_from_doing_without_plugins() {
    let ring = RING.map(spark);
    let with = |change: fn(&mut Summary)| {
        let mut ranks = ring.each_ref().map(Summary::new);
        change(&mut ranks[1]);
        let rank = |(at, summary)| RankSummary { address: [10, 9, 0, at].into(), summary };
        Verdict::of(&(0..).zip(ranks).map(rank).collect::<Vec<_>>())
    };
    let verdict = with(|summary| summary.own_net = true);
    let expected = "NCCL_IB_SUBNET_AWARE_ROUTING=1 NCCL_IB_MERGE_NICS=0";
    assert_eq!(for_cables(&ring, &verdict), [expected; 3]);
    // The networks of a rank that was not examined are unknown, and sockets need no rule.
    assert_eq!(with(|summary| *summary = Summary::default()).cables, None);
    assert_eq!(with(|summary| *summary = summary.disabled()).cables, None);
}
