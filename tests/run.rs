//! `mingle run`: it starts a command in a world, and restarts all commands if one fails.

use std::time::{Duration, Instant};

use crate::lab::proc::Proc;
use crate::lab::world::{assert_ended, finish_all};
use crate::lab::{Lab, MINGLE, Options, plain, sleep_until};

/// The files /run/hosts1 and so on. Another program holds their locks until there is a file /run/free.
fn locked(lab: &Lab) -> Proc {
    let mut command = lab.command(0, "sh");
    let script = "touch /run/hosts1 /run/hosts2 /run/hosts3 /run/hosts4
        exec flock /run/hosts1 flock /run/hosts2 flock /run/hosts3 flock /run/hosts4 \
        sh -c 'echo held; until [ -e /run/free ]; do sleep 0.01; done'";
    command.args(["-c", script]);
    let lock = lab.start(0, command);
    lock.expect_stdout("held");
    lock
}

/// Starts `mingle run` with a script on one node, which gets so far that it waits for those locks, as it does
/// for 1 s each.
fn waiting_for_the_locks(lab: &Lab, node: usize, more: &[&str]) -> Proc {
    let outputs = "hosts=/run/hosts1,hosts=/run/hosts2,hosts=/run/hosts3,hosts=/run/hosts4";
    let mut args = vec!["--events", "/run/events"];
    args.extend(outputs.split(',').flat_map(|output| ["--output", output]));
    let proc = run(lab, node, &[&args, more].concat(), "echo started");
    lab.shell(node, "sh", "until grep -q '\"event\":\"formed\"' /run/events; do sleep 0.01; done");
    proc
}

/// Starts `mingle run` with a script on one node. The script's first argument is the rank.
fn run(lab: &Lab, node: usize, more: &[&str], script: &str) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(["run", "--job-id", "train", "--world", &lab.len().to_string(), "--timeout", "60s"]);
    command.args(more).args(["--", "sh", "-c", script, "script", "{rank}"]);
    lab.start(node, command)
}

fn run_all(lab: &Lab, more: &[&str], script: &str) -> Vec<Proc> {
    (0..lab.len()).map(|node| run(lab, node, more, script)).collect()
}

#[test]
fn mingle_replaces_itself_by_the_command_with_the_variables_of_the_world() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script =
        "echo \"$$ $1 $RANK of $WORLD_SIZE at $MASTER_ADDR, secret ${MINGLE_SECRET-none}, $(ulimit -n)\"
        exit 7";
    let start = |node| {
        let mut command = lab.command(node, "sh");
        let line = format!(
            "ulimit -Sn 99; MINGLE_SECRET=sixteen-bytes-and-more exec {MINGLE} run -j train -w 2 -- sh -c '{script}' \
             script '{{rank}}'"
        );
        command.args(["-c", &line]);
        lab.start(node, command)
    };
    let procs: Vec<Proc> = (0..2).map(start).collect();
    let ids: Vec<u32> = procs.iter().map(Proc::id).collect();
    for (rank, (outcome, id)) in finish_all(procs).iter().zip(ids).enumerate() {
        assert_eq!(outcome.status.code(), Some(7), "{}", outcome.render());
        let master = lab.address(0);
        assert_eq!(outcome.stdout, format!("{id} {rank} {rank} of 2 at {master}, secret none, 99\n"));
    }
}

#[test]
fn options_for_a_command_that_is_watched_are_refused_where_mingle_becomes_it() {
    for (option, also) in [
        ("gone-after", &[][..]),
        ("stop-timeout", &[]),
        ("restart-delay", &[]),
        ("restart-delay", &["--workers=2"]),
    ] {
        let mut command = plain(MINGLE);
        command.args(["run", "-j", "train", "-w", "1", &format!("--{option}"), "1s"]);
        command.args(also).args(["--", "true"]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&format!("--{option} has no effect")), "{stderr}");
    }
}

#[test]
fn if_no_world_forms_no_command_starts_and_stdout_stays_empty() {
    let Some(lab) = Options::nodes(2).start() else { return };
    for more in [&["--timeout", "1s"][..], &["--timeout", "1s", "--max-restarts", "3"]] {
        let outcome = run(&lab, 0, more, "echo started").finish();
        assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(3), ""), "{}", outcome.render());
    }
    let mut command = lab.command(0, MINGLE);
    command.args(["run", "-j", "train", "-w", "2", "--", "no-such-program"]);
    let started = Instant::now();
    let outcome = lab.start(0, command).finish();
    assert_eq!(outcome.status.code(), Some(127), "{}", outcome.render());
    assert!(outcome.stderr.contains("cannot start no-such-program"), "{}", outcome.render());
    assert!(outcome.ended - started < Duration::from_secs(20), "waited for other nodes");
}

#[test]
fn a_file_in_path_that_cannot_be_executed_hides_no_program_in_a_later_folder() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let line = format!(
        "mkdir /run/first /run/second; echo >/run/first/tool
        printf '#!/bin/sh\\necho second\\n' >/run/second/tool; chmod +x /run/second/tool
        PATH=/run/first:/run/second:$PATH exec {MINGLE} run -j path -w 1 -- tool"
    );
    let outcome = lab.shell(0, "sh", &line);
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), "second\n"), "{}", outcome.render());
}

#[test]
fn a_signal_that_has_arrived_when_the_files_are_written_starts_no_command() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let lock = locked(&lab);
    let node = waiting_for_the_locks(&lab, 0, &[]);
    // When it goes on, the locks are free and the signal is there.
    node.signal("STOP");
    node.signal("TERM");
    lab.shell(0, "sh", "touch /run/free");
    lock.finish();
    node.signal("CONT");
    let outcome = node.finish();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(143), ""), "{}", outcome.render());
}

