//! The probe of this very machine.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use super::files::Disk;
use super::machine::{Address, Machine};
use super::{pci, read, snapshot};

impl Machine {
    /// This machine, as far as a job needs to know it: without its GPUs. Where there is no RDMA device,
    /// nothing else is read.
    ///
    /// # Errors
    /// Where the addresses of this network namespace cannot be listed.
    pub fn probe() -> io::Result<Self> {
        let files = Disk::live();
        if read::has_devices(&files) { Ok(read::machine(&files, addresses()?)) } else { Ok(Self::default()) }
    }

    /// This machine with its GPUs.
    ///
    /// # Errors
    /// As [`Machine::probe`].
    pub fn survey() -> io::Result<Self> {
        let files = Disk::live();
        Ok(Self { gpus: pci::gpus(&files), ..read::machine(&files, addresses()?) })
    }

    /// Saves this machine in `folder`, for [`Machine::from_snapshot`]. The folder is made, and holds the
    /// addresses of this host afterwards, but no names of people, processes or files.
    ///
    /// # Errors
    /// Where the addresses cannot be listed, the folder is not empty, or a file cannot be written.
    pub fn save(folder: &Path) -> io::Result<()> {
        snapshot::save(&Disk::live(), &addresses()?, folder)
    }
}

/// The addresses of this network namespace. From netlink and not from sysfs, which may be another
/// namespace's.
fn addresses() -> io::Result<Vec<Address>> {
    let entries = getifaddrs()?.filter_map(|entry| {
        let address = ip(&entry.address?)?;
        // A label, "eth0:1", belongs to an address and not to an interface.
        let interface = entry.interface_name.split_once(':').map_or(&*entry.interface_name, |(name, _)| name);
        let prefix = match entry.netmask.as_ref().and_then(ip) {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None if address.is_ipv4() => 32,
            None => 128,
        };
        let prefix = u8::try_from(prefix).unwrap_or(u8::MAX);
        Some(Address { interface: interface.to_owned(), address, prefix })
    });
    Ok(entries.collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}
