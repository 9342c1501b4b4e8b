//! What is promised in each kind of trouble, checked when all nodes have ended.

use std::collections::{BTreeMap, BTreeSet};

use mingle_core::proto::{Digest, NodeId, Time};
use mingle_core::{Failure, Formed};

use super::excuses::{excuse, lacks_required_rdma};
use super::families::{common_in_the_end, ever_common};
use super::seeds::connected;
use super::{LONGEST, Trouble};
use crate::network::{Ended, Fabric, Host, Network, Unformed};
use crate::tally::Checked;

/// Checks what is promised.
pub(super) fn check(trouble: Trouble, net: &Network) -> Result<Checked, String> {
    if let Some(broken) = net.broken.first() {
        return Err(broken.clone());
    }
    if let Some(at) = net.hosts.iter().position(|host| host.outcome.is_none()) {
        return Err(format!("{at} has not ended"));
    }
    let mut excuses = BTreeSet::new();
    for end in &net.history.ends {
        match &end.how {
            Ended::Formed(_) | Ended::Killed => {}
            Ended::Failed(failure) => {
                let why = excuse(trouble, net, end, failure);
                excuses.insert(why.ok_or_else(|| format!("{}: {failure}", end.host))?);
            }
        }
    }
    excuses.extend(check_commits(net)?);
    let mut worlds: BTreeMap<Digest, Vec<(&Host, &Formed)>> = BTreeMap::new();
    for host in &net.hosts {
        if let Some(Ok(formed)) = &host.outcome {
            worlds.entry(formed.digest).or_default().push((host, formed));
        }
    }
    for members in worlds.values() {
        check_world(members)?;
        if trouble == Trouble::Families {
            check_families(net, members)?;
        }
    }
    let formed = worlds.values().map(Vec::len).sum::<usize>();
    check_kind(trouble, net, formed)?;
    let took = took(net);
    match took.filter(|_| trouble.is_usual(net)) {
        Some(took) if took > LONGEST => Err(format!("it took {took:?}")),
        _ => Ok(Checked { took, excuses }),
    }
}

/// How long a world took after the last start or the last trouble.
fn took(net: &Network) -> Option<Time> {
    let last_start = net.hosts.iter().filter_map(|host| host.started).max().unwrap_or_default();
    let formed = net.hosts.iter().filter(|host| matches!(host.outcome, Some(Ok(_))));
    let last_end = formed.filter_map(|host| host.ended).max()?;
    Some(last_end.saturating_sub(last_start.max(net.healed)))
}

/// All members of a world that was committed end with it: with the same digest, or killed, or without knowing
/// the outcome. And nobody ends with a world that was not.
pub(crate) fn check_commits(net: &Network) -> Result<BTreeSet<&'static str>, String> {
    let mut excuses = BTreeSet::new();
    let mut ends: BTreeMap<NodeId, &Ended> = BTreeMap::new();
    for end in &net.history.ends {
        ends.entry(end.id).or_insert(&end.how);
    }
    let mut members: BTreeSet<NodeId> = BTreeSet::new();
    for commit in net.commits() {
        let mut digests = BTreeSet::new();
        for id in &commit.members {
            let Some(how) = ends.get(id) else { continue };
            match how {
                Ended::Formed(digest) => _ = digests.insert(*digest),
                Ended::Killed => _ = excuses.insert("a member of a world was killed near its commit"),
                Ended::Failed(Failure::OutcomeUnknown { .. }) => {
                    excuses.insert("a member of a world does not know of its commit");
                }
                how @ Ended::Failed(_) => {
                    return Err(format!("{} is in a world, and ends: {how:?}", net.history.host_of[id]));
                }
            }
        }
        if digests.len() > 1 {
            return Err(format!("one round, and the digests {digests:?}"));
        }
        members.extend(&commit.members);
    }
    for end in &net.history.ends {
        let alone = net.hosts[end.host].config.world.max().get() == 1;
        if matches!(end.how, Ended::Formed(_)) && !alone && !members.contains(&end.id) {
            return Err(format!("{} ends with a world that nobody has committed", end.host));
        }
    }
    Ok(excuses)
}

/// Checks what is promised in one kind of trouble alone.
fn check_kind(trouble: Trouble, net: &Network, formed: usize) -> Result<(), String> {
    let world = usize::try_from(net.hosts[0].config.world.max().get()).unwrap();
    match trouble {
        Trouble::Standby if formed != world => Err(format!("{formed} have formed a world of {world}")),
        // A node that starts after a world has formed may find no node that could tell it.
        Trouble::WrongSize if formed == 0 && has_candidate(net) && !sizes_are_reported(net) => {
            Err("no node reports that the sizes differ".to_owned())
        }
        // Where there are more nodes than ranks, one rank is there twice, and a world forms.
        Trouble::SameRank if formed != if net.hosts.len() > world { world } else { 0 } => {
            Err(format!("{formed} have formed a world of {world}"))
        }
        Trouble::Fabric if formed > 0 && lacks_required_rdma(net) => {
            Err("a world without RDMA has formed, and a node requires it".to_owned())
        }
        Trouble::Seeds if formed > 0 && !connected(net) => {
            Err("a world has formed of nodes that no seed connects".to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks the nodes that have ended with one world.
fn check_world(members: &[(&Host, &Formed)]) -> Result<(), String> {
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
    if members.iter().any(|(host, _)| host.config.tag != first.config.tag) {
        return Err("a world has nodes of two jobs".to_owned());
    }
    if members.iter().any(|(host, other)| host.config.world != other.asked || other.asked != formed.asked) {
        return Err("a world has nodes of another world size".to_owned());
    }
    if members.iter().any(|(host, formed)| host.config.node.rank.is_some_and(|rank| rank != formed.rank)) {
        return Err("a given rank was not kept".to_owned());
    }
    if members
        .iter()
        .any(|(_, other)| (&other.verdict, &other.sameness) != (&formed.verdict, &formed.sameness))
    {
        return Err("two nodes of one world have different verdicts".to_owned());
    }
    if members.iter().any(|(_, other)| other.world != formed.world) || !formed.asked.contains(formed.world) {
        return Err(format!("a world of {} where {} was asked for", formed.world, formed.asked));
    }
    if u32::try_from(members.len()).is_ok_and(|members| members > formed.world.get()) {
        return Err(format!("{} nodes in a world of {}", members.len(), formed.world));
    }
    let whole = u32::try_from(members.len()) == Ok(formed.world.get());
    let fabrics: Vec<Fabric> = members.iter().map(|(host, _)| host.fabric).collect();
    if whole && !Fabric::suits(formed.verdict.transport, &fabrics) {
        return Err(format!("{:?} for a world of {fabrics:?}", formed.verdict.transport));
    }
    let masters: BTreeSet<_> = members.iter().map(|(_, formed)| formed.master).collect();
    if masters.len() > 1 { Err(format!("MASTER_ADDR is {masters:?}")) } else { Ok(()) }
}

/// A world uses one address family where all its nodes have a family in common.
fn check_families(net: &Network, members: &[(&Host, &Formed)]) -> Result<(), String> {
    if common_in_the_end(net).is_empty() {
        return Ok(());
    }
    let ever = ever_common(net);
    match members.iter().find(|(_, formed)| !ever.contains(&formed.master.is_ipv6())) {
        Some((_, formed)) => Err(format!("not all nodes have an address of the family of {}", formed.master)),
        None => Ok(()),
    }
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
