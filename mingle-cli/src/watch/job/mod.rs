//! One job: what its nodes send to all while they form a world, and what the members of a running world
//! answer.

mod absent;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::error::RankRange;
use mingle_core::proto::{Keys, Lineage, NodeId};
use mingle_core::rdma::Tally;
use mingle_core::tools::{Candidacy, Observed, Observer, Runs, Sighting};
use mingle_core::{End, Expected, HostName, JobId};
use serde_json::{Value, json};

use super::{News, Scene, columns, has_room, is_silent};
use crate::events::add_fewest;
use crate::events::clock::milliseconds;
use crate::progress::duration;

/// The most nodes, and the most hosts named by others, that are remembered: a stranger can send any number.
const MOST: usize = 16_384;

/// The nodes of a job that were heard or named.
#[derive(Debug)]
pub(super) struct Job {
    name: JobId,
    has_secret: bool,
    observer: Observer,
    /// The ID under which this observer asks the members of a running world.
    id: NodeId,
    nodes: BTreeMap<NodeId, HeardNode>,
    /// Hosts that a leader has named: when first, and when last.
    named: BTreeMap<HostName, (Duration, Duration)>,
    /// The leader that counted the members last, and their number.
    counted: Option<(NodeId, u32)>,
    /// The lineage that is shown, and when it was heard last.
    lineage: Lineage,
    heard: Option<Duration>,
    /// The end of a world that was reported last, and the lineage that follows it.
    over: Option<(Lineage, u32, End)>,
    /// The source address of a datagram that the keys did not open.
    sealed: Option<SocketAddr>,
    versions: BTreeMap<u8, SocketAddr>,
    news: News,
    last_line: String,
    expected: Expected,
}

/// A node that was heard itself.
#[derive(Debug)]
struct HeardNode {
    host: HostName,
    address: SocketAddr,
    rank: Option<u32>,
    /// Its last announcement as a leader, and when it came.
    leads: Option<(Candidacy, Duration)>,
    /// Its last answer as a member of a running world.
    runs: Option<Runs>,
    first: Duration,
    last: Duration,
}

/// The leader that the others join.
struct Leader<'a> {
    id: NodeId,
    candidacy: &'a Candidacy,
    is_silent: bool,
}

impl Job {
    pub(super) fn new(name: JobId, keys: Option<&Keys>, id: NodeId) -> Self {
        Self {
            observer: Observer::new(name.tag(), keys),
            id,
            has_secret: keys.is_some(),
            name,
            nodes: BTreeMap::new(),
            named: BTreeMap::new(),
            counted: None,
            lineage: Lineage::default(),
            heard: None,
            over: None,
            sealed: None,
            versions: BTreeMap::new(),
            news: News::default(),
            last_line: String::new(),
            expected: Expected::default(),
        }
    }

