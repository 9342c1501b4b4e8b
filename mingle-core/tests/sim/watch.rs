//! Running worlds in which a node dies, is silent, stopped or cut off, and nothing asks for it: its
//! neighbours watch it.

use std::time::Duration;

use mingle_core::proto::{Over, Time};
use mingle_core::{End, Rank};

use crate::network::{Network, Weather};
use crate::{ms, number, tail};

/// After this time without an answer a member is gone, if nothing else is set.
const GONE_AFTER: Duration = Duration::from_secs(30);

/// A running world whose nodes watch each other.
fn world(seed: u64, size: u32, loss: f64) -> Network {
    world_with(seed, size, loss, GONE_AFTER)
}

/// The same, in which a member is gone after so long.
fn world_with(seed: u64, size: u32, loss: f64, gone_after: Duration) -> Network {
    let mut net = Network::new(seed, Weather { loss, ..Weather::fine() });
    net.tracing = size <= 100;
    for number in 1..=size {
        let host = net.add(number, size, None, Time::ZERO);
        net.hosts[host].stays = true;
        net.hosts[host].config.node.attributes.wants_roster = true;
        net.hosts[host].config.gone_after = gone_after;
    }
    net.prove_paths();
    assert!(net.run(Time::from_secs(60)), "seed {seed}\n{}", tail(&net.trace));
    // The connections open.
    let now = net.now;
    net.run_until(now + ms(10_000), |_| false);
    net
}

/// Goes on in steps of 10 ms until this is so. Returns how long it took, if it was so in time.
fn wait(net: &mut Network, limit: Time, done: impl Fn(&Network) -> bool) -> Option<Time> {
    let mut at = net.now;
    while at <= limit {
        net.run_until(at, |_| false);
        if done(net) {
            return Some(at);
        }
        at += ms(10);
    }
    None
}

/// The rank that a host had in its first world.
fn rank(net: &Network, host: usize) -> u32 {
    net.history.formations.iter().find(|formation| formation.host == host).unwrap().rank
}

/// Goes on until all others know that this host is gone. Returns how long that took from `since`.
fn until_gone(net: &mut Network, victim: usize, since: Time, limit: Duration) -> Duration {
    let gone = rank(net, victim);
    let others = |net: &Network, is: &dyn Fn(&Over) -> bool| {
        let others = net.hosts.iter().enumerate().filter(|(host, _)| *host != victim);
        others.filter(|(_, host)| host.overs.iter().any(is)).count()
    };
    let named = |over: &Over| over.rank.map(Rank::get) == Some(gone) && over.end == End::Gone;
    // At loss, some learn it from the formation that follows, which does not say why.
    let know = |net: &Network| {
        let (all, named) = (others(net, &|_| true), others(net, &named));
        all == net.hosts.len() - 1 && 2 * named > all && (net.weather.loss > 0.0 || named == all)
    };
    let at = wait(net, since + limit, know);
    assert!(net.broken.is_empty(), "{:?}\n{}", net.broken, tail(&net.trace));
    at.unwrap_or_else(|| panic!("{}", tail(&net.trace))).saturating_sub(since)
}

fn assert_nothing_happens(net: &mut Network, length: Duration) {
    let until = net.now + length;
    net.run_until(until, |_| false);
    assert!(net.broken.is_empty(), "{:?}\n{}", net.broken, tail(&net.trace));
    assert!(net.hosts.iter().all(|host| host.overs.is_empty()), "{}", tail(&net.trace));
}

/// How many nodes were told that this host is suspected.
fn suspecting(net: &Network, victim: usize) -> usize {
    let rank = rank(net, victim);
    net.hosts
        .iter()
        .filter(|host| host.found.suspected.iter().any(|(_, suspected)| suspected.get() == rank))
        .count()
}

