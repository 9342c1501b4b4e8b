//! Worlds that start again because a command fails or a node is gone; a replacement takes its seat.

use std::collections::BTreeMap;
use std::time::Duration;

use mingle_core::proto::Time;
use mingle_core::proto::{Digest, Lineage};
use mingle_core::{End, Failure, Rank};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::network::{Network, Weather};
use crate::{failure, formed, ms, number, ranks, tail};

const SEEDS: u64 = 100;

/// Four hosts whose nodes stay with their commands.
fn world(seed: u64, loss: f64) -> Network {
    let mut net = Network::new(seed, Weather { loss, ..Weather::fine() });
    for number in 1..=4 {
        add(&mut net, number, Time::ZERO);
    }
    net
}

/// Adds a host whose node stays with its command.
fn add(net: &mut Network, number: u32, start: Time) -> usize {
    let host = net.add(number, 4, None, start);
    net.hosts[host].stays = true;
    net.hosts[host].config.node.attributes.wants_roster = true;
    host
}

fn generation(net: &Network, host: usize) -> u32 {
    net.hosts[host].config.lineage.generation
}

/// Goes on until these hosts are in one running world of this generation.
fn run_until_again(net: &mut Network, hosts: &[usize], wanted: u32, limit: Time) {
    let again = |net: &Network| {
        hosts.iter().all(|&host| generation(net, host) == wanted && net.hosts[host].running.is_some())
    };
    assert!(net.run_until(limit, again), "{}", tail(&net.trace));
    let digest = formed(net, hosts[0]).digest;
    assert!(hosts.iter().all(|&host| formed(net, host).digest == digest));
    let origin = net.hosts[hosts[0]].config.lineage.origin;
    assert!(hosts.iter().all(|&host| net.hosts[host].config.lineage.origin == origin));
}

#[test]
fn after_a_command_fails_all_start_again_with_the_same_ranks() {
    for (loss, most) in [(0.0, 50), (0.1, 5_000), (0.3, 20_000)] {
        for seed in 0..SEEDS {
            let mut net = world(seed, loss);
            run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
            let failed = usize::try_from(seed % 4).unwrap();
            let at = net.now + ms(500);
            net.end_command_at(failed, at, Some(End::Exited(7)));
            run_until_again(&mut net, &[0, 1, 2, 3], 1, at + ms(most));
            assert_eq!(ranks(&net), [0, 1, 2, 3]);
            let notified =
                net.hosts.iter().filter(|host| host.overs.iter().any(|over| over.end == End::Exited(7)));
            assert!(notified.count() >= if loss > 0.0 { 1 } else { 3 }, "seed {seed}\n{}", tail(&net.trace));
            assert!(net.hosts[failed].overs.is_empty(), "it is not notified of its own failure");
        }
    }
}

#[test]
fn a_node_that_leaves_is_named_to_all_and_replaced() {
    for loss in [0.0, 0.1] {
        for seed in 0..SEEDS {
            let mut net = world(seed, loss);
            run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
            let leaver = usize::try_from(seed % 4).unwrap();
            let at = net.now + ms(500);
            net.end_command_at(leaver, at, Some(End::Left));
            // Once the others know, or cannot be reached, the node takes part in the next formation no more.
            let left = |net: &Network| net.hosts[leaver].running.is_none();
            assert!(net.run_until(at + Duration::from_secs(2), |net| net.now > at && left(net)));
            let told = net.now;
            net.kill_at(leaver, told);
            let new = add(&mut net, 5, told + Duration::from_secs(3));
            let living: Vec<usize> = (0..4).filter(|&host| host != leaver).chain([new]).collect();
            run_until_again(&mut net, &living, 1, at + Duration::from_secs(40));
            let others = living.iter().filter(|&&host| host != new);
            let named = others.filter(|&&host| {
                let rank = u32::try_from(leaver).unwrap();
                let mut overs = net.hosts[host].overs.iter();
                overs.any(|over| over.end == End::Left && over.rank.map(Rank::get) == Some(rank))
            });
            assert!(named.count() >= if loss > 0.0 { 1 } else { 3 }, "seed {seed}\n{}", tail(&net.trace));
        }
    }
}

