//! A bounded record of what a node has heard, for the report at its deadline.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::model::{HostName, NodeId, Peer};
use crate::proto::config::Config;
use crate::proto::report::{Heard, OtherJob, OtherSize, RankRange, Report};
use crate::proto::timer::Time;
use crate::wire::Candidate;

/// The most nodes that are remembered.
const NODES: usize = 256;
/// The most other versions that are remembered.
const VERSIONS: usize = 8;
/// The most senders of unauthentic datagrams, and the most nodes with another size of the world, that are
/// remembered.
const SOURCES: usize = 16;
/// Candidates are one world's within a second, also if much is lost.
const APART: Duration = Duration::from_secs(10);
/// A candidate announces itself once a second. One that is silent for so long has ended or follows another.
const PAUSE: Duration = Duration::from_secs(4);

/// The nodes that were here at one time, and those that were missing.
#[derive(Debug, Clone, Default)]
pub(super) struct Here {
    pub(super) joined: u32,
    pub(super) missing: Vec<RankRange>,
    /// The hosts of the user's list that were missing.
    pub(super) absent: Vec<String>,
    /// The members, which only a leader knows.
    pub(super) members: Vec<Heard>,
}

/// A candidate that neither joins nor is joined.
#[derive(Debug, Clone)]
struct Apart {
    peer: Peer,
    since: Time,
    heard: Time,
    /// The user knows.
    is_told: bool,
}

impl Apart {
    fn is_heard(&self, now: Time) -> bool {
        now <= self.heard + PAUSE
    }

    fn is_long(&self) -> bool {
        self.heard >= self.since + APART
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    nodes: BTreeMap<NodeId, Heard>,
    /// Hosts that a leader has named.
    hosts: BTreeSet<HostName>,
    versions: BTreeMap<u8, SocketAddr>,
    /// How many datagrams of this job came from each sender that were sealed with another secret or none.
    unauthentic: BTreeMap<IpAddr, u64>,
    /// How many of these came from senders that are not remembered.
    unauthentic_others: u64,
    jobs: Vec<OtherJob>,
    /// A multicast of this node has come back to it.
    hears_itself: bool,
    /// This host drops the multicasts that it sends itself.
    is_deaf: bool,
    /// The candidates that announce themselves, although this node follows none of them.
    apart: BTreeMap<NodeId, Apart>,
    /// The nodes that expect a world of another size.
    sizes: BTreeMap<NodeId, OtherSize>,
    /// The most nodes that were here at once.
    most: Here,
    /// A node that may lead was heard.
    candidate: bool,
    /// The leaders that this node has joined.
    leaders: BTreeSet<NodeId>,
    /// The last candidate that did not answer.
    unanswered: Option<Peer>,
    /// The last leader that answered, but was not reached over TCP.
    unreached: Option<(Peer, Vec<SocketAddr>)>,
    /// The last node that said that the job runs.
    running: Option<SocketAddr>,
}

impl Memory {
    /// A node was heard, from this source address and with this given rank.
    pub(super) fn node(&mut self, id: NodeId, host: &HostName, source: SocketAddr, rank: Option<u32>) {
        let is_full = self.nodes.len() >= NODES;
        match self.nodes.entry(id) {
            Entry::Occupied(mut known) => {
                let heard = known.get_mut();
                (heard.address, heard.rank) = (Some(source), rank);
                // Most datagrams repeat what is known.
                if heard.host != *host {
                    heard.host = host.clone();
                }
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(new) => {
                new.insert(Heard { host: host.clone(), address: Some(source), rank });
            }
        }
    }

    /// Whether nothing of this job was heard.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.versions.is_empty()
            && self.unauthentic.is_empty()
            && self.running.is_none()
    }

