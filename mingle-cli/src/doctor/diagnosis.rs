//! The conclusions from what the hosts have found, and from why they form no world.

use std::collections::BTreeSet;
use std::net::IpAddr;

use mingle_core::error::Cause;
use mingle_core::tools::{Judged, interfaces};
use mingle_core::{Error, Failure, Network};

use super::board::Board;
use super::finding::{Finding, Severity};
use super::notice::Heard;
use super::route::Blocked;
use super::wiring::Wiring;
use super::{duplicates, rates, route};
use crate::advice;

/// The findings of hosts that have formed a world for a trial, the worst cause first.
pub(super) fn examine(board: &Board) -> Vec<Finding> {
    let mut findings = vec![present(board)];
    let silent =
        board.network.multicast && board.pairs().all(|(from, to)| board.multicast(from, to) != Some(true));
    if silent && board.hosts.len() > 1 {
        findings.push(no_multicast(board));
    }
    let rank = |id| board.ranks().find(|rank| board.host(*rank).id == id);
    let connects = |a, b| {
        let pair = rank(a).zip(rank(b));
        pair.is_some_and(|(a, b)| board.path(a, b) == Some(true) && board.path(b, a) == Some(true))
    };
    let duplicates = duplicates::find(board.heard().into_iter(), connects);
    // What is broken to a host with a duplicate address follows from the duplicate.
    let is_one = |at: u32| duplicates.iter().any(|(ids, _)| ids.contains(&board.host(at).id));
    for (from, to) in board.pairs().filter(|(from, to)| !is_one(*from) && !is_one(*to)) {
        findings.extend(pair(board, from, to, silent));
    }
    findings.extend(duplicates.into_iter().map(|(_, finding)| finding));
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

/// The findings where no world has formed.
pub(super) fn explain(error: &Error) -> Finding {
    let (check, mut cure) = match error {
        Error::Failed(Failure::Deadline(_)) => ("hosts", String::new()),
        _ => ("rendezvous", String::new()),
    };
    if let Some(advice) = advice::about_error(error) {
        cure += &advice.replace("; see 'mingle doctor'", "");
    }
    if let Error::Failed(Failure::Deadline(report)) = error
        && report.cause() == Cause::NobodyHeard
    {
        cure +=
            "; and compare `ip -brief address`, since two hosts with one address hear nothing of each other";
    }
    if cure.is_empty() {
        "start the doctor on the others at the same time".clone_into(&mut cure);
    }
    Finding::new(Severity::Problem, check, "a world of these hosts", advice::fact(error), cure)
}

/// What keeps packets from the hosts that were heard, and have formed no world with this one.
pub(super) fn of_others<'a>(
    own: &str,
    heard: impl Iterator<Item = &'a Heard>,
    network: &Network,
) -> Vec<Finding> {
    let all = interfaces(network).unwrap_or_default();
    let find = |heard: &Heard| {
        let is_near = holder(&all, heard.address).is_some();
        // A multicast that passes no router comes from the same link.
        let is_apart = !is_near && network.ttl == 1;
        let blocked = route::examine(heard.address, is_near).or(is_apart.then_some(Blocked::NoRoute))?;
        let by = all.iter().find(|judged| judged.refused.is_none() && network.ttl == 1);
        let by = by.map(|judged| judged.interface.name.as_str());
        let (why, cure) = blocked.explain(own, heard.address, by);
        let looked = format!("from {own} to {}", heard.name());
        let seen = format!("nothing passes, but multicast: {why}");
        Some(Finding::new(Severity::Problem, "route", looked, seen, cure))
    };
    heard.filter_map(find).collect()
}

/// The interface in whose networks the address is.
fn holder(all: &[Judged], address: IpAddr) -> Option<&Judged> {
    all.iter().find(|judged| judged.interface.addresses.iter().any(|net| net.contains(&address)))
}

