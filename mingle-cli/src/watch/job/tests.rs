use mingle_core::proto::{Lineage, Peer, Progress};
use mingle_core::{End, World};

use super::super::MOST_LINES;
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29503))
}

fn said(node: u8, generation: u32, word: Word) -> Sighting {
    of_run(1, node, generation, word)
}

/// Of the run of the job that has this origin.
fn of_run(origin: u64, node: u8, generation: u32, word: Word) -> Sighting {
    Sighting { node: NodeId([node; 16]), lineage: Lineage { generation, origin }, word }
}

/// Node `number`, which seeks.
fn stranger(number: u128, generation: u32) -> Sighting {
    let word = Word::Seeks { host: HostName::new(&format!("h{number}")), rank: None };
    let lineage = Lineage { generation, ..Lineage::default() };
    Sighting { node: NodeId((number + 1).to_be_bytes()), lineage, word }
}

/// The states of the rows, by host.
fn states(job: &Job, now: Duration) -> Vec<(&str, &'static str)> {
    let mut states: Vec<_> = job.rows(now).iter().map(|row| (row.host.as_str(), row.state)).collect();
    states.sort_unstable();
    states
}

fn gathers(node: u8, joined: u32, newest: &[&str], missing: &[(u32, u32)]) -> Word {
    Word::Gathers(Gathering {
        progress: Progress {
            joined,
            world: World::new(4).unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: missing.iter().map(|&(first, last)| RankRange { first, last }).collect(),
            leader: Peer { host: HostName::new(&format!("node-{node}")), address: at(node) },
        },
        explicit: false,
        most: joined,
        rdma: Some(Tally { roce: joined - 1, ..Tally::default() }),
    })
}

fn seeks(node: u8, rank: u32) -> Word {
    Word::Seeks { host: HostName::new(&format!("node-{node}")), rank: Some(rank) }
}

fn job() -> Job {
    Job::new("foo".parse().unwrap(), None)
}

#[test]
fn each_change_is_a_line_and_each_node_a_row() {
    let mut job = job();
    assert_eq!(job.news(seconds(0)), ["job foo: nothing heard so far"]);
    job.see(seconds(1), at(2), said(2, 0, gathers(2, 1, &[], &[])));
    job.see(seconds(1), at(3), said(3, 0, seeks(3, 3)));
    job.see(seconds(1), at(1), said(1, 0, gathers(1, 2, &["node-2"], &[(1, 2)])));
    assert_eq!(
        job.news(seconds(1)),
        [
            "node-2 (10.0.0.2:29503) is here",
            "node-3 (10.0.0.3:29503) is here",
            "node-1 (10.0.0.1:29503) is here",
            "job foo: 2 of 4 nodes here, missing ranks 1-2; node-1 (10.0.0.1:29503) gathers; \
             RDMA: 1 of 2, RoCE",
        ]
    );
    assert_eq!(job.news(seconds(1)), [""; 0], "nothing is said twice");
    job.see(seconds(2), at(1), said(1, 0, gathers(1, 3, &["node-9"], &[])));
    let table = job.table(seconds(2));
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), "job foo: 3 of 4 nodes here");
    assert_eq!(rows[2].join(" "), "RDMA: 2 of 3, RoCE");
    assert_eq!(rows[4][..4], ["node-1", "10.0.0.1:29503", "-", "gathers"]);
    assert_eq!(rows[5][..4], ["node-2", "10.0.0.2:29503", "-", "joined"]);
    assert_eq!(rows[6][..4], ["node-3", "10.0.0.3:29503", "3", "seeks"]);
    assert_eq!(rows[7][..4], ["node-9", "-", "-", "joined"]);
    let document = job.document(seconds(2));
    assert_eq!((&document["joined"], &document["leader"]["host"]), (&json!(3), &json!("node-1")));
    assert_eq!(document["rdma"], json!({ "usable": 2, "infiniband": 0, "roce": 2, "efa": 0 }));
    assert_eq!(document["nodes"].as_array().unwrap().len(), 4);
    assert!(job.news(seconds(20)).concat().contains("is silent"), "who gathers speaks every 1.25 s");
}

#[test]
fn rdma_is_unknown_while_nobody_gathers_or_nobody_has_looked() {
    let mut job = job();
    assert_eq!(job.news(seconds(0)), ["job foo: nothing heard so far"]);
    job.see(seconds(1), at(3), said(3, 0, seeks(3, 3)));
    assert!(job.table(seconds(1)).contains("\nRDMA: unknown, since nobody gathers\n"));
    assert_eq!(job.document(seconds(1))["rdma"], Value::Null);
    let Word::Gathers(mut gathering) = gathers(1, 1, &[], &[]) else { unreachable!() };
    assert!(gathering.rdma.take().is_some());
    job.see(seconds(2), at(1), said(1, 0, Word::Gathers(gathering)));
    assert!(job.table(seconds(2)).contains("\nRDMA: unknown, since nobody here has looked for it\n"));
    assert_eq!(job.document(seconds(2))["rdma"], Value::Null);
}

