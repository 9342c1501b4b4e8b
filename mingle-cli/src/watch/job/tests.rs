use mingle_core::End;
use mingle_core::proto::{Lineage, Peer, Progress};

use super::super::MOST_LINES;
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29503))
}

fn sighting(node: u8, generation: u32, observed: Observed) -> Sighting {
    of_run(1, node, generation, observed)
}

/// Of the run of the job that has this origin.
fn of_run(origin: u64, node: u8, generation: u32, observed: Observed) -> Sighting {
    Sighting { node: NodeId([node; 16]), lineage: Lineage { generation, origin }, observed }
}

/// Node `number`, which seeks a leader.
fn stranger(number: u128, generation: u32) -> Sighting {
    let observed = Observed::Seeks { host: HostName::new(&format!("h{number}")), rank: None };
    let lineage = Lineage { generation, ..Lineage::default() };
    Sighting { node: NodeId((number + 1).to_be_bytes()), lineage, observed }
}

/// The states of the rows, by host.
fn states(job: &Job, now: Duration) -> Vec<(&str, State)> {
    let mut states: Vec<_> = job.rows(now).iter().map(|row| (row.host.as_str(), row.state)).collect();
    states.sort_unstable();
    states
}

fn leads(node: u8, joined: u32, newest: &[&str], missing: &[(u32, u32)]) -> Observed {
    Observed::Leads(Candidacy {
        progress: Progress {
            joined,
            world: "4".parse().unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: missing.iter().map(|&(first, last)| RankRange { first, last }).collect(),
            leader: Peer { host: HostName::new(&format!("node-{node}")), address: at(node) },
        },
        explicit: false,
        most: joined,
        rdma: Some(Tally { roce: joined - 1, ..Tally::default() }),
        absent: None,
    })
}

fn seeks(node: u8, rank: u32) -> Observed {
    Observed::Seeks { host: HostName::new(&format!("node-{node}")), rank: Some(rank) }
}

fn job() -> Job {
    Job::new("foo".parse().unwrap(), None, NodeId([99; 16]))
}

#[test]
fn each_change_is_a_line_and_each_node_a_row() {
    let mut job = job();
    assert_eq!(job.news(seconds(0)), ["job foo: nothing heard so far"]);
    job.observe(seconds(1), at(2), sighting(2, 0, leads(2, 1, &[], &[])));
    job.observe(seconds(1), at(3), sighting(3, 0, seeks(3, 3)));
    job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 2, &["node-2"], &[(1, 2)])));
    assert_eq!(
        job.news(seconds(1)),
        [
            "node-2 (10.0.0.2:29503) is here",
            "node-3 (10.0.0.3:29503) is here",
            "node-1 (10.0.0.1:29503) is here",
            "job foo: 2 of 4 nodes here, missing ranks 1-2; node-1 (10.0.0.1:29503) leads; \
             RDMA: 1 of 2, RoCE",
        ]
    );
    assert_eq!(job.news(seconds(1)), [""; 0], "nothing is repeated");
    job.observe(seconds(2), at(1), sighting(1, 0, leads(1, 3, &["node-9"], &[])));
    let table = job.table(seconds(2));
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), "job foo: 3 of 4 nodes here");
    assert_eq!(rows[2].join(" "), "RDMA: 2 of 3, RoCE");
    assert_eq!(rows[4][..4], ["node-1", "10.0.0.1:29503", "-", "leads"]);
    assert_eq!(rows[5][..4], ["node-2", "10.0.0.2:29503", "-", "joined"]);
    assert_eq!(rows[6][..4], ["node-3", "10.0.0.3:29503", "3", "seeks"]);
    assert_eq!(rows[7][..4], ["node-9", "-", "-", "joined"]);
    let document = job.document(seconds(2));
    assert_eq!((&document["joined"], &document["leader"]["host"]), (&json!(3), &json!("node-1")));
    assert_eq!(document["rdma"], json!({ "usable": 2, "infiniband": 0, "roce": 2, "efa": 0 }));
    assert_eq!(document["nodes"].as_array().unwrap().len(), 4);
    assert!(job.news(seconds(20)).concat().contains("is silent"), "a leader sends every 1.25 s");
}

#[test]
fn rdma_is_unknown_while_no_node_leads_or_no_node_was_examined() {
    let mut job = job();
    assert_eq!(job.news(seconds(0)), ["job foo: nothing heard so far"]);
    job.observe(seconds(1), at(3), sighting(3, 0, seeks(3, 3)));
    assert!(job.table(seconds(1)).contains("\nRDMA: unknown, since no node leads\n"));
    assert_eq!(job.document(seconds(1))["rdma"], Value::Null);
    let Observed::Leads(mut candidacy) = leads(1, 1, &[], &[]) else { unreachable!() };
    assert!(candidacy.rdma.take().is_some());
    job.observe(seconds(2), at(1), sighting(1, 0, Observed::Leads(candidacy)));
    assert!(job.table(seconds(2)).contains("\nRDMA: unknown, since no node here has looked for it\n"));
    assert_eq!(job.document(seconds(2))["rdma"], Value::Null);
}

