//! Makes one running world for each seed and kind of trouble.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use mingle_core::proto::Time;
use mingle_core::{End, WorldSize};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::Trouble;
use crate::network::{Lateness, Network, Restarts};
use crate::storms::worlds::weather;
use crate::{given, ms};

/// All nodes have started by then, and most worlds have formed.
const FORMED: u64 = 6_000;
/// No trouble begins later.
const LAST: u64 = 60_000;
/// A look by a newcomer names at most so many members that have not answered.
const MISSING: u32 = 32;

/// A world and the troubles that await it, and when the last of them is over.
pub(super) fn make(seed: u64, trouble: Trouble) -> (Network, Time) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x4044);
    let mut net = Network::new(seed, weather(&mut rng));
    net.restarts = Restarts::All;
    if trouble == Trouble::Mixed {
        let late = Lateness { most: ms(150), rare: ms(2000) };
        net.lateness = rng.random_bool(0.3).then_some(late);
        if rng.random_bool(0.2) {
            net.weather.delay = (ms(rng.random_range(0..150)), ms(rng.random_range(200..=400)));
            net.weather.loss /= 2.0;
        }
    }
    let world = if rng.random_bool(0.05) { rng.random_range(13..=40) } else { rng.random_range(2..=12) };
    let (style, families) = (rng.random_range(0..4), rng.random_range(0..3));
    let mut hosts = Hosts { world, least: world, style, families, proves: seed % 2 == 1, next: 1 };
    let mut count = world;
    if trouble == Trouble::Elastic {
        // Two worlds cannot be while no more nodes than the most are there.
        hosts.least = rng.random_range(world / 2 + 1..=world);
        // The commands of a world that does not watch are not stopped where a node is cut off.
        (hosts.style, hosts.proves) = (3, true);
        count = rng.random_range(hosts.least..=world);
    }
    for index in 0..count {
        let rank = given(hosts.style, index, &mut rng);
        hosts.add(&mut net, rank, ms(rng.random_range(0..2000)), &mut rng);
    }
    let mut calm = ms(FORMED);
    for _ in 0..rng.random_range(1..=4) {
        let kinds = [Trouble::Commands, Trouble::Deaths, Trouble::Pauses, Trouble::Cuts, Trouble::Halves];
        let is_any = matches!(trouble, Trouble::Mixed | Trouble::Elastic);
        let one = if is_any { kinds[rng.random_range(0..5)] } else { trouble };
        let at = ms(rng.random_range(FORMED..LAST));
        let end = match one {
            Trouble::Deaths => death(&mut net, &mut hosts, at, &mut rng),
            Trouble::Pauses => pause(&mut net, at, &mut rng),
            Trouble::Cuts => cut(&mut net, &mut hosts, at, &mut rng),
            Trouble::Halves => halves(&mut net, at, &mut rng),
            Trouble::Commands | Trouble::Elastic | Trouble::Mixed => {
                commands(&mut net, trouble, at, &mut rng)
            }
        };
        calm = calm.max(end);
    }
    if trouble == Trouble::Elastic && hosts.next <= world && rng.random_bool(0.7) {
        hosts.add(&mut net, None, ms(rng.random_range(FORMED..LAST)), &mut rng);
    }
    (net, calm)
}

struct Hosts {
    world: u32,
    /// The fewest nodes that the world may have.
    least: u32,
    /// Of which number each size is a multiple, if the two above are.
    style: u32,
    families: u32,
    /// Whether the nodes prove paths, and so watch each other.
    proves: bool,
    next: u32,
}

impl Hosts {
    /// Adds a host whose node stays with its command.
    fn add(&mut self, net: &mut Network, rank: Option<u32>, at: Time, rng: &mut Xoshiro256PlusPlus) -> usize {
        let number = self.next;
        self.next += 1;
        let host = net.add(number, self.world, rank, at);
        let (four, six): (IpAddr, IpAddr) = (
            Ipv4Addr::from(0x0a00_0000 + number).into(),
            Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number)).into(),
        );
        let both = rng.random_bool(0.5);
        let addresses = match (self.families, both) {
            (0, false) => vec![four],
            (1, false) => vec![six],
            (0 | 2, _) => vec![four, six],
            _ => vec![six, four],
        };
        net.set_addresses(host, &addresses);
        // A bridge that every host has. More nodes than a newcomer's look can name must not prefer it. Nor
        // must nodes that prove paths: none leads there, so that a cut is not the only cause of a broken one.
        if self.families == 0 && rng.random_bool(0.3) {
            let preferred = self.world <= MISSING && rng.random_bool(0.5) && !self.proves;
            net.add_address(host, [172, 17, 0, 1].into(), preferred, true);
        }
        if self.proves {
            net.prove_paths_of(host);
        }
        net.hosts[host].stays = true;
        net.hosts[host].not_before = at;
        net.hosts[host].config.timeout = None;
        net.hosts[host].config.stands_by = true;
        net.hosts[host].config.last_call = ms(2000);
        let size: WorldSize = format!("{}:{}", self.least, self.world).parse().unwrap();
        net.hosts[host].config.world = size;
        net.hosts[host].config.prefers_ipv6 = self.families == 1;
        net.hosts[host].config.node.attributes.wants_roster = true;
        host
    }
}

