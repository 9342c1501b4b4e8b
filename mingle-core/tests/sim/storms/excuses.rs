//! The causes for which a node may end without the world that was promised to it. Each is a cause on that
//! node, and each run counts those that it has used.

use std::time::Duration;

use mingle_core::Failure;
use mingle_core::proto::{BrokenPath, Peer, Time};

use super::Trouble;
use super::families::common_in_the_end;
use super::seeds::{connected, is_member};
use crate::network::{End, Ended, Fabric, Host, Network, PORT};

/// A world that can form does so within this time, whatever happened before.
const ENOUGH: Time = Time::from_secs(30);
/// A ready node waits for its leader for 10 s, or for 1 s where the leader's host refuses its connections.
const SILENCE: Time = Time::from_secs(11);
const SHORT: Time = Time::from_millis(900);
/// A member that is silent for so long in a round is expelled, and the leader goes on without it.
const EXPEL: Time = Time::from_secs(5);
/// A ready node's longest time in a round.
const LONGEST_ROUND: Time = Time::from_secs(31);
/// At this loss one path in some thousands is not proved in a round.
const LOSSY: f64 = 0.2;
/// Nodes try for 12 s to prove a master that they do not reach.
const PERSIST: Time = Time::from_secs(13);

/// Why a node may end with this failure, in this kind of trouble.
pub(super) fn excuse(trouble: Trouble, net: &Network, end: &End, failure: &Failure) -> Option<&'static str> {
    match (trouble, failure) {
        (_, Failure::OutcomeUnknown { .. }) => in_doubt(net, end),
        // The standby came after the others had ended, was on its way to another leader, or lost each of the
        // last datagrams to it. A scenario of its own checks that most standbys learn the outcome.
        (Trouble::Standby, Failure::WorldFull { .. }) => Some("one node too many"),
        // The node of another size may be the leader: then it refuses the others.
        (Trouble::WrongSize, Failure::WorldDiffers { .. }) => Some("the sizes differ"),
        (Trouble::SameRank, Failure::RankTaken { .. } | Failure::WorldFull { .. }) => Some("a rank is taken"),
        // A world of the most nodes is full, whoever comes later.
        (Trouble::Elastic, Failure::WorldFull { .. }) => came_late(net, end),
        (Trouble::WrongSize | Trouble::SameRank, Failure::Deadline(_)) => Some("no world can form"),
        // Where no seeds connect all nodes, their time is up. A stranger hears no node of its job.
        (Trouble::Seeds, Failure::Deadline(report)) if is_member(net, end.host) => {
            let few = report.joined < net.hosts[end.host].config.world.min().get();
            (!connected(net) && few).then_some("no seeds connect all nodes")
        }
        (Trouble::Seeds, Failure::Deadline(report)) => report.heard.is_empty().then_some("a stranger"),
        (Trouble::Families, _) if common_in_the_end(net).is_empty() => Some("no family in common"),
        (Trouble::Fabric, Failure::NoRdma { .. }) => {
            lacks_required_rdma(net).then_some("not all nodes have the RDMA that one requires")
        }
        (_, Failure::Deadline(_)) => too_few(net, end),
        (_, Failure::WorldFull { .. }) => seat_is_used_up(net, end),
        (_, Failure::NoCommonFamily { six, four }) => were_apart(net, six, four, end.at)
            .then_some("a node could not be reached by its other family for 12 s"),
        (_, Failure::PathsBroken { paths, .. }) => broken(net, paths, end.at),
        _ => None,
    }
}

/// Each path that is named was broken while the nodes tried.
pub(crate) fn broken(net: &Network, paths: &[BrokenPath], at: Time) -> Option<&'static str> {
    let is_broken = |path: &BrokenPath| {
        // It names the port that was tried.
        let own = |peer: &Peer| Peer { address: (peer.address.ip(), PORT).into(), ..peer.clone() };
        were_apart(net, &own(&path.from), &own(&path.to), at) || net.had_flaw(&path.from, &path.to, at)
    };
    // Of three rounds, two may fail by a cut and one by loss, and that with the fewest paths is named.
    let is_lost = net.weather.loss >= LOSSY && paths.len() <= 2;
    let are_broken = !paths.is_empty() && paths.iter().all(is_broken);
    (are_broken || is_lost).then_some("a path was broken")
}

