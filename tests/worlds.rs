//! Worlds that form: in any order, on different networks, with given ranks and without.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};

use crate::lab::proc::{GUARD, Outcome, Proc};
use crate::lab::random::Random;
use crate::lab::world::{World, finish_all, form, line, line_with, start_all};
use crate::lab::{Lab, MINGLE, Options, Policy, setting, sleep_until};

/// Far longer than a message takes, and far shorter than any timer that could cause the same change.
const AT_ONCE: Duration = Duration::from_secs(1);

const NODES: &str = "nodes here";

fn expect_count(procs: &[&Proc], count: &str) {
    for proc in procs {
        proc.expect_latest(Duration::from_secs(5), NODES, count);
    }
}

#[test]
fn four_nodes_started_in_any_order_form_one_world() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut random = Random::announced("orders and delays");
    for round in 0..4 {
        lab.forget();
        let begin = Instant::now();
        let mut starts: Vec<_> = (0..4).map(|node| (random.below(2000), node)).collect();
        starts.sort_unstable();
        let mut procs: Vec<(usize, Proc)> = Vec::new();
        for (delay, node) in starts {
            sleep_until(begin + Duration::from_millis(u64::try_from(delay).unwrap()));
            procs.push((node, lab.spawn(node, &line(&format!("order {round}"), 4))));
        }
        procs.sort_by_key(|(node, _)| *node);
        let outcomes = finish_all(procs.into_iter().map(|(_, proc)| proc).collect());
        World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
    }
}

#[test]
fn automatic_ranks_fill_the_gaps_between_given_ones() {
    let Some(lab) = Options::nodes(4).start() else { return };
    form(&lab, "ranks given to some", &["", "--rank 3", "", "--rank 1"]).expect(&lab, &[0, 3, 2, 1]);
}

#[test]
fn ranks_follow_the_natural_order_of_rank_keys_and_a_scheduler_gives_none() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let start = |(node, key): (usize, &str)| {
        let mut command = lab.command(node, MINGLE);
        command.args(line_with("keys", 4, "")).env("MINGLE_RANK_KEY", key);
        command.env("SLURM_NODEID", node.to_string()).env("SLURM_NNODES", "4");
        lab.start(node, command)
    };
    let outcomes =
        finish_all(["b-10/w", "b-9/w-2", "b-9/w-1", ""].into_iter().enumerate().map(start).collect());
    // Without a key the rank is the scheduler's.
    World::of(&outcomes).expect(&lab, &[2, 1, 0, 3]);
    for outcome in &outcomes {
        assert!(
            outcome.stderr.contains("--rank-key differs: \"not given\" on rank 3"),
            "{}",
            outcome.render()
        );
    }
}

#[test]
fn a_docker0_with_the_same_address_on_every_host_is_not_the_masters_address() {
    let Some(lab) = Options::nodes(4).with_docker0().with_filters().start() else { return };
    form(&lab, "docker0", &[]).expect(&lab, &[0, 1, 2, 3]);
    // While eth0 loses packets, 172.17.0.1 answers first, because it is the node itself.
    lab.set(&Policy { loss: 40, ..Policy::default() });
    for round in 0..4 {
        lab.forget();
        form(&lab, &format!("docker0 and loss {round}"), &[]).expect(&lab, &[0, 1, 2, 3]);
    }
}

#[test]
fn a_dead_interface_with_the_default_route_is_not_the_masters_address() {
    let Some(lab) = Options::nodes(4).with_route_into_dead_nic().start() else { return };
    form(&lab, "dead default route", &[]).expect(&lab, &[0, 1, 2, 3]);
}

#[test]
fn no_default_route_is_needed() {
    let Some(lab) = Options::nodes(4).without_default_route().start() else { return };
    form(&lab, "no default route", &[]).expect(&lab, &[0, 1, 2, 3]);
}

