//! Worlds that may have one of several sizes: `--world 3:4`.

use std::time::{Duration, Instant};

use crate::lab::proc::{PATIENCE, Proc, send_signal};
use crate::lab::random::Random;
use crate::lab::world::{World, assert_ended, finish_all, took};
use crate::lab::{Lab, MINGLE, Options, Policy, limit};

/// Starts a node of a world of this size. The call is short, so that a test takes seconds; the timeout is
/// longer than any of them.
fn start(lab: &Lab, node: usize, world: &str, more: &[&str]) -> Proc {
    let line = ["--job-id", "elastic", "--world", world, "--last-call", "1s", "--timeout", "30s"];
    let args: Vec<String> = line.iter().chain(more).map(|&word| word.to_owned()).collect();
    lab.spawn(node, &args)
}

fn start_some(lab: &Lab, count: usize, world: &str, more: &[&str]) -> Vec<Proc> {
    (0..count).map(|node| start(lab, node, world, more)).collect()
}

/// The bounds that each node of a world prints.
fn bounds(world: &World) -> Vec<(&str, &str)> {
    world.nodes.iter().map(|vars| (&*vars["MINGLE_WORLD_MIN"], &*vars["MINGLE_WORLD_MAX"])).collect()
}

#[test]
fn three_of_three_to_four_form_a_world_of_three_when_the_last_call_is_over() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let procs = start_some(&lab, 3, "3:4", &[]);
    let started = procs[2].started;
    let outcomes = finish_all(procs);
    let world = World::of(&outcomes);
    world.expect(&lab, &[0, 1, 2]);
    assert_eq!(bounds(&world), [("3", "4"); 3]);
    let took = took(&outcomes, started);
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(8), "{took:?}");
    assert!(outcomes[0].stderr.contains("3 of 3:4 nodes here"), "{}", outcomes[0].render());
}

#[test]
fn two_to_four_nodes_of_three_to_four_do_at_30_percent_loss_as_without_loss() {
    for count in 2..=4 {
        let Some(lab) = Options::nodes(4).with_filters().start() else { return };
        lab.set(&Policy { loss: 30, ..Policy::default() });
        // At this loss a node may need more than a second to join.
        let timeout = if count < 3 { "8s" } else { "60s" };
        let procs = start_some(&lab, count, "3:4", &["--last-call", "5s", "--timeout", timeout]);
        let outcomes = finish_all(procs);
        if count < 3 {
            for outcome in &outcomes {
                assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
            }
            continue;
        }
        let world = World::of(&outcomes);
        world.expect(&lab, &(0..count).collect::<Vec<usize>>());
        assert_eq!(bounds(&world), vec![("3", "4"); count]);
    }
}

#[test]
fn one_of_two_of_three_to_four_ends_at_its_timeout_with_code_3() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // The other one stays for longer, or it might leave first.
    let _other = start(&lab, 1, "3:4", &[]);
    let outcome = start(&lab, 0, "3:4", &["--timeout", "2s"]).finish();
    assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
    assert!(outcome.stderr.contains("2 of 3:4 nodes were here"), "{}", outcome.render());
    assert!(outcome.stderr.contains("1 missing"), "{}", outcome.render());
}

#[test]
fn a_world_forms_before_the_timeout_of_its_leader_if_enough_nodes_are_here() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // The node of the lower address leads.
    let limit = |node| if node == 0 { "3s" } else { "30s" };
    let begin = |node| start(&lab, node, "2:3", &["--last-call", "0", "--timeout", limit(node)]);
    let outcomes = finish_all((0..2).map(begin).collect());
    World::of(&outcomes).expect(&lab, &[0, 1]);
}

