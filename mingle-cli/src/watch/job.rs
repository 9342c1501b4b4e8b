//! One job: what its nodes send to all while they form a world, and what the leader of a world that stays
//! says of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::error::RankRange;
use mingle_core::proto::{NodeId, Progress};
use mingle_core::tools::{Run, Sighting};
use mingle_core::{HostName, JobId, Member};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Scene, has_room, is_silent};
use crate::events::{add_world, rank_ranges};

/// The most nodes, and the most hosts named by a leader, that are remembered: a stranger can send any number.
const MOST: usize = 16_384;

/// The nodes of a job that were heard or named.
#[derive(Debug)]
pub(super) struct WatchedJob {
    name: JobId,
    nodes: BTreeMap<NodeId, HeardNode>,
    /// The members that the leader has named, and the leader's count of members then.
    named: BTreeSet<HostName>,
    counted: Option<(NodeId, u32)>,
    /// The world that runs, and when its leader has answered last.
    run: Option<(Run, Duration)>,
    /// Where the leader of a world that runs is, which does not answer, and when a node has said so last.
    led_from: Option<(SocketAddr, Duration)>,
    /// How the world ended that ended last.
    over: Option<String>,
    /// Who sent a datagram last that could not be read, and why it could not.
    unread: Option<String>,
    /// Whether a node was heard.
    is_heard: bool,
}

/// A node that was heard itself.
#[derive(Debug)]
struct HeardNode {
    host: HostName,
    address: SocketAddr,
    last: Duration,
    /// If it leads, how many nodes have joined it.
    leads: Option<Progress>,
}

/// A node as it is shown. Their order is that in which they are shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct NodeRow {
    rank: Option<u32>,
    host: HostName,
    /// None for a member that was named by the leader, and not heard itself.
    address: Option<SocketAddr>,
    state: &'static str,
}

/// What the member of this rank does.
fn state(run: &Run, rank: u32) -> &'static str {
    match run {
        _ if run.suspected.contains(&rank) => "suspected",
        Run { has_finished: true, .. } => "finished",
        Run { over: None, .. } => "runs",
        _ if run.missing.iter().any(|range| (range.first..=range.last).contains(&rank)) => "missing",
        _ => "over",
    }
}

impl WatchedJob {
    pub(super) fn new(name: JobId) -> Self {
        Self {
            name,
            nodes: BTreeMap::new(),
            named: BTreeSet::new(),
            counted: None,
            run: None,
            led_from: None,
            over: None,
            unread: None,
            is_heard: false,
        }
    }

    /// A node that looks for others was heard. While a world runs such nodes wait for a seat in it.
    fn observe(&mut self, id: NodeId, node: HeardNode) {
        let (now, leads) = (node.last, node.leads.is_some());
        self.is_heard = true;
        if self.running(now).is_some() {
            return;
        }
        self.run = None;
        if has_room(&mut self.nodes, &id, MOST, |node| is_silent(now, node.last)) {
            self.nodes.insert(id, node);
        }
        // Many seek, and none of them is looked for among all others.
        if leads && let Some((leader, progress)) = self.leader(now).filter(|(leader, _)| *leader == id) {
            self.count(leader, progress.joined, progress.newest.clone());
        }
    }

    /// A leader names members that have joined, but not members that have left: when the count falls, or when
    /// another leader counts, the names are stale.
    fn count(&mut self, leader: NodeId, joined: u32, newest: Vec<HostName>) {
        if self.counted.is_some_and(|(before, were)| before != leader || joined < were) {
            self.named.clear();
        }
        self.counted = Some((leader, joined));
        let room = MOST.saturating_sub(self.named.len());
        self.named.extend(newest.into_iter().take(room));
    }

    /// The nodes that are not silent.
    fn loud(&self, now: Duration) -> impl Iterator<Item = (NodeId, &HeardNode)> {
        let all = self.nodes.iter().map(|(id, node)| (*id, node));
        all.filter(move |(_, node)| !is_silent(now, node.last))
    }

    /// Of the nodes that lead, the one with the most members, which the others will join.
    fn leader(&self, now: Duration) -> Option<(NodeId, &Progress)> {
        let leaders = self.loud(now).filter_map(|(id, node)| Some((id, node.leads.as_ref()?)));
        leaders.max_by_key(|(id, progress)| (progress.joined, Reverse(*id)))
    }

