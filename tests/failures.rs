//! Worlds that do not form: every failure has its exit code and its reason, and starts no command.

mod users;
mod ways;

use std::time::Duration;

use crate::lab::proc::{GUARD, Outcome, Proc};
use crate::lab::world::{World, finish_all, line, line_with, start_all};
use crate::lab::{Lab, MINGLE, Options, Policy, plain};

const NODES: &str = "nodes here";
const SOON: Duration = Duration::from_secs(5);

/// Checks exit code, output and message, and that a shell that evaluates the output starts no command.
fn fails(outcome: &Outcome, code: i32, message: &[&str]) {
    outcome.failed(code, message);
    starts_nothing(&outcome.stdout, code);
}

/// Evaluates `$(mingle ...)`, quoted and unquoted, in a shell that goes on after errors and in one that does
/// not. tests/shells.rs does the same in every shell.
fn starts_nothing(stdout: &str, code: i32) {
    let script = r#"
        (eval "$text" && echo started); echo "$?"
        (eval $text && echo started); echo "$?"
        (set -e; eval "$text"; echo started); echo "$?"
        (set -e; eval $text; echo started); echo "$?""#;
    let mut command = plain("bash");
    command.args(["-c", script]).env("text", stdout.trim_end());
    let outcome = Proc::start(command, "bash".to_owned()).finish();
    assert_eq!(outcome.stdout, format!("{code}\n").repeat(4), "{}", outcome.render());
}

fn mingle(args: &[&str]) -> Outcome {
    let mut command = plain(MINGLE);
    command.args(args);
    Proc::start(command, args.join(" ")).finish()
}

/// A node that leads.
fn leading(lab: &Lab, node: usize, args: &[String]) -> Proc {
    let proc = lab.spawn(node, args);
    proc.expect_stderr("looking for");
    proc
}

#[test]
fn a_usage_error_names_the_wrong_argument() {
    for (args, message) in [
        (vec!["--world", "4"], "--job-id"),
        (vec!["--job-id", "x"], "--world"),
        (vec!["--job-id", "x", "--world", "0"], "world"),
        (vec!["--job-id", "x", "--world", "four"], "four"),
        (vec!["--job-id", "", "--world", "4"], "job"),
        (vec!["--job-id", "two\nlines", "--world", "4"], "printable"),
        (vec!["--job-id", "x", "--world", "4", "--rank", "4"], "rank"),
        (vec!["--job-id", "x", "--world", "4", "--rank", "-1"], "-1"),
        (vec!["--job-id", "x", "--world", "4", "--timeout", "soon"], "soon"),
        (vec!["--job-id", "x", "--world", "4", "--multicast", "10.0.0.1"], "10.0.0.1"),
        (vec!["--job-id", "x", "--world", "4", "--multicast", "/0"], "a TTL is"),
        (
            vec!["--job-id", "x", "--world", "4", "--master-port", "29499"],
            "the port of the multicast groups as well",
        ),
        (vec!["--job-id", "x", "--world", "4", "--format", "xml"], "xml"),
        (vec!["--job-id", "x", "--world", "4", "--wrold", "4"], "--wrold"),
        (vec!["--job-id", "x", "--world", "4", "extra"], "extra"),
    ] {
        fails(&mingle(&args), 2, &[message]);
    }
}

