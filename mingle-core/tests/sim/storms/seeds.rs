//! Networks that pass no multicast, or on islands alone: whoever is to be met is among the seeds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mingle_core::Rank;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::worlds::weather;
use crate::network::{Network, PORT};
use crate::{given, ms};

/// Who knows whom: a pair for each seed that leads to a member.
type Graph = Vec<(usize, usize)>;

/// A world whose seeds connect all, or in one of seven cases do not.
pub(super) fn seeds(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed5);
    let weather = weather(&mut rng);
    let mut net = Network::new(seed, weather);
    let world: u32 = rng.random_range(2..=8);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = rng.random_range(0..4);
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let number = rng.random_range(0..40) * 10 + index + 1;
        let host = net.add(number, world, rank, ms(rng.random_range(0..spread)));
        net.hosts[host].config.node.attributes.wants_roster = rng.random_bool(0.2);
    }
    let count = net.hosts.len();
    let connected = rng.random_bool(0.85);
    // Where they are not connected, no seed leads from one half to the other.
    let half = if connected { count } else { rng.random_range(1..count) };
    let islands = rng.random_bool(0.4).then(|| rng.random_range(2..=3));
    for host in 0..count {
        let side = u32::from(host >= half) * 100;
        let own = 10 + u32::try_from(host).unwrap();
        net.hosts[host].group = side + islands.map_or(own, |islands| rng.random_range(0..islands));
    }
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order[..half], &mut rng);
    shuffle(&mut order[half..], &mut rng);
    let mut graph = graph(&order[..half], &mut rng);
    graph.extend(self::graph(&order[half..], &mut rng));

    let stranger = rng.random_bool(0.3).then(|| stranger(&mut net));
    let moved = (count > 2 && rng.random_bool(0.3)).then(|| moved(&mut net, &graph, &mut rng));
    for host in 0..count {
        let target = |&(_, to): &(usize, usize)| net.hosts[to].config.node.endpoints[0];
        let right: Vec<SocketAddr> = graph.iter().filter(|(from, _)| *from == host).map(target).collect();
        let mut wrong =
            vec![SocketAddr::from(([10, 200, 0, 1], PORT)), net.hosts[host].config.node.endpoints[0]];
        let alias = IpAddr::from([10, 201, 0, u8::try_from(host).unwrap()]);
        net.add_translated_address(host, alias);
        wrong.push(SocketAddr::from((alias, PORT)));
        wrong.extend(stranger.map(|stranger| net.hosts[stranger].config.node.endpoints[0]));
        wrong.retain(|_| rng.random_bool(0.3));
        // Where the one that has moved was, its neighbours still look.
        if let Some((new, old)) = moved
            && graph.contains(&(host, new))
        {
            wrong.push(net.hosts[old].config.node.endpoints[0]);
        }
        resolve(&mut net, host, right, &wrong, &mut rng);
    }
    net
}

/// The seeds of a host, from its start or a while later: all at once, or none, then some, then all. What is
/// wrong among them stays or goes.
fn resolve(
    net: &mut Network,
    host: usize,
    right: Vec<SocketAddr>,
    wrong: &[SocketAddr],
    rng: &mut Xoshiro256PlusPlus,
) {
    let mut all = right;
    let mut at = Duration::ZERO;
    if rng.random_bool(0.5) {
        let mut some: Vec<SocketAddr> = all.iter().chain(wrong).copied().collect();
        some.retain(|_| rng.random_bool(0.5));
        at += ms(rng.random_range(0..2000));
        net.seeds_at(host, some, at);
        at += ms(rng.random_range(0..3000));
    }
    if rng.random_bool(0.5) {
        all.extend(wrong);
        shuffle(&mut all, rng);
    }
    net.seeds_at(host, all, at);
}

