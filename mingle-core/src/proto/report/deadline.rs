//! The report of a node whose timeout has passed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::Tried;
use crate::model::{BrokenPath, Elsewhere, HostName, Misfit, Peer, Rank, RankRange, WorldSize};
use crate::wire::Notice;

/// The facts that a node knows when its timeout has passed.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The size of the world that was asked for.
    pub world: WorldSize,
    /// The rank that the user gave to this node.
    pub rank: Option<Rank>,
    /// The most members that were here at the same time, this node included if it was a member.
    pub joined: u32,
    /// Other nodes that this node heard or that a leader named, at most [`Report::NAMES`].
    pub heard: Vec<Heard>,
    /// Whether this node, which is alone, has heard other nodes, and none of them lately.
    pub are_silent: bool,
    /// Given ranks that are known to be missing.
    pub missing: Vec<RankRange>,
    /// The hosts that are missing. Known only if this node knows all that are here, and its seeds name all
    /// hosts.
    pub absent: Vec<String>,
    /// A leader that this node heard, but could not reach over TCP at any of these endpoints.
    pub unreached: Option<(Peer, Vec<SocketAddr>)>,
    /// This node's endpoint, if other nodes wanted to join this node and none could connect.
    pub unconnectable: Option<SocketAddr>,
    /// A leader that this node knows, but that never answered.
    pub unanswered: Option<Peer>,
    /// An address of a node to which this node has no connection, if the address is in none of this host's
    /// networks.
    pub elsewhere: Option<Elsewhere>,
    /// Whether neither this node nor any node that it heard may be rank 0.
    pub nobody_leads: bool,
    /// A node that said that the job already runs with all its nodes.
    pub running: Option<SocketAddr>,
    /// Other protocol versions that this node heard, each with a node that speaks the version.
    pub versions: Vec<(u8, SocketAddr)>,
    /// Nodes that could not be seated beside this node: they want another world, run as another user, or
    /// lead on and join nobody.
    pub misfits: Vec<Misfit>,
    /// How this node has looked for other nodes.
    pub tried: Tried,
    /// The jobs that were heard on the link; where other nodes of this job were heard as well, those whose
    /// nodes may be the missing ones.
    pub jobs: Vec<OtherJob>,
    /// Whether this host drops even the multicasts that it sends itself.
    pub is_deaf: bool,
    /// Whether this node uses no IPv4 address.
    pub has_ipv6_alone: bool,
    /// The interfaces that this node would have used if they had multicast. If there are any, this node used
    /// only loopback.
    pub without_multicast: Vec<String>,
    /// A path that could not be proved although all nodes were here.
    pub broken: Option<Box<BrokenPath>>,
    /// Senders of datagrams that were sealed with another secret or with none. Only the first senders are
    /// kept, since addresses can be forged.
    pub unauthentic: Vec<IpAddr>,
}

/// The most likely reason why no world formed. A [`Report`] gives the first cause in this order that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// The job already runs.
    Running,
    /// All nodes came, but not all paths between them were proved.
    Unproved,
    /// A node wants another world, has the rank of another node, or runs as another user.
    Misfit,
    /// This node heard a leader, but could not reach it over TCP; or other nodes could not reach this node.
    Unreached,
    /// A node that is heard leads a group of its own.
    Apart,
    /// A node speaks another version of the protocol.
    Version,
    /// A node has another secret.
    Secret,
    /// A leader that this node knows never answered.
    Unanswered,
    /// This node heard no other node.
    NobodyHeard,
    /// This node heard no node that may be rank 0.
    NobodyLeads,
    /// Some nodes came, but too few.
    Incomplete,
}

impl Report {
    /// The most nodes that a report names.
    pub const NAMES: usize = 16;

    /// The report of a node that has this given rank and has heard no other node.
    pub fn new(world: WorldSize, rank: Option<Rank>) -> Self {
        Self { world, rank, joined: 1, ..Self::default() }
    }

    /// The most likely reason why no world formed.
    pub fn cause(&self) -> Cause {
        let is_alone = self.joined <= 1;
        let causes = [
            (Cause::Running, self.running.is_some() && is_alone),
            (Cause::Unproved, (self.joined >= self.world.min().get() && !is_alone) || self.broken.is_some()),
            (Cause::Misfit, self.misfits.iter().any(|misfit| !misfit.is_apart())),
            (Cause::Unreached, self.unreached.is_some() || self.unconnectable.is_some()),
            (Cause::Apart, !self.misfits.is_empty()),
            (Cause::Version, !self.versions.is_empty()),
            (Cause::Secret, !self.unauthentic.is_empty()),
            (Cause::Unanswered, self.unanswered.is_some()),
            (Cause::NobodyHeard, self.heard.is_empty() && is_alone),
            (Cause::NobodyLeads, self.nobody_leads),
        ];
        causes.into_iter().find(|(_, applies)| *applies).map_or(Cause::Incomplete, |(cause, _)| cause)
    }