#[test]
fn a_closed_stdout_is_refused_before_anything_is_sent_and_one_that_is_discarded_is_not() {
    let file = std::env::temp_dir().join(format!("mingle-closed-{}", std::process::id()));
    let output = format!("--output=json={}", file.display());
    for (arguments, to, code) in [
        ("-j closed -w 1", ">&-", 2),
        ("secret", ">&-", 2),
        ("-j closed -w 1", ">/dev/null", 0),
        (&*format!("-j closed -w 1 {output}"), ">&-", 0),
        ("run -j closed -w 1 -- true", ">&-", 0),
    ] {
        let network = if arguments.contains("-j") { "MINGLE_INTERFACE=lo" } else { "" };
        let script = format!("{network} exec \"$mingle\" {arguments} {to}");
        let outcome = plain("sh").args(["-c", &script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(code), "{script}: {stderr}");
        assert_eq!(stderr.contains("stdout is closed"), code == 2, "{script}: {stderr}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_deadline_without_another_node_names_multicast() {
    let Some(lab) = Options::nodes(2).with_filters().start() else { return };
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    for proc in start_all(&lab, "no multicast", &["--timeout 1s"; 2]) {
        let started = proc.started;
        let outcome = proc.finish();
        fails(&outcome, 3, &["nobody else was heard", "multicast"]);
        let took = outcome.ended - started;
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
    }
}

#[test]
fn a_deadline_names_the_nodes_that_were_here_and_counts_the_missing_ones() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // First the leader times out, then the other node.
    for (short, long) in [(0, 1), (1, 0)] {
        let job = format!("some {short}");
        let mut procs = [(0, ""), (1, "")].map(|(node, _)| {
            let more = if node == short { "--timeout 1500ms" } else { "" };
            let proc = lab.spawn(node, &line_with(&job, 4, more));
            proc.expect_stderr(if node == 0 { "looking for" } else { "2 of 4" });
            Some(proc)
        });
        let outcome = procs[short].take().unwrap().finish();
        let other = format!("{} ({}:", lab.host(long), lab.address(long));
        fails(&outcome, 3, &["2 of 4 nodes were here", &other, "2 missing"]);
        let other = procs[long].take().unwrap();
        if long == 0 {
            other.expect_latest(SOON, NODES, "1 of 4");
        } else {
            other.expect_stderr_within(SOON, "lost the leader node0 (10.77.0.10:");
        }
        other.signal("TERM");
        fails(&other.finish(), 143, &[]);
    }
}

#[test]
fn missing_given_ranks_are_named_in_the_progress_and_at_the_deadline() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let args =
        |rank: u32, timeout: &str| line_with("ranks", 6, &format!("--rank {rank} --timeout {timeout}"));
    for (zero, two) in [("1500ms", "30s"), ("30s", "1500ms")] {
        let zero_proc = leading(&lab, 0, &args(0, zero));
        let two_proc = lab.spawn(1, &args(2, two));
        for proc in [&zero_proc, &two_proc] {
            proc.expect_latest(SOON, NODES, "missing ranks 1, 3-5");
        }
        let (short, long) = if zero == "30s" { (two_proc, zero_proc) } else { (zero_proc, two_proc) };
        fails(&short.finish(), 3, &["2 of 6", "missing ranks 1, 3-5"]);
        long.signal("TERM");
        fails(&long.finish(), 143, &[]);
    }
}

#[test]
fn a_master_whose_own_port_is_blocked_ends_all_nodes_with_a_path_and_the_cure() {
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    lab.firewall(0, &["tcp dport 29500-29999"]);
    let outcomes = finish_all(start_all(&lab, "unproved", &["--rank 0"]));
    for outcome in &outcomes {
        fails(
            outcome,
            5,
            &[
                "cannot open TCP connections to node0 (10.77.0.10): port 29",
                "in the firewall of node0, accept TCP on port 29",
            ],
        );
    }
}

#[test]
fn a_taken_rank_is_refused_with_the_name_of_its_holder() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let args = |rank: u32| line_with("taken", 3, &format!("--rank {rank}"));
    let zero = leading(&lab, 0, &args(0));
    let one = lab.spawn(1, &args(1));
    one.expect_stderr("2 of 3");
    fails(&lab.spawn(2, &args(1)).finish(), 4, &["rank 1 is taken by node1 (10.77.0.11:"]);
    fails(&lab.spawn(3, &args(0)).finish(), 4, &["rank 0 is taken by node0 (10.77.0.10:"]);
    for proc in [&zero, &one] {
        for (host, rank) in [("node2 (10.77.0.12:", 1), ("node3 (10.77.0.13:", 0)] {
            proc.expect_stderr(&format!("warning: {host}"));
            let twice =
                format!("was given rank {rank}, which another node has; give each node a rank of its own");
            proc.expect_stderr(&twice);
        }
    }
    // The first two nodes keep their seats.
    let two = lab.spawn(3, &args(2));
    assert_eq!(World::of(&finish_all(vec![zero, one, two])).ranks(), [0, 1, 2]);
}

