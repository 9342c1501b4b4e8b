//! Worlds whose hosts have rails: a rail that does not reach its counterpart is named by the node that has
//! tried, and delays its world by two seconds at most; one that does is not.

use std::time::Duration;

use mingle_core::proto::{Paths, Time};

use super::network::{Fabric, Flaw, Network, Weather};
use super::{finish, formed, ms, tail};

/// A world of nodes that start at once, each with so many rails.
fn world(seed: u64, size: u32, rails: u8, loss: f64) -> Network {
    let mut net = Network::new(seed, Weather { loss, ..Weather::fine() });
    for number in 1..=size {
        net.add(number, size, None, Time::ZERO);
    }
    net.prove_paths();
    net.add_rails(rails);
    net
}

/// The warnings of each node in a world that has formed, and the time that this took.
fn warnings(net: &mut Network, seed: u64) -> (Vec<Vec<String>>, Time) {
    let took = finish(net);
    assert!(net.broken.is_empty(), "seed {seed}: {:?}\n{}", net.broken, tail(&net.trace));
    for host in 0..net.hosts.len() {
        formed(net, host);
    }
    (net.hosts.iter().map(|host| host.warnings.clone()).collect(), took)
}

#[test]
fn rails_that_reach_their_counterparts_cost_a_few_round_trips_and_no_warning() {
    for (size, rails) in [(2, 1), (3, 8), (4, 8), (4, 16), (16, 8), (64, 4), (100, 2)] {
        let (none, without) = warnings(&mut world(1, size, 0, 0.0), 1);
        let mut net = world(1, size, rails, 0.0);
        let (some, with) = warnings(&mut net, 1);
        println!("{size} nodes, {rails} rails: {without:?} without, {with:?} with");
        assert!(none.iter().chain(&some).all(Vec::is_empty), "{some:?}");
        assert!(with <= without + ms(5), "{size}: {with:?} and {without:?}");
        let neighbours = u64::from(size.min(3) - 1) * u64::from(size);
        assert_eq!(net.rails_proved(), neighbours * u64::from(rails), "each rail of each neighbour");
    }
}

#[test]
fn a_rail_that_is_broken_one_way_is_named_by_the_node_that_dials_and_costs_two_seconds() {
    for (flaw, seen) in [
        (Flaw::Filtered, "TCP port 40000 there does not answer"),
        (Flaw::Rejected, "TCP port 40000 there refuses connections"),
        (Flaw::Hole(1400), "TCP port 40000 there accepts connections, and full segments are not answered"),
    ] {
        for (from, to) in [(1, 2), (2, 1), (0, 3), (3, 0)] {
            let mut net = world(7, 4, 4, 0.0);
            net.rail_flaws.insert((from, to, 2), flaw);
            let (said, took) = warnings(&mut net, 7);
            for (host, said) in said.iter().enumerate() {
                let broken = format!(
                    "rail mlx5_2:1 (rail2, 10.102.0.{}) of host-{} may not reach mlx5_2:1 (rail2, 10.102.0.{}) of \
                     host-{}: {seen}",
                    from + 1,
                    from + 1,
                    to + 1,
                    to + 1,
                );
                let expected = if host == from { vec![broken] } else { Vec::new() };
                assert_eq!(*said, expected, "{}", tail(&net.trace));
            }
            assert!((ms(2000)..ms(2100)).contains(&took), "{took:?}");
        }
    }
}

#[test]
fn where_all_rails_are_broken_four_are_named_and_the_others_are_counted() {
    let mut net = world(3, 4, 16, 0.0);
    for other in [1, 3] {
        for rail in 0..16 {
            net.rail_flaws.insert((0, other, rail), Flaw::Filtered);
        }
    }
    let before = net.hosts[0].dials;
    let (said, took) = warnings(&mut net, 3);
    assert_eq!(said[0].len(), 5, "{said:?}");
    assert_eq!(said[0][4], "28 more rails of this host may not reach those of its neighbours");
    assert!(said[1..].iter().all(Vec::is_empty) && took < ms(2100), "{took:?}");
    let dials = net.hosts[0].dials - before;
    println!("{dials} dials");
    assert!(dials < 32 * 32, "{dials}");
}

#[test]
fn rails_are_not_tried_where_they_are_not_used() {
    // No path is to be proved, or a rank has no RDMA, so that all use sockets.
    for (paths, fabric) in [(Paths::Master, Fabric::Roce), (Paths::Auto, Fabric::Nothing)] {
        let mut net = world(5, 4, 4, 0.0);
        net.set_fabric(2, fabric);
        for host in &mut net.hosts {
            host.config.node.attributes.paths = paths;
        }
        for rail in 0..4 {
            net.rail_flaws.insert((0, 1, rail), Flaw::Filtered);
        }
        let (said, took) = warnings(&mut net, 5);
        assert!(said.iter().all(Vec::is_empty) && took < ms(20), "{said:?} {took:?}");
        assert_eq!(net.rails_proved(), 0);
    }
}

#[test]
fn a_rail_that_works_again_within_a_second_is_not_named() {
    let mut net = world(9, 4, 4, 0.0);
    net.rail_flaws.insert((1, 2, 3), Flaw::Filtered);
    net.run_until(ms(1000), |_| false);
    net.rail_flaws.clear();
    let (said, took) = warnings(&mut net, 9);
    assert!(said.iter().all(Vec::is_empty) && took < ms(1500), "{said:?} {took:?}");
}

#[test]
fn loss_of_5_and_of_30_percent_breaks_no_rail() {
    for (loss, worst) in [(0.05, ms(2500)), (0.3, Duration::from_secs(6))] {
        let mut times = Vec::new();
        for seed in 0..200 {
            let mut net = world(seed, 4, 8, loss);
            net.tracing = false;
            let (said, took) = warnings(&mut net, seed);
            assert!(said.iter().all(Vec::is_empty), "seed {seed}: {said:?}");
            assert_eq!(net.rails_proved(), 4 * 2 * 8, "seed {seed}");
            times.push(took);
        }
        times.sort();
        println!("{loss}: median {:?}, 99% {:?}, worst {:?}", times[100], times[198], times[199]);
        assert!(times[199] < worst, "{:?}", times[199]);
    }
}
