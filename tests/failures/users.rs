//! Two users whose jobs have one ID, and more nodes than a world has.

use std::time::Duration;

use crate::lab::proc::{Outcome, Proc};
use crate::lab::random::Random;
use crate::lab::world::{World, finish_all, line, line_with};
use crate::lab::{Lab, MINGLE, Options};

/// Starts mingle in a node as a user of this name.
fn start(lab: &Lab, node: usize, user: &str, args: &[String]) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(args).env("MINGLE_USER", user);
    lab.start(node, command)
}

const CURE: &str =
    "choose another --job-id, or, if these nodes are of one job, set MINGLE_USER to one name on all";

#[test]
fn nodes_of_another_user_end_at_once_and_all_nodes_of_the_first_learn_it() {
    let Some(lab) = Options::nodes(5).start() else { return };
    let args = line("train", 3);
    let alice = [0, 1].map(|node| {
        let proc = start(&lab, node, "alice", &args);
        proc.expect_stderr(if node == 0 { "looking for" } else { "2 of 3" });
        proc
    });
    for node in [2, 3] {
        let bob = start(&lab, node, "bob", &args).finish_within(Duration::from_secs(10));
        let sentence = "error: this job ID belongs to alice (node0 (10.77.0.10:";
        bob.failed(4, &[sentence, "2 nodes), and this node runs as bob; ", CURE]);
        for proc in &alice {
            proc.expect_stderr(&format!("warning: {} ({}:", lab.host(node), lab.address(node)));
            proc.expect_stderr(&format!("uses this job ID as another user, bob; {CURE}"));
        }
    }
    let mut all: Vec<Proc> = alice.into();
    all.push(start(&lab, 4, "alice", &args));
    World::of(&finish_all(all)).expect(&lab, &[0, 1, 2]);
}

#[test]
fn no_world_has_nodes_of_two_users_that_start_at_once_and_whoever_hears_the_other_user_says_so() {
    let Some(lab) = Options::nodes(8).start() else { return };
    let mut random = Random::announced("users");
    let mut told = 0;
    for round in 0..3 {
        let mut order: Vec<usize> = (0..8).collect();
        (1..8).rev().for_each(|at| order.swap(at, random.below(at + 1)));
        let args = line_with(&format!("both {round}"), 4, "--timeout 4s");
        let name = |node: usize| if node.is_multiple_of(2) { "alice" } else { "bob" };
        let procs: Vec<_> =
            order.into_iter().map(|node| (name(node), start(&lab, node, name(node), &args))).collect();
        let ended: Vec<(&str, Outcome)> =
            procs.into_iter().map(|(user, proc)| (user, proc.finish())).collect();
        for user in ["alice", "bob"] {
            let formed = ended.iter().filter(|(of, outcome)| *of == user && outcome.status.success());
            let formed: Vec<Outcome> = formed.map(|(_, outcome)| outcome.clone()).collect();
            // A world of four nodes of one user, or none.
            if !formed.is_empty() {
                assert_eq!(World::of(&formed).ranks().len(), 4);
            }
        }
        for (user, outcome) in ended.iter().filter(|(_, outcome)| !outcome.status.success()) {
            let other = if *user == "alice" { "bob" } else { "alice" };
            let names = [format!("belongs to {other}"), format!("as another user, {other}")];
            if names.iter().any(|name| outcome.stderr.contains(name)) {
                outcome.failed(4, &[]);
                told += 1;
                continue;
            }
            // All nodes of the other user may have ended before this node heard them.
            outcome.failed(3, &[]);
            let mut of_other = (0..8).filter(|&node| name(node) == other);
            let heard = of_other.find(|&node| outcome.stderr.contains(&format!("node{node} (")));
            assert_eq!(heard, None, "{}", outcome.render());
        }
        lab.forget();
    }
    assert_ne!(told, 0, "no node heard the other user");
}

#[test]
fn a_newcomer_of_another_user_to_a_running_world_ends_with_its_name() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let run = |restarts: &[&str]| {
        let words = restarts.iter().chain(&["--", "sleep", "60"]).map(|&word| word.to_owned());
        [vec!["run".to_owned()], line("runs", 2), words.collect()].concat()
    };
    let world = [0, 1].map(|node| start(&lab, node, "alice", &run(&["--max-restarts", "1"])));
    for proc in &world {
        proc.expect_stderr("world of 2 formed");
    }
    for args in [line("runs", 2), run(&["--max-restarts", "1"])] {
        let bob = start(&lab, 2, "bob", &args).finish_within(Duration::from_secs(15));
        assert_eq!(bob.status.code(), Some(4), "{}", bob.render());
        for part in
            ["error: this job ID belongs to alice (node", "whose job runs), and this node runs as bob; "]
        {
            assert!(bob.stderr.contains(part), "{}", bob.render());
        }
    }
    let spare = start(&lab, 3, "alice", &run(&["--max-restarts", "1"]));
    spare.expect_stderr("already runs");
    drop((world, spare));
}
