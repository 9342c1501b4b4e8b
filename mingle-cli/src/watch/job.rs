//! One job: what its nodes send to all while they form a world, and what the members of a running world
//! answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::error::RankRange;
use mingle_core::proto::{Keys, Lineage, NodeId, Progress};
use mingle_core::rdma::Tally;
use mingle_core::tools::{Observed, Observer, Runs, Sighting};
use mingle_core::{End, HostName, JobId};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Picture, Scene, has_room, is_silent};
use crate::events::{add_fewest, peer};

/// The most nodes, and the most hosts named by a leader, that are remembered: a stranger can send any number.
const MOST: usize = 16_384;

/// The nodes of a job that were heard or named.
#[derive(Debug)]
pub(super) struct WatchedJob {
    name: JobId,
    has_secret: bool,
    observer: Observer,
    nodes: BTreeMap<NodeId, HeardNode>,
    /// The members that the leader has named, and the leader's count of members then.
    named: BTreeSet<HostName>,
    counted: Option<(NodeId, u32)>,
    /// The lineage that is shown, and when it was heard last.
    lineage: Lineage,
    heard: Option<Duration>,
    /// The end of a world that was reported last, and the lineage that follows it.
    over: Option<(Lineage, u32, End)>,
    /// The source address of a datagram that the keys did not open.
    sealed: Option<SocketAddr>,
    /// The source address of a datagram of another version of the protocol.
    version: Option<(SocketAddr, u8)>,
}

/// A node that was heard itself.
#[derive(Debug)]
struct HeardNode {
    host: HostName,
    address: SocketAddr,
    last: Duration,
    does: Does,
}

#[derive(Debug)]
enum Does {
    Leads(Progress, Option<Tally>),
    Seeks,
    Runs(Runs),
}

/// A node as it is shown. Their order is that in which they are shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeRow {
    leads: Reverse<bool>,
    rank: Option<u32>,
    host: HostName,
    /// None for a member that was named by the leader, and not heard itself.
    address: Option<SocketAddr>,
    state: &'static str,
}

/// A running world, as those of its members show it that are not silent.
#[derive(Debug, Default, Serialize)]
struct RunState {
    /// None if no member answers any more.
    world: Option<u32>,
    answered: u32,
    /// The members whose command has ended well.
    finished: u32,
    restarts_left: Option<u32>,
    /// The lowest ranks that some member suspects.
    suspected: BTreeSet<u32>,
    /// The nodes that wait for a seat.
    waiting: u32,
}

impl WatchedJob {
    pub(super) fn new(name: JobId, keys: Option<&Keys>, id: NodeId) -> Self {
        Self {
            observer: Observer::new(name.tag(), keys, id),
            has_secret: keys.is_some(),
            name,
            nodes: BTreeMap::new(),
            named: BTreeSet::new(),
            counted: None,
            lineage: Lineage::default(),
            heard: None,
            over: None,
            sealed: None,
            version: None,
        }
    }

    fn observe(&mut self, now: Duration, from: SocketAddr, sighting: Sighting) {
        let (id, lineage, observed) = match sighting {
            Sighting::Sealed => return self.sealed = Some(from),
            Sighting::Version(version) => return self.version = Some((from, version)),
            Sighting::Node(id, lineage, observed) => (id, lineage, observed),
        };
        if !self.admits(now, lineage) {
            return;
        }
        let (host, address, does) = match observed {
            // The message has the lineage that follows, which no node may have joined yet.
            Observed::Over(rank, end) => return self.over = Some((lineage, rank, end)),
            Observed::Leads(progress, rdma) => {
                (progress.leader.host.clone(), progress.leader.address, Does::Leads(progress, rdma))
            }
            Observed::Seeks(host) => (host, from, Does::Seeks),
            Observed::Runs(runs) => (runs.host.clone(), from, Does::Runs(runs)),
            // Any other message shows only that its sender is alive.
            _ => {
                if self.lineage == lineage {
                    self.heard = Some(now);
                }
                return self.nodes.get_mut(&id).map_or((), |node| node.last = now);
            }
        };
        if self.lineage != lineage {
            self.lineage = lineage;
            self.nodes.clear();
            self.named.clear();
        }
        self.heard = Some(now);
        if has_room(&mut self.nodes, &id, MOST, |node| is_silent(now, node.last)) {
            self.nodes.insert(id, HeardNode { host, address, last: now, does });
        }
        if let Some((leader, progress, _)) = self.leader(now).filter(|(leader, ..)| *leader == id) {
            self.count(leader, progress.joined, progress.newest.clone());
        }
    }

