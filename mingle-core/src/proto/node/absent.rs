//! Which of the hosts that the user has listed are absent.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::model::HostName;

/// The listed hosts that are no name and no address of a present node, if they are as many as are `missing`;
/// otherwise none. A list of only a few hosts leaves out most of those that are missing. And a name that no
/// node has for itself, such as that of a service, would be named although its node is here.
pub(super) fn absent<'a>(
    listed: &BTreeSet<String>,
    present: impl Iterator<Item = (&'a HostName, IpAddr)>,
    missing: u32,
) -> Vec<String> {
    if listed.is_empty() {
        return Vec::new();
    }
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (host, address) in present {
        let host = host.as_str().to_lowercase();
        names.insert(beginning(&host).to_owned());
        names.insert(host);
        addresses.insert(address);
    }
    let is_here = |host: &str| match host.parse::<IpAddr>() {
        Ok(address) => addresses.contains(&address),
        // A host that knows its short name alone is listed by its full one, too.
        Err(_) => names.contains(host) || names.contains(beginning(host)),
    };
    let absent: Vec<String> =
        listed.iter().map(|host| host.to_lowercase()).filter(|host| !is_here(host)).collect();
    if u32::try_from(absent.len()) == Ok(missing) { absent } else { Vec::new() }
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
        let of = |hosts: &[&str], present: &[(&str, &str)], missing: u32| {
            let node = |(host, address): &(&str, &str)| (HostName::new(host), address.parse().unwrap());
            let nodes: Vec<(HostName, IpAddr)> = present.iter().map(node).collect();
            let listed = hosts.iter().map(|&host| host.to_owned()).collect();
            absent(&listed, nodes.iter().map(|(host, address)| (host, *address)), missing)
        };
        let listed = ["gpu3", "GPU1", "10.0.0.2", "gpu4.example", "fd00::9"];
        let two = [("gpu1.example", "10.0.0.1"), ("other", "10.0.0.2")];
        assert_eq!(of(&listed, &two, 3), ["fd00::9", "gpu3", "gpu4.example"]);
        let four = [two[0], two[1], ("gpu3", "fd00::9"), ("gpu4", "10.0.0.4")];
        assert_eq!(of(&listed, &four, 0), [""; 0]);
        // Every node lists the others alone, or itself as well.
        assert_eq!(of(&["gpu2", "gpu3"], &[("gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2")], 1), ["gpu3"]);
    }

    #[test]
    fn a_list_of_a_few_hosts_or_with_other_names_names_nobody() {
        let (host, address) = (HostName::new("gpu1"), IpAddr::from([10, 0, 0, 1]));
        let of = |hosts: &[&str], missing: u32| {
            let listed = hosts.iter().map(|&host| host.to_owned()).collect();
            absent(&listed, [(&host, address)].into_iter(), missing)
        };
        assert_eq!(of(&[], 3), [""; 0]);
        assert_eq!(of(&["gpu2"], 3), [""; 0], "two more are missing");
        assert_eq!(of(&["gpu1-ib", "gpu2-ib"], 1), [""; 0], "the first is here by another name");
        assert_eq!(of(&["gpu2"], 1), ["gpu2"]);
    }
}
