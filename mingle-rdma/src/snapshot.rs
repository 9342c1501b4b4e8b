//! A machine as a folder: saved for a report or a test, and read on any host.
//!
//! ```text
//! bus/pci/devices, class/infiniband, class/infiniband_verbs, class/net, devices, module
//!                    as below /sys
//! dev_infiniband/    a file for each file of /dev/infiniband that could be opened
//! addrs.txt          a line such as `eth0 inet 10.1.2.3/24` for each address of the network namespace,
//!                    behind it `dynamic`, `secondary`, `temporary` or `deprecated` where that is so
//! routes.txt         a line such as `default dev eth0` for each interface with the default route
//! ```
//!
//! Files that could not be read are missing.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use ipnet::IpNet;

use super::files::{Disk, Files as _};
use super::machine::{Address, Machine, Standing};
use super::read;

pub(super) const ADDRESSES: &str = "addrs.txt";
pub(super) const ROUTES: &str = "routes.txt";

const NO_SNAPSHOT: &str = "not a snapshot: it has neither addrs.txt nor class/infiniband";

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
            Err(error) => return Err(io::Error::new(error.kind(), NO_SNAPSHOT)),
        };
        // Machines that were saved by earlier versions have no routes.
        let routes = files.text(ROUTES).unwrap_or_default();
        let default_routes = routes.lines().filter_map(default_route).map(str::to_owned).collect();
        let surroundings = Self { addresses, default_routes, ..Self::default() };
        Ok(read::machine(&files, surroundings))
    }
}

/// A line of `addrs.txt` is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a line such as \"eth0 inet 10.1.2.3/24\" or \"eth0 inet6 fd00::1/64\"")]
pub struct InvalidAddress(String);

fn addresses(text: &str) -> Result<Vec<Address>, InvalidAddress> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::parse).collect()
}

/// The lines of [`ADDRESSES`] and of [`ROUTES`].
pub(super) fn texts(surroundings: &Machine) -> (String, String) {
    let address = |address: &Address| format!("{address}\n");
    let route = |interface: &String| format!("default dev {interface}\n");
    (
        surroundings.addresses.iter().map(address).collect(),
        surroundings.default_routes.iter().map(route).collect(),
    )
}

/// The interface of a line such as `default via 10.0.0.1 dev eth0`, as `ip route` prints it too.
fn default_route(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next()? == "default").then_some(())?;
    words.find(|word| *word == "dev")?;
    words.next()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.net.addr().is_ipv4() { "inet" } else { "inet6" };
        write!(f, "{} {family} {}", self.interface, self.net)?;
        self.standing.map_or(Ok(()), |standing| write!(f, " {standing}"))
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(line: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(line.to_owned());
        let words: Vec<_> = line.split_whitespace().collect();
        let [interface, family @ ("inet" | "inet6"), network, standings @ ..] = &words[..] else {
            return Err(invalid());
        };
        let net: IpNet = network.parse().map_err(|_| invalid())?;
        let known =
            |word: &&str| Standing::ALL.iter().find(|(_, own)| own == word).map(|(standing, _)| *standing);
        let standings: Option<Vec<Standing>> = standings.iter().map(known).collect();
        let standing = standings
            .filter(|_| net.addr().is_ipv4() == (*family == "inet"))
            .ok_or_else(invalid)?
            .into_iter()
            .max();
        Ok(Self { interface: (*interface).to_owned(), net, standing, preference: None })
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

    #[test]
    fn what_is_said_of_an_address_and_a_route_is_written_as_it_is_read() {
        let text =
            "eth0 inet 10.1.2.3/24\neth0 inet 10.1.2.9/32 secondary\neth0 inet6 fd00::7/64 temporary\n";
        let found = Machine {
            addresses: addresses(text).unwrap(),
            default_routes: vec!["eth0".to_owned()],
            ..Machine::default()
        };
        assert_eq!(found.addresses[1].standing, Some(Standing::Secondary));
        assert_eq!(texts(&found), (text.to_owned(), "default dev eth0\n".to_owned()));
        assert_eq!(default_route("default via 10.0.0.1 dev eth0 proto dhcp metric 100"), Some("eth0"));
        assert_eq!(default_route("10.0.0.0/24 dev eth1"), None);
        assert_eq!(default_route(""), None);
    }
}
