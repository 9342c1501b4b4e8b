//! `mingle run --workers`: one process for each slot of each node, without a launcher.

use std::time::{Duration, Instant};

use crate::lab::proc::{Proc, send_signal};
use crate::lab::torch::{self, torch};
use crate::lab::world::{assert_ended, finish_all};
use crate::lab::{Lab, MINGLE, Options, plain};

/// Starts workers that run a script on one node. The script's first argument is {rank}.
fn run(lab: &Lab, node: usize, workers: &str, more: &[&str], script: &str) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(["run", "-j", "workers", "-w", &lab.len().to_string(), "--timeout", "60s"]);
    command.args(["--workers", workers]).args(more).args(["--", "sh", "-c", script, "script", "{rank}"]);
    lab.start(node, command)
}

/// The lines, in the order of their ranks: of several workers they come in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn each_worker_has_the_numbers_of_torchrun_and_its_rank_before_each_line() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "echo \"$1 $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK at $MASTER_ADDR:${MASTER_PORT:+port}\"
        echo \"error of $RANK\" >&2; printf 'no end'";
    let outcomes = finish_all(vec![run(&lab, 0, "2", &[], script), run(&lab, 1, "3", &[], script)]);
    assert_ended(&outcomes, 0);
    let master = lab.address(0);
    for (node, (before, own)) in [(0, 2), (2, 3)].into_iter().enumerate() {
        let mut wanted = Vec::new();
        for local in 0..own {
            let rank = before + local;
            wanted.push(format!("[{rank}] {rank} {rank} of 5, {local} of {own} on {node} at {master}:port"));
            wanted.push(format!("[{rank}] no end"));
            let error = format!("[{rank}] error of {rank}\n");
            assert!(outcomes[node].stderr.contains(&error), "{}", outcomes[node].render());
        }
        assert_eq!(sorted(&outcomes[node].stdout), wanted, "{}", outcomes[node].render());
    }
}

#[test]
fn the_events_name_the_process_of_each_worker() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let outcome = run(&lab, 0, "3", &["--events", "/run/events"], "echo $$").finish();
    let events = lab.shell(0, "sh", "cat /run/events").stdout;
    assert_eq!(outcome.stdout.lines().count(), 3, "{}", outcome.render());
    for line in outcome.stdout.lines() {
        let (_, pid) = line.split_once("] ").unwrap();
        let is_its = |event: &&str| {
            event.contains("\"command_started\"") && event.contains(&format!("\"pid\":{pid},"))
        };
        assert_eq!(events.lines().filter(is_its).count(), 1, "{events}");
    }
}

#[test]
fn auto_is_one_worker_for_each_slot() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let outcome = run(&lab, 0, "auto", &["--slots", "3"], "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE").finish();
    assert_eq!(sorted(&outcome.stdout), ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"], "{}", outcome.render());
    let read = "sh -c 'read -r x; echo \"$x\"'";
    let line = format!("printf 'a\\nb\\n' | {MINGLE} run -j stdin -w 1 --workers 2 -- {read}");
    assert_eq!(sorted(&lab.shell(0, "sh", &line).stdout), ["[0] a", "[1] "], "one worker has the input");
}

#[test]
fn the_first_worker_that_fails_stops_all_others_and_its_code_is_that_of_every_node() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // One saves its work at SIGTERM, and one ignores that.
    let script = "case $RANK in
            0) trap 'echo saved; exit 0' TERM;;
            1) trap '' TERM;;
            3) sleep 1; exit 7;;
        esac
        while :; do sleep 0.1; done";
    let start = |node| run(&lab, node, "2", &["--stop-timeout", "500ms"], script);
    let begun = Instant::now();
    let outcomes = finish_all(vec![start(0), start(1)]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_ended(&outcomes, 7);
    assert_eq!(outcomes[0].stdout, "[0] saved\n", "{}", outcomes[0].render());
    assert!(
        outcomes[1].stderr.contains("worker 3 has failed here (exit code 7)"),
        "{}",
        outcomes[1].render()
    );
}

