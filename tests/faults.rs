//! Faults: processes that die or sleep, links that fail in one direction or for a while, full tables. No node
//! runs past its deadline, and no two ranks are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use crate::lab::preload::{Preload, report};
use crate::lab::proc::{GUARD, Outcome, Proc};
use crate::lab::random::Random;
use crate::lab::world::{World, finish_all, finish_all_within, line, line_with, start_all, took};
use crate::lab::{Lab, MINGLE, Options, Policy, limit, setting, skip, sleep_until};

const NODES: &str = "nodes here";
const SOON: Duration = Duration::from_secs(5);
/// How long after its deadline a node may end: a round that has begun is finished, and this machine may be
/// slow.
const GRACE: Duration = Duration::from_secs(12);

/// Starts the nodes one after another, so that the first one leads, and waits until all have joined.
fn waiting(lab: &Lab, nodes: &[usize], args: &[String]) -> Vec<Proc> {
    let mut procs: Vec<Proc> = Vec::new();
    for node in nodes {
        procs.push(lab.spawn(*node, args));
        let here = format!("{} of", procs.len());
        match &procs[..] {
            [first] => first.expect_stderr_within(SOON, "looking for"),
            all => all.iter().for_each(|proc| proc.expect_latest(SOON, NODES, &here)),
        }
    }
    procs
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Checks what always holds: output that is whole or makes `eval` fail, known exit codes, and distinct ranks
/// among the nodes that finished. Returns how many finished.
fn is_consistent(outcomes: &[Outcome]) -> usize {
    let mut finished: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut count = 0;
    let all = || outcomes.iter().map(Outcome::render).collect::<String>();
    for outcome in outcomes {
        match outcome.status.code() {
            Some(0) => {
                let vars = outcome.formed();
                let ranks = finished.entry(vars["MINGLE_ROSTER_DIGEST"].clone()).or_default();
                assert!(ranks.insert(vars["RANK"].clone()), "two equal ranks:\n{}", all());
                count += 1;
            }
            Some(code) => {
                assert!([3, 4, 5].contains(&code), "code {code}:\n{}", all());
                outcome.failed(code, &["mingle: error: "]);
            }
            // Killed: the node has printed nothing or everything.
            None => assert!(outcome.stdout == GUARD || outcome.stdout.ends_with("';\n"), "{}", all()),
        }
        assert!(!outcome.stderr.contains("bug in mingle"), "{}", all());
    }
    assert!(finished.len() <= 1, "two worlds of four from five nodes:\n{}", all());
    count
}

/// Kills one of four at a random moment of a formation under loss, and starts another in its place.
fn kills_around_the_commit(job: &str, victims: &[usize], rounds: usize) {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.set(&Policy { loss: 30, ..Policy::default() });
    let mut random = Random::announced(job);
    let timeout = Duration::from_secs(4);
    let (mut formed, mut killed) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        lab.forget();
        let args = line_with(&format!("{job} {round}"), 4, "--timeout 4s");
        let mut procs: Vec<Proc> = (0..4).map(|node| lab.spawn(node, &args)).collect();
        let victim = victims[random.below(victims.len())];
        sleep_until(procs[3].started + Duration::from_millis(random.below(250) as u64));
        procs[victim].expect_guard();
        if procs[victim].is_running() {
            procs[victim].signal("KILL");
        }
        procs.push(lab.spawn(victim, &args));
        let last = procs[4].started;
        let outcomes = finish_all_within(procs, timeout + GRACE + SOON);
        assert!(took(&outcomes, last) < timeout + GRACE, "{:?}", took(&outcomes, last));
        formed.push(is_consistent(&outcomes));
        killed.push(outcomes[victim].status.code().is_none());
    }
    say(&format!(
        "{job}: finished of five in {rounds} rounds: {formed:?}; killed before its end: {killed:?}"
    ));
    // Otherwise the node had formed its world, and the test shows nothing.
    assert!(killed.contains(&true), "{killed:?}");
}

#[test]
fn killing_the_first_node_at_any_moment_leaves_no_two_equal_ranks() {
    kills_around_the_commit("first killed", &[0], 7);
}

#[test]
fn killing_a_member_at_any_moment_leaves_no_two_equal_ranks() {
    kills_around_the_commit("member killed", &[1, 2, 3], 7);
}

#[test]
fn a_short_outage_of_the_leaders_link_costs_no_seat() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let args = line("link", 4);
    let mut procs = waiting(&lab, &[0, 1, 2], &args);
    let link = |script: &str| assert!(lab.shell(0, "sh", script).status.success());
    link("ip link set eth0 down");
    let last = lab.spawn(3, &args);
    // The others remember the leader, and send to it.
    last.expect_stderr_within(SOON, "looking for");
    link("ip link set eth0 up && ip route add default via 10.77.0.1");
    let since = Instant::now();
    procs.push(last);
    let outcomes = finish_all(procs);
    World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
    say(&format!("link: formed {:?} after it came back", took(&outcomes, since)));
    assert!(took(&outcomes, since) < Duration::from_secs(15));
}