    /// Whether a datagram of this lineage counts: of the lineage that is shown, or of a restart after it.
    /// Datagrams of an earlier world and of another run of the job are ignored, until the lineage that is
    /// shown falls silent: a new run begins at generation 0, and a stranger can forge a generation that no
    /// restart will ever reach.
    fn admits(&self, now: Duration, lineage: Lineage) -> bool {
        let ours = self.lineage;
        let is_restart = lineage > ours && (ours.origin == 0 || ours.origin == lineage.origin);
        lineage == ours || is_restart || self.heard.is_none_or(|at| is_silent(now, at))
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

    /// Of the nodes that lead, the one with the most members, which the others will join; where all are
    /// silent, the one that was heard last.
    fn leader(&self, now: Duration) -> Option<(NodeId, &Progress, Option<Tally>)> {
        let leaders = self.nodes.iter().filter_map(|(id, node)| match &node.does {
            Does::Leads(progress, rdma) => Some((node.last, *id, progress, *rdma)),
            _ => None,
        });
        let best = leaders.max_by_key(|(last, id, progress, _)| {
            let joined = (!is_silent(now, *last)).then_some(progress.joined);
            (joined, joined.is_none().then_some(*last), Reverse(*id))
        });
        best.map(|(_, id, progress, rdma)| (id, progress, rdma))
    }

    /// The nodes that are not silent.
    fn loud(&self, now: Duration) -> impl Iterator<Item = (NodeId, &HeardNode)> {
        let all = self.nodes.iter().map(|(id, node)| (*id, node));
        all.filter(move |(_, node)| !is_silent(now, node.last))
    }

    /// The world that runs; none where no member has ever answered.
    fn running(&self, now: Duration) -> Option<RunState> {
        self.nodes.values().find(|node| matches!(node.does, Does::Runs(_)))?;
        let mut all = RunState::default();
        for (_, node) in self.loud(now) {
            if let Does::Runs(runs) = &node.does {
                all.world = Some(runs.world.get());
                all.answered += 1;
                all.finished += u32::from(runs.has_finished);
                all.restarts_left = [all.restarts_left, runs.restarts_left].into_iter().flatten().min();
                all.suspected.extend(&runs.suspected);
                all.waiting = all.waiting.max(runs.waiting);
            }
        }
        Some(all)
    }

    fn rows(&self, now: Duration) -> Vec<NodeRow> {
        let leader = self.leader(now).map(|(id, ..)| id);
        let suspected = self.running(now).unwrap_or_default().suspected;
        let row = |(id, node): (NodeId, &HeardNode)| {
            let (rank, state) = match &node.does {
                Does::Runs(runs) if suspected.contains(&runs.rank) => (Some(runs.rank), "suspected"),
                Does::Runs(runs) if runs.has_finished => (Some(runs.rank), "finished"),
                Does::Runs(runs) => (Some(runs.rank), "runs"),
                _ if leader == Some(id) => (None, "leads"),
                _ if self.named.contains(&node.host) => (None, "joined"),
                _ => (None, "seeks"),
            };
            let leads = Reverse(state == "leads");
            NodeRow { leads, rank, host: node.host.clone(), address: Some(node.address), state }
        };
        let mut rows: Vec<NodeRow> = self.loud(now).map(row).collect();
        if rows.iter().any(|row| row.leads.0) {
            let heard: BTreeSet<HostName> = rows.iter().map(|row| row.host.clone()).collect();
            rows.extend(self.named.difference(&heard).map(|host| NodeRow {
                leads: Reverse(false),
                rank: None,
                host: host.clone(),
                address: None,
                state: "joined",
            }));
        }
        rows.sort();
        rows
    }

    fn head(&self, now: Duration) -> Vec<String> {
        let name = &self.name;
        let generation = self.lineage.generation;
        let again = if generation == 0 { String::new() } else { format!(", generation {generation}") };
        if let Some((id, progress, rdma)) = self.leader(now) {
            let leader = &progress.leader;
            let is_silent = self.nodes.get(&id).is_some_and(|node| is_silent(now, node.last));
            let rdma = match rdma {
                Some(tally) => format!("RDMA: {}", tally.among(progress.joined)),
                None => "RDMA: unknown, since no node here has looked for it".to_owned(),
            };
            let leads = format!("{leader} leads{again}");
            let led =
                format!("{leader} led{again}, and is silent: the world has formed, or the leader is gone");
            return vec![format!("job {name}: {progress}"), if is_silent { led } else { leads }, rdma];
        }
        match self.running(now) {
            Some(running) => self.running_head(&running),
            None if !self.nodes.is_empty() => {
                vec![format!("job {name}: {} nodes heard, and none leads{again}", self.nodes.len())]
            }
            None if self.sealed.is_some() => vec![format!("job {name}: heard, but sealed")],
            None => vec![format!("job {name}: nothing heard so far")],
        }
    }

    fn running_head(&self, running: &RunState) -> Vec<String> {
        let (name, generation) = (&self.name, self.lineage.generation);
        let Some(world) = running.world else {
            return vec![format!(
                "job {name}: its world ran, and no node answers any more: the job has ended, or is out of reach"
            )];
        };
        let finished = match running.finished {
            0 => String::new(),
            count => format!(", {count} of them with a command that has ended well"),
        };
        let left = match running.restarts_left {
            None => String::new(),
            Some(1) => ", 1 restart left".to_owned(),
            Some(left) => format!(", {left} restarts left"),
        };
        let mut lines = vec![
            format!("job {name} runs: {} of {world} nodes answer{finished}", running.answered),
            format!("generation {generation}{left}"),
        ];
        if !running.suspected.is_empty() {
            let host = |rank: u32| {
                self.nodes.values().find(|node| matches!(&node.does, Does::Runs(runs) if runs.rank == rank))
            };
            let named = running.suspected.iter().map(|rank| match host(*rank) {
                Some(node) => format!("rank {rank} ({})", node.host),
                None => format!("rank {rank}"),
            });
            lines.push(format!("suspected to be gone: {}", named.collect::<Vec<_>>().join(", ")));
        }
        match running.waiting {
            0 => {}
            1 => lines.push("1 node waits for a seat".to_owned()),
            count => lines.push(format!("{count} nodes wait for a seat")),
        }
        lines
    }
}

impl Scene for WatchedJob {
    fn question(&mut self) -> Option<Vec<u8>> {
        Some(self.observer.query())
    }

    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        if let Some(sighting) = self.observer.read(datagram) {
            self.observe(now, from, sighting);
        }
    }