#[test]
fn workers_start_again_with_max_restarts() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = "echo \"in $MINGLE_GENERATION\"
        [ $MINGLE_GENERATION = 1 ] && exit 0; [ $RANK = 2 ] && { sleep 1; exit 5; }; sleep 1000";
    let start = |node| run(&lab, node, "2", &["--max-restarts", "1"], script);
    let outcomes = finish_all(vec![start(0), start(1)]);
    assert_ended(&outcomes, 0);
    for (node, outcome) in outcomes.iter().enumerate() {
        let (a, b) = (2 * node, 2 * node + 1);
        let wanted =
            [format!("[{a}] in 0"), format!("[{a}] in 1"), format!("[{b}] in 0"), format!("[{b}] in 1")];
        assert_eq!(sorted(&outcome.stdout), wanted, "{}", outcome.render());
    }
}

#[test]
fn a_signal_to_mingle_stops_all_workers() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "trap 'echo caught; exit 0' TERM; echo started; while :; do sleep 0.1; done";
    let node = run(&lab, 0, "3", &[], script);
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(node.transcript.stdout.wait_until(deadline, |text| text.matches("started").count() == 3));
    node.signal("TERM");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
    assert_eq!(outcome.stdout.matches("caught").count(), 3, "{}", outcome.render());
}

#[test]
fn a_drained_node_has_the_stop_timeout_and_no_longer_although_a_worker_fails_meanwhile() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "[ $RANK = 0 ] && trap 'sleep 3; exit 3' TERM || trap '' TERM
        echo started; while :; do sleep 0.1; done";
    let node = run(&lab, 0, "2", &["--stop-timeout", "4s"], script);
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(node.transcript.stdout.wait_until(deadline, |text| text.matches("started").count() == 2));
    let asked = Instant::now();
    node.signal("TERM");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(143), "{}", outcome.render());
    let took = outcome.ended - asked;
    assert!((Duration::from_secs(4)..Duration::from_millis(6500)).contains(&took), "{took:?}");
}

#[test]
fn if_a_worker_cannot_start_those_that_have_started_are_killed() {
    let Some(lab) = Options::nodes(1).start() else { return };
    lab.shell(0, "sh", "printf '#!/bin/sh\\nsleep 1000\\n' >/run/starts-0; chmod +x /run/starts-0");
    let mut command = lab.command(0, MINGLE);
    command.args(["run", "-j", "workers", "-w", "1", "--workers", "2", "--", "/run/starts-{rank}"]);
    let outcome = lab.start(0, command).finish();
    assert_eq!(outcome.status.code(), Some(127), "{}", outcome.render());
    assert!(outcome.stderr.contains("cannot start /run/starts-{rank}: "), "{}", outcome.render());
    let is_gone = "for i in $(seq 100); do pgrep -f /run/starts-[0] >/dev/null || { echo gone; exit; }; sleep 0.1; done";
    assert_eq!(lab.shell(0, "sh", is_gone).stdout, "gone\n");
}

#[test]
fn a_reader_that_begins_seconds_after_the_last_worker_has_ended_gets_all_lines() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // More than a pipe holds, and less than two: the worker ends before anything is read.
    let script = "head -c 100000 /dev/zero | tr '\\0' x";
    let line = format!(
        "{{ {MINGLE} run -j slow -w 1 --workers 1 -- sh -c \"{script}\"; echo \"code $?\" >&2; }} | {{ sleep 3; wc -c; }}"
    );
    let outcome = lab.shell(0, "sh", &line);
    // In two lines, each with the rank and an end.
    assert_eq!(outcome.stdout.trim(), (100_000 + 2 * "[0] \n".len()).to_string(), "{}", outcome.render());
    assert!(outcome.stderr.ends_with("code 0\n"), "{}", outcome.render());
}

#[test]
fn a_process_of_somebody_else_that_holds_the_output_of_a_worker_delays_the_end_by_a_second_only() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // Without the environment mingle does not know that it is of its command.
    let begun = Instant::now();
    let outcome = run(&lab, 0, "1", &[], "env -i setsid sleep 25 & echo done").finish();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), "[0] done\n"), "{}", outcome.render());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn output_that_is_lost_after_the_last_worker_has_ended_well_is_a_failure() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let line = format!("{MINGLE} run -j full -w 1 --workers 1 -- echo result >/dev/full; echo \"code $?\"");
    let outcome = lab.shell(0, "sh", &line);
    assert_eq!(outcome.stdout, "code 1\n", "{}", outcome.render());
    assert!(outcome.stderr.contains("cannot write the output of rank 0: "), "{}", outcome.render());
}

