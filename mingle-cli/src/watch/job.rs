//! One job, as far as its words to all tell of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::error::RankRange;
use mingle_core::proto::{Keys, Lineage, NodeId};
use mingle_core::rdma::Tally;
use mingle_core::tools::{Gathering, Observer, Sighting, Word};
use mingle_core::{End, HostName, JobId};
use serde_json::{Value, json};

use super::{News, Scene, columns, has_place, is_silent};
use crate::events::clock::milliseconds;
use crate::progress::duration;

/// Most nodes, and most names that others tell, which are remembered: a stranger can send any number.
const MOST: usize = 4096;

/// Who was heard of a job.
#[derive(Debug)]
pub(super) struct Job {
    name: JobId,
    has_secret: bool,
    observer: Observer,
    nodes: BTreeMap<NodeId, Node>,
    /// Hosts that somebody has told of: since when, and when last.
    told: BTreeMap<HostName, (Duration, Duration)>,
    /// Who has told of those who have joined, and how many there were.
    counted: Option<(NodeId, u32)>,
    /// The formation that is shown, and when it was heard last.
    lineage: Lineage,
    heard: Option<Duration>,
    /// What was said last of a world's end, and of the formation that follows it.
    over: Option<(Lineage, u32, End)>,
    /// Where a word came from that did not open.
    sealed: Option<SocketAddr>,
    versions: BTreeMap<u8, SocketAddr>,
    news: News,
    said: String,
}

/// A node that was heard itself.
#[derive(Debug)]
struct Node {
    host: HostName,
    address: SocketAddr,
    rank: Option<u32>,
    /// What it has said last of those whom it gathers, and when.
    gathers: Option<(Gathering, Duration)>,
    first: Duration,
    last: Duration,
}

/// The gathering that the others join.
struct Leading<'a> {
    id: NodeId,
    gathering: &'a Gathering,
    is_silent: bool,
}

impl Job {
    pub(super) fn new(name: JobId, keys: Option<&Keys>) -> Self {
        Self {
            observer: Observer::new(name.tag(), keys),
            has_secret: keys.is_some(),
            name,
            nodes: BTreeMap::new(),
            told: BTreeMap::new(),
            counted: None,
            lineage: Lineage::default(),
            heard: None,
            over: None,
            sealed: None,
            versions: BTreeMap::new(),
            news: News::default(),
            said: String::new(),
        }
    }