/// A star, a chain, a ring, or any tree with some more pairs. Each pair knows each other, or one the other.
fn graph(order: &[usize], rng: &mut Xoshiro256PlusPlus) -> Graph {
    let shape = rng.random_range(0..4);
    let mut pairs: Graph = Vec::new();
    for at in 1..order.len() {
        let before = match shape {
            0 => 0,
            1 | 2 => at - 1,
            _ => rng.random_range(0..at),
        };
        pairs.push((order[at], order[before]));
    }
    if shape == 2 && order.len() > 2 {
        pairs.push((order[0], order[order.len() - 1]));
    }
    for _ in 0..if shape == 3 && order.len() > 1 { rng.random_range(0..3) } else { 0 } {
        let (a, b) = (order[rng.random_range(0..order.len())], order[rng.random_range(0..order.len())]);
        pairs.extend((a != b).then_some((a, b)));
    }
    // All up, all down, or as it comes.
    let down = [0.0, 1.0, 0.5][rng.random_range(0..3)];
    let both = [0.0, 0.3][rng.random_range(0..2)];
    let mut graph = Graph::new();
    for (a, b) in pairs {
        let (from, to) = if rng.random_bool(down) { (b, a) } else { (a, b) };
        graph.push((from, to));
        if rng.random_bool(both) {
            graph.push((to, from));
        }
    }
    graph
}

/// A node of another job, alone: it must not notice whose seed it is.
fn stranger(net: &mut Network) -> usize {
    let host = net.add_to("another", 9999, PORT, 2, None, ms(0));
    net.hosts[host].group = 1000;
    host
}

/// One of the members has been elsewhere before and has crashed there; another comes only then, so that no
/// world has formed with it. Returns the member and its first life.
fn moved(net: &mut Network, graph: &Graph, rng: &mut Xoshiro256PlusPlus) -> (usize, usize) {
    let count = u32::try_from(net.hosts.iter().filter(|host| host.group != 1000).count()).unwrap();
    let new = rng.random_range(0..count);
    let last = usize::try_from((new + rng.random_range(1..count)) % count).unwrap();
    let new = usize::try_from(new).unwrap();
    let rank = net.hosts[new].config.node.rank.map(Rank::get);
    let killed = ms(rng.random_range(500..4000));
    let old = net.add(5000 + rng.random_range(0..2) * 1000, count, rank, ms(0));
    net.hosts[old].group = net.hosts[new].group;
    let known = graph.iter().filter(|(from, _)| *from == new);
    net.hosts[old].seeds = known.map(|&(_, to)| net.hosts[to].config.node.endpoints[0]).collect();
    net.kill_at(old, killed);
    net.delay_start(new, killed + ms(rng.random_range(0..1000)));
    net.delay_start(last, killed + ms(rng.random_range(1000..3000)));
    (new, old)
}

fn shuffle<T>(items: &mut [T], rng: &mut Xoshiro256PlusPlus) {
    for at in (1..items.len()).rev() {
        items.swap(at, rng.random_range(0..=at));
    }
}

/// Whether seeds and islands connect all members, one way or the other.
pub(super) fn connected(net: &Network) -> bool {
    let tag = net.hosts[0].config.tag;
    let members: Vec<usize> =
        (0..net.hosts.len()).filter(|&host| net.hosts[host].config.tag == tag).collect();
    let knows = |a: usize, b: usize| {
        let (a, b) = (&net.hosts[a], &net.hosts[b]);
        a.group == b.group || a.seeds.contains(&b.config.node.endpoints[0])
    };
    let mut reached = vec![members[0]];
    let mut at = 0;
    while let Some(&from) = reached.get(at) {
        let next =
            members.iter().filter(|to| !reached.contains(to) && (knows(from, **to) || knows(**to, from)));
        let next: Vec<usize> = next.copied().collect();
        reached.extend(next);
        at += 1;
    }
    members.iter().all(|member| reached.contains(member) || !is_member(net, *member))
}

/// Whether a host is of the world: no stranger, and no life that has ended in a crash.
pub(super) fn is_member(net: &Network, host: usize) -> bool {
    let first = &net.hosts[0].config;
    let host = &net.hosts[host];
    host.config.tag == first.tag && !matches!(host.outcome, Some(Err(None)))
}
