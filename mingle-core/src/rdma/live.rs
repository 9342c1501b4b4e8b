//! The probe of this very machine.

use std::io;
use std::path::Path;

use ipnet::IpNet;

use super::files::{Disk, Files as _};
use super::machine::{Address, Machine};
use super::{pci, read, save};
use crate::host;

impl Machine {
    /// This machine, as far as a job needs to know it: without its GPUs. Where there is no RDMA device,
    /// nothing else is read.
    ///
    /// # Errors
    /// Where the addresses of this network namespace cannot be listed.
    pub fn probe() -> io::Result<Self> {
        let files = Disk::live();
        if files.list(read::DEVICES).is_ok_and(|names| !names.is_empty()) {
            Ok(read::machine(&files, addresses()?))
        } else {
            Ok(Self::default())
        }
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
        save::save(&Disk::live(), &addresses()?, folder)
    }
}

/// The addresses of this network namespace. From netlink and not from sysfs, which may be another
/// namespace's.
fn addresses() -> io::Result<Vec<Address>> {
    let address = |(interface, net): (String, IpNet)| Address {
        interface,
        address: net.addr(),
        prefix: net.prefix_len(),
    };
    Ok(host::addresses()?.into_iter().map(address).collect())
}