    fn state(&self, now: Duration) -> Picture {
        let mut parts = Vec::new();
        if let Some((_, rank, end)) = self.over {
            parts.push(format!("the world ended: rank {rank}, {end}"));
        }
        if let Some(from) = self.sealed {
            parts.push(if self.has_secret {
                format!(
                    "{from} sends datagrams that this secret does not open: give the job's own --secret-file"
                )
            } else {
                format!("{from} sends sealed datagrams: give the job's --secret-file to see its nodes")
            });
        }
        if let Some((from, version)) = self.version {
            parts.push(format!("{from} speaks protocol version {version}"));
        }
        parts.extend(self.rows(now).iter().map(|row| {
            let rank = row.rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
            let address = row.address.map(|address| format!(" ({address})")).unwrap_or_default();
            format!("{rank}{}{address} {}", row.host, row.state)
        }));
        Picture { head: self.head(now), parts }
    }

    fn document(&self, now: Duration) -> Value {
        let node = |row: &NodeRow| {
            let (address, port) = (row.address.map(|at| at.ip()), row.address.map(|at| at.port()));
            json!({ "host": row.host, "address": address, "port": port, "rank": row.rank, "state": row.state })
        };
        let leader = self.leader(now);
        let progress = leader.map(|(_, progress, _)| progress);
        let missing = |progress: &Progress| -> Vec<[u32; 2]> {
            progress.missing.iter().map(|RankRange { first, last }| [*first, *last]).collect()
        };
        let rdma = |tally: Tally| {
            let Tally { infiniband, roce, efa } = tally;
            json!({ "usable": tally.usable(), "infiniband": infiniband, "roce": roce, "efa": efa })
        };
        let mut facts = json!({
            "job": self.name.as_str(),
            "heard": self.has_heard(),
            "sealed": self.sealed.is_some(),
            "generation": self.lineage.generation,
            "leader": progress.map(|progress| peer(&progress.leader)),
            "joined": progress.map(|progress| progress.joined),
            "world": progress.map(|progress| progress.world.max().get()),
            "missing": progress.map(missing),
            "rdma": leader.and_then(|(.., rdma)| rdma).map(rdma),
            "running": self.running(now),
            "nodes": self.rows(now).iter().map(node).collect::<Vec<_>>(),
        });
        add_fewest(&mut facts, progress.map(|progress| progress.world));
        facts
    }

