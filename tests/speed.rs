//! The time that a formation takes, with and without loss. These are measurements, so they run alone.

use std::io::Write as _;
use std::time::Duration;

use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, start_all};
use crate::lab::{Lab, Options, Policy, limit};

/// Forms `count` worlds of four, so many at once. Returns the time of each, from the start of its first
/// process to the end of its last, the shortest first.
fn worlds(lab: &Lab, job: &str, count: usize, at_once: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..count / at_once {
        lab.forget();
        let start = |world| start_all(lab, &format!("{job} {round}.{world}"), &[]);
        for procs in (0..at_once).map(start).collect::<Vec<_>>() {
            let started = procs[0].started;
            let outcomes = finish_all(procs);
            World::of(&outcomes).expect(lab, &[0, 1, 2, 3]);
            times.push(outcomes.iter().map(|outcome| outcome.ended - started).max().unwrap());
        }
    }
    times.sort_unstable();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(
        std::io::stderr(),
        "{job}: {count} worlds of four, median {:?}, fastest {:?}, slowest {:?}, {cores} cores",
        times[count / 2],
        times[0],
        times[count - 1]
    );
    times
}

#[test]
fn four_nodes_that_start_together_form_within_some_ten_milliseconds() {
    let Some(lab) = Options::nodes(4).alone().start() else { return };
    let times = worlds(&lab, "no loss", 21, 1);
    assert!(times[10] < limit(Duration::from_millis(100)), "{times:?}");
}

#[test]
fn with_30_percent_loss_every_world_forms_and_most_within_a_second() {
    let Some(lab) = Options::nodes(4).with_filters().alone().start() else { return };
    lab.set(&Policy { loss: 30, ..Policy::default() });
    let times = worlds(&lab, "30% loss", 40, 8);
    assert!(times[20] < limit(Duration::from_millis(1200)), "{times:?}");
}

/// Starts `mingle run` on four nodes, each with this script of bash.
fn run_on_four(lab: &Lab, options: &str, script: &str) -> Vec<Proc> {
    let line = format!("run --job-id speed --world 4 --timeout 30s {options} -- bash -c");
    let words: Vec<&str> = line.split_whitespace().chain([script]).collect();
    (0..4).map(|node| lab.spawn(node, &words)).collect()
}

/// When the commands of a node have said this, in seconds since 1970.
fn times(outcome: &Outcome, what: &str) -> Vec<f64> {
    let said = outcome.stdout.lines().filter_map(|line| line.strip_prefix(what));
    said.map(|time| time.trim().parse().unwrap()).collect()
}

#[test]
fn after_a_command_has_failed_the_next_commands_start_within_some_ten_milliseconds() {
    let Some(lab) = Options::nodes(4).alone().start() else { return };
    let script = r#"echo "begin $EPOCHREALTIME"
        [ "$RANK" = 2 ] || exec sleep 60
        sleep 0.2
        echo "fail $EPOCHREALTIME"
        exit 1"#;
    let outcomes = finish_all(run_on_four(&lab, "--max-restarts 20 --restart-delay 0", script));
    let begun: Vec<Vec<f64>> = outcomes.iter().map(|outcome| times(outcome, "begin ")).collect();
    let failed = outcomes.iter().map(|outcome| times(outcome, "fail ")).find(|failed| !failed.is_empty());
    let failed = failed.unwrap();
    assert!(begun.iter().all(|begun| begun.len() == 21), "{}", outcomes[0].render());
    let last = |generation: usize| begun.iter().map(|begun| begun[generation]).fold(0.0, f64::max);
    let mut taken: Vec<f64> =
        (0..20).map(|generation| 1000.0 * (last(generation + 1) - failed[generation])).collect();
    taken.sort_by(f64::total_cmp);
    let _ = writeln!(
        std::io::stderr(),
        "from a failed command to the last new one: median {:.1} ms, fastest {:.1}, slowest {:.1}, n = 20",
        taken[10],
        taken[0],
        taken[19]
    );
    assert!(taken[10] < limit(Duration::from_millis(200)).as_secs_f64() * 1000.0, "{taken:?}");
}

#[test]
fn a_command_that_fails_under_a_stopped_leader_ends_the_others_within_8_seconds() {
    let Some(lab) = Options::nodes(4).alone().start() else { return };
    let script = r#"[ "$MINGLE_GENERATION" = 0 ] || exit 0
        trap 'echo "told $EPOCHREALTIME"; exit 0' TERM
        [ "$RANK" != 0 ] || { sleep 2; kill -STOP $PPID; echo "stopped $EPOCHREALTIME"; }
        [ "$RANK" != 2 ] || { sleep 2.5; echo "fail $EPOCHREALTIME"; exit 1; }
        while :; do sleep 0.02; done"#;
    let procs = run_on_four(&lab, "--max-restarts 1", script);
    for node in [1, 3] {
        procs[node].expect_stderr("all commands restart");
    }
    procs[0].signal("CONT");
    let outcomes = finish_all(procs);
    assert!(
        outcomes[0].stderr.contains("formed in") && outcomes[0].stderr.contains("rank 0,"),
        "it leads: {}",
        outcomes[0].render()
    );
    let failed = times(&outcomes[2], "fail ")[0];
    let stopped = times(&outcomes[0], "stopped ")[0];
    assert!(failed > stopped && failed < stopped + 2.0, "the leader had just been stopped");
    let told = [1, 3].map(|node| times(&outcomes[node], "told ")[0] - failed);
    let _ = writeln!(std::io::stderr(), "the others were told after {told:.2?} s");
    assert!(told.iter().all(|told| *told < limit(Duration::from_secs(8)).as_secs_f64()), "{told:?}");
}
