//! The conclusions from what the hosts have found, and from why they form no world.

use std::collections::BTreeSet;

use mingle_core::error::Cause;
use mingle_core::proto::Fault;
use mingle_core::tools::interfaces;
use mingle_core::{Error, Failure, Network, Warning};

use super::board::Board;
use super::finding::{Finding, Severity};
use super::interfaces::used;
use super::notice::{BrokenWay, Heard};
use super::route::Blocked;
use super::wiring::Wiring;
use super::{rates, route};
use crate::advice;

/// The most hosts that have not come and are named: a stranger can make up any number.
const SHOWN: usize = 8;

/// The findings of hosts that have formed a world for a trial, the worst cause first. `warnings` were given
/// before.
pub(super) fn examine(board: &Board, warnings: &[Warning]) -> Vec<Finding> {
    let mut findings = vec![present(board)];
    let arrives = |arrives| board.pairs().any(|(from, to)| board.multicast(from, to) == Some(arrives));
    let silent = board.network.multicast && arrives(false) && !arrives(true);
    if silent {
        findings.push(no_multicast(board));
    }
    findings.extend(warnings.iter().filter_map(|warning| on_the_way(warning, board)));
    findings.extend(untold(board));
    for (from, to) in board.pairs() {
        findings.extend(pair(board, from, to, silent));
    }
    if findings.len() == 1 && board.can_form() {
        let looked = "multicast and paths";
        findings.push(Finding::ok("ways", looked, "every host reaches every other"));
    }
    let differences = board.differences.iter().map(|line| {
        let cure = "make them the same if the job may hang on it; with --require-same no world would form";
        Finding::new(Severity::Warning, "sameness", "what should be the same on all hosts", line, cure)
    });
    findings.extend(differences);
    if board.host(board.own).transfers.is_some() {
        findings.extend(rates::examine(board));
    }
    findings.extend(Wiring::of(board).findings());
    findings
}

/// What a rendezvous has said that keeps hosts out: if enough have come, only of those that it has left out.
fn on_the_way(warning: &Warning, board: &Board) -> Option<Finding> {
    let status = if board.is_full() { Severity::Warning } else { Severity::Problem };
    let cure = match warning {
        Warning::LeftOut { failure, .. } => advice::about_failure(failure),
        _ if board.is_full() => None,
        _ => advice::about_warning(warning),
    };
    Some(Finding::new(status, "rendezvous", "on the way to a world", warning.to_string(), cure?))
}

/// Whether the host of a warning has come since.
pub(super) fn is_settled(warning: &Warning, board: &Board) -> bool {
    let from = match warning {
        Warning::Misfit { node, .. } if !node.is_of_twins() => node.address.ip(),
        Warning::SecretDiffers { from, .. } => *from,
        Warning::Unreached { leader, .. } => leader.address.ip(),
        _ => return false,
    };
    board.hosts.iter().any(|host| host.address == from)
}

/// The hosts that have come, and are gone or out of reach since.
fn untold(board: &Board) -> Option<Finding> {
    let names: Vec<String> = board.untold().map(|rank| board.name(rank)).collect();
    let seen =
        format!("not known of {}: each of them, or rank 0, has ended or cannot be reached", names.join(", "));
    let (looked, cure) = ("what the hosts have found", "run the doctor again on all hosts");
    (!names.is_empty()).then(|| Finding::new(Severity::Problem, "hosts", looked, seen, cure))
}