#[test]
fn a_leader_whose_link_stays_down_is_named_at_the_deadline() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let args = line_with("link stays down", 4, "--timeout 3s");
    let procs = waiting(&lab, &[0, 1, 2], &args);
    let started = procs[0].started;
    assert!(lab.shell(0, "sh", "ip link set eth0 down").status.success());
    let outcomes = finish_all(procs);
    assert_eq!(is_consistent(&outcomes), 0);
    for outcome in &outcomes[1..] {
        outcome.failed(3, &["missing", "node0 (10.77.0.10:"]);
    }
    assert!(took(&outcomes, started) < Duration::from_secs(8));
}

#[test]
fn a_member_that_sleeps_loses_its_seat_to_a_standby_and_wakes_to_a_message() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let args = line("sleeper", 3);
    let mut procs = waiting(&lab, &[0], &args);
    let sleeper = lab.spawn(1, &line_with("sleeper", 3, "--timeout 2s"));
    sleeper.expect_stderr_within(SOON, "2 of 3");
    sleeper.signal("STOP");
    procs.extend([2, 3].map(|node| lab.spawn(node, &args)));
    let since = procs[2].started;
    let outcomes = finish_all(procs);
    assert_eq!(World::of(&outcomes).ranks(), [0, 1, 2]);
    say(&format!("sleeper: replaced after {:?}", took(&outcomes, since)));
    assert!(took(&outcomes, since) < Duration::from_secs(12));
    sleeper.signal("CONT");
    let woken = Instant::now();
    let outcome = sleeper.finish_within(GRACE);
    let code = outcome.status.code().unwrap();
    assert!([3, 4, 5].contains(&code), "{}", outcome.render());
    outcome.failed(code, &["mingle: error: "]);
    assert!(outcome.ended - woken < SOON);
}

/// Starts mingle with this limit on file descriptors.
fn cramped(lab: &Lab, node: usize, descriptors: u32, args: &[String]) -> Proc {
    let mut command = lab.command(node, "sh");
    command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$@\""), "sh", MINGLE]).args(args);
    lab.start(node, command)
}

#[test]
fn a_full_table_of_file_descriptors_ends_with_a_reason_or_a_world() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut first = Vec::new();
    for descriptors in [4, 6, 7, 9, 12, 14, 16, 18, 24] {
        let job = format!("descriptors {descriptors}");
        let args = line_with(&job, 4, "--timeout 2s");
        let mut procs = vec![cramped(&lab, 0, descriptors, &args)];
        procs.extend((1..4).map(|node| lab.spawn(node, &args)));
        let started = procs[3].started;
        let outcomes = finish_all(procs);
        let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.status.code().unwrap()).collect();
        say(&format!("{descriptors} descriptors: {codes:?} in {:?}", took(&outcomes, started)));
        for outcome in &outcomes {
            assert!(!outcome.stderr.contains("bug in mingle"), "{}", outcome.render());
            match outcome.status.code().unwrap() {
                0 => drop(outcome.formed()),
                code => outcome.failed(code, &["mingle: error: "]),
            }
        }
        assert!(took(&outcomes, started) < Duration::from_secs(2) + GRACE);
        first.push(codes[0]);
        lab.forget();
    }
    // Otherwise no table was full while the node ran: the smallest end it at its start, the largest suffices.
    assert!(first.iter().any(|code| [3, 5].contains(code)) && first.last() == Some(&0), "{first:?}");
}

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_holds_ports() {
    let ports: String = setting("LAB_PORTS");
    let held: Vec<_> = ports
        .split(',')
        .map(|port| {
            let at = (Ipv4Addr::UNSPECIFIED, port.parse().unwrap());
            // TCP or UDP alone makes a port useless.
            if at.1 % 2 == 0 { Ok(TcpListener::bind(at).unwrap()) } else { Err(UdpSocket::bind(at).unwrap()) }
        })
        .collect();
    let _ = writeln!(std::io::stdout(), "holding");
    loop {
        std::thread::park();
        assert!(!held.is_empty());
    }
}

#[test]
fn ports_of_other_programs_are_skipped() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let job: mingle_core::JobId = "ports".parse().unwrap();
    let taken: Vec<u16> = job.ports().take(5).collect();
    let list = taken.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let mut command = lab.helper(0, "faults::helper_holds_ports");
    let holder = {
        command.env("LAB_PORTS", &list);
        lab.start(0, command)
    };
    let holds = |text: &str| text.contains("holding");
    assert!(holder.transcript.stdout.wait_until(Instant::now() + SOON, holds));
    let world = World::of(&finish_all(start_all(&lab, "ports", &[])));
    world.expect(&lab, &[0, 1, 2, 3]);
    assert_eq!(world.common("MASTER_PORT"), job.ports().nth(5).unwrap().to_string());
    for port in taken {
        let outcome = lab.spawn(0, &line_with("ports", 4, &format!("-p {port}"))).finish();
        outcome.failed(5, &[&format!("port {port} is taken"), "--master-port"]);
    }
}

