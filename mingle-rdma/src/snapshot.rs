//! A machine as a folder: saved for a report or a test, and read on any host.
//!
//! ```text
//! class/infiniband, class/infiniband_verbs, class/net, devices, module   as below /sys
//! dev_infiniband/    a file for each file of /dev/infiniband that could be opened
//! addrs.txt          a line such as `eth0 inet 10.1.2.3/24` for each address of the network namespace,
//!                    behind it `dynamic`, `secondary`, `temporary` or `deprecated` where that is so
//! routes.txt         a line such as `default dev eth0` for each interface with the default route
//! ```
//!
//! Files that could not be read are missing.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::files::{Disk, Files as _};
use super::machine::{Address, HostNetwork, Machine, Standing};
use super::{pci, read};

pub(super) const ADDRESSES: &str = "addrs.txt";
pub(super) const ROUTES: &str = "routes.txt";

impl Machine {
    /// The machine that was saved in `folder`, with its GPUs.
    ///
    /// # Errors
    /// If `folder` is not a snapshot: it has neither addresses nor RDMA devices, or its addresses cannot be
    /// parsed.
    pub fn from_snapshot(folder: &Path) -> io::Result<Self> {
        let files = Disk::snapshot(folder);
        let mut surroundings = match files.text(ADDRESSES) {
            Ok(text) => {
                surroundings(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), format!("{ADDRESSES}: {error}")));
            }
            Err(_) if files.exists(read::DEVICES) => HostNetwork::default(),
            Err(error) => return Err(io::Error::new(error.kind(), NoSnapshot)),
        };
        // Machines that were saved by earlier versions have no routes.
        let routes = files.text(ROUTES).unwrap_or_default();
        surroundings.default_routes = routes.lines().filter_map(default_route).map(str::to_owned).collect();
        Ok(Self { gpus: pci::gpus(&files), ..read::machine(&files, surroundings) })
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("not a snapshot: it has neither addrs.txt nor class/infiniband")]
struct NoSnapshot;

/// A line of `addrs.txt` is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a line such as \"eth0 inet 10.1.2.3/24\" or \"eth0 inet6 fd00::1/64\"")]
pub struct InvalidAddress(String);

fn surroundings(text: &str) -> Result<HostNetwork, InvalidAddress> {
    let mut found = HostNetwork::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let (address, rest) = words.split_at(words.len().min(3));
        let address: Address = address.join(" ").parse().map_err(|_| InvalidAddress(line.to_owned()))?;
        for word in rest {
            let standing = Standing::ALL.iter().find(|(_, own)| own == word).map(|(standing, _)| *standing);
            let standing = standing.ok_or_else(|| InvalidAddress(line.to_owned()))?;
            let entry = found.standings.entry((address.interface.clone(), address.address));
            entry.and_modify(|known| *known = standing.max(*known)).or_insert(standing);
        }
        found.addresses.push(address);
    }
    Ok(found)
}

/// The lines of [`ADDRESSES`] and of [`ROUTES`].
pub(super) fn texts(surroundings: &HostNetwork) -> (String, String) {
    let address = |address: &Address| {
        let standing = surroundings.standings.get(&(address.interface.clone(), address.address));
        let word = Standing::ALL.iter().find(|(own, _)| Some(own) == standing);
        format!("{address}{}\n", word.map_or_else(String::new, |(_, word)| format!(" {word}")))
    };
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
        assert_eq!(surroundings("\n \n").unwrap().addresses, []);
    }

    #[test]
    fn what_is_said_of_an_address_and_a_route_is_written_as_it_is_read() {
        let text =
            "eth0 inet 10.1.2.3/24\neth0 inet 10.1.2.9/32 secondary\neth0 inet6 fd00::7/64 temporary\n";
        let mut found = surroundings(text).unwrap();
        found.default_routes.push("eth0".to_owned());
        assert_eq!(found.standings.len(), 2);
        assert_eq!(texts(&found), (text.to_owned(), "default dev eth0\n".to_owned()));
        assert!(surroundings("eth0 inet 10.1.2.3/24 brd").is_err());
        assert_eq!(default_route("default via 10.0.0.1 dev eth0 proto dhcp metric 100"), Some("eth0"));
        assert_eq!(default_route("10.0.0.0/24 dev eth1"), None);
        assert_eq!(default_route(""), None);
    }
}