#[test]
fn nodes_with_other_bounds_are_named_on_both_sides() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let first = start(&lab, 0, "3:4", &["--timeout", "5s"]);
    first.expect_stderr("looking for");
    let other = start(&lab, 1, "3:5", &[]).finish();
    assert_eq!(other.status.code(), Some(4), "{}", other.render());
    assert!(other.stderr.contains("expects a world of 3:5"), "{}", other.render());
    assert!(other.stderr.contains("one of 3:4"), "{}", other.render());
    let first = first.finish();
    assert!(first.stderr.contains("expects a world of 3:5 under this job ID, not 3:4"), "{}", first.render());
}

#[test]
fn sizes_offsets_slots_and_formats_follow_the_nodes_that_are_in() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let more = ["--format", "json", "--slots", "2"];
    let outcomes = finish_all(start_some(&lab, 3, "3:4", &more));
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((&json["world"], &json["rank"]), (&3.into(), &rank.into()));
        assert_eq!(json["slots"], serde_json::json!({ "own": 2, "before": 2 * rank, "total": 6 }));
        assert_eq!(json["roster"].as_array().unwrap().len(), 3);
        let env = |name: &str| json["env"][name].as_str().unwrap().to_owned();
        assert_eq!(
            (env("WORLD_SIZE"), env("PET_NNODES"), env("MINGLE_TOTAL_SLOTS")),
            ("3".into(), "3".into(), "6".into())
        );
        assert_eq!((env("MINGLE_WORLD_MIN"), env("MINGLE_WORLD_MAX")), ("3".into(), "4".into()));
    }
}

#[test]
fn bad_bounds_are_refused_with_a_cure() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (world, more, wanted) in [
        ("4:3", &[][..], "4 is above 3"),
        ("0:3", &[], "1 to 1000000"),
        ("2:4", &[], "such as --world 3:4"),
        ("3:4", &["--rank", "0"], "leave --rank away"),
    ] {
        let outcome = start(&lab, 0, world, more).finish();
        assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
        assert!(outcome.stderr.contains(wanted), "{}", outcome.render());
    }
}

/// Starts `mingle run` with a script on one node of a world of 3:4.
fn run(lab: &Lab, node: usize, script: &str) -> Proc {
    run_in(lab, node, &["--world", "3:4"], script)
}

/// The same with other options. A short timeout shows which nodes wait in spite of it.
fn run_in(lab: &Lab, node: usize, more: &[&str], script: &str) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(["run", "--job-id", "elastic", "--last-call", "1s", "--timeout", "30s"]);
    command.args(["--max-restarts", "1"]).args(more).args(["--", "sh", "-c", script]);
    lab.start(node, command)
}

/// Prints the rank, and runs until a file with the number of this generation is on the host.
const UNTIL_TOLD: &str = "echo \"$RANK of $WORLD_SIZE in $MINGLE_GENERATION\"
    until [ -e /run/end$MINGLE_GENERATION ]; do sleep 0.05; done";

/// Ends the commands of this generation on these nodes.
fn end(lab: &Lab, nodes: &[usize], generation: u32) {
    for &node in nodes {
        let mut touch = lab.command(node, "touch");
        assert!(touch.arg(format!("/run/end{generation}")).status().unwrap().success());
    }
}

/// Nodes watch each other some milliseconds after their world has formed, and nothing that they print shows
/// it. One that is killed before is missed by nobody.
fn wait_until_they_watch(proc: &Proc) {
    proc.transcript.stdout.wait_until(Instant::now() + Duration::from_millis(500), |_| false);
}

fn expect_stdout(proc: &Proc, text: &str) {
    let is_there = |all: &str| all.contains(text);
    let found = proc.transcript.stdout.wait_until(Instant::now() + PATIENCE, is_there);
    assert!(found, "no {text:?} in\n{}", proc.transcript.render());
}