#[test]
fn four_nodes_on_one_host_form_a_world() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (job, more, address, interface) in [
        ("one host", "", "10.77.0.10", "eth0"),
        ("one host, loopback", "--interface lo", "127.0.0.1", "lo"),
        ("one host, by address", "--interface 10.77.0.0/16", "10.77.0.10", "eth0"),
    ] {
        let procs = (0..4).map(|_| lab.spawn(0, &line_with(job, 4, more))).collect();
        let world = World::of(&finish_all(procs));
        assert_eq!(world.common("MASTER_ADDR"), address);
        assert_eq!(world.common("GLOO_SOCKET_IFNAME"), interface);
    }
}

#[test]
fn two_jobs_on_the_same_hosts_do_not_meet() {
    let Some(lab) = Options::nodes(4).start() else { return };
    // Once with the groups derived from the job IDs, and once with one group for both jobs.
    for more in ["", "--multicast 239.255.7.7:29498"] {
        lab.forget();
        let red = start_all(&lab, "red", &[more; 4]);
        let blue = start_all(&lab, "blue", &[more; 4]);
        let (red, blue) = (World::of(&finish_all(red)), World::of(&finish_all(blue)));
        red.expect(&lab, &[0, 1, 2, 3]);
        blue.expect(&lab, &[0, 1, 2, 3]);
        assert_eq!((red.common("MINGLE_JOB_ID"), blue.common("MINGLE_JOB_ID")), ("red", "blue"));
        assert_ne!(red.common("MASTER_PORT"), blue.common("MASTER_PORT"));
        assert_ne!(red.digest(), blue.digest());
    }
}

#[test]
fn a_host_whose_tcp_is_firewalled_does_not_become_the_master() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    lab.firewall(0, &["tcp dport 29500-29999"]);
    let world = form(&lab, "firewalled", &[]);
    assert_eq!(world.ranks()[1], 0, "{world:?}");
    assert_eq!(world.common("MASTER_ADDR"), lab.address(1).to_string());
}

/// A world of four: a member with a given rank leaves when three of four have joined, and a new node replaces
/// it.
fn replaces_a_member(job: &str, signal: &str) {
    let Some(lab) = Options::nodes(4).start() else { return };
    let given = line_with(job, 4, "--rank 1");
    let leader = lab.spawn(0, &line(job, 4));
    leader.expect_stderr("looking for");
    let stays = lab.spawn(1, &line(job, 4));
    let leaves = lab.spawn(2, &given);
    expect_count(&[&leader, &stays, &leaves], "3 of 4");
    leaves.signal(signal);
    for proc in [&leader, &stays] {
        proc.expect_latest(AT_ONCE, NODES, "2 of 4");
    }
    let left = leaves.finish();
    match signal {
        "KILL" => assert_eq!(left.stdout, GUARD),
        _ => left.failed(143, &[]),
    }
    let comes = lab.spawn(3, &given);
    expect_count(&[&leader, &stays, &comes], "3 of 4");
    let last = lab.spawn(2, &line(job, 4));
    World::of(&finish_all(vec![leader, stays, last, comes])).expect(&lab, &[0, 2, 3, 1]);
}

#[test]
fn a_member_that_is_terminated_frees_its_seat_at_once() {
    replaces_a_member("terminated", "TERM");
}

#[test]
fn a_member_that_is_killed_frees_its_seat_at_once() {
    replaces_a_member("killed", "KILL");
}

#[test]
fn a_world_of_one_needs_no_other_node_and_no_network() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let formed = |outcome: Outcome| World::of(&[outcome]);
    formed(lab.spawn(0, &line("alone", 1)).finish()).expect(&lab, &[0]);
    // Without a network the master is at 127.0.0.1.
    assert!(lab.shell(0, "sh", "ip link set eth0 down").status.success());
    let world = formed(lab.spawn(0, &line("alone", 1)).finish());
    assert_eq!(world.common("MASTER_ADDR"), "127.0.0.1");
}

#[test]
fn an_interface_whose_name_is_unsafe_in_a_shell_is_used_but_not_printed() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = r#"ip link set eth0 down; ip link set eth0 name "x';*"; ip link set "x';*" up;
        ip route add default via 10.77.0.1"#;
    assert!(lab.shell(1, "sh", script).status.success());
    let outcomes = finish_all(start_all(&lab, "interface", &[]));
    assert_eq!(World::of(&outcomes).ranks(), [0, 1]);
    assert!(!outcomes[1].stdout.contains("IFNAME="), "{}", outcomes[1].render());
    assert!(outcomes[1].stderr.contains("rename it"), "{}", outcomes[1].render());
}

