//! Nodes that should be the same and are not: what they learn of each other, and what it costs.

use mingle_core::proto::Time;
use mingle_core::{Failure, Trait};

use crate::network::{Network, Weather};
use crate::{failure, finish, formed, ms};

/// A world whose nodes have one trait each, with these values.
fn world(seed: u64, weather: Weather, values: &[&str], required: bool) -> Network {
    let mut net = Network::new(seed, weather);
    let size = u32::try_from(values.len()).unwrap();
    for (number, value) in (1..).zip(values) {
        let host = net.add(number, size, None, Time::ZERO);
        net.hosts[host].set_traits([Trait::shown("NCCL_ALGO", *value)], required && number == 2);
    }
    net
}

fn lossy() -> Weather {
    Weather { loss: 0.3, ..Weather::fine() }
}

/// The lines of a host, which has formed.
fn lines(net: &Network, host: usize) -> Vec<String> {
    formed(net, host).sameness.lines()
}

const ODD: &str = "NCCL_ALGO differs: \"Ring\" on rank 3, \"Tree\" on the others";

#[test]
fn nodes_that_are_the_same_are_told_of_no_difference() {
    let mut net = world(1, Weather::fine(), &["Tree"; 4], true);
    assert!(finish(&mut net) < ms(10));
    assert!((0..4).all(|host| lines(&net, host).is_empty()));
}

#[test]
fn one_that_differs_is_named_on_every_rank_and_takes_no_time() {
    let mut net = world(1, Weather::fine(), &["Tree", "Tree", "Tree", "Ring"], false);
    assert!(finish(&mut net) < ms(10));
    for host in 0..4 {
        assert_eq!(lines(&net, host), [ODD]);
    }
}

#[test]
fn at_30_percent_loss_every_rank_names_it_too() {
    for seed in 0..200 {
        let mut net = world(seed, lossy(), &["Tree", "Tree", "Tree", "Ring"], false);
        finish(&mut net);
        for host in 0..4 {
            assert_eq!(lines(&net, host), [ODD], "seed {seed}");
        }
    }
}

#[test]
fn one_node_that_requires_it_is_enough_to_end_all_with_the_same_message() {
    for seed in 0..100 {
        let mut net = world(seed, lossy(), &["Tree", "Tree", "Tree", "Ring"], true);
        finish(&mut net);
        for host in 0..4 {
            let failure = failure(&net, host);
            assert!(matches!(failure, Failure::Differs { .. }), "seed {seed}: {failure}");
            assert_eq!(failure.to_string(), format!("all nodes must be the same, and they are not; {ODD}"));
        }
    }
}

#[test]
fn many_traits_arrive_at_30_percent_loss() {
    let many = |odd: bool| {
        let value = move |n: u32| if odd && n == 77 { "x" } else { "y" };
        (0..150).map(move |n| Trait::shown(format!("a-key-with-a-rather-long-name-{n:03}"), value(n)))
    };
    for seed in 0..50 {
        let mut net = world(seed, lossy(), &["Tree"; 3], false);
        for host in 0..3 {
            net.hosts[host].set_traits(many(host == 1), false);
        }
        finish(&mut net);
        let line = "a-key-with-a-rather-long-name-077 differs: \"x\" on rank 1, \"y\" on the others";
        assert!((0..3).all(|host| lines(&net, host) == [line]), "seed {seed}: {:?}", lines(&net, 0));
    }
}

#[test]
fn a_node_that_says_nothing_is_named_and_ends_a_world_that_requires_sameness() {
    for required in [false, true] {
        let mut net = world(1, Weather::fine(), &["Tree"; 3], required);
        net.hosts[2].set_traits([], false);
        finish(&mut net);
        let line = "rank 2 did not say what to compare with the other ranks";
        if required {
            assert!(failure(&net, 0).to_string().ends_with(line));
        } else {
            assert_eq!(lines(&net, 0), [line]);
        }
    }
}

#[test]
fn a_thousand_nodes_that_all_differ_form_as_fast_as_others() {
    let values: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut net = world(1, Weather::fine(), &values, false);
    let last = finish(&mut net);
    assert!(last < ms(500), "{last:?}");
    assert_eq!(lines(&net, 999), lines(&net, 0));
    assert!(lines(&net, 0)[0].contains("1000 values in all"), "{:?}", lines(&net, 0));
}

#[test]
fn at_the_deadline_nodes_name_exactly_the_listed_hosts_that_are_absent() {
    for (seed, weather) in (0..20).map(|seed| (seed, if seed % 2 == 0 { Weather::fine() } else { lossy() })) {
        let mut net = Network::new(seed, weather);
        for number in [1, 2, 5, 6] {
            let host = net.add(number, 7, None, Time::ZERO);
            // Four by their names, three by their addresses.
            let hosts = ["host-1", "10.0.0.2", "host-3", "10.0.0.4", "host-5.example", "HOST-6", "10.0.0.7"];
            net.hosts[host].config.listed = hosts.map(str::to_owned).into_iter().collect();
            net.hosts[host].config.timeout = Some(ms(5000));
        }
        finish(&mut net);
        let texts: Vec<String> = (0..4).map(|host| failure(&net, host).to_string()).collect();
        let names = |text: &&String| text.ends_with("; missing 10.0.0.4, 10.0.0.7, host-3");
        // Where datagrams are lost, a member may know some others by their names alone, and counts.
        let counts = |text: &&String| seed % 2 == 1 && text.ends_with("; 3 missing");
        assert!(texts.iter().any(|text| names(&text)), "seed {seed}: {texts:?}");
        assert!(texts.iter().all(|text| names(&text) || counts(&text)), "seed {seed}: {texts:?}");
    }
}
