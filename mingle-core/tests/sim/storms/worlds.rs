//! Makes and runs one world for each seed and kind of trouble.

use std::time::Duration;

use mingle_core::proto::Time;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::Trouble;
use super::elastic::elastic;
use super::families::families;
use super::neighbours::{one_address, translated};
use super::seeds::seeds;
use super::stops::{LONG_LIMIT, long_pause, power_loss};
use crate::network::{Flaw, Lateness, Network, PORT, Weather};
use crate::{LIMIT, given, ms};

/// Runs the world of a seed from its start to its end, with a trace or without.
pub(super) fn run(seed: u64, trouble: Trouble, tracing: bool) -> Network {
    let mut net = match trouble {
        Trouble::EarlyCrash => early_crash(seed),
        Trouble::LateCrash => late_crash(seed),
        Trouble::Jobs => two_jobs(seed, false),
        Trouble::Mistaken => two_jobs(seed, true),
        Trouble::WrongSize => wrong_size(seed),
        Trouble::SameRank => same_rank(seed),
        Trouble::Seeds => seeds(seed),
        Trouble::Families => families(seed),
        Trouble::LongPause => long_pause(seed),
        Trouble::PowerLoss => power_loss(seed),
        Trouble::OneAddress => one_address(seed),
        Trouble::Translated => translated(seed),
        Trouble::Elastic => elastic(seed),
        _ => usual(seed, trouble, None),
    };
    net.tracing = tracing;
    if trouble == Trouble::Paths {
        break_paths(seed, &mut net);
    } else if seed % 2 == 1 && trouble.can_prove_paths() {
        net.prove_paths();
    } else {
        net.prove_masters();
    }
    let _ = net.run(LONG_LIMIT);
    net
}

/// Some paths are broken, and some of these work again after a while.
fn break_paths(seed: u64, net: &mut Network) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9a7);
    net.prove_paths();
    for _ in 0..rng.random_range(1..=3) {
        let (from, to) = (rng.random_range(0..net.hosts.len()), rng.random_range(0..net.hosts.len()));
        let flaw = [Flaw::Filtered, Flaw::Rejected, Flaw::Hole(1400)][rng.random_range(0..3)];
        if from != to {
            net.flaws.insert((from, to), flaw);
        }
    }
    if rng.random_bool(0.3) {
        let victim = rng.random_range(0..net.hosts.len());
        let at = ms(rng.random_range(0..6000));
        net.kill_at(victim, at);
        net.restart_at(victim, at + ms(rng.random_range(0..2000)));
    }
    if rng.random_bool(0.7) {
        let healed = ms(rng.random_range(100..15_000));
        let _ = net.run_until(healed, |net| net.hosts.iter().all(|host| host.outcome.is_some()));
        if !net.flaws.is_empty() {
            net.heal_paths();
        }
    }
}

pub(crate) fn weather(rng: &mut Xoshiro256PlusPlus) -> Weather {
    Weather {
        loss: if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.3) },
        duplicate: if rng.random_bool(0.5) { 0.0 } else { 0.1 },
        delay: (Duration::from_micros(50), Duration::from_micros(rng.random_range(60..5000))),
    }
}

/// Makes timers or packets late, and hosts have two kinds of RDMA.
fn burden(trouble: Trouble, net: &mut Network, rng: &mut Xoshiro256PlusPlus) {
    match trouble {
        Trouble::LateTimers => {
            let most = ms([5, 150][rng.random_range(0..2)]);
            net.lateness = Some(Lateness { most, rare: ms(rng.random_range(150..2000)) });
        }
        Trouble::Slow => {
            net.weather.delay = (ms([0, 50, 150][rng.random_range(0..3)]), ms(rng.random_range(210..=400)));
            net.weather.loss /= 2.0;
        }
        Trouble::Fabric => net.mix_kinds(),
        _ => {}
    }
}

fn usual(seed: u64, trouble: Trouble, late: Option<(usize, Time)>) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xbad);
    let weather = weather(&mut rng);
    let mut net = Network::varied(seed, weather);
    burden(trouble, &mut net, &mut rng);
    let world: u32 = rng.random_range(2..=8);
    let count = if trouble == Trouble::Standby { world + 1 } else { world };
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = if trouble == Trouble::Standby { 3 } else { rng.random_range(0..4) };
    for index in 0..count {
        let rank = given(style, index, &mut rng);
        let number = rng.random_range(0..40) * 10 + index + 1;
        let host = net.add(number, world, rank, ms(rng.random_range(0..spread)));
        if trouble == Trouble::Addresses {
            if rng.random_bool(0.7) {
                net.add_address(host, [172, 17, 0, 1].into(), rng.random_bool(0.5), true);
            }
            if rng.random_bool(0.5) {
                let last = u8::try_from(index + 1).unwrap();
                net.add_address(host, [192, 168, 0, last].into(), rng.random_bool(0.5), rng.random_bool(0.5));
            }
        }
        if trouble == Trouble::Fabric && rng.random_bool(0.3) {
            net.need_rdma(host);
        }
        if trouble == Trouble::Deaf {
            net.hosts[host].config.node.attributes.wants_roster = rng.random_bool(0.8);
            // The first node receives multicast, because two nodes that do not would never meet.
            net.hosts[host].deaf = index > 0 && world > 2 && rng.random_bool(0.3);
        }
    }
    let count = usize::try_from(count).unwrap();
    match trouble {
        Trouble::Pause => {
            for _ in 0..rng.random_range(1..3) {
                let host = rng.random_range(0..count);
                let at =
                    if rng.random_bool(0.5) { rng.random_range(0..30) } else { rng.random_range(0..3000) };
                net.pause_at(host, ms(at), ms(rng.random_range(10..8000)));
            }
        }
        Trouble::Cut => {
            for _ in 0..rng.random_range(1..3) {
                let (from, to) = (rng.random_range(0..count), rng.random_range(0..count));
                net.cut_at(from, to, ms(rng.random_range(0..2000)), ms(rng.random_range(10..20_000)));
            }
        }
        Trouble::Partition => {
            let half = rng.random_range(1..count);
            let (at, length) = (ms(rng.random_range(0..2000)), ms(rng.random_range(10..20_000)));
            for (a, b) in (0..half).flat_map(|a| (half..count).map(move |b| (a, b))) {
                net.cut_at(a, b, at, length);
                net.cut_at(b, a, at, length);
            }
        }
        _ => {}
    }
    if let Some((victim, at)) = late {
        net.kill_at(victim, at);
        net.restart_at(victim, at + ms(rng.random_range(0..500)));
    }
    net
}

