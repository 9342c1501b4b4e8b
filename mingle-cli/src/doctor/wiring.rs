//! How cables and switches join the hosts' ports for RDMA over Ethernet, as the ports hear each other, and
//! which cables are dead or crossed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::board::Board;
use super::finding::{Finding, Severity};
use super::notice::Rail;

const CHECK: &str = "wiring";
/// The most names of ports in a line, and the most findings.
const SHOWN: usize = 8;
const FINDINGS: usize = 32;

/// A port of a host.
struct Port<'a> {
    host: u32,
    rail: &'a Rail,
    /// Its segment: the place, in [`Wiring::ports`], of the first of the ports that hear each other, directly
    /// or by way of others. A port that hears none is alone in its segment.
    segment: usize,
}

/// The ports of all hosts that have told them.
pub(super) struct Wiring<'a> {
    board: &'a Board,
    ports: Vec<Port<'a>>,
}

impl<'a> Wiring<'a> {
    pub(super) fn of(board: &'a Board) -> Self {
        let of_host = |rank| {
            board
                .record(rank)
                .into_iter()
                .flat_map(move |record| record.rails.iter().map(move |rail| (rank, rail)))
        };
        let all = board.ranks().flat_map(of_host).enumerate();
        let mut ports: Vec<_> = all.map(|(segment, (host, rail))| Port { host, rail, segment }).collect();
        for here in 0..ports.len() {
            for there in 0..ports.len() {
                let ends = [ports[here].segment, ports[there].segment];
                // A stranger can make up ports that no host has.
                if ends[0] != ends[1] && ports[here].hears(&ports[there]) {
                    let joined = ports.iter_mut().filter(|port| ends.contains(&port.segment));
                    joined.for_each(|port| port.segment = ends[0].min(ends[1]));
                }
            }
        }
        Self { board, ports }
    }

    fn name(&self, port: &Port<'_>) -> String {
        format!("{} of {}", port.rail.by, self.board.name(port.host))
    }

    /// The segments, each with its ports.
    fn segments(&self) -> BTreeMap<usize, Vec<&Port<'a>>> {
        let mut segments: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for port in &self.ports {
            segments.entry(port.segment).or_default().push(port);
        }
        segments
    }

    /// The ports of other hosts that hear this port or are heard by it.
    fn others(&self, port: &Port<'_>) -> Vec<&Port<'a>> {
        let is_other = |other: &&Port<'_>| other.segment == port.segment && other.host != port.host;
        self.ports.iter().filter(is_other).collect()
    }

    /// What this port hears, in words.
    fn hears(&self, port: &Port<'_>) -> String {
        let others = self.others(port);
        if others.is_empty() {
            let hears_other = port.rail.heard.iter().any(|(rank, _)| *rank != port.host);
            let seen = match port.rail.up {
                false => "has no link",
                true if hears_other => "hears a host that has not told its ports",
                true if port.hears(port) => "hears no other host",
                true => "does not even hear itself",
            };
            return seen.to_owned();
        }
        let names: Vec<String> = others.iter().take(SHOWN).map(|other| self.name(other)).collect();
        let more = if others.len() > SHOWN { ", and more" } else { "" };
        format!("hears {}{more}", names.join(", "))
    }

    /// The ports that have no link, or hear only ports of other networks, although another host has a port in
    /// the same network. No other port is surely wrong: a fabric may pass no multicast, or route between the
    /// links of a network.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let find = |port: &Port<'_>| {
            let shares = |other: &&Port<'_>| {
                let mut networks = port.rail.networks.iter().filter(|network| is_of_link(network));
                other.host != port.host && networks.any(|network| other.rail.networks.contains(network))
            };
            let others = self.others(port);
            if !self.ports.iter().any(|other| shares(&other)) || others.iter().any(shares) {
                return None;
            }
            let cure = match (&others[..], port.rail.up) {
                ([], true) => return None,
                ([], false) => format!(
                    "plug the cable in again or replace it, at both ends: `ethtool {}` on {} shows the link",
                    port.rail.by,
                    self.board.name(port.host)
                ),
                _ => "the cables are crossed: plug them into the ports of their networks, or exchange the addresses of the two \
                      ports on one host"
                    .to_owned(),
            };
            Some(Finding::new(Severity::Warning, CHECK, self.name(port), self.hears(port), cure))
        };
        self.ports.iter().filter_map(find).take(FINDINGS).collect()
    }

    /// A line for each cable or switch, and for each port and host without.
    pub(super) fn text(&self) -> String {
        if self.ports.is_empty() {
            return String::new();
        }
        let line = |ports: Vec<&Port<'_>>| {
            let side = |side: &[&Port<'_>]| {
                let names: Vec<&str> = side.iter().map(|port| port.rail.by.as_str()).collect();
                format!("{} {}", self.board.name(side[0].host), names.join(", "))
            };
            // Those of a host are neighbours.
            let mut sides: Vec<String> =
                ports.chunk_by(|one, next| one.host == next.host).map(side).collect();
            if sides.len() == 1 {
                sides.push(self.hears(ports[0]));
            }
            sides
        };
        let silent = self.board.ranks().filter(|rank| self.board.record(*rank).is_none());
        let silent = silent.map(|rank| vec![self.board.name(rank), "has not told its ports".to_owned()]);
        let lines = self.segments().into_values().map(line).chain(silent);
        let lines: Vec<String> = lines.map(|sides| format!("  {}\n", sides.join(" -- "))).collect();
        format!("\nports for RDMA, and which hear each other:\n{}", lines.concat())
    }

    /// The segments for programs.
    pub(super) fn document(&self) -> Value {
        let port = |port: &Port<'_>| {
            let Rail { by, networks, up, .. } = port.rail;
            json!({ "host": self.board.name(port.host), "interface": by, "networks": networks, "link": up })
        };
        self.segments().into_values().map(|ports| ports.into_iter().map(port).collect::<Value>()).collect()
    }
}

