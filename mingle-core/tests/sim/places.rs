//! Ranks in the order of places: few neighbours are far from each other, after a replacement as well.

use std::time::Duration;

use mingle_core::proto::Time;
use mingle_core::{Place, RankBy};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::network::{Network, Weather};
use crate::{formed, tail};

const WORLD: u32 = 64;

/// Adds a host in this rack of a block.
fn add(net: &mut Network, number: u32, place: &str, start: Time) -> usize {
    let host = net.add(number, WORLD, None, start);
    net.hosts[host].stays = true;
    let config = &mut net.hosts[host].config;
    config.rank_by = RankBy::Place;
    config.node.attributes.wants_roster = true;
    config.node.attributes.place = place.parse::<Place>().unwrap().hash();
    host
}

fn all_run(net: &mut Network, hosts: &[usize], generation: u32, limit: Time) {
    let all = |net: &Network| {
        let mut hosts = hosts.iter().map(|&host| &net.hosts[host]);
        hosts.all(|host| host.config.lineage.generation == generation && host.running.is_some())
    };
    assert!(net.run_until(limit, all), "{}", tail(&net.trace));
}

/// How many edges of the ring connect hosts of different blocks.
fn crossings(net: &Network, hosts: &[(usize, String)]) -> usize {
    let mut ranked: Vec<(u32, &str)> = hosts
        .iter()
        .map(|(host, place)| (formed(net, *host).rank.get(), place.split('/').next().unwrap()))
        .collect();
    ranked.sort_unstable();
    assert!(ranked.iter().zip(0..).all(|((rank, _), place)| *rank == place), "all ranks are there");
    let next = ranked.iter().cycle().skip(1);
    ranked.iter().zip(next).filter(|((_, one), (_, other))| one != other).count()
}

#[test]
fn a_ring_through_four_blocks_crosses_four_times_and_at_most_two_more_after_a_replacement() {
    for seed in 0..8 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut net = Network::new(seed, Weather { loss: 0.05, ..Weather::fine() });
        net.tracing = false;
        // What address a host has says nothing of its block.
        let mut numbers: Vec<(u32, u32)> = (1..=WORLD).map(|number| (rng.random(), number)).collect();
        numbers.sort_unstable();
        let mut hosts: Vec<(usize, String)> = Vec::new();
        for (at, (_, number)) in numbers.into_iter().enumerate() {
            let place = format!("block-{}/rack-{}", at / 16, at / 4 % 4);
            let start = rng.random_range(Time::ZERO..=Duration::from_secs(1));
            hosts.push((add(&mut net, number, &place, start), place));
        }
        let here = |hosts: &[(usize, String)]| hosts.iter().map(|(host, _)| *host).collect::<Vec<_>>();
        all_run(&mut net, &here(&hosts), 0, Duration::from_secs(60));
        assert_eq!(crossings(&net, &hosts), 4, "seed {seed}");

        for (generation, is_near) in [(1, true), (2, false)] {
            let before: Vec<u32> = hosts.iter().map(|(host, _)| formed(&net, *host).rank.get()).collect();
            let lost = rng.random_range(0..hosts.len());
            let (dead, place) = hosts[lost].clone();
            let at = net.now + Duration::from_secs(1);
            net.kill_at(dead, at);
            let place = if is_near { place } else { "block-9/rack-9".to_owned() };
            let new = add(&mut net, WORLD + generation, &place, at + Duration::from_secs(1));
            hosts[lost] = (new, place);
            all_run(&mut net, &here(&hosts), generation, at + Duration::from_secs(60));
            let after: Vec<u32> = hosts.iter().map(|(host, _)| formed(&net, *host).rank.get()).collect();
            assert_eq!(before, after, "seed {seed}: the new one has the rank of the lost one");
            let limit = if is_near { 4..=4 } else { 4..=6 };
            assert!(limit.contains(&crossings(&net, &hosts)), "seed {seed}: {}", crossings(&net, &hosts));
        }
        assert_eq!(net.broken, [""; 0], "seed {seed}");
    }
}
