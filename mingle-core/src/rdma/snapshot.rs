//! A machine as a folder: saved for a report or a test, and read again anywhere.
//!
//! ```text
//! class/infiniband, class/infiniband_verbs, class/net, devices, module   as below /sys
//! dev_infiniband/    a file for each that could be opened in /dev/infiniband
//! addrs.txt          a line such as `eth0 inet 10.1.2.3/24` for each address of the network namespace
//! ```
//!
//! What could not be read is not there. Saving is reading with every answer written down, so that what is
//! saved is what was read, and nothing else of the host.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::files::{Disk, Files};
use super::gid::Gid;
use super::machine::{Address, Machine};
use super::{pci, read};

const ADDRESSES: &str = "addrs.txt";

impl Machine {
    /// The machine that was saved in `folder`, with its GPUs.
    ///
    /// # Errors
    /// Where `folder` is no snapshot: it has no addresses and no RDMA devices, or addresses that are none.
    pub fn from_snapshot(folder: &Path) -> io::Result<Self> {
        let files = Disk::snapshot(folder);
        let addresses = match files.text(ADDRESSES) {
            Ok(text) => {
                addresses(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), format!("{ADDRESSES}: {error}")));
            }
            Err(_) if files.exists(read::DEVICES) => Vec::new(),
            Err(error) => return Err(io::Error::new(error.kind(), NoSnapshot)),
        };
        Ok(Self { gpus: pci::gpus(&files), ..read::machine(&files, addresses) })
    }
}

/// Reads all that the probe reads, and writes it to `folder`.
pub(crate) fn save(files: &impl Files, held: &[Address], folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    let recorder = Recorder { files, folder, failed: RefCell::new(Ok(())) };
    read::machine(&recorder, held.to_vec());
    pci::gpus(&recorder);
    recorder.failed.into_inner()?;
    let lines: Vec<_> = held.iter().map(|address| format!("{address}\n")).collect();
    fs::write(folder.join(ADDRESSES), lines.concat())
}

/// Passes on every answer, and writes it down.
struct Recorder<'a, F> {
    files: &'a F,
    folder: &'a Path,
    /// The first failure to write.
    failed: RefCell<io::Result<()>>,
}

impl<F: Files> Recorder<'_, F> {
    fn note(&self, write: impl FnOnce() -> io::Result<()>) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_ok() {
            *failed = write();
        }
    }

    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    }

    fn folder(&self, path: &str) {
        self.note(|| fs::create_dir_all(self.folder.join(path)));
    }
}

impl<F: Files> Files for Recorder<'_, F> {
    fn read(&self, path: &str) -> io::Result<String> {
        let text = self.files.read(path)?;
        // The empty slots of all tables would be most of the files.
        if text.parse() != Ok(Gid::ZERO) {
            self.note(|| self.file(path, &format!("{text}\n")));
        }
        Ok(text)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let names = self.files.list(path)?;
        self.folder(path);
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        let exists = self.files.exists(path);
        if exists {
            self.folder(path);
        }
        exists
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let target = self.files.resolve(path)?;
        self.note(|| {
            let link = self.folder.join(path);
            let up: PathBuf =
                Path::new(path).parent().into_iter().flat_map(Path::iter).map(|_| "..").collect();
            fs::create_dir_all(self.folder.join(&target))?;
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            std::os::unix::fs::symlink(up.join(&target), link)
        });
        Ok(target)
    }

    fn open_device(&self, name: &str) -> io::Result<()> {
        self.files.open_device(name)?;
        self.note(|| self.file(&format!("dev_infiniband/{name}"), ""));
        Ok(())
    }

    fn devices(&self) -> io::Result<Vec<String>> {
        let names = self.files.devices()?;
        self.folder("dev_infiniband");
        Ok(names)
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no snapshot: it has neither addrs.txt nor class/infiniband")]
struct NoSnapshot;

/// Why a line of `addrs.txt` is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no line such as \"eth0 inet 10.1.2.3/24\" or \"eth0 inet6 fd00::1/64\"")]
pub struct InvalidAddress(String);

fn addresses(text: &str) -> Result<Vec<Address>, InvalidAddress> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::parse).collect()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.address.is_ipv4() { "inet" } else { "inet6" };
        write!(f, "{} {family} {}/{}", self.interface, self.address, self.prefix)
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(line: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(line.to_owned());
        let words: Vec<_> = line.split_whitespace().collect();
        let [interface, family @ ("inet" | "inet6"), network] = words[..] else { return Err(invalid()) };
        let (address, prefix) = network.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let prefix = prefix.parse().map_err(|_| invalid())?;
        let fits =
            address.is_ipv4() == (family == "inet") && prefix <= if address.is_ipv4() { 32 } else { 128 };
        fits.then(|| Self { interface: interface.to_owned(), address, prefix }).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_it_is_written() {
        for line in ["eth0 inet 10.1.2.3/24", "ib0 inet6 fd00::1/64", "a-b.7 inet 0.0.0.0/0"] {
            assert_eq!(line.parse::<Address>().unwrap().to_string(), line);
        }
        for wrong in [
            "eth0 inet 10.1.2.3",
            "eth0 10.1.2.3/24",
            "eth0 inet6 10.1.2.3/24",
            "eth0 inet fd00::1/64",
            "eth0 inet 10.1.2.3/33",
            "eth0 inet 10.1.2.3/24 brd",
            "inet 10.1.2.3/24",
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(InvalidAddress(wrong.to_owned())), "{wrong}");
        }
        assert_eq!(addresses("\n \n").unwrap(), []);
    }
}
