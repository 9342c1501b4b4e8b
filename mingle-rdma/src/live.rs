//! Probes the machine on which the program runs.

use std::io;
use std::path::Path;

use super::files::{Disk, Files as _};
use super::machine::Machine;
use super::{pci, read, save};

impl Machine {
    /// Reads everything about this machine that a job's variables depend on. If the machine has no RDMA
    /// device, nothing else is read, and `surroundings` is not called; its GPUs are read only if the job can
    /// use several ports.
    ///
    /// # Errors
    /// The error of `surroundings`.
    pub fn probe(surroundings: impl FnOnce() -> io::Result<Self>) -> io::Result<Self> {
        let files = Disk::live();
        if !files.list(read::DEVICES).is_ok_and(|names| !names.is_empty()) {
            return Ok(Self::default());
        }
        let machine = read::machine(&files, surroundings()?);
        let gpus = if machine.has_several_ports() { pci::gpus(&files) } else { Vec::new() };
        Ok(Self { gpus, ..machine })
    }

    /// Reads this machine with its GPUs, even if the choice of ports does not depend on them.
    pub fn survey(surroundings: Self) -> Self {
        let files = Disk::live();
        Self { gpus: pci::gpus(&files), ..read::machine(&files, surroundings) }
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