#[test]
fn a_worker_that_an_interrupt_ends_takes_those_along_that_ignore_it() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "[ $RANK = 0 ] && trap 'exit 3' INT || trap '' INT
        echo started; while :; do sleep 0.1; done";
    let node = run(&lab, 0, "2", &[], script);
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(node.transcript.stdout.wait_until(deadline, |text| text.matches("started").count() == 2));
    node.signal("INT");
    let outcome = node.finish();
    assert_eq!(outcome.status.code(), Some(130), "{}", outcome.render());
}

/// Runs a worker on one node whose output nobody reads, asks the node to end once it has said this, and
/// expects that it ends.
fn end_where_a_reader_holds_up_the_output(options: &str, script: &str, said: &str) {
    let Some(lab) = Options::nodes(1).start() else { return };
    let line = format!(
        "{{ {MINGLE} run -j slow -w 1 --workers 1 {options} -- sh -c \"{script}\" &
            echo \"its ID: $!\" >&2; wait $!; echo \"its code: $?\" >&2; }} | sleep 1000"
    );
    let mut command = lab.command(0, "sh");
    command.args(["-c", &line]);
    let node = lab.start(0, command);
    node.expect_stderr(said);
    let stderr = node.transcript.stderr.text();
    let id = stderr.split("its ID: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    send_signal("TERM", id.parse().unwrap());
    node.expect_stderr("its code: 143");
    node.kill_with_all_it_started();
}

#[test]
fn a_signal_ends_a_node_that_would_start_again_while_a_reader_holds_up_its_output() {
    // More than a pipe holds, and less than two: the worker ends, and its last lines are never read.
    let script = "head -c 100000 /dev/zero | tr '\\0' x; exit 5";
    end_where_a_reader_holds_up_the_output("--max-restarts 9", script, "worker 0 has failed here");
}

#[test]
fn a_drained_node_ends_in_time_although_a_reader_holds_up_its_output() {
    // More than a pipe holds, and less than two: all is written by the worker, and never read.
    let script = "head -c 100000 /dev/zero | tr '\\0' x; echo written >&2; sleep 1000";
    end_where_a_reader_holds_up_the_output("--stop-timeout 1s", script, "[0] written");
}

#[test]
fn options_that_contradict_workers_are_refused_before_anything_starts() {
    for (args, told) in [
        ("--workers 2 --slots 3", "--workers 2 and --slots 3 disagree"),
        (
            "--workers 2 --format c10d",
            "--format c10d is for a launcher that starts the workers of a node itself",
        ),
        ("--workers 2 --format tf-config", "--format tf-config is for a launcher"),
        ("--workers 0", "--workers 0: give 1 to 65535"),
        ("--workers all", "--workers all: give 1 to 65535, usually one for each GPU, or 'auto'"),
    ] {
        let mut command = plain(MINGLE);
        command.args(["run", "-j", "workers", "-w", "2"]).args(args.split(' ')).args(["--", "true"]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {stderr}");
        assert!(stderr.contains(told), "{args}: {stderr}");
    }
}

#[test]
fn lines_of_many_workers_do_not_mix_and_none_is_lost() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let script = "i=0; while [ $i -lt 500 ]; do echo \"line $i of $RANK, as long as a line of a log is\"; i=$((i+1)); done";
    let outcome = run(&lab, 0, "4", &[], script).finish();
    assert_eq!(outcome.status.code(), Some(0), "{}", outcome.stderr);
    for rank in 0..4 {
        let mark = format!("[{rank}] ");
        let lines: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with(&mark)).collect();
        let wanted: Vec<String> =
            (0..500).map(|i| format!("{mark}line {i} of {rank}, as long as a line of a log is")).collect();
        assert_eq!(lines, wanted);
    }
    assert_eq!(outcome.stdout.lines().count(), 2000);
    let line = format!("{MINGLE} run -j head -w 1 --workers 1 -- yes | head -n 1");
    assert_eq!(lab.shell(0, "sh", &line).stdout, "[0] y\n", "nobody reads on, so it ends");
}

#[test]
fn torch_reduces_across_two_nodes_with_two_workers_each() {
    let script = "import os, torch, torch.distributed as d; d.init_process_group('gloo'); \
                  t = torch.ones(1) * (d.get_rank() + 1); d.all_reduce(t); \
                  print('sum', int(t.item()), 'of', d.get_world_size(), flush=True); d.destroy_process_group()";
    let Some(torch) = torch() else { return };
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let start = |node| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "torch", "-w", "2", "--timeout", "60s", "--workers", "2", "--"]);
        command.args([&torch.python, "-c", script]).env("OMP_NUM_THREADS", "1");
        lab.start(node, command)
    };
    let outcomes = torch::finish_all(vec![start(0), start(1)]);
    assert_ended(&outcomes, 0);
    for (node, outcome) in outcomes.iter().enumerate() {
        let wanted = [format!("[{}] sum 10 of 4", 2 * node), format!("[{}] sum 10 of 4", 2 * node + 1)];
        assert_eq!(sorted(&outcome.stdout), wanted, "{}", outcome.render());
    }
}