impl Port<'_> {
    fn hears(&self, other: &Port<'_>) -> bool {
        self.rail.heard.contains(&(other.host, other.rail.by.clone()))
    }
}

/// Whether hosts in this network are on the same link: not where the network is a single address, as those of
/// services are, or holds the addresses that hosts give themselves (RFC 3927).
fn is_of_link(network: &str) -> bool {
    !network.ends_with("/32") && !network.ends_with("/128") && !network.starts_with("169.254.")
}

#[cfg(test)]
mod tests {
    use super::super::board::board_of;
    use super::super::notice::Record;
    use super::*;

    /// The rank of a host, and the place of its port.
    type End = (u32, usize);

    fn rail(by: &str, networks: &[&str], heard: &[End]) -> Rail {
        let networks = networks.iter().map(|&network| network.to_owned()).collect();
        let heard = heard.iter().map(|(host, port)| (*host, port.to_string())).collect();
        Rail { by: by.to_owned(), networks, up: true, heard }
    }

    /// The board of hosts with these ports; the first is node1.
    fn board(hosts: &[&[Rail]]) -> Board {
        let named = |(host, port): &(u32, String)| {
            let host = hosts.get(*host as usize);
            host.and_then(|rails| rails.get(port.parse::<usize>().unwrap())).map(|rail| rail.by.clone())
        };
        let with_names = |rail: &Rail| {
            let heard = rail.heard.iter().map(|end| (end.0, named(end).unwrap_or_default()));
            Rail { heard: heard.collect(), ..rail.clone() }
        };
        let record =
            |rails: &&[Rail]| Record { rails: rails.iter().map(with_names).collect(), ..Record::default() };
        board_of(hosts.iter().map(|rails| Some(record(rails))))
    }

    fn said(board: &Board) -> Vec<String> {
        let line = |finding: Finding| {
            let status = serde_json::to_value(finding.status).unwrap();
            format!("{} {}: {}", status.as_str().unwrap(), finding.looked, finding.seen)
        };
        Wiring::of(board).findings().into_iter().map(line).collect()
    }

    #[test]
    fn a_port_that_hears_or_is_heard_is_joined_and_ports_that_nobody_has_are_ignored() {
        let one = rail("a", &[], &[(1, 0), (1, 31)]);
        let down = Rail { up: false, ..rail("d", &[], &[]) };
        let ports = [one, rail("b", &[], &[]), rail("e", &[], &[(0, 2)]), down, rail("f", &[], &[(2, 0)])];
        let mut three = board(&[&ports, &[rail("c", &[], &[])], &[]]);
        three.hosts[2].record = None;
        let wiring = Wiring::of(&three);
        assert_eq!(wiring.segments()[&0].len(), 2);
        let lines = [
            "",
            "ports for RDMA, and which hear each other:",
            "  node1 (10.0.0.1) a -- node2 (10.0.0.2) c",
            "  node1 (10.0.0.1) b -- does not even hear itself",
            "  node1 (10.0.0.1) e -- hears no other host",
            "  node1 (10.0.0.1) d -- has no link",
            "  node1 (10.0.0.1) f -- hears a host that has not told its ports",
            "  node3 (10.0.0.3) -- has not told its ports",
            "",
        ];
        assert_eq!(wiring.text(), lines.join("\n"));
    }

