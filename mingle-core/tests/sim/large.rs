//! Large worlds: how many datagrams and frames they cost each node, and how long they take.

use std::collections::BTreeSet;
use std::time::Duration;

use mingle_core::Failure;
use mingle_core::proto::Time;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::network::{Host, Network, Unformed, Weather};
use crate::{formed, ms};

/// What a world has cost.
#[derive(Debug)]
struct Cost {
    /// The mean number of datagrams that a node sends. A multicast counts once.
    datagrams: f64,
    /// The mean number of frames that a node writes.
    frames: f64,
    /// From the last start to the last end.
    took: Duration,
    /// The whole of it in words.
    text: String,
}

impl Cost {
    /// Checks that it is less than this.
    fn check(&self, datagrams: f64, frames: f64, time: Duration) {
        assert!(self.datagrams < datagrams && self.frames < frames && self.took < time, "{self:?}");
    }
}

/// Forms a world of so many nodes, which all start within `spread`, and prints its cost.
fn form(nodes: u32, loss: f64, spread: Duration) -> Cost {
    let cost = form_with(51, nodes, loss, spread);
    eprintln!("{nodes} nodes that start within {spread:?}, {}% loss: {}", loss * 100.0, cost.text);
    cost
}

fn form_with(seed: u64, nodes: u32, loss: f64, spread: Duration) -> Cost {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(nodes) + 1000 * (seed - 51));
    let mut net = Network::new(seed, Weather { loss, ..Weather::fine() });
    net.tracing = false;
    for number in 1..=nodes {
        net.add(number, nodes, None, rng.random_range(Time::ZERO..=spread));
    }
    assert!(net.run(Duration::from_secs(50)), "some have not ended at {:?}", net.now);
    assert_eq!(net.broken, [""; 0]);
    let ranks: BTreeSet<u32> = (0..net.hosts.len()).map(|host| formed(&net, host).rank.get()).collect();
    assert_eq!(ranks.len(), net.hosts.len(), "ranks are distinct");
    assert!((0..net.hosts.len()).all(|host| formed(&net, host).digest == formed(&net, 0).digest));

    let leader = &net.hosts[net.history.host_of[&net.commits().next().unwrap().leader]];
    let total = |of: fn(&Host) -> u64| net.hosts.iter().map(of).sum::<u64>();
    let each = |sum: u64| f64::from(u32::try_from(sum).unwrap()) / f64::from(nodes);
    let started = net.hosts.iter().filter_map(|host| host.started).max().unwrap();
    let ended = net.hosts.iter().filter_map(|host| host.ended).max().unwrap();
    let took = ended.saturating_sub(started);
    let (datagrams, frames) = (each(total(|host| host.sent)), each(total(|host| host.frames)));
    let text = format!(
        "{datagrams:.1} datagrams and {:.0} bytes sent a node, {:.1} received, {} by the leader; {frames:.1} frames \
         and {:.0} bytes written, {} by the leader; {:.2} dials a node; {took:.1?} from the last start to the last \
         end",
        each(total(|host| host.sent_bytes)),
        each(total(|host| host.received)),
        leader.received,
        each(total(|host| host.frame_bytes)),
        leader.frames,
        each(total(|host| host.dials)),
    );
    Cost { datagrams, frames, took, text }
}

#[test]
fn a_world_of_1000_forms_with_few_datagrams_and_in_little_time() {
    for (loss, spread, datagrams, frames, time) in [
        (0.0, ms(0), 4.0, 16.0, ms(100)),
        (0.0, ms(1000), 4.0, 40.0, ms(100)),
        (0.05, ms(1000), 6.0, 90.0, ms(2000)),
    ] {
        let cost = form(1000, loss, spread);
        cost.check(datagrams, frames, time);
    }
}

/// A world of so many nodes that each listens before it announces itself, at its end or after 70 s.
fn listening_world(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let nodes = rng.random_range(65..=130);
    let weather = Weather { loss: rng.random_range(0.0..0.2), duplicate: 0.1, ..Weather::fine() };
    let spread = ms(rng.random_range(0..50));
    let mut net = Network::new(seed, weather);
    net.tracing = false;
    for number in 1..=nodes {
        net.add(number, nodes, None, rng.random_range(Time::ZERO..=spread));
    }
    if rng.random_bool(0.5) {
        // Another node takes the seat of the killed one.
        net.kill_at(rng.random_range(0..net.hosts.len()), ms(rng.random_range(0..60)));
        net.add(nodes + 1, nodes, None, ms(70));
    }
    net.run(Duration::from_secs(70));
    net
}

#[test]
fn worlds_in_which_nodes_listen_first_keep_every_promise() {
    let runs = crate::number("MINGLE_SIM_RUNS").unwrap_or(100);
    for seed in 0..runs {
        let net = listening_world(seed);
        assert!(net.hosts.iter().all(|host| host.outcome.is_some()), "seed {seed}: some have not ended");
        assert_eq!(net.broken, [""; 0], "seed {seed}");
        let digests: BTreeSet<String> = (net.hosts.iter())
            .filter_map(|host| host.outcome.as_ref()?.as_ref().ok())
            .map(|formed| formed.digest.to_string())
            .collect();
        // Where the leader dies while it commits, no node may know the outcome (PROTOCOL.md, what cannot be
        // promised).
        let is_unknown =
            |host: &Host| matches!(host.outcome, Some(Err(Unformed::Failed(Failure::OutcomeUnknown { .. }))));
        let killed = net.hosts.len() > usize::try_from(net.hosts[0].config.world.max().get()).unwrap();
        let unknown = killed && net.hosts.iter().any(is_unknown);
        assert!(digests.len() == 1 || digests.is_empty() && unknown, "seed {seed}: {digests:?}");
    }
}

#[test]
#[ignore = "takes 300 MB, and minutes unless it is a release build; CONTRIBUTING.md has the command"]
fn a_world_of_10000_forms_in_seconds() {
    // A lost segment costs more here than in a small world, since a node waits longer before it dials again.
    for (loss, spread, datagrams, frames, time) in [
        (0.0, ms(0), 4.0, 16.0, ms(1000)),
        (0.0, ms(1000), 4.0, 20.0, ms(1000)),
        (0.05, ms(0), 6.0, 40.0, ms(10_000)),
        (0.05, ms(1000), 6.0, 40.0, ms(10_000)),
    ] {
        let cost = form(10_000, loss, spread);
        cost.check(datagrams, frames, time);
    }
}

#[test]
#[ignore = "takes 300 MB, and minutes unless it is a release build; CONTRIBUTING.md has the command"]
fn worlds_of_5000_to_10000_nodes_form_within_the_last_call_and_200_ms() {
    for nodes in [5_000, 9_999, 10_000] {
        let mut net = Network::new(51, Weather::fine());
        net.tracing = false;
        for number in 1..=nodes {
            let host = net.add(number, nodes, None, Time::ZERO);
            net.hosts[host].config.world = "5000:10000".parse().unwrap();
        }
        let call = net.hosts[0].config.last_call;
        assert!(net.run(Duration::from_secs(50)), "some have not ended at {:?}", net.now);
        assert_eq!(net.broken, [""; 0]);
        assert!((0..net.hosts.len()).all(|host| formed(&net, host).world.get() == nodes));
        let took = net.hosts.iter().filter_map(|host| host.ended).max().unwrap();
        eprintln!("{nodes} nodes of 5000:10000 at once: {took:.1?}");
        let call = if nodes < 10_000 { call } else { Duration::ZERO };
        assert!(took.saturating_sub(Time::ZERO) <= call + ms(200), "{took:?}");
    }
}
