//! Single worlds in trouble, each of which has failed once.

use std::time::Duration;

use mingle_core::Failure;
use mingle_core::Trait;
use mingle_core::proto::testing::{Forger, Scene};
use mingle_core::proto::{Config, Frame, Time};
use mingle_core::rdma::Transport;

use crate::network::{Fabric, Network, Unformed, Weather};
use crate::{LIMIT, finish, formed, ms, tail};

#[test]
fn a_roster_that_all_want_reaches_a_node_without_multicast() {
    let mut net = Network::new(30, Weather::fine());
    for number in 1..=5 {
        let host = net.add(number, 5, None, Time::ZERO);
        net.hosts[host].config.node.attributes.wants_roster = true;
        net.hosts[host].deaf = number == 5;
    }
    let last = finish(&mut net);
    assert!(last < Duration::from_secs(2), "{last:?}\n{}", tail(&net.trace));
    assert!((0..5).all(|host| formed(&net, host).roster.is_some()));
}

#[test]
fn a_roster_reaches_1000_nodes_at_5_percent_loss() {
    let mut net = Network::new(31, Weather { loss: 0.05, ..Weather::fine() });
    net.tracing = false;
    for number in 1..=1000 {
        let host = net.add(number, 1000, None, ms(u64::from(number % 100)));
        net.hosts[host].config.node.attributes.wants_roster = true;
    }
    assert!(net.run(Duration::from_secs(3)), "some have not ended at {:?}", net.now);
}