#[test]
fn a_running_world_of_four_goes_on_with_three_when_a_node_dies() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = "echo \"$RANK of $WORLD_SIZE in $MINGLE_GENERATION\"; \
                  [ $MINGLE_GENERATION = 1 ] || exec sleep 60";
    let mut procs: Vec<Proc> = (0..4).map(|node| run(&lab, node, script)).collect();
    for proc in &procs {
        let is_there = |text: &str| text.contains(" of 4 in 0");
        assert!(
            proc.transcript.stdout.wait_until(proc.started + PATIENCE, is_there),
            "{}",
            proc.transcript.render()
        );
    }
    wait_until_they_watch(&procs[0]);
    let victim = procs.remove(1);
    send_signal("KILL", victim.id());
    // The highest rank moves down, and the others keep theirs.
    for (rank, outcome) in [0, 2, 1].iter().zip(finish_all(procs)) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        assert!(outcome.stdout.contains(&format!("{rank} of 3 in 1")), "{}", outcome.render());
    }
}

/// As in a training: commands that lose a peer fail before mingle has found out why.
#[test]
fn commands_that_fail_because_a_node_is_gone_use_no_restart_not_even_where_none_is_left() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = format!("{UNTIL_TOLD}; [ $MINGLE_GENERATION = 3 ]");
    let mut nodes = vec![0, 1, 2, 3];
    let start = |&node: &usize| run_in(&lab, node, &["--world", "2:4", "--allow-split"], &script);
    let mut procs: Vec<Proc> = nodes.iter().map(start).collect();
    for (generation, size) in [(0, 4), (1, 3), (2, 3), (3, 2)] {
        for proc in &procs {
            expect_stdout(proc, &format!(" of {size} in {generation}"));
        }
        match generation {
            // This failure uses up the only restart.
            1 => end(&lab, &nodes[..1], generation),
            3 => end(&lab, &nodes, generation),
            _ => {
                nodes.remove(1);
                send_signal("KILL", procs.remove(1).id());
                end(&lab, &nodes, generation);
            }
        }
    }
    for outcome in finish_all(procs) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        assert!(outcome.stderr.contains("all commands restart, 1 of 1"), "{}", outcome.render());
    }
}

#[test]
fn a_node_that_waits_takes_the_seat_of_one_that_dies_and_the_others_keep_their_ranks() {
    for world in ["4", "3:4"] {
        let Some(lab) = Options::nodes(5).start() else { return };
        let start =
            |node, more: &[&str]| run_in(&lab, node, &[&["--world", world], more].concat(), UNTIL_TOLD);
        let mut procs: Vec<Proc> = (1..5).map(|node| start(node, &[])).collect();
        for (rank, proc) in procs.iter().enumerate() {
            expect_stdout(proc, &format!("{rank} of 4 in 0"));
        }
        // Its address is the lowest: only as a newcomer it does not get rank 0.
        let standby = start(0, &["--timeout", "1s"]);
        standby.expect_stderr("already runs");
        let killed = Instant::now();
        send_signal("KILL", procs.remove(2).id());
        expect_stdout(&standby, "2 of 4 in 1");
        eprintln!("--world {world}: {:?} from the kill to the command of the new node", killed.elapsed());
        for (rank, proc) in [0, 1, 3].iter().zip(&procs) {
            expect_stdout(proc, &format!("{rank} of 4 in 1"));
        }
        end(&lab, &[0, 1, 2, 3, 4], 1);
        for outcome in finish_all(procs.into_iter().chain([standby]).collect()) {
            assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
            assert!(!outcome.stderr.contains("missing ranks 0-3"), "three live: {}", outcome.render());
        }
    }
}

/// The node that waits has nothing to say to the leader, whose kernel still holds their connection.
#[test]
fn a_node_that_waits_takes_the_seat_of_a_stopped_leader_as_soon_as_another_node_leads() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = format!("{UNTIL_TOLD} || [ $MINGLE_GENERATION = 1 ]")
        .replace("do sleep", "do [ -e /run/fail ] && [ $MINGLE_GENERATION = 0 ] && exit 9; sleep");
    let start = |node| run_in(&lab, node, &["--world", "3", "--stop-timeout", "2s"], &script);
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    for (rank, proc) in procs.iter().enumerate() {
        expect_stdout(proc, &format!("{rank} of 3 in 0"));
    }
    let standby = start(3);
    standby.expect_stderr("already runs");
    wait_until_they_watch(&procs[1]);
    let stopped = procs.remove(0);
    send_signal("STOP", stopped.id());
    lab.at(1, "touch /run/fail");
    expect_stdout(&standby, "0 of 3 in 1");
    for (rank, proc) in [1, 2].iter().zip(&procs) {
        expect_stdout(proc, &format!("{rank} of 3 in 1"));
    }
    for proc in &procs {
        proc.expect_stderr("without rank 0, node0 (");
    }
    send_signal("CONT", stopped.id());
    end(&lab, &[0, 1, 2, 3], 1);
    for outcome in finish_all(procs.into_iter().chain([standby, stopped]).collect()) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
    }
}

