//! Reading the host's interfaces from the kernel, in one cheap pass: it is on the way of every start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use network_interface::{Addr, NetworkInterface, NetworkInterfaceConfig};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::interface::{Interface, Kind};

/// All interfaces of this network namespace, by index.
pub(crate) fn list() -> io::Result<Vec<Interface>> {
    let found = NetworkInterface::show().map_err(io::Error::other)?;
    // network-interface tells no flags. /sys/class/net would, but of the namespace in which /sys was
    // mounted, and that need not be ours (`unshare -n`, some containers); netlink is always ours.
    let flags: BTreeMap<String, InterfaceFlags> =
        getifaddrs()?.map(|entry| (entry.interface_name, entry.flags)).collect();

    let mut interfaces: BTreeMap<u32, (Interface, Option<String>)> = BTreeMap::new();
    for entry in found {
        // An address may bear a label, "eth0:1": the C library shows it as an interface of its own, whose
        // index, the kernel says, is eth0's.
        let name = entry.name.split_once(':').map_or(&*entry.name, |(name, _)| name);
        let flags = flags.get(&entry.name).copied().unwrap_or(InterfaceFlags::empty());
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
            };
            (interface, None)
        });
        // The crate lists by hash, so a label may come before its interface; primary addresses go first.
        let addresses = entry.addr.into_iter().map(net);
        let at = if name == entry.name { 0 } else { interface.addresses.len() };
        interface.addresses.splice(at..at, addresses);
        *mac = mac.take().or(entry.mac_addr);
    }

    let routes = default_routes(Path::new("/proc/net/route"));
    let leaves = |name: &String| interfaces.values().any(|(i, _)| i.up && i.name == *name);
    let default = routes.into_iter().find(leaves);
    let finish = |(mut interface, mac): (Interface, Option<String>)| {
        interface.default_route = default.as_ref() == Some(&interface.name);
        // Hundreds of veths have no address but the one that IPv6 gives to every link, and are not worth a
        // look at their folders.
        let addressed = interface.addresses.iter().any(|address| match address {
            IpNet::V4(_) => true,
            IpNet::V6(net) => !net.addr().is_unicast_link_local(),
        });
        if interface.kind != Kind::Loopback && interface.up && addressed {
            interface.kind = kind(&interface, &Folder::read(Path::new(SYS), &interface, mac.as_deref()));
        }
        interface
    };
    Ok(interfaces.into_values().map(finish).collect())
}

fn net(address: Addr) -> IpNet {
    match address {
        Addr::V4(a) => a
            .netmask
            .and_then(|mask| Ipv4Net::with_netmask(a.ip, mask).ok())
            .map_or(IpNet::from(std::net::IpAddr::from(a.ip)), IpNet::V4),
        Addr::V6(a) => a
            .netmask
            .and_then(|mask| Ipv6Net::with_netmask(a.ip, mask).ok())
            .map_or(IpNet::from(std::net::IpAddr::from(a.ip)), IpNet::V6),
    }
}

/// The interfaces of the default routes, the preferred one first. No default route is normal.
fn default_routes(table: &Path) -> Vec<String> {
    let Ok(file) = File::open(table) else { return Vec::new() };
    // A name need not be UTF-8.
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    parse_default_routes(lines.map(|line| String::from_utf8_lossy(&line).into_owned()))
}

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
        assert!(default_routes(Path::new("/nonexistent")).is_empty());
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

    fn interface(name: &str, default_route: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 7,
            kind: Kind::Other,
            default_route,
            up: true,
            multicast: true,
            addresses: Vec::new(),
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
