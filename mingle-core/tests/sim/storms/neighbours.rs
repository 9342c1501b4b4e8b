//! Several nodes with one address: on one host with a port each, or behind one NAT.

use std::net::{Ipv4Addr, SocketAddr};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::worlds::weather;
use crate::network::{Network, PORT};
use crate::{given, ms};

/// Two to ten nodes on one to three hosts, each with a port of its own.
pub(super) fn one_address(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0add);
    let mut net = Network::new(seed, weather(&mut rng));
    let world: u32 = rng.random_range(2..=10);
    let machines = rng.random_range(1..=3.min(world - 1));
    let style = rng.random_range(0..4);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let machine = if index < machines { index } else { rng.random_range(0..machines) };
        let port = PORT + u16::try_from((index * 7 + 3) % 10).unwrap();
        let host = net.add_to("sim", machine + 1, port, world, rank, ms(rng.random_range(0..spread)));
        net.hosts[host].config.node.attributes.wants_roster = rng.random_bool(0.3);
    }
    net
}

/// Rank 0 has a public address, which is everybody's seed. The others are behind one to three NATs, where no
/// multicast passes and nobody can connect to them.
pub(super) fn translated(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x7a7);
    let mut net = Network::new(seed, weather(&mut rng));
    let world: u32 = rng.random_range(2..=8);
    let style = rng.random_range(0..2);
    let nats: u8 = rng.random_range(1..=3);
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let host = net.add(index + 1, world, rank, ms(rng.random_range(0..2000)));
        if index == 0 {
            continue;
        }
        let nat = rng.random_range(0..nats);
        let port = 40_000 + u16::try_from(index).unwrap();
        net.translate(host, SocketAddr::from((Ipv4Addr::new(203, 0, 113, nat), port)));
        net.hosts[host].group = 100 + index;
        net.hosts[host].seeds = net.hosts[0].config.node.endpoints.to_vec();
        net.hosts[host].config.node.attributes.wants_roster = rng.random_bool(0.3);
    }
    net
}
