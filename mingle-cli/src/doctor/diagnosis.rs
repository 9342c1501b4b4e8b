//! The conclusions from the matrix: which direction is broken, and what breaks exactly that direction.

use super::finding::{Finding, Severity};
use super::matrix::Board;
use super::notice::Way;
use super::wiring::Wiring;
use super::{duplicates, rates};
use crate::advice;

/// The findings, the worst cause first.
pub(super) fn examine(board: &Board) -> Vec<Finding> {
    let mut findings = vec![present(board)];
    let silent = board.pairs().all(|(from, to)| !board.works(Way::Multicast, from, to));
    let passes = board.pairs().any(|(from, to)| board.works(Way::Udp, from, to));
    if board.is_ipv6().is_none() {
        findings.push(no_family());
    }
    if silent && passes {
        findings.push(no_multicast(board));
    }
    let duplicates = duplicates::find(board);
    // A broken connection to a host with a duplicate address follows from the duplicate.
    let is_one = |id: u32| duplicates.iter().any(|(hosts, _)| hosts.contains(&id));
    for (from, to) in board.pairs().filter(|(from, to)| !is_one(*from) && !is_one(*to)) {
        findings.extend(pair(board, from, to, silent));
        findings.extend(path(board, from, to));
    }
    findings.extend(duplicates.into_iter().map(|(_, finding)| finding));
    if findings.len() == 1 && board.can_form() {
        let looked = "multicast, UDP, TCP and paths";
        findings.push(Finding::ok("ways", looked, "every host reaches every other"));
    }
    if board.own.transfers {
        findings.extend(rates::examine(board));
    }
    findings.extend(Wiring::of(board).findings());
    findings
}

fn present(board: &Board) -> Finding {
    let ids = board.ids();
    let (check, looked, here, world) = ("hosts", "hosts that run the doctor", ids.len(), board.world);
    let names: Vec<String> = ids.iter().map(|id| board.name(*id)).collect();
    let seen = format!("{here} of {world}: {}", names.join(", "));
    let (status, seen, cure) = match here {
        1 => (
            Severity::Problem,
            format!("1 of {world}: nobody else was heard, by multicast or otherwise"),
            "start the doctor on all hosts at the same time; then give --seed ADDRESS of another host, or --broadcast; and \
             compare `ip -brief address`, since two hosts with one address hear nothing of each other",
        ),
        _ if here > world => {
            (Severity::Warning, seen, "give the number of hosts as --world, and each job its own --job-id")
        }
        _ if here < board.least => (
            Severity::Problem,
            seen,
            "start the doctor on the others too; if it runs there, give each --seed with one of these addresses",
        ),
        _ => return Finding::ok(check, looked, seen),
    };
    Finding::new(status, check, looked, seen, cure)
}

fn no_family() -> Finding {
    let seen = "some hosts have IPv4 only and some IPv6 only, and a world uses one family";
    let cure = "give all hosts addresses of one family";
    Finding::new(Severity::Problem, "family", "addresses of all hosts", seen, cure)
}

fn no_multicast(board: &Board) -> Finding {
    let is_ipv6 = board.is_ipv6() == Some(true);
    let (snooping, querier) = if is_ipv6 { ("MLD", "an MLD querier") } else { ("IGMP", "an IGMP querier") };
    let seen = format!(
        "passes between no two hosts, while unicast does: the network drops it, or a switch snoops on {snooping} \
         without a querier"
    );
    let broadcast = match board.broadcast() {
        _ if is_ipv6 => "",
        Some(true) => ", or --broadcast, which passes here",
        Some(false) => "; broadcast is lost too",
        None => ", or --broadcast on one link",
    };
    let cure = format!("give --seed on each node (or --seed-dir{broadcast}), or switch {querier} on");
    Finding::new(Severity::Warning, "multicast", "multicast between the hosts", seen, cure)
}

