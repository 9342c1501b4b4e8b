//! Addresses and interfaces that come and go while nodes wait.

use std::time::Duration;

use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, line, line_with};
use crate::lab::{Options, limit, sleep_until};

const NODES: &str = "nodes here";
/// A node looks at its addresses every two seconds.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn an_address_that_appears_three_seconds_after_the_start_is_used() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.at(3, "ip addr flush dev eth0");
    // The first node waits for a usable interface; the second has begun on loopback.
    let jobs = [("waits for eth0", "--interface eth0"), ("begins on loopback", "")];
    let worlds = jobs.map(|(job, more)| {
        let start = |i: usize| lab.spawn(i, &line_with(job, 4, if i == 3 { more } else { "" }));
        (0..4).map(start).collect::<Vec<Proc>>()
    });
    worlds[0][3].expect_stderr("no usable network interface yet");
    worlds[1][3].expect_stderr("looking for");
    sleep_until(worlds[1][3].started + Duration::from_secs(3));
    lab.restore_ipv4(3);
    for procs in worlds {
        let outcomes = finish_all(procs);
        World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
        for outcome in outcomes {
            assert!(!outcome.stderr.contains("MTU differs"), "{}", outcome.render());
        }
    }
}

#[test]
fn a_node_whose_only_interface_is_not_ready_yet_gets_no_seat_at_a_loopback_address() {
    let Some(lab) = Options::nodes(4).start() else { return };
    // As just after it was made, on a busy machine: packets pass, but it is not called running.
    lab.at(3, "ip link set eth0 mode dormant; ip link set eth0 state dormant");
    let args = line_with("not ready", 4, "--seed 10.77.0.13");
    let first = line_with("not ready", 4, "--seed 10.77.0.13 --rank 0 -vv");
    let start = |i| lab.spawn(i, if i == 0 { &first } else { &args });
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    procs[0].expect_latest(SOON, NODES, "3 of 4");
    procs.push(start(3));
    procs[0].expect_stderr("its host has no address yet that others reach");
    lab.at(3, "ip link set eth0 mode default; ip link set eth0 state up");
    World::of(&finish_all(procs)).expect(&lab, &[0, 1, 2, 3]);
}

#[test]
fn the_wait_for_an_address_counts_towards_the_deadline() {
    let Some(lab) = Options::nodes(1).start() else { return };
    lab.at(0, "ip addr flush dev eth0");
    let proc = lab.spawn(0, &line_with("late address", 2, "--interface eth0 --timeout 4s"));
    proc.expect_stderr("no usable network interface yet");
    sleep_until(proc.started + Duration::from_secs(2));
    lab.restore_ipv4(0);
    let started = proc.started;
    let outcome = proc.finish();
    outcome.failed(3, &["nobody else was heard"]);
    let took = outcome.ended - started;
    assert!(took < Duration::from_secs(4) + limit(Duration::from_millis(1500)), "{took:?}");
}

#[test]
fn a_node_whose_address_changes_keeps_its_deadline() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let proc = lab.spawn(0, &line_with("moves", 2, "--timeout 10s"));
    proc.expect_stderr("looking for");
    sleep_until(proc.started + Duration::from_secs(4));
    lab.at(0, "ip addr flush dev eth0; ip addr add 10.77.0.110/24 brd + dev eth0");
    let started = proc.started;
    let outcome = proc.finish();
    outcome.failed(3, &["the addresses of this host have changed", "nobody else was heard"]);
    let took = outcome.ended - started;
    assert!(took < Duration::from_secs(10) + limit(Duration::from_secs(2)), "{took:?}");
}