#[test]
fn a_node_that_is_drained_before_its_command_has_started_leaves_and_has_not_failed() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let _lock = locked(&lab);
    let other = run(&lab, 0, &["--max-restarts", "1"], "sleep 1000");
    let drained = waiting_for_the_locks(&lab, 1, &["--max-restarts", "1"]);
    drained.signal("TERM");
    let outcome = drained.finish();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(143), ""), "{}", outcome.render());
    other.expect_stderr(", leaves; all commands restart\n");
}

#[test]
fn if_one_command_fails_all_restart_with_the_same_ranks() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = "echo \"$1 in $MINGLE_GENERATION\"
        case $MINGLE_GENERATION-$1 in 0-2) sleep 1; exit 7;; 0-*) sleep 100;; esac";
    let outcomes = finish_all(run_all(&lab, &["--max-restarts", "2"], script));
    assert_ended(&outcomes, 0);
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.stdout, format!("{rank} in 0\n{rank} in 1\n"), "{}", outcome.render());
        let told =
            outcome.stderr.contains("exit code 7") && outcome.stderr.contains("all commands restart, 1 of 2");
        assert!(told, "{}", outcome.render());
    }
}

#[test]
fn without_restarts_left_all_end_with_the_code_of_the_failed_command() {
    let Some(lab) = Options::nodes(3).start() else { return };
    // What a command has left behind must not outlive the job, on any node: it holds the output.
    let script = "setsid sleep 1000 &
        echo \"$MINGLE_GENERATION\"; [ \"$1\" = 1 ] && { sleep 1; exit 9; }; sleep 100";
    let outcomes = finish_all(run_all(&lab, &["--max-restarts", "1"], script));
    assert_ended(&outcomes, 9);
    for outcome in &outcomes {
        assert_eq!(outcome.stdout, "0\n1\n", "{}", outcome.render());
        assert!(outcome.stderr.contains("no restart is left of 1"), "{}", outcome.render());
        assert!(outcome.stderr.contains("the commands ran for "), "{}", outcome.render());
    }
}

#[test]
fn a_node_whose_command_is_twice_the_first_to_fail_gives_its_seat_to_a_spare() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let script = "[ $MINGLE_GENERATION = 2 ] && exit 0
        [ -z \"$BAD\" ] && exec sleep 1000; until [ -e /run/go ]; do sleep 0.1; done; exit 17";
    let two = |node: usize| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "two", "-w", "2", "--max-restarts", "9", "--restart-delay", "0"]);
        command.args(["--timeout", "60s", "--", "sh", "-c", script]);
        if node == 1 {
            command.env("BAD", "1");
        }
        lab.start(node, command)
    };
    let mut procs = vec![two(0), two(1)];
    for proc in &procs {
        proc.expect_stderr("world of 2 formed");
    }
    procs.push(two(2));
    procs[2].expect_stderr("this job already runs");
    lab.shell(0, "sh", "touch /run/go");
    let bad = procs.remove(1).finish();
    assert_eq!(bad.status.code(), Some(17), "{}", bad.render());
    assert!(
        bad.stderr.contains("first to fail twice in a row: this node gives up its seat"),
        "{}",
        bad.render()
    );
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn the_last_line_and_the_events_say_how_long_no_world_was_there_and_why() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ \"$MINGLE_GENERATION-$1\" = 0-1 ] && { sleep 1; exit 7; }; [ $MINGLE_GENERATION = 0 ] && sleep 100; sleep 1";
    let start = |node: usize| {
        run(&lab, node, &["--max-restarts", "1", "--events", &format!("/run/events.{node}")], script)
    };
    let outcomes = finish_all(vec![start(0), start(1)]);
    assert_ended(&outcomes, 0);
    for (node, outcome) in outcomes.iter().enumerate() {
        let last = outcome.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("the commands ran for ") && last.contains("; they were down for "), "{last}");
        let events = lab.shell(node, "sh", &format!("cat /run/events.{node}")).stdout;
        assert!(events.contains("\"lost\":{\"ms\":"), "{events}");
        let why = if node == 0 { "failed: exit code 7\"}" } else { "has failed here (exit code 7)\"}" };
        assert!(events.contains(why), "{events}");
        let sum = events.lines().last().unwrap_or_default();
        assert!(sum.contains("\"event\":\"goodput\"") && sum.contains("\"worlds\":2"), "{sum}");
        let (_, ran) = sum.split_once("\"ran_ms\":").unwrap();
        let ran: u32 = ran.split(',').next().unwrap().parse().unwrap();
        assert!(ran >= 2000, "a second in each world: {sum}");
    }
}

#[test]
fn a_dead_node_is_replaced_although_the_other_commands_hang() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let script = "echo \"$1 in $MINGLE_GENERATION\"; [ $MINGLE_GENERATION = 0 ] && sleep 1000; exit 0";
    let mut procs = run_all(&lab, &["--max-restarts", "2"], script);
    for proc in &procs {
        proc.expect_stderr("world of 3 formed");
    }
    let dead = procs.remove(2);
    dead.kill_with_all_it_started();
    drop(dead);
    procs.push(run(&lab, 2, &["--max-restarts", "2"], script));
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    assert!(outcomes[0].stderr.contains("the node is gone"), "{}", outcomes[0].render());
    assert_eq!(outcomes[2].stdout, "2 in 1\n", "{}", outcomes[2].render());
    assert!(outcomes[2].stderr.contains("this job already runs"), "{}", outcomes[2].render());
}

