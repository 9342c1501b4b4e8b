//! How cables and switches join the hosts' ports for RDMA over Ethernet, as the ports hear each other, and
//! which cables are dead or crossed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::finding::{Finding, Severity};
use super::matrix::Board;
use super::notice::Rail;

const CHECK: &str = "wiring";
/// The most names in one line.
const SHOWN: usize = 8;

/// A port: the place of its host, and its own.
type End = (usize, usize);

/// The ports of all hosts.
pub(super) struct Wiring<'a> {
    /// The name of each host, and its ports.
    hosts: Vec<(&'a str, &'a [Rail])>,
    /// The ports that hear each other, directly or by way of others. A port that hears none is alone.
    segments: Vec<BTreeSet<End>>,
}

impl<'a> Wiring<'a> {
    pub(super) fn of(board: &'a Board) -> Self {
        let ids = board.ids();
        let rails = |id: &u32| board.rows[id].rails.as_deref().unwrap_or_default();
        let hosts: Vec<_> = ids.iter().map(|id| (board.rows[id].card.host.as_str(), rails(id))).collect();
        let mut wiring = Self { hosts, segments: Vec::new() };
        wiring.segments = wiring.ends().map(|end| BTreeSet::from([end])).collect();
        let places: BTreeMap<u32, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        for here in wiring.ends().collect::<Vec<End>>() {
            let (_, rails) = wiring.hosts[here.0];
            for (id, heard) in &rails[here.1].heard {
                for there in heard.iter().filter_map(|rail| Some((*places.get(id)?, *rail))) {
                    wiring.join(here, there);
                }
            }
        }
        wiring.segments.sort();
        wiring
    }

    /// Joins the segments of two ports.
    fn join(&mut self, here: End, there: End) {
        let place = |end| self.segments.iter().position(|segment| segment.contains(&end));
        // A stranger can make up ports that no host has.
        if let (Some(a), Some(b)) = (place(here), place(there))
            && a != b
        {
            let other = self.segments.remove(a.max(b));
            self.segments[a.min(b)].extend(other);
        }
    }

    fn ends(&self) -> impl Iterator<Item = End> {
        let counts: Vec<usize> = self.hosts.iter().map(|(_, rails)| rails.len()).collect();
        counts.into_iter().enumerate().flat_map(|(host, count)| (0..count).map(move |rail| (host, rail)))
    }

    fn rail(&self, (host, rail): End) -> &Rail {
        &self.hosts[host].1[rail]
    }

    fn name(&self, end: End) -> String {
        format!("{} of {}", self.rail(end).by, self.hosts[end.0].0)
    }

    /// The segments that join hosts.
    fn joined(&self) -> impl Iterator<Item = &BTreeSet<End>> {
        self.segments.iter().filter(|segment| hosts_of(segment).len() > 1)
    }

    /// The other hosts' ports that this one reaches, in words.
    fn reach(&self, end: End) -> String {
        let all = self.joined().filter(|segment| segment.contains(&end)).flatten();
        let others: Vec<String> =
            all.filter(|other| other.0 != end.0).map(|other| self.name(*other)).collect();
        match (&others[..], self.rail(end).up) {
            ([], true) => format!("{} reaches nothing", self.name(end)),
            ([], false) => format!("{} reaches nothing (no link)", self.name(end)),
            _ => format!("{} reaches {}", self.name(end), short(&others, ", ")),
        }
    }

    /// What is wrong with the networks whose ports do not all reach each other, or else what joins the hosts.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut networks: BTreeMap<&str, BTreeSet<End>> = BTreeMap::new();
        for end in self.ends() {
            for network in &self.rail(end).networks {
                networks.entry(network).or_default().insert(end);
            }
        }
        let broken = networks.into_iter().filter_map(|(network, ends)| self.broken(network, &ends));
        let mut findings: Vec<Finding> = broken.collect();
        if findings.is_empty() && hosts_of(&self.ends().collect()).len() > 1 {
            findings.push(Finding::ok(CHECK, "ports for RDMA", self.shape()));
        }
        findings
    }

    fn broken(&self, network: &str, ends: &BTreeSet<End>) -> Option<Finding> {
        let hosts = hosts_of(ends).len();
        if hosts < 2 || self.segments.iter().any(|segment| ends.is_subset(segment)) {
            return None;
        }
        let (alive, dead): (Vec<End>, Vec<End>) =
            ends.iter().partition(|end| self.joined().any(|segment| segment.contains(end)));
        // Of several ports in one network, a host may mean any to reach another one.
        let blamed = if hosts == ends.len() { [&dead[..], &alive].concat() } else { dead.clone() };
        let seen: Vec<String> = blamed.iter().map(|end| self.reach(*end)).collect();
        let cure = match dead.first() {
            Some(end) => format!(
                "plug the cable in again or replace it (`ethtool {0}` shows the link); with a link, look for a firewall rule that \
                 drops multicast on {0}",
                self.rail(*end).by
            ),
            None => "the cables are crossed: plug them into the ports of their networks, or exchange the addresses of the two \
                     ports on one host"
                .to_owned(),
        };
        let looked = format!("ports for RDMA in {network}");
        let finding = || Finding::new(Severity::Warning, CHECK, looked, short(&seen, "; "), cure);
        (!seen.is_empty()).then(finding)
    }

    /// What joins the hosts, in one sentence.
    fn shape(&self) -> String {
        let all = hosts_of(&self.ends().collect());
        let joined: Vec<BTreeSet<usize>> = self.joined().map(hosts_of).collect();
        let pairs: BTreeSet<_> = joined.iter().filter(|hosts| hosts.len() == 2).collect();
        let (hosts, networks) = (all.len(), joined.len());
        if joined.iter().all(|hosts| *hosts == all) {
            return match networks {
                0 => "no port of a host hears a port of another".to_owned(),
                1 => format!("one switch or cable joins the ports of all {hosts} hosts"),
                _ => format!("{networks} rails or cables, each of which joins all {hosts} hosts"),
            };
        }
        match (pairs.len(), hosts * (hosts - 1) / 2) {
            _ if joined.iter().any(|hosts| hosts.len() > 2) => {
                format!("{networks} networks join different hosts")
            }
            (some, possible) if some < possible => format!("cables join {some} of {possible} pairs of hosts"),
            _ => format!("cables join each two of the {hosts} hosts"),
        }
    }

    /// A line for each cable or switch, and for each port without.
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for segment in &self.segments {
            let side = |host: usize| {
                let own = segment.iter().filter(|end| end.0 == host);
                let ports: Vec<&str> = own.map(|end| self.rail(*end).by.as_str()).collect();
                format!("{} {}", self.hosts[host].0, ports.join(", "))
            };
            let mut sides: Vec<String> = hosts_of(segment).into_iter().map(side).collect();
            if sides.len() == 1 {
                let is_up = segment.iter().all(|end| self.rail(*end).up);
                sides.push(if is_up { "nothing" } else { "nothing (no link)" }.to_owned());
            }
            lines.push(format!("  {}\n", sides.join(" -- ")));
        }
        if lines.is_empty() {
            return String::new();
        }
        format!("\nports for RDMA, and what they reach:\n{}", lines.concat())
    }

    /// The segments for programs.
    pub(super) fn document(&self) -> Value {
        let port = |end: &End| {
            let Rail { by, networks, up, .. } = self.rail(*end);
            json!({ "host": self.hosts[end.0].0, "interface": by, "networks": networks, "link": up })
        };
        self.segments.iter().map(|segment| segment.iter().map(port).collect::<Value>()).collect()
    }
}

