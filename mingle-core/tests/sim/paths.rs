//! Worlds that prove the path from each node to each other one.

use std::net::IpAddr;
use std::time::Duration;

use mingle_core::proto::{BrokenPath, Fault, Paths, Time};
use mingle_core::{Failure, HostName, World};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::network::{Flaw, Network, Restarts, Weather};
use super::{failure, finish, formed, ms, tail};

/// A world whose nodes start within `spread`, and prove their paths.
fn world(seed: u64, size: u32, weather: Weather, spread: Duration) -> Network {
    let mut net = Network::new(seed, weather);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for number in 1..=size {
        net.add(number, size, None, spread.mul_f64(rng.random()));
    }
    net.prove_paths();
    net
}

fn assert_sound(net: &Network, seed: u64) {
    assert!(net.broken.is_empty(), "seed {seed}: {:?}\n{}", net.broken, tail(&net.trace));
}

/// The broken paths that each node names.
fn broken(net: &Network) -> Vec<BrokenPath> {
    let named = |host| match failure(net, host) {
        Failure::PathsBroken { paths, more: 0 } => paths.clone(),
        other => panic!("host {host}: {other:?}\n{}", tail(&net.trace)),
    };
    let first = named(0);
    for host in 1..net.hosts.len() {
        assert_eq!(named(host), first, "all nodes name the same");
    }
    first
}

#[test]
fn a_world_forms_when_all_its_paths_are_proved() {
    for size in [2, 3, 4, 8, 32, 64] {
        let mut net = world(1, size, Weather::fine(), Duration::ZERO);
        let took = finish(&mut net);
        assert_sound(&net, 1);
        let dials: u64 = net.hosts.iter().map(|host| host.dials).sum();
        println!("{size} nodes: {took:?}, {dials} dials");
        assert!(took < ms(20), "{size}: {took:?}");
        let pairs = u64::from(size) * u64::from(size - 1);
        assert!((pairs..=pairs + 4 * u64::from(size)).contains(&dials), "{size}: {dials} dials");
    }
}

#[test]
fn a_path_that_is_blocked_one_way_ends_every_node_within_15_s_and_is_named() {
    for flaw in [Flaw::Filtered, Flaw::Rejected, Flaw::Hole(1400)] {
        for (from, to) in [(0, 2), (2, 1), (1, 3)] {
            let mut net = world(7, 4, Weather::fine(), ms(50));
            net.flaws.insert((from, to), flaw);
            let took = finish(&mut net);
            assert_sound(&net, 7);
            let [path] = &broken(&net)[..] else { panic!("{:?}", broken(&net)) };
            let ends = [&path.from, &path.to].map(|peer| peer.host.to_string());
            assert_eq!(ends, [from, to].map(|host| format!("host-{}", host + 1)));
            let (fault, answers) = match flaw {
                Flaw::Filtered => (Fault::Silent, Some(29500)),
                Flaw::Rejected => (Fault::Refused, Some(29500)),
                Flaw::Hole(passes) => (Fault::Size { passes, fails: 1500 }, None),
            };
            assert_eq!((path.fault, path.answers, path.mtus), (fault, answers, (1500, 1500)));
            assert!(took < Time::from_secs(15), "{took:?}");
        }
    }
}

/// So many nodes only try a formation, of as many as are wanted. Each broken path that they know then, as the
/// numbers of both hosts.
fn tried(seed: u64, (here, size): (u32, u32), flaws: &[(usize, usize)]) -> (Time, Vec<(usize, usize)>) {
    let loss = if seed.is_multiple_of(2) { 0.0 } else { 0.1 };
    let mut net = world(seed, here, Weather { loss, ..Weather::fine() }, ms(50));
    for host in &mut net.hosts {
        host.config.tries = true;
        host.config.node.attributes.wants_roster = true;
        host.config.world = World::new(size).unwrap().into();
        (host.config.timeout, host.config.last_call) = (Some(Time::from_secs(5)), Time::from_secs(3600));
    }
    net.flaws.extend(flaws.iter().map(|path| (*path, Flaw::Filtered)));
    let took = finish(&mut net);
    let number = |host: &HostName| host.as_str().strip_prefix("host-").unwrap().parse::<usize>().unwrap() - 1;
    let mut known = Vec::new();
    for host in 0..net.hosts.len() {
        let world = formed(&net, host);
        assert_eq!(world.world.get(), here, "seed {seed}\n{}", tail(&net.trace));
        for (rank, path) in &world.broken {
            let target = &world.roster.as_ref().unwrap().members()[rank.get() as usize].host;
            assert_eq!((number(&path.from.host), &path.to.host), (host, target));
            known.push((host, number(target)));
        }
    }
    (took, known)
}

