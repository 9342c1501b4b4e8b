//! Runs the tests with one mutant after another.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::compile::Program;

/// How many random worlds of each kind a test of the simulator runs at first.
const FEW: &str = "20";
/// The most memory of a test, in KiB: a mutant can make a list endless.
const MEMORY: &str = "6000000";
/// The longest that a test may take by the clock, in seconds: a mutant can make it wait.
const LONGEST: u64 = 900;
/// A test that takes more processor time is none of the quick ones.
const QUICK: Duration = Duration::from_secs(6);
/// A test that takes no longer with few worlds does not run worlds.
const WORLDS: Duration = Duration::from_millis(100);
/// Runs a test with these limits. Processor time is the same on a busy machine.
const LIMITED: &str = "ulimit -v \"$0\"; ulimit -t \"$1\"; shift; exec timeout --foreground -s KILL \"$@\"";

/// One test of one program.
pub struct Check {
    program: PathBuf,
    pub name: String,
    runs: Option<&'static str>,
    took: Duration,
    /// The mutants whose code it runs.
    reached: BTreeSet<usize>,
}

/// The judgement of the tests on a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This test fails.
    Caught(String),
    /// This test does not end.
    TimedOut(String),
    Survived,
    /// No test runs the mutated code.
    Unreached,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(test) => write!(f, "caught by {test}"),
            Self::TimedOut(test) => write!(f, "no end of {test}"),
            Self::Survived => f.write_str("SURVIVED"),
            Self::Unreached => f.write_str("SURVIVED, and no test runs it"),
        }
    }
}

/// The end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// It took too much time.
    Stopped,
}

/// Which tests are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// The simulator with few worlds, and no search of all interleavings.
    Quick,
    /// The tests that take longer than that.
    Thorough,
}

/// The tests of some programs.
#[derive(Default)]
pub struct Checks {
    /// The quickest is first.
    pub passed: Vec<Check>,
    /// The tests that fail without a mutant.
    pub failed: Vec<String>,
    /// The tests that are none of the quick ones, and why.
    pub left_out: Vec<String>,
}

/// Whether this test compares worlds with what was recorded of them. It notices each change of what nodes do,
/// and so is asked last: what it alone notices may break no promise.
pub fn is_record(test: &str) -> bool {
    test.ends_with("_as_recorded")
}

/// The time that a test took in an earlier run.
fn time(checks: &[Check], program: &Path, name: &str) -> Option<Duration> {
    let same = |check: &&Check| check.program == program && check.name == name;
    checks.iter().find(same).map(|check| check.took)
}

/// The tests that are wanted and not left to a person to run.
fn list(programs: &[Program], effort: Effort, quick: &[Check]) -> Result<Vec<Check>, String> {
    let mut checks = Vec::new();
    for program in programs {
        let names = |options: &[&str]| {
            let output =
                Command::new(&program.path).args(["--list", "--format", "terse"]).args(options).output();
            let output = output.map_err(|error| format!("{}: {error}", program.name))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok::<_, String>(
                text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect(),
            )
        };
        let ignored: BTreeSet<String> = names(&["--ignored"])?;
        let all: BTreeSet<String> = names(&[])?;
        for name in all.difference(&ignored) {
            let is_wanted = match effort {
                Effort::Quick => !name.contains("exhaustive"),
                Effort::Thorough => time(quick, &program.path, name).is_none_or(|took| took > WORLDS),
            };
            if is_wanted {
                let (program, name) = (program.path.clone(), name.clone());
                let runs = (effort == Effort::Quick).then_some(FEW);
                checks.push(Check { program, name, runs, took: Duration::ZERO, reached: BTreeSet::new() });
            }
        }
    }
    Ok(checks)
}