#[test]
fn a_node_that_waits_in_vain_outlives_its_timeout_and_ends_well_with_the_job() {
    for world in ["2", "2:2"] {
        let Some(lab) = Options::nodes(4).start() else { return };
        let start =
            |node, more: &[&str]| run_in(&lab, node, &[&["--world", world], more].concat(), UNTIL_TOLD);
        let procs: Vec<Proc> = (0..2).map(|node| start(node, &[])).collect();
        for proc in &procs {
            expect_stdout(proc, " of 2 in 0");
        }
        let standby = start(2, &["--timeout", "500ms"]);
        standby.expect_stderr("already runs");
        // What it has to say shows that it waits, and is in the file alone.
        let quiet = start(3, &["--quiet", "--events", "/run/events"]);
        lab.shell(3, "sh", "until grep -q 'already runs' /run/events; do sleep 0.01; done");
        let late = Instant::now() + Duration::from_secs(2);
        assert!(!standby.transcript.stderr.wait_until(late, |text| text.contains("error")));
        end(&lab, &[0, 1], 0);
        assert_ended(&finish_all(procs), 0);
        let standby = standby.finish();
        assert_eq!(standby.status.code(), Some(0), "{}", standby.render());
        assert!(
            standby.stderr.contains("the job has ended, and no seat has become free"),
            "{}",
            standby.render()
        );
        assert_eq!(standby.stdout, "");
        let quiet = quiet.finish();
        assert_eq!((quiet.status.code(), &*quiet.stderr), (Some(0), ""), "{}", quiet.render());
    }
}

#[test]
fn with_grow_a_world_takes_in_a_node_that_has_stayed_for_a_last_call_and_uses_no_restart() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let start = |node| run_in(&lab, node, &["--world", "2:3", "--grow"], UNTIL_TOLD);
    let mut procs: Vec<Proc> = (1..3).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    let came = Instant::now();
    procs.insert(0, start(0));
    expect_stdout(&procs[0], "2 of 3 in 1");
    let took = came.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    expect_stdout(&procs[1], "0 of 3 in 1");
    expect_stdout(&procs[2], "1 of 3 in 1");
    end(&lab, &[0, 1, 2], 1);
    for outcome in finish_all(procs) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        assert!(!outcome.stderr.contains("1 of 1"), "{}", outcome.render());
    }
}

#[test]
fn without_grow_a_node_that_comes_late_waits_until_another_dies() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let start = |node| run_in(&lab, node, &["--world", "2:3"], UNTIL_TOLD);
    let mut procs: Vec<Proc> = (0..2).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    let late = start(2);
    let long = Instant::now() + Duration::from_secs(3);
    assert!(
        !late.transcript.stdout.wait_until(long, |text| !text.is_empty()),
        "{}",
        late.transcript.render()
    );
    send_signal("KILL", procs.remove(0).id());
    expect_stdout(&late, "0 of 2 in 1");
    expect_stdout(&procs[0], "1 of 2 in 1");
}

