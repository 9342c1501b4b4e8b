//! Worlds in a simulated network: the real state machine in virtual time, with one seed for each world.
//!
//! `MINGLE_SEED=n` runs one of the random worlds and prints its trace. `MINGLE_SIM_RUNS=n` sets how many are
//! run.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod large;
#[allow(unreachable_pub, reason = "a module of a test")]
mod late;
#[allow(unreachable_pub, reason = "a module of a test")]
mod network;
mod paths;
mod sameness;
mod secrets;
mod stops;
mod storms;
mod tally;

use std::collections::BTreeMap;
use std::time::Duration;

use mingle_core::proto::Time;
use mingle_core::{Failure, Formed};
use network::{Network, Unformed, Weather};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The virtual time that a world may take.
const LIMIT: Time = Time::from_secs(90);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn formed(net: &Network, host: usize) -> &Formed {
    match &net.hosts[host].outcome {
        Some(Ok(formed)) => formed,
        other => panic!("host {host} has not formed: {other:?}\n{}", tail(&net.trace)),
    }
}

fn failure(net: &Network, host: usize) -> &Failure {
    match &net.hosts[host].outcome {
        Some(Err(Unformed::Failed(failure))) => failure,
        other => panic!("host {host} has not failed: {other:?}\n{}", tail(&net.trace)),
    }
}

/// Runs until all nodes have ended. Returns when the last of them did.
fn finish(net: &mut Network) -> Time {
    assert!(net.run(LIMIT), "{}", tail(&net.trace));
    net.hosts.iter().filter_map(|host| host.ended).max().unwrap()
}

/// The last lines of a trace.
fn tail(trace: &str) -> String {
    let lines: Vec<&str> = trace.lines().collect();
    lines[lines.len().saturating_sub(120)..].join("\n")
}

/// The number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn ranks(net: &Network) -> Vec<u32> {
    (0..net.hosts.len()).map(|host| formed(net, host).rank.get()).collect()
}

#[test]
fn four_nodes_that_start_together_form_within_10_ms_and_are_ranked_by_address() {
    let mut net = Network::new(1, Weather::fine());
    for number in [13, 11, 14, 12] {
        net.add(number, 4, None, Time::ZERO);
    }
    let last = finish(&mut net);
    assert_eq!(ranks(&net), [2, 0, 3, 1]);
    assert!(last < ms(10), "{last:?}\n{}", net.trace);
    for host in 0..4 {
        assert_eq!(formed(&net, host).master, "10.0.0.11:29500".parse().unwrap());
        assert_eq!(formed(&net, host).digest, formed(&net, 0).digest);
    }
}

#[test]
fn the_order_of_starting_does_not_matter() {
    for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]] {
        let mut net = Network::new(2, Weather::fine());
        for (i, number) in (0..).zip(order) {
            net.add(number, 4, None, ms(500) * i);
        }
        let last = finish(&mut net);
        let expected: Vec<u32> = order.iter().map(|number| number - 1).collect();
        assert_eq!(ranks(&net), expected);
        assert!(last < ms(1510), "10 ms after the last start: {last:?}");
    }
}

#[test]
fn given_ranks_are_kept_and_a_given_rank_0_leads_whenever_it_starts() {
    for given in
        [[Some(3), Some(2), Some(1), Some(0)], [Some(2), None, None, Some(0)], [None, None, None, Some(0)]]
    {
        for zero_comes in [0, 1000] {
            let mut net = Network::new(3, Weather::fine());
            for (number, rank) in (1..).zip(given) {
                net.add(number, 4, rank, if rank == Some(0) { ms(zero_comes) } else { Time::ZERO });
            }
            let last = finish(&mut net);
            for (host, rank) in given.iter().enumerate() {
                if let Some(rank) = rank {
                    assert_eq!(formed(&net, host).rank.get(), *rank);
                }
            }
            assert!(last < ms(zero_comes + 20), "{last:?}\n{}", tail(&net.trace));
        }
    }
}

#[test]
fn a_world_of_one_forms_at_once() {
    let mut net = Network::new(4, Weather::fine());
    net.add(1, 1, None, Time::ZERO);
    assert!(net.run(Time::ZERO));
    assert_eq!(ranks(&net), [0]);
}

#[test]
fn a_node_that_nobody_can_connect_to_does_not_become_master() {
    let mut net = Network::new(5, Weather::fine());
    for number in 1..=4 {
        net.add(number, 4, None, Time::ZERO);
    }
    net.hosts[0].filtered = true;
    let last = finish(&mut net);
    assert_ne!(formed(&net, 0).rank.get(), 0);
    assert_eq!(formed(&net, 1).rank.get(), 0);
    assert!(last < Duration::from_secs(10), "{last:?}");
}

