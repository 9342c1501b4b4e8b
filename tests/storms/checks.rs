//! The checker of the storms sees each kind of wrong history, and no fault in a right one.

use super::checker::{Command, History, Millis, Process, broken};

const MASTER: &str = "10.77.0.10:29500";

/// A command of a world of four, whose node has one mingle for the whole storm.
fn command(generation: u32, rank: u32, began: Millis, last: Millis) -> Command {
    let process = rank.try_into().unwrap();
    let master = MASTER.to_owned();
    Command { process, generation, rank, size: 4, master, began, told: None, last, code: None }
}

/// A world of four from `began` on, told to stop at `told` and ended 100 ms later.
fn world(generation: u32, began: Millis, told: Millis) -> Vec<Command> {
    let told_at = |rank| Command { told: Some(told), ..command(generation, rank, began, told + 100) };
    (0..4).map(told_at).collect()
}

/// Two worlds, one after the other, which are right.
fn right() -> History {
    let process = |node| Process { node, started: 1_000, ..Process::default() };
    History {
        fewest: 4,
        most: 4,
        stop_timeout: 4_000,
        gone_after: 9_000,
        call: 0,
        load: 100,
        began: 1_000,
        ended: 60_000,
        processes: (0..6).map(process).collect(),
        commands: [world(0, 1_200, 20_000), world(1, 20_500, 60_000)].concat(),
    }
}

fn expect(history: &History, wanted: &str) {
    let found = broken(history);
    assert!(found.iter().any(|line| line.starts_with(wanted)), "no {wanted:?} in {found:#?}");
}

fn expect_none(history: &History) {
    assert_eq!(broken(history), Vec::<String>::new());
}

#[test]
fn two_worlds_one_after_the_other_break_nothing() {
    expect_none(&right());
}

#[test]
fn a_command_that_nobody_told_to_stop_beside_the_next_world_is_seen() {
    let mut history = right();
    history.commands[2].told = None;
    history.commands[2].last = 21_500;
    expect(&history, "two worlds at once: rank 2 of 4 in 0");
    // Its mingle was stopped when the others heard.
    history.processes[2].stopped = vec![(19_000, 21_000)];
    expect_none(&history);
    history.processes[2].stopped = vec![(17_000, 18_000)];
    history.commands[2].last = 40_000;
    expect(&history, "two worlds at once: rank 2 of 4 in 0");
}

#[test]
fn a_command_that_outlives_its_stop_timeout_beside_the_next_world_is_seen() {
    let mut history = right();
    history.commands[3].last = 24_900;
    expect_none(&history);
    history.commands[3].last = 25_100;
    expect(&history, "two worlds at once: rank 3 of 4 in 0");
}

#[test]
fn a_command_whose_mingle_was_killed_long_ago_is_seen_beside_the_next_world() {
    let mut history = right();
    history.commands[3].told = None;
    history.processes[3].gone = Some(20_000);
    history.commands[7].process = 4;
    history.commands[3].last = 21_000;
    expect_none(&history);
    history.commands[3].last = 26_000;
    expect(&history, "two worlds at once: rank 3 of 4 in 0");
}

#[test]
fn a_second_first_rank_that_begins_before_the_end_of_the_first_is_seen() {
    let mut history = right();
    history.commands[0].last = 21_500;
    expect(&history, "two first ranks at once: rank 0 of 4 in 0");
    history.commands[0].told = Some(16_500);
    assert!(!broken(&history).iter().any(|line| line.starts_with("two first ranks")));
}

#[test]
fn a_rank_that_runs_twice_is_seen() {
    let mut history = right();
    let again = Command { process: 4, ..history.commands[1].clone() };
    history.commands.push(again);
    expect(&history, "a rank twice");
}

#[test]
fn commands_of_one_world_that_name_other_sizes_are_seen() {
    let mut history = right();
    history.commands[1].size = 5;
    expect(&history, "not of one size");
    let mut history = right();
    history.commands[3].rank = 4;
    expect(&history, "not of one size");
}

#[test]
fn a_world_of_a_size_that_was_not_asked_for_is_seen() {
    let mut history = right();
    (history.fewest, history.most) = (5, 6);
    expect(&history, "a size that nobody asked for");
}

#[test]
fn a_world_without_one_of_its_ranks_that_goes_on_is_seen() {
    let mut history = right();
    history.commands.remove(6);
    expect(&history, "an incomplete world goes on: rank 0 of 4 in 1");
    // The mingle of the missing rank may be stopped.
    history.processes[2].stopped = vec![(20_400, 24_000)];
    assert!(!broken(&history).iter().any(|line| line.starts_with("an incomplete world")));
    let mut history = right();
    history.commands = [world(0, 1_200, 20_000), world(1, 20_500, 22_000), world(2, 22_200, 60_000)].concat();
    history.commands.remove(6);
    expect_none(&history);
}

#[test]
fn a_time_without_a_world_that_has_no_cause_is_seen() {
    let mut history = right();
    history.commands = [world(0, 1_200, 20_000), world(1, 25_300, 60_000)].concat();
    expect(&history, "no world from");
    // Commands that take 2 s to stop, and too few nodes for 2 s.
    history.commands[1].last = 22_000;
    expect_none(&history);
    history.commands[1].last = 20_100;
    for place in 2..5 {
        history.processes[place].started = 22_500;
    }
    expect_none(&history);
    // A stop in the time before.
    let mut history = right();
    history.commands = [world(0, 1_200, 20_000), world(1, 40_000, 60_000)].concat();
    history.processes[5].stopped = vec![(15_000, 16_000)];
    expect_none(&history);
    history.processes[5].stopped.clear();
    history.load = 400;
    expect_none(&history);
}

#[test]
fn a_storm_that_ends_without_a_world_is_seen() {
    let mut history = right();
    history.commands.truncate(4);
    expect(&history, "no world from");
}

#[test]
fn a_generation_that_does_not_go_up_is_seen_unless_nobody_is_left_who_knows() {
    for generation in [0, 1] {
        let mut history = right();
        history.commands = [world(1, 1_200, 20_000), world(generation, 20_500, 60_000)].concat();
        for command in &mut history.commands[4..] {
            "10.77.0.11:29500".clone_into(&mut command.master);
        }
        expect(&history, "generations go back");
        for process in &mut history.processes[..4] {
            process.gone = Some(20_100);
        }
        for command in &mut history.commands[4..] {
            command.process = 4;
        }
        assert!(!broken(&history).iter().any(|line| line.starts_with("generations")));
    }
}