#[test]
fn growth_where_no_world_can_grow_is_refused_with_a_cure() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (more, wanted) in [
        (&["--world", "3"][..], "give a range, such as --world 2:8"),
        (&["--world", "2:3", "--max-restarts", "0"], "give --max-restarts as well"),
        (&["--world", "2:3", "--paths", "master"], "leave --paths master away"),
        (&["--world", "2:3", "--format", "tf-config"], "choose another --format"),
    ] {
        let outcome = run_in(&lab, 0, &[more, &["--grow"]].concat(), "true").finish();
        assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
        assert!(outcome.stderr.contains(wanted), "{}", outcome.render());
    }
}

#[test]
fn the_next_world_waits_for_a_member_whose_command_stops_longer_than_a_last_call() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let script = "echo \"$RANK of $WORLD_SIZE in $MINGLE_GENERATION\"
        [ $MINGLE_GENERATION = 1 ] && exit 0
        [ $RANK = 3 ] && trap 'sleep 3; exit 1' TERM
        [ $RANK = 0 ] && sleep 1 && exit 1
        sleep 60 & wait";
    let outcomes = finish_all((0..4).map(|node| run(&lab, node, script)).collect());
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        assert!(outcome.stdout.contains(&format!("{rank} of 4 in 1")), "{}", outcome.render());
    }
}

/// The rank, the size of the world and the generation that the command has printed last.
fn last_world(proc: &Proc) -> Option<[u32; 3]> {
    let text = proc.transcript.stdout.text();
    let (lines, _) = text.rsplit_once('\n')?;
    let mut words = lines.lines().next_back()?.split(' ').filter_map(|word| word.parse().ok());
    Some([words.next()?, words.next()?, words.next()?])
}

/// Waits until the commands of these nodes, and of no others, run in one world.
fn expect_one_world(procs: &[Proc], what: &str) {
    let until = Instant::now() + PATIENCE;
    let wanted: Vec<u32> = (0..).take(procs.len()).collect();
    loop {
        let worlds: Vec<_> = procs.iter().filter_map(last_world).collect();
        let mut ranks: Vec<u32> = worlds.iter().map(|world| world[0]).collect();
        ranks.sort_unstable();
        let same = worlds.iter().all(|world| world[1..] == worlds[0][1..]);
        if ranks == wanted && same && usize::try_from(worlds[0][1]) == Ok(procs.len()) {
            return;
        }
        let state = || procs.iter().map(|proc| proc.transcript.render()).collect::<String>();
        assert!(Instant::now() < until, "{what}: {worlds:?}\n{}", state());
        let (first, soon) = (&procs[0].transcript.stdout, Instant::now() + Duration::from_millis(20));
        first.wait_until(soon, |_| false);
    }
}

#[test]
fn those_that_are_left_of_two_to_four_run_in_one_world_whenever_the_others_are_killed() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let mut random = Random::announced("kills");
    for round in 0..4 {
        lab.forget();
        let job = format!("kills-{round}");
        let options = ["--job-id", &job, "--world", "2:4", "--allow-split", "--gone-after", "9s"];
        let mut procs: Vec<Proc> = (0..4).map(|node| run_in(&lab, node, &options, UNTIL_TOLD)).collect();
        expect_one_world(&procs, "at first");
        // Half of the nodes that die at once are missed by no majority, so one after the other.
        for _ in 0..=random.below(2) {
            let victim = procs.remove(random.below(procs.len()));
            wait_until_they_watch(&procs[0]);
            let at = Instant::now() + Duration::from_millis(random.below(1000).try_into().unwrap());
            victim.transcript.stdout.wait_until(at, |_| false);
            send_signal("KILL", victim.id());
            expect_one_world(&procs, &format!("round {round}"));
        }
    }
}