    /// The world that runs; none where its leader does not answer.
    fn running(&self, now: Duration) -> Option<&Run> {
        self.run.as_ref().filter(|(_, last)| !is_silent(now, *last)).map(|(run, _)| run)
    }

    fn rows(&self, now: Duration) -> Vec<NodeRow> {
        if let Some(run) = self.running(now) {
            let row = |(rank, member): (u32, &Member)| NodeRow {
                rank: Some(rank),
                host: member.host.clone(),
                address: Some(member.address),
                state: state(run, rank),
            };
            return (0..).zip(run.members.iter()).map(row).collect();
        }
        let leader = self.leader(now).map(|(id, _)| id);
        let row = |(id, node): (NodeId, &HeardNode)| {
            let state = match leader {
                Some(leader) if leader == id => "leads",
                _ if self.named.contains(&node.host) => "joined",
                _ => "seeks",
            };
            NodeRow { rank: None, host: node.host.clone(), address: Some(node.address), state }
        };
        let mut rows: Vec<NodeRow> = self.loud(now).map(row).collect();
        if leader.is_some() {
            let heard: BTreeSet<HostName> = rows.iter().map(|row| row.host.clone()).collect();
            let unheard = self.named.difference(&heard).cloned();
            rows.extend(unheard.map(|host| NodeRow { rank: None, host, address: None, state: "joined" }));
        }
        rows.sort();
        rows
    }

    /// How far the job has come, in one line.
    fn summary(&self, now: Duration) -> String {
        let name = &self.name;
        if let Some(run) = self.running(now) {
            let Run { members, missing, suspected, waiting, generation, .. } = run;
            let nodes = members.len();
            let does = match run.over {
                _ if run.has_finished => format!("has finished on {nodes} nodes"),
                None => format!("runs on {nodes} nodes"),
                Some(_) => format!("forms its next world: {} of {nodes} nodes here", run.here),
            };
            let missing = (!missing.is_empty()).then(|| format!("missing {}", RankRange::list(missing)));
            let ranks: Vec<String> = suspected.iter().map(u32::to_string).collect();
            let suspected = (!ranks.is_empty()).then(|| format!("suspected to be gone: {}", ranks.join(" ")));
            let waiting = (*waiting > 0).then(|| format!("waiting for a seat: {waiting}"));
            let first = format!("job {name} {does}, generation {generation}");
            let all = [Some(first), missing, suspected, waiting].into_iter().flatten();
            return all.collect::<Vec<_>>().join(", ");
        }
        if let Some((leader, _)) = self.led_from.filter(|(_, last)| !is_silent(now, *last)) {
            return format!("job {name} runs; waiting for an answer of its leader, at {leader}");
        }
        match (self.leader(now), self.loud(now).count()) {
            (Some((_, progress)), _) => format!("job {name}: {progress}; {} leads", progress.leader),
            (None, 0) if !self.is_heard => format!("job {name}: no node heard so far"),
            (None, 0) => {
                format!("job {name} is silent: its world has formed or has ended, or is out of reach")
            }
            (None, count) => format!("job {name}: {count} nodes heard, and none leads"),
        }
    }
}

impl Scene for WatchedJob {
    fn see(&mut self, now: Duration, sighting: Sighting) {
        match sighting {
            Sighting::Sealed(from) => {
                self.unread =
                    Some(format!("{from} has another secret, or none: give the job's own --secret-file"));
            }
            Sighting::Version(from, version) => {
                self.unread = Some(format!("{from} speaks protocol version {version}"));
            }
            Sighting::Leads(id, progress) => {
                let (host, address) = (progress.leader.host.clone(), progress.leader.address);
                self.observe(id, HeardNode { host, address, last: now, leads: Some(progress) });
            }
            Sighting::Seeks(id, host, address) => {
                self.observe(id, HeardNode { host, address, last: now, leads: None });
            }
            Sighting::LedFrom(leader) => {
                self.is_heard = true;
                self.led_from = Some((leader, now));
            }
            Sighting::Runs(run) => {
                if let Some(over) = &run.over {
                    self.over = Some(format!("the world ended: {over}"));
                }
                self.is_heard = true;
                self.nodes.clear();
                self.named.clear();
                (self.run, self.led_from) = (Some((run, now)), None);
            }
            Sighting::Job(..) => {}
        }
    }