#[test]
fn a_newer_generation_replaces_the_nodes_and_an_older_one_is_ignored() {
    let mut job = job();
    job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 2, &[], &[])));
    job.observe(seconds(2), at(1), sighting(1, 0, Observed::Over { rank: 2, end: End::Exited(3) }));
    assert!(job.news(seconds(2)).contains(&"the world ended: rank 2, exit code 3".to_owned()));
    job.observe(seconds(3), at(4), sighting(4, 1, leads(4, 1, &[], &[])));
    job.observe(seconds(3), at(1), sighting(1, 0, leads(1, 4, &[], &[])));
    assert_eq!(job.nodes.len(), 1);
    assert!(job.table(seconds(3)).contains("node-4 (10.0.0.4:29503) leads, generation 1"));
}

#[test]
fn a_sealed_job_is_shown_without_its_nodes() {
    let mut job = job();
    assert!(!job.has_heard());
    job.observe(seconds(1), at(1), sighting(1, 0, Observed::Sealed));
    assert!(job.has_heard() && job.document(seconds(1))["sealed"] == true);
    let table = job.table(seconds(1));
    assert!(table.contains("job foo: heard, but sealed\n") && table.contains("--secret-file"), "{table}");
}

#[test]
fn a_new_run_is_shown_once_the_earlier_one_is_silent() {
    for (origin, generation) in [(0, 0), (2, 1), (2, 7)] {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, 1, leads(1, 2, &[], &[])));
        let new = || of_run(origin, 2, generation, leads(2, 1, &[], &[]));
        job.observe(seconds(5), at(2), new());
        assert_eq!(states(&job, seconds(5)), [("node-1", State::Leads)]);
        job.observe(seconds(7), at(2), new());
        assert_eq!(states(&job, seconds(7)), [("node-2", State::Leads)]);
    }
}

#[test]
fn a_restart_is_shown_at_once_and_a_forged_one_only_while_it_sends() {
    let mut job = job();
    job.observe(seconds(1), at(1), of_run(0, 1, 0, leads(1, 2, &[], &[])));
    job.observe(seconds(1), at(2), sighting(2, 1, leads(2, 2, &[], &[])));
    assert_eq!(states(&job, seconds(1)), [("node-2", State::Leads)]);
    job.observe(seconds(2), at(9), sighting(9, u32::MAX, leads(9, 4, &[], &[])));
    for second in 3..=8 {
        job.observe(seconds(second), at(2), sighting(2, 1, leads(2, 2, &[], &[])));
    }
    assert_eq!(states(&job, seconds(8)), [("node-2", State::Leads)]);
}

#[test]
fn the_end_of_a_world_is_reported_once_and_removes_no_row() {
    let mut job = job();
    job.observe(seconds(1), at(1), of_run(0, 1, 0, leads(1, 2, &[], &[])));
    let _ = job.news(seconds(1));
    for _ in 0..3 {
        job.observe(seconds(2), at(1), sighting(1, 1, Observed::Over { rank: 2, end: End::Exited(3) }));
        job.observe(seconds(2), at(1), sighting(1, 0, Observed::Other));
    }
    assert_eq!(job.news(seconds(2)), ["the world ended: rank 2, exit code 3"]);
    assert_eq!(states(&job, seconds(2)), [("node-1", State::Leads)]);
}

#[test]
fn a_node_that_left_is_no_longer_shown_as_joined() {
    let mut job = job();
    job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 2, &["b"], &[])));
    job.observe(seconds(2), at(1), sighting(1, 0, leads(1, 3, &["c"], &[])));
    assert_eq!(
        states(&job, seconds(2)),
        [("b", State::Joined), ("c", State::Joined), ("node-1", State::Leads)]
    );
    job.observe(seconds(3), at(1), sighting(1, 0, leads(1, 2, &["c"], &[])));
    assert_eq!(states(&job, seconds(3)), [("c", State::Joined), ("node-1", State::Leads)]);
    // A leader with fewer members is ignored until the other is silent.
    job.observe(seconds(4), at(2), sighting(2, 0, leads(2, 1, &["d"], &[])));
    assert_eq!(states(&job, seconds(4)).len(), 3);
    job.observe(seconds(9), at(2), sighting(2, 0, leads(2, 3, &[], &[])));
    assert_eq!(states(&job, seconds(9)), [("node-1", State::Silent), ("node-2", State::Leads)]);
}

#[test]
fn a_flood_of_nodes_is_bounded_and_hides_the_others_only_while_it_lasts() {
    let mut job = job();
    for number in 0..20_000 {
        job.observe(seconds(1), at(1), stranger(number, 0));
        job.name(seconds(1), &HostName::new(&format!("named-{number}")));
    }
    assert_eq!((job.nodes.len(), job.named.len()), (MOST, MOST));
    job.observe(seconds(7), at(1), of_run(0, 1, 0, leads(1, 2, &["b"], &[])));
    assert_eq!(states(&job, seconds(7)), [("b", State::Joined), ("node-1", State::Leads)]);
}

#[test]
fn the_changes_of_a_flood_are_bounded() {
    let mut job = job();
    // Each of another generation, so that the limit on nodes is not reached.
    for number in 0..10_000 {
        job.observe(seconds(1), at(1), stranger(number.into(), number));
    }
    let news = job.news(seconds(1));
    assert_eq!(news.len(), MOST_LINES + 2);
    assert_eq!(news[MOST_LINES], "and 8976 more changes at once");
}
