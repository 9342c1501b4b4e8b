//! Tests of the probe with files that are wrong, fail and vanish.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::files::Files;
use super::{
    Address, AddressFamily, Capability, Choice, GidEntry, Machine, Relation, Summary, Transport, Users, read,
    save,
};

/// Files in memory: texts and links by path. A folder exists if a path implies it.
#[derive(Debug, Default)]
struct Tree {
    texts: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    /// The number of calls so far.
    calls: Cell<usize>,
    /// Which calls fail, and with which error.
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    first: usize,
    /// Whether all later calls fail too, as when a device has vanished.
    lasting: bool,
    errno: i32,
}

impl Tree {
    fn put(&mut self, path: &str, text: &str) {
        self.texts.insert(path.to_owned(), text.to_owned());
    }

    fn failing(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    fn call(&self) -> io::Result<()> {
        let call = self.calls.replace(self.calls.get() + 1);
        match self.fault {
            Some(fault) if call == fault.first || fault.lasting && call > fault.first => {
                Err(io::Error::from_raw_os_error(fault.errno))
            }
            _ => Ok(()),
        }
    }

    /// The path with its link resolved.
    fn real(&self, path: &str) -> String {
        let through = self.links.iter().find_map(|(link, target)| {
            let rest = path.strip_prefix(link.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{target}{rest}"))
        });
        through.unwrap_or_else(|| path.to_owned())
    }
}

impl Files for Tree {
    fn read(&self, path: &str) -> io::Result<String> {
        self.call()?;
        let text = self.texts.get(&self.real(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.trim().to_owned())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.call()?;
        let folder = format!("{}/", self.real(path));
        let all = self.texts.keys().chain(self.links.keys());
        let names = all.filter_map(|path| path.strip_prefix(&folder)?.split('/').next());
        let names: BTreeSet<&str> = names.collect();
        if names.is_empty() {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok(names.into_iter().map(str::to_owned).collect())
        }
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        self.call()?;
        self.links.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open_device(&self, name: &str) -> io::Result<()> {
        self.call()?;
        self.texts
            .get(&format!("dev_infiniband/{name}"))
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

const OWN: [(&str, Ipv4Addr); 2] =
    [("eth1", Ipv4Addr::new(10, 1, 0, 5)), ("eth2", Ipv4Addr::new(10, 2, 0, 5))];

fn read_with(files: &impl Files, addresses: Vec<Address>) -> Machine {
    read::machine(files, Machine { addresses, ..Machine::default() })
}

fn held(interface: &str, network: &str) -> Address {
    Address {
        interface: interface.to_owned(),
        net: network.parse().unwrap(),
        standing: None,
        preference: None,
    }
}

fn addresses() -> Vec<Address> {
    OWN.iter().map(|(interface, address)| held(interface, &format!("{address}/24"))).collect()
}

/// The kernel's form of a GID.
fn written(gid: Ipv6Addr) -> String {
    gid.segments().map(|group| format!("{group:04x}")).join(":")
}

/// Two RoCE devices with one port each. A port has `slots` GIDs, of which the fourth is the right one.
fn two_rails(slots: usize) -> Tree {
    let mut tree = Tree::default();
    for (n, (interface, address)) in OWN.iter().enumerate() {
        let device = format!("class/infiniband/mlx5_{n}");
        let pci = format!("devices/pci0000:{n}0/0000:{n}0:01.0");
        tree.links.insert(format!("{device}/device"), pci.clone());
        tree.put(&format!("{pci}/vendor"), "0x15b3\n");
        tree.put(&format!("{pci}/device"), "0x1021\n");
        tree.put(&format!("{pci}/numa_node"), "1\n");
        tree.put(&format!("{pci}/net/{interface}/type"), "1\n");
        tree.put(&format!("{device}/node_type"), "1: CA\n");
        tree.put(&format!("class/infiniband_verbs/uverbs{n}/ibdev"), &format!("mlx5_{n}\n"));
        tree.put(&format!("dev_infiniband/uverbs{n}"), "");
        let port = format!("{device}/ports/1");
        tree.put(&format!("{port}/state"), "4: ACTIVE\n");
        tree.put(&format!("{port}/link_layer"), "Ethernet\n");
        tree.put(&format!("{port}/rate"), "400 Gb/sec (4X NDR)\n");
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let foreign = Ipv4Addr::new(10, 9, 0, 9).to_ipv6_mapped();
        for slot in 0..slots {
            let gid = match slot {
                0 | 1 => link_local,
                2 | 3 => address.to_ipv6_mapped(),
                4 | 5 => foreign,
                _ => Ipv6Addr::UNSPECIFIED,
            };
            tree.put(&format!("{port}/gids/{slot}"), &format!("{}\n", written(gid)));
            if !gid.is_unspecified() {
                let version = if slot % 2 == 0 { "IB/RoCE v1\n" } else { "RoCE v2\n" };
                tree.put(&format!("{port}/gid_attrs/types/{slot}"), version);
                tree.put(&format!("{port}/gid_attrs/ndevs/{slot}"), &format!("{interface}\n"));
            }
        }
    }
    tree
}

fn variables(machine: &Machine) -> BTreeMap<&'static str, String> {
    let transport = Transport::alone(&machine.choose());
    crate::beside(machine, transport, &Users::default()).into_iter().collect()
}

/// Checks that all that was chosen is true of `whole`, the machine without faults.
fn holds(choice: &Choice<'_>, whole: &Machine) {
    for port in choice.used() {
        let device = whole.devices.iter().find(|device| device.name == port.device.name).unwrap();
        let truth = device.ports.iter().find(|truth| truth.number == port.port.number).unwrap();
        // Where the GIDs with an address have failed, NCCL takes one itself.
        let Some(gid) = port.gids.iter().find(|gid| gid.excluded.is_none()) else { continue };
        // The relation of the interface to the port is a guess if its files have failed.
        let same = |other: &&GidEntry| GidEntry { relation: other.relation, ..gid.entry.clone() } == **other;
        assert!(truth.gids.iter().any(|other| same(&other)), "{:?} is not in the table", gid.entry);
        let is_held = whole.addresses.iter().any(|held| held.net.addr() == gid.entry.address());
        assert!(is_held || gid.entry.is_link_local(), "{:?}", gid.entry);
    }
}

#[test]
fn two_equal_ports_get_a_list_and_what_makes_nccls_own_choice_certain() {
    let machine = read_with(&two_rails(8), addresses());
    let found = variables(&machine);
    assert_eq!(found["NCCL_IB_HCA"], "=mlx5_0:1,mlx5_1:1");
    assert_eq!((&*found["NCCL_IB_ADDR_FAMILY"], &*found["NCCL_IB_ROCE_VERSION_NUM"]), ("AF_INET", "2"));
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn a_file_that_fails_at_any_moment_leads_to_no_wrong_choice() {
    let tree = two_rails(8);
    let whole = read_with(&tree, addresses());
    let calls = tree.calls.get();
    assert!(calls > 60, "{calls} calls");
    // EIO, ENODEV, EINVAL, EACCES.
    for errno in [5, 19, 22, 13] {
        for (first, lasting) in (0..calls).flat_map(|first| [(first, false), (first, true)]) {
            let faulty = two_rails(8).failing(Fault { first, lasting, errno });
            let machine = read_with(&faulty, addresses());
            let choice = machine.choose();
            holds(&choice, &whole);
            let found = variables(&machine);
            if let Some(index) = found.get("NCCL_IB_GID_INDEX") {
                // If the right GID has failed, no GID of v2 is left.
                assert!(index == "3" || index == "2" && machine.choose().used().count() == 1, "{found:?}");
            }
        }
    }
}

#[test]
fn a_tunnel_comes_after_the_ports_own_interface_and_a_lower_index_first() {
    let mut tree = two_rails(8);
    let port = "class/infiniband/mlx5_0/ports/1";
    // Two interfaces cannot have the same address, so the tunnel has its own.
    let tunnel = Ipv4Addr::new(10, 7, 0, 5);
    for (slot, interface, address) in [(1, "vxlan0", tunnel), (6, "eth1.7", Ipv4Addr::new(10, 8, 0, 5))] {
        tree.put(&format!("{port}/gids/{slot}"), &written(address.to_ipv6_mapped()));
        tree.put(&format!("{port}/gid_attrs/types/{slot}"), "RoCE v2");
        tree.put(&format!("{port}/gid_attrs/ndevs/{slot}"), interface);
    }
    let mut held = addresses();
    let also = |interface: &str, address: Ipv4Addr| super::tests::held(interface, &format!("{address}/24"));
    held.extend([also("vxlan0", tunnel), also("eth1.7", Ipv4Addr::new(10, 8, 0, 5))]);
    let machine = read_with(&tree, held.clone());
    let choice = machine.choose();
    let reasons: Vec<_> =
        choice.ports[0].gids.iter().map(|gid| gid.excluded.as_ref().map(ToString::to_string)).collect();
    assert_eq!(choice.ports[0].gid_index(), Some(3));
    assert_eq!(reasons[1].as_deref(), Some("another GID comes before it"));
    assert_eq!(reasons[6].as_deref(), Some("another GID comes before it"));
    // Without another GID the tunnel's is used.
    held.retain(|address| address.interface != "eth1" && address.interface != "eth1.7");
    let machine = read_with(&tree, held);
    assert_eq!(machine.choose().ports[0].gid_index(), Some(1));
}

#[test]
fn every_interface_of_a_device_with_two_is_its_own() {
    let mut tree = two_rails(8);
    // The kernel lists both ports of a card with two below one PCI device.
    tree.put("devices/pci0000:00/0000:00:01.0/net/eth0/type", "1\n");
    let machine = read_with(&tree, addresses());
    assert_eq!(machine.devices[0].ports[0].gids[3].relation, Relation::Own);
    assert_eq!(machine.choose().ports[0].gid_index(), Some(3));
}

/// Two InfiniBand devices.
fn infiniband() -> Tree {
    let mut tree = two_rails(8);
    for n in 0..2 {
        tree.put(&format!("class/infiniband/mlx5_{n}/ports/1/link_layer"), "InfiniBand\n");
    }
    tree
}

#[test]
fn an_infiniband_port_needs_no_gid() {
    let mut tree = infiniband();
    tree.texts.retain(|path, _| !path.contains("gids") && !path.contains("gid_attrs"));
    let machine = read_with(&tree, addresses());
    assert_eq!(variables(&machine)["NCCL_IB_HCA"], "=mlx5_0:1,mlx5_1:1");
}

#[test]
fn an_infiniband_port_that_is_down_excludes_no_ethernet() {
    let mut tree = two_rails(8);
    tree.put("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    tree.put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let machine = read_with(&tree, addresses());
    let choice = machine.choose();
    assert_eq!((choice.kind, choice.used().count()), (Capability::Roce, 1));
    let reasons = |port: usize| {
        let gids = choice.ports[port].gids.iter();
        gids.filter_map(|gid| gid.excluded.as_ref().map(ToString::to_string)).collect::<BTreeSet<_>>()
    };
    assert_eq!(reasons(0), BTreeSet::from(["the port is not used".to_owned()]));
    tree.put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    let machine = read_with(&tree, addresses());
    assert_eq!((machine.choose().kind, machine.choose().used().count()), (Capability::InfiniBand, 1));
}

#[test]
fn a_gid_whose_interface_is_not_named_belongs_to_none() {
    let mut tree = two_rails(8);
    for name in ["\n", "a/b\n"] {
        tree.put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", name);
        assert_eq!(read_with(&tree, addresses()).devices[0].ports[0].gids[3].interface, None, "{name:?}");
    }
}

#[test]
fn a_host_whose_devices_are_gone_since_it_reported_them_gets_no_list_of_devices() {
    let machine = read_with(&Tree::default(), addresses());
    assert_eq!(crate::beside(&machine, Transport::InfiniBand, &Users::default()), []);
}

#[test]
fn a_summary_says_what_can_be_used() {
    let mut tree = two_rails(8);
    let capability = |tree: &Tree| Summary::new(&read_with(tree, addresses())).capability;
    assert_eq!(capability(&tree), Capability::Roce);
    for n in 0..2 {
        tree.put(&format!("class/infiniband/mlx5_{n}/ports/1/state"), "1: DOWN\n");
    }
    assert_eq!(capability(&tree), Capability::NoUsablePort);
    assert_eq!(capability(&Tree::default()), Capability::NoDevice);
}

#[test]
fn the_interface_on_which_a_software_device_runs_is_its_own() {
    let mut tree = two_rails(8);
    let relation = |tree: &Tree| read_with(tree, addresses()).devices[0].ports[0].gids[3].relation;
    tree.put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "eth5\n");
    assert_ne!(relation(&tree), Relation::Own);
    tree.put("class/infiniband/mlx5_0/parent", "eth5\n");
    assert_eq!(relation(&tree), Relation::Own);
}

#[test]
fn efa_is_amazons_and_is_not_used_beside_roce() {
    let mut tree = two_rails(8);
    tree.put("class/infiniband/mlx5_1/node_type", "7: unspecified\n");
    tree.put("class/infiniband/mlx5_1/ports/1/link_layer", "Unspecified\n");
    tree.put("devices/pci0000:10/0000:10:01.0/vendor", "0x1d0f\n");
    let machine = read_with(&tree, addresses());
    let choice = machine.choose();
    assert_eq!((choice.kind, choice.used().count()), (Capability::Roce, 1));
    assert_eq!(choice.ports[1].excluded.as_ref().unwrap().to_string(), "another kind of RDMA is used");
    tree.put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let machine = read_with(&tree, addresses());
    assert_eq!(machine.choose().kind, Capability::Efa);
    let found = crate::beside(&machine, Transport::Sockets, &Users::default());
    assert_eq!(found, [("NCCL_NET", "Socket".to_owned())]);
    tree.put("devices/pci0000:10/0000:10:01.0/vendor", "0x15b3\n");
    assert_eq!(read_with(&tree, addresses()).choose().kind, Capability::NoUsablePort);
}

#[test]
fn ports_with_only_ipv6_or_only_v1_get_the_variables_that_say_so() {
    let mut tree = two_rails(8);
    let mut held = addresses();
    for n in 0..2 {
        let address = Ipv6Addr::new(0xfd00, 0, 0, n, 0, 0, 0, 5);
        held[usize::from(n)].net = ipnet::IpNet::new(address.into(), 24).unwrap();
        let gid = written(address);
        tree.put(&format!("class/infiniband/mlx5_{n}/ports/1/gids/2"), &gid);
        tree.put(&format!("class/infiniband/mlx5_{n}/ports/1/gids/3"), &gid);
    }
    let machine = read_with(&tree, held.clone());
    assert_eq!(machine.choose().addressing.map(|addressing| addressing.family), Some(AddressFamily::Ipv6));
    let found = variables(&machine);
    assert_eq!(found["NCCL_IB_ADDR_FAMILY"], "AF_INET6");
    assert_eq!(found["NVSHMEM_IB_ADDR_FAMILY"], "AF_INET6");
    assert_eq!((found.get("NCCL_IB_GID_INDEX"), &*found["NCCL_IB_ROCE_VERSION_NUM"]), (None, "2"));

    for n in 0..2 {
        tree.texts.remove(&format!("class/infiniband/mlx5_{n}/ports/1/gids/3"));
    }
    let machine = read_with(&tree, held);
    let found = variables(&machine);
    assert_eq!((found.get("NCCL_IB_GID_INDEX"), &*found["NCCL_IB_ROCE_VERSION_NUM"]), (None, "1"));
    let transport = Transport::alone(&machine.choose());
    assert!(crate::warnings(&machine, transport, &Users::default())[0].contains("RoCE v1 is used"));
}

#[test]
fn a_port_with_another_family_than_most_is_not_used() {
    let mut tree = two_rails(8);
    let mut held = addresses();
    // Add a third port, so that most ports have IPv4.
    for (path, text) in tree.texts.clone() {
        if path.contains("mlx5_1") || path.contains("pci0000:10") || path.contains("uverbs1") {
            let path = path
                .replace("mlx5_1", "mlx5_2")
                .replace("pci0000:10", "pci0000:20")
                .replace("uverbs1", "uverbs2");
            tree.put(&path, &text.replace("mlx5_1", "mlx5_2"));
        }
    }
    tree.links
        .insert("class/infiniband/mlx5_2/device".to_owned(), "devices/pci0000:20/0000:10:01.0".to_owned());
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
    held.push(super::tests::held("eth2", &format!("{address}/64")));
    for slot in [2, 3] {
        tree.put(&format!("class/infiniband/mlx5_2/ports/1/gids/{slot}"), &written(address));
    }
    let machine = read_with(&tree, held);
    let choice = machine.choose();
    assert_eq!(variables(&machine)["NCCL_IB_HCA"], "=mlx5_0:1,mlx5_1:1");
    let left = choice.ports[2].excluded.as_ref().unwrap().to_string();
    assert_eq!(left, "no GID for RoCE v2 over IPv4, which the other ports use");
}

#[test]
fn a_gid_that_could_not_be_used_anyway_keeps_its_reason_where_the_port_is_not_used() {
    let mut tree = two_rails(8);
    tree.put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let machine = read_with(&tree, addresses());
    let choice = machine.choose();
    let reason = |slot: usize| choice.ports[0].gids[slot].excluded.as_ref().map(ToString::to_string);
    assert!(choice.ports[0].excluded.is_some());
    let port = Some("the port is not used".to_owned());
    assert_eq!(reason(3), port, "its own address");
    assert!([1, 5].map(reason).iter().all(|other| other.is_some() && *other != port));
}

#[test]
fn a_traffic_class_is_printed_only_if_all_ports_have_the_same() {
    let mut tree = two_rails(8);
    tree.put("class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n");
    assert!(!variables(&read_with(&tree, addresses())).contains_key("NCCL_IB_TC"));
    tree.put("class/infiniband/mlx5_1/tc/1/traffic_class", "Global tclass=104\n");
    assert!(!variables(&read_with(&tree, addresses())).contains_key("NCCL_IB_TC"));
    tree.put("class/infiniband/mlx5_1/tc/1/traffic_class", "Global tclass=106\n");
    assert_eq!(variables(&read_with(&tree, addresses()))["NCCL_IB_TC"], "106");
}

#[test]
fn a_device_that_programs_cannot_open_is_not_used() {
    let mut tree = two_rails(8);
    tree.texts.remove("dev_infiniband/uverbs1");
    let machine = read_with(&tree, addresses());
    assert_eq!(variables(&machine)["NCCL_IB_HCA"], "=mlx5_0:1");
    tree.texts.remove("class/infiniband_verbs/uverbs0/ibdev");
    let machine = read_with(&tree, addresses());
    assert_eq!(machine.choose().kind, Capability::NoUsablePort);
    assert_eq!(variables(&machine), BTreeMap::from([("NCCL_NET", "Socket".to_owned())]));
    // If /dev/infiniband cannot be listed, nothing is concluded from that.
    tree.texts.retain(|path, _| !path.starts_with("dev_infiniband"));
    assert_eq!(variables(&read_with(&tree, addresses()))["NCCL_IB_HCA"], "=mlx5_0:1,mlx5_1:1");
}

#[test]
fn a_saved_machine_is_read_unchanged() {
    let folder = std::env::temp_dir().join(format!("mingle-saved-{}", std::process::id()));
    let mut tree = two_rails(1024);
    tree.put("module/nvidia_peermem/refcnt", "0\n");
    let gpu = "devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    tree.put(&format!("{gpu}/class"), "0x030200\n");
    tree.put(&format!("{gpu}/vendor"), "0x10de\n");
    tree.links.insert("bus/pci/devices/0000:01:00.0".to_owned(), gpu.to_owned());
    let machine = read_with(&tree, addresses());
    let saved = save::save(&tree, read_with(&Tree::default(), addresses()), &folder);
    let again = Machine::from_snapshot(&folder);
    let twice = save::save(&tree, read_with(&Tree::default(), addresses()), &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    saved.unwrap();
    assert_eq!(again.unwrap(), machine);
    assert_eq!((machine.gpus.len(), machine.peer_memory.as_deref()), (1, Some("nvidia_peermem")));
    assert_eq!(twice.unwrap_err().to_string(), "the folder is not empty");
}

/// Contents of a file: a valid text, a part of one, or anything.
fn text() -> impl Strategy<Value = String> {
    let right = prop::sample::select(vec![
        "4: ACTIVE",
        "1: CA",
        "4: RNIC",
        "7: unspecified",
        "Ethernet",
        "InfiniBand",
        "Unknown",
        "400 Gb/sec (4X NDR)",
        "RoCE v2",
        "IB/RoCE v1",
        "eth1",
        "eth2",
        "0x15b3",
        "mlx5_0",
        "",
        "0000:0000:0000:0000:0000:ffff:0a01:0005",
        "0000:0000:0000:0000:0000:ffff:0a02:0005",
        "fe80:0000:0000:0000:0000:0000:0000:0001",
        "Global tclass=106",
        "Global tclass=999",
    ]);
    let half = (right.clone(), 0..40usize).prop_map(|(text, end)| text.chars().take(end).collect::<String>());
    prop_oneof![4 => right.prop_map(str::to_owned), 2 => half, 1 => ".{0,60}", 1 => "[0-9a-f:]{0,45}"]
}

proptest! {
    #[test]
    fn no_contents_make_the_probe_panic_or_return_a_part_of_a_value(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(text())), 0..40),
        names in prop::collection::vec("[-a-z0-9$'\"\u{1b} :,=_]{1,20}", 0..3),
        fault in prop::option::of((0..200usize, any::<bool>())),
    ) {
        let mut tree = two_rails(10);
        for (at, change) in changes {
            let path = at.get(&tree.texts.keys().cloned().collect::<Vec<_>>()).clone();
            match change {
                Some(text) => tree.texts.insert(path, text),
                None => tree.texts.remove(&path),
            };
        }
        for name in names {
            for (path, text) in tree.texts.clone() {
                if path.contains("mlx5_1") {
                    tree.put(&path.replace("mlx5_1", &name), &text);
                }
            }
            tree.put("class/infiniband_verbs/uverbs7/ibdev", &name);
            tree.put("dev_infiniband/uverbs7", "");
        }
        tree.fault = fault.map(|(first, lasting)| Fault { first, lasting, errno: 5 });
        let machine = read_with(&tree, addresses());
        let choice = machine.choose();
        for port in &choice.ports {
            // Each value is in a file as a whole.
            for gid in &port.port.gids {
                prop_assert!(tree.texts.values().any(|text| text.trim() == written(gid.gid)));
            }
            if let Some(rate) = port.port.rate {
                let rate = format!("{} Gb/sec", f64::from(rate) / 1000.0);
                prop_assert!(tree.texts.values().any(|text| text.trim().starts_with(&rate)), "{}", rate);
            }
            for reason in port.excluded.iter().map(ToString::to_string) {
                prop_assert!(!reason.is_empty());
            }
            prop_assert!(port.is_used() || port.gids.iter().all(|gid| gid.excluded.is_some()));
        }
        for (name, value) in variables(&machine) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_.,:=@+-".contains(c);
            prop_assert!(value.chars().all(plain), "{}={}", name, value);
        }
    }
}