#[test]
fn a_filtered_node_that_comes_last_costs_one_round() {
    let mut net = Network::new(6, Weather::fine());
    for number in 1..=4 {
        net.add(number, 4, None, if number == 1 { ms(1000) } else { Time::ZERO });
    }
    net.hosts[0].filtered = true;
    finish(&mut net);
    assert_ne!(formed(&net, 0).rank.get(), 0);
    assert_eq!(formed(&net, 1).rank.get(), 0);
}

#[test]
fn all_nodes_name_a_given_rank_0_that_nobody_can_connect_to() {
    let mut net = Network::new(7, Weather::fine());
    for number in 1..=4 {
        net.add(number, 4, (number == 3).then_some(0), Time::ZERO);
    }
    net.hosts[2].filtered = true;
    finish(&mut net);
    for host in 0..4 {
        let Failure::PathsBroken { paths, .. } = failure(&net, host) else {
            panic!("{:?}\n{}", failure(&net, host), tail(&net.trace))
        };
        assert!(!paths.is_empty());
        assert!(paths.iter().all(|path| path.to_master && path.to.host.as_str() == "host-3"));
    }
    assert!(net.now < Duration::from_secs(30), "{:?}", net.now);
}

#[test]
fn the_world_forms_without_its_first_leader() {
    let mut net = Network::new(8, Weather::fine());
    for number in 1..=3 {
        net.add(number, 4, None, Time::ZERO);
    }
    net.kill_at(0, ms(500));
    net.add(9, 4, None, ms(1000));
    net.add(10, 4, None, ms(1500));
    let last = finish(&mut net);
    assert_eq!(formed(&net, 1).rank.get(), 0);
    assert_eq!(formed(&net, 4).rank.get(), 3);
    assert!(last < ms(1520), "{last:?}\n{}", tail(&net.trace));
}

#[test]
fn a_rank_that_a_living_node_holds_is_refused_at_once() {
    let mut net = Network::new(9, Weather::fine());
    net.add(1, 3, Some(0), Time::ZERO);
    net.add(2, 3, Some(1), Time::ZERO);
    net.add(3, 3, Some(1), ms(500));
    net.add(4, 3, Some(0), ms(600));
    net.add(5, 3, Some(2), ms(1000));
    finish(&mut net);
    assert_eq!(formed(&net, 0).rank.get(), 0);
    let Failure::RankTaken { rank, holder } = failure(&net, 2) else { panic!("{:?}", failure(&net, 2)) };
    assert_eq!((rank.get(), holder.host.as_str()), (1, "host-2"));
    let Failure::RankTaken { rank, holder } = failure(&net, 3) else { panic!("{:?}", failure(&net, 3)) };
    assert_eq!((rank.get(), holder.host.as_str()), (0, "host-1"));
    assert!(net.hosts[2].ended.unwrap() < ms(520));
}

#[test]
fn a_node_of_another_world_size_is_refused_and_both_sides_report_it() {
    let mut net = Network::new(10, Weather::fine());
    net.add(1, 2, None, Time::ZERO);
    net.add(2, 3, None, Time::ZERO);
    net.add(3, 2, None, ms(100));
    finish(&mut net);
    let Failure::WorldDiffers { theirs, .. } = failure(&net, 1) else { panic!("{:?}", failure(&net, 1)) };
    assert_eq!(theirs.to_string(), "2");
    assert_eq!(formed(&net, 2).rank.get(), 1);
    assert!(net.hosts[0].warnings.iter().any(|text| text.contains("expects a world of 3")));
}

#[test]
fn a_deadline_reports_the_nodes_that_were_heard_and_the_missing_ranks() {
    let mut net = Network::new(11, Weather::fine());
    net.add(1, 4, Some(0), Time::ZERO);
    net.add(2, 4, Some(2), Time::ZERO);
    finish(&mut net);
    for (host, other) in [(0, "host-2"), (1, "host-1")] {
        let Failure::Deadline(report) = failure(&net, host) else { panic!("{:?}", failure(&net, host)) };
        let text = report.to_string();
        assert!(text.contains(other), "{text}");
        // The node that ends first leaves the other one without its members.
        assert!(host == 1 || text.contains("missing ranks 1, 3"), "{text}");
    }
}

#[test]
fn a_deadline_tells_no_other_node_from_no_candidate() {
    let mut net = Network::new(12, Weather::fine());
    net.add(1, 2, None, Time::ZERO);
    assert!(net.run(LIMIT));
    assert!(failure(&net, 0).to_string().contains("nobody else was heard"), "{}", failure(&net, 0));

    let mut net = Network::new(13, Weather::fine());
    net.add(1, 2, Some(1), Time::ZERO);
    net.add(2, 2, Some(1), Time::ZERO);
    assert!(net.run(LIMIT));
    assert!(failure(&net, 0).to_string().contains("no node that may be rank 0"), "{}", failure(&net, 0));
}