#[test]
fn a_node_beyond_the_world_size_waits_and_stops_no_other_node() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let script = "read -r go <\"$FIFO\"; echo \"$MINGLE_GENERATION\"";
    let two = |node: usize, timeout: &str| {
        let fifo = format!("/run/go.{node}");
        let made = lab.shell(node, "sh", &format!("mkfifo {fifo}"));
        assert!(made.status.success(), "{}", made.render());
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "two", "-w", "2", "--max-restarts", "1", "--timeout", timeout]);
        command.args(["--", "sh", "-c", script]).env("FIFO", fifo);
        lab.start(node, command)
    };
    let procs = [two(0, "60s"), two(1, "60s")];
    for proc in &procs {
        proc.expect_stderr("world of 2 formed");
    }
    let third = two(2, "1s");
    third.expect_stderr("this job already runs");
    // Longer than the time after which a silent member counts as gone.
    let long = Instant::now() + Duration::from_secs(10);
    assert!(!third.transcript.stderr.wait_until(long, |text| text.contains("error")));
    for node in 0..2 {
        lab.shell(node, "sh", &format!("echo go >/run/go.{node}"));
    }
    for proc in procs {
        let outcome = proc.finish();
        assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), "0\n"), "{}", outcome.render());
    }
    let third = third.finish();
    assert_eq!((third.status.code(), &*third.stdout), (Some(0), ""), "{}", third.render());
}

#[test]
fn a_signal_goes_to_the_command_and_the_other_node_waits_for_a_replacement() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "trap 'echo caught; exit 3' TERM; echo started; while :; do sleep 0.1; done";
    let mut procs = run_all(&lab, &["--max-restarts", "5", "--timeout", "3s"], script);
    for proc in &procs {
        proc.expect_stdout("started");
    }
    procs[1].signal("TERM");
    let outcome = procs.remove(1).finish();
    assert_eq!(
        (outcome.status.code(), &*outcome.stdout),
        (Some(143), "started\ncaught\n"),
        "{}",
        outcome.render()
    );
    // The other node stops its command as well, and no replacement arrives.
    let other = procs.remove(0).finish();
    assert_eq!((other.status.code(), &*other.stdout), (Some(3), "started\ncaught\n"), "{}", other.render());
    assert!(other.stderr.contains("no world of 2 in time"), "{}", other.render());
}

#[test]
fn a_drained_node_costs_no_restart_and_ends_with_143_although_its_command_ends_well() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "trap 'exit 0' TERM; echo \"$1 in $MINGLE_GENERATION\"
        [ \"$MINGLE_GENERATION-$1\" = 1-0 ] && { until [ -e /run/other ]; do sleep 0.1; done; exit 7; }
        [ \"$MINGLE_GENERATION-$1\" = 1-1 ] && touch /run/other
        [ $MINGLE_GENERATION = 2 ] && exit 0
        while :; do sleep 0.1; done";
    let more = ["--max-restarts", "1"];
    let mut procs = run_all(&lab, &more, script);
    for proc in &procs {
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(proc.transcript.stdout.wait_until(deadline, |text| text.contains("in 0")));
    }
    procs[1].signal("TERM");
    let drained = procs.remove(1).finish();
    assert_eq!((drained.status.code(), &*drained.stdout), (Some(143), "1 in 0\n"), "{}", drained.render());
    procs.push(run(&lab, 1, &more, script));
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    assert_eq!(outcomes[0].stdout, "0 in 0\n0 in 1\n0 in 2\n", "{}", outcomes[0].render());
    assert_eq!(outcomes[1].stdout, "1 in 1\n1 in 2\n", "{}", outcomes[1].render());
    assert!(outcomes[0].stderr.contains(", leaves; all commands restart\n"), "{}", outcomes[0].render());
    assert!(outcomes[1].stderr.contains("all commands restart, 1 of 1"), "{}", outcomes[1].render());
}

#[test]
fn a_drained_node_has_the_stop_timeout_and_no_longer() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "trap '' TERM; trap 'echo int' INT; echo started; while :; do sleep 0.1; done";
    let node = run(&lab, 0, &["--max-restarts", "1", "--stop-timeout", "300ms", "--quiet"], script);
    node.expect_stdout("started");
    // A command that survives Ctrl-C has been asked for nothing that it must do in time.
    node.signal("INT");
    node.expect_stdout("int");
    node.signal("TERM");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
    assert!(!outcome.stderr.contains("this node leaves"), "{}", outcome.render());
}

#[test]
fn signals_after_sigterm_neither_give_a_command_more_time_nor_change_the_code() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "trap '' TERM INT; echo started; while :; do sleep 0.1; done";
    let node = run(&lab, 0, &["--max-restarts", "1", "--stop-timeout", "4s"], script);
    node.expect_stdout("started");
    let asked = Instant::now();
    node.signal("TERM");
    sleep_until(asked + Duration::from_secs(2));
    node.signal("TERM");
    node.signal("INT");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
    let took = outcome.ended - asked;
    assert!((Duration::from_secs(4)..Duration::from_millis(5800)).contains(&took), "{took:?}");
}

#[test]
fn a_command_that_does_not_stop_when_its_world_is_over_is_killed_after_the_stop_timeout() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $MINGLE_GENERATION = 1 ] && exit 0
        [ $1 = 0 ] && trap '' TERM
        echo started; until [ $1 = 1 ] && [ -e /run/fail ]; do sleep 0.1; done; exit 3";
    let procs = run_all(&lab, &["--max-restarts", "1", "--stop-timeout", "1s"], script);
    for proc in &procs {
        proc.expect_stdout("started");
    }
    let failed = Instant::now();
    lab.shell(0, "sh", ">/run/fail");
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    let took = outcomes.iter().map(|outcome| outcome.ended).max().unwrap() - failed;
    assert!((Duration::from_secs(1)..Duration::from_secs(15)).contains(&took), "{took:?}");
}

