//! How cables and switches join the hosts' ports for RDMA over Ethernet, as the ports hear each other, and
//! which cables are dead or crossed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::finding::{Finding, Severity};
use super::matrix::Board;
use super::notice::Rail;

const CHECK: &str = "wiring";
/// The most names in a line, and the most findings.
const SHOWN: usize = 8;
const FINDINGS: usize = 32;

/// A port, and the ID and name of its host.
struct Port<'a> {
    host: u32,
    host_name: String,
    rail: &'a Rail,
}

/// Ports by their places in [`Wiring::ports`].
type Ends = BTreeSet<usize>;

/// The ports of all hosts.
pub(super) struct Wiring<'a> {
    ports: Vec<Port<'a>>,
    /// The hosts, and the names of those that have not told of their ports.
    hosts: BTreeSet<u32>,
    silent: Vec<String>,
    /// The ports that hear each other, directly or by way of others. A port that hears none is alone.
    segments: Vec<Ends>,
}

impl<'a> Wiring<'a> {
    pub(super) fn of(board: &'a Board) -> Self {
        let ids = board.ids();
        let ports = |id: &u32| {
            let (host, host_name) = (*id, board.name(*id));
            let rails = board.host(host).rails.iter().flatten();
            rails.map(move |rail| Port { host, host_name: host_name.clone(), rail })
        };
        let ports: Vec<Port<'_>> = ids.iter().flat_map(ports).collect();
        let mut segments: Vec<Ends> = Vec::new();
        for (here, port) in ports.iter().enumerate() {
            // A stranger can make up ports that no host has.
            let hears = |end: &usize| *end == here || port.hears(&ports[*end]);
            let mut joined: Ends = (0..ports.len()).filter(hears).collect();
            let overlapping = segments.extract_if(.., |segment| !segment.is_disjoint(&joined));
            let overlapping: Vec<Ends> = overlapping.collect();
            joined.extend(overlapping.into_iter().flatten());
            segments.push(joined);
        }
        segments.sort();
        let silent = ids.iter().filter(|id| board.host(**id).rails.is_none());
        let silent = silent.map(|id| board.name(*id)).collect();
        Self { ports, hosts: ids.into_iter().collect(), silent, segments }
    }

    fn name(&self, end: usize) -> String {
        let Port { host_name, rail, .. } = &self.ports[end];
        format!("{} of {host_name}", rail.by)
    }

    fn hosts_of(&self, ends: &Ends) -> BTreeSet<u32> {
        ends.iter().map(|end| self.ports[*end].host).collect()
    }

    /// The ports that hear this port or are heard by it, itself included.
    fn segment(&self, end: usize) -> &Ends {
        static NONE: Ends = Ends::new();
        self.segments.iter().find(|segment| segment.contains(&end)).unwrap_or(&NONE)
    }

    /// Whether the port and one of another host hear each other.
    fn is_joined(&self, end: usize) -> bool {
        self.hosts_of(self.segment(end)).len() > 1
    }

