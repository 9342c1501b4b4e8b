//! GPUs, and how near they are to an RDMA device. Users place processes near their NICs.

use std::fmt;

use super::files::Files;
use super::machine::Device;

/// The folder of links to all PCI devices, below the root of sysfs.
const DEVICES: &str = "bus/pci/devices";
/// The most PCI devices that are examined, whatever a snapshot holds.
const MOST: usize = 4096;

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// The path of the GPU's PCI device below `/sys/devices`. The last part is the PCI address.
    pub pci: String,
    /// The NUMA node that the GPU is attached to.
    pub numa_node: Option<u32>,
}

impl Gpu {
    /// The GPU's PCI address, such as `0000:1b:00.0`.
    pub fn address(&self) -> &str {
        self.pci.rsplit('/').next().unwrap_or_default()
    }

    /// How far the GPU is from an RDMA device. `None` if the RDMA device is not a PCI device.
    pub fn distance(&self, device: &Device) -> Option<Distance> {
        let path = device.pci.as_deref()?;
        let gpu: Vec<_> = self.pci.split('/').collect();
        let nic: Vec<_> = function(path).split('/').collect();
        let common = gpu.iter().zip(&nic).take_while(|(a, b)| a == b).count();
        Some(match common {
            0 if self.numa_node.is_some() && self.numa_node == device.numa_node => Distance::Node,
            0 => Distance::System,
            // The first part is the root complex itself.
            1 => Distance::HostBridge,
            // Below the common bridge are only a port of the switch and the device.
            _ if gpu.len().max(nic.len()) - common <= 2 => Distance::Switch,
            _ => Distance::Switches,
        })
    }
}

/// The path of the PCI function: the path of a NIC's sub-function is one part longer than that of the NIC.
pub(super) fn function(mut path: &str) -> &str {
    while let Some((rest, part)) = path.rsplit_once('/') {
        if is_address(part) {
            break;
        }
        path = rest;
    }
    path
}

/// How far a GPU is from an RDMA device, from near to far. The short names are those of `nvidia-smi topo -m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// PIX: behind the same PCIe switch.
    Switch,
    /// PXB: behind several PCIe switches, but not through the CPU.
    Switches,
    /// PHB: through the CPU's PCIe host bridge.
    HostBridge,
    /// NODE: through several host bridges of the same NUMA node.
    Node,
    /// SYS: through the connection between NUMA nodes.
    System,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Switch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Node => "NODE",
            Self::System => "SYS",
        })
    }
}

/// All GPUs, by PCI address.
pub(crate) fn gpus(files: &impl Files) -> Vec<Gpu> {
    // Not only below `devices/pci*`: Hyper-V puts the buses of passed-through devices below its own.
    let names = files.list(DEVICES).unwrap_or_default();
    let devices = names.iter().filter(|name| is_address(name)).take(MOST);
    let paths = devices.filter_map(|name| files.resolve(&format!("{DEVICES}/{name}")).ok());
    let mut gpus: Vec<Gpu> = paths.filter_map(|path| gpu(files, &path)).collect();
    gpus.sort_by(|a, b| a.address().cmp(b.address()));
    gpus
}

/// The GPU at this path, or `None` if the device is not a GPU.
fn gpu(files: &impl Files, path: &str) -> Option<Gpu> {
    let value = |file: &str| files.read(&format!("{path}/{file}")).unwrap_or_default();
    // include/linux/pci_ids.h: 0x03 is a display controller, 0x12 an accelerator. Of the display controllers
    // only those of NVIDIA and AMD count: the others belong to the board.
    let class = value("class");
    let display = class.starts_with("0x03") && matches!(&*value("vendor"), "0x10de" | "0x1002");
    let pci = path.strip_prefix("devices/")?.to_owned();
    (display || class.starts_with("0x12")).then(|| Gpu { pci, numa_node: value("numa_node").parse().ok() })
}

/// Whether the name is a PCI address, such as `0000:1b:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<_> = name.split([':', '.']).collect();
    parts.len() == 4
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_device_has_four_hexadecimal_parts() {
        for name in ["0000:01:00.0", "10000:e1:00.7"] {
            assert!(is_address(name), "{name}");
        }
        for name in ["pci0000:00", "0000:01:00", "0000:zz:00.0", "0000::00.0", "0000:01:00.0.1", "power", ""]
        {
            assert!(!is_address(name), "{name}");
        }
    }
}
