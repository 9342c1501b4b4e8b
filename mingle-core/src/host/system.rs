//! Reading the host's interfaces from the kernel, in one cheap pass: it is on the way of every start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use network_interface::{Addr, NetworkInterface, V4IfAddr, V6IfAddr};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrStorage};

use super::interface::{Interface, Kind};

/// All interfaces of this network namespace, by index.
pub(crate) fn list() -> io::Result<Vec<Interface>> {
    // network-interface tells no flags. /sys/class/net would, but of the namespace in which /sys was
    // mounted, and that need not be ours (`unshare -n`, some containers); netlink is always ours.
    let entries: Vec<InterfaceAddress> = getifaddrs()?.collect();
    let flags: BTreeMap<&str, InterfaceFlags> =
        entries.iter().map(|entry| (&*entry.interface_name, entry.flags)).collect();
    // What network-interface shows, from this one list: it would ask the kernel for another, and open a socket for
    // every entry to ask for its index, 40 ms for the 600 interfaces of a Kubernetes host; and it fails as a whole
    // where one name is not UTF-8.
    let found = without_the_crate(&entries);

    let mut interfaces: BTreeMap<u32, (Interface, Option<String>)> = BTreeMap::new();
    // An interface that vanishes while it is read has no index any more.
    for entry in found.into_iter().filter(|entry| entry.index != 0) {
        let name = unlabelled(&entry.name);
        let flags = flags.get(&*entry.name).copied().unwrap_or(InterfaceFlags::empty());
        let (interface, mac) = interfaces.entry(entry.index).or_insert_with(|| {
            let kind =
                if flags.contains(InterfaceFlags::IFF_LOOPBACK) { Kind::Loopback } else { Kind::Other };
            let interface = Interface {
                name: name.to_owned(),
                index: entry.index,
                kind,
                default_route: false,
                up: flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
                multicast: flags.contains(InterfaceFlags::IFF_MULTICAST),
                addresses: Vec::new(),
                deprecated: Vec::new(),
            };
            (interface, None)
        });
        // The crate lists by hash, so a label may come before its interface; primary addresses go first.
        let addresses = entry.addr.into_iter().map(net);
        let at = if name == entry.name { 0 } else { interface.addresses.len() };
        interface.addresses.splice(at..at, addresses);
        *mac = mac.take().or(entry.mac_addr);
    }

    let mut interfaces: Vec<(Interface, Option<String>)> = interfaces.into_values().collect();
    if interfaces.iter().any(|(i, _)| i.kind != Kind::Loopback && i.addresses.iter().any(is_general_v6)) {
        // Without the file nothing is known against any address.
        let states = parse_if_inet6(lines(Path::new("/proc/net/if_inet6")));
        for (interface, _) in &mut interfaces {
            apply_states(interface, &states);
        }
    }
    let leaves = |name: &String| interfaces.iter().any(|(i, _)| i.up && i.name == *name);
    let routes = parse_default_routes(lines(Path::new("/proc/net/route")));
    let default = routes.into_iter().find(leaves).or_else(|| {
        let source = way_out_v6()?;
        let holds = |i: &Interface| i.up && i.addresses.iter().any(|address| address.addr() == source);
        interfaces.iter().find(|(i, _)| i.kind != Kind::Loopback && holds(i)).map(|(i, _)| i.name.clone())
    });
    let finish = |(mut interface, mac): (Interface, Option<String>)| {
        interface.default_route = default.as_ref() == Some(&interface.name);
        // Hundreds of veths have no address but the one that IPv6 gives to every link, and are not worth a
        // look at their folders.
        let addressed = interface.addresses.iter().any(|a| a.addr().is_ipv4() || is_general_v6(a));
        if interface.kind != Kind::Loopback && interface.up && addressed {
            interface.kind = kind(&interface, &Folder::read(Path::new(SYS), &interface, mac.as_deref()));
        }
        interface
    };
    Ok(interfaces.into_iter().map(finish).collect())
}

/// All addresses of this network namespace, and the names of their interfaces.
pub(crate) fn addresses() -> io::Result<Vec<(String, IpNet)>> {
    let named =
        |entry: InterfaceAddress| Some((unlabelled(&entry.interface_name).to_owned(), net(address(&entry)?)));
    Ok(getifaddrs()?.filter_map(named).collect())
}

