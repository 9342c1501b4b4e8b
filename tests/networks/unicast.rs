//! Seeds: on a routed network, by name, with ports, and as the bridge between islands.

use crate::lab::proc::Proc;
use crate::lab::world::{World, finish_all, form, line_with};
use crate::lab::{Lab, Options};
use crate::{expect, form_with};

fn pods(names: bool) -> Option<Lab> {
    let options = Options::nodes(4);
    let lab = if names { options.with_names() } else { options }.start()?;
    lab.route_everything();
    Some(lab)
}

#[test]
fn routed_pods_without_a_common_link_need_one_seed_each() {
    let Some(lab) = pods(false) else { return };
    let all = [0, 1, 2, 3];
    let master = lab.address(0).to_string();
    let to = |i: usize| format!("--seed {}", lab.address(i));
    for i in [0, 3] {
        expect(&form_with(&lab, &format!("all to {i}"), &to(i)), &all, &master, "eth0");
    }
    let next = [to(1), to(2), to(3), to(0)];
    let chain: Vec<&str> = next.iter().map(String::as_str).collect();
    expect(&form(&lab, "a circle", &chain), &all, &master, "eth0");
    expect(&form(&lab, "a chain", &chain[..3]), &all, &master, "eth0");
    let previous = [String::new(), to(0), to(1), to(2)];
    let chain: Vec<&str> = previous.iter().map(String::as_str).collect();
    expect(&form(&lab, "a chain upwards", &chain), &all, &master, "eth0");

    // A seed tells the addresses of the others, with their ports.
    let seed = format!("--seed {}:23456", lab.address(1));
    let own = format!("{seed} --master-port 23456");
    expect(&form(&lab, "a port", &[&seed, &own, &seed, &seed]), &all, &master, "eth0");
    // A seed without a node does no harm.
    let dead = format!("--seed 10.77.0.99,{} --seed 10.77.0.98", lab.address(2));
    expect(&form_with(&lab, "with dead ones", &dead), &all, &master, "eth0");
}

#[test]
fn a_name_that_resolves_first_to_none_and_then_to_all_pods_is_a_seed() {
    let Some(lab) = pods(true) else { return };
    let procs: Vec<Proc> = (0..4).map(|i| lab.spawn(i, &line_with("name", 4, "--seed pods"))).collect();
    for proc in &procs {
        proc.expect_stderr("seed pods does not resolve yet");
    }
    // A stale address comes first, and each node gets only the addresses of the others: all are tried.
    for i in 0..lab.len() {
        let others = (0..lab.len()).filter(|&other| other != i).map(|other| lab.address(other).to_string());
        let lines: Vec<_> =
            std::iter::once("10.77.0.99".to_owned()).chain(others).map(|ip| format!("{ip} pods\n")).collect();
        lab.at(i, &format!("cat >>/etc/hosts <<END\n{}END", lines.concat()));
    }
    let world = World::of(&finish_all(procs));
    expect(&world, &[0, 1, 2, 3], &lab.address(0).to_string(), "eth0");
}

#[test]
fn a_name_that_moves_to_another_pod_is_looked_up_again() {
    let Some(lab) = pods(true) else { return };
    let name = |node: usize, address: &str| {
        // In place, since the file is a mount point; the earlier line of this name is removed.
        lab.at(node, &format!("sed '/ pod$/d' /etc/hosts >/run/new; echo '{address} pod' >>/run/new"));
        lab.at(node, "cat /run/new >/etc/hosts");
    };
    for i in 0..lab.len() {
        name(i, "10.77.0.99");
    }
    let procs: Vec<Proc> = (0..4).map(|i| lab.spawn(i, &line_with("moved", 4, "--seed pod"))).collect();
    for proc in &procs {
        proc.expect_stderr("leading");
    }
    for i in 0..lab.len() {
        name(i, &lab.address(3).to_string());
    }
    let world = World::of(&finish_all(procs));
    expect(&world, &[0, 1, 2, 3], &lab.address(0).to_string(), "eth0");
}

#[test]
fn one_seed_joins_two_multicast_islands_to_one_world() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.drop_at_bridge(&[
        "iifname { p0, p1 } oifname { p2, p3 } ip daddr 224.0.0.0/4",
        "iifname { p2, p3 } oifname { p0, p1 } ip daddr 224.0.0.0/4",
    ]);
    for (from, to) in [(3, 1), (0, 2)] {
        let job = format!("from {from} to {to}");
        let start = |i: usize, more: &str| lab.spawn(i, &line_with(&job, 4, more));
        // Both islands are complete before either knows of the other.
        let others: Vec<usize> = (0..4).filter(|&i| i != from).collect();
        let mut procs: Vec<(usize, Proc)> = others.into_iter().map(|i| (i, start(i, ""))).collect();
        let island = |i: usize| i / 2;
        for (_, proc) in procs.iter().filter(|(i, _)| island(*i) != island(from)) {
            proc.expect_stderr("2 of 4 nodes here");
        }
        procs.push((from, start(from, &format!("--seed {}", lab.address(to)))));
        procs.sort_by_key(|(i, _)| *i);
        let outcomes = finish_all(procs.into_iter().map(|(_, proc)| proc).collect());
        World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
    }
}