    pub(super) fn knows(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// The leader has named these hosts.
    pub(super) fn named(&mut self, hosts: &[HostName]) {
        for host in hosts {
            if self.hosts.len() < NODES {
                self.hosts.insert(host.clone());
            }
        }
    }

    /// A datagram of another version of the protocol has arrived. Returns whether that is news.
    pub(super) fn version(&mut self, version: u8, from: SocketAddr) -> bool {
        let is_news = self.versions.len() < VERSIONS && !self.versions.contains_key(&version);
        if is_news {
            self.versions.insert(version, from);
        }
        is_news
    }

    /// A datagram that is not authentic has arrived. Returns whether it is the first of a sender that is
    /// remembered.
    pub(super) fn unauthentic(&mut self, from: IpAddr) -> bool {
        if self.unauthentic.len() < SOURCES || self.unauthentic.contains_key(&from) {
            let count = self.unauthentic.entry(from).or_default();
            *count += 1;
            return *count == 1;
        }
        self.unauthentic_others += 1;
        false
    }

    /// A node expects a world of another size. Returns whether that is news.
    pub(super) fn size(&mut self, id: NodeId, other: OtherSize) -> bool {
        self.sizes.len() < SOURCES && self.sizes.insert(id, other).is_none()
    }

    /// These jobs form on the link, and nobody of this one was heard.
    pub(super) fn silence(&mut self, jobs: Vec<OtherJob>, is_deaf: bool) {
        (self.jobs, self.is_deaf) = (jobs, is_deaf);
    }

    /// A multicast of this node has arrived.
    pub(super) fn echo(&mut self) {
        self.hears_itself = true;
    }

    pub(super) fn hears_itself(&self) -> bool {
        self.hears_itself
    }

    /// A candidate announces itself to all, and this node follows another or leads. Returns whether it has
    /// done so for [`APART`] by now, which is told once.
    pub(super) fn apart(&mut self, candidate: &Candidate, now: Time) -> bool {
        if self.apart.len() >= SOURCES && !self.apart.contains_key(&candidate.id) {
            self.apart.retain(|_, other| other.is_heard(now));
            if self.apart.len() >= SOURCES {
                return false;
            }
        }
        let new = || Apart { peer: candidate.peer(), since: now, heard: now, is_told: false };
        let apart = self.apart.entry(candidate.id).or_insert_with(new);
        if !apart.is_heard(now) {
            apart.since = now;
        }
        apart.heard = now;
        apart.is_long() && !std::mem::replace(&mut apart.is_told, true)
    }

    /// It has joined this node, or this node follows it.
    pub(super) fn together(&mut self, id: NodeId) {
        if let Some(apart) = self.apart.get_mut(&id) {
            apart.since = apart.heard;
        }
    }

    /// The candidates that are still heard, and have been apart for long.
    fn still_apart(&self, now: Time) -> Vec<Peer> {
        let is_apart = |apart: &&Apart| apart.is_heard(now) && apart.is_long();
        self.apart.values().filter(is_apart).map(|apart| apart.peer.clone()).collect()
    }

    /// How many nodes were here at once, at most.
    pub(super) fn most(&self) -> u32 {
        self.most.joined
    }

    pub(super) fn here(&mut self, here: Here) {
        self.most = here;
    }

    /// A node that may lead was heard.
    pub(super) fn candidate(&mut self) {
        self.candidate = true;
    }

    /// This node has joined a leader, whatever has failed before.
    pub(super) fn joined(&mut self, leader: NodeId) {
        self.unreached = None;
        self.unanswered = None;
        if self.leaders.len() < NODES {
            self.leaders.insert(leader);
        }
    }

    /// A leader that this node had joined has ended; of any other, something keeps the answers away.
    pub(super) fn not_answered(&mut self, id: NodeId, candidate: Peer) {
        if !self.leaders.contains(&id) {
            self.unanswered = Some(candidate);
        }
    }

    pub(super) fn not_reached(&mut self, leader: Peer, endpoints: Vec<SocketAddr>) {
        self.unreached = Some((leader, endpoints));
    }

    /// A node has said that the job runs. Returns whether that is news.
    pub(super) fn running(&mut self, from: SocketAddr) -> bool {
        self.running.replace(from).is_none()
    }

    /// The report of a node that knows nothing beside this.
    pub(super) fn report(&self, config: &Config, now: Time) -> Report {
        let Here { joined, missing, members, absent } = self.most.clone();
        Report {
            joined: joined.max(1),
            heard: if members.is_empty() { self.heard(&config.node.host) } else { members },
            missing,
            absent,
            sizes: self.sizes.values().cloned().collect(),
            jobs: self.jobs.clone(),
            is_deaf: self.is_deaf,
            apart: self.still_apart(now),
            unreached: self.unreached.clone(),
            unanswered: self.unanswered.clone(),
            nobody_leads: !config.is_candidate() && !self.candidate,
            running: self.running,
            versions: self.versions.iter().map(|(&version, &from)| (version, from)).collect(),
            unauthentic: self.unauthentic.iter().map(|(&from, &count)| (from, count)).collect(),
            unauthentic_others: self.unauthentic_others,
            ..Report::new(config.world, config.node.rank)
        }
    }

    /// The names of the nodes that were heard, with their addresses.
    pub(super) fn hosts(&self) -> impl Iterator<Item = (&HostName, IpAddr)> {
        self.nodes.values().filter_map(|heard| Some((&heard.host, heard.address?.ip())))
    }

    /// The nodes that were heard and the hosts that a leader has named, without this host, in order.
    fn heard(&self, me: &HostName) -> Vec<Heard> {
        let known: BTreeSet<&HostName> = self.nodes.values().map(|heard| &heard.host).collect();
        let named = self.hosts.iter().filter(|host| !known.contains(host) && *host != me);
        let named = named.map(|host| Heard { host: host.clone(), address: None, rank: None });
        let mut all: Vec<Heard> = self.nodes.values().cloned().chain(named).collect();
        all.sort();
        all.truncate(Report::NAMES);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WorldSize;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 29500))
    }

