//! `mingle watch` observes a world that forms, and follows the leader of one that runs; `--events` and the
//! JSON output record how it went.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::lab::proc::{Outcome, Proc, Stream};
use crate::lab::world::{finish_all, line_with};
use crate::lab::{self, Lab, MINGLE, Options, limit};
use nix::pty::{Winsize, openpty};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);

fn document(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{}", outcome.render()))
}

fn watch(lab: &Lab, node: usize, more: &str) -> Proc {
    let mut args = vec!["watch"];
    args.extend(more.split_whitespace());
    lab.spawn(node, &args)
}

/// Waits until the observer has printed this.
fn shows(watcher: &Proc, text: &str) {
    let found = watcher.transcript.stdout.wait_until(Instant::now() + PATIENCE, |all| all.contains(text));
    assert!(found, "no {text:?} in\n{}", watcher.transcript.render());
}

fn join(lab: &Lab, node: usize, job: &str, more: &str) -> Proc {
    lab.spawn(node, &line_with(job, 3, more))
}

/// The path of a file of this test's own, which does not exist yet.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mingle-watch-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn an_observer_sees_the_nodes_that_are_here_and_the_missing_ranks_and_no_node_notices() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let node = join(&lab, 0, "seen", "-r 0");
    node.expect_stderr("looking for");
    let lines = watch(&lab, 3, "--job-id seen");
    let shows = |text: &str| shows(&lines, text);
    shows(&format!("job seen: 1 of 3 nodes here, missing ranks 1-2; {}", lab.host(0)));
    let second = join(&lab, 1, "seen", "-r 1");
    second.expect_stderr("2 of 3 nodes here");
    shows(&format!("job seen: 2 of 3 nodes here, missing rank 2; {}", lab.host(0)));

    let shot = watch(&lab, 3, "--job-id seen --format json").finish();
    assert!(shot.status.success(), "{}", shot.render());
    let seen = document(&shot);
    assert_eq!((&seen["joined"], &seen["world"], &seen["unread"]), (&2.into(), &3.into(), &Value::Null));
    assert_eq!(seen["nodes"][0]["state"], "leads");
    assert_eq!(seen["missing"], serde_json::json!([[2, 2]]));
    let hosts: Vec<&str> =
        seen["nodes"].as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, [lab.host(0), lab.host(1)], "{seen}");

    let third = join(&lab, 2, "seen", "-r 2");
    for outcome in finish_all(vec![node, second, third]) {
        outcome.formed();
        assert!(!outcome.stderr.contains(&lab.host(3)), "{}", outcome.render());
    }
    shows("is silent: its world has formed");

    let nothing = watch(&lab, 3, "--job-id other --format json --timeout 300ms").finish();
    assert_eq!(nothing.status.code(), Some(3), "{}", nothing.render());
    assert_eq!(document(&nothing)["heard"], false);
}

/// The nodes of a world whose commands run, each with this command.
fn run_all(lab: &Lab, nodes: usize, more: &str, script: &str) -> Vec<Proc> {
    let line = format!("run --job-id ran --world {nodes} --max-restarts 3 {more} -- sh -c");
    let mut args: Vec<&str> = line.split_whitespace().collect();
    args.push(script);
    let all: Vec<Proc> = (0..nodes).map(|node| lab.spawn(node, &args)).collect();
    for node in &all {
        node.expect_stderr("formed");
    }
    all
}

