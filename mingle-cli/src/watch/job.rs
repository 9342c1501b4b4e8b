//! One job: what its nodes send to all while they form a world, and what the members of a running world
//! answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::{Keys, Lineage, NodeId, Progress};
use mingle_core::tools::{Doing, Observed, Observer, Reply, Sighting};
use mingle_core::{HostName, JobId};
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
    observer: Observer,
    nodes: BTreeMap<NodeId, HeardNode>,
    /// The members that the leader has named, and the leader's count of members then.
    named: BTreeSet<HostName>,
    counted: Option<(NodeId, u32)>,
    /// The world that is shown, if the job runs, and when it was heard last.
    epoch: Lineage,
    heard: Option<Duration>,
    /// How the world ended that ended last.
    over: Option<String>,
    /// Who sent a datagram last that could not be read, and why it could not.
    unread: Option<String>,
}

/// A node that was heard itself.
#[derive(Debug)]
struct HeardNode {
    host: HostName,
    address: SocketAddr,
    last: Duration,
    does: Observed,
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

/// A running world, as those of its members show it that are not silent.
#[derive(Debug, Serialize)]
struct RunState {
    world: u32,
    answered: usize,
    restarts_left: Option<u32>,
    /// The lowest ranks that some member suspects.
    suspected: BTreeSet<u32>,
    /// The nodes that wait for a seat.
    waiting: u32,
    /// Whether the world is over, as all say that answer.
    #[serde(skip)]
    is_over: bool,
}

fn state(doing: Doing) -> &'static str {
    match doing {
        Doing::Runs => "runs",
        Doing::Finished => "finished",
        Doing::Over => "over",
    }
}

impl WatchedJob {
    pub(super) fn new(name: JobId, keys: Option<&Keys>, id: NodeId) -> Self {
        Self {
            observer: Observer::new(name.tag(), keys, id),
            name,
            nodes: BTreeMap::new(),
            named: BTreeSet::new(),
            counted: None,
            epoch: Lineage::default(),
            heard: None,
            over: None,
            unread: None,
        }
    }

    fn observe(&mut self, now: Duration, from: SocketAddr, sighting: Sighting) {
        let (id, observed) = match sighting {
            Sighting::Sealed => {
                return self.unread =
                    Some(format!("{from} has another secret, or none: give the job's own --secret-file"));
            }
            Sighting::Version(version) => {
                return self.unread = Some(format!("{from} speaks protocol version {version}"));
            }
            Sighting::Node(id, observed) => (id, observed),
        };
        let (host, address, epoch) = match &observed {
            Observed::Leads(Progress { leader, .. }) => {
                (leader.host.clone(), leader.address, Lineage::default())
            }
            Observed::Seeks(host) => (host.clone(), from, Lineage::default()),
            Observed::Runs(runs) => (runs.host.clone(), from, runs.epoch),
        };
        if !self.admits(now, epoch) {
            return;
        }
        if let Observed::Runs(Reply { ended: Some((rank, end)), .. }) = observed {
            self.over = Some(format!("the world ended: rank {rank}, {end}"));
        }
        if self.epoch != epoch {
            self.epoch = epoch;
            self.nodes.clear();
            self.named.clear();
        }
        self.heard = Some(now);
        if has_room(&mut self.nodes, &id, MOST, |node| is_silent(now, node.last)) {
            self.nodes.insert(id, HeardNode { host, address, last: now, does: observed });
        }
        if let Some((leader, progress)) = self.leader(now).filter(|(leader, _)| *leader == id) {
            self.count(leader, progress.joined, progress.newest.clone());
        }
    }

    /// Whether a datagram of this epoch counts: of the epoch that is shown, or of a restart after it.
    /// Datagrams of an earlier world and of another run of the job are ignored, until the epoch that is shown
    /// falls silent: a new run begins at generation 0, and a stranger can forge a generation that no restart
    /// will ever reach.
    fn admits(&self, now: Duration, epoch: Lineage) -> bool {
        let ours = self.epoch;
        let is_restart = epoch > ours && (ours.origin == 0 || ours.origin == epoch.origin);
        epoch == ours || is_restart || self.heard.is_none_or(|at| is_silent(now, at))
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
        let leaders = self.loud(now).filter_map(|(id, node)| match &node.does {
            Observed::Leads(progress) => Some((id, progress)),
            _ => None,
        });
        leaders.max_by_key(|(id, progress)| (progress.joined, Reverse(*id)))
    }