#[test]
fn a_silent_holder_of_a_rank_is_replaced() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let args =
        |rank: u32, timeout: &str| line_with("ghost", 3, &format!("--rank {rank} --timeout {timeout}"));
    let zero = leading(&lab, 0, &args(0, "30s"));
    let ghost = lab.spawn(1, &args(1, "1s"));
    ghost.expect_stderr("2 of 3");
    ghost.signal("STOP");
    let one = lab.spawn(2, &args(1, "30s"));
    one.expect_stderr("2 of 3");
    let two = lab.spawn(1, &args(2, "30s"));
    assert_eq!(World::of(&finish_all(vec![zero, one, two])).ranks(), [0, 1, 2]);
    // The node wakes up without a seat, and must not print that it has one.
    ghost.signal("CONT");
    let outcome = ghost.finish();
    let code = outcome.status.code().unwrap();
    assert!([3, 4].contains(&code), "{}", outcome.render());
    fails(&outcome, code, &[]);
}

#[test]
fn all_nodes_name_the_node_of_another_size_at_once_and_at_the_deadline() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let args = line_with("other size", 3, "--timeout 4s");
    let procs = [0, 1].map(|node| lab.spawn(node, &args));
    procs[0].expect_stderr("2 of 3 nodes here");
    let other = lab.spawn(2, &line("other size", 4));
    let sentence = "expects a world of 4";
    for proc in &procs {
        proc.expect_stderr("mingle: warning: node2 (10.77.0.12:");
    }
    fails(&other.finish(), 4, &["give every node the same --world"]);
    for outcome in finish_all(procs.into()) {
        fails(&outcome, 4, &["2 of 3 nodes were here", sentence, "give every node the same --world"]);
    }
}

#[test]
fn a_node_that_hears_nobody_names_the_jobs_of_its_link() {
    let Some(lab) = Options::nodes(5).start() else { return };
    let own = line_with("jobs", 3, "--timeout 20s");
    let others = [
        leading(&lab, 0, &line_with("job", 3, "--timeout 30s")),
        leading(&lab, 1, &line_with("jobs", 3, "--timeout 30s --multicast 239.255.7.7")),
        lab.spawn(2, &line_with("hidden", 3, "--timeout 30s --private")),
    ];
    let member = lab.spawn(3, &line_with("job", 3, "--timeout 30s"));
    let outcome = lab.spawn(4, &own).finish();
    let job = "job job (2 of 3 nodes, from 10.77.0.1";
    let own = "this job with another port or group of multicast, from 10.77.0.11";
    let check = "give every node the same --multicast, or none";
    let warning = "still waiting after 15 s: nobody else was heard by multicast; heard on this link: ";
    fails(
        &outcome,
        3,
        &[warning, "time: nobody else was heard by multicast; heard on this link", job, own, check],
    );
    assert!(!outcome.stderr.contains("hidden"));
    drop((others, member));
}

#[test]
fn where_all_nodes_are_on_one_host_each_names_the_job_whose_id_differs() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let both =
        ["trainjob", "trainjbo"].map(|job| lab.spawn(0, &line_with(job, 2, "--interface lo --timeout 18s")));
    for (outcome, other) in finish_all(both.into()).iter().zip(["trainjbo", "trainjob"]) {
        let other = format!("heard on this link: job {other} (1 of 2 nodes, from 127.0.0.1)");
        fails(outcome, 3, &["still waiting after 15 s: nobody else was heard", &other, "differ in --job-id"]);
        assert!(!outcome.stderr.contains("doctor: network interfaces"), "{}", outcome.render());
    }
}