    fn see(&mut self, now: Duration, from: SocketAddr, sighting: Sighting) {
        match sighting.word {
            Word::Sealed => self.sealed = Some(from),
            Word::Version(version) => {
                if self.versions.insert(version, from).is_none() {
                    self.news.push(format!("{from} speaks protocol version {version}"));
                }
            }
            _ if !self.admits(now, sighting.lineage) => {}
            // It has the lineage of the formation that follows, in which nobody is yet, and perhaps nobody will be.
            Word::Over { rank, end } => {
                let over = Some((sighting.lineage, rank, end));
                if self.over != over {
                    self.over = over;
                    self.news.push(format!("the world is over: rank {rank}, {end}"));
                }
            }
            word @ (Word::Gathers(_) | Word::Seeks { .. } | Word::Hints { .. }) => {
                if self.lineage != sighting.lineage {
                    self.lineage = sighting.lineage;
                    self.nodes.clear();
                    self.told.clear();
                }
                self.heard = Some(now);
                self.understand(now, from, sighting.node, word);
            }
            // It says only that the node is there.
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

    /// Whether a word of this formation counts: of the one that is shown, or of a restart after it. What the former
    /// world still says is of no matter, and neither is another run of the job, unless nothing is heard any more of
    /// what is shown: a new run begins at 0, and anybody can make up a generation that no restart will ever reach.
    fn admits(&self, now: Duration, lineage: Lineage) -> bool {
        let ours = self.lineage;
        let is_restart = lineage > ours && (ours.origin == 0 || ours.origin == lineage.origin);
        lineage == ours || is_restart || self.heard.is_none_or(|at| is_silent(now, at))
    }

    fn understand(&mut self, now: Duration, from: SocketAddr, id: NodeId, word: Word) {
        match word {
            Word::Gathers(gathering) => {
                let (leader, joined) = (gathering.progress.leader.clone(), gathering.progress.joined);
                let newest = gathering.progress.newest.clone();
                if let Some(node) = self.node(now, id, &leader.host, leader.address) {
                    // Of those that may gather only rank 0 can have been given.
                    node.rank = gathering.explicit.then_some(0);
                    node.gathers = Some((gathering, now));
                }
                if self.leading(now).is_some_and(|leading| leading.id == id) {
                    self.count(now, id, joined, &newest);
                }
            }
            Word::Seeks { host, rank } => {
                if let Some(node) = self.node(now, id, &host, from) {
                    (node.rank, node.gathers) = (rank, None);
                }
            }
            Word::Hints { peer, .. } => self.tell(now, &peer.host),
            _ => {}
        }
    }

    /// Who gathers tells who has come, but not who has left: where fewer are there, or another one counts, the names
    /// are of no use.
    fn count(&mut self, now: Duration, leader: NodeId, joined: u32, newest: &[HostName]) {
        if self.counted.is_some_and(|(before, were)| before != leader || joined < were) {
            self.told.clear();
        }
        self.counted = Some((leader, joined));
        for host in newest {
            self.tell(now, host);
        }
    }

    fn tell(&mut self, now: Duration, host: &HostName) {
        if has_place(&mut self.told, host, MOST, |(_, last)| is_silent(now, *last)) {
            self.told.entry(host.clone()).or_insert((now, now)).1 = now;
        }
    }

    /// The node as it is now, unless there are too many.
    fn node(&mut self, now: Duration, id: NodeId, host: &HostName, at: SocketAddr) -> Option<&mut Node> {
        if !has_place(&mut self.nodes, &id, MOST, |node| is_silent(now, node.last)) {
            return None;
        }
        if !self.nodes.contains_key(&id) {
            self.news.push(format!("{host} ({at}) is here"));
        }
        let new =
            || Node { host: host.clone(), address: at, rank: None, gathers: None, first: now, last: now };
        let node = self.nodes.entry(id).or_insert_with(new);
        (node.address, node.last) = (at, now);
        Some(node)
    }

    fn leading(&self, now: Duration) -> Option<Leading<'_>> {
        let all = self.nodes.iter().filter_map(|(id, node)| node.gathers.as_ref().map(|said| (*id, said)));
        let loud = all.clone().filter(|(_, (_, at))| !is_silent(now, *at));
        // Where nobody speaks any more, who has spoken last.
        let best = loud.max_by_key(|(id, (gathering, _))| gathering.precedence(*id));
        let (id, (gathering, at)) = best.or_else(|| all.max_by_key(|(_, (_, at))| *at))?;
        Some(Leading { id, gathering, is_silent: is_silent(now, *at) })
    }

    /// How far it has come, and what is to be said of it.
    fn lines(&self, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let generation = match self.lineage.generation {
            0 => String::new(),
            generation => format!(", generation {generation}"),
        };
        let name = &self.name;
        match self.leading(now) {
            Some(Leading { gathering, is_silent, .. }) => {
                let progress = &gathering.progress;
                lines.push(format!("job {name}: {progress}"));
                lines.push(if is_silent {
                    format!(
                        "{} gathered{generation}, and is silent: the world has formed, or it is gone",
                        progress.leader
                    )
                } else {
                    format!("{} gathers{generation}", progress.leader)
                });
                lines.push(match gathering.rdma {
                    Some(tally) => format!("RDMA: {}", tally.among(progress.joined)),
                    None => "RDMA: unknown, since nobody here has looked for it".to_owned(),
                });
            }
            None if !self.nodes.is_empty() => {
                lines.push(format!("job {name}: {} heard, and nobody gathers{generation}", self.nodes.len()));
                lines.push("RDMA: unknown, since nobody gathers".to_owned());
            }
            None if self.sealed.is_none() => lines.push(format!("job {name}: nothing heard so far")),
            None => lines.push(format!("job {name}: it is here")),
        }
        if let Some(from) = self.sealed {
            lines.push(if self.has_secret {
                format!("{from} says what this secret does not open: give the job's own --secret-file")
            } else {
                format!("{from} says what is sealed: give the job's --secret-file to see who is here")
            });
        }
        lines
    }

    /// Host, address, rank, state, and since when; `None` for the address of whoever was not heard himself.
    fn rows(&self, now: Duration) -> Vec<Row<'_>> {
        let leader = self.leading(now).map(|leading| leading.id);
        let mut rows: Vec<Row<'_>> = self
            .nodes
            .iter()
            .map(|(id, node)| {
                let state = match &node.gathers {
                    _ if leader == Some(*id) => "gathers",
                    _ if self.told.contains_key(&node.host) => "joined",
                    _ if is_silent(now, node.last) => "silent",
                    Some(_) => "gathers too",
                    None => "seeks",
                };
                Row { host: &node.host, node: Some((id, node)), state, first: node.first }
            })
            .collect();
        let heard: BTreeSet<&HostName> = self.nodes.values().map(|node| &node.host).collect();
        let told = self.told.iter().filter(|(host, _)| !heard.contains(host));
        rows.extend(told.map(|(host, (first, _))| Row { host, node: None, state: "joined", first: *first }));
        rows.sort_by_key(|row| (row.state != "gathers", row.first));
        rows
    }
}