#[test]
fn a_drained_command_gets_no_more_time_because_its_world_ends_meanwhile() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $1 = 0 ] && trap 'echo asked' TERM
        echo started; until [ $1 = 1 ] && [ -e /run/fail ]; do sleep 0.1; done; exit 3";
    let mut procs = run_all(&lab, &["--max-restarts", "1", "--stop-timeout", "4s"], script);
    for proc in &procs {
        proc.expect_stdout("started");
    }
    let asked = Instant::now();
    procs[0].signal("TERM");
    procs[0].expect_stdout("asked");
    sleep_until(asked + Duration::from_secs(2));
    lab.shell(0, "sh", ">/run/fail");
    procs[0].expect_stderr("), leaves; all commands restart");
    let outcome = procs.remove(0).finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
    let took = outcome.ended - asked;
    assert!((Duration::from_secs(4)..Duration::from_millis(5800)).contains(&took), "{took:?}");
}

#[test]
fn a_drained_node_is_the_first_cause_though_the_command_of_another_fails_before_its_own_has_ended() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $1 = 0 ] && trap 'echo asked; sleep 3; exit 0' TERM
        echo started; until [ $1 = 1 ] && [ -e /run/fail ]; do sleep 0.05; done; exit 3";
    let procs = run_all(&lab, &["--max-restarts", "1"], script);
    for proc in &procs {
        proc.expect_stdout("started");
    }
    procs[0].signal("TERM");
    procs[0].expect_stdout("asked");
    lab.shell(0, "sh", ">/run/fail");
    for proc in &procs {
        proc.expect_stderr("rank 0, ");
        proc.expect_stderr("), leaves; all commands restart\n");
    }
}

#[test]
fn strangers_that_hold_open_all_that_a_node_accepts_keep_no_world_from_forming_again() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let script = "echo started $MINGLE_GENERATION
        until [ -e /run/fail ]; do sleep 0.05; done; [ $MINGLE_GENERATION = 1 ] || exit 3";
    let start = |node: usize| {
        let mut command = lab.command(node, "sh");
        let line = format!(
            "ulimit -Sn 256; exec {MINGLE} run -j strangers -w 2 --max-restarts 1 -- sh -c '{script}'"
        );
        command.args(["-c", &line]).env("MINGLE_SECRET", "the secret of strangers");
        lab.start(node, command)
    };
    let procs = [start(0), start(1)];
    for proc in &procs {
        proc.expect_stdout("started 0");
    }
    let ports = lab.shell(0, "sh", "ss -Hltn | awk '{ print $4 }' | sed 's/.*://' | sort -u").stdout;
    let ports = ports.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut command = lab.command(2, "bash");
    let address = lab.address(0);
    let line = format!(
        "for port in {ports}; do for i in {{1..400}}; do exec {{to}}<>/dev/tcp/{address}/$port || exit; done; done
        echo open; sleep 1000"
    );
    command.args(["-c", &line]);
    let strangers = lab.start(2, command);
    strangers.expect_stdout("open");
    lab.shell(0, "sh", ">/run/fail");
    let outcomes = finish_all(procs.into());
    assert_ended(&outcomes, 0);
    for outcome in &outcomes {
        assert!(outcome.stdout.contains("started 1"), "{}", outcome.render());
    }
}

#[test]
fn a_stderr_that_nobody_reads_keeps_no_command_from_stopping_when_mingle_ends_or_is_killed() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (signal, code) in [("TERM", Some(143)), ("KILL", None)] {
        // The pipe is as full as it can be, and stays so.
        let line = format!(
            "mkfifo /run/full; exec 9<>/run/full; head -c 65536 /dev/zero >&9
            exec {MINGLE} run -j full -w 1 --max-restarts 1 --stop-timeout 1s -- sh -c \"
                trap '' TERM; echo started; while :; do sleep 0.1; done\" 2>&9"
        );
        let mut command = lab.command(0, "bash");
        command.args(["-c", &line]);
        let node = lab.start(0, command);
        node.expect_stdout("started");
        let ended = Instant::now();
        node.signal(signal);
        // Its output closes when the last process that has it ends.
        let outcome = node.finish();
        assert_eq!(outcome.status.code(), code, "{signal}: {}", outcome.render());
        assert!(outcome.ended - ended < Duration::from_secs(10), "{signal}: {:?}", outcome.ended - ended);
        lab.forget();
    }
}

#[test]
fn a_command_that_mingle_becomes_gets_the_addresses_of_all_nodes_and_the_events_name_its_process() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let start = |node: usize| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "--job-id", "train", "--world", "2", "--timeout", "60s"]);
        command.args(["--events", &format!("/run/events.{node}"), "--"]);
        command.args(["sh", "-c", "echo $$ $1", "script", "{endpoints}"]);
        lab.start(node, command)
    };
    let outcomes = finish_all(vec![start(0), start(1)]);
    assert_ended(&outcomes, 0);
    for (node, outcome) in outcomes.iter().enumerate() {
        let (pid, endpoints) = outcome.stdout.trim().split_once(' ').unwrap();
        for other in 0..2 {
            assert!(endpoints.contains(&format!("{}:", lab.address(other))), "{}", outcome.render());
        }
        let events = lab.shell(node, "sh", &format!("cat /run/events.{node}")).stdout;
        let started = events.lines().filter(|line| line.contains("\"command_started\""));
        let started: Vec<&str> = started.collect();
        assert!(matches!(started[..], [line] if line.contains(&format!("\"pid\":{pid},"))), "{events}");
    }
}