#[test]
fn a_firewall_that_drops_all_that_is_new_is_named_by_its_host_and_by_the_others() {
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    lab.firewall(1, &["ct state new"]);
    for (number, secret) in ["", "a secret of the firewalls"].into_iter().enumerate() {
        let args = line_with(&format!("firewall {number}"), 3, "--timeout 18s");
        let procs = [0, 1, 2].map(|node| {
            let mut command = lab.command(node, MINGLE);
            command.args(&args).env("MINGLE_SECRET", secret);
            lab.start(node, command)
        });
        let [first, walled, last] = procs.map(Proc::finish);
        let cure = "accept UDP 29499, TCP and UDP 29500-29999 (or those of --multicast and \
                    --master-port), and TCP 32768-60999 from the other nodes";
        let deaf = "this host drops even the multicast that it sends itself";
        let here = format!("{deaf}; in the firewall of this host, {cure}");
        let warning = format!("after 15 s: nobody else was heard by multicast, and {here}");
        fails(&walled, 5, &[&warning, &format!("nobody else was heard by multicast, and {here}")]);
        for other in [first, last] {
            let apart = "does not join node0: one does not hear the other, or cannot connect";
            fails(
                &other,
                5,
                &[
                    "mingle: warning: node1 (10.77.0.11:",
                    apart,
                    &format!("in the firewalls of node1 and node0, {cure}"),
                    "time: node1 (10.77.0.11:",
                ],
            );
        }
    }
}

#[test]
fn a_pair_between_which_nothing_passes_is_named_on_all_nodes() {
    // Node 0 is to get rank 0: it leads, or it comes when node 1 leads already.
    for [leader, cut] in [[0, 1], [1, 0]] {
        let Some(lab) = Options::nodes(3).with_filters().start() else { return };
        lab.firewall(0, &["ip saddr 10.77.0.11"]);
        lab.firewall(1, &["ip saddr 10.77.0.10"]);
        let lines =
            ["--rank 0", "", ""].map(|rank| line_with("cut pair", 3, &format!("--timeout 22s {rank}")));
        let leads = leading(&lab, leader, &lines[leader]);
        let joins = lab.spawn(2, &lines[2]);
        joins.expect_latest(SOON, NODES, "2 of 3");
        let lone = lab.spawn(cut, &lines[cut]).finish();
        for (outcome, [away, here]) in
            [(leads.finish(), [cut, leader]), (joins.finish(), [cut, leader]), (lone, [leader, cut])]
        {
            let named = format!("node{away} (10.77.0.1{away}:");
            let apart = format!("does not join node{here}: one does not hear the other, or cannot connect; ");
            let cure = format!("in the firewalls of node{away} and node{here}, accept UDP 29499, ");
            let warning = format!("mingle: warning: {named}");
            fails(&outcome, 5, &[&warning, &format!("{apart}{cure}"), &format!("time: {named}")]);
            assert!(!outcome.stderr.contains("nobody else was heard"), "{}", outcome.render());
        }
    }
}

#[test]
fn nodes_that_outlast_their_leader_report_all_that_were_here_and_blame_no_firewall() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let args = |seconds: u32| line_with("outlast", 4, &format!("--timeout {seconds}s"));
    let procs = [2, 4, 6].iter().zip(0..).map(|(&seconds, node)| lab.spawn(node, &args(seconds)));
    for outcome in finish_all(procs.collect::<Vec<_>>()) {
        let hint = "mingle doctor --job-id 'outlast' --world 4\n";
        fails(&outcome, 3, &["3 of 4 nodes were here; heard besides this node: node", "; 1 missing\n", hint]);
    }
}

#[test]
fn each_signal_ends_a_node_with_its_own_code() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        // Background jobs of a shell ignore SIGINT, and processes of the tests would inherit that.
        let mut command = lab.command(0, "env");
        command.args([&format!("--default-signal={signal}"), MINGLE]).args(line(signal, 2));
        let proc = lab.start(0, command);
        proc.expect_stderr("looking for");
        proc.signal(signal);
        fails(&proc.finish(), code, &["; this node has left the world"]);
    }
    let proc = leading(&lab, 0, &line("KILL", 2));
    proc.signal("KILL");
    let outcome = proc.finish();
    assert_eq!(outcome.stdout, GUARD);
    starts_nothing(&outcome.stdout, 1);
}

