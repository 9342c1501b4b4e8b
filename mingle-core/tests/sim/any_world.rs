//! Worlds whose nodes may have every option, and which every trouble may befall. No promise says how they
//! end.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mingle_core::proto::{Keys, Time};
use mingle_core::{End, JobId, Metadata, Secret, Trait, WorldSize};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::network::{Flaw, Lateness, Network, Restarts};
use crate::storms::worlds::weather;
use crate::{given, ms};

/// The virtual time that a world has, in milliseconds.
const LENGTH: u64 = 80_000;

/// The length of a trace after which a world is left, in bytes: nodes that start again and again take time
/// and do nothing new.
const ENOUGH: usize = 1_500_000;

/// The options that most nodes of a world share.
struct Options {
    most: u32,
    size: WorldSize,
    keys: Option<Keys>,
    has_keys: bool,
    /// How ranks are given; see [`given`].
    style: u32,
    stays: bool,
    listed: BTreeSet<String>,
    /// How many traits a node compares, if it compares any.
    traits: u32,
}

impl Options {
    fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let most: u32 =
            if rng.random_bool(0.1) { rng.random_range(11..=18) } else { rng.random_range(2..=10) };
        let least = if rng.random_bool(0.5) { most } else { rng.random_range(most / 2 + 1..=most) };
        let size: WorldSize = format!("{least}:{most}").parse().unwrap();
        let job: JobId = "sim".parse().unwrap();
        let keys = Secret::new(b"the secret of this job").unwrap().keys(&job);
        Self {
            most,
            size,
            keys: rng.random_bool(0.3).then_some(keys),
            has_keys: rng.random_bool(0.5),
            style: rng.random_range(0..10),
            stays: rng.random_bool(0.8),
            listed: (1..=most + 1).map(|number| format!("host-{number}")).collect(),
            traits: rng.random_range(0..300),
        }
    }

    /// Adds a node with these options, or with some of its own.
    fn add_node(&self, net: &mut Network, index: u32, rng: &mut Xoshiro256PlusPlus) {
        let rank = given(self.style, index, rng).filter(|rank| *rank < self.most);
        let host = net.add(index + 1, self.most, rank, ms(rng.random_range(0..4000)));
        if rng.random_bool(0.3) {
            let own = Ipv4Addr::from(0x0a09_0001 + index);
            let bridge = if rng.random_bool(0.5) { Ipv4Addr::new(172, 17, 0, 1) } else { own };
            net.add_address(host, bridge, rng.random_bool(0.5), rng.random_bool(0.8));
        }
        if rng.random_bool(0.01) {
            net.need_rdma(host);
        }
        if rng.random_bool(0.3) {
            let odd = rng.random_bool(0.1);
            let value = move |n: u32| if odd && n.is_multiple_of(7) { "x" } else { "y" };
            let traits =
                (0..self.traits).map(|n| Trait::shown(format!("a-key-with-a-long-name-{n:03}"), value(n)));
            net.hosts[host].set_traits(traits, rng.random_bool(0.02));
        }
        self.configure(net, host, rng);
    }

    fn configure(&self, net: &mut Network, host: usize, rng: &mut Xoshiro256PlusPlus) {
        let slot = &mut net.hosts[host];
        let config = &mut slot.config;
        // Nobody reaches a node that hears no multicast and prefers an address that leads nowhere.
        let may_be_deaf = config.node.endpoints.len() == 1;
        (slot.stays, slot.deaf) = (self.stays, may_be_deaf && rng.random_bool(0.1));
        config.keys = self.keys.clone().filter(|_| rng.random_bool(0.99));
        config.world = self.size;
        config.prefers_ipv6 = rng.random_bool(0.2);
        config.timeout = [Some(ms(20_000)), Some(ms(60_000)), None][rng.random_range(0..3)];
        config.last_call = ms(rng.random_range(0..3000));
        config.stands_by = rng.random_bool(0.5);
        if rng.random_bool(0.3) {
            config.listed.clone_from(&self.listed);
        }
        let attributes = &mut config.node.attributes;
        attributes.slots = rng.random_range(1..=8);
        attributes.wants_roster = self.stays || rng.random_bool(0.3);
        attributes.stays = self.stays;
        attributes.may_be_master = rng.random_bool(0.9);
        let place = format!("block-{}/rack-{}", rng.random_range(0..2), rng.random_range(0..3));
        if self.has_keys {
            attributes.rank_key = place.parse().unwrap();
        }
        let mut metadata = Metadata::default();
        metadata.insert("note", &"n".repeat(rng.random_range(0..100))).unwrap();
        attributes.metadata = metadata;
    }
}

/// One trouble at this time; a path is broken from the start.
fn trouble(net: &mut Network, at: Time, rng: &mut Xoshiro256PlusPlus) {
    let (host, other) = (rng.random_range(0..net.hosts.len()), rng.random_range(0..net.hosts.len()));
    let longest = [2_000, 20_000, 60_000][rng.random_range(0..3)];
    let length = ms(rng.random_range(10..longest));
    let flaw = [Flaw::Filtered, Flaw::Rejected, Flaw::Hole(1400)][rng.random_range(0..3)];
    match rng.random_range(0..18) {
        0 => net.kill_at(host, at),
        1 | 2 => {
            net.kill_at(host, at);
            net.restart_at(host, at + length);
        }
        3 | 4 => net.pause_at(host, at, length),
        5 | 6 => net.cut_at(host, other, at, length),
        7 | 8 => {
            net.hosts[host].silent = rng.random_bool(0.5);
            net.lose_power_at(host, at, length);
        }
        9..=13 => net.end_command_at(host, at, Some(End::Exited(1))),
        14 => (0..net.hosts.len()).for_each(|host| net.end_command_at(host, at + length, None)),
        15 => {
            let seed = net.live(other).next();
            net.seeds_at(host, seed.into_iter().collect(), at);
        }
        _ => _ = net.flaws.insert((host, other), flaw),
    }
}

/// The world of a seed, when its time is over or its trace is long.
pub(crate) fn any_world(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xa11);
    let mut net = Network::varied(seed, weather(&mut rng));
    net.restarts =
        [Restarts::Never, Restarts::InDoubt, Restarts::InDoubt, Restarts::All][rng.random_range(0..4)];
    net.lateness = rng.random_bool(0.2).then_some(Lateness { most: ms(20), rare: ms(500) });
    if rng.random_bool(0.3) {
        net.mix_kinds();
    }
    let options = Options::draw(&mut rng);
    for index in 0..options.most + rng.random_range(0..2) {
        options.add_node(&mut net, index, &mut rng);
    }
    if rng.random_bool(0.7) {
        net.prove_paths();
    }
    let mut healed = ms(LENGTH);
    for _ in 0..rng.random_range(1..7) {
        let at = ms(rng.random_range(0..LENGTH / 2));
        trouble(&mut net, at, &mut rng);
        healed = ms(rng.random_range(1..LENGTH / 4));
    }
    let is_long = |net: &Network| net.trace.len() > ENOUGH;
    net.run_until(healed, is_long);
    net.heal_paths();
    net.run_until(ms(LENGTH), is_long);
    net
}