#[test]
fn workers_continue_from_their_snapshot_after_a_killed_node_is_replaced() {
    let Some(torch) = torch() else { return };
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/torchrun/train.py");
    let start = |node| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "train", "-w", "2", "--timeout", "60s", "--workers", "2"]);
        command.args(["--max-restarts", "2", "--", &torch.python, script, "--snapshot", "/run/snapshot.pt"]);
        command.env("OMP_NUM_THREADS", "1");
        lab.start(node, command)
    };
    let mut procs = vec![start(0), start(1)];
    let trains = |all: &str| all.contains("has done step 5");
    for proc in &procs {
        let trains = proc.transcript.stdout.wait_until(Instant::now() + torch::PATIENCE, trains);
        assert!(trains, "{}", proc.transcript.render());
    }
    procs.remove(1).kill_with_all_it_started();
    procs.push(start(2));
    let outcomes = torch::finish_all(procs);
    assert_ended(&outcomes, 0);
    for outcome in &outcomes {
        // 40 steps of 1 + 2 + 3 + 4. The snapshot has the steps before the node died.
        assert!(outcome.stdout.contains(" of 4: weight 400"), "{}", outcome.render());
        let mut again = outcome.stdout.lines().filter_map(|line| line.split_once(" continues from step "));
        assert!(again.next_back().is_some_and(|(_, step)| step != "0"), "{}", outcome.render());
    }
}

/// How many steps of the training have been done by then, as the nodes say.
fn steps(proc: &Proc) -> usize {
    proc.transcript.stdout.text().matches("has done step ").count()
}

#[test]
fn a_training_goes_on_with_three_of_four_nodes_and_then_with_four_again_and_loses_no_step() {
    let Some(torch) = torch() else { return };
    let Some(lab) = Options::nodes(5).with_names().start() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/torchrun/train.py");
    let start = |node| {
        let mut command = lab.command(node, MINGLE);
        command.args(["run", "-j", "train", "-w", "3:4", "--last-call", "1s", "--grow", "--timeout", "60s"]);
        command.args(["--workers", "1", "--max-restarts", "2", "--", &torch.python, script]);
        command.args(["--snapshot", "/run/snapshot.pt", "--steps", "80"]).env("OMP_NUM_THREADS", "1");
        lab.start(node, command)
    };
    let trains_in = |proc: &Proc, world: &str| {
        let until = Instant::now() + torch::PATIENCE;
        let begins = format!(" of {world} continues from step ");
        let trains =
            |all: &str| all.rsplit_once(&begins).is_some_and(|(_, rest)| rest.contains("has done step"));
        assert!(proc.transcript.stdout.wait_until(until, trains), "{}", proc.transcript.render());
    };
    let mut procs: Vec<Proc> = (0..4).map(start).collect();
    for proc in &procs {
        trains_in(proc, "4");
    }
    procs.remove(1).kill_with_all_it_started();
    for proc in &procs {
        trains_in(proc, "3");
    }
    assert!(procs.iter().all(|proc| steps(proc) < 60), "too late for the last part");
    procs.push(start(4));
    let outcomes = torch::finish_all(procs);
    assert_ended(&outcomes, 0);
    for outcome in &outcomes {
        let (_, weight) = outcome.stdout.rsplit_once(" of 4: weight ").unwrap();
        let weight: u32 = weight.trim().parse().unwrap();
        // A step of four ranks adds 1 + 2 + 3 + 4, one of three 6.
        assert_eq!((weight - 80 * 6) % 4, 0, "{}", outcome.render());
        let with_four = (weight - 80 * 6) / 4;
        assert!((1..80).contains(&with_four), "{with_four} steps of 80 with four nodes");
        // A command may fail before the cause is known.
        let is_free = !outcome.stderr.contains("1 of 2") || outcome.stderr.contains("does not count");
        let is_free = is_free && !outcome.stderr.contains("2 of 2");
        assert!(is_free, "a change of membership uses no restart\n{}", outcome.render());
    }
}
