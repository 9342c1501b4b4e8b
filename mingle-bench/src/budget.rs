//! Limits that a change must keep. They are for counts only, since times on a shared machine prove nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::parts::scale::{Cost, Start, form};
use crate::programs::{built, clean};
use crate::waiting;

/// A count and its limit.
struct Budget {
    what: &'static str,
    limit: f64,
    /// Why the limit is above what was counted.
    margin: &'static str,
    count: fn(&Counts) -> Option<f64>,
}

/// Counts that several budgets share.
struct Counts {
    world: Option<Cost>,
    leader: waiting::Rates,
    follower: waiting::Rates,
}

const EXACT: &str = "a seed determines the run: 10%, for a few more messages";
const LINKED: &str = "the C library or compiler may differ: 30%";
const TIMED: &str = "a timer may fire inside or outside the measured time: 50%";

/// The budgets in the order of display. `docs/performance.md` has the counts.
const BUDGETS: [Budget; 12] = [
    Budget {
        what: "datagrams per node, 1,000 simulated nodes at once",
        limit: 8.8,
        margin: EXACT,
        count: |c| Some(c.world?.datagrams),
    },
    Budget {
        what: "bytes per node, 1,000 simulated nodes at once",
        limit: 1290.0,
        margin: EXACT,
        count: |c| Some(c.world?.bytes),
    },
    Budget {
        what: "connections per node, 1,000 simulated nodes at once",
        limit: 1.1,
        margin: EXACT,
        count: |c| Some(c.world?.connections),
    },
    Budget {
        what: "datagrams of the leader, 1,000 simulated nodes at once",
        limit: 5500.0,
        margin: EXACT,
        count: |c| Some(c.world?.leader_sent),
    },
    Budget {
        what: "wake-ups per second of a waiting leader",
        limit: 4.6,
        margin: TIMED,
        count: |c| Some(c.leader.wakes),
    },
    Budget {
        what: "wake-ups per second of a waiting follower",
        limit: 2.3,
        margin: TIMED,
        count: |c| Some(c.follower.wakes),
    },
    Budget {
        what: "datagrams per second of a waiting leader",
        limit: 2.0,
        margin: TIMED,
        count: |c| Some(c.leader.datagrams),
    },
    Budget {
        what: "system calls to a usage error",
        limit: 103.0,
        margin: LINKED,
        count: |_| system_calls(&["--no-such-argument"]),
    },
    Budget {
        what: "system calls of a world of one",
        // Four of them wait for SIGHUP and SIGQUIT.
        limit: 275.0,
        margin: LINKED,
        count: |_| system_calls(&["--job-id", "alone", "--world", "1"]),
    },
    Budget {
        what: "instructions to a usage error",
        // 1.3 until the options for spare nodes, growth and the comparison of nodes: clap builds all of them.
        limit: 1_500_000.0,
        margin: LINKED,
        count: |_| usage_error(),
    },
    Budget {
        what: "size of the program in MB",
        // 5.0 until paths were proved, which took 0.13; the doctor's proofs and transfers, and the
        // workers and the terminal of `mingle run` took 0.4 more; groups of RDMA ports, ranges of sizes and
        // the watch of running worlds 0.5; the comparison of nodes, spare nodes and growth 0.4.
        limit: 7.1,
        margin: "the target of 5 MB, what has been added since, and a compiler that may differ",
        count: |_| Some(size()),
    },
    Budget {
        what: "crates in the program",
        limit: 84.0,
        margin: "one or two dependencies",
        count: |_| Some(crates()),
    },
];

/// Compares all counts with their limits and prints each result. Returns whether all limits are kept. A count
/// that this machine cannot take does not keep its limit.
pub fn check(mut out: impl Write) -> bool {
    let [leader, follower] = waiting::few(Duration::from_secs(20));
    let counts = Counts { world: form(1000, Start::Together), leader, follower };
    let mut kept = true;
    for budget in BUDGETS {
        let count = (budget.count)(&counts);
        let keeps = count.is_some_and(|count| count <= budget.limit);
        kept &= keeps;
        let verdict = match count {
            None => "cannot be counted on this machine",
            Some(_) if keeps => "kept",
            Some(_) => "EXCEEDED",
        };
        let Budget { what, limit, margin, .. } = budget;
        let count = count.unwrap_or(f64::NAN);
        let _ = writeln!(out, "{what}: {count:.1} of {limit:.1} ({margin}): {verdict}");
    }
    kept
}

/// The number of system calls of `mingle` with these arguments.
fn system_calls(args: &[&str]) -> Option<f64> {
    let file = std::env::temp_dir().join(format!("mingle-bench-calls-{}", std::process::id()));
    let ran = clean("strace").args(["-f", "-c", "-o"]).arg(&file).arg(built("mingle")).args(args).status();
    let text = fs::read_to_string(&file).ok();
    let _ = fs::remove_file(&file);
    ran.ok()?;
    // "100.00    0.001234           8       150         7 total"
    text?.lines().last().filter(|line| line.ends_with("total"))?.split_whitespace().nth(3)?.parse().ok()
}

fn usage_error() -> Option<f64> {
    let mingle = built("mingle");
    instructions(&[mingle.to_str()?, "--no-such-argument"])
}

/// The number of instructions of a command, as callgrind counts them.
fn instructions(command: &[&str]) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    count.trim().parse().ok()
}

/// The size of the program, in MB.
fn size() -> f64 {
    let bytes = built("mingle").metadata().map_or(0, |file| file.len());
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6
}

/// The number of crates in the program.
fn crates() -> f64 {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args([
        "tree",
        "--locked",
        "--offline",
        "--package",
        "mingle-cli",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let output = cargo.output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let names: BTreeSet<_> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    f64::from(u32::try_from(names.len()).unwrap_or(u32::MAX))
}