/// The finding where the sockets of a rendezvous cannot be opened, or no world has formed.
pub(super) fn explain(error: &Error) -> Finding {
    let (world, again) = ("a world of these hosts", "start the doctor on the others at the same time");
    let (sockets, choose) = (
        "the sockets of a rendezvous",
        "choose another port by --master-port or --multicast, or one of the interfaces above by --interface",
    );
    let (check, looked, otherwise) = match error {
        Error::Failed(Failure::Deadline(_)) => ("hosts", world, again),
        Error::Failed(_) => ("rendezvous", world, again),
        Error::PortTaken { .. } => ("master port", sockets, choose),
        _ => ("sockets", sockets, choose),
    };
    let advice = advice::about_error(error).map(|advice| advice.replace("; see 'mingle doctor'", ""));
    let cure = match error {
        Error::Failed(Failure::Deadline(report)) if report.cause() == Cause::NobodyHeard => {
            let addresses =
                "compare `ip -brief address`, since two hosts with one address hear nothing of each other";
            format!("{}; and {addresses}", advice.unwrap_or_default())
        }
        Error::Failed(Failure::OutcomeUnknown { .. }) => "run the doctor again on all hosts".to_owned(),
        _ => advice.unwrap_or_else(|| otherwise.to_owned()),
    };
    Finding::new(Severity::Problem, check, looked, advice::fact(error), cure)
}

/// What keeps packets from the hosts that were heard, and have formed no world with this one.
pub(super) fn of_others<'a>(
    own: &str,
    heard: impl Iterator<Item = &'a Heard>,
    network: &Network,
) -> Vec<Finding> {
    let all = interfaces(network).unwrap_or_default();
    let used: Vec<&str> = used(&all).map(|nic| nic.name.as_str()).collect();
    // A multicast that passes no router comes from the same link, which is known where there is only one.
    let is_on_link = network.ttl == 1;
    let by = match used[..] {
        [only] if is_on_link => Some(only),
        _ => None,
    };
    let find = |heard: &Heard| {
        let is_near = route::is_near(&all, heard.address);
        let looked = format!("from {own} to {}", heard.name());
        if let Some(blocked) = route::examine(heard.address, is_near) {
            let (why, cure) = blocked.explain(own, heard.address, by);
            let (status, fact) = if blocked.rejects() {
                (Severity::Problem, "nothing passes, but multicast")
            } else {
                (Severity::Warning, "heard, and has not come")
            };
            return Some(Finding::new(status, "route", looked, format!("{fact}: {why}"), cure));
        }
        if is_near || !is_on_link {
            return None;
        }
        let (_, cure) = Blocked::NoRoute.explain(own, heard.address, by);
        let seen = format!("heard on this link, and {} is in no network of this host", heard.address);
        Some(Finding::new(
            Severity::Warning,
            "route",
            looked,
            seen,
            format!("{cure}; unless a router joins them"),
        ))
    };
    heard.filter_map(find).take(SHOWN).collect()
}

fn present(board: &Board) -> Finding {
    let (check, looked, here, most) = ("hosts", "hosts that run the doctor", board.hosts.len(), board.most);
    let names: Vec<String> = board.ranks().map(|rank| board.name(rank)).collect();
    // An earlier run on one of these hosts was heard as well.
    let has_come = |heard: &&Heard| board.hosts.iter().any(|host| host.name == heard.host);
    let others: BTreeSet<String> =
        board.heard().into_iter().filter(|heard| !has_come(heard)).map(Heard::name).collect();
    let besides = if others.is_empty() { "" } else { "; heard besides: " };
    let others = others.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
    let seen = format!("{here} of {most}: {}{besides}{others}", names.join(", "));
    let (status, cure) = if board.left_over > 0 {
        (Severity::Warning, "give the number of hosts as --world, and each job its own --job-id")
    } else if !board.is_full() {
        let cure =
            "start the doctor on the others too; where it runs, its report says why that host does not come";
        (Severity::Problem, cure)
    } else {
        return Finding::ok(check, looked, seen);
    };
    Finding::new(status, check, looked, seen, cure)
}