#[test]
fn a_world_that_ends_while_a_node_writes_its_files_says_why_there_as_well() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let lock = locked(&lab);
    let script = "[ $MINGLE_GENERATION = 1 ] && exit 0
        until [ -e /run/fail ]; do sleep 0.02; done; exit 5";
    let other = run(&lab, 0, &["--max-restarts", "1"], script);
    let waits = waiting_for_the_locks(&lab, 1, &["--max-restarts", "1"]);
    lab.shell(0, "sh", ">/run/fail");
    other.expect_stderr("the command has failed here (exit code 5)");
    lab.shell(0, "sh", ">/run/free");
    lock.finish();
    waits.expect_stderr("failed: exit code 5; all commands restart, 1 of 1");
    let outcomes = finish_all(vec![other, waits]);
    assert_ended(&outcomes, 0);
    assert!(outcomes[1].stdout.ends_with("started\n"), "{}", outcomes[1].render());
    let events = lab.shell(1, "sh", "cat /run/events").stdout;
    assert!(events.contains("\"event\":\"over\"") && events.contains("\"code\":5"), "{events}");
}

/// Waits until the process whose ID is in /run/command is stopped.
fn until_stopped(lab: &Lab) {
    let stopped = "until grep -q '^State:.T' /proc/$(cat /run/command)/status; do sleep 0.05; done";
    assert!(lab.shell(0, "sh", stopped).status.success());
}

#[test]
fn sigterm_continues_a_stopped_command_so_that_it_can_end() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script =
        "trap 'echo caught; exit 0' TERM; echo $$ >/run/command; echo started; kill -STOP $$; sleep 1000";
    let node = run(&lab, 0, &["--max-restarts", "1", "--stop-timeout", "0"], script);
    node.expect_stdout("started");
    until_stopped(&lab);
    node.signal("TERM");
    let outcome = node.finish();
    assert_eq!(
        (outcome.status.code(), &*outcome.stdout),
        (Some(143), "started\ncaught\n"),
        "{}",
        outcome.render()
    );
}

#[test]
fn a_stopped_command_goes_on_when_mingle_is_continued() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "echo $$ >/run/command; echo started; kill -STOP $$; echo continued";
    let node = run(&lab, 0, &["--max-restarts", "1"], script);
    until_stopped(&lab);
    node.signal("CONT");
    let outcome = node.finish();
    assert_eq!(outcome.stdout, "started\ncontinued\n", "{}", outcome.render());
}

#[test]
fn each_restart_in_a_row_waits_twice_as_long_as_the_last_and_the_first_not_at_all() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // A command that fails before the other node knows of the world would leave that nothing to say.
    let script = "began=/run/began$MINGLE_GENERATION
        [ $1 = 0 ] || { >$began; exec sleep 1000; }
        until [ -e $began ]; do sleep 0.02; done; exit 9";
    let started = Instant::now();
    let outcomes = finish_all(run_all(&lab, &["--max-restarts", "3", "--restart-delay", "300ms"], script));
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    assert_ended(&outcomes, 9);
    for outcome in &outcomes {
        for told in [
            "all commands restart, 1 of 3\n",
            "all commands restart in 300 ms, 2 of 3\n",
            "all commands restart in 600 ms, 3 of 3\n",
            "no restart is left of 3",
        ] {
            assert!(outcome.stderr.contains(told), "no {told:?}: {}", outcome.render());
        }
    }
}

#[test]
fn each_signal_reaches_the_command_and_the_code_is_that_of_the_last() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script =
        "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo winch' WINCH; trap 'echo hup; exit 5' HUP
        trap 'echo int; exit 5' INT; trap 'echo quit; exit 5' QUIT
        echo started; while :; do sleep 0.1; done";
    for (signal, said, code) in [("HUP", "hup", 129), ("INT", "int", 130), ("QUIT", "quit", 131)] {
        let proc = run(&lab, 0, &["--max-restarts", "1"], script);
        let says = |word: &str| {
            let deadline = Instant::now() + Duration::from_secs(60);
            assert!(proc.transcript.stdout.wait_until(deadline, |text| text.contains(word)), "no {word}");
        };
        says("started");
        for (signal, said) in [("USR1", "usr1"), ("USR2", "usr2"), ("WINCH", "winch")] {
            proc.signal(signal);
            says(said);
        }
        proc.signal(signal);
        let outcome = proc.finish();
        assert_eq!(outcome.status.code(), Some(code), "{}", outcome.render());
        assert_eq!(outcome.stdout, format!("started\nusr1\nusr2\nwinch\n{said}\n"), "{}", outcome.render());
        assert!(!outcome.stderr.contains("restart"), "{}", outcome.render());
    }
}

#[test]
fn what_an_earlier_mingle_has_set_for_another_launcher_is_not_there_for_the_command() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for more in ["", "--max-restarts 1"] {
        let line = format!(
            "eval \"$({MINGLE} -j one -w 1 --format c10d)\" && [ -n \"$PET_RDZV_BACKEND\" ] &&
            exec {MINGLE} run -j one -w 1 {more} -- sh -c 'echo \"${{PET_RDZV_BACKEND-none}} $WORLD_SIZE\"'"
        );
        let outcome = lab.shell(0, "sh", &line);
        assert_eq!(outcome.stdout, "none 1\n", "{}", outcome.render());
    }
}

#[test]
fn the_events_name_the_process_and_the_signal_that_has_ended_it_and_quiet_says_nothing() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let more = ["--max-restarts", "1", "--quiet", "--events", "/run/events"];
    let outcome = run(&lab, 0, &more, "echo $$; kill -KILL $$").finish();
    assert_eq!((outcome.status.code(), &*outcome.stderr), (Some(137), ""), "{}", outcome.render());
    let events = lab.shell(0, "sh", "cat /run/events").stdout;
    assert!(events.contains("\"event\":\"goodput\"") && events.contains("\"worlds\":2"), "{events}");
    let pids: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(pids.len(), 2, "{events}");
    for pid in pids {
        let started =
            |line: &&str| line.contains("\"command_started\"") && line.contains(&format!("\"pid\":{pid},"));
        assert_eq!(events.lines().filter(started).count(), 1, "{events}");
    }
    let ended = |line: &&str| line.contains("\"command_ended\"") && line.contains("\"signal\":9,");
    assert_eq!(events.lines().filter(ended).count(), 2, "{events}");
}