    /// The world that runs; none where no member answers.
    fn running(&self, now: Duration) -> Option<RunState> {
        let members = self.loud(now).filter_map(|(_, node)| match &node.does {
            Observed::Runs(runs) => Some(runs),
            _ => None,
        });
        let members: Vec<&Reply> = members.collect();
        Some(RunState {
            world: members.first()?.world,
            answered: members.len(),
            restarts_left: members.iter().filter_map(|runs| runs.restarts_left).min(),
            suspected: members.iter().flat_map(|runs| runs.suspected.iter()).copied().collect(),
            waiting: members.iter().map(|runs| runs.waiting).max().unwrap_or_default(),
            is_over: members.iter().all(|runs| runs.doing == Doing::Over),
        })
    }

    /// The nodes that are here, and the suspected ones, which may be silent.
    fn rows(&self, now: Duration) -> Vec<NodeRow> {
        let leader = self.leader(now).map(|(id, _)| id);
        let suspected = self.running(now).map(|running| running.suspected).unwrap_or_default();
        let row = |(id, node): (&NodeId, &HeardNode)| {
            let (rank, state) = match &node.does {
                Observed::Runs(runs) if suspected.contains(&runs.rank) => (Some(runs.rank), "suspected"),
                _ if is_silent(now, node.last) => return None,
                Observed::Runs(runs) => (Some(runs.rank), state(runs.doing)),
                _ if leader == Some(*id) => (None, "leads"),
                _ if self.named.contains(&node.host) => (None, "joined"),
                _ => (None, "seeks"),
            };
            Some(NodeRow { rank, host: node.host.clone(), address: Some(node.address), state })
        };
        let mut rows: Vec<NodeRow> = self.nodes.iter().filter_map(row).collect();
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
        let (name, generation) = (&self.name, self.epoch.generation);
        if let Some((_, progress)) = self.leader(now) {
            return format!("job {name}: {progress}; {} leads", progress.leader);
        }
        let Some(RunState { world, answered, restarts_left, suspected, waiting, is_over }) =
            self.running(now)
        else {
            return match self.loud(now).count() {
                0 if self.nodes.is_empty() => format!("job {name}: no node heard so far"),
                0 => format!("job {name} is silent: its world has formed or has ended, or is out of reach"),
                count => format!("job {name}: {count} nodes heard, and none leads"),
            };
        };
        let left = restarts_left.map(|left| format!("restarts left: {left}"));
        let ranks: Vec<String> = suspected.iter().map(u32::to_string).collect();
        let suspected = (!ranks.is_empty()).then(|| format!("suspected to be gone: {}", ranks.join(" ")));
        let waiting = (waiting > 0).then(|| format!("waiting for a seat: {waiting}"));
        let does = if is_over { "forms its next world" } else { "runs" };
        let runs = format!("job {name} {does}: {answered} of {world} nodes answer, generation {generation}");
        [Some(runs), left, suspected, waiting].into_iter().flatten().collect::<Vec<_>>().join(", ")
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
        let mut facts = json!({
            "job": self.name.as_str(),
            "heard": self.silence().is_none(),
            "unread": self.unread,
            "generation": self.epoch.generation,
            "joined": progress.map(|progress| progress.joined),
            "missing": progress.map(|progress| rank_ranges(&progress.missing)),
            "running": self.running(now),
            "nodes": self.rows(now),
        });
        add_world(&mut facts, progress.map(|progress| progress.world));
        facts
    }

    fn silence(&self) -> Option<String> {
        (self.heard.is_none() && self.over.is_none() && self.unread.is_none()).then(|| {
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
    use mingle_core::End;
    use mingle_core::error::RankRange;
    use mingle_core::proto::Peer;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(node: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, node], 29503))
    }

    fn sighting(node: u8, observed: Observed) -> Sighting {
        Sighting::Node(NodeId([node; 16]), observed)
    }

    /// A member of a world of the run of the job that has this origin.
    fn runs(node: u8, origin: u64, generation: u32) -> Sighting {
        let runs = Reply {
            epoch: Lineage { generation, origin },
            host: HostName::new(&format!("node-{node}")),
            rank: 0,
            world: 3,
            doing: Doing::Runs,
            restarts_left: Some(2),
            suspected: [].into_iter().collect(),
            waiting: 0,
            ended: Some((2, End::Exited(3))),
        };
        sighting(node, Observed::Runs(runs))
    }

    fn leads(node: u8, joined: u32, newest: &[&str]) -> Observed {
        let progress = Progress {
            joined,
            world: "4".parse().unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: vec![RankRange { first: 3, last: 3 }],
            leader: Peer { host: HostName::new(&format!("node-{node}")), address: at(node) },
        };
        Observed::Leads(progress)
    }

    fn job() -> WatchedJob {
        WatchedJob::new("foo".parse().unwrap(), None, NodeId([99; 16]))
    }