#[test]
fn nodes_that_try_form_their_world_in_spite_of_broken_paths_and_know_them() {
    let flaws = [(0, 2), (2, 1), (1, 3), (3, 0)];
    for seed in 0..40 {
        for count in 0..=flaws.len() {
            for size in [4, 5] {
                let (took, mut known) = tried(seed, (4, size), &flaws[..count]);
                known.sort_by_key(|path| flaws.iter().position(|flaw| flaw == path));
                assert_eq!(known, flaws[..count], "seed {seed}");
                // Where a node is missing, the others wait for it until their time is up.
                let least = if size == 4 { 0 } else { 4 };
                // A leader waits 3 s for a member whose acknowledgement was lost when it ended.
                let most = least + if count == 0 { 5 } else { 12 };
                let expected = Time::from_secs(least)..Time::from_secs(most);
                assert!(expected.contains(&took), "seed {seed}: {took:?}");
            }
        }
    }
}

#[test]
fn nodes_that_try_leave_out_a_node_with_a_broken_path_where_a_job_would() {
    for (least, flaws, forms, job_forms) in [
        (3, &[(0, 1)][..], 3, true),
        // More than can be spared.
        (3, &[(0, 1), (2, 3)], 3, false),
        (4, &[(0, 1)], 4, false),
    ] {
        for tries in [false, true] {
            let mut net = world(9, 4, Weather::fine(), ms(50));
            for host in &mut net.hosts {
                host.config.tries = tries;
                host.config.node.attributes.wants_roster = tries;
                host.config.world = format!("{least}:4").parse().unwrap();
                (host.config.timeout, host.config.last_call) = (Some(Time::from_secs(30)), ms(500));
            }
            net.flaws.extend(flaws.iter().map(|path| (*path, Flaw::Filtered)));
            finish(&mut net);
            let worlds = net.hosts.iter().filter_map(|host| host.outcome.as_ref()?.as_ref().ok());
            let expected = if tries || job_forms { forms as usize } else { 0 };
            let sizes: Vec<u32> = worlds.map(|world| world.world.get()).collect();
            assert_eq!(sizes, vec![forms; expected], "{least} {tries}\n{}", tail(&net.trace));
        }
    }
}

#[test]
fn in_a_world_of_100_a_blocked_path_to_a_root_of_nccl_is_named() {
    let mut net = world(5, 100, Weather::fine(), Duration::ZERO);
    for host in &mut net.hosts {
        host.config.node.attributes.slots = 8;
    }
    // The second of the roots that 800 workers have serves the nodes 14 to 28, and runs on the first of them.
    net.flaws.insert((17, 14), Flaw::Filtered);
    finish(&mut net);
    assert_sound(&net, 5);
    let [path] = &broken(&net)[..] else { panic!("{:?}", broken(&net)) };
    assert_eq!([&path.from, &path.to].map(|peer| peer.host.to_string()), ["host-18", "host-15"]);
}

#[test]
fn a_path_that_works_again_after_8_s_delays_the_world_and_does_not_end_it() {
    let mut net = world(3, 4, Weather::fine(), Duration::ZERO);
    net.flaws.insert((1, 3), Flaw::Filtered);
    net.run_until(Time::from_secs(8), |_| false);
    net.flaws.clear();
    let took = finish(&mut net);
    assert_sound(&net, 3);
    assert_eq!(formed(&net, 0).world.get(), 4);
    assert!((Time::from_secs(8)..Time::from_secs(10)).contains(&took), "{took:?}");
}

#[test]
fn paths_are_proved_to_the_addresses_that_a_member_has_now() {
    // The world is to use IPv6, by which nobody has joined. A member that has its seat gets another IPv6
    // address.
    let mut net = world(11, 3, Weather::fine(), Duration::ZERO);
    let six = |number: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]);
    for (host, number) in (0..3).zip(1..) {
        net.hosts[host].config.prefers_ipv6 = true;
        net.set_addresses(host, &[IpAddr::from([10, 0, 0, number]), six(number.into())]);
    }
    net.prove_paths();
    net.delay_start(2, Time::from_secs(2));
    net.change_address_at(1, six(2), false, ms(500));
    net.change_address_at(1, six(9), true, ms(600));
    let took = finish(&mut net);
    assert_sound(&net, 11);
    assert!(took < ms(2100), "{took:?}");
    assert_eq!(formed(&net, 2).master.ip(), six(1));
}