/// The fault on the way from one host to another.
fn pair(board: &Board, from: u32, to: u32, silent: bool) -> Option<Finding> {
    let (a, b) = (board.name(from), board.name(to));
    let port = board.host(to).places.first().map_or(0, |place| place.at.port());
    let looked = format!("from {a} to {b}");
    let multicast = board.works(Way::Multicast, from, to);
    let (udp, back) = (board.cell(Way::Udp, from, to), board.cell(Way::Udp, to, from));
    let tcp = board.cell(Way::Tcp, from, to);
    let problem = |check, seen: String, cure: String| {
        Some(Finding::new(Severity::Problem, check, looked.clone(), seen, cure))
    };
    let only = if multicast { ", but multicast" } else { "" };
    let blocked = board.blocked(from, to);
    // Where nothing comes back, the answers of ARP do not come back either, so unicast in this direction is
    // never sent. The other direction is the broken one.
    let no_answer = back == Some(false) && !board.works(Way::Multicast, to, from);
    match (udp, tcp, blocked) {
        (Some(false), _, Some((why, cure))) => problem("route", format!("nothing passes{only}: {why}"), cure),
        (Some(false), ..) if multicast && no_answer || board.blocked(to, from).is_some() => None,
        (Some(false), Some(true), _) => problem(
            "udp",
            format!("UDP to port {port} is lost, while TCP passes: a firewall on {b}, or between"),
            format!("let UDP 29499 and 29500-29999 pass to {b} (--multicast and --master-port name others)"),
        ),
        (Some(false), ..) => {
            let back_alone = board.works(Way::Multicast, to, from) && !multicast;
            let heard = back == Some(true) || back_alone;
            let other = if heard { "; the other direction works" } else { "" };
            problem(
                "direction",
                format!("nothing passes{only}{other}"),
                format!(
                    "look on {b} for a firewall rule that drops {a}, at rp_filter and at the route back; or choose another --interface"
                ),
            )
        }
        // A connection needs both directions; the broken direction has a finding of its own.
        (Some(true), Some(false), _) if back == Some(true) => problem(
            "tcp",
            format!("TCP to port {port} fails, while UDP passes: a firewall on {b}, or between"),
            format!("let TCP 29500-29999 pass to {b}, or one port that --master-port names (here {port})"),
        ),
        (Some(true), ..) if !multicast && !silent => {
            let seen = "multicast is lost, while unicast passes";
            let cure = format!(
                "give --seed on {b} or {a}; look at the firewall of {b} for 224.0.0.0/4, and at IGMP snooping"
            );
            Some(Finding::new(Severity::Warning, "multicast", looked.clone(), seen, cure))
        }
        _ => None,
    }
}

/// The broken path from one host to another, in the words of a rendezvous.
fn path(board: &Board, from: u32, to: u32) -> Option<Finding> {
    let broken = &board.entry(from, to)?.broken.as_ref()?.path;
    let udp = |from, to| board.works(Way::Udp, from, to);
    // A direction in which nothing passes is a finding of its own.
    let passes = board.works(Way::Tcp, from, to) || udp(from, to) && udp(to, from);
    if !passes {
        return None;
    }
    let looked = format!("path from {} to {}", board.name(from), board.name(to));
    let (why, cure) = match board.blocked(from, to) {
        Some((why, cure)) => (format!("; {why}"), cure),
        None => (String::new(), advice::about_paths(std::slice::from_ref(broken))),
    };
    let command = if broken.answers.is_some() {
        format!("; the report of {} has the command for its firewall", broken.to.host)
    } else {
        String::new()
    };
    let cure = cure + &command;
    Some(Finding::new(Severity::Problem, "path", looked, format!("{broken}{why}"), cure))
}

#[cfg(test)]
mod tests {
    use mingle_core::proto::{Fault, Peer};
    use mingle_core::tools::broken_path;

    use super::super::matrix::board_at;
    use super::super::notice::{BrokenWay, Contact, Record, about, record, record_at};
    use super::*;

    const ALL: &[Way] = &[Way::Multicast, Way::Udp, Way::Tcp, Way::Path];

    /// Node 1's view, where each host knows of the two others by these ways.
    fn board(ways: impl Fn(u32, u32) -> &'static [Way]) -> Board {
        board_of(|of, other| about(other, ways(of, other)))
    }

    fn board_of(knows: impl Fn(u32, u32) -> Contact) -> Board {
        let all = |of: u32| {
            let others = (1..=3).filter(move |other| *other != of);
            Record { about: others.map(|other| (other, knows(of, other))).collect(), ..record(of) }
        };
        let mut board = board_at(all(1), 3, false);
        board.learn(all(2));
        board.learn(all(3));
        board
    }

    fn problems(board: &Board) -> Vec<(&'static str, String)> {
        let bad = examine(board).into_iter().filter(|finding| finding.status > Severity::Note);
        bad.map(|finding| (finding.check, format!("{}: {}", finding.looked, finding.seen))).collect()
    }

    #[test]
    fn unicast_that_fails_without_an_answer_to_arp_is_not_blamed() {
        // As before, but 2 cannot send to 1 either: its ARP requests for 1 get no answer.
        let board = board(|of, about| match (of, about) {
            (1, 2) => &[Way::Multicast],
            (2, 1) => &[],
            _ => ALL,
        });
        let found = problems(&board);
        assert!(found.len() == 1 && found[0].1.starts_with("from node1 (10.0.0.1) to node2"), "{found:?}");
    }

