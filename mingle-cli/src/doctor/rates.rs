//! What the rates of transfers say: which host is slow.
//!
//! A host's rate is the median of its transfers with all others, so one disturbed transfer, or one slow
//! partner, does not count. It is compared with the median of all hosts' rates.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::finding::{Finding, Severity};
use super::matrix::Board;
use super::notice::Way;
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

/// The hosts that take part in transfers, in order.
fn hosts(board: &Board) -> Vec<u32> {
    board.ids().into_iter().filter(|id| board.host(*id).transfers).collect()
}

/// How many hosts take part in transfers, and those that this host asks, each with its endpoint.
pub(super) fn partners(board: &Board) -> (usize, VecDeque<(u32, SocketAddr)>) {
    let (hosts, own) = (hosts(board), board.own.id);
    let me = hosts.iter().position(|id| *id == own).unwrap_or_default();
    let connects = |id: &u32| board.works(Way::Path, own, *id) && board.works(Way::Path, *id, own);
    // Not all ask the same host first.
    let others = hosts[me..].iter().chain(&hosts[..me]).copied().filter(connects);
    let partners = others.filter_map(|id| Some((id, board.reached(board.host(id))?.at))).collect();
    (hosts.len(), partners)
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
    if hosts.len() < board.world {
        let seen = format!("{} of {} hosts took part", hosts.len(), board.world);
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
    use super::super::matrix::board_at;
    use super::super::notice::{Contact, Record, record};
    use super::*;

    /// The names of the slow hosts and what is said of them.
    fn slow_of(hosts: u32, rate: impl Fn(u32, u32) -> u32) -> Vec<(String, String)> {
        let new = |id| Record { transfers: true, ..record(id) };
        let about = |to: u32| {
            let others = (1..=hosts).filter(move |from| *from != to);
            others.map(|from| (from, Contact { rate: Some(rate(from, to)), ..Contact::default() })).collect()
        };
        let mut board = board_at(new(100), hosts + 1, false);
        for id in 1..=hosts {
            board.learn(Record { about: about(id), ..new(id) });
        }
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