#[test]
fn a_signal_ends_the_pause_before_a_restart() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let node = run(&lab, 0, &["--max-restarts", "2", "--restart-delay", "1h"], "exit 9");
    node.expect_stderr("all commands restart in 60 min 0 s, 2 of 2");
    node.signal("TERM");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
}

#[test]
fn after_a_time_without_a_failure_restarts_are_counted_anew() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $MINGLE_GENERATION = 3 ] && exit 0; [ $1 = 1 ] && { sleep 4; exit 9; }; sleep 1000";
    // The timeout is that of each formation.
    let more = ["--max-restarts", "1/200ms", "--timeout", "11s"];
    let outcomes = finish_all(run_all(&lab, &more, script));
    assert_ended(&outcomes, 0);
    for outcome in &outcomes {
        let times = outcome.stderr.matches("all commands restart, 1 of 1").count();
        assert_eq!(times, 3, "{}", outcome.render());
    }
}

#[test]
fn a_replacement_counts_the_restarts_before_it() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "echo \"$1 in $MINGLE_GENERATION\"
        case $MINGLE_GENERATION-$1 in 0-0) exit 7;; 2-1) sleep 1; exit 8;; esac; sleep 1000";
    let more = ["--max-restarts", "2", "--restart-delay", "0", "--timeout", "20s"];
    let mut procs = run_all(&lab, &more, script);
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(procs[1].transcript.stdout.wait_until(deadline, |text| text.contains("1 in 1")));
    let dead = procs.remove(1);
    dead.kill_with_all_it_started();
    drop(dead);
    procs.push(run(&lab, 1, &more, script));
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 8);
    for outcome in &outcomes {
        assert!(outcome.stderr.contains("no restart is left of 2"), "{}", outcome.render());
    }
}

#[test]
fn if_mingle_is_killed_nothing_that_its_command_has_started_goes_on() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // A shell that waits for its child, a child in a session of its own, one there that ignores SIGTERM, and
    // one that is stopped: in the shell's own group the kernel would send SIGHUP to all of the group.
    let script = "trap 'echo saved >/run/saved; exit' TERM
        setsid sleep 1000 &
        setsid sh -c \"trap '' TERM; while :; do sleep 0.1; done\" &
        setsid sh -c 'trap \"echo stopped >/run/stopped; exit\" TERM; kill -STOP $$' &
        until grep -q '^State:.T' /proc/$!/status; do sleep 0.1; done
        echo started; while :; do sleep 0.1; done";
    // mingle is the first of its process group, and the whole group is killed.
    let mut command = lab.command(0, "setsid");
    command.args([MINGLE, "run", "-j", "train", "-w", "1", "--max-restarts", "1", "--stop-timeout", "1s"]);
    command.args(["--", "sh", "-c", script]);
    let node = lab.start(0, command);
    node.expect_stdout("started");
    // The guard outlives what ends others, such as pkill(1).
    lab.shell(0, "sh", &format!("pkill -TERM -P {} -x mingle-guard", node.id()));
    let killed = Instant::now();
    lab.shell(0, "sh", &format!("kill -KILL -{}", node.id()));
    // Its outputs close when the last process that has them ends.
    let outcome = node.finish();
    assert!(outcome.ended - killed < Duration::from_secs(15), "{:?}", outcome.ended - killed);
    assert!(outcome.stderr.contains("mingle was killed; its command is stopped"), "{}", outcome.render());
    let saved = lab.shell(0, "sh", "cat /run/saved /run/stopped").stdout;
    assert_eq!(saved, "saved\nstopped\n", "both had time to stop");
}

#[test]
fn processes_that_a_command_leaves_are_killed_before_the_next_one_starts() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // The process ignores SIGTERM and runs in its own session.
    let script = "if [ $MINGLE_GENERATION = 0 ]; then
            setsid sh -c \"trap '' TERM; echo \\$\\$ >/run/left; sleep 1000 & wait\" &
            until [ -s /run/left ]; do sleep 0.1; done
            exit 1
        fi
        # A process that was killed may take a moment to go.
        for i in $(seq 50); do
            kill -0 \"$(cat /run/left)\" 2>/dev/null || { echo gone; exit 0; }
            sleep 0.1
        done
        echo alive";
    let outcome = run(&lab, 0, &["--max-restarts", "1"], script).finish();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), "gone\n"), "{}", outcome.render());
}

/// In a world with a range a node learns only after 1.6 s that a command has failed by itself.
#[test]
fn processes_that_a_command_leaves_are_killed_where_the_stop_timeout_is_over_before_the_failure_is_sure() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $MINGLE_GENERATION = 1 ] && exit 0
        echo started; [ $1 = 1 ] && { until [ -e /run/left ]; do sleep 0.1; done; exit 3; }
        trap 'exit 0' TERM
        setsid sh -c \"trap '' TERM; echo >/run/left; sleep 1000 & wait\" &
        while :; do sleep 0.1; done";
    let more = ["--world", "2:3", "--last-call", "1s", "--max-restarts", "1", "--stop-timeout", "500ms"];
    let outcomes = finish_all(run_all(&lab, &more, script));
    assert_ended(&outcomes, 0);
}

#[test]
fn a_command_that_a_real_time_signal_kills_has_failed() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for more in [&["--max-restarts", "1"][..], &["--workers", "2"]] {
        let outcome = run(&lab, 0, more, "kill -40 $$").finish();
        assert_eq!(outcome.status.code(), Some(128 + 40), "{}", outcome.render());
        assert!(outcome.stderr.contains("signal 40"), "{}", outcome.render());
    }
}