    #[test]
    fn hosts_without_a_common_family_are_a_finding() {
        let v6 = |id| record_at(id, "[fd00::1]:29500");
        let both = |id| Record { places: [record(id).places, v6(id).places].concat(), ..record(id) };
        let family = |own, other, prefers| {
            let mut board = board_at(own, 2, prefers);
            board.learn(other);
            board.is_ipv6()
        };
        assert_eq!(family(both(1), both(2), false), Some(false));
        assert_eq!(family(both(1), both(2), true), Some(true));
        assert_eq!(family(both(1), v6(2), false), Some(true));
        assert_eq!(family(both(1), record(2), true), Some(false));
        assert_eq!(family(record(1), v6(2), false), None);
        let mut board = board_at(record(1), 2, false);
        board.learn(v6(2));
        assert!(problems(&board).iter().any(|(check, _)| *check == "family"));
    }

    #[test]
    fn only_what_has_passed_in_the_family_of_all_hosts_counts() {
        let both = |id| {
            let more = record_at(id, "[fd00::1]:29500").places;
            Record { places: [record(id).places, more].concat(), ..record(id) }
        };
        let mut board = board_at(both(1), 3, false);
        board.learn(both(2));
        board.own.about.get_mut(&2).unwrap().add(Way::Multicast, record(9).places[0].at.ip());
        assert!(board.works(Way::Multicast, 2, 1));
        board.learn(record_at(3, "[fd00::3]:1"));
        assert!(!board.works(Way::Multicast, 2, 1));
        board.own.about.get_mut(&2).unwrap().add(Way::Multicast, "fd00::2".parse().unwrap());
        assert!(board.works(Way::Multicast, 2, 1));
    }

    #[test]
    fn a_host_that_is_missing_keeps_the_world_from_forming() {
        let mut alone = board_at(record(1), 2, false);
        assert!(!alone.can_form());
        assert!(problems(&alone)[0].1.contains("nobody else was heard"));
        alone.learn(Record { about: [(1, about(1, ALL))].into(), ..record(2) });
        *alone.own.about.get_mut(&2).unwrap() = about(2, ALL);
        assert!(alone.can_form());
    }

    #[test]
    fn an_older_message_takes_nothing_away_and_the_number_of_hosts_has_a_limit() {
        let mut board = board_at(record(1), 2, false);
        let says = |ids: std::ops::Range<u32>, ways| Record {
            about: ids.map(|id| (id, about(id, ways))).collect(),
            ..record(2)
        };
        board.learn(says(1..2, ALL));
        board.learn(says(1..2, &[]));
        board.learn(record(2));
        assert!(board.works(Way::Tcp, 2, 1));
        for id in 10..200 {
            board.learn(Record { id, ..record(3) });
        }
        assert_eq!(board.ids().len(), 64);
        // Nor can one host make up any number of others.
        for first in 0..20 {
            board.learn(says(50 * first..50 * first + 50, ALL));
        }
        let known = (0..1000).filter(|about| board.entry(2, *about).is_some()).count();
        assert_eq!(known, 64);
    }

    /// The findings where the path from 1 to 2 is broken in this way, with these ways there.
    fn broken(fault: Fault, ways: &[Way], own_port_answers: bool) -> Vec<(&'static str, String)> {
        let to = "10.0.0.2:41877".parse().unwrap();
        let board = board_of(|of, other| {
            let peer = |id, address| Peer { host: record(id).host, address };
            let own = peer(1, record(1).places[0].at);
            let path = broken_path(own, peer(2, to), fault, own_port_answers.then_some(29500), (1500, 1500));
            let broken = BrokenWay { path, blocked: None };
            let is_it = (of, other) == (1, 2);
            let known = about(other, if is_it { ways } else { ALL });
            Contact { broken: is_it.then_some(broken), ..known }
        });
        assert!(!board.can_form());
        problems(&board)
    }

    #[test]
    fn a_broken_path_is_named_as_a_rendezvous_names_it() {
        let text = |found: Vec<(&'static str, String)>| match &found[..] {
            [("path", text)] => text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text(broken(Fault::Silent, &ALL[..3], true)),
            "path from node1 (10.0.0.1) to node2 (10.0.0.2): node1 (10.0.0.1) cannot open TCP connections to node2 \
             (10.0.0.2): port 41877 does not answer, port 29500 does"
        );
        let hole = text(broken(Fault::Size { passes: 1400, fails: 1500 }, &ALL[..3], false));
        let words = "of 1500 bytes do not arrive, those of 1400 bytes do; the MTU is 1500 on both";
        assert!(hole.ends_with(words), "{hole}");
        let both = broken(Fault::Silent, &ALL[..2], false);
        assert!(both.len() == 2 && both[0].0 == "tcp" && both[1].0 == "path", "{both:?}");
        assert_eq!(broken(Fault::Silent, &ALL[..2], false)[0].0, "tcp");
    }
}