#[test]
fn a_newer_generation_replaces_the_nodes_and_an_older_one_is_not_heard() {
    let mut job = job();
    job.see(seconds(1), at(1), said(1, 0, gathers(1, 2, &[], &[])));
    job.see(seconds(2), at(1), said(1, 0, Word::Over { rank: 2, end: End::Exited(3) }));
    assert!(job.news(seconds(2)).contains(&"the world is over: rank 2, exit code 3".to_owned()));
    job.see(seconds(3), at(4), said(4, 1, gathers(4, 1, &[], &[])));
    job.see(seconds(3), at(1), said(1, 0, gathers(1, 4, &[], &[])));
    assert_eq!(job.nodes.len(), 1);
    assert!(job.table(seconds(3)).contains("node-4 (10.0.0.4:29503) gathers, generation 1"));
}

#[test]
fn a_job_that_is_sealed_is_said_to_be_here() {
    let mut job = job();
    assert!(!job.has_heard());
    job.see(seconds(1), at(1), said(1, 0, Word::Sealed));
    assert!(job.has_heard() && job.document(seconds(1))["sealed"] == true);
    let table = job.table(seconds(1));
    assert!(table.contains("job foo: it is here\n") && table.contains("--secret-file"), "{table}");
}

#[test]
fn a_new_run_of_the_job_is_seen_once_the_one_before_is_silent() {
    for (origin, generation) in [(0, 0), (2, 1), (2, 7)] {
        let mut job = job();
        job.see(seconds(1), at(1), said(1, 1, gathers(1, 2, &[], &[])));
        let new = || of_run(origin, 2, generation, gathers(2, 1, &[], &[]));
        job.see(seconds(5), at(2), new());
        assert_eq!(states(&job, seconds(5)), [("node-1", "gathers")]);
        job.see(seconds(7), at(2), new());
        assert_eq!(states(&job, seconds(7)), [("node-2", "gathers")]);
    }
}

#[test]
fn a_restart_is_followed_at_once_and_a_forged_one_for_as_long_as_it_speaks() {
    let mut job = job();
    job.see(seconds(1), at(1), of_run(0, 1, 0, gathers(1, 2, &[], &[])));
    job.see(seconds(1), at(2), said(2, 1, gathers(2, 2, &[], &[])));
    assert_eq!(states(&job, seconds(1)), [("node-2", "gathers")]);
    job.see(seconds(2), at(9), said(9, u32::MAX, gathers(9, 4, &[], &[])));
    for second in 3..=8 {
        job.see(seconds(second), at(2), said(2, 1, gathers(2, 2, &[], &[])));
    }
    assert_eq!(states(&job, seconds(8)), [("node-2", "gathers")]);
}

#[test]
fn that_a_world_is_over_is_said_once_and_takes_nobody_from_the_table() {
    let mut job = job();
    job.see(seconds(1), at(1), of_run(0, 1, 0, gathers(1, 2, &[], &[])));
    let _ = job.news(seconds(1));
    for _ in 0..3 {
        job.see(seconds(2), at(1), said(1, 1, Word::Over { rank: 2, end: End::Exited(3) }));
        job.see(seconds(2), at(1), said(1, 0, Word::Other));
    }
    assert_eq!(job.news(seconds(2)), ["the world is over: rank 2, exit code 3"]);
    assert_eq!(states(&job, seconds(2)), [("node-1", "gathers")]);
}

#[test]
fn who_has_left_is_no_longer_said_to_have_joined() {
    let mut job = job();
    job.see(seconds(1), at(1), said(1, 0, gathers(1, 2, &["b"], &[])));
    job.see(seconds(2), at(1), said(1, 0, gathers(1, 3, &["c"], &[])));
    assert_eq!(states(&job, seconds(2)), [("b", "joined"), ("c", "joined"), ("node-1", "gathers")]);
    job.see(seconds(3), at(1), said(1, 0, gathers(1, 2, &["c"], &[])));
    assert_eq!(states(&job, seconds(3)), [("c", "joined"), ("node-1", "gathers")]);
    // One that gathers fewer has no say, until the other is silent.
    job.see(seconds(4), at(2), said(2, 0, gathers(2, 1, &["d"], &[])));
    assert_eq!(states(&job, seconds(4)).len(), 3);
    job.see(seconds(9), at(2), said(2, 0, gathers(2, 3, &[], &[])));
    assert_eq!(states(&job, seconds(9)), [("node-1", "silent"), ("node-2", "gathers")]);
}

#[test]
fn a_flood_of_nodes_is_bounded_and_hides_the_others_only_while_it_lasts() {
    let mut job = job();
    for number in 0..5_000 {
        job.see(seconds(1), at(1), stranger(number, 0));
        job.tell(seconds(1), &HostName::new(&format!("told-{number}")));
    }
    assert_eq!((job.nodes.len(), job.told.len()), (MOST, MOST));
    job.see(seconds(7), at(1), of_run(0, 1, 0, gathers(1, 2, &["b"], &[])));
    assert_eq!(states(&job, seconds(7)), [("b", "joined"), ("node-1", "gathers")]);
}

#[test]
fn what_is_to_be_said_of_a_flood_is_bounded() {
    let mut job = job();
    // Each of another generation, so that none is one too many.
    for number in 0..10_000 {
        job.see(seconds(1), at(1), stranger(number.into(), number));
    }
    let news = job.news(seconds(1));
    assert_eq!(news.len(), MOST_LINES + 2);
    assert_eq!(news[MOST_LINES], "and 8976 more changes at once");
}