/// A node is killed near the end, which a first run of the same seed finds.
fn late_crash(seed: u64) -> Network {
    let mut net = usual(seed, Trouble::LateCrash, None);
    net.tracing = false;
    let _ = net.run(LIMIT);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xdead);
    let end = net.hosts.iter().filter_map(|host| host.ended).min().unwrap_or_default();
    let victim = rng.random_range(0..net.hosts.len());
    let at = (end + Duration::from_micros(rng.random_range(0..20_000))).saturating_sub(ms(10));
    usual(seed, Trouble::LateCrash, Some((victim, at)))
}

/// Nodes are killed and started again while one node is missing, which starts after 10 s.
fn early_crash(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xeac);
    let weather = weather(&mut rng);
    let mut net = Network::varied(seed, weather);
    let world: u32 = rng.random_range(3..=8);
    let style = rng.random_range(0..4);
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let number = rng.random_range(0..40) * 10 + index + 1;
        let start = if index == world - 1 { ms(10_000) } else { ms(rng.random_range(0..2000)) };
        net.add(number, world, rank, start);
    }
    for _ in 0..rng.random_range(1..5) {
        let victim = rng.random_range(0..usize::try_from(world - 1).unwrap());
        let at = ms(rng.random_range(0..7000));
        net.kill_at(victim, at);
        net.restart_at(victim, at + ms(rng.random_range(0..1000)));
    }
    net
}

/// Two jobs on one network, whose groups are the same or not, and whose nodes may share a host. Where they
/// are `mistaken` for each other, hosts of both share some addresses.
fn two_jobs(seed: u64, mistaken: bool) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ if mistaken { 0x315 } else { 0x10b5 });
    let weather = weather(&mut rng);
    let mut net = Network::varied(seed, weather);
    let one_group = rng.random_bool(0.7);
    for job in 0..2 {
        let world: u32 = rng.random_range(2..=5);
        let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
        let style = rng.random_range(0..4);
        for index in 0..world {
            let rank = given(style, index, &mut rng);
            let number = rng.random_range(0..40) * 10 + index + 1;
            let start = ms(rng.random_range(0..spread));
            let name = if job == 0 { "sim" } else { "another" };
            let host = if mistaken {
                net.add_to(name, number + 5 * job, PORT, world, rank, start)
            } else {
                net.add_to(name, number, PORT + u16::from(job == 1), world, rank, start)
            };
            net.hosts[host].group = if one_group { 0 } else { job };
        }
    }
    if mistaken {
        for last in 1..=rng.random_range(1..3) {
            for host in 0..net.hosts.len() {
                if rng.random_bool(0.5) {
                    net.add_shared_address(host, [192, 168, 0, last].into(), rng.random_bool(0.5));
                }
            }
        }
    }
    net
}

/// One or two nodes have another world size. The others are as many as their world, or one less.
fn wrong_size(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x512e);
    let weather = weather(&mut rng);
    let mut net = Network::varied(seed, weather);
    let world: u32 = rng.random_range(2..=6);
    let other = (world - 2 + rng.random_range(1..6)) % 6 + 2;
    let right = world - u32::from(rng.random_bool(0.3));
    let wrong = 1 + u32::from(rng.random_bool(0.3));
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = rng.random_range(0..4);
    for index in 0..right + wrong {
        let size = if index < right { world } else { other };
        let rank = given(style, index, &mut rng).filter(|&rank| rank < size);
        let number = rng.random_range(0..40) * 10 + index + 1;
        net.add(number, size, rank, ms(rng.random_range(0..spread)));
    }
    net
}

/// Two nodes were given the same rank. There is a node for each of the other ranks, or one is missing.
fn same_rank(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x2a2a);
    let weather = weather(&mut rng);
    let mut net = Network::varied(seed, weather);
    let world: u32 = rng.random_range(2..=8);
    let twice = rng.random_range(0..world);
    let missing = rng.random_bool(0.3).then(|| (twice + rng.random_range(1..world)) % world);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = rng.random_range(0..4);
    for index in (0..=world).filter(|&index| Some(index) != missing) {
        let twin = index == twice || index == world;
        let rank = if twin { Some(twice) } else { given(style, index, &mut rng) };
        let number = rng.random_range(0..40) * 10 + index + 1;
        net.add(number, world, rank, ms(rng.random_range(0..spread)));
    }
    net
}
