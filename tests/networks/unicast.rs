//! Seeds: on a routed network, by name, with ports, and as the bridge between islands.

use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use mingle_core::JobId;

use super::{expect, form_with};
use crate::lab::proc::{PATIENCE, Proc};
use crate::lab::world::{World, finish_all, form, line_with, took};
use crate::lab::{Lab, MINGLE, Options};

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
fn an_interface_without_multicast_is_used_with_seeds_and_named_without() {
    let Some(lab) = Options::nodes(3).start() else { return };
    for node in 0..3 {
        // As WireGuard's and tun's.
        lab.at(node, "ip link set eth0 multicast off");
    }
    let seed = format!("--seed {}", lab.address(0));
    form(&lab, "with seeds", &[seed.as_str(); 3]).expect(&lab, &[0, 1, 2]);
    let fact = "eth0 has no multicast, and no other interface is usable";
    let cure = "give every node --seed with the addresses of one or two nodes";
    for outcome in finish_all(crate::lab::world::start_all(&lab, "without", &["--timeout 1s"; 3])) {
        outcome.failed(3, &[&format!("warning: this node hears only nodes on this host: {fact}; {cure}")]);
        outcome.failed(3, &[&format!("nobody else was heard by multicast: {fact}; {cure}")]);
    }
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
    let procs: Vec<Proc> =
        (0..4).map(|i| lab.spawn(i, &line_with("moved", 4, "--seed none[01-64],pod"))).collect();
    for proc in &procs {
        proc.expect_stderr("looking for");
    }
    for i in 0..lab.len() {
        name(i, &lab.address(3).to_string());
    }
    let world = World::of(&finish_all(procs));
    expect(&world, &[0, 1, 2, 3], &lab.address(0).to_string(), "eth0");
}

