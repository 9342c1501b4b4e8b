//! The nodes that a user expects, by their names or addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::HostName;

/// The hosts that should be in a world, so that those that are absent can be named. Each is the name of a
/// host or one of its addresses. Their order does not matter.
///
/// ```
/// use mingle_core::Expected;
/// let expected: Expected = ["gpu1", "10.0.0.2"].into_iter().collect();
/// assert_eq!(expected.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected(Vec<String>);

impl<T: AsRef<str>> FromIterator<T> for Expected {
    fn from_iter<I: IntoIterator<Item = T>>(hosts: I) -> Self {
        let hosts: BTreeSet<String> = hosts.into_iter().map(|host| host.as_ref().to_lowercase()).collect();
        Self(hosts.into_iter().collect())
    }
}

impl Expected {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is expected by name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A hash by which two nodes know that they have the same list; none of an empty one.
    pub fn hash(&self) -> Option<u32> {
        let mut hasher = blake3::Hasher::new_derive_key("mingle 2 expected");
        for host in &self.0 {
            hasher.update(host.as_bytes()).update(b"\n");
        }
        let mut hash = [0; 4];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..4]);
        (!self.is_empty()).then(|| u32::from_le_bytes(hash))
    }

    /// The places in the list of those that are none of these nodes, given by name and addresses.
    pub fn absent<'a, A: IntoIterator<Item = IpAddr>>(
        &self,
        present: impl IntoIterator<Item = (&'a HostName, A)>,
    ) -> Vec<u32> {
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for (host, of_host) in present {
            let host = host.as_str().to_lowercase();
            names.insert(beginning(&host).to_owned());
            names.insert(host);
            addresses.extend(of_host);
        }
        let is_here = |host: &str| match host.parse::<IpAddr>() {
            Ok(address) => addresses.contains(&address),
            // A host that knows its short name alone is expected by its full one, too.
            Err(_) => names.contains(host) || names.contains(beginning(host)),
        };
        (0..).zip(&self.0).filter(|(_, host)| !is_here(host)).map(|(place, _)| place).collect()
    }

    /// The names at these places.
    pub fn at(&self, places: impl IntoIterator<Item = u32>) -> Vec<String> {
        self.names(places.into_iter().map(|place| (place, place)))
    }

    /// The names in these runs of places, the first and the last of each.
    pub fn names(&self, runs: impl IntoIterator<Item = (u32, u32)>) -> Vec<String> {
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let of = |(first, last)| self.0.get(place(first)..=place(last).min(self.0.len().saturating_sub(1)));
        runs.into_iter().filter_map(of).flatten().cloned().collect()
    }
}

/// A host's name without its domain.
fn beginning(host: &str) -> &str {
    host.split('.').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_absent_whose_name_and_address_no_node_has() {
        let expected: Expected =
            ["gpu3", "GPU1", "10.0.0.2", "gpu4.example", "fd00::9"].into_iter().collect();
        let node = |host: &str, address: &str| (HostName::new(host), address.parse::<IpAddr>().unwrap());
        let absent = |nodes: &[(HostName, IpAddr)]| {
            let places = expected.absent(nodes.iter().map(|(host, address)| (host, [*address])));
            expected.at(places)
        };
        assert_eq!(absent(&[]), ["10.0.0.2", "fd00::9", "gpu1", "gpu3", "gpu4.example"]);
        let two = [node("gpu1.example", "10.0.0.1"), node("other", "10.0.0.2")];
        assert_eq!(absent(&two), ["fd00::9", "gpu3", "gpu4.example"]);
        let four = [node("gpu3", "fd00::9"), node("gpu4", "10.0.0.4"), two[0].clone(), two[1].clone()];
        assert_eq!(absent(&four), Vec::<String>::new());
    }

    #[test]
    fn the_same_hosts_have_the_same_hash_in_any_order_and_places_beyond_the_list_name_nobody() {
        let of = |hosts: &[&str]| hosts.iter().collect::<Expected>();
        assert_eq!(of(&["a", "b", "a"]).hash(), of(&["b", "A"]).hash());
        assert!(of(&["a"]).hash().is_some() && of(&["a"]).hash() != of(&["b"]).hash());
        assert_eq!(of(&[]).hash(), None);
        assert_eq!(of(&["a", "b"]).names([(1, u32::MAX), (7, 9), (1, 0)]), ["b"]);
        assert_eq!(of(&[]).names([(0, 0)]), Vec::<String>::new());
    }
}