    /// What this node knows: what may keep other nodes away, and who "was" or "is" here.
    pub(super) fn known(&self, are: &str) -> String {
        [self.seen(), self.present(are)].concat().join("; ")
    }

    /// What was seen that may be the reason, the most likely first.
    fn seen(&self) -> Vec<String> {
        let mut seen: Vec<String> = self.misfits.iter().map(ToString::to_string).collect();
        seen.extend(self.elsewhere.iter().map(ToString::to_string));
        seen.extend(self.unreached.iter().map(|(leader, endpoints)| unreached(leader, endpoints)));
        seen.extend(self.unconnectable.map(|endpoint| {
            format!("other nodes were heard, and none of them could connect to {endpoint} over TCP")
        }));
        seen.extend(self.versions.iter().map(|(version, from)| other_version(*version, *from)));
        seen.extend(named("", &self.unauthentic).map(|from| {
            let have = if self.unauthentic.len() == 1 { "has" } else { "have" };
            format!("{from} {have} another secret, or none: datagrams were not authentic")
        }));
        let unanswered = self.unanswered.iter();
        seen.extend(unanswered.map(|peer| format!("{peer} leads, but does not answer this node")));
        seen
    }

    /// Who was here, and who was not.
    fn present(&self, are: &str) -> Vec<String> {
        let is_cut = self.unanswered.is_some() || self.unreached.is_some() || !self.misfits.is_empty();
        let jobs = named("heard on this link: ", &self.jobs);
        if self.heard.is_empty() && self.joined <= 1 && !is_cut {
            return [Some(self.alone()), jobs, self.absent()].into_iter().flatten().collect();
        }
        let heard = named("heard besides this node: ", &self.heard);
        if self.nobody_leads {
            let rank = self.rank.map(|rank| format!(", and this node has rank {rank}")).unwrap_or_default();
            let nobody = format!("no node that may be rank 0 was heard{rank}");
            return [Some(nobody), heard].into_iter().flatten().collect();
        }
        let here = format!("{} of {} nodes {are} here", self.joined, self.world);
        let silent = "none of them is heard any more: they have ended, have formed a world without this node, or are \
                      out of reach";
        let silent = self.are_silent.then(|| silent.to_owned());
        let missing = self.absent().unwrap_or_else(|| match &self.missing[..] {
            [] => format!("{} missing", self.too_few()),
            ranks => format!("missing {}", RankRange::list(ranks)),
        });
        [Some(here), heard, silent, jobs, Some(missing)].into_iter().flatten().collect()
    }

    /// How this node has looked for others, and why it may have heard none.
    fn alone(&self) -> String {
        let lacks = match &self.without_multicast[..] {
            [] => String::new(),
            interfaces => format!(": {}", lacking(interfaces)),
        };
        let mut facts = vec![format!("nobody else was heard {}{lacks}", self.tried)];
        if self.has_ipv6_alone {
            facts.push("this node uses IPv6 alone: it hears no host that has IPv4 alone".to_owned());
        }
        if self.is_deaf && lacks.is_empty() {
            facts.push("this host drops even the multicast that it sends itself".to_owned());
        }
        facts.join(", and ")
    }

    /// The hosts that are missing, where these are known.
    fn absent(&self) -> Option<String> {
        let shown = &self.absent[..self.absent.len().min(Self::NAMES)];
        // There may be more than the leader could announce.
        let missing = usize::try_from(self.too_few()).unwrap_or(usize::MAX).max(self.absent.len());
        let more = match missing - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        named("missing ", shown).map(|missing| missing + &more)
    }

