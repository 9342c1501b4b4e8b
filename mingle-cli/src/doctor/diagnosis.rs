//! The conclusions from the matrix: which direction is broken, and what breaks exactly that direction.

use super::finding::{Finding, Status};
use super::matrix::{Board, Cell, Way};

/// The findings, the worst cause first.
pub(super) fn examine(board: &Board) -> Vec<Finding> {
    let mut findings = vec![present(board)];
    let silent = board.pairs().all(|(from, to)| board.cell(Way::Multicast, from, to) == Cell::Broken);
    let passes = board.pairs().any(|(from, to)| board.cell(Way::Udp, from, to).works());
    if board.is_ipv6().is_none() {
        findings.push(no_family());
    }
    if silent && passes {
        findings.push(no_multicast(board));
    }
    for (from, to) in board.pairs() {
        findings.extend(pair(board, from, to, silent));
    }
    if findings.len() == 1 && board.can_form() {
        findings.push(Finding::ok("ways", "multicast, UDP and TCP", "every host reaches every other"));
    }
    findings
}

fn present(board: &Board) -> Finding {
    const CHECK: &str = "hosts";
    let ids = board.ids();
    let (here, world) = (ids.len(), board.world());
    let looked = "hosts that run the doctor";
    if here == 1 && world > 1 {
        let seen = format!("1 of {world}: nobody else was heard, by multicast or otherwise");
        let cure = "start the doctor on all hosts at the same time; then give --seed ADDRESS of another host, or --broadcast";
        return Finding::new(Status::Problem, CHECK, looked, seen, cure);
    }
    let names: Vec<String> = ids.iter().map(|id| board.name(*id)).collect();
    let seen = format!("{here} of {world}: {}", names.join(", "));
    match here.cmp(&world) {
        std::cmp::Ordering::Equal => Finding::ok(CHECK, looked, seen),
        std::cmp::Ordering::Less => {
            let cure = "start the doctor on the others too; if it runs there, give each --seed with one of these addresses";
            Finding::new(Status::Problem, CHECK, looked, seen, cure)
        }
        std::cmp::Ordering::Greater => {
            let cure = "give the number of hosts as --world, and each job its own --job-id";
            Finding::new(Status::Warning, CHECK, looked, seen, cure)
        }
    }
}

fn no_family() -> Finding {
    let seen = "some hosts have IPv4 only and some IPv6 only, and a world uses one family";
    let cure = "give all hosts addresses of one family";
    Finding::new(Status::Problem, "family", "addresses of all hosts", seen, cure)
}

fn no_multicast(board: &Board) -> Finding {
    let (snooping, querier) =
        if board.is_ipv6() == Some(true) { ("MLD", "an MLD querier") } else { ("IGMP", "an IGMP querier") };
    let seen = format!(
        "passes between no two hosts, while unicast does: the network drops it, or a switch snoops on {snooping} \
         without a querier"
    );
    let cure = match board.broadcast() {
        _ if board.is_ipv6() == Some(true) => {
            format!("give --seed on each node (or --seed-dir), or switch {querier} on")
        }
        Some(true) => "give --broadcast on each node (it passes here), or --seed, or --seed-dir".to_owned(),
        Some(false) => {
            format!("give --seed on each node (or --seed-dir; broadcast is lost too), or switch {querier} on")
        }
        None => format!(
            "give --seed on each node (or --seed-dir, or --broadcast on one link), or switch {querier} on"
        ),
    };
    Finding::new(Status::Warning, "multicast", "multicast between the hosts", seen, cure)
}