/// An address may bear a label, "eth0:1": the C library shows it as an interface of its own, whose index, the
/// kernel says, is eth0's.
fn unlabelled(name: &str) -> &str {
    name.split_once(':').map_or(name, |(name, _label)| name)
}

fn is_general_v6(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(net) if !net.addr().is_unicast_link_local())
}

/// What network-interface finds, from the C library's list, with U+FFFD for what is no UTF-8 in a name. Names
/// that are the same then cannot be told apart, so such interfaces have no index.
fn without_the_crate(entries: &[InterfaceAddress]) -> Vec<NetworkInterface> {
    let mut links: BTreeMap<&str, NetworkInterface> = BTreeMap::new();
    for entry in entries {
        let Some(link) = entry.address.as_ref().and_then(SockaddrStorage::as_link_addr) else { continue };
        let index = u32::try_from(link.ifindex()).unwrap_or(0);
        let found = links.entry(&entry.interface_name).or_insert_with(|| NetworkInterface {
            name: entry.interface_name.clone(),
            addr: Vec::new(),
            mac_addr: Some(link.to_string()),
            index,
            internal: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        });
        if found.index != index {
            found.index = 0;
        }
    }
    let mut found = links.clone();
    for entry in entries {
        let (Some(address), Some(link)) = (address(entry), links.get(unlabelled(&entry.interface_name)))
        else {
            continue;
        };
        let labelled = || NetworkInterface { name: entry.interface_name.clone(), ..link.clone() };
        found.entry(&entry.interface_name).or_insert_with(labelled).addr.push(address);
    }
    found.into_values().collect()
}

/// The IP address of an entry that has one.
fn address(entry: &InterfaceAddress) -> Option<Addr> {
    let (address, mask) = (entry.address.as_ref()?, entry.netmask.as_ref());
    if let Some(v4) = address.as_sockaddr_in() {
        let netmask = mask.and_then(SockaddrStorage::as_sockaddr_in).map(SockaddrIn::ip);
        return Some(Addr::V4(V4IfAddr { ip: v4.ip(), broadcast: None, netmask }));
    }
    let netmask = mask.and_then(SockaddrStorage::as_sockaddr_in6).map(SockaddrIn6::ip);
    Some(Addr::V6(V6IfAddr { ip: address.as_sockaddr_in6()?.ip(), broadcast: None, netmask }))
}

fn net(address: Addr) -> IpNet {
    match address {
        Addr::V4(a) => a
            .netmask
            .and_then(|mask| Ipv4Net::with_netmask(a.ip, mask).ok())
            .map_or(IpNet::from(IpAddr::from(a.ip)), IpNet::V4),
        Addr::V6(a) => a
            .netmask
            .and_then(|mask| Ipv6Net::with_netmask(a.ip, mask).ok())
            .map_or(IpNet::from(IpAddr::from(a.ip)), IpNet::V6),
    }
}

const TEMPORARY: u8 = 0x01;
const DAD_FAILED: u8 = 0x08;
const DEPRECATED: u8 = 0x20;
const TENTATIVE: u8 = 0x40;

/// The kernel's flags of every IPv6 address, by address and interface.
fn parse_if_inet6(lines: impl Iterator<Item = String>) -> BTreeMap<(Ipv6Addr, u32), u8> {
    let parse = |line: String| {
        let mut fields = line.split_ascii_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        let index = u32::from_str_radix(fields.next()?, 16).ok()?;
        let flags = u8::from_str_radix(fields.nth(2)?, 16).ok()?;
        Some(((Ipv6Addr::from(address), index), flags))
    };
    lines.filter_map(parse).collect()
}

