//! Reads the machine on which the program runs.

use std::io;
use std::path::Path;

use super::files::{Disk, Files as _};
use super::machine::Machine;
use super::{read, save};

impl Machine {
    /// Whether this machine has an RDMA device.
    pub fn has_devices() -> bool {
        Disk::live().list(read::DEVICES).is_ok_and(|names| !names.is_empty())
    }

    /// Reads everything about this machine that a job's variables depend on. `surroundings` has the addresses
    /// and routes of its network namespace.
    pub fn read(surroundings: Self) -> Self {
        read::machine(&Disk::live(), surroundings)
    }

    /// Saves this machine in `folder`, for [`Machine::from_snapshot`]. Creates the folder. The snapshot has
    /// the addresses of this host, but no names of people, processes or files.
    ///
    /// # Errors
    /// If the folder is not empty, or a file cannot be written.
    pub fn save(surroundings: Self, folder: &Path) -> io::Result<()> {
        save::save(&Disk::live(), surroundings, folder)
    }
}