#[test]
fn a_killed_process_is_named_on_every_node_within_a_second() {
    for (size, loss, seeds) in [(2, 0.0, 20), (3, 0.0, 20), (4, 0.0, 20), (7, 0.05, 50), (40, 0.05, 10)] {
        for seed in 0..seeds {
            let mut net = world(seed, size, loss);
            let victim = usize::try_from(seed).unwrap() % net.hosts.len();
            let at = net.now;
            net.kill_at(victim, at);
            let most = if loss > 0.0 { ms(3000) } else { ms(1000) };
            let took = until_gone(&mut net, victim, at, most);
            assert!(took >= ms(500), "seed {seed}: {took:?}");
        }
    }
}

#[test]
fn a_killed_process_of_a_world_of_1000_is_named_on_every_node_within_a_second() {
    let mut net = world(1, 1_000, 0.0);
    // All nodes of a new formation would begin in the same millisecond.
    net.stop = Time::from_secs(60);
    let sent = |net: &Network| net.hosts.iter().map(|host| host.sent).max().unwrap();
    let (before, at) = (sent(&net), net.now + Duration::from_secs(10));
    net.run_until(at, |_| false);
    assert_eq!(sent(&net), before, "a world in health sends nothing");
    net.kill_at(7, at);
    println!("1000 nodes: {:?}", until_gone(&mut net, 7, at, ms(1000)));
}

#[test]
fn a_silent_host_is_named_to_all_within_ten_seconds_and_gone_after_the_time_that_is_set() {
    for (size, loss, gone_after) in [(4, 0.0, 30), (9, 0.05, 20), (30, 0.05, 60)] {
        let gone_after = Duration::from_secs(gone_after);
        for seed in 0..10 {
            let mut net = world_with(seed, size, loss, gone_after);
            let (victim, at) = (usize::try_from(seed).unwrap() % net.hosts.len(), net.now);
            net.lose_power_at(victim, at, Duration::from_secs(600));
            let others = net.hosts.len() - 1;
            let named = wait(&mut net, at + Duration::from_secs(12), |net| suspecting(net, victim) == others);
            let Some(named) = named else {
                panic!("seed {seed}: {} of {others}\n{}", suspecting(&net, victim), tail(&net.trace));
            };
            let took = named.saturating_sub(at);
            assert!(took <= Duration::from_millis(if loss > 0.0 { 11_500 } else { 10_000 }), "{took:?}");
            let took = until_gone(&mut net, victim, at, gone_after + Duration::from_secs(15));
            assert!(took >= gone_after, "{took:?}");
        }
    }
}

#[test]
fn a_host_that_was_cut_off_for_twenty_seconds_learns_so_and_the_others_learn_that_it_is_back() {
    for seed in 0..20 {
        let mut net = world(seed, 5 + u32::try_from(seed).unwrap() % 5, 0.05);
        let (victim, at) = (usize::try_from(seed).unwrap() % net.hosts.len(), net.now);
        let gone = rank(&net, victim);
        for other in (0..net.hosts.len()).filter(|&other| other != victim) {
            net.cut_at(victim, other, at, Duration::from_secs(20));
            net.cut_at(other, victim, at, Duration::from_secs(20));
        }
        assert_nothing_happens(&mut net, Duration::from_secs(90));
        for (number, host) in net.hosts.iter().enumerate() {
            assert_eq!(host.found.cut_off > 0, number == victim, "seed {seed}\n{}", tail(&net.trace));
            let is_back = host.found.back.iter().any(|rank| rank.get() == gone);
            assert_eq!(is_back, number != victim, "seed {seed}\n{}", tail(&net.trace));
        }
    }
}

#[test]
fn in_a_world_of_three_a_silent_host_is_suspected_and_nobody_ends_the_world() {
    let mut net = world(1, 3, 0.0);
    let at = net.now;
    net.lose_power_at(2, at, Duration::from_secs(600));
    assert_nothing_happens(&mut net, Duration::from_secs(120));
    assert_eq!(suspecting(&net, 2), 2);
}

#[test]
fn a_process_that_is_stopped_for_a_minute_is_not_suspected() {
    for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(20) {
        let mut net = world(seed, 2 + u32::try_from(seed).unwrap() % 6, 0.05);
        let (victim, at) = (usize::try_from(seed).unwrap() % net.hosts.len(), net.now);
        net.pause_at(victim, at, Duration::from_secs(60));
        assert_nothing_happens(&mut net, Duration::from_secs(90));
        assert_eq!(suspecting(&net, victim), 0, "seed {seed}");
    }
}