    /// How many nodes more a world needs.
    fn too_few(&self) -> u32 {
        self.world.min().get().saturating_sub(self.joined)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world;
        match (self.cause(), self.running) {
            (Cause::Running, Some(from)) => {
                write!(f, "no seat in time: the job already runs with all its {world} nodes, says {from}")
            }
            (Cause::Unproved, _) if self.broken.is_none() && world.is_range() => {
                let here = format_args!("no world of {world} in time: {} nodes were here", self.joined);
                write!(f, "{here}, and their leader still waited for others, or for the proof of their paths")
            }
            (Cause::Unproved, _) => {
                let path = self.broken.as_ref().map(|path| format!(": {path}")).unwrap_or_default();
                let here = format_args!("no world of {world} in time: all nodes were here");
                write!(f, "{here}, and not all paths between them were proved{path}")
            }
            _ => write!(f, "no world of {world} in time: {}", self.known("were")),
        }
    }
}

/// A list in a sentence; none if there is nothing to name.
fn named<T: fmt::Display>(what: &str, all: &[T]) -> Option<String> {
    (!all.is_empty()).then(|| what.to_owned() + &listed(all))
}

/// A list in a sentence.
pub(super) fn listed<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a leader that is heard.
pub(super) fn unreached(leader: &Peer, endpoints: &[SocketAddr]) -> String {
    let list = listed(endpoints);
    format!("{leader} leads and was heard, but could not be reached over TCP at {list}")
}

/// What is wrong with a node of another version.
pub(super) fn other_version(version: u8, from: SocketAddr) -> String {
    format!("{from} speaks protocol version {version}, this node {}", crate::wire::VERSION)
}

/// Which interfaces lack multicast.
pub(super) fn lacking(interfaces: &[String]) -> String {
    let lack = if interfaces.len() == 1 { "has no multicast" } else { "have no multicast" };
    format!("{} {lack}, and no other interface is usable", interfaces.join(", "))
}

/// A job that forms on the link, as its leader's notice says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherJob {
    /// The leader's notice.
    pub notice: Notice,
    /// The leader's address.
    pub address: IpAddr,
    /// Whether the job has the ID of this node's own job: another port, group or interface keeps the two
    /// apart.
    pub is_own: bool,
}

impl fmt::Display for OtherJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { notice, address, is_own } = self;
        match notice {
            _ if *is_own => write!(f, "this job with another port or group of multicast, from {address}"),
            Notice::Open { job, world, joined } => {
                write!(f, "job {job} ({joined} of {world} nodes, from {address})")
            }
            Notice::Sealed(_) => write!(f, "a job with a secret, from {address}"),
        }
    }
}

