//! The checks of a prepare, before a follower takes part in the round. A leader that keeps to the protocol
//! never fails them. The texts are for the log.

use std::net::SocketAddr;

use crate::model::{NodeId, Rank, Roster, Slots, World};
use crate::proto::report::Formed;
use crate::proto::shared::Shared;
use crate::wire::{ADDRESSES, Introduction, Prepare};

/// The world with the roster that was told before its prepare, if this node wants that; or what is wrong.
pub(super) fn with_roster(
    formed: Formed,
    told: Option<(u64, Roster)>,
    prepare: &Prepare,
    shared: &Shared,
) -> Result<Formed, &'static str> {
    if !shared.config.node.attributes.wants_roster {
        return Ok(formed);
    }
    let roster = told.filter(|(round, _)| *round == prepare.round).map(|(_, roster)| roster);
    let meant = roster.filter(|roster| is_meant(roster, &formed, prepare.master, shared.me()));
    let roster = Some(meant.ok_or("another roster than that of the prepare")?);
    Ok(Formed { roster, ..formed })
}

/// Whether the roster is the one of the prepare, and gives this node and the master the same places.
fn is_meant(roster: &Roster, formed: &Formed, master: NodeId, me: NodeId) -> bool {
    let members = roster.members();
    let own = usize::try_from(formed.rank.get()).ok().and_then(|rank| members.get(rank));
    let once = members.iter().filter(|member| member.id == me).count() == 1;
    u32::try_from(members.len()) == Ok(formed.world.get())
        && roster.digest() == formed.digest
        && once
        && own.is_some_and(|own| own.id == me)
        && members.first().is_some_and(|first| (first.id, first.address) == (master, formed.master))
        && roster.slots(formed.rank) == Some(formed.slots)
}

/// The world as the prepare describes it, or what is wrong with it. A world that forms again may have any
/// leader.
pub(crate) fn prepare(
    prepare: &Prepare,
    leader: Option<&Introduction>,
    shared: &Shared,
) -> Result<Formed, &'static str> {
    let node = &shared.config.node;
    let possible = shared.config.least()..=shared.most();
    let world = World::new(prepare.world).ok().filter(|world| possible.contains(&world.get()));
    let world = world.ok_or("the world has another size than this node expects")?;
    let rank = world.rank(prepare.rank).map_err(|_| "the rank is not below the size of the world")?;
    let is_master = prepare.master == shared.me();
    let own = SocketAddr::new(prepare.address, node.endpoints.preferred().port());
    let is_masters = |leader: &Introduction| prepare.master == leader.candidate.id;
    // A loopback address is this host's own, so a leader on another host cannot mean it.
    let is_local = leader.is_some_and(|leader| leader.source.ip().is_loopback())
        || node.endpoints.preferred().ip().is_loopback();
    let most = usize::try_from(ADDRESSES.saturating_mul(world.get() - 1)).unwrap_or(usize::MAX);
    let slots =
        Slots { own: node.attributes.slots, before: prepare.slots_before, total: prepare.slots_total };
    let rules = [
        (node.rank.is_none_or(|given| given == rank), "another rank than the given one"),
        ((rank == Rank(0)) == is_master, "rank 0 and the master are two nodes"),
        (
            !is_master || prepare.master_at == own,
            "this node is the master, at an endpoint that is not its own",
        ),
        (
            leader.is_none_or(|leader| !leader.candidate.explicit || is_masters(leader)),
            "the leader was given rank 0 and is not the master",
        ),
        (is_local || !prepare.master_at.ip().is_loopback(), "the master has a loopback address"),
        (prepare.partners.len() <= most, "more paths than the other nodes have addresses"),
        (are_possible(slots, rank, world.get()), "the numbers of workers are not possible"),
    ];
    if let Some((_, wrong)) = rules.into_iter().find(|(holds, _)| !holds) {
        return Err(wrong);
    }
    let formed = Formed::new(rank, world, prepare.master_at, prepare.address, prepare.digest);
    Ok(Formed { asked: shared.config.world, slots, ..formed })
}

/// Whether a world of this size can have these slots as the node of this rank sees them.
fn are_possible(slots: Slots, rank: Rank, world: u32) -> bool {
    let most = |nodes: u32| u64::from(nodes) * u64::from(u32::MAX);
    let after = slots.total.checked_sub(slots.before).and_then(|rest| rest.checked_sub(slots.own.into()));
    slots.before <= most(rank.get()) && after.is_some_and(|after| after <= most(world - 1 - rank.get()))
}
