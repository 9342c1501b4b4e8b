//! How cables and switches join the hosts' ports for RDMA over Ethernet, as the ports hear each other, and
//! which cables are dead or crossed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::board::Board;
use super::finding::{Finding, Severity};
use super::notice::Rail;

const CHECK: &str = "wiring";
/// The most names in a line, and the most findings.
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

    /// Why the port hears no other host, if so: no other host has said that it hears this port, either.
    fn why_alone(&self, port: &Port<'_>) -> Option<&'static str> {
        let is_other = |(rank, _): &(u32, String)| *rank != port.host;
        match port.rail.up {
            _ if !self.others(port).is_empty() || port.rail.heard.iter().any(is_other) => None,
            false => Some("has no link"),
            true if port.hears(port) => Some("hears no other host"),
            true => Some("does not even hear itself"),
        }
    }

    /// What this port hears, in words.
    fn hears(&self, port: &Port<'_>) -> String {
        match &self.others(port)[..] {
            [] => self.why_alone(port).unwrap_or("hears a host that has not told its ports").to_owned(),
            others => format!("hears {}", short(others, ", ", |other| self.name(other))),
        }
    }

    /// What is wrong with the networks whose ports do not all hear each other, or else what joins the hosts.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut networks: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (place, port) in self.ports.iter().enumerate() {
            for network in port.rail.networks.iter().filter(|network| is_of_link(network)) {
                networks.entry(network).or_default().insert(place);
            }
        }
        // Ports have networks of both families.
        let mut together: BTreeMap<BTreeSet<usize>, Vec<&str>> = BTreeMap::new();
        for (network, places) in networks {
            together.entry(places).or_default().push(network);
        }
        let broken = together.iter().filter_map(|(places, networks)| {
            self.broken(networks, &places.iter().map(|place| &self.ports[*place]).collect::<Vec<_>>())
        });
        let mut findings: Vec<Finding> = broken.take(FINDINGS).collect();
        let hosts = hosts(&self.ports);
        if findings.is_empty() && hosts.len() > 1 {
            findings.push(self.shape(&hosts));
        }
        findings
    }

    /// The finding on ports with the same networks: which of them are alone, or else in which parts they are.
    /// Only a port without a link and a crossed cable are surely wrong: a fabric may pass no multicast, or
    /// route between the links of a network.
    fn broken(&self, networks: &[&str], ports: &[&Port<'a>]) -> Option<Finding> {
        let hosts = hosts(ports.iter().copied()).len();
        if hosts < 2 || ports.iter().all(|port| port.segment == ports[0].segment) {
            return None;
        }
        let only = |is: &dyn Fn(&Port<'a>) -> bool| -> Vec<&Port<'a>> {
            ports.iter().copied().filter(|port| is(port)).collect()
        };
        let alone = only(&|port| self.why_alone(port).is_some());
        let together = |port: &Port<'_>| ports.iter().filter(|other| other.segment == port.segment).count();
        let most = ports.iter().map(|port| together(port)).max().unwrap_or(0);
        let apart = only(&|port| together(port) < most || most == 1);
        let is_crossed = |port: &&Port<'_>| together(port) == 1 && !self.others(port).is_empty();
        let (status, blamed, cure) = if let Some(Port { host, rail, .. }) =
            alone.iter().find(|port| !port.rail.up)
        {
            let cure = format!(
                "plug the cable in again or replace it, at both ends: `ethtool {}` on {} shows the link",
                rail.by,
                self.board.name(*host)
            );
            (Severity::Warning, &alone[..], cure)
        } else if !alone.is_empty() {
            let cure = "if a cable or switch joins them, look for a firewall rule that drops multicast on a port that does not even \
                        hear itself, and for the VLAN of a switch port";
            (Severity::Note, &alone[..], cure.to_owned())
        } else if hosts < ports.len() {
            // With several ports in a network, a host may mean any of them to reach another host.
            return None;
        } else if !apart.is_empty() && apart.iter().all(is_crossed) {
            let cure = "the cables are crossed: plug them into the ports of their networks, or exchange the addresses of the two \
                        ports on one host";
            (Severity::Warning, &apart[..], cure.to_owned())
        } else {
            let cure =
                "if no router joins these links, join their switches, or give each link a network of its own";
            (Severity::Note, if apart.is_empty() { ports } else { &apart }, cure.to_owned())
        };
        let looked = format!("ports for RDMA in {}", networks[..networks.len().min(SHOWN)].join(", "));
        let seen = short(blamed, "; ", |port| format!("{} {}", self.name(port), self.hears(port)));
        Some(Finding::new(status, CHECK, looked, seen, cure))
    }

    /// What joins these hosts, in a sentence.
    fn shape(&self, hosts: &BTreeSet<u32>) -> Finding {
        let joined = self.segments().into_values().map(self::hosts);
        let joined: Vec<BTreeSet<u32>> = joined.filter(|hosts| hosts.len() > 1).collect();
        let are_joined = |one, other| joined.iter().any(|some| some.contains(one) && some.contains(other));
        let joined_to = |one| hosts.iter().filter(|other| one < *other && are_joined(one, other)).count();
        let (hosts, pairs) = (hosts.len(), hosts.iter().map(joined_to).sum::<usize>());
        let possible = hosts * (hosts - 1) / 2;
        let seen = match joined.len() {
            1 if pairs == possible => "one switch or cable joins them".to_owned(),
            links if pairs == possible && joined.iter().all(|some| some.len() == hosts) => {
                format!("{links} rails or cables, each of which joins them all")
            }
            _ if pairs == possible => "cables or switches join each two of them".to_owned(),
            _ => format!("cables or switches join {pairs} of {possible} pairs of them"),
        };
        let looked = format!("ports for RDMA of {hosts} hosts");
        if pairs == possible {
            return Finding::ok(CHECK, looked, seen);
        }
        let down: Vec<&Port<'_>> = self.ports.iter().filter(|port| !port.rail.up).collect();
        let without = if down.is_empty() { "" } else { "; without a link: " };
        let seen = format!("{seen}{without}{}", short(&down, ", ", |port| self.name(port)));
        let cure = "if a cable or switch should join more, look at the link of each port (`ethtool`), and whether multicast passes";
        Finding::new(Severity::Note, CHECK, looked, seen, cure)
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

fn hosts<'a>(ports: impl IntoIterator<Item = &'a Port<'a>>) -> BTreeSet<u32> {
    ports.into_iter().map(|port| port.host).collect()
}

/// Whether hosts in this network are on the same link: not where the network is a single address, as those of
/// services are, or holds the addresses that hosts give themselves (RFC 3927).
fn is_of_link(network: &str) -> bool {
    !network.ends_with("/32") && !network.ends_with("/128") && !network.starts_with("169.254.")
}

/// What is said of these ports, as far as a line has room.
fn short(ports: &[&Port<'_>], separator: &str, say: impl Fn(&Port<'_>) -> String) -> String {
    let said: Vec<String> = ports.iter().take(SHOWN).map(|port| say(port)).collect();
    match ports.len().saturating_sub(SHOWN) {
        0 => said.join(separator),
        more => format!("{}{separator}and {more} more", said.join(separator)),
    }
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
    fn a_port_without_a_link_is_named_with_its_other_end_where_another_host_is_in_its_network() {
        let down = |networks: &[&str]| Rail { up: false, ..rail("b", networks, &[]) };
        let both = ["10.0.1.0/24", "fd01::/64", "10.9.9.9/32"];
        let other = [rail("c", &["10.0.0.0/24"], &[]), rail("d", &both, &[(1, 1)])];
        let with = |networks: &[&str]| {
            said(&board(&[&[rail("a", &["10.0.0.0/24"], &[(1, 0)]), down(networks)], &other]))
        };
        let fine = ["ok ports for RDMA of 2 hosts: one switch or cable joins them"];
        for other in [&[][..], &["10.0.1.0/25"], &["10.9.9.9/32"], &["169.254.0.0/16"]] {
            assert_eq!(with(other), fine, "{other:?}");
        }
        let line = "warning ports for RDMA in 10.0.1.0/24, fd01::/64: b of node1 (10.0.0.1) has no link; d of node2 (10.0.0.2) \
                    hears no other host";
        assert_eq!(with(&both), [line]);
        let line = "warning ports for RDMA in 10.0.0.0/24: b of node1 (10.0.0.1) has no link";
        assert_eq!(with(&["10.0.0.0/24"]), [line]);
        // As network managers do, which take the addresses of a port without a link.
        let without = board(&[
            &[rail("a", &[], &[(1, 0)]), down(&[])],
            &[rail("a", &[], &[]), rail("b", &[], &[(2, 0)])],
            &[rail("a", &[], &[]), down(&[])],
        ]);
        let line = "note ports for RDMA of 3 hosts: cables or switches join 2 of 3 pairs of them; without a link: b of node1 (10.0.0.1), b of \
                    node3 (10.0.0.3)";
        assert_eq!(said(&without), [line]);
    }

    #[test]
    fn where_no_multicast_passes_or_routers_join_the_links_nothing_is_wrong() {
        let port = |heard: &[End]| [rail("a", &["10.0.0.0/16"], heard)];
        let silent = said(&board(&[&port(&[]), &port(&[])]));
        assert!(silent[0].starts_with("note ports for RDMA in 10.0.0.0/16: a of node1"), "{silent:?}");
        let routed = said(&board(&[&port(&[(1, 0)]), &port(&[]), &port(&[(3, 0)]), &port(&[])]));
        assert!(routed.len() == 1 && routed[0].starts_with("note "), "{routed:?}");
        let without = board(&[&[rail("a", &[], &[])], &[rail("b", &[], &[])]]);
        assert_eq!(
            said(&without),
            ["note ports for RDMA of 2 hosts: cables or switches join 0 of 1 pairs of them"]
        );
    }

    #[test]
    fn ports_of_one_network_on_different_cables_are_named_unless_a_host_has_several_in_it() {
        let hosts = |networks: [&str; 4]| {
            let port = |by, network, heard| rail(by, &[network], &[heard]);
            board(&[
                &[port("a", networks[0], (1, 1)), port("b", networks[1], (1, 0))],
                &[port("c", networks[2], (0, 1)), port("d", networks[3], (0, 0))],
            ])
        };
        let crossed = said(&hosts(["10.0.0.0/24", "fd01::/64", "10.0.0.0/24", "fd01::/64"]));
        let lines = [
            "warning ports for RDMA in 10.0.0.0/24: a of node1 (10.0.0.1) hears d of node2 (10.0.0.2); c of node2 (10.0.0.2) hears \
             b of node1 (10.0.0.1)",
            "warning ports for RDMA in fd01::/64: b of node1 (10.0.0.1) hears c of node2 (10.0.0.2); d of node2 (10.0.0.2) hears a \
             of node1 (10.0.0.1)",
        ];
        assert_eq!(crossed, lines);
        let shape = "ok ports for RDMA of 2 hosts: 2 rails or cables, each of which joins them all";
        assert_eq!(said(&hosts(["10.0.0.0/24"; 4])), [shape]);
    }

    #[test]
    fn only_the_ports_apart_from_most_of_their_network_are_blamed() {
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
            assert!(finding.seen.starts_with(&format!("{by} of node3 (10.0.0.3) hears ")), "{finding:?}");
            assert!(finding.cure.as_ref().unwrap().contains("crossed"), "{finding:?}");
        }
    }

    #[test]
    fn cables_are_counted_by_the_pairs_of_hosts_that_they_join() {
        for (count, status, shape) in [
            (3_u32, "ok", "cables or switches join each two of them"),
            (4, "note", "cables or switches join 4 of 6 pairs of them"),
        ] {
            let ends = |host: u32| [rail("a", &[], &[((host + 1) % count, 1)]), rail("b", &[], &[])];
            let all: Vec<[Rail; 2]> = (0..count).map(ends).collect();
            let all: Vec<&[Rail]> = all.iter().map(<[Rail; 2]>::as_slice).collect();
            assert_eq!(said(&board(&all)), [format!("{status} ports for RDMA of {count} hosts: {shape}")]);
        }
    }
}
