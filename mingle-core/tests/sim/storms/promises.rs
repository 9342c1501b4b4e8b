//! What is promised in each kind of trouble, checked when all nodes have ended.

use std::collections::{BTreeMap, BTreeSet};

use mingle_core::proto::Digest;
use mingle_core::proto::Time;
use mingle_core::{Failure, Formed};

use super::Trouble;
use super::families::{common_in_the_end, ever_common};
use super::seeds::{connected, is_member};
use crate::network::{Fabric, Host, Network, Unformed};

/// The longest that a world takes where no node crashes in a round: a chain of seeds is walked hop by hop,
/// and a connection whose address has vanished ends by keepalive, after 25 s.
const USUAL: Time = Time::from_secs(30);

/// Checks what is promised. Where a world has formed, returns how long that took after the last start or the
/// last trouble.
pub(super) fn check(trouble: Trouble, net: &Network) -> Result<Option<Time>, String> {
    if let Some(broken) = net.broken.first() {
        return Err(broken.clone());
    }
    let mut worlds: BTreeMap<Digest, Vec<(&Host, &Formed)>> = BTreeMap::new();
    for (at, host) in net.hosts.iter().enumerate() {
        match &host.outcome {
            None => return Err(format!("{at} has not ended")),
            Some(Ok(formed)) => worlds.entry(formed.digest).or_default().push((host, formed)),
            Some(Err(why)) if may_end_so(trouble, net, at, why) => {}
            Some(Err(why)) => return Err(format!("{at}: {why}")),
        }
    }
    for members in worlds.values() {
        check_world(trouble, members)?;
        if trouble == Trouble::Families {
            check_families(net, members)?;
        }
    }
    let formed = worlds.values().map(Vec::len).sum::<usize>();
    // A node that starts after a world has formed may find no node that could tell it.
    if trouble == Trouble::WrongSize && formed == 0 && has_candidate(net) && !sizes_are_reported(net) {
        return Err("no node reports that the sizes differ".to_owned());
    }
    // Where there are more nodes than ranks, one rank is there twice, and a world forms.
    let world = usize::try_from(net.hosts[0].config.world.get()).unwrap();
    if trouble == Trouble::SameRank && formed != if net.hosts.len() > world { world } else { 0 } {
        return Err(format!("{formed} have formed a world of {world}"));
    }
    if trouble == Trouble::Fabric && formed > 0 && lacks_required_rdma(net) {
        return Err("a world without RDMA has formed, and a node requires it".to_owned());
    }
    if trouble == Trouble::Seeds && formed > 0 && !connected(net) {
        return Err("a world has formed of nodes that no seed connects".to_owned());
    }
    let last_start = net.hosts.iter().filter_map(|host| host.started).max().unwrap_or_default();
    let formed = net.hosts.iter().filter(|host| matches!(host.outcome, Some(Ok(_))));
    let last_end = formed.filter_map(|host| host.ended).max();
    let took = last_end.map(|end| end.saturating_sub(last_start.max(net.healed)));
    match took.filter(|_| trouble.is_usual(net)) {
        Some(took) if took > USUAL => Err(format!("it took {took:?}")),
        _ => Ok(took),
    }
}

/// Whether a node may end so, in this kind of trouble.
fn may_end_so(trouble: Trouble, net: &Network, host: usize, why: &Unformed) -> bool {
    let failure = match why {
        Unformed::Failed(failure) => failure,
        Unformed::Killed => {
            return match trouble {
                Trouble::LateCrash | Trouble::Seeds => true,
                Trouble::EarlyCrash => unknown(net),
                _ => false,
            };
        }
    };
    match trouble {
        // A node died near the commit: the others may know, or start again and wait.
        Trouble::LateCrash => true,
        // The standby came after the others had ended, was on its way to another leader, or lost each of the
        // last datagrams to it. A scenario of its own checks that most standbys learn the outcome.
        Trouble::Standby => matches!(failure, Failure::WorldFull { .. } | Failure::Deadline(_)),
        // The node of another size may be the leader: then it refuses the others.
        Trouble::WrongSize => matches!(failure, Failure::WorldDiffers { .. } | Failure::Deadline(_)),
        Trouble::SameRank => {
            matches!(failure, Failure::RankTaken { .. } | Failure::WorldFull { .. } | Failure::Deadline(_))
        }
        Trouble::Jobs | Trouble::Mistaken => false,
        // Where no seeds connect all nodes, their time is up. A stranger hears no node of its job.
        Trouble::Seeds => match failure {
            Failure::Deadline(report) if is_member(net, host) => {
                !connected(net) && report.joined < net.hosts[host].config.world.get()
            }
            Failure::Deadline(report) => report.heard.is_empty(),
            _ => false,
        },
        Trouble::Families => common_in_the_end(net).is_empty(),
        Trouble::Fabric => matches!(failure, Failure::NoRdma { .. }) && lacks_required_rdma(net),
        // A cut of 10 s near the commit, or a leader that dies in a round, leaves nodes that cannot know the
        // outcome.
        _ => unknown(net),
    }
}