#[test]
fn a_leader_stays_master_although_a_member_is_stopped_between_its_join_and_its_proof() {
    // The only node that may be rank 0 leads; rank 1 is stopped before its connection is open.
    let mut net = Network::new(32, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    net.add(1, 2, None, Time::ZERO);
    net.add(2, 2, Some(1), ms(100));
    net.pause_at(1, ms(105), ms(4300));
    let last = finish(&mut net);
    assert_eq!(formed(&net, 0).rank.get(), 0);
    assert!(last < Duration::from_secs(8), "{last:?}\n{}", tail(&net.trace));
}

#[test]
fn a_leader_that_was_stopped_while_nodes_joined_gets_its_members_when_it_goes_on() {
    let mut net = Network::new(33, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    net.add(1, 4, None, Time::ZERO);
    for number in 2..=4 {
        net.add(number, 4, None, ms(100));
    }
    net.pause_at(0, ms(107), ms(4000));
    let last = finish(&mut net);
    assert!(last < Duration::from_secs(8), "{last:?}\n{}", tail(&net.trace));
}

#[test]
fn a_third_node_introduces_two_nodes_without_multicast() {
    // The leader and rank 1 receive no multicast. Rank 2 receives the multicast of both.
    let mut net = Network::new(34, Weather::fine());
    net.add(1, 3, Some(0), Time::ZERO);
    net.add(2, 3, Some(1), ms(500));
    net.add(3, 3, Some(2), Time::ZERO);
    net.hosts[0].deaf = true;
    net.hosts[1].deaf = true;
    let last = finish(&mut net);
    assert!(last < Duration::from_secs(5), "{last:?}\n{}", tail(&net.trace));
}

#[test]
fn a_connection_that_breaks_at_one_end_is_replaced() {
    let mut net = Network::new(35, Weather::fine());
    net.add(1, 3, None, Time::ZERO);
    net.add(2, 3, None, Time::ZERO);
    net.add(3, 3, None, ms(6000));
    net.break_at(1, ms(5500));
    let last = finish(&mut net);
    assert!(last < ms(6500), "{last:?}\n{}", tail(&net.trace));
}

/// What a node says that cannot prove the path to this master in the first round.
fn broken(net: &Network, master: usize) -> Frame {
    let Config { id, node, .. } = &net.hosts[master].config;
    let scene = Scene {
        nodes: vec![*id],
        endpoints: node.endpoints.to_vec(),
        world: 3,
        ranks: vec![0],
        rounds: vec![1],
        recipient: node.endpoints[0].ip(),
        rosters: Vec::new(),
    };
    // A part, which is broken, by one path.
    Forger::frame(6, 1, 0, &scene, &[1, 1]).unwrap()
}

#[test]
fn a_round_ends_although_the_leader_proves_the_master_after_another_node_has_given_up() {
    // 2 leads. 1 comes last and is the master; 3 never connects to it, and 2 only late.
    for at in (2500..3200).step_by(50) {
        let mut net = Network::new(5, Weather::fine());
        let master = net.add(1, 3, None, ms(1000));
        let leader = net.add(2, 3, None, Time::ZERO);
        let third = net.add(3, 3, None, Time::ZERO);
        net.no_syn.insert((third, master), Duration::from_secs(80));
        net.no_syn.insert((leader, master), ms(2500));
        // Just before, a node that is no member says that it does not reach the master in round 1.
        net.run_until(ms(at), |_| false);
        net.forge_at(leader, broken(&net, master), ms(at));
        let last = finish(&mut net);
        assert!(last < Duration::from_secs(15), "forged at {at}: {last:?}\n{}", tail(&net.trace));
    }
}

#[test]
fn a_chain_of_seeds_forms_a_world_without_multicast() {
    // Rank 1 is the leader's seed, and rank 2 is rank 1's: each learns of the leader only if it asks back.
    let mut net = Network::new(39, Weather::fine());
    for (group, number) in (1..=4).enumerate() {
        let host = net.add(number, 4, Some(number - 1), Time::ZERO);
        net.hosts[host].group = u32::try_from(group).unwrap();
    }
    for host in 0..3 {
        net.hosts[host].seeds = net.hosts[host + 1].config.node.endpoints.to_vec();
    }
    let last = finish(&mut net);
    assert!((0..4).all(|host| formed(&net, host).world.get() == 4));
    assert!(last < Duration::from_secs(10), "{last:?}\n{}", tail(&net.trace));
}

#[test]
fn rdma_that_all_nodes_have_is_enough_although_all_traits_differ() {
    let mut net = Network::new(40, Weather::fine());
    for number in 1..=9 {
        let host = net.add(number, 9, None, Time::ZERO);
        net.set_fabric(host, Fabric::InfiniBand);
        net.need_rdma(host);
        // More nodes differ than a verdict names.
        net.hosts[host].set_traits([Trait::shown("image", number.to_string())], false);
    }
    finish(&mut net);
    assert!((0..9).all(|host| formed(&net, host).verdict.transport == Transport::InfiniBand));
}

#[test]
fn a_node_learns_that_its_rank_is_taken_although_datagrams_are_lost() {
    let refused = (0..200).filter(|&seed| {
        let mut net = Network::new(seed, Weather { loss: 0.1, ..Weather::fine() });
        net.add(1, 3, Some(0), Time::ZERO);
        net.add(2, 3, Some(1), Time::ZERO);
        net.add(3, 3, Some(1), ms(500));
        let _ = net.run(LIMIT);
        matches!(net.hosts[2].outcome, Some(Err(Unformed::Failed(Failure::RankTaken { .. }))))
    });
    assert!(refused.count() >= 198);
}

#[test]
fn a_standby_learns_that_the_world_is_full_although_datagrams_are_lost() {
    let refused = (0..200).filter(|&seed| {
        let mut net = Network::new(seed, Weather { loss: 0.1, ..Weather::fine() });
        for (number, start) in [(1, 0), (2, 0), (3, 1000), (4, 1500)] {
            net.add(number, 3, None, ms(start));
        }
        // The world is full at 1 s, but one of its nodes is stopped; the fourth node is a standby.
        net.pause_at(1, ms(900), ms(2500));
        let _ = net.run(LIMIT);
        matches!(net.hosts[3].outcome, Some(Err(Unformed::Failed(Failure::WorldFull { .. }))))
    });
    assert!(refused.count() >= 198);
}