#[test]
fn one_broken_pair_ends_nothing() {
    for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(20) {
        let loss = if seed % 2 == 0 { 0.0 } else { 0.05 };
        let mut net = world(seed, 4 + u32::try_from(seed).unwrap() % 6, loss);
        let at = net.now;
        let next = |host| (0..net.hosts.len()).find(|&h| rank(&net, h) == rank(&net, host) + 1);
        let (a, b) = (0..net.hosts.len()).find_map(|host| Some((host, next(host)?))).unwrap();
        net.cut_at(a, b, at, Duration::from_secs(300));
        net.cut_at(b, a, at, Duration::from_secs(300));
        assert_nothing_happens(&mut net, Duration::from_secs(330));
        // Others reach both.
        assert!(loss > 0.0 || suspecting(&net, a) + suspecting(&net, b) == 0, "seed {seed}");
    }
}

#[test]
fn a_network_that_is_down_for_a_minute_ends_nothing() {
    for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(20) {
        let mut net = world(seed, 2 + u32::try_from(seed).unwrap() % 9, 0.05);
        let (at, hosts) = (net.now, net.hosts.len());
        for (a, b) in (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            net.cut_at(a, b, at, Duration::from_secs(60));
        }
        assert_nothing_happens(&mut net, Duration::from_secs(120));
    }
}

#[test]
fn halves_that_cannot_hear_each_other_both_go_on() {
    for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(20) {
        let mut net = world(seed, 4 + 2 * (u32::try_from(seed).unwrap() % 4), 0.05);
        let (at, hosts) = (net.now, net.hosts.len());
        for (a, b) in (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b))).filter(|(a, b)| a % 2 != b % 2)
        {
            net.cut_at(a, b, at, Duration::from_secs(120));
        }
        assert_nothing_happens(&mut net, Duration::from_secs(180));
    }
}

#[test]
fn a_killed_node_is_the_first_cause_although_the_other_commands_fail_before_it_is_gone() {
    for seed in 0..50 {
        let mut net = world(seed, 4, 0.0);
        let (victim, at) = (usize::try_from(seed).unwrap() % 4, net.now);
        net.kill_at(victim, at);
        for other in (0..4).filter(|&other| other != victim) {
            net.end_command_at(other, at + ms(20 + seed), Some(End::Exited(1)));
        }
        let gone = rank(&net, victim);
        net.run_until(at + Duration::from_secs(5), |_| false);
        let causes = |host: usize| {
            net.hosts[host].found.causes.iter().any(|over| over.rank.map(Rank::get) == Some(gone))
        };
        assert!((0..4).any(causes), "seed {seed}\n{}", tail(&net.trace));
        let blamed = net
            .hosts
            .iter()
            .flat_map(|host| &host.found.causes)
            .filter(|over| over.rank.map(Rank::get) != Some(gone));
        assert_eq!(blamed.count(), 0, "seed {seed}\n{}", tail(&net.trace));
    }
}

#[test]
fn nobody_is_blamed_when_commands_fail_and_all_restart() {
    for seed in 0..50 {
        let mut net = world(seed, 4, 0.1);
        let at = net.now;
        net.end_command_at(usize::try_from(seed).unwrap() % 4, at, Some(End::Exited(1)));
        let again = |net: &Network| {
            net.hosts.iter().all(|host| host.running.is_some() && host.config.lineage.generation == 1)
        };
        assert!(
            wait(&mut net, at + Duration::from_secs(30), again).is_some(),
            "seed {seed}\n{}",
            tail(&net.trace)
        );
        assert!(
            net.hosts.iter().all(|host| host.found.causes.is_empty()),
            "seed {seed}\n{}",
            tail(&net.trace)
        );
        assert!(net.broken.is_empty(), "{:?}", net.broken);
    }
}
