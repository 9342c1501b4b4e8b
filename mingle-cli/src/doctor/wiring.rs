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

/// A port: the place of its host, and its own.
type End = (usize, usize);

/// The ports of all hosts.
pub(super) struct Wiring<'a> {
    /// The ID and name of each host, and its ports; none where it has not told of them.
    hosts: Vec<(u32, String, Option<&'a [Rail]>)>,
    /// The ports that hear each other, directly or by way of others. A port that hears none is alone.
    segments: Vec<BTreeSet<End>>,
}

impl<'a> Wiring<'a> {
    pub(super) fn of(board: &'a Board) -> Self {
        let ids = board.ids();
        let host = |id: &u32| (*id, board.name(*id), board.rows[id].rails.as_deref());
        let mut wiring = Self { hosts: ids.iter().map(host).collect(), segments: Vec::new() };
        let places: BTreeMap<u32, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let ends: Vec<End> = wiring.ends().collect();
        let mut labels: BTreeMap<End, usize> = ends.iter().copied().zip(0..).collect();
        for here in &ends {
            for (id, heard) in &wiring.rail(*here).heard {
                for there in heard.iter().filter_map(|rail| Some((*places.get(id)?, *rail))) {
                    // A stranger can make up ports that no host has.
                    let (own, other) = (labels[here], labels.get(&there).copied());
                    if let Some(other) = other.filter(|other| *other != own) {
                        labels.values_mut().filter(|label| **label == other).for_each(|label| *label = own);
                    }
                }
            }
        }
        let mut segments: BTreeMap<usize, BTreeSet<End>> = BTreeMap::new();
        for (end, label) in labels {
            segments.entry(label).or_default().insert(end);
        }
        wiring.segments = segments.into_values().collect();
        wiring.segments.sort();
        wiring
    }

    fn ends(&self) -> impl Iterator<Item = End> {
        let counts = self.hosts.iter().map(|(.., rails)| rails.map_or(0, <[Rail]>::len));
        counts.enumerate().flat_map(|(host, count)| (0..count).map(move |rail| (host, rail)))
    }