/// The node was ready, and its leader was killed, or they could not hear each other, or the node itself was
/// stopped for so long that its leader went on without it.
pub(crate) fn in_doubt(net: &Network, end: &End) -> Option<&'static str> {
    let leader = end.bound_to?;
    let host = net.history.host_of[&leader];
    let ago = |time| end.at.saturating_sub(time);
    let killed = |other: &&End| other.id == leader && other.at <= end.at && other.how == Ended::Killed;
    if net.history.ends.iter().any(|other| killed(&other)) {
        Some("in doubt: its leader was killed")
    } else if net.paused_in(host, ago(SILENCE), end.at) >= SHORT {
        Some("in doubt: its leader was stopped")
    } else if net.cut_in(host, end.host, ago(SILENCE), end.at) >= SHORT {
        Some("in doubt: its leader was cut off")
    } else if net.paused_in(end.host, ago(LONGEST_ROUND), end.at) >= EXPEL {
        Some("in doubt: it was stopped itself")
    } else if net.hosts[end.host].translated.is_some() && net.weather.loss >= LOSSY {
        // A leader whose port is the job's accepts no connection after its commit, and cannot dial this node:
        // a single connection carries the commit, and every copy of a segment may be lost for 10 s.
        Some("in doubt: nobody can dial it, and its one connection stalled")
    } else {
        None
    }
}

/// For the last [`ENOUGH`] before its end there were not enough nodes for a world: others had ended, each for
/// a reason of its own, or did not run.
fn too_few(net: &Network, end: &End) -> Option<&'static str> {
    let config = &net.hosts[end.host].config;
    let since = end.at.saturating_sub(ENOUGH);
    if net.healed > since {
        return Some("the trouble lasted until the deadline");
    }
    let stayed = |other: &&End| {
        let theirs = &net.hosts[other.host].config;
        let waits = matches!(other.how, Ended::Failed(Failure::Deadline(_))) && other.at >= since;
        theirs.tag == config.tag
            && theirs.world == config.world
            && other.started <= since
            && (waits || other.at >= end.at)
    };
    let stayed = net.history.ends.iter().filter(stayed).count();
    (stayed < usize::try_from(config.world.min().get()).unwrap()).then_some("too few nodes are left")
}

/// A world of the most nodes was committed while the node was here.
fn came_late(net: &Network, end: &End) -> Option<&'static str> {
    let most = usize::try_from(net.hosts[end.host].config.world.max().get()).unwrap();
    let is_full = net.commits().any(|commit| commit.at <= end.at && commit.members.len() == most);
    is_full.then_some("one node too many")
}

/// An earlier node of the same host is in a world that was committed.
fn seat_is_used_up(net: &Network, end: &End) -> Option<&'static str> {
    let earlier = |id| net.history.host_of[id] == end.host && *id != end.id;
    let used = net.commits().any(|commit| commit.at <= end.at && commit.members.iter().any(earlier));
    used.then_some("its seat went to an earlier node of its host")
}

/// Whether something has kept a node from reaching the master.
fn were_apart(net: &Network, prover: &Peer, master: &Peer, at: Time) -> bool {
    // Several hosts may have the address, as that of a bridge.
    let is = |host: &Host, peer: &Peer| host.config.node.host == peer.host && host.has_had(peer.address);
    let host = |peer: &Peer| net.hosts.iter().position(|host| is(host, peer));
    let (Some(prover), Some(master)) = (host(prover), host(master)) else { return false };
    let since = at.saturating_sub(PERSIST + Duration::from_secs(5));
    let second = Duration::from_secs(1);
    net.cut_in(prover, master, since, at) >= second
        || net.paused_in(prover, since, at) >= second
        || net.paused_in(master, since, at) >= second
}

/// Whether a node requires RDMA and not all nodes have it.
pub(super) fn lacks_required_rdma(net: &Network) -> bool {
    let fabrics: Vec<Fabric> = net.hosts.iter().map(|host| host.fabric).collect();
    net.hosts.iter().any(|host| host.needs_rdma) && !Fabric::are_enough(&fabrics)
}
