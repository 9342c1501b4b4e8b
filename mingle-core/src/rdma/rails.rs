//! The rails of a host: the RoCE ports that a job uses, as other hosts must know them to reach them.

use std::fmt;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::choose::PortChoice;
use super::gid::Addressing;
use super::machine::Machine;
use super::name::is_nameable;
use crate::model::{Fault, HostName, deserialize_unicast_ip};

/// The most rails of a host. If it has more, the first ones count.
pub(crate) const RAILS: usize = 16;

/// The longest name of a rail or an interface, in bytes: a device's name has at most 63, and a port's number
/// ten digits.
const LONGEST: usize = 80;

/// A RoCE port that a job uses. Its Display is `mlx5_3:1 (ens3np0, 10.3.0.11)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rail {
    /// The device and the port, as in `NCCL_IB_HCA`: `mlx5_3:1`.
    #[serde(deserialize_with = "deserialize_name")]
    pub name: String,
    /// The network interface of its GID.
    #[serde(deserialize_with = "deserialize_name")]
    pub interface: String,
    /// The address that is its GID.
    #[serde(deserialize_with = "deserialize_unicast_ip")]
    pub address: IpAddr,
}

/// The rails of a host for each RoCE addressing that a world may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rails([Vec<Rail>; 4]);

/// A rail from which TCP does not reach its counterpart on another host. RoCE bypasses the host's firewall
/// and its routing of answers, so RDMA may work all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenRail {
    /// The host that has tried.
    pub from_host: HostName,
    /// Its rail.
    pub from: Rail,
    /// The host that it has tried to reach.
    pub to_host: HostName,
    /// The rail of that host.
    pub to: Rail,
    /// The TCP port that was tried.
    pub port: u16,
    /// What was seen.
    pub fault: Fault,
}

impl Rails {
    /// The rails of a machine: the ports of [`Machine::choose_for`] in their order. A machine without RoCE
    /// has none, nor has a port whose interface has an odd name.
    pub fn new(machine: &Machine) -> Self {
        Self(Addressing::ALL.map(|addressing| {
            let choice = machine.choose_for(addressing);
            choice.used().filter_map(Rail::of).take(RAILS).collect()
        }))
    }

    /// Keeps only the rails for whose name `keeps` returns true.
    #[must_use]
    pub fn keep(mut self, keeps: impl Fn(&str) -> bool) -> Self {
        for rails in &mut self.0 {
            rails.retain(|rail| keeps(&rail.name));
        }
        self
    }

    /// The rails of a world that uses this addressing.
    pub fn with(&self, addressing: Addressing) -> &[Rail] {
        &self.0[addressing.place()]
    }
}

#[cfg(test)]
impl Rails {
    /// The same rails for each addressing.
    pub(crate) fn example(rails: &[Rail]) -> Self {
        Self(Addressing::ALL.map(|_| rails.to_vec()))
    }
}

#[cfg(test)]
impl Rail {
    pub(crate) fn example(name: &str, interface: &str, address: &str) -> Self {
        let (name, interface) = (name.to_owned(), interface.to_owned());
        Self { name, interface, address: address.parse().unwrap() }
    }
}

impl Rail {
    fn of(port: &PortChoice<'_>) -> Option<Self> {
        let gid = port.gid()?;
        let interface = gid.interface.clone().filter(|interface| is_name(interface))?;
        let name = port.device.name_of(port.port);
        Some(Self { name, interface, address: gid.gid.address() })
    }

    /// Each rail with its counterpart on another host, to which NCCL connects it. If one host has all names
    /// of the other, rails of the same name are counterparts, and otherwise rails in the same place. Some
    /// rails may have none.
    pub(crate) fn pair(own: &[Self], theirs: &[Self]) -> Vec<(Self, Self)> {
        let named = |rails: &[Self], name: &str| rails.iter().find(|rail| rail.name == name).cloned();
        let has_all = |all: &[Self], some: &[Self]| some.iter().all(|rail| named(all, &rail.name).is_some());
        if has_all(own, theirs) || has_all(theirs, own) {
            own.iter().filter_map(|rail| Some((rail.clone(), named(theirs, &rail.name)?))).collect()
        } else {
            own.iter().cloned().zip(theirs.iter().cloned()).collect()
        }
    }
}

