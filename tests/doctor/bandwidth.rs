//! Transfers between hosts: one that is slow is named, and no other.

use std::time::Instant;

use super::{Report, spawn};
use crate::lab::proc::Proc;
use crate::lab::{Lab, Options, skip};

/// Gives each host 1 Gbit/s in both directions, and `slow` 100 Mbit/s. None where the kernel has no tbf.
fn hosts(count: usize, slow: Option<usize>) -> Option<Lab> {
    let lab = Options::nodes(count).with_names().alone().start()?;
    let kernel = lab.shell(0, "sh", "tc qdisc add dev lo root tbf rate 1gbit burst 256k latency 20ms");
    if !kernel.status.success() {
        skip(&kernel.stderr);
        return None;
    }
    for node in 0..count {
        let rate = if slow == Some(node) { "100mbit" } else { "1gbit" };
        let limit = |port| format!("tc qdisc add dev {port} root tbf rate {rate} burst 256k latency 20ms");
        lab.at(node, &limit("eth0".to_owned()));
        lab.switch(&limit(format!("p{node}")));
    }
    Some(lab)
}

fn measure(lab: &Lab) -> Vec<Report> {
    let args = format!("--job-id rates --world {} --timeout 12s --bandwidth", lab.len());
    let all: Vec<Proc> = (0..lab.len()).map(|node| spawn(lab, node, &args)).collect();
    all.into_iter().map(|proc| Report::of(&proc.finish())).collect()
}

/// The report of a host that does not name the slow one, or that names something else.
fn mistaken(lab: &Lab, slow: usize) -> Option<String> {
    let name = format!("node{slow} ({})", lab.address(slow));
    let is_right = |report: &Report| {
        let findings = report.document["findings"].as_array().unwrap().iter();
        let named: Vec<&str> = findings
            .filter(|finding| finding["check"] == "bandwidth" && finding["status"] == "warning")
            .map(|finding| finding["looked"].as_str().unwrap())
            .collect();
        let ways = report.document["matrix"].as_array().unwrap();
        let is_measured = ways.iter().all(|way| way["mbit_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
        // It sends slowly, and receives slowly.
        named == [&name; 2] && report.bad() == ["warning bandwidth"; 2] && is_measured
    };
    measure(lab).into_iter().find(|report| !is_right(report)).map(|report| report.rendered)
}

#[test]
fn of_eight_hosts_the_slow_one_is_named_and_no_other() {
    let Some(lab) = hosts(8, Some(5)) else { return };
    assert_eq!(mistaken(&lab, 5), None);
}

#[test]
#[ignore = "two minutes; CONTRIBUTING.md has its figures"]
fn of_eight_hosts_the_slow_one_is_named_in_each_of_20_runs() {
    let started = Instant::now();
    let wrong: Vec<String> = (0..20)
        .filter_map(|run| mistaken(&hosts(8, Some(run % 8))?, run % 8))
        .inspect(|report| println!("{report}"))
        .collect();
    println!("{} of 20 are wrong, in {:?}", wrong.len(), started.elapsed());
    assert!(wrong.is_empty());
}

#[test]
fn hosts_of_the_same_speed_have_no_finding_and_all_must_take_part() {
    let Some(lab) = hosts(3, None) else { return };
    for report in measure(&lab) {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
        report.names("ok bandwidth", &["none is slow"]);
    }
    let line = |more| format!("--job-id some --world 3 --timeout 12s {more}");
    let all: Vec<Proc> = ["--bandwidth", "--bandwidth", ""]
        .iter()
        .enumerate()
        .map(|(node, more)| spawn(&lab, node, &line(more)))
        .collect();
    let reports: Vec<Report> = all.into_iter().map(|proc| Report::of(&proc.finish())).collect();
    reports[0].ends_with(0).names("note bandwidth", &["2 of 3 hosts took part", "on all hosts"]);
    assert_eq!(reports[2].ends_with(0).bad(), Vec::<String>::new());
}