    fn lines(&self, now: Duration) -> Vec<String> {
        let row = |row: NodeRow| {
            let rank = row.rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
            let address = row.address.map(|address| format!(" ({address})")).unwrap_or_default();
            format!("{rank}{}{address} {}", row.host, row.state)
        };
        let notes = [Some(self.summary(now)), self.over.clone(), self.unread.clone()];
        notes.into_iter().flatten().chain(self.rows(now).into_iter().map(row)).collect()
    }

    fn document(&self, now: Duration) -> Value {
        let progress = self.leader(now).map(|(_, progress)| progress);
        let run = self.running(now);
        let running = |run: &Run| {
            json!({
                "world": run.members.len(),
                "here": run.here,
                "over": run.over.as_ref().map(ToString::to_string),
                "suspected": run.suspected,
                "waiting": run.waiting,
            })
        };
        let mut facts = json!({
            "job": self.name.as_str(),
            "heard": self.silence().is_none(),
            "unread": self.unread,
            "generation": run.map_or(0, |run| run.generation),
            "joined": progress.map(|progress| progress.joined),
            "missing": progress.map(|progress| rank_ranges(&progress.missing)),
            "running": run.map(running),
            "nodes": self.rows(now),
        });
        add_world(&mut facts, progress.map(|progress| progress.world));
        facts
    }

