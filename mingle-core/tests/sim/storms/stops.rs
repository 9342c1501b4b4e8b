//! Processes that are stopped for up to 60 s, and hosts that lose power, most of them in a round.

use std::time::Duration;

use mingle_core::proto::Time;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::worlds::weather;
use crate::network::{Network, Restarts};
use crate::{LIMIT, given, ms};

/// All that happens in these worlds is over long before this, and a world that can form has formed.
const PATIENCE: Duration = Duration::from_secs(240);
/// The virtual time that such a world may take.
pub(super) const LONG_LIMIT: Time = Time::from_secs(500);

/// A world, when its first round begins, and who leads it: found by running it until then.
fn with_round(make: impl Fn() -> Network) -> (Network, Option<(Time, usize)>) {
    let mut net = make();
    net.tracing = false;
    net.run_until(LIMIT, |net| (0..net.hosts.len()).any(|host| net.in_round(host)));
    // The leader is in a round first.
    let leader = (0..net.hosts.len()).find(|&host| net.in_round(host));
    (make(), leader.map(|leader| (net.now, leader)))
}

fn world(seed: u64, rng: &mut Xoshiro256PlusPlus, late: Option<Time>) -> Network {
    let mut net = Network::new(seed, weather(rng));
    let world: u32 = rng.random_range(2..=8);
    let style = rng.random_range(0..4);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    for index in 0..world {
        let rank = given(style, index, rng);
        let number = rng.random_range(0..40) * 10 + index + 1;
        let start = ms(rng.random_range(0..spread));
        let start = late.filter(|_| index == world - 1).unwrap_or(start);
        let host = net.add(number, world, rank, start);
        net.hosts[host].config.timeout = Some(PATIENCE);
    }
    net.restarts = if rng.random_bool(0.7) { Restarts::InDoubt } else { Restarts::Never };
    net
}

/// One to three processes are stopped, for 5 to 60 s.
pub(super) fn long_pause(seed: u64) -> Network {
    let make = || world(seed, &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x109), None);
    let (mut net, round) = with_round(make);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x60);
    for _ in 0..rng.random_range(1..=3) {
        let aimed = round.filter(|_| rng.random_bool(0.8));
        let (mut at, mut host) = (ms(rng.random_range(0..3000)), rng.random_range(0..net.hosts.len()));
        if let Some((begins, leader)) = aimed {
            let early = Duration::from_micros(rng.random_range(0..2000));
            at = (begins + Duration::from_micros(rng.random_range(0..12_000))).saturating_sub(early);
            host = if rng.random_bool(0.5) { leader } else { host };
        }
        net.pause_at(host, at, ms(rng.random_range(5000..60_000)));
    }
    net
}

/// One to three hosts lose power while a node is missing, or in a round, and start again after 0 to 40 s.
pub(super) fn power_loss(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9035);
    let late = rng.random_bool(0.5).then(|| ms(10_000));
    let make = || world(seed, &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x10559), late);
    let (mut net, round) = with_round(make);
    for _ in 0..rng.random_range(1..=3) {
        let host = rng.random_range(0..net.hosts.len());
        let at = match round.filter(|_| late.is_none() || rng.random_bool(0.3)) {
            Some((begins, _)) => begins + Duration::from_micros(rng.random_range(0..10_000)),
            None => ms(rng.random_range(100..10_000)),
        };
        let length =
            if rng.random_bool(0.5) { rng.random_range(1..2000) } else { rng.random_range(1..40_000) };
        net.hosts[host].silent = rng.random_bool(0.3);
        net.lose_power_at(host, at, ms(length));
        net.restart_at(host, at + ms(length + rng.random_range(1..1000)));
    }
    net
}
