//! The time that a formation takes, with and without loss. These are measurements, so they run alone.

use std::io::Write as _;
use std::time::Duration;

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
    assert!(times[20] < limit(Duration::from_millis(900)), "{times:?}");
}