/// Forms a world of four where every node waits for the last one, and ends a node that waits alone.
/// `start` starts a node with arguments.
fn keeps_time(lab: &Lab, job: &str, start: &dyn Fn(usize, &[String]) -> Proc) -> Vec<Outcome> {
    let alone = start(0, &line_with(&format!("{job} alone"), 2, "--timeout 1s"));
    let mut procs: Vec<Proc> = Vec::new();
    for node in 0..4 {
        // Only the log shows the time of day; some nodes have one.
        procs.push(start(node, &line_with(job, 4, if node < 2 { "-vv" } else { "" })));
        procs[node].expect_stderr_within(SOON, if node == 0 { "looking for" } else { "joined" });
    }
    let since = procs[3].started;
    let outcomes = finish_all(procs);
    World::of(&outcomes).expect(lab, &[0, 1, 2, 3]);
    let formed = took(&outcomes, since);
    for outcome in &outcomes {
        // The time that the node reports, in milliseconds or seconds and not in minutes.
        let told = outcome.stderr.lines().find_map(|line| line.split_once(" formed in "));
        let told = told.and_then(|(_, rest)| rest.split_once(": ")).map_or("", |(time, _)| time);
        assert!(told.ends_with('s') && !told.contains("min"), "{told:?} of {}", outcome.render());
    }
    let started = alone.started;
    let alone = alone.finish_within(SOON);
    alone.failed(3, &["nobody else was heard"]);
    let waited = alone.ended - started;
    say(&format!("{job}: formed {formed:?} after the last start; a timeout of 1 s took {waited:?}"));
    assert!(formed < SOON);
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(3), "{waited:?}");
    outcomes
}

#[test]
fn a_wall_clock_that_jumps_by_an_hour_at_every_look_changes_nothing() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let Some(preload) = Preload::build() else { return };
    let outcomes = keeps_time(&lab, "jumps", &|node, args| preload.spawn(&lab, node, "LAB_CLOCK=1", args));
    let looks: Vec<u64> = outcomes.iter().map(|outcome| report(outcome)[0]).collect();
    say(&format!("jumps: looks at the wall clock, with a log and without: {looks:?}"));
    assert!(looks[..2].iter().all(|looks| *looks > 2), "no clock jumped: {looks:?}");
    // Only the log reads the wall clock, so a jump can change nothing else.
    assert_eq!(looks[2..], [0, 0]);
}

#[test]
fn hosts_that_have_been_up_for_a_day_a_decade_and_a_century_form_a_world() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let day: u64 = 24 * 60 * 60;
    let shifts = [36_500 * day, 0, day, 3_650 * day];
    // The program is a child, since a process stays in the time namespace in which it was started.
    let shift = |node: usize| {
        let by = shifts[node];
        format!("unshare --time --monotonic {by} --boottime {by} --fork --kill-child")
    };
    let probe = lab.shell(0, "sh", &format!("{} cat /proc/uptime", shift(0)));
    if !probe.status.success() {
        return skip(&format!("no time namespaces here: {}", probe.stderr.trim()));
    }
    let uptime: f64 = probe.stdout.split(' ').next().unwrap().parse().unwrap();
    assert!(uptime > 36_500.0 * 86_400.0, "{}", probe.render());
    keeps_time(&lab, "uptimes", &|node, args| {
        let mut command = lab.command(node, "sh");
        command.args(["-c", &format!("exec {} \"$@\"", shift(node)), "sh", MINGLE]).args(args);
        lab.start(node, command)
    });
}

/// How many datagrams the kernel has dropped on each node because a buffer was full.
fn overflows(lab: &Lab) -> Vec<u64> {
    let count = |node| {
        let snmp = lab.shell(node, "sh", "cat /proc/self/net/snmp").stdout;
        let mut rows = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(name, _)| *name == "RcvbufErrors").unwrap().1.parse().unwrap()
    };
    (0..lab.len()).map(count).collect()
}

#[test]
fn nodes_with_the_smallest_possible_buffers_form_a_world() {
    const WORLD: usize = 16;
    let Some(lab) = Options::nodes(WORLD).start() else { return };
    let Some(preload) = Preload::build() else { return };
    let mut times = Vec::new();
    for round in 0..5 {
        lab.forget();
        let args = line(&format!("small {round}"), WORLD);
        let start = |node| preload.spawn(&lab, node, "LAB_BUFFERS=1", &args);
        let procs: Vec<Proc> = (0..WORLD).map(start).collect();
        let since = procs[WORLD - 1].started;
        let outcomes = finish_all(procs);
        World::of(&outcomes).expect(&lab, &(0..WORLD).collect::<Vec<_>>());
        for outcome in &outcomes {
            // The node's own sockets, one for each family of the kernel, and those of the group, one for each
            // family in which the host has an address.
            assert!(matches!(report(outcome)[..], [2..=4, ..=4608]), "{}", outcome.render());
        }
        times.push(took(&outcomes, since));
    }
    let lost = overflows(&lab);
    say(&format!("smallest buffers: formed in {times:?}; overflows on each node {lost:?}"));
    assert!(times.iter().all(|time| *time < limit(Duration::from_secs(3))), "{times:?}");
    // Without an overflow this test would show nothing.
    assert!(lost.iter().sum::<u64>() > 0);
}