#[test]
fn an_observer_sees_who_runs_and_why_the_last_world_ended_and_who_is_missing_then() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = "[ $MINGLE_GENERATION = 0 ] || exec sleep 1000
        [ $RANK = 2 ] || exec sleep 1000
        while [ ! -e /run/fail ]; do sleep 0.02; done; exit 3";
    let mut nodes = run_all(&lab, 3, "", script);
    let shot = || {
        let timeout = limit(Duration::from_millis(1200)).as_millis();
        let shot = watch(&lab, 3, &format!("--job-id ran --format json --timeout {timeout}ms")).finish();
        assert!(shot.status.success(), "{}", shot.render());
        document(&shot)
    };
    let states = |seen: &Value| -> Vec<String> {
        let nodes = seen["nodes"].as_array().unwrap().iter();
        nodes.map(|node| format!("{} {}", node["rank"], node["state"].as_str().unwrap())).collect()
    };
    let seen = shot();
    assert_eq!(states(&seen), ["0 runs", "1 runs", "2 runs"], "{seen}");
    let running = &seen["running"];
    assert_eq!((&running["world"], &running["over"]), (&3.into(), &Value::Null), "{seen}");
    assert_eq!((&seen["generation"], &running["suspected"]), (&0.into(), &serde_json::json!([])), "{seen}");

    let lines = watch(&lab, 3, "--job-id ran");
    shows(&lines, "job ran runs on 3 nodes, generation 0");
    lab.shell(2, "sh", ">/run/fail");
    shows(&lines, &format!("the world ended: rank 2, {} (", lab.host(2)));
    shows(&lines, "failed: exit code 3");
    shows(&lines, "job ran runs on 3 nodes, generation 1");
    let seen = shot();
    assert_eq!(states(&seen), ["0 runs", "1 runs", "2 runs"], "{seen}");
    assert_eq!(seen["generation"], 1, "{seen}");

    // Rank 0 leads: the observer follows the next leader. The others wait for another node.
    nodes[0].signal("TERM");
    let left = nodes.remove(0).finish_within(limit(Duration::from_secs(15)));
    assert_eq!(left.status.code(), Some(143), "{}", left.render());
    shows(&lines, "job ran forms its next world: 2 of 3 nodes here, generation 1, missing rank 0");
    let seen = shot();
    assert_eq!(states(&seen), ["0 missing", "1 over", "2 over"], "{seen}");
    for node in &nodes {
        node.signal("KILL");
    }
    shows(&lines, "job ran is silent");
}

#[test]
fn an_observer_sees_that_all_commands_have_ended_well() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let nodes = run_all(&lab, 2, "", "until [ -e /run/end ]; do sleep 0.02; done");
    let lines = watch(&lab, 2, "--job-id ran");
    shows(&lines, "job ran runs on 2 nodes");
    lab.shell(0, "sh", ">/run/end");
    shows(&lines, "job ran has finished on 2 nodes");
    shows(&lines, ") finished\n");
    for outcome in finish_all(nodes) {
        assert!(outcome.status.success(), "{}", outcome.render());
    }
}

#[test]
fn an_observer_names_a_silent_node_as_suspected_and_needs_the_secret_of_the_job() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let secret = scratch("running");
    fs::write(&secret, "correct horse battery staple").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let secret = format!("--secret-file {}", secret.display());
    let nodes = run_all(&lab, 3, &secret, "sleep 1000");
    let lines = watch(&lab, 3, &format!("--job-id ran {secret}"));
    shows(&lines, "job ran runs on 3 nodes");
    let without = watch(&lab, 3, "--job-id ran --format json --timeout 1200ms").finish();
    assert_eq!(
        without.status.code(),
        Some(3),
        "neither the world nor the other observer: {}",
        without.render()
    );
    lab.switch("ip link set p2 down");
    for node in &nodes[..2] {
        node.expect_stderr_within(Duration::from_secs(20), "rank 2, node2");
    }
    shows(&lines, "suspected to be gone: 2");
    shows(&lines, "rank 2: node2 (");
}

#[test]
fn an_observer_says_that_a_stopped_leader_does_not_answer_and_follows_the_next_one() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let nodes = run_all(&lab, 2, "", "while [ ! -e /run/fail ]; do sleep 0.02; done; exit 3");
    let lines = watch(&lab, 2, "--job-id ran");
    shows(&lines, "job ran runs on 2 nodes, generation 0");
    // Its kernel holds the connections open, and the other member has nothing to say to it.
    nodes[0].signal("STOP");
    let waits = "job ran runs; waiting for an answer of its leader, at 10.77.0.10:";
    let until = Instant::now() + PATIENCE;
    let is_after = |all: &str| all.rfind(waits) > all.rfind("job ran runs on 2 nodes");
    assert!(lines.transcript.stdout.wait_until(until, is_after), "{}", lines.transcript.render());
    lab.shell(1, "sh", ">/run/fail");
    shows(&lines, &format!("the world ended: rank 1, {} (", lab.host(1)));
    shows(&lines, "job ran forms its next world: 1 of 2 nodes here, generation 0, missing rank 0");
}