/// The fault on the way from one host to another.
fn pair(board: &Board, from: u32, to: u32, silent: bool) -> Option<Finding> {
    let (a, b, port) = (board.name(from), board.name(to), board.port(to));
    let looked = format!("from {a} to {b}");
    let multicast = board.cell(Way::Multicast, from, to);
    let (udp, back) = (board.cell(Way::Udp, from, to), board.cell(Way::Udp, to, from));
    let tcp = board.cell(Way::Tcp, from, to);
    let problem = |check, seen: String, cure: String| {
        Some(Finding::new(Status::Problem, check, looked.clone(), seen, cure))
    };
    // Where nothing comes back, the answers of ARP do not come back either, so unicast in this direction is
    // never sent. The other direction is the broken one.
    let no_answer = back == Cell::Broken && !board.cell(Way::Multicast, to, from).works();
    if udp == Cell::Broken && multicast.works() && no_answer {
        return None;
    }
    match (udp, tcp) {
        (Cell::Broken, Cell::Works(_)) => problem(
            "udp",
            format!("UDP to port {port} is lost, while TCP passes: a firewall on {b}, or between"),
            format!(
                "let UDP 29499 and 29500-29999 pass to {b} (--discovery-port and --master-port name others)"
            ),
        ),
        (Cell::Broken, _) => {
            let heard = board.cell(Way::Multicast, to, from).works() || back.works();
            let other = if heard { "; the other direction works" } else { "" };
            let only = if multicast.works() { ", but multicast" } else { "" };
            problem(
                "direction",
                format!("nothing passes{only}{other}"),
                format!(
                    "look on {b} for a firewall rule that drops {a}, at rp_filter and at the route back; or choose another --interface"
                ),
            )
        }
        // A connection needs both directions; the broken direction has a finding of its own.
        (Cell::Works(_), Cell::Broken) if back.works() => problem(
            "tcp",
            format!("TCP to port {port} fails, while UDP passes: a firewall on {b}, or between"),
            format!("let TCP 29500-29999 pass to {b}, or one port that --master-port names (here {port})"),
        ),
        (Cell::Works(_), _) if multicast == Cell::Broken && !silent => Some(Finding::new(
            Status::Warning,
            "multicast",
            looked.clone(),
            "multicast is lost, while unicast passes",
            format!(
                "give --seed on {b} or {a}; look at the firewall of {b} for 224.0.0.0/4, and at IGMP snooping"
            ),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use mingle_core::JobId;
    use mingle_core::proto::JobTag;

    use super::super::matrix::{Card, Contact, ECHO, MULTICAST, Notice, TCP, UNICAST, decode, encode};
    use super::*;

    const ALL: u8 = MULTICAST | UNICAST | ECHO | TCP;

    fn card(id: u32) -> Card {
        let at = SocketAddr::from(([10, 0, 0, u8::try_from(id).unwrap()], 29500));
        Card { id, host: format!("node{id}"), at: vec![at], done: false }
    }

    /// Node 1's view, where each host's row has the given flags for the two others.
    fn board(flags: impl Fn(u32, u32) -> Option<u8>) -> Board {
        let row = |of: u32| -> Vec<Contact> {
            let about = (1..=3).filter(|about| *about != of);
            about.filter_map(|about| Some(Contact(about, flags(of, about)?, 300, 400))).collect()
        };
        let mut board = Board::new(card(1), 3, false);
        for id in [2, 3] {
            board.learn(card(id), 1, row(id));
        }
        for Contact(id, flags, ..) in row(1) {
            board.mark(id, flags);
        }
        board
    }

    fn problems(board: &Board) -> Vec<(&'static str, String)> {
        let bad = examine(board).into_iter().filter(|finding| finding.status > Status::Note);
        bad.map(|finding| (finding.check, format!("{}: {}", finding.looked, finding.seen))).collect()
    }

    #[test]
    fn on_a_healthy_network_nothing_is_found() {
        let board = board(|_, _| Some(ALL));
        assert!(board.is_complete() && board.can_form());
        assert_eq!(problems(&board), []);
        assert!(board.text().contains("m ok  u 0.3  t 0.4"), "{}", board.text());
    }

    #[test]
    fn a_one_way_cut_is_named_with_its_direction() {
        // Nothing from 1 reaches 2: 2 heard nothing, 1 got no echo, and no connection opened either way.
        let board = board(|of, about| match (of, about) {
            (1, 2) => Some(MULTICAST | UNICAST),
            (2, 1) => Some(0),
            _ => Some(ALL),
        });
        let found = problems(&board);
        assert_eq!(found.len(), 1, "{found:?}");
        let text = "from node1 (10.0.0.1) to node2 (10.0.0.2): nothing passes; the other direction works";
        assert_eq!(found[0], ("direction", text.to_owned()));
        assert!(board.can_form(), "node 3 is reached by all");
        assert!(!board.is_complete());
    }

    #[test]
    fn unicast_that_fails_without_an_answer_to_arp_is_not_blamed() {
        // As before, but 2 cannot send to 1 either: its ARP requests for 1 get no answer.
        let board = board(|of, about| match (of, about) {
            (1, 2) => Some(MULTICAST),
            (2, 1) => Some(0),
            _ => Some(ALL),
        });
        let found = problems(&board);
        assert!(found.len() == 1 && found[0].1.starts_with("from node1 (10.0.0.1) to node2"), "{found:?}");
    }

    #[test]
    fn a_firewall_on_udp_and_one_on_the_port_are_distinguished() {
        let udp = board(|of, about| match (of, about) {
            (2, _) => Some(TCP),
            (_, 2) => Some(MULTICAST | UNICAST | TCP),
            _ => Some(ALL),
        });
        let found = problems(&udp);
        assert!(found.iter().all(|(check, text)| *check == "udp" && text.contains("to node2")), "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");

        let tcp = board(|_, about| Some(if about == 2 { ALL & !TCP } else { ALL }));
        let found = problems(&tcp);
        assert!(found.iter().all(|(check, text)| *check == "tcp" && text.contains("to node2")), "{found:?}");
        assert_eq!((found.len(), tcp.can_form()), (2, true));
        let none = board(|_, _| Some(ALL & !TCP));
        assert!(!none.can_form());
    }

    #[test]
    fn multicast_that_passes_nowhere_is_one_finding() {
        let dead = board(|_, _| Some(ALL & !MULTICAST));
        let found = problems(&dead);
        assert!(found.len() == 1 && found[0].1.contains("between no two hosts"), "{found:?}");
        assert!(dead.can_form());
        let one = board(|of, about| Some(if (of, about) == (2, 1) { ALL & !MULTICAST } else { ALL }));
        let found = problems(&one);
        assert!(found.len() == 1 && found[0].1.contains("node1 (10.0.0.1) to node2"), "{found:?}");
    }

    #[test]
    fn hosts_without_a_common_family_are_a_finding() {
        let v6 = |id| Card { at: vec!["[fd00::1]:29500".parse().unwrap()], ..card(id) };
        let both = |id| Card { at: [card(id).at, v6(id).at].concat(), ..card(id) };
        let family = |me, other, prefers| {
            let mut board = Board::new(me, 2, prefers);
            board.learn(other, 1, vec![]);
            board.is_ipv6()
        };
        assert_eq!(family(both(1), both(2), false), Some(false));
        assert_eq!(family(both(1), both(2), true), Some(true));
        assert_eq!(family(both(1), v6(2), false), Some(true));
        assert_eq!(family(both(1), card(2), true), Some(false));
        assert_eq!(family(card(1), v6(2), false), None);
        let mut board = Board::new(card(1), 2, false);
        board.learn(v6(2), 1, vec![]);
        assert!(problems(&board).iter().any(|(check, _)| *check == "family"));
    }

    #[test]
    fn a_new_host_of_one_family_discards_the_results_of_the_other() {
        let both = |id| {
            let more = "[fd00::1]:29500".parse().unwrap();
            Card { at: [card(id).at, vec![more]].concat(), ..card(id) }
        };
        let v4 = card(9).at[0];
        let mut board = Board::new(both(1), 3, false);
        board.learn(both(2), 1, vec![]);
        board.heard(2, MULTICAST, v4);
        assert!(board.cell(Way::Multicast, 2, 1).works());
        board.learn(Card { at: vec!["[fd00::3]:1".parse().unwrap()], ..card(3) }, 1, vec![]);
        board.heard(2, MULTICAST, v4);
        assert!(!board.cell(Way::Multicast, 2, 1).works());
        board.heard(2, MULTICAST, "[fd00::2]:1".parse().unwrap());
        assert!(board.cell(Way::Multicast, 2, 1).works());
    }

    #[test]
    fn a_host_that_is_missing_keeps_the_world_from_forming() {
        let mut alone = Board::new(card(1), 2, false);
        assert!(!alone.can_form());
        assert!(problems(&alone)[0].1.contains("nobody else was heard"));
        alone.learn(card(2), 1, vec![Contact(1, ALL, 0, 0)]);
        alone.mark(2, ALL);
        assert!(alone.can_form());
    }

    #[test]
    fn only_a_newer_row_replaces_one_and_the_number_of_hosts_has_a_limit() {
        let mut board = Board::new(card(1), 2, false);
        board.learn(card(2), 5, vec![Contact(1, ALL, 0, 0)]);
        board.learn(card(2), 4, vec![]);
        assert!(board.cell(Way::Multicast, 1, 2).works());
        for id in 10..200 {
            board.learn(Card { id, ..card(3) }, 1, vec![]);
        }
        assert_eq!(board.ids().len(), 64);
    }

    #[test]
    fn a_datagram_is_sanitised_or_dropped() {
        let tag = "foo".parse::<JobId>().unwrap().tag();
        let mut bad = card(7);
        bad.host = "\u{1b}[2J$(reboot)".to_owned();
        bad.at = ["224.0.0.1:1", "0.0.0.0:1", "255.255.255.255:1", "10.0.0.1:0", "10.0.0.1:5"]
            .map(|at| at.parse().unwrap())
            .to_vec();
        let bytes = encode(tag, &Notice::Row(bad, 1, vec![]));
        let Some(Notice::Row(card, ..)) = decode(tag, &bytes) else { panic!() };
        assert_eq!(card.host, "__2J__reboot_");
        assert_eq!(card.at, ["10.0.0.1:5".parse().unwrap()]);
        assert_eq!(decode(JobTag([0; 16]), &bytes), None);
        for cut in 0..bytes.len() {
            assert_eq!(decode(tag, &bytes[..cut]), None);
        }
    }

    #[test]
    fn the_largest_row_fits_a_datagram() {
        let host = "x".repeat(63);
        let at = vec!["[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap(); 4];
        let row = (0..31).map(|id| Contact(u32::MAX - id, 31, 999_999, 999_999)).collect();
        let row = Notice::Row(Card { id: u32::MAX, host, at, done: false }, 1_000_000, row);
        let tag = "foo".parse::<JobId>().unwrap().tag();
        assert!(encode(tag, &row).len() <= super::super::matrix::LONGEST);
    }
}
