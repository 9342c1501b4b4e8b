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

/// One direction of all hosts: the rate of each, and their median.
struct Direction {
    verb: &'static str,
    rates: Vec<Option<u32>>,
    median: u32,
}

impl Direction {
    fn new(verb: &'static str, hosts: &[u32], rate: impl Fn(u32, u32) -> Option<u32>) -> Self {
        let of = |host: &u32| median(hosts.iter().filter_map(|other| rate(*host, *other)).collect());
        let rates: Vec<Option<u32>> = hosts.iter().map(of).collect();
        let median = median(rates.iter().copied().flatten().collect()).unwrap_or_default();
        Self { verb, rates, median }
    }

    /// What is said of a host, if it is slow.
    fn slow(&self, host: usize) -> Option<String> {
        let hosts = self.rates.iter().flatten().count();
        let rate = self.rates[host].filter(|rate| hosts >= HOSTS && *rate < self.median / SLOW)?;
        let (rate, median) = (mbit(rate), mbit(self.median));
        Some(format!("{} at {rate} Mbit/s, where the median of all hosts is {median}", self.verb))
    }
}

/// The hosts whose transfers are slow.
pub(super) fn examine(board: &Board) -> Vec<Finding> {
    let hosts = hosts(board);
    let sent = Direction::new("sends", &hosts, |from, to| board.rate(from, to));
    let received = Direction::new("receives", &hosts, |to, from| board.rate(from, to));
    let note = |seen: String, cure| Finding::new(Severity::Note, CHECK, "transfers", seen, cure);
    let mut findings = Vec::new();
    if hosts.len() < board.hosts.len() {
        let seen = format!("{} of {} hosts took part", hosts.len(), board.hosts.len());
        findings.push(note(seen, "give --bandwidth on all hosts"));
    }
    if sent.median == 0 {
        let cure = "see the findings on the ways between the hosts";
        findings.push(note("none has arrived".to_owned(), cure));
        return findings;
    }
    let before = findings.len();
    for (at, host) in hosts.iter().enumerate() {
        let slow: Vec<String> = [sent.slow(at), received.slow(at)].into_iter().flatten().collect();
        if !slow.is_empty() {
            let cure = "check the speed of its link (`ethtool`), its cable and its port on the switch, and what else uses them";
            let name = board.name(*host);
            findings.push(Finding::new(Severity::Warning, CHECK, name, slow.join(", and "), cure));
        }
    }
    if findings.len() == before {
        let seen = format!("none is slow; their median is {} Mbit/s", mbit(sent.median));
        findings.push(Finding::ok(CHECK, "transfers of all hosts", seen));
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
        let text = "sends at 95 Mbit/s, where the median of all hosts is 940, and receives at 95 Mbit/s, where the median of all \
                    hosts is 940";
        assert_eq!(both, [("node3 (10.0.0.3)".to_owned(), text.to_owned())]);
        let one = slow_of(4, |from, _| if from == 2 { 9_500 } else { 940_000 });
        assert!(one.len() == 1 && one[0].1.starts_with("sends at 9.5 Mbit/s"), "{one:?}");
        let one = slow_of(3, |_, to| if to == 2 { 0 } else { 940_000 });
        assert!(one.len() == 1 && one[0].1.starts_with("receives at 0.0 Mbit/s"), "{one:?}");
        // Three of eight.
        assert_eq!(slow_of(8, |from, to| if from.min(to) <= 3 { 95_000 } else { 940_000 }).len(), 3);
    }

    #[test]
    fn disturbed_transfers_and_a_pair_alone_name_no_host() {
        assert_eq!(slow_of(8, |from, to| if (from + to) % 3 == 0 { 200_000 } else { 940_000 }), []);
        assert_eq!(slow_of(2, |from, _| if from == 1 { 95_000 } else { 940_000 }), []);
        assert_eq!(slow_of(4, |_, _| 0), []);
    }
}