#[test]
fn on_a_terminal_each_line_has_a_row_and_all_rows_fit_the_window() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let node = join(&lab, 0, "drawn", "-r 0");
    node.expect_stderr("looking for");
    let (width, height) = (30, 4);
    let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = lab.command(1, MINGLE);
    command.args(["watch", "--job-id", "drawn", "--timeout", "3s"]).env("TERM", "xterm");
    let mut watcher = command.stdout(terminal.slave).spawn().unwrap();
    let screen = Stream::collect(File::from(terminal.master));
    assert!(watcher.wait().unwrap().success());
    node.signal("KILL");
    // Other tests' processes may hold the terminal, so this test does not wait for its end.
    let is_whole = |all: &str| all.ends_with(" leads\r\n");
    let is_whole = screen.wait_until(Instant::now() + PATIENCE, is_whole);
    let text = screen.text();
    assert!(is_whole, "{text}");
    assert!(text.contains("job drawn: 1 of 3 nodes here"), "{text}");
    let drawn: Vec<&str> = text.split("\x1b[J").collect();
    assert!(drawn.len() > 3, "{text}");
    for table in &drawn[..drawn.len() - 1] {
        let (table, up) = table.rsplit_once("\x1b[").unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(up, format!("{}A", lines.len()));
        assert!(lines.len() < usize::from(height), "{table}");
        assert!(lines.iter().all(|line| line.len() <= usize::from(width)), "{table}");
    }
}

#[test]
fn a_secret_opens_a_sealed_job_and_without_it_only_the_job_is_seen() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let file = scratch("secret");
    fs::write(&file, "a secret of many bytes").unwrap();
    let file = file.display().to_string();
    let node = join(&lab, 0, "sealed", &format!("--secret-file {file}"));
    node.expect_stderr("looking for");
    let blind = document(&watch(&lab, 1, "-j sealed --format json").finish());
    assert!(blind["unread"].is_string() && blind["nodes"] == serde_json::json!([]), "{blind}");
    let open = document(&watch(&lab, 1, &format!("-j sealed --format json --secret-file {file}")).finish());
    assert_eq!((&open["unread"], &open["joined"]), (&Value::Null, &1.into()));
    let jobs = document(&watch(&lab, 1, "--format json").finish());
    assert_eq!((&jobs["jobs"][0]["job"], &jobs["jobs"][0]["world"]), (&Value::Null, &Value::Null), "{jobs}");
    node.signal("KILL");
    fs::remove_file(file).unwrap();
}

#[test]
fn all_jobs_on_the_link_are_listed_but_private_ones() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let procs = [join(&lab, 0, "one", ""), join(&lab, 1, "two", ""), join(&lab, 2, "three", "--private")];
    for proc in &procs {
        proc.expect_stderr("looking for");
    }
    let shot = watch(&lab, 3, "--format json --timeout 3s").finish();
    let jobs = document(&shot);
    let mut names: Vec<&str> =
        jobs["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"], "{}", shot.render());
    for proc in procs {
        proc.signal("KILL");
    }
}

#[test]
fn an_observer_listens_on_addresses_and_interfaces_that_come_later() {
    let Some(lab) = Options::nodes(2).start() else { return };
    lab.at(1, "ip addr flush dev eth0");
    let first = watch(&lab, 1, "--job-id late");
    shows(&first, "no node heard so far");
    // The first observer began on loopback; the second begins without any socket for IPv4.
    lab.at(1, "ip addr add fd99::1/64 dev eth0 nodad");
    let second = watch(&lab, 1, "--job-id late");
    shows(&second, "no node heard so far");
    let node = join(&lab, 0, "late", "");
    node.expect_stderr("looking for");
    lab.restore_ipv4(1);
    shows(&first, "job late: 1 of 3 nodes here");
    shows(&second, "job late: 1 of 3 nodes here");
    // The address moves to another interface.
    lab.at(1, "ip addr flush dev eth0");
    lab.plug(1, "net1");
    lab.at(1, "ip addr add 10.77.0.11/24 brd + dev net1");
    let member = join(&lab, 1, "late", "");
    member.expect_stderr("2 of 3 nodes here");
    shows(&first, "job late: 2 of 3 nodes here");
    for proc in [node, member] {
        proc.signal("KILL");
    }
}