#[test]
fn without_multicast_the_nodes_find_each_other_again_at_their_former_addresses() {
    for seed in 0..SEEDS {
        let mut net = world(seed, 0.1);
        for host in 0..4 {
            net.hosts[host].deaf = true;
            net.hosts[host].seeds = vec!["10.0.0.1:29500".parse().unwrap()];
        }
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        for host in 0..4 {
            net.hosts[host].seeds.clear();
        }
        let at = net.now + ms(100);
        net.end_command_at(2, at, Some(End::Killed(9)));
        run_until_again(&mut net, &[0, 1, 2, 3], 1, at + Duration::from_secs(20));
    }
}

#[test]
fn nodes_that_all_fail_at_once_start_again_once() {
    for seed in 0..SEEDS {
        let mut net = world(seed, 0.1);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        let at = net.now + ms(500);
        for host in 0..4 {
            net.end_command_at(host, at + ms(seed % 3 * u64::try_from(host).unwrap()), Some(End::Exited(1)));
        }
        run_until_again(&mut net, &[0, 1, 2, 3], 1, at + Duration::from_secs(20));
    }
}

#[test]
fn a_replacement_of_a_dead_node_restarts_the_world_even_while_the_other_commands_hang() {
    for seed in 0..SEEDS {
        for dead in 0..4 {
            let mut net = world(seed, 0.1);
            run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
            let at = net.now + ms(500);
            net.kill_at(dead, at);
            let new = add(&mut net, 5, at + Duration::from_secs(1));
            let living: Vec<usize> = (0..4).filter(|&host| host != dead).chain([new]).collect();
            run_until_again(&mut net, &living, 1, at + Duration::from_secs(40));
            let overs = living.iter().flat_map(|&host| &net.hosts[host].overs);
            assert!(overs.clone().any(|over| over.end == End::Gone), "seed {seed}");
        }
    }
}

#[test]
fn a_late_replacement_joins_the_nodes_that_wait_for_it() {
    for seed in 0..SEEDS {
        let mut net = world(seed, 0.1);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        let at = net.now + ms(500);
        net.kill_at(0, at);
        for host in 1..4 {
            net.end_command_at(host, at + ms(50), Some(End::Exited(1)));
        }
        let new = add(&mut net, 5, at + Duration::from_secs(20));
        run_until_again(&mut net, &[1, 2, 3, new], 1, at + Duration::from_secs(40));
    }
}

#[test]
fn one_node_too_many_stops_no_world_and_learns_that_the_job_runs() {
    for seed in 0..20 {
        let mut net = world(seed, 0.3);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        let start = net.now + ms(500);
        let fifth = add(&mut net, 5, start);
        let ended = |net: &Network| net.hosts[fifth].outcome.is_some();
        assert!(net.run_until(start + Duration::from_secs(90), ended), "seed {seed}\n{}", tail(&net.trace));
        let Failure::Deadline(report) = failure(&net, fifth) else { panic!("seed {seed}") };
        assert!(report.running.is_some(), "seed {seed}");
        assert!(
            (0..4).all(|host| generation(&net, host) == 0 && net.hosts[host].overs.is_empty()),
            "seed {seed}"
        );
    }
}

#[test]
fn of_twice_as_many_nodes_as_seats_one_world_forms_and_the_others_step_down() {
    for seed in 0..50 {
        let mut net = world(seed, 0.1);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        // Three nodes wait beside the world, and a fourth one starts when the world starts again.
        for number in 5..8 {
            let start = net.now + ms(500);
            add(&mut net, number, start);
        }
        let failure = net.now + ms(3000);
        net.end_command_at(0, failure, Some(End::Exited(1)));
        add(&mut net, 8, failure + ms(5));
        net.run_until(failure + Duration::from_secs(40), |_| false);
        let restarted =
            (0..8).filter(|&host| net.hosts[host].running.is_some() && generation(&net, host) == 1);
        let worlds: Vec<_> = restarted.map(|host| formed(&net, host).digest).collect();
        assert_eq!(worlds.len(), 4, "seed {seed}\n{}", tail(&net.trace));
        assert!(worlds.iter().all(|digest| *digest == worlds[0]), "seed {seed}: {worlds:?}");
    }
}

