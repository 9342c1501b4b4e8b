//! An attacker on the same link that knows the job ID. It cannot change the output of a job with a secret. It
//! can keep the world of a job without a secret from forming, and nothing more.

mod attacker;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::lab::forge::{HOSTILE, RAW};
use crate::lab::preload::Preload;
use crate::lab::proc::{GUARD, Outcome, Proc, variables};
use crate::lab::world::{World, complete, finish_all, finish_all_within, line, line_with};
use crate::lab::{self, Lab, MINGLE, Options};

const SECRET: (&str, &str) = ("MINGLE_SECRET", "5eaf00d1-the-horse-knows-5eaf00d1");
const NO_SECRET: (&str, &str) = ("MINGLE_SECRET", "");
/// The attacker's own node; the world is on the nodes before it.
const FIFTH: usize = 4;
const ATTACKS: [&str; 6] = ["lead", "refuse", "join", "replay", "connect", "malformed"];

/// Starts an attack on `job`, which lasts until the returned value is dropped.
fn attack(lab: &Lab, job: &str, how: &str) -> Proc {
    let mut command = lab.helper(FIFTH, "attack::attacker::helper_attacks");
    command.env("LAB_SELF", lab.address(FIFTH).to_string()).env("LAB_JOB", job).env("LAB_ATTACK", how);
    let proc = lab.start(FIFTH, command);
    hits(&proc, 0);
    proc
}

/// Waits until the attacker has hit at least this many times, and returns its latest report.
fn hits(attacker: &Proc, least: u64) -> String {
    let latest = |text: &str| {
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().rev().find_map(|line| line.strip_prefix("hits ").map(str::to_owned))
    };
    let count = |line: &str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    let stdout = &attacker.transcript.stdout;
    let deadline = Instant::now() + Duration::from_secs(15);
    let enough = stdout.wait_until(deadline, |text| latest(text).is_some_and(|l| count(&l) >= least));
    assert!(enough, "not {least} hits by {}", attacker.transcript.render());
    latest(&stdout.text()).unwrap()
}

/// Waits until the attacker has hit this many more times.
fn more_hits(attacker: &Proc, more: u64) -> String {
    let before = hits(attacker, 0);
    hits(attacker, before.split(' ').next().unwrap().parse::<u64>().unwrap() + more)
}

fn spawn(lab: &Lab, node: usize, args: &[String], (name, value): (&str, &str)) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(args).env(name, value);
    lab.start(node, command)
}

/// Checks that the outputs hold only what mingle itself prints.
fn is_clean(outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        let raw = RAW.iter().find(|raw| text.contains(**raw));
        assert!(raw.is_none(), "{raw:?} on an output of {}", outcome.render());
        let odd = text.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
        assert!(odd.is_none(), "{odd:?} on an output of {}", outcome.render());
    }
    assert!(!outcome.stderr.contains("panic"), "{}", outcome.render());
}

fn peak_kib(proc: &Proc) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proc.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A world of four forms in spite of the attack, with this secret. Returns how long it took from the last
/// start.
fn forms_under(lab: &Lab, how: &str, secret: (&str, &str)) -> Duration {
    let job = format!("{how} {}", secret.1.len());
    let attacker = attack(lab, &job, how);
    let args = line_with(&job, 4, "-v");
    // The first node logs each datagram.
    let logged = line_with(&job, 4, "-vv");
    let start = |node| spawn(lab, node, if node == 0 { &logged } else { &args }, secret);
    let procs: Vec<Proc> = (0..3).map(start).collect();
    for proc in &procs {
        proc.expect_stderr("3 of 4 nodes here");
    }
    more_hits(&attacker, 20);
    // Otherwise the attack has not reached the node, and the test shows nothing.
    let is_reached = |log: &str| heard(log, "datagram dropped|a connection is no session's");
    let reached = procs[0].transcript.stderr.wait_until(Instant::now() + Duration::from_secs(15), is_reached);
    assert!(reached, "{how}: {}", procs[0].transcript.render());
    let (outcomes, took) = complete(lab, procs, spawn(lab, 3, &args, secret));
    outcomes.iter().for_each(is_clean);
    drop(attacker);
    took
}

