//! A bounded record of what a node has heard, for the report at its deadline.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::model::{BrokenPath, Elsewhere, HostName, Misfit, NodeId, Peer, RankRange, Unfit, WorldSize};
use crate::proto::config::Config;
use crate::proto::report::{Heard, OtherJob, Report};
use crate::proto::timer::Time;
use crate::wire::{Candidate, Notice};

/// The most nodes that are remembered.
const NODES: usize = 256;
/// The most other versions that are remembered.
const VERSIONS: usize = 8;
/// The most senders of unauthentic datagrams, and the most nodes that cannot be seated, that are remembered.
const SOURCES: usize = 16;
/// How often nodes at one address must take turns until they count as two hosts: datagrams that overtake each
/// other look like a turn or two.
const TURNS: u32 = 4;
/// The least time between two such turns.
const TURN: Duration = Duration::from_millis(500);
/// Candidates are one world's within a second, also if much is lost.
const APART: Duration = Duration::from_secs(10);
/// A candidate announces itself once a second. One that is silent for so long has ended or follows another.
const PAUSE: Duration = Duration::from_secs(4);

/// How often, and for how long, another user's job must have said that it runs.
const FOREIGN: (u32, Duration) = (3, Duration::from_secs(2));

/// For how long a sender must have sent what is not authentic before the user learns it, and of how many.
const INSISTS: Duration = Duration::from_secs(2);
const TOLD: usize = 4;

/// A sender of datagrams that are not authentic.
#[derive(Debug, Clone, Copy)]
struct Stranger {
    since: Time,
    /// The user has learnt it, or need not.
    is_told: bool,
}

/// A candidate that this node could not join.
#[derive(Debug, Clone)]
pub(super) struct NotJoined {
    pub(super) id: NodeId,
    pub(super) peer: Peer,
    /// Where it was not reached over TCP, although it answered. None if it did not.
    pub(super) endpoints: Vec<SocketAddr>,
    /// When it was heard last; none if its host has refused since, so that it may have ended.
    pub(super) heard: Option<Time>,
    /// When this node failed to join it first, or lost it.
    pub(super) since: Time,
}

impl NotJoined {
    /// A candidate that is silent has ended, and explains nothing.
    fn is_heard(&self, now: Time) -> bool {
        self.heard.is_some_and(|heard| now <= heard + PAUSE)
    }
}

/// Who was heard at an address: the last node, the one before it, how often they took turns, and when.
#[derive(Debug, Clone)]
struct Turns {
    latest: NodeId,
    before: NodeId,
    count: u32,
    last: Time,
}

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
    at: SocketAddr,
    since: Time,
    heard: Time,
}