#[test]
fn a_roster_reaches_the_nodes_that_want_it() {
    for wanting in [1, 2, 25] {
        let mut net = Network::new(14, Weather { loss: 0.2, ..Weather::fine() });
        for number in 1..=25 {
            let host = net.add(number, 25, None, Time::ZERO);
            net.hosts[host].config.node.attributes.wants_roster = number <= wanting;
        }
        finish(&mut net);
        for host in 0..25 {
            let roster = formed(&net, host).roster.as_ref();
            assert_eq!(roster.is_some(), host < usize::try_from(wanting).unwrap());
            if let Some(roster) = roster {
                assert_eq!(roster.members().len(), 25);
                assert_eq!(roster.digest(), formed(&net, host).digest);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(random_world(seed).trace, random_world(seed).trace, "seed {seed}");
    }
}

#[test]
fn random_worlds_keep_every_promise() {
    if let Some(seed) = number("MINGLE_SEED") {
        let net = random_world(seed);
        eprintln!("{}", net.trace);
        check(seed, &net);
        return;
    }
    let runs = number("MINGLE_SIM_RUNS").unwrap_or(2000);
    let mut took: Vec<(Time, u64)> = Vec::new();
    for seed in 0..runs {
        let net = random_world(seed);
        took.extend(check(seed, &net).map(|time| (time, seed)));
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1000];
    eprintln!(
        "{runs} worlds, {} without a crash; from the last start to the last end: median {:?}, 90% {:?}, 99% {:?}, \
         99.9% {:?}, all {:?} (seed {})",
        took.len(),
        at(500).0,
        at(900).0,
        at(990).0,
        at(999).0,
        at(1000).0,
        at(1000).1
    );
}

/// The given rank of a node, in a world where all ranks are given, rank 0 alone, some, or none.
fn given(style: u32, index: u32, rng: &mut Xoshiro256PlusPlus) -> Option<u32> {
    match style {
        0 => Some(index),
        1 => (index == 0).then_some(0),
        2 => rng.random_bool(0.5).then_some(index),
        _ => None,
    }
}

/// Runs a world with random nodes, ranks, starts, weather and crashes.
fn random_world(seed: u64) -> Network {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let weather = Weather {
        loss: if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.0..0.3) },
        duplicate: if rng.random_bool(0.5) { 0.0 } else { 0.1 },
        delay: (Duration::from_micros(50), Duration::from_micros(rng.random_range(60..5000))),
    };
    let mut net = Network::varied(seed, weather);
    let world: u32 = rng.random_range(2..=6);
    let spread = if rng.random_bool(0.5) { 5 } else { 2000 };
    let style = rng.random_range(0..4);
    for index in 0..world {
        let rank = given(style, index, &mut rng);
        let number = rng.random_range(0..40) * 6 + index + 1;
        net.add(number, world, rank, ms(rng.random_range(0..spread)));
    }
    if rng.random_bool(0.3) {
        let victim = rng.random_range(0..usize::try_from(world).unwrap());
        let at = ms(rng.random_range(0..3000));
        net.kill_at(victim, at);
        net.restart_at(victim, at + ms(rng.random_range(0..1000)));
    }
    let _ = net.run(LIMIT);
    net
}

/// Checks what is promised. Returns how long the world took after the last start, where no node crashed.
fn check(seed: u64, net: &Network) -> Option<Time> {
    let fail = |why: &str| -> ! {
        panic!("seed {seed}: {why}; repeat it with MINGLE_SEED={seed}\n{}", tail(&net.trace))
    };
    if let Some(broken) = net.broken.first() {
        fail(broken);
    }
    let crashed = net.trace.contains(": killed");
    let mut worlds: BTreeMap<_, Vec<&Formed>> = BTreeMap::new();
    for host in &net.hosts {
        match &host.outcome {
            None => fail("a node has not ended"),
            Some(Ok(formed)) => {
                worlds.entry(formed.digest).or_default().push(formed);
                if host.config.node.rank.is_some_and(|rank| rank != formed.rank) {
                    fail("a given rank was not kept");
                }
            }
            Some(Err(failure)) if !crashed => fail(&format!("no world without a crash: {failure}")),
            Some(Err(_)) => {}
        }
    }
    for formed in worlds.values() {
        let mut ranks: Vec<u32> = formed.iter().map(|f| f.rank.get()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() != formed.len() {
            fail("two nodes of one world have the same rank");
        }
        if formed.iter().any(|f| f.master != formed[0].master) {
            fail("two nodes of one world have different masters");
        }
        if formed.iter().any(|f| f.verdict != formed[0].verdict || f.sameness != formed[0].sameness) {
            fail("two nodes of one world have different verdicts");
        }
    }
    if !crashed && worlds.len() != 1 {
        fail("more than one world");
    }
    let last_start = net.hosts.iter().filter_map(|host| host.started).max()?;
    let last_end = net.hosts.iter().filter_map(|host| host.ended).max()?;
    (!crashed).then(|| last_end.saturating_sub(last_start))
}