/// Whether it is the name of an interface or a rail, which a terminal can show.
fn is_name(name: &str) -> bool {
    name.len() <= LONGEST && name.split(':').all(is_nameable)
}

fn deserialize_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if is_name(&name) { Ok(name) } else { Err(D::Error::custom("no name of a rail or an interface")) }
}

impl fmt::Display for Rail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.interface, self.address)
    }
}

impl fmt::Display for BrokenRail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_host, from, to_host, to, port, fault } = self;
        write!(f, "rail {from} of {from_host} may not reach {to} of {to_host}: ")?;
        match fault {
            Fault::Refused => write!(f, "TCP port {port} there refuses connections"),
            Fault::NoRoute => write!(f, "{from_host} has no route there"),
            Fault::Unreachable => {
                write!(f, "TCP port {port} there is rejected on the way, or no host has that address")
            }
            Fault::Unanswered | Fault::Size { .. } => {
                write!(f, "TCP port {port} there accepts connections, and full segments are not answered")
            }
            Fault::Silent | Fault::Local => write!(f, "TCP port {port} there does not answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rails(names: &[&str]) -> Vec<Rail> {
        let rail = |(place, name): (u8, &&str)| Rail {
            name: (*name).to_owned(),
            interface: format!("eth{place}"),
            address: IpAddr::from([10, place, 0, 1]),
        };
        (0..).zip(names).map(rail).collect()
    }

    fn pairs(own: &[&str], theirs: &[&str]) -> Vec<(String, String)> {
        Rail::pair(&rails(own), &rails(theirs))
            .into_iter()
            .map(|(own, their)| (own.name, their.name))
            .collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(own, their)| ((*own).to_owned(), (*their).to_owned())).collect()
    }

    #[test]
    fn rails_are_paired_by_name_where_one_host_has_all_names_of_the_other() {
        assert_eq!(pairs(&["a:1", "b:1"], &["b:1", "a:1"]), expected(&[("a:1", "a:1"), ("b:1", "b:1")]));
        assert_eq!(pairs(&["a:1", "b:1", "c:1"], &["c:1"]), expected(&[("c:1", "c:1")]));
        assert_eq!(pairs(&["b:1"], &["a:1", "b:1"]), expected(&[("b:1", "b:1")]));
        assert_eq!(pairs(&[], &["a:1"]), []);
    }

    #[test]
    fn rails_of_hosts_with_different_names_are_paired_by_their_place() {
        // mlx5_0 and mlx5_1 here, mlx5_1 and mlx5_2 there: only the place says which belong together.
        assert_eq!(pairs(&["a:1", "b:1"], &["b:1", "c:1"]), expected(&[("a:1", "b:1"), ("b:1", "c:1")]));
        assert_eq!(pairs(&["a:1"], &["x:1", "y:1"]), expected(&[("a:1", "x:1")]));
    }

    #[test]
    fn a_name_that_a_terminal_cannot_show_is_invalid() {
        for name in ["mlx5_0:1", "ens3f0np0", "bond0.100", "eth0@if2"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ":", "mlx5_0:", "a b", "\u{1b}[2J", "a,b", &"a".repeat(81)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_broken_rail_names_both_ends_and_what_was_seen() {
        let own = rails(&["mlx5_0:1"]);
        let broken = |fault| BrokenRail {
            from_host: HostName::new("a"),
            from: own[0].clone(),
            to_host: HostName::new("b"),
            to: rails(&["mlx5_0:1", "mlx5_1:1"])[1].clone(),
            port: 41877,
            fault,
        };
        let ends = "rail mlx5_0:1 (eth0, 10.0.0.1) of a may not reach mlx5_1:1 (eth1, 10.1.0.1) of b: ";
        for (fault, seen) in [
            (Fault::Silent, "TCP port 41877 there does not answer"),
            (Fault::Refused, "TCP port 41877 there refuses connections"),
            (Fault::NoRoute, "a has no route there"),
        ] {
            assert_eq!(broken(fault).to_string(), format!("{ends}{seen}"));
        }
    }
}