/// A world of four forms within 5 s in spite of each of these attacks.
fn form_under(attacks: &[&str], secret: (&str, &str), note: &str) {
    let Some(lab) = Options::nodes(5).start() else { return };
    for how in attacks {
        let took = forms_under(&lab, how, secret);
        let _ = writeln!(std::io::stderr(), "{how}{note}: formed {took:?} after the last start");
        assert!(took < Duration::from_secs(5), "{how}: {took:?}");
        lab.forget();
    }
}

#[test]
fn no_attack_on_a_job_with_a_secret_changes_what_its_nodes_print() {
    form_under(&ATTACKS, SECRET, "");
}

#[test]
fn what_no_node_sends_does_not_delay_a_world_without_a_secret() {
    form_under(&["connect", "malformed"], NO_SECRET, ", no secret");
}

#[test]
fn every_datagram_of_the_hand_written_attacker_passes_the_decoder() {
    use lab::forge::{Body, datagram};
    use mingle_core::proto::testing::Forger;
    let tag = "forged".parse::<mingle_core::JobId>().unwrap().tag();
    let reader = Forger::new(tag, None);
    let (me, at) = ([0x66; 16], std::net::SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 14), 29777));
    for host in HOSTILE {
        let others = [(1, Body::announce(me, host, at)), (2, Body::solicit(host))];
        for (kind, body) in attacker::datagrams(host, at).into_iter().chain(others) {
            let read = reader.read(&datagram(tag.0, kind, me, [1; 16], &body));
            assert_eq!(read.map(|(kind, _)| kind), Ok(kind), "{host:?}");
        }
    }
}

/// Whether a node has logged this of the attacker: one of the texts that `|` divides, of a datagram, of a
/// frame in one of its names, or of a connection.
fn heard(log: &str, mark: &str) -> bool {
    const FROM: [&str; 4] = ["from=10.77.0.14:29777", "from=66666666", "from=70707070", "conn="];
    let mut from = log.lines().filter(|line| FROM.iter().any(|from| line.contains(from)));
    from.any(|line| mark.split('|').any(|word| line.contains(word)))
}

/// The marks of an attack in the log of a node that it has reached. A frame is logged once it is decoded.
fn marks(how: &str) -> &'static [&'static str] {
    match how {
        "lead" => &[" Hint(", " Running(", "=Welcome(", "=Prepare(", "=Roster(", "=Commit("],
        "refuse" => &["=Refuse("],
        "join" => &["=Join(", "=Part("],
        "replay" => &[" Announce("],
        // Some of the random bytes look sealed.
        "malformed" => &["dropped=Malformed|dropped=Unauthentic"],
        "connect" => &["a connection is no session's", "a frame that no node sends"],
        other => panic!("nothing shows that {other} has reached a node"),
    }
}