/// Whether a node has ended without knowing the outcome.
fn unknown(net: &Network) -> bool {
    net.failures.contains("outcome unknown")
}

fn check_world(trouble: Trouble, members: &[(&Host, &Formed)]) -> Result<(), String> {
    let ranks: BTreeSet<u32> = members.iter().map(|(_, formed)| formed.rank.get()).collect();
    if ranks.len() != members.len() {
        return Err("two nodes of one world have the same rank".to_owned());
    }
    let (first, formed) = members[0];
    if let Some((host, _)) = members.iter().find(|(_, formed)| formed.rank.get() == 0)
        && let Some((_, formed)) = members.iter().find(|(_, formed)| !host.has_had(formed.master))
    {
        return Err(format!("{} is no endpoint of rank 0", formed.master));
    }
    let whole = u32::try_from(members.len()) == Ok(formed.world.get());
    if members.iter().any(|(host, _)| host.config.tag != first.config.tag) {
        return Err("a world has nodes of two jobs".to_owned());
    }
    if members.iter().any(|(host, _)| host.config.world != formed.world) {
        return Err("a world has nodes of another world size".to_owned());
    }
    if members.iter().any(|(host, formed)| host.config.node.rank.is_some_and(|rank| rank != formed.rank)) {
        return Err("a given rank was not kept".to_owned());
    }
    if members.iter().any(|(_, other)| other.verdict != formed.verdict) {
        return Err("two nodes of one world have different verdicts".to_owned());
    }
    let fabrics: Vec<Fabric> = members.iter().map(|(host, _)| host.fabric).collect();
    if whole && !Fabric::suits(formed.verdict.transport, &fabrics) {
        return Err(format!("{:?} for a world of {fabrics:?}", formed.verdict.transport));
    }
    if !whole && trouble != Trouble::LateCrash && !trouble.cuts() {
        return Err("a world is incomplete".to_owned());
    }
    Ok(())
}

/// A world uses one address family where all its nodes have a family in common.
fn check_families(net: &Network, members: &[(&Host, &Formed)]) -> Result<(), String> {
    if common_in_the_end(net).is_empty() {
        return Ok(());
    }
    let ever = ever_common(net);
    let masters: BTreeSet<_> = members.iter().map(|(_, formed)| formed.master).collect();
    match masters.iter().find(|master| !ever.contains(&master.is_ipv6())) {
        Some(master) => Err(format!("not all nodes have an address of the family of {master}")),
        None if masters.len() > 1 => Err(format!("the master is at {masters:?}")),
        None => Ok(()),
    }
}

/// Whether a node requires RDMA and not all nodes have it.
fn lacks_required_rdma(net: &Network) -> bool {
    let fabrics: Vec<Fabric> = net.hosts.iter().map(|host| host.fabric).collect();
    net.hosts.iter().any(|host| host.needs_rdma) && !Fabric::are_enough(&fabrics)
}

/// Whether a node may lead: it has no given rank, or rank 0.
fn has_candidate(net: &Network) -> bool {
    net.hosts.iter().any(|host| host.config.node.rank.is_none_or(|rank| rank.get() == 0))
}

/// Whether a node failed because the sizes differ, or has warned of it.
fn sizes_are_reported(net: &Network) -> bool {
    net.hosts.iter().any(|host| {
        matches!(host.outcome, Some(Err(Unformed::Failed(Failure::WorldDiffers { .. }))))
            || host.warnings.iter().any(|text| text.contains("expects a world of"))
    })
}