/// Leaves out what the kernel does not yet, or never will, let anybody use: another host may hold it.
fn apply_states(interface: &mut Interface, states: &BTreeMap<(Ipv6Addr, u32), u8>) {
    let index = interface.index;
    let flags = |address: &IpNet| match address {
        IpNet::V4(_) => 0,
        IpNet::V6(net) => states.get(&(net.addr(), index)).copied().unwrap_or(0),
    };
    interface.addresses.retain(|address| flags(address) & (TENTATIVE | DAD_FAILED) == 0);
    // A temporary one (RFC 8981) is kept from those whom one asks, and is another one tomorrow.
    interface.addresses.sort_by_key(|address| flags(address) & TEMPORARY);
    let deprecated = interface.addresses.iter().filter(|address| flags(address) & DEPRECATED != 0);
    interface.deprecated = deprecated.map(IpNet::addr).collect();
}

/// The lines of a file of /proc. One that is missing has none; a name in it need not be UTF-8.
fn lines(table: &Path) -> impl Iterator<Item = String> + use<> {
    let read = |file| BufReader::new(file).split(b'\n').map_while(Result::ok);
    let lines = File::open(table).ok().into_iter().flat_map(read);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The interfaces of the default routes, the preferred one first. No default route is normal.
fn parse_default_routes(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut routes: Vec<(u32, String)> = Vec::new();
    for line in lines.skip(1) {
        // Not by any white space: a name may hold what Unicode calls so.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[name, destination, _gateway, flags, _refs, _use, metric, mask, ..] = fields.as_slice() else {
            continue;
        };
        // The kernel lists by destination, so the rest of a table of thousands need not be read.
        if destination != "00000000" {
            break;
        }
        // RTF_UP without RTF_REJECT; a mask keeps out the halves by which a VPN covers the default route.
        let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
        if mask == "00000000" && flags & 0x201 == 1 {
            routes.push((metric.parse().unwrap_or(u32::MAX), name.to_owned()));
        }
    }
    routes.sort_by_key(|(metric, _)| *metric); // stable: the first of equals stays the first
    routes.into_iter().map(|(_, name)| name).collect()
}