/// Attacks a world without a secret, and checks that each node ends in time, with a known code and valid
/// output.
fn survives(lab: &Lab, how: &str) -> Vec<Outcome> {
    let job = format!("open {how}");
    let attacker = attack(lab, &job, how);
    let formats = ["-vv", "--format json", "-vv", ""];
    let start = |node: usize| {
        // Only a node with a given rank can be refused, and the attacker must be the only one that may lead.
        let rank = if how == "refuse" { format!("--rank {}", node.max(1)) } else { String::new() };
        // A busy machine may need seconds until the attack has reached a node.
        let timeout = if node < 3 { "10s" } else { "3s" };
        let more = format!("--timeout {timeout} {} {rank}", formats[node]);
        spawn(lab, node, &line_with(&job, 4, &more), NO_SECRET)
    };
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    match how {
        "refuse" => {}
        // The attacker may be quicker than the node.
        "lead" => procs[0].expect_stderr("joined"),
        _ => procs[0].expect_stderr("looking for"),
    }
    more_hits(&attacker, 20);
    // Otherwise the attack might not reach a node before the world is complete, and would show nothing. The
    // first and the third node log each datagram. A node that only follows sends nothing to the group, so the
    // attacker learns of no address to join but the leader's.
    let log = &procs[if how == "join" { 0 } else { 2 }].transcript;
    let until = Instant::now() + Duration::from_secs(15);
    let reached = log.stderr.wait_until(until, |log| marks(how).iter().all(|mark| heard(log, mark)));
    assert!(reached, "{how} has not reached {}", log.render());
    procs.push(start(3));
    let outcomes = finish_all_within(procs, Duration::from_secs(25));
    for (node, outcome) in outcomes.iter().enumerate() {
        is_clean(outcome);
        let code = outcome.status.code().unwrap_or_else(|| panic!("killed: {}", outcome.render()));
        assert!([0, 3, 4, 5].contains(&code), "{}", outcome.render());
        if node == 1 {
            let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert_eq!(document.get("error").is_none(), code == 0, "{document}");
        } else if code == 0 {
            let vars = variables(&outcome.stdout).unwrap();
            let rank: u32 = vars["RANK"].parse().unwrap();
            assert!(rank < 4 && vars["WORLD_SIZE"] == "4", "{}", outcome.render());
            let plain = |c: char| c.is_ascii_alphanumeric() || "._:=-,%".contains(c);
            assert!(vars.values().all(|value| value.chars().all(plain)), "{}", outcome.render());
        } else {
            assert_eq!(outcome.stdout, format!("{GUARD}(exit {code});\n"), "{}", outcome.render());
        }
    }
    outcomes
}

#[test]
fn under_attack_nodes_without_a_secret_print_nothing_foreign_and_end_in_time() {
    let Some(lab) = Options::nodes(5).start() else { return };
    for how in ATTACKS {
        let outcomes = survives(&lab, how);
        let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.status.code().unwrap()).collect();
        let _ = writeln!(std::io::stderr(), "{how}: codes {codes:?}");
        let all = outcomes.iter().map(Outcome::render).collect::<String>();
        match how {
            // Otherwise the names have not reached the nodes, and the test would show nothing.
            "lead" => assert!(all.contains("__reboot"), "{all}"),
            "refuse" => {
                assert!(all.contains(" is taken by ") && all.contains("_ (10.77.0.14:29777)"), "{all}");
            }
            _ => {}
        }
        lab.forget();
    }
}

#[test]
fn a_flood_stops_neither_a_sealed_world_nor_another_job_and_takes_bounded_memory() {
    let Some(lab) = Options::nodes(5).alone().start() else { return };
    let attacker = attack(&lab, "flooded", "flood");
    for (job, secret) in [("flooded", SECRET), ("beside it", NO_SECRET)] {
        let more = "--multicast 239.255.7.7";
        let args = line_with(job, 4, more);
        let procs: Vec<Proc> = (0..3).map(|node| spawn(&lab, node, &args, secret)).collect();
        let report = more_hits(&attacker, 50_000);
        let peak = procs.iter().map(peak_kib).max().unwrap();
        let (_, took) = complete(&lab, procs, spawn(&lab, 3, &args, secret));
        let _ = writeln!(std::io::stderr(), "{job}: {report}; formed in {took:?}, peak {peak} KiB");
        assert!(peak < 16 << 10, "{peak} KiB");
        assert!(took < Duration::from_secs(10), "{took:?}");
        lab.forget();
    }
}

#[test]
fn frames_without_end_take_bounded_memory_and_keep_nobody_out() {
    let Some(lab) = Options::nodes(5).alone().start() else { return };
    for how in ["short frames", "long frames"] {
        let attacker = attack(&lab, how, how);
        let args = line(how, 4);
        let procs: Vec<Proc> = (0..3).map(|node| spawn(&lab, node, &args, NO_SECRET)).collect();
        let report = more_hits(&attacker, 5_000);
        let peak = procs.iter().map(peak_kib).max().unwrap();
        let (_, took) = complete(&lab, procs, spawn(&lab, 3, &args, NO_SECRET));
        let _ = writeln!(std::io::stderr(), "{how}: {report}; formed in {took:?}, peak {peak} KiB");
        assert!(peak < 32 << 10, "{peak} KiB");
        assert!(took < Duration::from_secs(10), "{took:?}");
        lab.forget();
    }
}