    /// Why the port hears no other host, if so: no other host has said that it hears this port, either.
    fn why_alone(&self, end: usize) -> Option<&'static str> {
        let port = &self.ports[end];
        let is_other = |(id, _): &(u32, String)| *id != port.host && self.hosts.contains(id);
        match port.rail.up {
            _ if self.is_joined(end) || port.rail.heard.iter().any(is_other) => None,
            false => Some("has no link"),
            true if port.hears(port) => Some("hears no other host"),
            true => Some("does not even hear itself"),
        }
    }

    /// What this port hears, in words.
    fn hears(&self, end: usize) -> String {
        if self.is_joined(end) {
            let is_other = |other: &&usize| self.ports[**other].host != self.ports[end].host;
            let others: Vec<usize> = self.segment(end).iter().filter(is_other).copied().collect();
            return format!("hears {}", short(&others, ", ", |other| self.name(other)));
        }
        self.why_alone(end).unwrap_or("hears a host that has not told its ports").to_owned()
    }

    /// What is wrong with the networks whose ports do not all hear each other, or else what joins the hosts.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut networks: BTreeMap<&str, Ends> = BTreeMap::new();
        for (end, port) in self.ports.iter().enumerate() {
            for network in port.rail.networks.iter().filter(|network| is_of_link(network)) {
                networks.entry(network).or_default().insert(end);
            }
        }
        // Ports have networks of both families.
        let mut together: BTreeMap<Ends, Vec<&str>> = BTreeMap::new();
        for (network, ends) in networks {
            together.entry(ends).or_default().push(network);
        }
        let broken = together.iter().filter_map(|(ends, networks)| self.broken(networks, ends));
        let mut findings: Vec<Finding> = broken.take(FINDINGS).collect();
        let hosts = self.hosts_of(&(0..self.ports.len()).collect());
        if findings.is_empty() && hosts.len() > 1 {
            findings.push(self.shape(&hosts));
        }
        findings
    }

    /// The finding on ports with the same networks: which of them are alone, or else in which parts they are.
    /// Only a port without a link and a crossed cable are surely wrong: a fabric may pass no multicast, or
    /// route between the links of a network.
    fn broken(&self, networks: &[&str], ends: &Ends) -> Option<Finding> {
        let hosts = self.hosts_of(ends).len();
        if hosts < 2 || self.segments.iter().any(|segment| ends.is_subset(segment)) {
            return None;
        }
        let find = |status, blamed: &[usize], cure: &str| {
            let looked = format!("ports for RDMA in {}", networks[..networks.len().min(SHOWN)].join(", "));
            let seen = short(blamed, "; ", |end| format!("{} {}", self.name(end), self.hears(end)));
            Some(Finding::new(status, CHECK, looked, seen, cure))
        };
        let alone: Vec<usize> = ends.iter().copied().filter(|end| self.why_alone(*end).is_some()).collect();
        if let Some(Port { host_name, rail, .. }) =
            alone.iter().map(|end| &self.ports[*end]).find(|port| !port.rail.up)
        {
            let cure = format!(
                "plug the cable in again or replace it, at both ends: `ethtool {}` on {host_name} shows the link",
                rail.by
            );
            return find(Severity::Warning, &alone, &cure);
        }
        if !alone.is_empty() {
            let cure = "if a cable or switch joins them, look for a firewall rule that drops multicast on a port that does not even \
                        hear itself, and for the VLAN of a switch port";
            return find(Severity::Note, &alone, cure);
        }
        // With several ports in a network, a host may mean any of them to reach another host.
        if hosts < ends.len() {
            return None;
        }
        let own = |end: &usize| self.segment(*end).intersection(ends).count();
        let most = ends.iter().map(own).max().unwrap_or(0);
        let apart: Vec<usize> = ends.iter().copied().filter(|end| own(end) < most || most == 1).collect();
        let is_crossed = |end: &usize| own(end) == 1 && self.is_joined(*end);
        if !apart.is_empty() && apart.iter().all(is_crossed) {
            let cure = "the cables are crossed: plug them into the ports of their networks, or exchange the addresses of the two \
                        ports on one host";
            return find(Severity::Warning, &apart, cure);
        }
        let all: Vec<usize> = ends.iter().copied().collect();
        let cure =
            "if no router joins these links, join their switches, or give each link a network of its own";
        find(Severity::Note, if apart.is_empty() { &all } else { &apart }, cure)
    }

    /// What joins these hosts, in a sentence.
    fn shape(&self, hosts: &BTreeSet<u32>) -> Finding {
        let joined = self.segments.iter().map(|segment| self.hosts_of(segment));
        let joined: Vec<BTreeSet<u32>> = joined.filter(|hosts| hosts.len() > 1).collect();
        let are_joined = |one, other| joined.iter().any(|some| some.contains(one) && some.contains(other));
        let joined_to = |one| hosts.iter().filter(|other| one < *other && are_joined(one, other)).count();
        let (hosts, pairs) = (hosts.len(), hosts.iter().map(joined_to).sum::<usize>());
        let possible = hosts * (hosts - 1) / 2;
        let seen = match joined.len() {
            0 => "no port of a host hears a port of another".to_owned(),
            1 if pairs == possible => "one switch or cable joins them".to_owned(),
            links if joined.iter().all(|some| some.len() == hosts) => {
                format!("{links} rails or cables, each of which joins them all")
            }
            _ if pairs == possible => "cables or switches join each two of them".to_owned(),
            _ => format!("cables or switches join {pairs} of {possible} pairs of them"),
        };
        let looked = format!("ports for RDMA of {hosts} hosts");
        if pairs == possible {
            return Finding::ok(CHECK, looked, seen);
        }
        let down: Vec<usize> = (0..self.ports.len()).filter(|end| !self.ports[*end].rail.up).collect();
        let without = if down.is_empty() { "" } else { "; without a link: " };
        let seen = format!("{seen}{without}{}", short(&down, ", ", |end| self.name(end)));
        let cure = "if a cable or switch should join more, look at the link of each port (`ethtool`), and whether multicast passes";
        Finding::new(Severity::Note, CHECK, looked, seen, cure)
    }

    /// A line for each cable or switch, and for each port and host without.
    pub(super) fn text(&self) -> String {
        if self.ports.is_empty() {
            return String::new();
        }
        let line = |segment: &Ends| {
            let ports: Vec<&Port<'_>> = segment.iter().map(|end| &self.ports[*end]).collect();
            let side = |side: &[&Port<'_>]| {
                let names: Vec<&str> = side.iter().map(|port| port.rail.by.as_str()).collect();
                format!("{} {}", side[0].host_name, names.join(", "))
            };
            // Those of a host are neighbours.
            let mut sides: Vec<String> =
                ports.chunk_by(|one, next| one.host == next.host).map(side).collect();
            let alone = segment.first().filter(|end| !self.is_joined(**end));
            sides.extend(alone.map(|end| self.hears(*end)));
            format!("  {}\n", sides.join(" -- "))
        };
        let mut lines: Vec<String> = self.segments.iter().map(line).collect();
        lines.extend(self.silent.iter().map(|name| format!("  {name} -- has not told its ports\n")));
        format!("\nports for RDMA, and which hear each other:\n{}", lines.concat())
    }

    /// The segments for programs.
    pub(super) fn document(&self) -> Value {
        let port = |end: &usize| {
            let Port { host_name, rail: Rail { by, networks, up, .. }, .. } = &self.ports[*end];
            json!({ "host": host_name, "interface": by, "networks": networks, "link": up })
        };
        self.segments.iter().map(|segment| segment.iter().map(port).collect::<Value>()).collect()
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

/// What is said of these ports, as far as a line has room.
fn short(ends: &[usize], separator: &str, say: impl Fn(usize) -> String) -> String {
    let said: Vec<String> = ends.iter().take(SHOWN).map(|end| say(*end)).collect();
    match ends.len().saturating_sub(SHOWN) {
        0 => said.join(separator),
        more => format!("{}{separator}and {more} more", said.join(separator)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::board_at;
    use super::super::notice::{Record, record};
    use super::*;

    /// The places of a host and of its port.
    type End = (usize, usize);

    fn id(host: usize) -> u32 {
        u32::try_from(host + 1).unwrap()
    }

    fn rail(by: &str, networks: &[&str], heard: &[End]) -> Rail {
        let networks = networks.iter().map(|&network| network.to_owned()).collect();
        let heard = heard.iter().map(|(host, port)| (id(*host), port.to_string())).collect();
        Rail { by: by.to_owned(), networks, up: true, heard }
    }

    /// The board of hosts with these ports; host 0 is node1.
    fn board(hosts: &[&[Rail]]) -> Board {
        let named = |(host, port): &(u32, String)| {
            let host = hosts.get(usize::try_from(host - 1).unwrap());
            host.and_then(|rails| rails.get(port.parse::<usize>().unwrap())).map(|rail| rail.by.clone())
        };
        let with_names = |rail: &Rail| {
            let heard = rail.heard.iter().map(|end| (end.0, named(end).unwrap_or_default()));
            Rail { heard: heard.collect(), ..rail.clone() }
        };
        let host = |(host, rails): (usize, &&[Rail])| {
            let rails = rails.iter().map(with_names).collect();
            Record { rails: Some(rails), ..record(id(host)) }
        };
        let mut records = hosts.iter().enumerate().map(host);
        let mut board = board_at(records.next().unwrap(), u32::try_from(hosts.len()).unwrap(), false);
        records.for_each(|record| board.learn(record));
        board
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
        let one = rail("a", &[], &[(1, 0), (1, 31), (7, 0)]);
        let down = Rail { up: false, ..rail("d", &[], &[]) };
        let ports = [one, rail("b", &[], &[]), rail("e", &[], &[(0, 2)]), down, rail("f", &[], &[(2, 0)])];
        let mut three = board(&[&ports, &[rail("c", &[], &[])], &[]]);
        three.others.get_mut(&3).unwrap().rails = None;
        let wiring = Wiring::of(&three);
        assert_eq!(wiring.segments[0], [0, 5].into());
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
            ["note ports for RDMA of 2 hosts: no port of a host hears a port of another"]
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
            (3_usize, "ok", "cables or switches join each two of them"),
            (4, "note", "cables or switches join 4 of 6 pairs of them"),
        ] {
            let ends = |host: usize| [rail("a", &[], &[((host + 1) % count, 1)]), rail("b", &[], &[])];
            let all: Vec<[Rail; 2]> = (0..count).map(ends).collect();
            let all: Vec<&[Rail]> = all.iter().map(<[Rail; 2]>::as_slice).collect();
            assert_eq!(said(&board(&all)), [format!("{status} ports for RDMA of {count} hosts: {shape}")]);
        }
    }
}