fn hosts_of(ends: &BTreeSet<End>) -> BTreeSet<usize> {
    ends.iter().map(|(host, _)| *host).collect()
}

/// The names, as far as a line has room.
fn short(names: &[String], separator: &str) -> String {
    let shown = names[..names.len().min(SHOWN)].join(separator);
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}{separator}and {more} more"),
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
        let line = |finding: Finding| format!("{}: {}", finding.looked, finding.seen);
        Wiring::of(board).findings().into_iter().map(line).collect()
    }

    #[test]
    fn a_port_that_hears_or_is_heard_is_joined_and_ports_that_nobody_has_are_ignored() {
        let one = rail("a", &[], &[(1, 0), (1, 31), (7, 0)]);
        let two = board(&[&[one, rail("b", &[], &[])], &[rail("c", &[], &[])]]);
        assert_eq!(Wiring::of(&two).segments, [[(0, 0), (1, 0)].into(), BTreeSet::from([(0, 1)])]);
        assert_eq!(
            Wiring::of(&two).text(),
            "\nports for RDMA, and what they reach:\n  node1 a -- node2 c\n  node1 b -- nothing\n"
        );
    }

    #[test]
    fn a_dead_port_is_named_with_its_other_end_where_another_host_is_in_its_network() {
        let dead = |networks: &[&str]| Rail { up: false, ..rail("b", networks, &[]) };
        let other = [rail("c", &["10.0.0.0/24"], &[]), rail("d", &["10.0.1.0/24"], &[])];
        let with = |networks: &[&str]| {
            said(&board(&[&[rail("a", &["10.0.0.0/24"], &[(1, 0)]), dead(networks)], &other]))
        };
        let fine = ["ports for RDMA: one switch or cable joins the ports of all 2 hosts"];
        assert_eq!(with(&[]), fine);
        assert_eq!(with(&["10.0.1.0/25"]), fine, "another network");
        assert_eq!(
            with(&["10.0.1.0/24"]),
            [
                "ports for RDMA in 10.0.1.0/24: b of node1 reaches nothing (no link); d of node2 reaches nothing"
            ]
        );
        assert_eq!(
            with(&["10.0.0.0/24"]),
            ["ports for RDMA in 10.0.0.0/24: b of node1 reaches nothing (no link)"]
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
        assert_eq!(
            said(&hosts(["10.0.0.0/24", "fd01::/64", "10.0.0.0/24", "fd01::/64"])),
            [
                "ports for RDMA in 10.0.0.0/24: a of node1 reaches d of node2; c of node2 reaches b of node1",
                "ports for RDMA in fd01::/64: b of node1 reaches c of node2; d of node2 reaches a of node1",
            ]
        );
        let shape = "ports for RDMA: 2 rails or cables, each of which joins all 2 hosts";
        assert_eq!(said(&hosts(["10.0.0.0/24"; 4])), [shape]);
    }

    #[test]
    fn cables_are_counted_by_the_pairs_of_hosts_that_they_join() {
        let ring = |count: usize| -> Vec<Vec<Rail>> {
            let ends = |host| vec![rail("a", &[], &[((host + 1) % count, 1)]), rail("b", &[], &[])];
            (0..count).map(ends).collect()
        };
        for (count, shape) in
            [(3, "cables join each two of the 3 hosts"), (4, "cables join 4 of 6 pairs of hosts")]
        {
            let all = ring(count);
            let all: Vec<&[Rail]> = all.iter().map(Vec::as_slice).collect();
            assert_eq!(said(&board(&all)), [format!("ports for RDMA: {shape}")]);
        }
    }
}
