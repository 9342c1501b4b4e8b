//! Probes the machine on which the program runs.

use std::io;
use std::path::Path;

use ipnet::IpNet;

use super::files::{Disk, Files as _};
use super::machine::{Address, Machine};
use super::{pci, read, save};
use crate::host;

impl Machine {
    /// Reads this machine without its GPUs, which is all that a job needs. If it has no RDMA device, nothing
    /// else is read.
    ///
    /// # Errors
    /// If the addresses of this network namespace cannot be listed.
    pub fn probe() -> io::Result<Self> {
        let files = Disk::live();
        if files.list(read::DEVICES).is_ok_and(|names| !names.is_empty()) {
            Ok(read::machine(&files, addresses()?))
        } else {
            Ok(Self::default())
        }
    }

    /// Reads this machine with its GPUs.
    ///
    /// # Errors
    /// The same as [`Machine::probe`].
    pub fn survey() -> io::Result<Self> {
        let files = Disk::live();
        Ok(Self { gpus: pci::gpus(&files), ..read::machine(&files, addresses()?) })
    }

    /// Saves this machine in `folder`, for [`Machine::from_snapshot`]. Creates the folder, which then holds
    /// the addresses of this host, but no names of people, processes or files.
    ///
    /// # Errors
    /// If the addresses cannot be listed, the folder is not empty, or a file cannot be written.
    pub fn save(folder: &Path) -> io::Result<()> {
        save::save(&Disk::live(), &addresses()?, folder)
    }
}

/// The addresses of this network namespace. They come from netlink, since sysfs may be that of another
/// namespace.
fn addresses() -> io::Result<Vec<Address>> {
    let address = |(interface, net): (String, IpNet)| Address {
        interface,
        address: net.addr(),
        prefix: net.prefix_len(),
    };
    Ok(host::addresses()?.into_iter().map(address).collect())
}
