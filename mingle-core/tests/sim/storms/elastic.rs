//! Worlds that may have one of several sizes: nodes that start when the last call ends, cuts around that
//! moment, and leaders and masters that die then.

use std::collections::BTreeMap;
use std::time::Duration;

use mingle_core::proto::{NodeId, Time};
use mingle_core::{World, WorldSize};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::worlds::weather;
use crate::network::{Ended, Fact, Network};
use crate::{LIMIT, ms};

/// What goes wrong at the end of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Latecomers,
    Cut,
    Halves,
    Crash,
    Pause,
}

const ALL: [At; 6] = [At::Nothing, At::Latecomers, At::Cut, At::Halves, At::Crash, At::Pause];

/// The world of a seed. A first run of it finds the moment at which the first round begins.
pub(super) fn elastic(seed: u64) -> Network {
    let mut net = start(seed);
    net.tracing = false;
    net.run_until(LIMIT, |net| (0..net.hosts.len()).any(|host| net.in_round(host)));
    let (begins, leader) = (net.now, (0..net.hosts.len()).find(|&host| net.in_round(host)).unwrap_or(0));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xca11);
    let mut net = start(seed);
    // Most of a round of few nodes takes less than 20 ms.
    let near = |rng: &mut Xoshiro256PlusPlus| {
        (begins + Duration::from_micros(rng.random_range(0..25_000))).saturating_sub(ms(10))
    };
    let at = ALL[rng.random_range(0..ALL.len())];
    let count = net.hosts.len();
    match at {
        At::Nothing => {}
        At::Latecomers => {
            for number in 1..=rng.random_range(1..3) {
                let at = near(&mut rng);
                let world = net.hosts[0].config.world;
                add(&mut net, &mut rng, world, 500 + number, at);
            }
        }
        At::Cut => {
            let (from, to) = (rng.random_range(0..count), rng.random_range(0..count));
            let at = near(&mut rng).saturating_sub(ms(rng.random_range(0..1000)));
            net.cut_at(from, to, at, ms(rng.random_range(10..12_000)));
        }
        At::Halves => {
            let half = rng.random_range(1..count.max(2));
            let at = near(&mut rng).saturating_sub(ms(rng.random_range(0..1000)));
            let length = ms(rng.random_range(10..12_000));
            for (a, b) in (0..half).flat_map(|a| (half..count).map(move |b| (a, b))) {
                net.cut_at(a, b, at, length);
                net.cut_at(b, a, at, length);
            }
        }
        At::Crash => {
            let victim = if rng.random_bool(0.6) { leader } else { rng.random_range(0..count) };
            let at = near(&mut rng);
            net.kill_at(victim, at);
            if rng.random_bool(0.5) {
                net.restart_at(victim, at + ms(rng.random_range(0..500)));
            }
        }
        At::Pause => {
            let victim = if rng.random_bool(0.6) { leader } else { rng.random_range(0..count) };
            net.pause_at(victim, near(&mut rng), ms(rng.random_range(10..20_000)));
        }
    }
    net
}

/// The nodes that are here at the start: one less than enough, enough, or up to the most.
fn start(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xe1a);
    let mut net = Network::new(seed, weather(&mut rng));
    let min: u32 = rng.random_range(2..=5);
    let max = rng.random_range(min + 1..=2 * min - 1);
    let world: WorldSize = format!("{min}:{max}").parse().unwrap();
    let least = min - u32::from(rng.random_bool(0.2));
    let count = rng.random_range(least..=max);
    let spread = if rng.random_bool(0.5) { 5 } else { 4000 };
    for index in 0..count {
        let number = rng.random_range(0..40) * 10 + index + 1;
        let start = ms(rng.random_range(0..spread));
        add(&mut net, &mut rng, world, number, start);
    }
    net
}

fn add(net: &mut Network, rng: &mut Xoshiro256PlusPlus, world: WorldSize, number: u32, start: Time) {
    let host = net.add(number, world.max().get(), None, start);
    let config = &mut net.hosts[host].config;
    config.world = world;
    config.last_call = ms(2000);
    config.node.attributes.wants_roster = rng.random_bool(0.3);
}

/// Each world that was committed has a size that was asked for, and all of its members print that size.
pub(super) fn check(net: &mut Network) -> Result<(), String> {
    let mut committed: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut facts = Vec::new();
    let world = net.hosts[0].config.world;
    if !world.is_range() {
        return Ok(());
    }
    for commit in net.commits() {
        let size = commit.members.len();
        let formed = World::new(u32::try_from(size).unwrap()).unwrap();
        if !world.contains(formed) {
            return Err(format!("{size} nodes have formed a world of {world}"));
        }
        if formed < world.max() {
            facts.push(Fact::Smaller);
        }
        let came = |end: &crate::network::End| end.started <= commit.at && end.at > commit.at;
        let left_out = |end: &crate::network::End| came(end) && !commit.members.contains(&end.id);
        if net.history.ends.iter().any(left_out) {
            facts.push(Fact::LeftOut);
        }
        committed.extend(commit.members.iter().map(|&id| (id, size)));
    }
    for host in &net.hosts {
        let Some(Ok(formed)) = &host.outcome else { continue };
        let size = committed.get(&host.config.id).copied().unwrap_or(1);
        if usize::try_from(formed.world.get()) != Ok(size) {
            return Err(format!("a node prints {} in a world of {size}", formed.world));
        }
    }
    let formed = net.history.ends.iter().filter(|end| matches!(end.how, Ended::Formed(_))).count();
    facts.extend((formed == 0).then_some(Fact::NoneFormed));
    for fact in facts {
        *net.history.facts.entry(fact).or_default() += 1;
    }
    Ok(())
}