#[test]
fn a_node_whose_command_succeeded_waits_and_restarts_with_the_others() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let script = "echo \"$1 in $MINGLE_GENERATION\"
        [ \"$MINGLE_GENERATION-$1\" = 0-2 ] && { sleep 2; exit 1; }; exit 0";
    let outcomes = finish_all(run_all(&lab, &["--max-restarts", "1"], script));
    assert_ended(&outcomes, 0);
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.stdout, format!("{rank} in 0\n{rank} in 1\n"), "{}", outcome.render());
    }
}

#[test]
fn an_interrupt_ends_a_node_whose_command_has_succeeded_although_another_command_runs() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "[ $1 = 0 ] && exit 0; echo started; until [ -e /run/end ]; do sleep 0.1; done";
    let more = ["--max-restarts", "1", "--events", "/run/events"];
    let mut procs = run_all(&lab, &more, script);
    procs[1].expect_stdout("started");
    lab.shell(0, "sh", "until grep -q '\"event\":\"command_ended\"' /run/events; do sleep 0.01; done");
    procs[0].signal("INT");
    let outcome = procs.remove(0).finish();
    assert_eq!(outcome.status.code(), Some(130), "{}", outcome.render());
    procs[0].expect_stderr(", leaves; all commands restart\n");
}

#[test]
fn a_node_without_max_restarts_is_named_in_a_warning() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // Node 0 waits for node 1, which has left the world, and then for a replacement.
    let stays = ["--max-restarts", "1", "--timeout", "2s"];
    let procs = vec![run(&lab, 0, &stays, "exit 0"), run(&lab, 1, &[], "exit 0")];
    let outcomes = finish_all(procs);
    let told = outcomes.iter().any(|outcome| outcome.stderr.contains("--max-restarts"));
    assert!(told, "{}\n{}", outcomes[0].render(), outcomes[1].render());
}

#[test]
fn nodes_that_allow_another_number_of_restarts_are_named_in_a_warning() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let number = |node: usize| ["1", "3/2h"][node];
    let procs = (0..2).map(|node| run(&lab, node, &["--max-restarts", number(node)], "exit 0")).collect();
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    let told = "--max-restarts or RunningWorld differs: ";
    assert!(outcomes.iter().all(|outcome| outcome.stderr.contains(told)), "{}", outcomes[0].render());
}

#[test]
fn a_child_of_the_command_can_save_its_work_before_the_restart() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // SIGTERM ends the shell at once. Its child takes a second to save its work.
    let script = "[ $MINGLE_GENERATION = 1 ] && { cat /run/saved.$1 2>/dev/null; exit 0; }
        [ \"$1\" = 0 ] && { until [ -e /run/works ]; do sleep 0.1; done; echo >/run/saved.0; exit 1; }
        sh -c 'trap \"sleep 1; echo saved >/run/saved.1; exit\" TERM; touch /run/works; while :; do sleep 0.1; done'
        true";
    let outcomes = finish_all(run_all(&lab, &["--max-restarts", "1"], script));
    assert_ended(&outcomes, 0);
    assert_eq!(outcomes[1].stdout, "saved\n", "{}", outcomes[1].render());
}

#[test]
fn a_process_started_before_mingle_survives_a_restart() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let mut command = lab.command(0, "sh");
    // Each world has its files, and commands have the limit of open files that mingle was given.
    let line = "sleep 1000 & echo $! >/run/sidecar; ulimit -Sn 99
        exec \"$mingle\" run -j train -w 1 --max-restarts 1 -o hostfile=/run/out -- sh -c '
            [ $MINGLE_GENERATION = 0 ] && { rm /run/out; exit 1; }
            [ -s /run/out ] && kill -0 $(cat /run/sidecar) && echo lives $(ulimit -n); kill $(cat /run/sidecar)'";
    command.args(["-c", line]).env("mingle", MINGLE);
    let outcome = lab.start(0, command).finish();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), "lives 99\n"), "{}", outcome.render());
}

#[test]
fn if_a_node_cannot_write_its_output_all_restart_and_its_rank_is_named() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let start = |node| {
        let output = if node == 2 { "hosts=/dev/full" } else { "hosts=/dev/null" };
        run(
            &lab,
            node,
            &["--max-restarts", "0", "--max-restarts", "1", "--timeout", "2s", "-o", output],
            "sleep 1000",
        )
    };
    let outcomes = finish_all((0..3).map(start).collect());
    assert!(outcomes[2].stderr.contains("/dev/full"), "{}", outcomes[2].render());
    for outcome in &outcomes[..2] {
        // The other nodes look for a replacement.
        assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
        assert!(outcome.stderr.contains("all commands restart"), "{}", outcome.render());
    }
    // A node that receives another node's restart first does not learn the reason.
    let failed = |line: &str| line.contains("rank 2, node2") && line.contains(", failed: exit code ");
    let named = outcomes[..2].iter().any(|outcome| outcome.stderr.lines().any(failed));
    assert!(named, "{}\n{}", outcomes[0].render(), outcomes[1].render());
}

#[test]
fn an_ignored_signal_stays_ignored_and_the_end_of_the_command_is_seen() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for more in ["", "--max-restarts 1"] {
        let mut command = lab.command(0, "sh");
        let line = format!(
            "trap '' INT HUP TERM CHLD; exec {MINGLE} run -j train -w 1 {more} -- grep SigIgn /proc/self/status"
        );
        command.args(["-c", &line]);
        let outcome = lab.start(0, command).finish();
        let mask = outcome.stdout.trim().rsplit('\t').next().unwrap().to_owned();
        let mask = u64::from_str_radix(&mask, 16).unwrap();
        // SIGHUP, SIGINT and SIGTERM.
        assert_eq!(mask & 0x4003, 0x4003, "{}", outcome.render());
    }
}