    #[test]
    fn a_port_without_a_link_is_named_where_another_host_has_a_port_in_its_network() {
        let down = |networks: &[&str]| Rail { up: false, ..rail("b", networks, &[]) };
        let both = ["10.0.1.0/24", "fd01::/64", "10.9.9.9/32"];
        let other = [rail("c", &["10.0.0.0/24"], &[]), rail("d", &both, &[(1, 1)])];
        let with =
            |networks: &[&str]| board(&[&[rail("a", &["10.0.0.0/24"], &[(1, 0)]), down(networks)], &other]);
        for other in [&[][..], &["10.0.1.0/25"], &["10.9.9.9/32"], &["169.254.0.0/16"]] {
            assert_eq!(said(&with(other)), [""; 0], "{other:?}");
        }
        for networks in [&both[..], &["10.0.0.0/24"]] {
            assert_eq!(said(&with(networks)), ["warning b of node1 (10.0.0.1): has no link"]);
        }
        let cure = Wiring::of(&with(&both)).findings().remove(0).cure.unwrap();
        assert!(cure.ends_with("`ethtool b` on node1 (10.0.0.1) shows the link"), "{cure}");
    }

    #[test]
    fn where_no_multicast_passes_or_routers_join_the_links_nothing_is_wrong() {
        let port = |heard: &[End]| [rail("a", &["10.0.0.0/16"], heard)];
        assert_eq!(said(&board(&[&port(&[]), &port(&[])])), [""; 0]);
        let routed = board(&[&port(&[(1, 0)]), &port(&[]), &port(&[(3, 0)]), &port(&[])]);
        assert_eq!(said(&routed), [""; 0]);
        assert_eq!(said(&board(&[&[rail("a", &[], &[])], &[rail("b", &[], &[])]])), [""; 0]);
    }

    #[test]
    fn ports_that_hear_other_networks_alone_are_crossed_unless_their_hosts_have_several_in_their_own() {
        let hosts = |networks: [&str; 4]| {
            let port = |by, network, heard| rail(by, &[network], &[heard]);
            board(&[
                &[port("a", networks[0], (1, 1)), port("b", networks[1], (1, 0))],
                &[port("c", networks[2], (0, 1)), port("d", networks[3], (0, 0))],
            ])
        };
        let crossed = hosts(["10.0.0.0/24", "fd01::/64", "10.0.0.0/24", "fd01::/64"]);
        let lines = [
            "warning a of node1 (10.0.0.1): hears d of node2 (10.0.0.2)",
            "warning b of node1 (10.0.0.1): hears c of node2 (10.0.0.2)",
            "warning c of node2 (10.0.0.2): hears b of node1 (10.0.0.1)",
            "warning d of node2 (10.0.0.2): hears a of node1 (10.0.0.1)",
        ];
        assert_eq!(said(&crossed), lines);
        assert_eq!(said(&hosts(["10.0.0.0/24"; 4])), [""; 0]);
    }

    #[test]
    fn only_the_ports_apart_from_their_network_are_blamed() {
        let port = |by, network, heard| rail(by, &[network], &[heard]);
        let rails = |swapped: bool| {
            let (a, b) = if swapped { ((0, 1), (0, 0)) } else { ((0, 0), (0, 1)) };
            [port("a", "10.0.0.0/24", a), port("b", "10.0.1.0/24", b)]
        };
        let [one, two, three] = [rails(false), rails(false), rails(true)];
        let wiring = board(&[&one, &two, &three]);
        let found = Wiring::of(&wiring).findings();
        assert_eq!(found.len(), 2);
        for (finding, by) in found.iter().zip(["a", "b"]) {
            assert_eq!(finding.looked, format!("{by} of node3 (10.0.0.3)"));
            assert!(finding.cure.as_ref().unwrap().contains("crossed"), "{finding:?}");
        }
    }

    #[test]
    fn of_many_ports_that_a_port_hears_the_first_are_named() {
        let all: Vec<End> = (1..10).map(|host| (host, 0)).collect();
        let (one, other) = ([rail("a", &[], &all)], [rail("a", &[], &[])]);
        let hosts: Vec<&[Rail]> = std::iter::once(&one[..]).chain((1..10).map(|_| &other[..])).collect();
        let board = board(&hosts);
        let wiring = Wiring::of(&board);
        let text = wiring.hears(&wiring.ports[0]);
        assert!(text.ends_with("a of node8 (10.0.0.8), a of node9 (10.0.0.9), and more"), "{text}");
    }
}