    fn silence(&self) -> Option<String> {
        (!self.is_heard && self.unread.is_none()).then(|| {
            format!(
                "nothing was heard of job {}: it is neither forming nor running under 'mingle run' with --max-restarts \
                 or --workers, or has another secret than this watch, or multicast does not pass between its nodes and \
                 this host; see 'mingle doctor'",
                self.name
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use mingle_core::proto::{Over, Peer};
    use mingle_core::{End, Metadata, World};

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(node: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, node], 29503))
    }

    fn seeks(node: u8) -> Sighting {
        Sighting::Seeks(NodeId([node; 16]), HostName::new(&format!("node-{node}")), at(node))
    }

    /// A world of two without names of its members.
    fn runs(generation: u32) -> Sighting {
        Sighting::Runs(Run {
            generation,
            members: [].into(),
            over: None,
            has_finished: false,
            suspected: [1].into(),
            waiting: 2,
            here: 0,
            missing: Vec::new(),
        })
    }

    fn leads(node: u8, joined: u32, newest: &[&str]) -> Sighting {
        let progress = Progress {
            joined,
            world: "4".parse().unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: vec![RankRange { first: 3, last: 3 }],
            leader: Peer { host: HostName::new(&format!("node-{node}")), address: at(node) },
        };
        Sighting::Leads(NodeId([node; 16]), progress)
    }

    fn job() -> WatchedJob {
        WatchedJob::new("foo".parse().unwrap())
    }

    /// The hosts that are shown, each with its state.
    fn states(job: &WatchedJob, now: Duration) -> Vec<String> {
        job.rows(now).iter().map(|row| format!("{} {}", row.host, row.state)).collect()
    }

    #[test]
    fn the_leader_of_the_most_is_named_and_each_node_has_a_line() {
        let mut job = job();
        assert_eq!(job.lines(seconds(0)), ["job foo: no node heard so far"]);
        job.see(seconds(1), leads(2, 1, &[]));
        job.see(seconds(1), seeks(3));
        job.see(seconds(1), leads(1, 3, &["node-2", "node-9"]));
        assert_eq!(
            job.lines(seconds(1)),
            [
                "job foo: 3 of 4 nodes here, missing rank 3; node-1 (10.0.0.1:29503) leads",
                "node-1 (10.0.0.1:29503) leads",
                "node-2 (10.0.0.2:29503) joined",
                "node-3 (10.0.0.3:29503) seeks",
                "node-9 joined"
            ]
        );
        let document = job.document(seconds(2));
        assert_eq!((&document["joined"], &document["nodes"][0]["host"]), (&json!(3), &json!("node-1")));
        assert_eq!(document["nodes"].as_array().unwrap().len(), 4);
        assert!(job.summary(seconds(20)).contains("is silent"), "a leader sends every 1.25 s");
    }

    #[test]
    fn a_world_that_runs_replaces_what_was_heard_until_its_leader_is_silent() {
        let mut job = job();
        job.see(seconds(1), leads(1, 2, &["b"]));
        job.see(seconds(2), runs(3));
        let line = "job foo runs on 0 nodes, generation 3, suspected to be gone: 1, waiting for a seat: 2";
        assert_eq!(job.lines(seconds(2)), [line]);
        job.see(seconds(5), leads(2, 1, &[]));
        assert_eq!(job.lines(seconds(5)), [line]);
        assert!(job.summary(seconds(8)).contains("is silent"));
        job.see(seconds(3), Sighting::LedFrom(at(9)));
        let line = "job foo runs; waiting for an answer of its leader, at 10.0.0.9:29503";
        assert_eq!(job.lines(seconds(8)), [line]);
        job.led_from = None;
        job.see(seconds(8), leads(2, 1, &[]));
        assert_eq!(states(&job, seconds(8)), ["node-2 leads"]);
    }

    #[test]
    fn each_member_has_its_state_and_the_document_has_what_the_leader_says_of_all() {
        let world = World::new(4).unwrap();
        let member = |rank: u32| Member {
            rank: world.rank(rank).unwrap(),
            id: NodeId([7; 16]),
            host: HostName::new(&format!("node-{rank}")),
            address: at(1),
            slots: 1,
            metadata: Metadata::default(),
            session_port: 0,
        };
        let runs = Run {
            generation: 1,
            members: (0..4).map(member).collect(),
            over: None,
            has_finished: false,
            suspected: [3].into(),
            waiting: 5,
            here: 2,
            missing: vec![RankRange { first: 1, last: 2 }],
        };
        let finished = Run { has_finished: true, ..runs.clone() };
        let over = Some(Over { rank: None, peer: None, end: End::Unknown });
        let over = Run { over, ..runs.clone() };
        for (run, wanted) in [
            (runs, ["node-0 runs", "node-1 runs", "node-2 runs", "node-3 suspected"]),
            (finished, ["node-0 finished", "node-1 finished", "node-2 finished", "node-3 suspected"]),
            (over, ["node-0 over", "node-1 missing", "node-2 missing", "node-3 suspected"]),
        ] {
            let mut job = job();
            let over = run.over.as_ref().map(ToString::to_string);
            job.see(seconds(1), Sighting::Runs(run));
            assert_eq!(states(&job, seconds(1)), wanted);
            let running = json!({ "world": 4, "here": 2, "over": over, "suspected": [3], "waiting": 5 });
            assert_eq!(job.document(seconds(1))["running"], running);
        }
    }

    #[test]
    fn a_sealed_job_is_shown_without_its_nodes() {
        let mut job = job();
        assert!(job.silence().is_some());
        job.see(seconds(1), Sighting::Sealed(at(1)));
        assert!(job.silence().is_none() && job.document(seconds(1))["unread"].is_string());
        assert!(job.lines(seconds(1))[1].contains("--secret-file"));
    }

    #[test]
    fn a_node_of_another_version_is_shown_with_that_version() {
        let mut job = job();
        job.see(seconds(1), Sighting::Version(at(1), 9));
        assert_eq!(job.document(seconds(1))["unread"], "10.0.0.1:29503 speaks protocol version 9");
        assert!(job.silence().is_none());
    }

    #[test]
    fn a_node_that_left_is_no_longer_shown_as_joined() {
        let mut job = job();
        job.see(seconds(1), leads(1, 2, &["b"]));
        job.see(seconds(2), leads(1, 3, &["c"]));
        assert_eq!(states(&job, seconds(2)), ["b joined", "c joined", "node-1 leads"]);
        job.see(seconds(3), leads(1, 2, &["c"]));
        assert_eq!(states(&job, seconds(3)), ["c joined", "node-1 leads"]);
        // The names of a leader with fewer members are ignored until the other is silent.
        job.see(seconds(4), leads(2, 1, &["d"]));
        assert_eq!(states(&job, seconds(4)).len(), 3);
        job.see(seconds(9), leads(2, 3, &[]));
        assert_eq!(states(&job, seconds(9)), ["node-2 leads"]);
    }

    #[test]
    fn a_flood_of_nodes_is_bounded_and_hides_the_others_only_while_it_lasts() {
        let mut job = job();
        for number in 0..20_000_u128 {
            let host = HostName::new(&format!("h{number}"));
            let id = NodeId((number + 1).to_be_bytes());
            job.see(seconds(1), Sighting::Seeks(id, host.clone(), at(1)));
            job.count(NodeId([5; 16]), 2, vec![host]);
        }
        assert_eq!((job.nodes.len(), job.named.len()), (MOST, MOST));
        job.see(seconds(7), leads(1, 2, &["b"]));
        assert!(states(&job, seconds(7)) == ["b joined", "node-1 leads"]);
    }
}