#[test]
fn a_standby_takes_the_seat_of_the_member_with_most_broken_paths() {
    for (seed, limit) in (0..20).flat_map(|seed| [(seed, 15), (seed, 10)]) {
        let mut net = Network::new(seed, Weather::fine());
        for number in 1..=5 {
            net.add(number, 4, None, if number == 5 { ms(100) } else { Time::ZERO });
        }
        // Before the time is up, where that is sooner than the nodes would give up.
        for host in net.hosts.iter_mut().filter(|_| limit == 10) {
            host.config.timeout = Some(Time::from_secs(limit));
        }
        net.prove_paths();
        // Nobody reaches host 2's port for paths; host 4 is the standby.
        for other in [0, 1, 3, 4] {
            net.flaws.insert((other, 2), Flaw::Filtered);
        }
        let took = finish(&mut net);
        assert_sound(&net, seed);
        assert_eq!(formed(&net, 4).world.get(), 4, "{}", tail(&net.trace));
        assert!(matches!(failure(&net, 2), Failure::PathsBroken { .. }), "{:?}", net.hosts[2].outcome);
        assert!(took < Time::from_secs(limit), "{took:?}");
    }
}

#[test]
fn a_partner_that_dies_while_paths_are_proved_is_the_end_of_that_round_alone() {
    for seed in 0..50 {
        let mut net = world(seed, 5, Weather::fine(), Duration::ZERO);
        net.restarts = Restarts::All;
        // Two paths that take a while, so that the node dies in a round.
        net.flaws.insert((0, 2), Flaw::Filtered);
        net.flaws.insert((3, 1), Flaw::Filtered);
        let dies = ms(50 + seed * 37);
        net.kill_at(4, dies);
        net.restart_at(4, dies + ms(300));
        net.run_until(dies + ms(1000), |_| false);
        net.flaws.clear();
        finish(&mut net);
        assert_sound(&net, seed);
        assert_eq!(formed(&net, 4).world.get(), 5);
    }
}

#[test]
fn at_30_percent_loss_every_world_of_four_forms_within_5_s() {
    let mut times = Vec::new();
    for seed in 0..200 {
        let weather = Weather { loss: 0.3, ..Weather::fine() };
        let mut net = world(seed, 4, weather, ms(20));
        times.push(finish(&mut net));
        assert_sound(&net, seed);
        assert_eq!(formed(&net, 0).world.get(), 4, "seed {seed}\n{}", tail(&net.trace));
    }
    times.sort();
    println!("30% loss: median {:?}, worst {:?}", times[100], times[199]);
    // Five frames follow each other, and one of three segments costs 0.2 s.
    assert!(times[100] < ms(1000) && times[199] < Time::from_secs(5), "{:?} {:?}", times[100], times[199]);
}

#[test]
fn a_world_of_10000_proves_a_ring_in_little_time() {
    for size in [65, 1000, 10_000] {
        let mut bare = Network::new(1, Weather::fine());
        let mut net = Network::new(1, Weather::fine());
        for number in 1..=size {
            bare.add(number, size, None, Time::ZERO);
            net.add(number, size, None, Time::ZERO);
        }
        (bare.tracing, net.tracing) = (false, false);
        net.prove_paths();
        let (without, with) = (finish(&mut bare), finish(&mut net));
        assert_sound(&net, 1);
        let nodes = u64::from(size);
        let per_node = |net: &Network| {
            let sum =
                |count: fn(&super::network::Host) -> u64| net.hosts.iter().map(count).sum::<u64>() / nodes;
            (sum(|host| host.dials), sum(|host| host.sent))
        };
        println!(
            "{size} nodes: {without:?} and {:?}, then {with:?} and {:?}",
            per_node(&bare),
            per_node(&net)
        );
        let most = u64::from(2 * size.next_power_of_two().ilog2()) + 3;
        assert!(per_node(&net).0 <= most + 1, "{size}");
        assert!(with < without + ms(200), "{size}: {with:?}");
    }
}

#[test]
fn the_greatest_wish_of_a_world_counts() {
    for (wishes, proved) in [([Paths::Master; 3], false), ([Paths::Master, Paths::All, Paths::Ring], true)] {
        let mut net = world(1, 3, Weather::fine(), Duration::ZERO);
        for (host, paths) in net.hosts.iter_mut().zip(wishes) {
            host.config.node.attributes.paths = paths;
        }
        let ids = |net: &Network| net.hosts.iter().map(|host| host.config.id).collect::<Vec<_>>();
        finish(&mut net);
        assert_eq!(formed(&net, 0).world.get(), 3);
        let ids = ids(&net);
        assert_eq!(net.has_proved_path(ids[1], ids[2]), proved, "{wishes:?}");
    }
}

#[test]
fn a_large_world_in_which_rank_0_proves_a_path_to_each_node_forms_at_5_percent_loss() {
    for (seed, size) in [(2, 1000), (3, 2000)] {
        let mut net = world(seed, size, Weather { loss: 0.05, ..Weather::fine() }, ms(100));
        net.tracing = false;
        let took = finish(&mut net);
        println!("{size} nodes at 5% loss: {took:?}");
        assert_sound(&net, seed);
        assert_eq!(formed(&net, 0).world.get(), size);
        assert!(took < Time::from_secs(4), "in the first round: {size}: {took:?}");
    }
}