#[test]
fn two_parts_of_a_job_that_know_nobody_of_each_other_and_are_too_few_become_one_world() {
    let Some(lab) = Options::nodes(5).start() else { return };
    let options = ["--world", "3", "--max-restarts", "9", "--stop-timeout", "1s"];
    let fails = format!("{UNTIL_TOLD}; exit 1");
    let script = |node: &usize| if *node == 0 { &fails[..] } else { UNTIL_TOLD };
    let start = |node| run_in(&lab, node, &options, script(&node));
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    for (rank, proc) in procs.iter().enumerate() {
        expect_stdout(proc, &format!("{rank} of 3 in 0"));
    }
    let spares: Vec<Proc> = (3..5).map(start).collect();
    for spare in &spares {
        spare.expect_stderr("already runs");
    }
    for stopped in &procs[1..] {
        send_signal("STOP", stopped.id());
    }
    end(&lab, &[0], 0);
    for proc in spares.iter().chain([&procs[0]]) {
        expect_stdout(proc, " of 3 in 1");
    }
    // Nobody is left who has been in both worlds.
    send_signal("KILL", procs.remove(0).id());
    for stopped in &procs {
        send_signal("CONT", stopped.id());
    }
    procs.extend(spares);
    let until = Instant::now() + PATIENCE;
    loop {
        let worlds = procs.iter().filter_map(last_world).filter(|world| world[2] > 1);
        let ranks: std::collections::BTreeSet<u32> = worlds.map(|world| world[0]).collect();
        if ranks.len() == 3 {
            return;
        }
        let state = || procs.iter().map(|proc| proc.transcript.render()).collect::<String>();
        assert!(Instant::now() < until, "ranks {ranks:?} run\n{}", state());
        let (first, soon) = (&procs[0].transcript.stdout, Instant::now() + Duration::from_millis(20));
        first.wait_until(soon, |_| false);
    }
}

#[test]
fn a_node_whose_address_changes_while_it_waits_for_a_seat_gets_one_at_its_new_address_which_its_file_names() {
    let Some(lab) = Options::nodes(3).start() else { return };
    lab.at(0, "mkdir /run/seeds");
    let line = ["--world", "2", "--timeout", "60s", "--seed-dir", "/run/seeds"];
    let start = |node| run_in(&lab, node, &line, UNTIL_TOLD);
    let mut procs: Vec<Proc> = (0..2).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    procs.push(start(2));
    procs[2].expect_stderr("already runs");
    lab.at(2, "ip addr flush dev eth0; ip addr add 10.77.0.40/24 brd + dev eth0");
    let until = Instant::now() + PATIENCE;
    while !lab.shell(0, "sh", "cat /run/seeds/*").stdout.contains("10.77.0.40:") {
        assert!(Instant::now() < until, "{}", lab.shell(0, "sh", "head /run/seeds/*").stdout);
    }
    let killed = Instant::now();
    send_signal("KILL", procs.remove(1).id());
    expect_stdout(&procs[1], "1 of 2 in 1");
    end(&lab, &[0, 2], 1);
    for outcome in finish_all(procs) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
        let took = outcome.ended - killed;
        assert!(took < limit(Duration::from_secs(15)), "{took:?}: {}", outcome.render());
    }
}

