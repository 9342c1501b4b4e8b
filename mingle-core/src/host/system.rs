//! Reading the host's interfaces from the kernel, in one cheap pass: it delays every start, and runs every
//! two seconds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::Path;

use ipnet::IpNet;
use nix::ifaddrs::{InterfaceAddress as Entry, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use super::interface::{Interface, Kind};
use crate::model::HostName;

/// This host's own name, as gethostname(2) returns it.
pub fn host_name() -> HostName {
    HostName::new(&nix::unistd::gethostname().unwrap_or_default().to_string_lossy())
}

/// All interfaces of this network namespace, by index.
pub(crate) fn list() -> io::Result<Vec<Interface>> {
    // Netlink, which getifaddrs uses, shows this network namespace. /sys/class/net shows the one in which
    // /sys was mounted, which differs after `unshare -n` and in some containers.
    let entries: Vec<Entry> = getifaddrs()?.collect();
    let mut links = links(&entries);
    if links.iter().any(|link| link.kind != Kind::Loopback && link.addresses.iter().any(is_global_v6)) {
        // Without this file, no address is known to be unusable.
        let flags = flags_of_ipv6();
        for link in &mut links {
            apply_flags(link, &flags);
        }
    }
    let default = default_interface(&links);
    for interface in &mut links {
        interface.default_route = default.as_ref() == Some(&interface.name);
        // Hundreds of veths have only the link-local address of every link; their folders in /sys are not
        // read.
        let is_addressed =
            interface.addresses.iter().any(|address| address.addr().is_ipv4() || is_global_v6(address));
        if interface.kind != Kind::Loopback && interface.up && is_addressed {
            let folder = Folder::read(Path::new(SYS), interface);
            interface.kind = kind(interface, &folder);
            interface.mtu = folder.mtu;
        }
    }
    Ok(links)
}

/// All addresses of this network namespace, with the names of their interfaces.
pub(crate) fn addresses() -> io::Result<Vec<(String, IpNet)>> {
    let named = |entry: Entry| Some((unlabelled(&entry.interface_name).to_owned(), net(&entry)?));
    Ok(getifaddrs()?.filter_map(named).collect())
}

/// The kernel's flags of every IPv6 address, by address and interface.
pub(crate) fn flags_of_ipv6() -> BTreeMap<(Ipv6Addr, String), u8> {
    parse_if_inet6(lines(Path::new("/proc/net/if_inet6")))
}

/// The interfaces in the C library's list, by index.
///
/// The crate network-interface gives names, indices, addresses and netmasks, and CONTRIBUTING.md says why it
/// is of no use here: without flags, from which alone this node knows which interfaces are up and have
/// multicast, nothing here becomes smaller. The tests compare with it.
///
/// A name that is not UTF-8 has U+FFFD in it. Interfaces whose names are the same then cannot be told apart,
/// and are left out.
fn links(entries: &[Entry]) -> Vec<Interface> {
    let mut links: BTreeMap<&str, Option<Interface>> = BTreeMap::new();
    for entry in entries {
        let link = entry.address.as_ref().map(SockaddrStorage::as_link_addr);
        let (index, mac) = match link {
            Some(Some(link)) => (u32::try_from(link.ifindex()).unwrap_or(0), link.to_string()),
            Some(None) => continue,
            // Tunnels, such as WireGuard's and tun, have no hardware address.
            None => (if_nametoindex(&*entry.interface_name).unwrap_or(0), String::new()),
        };
        let is = |flags| entry.flags.contains(flags);
        let link = Interface {
            name: entry.interface_name.clone(),
            index,
            kind: if is(InterfaceFlags::IFF_LOOPBACK) { Kind::Loopback } else { Kind::Other },
            up: is(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
            multicast: is(InterfaceFlags::IFF_MULTICAST),
            mac,
            ..Interface::default()
        };
        let named = links.entry(&entry.interface_name).or_insert_with(|| Some(link.clone()));
        // Under churn, the kernel may list one link twice.
        if named.as_ref().is_some_and(|named| named.index != link.index) {
            *named = None;
        }
    }
    // An interface that vanishes while it is read has no index any more.
    let is_there = |link: &Interface| link.index != 0;
    let mut addresses: Vec<(&str, IpNet)> =
        entries.iter().filter_map(|entry| Some((&*entry.interface_name, net(entry)?))).collect();
    // Addresses without a label come first; they are the primary ones.
    addresses.sort_by_key(|(name, _)| *name);
    for (name, net) in addresses {
        if let Some(Some(link)) = links.get_mut(unlabelled(name)) {
            let is_usable = net.addr().is_ipv4() || is_global_v6(&net);
            if is_usable && link.first(net.addr().is_ipv6()).is_none() {
                link.firsts.push(net);
                let label = || name.contains(':').then(|| name.to_owned());
                link.label = link.label.take().or_else(label);
            }
            link.addresses.push(net);
        }
    }
    let mut links: Vec<Interface> = links.into_values().flatten().filter(is_there).collect();
    links.sort_by_key(|link| link.index);
    links
}

/// The name without an address label: the C library shows the address labelled "eth0:1" of eth0 as an
/// interface of that name.
fn unlabelled(name: &str) -> &str {
    name.split_once(':').map_or(name, |(name, _label)| name)
}

fn is_global_v6(address: &IpNet) -> bool {
    matches!(address.addr(), IpAddr::V6(ip) if !ip.is_unicast_link_local())
}

/// The IP address of an entry that has one. Without a valid netmask, its prefix is the whole address.
fn net(entry: &Entry) -> Option<IpNet> {
    let address = entry.address.as_ref().and_then(ip)?;
    let mask = entry.netmask.as_ref().and_then(ip);
    let net = mask.and_then(|mask| IpNet::with_netmask(address, mask).ok());
    Some(net.unwrap_or(address.into()))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
}

/// The interface of the default route: IPv4's if one that is up has it, else IPv6's.
fn default_interface(links: &[Interface]) -> Option<String> {
    let is_up = |name: &String| links.iter().any(|link| link.up && link.name == *name);
    let routes = parse_default_routes(lines(Path::new("/proc/net/route")));
    routes.into_iter().find(is_up).or_else(|| {
        let source = default_source_v6()?;
        let holds = |link: &&Interface| link.up && link.ips().any(|ip| ip == source);
        let link = links.iter().filter(|link| link.kind != Kind::Loopback).find(holds)?;
        Some(link.name.clone())
    })
}

const TEMPORARY: u8 = 0x01;
const DAD_FAILED: u8 = 0x08;
const DEPRECATED: u8 = 0x20;
const TENTATIVE: u8 = 0x40;

fn parse_if_inet6(lines: impl Iterator<Item = String>) -> BTreeMap<(Ipv6Addr, String), u8> {
    let parse = |line: String| {
        let mut fields = line.split_ascii_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        let flags = u8::from_str_radix(fields.nth(3)?, 16).ok()?;
        Some(((Ipv6Addr::from(address), fields.next()?.to_owned()), flags))
    };
    lines.filter_map(parse).collect()
}

/// Removes addresses that the kernel does not let any program use: another host may hold them. Sorts
/// temporary ones last.
fn apply_flags(interface: &mut Interface, all: &BTreeMap<(Ipv6Addr, String), u8>) {
    let name = interface.name.clone();
    let flags = |address: &IpNet| match address.addr() {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) => all.get(&(ip, name.clone())).copied().unwrap_or(0),
    };
    interface.addresses.retain(|address| flags(address) & (TENTATIVE | DAD_FAILED) == 0);
    // A temporary address (RFC 8981) changes within a day.
    interface.addresses.sort_by_key(|address| flags(address) & TEMPORARY);
    let deprecated = interface.addresses.iter().filter(|address| flags(address) & DEPRECATED != 0);
    interface.deprecated = deprecated.map(IpNet::addr).collect();
}

/// The lines of a file of /proc; none if it is missing. A name in it may be other than UTF-8.
fn lines(table: &Path) -> impl Iterator<Item = String> + use<> {
    let read = |file| BufReader::new(file).split(b'\n').map_while(Result::ok);
    let lines = File::open(table).ok().into_iter().flat_map(read);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The interfaces of the IPv4 default routes, the preferred one first. A host may have none.
fn parse_default_routes(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut routes: Vec<(u32, String)> = Vec::new();
    for line in lines.skip(1) {
        // Only ASCII white space separates: a name may hold white space of Unicode.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[name, destination, _gateway, flags, _refs, _use, metric, mask, ..] = fields.as_slice() else {
            continue;
        };
        // The kernel lists routes by destination: after the first other one, no default route follows.
        if destination != "00000000" {
            break;
        }
        // RTF_UP without RTF_REJECT. The mask excludes the two halves by which a VPN covers the default
        // route.
        let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
        if mask == "00000000" && flags & 0x201 == 1 {
            routes.push((metric.parse().unwrap_or(u32::MAX), name.to_owned()));
        }
    }
    routes.sort_by_key(|(metric, _)| *metric); // stable: equals keep their order
    routes.into_iter().map(|(_, name)| name).collect()
}

/// The source address of packets on IPv6's default route. No packet is sent: `connect` only asks the routing
/// table. /proc/net/ipv6_route holds four lines for every veth, in an order that would need all of them to be
/// read.
fn default_source_v6() -> Option<IpAddr> {
    const ANYWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((ANYWHERE, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

const SYS: &str = "/sys/class/net";

/// What sysfs holds on an interface.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Folder {
    /// `DEVTYPE` of `uevent`: bridge, vlan, bond, vxlan...; empty for plain NICs and for veths.
    devtype: String,
    /// Whether it, or an interface below it, is hardware: a bond's members, a VLAN's base, a bridge's ports.
    on_device: bool,
    /// The MTU in bytes; 0 if it is unknown.
    mtu: u32,
}

impl Folder {
    /// Reads the interface's folder. Empty if the folder of this name is of another interface, in another
    /// namespace.
    fn read(sys: &Path, interface: &Interface) -> Self {
        let folder = sys.join(&interface.name);
        let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        // Indices start at 1 in every namespace, so an equal index proves little; the hardware address does.
        // The C library cuts InfiniBand's 20 bytes to 6 (sockaddr_ll), hence the comparison with the
        // beginning.
        let address = fs::read_to_string(folder.join("address")).unwrap_or_default();
        let address = address.trim_end();
        let same_mac = address.starts_with(&interface.mac) && address.is_empty() == interface.mac.is_empty();
        if value("IFINDEX") != Some(&*interface.index.to_string()) || !same_mac {
            return Self::default();
        }
        let mtu = fs::read_to_string(folder.join("mtu")).unwrap_or_default();
        Self {
            mtu: mtu.trim_end().parse().unwrap_or(0),
            devtype: value("DEVTYPE").unwrap_or_default().to_owned(),
            on_device: stands_on_device(sys, &interface.name, 4),
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

/// The beginnings of names that container runtimes, Kubernetes networks and hypervisors give to interfaces
/// inside a host and to overlays. They count where sysfs says nothing.
const VIRTUAL: &str = "\
    antrea br- cali cilium cni docker flannel genev incusbr kube- lxc lxdbr nerdctl nodelocaldns ovn- \
    ovs- podman tunl vboxnet veth virbr vmnet vnet vxlan weave";

fn kind(interface: &Interface, folder: &Folder) -> Kind {
    let named_virtual = VIRTUAL.split(' ').any(|prefix| interface.name.starts_with(prefix));
    let virtual_type = match &*folder.devtype {
        // A bridge with a real port is the host's own connection (`br0`, `vmbr0`); without one it is like
        // docker0.
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
    use network_interface::{NetworkInterface, NetworkInterfaceConfig as _};

    use super::*;

    const HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";

    fn routes(rows: &[&str]) -> Vec<String> {
        parse_default_routes(std::iter::once(HEADER).chain(rows.iter().copied()).map(str::to_owned))
    }

    #[test]
    fn a_tunnel_without_a_hardware_address_is_an_interface() {
        let mut entries: Vec<Entry> =
            getifaddrs().unwrap().filter(|entry| entry.interface_name == "lo").collect();
        let known = links(&entries);
        for entry in &mut entries {
            entry.address.take_if(|address| address.as_link_addr().is_some());
        }
        let mut tunnels = links(&entries);
        assert_eq!((tunnels.len(), &*tunnels[0].mac), (1, ""));
        tunnels[0].mac.clone_from(&known[0].mac);
        assert_eq!(tunnels, known);
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
    fn an_unusable_default_route_is_skipped() {
        let found = routes(&[
            "garbage",
            // OpenVPN's 0.0.0.0/1, an unreachable default route, and one that is not up.
            "tun0\t00000000\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0",
            "*\t00000000\t00000000\t0201\t0\t0\t10\t00000000\t0\t0\t0",
            "eth7\t00000000\t010200C0\t0002\t0\t0\t10\t00000000\t0\t0\t0",
            "eth0\t00000000\t010200C0\t0003\t0\t0\t20\t00000000\t0\t0\t0",
        ]);
        assert_eq!(found, ["eth0"]);
    }

    #[test]
    fn temporary_ipv6_addresses_come_last_and_unusable_ones_are_removed() {
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
        let flags = parse_if_inet6(table.into_iter().map(str::to_owned));
        assert_eq!(flags.len(), 6);
        let addresses = [
            "fd00::1/64",
            "fd00::2/64",
            "fd00::3/64",
            "fd00::4/64",
            "fd00::5/64",
            "fd00::6/64",
            "10.0.0.5/24",
        ];
        let addresses = addresses.map(|text| text.parse::<IpNet>().unwrap()).to_vec();
        let mut eth0 = Interface { addresses, ..interface("eth0", false) };
        apply_flags(&mut eth0, &flags);
        let left: Vec<String> = eth0.ips().map(|ip| ip.to_string()).collect();
        assert_eq!(left, ["fd00::2", "fd00::5", "fd00::6", "10.0.0.5", "fd00::1"]);
        assert_eq!(eth0.deprecated, ["fd00::2".parse::<IpAddr>().unwrap()]);
    }

    /// Index, name, whether it is loopback, and the addresses.
    type Seen = (u32, String, bool, Vec<IpAddr>);

    #[test]
    fn the_list_is_that_of_the_crate_network_interface() {
        let entries: Vec<Entry> = getifaddrs().unwrap().collect();
        let ours = links(&entries).into_iter().map(|link| {
            let mut ips: Vec<IpAddr> = link.ips().collect();
            ips.sort();
            (link.index, link.name, link.kind == Kind::Loopback, ips)
        });
        let mut theirs: BTreeMap<u32, Seen> = BTreeMap::new();
        for found in NetworkInterface::show().unwrap() {
            let name = unlabelled(&found.name).to_owned();
            let new = (found.index, name, found.internal, Vec::new());
            let (.., ips) = theirs.entry(found.index).or_insert(new);
            ips.extend(found.addr.iter().map(|address| address.ip()));
            ips.sort();
        }
        assert_eq!(ours.collect::<Vec<Seen>>(), theirs.into_values().collect::<Vec<Seen>>());
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
            firsts: Vec::new(),
            label: None,
            mac: String::new(),
            mtu: 0,
        }
    }

    #[test]
    fn the_kind_follows_from_name_sysfs_and_default_route() {
        let nothing = Folder::default();
        let hardware = Folder { on_device: true, ..Folder::default() };
        let of = |devtype: &str, on_device| Folder { devtype: devtype.to_owned(), on_device, mtu: 0 };
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
    fn a_folder_of_another_namespace_is_ignored() {
        let sys = std::env::temp_dir().join(format!("mingle-sysfs-{}", std::process::id()));
        let nic = sys.join("eth0");
        let vlan = sys.join("eth0.7");
        fs::create_dir_all(nic.join("device")).unwrap();
        fs::create_dir_all(vlan.join("lower_eth0")).unwrap();
        fs::write(nic.join("uevent"), "INTERFACE=eth0\nIFINDEX=7\n").unwrap();
        fs::write(nic.join("address"), "02:00:00:00:00:01\n").unwrap();
        fs::write(vlan.join("uevent"), "DEVTYPE=vlan\nINTERFACE=eth0.7\nIFINDEX=7\n").unwrap();

        let ours = interface("eth0", false);
        let with = |mac: &str| Interface { mac: mac.to_owned(), ..ours.clone() };
        let tagged = Folder::read(&sys, &interface("eth0.7", false));
        let same = Folder::read(&sys, &with("02:00:00:00:00:01"));
        let other_mac = Folder::read(&sys, &with("02:00:00:00:00:02"));
        let other_index = Folder::read(&sys, &Interface { index: 8, ..with("02:00:00:00:00:01") });
        let absent = Folder::read(&sys, &interface("eth9", false));
        fs::remove_dir_all(&sys).unwrap();

        assert!(same.on_device);
        assert_eq!(tagged, Folder { devtype: "vlan".to_owned(), on_device: true, mtu: 0 });
        assert_eq!(other_mac, Folder::default());
        assert_eq!(other_index, Folder::default());
        assert_eq!(absent, Folder::default());
    }
}