fn no_multicast(board: &Board) -> Finding {
    let is_ipv6 = board.host(board.own).address.is_ipv6();
    let (snooping, querier) = if is_ipv6 { ("MLD", "an MLD querier") } else { ("IGMP", "an IGMP querier") };
    let seen = format!(
        "passes between no two hosts, while unicast does: the network drops it, or a switch snoops on {snooping} \
         without a querier"
    );
    // Nothing else has brought them together.
    let by_broadcast = board.network.broadcast && board.network.needs_multicast();
    let broadcast = match by_broadcast {
        _ if is_ipv6 => "",
        true => ", or --broadcast, which passes here",
        false => ", or --broadcast on one link",
    };
    let cure = format!("give --seed on each node (or --seed-dir{broadcast}), or switch {querier} on");
    Finding::new(Severity::Warning, "multicast", "multicast between the hosts", seen, cure)
}

/// The faults on the way from one host to another, of which each cause is named once.
fn pair(board: &Board, from: u32, to: u32, silent: bool) -> Vec<Finding> {
    let (a, b) = (board.name(from), board.name(to));
    let looked = format!("from {a} to {b}");
    let (heard, back) = (board.multicast(from, to), board.multicast(to, from));
    let problem = |check, looked, seen, cure| Finding::new(Severity::Problem, check, looked, seen, cure);
    let blocked = |from, to| {
        let mut ways = board.broken(from, to);
        ways.find_map(|way| {
            Some(way.blocked?.explain(board.host(from).name.as_str(), way.path.to.address.ip(), None))
        })
    };
    if let Some((why, cure)) = blocked(from, to) {
        let only = if heard == Some(true) { ", but multicast" } else { "" };
        return vec![problem("route", looked, format!("nothing passes{only}: {why}"), cure)];
    }
    if blocked(to, from).is_some() {
        return Vec::new();
    }
    let is_cut = |way: &BrokenWay| {
        let nothing_passes = matches!(way.path.fault, Fault::Silent | Fault::Refused | Fault::Unreachable);
        nothing_passes && way.path.answers.is_none()
    };
    if board.broken(from, to).chain(board.broken(to, from)).any(is_cut) {
        match (heard, back) {
            (Some(false), Some(true)) => {
                let cure = format!(
                    "look on {b} for a firewall rule that drops {a}, at rp_filter and at the route back; or choose another \
                     --interface"
                );
                let seen = "neither connections nor multicast pass; the other direction works".to_owned();
                return vec![problem("direction", looked, seen, cure)];
            }
            (Some(true), Some(false)) => return Vec::new(),
            _ => {}
        }
    }
    let path = |way: &BrokenWay| {
        let command = if way.path.answers.is_some() {
            format!("; the report of {} has the command for its firewall", way.path.to.host)
        } else {
            String::new()
        };
        let cure = advice::about_paths(std::slice::from_ref(&way.path)) + &command;
        problem("path", format!("path {looked}"), way.path.to_string(), cure)
    };
    let mut findings: Vec<Finding> = board.broken(from, to).map(path).collect();
    if findings.is_empty() && heard == Some(false) && !silent && board.network.multicast {
        let seen = "multicast is lost, while unicast passes";
        let cure = format!(
            "give --seed on {b} or {a}; look at the firewall of {b} for 224.0.0.0/4, and at IGMP snooping"
        );
        findings.push(Finding::new(Severity::Warning, "multicast", looked, seen, cure));
    }
    findings
}

#[cfg(test)]
mod tests {
    use mingle_core::HostName;
    use mingle_core::proto::Peer;

    use super::super::board::board_of;
    use super::super::notice::Record;
    use super::*;