#[test]
fn all_nodes_are_released_after_the_last_command_has_ended_well_and_not_before() {
    for (loss, most) in [(0.0, 200), (0.3, 15_000)] {
        for seed in 0..SEEDS {
            let mut net = world(seed, loss);
            run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
            let (start, mut last) = (net.now, net.now);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            for host in 0..4 {
                let at = start + ms(rng.random_range(0..30_000));
                net.end_command_at(host, at, None);
                last = last.max(at);
            }
            let early = |net: &Network| net.now < last && net.hosts.iter().any(|host| host.finished);
            assert!(!net.run_until(last, early), "seed {seed}\n{}", tail(&net.trace));
            let all = |net: &Network| net.hosts.iter().all(|host| host.finished);
            assert!(net.run_until(last + ms(most), all), "seed {seed}\n{}", tail(&net.trace));
        }
    }
}

#[test]
fn a_node_whose_command_has_ended_well_starts_again_with_the_others() {
    for seed in 0..SEEDS {
        let mut net = world(seed, 0.1);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        let at = net.now;
        for host in 0..3 {
            net.end_command_at(host, at + ms(100), None);
        }
        // Meanwhile rank 0 checks the running node more than once.
        net.end_command_at(3, at + Duration::from_secs(30), Some(End::Exited(1)));
        run_until_again(&mut net, &[0, 1, 2, 3], 1, at + Duration::from_secs(50));
    }
}

#[test]
fn nodes_that_have_finished_notice_that_a_running_node_is_gone() {
    for (seed, dead) in (0..SEEDS).flat_map(|seed| [(seed, 0), (seed, 3)]) {
        let mut net = world(seed, 0.1);
        run_until_again(&mut net, &[0, 1, 2, 3], 0, Time::from_secs(60));
        let at = net.now;
        for host in (0..4).filter(|&host| host != dead) {
            net.end_command_at(host, at + ms(100), None);
        }
        net.kill_at(dead, at + ms(200));
        let new = add(&mut net, 5, at + Duration::from_secs(40));
        let living: Vec<usize> = (0..4).filter(|&host| host != dead).chain([new]).collect();
        run_until_again(&mut net, &living, 1, at + Duration::from_secs(60));
    }
}

/// Commands fail and end, nodes die and replacements start, processes stop for a while.
#[test]
fn no_two_worlds_have_the_same_lineage_whatever_fails() {
    let runs = number("MINGLE_SIM_RUNS").unwrap_or(300);
    for seed in number("MINGLE_SEED").map_or(0..runs, |seed| seed..seed + 1) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut net = world(seed, [0.0, 0.1, 0.3][rng.random_range(0..3)]);
        let mut next = 5;
        for _ in 0..rng.random_range(1..12) {
            let (host, at) = (rng.random_range(0..4), ms(rng.random_range(0..60_000)));
            match rng.random_range(0..4) {
                0 => net.end_command_at(host, at, Some(End::Exited(1))),
                1 => net.end_command_at(host, at, None),
                2 => net.pause_at(host, at, ms(rng.random_range(0..12_000))),
                _ => {
                    net.kill_at(host, at);
                    add(&mut net, next, at + ms(rng.random_range(0..5_000)));
                    next += 1;
                }
            }
        }
        let mut worlds: BTreeMap<Lineage, Digest> = BTreeMap::new();
        let mut mixed = None;
        net.run_until(Time::from_secs(120), |net| {
            for host in net.hosts.iter().filter(|host| host.running.is_some()) {
                if let Some(Ok(formed)) = &host.outcome {
                    let lineage = host.running.as_ref().unwrap().lineage();
                    let is_running = lineage == host.config.lineage;
                    if is_running && *worlds.entry(lineage).or_insert(formed.digest) != formed.digest {
                        mixed = Some(lineage);
                    }
                }
            }
            mixed.is_some()
        });
        assert_eq!(mixed, None, "seed {seed}\n{}", tail(&net.trace));
        assert!(net.broken.is_empty(), "seed {seed}: {:?}\n{}", net.broken, tail(&net.trace));
    }
}