/// The source address of what would leave by IPv6's default route. No packet is sent: `connect` only asks the
/// routing table. /proc/net/ipv6_route holds four lines for every veth, in an order that means reading all.
fn way_out_v6() -> Option<IpAddr> {
    const ANYWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((ANYWHERE, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

const SYS: &str = "/sys/class/net";

/// What sysfs says of an interface.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Folder {
    /// `DEVTYPE` of `uevent`: bridge, vlan, bond, vxlan...; empty for plain NICs and for veths.
    devtype: String,
    /// Whether it is hardware.
    device: bool,
    /// Whether it stands on hardware: a bond's members, a VLAN's base, a bridge's ports.
    on_device: bool,
}

impl Folder {
    /// Nothing at all where the folder of this name is about another interface, in another namespace.
    fn read(sys: &Path, interface: &Interface, mac: Option<&str>) -> Self {
        let folder = sys.join(&interface.name);
        let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        // Indices start at 1 in every namespace, so an equal one proves little; the hardware address does.
        // network-interface cuts InfiniBand's 20 bytes short, hence the prefix.
        let address = fs::read_to_string(folder.join("address")).unwrap_or_default();
        let same_mac = mac.is_none_or(|mac| address.trim_end().starts_with(mac));
        if value("IFINDEX") != Some(&*interface.index.to_string()) || !same_mac {
            return Self::default();
        }
        let device = folder.join("device").exists();
        Self {
            devtype: value("DEVTYPE").unwrap_or_default().to_owned(),
            device,
            on_device: device || stands_on_device(sys, &interface.name, 4),
        }
    }
}

/// Follows the `lower_*` links: a VLAN on a bond on two NICs is three deep.
fn stands_on_device(sys: &Path, name: &str, depth: u32) -> bool {
    if sys.join(name).join("device").exists() {
        return true;
    }
    let Ok(entries) = fs::read_dir(sys.join(name)) else { return false };
    depth > 0
        && entries.flatten().any(|entry| {
            let file = entry.file_name();
            let lower = file.to_str().and_then(|file| file.strip_prefix("lower_"));
            lower.is_some_and(|lower| stands_on_device(sys, lower, depth - 1))
        })
}

/// Names that container runtimes, Kubernetes networks and hypervisors give to what stays inside a host or
/// runs over another network, sysfs or not.
const VIRTUAL: &[&str] = &[
    "antrea",
    "br-",
    "cali",
    "cilium",
    "cni",
    "docker",
    "flannel",
    "genev",
    "incusbr",
    "kube-",
    "lxc",
    "lxdbr",
    "nerdctl",
    "nodelocaldns",
    "ovn-",
    "ovs-",
    "podman",
    "tunl",
    "vboxnet",
    "veth",
    "virbr",
    "vmnet",
    "vnet",
    "vxlan",
    "weave",
];

fn kind(interface: &Interface, folder: &Folder) -> Kind {
    let named_virtual = VIRTUAL.iter().any(|prefix| interface.name.starts_with(prefix));
    let virtual_type = match &*folder.devtype {
        // With a real port it is the host's own way out (`br0`, `vmbr0`), without one docker0 and the like.
        "bridge" => !folder.on_device,
        "vxlan" | "geneve" => true,
        _ => named_virtual,
    };
    if virtual_type && !interface.default_route {
        Kind::Virtual
    } else if folder.on_device && folder.devtype != "bridge" {
        Kind::Physical
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use network_interface::NetworkInterfaceConfig as _;

    use super::*;

    const HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";

    fn routes(rows: &[&str]) -> Vec<String> {
        parse_default_routes(std::iter::once(HEADER).chain(rows.iter().copied()).map(str::to_owned))
    }

    #[test]
    fn the_default_route_of_the_lowest_metric_wins() {
        let found = routes(&[
            "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0",
            "eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
            "eth1\t00000000\t010300C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
            "eth0\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
        ]);
        assert_eq!(found, ["eth0", "eth1", "wlan0"]);
    }

    #[test]
    fn a_host_without_a_default_route_has_none() {
        assert!(routes(&["eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0"]).is_empty());
        assert!(routes(&[]).is_empty());
        assert!(parse_default_routes(std::iter::empty()).is_empty());
        assert!(parse_default_routes(lines(Path::new("/nonexistent"))).is_empty());
    }

    #[test]
    fn what_is_no_usable_default_route_is_passed_over() {
        let found = routes(&[
            "garbage",
            // OpenVPN's 0.0.0.0/1, an unreachable default, one that is not up.
            "tun0\t00000000\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0",
            "*\t00000000\t00000000\t0201\t0\t0\t10\t00000000\t0\t0\t0",
            "eth7\t00000000\t010200C0\t0002\t0\t0\t10\t00000000\t0\t0\t0",
            "eth0\t00000000\t010200C0\t0003\t0\t0\t20\t00000000\t0\t0\t0",
        ]);
        assert_eq!(found, ["eth0"]);
    }

    #[test]
    fn of_ipv6_addresses_the_lasting_come_first_and_the_unusable_not_at_all() {
        let table = [
            "fd000000000000000000000000000001 07 40 00 01     eth0",
            "fd000000000000000000000000000002 07 40 00 20     eth0",
            "fd000000000000000000000000000003 07 40 00 c0     eth0",
            "fd000000000000000000000000000004 07 40 00 88     eth0",
            "fd000000000000000000000000000005 07 40 00 80     eth0",
            "fd000000000000000000000000000006 08 40 00 40     eth1",
            "garbage",
            "",
        ];
        let states = parse_if_inet6(table.into_iter().map(str::to_owned));
        assert_eq!(states.len(), 6);
        let addresses = [
            "fd00::1/64",
            "fd00::2/64",
            "fd00::3/64",
            "fd00::4/64",
            "fd00::5/64",
            "fd00::6/64",
            "10.0.0.5/24",
        ];
        let addresses = addresses.map(|text| text.parse().unwrap()).to_vec();
        let mut eth0 = Interface { addresses, ..interface("eth0", false) };
        apply_states(&mut eth0, &states);
        let left: Vec<String> = eth0.addresses.iter().map(|address| address.addr().to_string()).collect();
        assert_eq!(left, ["fd00::2", "fd00::5", "fd00::6", "10.0.0.5", "fd00::1"]);
        assert_eq!(eth0.deprecated, ["fd00::2".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn without_the_crate_the_same_is_found() {
        let entries: Vec<InterfaceAddress> = getifaddrs().unwrap().collect();
        let comparable = |mut found: Vec<NetworkInterface>| {
            found.sort_by(|a, b| a.name.cmp(&b.name));
            let describe = |i: NetworkInterface| {
                (i.name, i.index, i.internal, i.addr.into_iter().map(net).collect::<Vec<_>>())
            };
            found.into_iter().map(describe).collect::<Vec<_>>()
        };
        let crates = NetworkInterface::show().unwrap();
        assert_eq!(comparable(without_the_crate(&entries)), comparable(crates));
    }

    fn interface(name: &str, default_route: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 7,
            kind: Kind::Other,
            default_route,
            up: true,
            multicast: true,
            addresses: Vec::new(),
            deprecated: Vec::new(),
        }
    }

    #[test]
    fn the_kind_follows_from_name_sysfs_and_default_route() {
        let nothing = Folder::default();
        let hardware = Folder { device: true, on_device: true, ..Folder::default() };
        let of = |devtype: &str, on_device| Folder { devtype: devtype.to_owned(), device: false, on_device };
        for (name, default_route, folder, expected) in [
            ("ens3", false, hardware.clone(), Kind::Physical),
            ("eth0", true, nothing.clone(), Kind::Other), // a pod's own veth
            ("net1", false, hardware, Kind::Physical),    // a pod's own virtual function
            ("docker0", false, nothing.clone(), Kind::Virtual),
            ("docker0", false, of("bridge", false), Kind::Virtual),
            ("anything", false, of("bridge", false), Kind::Virtual),
            ("br-lan", true, of("bridge", false), Kind::Other),
            ("br-lan", false, of("bridge", true), Kind::Other),
            ("vethab12", false, nothing.clone(), Kind::Virtual),
            ("flannel.1", false, of("vxlan", true), Kind::Virtual),
            ("overlay", false, of("vxlan", true), Kind::Virtual),
            ("bond0", false, of("bond", true), Kind::Physical),
            ("bond0.7", false, of("vlan", true), Kind::Physical),
            ("wg0", false, of("wireguard", false), Kind::Other),
        ] {
            assert_eq!(kind(&interface(name, default_route), &folder), expected, "{name} {folder:?}");
        }
    }

    #[test]
    fn a_folder_of_another_namespace_says_nothing() {
        let sys = std::env::temp_dir().join(format!("mingle-sysfs-{}", std::process::id()));
        let nic = sys.join("eth0");
        let vlan = sys.join("eth0.7");
        fs::create_dir_all(nic.join("device")).unwrap();
        fs::create_dir_all(vlan.join("lower_eth0")).unwrap();
        fs::write(nic.join("uevent"), "INTERFACE=eth0\nIFINDEX=7\n").unwrap();
        fs::write(nic.join("address"), "02:00:00:00:00:01\n").unwrap();
        fs::write(vlan.join("uevent"), "DEVTYPE=vlan\nINTERFACE=eth0.7\nIFINDEX=7\n").unwrap();

        let ours = interface("eth0", false);
        let tagged = Folder::read(&sys, &interface("eth0.7", false), None);
        let same = Folder::read(&sys, &ours, Some("02:00:00:00:00:01"));
        let other_mac = Folder::read(&sys, &ours, Some("02:00:00:00:00:02"));
        let other_index = Folder::read(&sys, &Interface { index: 8, ..ours.clone() }, None);
        let absent = Folder::read(&sys, &interface("eth9", false), None);
        fs::remove_dir_all(&sys).unwrap();

        assert!(same.device && same.on_device);
        assert_eq!(tagged, Folder { devtype: "vlan".to_owned(), device: false, on_device: true });
        assert_eq!(other_mac, Folder::default());
        assert_eq!(other_index, Folder::default());
        assert_eq!(absent, Folder::default());
    }

    #[test]
    fn this_host_can_be_listed() {
        let listed = list().unwrap();
        for (earlier, later) in listed.iter().zip(listed.iter().skip(1)) {
            assert!(earlier.index < later.index, "{earlier:?} {later:?}");
        }
        assert!(listed.iter().filter(|interface| interface.default_route).count() <= 1);
        assert!(listed.iter().all(|interface| !interface.name.contains(':')));
    }
}