/// Runs every test once without a mutant, for its time and for the mutants that it reaches.
///
/// # Errors
/// If a program cannot be run.
pub fn checks(
    programs: &[Program],
    folder: &Path,
    effort: Effort,
    quick: &[Check],
) -> Result<Checks, String> {
    let wanted = list(programs, effort, quick)?;
    let limit = if effort == Effort::Quick { QUICK } else { Duration::from_secs(LONGEST) };
    let measured = in_parallel(&wanted, |at, check| {
        let seen = folder.join(format!("seen-{at}"));
        let _ = fs::remove_file(&seen);
        let began = Instant::now();
        let end = check.run(("MINGLE_MUTANTS_SEEN", &seen.to_string_lossy()), limit);
        let took = began.elapsed();
        let seen = fs::read_to_string(&seen).unwrap_or_default();
        (end, took, seen.lines().filter_map(|line| line.parse().ok()).collect())
    });
    let mut checks = Checks::default();
    for (check, (end, took, reached)) in wanted.into_iter().zip(measured) {
        // A test that takes as long with few worlds has no more to say.
        let before = time(quick, &check.program, &check.name);
        let is_repeated = before.is_some_and(|before| took <= before * 2);
        match end.map_err(|error| format!("{}: {error}", check.program.display()))? {
            End::Passed if is_repeated => {}
            End::Passed => checks.passed.push(Check { took, reached, ..check }),
            // It needs more time or more worlds: it is one of the thorough tests.
            End::Stopped if effort == Effort::Quick => {
                checks.left_out.push(format!("{}, which takes too long", check.name));
            }
            End::Failed if effort == Effort::Quick => {
                checks.left_out.push(format!("{}, which fails with few worlds", check.name));
            }
            End::Stopped | End::Failed => checks.failed.push(check.name),
        }
    }
    checks.passed.sort_by_key(|check| (is_record(&check.name), check.took));
    Ok(checks)
}

/// Tries each of these mutants with the tests that reach it. Tells of each outcome when it is known.
pub fn judge(mutants: &[usize], checks: &[Check], tell: impl Fn(usize, &Outcome) + Sync) -> Vec<Outcome> {
    in_parallel(mutants, |_, &mutant| {
        let outcome = judge_one(mutant, checks);
        tell(mutant, &outcome);
        outcome
    })
}

fn judge_one(mutant: usize, checks: &[Check]) -> Outcome {
    let mut is_reached = false;
    for check in checks.iter().filter(|check| check.reached.contains(&mutant)) {
        is_reached = true;
        match check.run(("MINGLE_MUTANT", &mutant.to_string()), check.limit()) {
            Ok(End::Passed) => {}
            Ok(End::Failed) => return Outcome::Caught(check.name.clone()),
            Ok(End::Stopped) => return Outcome::TimedOut(check.name.clone()),
            Err(error) => panic!("{} cannot be run: {error}", check.program.display()),
        }
    }
    if is_reached { Outcome::Survived } else { Outcome::Unreached }
}

impl Check {
    /// The processor time that the test may take with a mutant. Without one it took no more than `took`.
    fn limit(&self) -> Duration {
        Duration::from_secs(5) + self.took * 3
    }

    /// Runs the test with a variable.
    fn run(&self, (variable, value): (&str, &str), limit: Duration) -> io::Result<End> {
        let mut command = Command::new("sh");
        command.args(["-c", LIMITED, MEMORY, &limit.as_secs().to_string(), &LONGEST.to_string()]);
        command.arg(&self.program).args(["--exact", &self.name, "--test-threads=1"]).env(variable, value);
        if let Some(runs) = self.runs {
            command.env("MINGLE_SIM_RUNS", runs);
        }
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok(match status.code() {
            Some(0) => End::Passed,
            // The status of `timeout` for a program that a signal has ended, by the limit of processor time
            // or by its own.
            Some(152 | 137 | 124) | None => End::Stopped,
            Some(_) => End::Failed,
        })
    }
}

/// Does this for each item, two at a time. The results have the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < items.len())
                {
                    let result = work(at, &items[at]);
                    *results[at].lock().expect("no other thread panics") = Some(result);
                }
            });
        }
    });
    results.into_iter().map(|result| result.into_inner().expect("no thread panics").expect("done")).collect()
}
