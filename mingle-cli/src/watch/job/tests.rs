use mingle_core::{End, Lineage, Peer, Progress, World};

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29503))
}

fn said(node: u8, generation: u32, word: Word) -> Sighting {
    Sighting { node: NodeId([node; 16]), lineage: Lineage { generation, origin: 1 }, word }
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
fn a_flood_of_nodes_is_bounded() {
    let mut job = job();
    for number in 0..10_000_u128 {
        let word = Word::Seeks { host: HostName::new(&format!("h{number}")), rank: None };
        let node = NodeId((number + 1).to_be_bytes());
        job.see(seconds(1), at(1), Sighting { node, lineage: Lineage::default(), word });
    }
    assert_eq!(job.nodes.len(), MOST);
}