    /// The hosts that are shown, each with its state.
    fn states(job: &WatchedJob, now: Duration) -> Vec<String> {
        job.rows(now).iter().map(|row| format!("{} {}", row.host, row.state)).collect()
    }

    #[test]
    fn the_leader_of_the_most_is_named_and_each_node_has_a_line() {
        let mut job = job();
        assert_eq!(job.lines(seconds(0)), ["job foo: no node heard so far"]);
        job.observe(seconds(1), at(2), sighting(2, leads(2, 1, &[])));
        job.observe(seconds(1), at(3), sighting(3, Observed::Seeks(HostName::new("node-3"))));
        job.observe(seconds(1), at(1), sighting(1, leads(1, 3, &["node-2", "node-9"])));
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
    fn a_newer_generation_replaces_the_nodes_and_an_older_one_is_ignored() {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, leads(1, 2, &[])));
        job.observe(seconds(2), at(3), runs(3, 1, 1));
        assert!(job.lines(seconds(2)).contains(&"the world ended: rank 2, exit code 3".to_owned()));
        job.observe(seconds(3), at(4), runs(4, 1, 0));
        job.observe(seconds(3), at(1), sighting(1, leads(1, 4, &[])));
        assert_eq!(states(&job, seconds(3)), ["node-3 runs"]);
        assert!(job.summary(seconds(3)).contains("generation 1"), "{}", job.summary(seconds(3)));
    }

    #[test]
    fn a_sealed_job_is_shown_without_its_nodes() {
        let mut job = job();
        assert!(job.silence().is_some());
        job.observe(seconds(1), at(1), Sighting::Sealed);
        assert!(job.silence().is_none() && job.document(seconds(1))["unread"].is_string());
        assert!(job.lines(seconds(1))[1].contains("--secret-file"));
    }

    #[test]
    fn a_new_run_is_shown_once_the_earlier_one_is_silent() {
        for (new, state) in [
            (sighting(2, leads(2, 1, &[])), "node-2 leads"),
            (runs(2, 2, 1), "node-2 runs"),
            (runs(2, 2, 7), "node-2 runs"),
        ] {
            let mut job = job();
            job.observe(seconds(1), at(1), runs(1, 1, 1));
            job.observe(seconds(5), at(2), new.clone());
            assert_eq!(states(&job, seconds(5)), ["node-1 runs"]);
            job.observe(seconds(7), at(2), new);
            assert_eq!(states(&job, seconds(7)), [state]);
        }
    }

    #[test]
    fn a_restart_is_shown_at_once_and_a_forged_one_only_while_it_sends() {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, leads(1, 2, &[])));
        job.observe(seconds(1), at(2), runs(2, 1, 1));
        assert_eq!(states(&job, seconds(1)), ["node-2 runs"]);
        job.observe(seconds(2), at(9), runs(9, 1, u32::MAX));
        for second in 3..=8 {
            job.observe(seconds(second), at(2), runs(2, 1, 1));
        }
        assert_eq!(states(&job, seconds(8)), ["node-2 runs"]);
    }

    #[test]
    fn a_node_that_left_is_no_longer_shown_as_joined() {
        let mut job = job();
        job.observe(seconds(1), at(1), sighting(1, leads(1, 2, &["b"])));
        job.observe(seconds(2), at(1), sighting(1, leads(1, 3, &["c"])));
        assert_eq!(states(&job, seconds(2)), ["b joined", "c joined", "node-1 leads"]);
        job.observe(seconds(3), at(1), sighting(1, leads(1, 2, &["c"])));
        assert_eq!(states(&job, seconds(3)), ["c joined", "node-1 leads"]);
        // The names of a leader with fewer members are ignored until the other is silent.
        job.observe(seconds(4), at(2), sighting(2, leads(2, 1, &["d"])));
        assert_eq!(states(&job, seconds(4)).len(), 3);
        job.observe(seconds(9), at(2), sighting(2, leads(2, 3, &[])));
        assert_eq!(states(&job, seconds(9)), ["node-2 leads"]);
    }

    #[test]
    fn a_flood_of_nodes_is_bounded_and_hides_the_others_only_while_it_lasts() {
        let mut job = job();
        for number in 0..20_000_u128 {
            let host = HostName::new(&format!("h{number}"));
            let id = NodeId((number + 1).to_be_bytes());
            job.observe(seconds(1), at(1), Sighting::Node(id, Observed::Seeks(host.clone())));
            job.count(NodeId([5; 16]), 2, vec![host]);
        }
        assert_eq!((job.nodes.len(), job.named.len()), (MOST, MOST));
        job.observe(seconds(7), at(1), sighting(1, leads(1, 2, &["b"])));
        assert!(states(&job, seconds(7)) == ["b joined", "node-1 leads"]);
    }
}