    fn observe(&mut self, now: Duration, from: SocketAddr, sighting: Sighting) {
        match sighting.observed {
            Observed::Sealed => self.sealed = Some(from),
            Observed::Version(version) => {
                if self.versions.insert(version, from).is_none() {
                    self.news.push(format!("{from} speaks protocol version {version}"));
                }
            }
            _ if !self.admits(now, sighting.lineage) => {}
            // The message has the lineage that follows, which no node may have joined yet.
            Observed::Over { rank, end } => {
                let over = Some((sighting.lineage, rank, end));
                if self.over != over {
                    self.over = over;
                    self.news.push(format!("the world ended: rank {rank}, {end}"));
                }
            }
            observed @ (Observed::Leads(_)
            | Observed::Seeks { .. }
            | Observed::Hints { .. }
            | Observed::Runs(_)) => {
                if self.lineage != sighting.lineage {
                    self.lineage = sighting.lineage;
                    self.nodes.clear();
                    self.named.clear();
                }
                self.heard = Some(now);
                self.update(now, from, sighting.node, observed);
            }
            // Any other message shows only that its sender is alive.
            _ => {
                if self.lineage == sighting.lineage {
                    self.heard = Some(now);
                }
                if let Some(node) = self.nodes.get_mut(&sighting.node) {
                    node.last = now;
                }
            }
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

    fn update(&mut self, now: Duration, from: SocketAddr, id: NodeId, observed: Observed) {
        match observed {
            Observed::Leads(candidacy) => {
                let (leader, joined) = (candidacy.progress.leader.clone(), candidacy.progress.joined);
                let newest = candidacy.progress.newest.clone();
                if let Some(node) = self.node(now, id, &leader.host, leader.address) {
                    // A candidate has either rank 0 or no given rank.
                    node.rank = candidacy.explicit.then_some(0);
                    node.leads = Some((candidacy, now));
                }
                if self.leader(now).is_some_and(|leader| leader.id == id) {
                    self.count(now, id, joined, &newest);
                }
            }
            Observed::Seeks { host, rank } => {
                if let Some(node) = self.node(now, id, &host, from) {
                    (node.rank, node.leads) = (rank, None);
                }
            }
            Observed::Hints { peer, .. } => self.name(now, &peer.host),
            Observed::Runs(runs) => {
                if let Some(node) = self.node(now, id, &runs.host, from) {
                    (node.rank, node.leads) = (Some(runs.rank), None);
                    node.runs = Some(runs);
                }
            }
            _ => {}
        }
    }

    /// A leader names members that have joined, but not members that have left: when the count falls, or when
    /// another leader counts, the names are stale.
    fn count(&mut self, now: Duration, leader: NodeId, joined: u32, newest: &[HostName]) {
        if self.counted.is_some_and(|(before, were)| before != leader || joined < were) {
            self.named.clear();
        }
        self.counted = Some((leader, joined));
        for host in newest {
            self.name(now, host);
        }
    }

    fn name(&mut self, now: Duration, host: &HostName) {
        if has_room(&mut self.named, host, MOST, |(_, last)| is_silent(now, *last)) {
            self.named.entry(host.clone()).or_insert((now, now)).1 = now;
        }
    }

    /// Adds or updates a node; none where there are too many.
    fn node(&mut self, now: Duration, id: NodeId, host: &HostName, at: SocketAddr) -> Option<&mut HeardNode> {
        if !has_room(&mut self.nodes, &id, MOST, |node| is_silent(now, node.last)) {
            return None;
        }
        if !self.nodes.contains_key(&id) {
            self.news.push(format!("{host} ({at}) is here"));
        }
        let new = || HeardNode {
            host: host.clone(),
            address: at,
            rank: None,
            leads: None,
            runs: None,
            first: now,
            last: now,
        };
        let node = self.nodes.entry(id).or_insert_with(new);
        (node.address, node.last) = (at, now);
        Some(node)
    }

    fn leader(&self, now: Duration) -> Option<Leader<'_>> {
        let all =
            self.nodes.iter().filter_map(|(id, node)| node.leads.as_ref().map(|announced| (*id, announced)));
        let loud = all.clone().filter(|(_, (_, at))| !is_silent(now, *at));
        // Where all are silent, the one that was heard last.
        let best = loud.max_by_key(|(id, (candidacy, _))| candidacy.precedence(*id));
        let (id, (candidacy, at)) = best.or_else(|| all.max_by_key(|(_, (_, at))| *at))?;
        Some(Leader { id, candidacy, is_silent: is_silent(now, *at) })
    }

    /// The lines above the table: progress, leader, RDMA and problems.
    fn lines(&self, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let generation = match self.lineage.generation {
            0 => String::new(),
            generation => format!(", generation {generation}"),
        };
        let name = &self.name;
        match self.leader(now) {
            None if let Some(answers) = self.answers(now) => {
                let host = |rank| {
                    let node = self.nodes.values().find(|node| node.rank == Some(rank))?;
                    Some(&node.host)
                };
                lines.extend(answers.lines(name.as_str(), self.lineage.generation, host));
            }
            Some(Leader { candidacy, is_silent, .. }) => {
                let progress = &candidacy.progress;
                lines.push(format!("job {name}: {progress}"));
                lines.push(if is_silent {
                    format!(
                        "{} led{generation}, and is silent: the world has formed, or the leader is gone",
                        progress.leader
                    )
                } else {
                    format!("{} leads{generation}", progress.leader)
                });
                lines.push(match candidacy.rdma {
                    Some(tally) => format!("RDMA: {}", tally.among(progress.joined)),
                    None => "RDMA: unknown, since no node here has looked for it".to_owned(),
                });
            }
            None if !self.nodes.is_empty() => {
                lines.push(format!(
                    "job {name}: {} heard, and none leads{generation}",
                    if self.nodes.len() == 1 {
                        "1 node".to_owned()
                    } else {
                        format!("{} nodes", self.nodes.len())
                    }
                ));
                lines.push("RDMA: unknown, since no node leads".to_owned());
            }
            None if self.sealed.is_none() => lines.push(format!("job {name}: nothing heard so far")),
            None => lines.push(format!("job {name}: heard, but sealed")),
        }
        if let Some(absent) = self.absent(now).filter(|absent| !absent.is_empty()) {
            lines.push(format!("missing: {}", absent.join(", ")));
        }
        if let Some(from) = self.sealed {
            lines.push(if self.has_secret {
                format!(
                    "{from} sends datagrams that this secret does not open: give the job's own --secret-file"
                )
            } else {
                format!("{from} sends sealed datagrams: give the job's --secret-file to see its nodes")
            });
        }
        lines
    }

    /// The rows of the table, the leader first.
    fn rows(&self, now: Duration) -> Vec<Row<'_>> {
        let leader = self.leader(now).map(|leader| leader.id);
        let answers = self.answers(now);
        let mut rows: Vec<Row<'_>> = self
            .nodes
            .iter()
            .map(|(id, node)| {
                let state = match &node.leads {
                    _ if let (Some(answers), Some(runs)) = (&answers, &node.runs) => {
                        answers.state(now, node, runs)
                    }
                    _ if leader == Some(*id) => State::Leads,
                    _ if self.named.contains_key(&node.host) => State::Joined,
                    _ if is_silent(now, node.last) => State::Silent,
                    Some(_) => State::LeadsToo,
                    None => State::Seeks,
                };
                Row { host: &node.host, node: Some((id, node)), state, first: node.first }
            })
            .collect();
        let heard: BTreeSet<&HostName> = self.nodes.values().map(|node| &node.host).collect();
        let named = self.named.iter().filter(|(host, _)| !heard.contains(host));
        rows.extend(named.map(|(host, (first, _))| {
            let (state, first) = (State::Joined, *first);
            Row { host, node: None, state, first }
        }));
        let rank =
            |row: &Row<'_>| row.node.filter(|(_, node)| node.runs.is_some()).and_then(|(_, node)| node.rank);
        rows.sort_by_key(|row| (row.state != State::Leads, rank(row), row.first));
        rows
    }
}