impl Apart {
    fn is_heard(&self, now: Time) -> bool {
        now <= self.heard + PAUSE
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    nodes: BTreeMap<NodeId, Heard>,
    /// When any node was heard last.
    heard: Option<Time>,
    /// For each of their addresses, who was heard there.
    latest: BTreeMap<SocketAddr, Turns>,
    /// A node that is said to be where another is that is there, since when, and when that was said last.
    twin: Option<(NodeId, Time, Time)>,
    /// Hosts that a leader has named.
    hosts: BTreeSet<HostName>,
    versions: BTreeMap<u8, SocketAddr>,
    /// The senders of datagrams of this job that were sealed with another secret or none.
    unauthentic: BTreeMap<IpAddr, Stranger>,
    pub(super) jobs: Vec<OtherJob>,
    /// A multicast of this node has come back to it.
    pub(super) hears_itself: bool,
    /// This host drops the multicasts that it sends itself.
    pub(super) is_deaf: bool,
    /// The candidates that announce themselves, although this node follows none of them.
    apart: BTreeMap<NodeId, Apart>,
    /// The nodes that cannot be seated beside this one, and whether another node of the host can by now.
    misfits: Vec<(Misfit, bool)>,
    /// When two hosts at one address were heard last.
    shared_address: Option<Time>,
    /// The last path that could not be proved.
    broken: Option<BrokenPath>,
    /// Since when, and how often, nobody but another user's job has said that it runs.
    foreign: Option<(Time, u32)>,
    /// The most nodes that were here at once.
    pub(super) most: Here,
    /// A node that may lead was heard.
    pub(super) candidate: bool,
    /// The leaders that this node has joined.
    leaders: BTreeSet<NodeId>,
    /// The last candidate that could not be joined.
    not_joined: Option<NotJoined>,
    /// This node's endpoint, where others joined and none could connect to it.
    pub(super) unconnectable: Option<SocketAddr>,
    /// An address of the last node with which no connection has opened, where it is in no network of this
    /// host.
    pub(super) elsewhere: Option<Elsewhere>,
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

    /// A node says that it is at this address, from which its datagram came. Returns the other node there, if
    /// the two are heard by turns: a process that replaces another is heard after it.
    pub(super) fn twins(&mut self, id: NodeId, source: SocketAddr, now: Time) -> Option<Misfit> {
        if self.latest.len() >= NODES && !self.latest.contains_key(&source) {
            return None;
        }
        let turns =
            self.latest.entry(source).or_insert(Turns { latest: id, before: id, count: 0, last: now });
        let other = std::mem::replace(&mut turns.latest, id);
        if other == id {
            return None;
        }
        if std::mem::replace(&mut turns.before, other) != id || now > turns.last + PAUSE {
            turns.count = 0;
        } else if now >= turns.last + TURN {
            turns.count += 1;
        } else {
            return None;
        }
        turns.last = now;
        if turns.count < TURNS {
            return None;
        }
        self.shared_address = Some(now);
        let (host, other) = (&self.nodes.get(&id)?.host, &self.nodes.get(&other)?.host);
        Some(Misfit::of_twins(host, other, source))
    }

    /// A node is said to be at this node's own address, or at that of a node whose connection lives. Returns
    /// whether it has been for so long that it must be on another host: a process that was there before is
    /// forgotten sooner.
    pub(super) fn twin(&mut self, id: NodeId, now: Time) -> bool {
        self.shared_address = Some(now);
        let known = self.twin.filter(|&(twin, _, last)| twin == id && now <= last + PAUSE);
        let since = known.map_or(now, |(_, since, _)| since);
        self.twin = Some((id, since, now));
        now >= since + APART
    }

    /// Whether nothing of this job was heard.
    pub(super) fn is_empty(&self) -> bool {
        self.heard.is_none()
            && self.versions.is_empty()
            && self.unauthentic.is_empty()
            && self.running.is_none()
    }

    /// The leader has named these hosts.
    pub(super) fn named(&mut self, hosts: &[HostName]) {
        for host in hosts {
            self.is_here(host);
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

    /// A datagram that is not authentic has arrived. Returns whether to tell the user of its sender: once it
    /// has sent such datagrams for a while, of a few senders, and of none whose address authentic datagrams
    /// have, but this host's `own`. An address can be forged.
    pub(super) fn unauthentic(&mut self, from: IpAddr, own: bool, now: Time) -> bool {
        if self.unauthentic.len() >= SOURCES && !self.unauthentic.contains_key(&from) {
            return false;
        }
        let told = self.unauthentic.values().filter(|other| other.is_told).count();
        let stranger = self.unauthentic.entry(from).or_insert(Stranger { since: now, is_told: false });
        if stranger.is_told || told >= TOLD || now < stranger.since + INSISTS {
            return false;
        }
        stranger.is_told = true;
        own || !self.is_member(from)
    }

    /// Whether a node of this job has written from this address.
    fn is_member(&self, address: IpAddr) -> bool {
        self.nodes.values().any(|heard| heard.address.is_some_and(|source| source.ip() == address))
    }

    /// A node cannot be seated beside this one. Returns whether that is news.
    pub(super) fn misfit(&mut self, misfit: &Misfit) -> bool {
        if let Some((_, is_over)) = self.misfits.iter_mut().find(|(known, _)| known.repeats(misfit)) {
            *is_over = false;
            return false;
        }
        let is_news = self.misfits.len() < SOURCES;
        if is_news {
            self.misfits.push((misfit.clone(), false));
        }
        is_news
    }

    /// The last node that wants what this one does not want, which another leader may not have heard.
    pub(super) fn unwanted(&self) -> Option<&Misfit> {
        let mut all = self.misfits.iter().rev();
        all.find(|(misfit, is_over)| !is_over && !misfit.is_of_network()).map(|(misfit, _)| misfit)
    }

    /// A path could not be proved. Returns whether that is news.
    pub(super) fn broken(&mut self, path: &BrokenPath) -> bool {
        let was = self.broken.replace(path.clone());
        was.is_none_or(|was| !was.repeats(path))
    }

    /// A node of this host wants what this one wants: what another node there wanted explains nothing more.
    pub(super) fn fits(&mut self, host: &HostName) {
        self.explains_no_more(|misfit| misfit.host == *host && !misfit.is_of_network());
    }

    /// A node of this host has joined.
    pub(super) fn is_here(&mut self, host: &HostName) {
        self.explains_no_more(|misfit| misfit.host == *host && !misfit.is_of_twins());
    }

    fn explains_no_more(&mut self, is_of: impl Fn(&Misfit) -> bool) {
        for (_, is_over) in self.misfits.iter_mut().filter(|(misfit, _)| is_of(misfit)) {
            *is_over = true;
        }
    }

    /// As many nodes as the world needs were here: something else has kept it from forming.
    pub(super) fn all_here(&mut self) {
        self.misfits.iter_mut().for_each(|(_, is_over)| *is_over = true);
    }

    /// A process has said that the job runs, of another user or of this one. Returns whether others have said
    /// so again and again for a while, and nobody of this user has.
    pub(super) fn runs_for_another(&mut self, is_another: bool, now: Time) -> bool {
        if !is_another {
            self.foreign = None;
            return false;
        }
        let (since, count) = self.foreign.get_or_insert((now, 0));
        *count += 1;
        *count >= FOREIGN.0 && now >= *since + FOREIGN.1
    }

    /// A candidate leads on, and this node follows another or leads itself. Returns whether it has done so
    /// for [`APART`] by now, and nothing else is known to keep it away.
    pub(super) fn apart(&mut self, candidate: &Candidate, now: Time) -> bool {
        let explains =
            |misfit: &Misfit| !misfit.is_apart() && misfit.address == candidate.endpoints.preferred();
        if self.misfits.iter().any(|(misfit, is_over)| !is_over && explains(misfit)) {
            return false;
        }
        if self.apart.len() >= SOURCES && !self.apart.contains_key(&candidate.id) {
            self.apart.retain(|_, other| other.is_heard(now));
            if self.apart.len() >= SOURCES {
                return false;
            }
        }
        let apart = self.apart.entry(candidate.id).or_insert(Apart {
            at: candidate.endpoints.preferred(),
            since: now,
            heard: now,
        });
        if !apart.is_heard(now) {
            apart.since = now;
        }
        apart.heard = now;
        now >= apart.since + APART
    }

    /// Whether this candidate was heard by this node itself, and is silent.
    fn has_ended(&self, candidate: &Misfit, now: Time) -> bool {
        let heard = self.apart.values().filter(|apart| apart.at == candidate.address);
        heard.max_by_key(|apart| apart.heard).is_some_and(|apart| !apart.is_heard(now))
    }

    /// It has joined this node, or this node follows it.
    pub(super) fn together(&mut self, id: NodeId) {
        if let Some(apart) = self.apart.get_mut(&id) {
            apart.since = apart.heard;
        }
    }

    /// This node was heard, in whatever it says.
    pub(super) fn hear(&mut self, id: NodeId, now: Time) {
        self.heard = Some(now);
        if let Some(failed) = self.not_joined.as_mut().filter(|failed| failed.id == id) {
            failed.heard = Some(now);
        }
    }

    /// Another node names this one as its leader, and may not have noticed yet that the leader has ended.
    pub(super) fn hear_of(&mut self, id: NodeId, now: Time) {
        if self.not_joined.as_ref().is_none_or(|failed| failed.id != id || now > failed.since + PAUSE) {
            self.hear(id, now);
        }
    }

    /// This node has joined a leader, whatever has failed before.
    pub(super) fn joined(&mut self, leader: NodeId) {
        self.unconnectable = None;
        self.not_joined = None;
        // Of another leader.
        self.explains_no_more(Misfit::is_apart);
        self.apart.values_mut().for_each(|apart| apart.since = apart.heard);
        if self.leaders.len() < NODES {
            self.leaders.insert(leader);
        }
    }

    /// A candidate could not be joined. Returns whether to tell the user that it was not reached: of one
    /// leader once.
    pub(super) fn not_joined(&mut self, mut failed: NotJoined, now: Time) -> bool {
        let is_silent = failed.endpoints.is_empty();
        let before = self.not_joined.as_ref().filter(|was| was.id == failed.id);
        failed.since = before.map_or(failed.since, |was| was.since);
        if is_silent && self.leaders.contains(&failed.id) {
            // It has ended, unless it is heard since.
            failed.heard = before.and_then(|was| was.heard);
        }
        let was = self.not_joined.as_ref().filter(|was| !was.endpoints.is_empty());
        // Another that is silent explains less than a leader that is heard and was not reached.
        if is_silent && was.is_some_and(|was| was.id != failed.id && was.is_heard(now)) {
            return false;
        }
        let is_news = !is_silent && was.is_none_or(|was| was.id != failed.id);
        self.not_joined = Some(failed);
        is_news
    }

    /// A node has said that the job runs. Returns whether that is news.
    pub(super) fn running(&mut self, from: SocketAddr) -> bool {
        self.running.replace(from).is_none()
    }

    /// The report of a node that knows nothing beside this.
    pub(super) fn report(&self, config: &Config, now: Time) -> Report {
        self.report_of(self.most.clone(), config, now)
    }

    /// The report where these nodes are here.
    pub(super) fn report_of(&self, here: Here, config: &Config, now: Time) -> Report {
        let Here { joined, missing, members, absent } = here;
        // The hosts may have got other addresses meanwhile.
        let is_shared = self.shared_address.is_some_and(|heard| now <= heard + APART);
        let explains = |misfit: &Misfit, is_over: bool| match misfit.reason {
            _ if is_over => false,
            Unfit::Address(_) => is_shared,
            Unfit::Apart(_) => !self.has_ended(misfit, now),
            _ => true,
        };
        let misfits = self.misfits.iter().filter(|(misfit, is_over)| explains(misfit, *is_over));
        let misfits: Vec<Misfit> = misfits.map(|(misfit, _)| misfit.clone()).collect();
        let (mut unreached, mut unanswered) = (None, None);
        match self.not_joined.as_ref().filter(|failed| failed.is_heard(now)) {
            Some(NotJoined { peer, endpoints, .. }) if !endpoints.is_empty() => {
                unreached = Some((peer.clone(), endpoints.clone()));
            }
            Some(NotJoined { peer, .. }) if misfits.iter().all(|misfit| misfit.address != peer.address) => {
                unanswered = Some(peer.clone());
            }
            _ => {}
        }
        let is_apart = misfits.iter().any(Misfit::is_apart);
        let is_cut = is_apart || unreached.is_some() || unanswered.is_some() || self.unconnectable.is_some();
        Report {
            joined: joined.max(1),
            heard: if members.is_empty() { self.heard(&config.node.host) } else { members },
            are_silent: joined <= 1 && self.heard.is_some_and(|heard| now > heard + PAUSE),
            missing,
            absent,
            misfits,
            tried: config.tried,
            jobs: self.missing_jobs(joined, config.world),
            is_deaf: self.is_deaf,
            has_ipv6_alone: config.node.endpoints.iter().all(SocketAddr::is_ipv6),
            without_multicast: config.without_multicast.clone(),
            broken: self.broken.clone().filter(|_| joined >= config.world.min().get()).map(Box::new),
            elsewhere: self.elsewhere.clone().filter(|_| is_cut),
            unreached,
            unanswered,
            unconnectable: self.unconnectable,
            nobody_leads: !config.is_candidate() && !self.candidate,
            running: self.running,
            versions: self.versions.iter().map(|(&version, &from)| (version, from)).collect(),
            unauthentic: self.strangers(config),
            ..Report::new(config.world, config.node.rank)
        }
    }

    /// The other jobs; where nodes of this job were heard, those of which the nodes could be those that are
    /// missing here: one of the same world's size, and with few nodes, may have a mistaken name.
    fn missing_jobs(&self, here: u32, world: WorldSize) -> Vec<OtherJob> {
        let missing = world.max().get().saturating_sub(here.max(1));
        let fits = |job: &&OtherJob| match &job.notice {
            _ if self.is_empty() => true,
            Notice::Open { world: of, joined, .. } => *of == world && !job.is_own && *joined <= missing,
            Notice::Sealed(_) => false,
        };
        self.jobs.iter().filter(fits).cloned().collect()
    }

    /// The senders of datagrams that are not authentic, without the addresses of other members: those were
    /// forged.
    fn strangers(&self, config: &Config) -> Vec<IpAddr> {
        let is_blamed = |from: &IpAddr| config.node.is_at(*from) || !self.is_member(*from);
        self.unauthentic.keys().copied().filter(is_blamed).collect()
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
    use crate::model::User;
    use crate::proto::report::Cause;

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
            let mut hear = |seconds| memory.unauthentic(address(last).ip(), false, Time::from_secs(seconds));
            assert!(!hear(0) && !hear(1));
            assert_eq!(hear(2), last <= 4);
            assert!(!hear(3));
            let host = HostName::new(&format!("n{last}"));
            for is_news in [last <= 16, false] {
                let reason = Unfit::World(WorldSize::of(5));
                let misfit = Misfit { host: host.clone(), address: address(last), reason };
                assert_eq!(memory.misfit(&misfit), is_news);
            }
        }
        assert_eq!(memory.misfits.len(), 16);
        assert_eq!(memory.versions, (1..=8).map(|last| (last, address(last))).collect());
        let config = Config::plain(crate::proto::tests::tag(), 4, 2, address(1));
        let strangers: Vec<_> = (1..=16).map(|last| address(last).ip()).collect();
        assert_eq!(memory.strangers(&config), strangers);
        // Two of them are members, and one of these is on this host.
        memory.node(NodeId([1; 16]), &HostName::new("a"), address(1), None);
        memory.node(NodeId([2; 16]), &HostName::new("b"), address(2), None);
        assert!(memory.strangers(&config).iter().all(|from| *from != address(2).ip()));
        assert_eq!(memory.strangers(&config).len(), 15);
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
        let known: Vec<u16> = (0..300).filter(|&number| memory.nodes.contains_key(&id(number))).collect();
        assert_eq!(known, (0..256).collect::<Vec<_>>());
        assert_eq!(memory.hosts, hosts[..256].iter().cloned().collect());
        memory.node(id(255), &hosts[255], address(2), Some(7));
        let heard = Heard { host: hosts[255].clone(), address: Some(address(2)), rank: Some(7) };
        assert_eq!(memory.nodes[&id(255)], heard);
    }

    #[test]
    fn a_leader_that_is_heard_and_out_of_reach_stays_the_cause_when_another_candidate_does_not_answer() {
        let mut memory = Memory::default();
        let second = Time::from_secs;
        let failed = |number: u8, is_silent: bool, heard| NotJoined {
            id: NodeId([number; 16]),
            peer: Peer { host: HostName::new("a"), address: address(number) },
            endpoints: if is_silent { Vec::new() } else { vec![address(number)] },
            heard,
            since: second(3),
        };
        let config = Config::plain(crate::proto::tests::tag(), 4, 9, address(9));
        let cause = |memory: &Memory, now| memory.report(&config, now).cause();
        assert!(memory.not_joined(failed(1, false, Some(second(3))), second(3)));
        // Another candidate was killed, and its host refuses; or nothing answers in its name.
        for (at, heard) in [(4, None), (5, Some(second(5)))] {
            assert!(!memory.not_joined(failed(2, true, heard), second(at)));
            assert_eq!(cause(&memory, second(6)), Cause::Unreached, "{heard:?}");
        }
        assert!(!memory.not_joined(failed(1, false, Some(second(7))), second(7)), "the user knows");
        // It is heard no more.
        assert!(!memory.not_joined(failed(2, true, Some(second(12))), second(12)));
        assert_eq!(cause(&memory, second(12)), Cause::Unanswered);
    }

    #[test]
    fn a_leader_that_was_joined_and_answers_no_more_is_the_cause_while_it_is_heard() {
        let (mut memory, second) = (Memory::default(), Time::from_secs);
        let (id, peer) = (NodeId([1; 16]), Peer { host: HostName::new("a"), address: address(1) });
        let config = Config::plain(crate::proto::tests::tag(), 4, 9, address(9));
        memory.hear(id, second(1));
        memory.joined(id);
        // It announces itself on, between attempts to join it again.
        for (at, expected) in [(10, Cause::NobodyHeard), (12, Cause::Unanswered), (15, Cause::Unanswered)] {
            let (peer, heard, since) = (peer.clone(), Some(second(at)), second(at));
            let failed = NotJoined { id, peer, endpoints: Vec::new(), heard, since };
            assert!(!memory.not_joined(failed, second(at)));
            // Another node may not have noticed yet that it has ended.
            memory.hear_of(id, second(at));
            assert_eq!(memory.report(&config, second(at)).cause(), expected, "{at} s");
            memory.hear(id, second(at + 1));
        }
        assert_ne!(memory.report(&config, second(30)).cause(), Cause::Unanswered, "it is silent by now");
        memory.hear_of(id, second(31));
        assert_eq!(memory.report(&config, second(31)).cause(), Cause::Unanswered, "others still follow it");
    }

    #[test]
    fn two_nodes_that_take_turns_at_an_address_are_told_and_one_that_replaces_another_is_not() {
        let mut memory = Memory::default();
        let hosts = ["b", "a"].map(HostName::new);
        for (number, host) in (0..).zip(&hosts) {
            memory.node(NodeId([number; 16]), host, address(1), None);
        }
        let mut hear = |number: u8, ms| memory.twins(NodeId([number; 16]), address(1), Time::from_millis(ms));
        // The second takes the place of the first, whose last datagrams overtake each other.
        for (number, ms) in
            [(0, 0), (0, 900), (1, 1000), (0, 1010), (1, 1020), (0, 1030), (1, 1040), (1, 1900)]
        {
            assert_eq!(hear(number, ms), None, "{ms}");
        }
        // A third does, five seconds later.
        for (number, ms) in [(2, 7000), (1, 7100), (2, 8000), (2, 9000)] {
            assert_eq!(hear(number, ms), None, "{ms}");
        }
        let turns: Vec<_> = (0..7).map(|turn| hear(turn % 2, 20_000 + 1000 * u64::from(turn))).collect();
        let reason = Unfit::Address(hosts[0].clone());
        let twins = Misfit { host: hosts[1].clone(), address: address(1), reason };
        let told = turns.iter().position(Option::is_some).unwrap();
        assert!(told >= 4 && turns[told..].iter().all(|turn| *turn == Some(twins.clone())), "{turns:?}");
        assert!(memory.misfit(&twins));
        memory.fits(&hosts[1]);
        assert!(memory.misfits.iter().all(|(_, is_over)| !is_over), "both fit, and share an address");
        let config = Config::plain(crate::proto::tests::tag(), 4, 2, address(1));
        for (seconds, explains) in [(27, true), (60, false)] {
            let report = memory.report(&config, Time::from_secs(seconds));
            assert_eq!(!report.misfits.is_empty(), explains, "{seconds} s");
        }
    }

    #[test]
    fn a_node_that_is_said_to_be_at_this_ones_own_address_for_10_s_is_on_another_host() {
        let mut memory = Memory::default();
        let mut twin = |number: u8, seconds| memory.twin(NodeId([number; 16]), Time::from_secs(seconds));
        for (number, seconds) in [(1, 0), (1, 3), (2, 6), (2, 9), (2, 12), (2, 15), (2, 20), (2, 23)] {
            assert!(!twin(number, seconds), "{seconds} s");
        }
        assert!(!twin(2, 26) && !twin(2, 29) && twin(2, 30));
    }

    #[test]
    fn a_candidate_apart_for_10_s_is_the_cause_while_it_is_heard_and_invented_ones_make_room() {
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
        assert_eq!(told(&mut memory, 20..33), [30, 31, 32]);
        let leader = Peer { host: HostName::new("b"), address: address(2) };
        assert!(memory.misfit(&Misfit::apart(candidate(1).peer(), leader)));
        memory.fits(&HostName::new("a"));
        let config = Config::plain(crate::proto::tests::tag(), 4, 2, address(2));
        let causes = |memory: &Memory, now| memory.report(&config, second(now)).misfits.len();
        assert_eq!((causes(&memory, 36), causes(&memory, 37)), (1, 0), "it has ended");
        let mut others = memory.clone();
        memory.is_here(&HostName::new("a"));
        assert_eq!(causes(&memory, 36), 0);
        others.joined(NodeId([7; 16]));
        assert_eq!(causes(&others, 36), 0, "it was apart from another leader");
        memory.together(candidate(1).id);
        assert!(told(&mut memory, 33..42).is_empty());
        for number in 2..=255 {
            assert!(!memory.apart(&candidate(number), second(60)));
        }
        assert_eq!(memory.apart.len(), SOURCES);
        assert!(!memory.apart(&candidate(99), second(70)));
        assert_eq!(memory.apart.len(), 1);
    }

    #[test]
    fn a_member_in_whose_name_strangers_write_is_not_named() {
        let mut memory = Memory::default();
        memory.node(NodeId([1; 16]), &HostName::new("a"), address(1), None);
        for second in 0..9 {
            assert!(!memory.unauthentic(address(1).ip(), false, Time::from_secs(second)));
        }
        // On this node's own host another node may have another secret.
        let mut own = Memory::default();
        own.node(NodeId([1; 16]), &HostName::new("a"), address(1), None);
        assert!(!own.unauthentic(address(1).ip(), true, Time::ZERO));
        assert!(own.unauthentic(address(1).ip(), true, Time::from_secs(2)));
    }

    #[test]
    fn a_node_that_cannot_be_seated_is_told_once_and_is_no_cause_once_its_host_has_another() {
        let mut memory = Memory::default();
        let host = HostName::new("a");
        let reason = Unfit::User(User::new(Some("bob"), None));
        let misfit = Misfit { host: host.clone(), address: address(1), reason };
        let is_cause = |memory: &Memory| memory.misfits.iter().any(|(_, is_over)| !is_over);
        assert!(memory.misfit(&misfit));
        memory.fits(&HostName::new("b"));
        assert!(is_cause(&memory));
        memory.fits(&host);
        assert!(!is_cause(&memory));
        assert!(!memory.misfit(&misfit) && is_cause(&memory), "it is here again");
        memory.all_here();
        assert!(!is_cause(&memory));
    }

    #[test]
    fn the_job_of_another_user_runs_if_nobody_of_this_one_says_so_for_two_seconds() {
        let mut memory = Memory::default();
        let mut hear = |is_another, ms| memory.runs_for_another(is_another, Time::from_millis(ms));
        assert!(!hear(true, 0) && !hear(true, 1) && !hear(true, 1_999));
        assert!(hear(true, 2_000));
        assert!(!hear(false, 2_001) && !hear(true, 2_002) && !hear(true, 5_000) && hear(true, 5_001));
    }

    #[test]
    fn whatever_was_heard_of_the_job_is_something() {
        let hear: [fn(&mut Memory); 4] = [
            |memory| memory.hear(NodeId([1; 16]), Time::ZERO),
            |memory| assert!(memory.version(9, address(1))),
            |memory| assert!(!memory.unauthentic(address(1).ip(), false, Time::ZERO)),
            |memory| assert!(memory.running(address(1))),
        ];
        for (number, hear) in hear.into_iter().enumerate() {
            let mut memory = Memory::default();
            hear(&mut memory);
            assert!(!memory.is_empty(), "{number}");
        }
    }
}