struct Row<'a> {
    host: &'a HostName,
    node: Option<(&'a NodeId, &'a Node)>,
    state: &'static str,
    first: Duration,
}

impl Scene for Job {
    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        if let Some(sighting) = self.observer.read(datagram) {
            self.see(now, from, sighting);
        }
    }

    fn news(&mut self, now: Duration) -> Vec<String> {
        let mut news = self.news.take();
        let line = self.lines(now).join("; ");
        if line != self.said {
            self.said.clone_from(&line);
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
            let of = |cell: &dyn Fn(&Node) -> String| row.node.map_or("-".to_owned(), |(_, node)| cell(node));
            cells.push(vec![
                row.host.to_string(),
                of(&|node| node.address.to_string()),
                of(&|node| node.rank.map_or("-".to_owned(), |rank| rank.to_string())),
                row.state.to_owned(),
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
                    "state": row.state,
                    "first_ms_ago": ago(row.first),
                    "last_ms_ago": row.node.map(|(_, node)| ago(node.last)),
                })
            })
            .collect();
        let leading = self.leading(now);
        let rdma = leading.as_ref().and_then(|leading| leading.gathering.rdma).map(|tally| {
            let Tally { infiniband, roce, efa } = tally;
            json!({ "usable": tally.usable(), "infiniband": infiniband, "roce": roce, "efa": efa })
        });
        let progress = leading.as_ref().map(|leading| &leading.gathering.progress);
        let missing: Option<Vec<[u32; 2]>> = progress.map(|progress| {
            progress.missing.iter().map(|RankRange { first, last }| [*first, *last]).collect()
        });
        json!({
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
            "world": progress.map(|progress| progress.world.get()),
            "missing": missing,
            "rdma": rdma,
            "nodes": nodes,
            "other_versions": self.versions.keys().collect::<Vec<_>>(),
        })
    }

    fn has_heard(&self) -> bool {
        let has_words = self.heard.is_some() || self.over.is_some();
        has_words || self.sealed.is_some() || !self.versions.is_empty()
    }

    fn silence(&self) -> String {
        format!(
            "nothing was heard of job {}: it does not gather now, or multicast does not pass from its nodes to this \
             host; see 'mingle doctor'",
            self.name
        )
    }
}

#[cfg(test)]
mod tests;