fn present(board: &Board) -> Finding {
    let (check, looked, here, most) = ("hosts", "hosts that run the doctor", board.hosts.len(), board.most);
    let names: Vec<String> = board.ranks().map(|rank| board.name(rank)).collect();
    let has_come = |heard: &&Heard| board.hosts.iter().any(|host| host.id == heard.id);
    let others: BTreeSet<String> =
        board.heard().into_iter().filter(|heard| !has_come(heard)).map(Heard::name).collect();
    let besides = if others.is_empty() { "" } else { "; heard besides: " };
    let others = others.into_iter().collect::<Vec<_>>().join(", ");
    let seen = format!("{here} of {most}: {}{besides}{others}", names.join(", "));
    let (status, cure) = match here {
        _ if board.left_over > 0 => {
            (Severity::Warning, "give the number of hosts as --world, and each job its own --job-id")
        }
        here if here < board.least as usize => (
            Severity::Problem,
            "start the doctor on the others too; where it runs, its report says why that host does not come",
        ),
        _ => return Finding::ok(check, looked, seen),
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

/// The fault on the way from one host to another, of which each cause is named once.
fn pair(board: &Board, from: u32, to: u32, silent: bool) -> Option<Finding> {
    let (a, b) = (board.name(from), board.name(to));
    let heard = board.multicast(from, to);
    let (passes, back) = (heard == Some(true), board.multicast(to, from) == Some(true));
    let (broken, way_back) = (board.broken(from, to), board.broken(to, from));
    let blocked = |from, to| {
        let broken = board.broken(from, to)?;
        Some(broken.blocked?.explain(board.host(from).name.as_str(), broken.path.to.address.ip(), None))
    };
    let problem = |check, looked, seen, cure| Finding::new(Severity::Problem, check, looked, seen, cure);
    let looked = format!("from {a} to {b}");
    if let Some((why, cure)) = blocked(from, to) {
        let seen = format!("nothing passes{}: {why}", if passes { ", but multicast" } else { "" });
        return Some(problem("route", looked, seen, cure));
    }
    if blocked(to, from).is_some() {
        return None;
    }
    let is_lost = !passes && back;
    let is_cut = broken.or(way_back).is_some_and(|way| way.path.answers.is_none());
    if is_cut && is_lost {
        let cure = format!(
            "look on {b} for a firewall rule that drops {a}, at rp_filter and at the route back; or choose another --interface"
        );
        return Some(problem(
            "direction",
            looked,
            "nothing passes; the other direction works".to_owned(),
            cure,
        ));
    }
    if is_cut && passes && !back {
        return None;
    }
    if let Some(broken) = broken {
        let command = if broken.path.answers.is_some() {
            format!("; the report of {} has the command for its firewall", broken.path.to.host)
        } else {
            String::new()
        };
        let cure = advice::about_paths(std::slice::from_ref(&broken.path)) + &command;
        return Some(problem("path", format!("path {looked}"), broken.path.to_string(), cure));
    }
    (heard == Some(false) && !silent && board.network.multicast).then(|| {
        let seen = "multicast is lost, while unicast passes";
        let cure = format!(
            "give --seed on {b} or {a}; look at the firewall of {b} for 224.0.0.0/4, and at IGMP snooping"
        );
        Finding::new(Severity::Warning, "multicast", looked, seen, cure)
    })
}

#[cfg(test)]
mod tests {
    use mingle_core::proto::{BrokenPath, Fault};
    use serde_json::json;

    use super::super::board::board_of;
    use super::super::notice::{BrokenWay, Record};
    use super::*;

    /// The problems and warnings of three hosts, of which each hears these others, with these broken paths,
    /// each with the port that answers.
    fn found(
        hears: impl Fn(u32, u32) -> bool,
        broken: &[(u32, u32, Option<u16>, Option<Blocked>)],
    ) -> Vec<(&'static str, String)> {
        let peer = |rank: u32, port: u16| json!({ "host": format!("node{}", rank + 1), "address": format!("10.0.0.{}:{port}", rank + 1) });
        let path = |from, to, answers| -> BrokenPath {
            let path = json!({
                "from": peer(from, 29500), "to": peer(to, 41877), "fault": Fault::Silent, "answers": answers,
                "to_master": false, "mtus": [0, 0],
            });
            serde_json::from_str(&path.to_string()).unwrap()
        };
        let record = |of: u32| {
            let others = (0..3).filter(|from| *from != of && hears(*from, of));
            let heard = others.map(|from| Heard {
                id: 101 + from,
                host: mingle_core::HostName::new(&format!("node{}", from + 1)),
                address: format!("10.0.0.{}", from + 1).parse().unwrap(),
                mac: None,
            });
            let own = broken.iter().filter(|(from, ..)| *from == of);
            let broken = own.map(|&(from, to, answers, blocked)| BrokenWay {
                to,
                path: path(from, to, answers),
                blocked,
            });
            Some(Record { heard: heard.collect(), broken: broken.collect(), mtu: 1500, ..Record::default() })
        };
        let mut board = board_of((0..3).map(record));
        board.hosts.iter_mut().for_each(|host| host.transfers = None);
        assert_eq!(board.can_form(), broken.is_empty());
        let bad = examine(&board).into_iter().filter(|finding| finding.status > Severity::Note);
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
}
