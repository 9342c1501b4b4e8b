//! What must not become more: counts alone, since times on a shared machine prove nothing.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::parts::simulated::{Cost, Start, form};
use crate::parts::{program, waiting};
use crate::programs::{built, clean};

/// A count and its limit.
struct Budget {
    what: &'static str,
    limit: f64,
    /// Why the limit is so far above what was counted.
    margin: &'static str,
    count: fn(&Counts) -> Option<f64>,
}

/// What several budgets share.
struct Counts {
    world: Option<Cost>,
    leader: waiting::Rates,
    follower: waiting::Rates,
}

const EXACT: &str = "one seed gives one run: 10%, for words in a few places more";
const LINKED: &str = "another C library or compiler: 30%";
const TIMED: &str = "a timer may fall into the time that is watched, or beside it: half as much again";

/// What was counted, in order: see `docs/performance.md`.
const BUDGETS: [Budget; 13] = [
    Budget {
        what: "datagrams a node, simulated 1,000 at once",
        limit: 8.8,
        margin: EXACT,
        count: |c| Some(c.world?.datagrams),
    },
    Budget {
        what: "bytes a node, simulated 1,000 at once",
        limit: 1290.0,
        margin: EXACT,
        count: |c| Some(c.world?.bytes),
    },
    Budget {
        what: "connections a node, simulated 1,000 at once",
        limit: 1.1,
        margin: EXACT,
        count: |c| Some(c.world?.connections),
    },
    Budget {
        what: "datagrams of the leader, simulated 1,000 at once",
        limit: 5500.0,
        margin: EXACT,
        count: |c| Some(c.world?.leader_sent),
    },
    Budget {
        what: "wake-ups a second, a leader that waits",
        limit: 4.6,
        margin: TIMED,
        count: |c| Some(c.leader.wakes),
    },
    Budget {
        what: "wake-ups a second, a follower that waits",
        limit: 2.3,
        margin: TIMED,
        count: |c| Some(c.follower.wakes),
    },
    Budget {
        what: "datagrams a second, a leader that waits",
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
        limit: 270.0,
        margin: LINKED,
        count: |_| system_calls(&["--job-id", "alone", "--world", "1"]),
    },
    Budget {
        what: "instructions to a usage error",
        limit: 1_300_000.0,
        margin: LINKED,
        count: |_| usage_error(),
    },
    Budget {
        what: "instructions to decode one word of each kind",
        limit: 57_000.0,
        margin: LINKED,
        count: |_| words(),
    },
    Budget { what: "MB of the program", limit: 5.0, margin: "the target", count: |_| Some(program::size()) },
    Budget {
        what: "crates in the program",
        limit: 84.0,
        margin: "a dependency or two",
        count: |_| Some(program::crates()),
    },
];

/// Compares all counts with their limits, and writes them down as it goes. Returns whether all are kept; what cannot be
/// counted here is not.
pub fn check(mut out: impl Write) -> bool {
    let [leader, follower] = waiting::few(Duration::from_secs(20));
    let counts = Counts { world: form(1000, Start::Together), leader, follower };
    let mut kept = true;
    for budget in BUDGETS {
        let count = (budget.count)(&counts);
        let keeps = count.is_some_and(|count| count <= budget.limit);
        kept &= keeps;
        let verdict = match count {
            None => "cannot be counted here",
            Some(_) if keeps => "kept",
            Some(_) => "EXCEEDED",
        };
        let Budget { what, limit, margin, .. } = budget;
        let count = count.unwrap_or(f64::NAN);
        let _ = writeln!(out, "{what}: {count:.1} of {limit:.1} ({margin}): {verdict}");
    }
    kept
}

/// How many system calls `mingle` makes with these arguments.
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

/// Between two numbers of repeats, so that the start of the program does not count.
fn words() -> Option<f64> {
    let own = std::env::current_exe().ok()?;
    let repeated = |times: &str| instructions(&[own.to_str()?, "--words", times]);
    Some((repeated("110")? - repeated("10")?) / 100.0)
}

/// How many instructions a command takes, as callgrind counts them.
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
