//! A machine as a folder: saved for a report or a test, and read on any host.
//!
//! ```text
//! class/infiniband, class/infiniband_verbs, class/net, devices, module   as below /sys
//! dev_infiniband/    a file for each file of /dev/infiniband that could be opened
//! addrs.txt          a line such as `eth0 inet 10.1.2.3/24` for each address of the network namespace
//! ```
//!
//! Files that could not be read are missing.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::files::{Disk, Files as _};
use super::machine::{Address, Machine};
use super::{pci, read};

pub(super) const ADDRESSES: &str = "addrs.txt";

impl Machine {
    /// The machine that was saved in `folder`, with its GPUs.
    ///
    /// # Errors
    /// If `folder` is not a snapshot: it has neither addresses nor RDMA devices, or its addresses cannot be
    /// parsed.
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

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("not a snapshot: it has neither addrs.txt nor class/infiniband")]
struct NoSnapshot;

/// A line of `addrs.txt` is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a line such as \"eth0 inet 10.1.2.3/24\" or \"eth0 inet6 fd00::1/64\"")]
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
    fn an_address_is_parsed_as_it_is_written() {
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