/// A row of the table.
struct Row<'a> {
    host: &'a HostName,
    /// None for a node that was named by a leader, and not heard itself.
    node: Option<(&'a NodeId, &'a HeardNode)>,
    state: State,
    first: Duration,
}

/// A node's state, as far as its datagrams show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Leads,
    Joined,
    Silent,
    LeadsToo,
    Seeks,
    Runs,
    Finished,
    Suspected,
}

impl State {
    /// As lines and tables show it.
    fn text(self) -> &'static str {
        match self {
            Self::Leads => "leads",
            Self::Joined => "joined",
            Self::Silent => "silent",
            Self::LeadsToo => "also leads",
            Self::Seeks => "seeks",
            Self::Runs => "runs",
            Self::Finished => "finished",
            Self::Suspected => "suspected",
        }
    }

    /// As the JSON document has it: these names stay.
    fn name(self) -> &'static str {
        match self {
            Self::Leads => "gathers",
            Self::LeadsToo => "gathers too",
            _ => self.text(),
        }
    }
}

impl Scene for Job {
    fn question(&mut self) -> Option<Vec<u8>> {
        Some(self.observer.query(self.id))
    }

    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        if let Some(sighting) = self.observer.read(datagram) {
            self.observe(now, from, sighting);
        }
    }

    fn news(&mut self, now: Duration) -> Vec<String> {
        let mut news = self.news.take();
        let line = self.lines(now).join("; ");
        if line != self.last_line {
            self.last_line.clone_from(&line);
            news.push(line);
        }
        news
    }

    fn table(&self, now: Duration) -> String {
        let mut text = self.lines(now).join("\n") + "\n";
        let ago = |at: Duration| format!("{} ago", duration(now.saturating_sub(at)));
        let mut cells = vec![
            ["host", "address", "rank", "state", "first heard", "last heard"].map(str::to_owned).to_vec(),
        ];
        for row in self.rows(now) {
            let of =
                |cell: &dyn Fn(&HeardNode) -> String| row.node.map_or("-".to_owned(), |(_, node)| cell(node));
            cells.push(vec![
                row.host.to_string(),
                of(&|node| node.address.to_string()),
                of(&|node| node.rank.map_or("-".to_owned(), |rank| rank.to_string())),
                row.state.text().to_owned(),
                ago(row.first),
                of(&|node| ago(node.last)),
            ]);
        }
        if cells.len() > 1 {
            text += &columns(&cells);
        }
        text
    }

    fn document(&self, now: Duration) -> Value {
        let ago = |at: Duration| milliseconds(now.saturating_sub(at));
        let nodes: Vec<Value> = self
            .rows(now)
            .iter()
            .map(|row| {
                json!({
                    "host": row.host.as_str(),
                    "id": row.node.map(|(id, _)| format!("{:032x}", u128::from_be_bytes(id.0))),
                    "address": row.node.map(|(_, node)| node.address.ip()),
                    "port": row.node.map(|(_, node)| node.address.port()),
                    "rank": row.node.and_then(|(_, node)| node.rank),
                    "state": row.state.name(),
                    "first_ms_ago": ago(row.first),
                    "last_ms_ago": row.node.map(|(_, node)| ago(node.last)),
                })
            })
            .collect();
        let leader = self.leader(now);
        let rdma = leader.as_ref().and_then(|leader| leader.candidacy.rdma).map(|tally| {
            let Tally { infiniband, roce, efa } = tally;
            json!({ "usable": tally.usable(), "infiniband": infiniband, "roce": roce, "efa": efa })
        });
        let progress = leader.as_ref().map(|leader| &leader.candidacy.progress);
        let missing: Option<Vec<[u32; 2]>> = progress.map(|progress| {
            progress.missing.iter().map(|RankRange { first, last }| [*first, *last]).collect()
        });
        let mut facts = json!({
            "job": self.name.as_str(),
            "heard": self.has_heard(),
            "sealed": self.sealed.is_some(),
            "generation": self.lineage.generation,
            "leader": progress.map(|progress| json!({
                "host": progress.leader.host.as_str(),
                "address": progress.leader.address.ip(),
                "port": progress.leader.address.port(),
            })),
            "joined": progress.map(|progress| progress.joined),
            "world": progress.map(|progress| progress.world.max().get()),
            "missing": missing,
            "absent": self.absent(now),
            "rdma": rdma,
            "running": self.answers(now).map(|answers| answers.document()),
            "nodes": nodes,
            "other_versions": self.versions.keys().collect::<Vec<_>>(),
        });
        add_fewest(&mut facts, progress.map(|progress| progress.world));
        facts
    }

    fn has_heard(&self) -> bool {
        let has_message = self.heard.is_some() || self.over.is_some();
        has_message || self.sealed.is_some() || !self.versions.is_empty()
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
mod tests;
