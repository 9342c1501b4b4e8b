//! Hosts with IPv4, IPv6 or both. A world uses one address family where all hosts have a family in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::worlds::weather;
use crate::network::{Host, Network, PORT};
use crate::{given, ms};

fn four(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn six(number: u32) -> IpAddr {
    Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number)).into()
}

pub(super) fn families(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x4666);
    let weather = weather(&mut rng);
    let mut net = Network::new(seed, weather);
    let world: u32 = rng.random_range(2..=8);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = rng.random_range(0..4);
    let prefers_ipv6 = rng.random_bool(0.5);
    // The kinds of hosts: 0 has IPv4, 1 has IPv6, 2 has both.
    let kinds: &[usize] = [&[2][..], &[0, 2], &[1, 2], &[0], &[1], &[0, 1, 2]][rng.random_range(0..6)];
    let changes = rng.random_bool(0.4);
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let number = rng.random_range(0..40) * 10 + index + 1;
        let late = changes && index == world - 1;
        let start = if late { ms(6000) } else { ms(rng.random_range(0..spread)) };
        let host = net.add(number, world, rank, start);
        net.hosts[host].config.prefers_ipv6 = prefers_ipv6;
        let (a, b) = if prefers_ipv6 { (six(number), four(number)) } else { (four(number), six(number)) };
        let addresses = match kinds[rng.random_range(0..kinds.len())] {
            0 => vec![four(number)],
            1 => vec![six(number)],
            _ => vec![a, b],
        };
        net.set_addresses(host, &addresses);
        // An IPv6 address that leads nowhere, where all hosts have IPv4.
        if !kinds.contains(&1) && addresses.len() == 2 && rng.random_bool(0.1) {
            net.hosts[host].dead.insert(SocketAddr::from((six(number), PORT)));
        }
        if changes && rng.random_bool(0.4) {
            let second = if addresses == [six(number)] { four(number) } else { six(number) };
            let second = addresses.get(1).copied().unwrap_or(second);
            net.change_address_at(host, second, addresses.len() == 1, ms(rng.random_range(0..5500)));
        }
    }
    net
}

/// The families (true: IPv6) that every host has, according to `of`.
fn common(net: &Network, of: impl Fn(&Host, bool) -> bool) -> Vec<bool> {
    [false, true].into_iter().filter(|&ipv6| net.hosts.iter().all(|host| of(host, ipv6))).collect()
}

/// The families that every host has had at some time, with an address that leads to it.
pub(super) fn ever_common(net: &Network) -> Vec<bool> {
    common(net, |host, ipv6| {
        let all = host.config.node.endpoints.iter().chain(&host.lost);
        all.filter(|endpoint| !host.dead.contains(endpoint)).any(|endpoint| endpoint.is_ipv6() == ipv6)
    })
}

/// The families that every host has in the end, with an address that leads to it.
pub(super) fn common_in_the_end(net: &Network) -> Vec<bool> {
    common(net, |host, ipv6| {
        let all = host.config.node.endpoints.iter().filter(|endpoint| !host.dead.contains(endpoint));
        all.into_iter().any(|endpoint| endpoint.is_ipv6() == ipv6)
    })
}
