//! From files to a [`Machine`], in one pass. The value of a file that cannot be read is left out.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::files::{DEVICE_FILES, Files};
use super::gid::RoceVersion;
use super::machine::{Device, GidEntry, LinkLayer, Machine, NodeType, Port, PortState, Relation};
use super::natural::natural;
use super::pci;

/// The folder of all RDMA devices, below the root of sysfs.
pub(crate) const DEVICES: &str = "class/infiniband";
/// The folder of the devices' `uverbsN`.
pub(crate) const VERBS: &str = "class/infiniband_verbs";
/// The folder of all network interfaces.
pub(crate) const INTERFACES: &str = "class/net";
/// The kernel modules for GPUDirect RDMA: NVIDIA's own since driver 470, and Mellanox's before that.
pub(crate) const PEER_MEMORY: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

/// How the names of tunnels begin: those of the kernel, and those of Kubernetes networks.
const TUNNELS: [&str; 10] =
    ["cilium", "flannel", "genev", "gre", "ip6tnl", "sit", "tun", "vti", "vxlan", "wg"];

/// Reads the devices and GPUs of the machine whose network is in `surroundings`. A value that cannot be read
/// is left out, whatever the reason: a device may vanish meanwhile (ENODEV), attributes of empty slots cannot
/// be read (EINVAL), hardware may fail (EIO).
pub(crate) fn machine(files: &impl Files, surroundings: Machine) -> Machine {
    let mut names = files.list(DEVICES).unwrap_or_default();
    names.sort_by(|a, b| natural(a, b));
    let uverbs = uverbs(files);
    let are_listed = files.exists(DEVICE_FILES);
    let devices = names.into_iter().map(|name| {
        let unusable = if are_listed { unusable(files, uverbs.get(&name)) } else { None };
        device(files, name, unusable)
    });
    Machine {
        devices: devices.collect(),
        peer_memory: PEER_MEMORY
            .into_iter()
            .find(|module| files.exists(&format!("module/{module}")))
            .map(str::to_owned),
        gpus: pci::gpus(files),
        ..surroundings
    }
}

/// The `uverbsN` of each device.
fn uverbs(files: &impl Files) -> BTreeMap<String, String> {
    let names = files.list(VERBS).unwrap_or_default().into_iter();
    let pairs = names.filter_map(|name| Some((files.read(&format!("{VERBS}/{name}/ibdev")).ok()?, name)));
    pairs.collect()
}

/// Why no program can use the device with this `uverbsN`.
fn unusable(files: &impl Files, uverbs: Option<&String>) -> Option<String> {
    let Some(name) = uverbs else {
        return Some("no uverbs device: the module ib_uverbs is not loaded".to_owned());
    };
    let error = files.open_device(name).err()?;
    Some(format!("/dev/infiniband/{name} cannot be opened: {error}"))
}

fn device(files: &impl Files, name: String, unusable: Option<String>) -> Device {
    let folder = format!("{DEVICES}/{name}");
    let value = |file: &str| files.read(&format!("{folder}/{file}")).ok().filter(|text| !text.is_empty());
    let target = files.resolve(&format!("{folder}/device")).ok();
    // Before Linux 5.12 rxe and siw borrowed the NIC's own PCI device.
    let is_soft = target.is_none() || value("parent").is_some();
    let interfaces = interfaces(files, &folder);
    // A virtual function shows neither its card nor its link: those of its physical function count.
    let physical = target.as_ref().and_then(|pci| files.resolve(&format!("{pci}/physfn")).ok());
    let of_card = |file: &str| {
        let pci = physical.as_ref().or(target.as_ref())?;
        files.read(&format!("{pci}/{file}")).ok()
    };
    let number = |file| of_card(file).and_then(|text| hexadecimal(&text));
    // A link may have trained with fewer lanes than either end has, so its present state comes first.
    let link =
        |which| link(&of_card(&format!("{which}_link_speed"))?, &of_card(&format!("{which}_link_width"))?);
    let path = |path: &String| path.strip_prefix("devices/").map(str::to_owned);
    let numbers = numbers(files, &format!("{folder}/ports"));
    let ports = numbers.into_iter().map(|number| port(files, &folder, number, &interfaces));
    Device {
        node_type: value("node_type").and_then(|text| number_before(&text, ':')).map(NodeType),
        is_soft,
        card: number("vendor").zip(number("device")),
        card_guid: value("sys_image_guid").filter(|guid| guid.contains(|c| !matches!(c, '0' | ':'))),
        physical: physical.as_ref().and_then(path),
        link: link("current").or_else(|| link("max")),
        pci: target.as_ref().and_then(path),
        // The kernel says -1 on a host with only one node.
        numa_node: value("device/numa_node").and_then(|text| text.parse().ok()),
        ports: ports.collect(),
        interfaces,
        unusable,
        name,
    }
}