    #[test]
    fn the_first_eight_versions_and_sixteen_strangers_are_remembered_and_are_news_once() {
        let mut memory = Memory::default();
        assert!(memory.is_empty());
        for last in 1..=20 {
            assert_eq!(memory.version(last, address(last)), last <= 8);
            assert!(!memory.version(last, address(99)));
            assert_eq!(memory.unauthentic(address(last).ip()), last <= 16);
            assert!(!memory.unauthentic(address(last).ip()));
            for is_news in [last <= 16, false] {
                let other =
                    OtherSize { host: HostName::new("a"), address: address(last), size: WorldSize::of(5) };
                assert_eq!(memory.size(NodeId([last; 16]), other), is_news);
            }
        }
        assert_eq!(memory.sizes.len(), 16);
        assert_eq!(memory.versions, (1..=8).map(|last| (last, address(last))).collect());
        let strangers: BTreeMap<_, _> = (1..=16).map(|last| (address(last).ip(), 2)).collect();
        assert_eq!((&memory.unauthentic, memory.unauthentic_others), (&strangers, 8));
        assert!(!memory.is_empty());
    }

    #[test]
    fn the_first_256_nodes_and_hosts_are_remembered_and_of_those_what_they_said_last() {
        let mut memory = Memory::default();
        let id = |number: u16| NodeId(u128::from(number).to_be_bytes());
        let hosts: Vec<HostName> = (0..300).map(|number| HostName::new(&format!("n{number}"))).collect();
        for (number, host) in (0..).zip(&hosts) {
            memory.node(id(number), host, address(1), None);
            memory.named(std::slice::from_ref(host));
        }
        let known: Vec<u16> = (0..300).filter(|&number| memory.knows(id(number))).collect();
        assert_eq!(known, (0..256).collect::<Vec<_>>());
        assert_eq!(memory.hosts, hosts[..256].iter().cloned().collect());
        memory.node(id(255), &hosts[255], address(2), Some(7));
        let heard = Heard { host: hosts[255].clone(), address: Some(address(2)), rank: Some(7) };
        assert_eq!(memory.nodes[&id(255)], heard);
    }

    #[test]
    fn a_candidate_apart_for_10_s_without_a_pause_is_told_once_and_invented_ones_make_room() {
        let mut memory = Memory::default();
        let candidate = |number: u8| Candidate {
            id: NodeId([number; 16]),
            explicit: false,
            members: 1,
            world: WorldSize::of(4),
            host: HostName::new("a"),
            endpoints: address(number).into(),
        };
        let second = |second: u64| Time::from_secs(100 + second);
        let told = |memory: &mut Memory, seconds: std::ops::Range<u64>| -> Vec<u64> {
            seconds.filter(|&now| memory.apart(&candidate(1), second(now))).collect()
        };
        assert!(told(&mut memory, 0..9).is_empty());
        // It is silent for more than a pause, and begins anew.
        assert_eq!(told(&mut memory, 20..60), [30]);
        assert_eq!(memory.still_apart(second(61)).len(), 1);
        memory.together(candidate(1).id);
        assert!(memory.still_apart(second(61)).is_empty());
        for number in 2..=255 {
            assert!(!memory.apart(&candidate(number), second(60)));
        }
        assert_eq!(memory.apart.len(), SOURCES);
        assert!(!memory.apart(&candidate(99), second(70)));
        assert_eq!(memory.apart.len(), 1);
    }

    #[test]
    fn whatever_was_heard_of_the_job_is_something() {
        let hear: [fn(&mut Memory); 4] = [
            |memory| memory.node(NodeId([1; 16]), &HostName::new("a"), address(1), None),
            |memory| assert!(memory.version(9, address(1))),
            |memory| assert!(memory.unauthentic(address(1).ip())),
            |memory| assert!(memory.running(address(1))),
        ];
        for (number, hear) in hear.into_iter().enumerate() {
            let mut memory = Memory::default();
            hear(&mut memory);
            assert!(!memory.is_empty(), "{number}");
        }
    }
}