#[test]
fn an_interface_that_appears_while_a_node_waits_is_used() {
    let Some(lab) = Options::nodes(4).start() else { return };
    // The only interface leads nowhere, and stays the preferred one.
    lab.switch("ip link set p3 nomaster");
    lab.at(3, "ip addr flush dev eth0; ip addr add 10.99.0.13/24 dev eth0; ip route add default dev eth0");
    let procs: Vec<Proc> = (0..4).map(|i| lab.spawn(i, &line("new interface", 4))).collect();
    for proc in &procs[..3] {
        proc.expect_latest(SOON, NODES, "3 of 4");
    }
    procs[3].expect_stderr("looking for");
    lab.plug(3, "net1");
    lab.at(3, "ip addr add 10.77.0.13/24 brd + dev net1");
    let world = World::of(&finish_all(procs));
    assert_eq!(world.ranks(), [0, 1, 2, 3]);
    let names: Vec<&str> = world.nodes.iter().map(|vars| &*vars["GLOO_SOCKET_IFNAME"]).collect();
    assert_eq!(names, ["eth0", "eth0", "eth0", "net1"]);
}

#[test]
fn an_address_that_changes_while_a_member_waits_is_followed() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.at(0, "mkdir /run/seeds");
    let args = line_with("changed", 4, "--seed-dir /run/seeds");
    let mut procs: Vec<Proc> = (0..3).map(|i| lab.spawn(i, &args)).collect();
    for proc in &procs {
        proc.expect_latest(SOON, NODES, "3 of 4");
    }
    lab.at(1, "ip addr flush dev eth0; ip addr add 10.77.0.40/24 brd + dev eth0");
    procs[1].expect_stderr_within(SOON, "the addresses of this host have changed");
    procs[1].expect_latest(SOON, NODES, "3 of 4");
    procs.push(lab.spawn(3, &args));
    World::of(&finish_all(procs)).expect(&lab, &[0, 3, 1, 2]);
    assert_eq!(lab.shell(0, "sh", "ls -A /run/seeds").stdout, "", "no node leaves a file");
}

#[test]
fn the_members_of_a_leader_whose_address_changes_follow_the_node_that_replaces_it() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut procs: Vec<Proc> = (0..3).map(|i| lab.spawn(i, &line("leader moved", 4))).collect();
    procs[0].expect_latest(SOON, NODES, "3 of 4");
    lab.at(0, "ip addr flush dev eth0; ip addr add 10.77.0.5/24 brd + dev eth0");
    procs[0].expect_stderr_within(SOON, "the addresses of this host have changed");
    procs.push(lab.spawn(3, &line("leader moved", 4)));
    let last = procs[3].started;
    let outcomes = finish_all(procs);
    let world = World::of(&outcomes);
    // Long before its connections would time out, after 25 s.
    for outcome in &outcomes {
        assert!(
            outcome.ended < last + limit(Duration::from_secs(10)).min(Duration::from_secs(24)),
            "{}",
            outcome.render()
        );
    }
    assert_eq!(world.ranks(), [0, 1, 2, 3]);
    assert!(world.nodes.iter().all(|vars| vars["MASTER_ADDR"] == "10.77.0.5"));
}

#[test]
fn a_member_that_loses_an_address_goes_on_with_the_other() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.add_second_network();
    let leader = lab.spawn(0, &line("vanished", 4));
    leader.expect_stderr("looking for");
    let mut procs = vec![leader, lab.spawn(1, &line("vanished", 4)), lab.spawn(2, &line("vanished", 4))];
    for proc in &procs {
        proc.expect_latest(SOON, NODES, "3 of 4");
    }
    lab.at(1, "ip addr flush dev eth0");
    procs[1].expect_stderr_within(SOON, "the addresses of this host have changed");
    procs.push(lab.spawn(3, &line("vanished", 4)));
    let outcomes = finish_all(procs);
    let vars: Vec<_> = outcomes.iter().map(Outcome::formed).collect();
    // With its remaining address the node ranks last, and all use the network that it has left.
    let ranks: Vec<&str> = vars.iter().map(|vars| &*vars["RANK"]).collect();
    assert_eq!(ranks, ["0", "3", "1", "2"]);
    for vars in &vars {
        assert_eq!((&*vars["MASTER_ADDR"], &*vars["GLOO_SOCKET_IFNAME"]), (&*lab.second(0), "eth1"));
    }
}