/// The name as the kernel accepts it for an interface: 15 bytes, no blanks, no slash and no colon.
const INTERFACES: [&str; 8] = [
    "$(reboot)",
    "`reboot`",
    "';reboot;'",
    "\";reboot;\"",
    "x'$IFS&|<>\\",
    "\u{1b}[2J\u{1b}]0;o\u{7}",
    "\u{202e}toober\u{2066}",
    "\u{7f}\u{85}\u{9b}31m\u{200f}",
];

/// Checks that a terminal shows the text as it is: no control characters, which move the cursor or rename the
/// window, and no marks that change the direction of the text.
fn is_legible(outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        let turns = |c| matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let odd = text.chars().find(|c| turns(*c) || c.is_control() && !"\n\t".contains(*c));
        assert!(odd.is_none(), "{odd:?} on an output of {}", outcome.render());
    }
    assert!(!outcome.stderr.contains("bug in mingle"), "{}", outcome.render());
}

#[test]
fn hostile_names_of_hosts_and_interfaces_reach_no_shell_and_no_terminal_raw() {
    let Some(lab) = Options::nodes(INTERFACES.len()).start() else { return };
    let Some(preload) = Preload::build() else { return };
    for (node, name) in INTERFACES.iter().enumerate() {
        let mut command = lab.command(node, "sh");
        let script = "ip link set eth0 down && ip link set eth0 name \"$1\" && ip link set \"$1\" up";
        command.args(["-c", script, "sh", name]);
        let renamed = lab.start(node, command).finish();
        assert!(renamed.status.success(), "{}", renamed.render());
    }
    // One name is longer than a system call returns.
    let long = "$(reboot)\u{1b}".repeat(6_500);
    let hosts = HOSTILE[1..].iter().copied().chain([long.as_str()]).map(|host| host.trim_start_matches('\0'));
    let start = |args: &dyn Fn(usize) -> Vec<String>| {
        let hosts = hosts.clone().enumerate();
        let procs =
            hosts.map(|(node, host)| preload.spawn(&lab, node, &format!("LAB_HOST={host}"), &args(node)));
        let outcomes = finish_all(procs.collect());
        outcomes.iter().for_each(is_legible);
        outcomes
    };

    let world = World::of(&start(&|_| line_with("names, for a shell", 8, "-vv")));
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:=-,%".contains(c);
    for vars in &world.nodes {
        assert!(vars.values().all(|value| value.chars().all(plain)), "{vars:?}");
    }

    for outcome in start(&|_| line_with("names", 8, "--format json")) {
        let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let node = usize::try_from(document["rank"].as_u64().unwrap()).unwrap();
        // JSON gives the name back unchanged.
        assert_eq!(document["interface"], INTERFACES[node], "{document}");
        let members = document["roster"].as_array().unwrap();
        assert_eq!(members.len(), 8);
        for host in members.iter().map(|member| member["host"].as_str().unwrap()) {
            assert!(host.len() <= 63 && host.contains('_'), "{host:?}");
            assert!(host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{host:?}");
        }
    }

    // The names of nodes that were heard, in the message without a world.
    let formats = ["--format json", "", "-v", "-vv"];
    let more = |node: usize| format!("--timeout 1s {}", formats[node % 4]);
    for outcome in start(&|node| line_with("no world", 9, &more(node))) {
        assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
        assert!(outcome.stderr.contains("; heard besides this node: _"), "{}", outcome.render());
    }

    // The names of interfaces, in the message where another interface is asked for.
    let args = |node: usize| {
        let mut args = line("none of these", 8);
        let format = ["json", "sh"][node % 2];
        args.extend(["--interface", INTERFACES[7 - node], "--format", format].map(str::to_owned));
        args
    };
    for outcome in start(&args) {
        assert!(matches!(outcome.status.code(), Some(2 | 5)), "{}", outcome.render());
    }
}
