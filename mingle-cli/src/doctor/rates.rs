//! What the rates of transfers say: which host is slow.
//!
//! A host's rate is the median of its transfers with all others, so one disturbed transfer, or one slow
//! partner, does not count. It is compared with the median of all hosts' rates.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::board::Board;
use super::finding::{Finding, Severity};
use super::table::mbit;

const CHECK: &str = "bandwidth";
/// A host is slow below the median of all hosts divided by this.
const SLOW: u32 = 2;
/// The least number of hosts among which the slow end of a slow pair can be told from the other end.
const HOSTS: usize = 3;

/// The upper median.
fn median(mut rates: Vec<u32>) -> Option<u32> {
    rates.sort_unstable();
    rates.get(rates.len() / 2).copied()
}

/// The hosts that take part in transfers.
pub(super) fn hosts(board: &Board) -> Vec<u32> {
    board.ranks().filter(|rank| board.host(*rank).transfers.is_some()).collect()
}

/// The hosts that this host asks for their transfers, each with its port for that.
pub(super) fn partners(board: &Board) -> VecDeque<(u32, SocketAddr)> {
    let hosts = hosts(board);
    let me = hosts.iter().position(|rank| *rank == board.own).unwrap_or_default();
    // Not all ask the same host first.
    let others = hosts[me..].iter().chain(&hosts[..me]).filter(|rank| **rank != board.own);
    let others = others.filter(|rank| board.path(board.own, **rank) == Some(true));
    others
        .filter_map(|rank| Some((*rank, (board.host(*rank).address, board.host(*rank).transfers?).into())))
        .collect()
}

/// The hosts whose transfers are slow, in each direction.
pub(super) fn examine(board: &Board) -> Vec<Finding> {
    let hosts = hosts(board);
    let note = |seen: String, cure| Finding::new(Severity::Note, CHECK, "transfers", seen, cure);
    let mut findings = Vec::new();
    if hosts.len() < board.hosts.len() {
        let seen = format!("{} of {} hosts took part", hosts.len(), board.hosts.len());
        findings.push(note(seen, "give --bandwidth on all hosts"));
    }
    if !board.pairs().any(|(from, to)| board.rate(from, to).is_some()) {
        findings.push(note("none has arrived".to_owned(), "see the findings on the ways between the hosts"));
        return findings;
    }
    let before = findings.len();
    for (verb, sends) in [("sends", true), ("receives", false)] {
        let rate = |host, other| if sends { board.rate(host, other) } else { board.rate(other, host) };
        let of = |host: &u32| median(hosts.iter().filter_map(|other| rate(*host, *other)).collect());
        let rates: Vec<(u32, u32)> = hosts.iter().filter_map(|host| Some((*host, of(host)?))).collect();
        let all = median(rates.iter().map(|(_, rate)| *rate).collect()).unwrap_or_default();
        for (host, rate) in rates.iter().filter(|(_, rate)| rates.len() >= HOSTS && *rate < all / SLOW) {
            let (rate, all) = (mbit(*rate), mbit(all));
            let seen = format!("{verb} at {rate} Mbit/s, where the median of all hosts is {all}");
            let cure = "check the speed of its link (`ethtool`), its cable and its port on the switch, and what else uses them";
            findings.push(Finding::new(Severity::Warning, CHECK, board.name(*host), seen, cure));
        }
    }
    if findings.len() == before {
        findings.push(Finding::ok(CHECK, "transfers of all hosts", "none is slow"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::board::board_of;
    use super::super::notice::Record;
    use super::*;

    /// The names of the slow hosts and what is said of them.
    fn slow_of(hosts: u32, rate: impl Fn(u32, u32) -> u32) -> Vec<(String, String)> {
        let record = |to: u32| {
            let others = (1..=hosts).filter(|from| *from != to);
            Record { rates: others.map(|from| (from - 1, rate(from, to))).collect(), ..Record::default() }
        };
        let board = board_of((1..=hosts).map(|to| Some(record(to))));
        let found = examine(&board).into_iter().filter(|finding| finding.status == Severity::Warning);
        found.map(|finding| (finding.looked, finding.seen)).collect()
    }

    #[test]
    fn the_slow_host_is_named_with_its_direction_and_its_partners_are_not() {
        let both = slow_of(8, |from, to| if from == 3 || to == 3 { 95_000 } else { 940_000 });
        let slow = ["sends", "receives"].map(|verb| {
            let text = format!("{verb} at 95 Mbit/s, where the median of all hosts is 940");
            ("node3 (10.0.0.3)".to_owned(), text)
        });
        assert_eq!(both, slow);
        let one = slow_of(4, |from, _| if from == 2 { 9_500 } else { 940_000 });
        assert!(one.len() == 1 && one[0].1.starts_with("sends at 9.5 Mbit/s"), "{one:?}");
        let one = slow_of(3, |_, to| if to == 2 { 0 } else { 940_000 });
        assert!(one.len() == 1 && one[0].1.starts_with("receives at 0.0 Mbit/s"), "{one:?}");
        // Three of eight, in both directions.
        assert_eq!(slow_of(8, |from, to| if from.min(to) <= 3 { 95_000 } else { 940_000 }).len(), 6);
    }

    #[test]
    fn disturbed_transfers_and_a_pair_alone_name_no_host() {
        assert_eq!(slow_of(8, |from, to| if (from + to) % 3 == 0 { 200_000 } else { 940_000 }), []);
        assert_eq!(slow_of(2, |from, _| if from == 1 { 95_000 } else { 940_000 }), []);
        assert_eq!(slow_of(4, |_, _| 0), []);
    }
}