/// A world of four whose round cannot end, because node 2 was stopped before all nodes were here.
fn unfinished_round(lab: &Lab, job: &str) -> [Proc; 4] {
    unfinished_round_of(lab, &line_with(job, 4, WITHOUT_PATHS))
}

/// A path to the stopped node would not be proved, and nobody would be ready.
const WITHOUT_PATHS: &str = "--paths master";

/// The same with these options and their command.
fn unfinished_round_of(lab: &Lab, line: &[String]) -> [Proc; 4] {
    let zero = leading(lab, 0, line);
    let one = lab.spawn(1, line);
    // Now node 0 has the most members, and stays the leader.
    zero.expect_stderr("2 of 4");
    let two = lab.spawn(2, line);
    for proc in [&zero, &one, &two] {
        proc.expect_latest(SOON, NODES, "3 of 4");
    }
    two.signal("STOP");
    let three = lab.spawn(3, line);
    for proc in [&zero, &one, &three] {
        proc.expect_latest(SOON, NODES, "4 of 4");
    }
    [zero, one, two, three]
}

#[test]
fn a_standby_ends_when_the_world_forms_without_it() {
    let Some(lab) = Options::nodes(5).start() else { return };
    let procs = unfinished_round(&lab, "full");
    let fifth = lab.spawn(4, &line("full", 4));
    fifth.expect_stderr("4 of 4");
    procs[2].signal("CONT");
    let outcomes = finish_all(procs.into());
    World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
    for outcome in outcomes {
        let told = "warning: 5 nodes use job ID full, and --world is 4: the world forms without the node that came last; ";
        assert!(outcome.stderr.contains(told), "{}", outcome.render());
    }
    fails(&fifth.finish(), 4, &["the world of 4 formed", "without this node: no seat was left"]);
}

#[test]
fn a_leader_that_dies_when_members_are_ready_leaves_the_outcome_unknown() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let [zero, one, two, three] = unfinished_round(&lab, "unknown");
    for proc in [&one, &three] {
        proc.expect_stderr("proving that each node reaches the others");
    }
    zero.signal("KILL");
    for proc in [one, three] {
        fails(&proc.finish(), 5, &["node0 (10.77.0.10:", "outcome unknown, other nodes may have started"]);
    }
    drop(two);
}

#[test]
fn under_max_restarts_a_node_joins_again_where_the_outcome_is_unknown() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let options = line_with("doubt", 4, WITHOUT_PATHS);
    let command = ["--max-restarts", "1", "--", "sh", "-c", "echo $RANK"].map(str::to_owned);
    let line = [&["run".to_owned()], &options[..], &command].concat();
    let [zero, one, two, three] = unfinished_round_of(&lab, &line);
    for proc in [&one, &three] {
        proc.expect_stderr("proving that each node reaches the others");
    }
    zero.signal("KILL");
    for proc in [&one, &three] {
        proc.expect_stderr_within(
            Duration::from_secs(20),
            "outcome unknown, other nodes may have started; nothing",
        );
    }
    two.signal("CONT");
    let mut ranks: Vec<String> = finish_all(vec![one, two, three, lab.spawn(0, &line)])
        .into_iter()
        .inspect(|outcome| assert!(outcome.status.success(), "{}", outcome.render()))
        .map(|outcome| outcome.stdout)
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["0\n", "1\n", "2\n", "3\n"]);
}

#[test]
fn a_failure_as_json_has_its_code_and_its_reason() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let outcome = lab.spawn(0, &line_with("json", 2, "--format json --timeout 200ms")).finish();
    assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
    let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(document["error"]["code"], 3, "{document}");
    assert!(document["error"]["message"].as_str().unwrap().contains("nobody else was heard"), "{document}");
}