/// Waits until a node has so many sessions.
fn expect_sessions(lab: &Lab, node: usize, count: usize) {
    let wait =
        format!("until [ $(awk '$4 == \"01\"' /proc/net/tcp | wc -l) -ge {count} ]; do sleep 0.01; done");
    let sessions = lab.shell(node, "sh", &wait);
    assert!(sessions.status.success(), "{}", sessions.render());
}

/// The commands of a world run on all nodes, which have sessions with the first.
fn running(nodes: usize, more: &[&str], script: &str) -> Option<(Lab, Vec<Proc>)> {
    let lab = Options::nodes(nodes).start()?;
    let procs = run_all(&lab, more, script);
    for (node, proc) in procs.iter().enumerate() {
        proc.expect_stderr(&format!("world of {nodes} formed"));
        expect_sessions(&lab, node, if node == 0 { nodes - 1 } else { 1 });
    }
    Some((lab, procs))
}

#[test]
fn a_node_that_is_killed_is_named_on_all_others_within_a_second_and_no_newcomer_is_needed() {
    let script = "[ $MINGLE_GENERATION = 0 ] && exec sleep 1000; echo \"$1 in $MINGLE_GENERATION\"";
    let Some((lab, mut procs)) = running(4, &["--max-restarts", "2"], script) else { return };
    let dead = procs.remove(1);
    let killed = Instant::now();
    dead.signal("KILL");
    let who = format!("rank 1, node1 ({}", lab.address(1));
    for proc in &procs {
        proc.expect_stderr_within(Duration::from_secs(10), &who);
        proc.expect_stderr("failed: the node is gone");
    }
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    drop(dead);
    procs.push(run(&lab, 1, &["--max-restarts", "2"], script));
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_node_that_is_killed_is_the_first_cause_on_every_node_although_the_other_commands_fail_first() {
    let script = "[ $MINGLE_GENERATION = 0 ] || exit 0
        [ $1 = 1 ] && exec sleep 1000
        [ $1 = 2 ] && trap 'sleep 3; exit 1' TERM
        while [ $1 = 2 ] || [ ! -e /run/fail ]; do sleep 0.02; done; exit 1";
    // The nodes share the folder, and each appends to the file.
    let more = ["--max-restarts", "2", "--events", "/run/events"];
    let Some((lab, mut procs)) = running(3, &more, script) else { return };
    let dead = procs.remove(1);
    // As in a collective that fails: before the leader can know of the death. One command still stops then.
    lab.shell(0, "sh", ">/run/fail");
    dead.signal("KILL");
    for proc in &procs {
        proc.expect_stderr("all commands restart");
    }
    drop(dead);
    procs.push(run(&lab, 1, &["--max-restarts", "2"], script));
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    for outcome in &outcomes[..2] {
        assert!(outcome.stderr.contains("the first cause: rank 1, node1"), "{}", outcome.render());
    }
    let events = lab.shell(0, "sh", "cat /run/events").stdout;
    let is_cause = |line: &&str| line.contains("\"event\":\"cause\"") && line.contains("\"end\":\"gone\"");
    assert!(events.lines().filter(is_cause).count() >= 2, "{events}");
    // The replacement has no earlier world.
    let names_it = |line: &&str| line.contains("\"event\":\"formed\"") && line.contains("\"without\":[1]");
    assert_eq!(events.lines().filter(names_it).count(), 2, "{events}");
}

#[test]
fn a_node_that_was_silent_is_said_to_answer_again_and_knows_itself_that_it_was_cut_off() {
    let script = "until [ -e /run/end ]; do sleep 0.1; done";
    let more = ["--max-restarts", "1", "--gone-after", "5m"];
    let Some((lab, procs)) = running(3, &more, script) else { return };
    lab.switch("ip link set p2 down");
    procs[0].expect_stderr_within(Duration::from_secs(30), "does not answer; if that lasts for 5 min 0 s");
    procs[2].expect_stderr_within(Duration::from_secs(60), "this node may be cut off, and goes on");
    lab.switch("ip link set p2 up");
    procs[0].expect_stderr_within(Duration::from_secs(60), "rank 2, node2 (");
    procs[0].expect_stderr_within(Duration::from_secs(60), "answers again");
    lab.shell(0, "sh", ">/run/end");
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_silent_node_is_named_on_all_others_and_then_gone_and_one_that_is_stopped_is_neither() {
    let script = "[ $MINGLE_GENERATION = 0 ] && exec sleep 1000; echo \"$1 in $MINGLE_GENERATION\"";
    let more = ["--max-restarts", "2", "--gone-after", "12s"];
    let Some((lab, mut procs)) = running(6, &more, script) else { return };
    procs[4].signal("STOP");
    let silent = procs.remove(2);
    let cut = Instant::now();
    lab.switch("ip link set p2 down");
    let who = format!("rank 2, node2 ({}", lab.address(2));
    for proc in &procs[..2] {
        let text = "does not answer; if that lasts for 12.0 s, it is gone";
        proc.expect_stderr_within(Duration::from_secs(20), text);
    }
    assert!(cut.elapsed() < Duration::from_secs(15), "{:?}", cut.elapsed());
    for proc in &procs[..2] {
        proc.expect_stderr_within(Duration::from_secs(40), "failed: the node is gone");
        proc.expect_stderr(&who);
    }
    procs[3].signal("CONT");
    drop(silent);
    lab.switch("ip link set p2 up");
    procs.push(run(&lab, 2, &more, script));
    let outcomes = finish_all(procs);
    assert_ended(&outcomes, 0);
    for outcome in &outcomes {
        assert!(!outcome.stderr.contains("rank 4, node4"), "{}", outcome.render());
    }
}