/// Another node of the job, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heard {
    /// The name of the node's host.
    pub host: HostName,
    /// The source address of the node's datagrams; none if a leader named the node.
    pub address: Option<SocketAddr>,
    /// The rank that the user gave to the node.
    pub rank: Option<u32>,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.map(|address| format!(" ({address})")).unwrap_or_default();
        let rank = self.rank.map(|rank| format!(" with rank {rank}")).unwrap_or_default();
        write!(f, "{}{address}{rank}", self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Unfit, World};

    fn peer() -> Peer {
        Peer { host: HostName::new("a"), address: SocketAddr::from(([10, 0, 0, 1], 29500)) }
    }

    fn report(change: impl FnOnce(&mut Report)) -> Report {
        let heard = vec![Heard { host: HostName::new("a"), address: None, rank: None }];
        let world = World::new(4).unwrap().into();
        let mut report = Report { joined: 2, heard, ..Report::new(world, None) };
        change(&mut report);
        report
    }

    #[test]
    fn the_most_likely_cause_follows_from_what_was_seen() {
        let cause = |change: fn(&mut Report)| report(change).cause();
        assert_eq!(cause(|_| {}), Cause::Incomplete);
        let address = SocketAddr::from(([10, 0, 0, 9], 29500));
        let mut alone = report(|report| report.joined = 1);
        assert_eq!(alone.cause(), Cause::Incomplete, "another node was heard");
        alone.heard.clear();
        assert_eq!(alone.cause(), Cause::NobodyHeard);
        alone.running = Some(address);
        assert_eq!(alone.cause(), Cause::Running);
        alone.joined = 2;
        assert_eq!(alone.cause(), Cause::Incomplete, "some came nevertheless");
        assert_eq!(cause(|report| (report.joined, report.unanswered) = (1, Some(peer()))), Cause::Unanswered);
        assert_eq!(cause(|report| report.joined = 4), Cause::Unproved);
        let misfit = |report: &mut Report| {
            let reason = Unfit::Rank(Rank(1));
            report.misfits.push(Misfit { host: HostName::new("b"), address: peer().address, reason });
            report.unreached = Some((peer(), Vec::new()));
        };
        assert_eq!(cause(misfit), Cause::Misfit);
        let apart = |report: &mut Report| report.misfits.push(Misfit::apart(peer(), peer()));
        assert_eq!(cause(apart), Cause::Apart);
        assert_eq!(cause(|report| report.nobody_leads = true), Cause::NobodyLeads);
        assert_eq!(
            cause(|report| (report.nobody_leads, report.unreached) = (true, Some((peer(), Vec::new())))),
            Cause::Unreached
        );
    }

    #[test]
    fn the_secret_is_blamed_only_if_nothing_else_explains_the_failure() {
        let from = IpAddr::from([10, 0, 0, 9]);
        let cause = |change: fn(&mut Report)| {
            let mut report = report(change);
            report.unauthentic.push(from);
            report.cause()
        };
        assert_eq!(cause(|_| {}), Cause::Secret);
        assert_eq!(cause(|report| report.unreached = Some((peer(), Vec::new()))), Cause::Unreached);
        assert_eq!(cause(|report| report.versions.push((9, peer().address))), Cause::Version);
    }

    #[test]
    fn each_report_says_what_was_seen() {
        let address = SocketAddr::from(([10, 0, 0, 9], 29503));
        let says = |change: fn(&mut Report)| report(change).to_string();
        let incomplete = "no world of 4 in time: 2 of 4 nodes were here; heard besides this node: a";
        assert_eq!(says(|_| {}), format!("{incomplete}; 2 missing"));
        let absent = |report: &mut Report| report.absent = vec!["gpu3".to_owned(), "gpu4".to_owned()];
        assert_eq!(says(absent), format!("{incomplete}; missing gpu3, gpu4"));
        let absent = |report: &mut Report| report.absent = vec!["gpu3".to_owned()];
        assert_eq!(says(absent), format!("{incomplete}; missing gpu3 and 1 more"));
        let missing = |report: &mut Report| report.missing = vec![RankRange { first: 1, last: 2 }];
        assert_eq!(says(missing), format!("{incomplete}; missing ranks 1-2"));
        let named = |report: &mut Report| {
            let address = SocketAddr::from(([10, 0, 0, 9], 29503));
            report.heard.push(Heard { host: HostName::new("b"), address: Some(address), rank: Some(3) });
        };
        assert_eq!(says(named), format!("{incomplete}, b (10.0.0.9:29503) with rank 3; 2 missing"));
        assert_eq!(
            says(|report| report.nobody_leads = true),
            "no world of 4 in time: no node that may be rank 0 was heard; heard besides this node: a"
        );
        let unreached = |report: &mut Report| {
            let endpoints = vec![peer().address, SocketAddr::from(([10, 0, 0, 2], 29501))];
            report.unreached = Some((peer(), endpoints));
        };
        assert_eq!(
            says(unreached),
            "no world of 4 in time: a (10.0.0.1:29500) leads and was heard, but could not be reached over TCP at \
             10.0.0.1:29500, 10.0.0.2:29501; 2 of 4 nodes were here; heard besides this node: a; 2 missing"
        );
        let mut alone = report(|report| report.joined = 1);
        alone.heard.clear();
        assert_eq!(alone.to_string(), "no world of 4 in time: nobody else was heard by multicast");
        alone.running = Some(address);
        assert_eq!(
            alone.to_string(),
            "no seat in time: the job already runs with all its 4 nodes, says 10.0.0.9:29503"
        );
        alone.running = None;
        alone.unanswered = Some(peer());
        assert_eq!(
            alone.to_string(),
            "no world of 4 in time: a (10.0.0.1:29500) leads, but does not answer this node; 1 of 4 nodes were here; 3 \
             missing"
        );
        alone = report(|report| (report.world, report.joined) = ("2:4".parse().unwrap(), 3));
        assert_eq!(
            alone.to_string(),
            "no world of 2:4 in time: 3 nodes were here, and their leader still waited for others, or for the proof \
             of their paths"
        );
        alone = report(|report| report.versions = vec![(9, peer().address)]);
        alone.unauthentic = vec![address.ip(), peer().address.ip()];
        let ours = crate::wire::VERSION;
        let says = format!(
            "no world of 4 in time: 10.0.0.1:29500 speaks protocol version 9, this node {ours}; 10.0.0.9, 10.0.0.1 have \
             another secret, or none: datagrams were not authentic; 2 of 4 nodes were here; heard besides this node: a; 2 missing"
        );
        assert_eq!(alone.to_string(), says);
    }
}
