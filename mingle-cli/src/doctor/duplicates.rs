//! Hosts that have the same address, or the same hardware address, on one network.
//!
//! Equal values alone are no fault: many hosts have docker0's address, and interfaces of ipvlan share a
//! hardware address. An address is reported if the hellos of two interfaces have come from it; a hardware
//! address is reported if the two hosts cannot connect.

use super::finding::{Finding, Severity};
use super::notice::{Heard, Mac};

/// Each two hosts that were heard and have the same address, and what is said of them.
pub(super) fn find<'a>(
    heard: impl Iterator<Item = &'a Heard>,
    connects: impl Fn(u32, u32) -> bool,
) -> Vec<([u32; 2], Finding)> {
    let heard: Vec<&Heard> = heard.collect();
    let mut found: Vec<([u32; 2], Finding)> = Vec::new();
    for (at, one) in heard.iter().enumerate() {
        for other in &heard[..at] {
            let ids = [other.id, one.id];
            if let (Some(mac), Some(others)) = (one.mac, other.mac)
                && one.id != other.id
                && found.iter().all(|(known, _)| *known != ids)
                && let Some(finding) = pair(one, other, (mac, others), &connects)
            {
                found.push((ids, finding));
            }
        }
    }
    found
}

fn pair(
    one: &Heard,
    other: &Heard,
    (mac, others): (Mac, Mac),
    connects: impl Fn(u32, u32) -> bool,
) -> Option<Finding> {
    let (check, seen, cure) = if one.address == other.address && mac != others {
        let seen = format!("both have the address {}", one.address);
        ("duplicate address", seen, "give one of them another address")
    } else if one.address != other.address && mac == others && !connects(one.id, other.id) {
        let seen = format!(
            "both have the hardware address (MAC) {}",
            mac.map(|byte| format!("{byte:02x}")).join(":")
        );
        let cure = "give one of them another (`ip link set ... address ...`); a copy of a virtual machine needs its own";
        ("duplicate hardware address", seen, cure)
    } else {
        return None;
    };
    let looked = format!("{} and {}", other.name(), one.name());
    Some(Finding::new(Severity::Problem, check, looked, seen, cure))
}

#[cfg(test)]
mod tests {
    use mingle_core::HostName;

    use super::*;

    fn heard(id: u32, address: &str, mac: Option<u8>) -> Heard {
        let mac = mac.map(|last| [2, 0, 0, 0, 0, last]);
        let (host, address) = (HostName::new(&format!("node{id}")), address.parse().unwrap());
        Heard { id, host, address, mac }
    }

    fn found(all: &[Heard], connects: bool) -> Vec<&'static str> {
        find(all.iter(), |_, _| connects).iter().map(|(_, finding)| finding.check).collect()
    }

    #[test]
    fn the_same_address_is_named_where_the_hellos_of_two_interfaces_have_come_from_it() {
        let at = |id, mac| heard(id, "10.0.0.1", mac);
        assert_eq!(found(&[at(1, Some(1)), at(2, Some(2)), at(2, Some(2))], true), ["duplicate address"]);
        assert_eq!(found(&[at(1, Some(1)), at(2, Some(1))], true), [""; 0], "two processes of one host");
        assert_eq!(found(&[at(1, None), at(2, None)], false), [""; 0], "behind one NAT");
        assert_eq!(found(&[at(1, Some(1)), heard(2, "10.0.0.2", Some(2))], false), [""; 0]);
    }

    #[test]
    fn the_same_hardware_address_is_named_where_it_does_harm() {
        let both = [heard(1, "10.0.0.1", Some(7)), heard(2, "10.0.0.2", Some(7))];
        assert_eq!(found(&both, false), ["duplicate hardware address"]);
        assert_eq!(found(&both, true), [""; 0], "as with ipvlan");
    }
}