#[test]
fn a_node_that_is_left_alone_finds_by_its_seed_a_node_that_knows_of_nobody() {
    let Some(lab) = Options::nodes(2).with_filters().start() else { return };
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    // The seed is the second node, which has no other.
    let seed = lab.address(1).to_string();
    let line = ["--world", "2", "--timeout", "60s", "--seed", &seed];
    let mut procs: Vec<Proc> = (0..2).map(|node| run_in(&lab, node, &line, UNTIL_TOLD)).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    send_signal("KILL", procs.pop().unwrap().id());
    procs[0].expect_stderr("all commands restart");
    procs.push(run_in(&lab, 1, &line, UNTIL_TOLD));
    for proc in &procs {
        expect_stdout(proc, " of 2 in 1");
    }
    end(&lab, &[0, 1], 1);
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn of_twice_as_many_nodes_that_start_at_once_one_half_forms_a_world_and_the_other_waits() {
    let Some(lab) = Options::nodes(6).start() else { return };
    for round in 0..4 {
        lab.forget();
        lab.at(0, "rm -f /run/end0");
        let line = ["--world", "3", "--timeout", "60s"];
        let procs: Vec<Proc> = (0..6).map(|node| run_in(&lab, node, &line, UNTIL_TOLD)).collect();
        let runs = |proc: &&Proc| proc.transcript.stdout.text().contains(" of 3 in 0");
        let waits = |proc: &&Proc| proc.transcript.stderr.text().contains("already runs");
        let count = || (procs.iter().filter(runs).count(), procs.iter().filter(waits).count());
        let until = Instant::now() + PATIENCE;
        // Each does one of the two in the end.
        while count().0 + count().1 < 6 {
            assert!(Instant::now() < until, "{:?} in round {round}", count());
            let soon = Instant::now() + Duration::from_millis(20);
            procs[0].transcript.stdout.wait_until(soon, |_| false);
        }
        let all = || procs.iter().map(|proc| proc.transcript.render()).collect::<String>();
        assert_eq!(procs.iter().filter(runs).count(), 3, "in round {round}\n{}", all());
        end(&lab, &[0], 0);
        assert_ended(&finish_all(procs), 0);
    }
}

#[test]
fn a_second_address_is_in_a_nodes_file_while_it_waits_and_while_its_world_runs() {
    let Some(lab) = Options::nodes(2).start() else { return };
    lab.at(0, "mkdir /run/seeds");
    let line = ["--world", "2", "--timeout", "60s", "--seed-dir", "/run/seeds"];
    let names = |address: &str| {
        lab.at(0, &format!("ip addr add {address}/24 dev eth0"));
        let until = Instant::now() + PATIENCE;
        while !lab.shell(0, "sh", "cat /run/seeds/mingle-*").stdout.contains(&format!("{address}:")) {
            assert!(Instant::now() < until, "{}", lab.shell(0, "sh", "head /run/seeds/*").stdout);
        }
    };
    let mut procs = vec![run_in(&lab, 0, &line, UNTIL_TOLD)];
    procs[0].expect_stderr("looking for");
    names("10.77.0.50");
    procs.push(run_in(&lab, 1, &line, UNTIL_TOLD));
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    names("10.77.0.60");
    end(&lab, &[0, 1], 0);
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_node_whose_only_link_is_down_for_long_while_its_command_fails_comes_back_with_the_link() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let script = format!("{UNTIL_TOLD}; exit $((1 - MINGLE_GENERATION))");
    let start = |node| run_in(&lab, node, &["--world", "2", "--gone-after", "60s"], &script);
    let procs: Vec<Proc> = (0..2).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    lab.at(1, "ip link set eth0 down");
    end(&lab, &[1], 0);
    procs[1].expect_stderr("all commands restart");
    let late = Instant::now() + Duration::from_secs(16);
    assert!(!procs[1].transcript.stderr.wait_until(late, |text| text.contains("mingle: error")));
    lab.at(1, "ip link set eth0 up");
    for proc in &procs {
        expect_stdout(proc, " of 2 in 1");
    }
    end(&lab, &[0, 1], 1);
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_member_that_gives_its_seat_to_a_spare_for_its_broken_paths_outlives_its_timeout_and_ends_with_the_job() {
    let Some(lab) = Options::nodes(4).with_filters().start() else { return };
    let first = format!("{UNTIL_TOLD}; exit $((1 - MINGLE_GENERATION))");
    let start = |node| run_in(&lab, node, &["--world", "3", "--timeout", "6s"], &first);
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 3 in 0");
    }
    procs.push(start(3));
    procs[3].expect_stderr("already runs");
    lab.firewall(2, &["tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
    end(&lab, &[0], 0);
    expect_stdout(&procs[3], "2 of 3 in 1");
    procs[2].expect_stderr("this job already runs, says 10.77.0.10");
    // Beyond the timeout of the member without a seat, which began as the world was over.
    let late = Instant::now() + Duration::from_secs(7);
    assert!(!procs[2].transcript.stderr.wait_until(late, |text| text.contains("mingle: error")));
    end(&lab, &[0, 1, 3], 1);
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_newcomer_for_another_size_ends_at_once_beside_a_world_that_runs_and_goes_on() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let procs: Vec<Proc> = (0..2).map(|node| run_in(&lab, node, &["--world", "2"], UNTIL_TOLD)).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    let other = run_in(&lab, 2, &["--world", "3"], UNTIL_TOLD);
    let (started, outcome) = (other.started, other.finish());
    assert_eq!(outcome.status.code(), Some(4), "{}", outcome.render());
    for part in ["this node expects a world of 3, but 10.77.0.", " leads one of 2 under the same job ID"] {
        assert!(outcome.stderr.contains(part), "no {part:?} on stderr of {}", outcome.render());
    }
    assert!(outcome.ended < started + limit(Duration::from_secs(3)), "{}", outcome.render());
    end(&lab, &[0, 1], 0);
    assert_ended(&finish_all(procs), 0);
}

#[test]
fn a_newcomer_that_differs_where_all_must_be_the_same_is_left_out_and_every_node_says_why() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let start = |node, image: &str, more: &[&str]| {
        let image = format!("image={image}");
        let args = [&["--world", "2", "--require-same", "--same", &image], more].concat();
        run_in(&lab, node, &args, UNTIL_TOLD)
    };
    let mut procs: Vec<Proc> = (0..2).map(|node| start(node, "v7", &[])).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    let differs = start(2, "v8", &["--timeout", "1s"]);
    differs.expect_stderr("already runs");
    send_signal("KILL", procs.remove(1).id());
    let why = "warning: all nodes must be the same, and they are not; --same image";
    for proc in [&procs[0], &differs] {
        proc.expect_stderr(why);
    }
    procs.push(start(3, "v7", &[]));
    for (rank, proc) in procs.iter().enumerate() {
        expect_stdout(proc, &format!("{rank} of 2 in 1"));
    }
    end(&lab, &[0, 3], 1);
    for outcome in finish_all(procs.into_iter().chain([differs]).collect()) {
        assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
    }
}

#[test]
fn a_path_that_breaks_while_the_commands_run_ends_every_node_at_its_timeout_with_the_pair() {
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    let script = format!("{UNTIL_TOLD}; exit 1");
    let start = |node| run_in(&lab, node, &["--world", "3", "--timeout", "7s"], &script);
    let procs: Vec<Proc> = (0..3).map(start).collect();
    for proc in &procs {
        expect_stdout(proc, " of 3 in 0");
    }
    lab.firewall(2, &["ip saddr 10.77.0.11 tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
    end(&lab, &[0], 0);
    let ended = Instant::now();
    let path = "node1 (10.77.0.11) cannot open TCP connections to node2 (10.77.0.12): port ";
    for proc in &procs {
        proc.expect_stderr(&format!("warning: {path}"));
    }
    for outcome in finish_all(procs) {
        assert_eq!(outcome.status.code(), Some(5), "{}", outcome.render());
        for part in [&format!("error: {path}"), "accept the ephemeral ports"] {
            assert!(outcome.stderr.contains(part), "no {part:?} on stderr of {}", outcome.render());
        }
        assert!(!outcome.stderr.contains("is gone"), "nobody has died: {}", outcome.render());
        let took = outcome.ended - ended;
        assert!(took < limit(Duration::from_secs(14)), "{took:?}: {}", outcome.render());
    }
}

#[test]
fn one_that_is_left_of_two_to_four_ends_at_its_timeout_with_code_3() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let options = ["--world", "2:4", "--allow-split", "--timeout", "3s"];
    let mut procs: Vec<Proc> = (0..2).map(|node| run_in(&lab, node, &options, UNTIL_TOLD)).collect();
    for proc in &procs {
        expect_stdout(proc, " of 2 in 0");
    }
    wait_until_they_watch(&procs[0]);
    send_signal("KILL", procs.remove(0).id());
    let left = procs.remove(0).finish();
    assert_eq!(left.status.code(), Some(3), "{}", left.render());
    assert!(left.stderr.contains("no world of 2:4 in time"), "{}", left.render());
}