#[test]
fn in_slurm_and_skypilot_a_world_forms_without_multicast_and_without_an_option() {
    let Some(lab) = pods(true) else { return };
    let (nodes, addresses): (Vec<usize>, Vec<String>) =
        (0..lab.len()).map(|i| (i, lab.address(i).to_string())).unzip();
    let names: Vec<String> = nodes.iter().map(|&i| format!("{} node{i}\n", addresses[i])).collect();
    for &i in &nodes {
        lab.at(i, &format!("cat >>/etc/hosts <<END\n{}END", names.concat()));
    }
    let slurm = |i: usize| {
        [
            ("SLURM_JOB_ID", "7".to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_NNODES", "4".to_owned()),
            ("SLURM_NODEID", i.to_string()),
            // The step's are those that run mingle: others of the job do not.
            ("SLURM_JOB_NODELIST", "other[1-9]".to_owned()),
            ("SLURM_STEP_NODELIST", "node[0-2],node3".to_owned()),
        ]
    };
    let skypilot = |i: usize| {
        [
            ("SKYPILOT_TASK_ID", "sky-2026-11-26_train_1".to_owned()),
            ("SKYPILOT_NUM_NODES", "4".to_owned()),
            ("SKYPILOT_NODE_RANK", i.to_string()),
            ("SKYPILOT_NODE_IPS", addresses.join("\n")),
        ]
    };
    let worlds: [&dyn Fn(usize) -> Vec<(&'static str, String)>; 2] =
        [&|i| slurm(i).to_vec(), &|i| skypilot(i).to_vec()];
    for variables in worlds {
        let start = |&i: &usize| {
            let mut command = lab.command(i, MINGLE);
            command.envs(variables(i));
            lab.start(i, command)
        };
        let world = World::of(&finish_all(nodes.iter().map(start).collect()));
        expect(&world, &nodes, &addresses[0], "eth0");
    }
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

#[test]
fn a_seed_with_the_port_of_torchruns_own_rendezvous_finds_a_node_at_the_jobs_ports() {
    let Some(lab) = pods(false) else { return };
    let master = lab.address(0).to_string();
    for (job, more) in [("the port of c10d", ""), ("a given port, too", "--master-port 23456")] {
        let seed = format!("--seed {}:29400 {more}", lab.address(0));
        expect(&form_with(&lab, job, &seed), &[0, 1, 2, 3], &master, "eth0");
    }
}

#[test]
fn a_discovery_port_among_the_jobs_own_ports_is_left_to_the_groups() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let job = "its own discovery port";
    let mut ports = job.parse::<JobId>().unwrap().ports();
    let (first, second) = (ports.next().unwrap(), ports.next().unwrap());
    let world = form_with(&lab, job, &format!("--multicast :{first}"));
    world.expect(&lab, &[0, 1, 2, 3]);
    assert_eq!(world.common("MASTER_PORT"), second.to_string());
}

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_knows_no_name() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).unwrap();
    let _ = writeln!(std::io::stdout(), "listening");
    let mut buffer = [0; 512];
    while let Ok((length, from)) = server.recv_from(&mut buffer) {
        // RFC 1035, 4.1.1: a response, with the code of a name that does not exist.
        buffer[2] |= 0x80;
        buffer[3] = buffer[3] & 0xf0 | 3;
        let _ = writeln!(std::io::stdout(), "query");
        if std::env::var_os("LAB_SILENT").is_some() {
            continue;
        }
        let _ = server.send_to(&buffer[..length], from);
    }
}

/// Starts a name server that knows no name, for the programs of this node.
fn name_server(lab: &Lab, node: usize, more: &[(&str, &str)]) -> Proc {
    let mut command = lab.helper(node, "networks::unicast::helper_knows_no_name");
    command.envs(more.iter().copied());
    let server = lab.start(node, command);
    let listens = |text: &str| text.contains("listening");
    let deadline = Instant::now() + PATIENCE;
    assert!(server.transcript.stdout.wait_until(deadline, listens), "{}", server.transcript.render());
    server
}

#[test]
fn a_name_whose_server_does_not_answer_does_not_delay_the_other_seeds() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    lab.route_everything();
    let server = name_server(&lab, 1, &[("LAB_SILENT", "1")]);
    lab.at(1, &format!("echo '{} known' >>/etc/hosts", lab.address(0)));
    let procs = [(0, ""), (1, "--seed unanswered,known")];
    let procs = procs.map(|(node, more)| lab.spawn(node, &line_with("unanswered", 2, more)));
    let started = procs[1].started;
    let outcomes = finish_all(procs.into());
    expect(&World::of(&outcomes), &[0, 1], &lab.address(0).to_string(), "eth0");
    assert!(server.transcript.stdout.text().contains("query"), "the other name was not looked up");
    // A look-up is given up after 3 s.
    let took = took(&outcomes, started);
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[test]
fn names_are_looked_up_before_the_first_formation_and_not_while_the_commands_run() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let server = name_server(&lab, 0, &[]);
    let queries = || server.transcript.stdout.text().matches("query").count();
    let deadline = Instant::now() + PATIENCE;
    let wait = |proc: &Proc, wanted: &dyn Fn(&str) -> bool| {
        assert!(proc.transcript.stdout.wait_until(deadline, wanted), "{}", proc.transcript.render());
    };
    let script = "echo started; sleep 3; echo ends; sleep 1; exit $((7 * (1 - MINGLE_GENERATION)))";
    let start = |node: usize| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "names", "-w", "2", "--max-restarts", "1", "--seed", "pods"]);
        command.args(["--", "sh", "-c", script]);
        lab.start(node, command)
    };
    let procs = [0, 1].map(start);
    wait(&procs[0], &|text| text.contains("started"));
    wait(&server, &|text| text.contains("query"));
    let before = queries();
    wait(&procs[0], &|text| text.contains("ends"));
    // The kernel may still have had a query for each family.
    let during = queries() - before;
    wait(&procs[0], &|text| text.matches("started").count() == 2);
    assert!(during <= 2, "{before} queries before, {during} while the commands ran");
    for outcome in finish_all(procs.into()) {
        assert!(outcome.status.success(), "{}", outcome.render());
    }
}