/// The numbers among the names in a folder, in order.
fn numbers(files: &impl Files, folder: &str) -> Vec<u32> {
    let names = files.list(folder).unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The data rate in Mb/s of a PCIe link with this speed, such as `32.0 GT/s PCIe`, and this number of lanes.
fn link(speed: &str, lanes: &str) -> Option<u32> {
    let speed: f64 = speed.split_once(" GT/s")?.0.parse().ok()?;
    let lanes: u16 = lanes.parse().ok()?;
    // The first two generations send 10 bits for 8, the later ones 130 for 128.
    let efficiency = if speed <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    let rate = speed * 1000.0 * efficiency * f64::from(lanes);
    // Unknown links say `Unknown`, or have the width 0 or 255.
    let is_known = (1..=32).contains(&lanes) && (1.0..1e9).contains(&rate);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    is_known.then_some(rate as u32)
}

fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn port(files: &impl Files, device: &str, number: u32, interfaces: &[String]) -> Port {
    let folder = format!("{device}/ports/{number}");
    let value = |file: &str| files.read(&format!("{folder}/{file}")).ok();
    let link_layer = match value("link_layer").as_deref() {
        Some("InfiniBand") => LinkLayer::InfiniBand,
        Some("Ethernet") => LinkLayer::Ethernet,
        _ => LinkLayer::Unknown,
    };
    Port {
        number,
        state: value("state").and_then(|text| number_before(&text, ':')).map(PortState),
        link_layer,
        rate: value("rate").and_then(|text| rate(&text)),
        traffic_class: files.read(&format!("{device}/tc/{number}/traffic_class")).ok().and_then(|text| {
            // MLNX_OFED's form: one line for all traffic, then one for each rule.
            text.lines().find_map(|line| line.trim().strip_prefix("Global tclass=")?.parse().ok())
        }),
        gids: gids(files, &folder, link_layer, interfaces),
    }
}

fn gids(files: &impl Files, port: &str, link_layer: LinkLayer, interfaces: &[String]) -> Vec<GidEntry> {
    let mut entries = Vec::new();
    for index in numbers(files, &format!("{port}/gids")) {
        let gid = files.read(&format!("{port}/gids/{index}")).ok().and_then(|text| gid(&text));
        let Some(gid) = gid.filter(|gid| !gid.is_unspecified()) else { continue };
        // InfiniBand GIDs have no interface, and all have the same type.
        let attribute = |name: &str| {
            let wanted = link_layer != LinkLayer::InfiniBand;
            wanted.then(|| files.read(&format!("{port}/gid_attrs/{name}/{index}")).ok()).flatten()
        };
        let version = match attribute("types").as_deref() {
            Some("IB/RoCE v1") => Some(RoceVersion::V1),
            Some("RoCE v2") => Some(RoceVersion::V2),
            _ => None,
        };
        let interface = attribute("ndevs").filter(|name| !name.is_empty() && !name.contains('/'));
        let relation = interface.as_deref().map(|name| relation(files, interfaces, name));
        entries.push(GidEntry { index, gid, version, interface, relation: relation.unwrap_or_default() });
    }
    entries
}

/// A GID in the kernel's form alone (`%pI6`): eight groups of four digits, and the colons between them. So
/// half a line is not taken for a GID.
pub(super) fn gid(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok().filter(|_| text.len() == 39)
}

/// The device's own network interfaces.
fn interfaces(files: &impl Files, device: &str) -> Vec<String> {
    let folder = format!("{device}/device/net");
    let mut own = files.list(&folder).unwrap_or_default();
    own.retain(|name| files.exists(&format!("{folder}/{name}")));
    // A soft device (rxe) names the interface on which it runs.
    own.extend(files.read(&format!("{device}/parent")));
    own
}

/// How this interface is related to a port of the device with these `own` interfaces.
fn relation(files: &impl Files, own: &[String], name: &str) -> Relation {
    let is_own = |name: &str| own.iter().any(|own| own == name);
    if is_own(name) {
        return Relation::Own;
    }
    let uevent = files.read(&format!("{INTERFACES}/{name}/uevent")).unwrap_or_default();
    let devtype = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    // include/uapi/linux/if_arp.h: TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE (tun, wireguard).
    let link = files.read(&format!("{INTERFACES}/{name}/type")).unwrap_or_default();
    match (devtype, link.as_str()) {
        (_, "768" | "769" | "776" | "778" | "823" | "65534")
        | (Some("vxlan" | "geneve" | "wireguard"), _) => Relation::Tunnel,
        // A port gets GIDs only of interfaces above its own interface, so this bond or VLAN is above it.
        (Some("bond" | "vlan"), _) => Relation::Own,
        (Some(_), _) => Relation::Other,
        // Only the name is left. Sysfs may be that of another namespace, where the interface has no folder.
        _ if name.rsplit_once('.').is_some_and(|(base, _)| is_own(base)) || name.starts_with("bond") => {
            Relation::Own
        }
        _ if TUNNELS.iter().any(|prefix| name.starts_with(prefix)) => Relation::Tunnel,
        _ => Relation::Other,
    }
}

/// The `4` of `4: ACTIVE`. Only the number counts: the words differ between kernels.
fn number_before(text: &str, end: char) -> Option<u8> {
    text.split_once(end)?.0.parse().ok()
}

/// A rate such as `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)`, in Mb/s.
fn rate(text: &str) -> Option<u32> {
    let number = text.split_once(" Gb/sec")?.0;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digit = |text: &str| text.parse().ok().filter(|_| text.len() == 1);
    let (whole, tenth): (u32, u32) = (whole.parse().ok()?, digit(tenth)?);
    whole.checked_mul(1000)?.checked_add(tenth * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_completely_or_not_at_all() {
        for (text, expected) in [
            ("400 Gb/sec (4X NDR)", Some(400_000)),
            ("2.5 Gb/sec (1X SDR)", Some(2_500)),
            ("10 Gb/sec (4X SDR)", Some(10_000)),
            ("0 Gb/sec", Some(0)),
            ("400", None),
            ("Gb/sec", None),
            (" Gb/sec", None),
            ("2.55 Gb/sec", None),
            ("2. Gb/sec", None),
            ("-1 Gb/sec", None),
            ("99999999999 Gb/sec", None),
            ("4294968 Gb/sec", None),
        ] {
            assert_eq!(rate(text), expected, "{text}");
        }
    }

    #[test]
    fn the_rate_of_a_link_is_its_speed_times_its_lanes_without_the_coding() {
        for (speed, lanes, expected) in [
            ("32.0 GT/s PCIe", "16", Some(504_123)),
            ("32.0 GT/s PCIe", "4", Some(126_030)),
            ("8.0 GT/s PCIe", "8", Some(63_015)),
            ("2.5 GT/s", "1", Some(2_000)),
            ("Unknown", "16", None),
            ("16.0 GT/s PCIe", "0", None),
            ("16.0 GT/s PCIe", "255", None),
            ("NaN GT/s", "4", None),
        ] {
            assert_eq!(link(speed, lanes), expected, "{speed} x{lanes}");
        }
    }

    #[test]
    fn a_gid_is_read_in_the_form_of_the_kernel_alone() {
        let text = "0000:0000:0000:0000:0000:ffff:0a0a:000b";
        assert_eq!(gid(text), Some("::ffff:10.10.0.11".parse().unwrap()));
        for wrong in ["", "fe80::1", &text[..38], &format!("{text}:0000"), &text.replace('a', "+"), "0000:"] {
            assert_eq!(gid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_number_of_a_state_counts() {
        assert_eq!(number_before("4: ACTIVE", ':'), Some(4));
        assert_eq!(number_before("4: LIVELY", ':'), Some(4));
        for text in ["ACTIVE", "", ": ACTIVE", "4", "400: ACTIVE", "4 : ACTIVE"] {
            assert_eq!(number_before(text, ':'), None, "{text}");
        }
    }
}
