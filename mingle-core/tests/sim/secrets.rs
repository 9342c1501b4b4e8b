//! Jobs with a secret: they form like other jobs, strangers change nothing, and neither do replayed
//! datagrams.

use std::net::IpAddr;

use mingle_core::Secret;
use mingle_core::proto::{Cause, Keys};
use rand::SeedableRng;

use super::*;

fn keys(secret: &str) -> Keys {
    Secret::new(secret.as_bytes()).unwrap().keys(&"sim".parse().unwrap())
}

fn ours() -> Keys {
    keys("the secret of this job")
}

/// A world of four in which every node has the secret.
fn sealed(seed: u64, weather: Weather) -> Network {
    sealed_part(4, seed, weather)
}

/// The first nodes of such a world.
fn sealed_part(nodes: u32, seed: u64, weather: Weather) -> Network {
    let mut net = Network::new(seed, weather);
    for number in 1..=nodes {
        let host = net.add(number, 4, None, Time::ZERO);
        net.hosts[host].config.keys = Some(ours());
        net.hosts[host].config.node.attributes.wants_roster = number == 2;
    }
    net
}

#[test]
fn a_world_with_a_secret_forms_like_one_without() {
    for seed in 0..50 {
        let weather = Weather { loss: 0.2, duplicate: 0.1, ..Weather::fine() };
        let mut net = sealed(seed, weather);
        assert!(net.run(LIMIT), "seed {seed}\n{}", tail(&net.trace));
        assert_eq!(ranks(&net), [0, 1, 2, 3], "seed {seed}");
        let last = net.hosts.iter().filter_map(|host| host.ended).max().unwrap();
        assert!(last < Duration::from_secs(3), "seed {seed}: {last:?}");
    }
}

#[test]
fn a_wrong_or_missing_secret_ends_with_code_6_and_names_the_addresses_that_were_heard() {
    for theirs in [None, Some(keys("the secret of another job"))] {
        for one_sided in [false, true] {
            let mut net = Network::new(41, Weather::fine());
            for (number, keys) in [(1, Some(ours())), (2, if one_sided { None } else { theirs.clone() })] {
                let host = net.add(number, 2, None, Time::ZERO);
                net.hosts[host].config.keys = keys;
            }
            assert!(net.run(LIMIT), "{}", tail(&net.trace));
            for (host, other) in [(0, [10, 0, 0, 2]), (1, [10, 0, 0, 1])] {
                let Failure::Deadline(report) = failure(&net, host) else {
                    panic!("{}", failure(&net, host))
                };
                assert_eq!(report.unauthentic, [IpAddr::from(other)]);
                assert!(report.cause() == Cause::Secret, "{}", failure(&net, host));
                let text = failure(&net, host).to_string();
                assert!(text.contains("were not authentic"), "{text}");
            }
        }
    }
}

#[test]
fn nodes_with_the_secret_form_whatever_one_without_it_does() {
    let mut net = sealed(42, Weather::fine());
    // It claims rank 0, which would make it the leader.
    let stranger = net.add(5, 4, Some(0), Time::ZERO);
    net.hosts[stranger].config.keys = None;
    let twin = net.add(6, 4, Some(0), Time::ZERO);
    net.hosts[twin].config.keys = Some(keys("the secret of another job"));
    assert!(net.run(LIMIT), "{}", tail(&net.trace));
    assert_eq!((0..4).map(|host| formed(&net, host).rank.get()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let last = (0..4).filter_map(|host| net.hosts[host].ended).max().unwrap();
    assert!(last < ms(20), "{last:?}");
    for host in [stranger, twin] {
        let failure = failure(&net, host);
        assert!(matches!(failure, Failure::Deadline(report) if report.cause() == Cause::Secret), "{failure}");
    }
}

/// All unicast datagrams of one formation.
fn recording() -> Vec<Vec<u8>> {
    let mut net = sealed(44, Weather { loss: 0.2, ..Weather::fine() });
    net.record = Some(Vec::new());
    assert!(net.run(LIMIT));
    net.record.unwrap()
}

#[test]
fn a_recorded_formation_replayed_into_a_later_one_costs_a_second_at_most() {
    let recording = recording();
    assert!(recording.len() > 20, "{}", recording.len());
    for seed in 0..50 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut net = sealed(seed, Weather::fine());
        for bytes in &recording {
            for host in 0..4 {
                // Most of them arrive while the world forms, and each several times.
                for _ in 0..3 {
                    let at = Duration::from_micros(rng.random_range(0..20_000));
                    net.replay_at(host, bytes.clone(), at);
                }
            }
        }
        assert!(net.run(LIMIT), "seed {seed}\n{}", tail(&net.trace));
        assert_eq!(ranks(&net), [0, 1, 2, 3], "seed {seed}");
        let last = net.hosts.iter().filter_map(|host| host.ended).max().unwrap();
        // After a replayed announce of a better candidate a node waits 1 s for its answer, and only once.
        assert!(last < ms(1200), "seed {seed}: {last:?}\n{}", tail(&net.trace));
    }
}

#[test]
fn a_formation_replayed_into_itself_changes_nothing() {
    for seed in 0..50 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Three of four nodes wait; then all datagrams are replayed while the fourth one starts.
        let mut net = sealed_part(3, seed, Weather { loss: 0.1, ..Weather::fine() });
        net.record = Some(Vec::new());
        let late = net.add(9, 4, None, ms(800));
        net.hosts[late].config.keys = Some(ours());
        net.run_until(ms(790), |_| false);
        for bytes in net.record.take().unwrap() {
            for host in [0, 1, 2, late] {
                let at = ms(790) + Duration::from_micros(rng.random_range(0..40_000));
                net.replay_at(host, bytes.clone(), at);
            }
        }
        assert!(net.run(LIMIT), "seed {seed}\n{}", tail(&net.trace));
        let ranks: Vec<u32> = [0, 1, 2, late].map(|host| formed(&net, host).rank.get()).to_vec();
        assert_eq!(ranks, [0, 1, 2, 3], "seed {seed}");
        let last = net.hosts.iter().filter_map(|host| host.ended).max().unwrap();
        assert!(last < ms(3000), "seed {seed}: {last:?}\n{}", net.trace);
    }
}