    fn rail(&self, (host, rail): End) -> &'a Rail {
        &self.hosts[host].2.unwrap_or_default()[rail]
    }

    fn name(&self, end: End) -> String {
        format!("{} of {}", self.rail(end).by, self.hosts[end.0].1)
    }

    /// The ports that hear this port or are heard by it, itself included.
    fn segment(&self, end: End) -> &BTreeSet<End> {
        static NONE: BTreeSet<End> = BTreeSet::new();
        self.segments.iter().find(|segment| segment.contains(&end)).unwrap_or(&NONE)
    }

    /// Whether the port hears no other host, and no other host has said that it hears this port.
    fn is_alone(&self, end: End) -> bool {
        let others = &self.hosts.iter().enumerate().filter(|(host, _)| *host != end.0);
        let hears = others.clone().any(|(_, (id, ..))| self.rail(end).heard.contains_key(id));
        !hears && hosts_of(self.segment(end)).len() < 2
    }

    /// What this port hears, in words.
    fn hears(&self, end: End) -> String {
        let others = self.segment(end).iter().filter(|other| other.0 != end.0);
        let others: Vec<End> = others.copied().collect();
        match self.why_alone(end) {
            Some(why) => format!("{} {why}", self.name(end)),
            None => format!("{} hears {}", self.name(end), short(&others, ", ", |other| self.name(other))),
        }
    }

    /// Why the segment of this port is no other host's.
    fn why_alone(&self, end: End) -> Option<&'static str> {
        let (rail, own) = (self.rail(end), self.hosts[end.0].0);
        let hears_itself = rail.heard.get(&own).is_some_and(|ports| ports.contains(&end.1));
        match rail.up {
            _ if hosts_of(self.segment(end)).len() > 1 => None,
            _ if !self.is_alone(end) => Some("hears a host that has not told its ports"),
            false => Some("has no link"),
            true if hears_itself => Some("hears no other host"),
            true => Some("does not even hear itself"),
        }
    }

    /// What is wrong with the networks whose ports do not all hear each other, or else what joins the hosts.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut networks: BTreeMap<&str, BTreeSet<End>> = BTreeMap::new();
        for end in self.ends() {
            for network in self.rail(end).networks.iter().filter(|network| is_of_link(network)) {
                networks.entry(network).or_default().insert(end);
            }
        }
        // Ports have networks of both families.
        let mut together: BTreeMap<BTreeSet<End>, Vec<&str>> = BTreeMap::new();
        for (network, ends) in networks {
            together.entry(ends).or_default().push(network);
        }
        let broken = together.iter().filter_map(|(ends, networks)| self.broken(networks, ends));
        let mut findings: Vec<Finding> = broken.take(FINDINGS).collect();
        if findings.is_empty() && hosts_of(&self.ends().collect()).len() > 1 {
            findings.push(self.shape());
        }
        findings
    }

    /// The finding on ports with the same networks: which of them are alone, or else in which parts they are.
    /// Only a port without a link and a crossed cable are surely wrong: a fabric may pass no multicast, or
    /// route between the links of a network.
    fn broken(&self, networks: &[&str], ends: &BTreeSet<End>) -> Option<Finding> {
        let hosts = hosts_of(ends).len();
        if hosts < 2 || self.segments.iter().any(|segment| ends.is_subset(segment)) {
            return None;
        }
        let find = |status, blamed: &[End], cure: String| {
            let looked = format!("ports for RDMA in {}", networks[..networks.len().min(SHOWN)].join(", "));
            Some(Finding::new(status, CHECK, looked, short(blamed, "; ", |end| self.hears(end)), cure))
        };
        let alone: Vec<End> = ends.iter().copied().filter(|end| self.is_alone(*end)).collect();
        if let Some(dead) = alone.iter().find(|end| !self.rail(**end).up) {
            let (by, host) = (&self.rail(*dead).by, &self.hosts[dead.0].1);
            let cure = format!(
                "plug the cable in again or replace it, at both ends: `ethtool {by}` on {host} shows the link"
            );
            return find(Severity::Warning, &alone, cure);
        }
        if !alone.is_empty() {
            let cure = "if a cable or switch joins them, look for a firewall rule that drops multicast on a port that does not even \
                        hear itself, and for the VLAN of a switch port";
            return find(Severity::Note, &alone, cure.to_owned());
        }
        // With several ports in a network, a host may mean any of them to reach another host.
        if hosts < ends.len() {
            return None;
        }
        let own = |end: &End| self.segment(*end).intersection(ends).count();
        let most = ends.iter().map(own).max().unwrap_or(0);
        let apart: Vec<End> = ends.iter().copied().filter(|end| own(end) < most || most == 1).collect();
        let is_crossed = |end: &End| own(end) == 1 && self.why_alone(*end).is_none();
        if !apart.is_empty() && apart.iter().all(is_crossed) {
            let cure = "the cables are crossed: plug them into the ports of their networks, or exchange the addresses of the two \
                        ports on one host";
            return find(Severity::Warning, &apart, cure.to_owned());
        }
        let all: Vec<End> = ends.iter().copied().collect();
        let cure =
            "if no router joins these links, join their switches, or give each link a network of its own";
        find(Severity::Note, if apart.is_empty() { &all } else { &apart }, cure.to_owned())
    }

    /// What joins the hosts, in a sentence.
    fn shape(&self) -> Finding {
        let ends: BTreeSet<End> = self.ends().collect();
        let joined: Vec<BTreeSet<usize>> =
            self.segments.iter().map(hosts_of).filter(|hosts| hosts.len() > 1).collect();
        let pairs: BTreeSet<_> = joined.iter().filter(|hosts| hosts.len() == 2).collect();
        let (hosts, links) = (hosts_of(&ends).len(), joined.len());
        let possible = hosts * (hosts - 1) / 2;
        let (seen, is_whole) = match joined.first() {
            None => ("no port of a host hears a port of another".to_owned(), false),
            Some(one) if links == 1 && one.len() == hosts => {
                ("one switch or cable joins them".to_owned(), true)
            }
            Some(one) if links == 1 => (format!("one switch or cable joins {} of them", one.len()), false),
            _ if joined.iter().all(|some| some.len() == hosts) => {
                (format!("{links} rails or cables, each of which joins them all"), true)
            }
            _ if pairs.len() == possible => ("cables join each two of them".to_owned(), true),
            _ if joined.iter().all(|some| some.len() == 2) => {
                (format!("cables join {} of {possible} pairs of them", pairs.len()), false)
            }
            _ => (format!("{links} networks join different hosts"), false),
        };
        let looked = format!("ports for RDMA of {hosts} hosts");
        if is_whole {
            return Finding::ok(CHECK, looked, seen);
        }
        let down: Vec<End> = ends.into_iter().filter(|end| !self.rail(*end).up).collect();
        let without = if down.is_empty() { "" } else { "; without a link: " };
        let seen = format!("{seen}{without}{}", short(&down, ", ", |end| self.name(end)));
        let cure = "if a cable or switch should join more, look at the link of each port (`ethtool`), and whether multicast passes";
        Finding::new(Severity::Note, CHECK, looked, seen, cure)
    }

    /// A line for each cable or switch, and for each port and host without.
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for segment in &self.segments {
            let side = |host: usize| {
                let own = segment.iter().filter(|end| end.0 == host);
                let ports: Vec<&str> = own.map(|end| self.rail(*end).by.as_str()).collect();
                format!("{} {}", self.hosts[host].1, ports.join(", "))
            };
            let mut sides: Vec<String> = hosts_of(segment).into_iter().map(side).collect();
            let why = segment.first().and_then(|end| self.why_alone(*end));
            sides.extend(why.map(str::to_owned));
            lines.push(format!("  {}\n", sides.join(" -- ")));
        }
        if lines.is_empty() {
            return String::new();
        }
        let silent = self.hosts.iter().filter(|(.., rails)| rails.is_none());
        lines.extend(silent.map(|(_, name, _)| format!("  {name} -- has not told its ports\n")));
        format!("\nports for RDMA, and which hear each other:\n{}", lines.concat())
    }

    /// The segments for programs.
    pub(super) fn document(&self) -> Value {
        let port = |end: &End| {
            let Rail { by, networks, up, .. } = self.rail(*end);
            json!({ "host": self.hosts[end.0].1, "interface": by, "networks": networks, "link": up })
        };
        self.segments.iter().map(|segment| segment.iter().map(port).collect::<Value>()).collect()
    }
}