    /// The problems and warnings of three hosts, of which each hears these others, with these broken paths,
    /// each with the port that answers.
    fn found(
        hears: impl Fn(u32, u32) -> bool,
        broken: &[(u32, u32, Option<u16>, Option<Blocked>)],
    ) -> Vec<(&'static str, String)> {
        let host = |rank: u32| HostName::new(&format!("node{}", rank + 1));
        let peer = |rank: u32, port: u16| Peer {
            host: host(rank),
            address: format!("10.0.0.{}:{port}", rank + 1).parse().unwrap(),
        };
        let record = |of: u32| {
            let others = (0..3).filter(|from| *from != of && hears(*from, of));
            let heard = others.map(|from| Heard {
                id: 101 + from,
                host: host(from),
                address: format!("10.0.0.{}", from + 1).parse().unwrap(),
            });
            let own = broken.iter().filter(|(from, ..)| *from == of);
            let broken = own.map(|&(from, to, answers, blocked)| BrokenWay {
                to,
                path: advice::silent_path(&peer(from, 29500), &peer(to, 41877), answers),
                blocked,
            });
            Some(Record { heard: Some(heard.collect()), broken: broken.collect(), ..Record::default() })
        };
        let mut board = board_of((0..3).map(record));
        board.hosts.iter_mut().for_each(|host| host.transfers = None);
        assert_eq!(board.can_form(), broken.is_empty());
        let bad = examine(&board, &[]).into_iter().filter(|finding| finding.status > Severity::Note);
        bad.map(|finding| (finding.check, finding.looked)).collect()
    }

    #[test]
    fn each_cause_is_named_once_and_in_the_direction_that_is_broken() {
        let ab = "from node1 (10.0.0.1) to node2 (10.0.0.2)".to_owned();
        let ba = "from node2 (10.0.0.2) to node1 (10.0.0.1)".to_owned();
        let both = |answers, blocked| [(0, 1, answers, None), (1, 0, answers, blocked)];
        let all = |_, _| true;
        let lost = |from, to| (from, to) != (0, 1);
        assert_eq!(found(all, &[]), []);
        assert_eq!(found(lost, &[]), [("multicast", ab.clone())]);
        assert_eq!(found(|_, _| false, &[]), [("multicast", "multicast between the hosts".to_owned())]);
        assert_eq!(found(lost, &both(None, None)), [("direction", ab.clone())]);
        assert_eq!(found(all, &both(None, Some(Blocked::NoRoute))), [("route", ba.clone())]);
        let paths = [("path", format!("path {ab}")), ("path", format!("path {ba}"))];
        assert_eq!(found(all, &both(None, None)), paths);
        // A firewall that knows some ports alone.
        assert_eq!(found(all, &both(Some(29500), None)), paths);
        assert_eq!(found(all, &both(Some(29500), None)[..1]), paths[..1]);
    }

    #[test]
    fn a_host_that_has_not_told_what_it_has_found_is_no_sign_that_a_world_can_form() {
        let heard = |id| Heard { id, host: HostName::new("x"), address: [10, 0, 0, 9].into() };
        let told = |ids: [u32; 2]| Some(Record { heard: Some(ids.map(heard).into()), ..Record::default() });
        let board = board_of([told([102, 103]), None, told([101, 102])]);
        assert!(!board.can_form());
        let found = examine(&board, &[]);
        let bad: Vec<&Finding> = found.iter().filter(|finding| finding.status > Severity::Note).collect();
        assert!(bad.len() == 1 && bad[0].seen.starts_with("not known of node2 (10.0.0.2): "), "{bad:?}");
        assert!(found.iter().all(|finding| finding.check != "ways"));
    }

    #[test]
    fn a_host_without_multicast_is_not_a_host_whose_multicast_is_lost() {
        let mut board = board_of(vec![Some(Record { heard: None, ..Record::default() }); 3]);
        board.hosts.iter_mut().for_each(|host| host.transfers = None);
        let heard = |id| Heard { id, host: HostName::new("x"), address: [10, 0, 0, 9].into() };
        for (rank, other) in [(0, 102), (1, 101)] {
            board.hosts[rank].record.as_mut().unwrap().heard = Some([heard(other)].into());
        }
        let bad = examine(&board, &[]).into_iter().find(|finding| finding.status > Severity::Note);
        assert!(bad.is_none() && board.can_form(), "{bad:?}");
    }

    #[test]
    fn a_warning_of_a_host_that_has_come_since_is_settled() {
        let board = board_of([None, None]);
        let from = |last| Warning::SecretDiffers { from: [10, 0, 0, last].into(), has_secret: true };
        assert!(is_settled(&from(2), &board) && !is_settled(&from(3), &board));
    }
}