/// Any host that has started by then and has not been replaced.
fn any(net: &Network, at: Time, rng: &mut Xoshiro256PlusPlus) -> Option<usize> {
    let is_there = |&host: &usize| !net.hosts[host].replaced && net.hosts[host].not_before <= at;
    let hosts: Vec<usize> = (0..net.hosts.len()).filter(is_there).collect();
    (!hosts.is_empty()).then(|| hosts[rng.random_range(0..hosts.len())])
}

/// The command of any host fails.
fn one_fails(net: &mut Network, at: Time, end: End, rng: &mut Xoshiro256PlusPlus) {
    if let Some(host) = any(net, at, rng) {
        net.end_command_at(host, at, Some(end));
    }
}

/// Commands of this world fail; or all of them end well, most of them a while before the last.
fn commands(net: &mut Network, trouble: Trouble, at: Time, rng: &mut Xoshiro256PlusPlus) -> Time {
    if trouble == Trouble::Commands && rng.random_bool(0.3) {
        for host in 0..net.hosts.len() {
            net.end_command_at(host, at + ms(rng.random_range(0..20_000)), None);
        }
        return at + ms(20_000);
    }
    let end = [End::Exited(1), End::Killed(9)][rng.random_range(0..2)];
    if rng.random_bool(0.3) {
        all_fail(net, at, ms(3000), rng);
    } else {
        one_fails(net, at, end, rng);
    }
    at + ms(3000)
}

/// All commands fail within this time, as those of a world do that has lost a node.
fn all_fail(net: &mut Network, at: Time, within: Duration, rng: &mut Xoshiro256PlusPlus) {
    for host in 0..net.hosts.len() {
        let after = rng.random_range(Duration::ZERO..within);
        net.end_command_at(host, at + after, Some(End::Exited(1)));
    }
}

/// A node is killed or its host loses power. It starts again there, or another takes its place. Meanwhile the
/// others' commands fail or hang.
fn death(net: &mut Network, hosts: &mut Hosts, at: Time, rng: &mut Xoshiro256PlusPlus) -> Time {
    let Some(victim) = any(net, at, rng) else { return at };
    let length = ms(rng.random_range(1..30_000));
    let power = rng.random_bool(0.5);
    if power {
        net.hosts[victim].silent = rng.random_bool(0.3);
        net.lose_power_at(victim, at, length);
    } else {
        net.kill_at(victim, at);
    }
    if rng.random_bool(0.6) {
        all_fail(net, at, ms(20_000), rng);
    }
    let again = at + length + ms(10);
    if rng.random_bool(0.5) {
        net.restart_at(victim, again);
    } else {
        // An orchestrator does not start the node again that it has replaced.
        net.hosts[victim].replaced = true;
        let rank = net.hosts[victim].config.node.rank.map(mingle_core::Rank::get);
        hosts.add(net, rank, again, rng);
    }
    again.max(at + ms(20_000))
}

fn pause(net: &mut Network, at: Time, rng: &mut Xoshiro256PlusPlus) -> Time {
    let length =
        ms(if rng.random_bool(0.5) { rng.random_range(10..8000) } else { rng.random_range(8000..60_000) });
    if let Some(host) = any(net, at, rng) {
        net.pause_at(host, at, length);
    }
    if rng.random_bool(0.6) {
        // Near the pause, so that it falls into a formation or keeps a node from it.
        let before = at.saturating_sub(ms(rng.random_range(0..300)));
        one_fails(net, before, End::Exited(1), rng);
    }
    at + length
}

/// Nothing passes from one host to another, or to all others, or from all others; and a command fails, or one
/// node too many asks whether all are there.
fn cut(net: &mut Network, hosts: &mut Hosts, at: Time, rng: &mut Xoshiro256PlusPlus) -> Time {
    let length = ms(rng.random_range(1000..60_000));
    let Some(host) = any(net, at, rng) else { return at };
    let style = rng.random_range(0..4);
    let only = any(net, at, rng).unwrap_or(host);
    for other in (0..net.hosts.len()).filter(|&other| other != host && (style > 1 || other == only)) {
        if style != 2 {
            net.cut_at(host, other, at, length);
        }
        if style != 1 {
            net.cut_at(other, host, at, length);
        }
    }
    let during = at + rng.random_range(Duration::ZERO..length);
    if rng.random_bool(0.5) {
        one_fails(net, during, End::Exited(1), rng);
    } else if hosts.next <= hosts.world + u32::from(hosts.least == hosts.world) {
        hosts.add(net, None, during, rng);
    }
    at + length
}

fn halves(net: &mut Network, at: Time, rng: &mut Xoshiro256PlusPlus) -> Time {
    let length = ms(rng.random_range(1000..60_000));
    let side: Vec<bool> = net.hosts.iter().map(|_| rng.random_bool(0.5)).collect();
    for (a, b) in (0..side.len()).flat_map(|a| (0..side.len()).map(move |b| (a, b))) {
        if side[a] != side[b] {
            net.cut_at(a, b, at, length);
        }
    }
    if rng.random_bool(0.7) {
        let during = at + rng.random_range(Duration::ZERO..length);
        all_fail(net, during, ms(5000), rng);
    }
    at + length + ms(5000)
}