fn events(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let _ = fs::remove_file(path);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn the_events_of_a_world_are_written_with_the_time_that_it_took() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let files: Vec<PathBuf> = (0..3).map(|node| scratch(&format!("world-{node}"))).collect();
    let start = |node: usize| {
        let more = format!("--format json --events {}", files[node].display());
        join(&lab, node, "told", &more)
    };
    let outcomes = finish_all((0..3).map(start).collect());
    for (rank, (outcome, file)) in outcomes.iter().zip(&files).enumerate() {
        let timings = &document(outcome)["timings"];
        let all = events(file);
        let names = names(&all);
        assert_eq!((names.first(), names.last()), (Some(&"started"), Some(&"formed")), "{names:?}");
        assert!(names.contains(&"preparing"), "{names:?}");
        let formed = all.last().unwrap();
        assert_eq!((&formed["rank"], &formed["timings"]), (&rank.into(), timings));
        assert!(timings["formed_ms"].as_u64() <= formed["ms"].as_u64(), "{formed}");
        assert!(all.is_sorted_by_key(|event| event["ms"].as_u64().unwrap()), "{all:?}");
    }

    let file = scratch("late");
    let late =
        join(&lab, 0, "late", &format!("--timeout 200ms --quiet --events {}", file.display())).finish();
    assert_eq!(late.status.code(), Some(3), "{}", late.render());
    let all = events(&file);
    let failed = all.last().unwrap();
    assert_eq!(
        (&failed["event"], &failed["code"], &failed["kind"]),
        (&"failed".into(), &3.into(), &"deadline".into())
    );
}

#[test]
fn restarts_are_written_to_the_file_of_events() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let files: Vec<PathBuf> = (0..2).map(|node| scratch(&format!("run-{node}"))).collect();
    // In the second world every command ends at once.
    let script =
        "if test $MINGLE_GENERATION = 1; then exit 0; elif test $RANK = 1; then exit 3; else sleep 30; fi";
    let start = |node: usize| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "again", "-w", "2", "--max-restarts", "1", "--events"]).arg(&files[node]);
        command.args(["--", "sh", "-c", script]);
        lab.start(node, command)
    };
    for outcome in finish_all((0..2).map(start).collect()) {
        assert!(outcome.status.success(), "{}", outcome.render());
    }
    for (rank, file) in files.iter().enumerate() {
        let all = events(file);
        assert!(all.is_sorted_by_key(|event| event["ms"].as_u64().unwrap()), "{all:?}");
        let last = |name: &str| all.iter().rfind(|event| event["event"] == name).unwrap();
        let ms = |name: &str| last(name)["ms"].as_u64().unwrap();
        let took = last("formed")["timings"]["formed_ms"].as_u64().unwrap();
        assert!(ms("restart") + took <= ms("formed") + 20, "each world has its own beginning: {all:?}");
        let ours = ["command_started", "command_ended", "over", "restart", "formed", "finished"];
        let ours: Vec<&str> = names(&all).into_iter().filter(|name| ours.contains(name)).collect();
        let ended: &[&str] = if rank == 0 { &["over", "command_ended"] } else { &["command_ended"] };
        let first = [&["formed", "command_started"], ended, &["restart"]].concat();
        let second = ["formed", "command_started", "command_ended", "finished"];
        assert_eq!(ours, [&first[..], &second].concat(), "{all:?}");
        let over = all.iter().find(|event| event["event"] == "over");
        assert_eq!(
            over.map(|over| (&over["rank"], &over["how"])),
            (rank == 0).then_some((&1.into(), &"exit code 3".into()))
        );
    }
}

#[test]
fn a_wrong_file_or_format_ends_the_run_before_it_starts() {
    for (args, message) in [
        (
            &["-j", "x", "-w", "2", "--events", "/nonexistent/x"][..],
            "--events (or MINGLE_EVENTS) /nonexistent/x: cannot",
        ),
        (&["-j", "x", "-w", "2", "--events", "/dev/stdout"], "is stdout"),
        (&["watch", "--format", "xml"], "possible values: text, json"),
        (&["watch", "--secret-file", "/x"], "--job-id is missing"),
    ] {
        let output = lab::plain(MINGLE).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(message), "{args:?}: {said}");
    }
}