#[test]
fn json_carries_the_same_roster_on_every_node() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let more = ["--format json", "--format json", "--format json --rank 0", ""];
    let outcomes = finish_all(start_all(&lab, "json", &more));
    let ranks = [1, 2, 0, 3];
    let digest = &outcomes[3].formed()["MINGLE_ROSTER_DIGEST"];
    let mut rosters = BTreeSet::new();
    for (node, outcome) in outcomes[..3].iter().enumerate() {
        assert!(outcome.status.success(), "{}", outcome.render());
        let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(document["rank"], ranks[node]);
        assert_eq!(document["world"], 4);
        assert_eq!(document["job"], "json");
        assert_eq!(document["master"]["address"], lab.address(2).to_string());
        assert_eq!(document["local"], lab.address(node).to_string());
        assert_eq!(document["interface"], "eth0");
        assert_eq!(document["digest"], **digest);
        assert_eq!(document["env"]["MINGLE_ROSTER_DIGEST"], **digest);
        assert_eq!(document["env"]["RANK"], ranks[node].to_string());
        rosters.insert(document["roster"].to_string());
        for (rank, member) in document["roster"].as_array().unwrap().iter().enumerate() {
            let node = ranks.iter().position(|r| *r == rank).unwrap();
            assert_eq!(member["rank"], rank);
            assert_eq!(member["host"], lab.host(node));
            assert_eq!(member["address"], lab.address(node).to_string());
        }
        assert_eq!(document["roster"].as_array().unwrap().len(), 4);
    }
    assert_eq!(rosters.len(), 1, "{rosters:?}");
}

#[test]
fn every_flag_has_its_variable() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let spawn = |lab: &Lab, node: usize, rank: &str| {
        let mut command = lab.command(node, MINGLE);
        for (name, value) in [
            ("JOB_ID", "from%20variables"),
            ("WORLD", "2"),
            ("RANK", rank),
            ("INTERFACE", "eth0"),
            ("MASTER_PORT", "23456"),
            ("RANK_KEY", "a"),
            ("MULTICAST", "239.255.7.7:29498/2"),
            ("TIMEOUT", "30s"),
        ] {
            command.env(format!("MINGLE_{name}"), value);
        }
        lab.start(node, command)
    };
    let procs = vec![spawn(&lab, 0, "1"), spawn(&lab, 1, "0")];
    let world = World::of(&finish_all(procs));
    assert_eq!(world.ranks(), [1, 0]);
    assert_eq!(world.common("MASTER_PORT"), "23456");
    assert_eq!(world.common("MINGLE_JOB_ID"), "from%20variables");
}

#[test]
#[ignore = "a program that another test runs in a node"]
fn helper_binds() {
    // Without SO_REUSEADDR, as a careless job does.
    let job = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    if let Err(error) = bind(job.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, setting("LAB_PORT"))) {
        panic!("{error}; {}", std::fs::read_to_string("/proc/net/tcp").unwrap());
    }
}

#[test]
fn a_program_that_reuses_no_address_can_bind_the_masters_port_once_the_world_has_formed() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    for round in 0..30 {
        lab.forget();
        // Where packets are lost, connections end in every order.
        lab.set(&Policy { loss: 10 * (round % 2), ..Policy::default() });
        let world = form(&lab, &format!("port {round}"), &[""; 4]);
        let is_master = |node: &usize| lab.address(*node).to_string() == world.common("MASTER_ADDR");
        let master = (0..4).find(is_master).unwrap();
        let mut job = lab.helper(master, "worlds::helper_binds");
        job.env("LAB_PORT", world.common("MASTER_PORT"));
        let outcome = lab.start(master, job).finish();
        assert!(outcome.status.success(), "round {round}: {}", outcome.render());
    }
}