fn hosts_of(ends: &BTreeSet<End>) -> BTreeSet<usize> {
    ends.iter().map(|(host, _)| *host).collect()
}

/// Whether hosts in this network are on the same link: not where the network is a single address, as those of
/// services are, or holds the addresses that hosts give themselves (RFC 3927).
fn is_of_link(network: &str) -> bool {
    !network.ends_with("/32") && !network.ends_with("/128") && !network.starts_with("169.254.")
}

/// What is said of these ports, as far as a line has room.
fn short(ends: &[End], separator: &str, say: impl Fn(End) -> String) -> String {
    let said: Vec<String> = ends.iter().take(SHOWN).map(|end| say(*end)).collect();
    match ends.len().saturating_sub(SHOWN) {
        0 => said.join(separator),
        more => format!("{}{separator}and {more} more", said.join(separator)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::board_at;
    use super::super::notice::{Row, card};
    use super::*;

    fn rail(by: &str, networks: &[&str], heard: &[End]) -> Rail {
        let networks = networks.iter().map(|&network| network.to_owned()).collect();
        let mut rail = Rail { by: by.to_owned(), networks, up: true, heard: BTreeMap::new() };
        for (host, port) in heard {
            rail.heard.entry(u32::try_from(host + 1).unwrap()).or_default().insert(*port);
        }
        rail
    }

    /// The board of hosts with these ports; host 0 is node1.
    fn board(hosts: &[&[Rail]]) -> Board {
        let row = |(host, rails): (usize, &&[Rail])| {
            let card = card(u32::try_from(host + 1).unwrap());
            Row { rails: Some(rails.to_vec()), ..Row::new(card) }
        };
        let mut rows = hosts.iter().enumerate().map(row);
        let first = rows.next().unwrap();
        let mut board = board_at(first.card.clone(), u32::try_from(hosts.len()).unwrap(), false);
        board.rows.insert(1, first);
        rows.for_each(|row| {
            board.learn(row);
        });
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
        three.rows.get_mut(&3).unwrap().rails = None;
        let wiring = Wiring::of(&three);
        assert_eq!(wiring.segments[0], [(0, 0), (1, 0)].into());
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
        let line = "note ports for RDMA of 3 hosts: cables join 2 of 3 pairs of them; without a link: b of node1 (10.0.0.1), b of \
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
        for (count, status, shape) in
            [(3_usize, "ok", "cables join each two of them"), (4, "note", "cables join 4 of 6 pairs of them")]
        {
            let ends = |host: usize| [rail("a", &[], &[((host + 1) % count, 1)]), rail("b", &[], &[])];
            let all: Vec<[Rail; 2]> = (0..count).map(ends).collect();
            let all: Vec<&[Rail]> = all.iter().map(<[Rail; 2]>::as_slice).collect();
            assert_eq!(said(&board(&all)), [format!("{status} ports for RDMA of {count} hosts: {shape}")]);
        }
    }
}