    fn has_heard(&self) -> bool {
        let has_message = self.heard.is_some() || self.over.is_some();
        has_message || self.sealed.is_some() || self.version.is_some()
    }

    fn silence(&self) -> String {
        format!(
            "nothing was heard of job {}: it is neither forming nor running under 'mingle run' with --max-restarts \
             or --workers, or has another secret than this watch, or multicast does not pass between its nodes and this host; \
             see 'mingle doctor'",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use mingle_core::proto::Peer;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(node: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, node], 29503))
    }

    /// Of the run of the job that has this origin.
    fn of_run(origin: u64, node: u8, generation: u32, observed: Observed) -> Sighting {
        Sighting::Node(NodeId([node; 16]), Lineage { generation, origin }, observed)
    }

    fn sighting(node: u8, generation: u32, observed: Observed) -> Sighting {
        of_run(1, node, generation, observed)
    }

    fn leads(node: u8, joined: u32, newest: &[&str]) -> Observed {
        let progress = Progress {
            joined,
            world: "4".parse().unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: vec![RankRange { first: 3, last: 3 }],
            leader: Peer { host: HostName::new(&format!("node-{node}")), address: at(node) },
        };
        Observed::Leads(progress, Some(Tally { roce: joined - 1, ..Tally::default() }))
    }

    fn job() -> WatchedJob {
        WatchedJob::new("foo".parse().unwrap(), None, NodeId([99; 16]))
    }

    /// The hosts that are shown, each with its state.
    fn states(job: &WatchedJob, now: Duration) -> Vec<String> {
        job.rows(now).iter().map(|row| format!("{} {}", row.host, row.state)).collect()
    }

    #[test]
    fn the_leader_of_the_most_is_shown_first_and_each_node_is_a_part() {
        let mut job = job();
        assert_eq!(job.state(seconds(0)).head, ["job foo: nothing heard so far"]);
        job.observe(seconds(1), at(2), sighting(2, 0, leads(2, 1, &[])));
        job.observe(seconds(1), at(3), sighting(3, 0, Observed::Seeks(HostName::new("node-3"))));
        job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 3, &["node-2", "node-9"])));
        let Picture { head, parts } = job.state(seconds(1));
        assert_eq!(
            head,
            [
                "job foo: 3 of 4 nodes here, missing rank 3",
                "node-1 (10.0.0.1:29503) leads",
                "RDMA: 2 of 3, RoCE"
            ]
        );
        assert_eq!(
            parts,
            [
                "node-1 (10.0.0.1:29503) leads",
                "node-2 (10.0.0.2:29503) joined",
                "node-3 (10.0.0.3:29503) seeks",
                "node-9 joined"
            ]
        );
        let document = job.document(seconds(2));
        assert_eq!((&document["joined"], &document["leader"]["host"]), (&json!(3), &json!("node-1")));
        assert_eq!(document["rdma"], json!({ "usable": 2, "infiniband": 0, "roce": 2, "efa": 0 }));
        assert_eq!(document["nodes"].as_array().unwrap().len(), 4);
        assert!(job.head(seconds(20))[1].contains("is silent"), "a leader sends every 1.25 s");
    }

    #[test]
    fn a_newer_generation_replaces_the_nodes_and_an_older_one_is_ignored() {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 2, &[])));
        job.observe(seconds(2), at(1), sighting(1, 1, Observed::Over(2, End::Exited(3))));
        assert_eq!(job.state(seconds(2)).parts[0], "the world ended: rank 2, exit code 3");
        assert_eq!(states(&job, seconds(2)), ["node-1 leads"]);
        job.observe(seconds(3), at(4), sighting(4, 1, leads(4, 1, &[])));
        job.observe(seconds(3), at(1), sighting(1, 0, leads(1, 4, &[])));
        assert_eq!(states(&job, seconds(3)), ["node-4 leads"]);
        assert_eq!(job.head(seconds(3))[1], "node-4 (10.0.0.4:29503) leads, generation 1");
    }

    #[test]
    fn a_sealed_job_is_shown_without_its_nodes() {
        let mut job = job();
        assert!(!job.has_heard());
        job.observe(seconds(1), at(1), Sighting::Sealed);
        assert!(job.has_heard() && job.document(seconds(1))["sealed"] == true);
        let Picture { head, parts } = job.state(seconds(1));
        assert!(head == ["job foo: heard, but sealed"] && parts[0].contains("--secret-file"), "{parts:?}");
    }

    #[test]
    fn a_new_run_is_shown_once_the_earlier_one_is_silent() {
        for (origin, generation) in [(0, 0), (2, 1), (2, 7)] {
            let mut job = job();
            job.observe(seconds(1), at(1), sighting(1, 1, leads(1, 2, &[])));
            let new = || of_run(origin, 2, generation, leads(2, 1, &[]));
            job.observe(seconds(5), at(2), new());
            assert_eq!(states(&job, seconds(5)), ["node-1 leads"]);
            job.observe(seconds(7), at(2), new());
            assert_eq!(states(&job, seconds(7)), ["node-2 leads"]);
        }
    }

    #[test]
    fn a_restart_is_shown_at_once_and_a_forged_one_only_while_it_sends() {
        let mut job = job();
        job.observe(seconds(1), at(1), of_run(0, 1, 0, leads(1, 2, &[])));
        job.observe(seconds(1), at(2), sighting(2, 1, leads(2, 2, &[])));
        assert_eq!(states(&job, seconds(1)), ["node-2 leads"]);
        job.observe(seconds(2), at(9), sighting(9, u32::MAX, leads(9, 4, &[])));
        for second in 3..=8 {
            job.observe(seconds(second), at(2), sighting(2, 1, leads(2, 2, &[])));
        }
        assert_eq!(states(&job, seconds(8)), ["node-2 leads"]);
    }

    #[test]
    fn a_node_that_left_is_no_longer_shown_as_joined() {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, 0, leads(1, 2, &["b"])));
        job.observe(seconds(2), at(1), sighting(1, 0, leads(1, 3, &["c"])));
        assert_eq!(states(&job, seconds(2)), ["node-1 leads", "b joined", "c joined"]);
        job.observe(seconds(3), at(1), sighting(1, 0, leads(1, 2, &["c"])));
        assert_eq!(states(&job, seconds(3)), ["node-1 leads", "c joined"]);
        // The names of a leader with fewer members are ignored until the other is silent.
        job.observe(seconds(4), at(2), sighting(2, 0, leads(2, 1, &["d"])));
        assert_eq!(states(&job, seconds(4)).len(), 3);
        job.observe(seconds(9), at(2), sighting(2, 0, leads(2, 3, &[])));
        assert_eq!(states(&job, seconds(9)), ["node-2 leads"]);
    }

    #[test]
    fn a_flood_of_nodes_is_bounded_and_hides_the_others_only_while_it_lasts() {
        let mut job = job();
        for number in 0..20_000_u128 {
            let host = HostName::new(&format!("h{number}"));
            let id = NodeId((number + 1).to_be_bytes());
            job.observe(
                seconds(1),
                at(1),
                Sighting::Node(id, Lineage::default(), Observed::Seeks(host.clone())),
            );
            job.count(NodeId([5; 16]), 2, vec![host]);
        }
        assert_eq!((job.nodes.len(), job.named.len()), (MOST, MOST));
        job.observe(seconds(7), at(1), of_run(0, 1, 0, leads(1, 2, &["b"])));
        assert!(states(&job, seconds(7)) == ["node-1 leads", "b joined"]);
    }
}
