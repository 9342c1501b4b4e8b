//! Mutation testing of mingle-core: changes the code in many small ways, one at a time, and runs the tests to
//! see whether they notice.
//!
//! One build holds all drawn mutants. An environment variable turns one of them on, so a mutant costs the
//! time of the tests and not that of a build. README.md in this folder says how it is used and read.

#![allow(clippy::disallowed_methods, reason = "this program is no part of the protocol, and measures time")]

mod accepted;
mod compile;
mod find;
mod mutant;
mod names;
mod operators;
mod options;
mod tree;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use compile::Program;
use mutant::Mutant;
use options::Options;
use tree::{Sources, Tree};
use trial::{Effort, Outcome};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether every mutant is caught or accepted.
fn run() -> Result<bool, String> {
    let began = Instant::now();
    let options = Options::parse(std::env::args().skip(1))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize().map_err(|error| format!("the project: {error}"))?;
    let sources = Sources::read(&root).map_err(|error| format!("the sources: {error}"))?;
    let text =
        fs::read_to_string(here.join("accepted.txt")).map_err(|error| format!("accepted.txt: {error}"))?;
    let accepted = accepted::parse(&text)?;

    let all = sources.mutants()?;
    let names: BTreeSet<String> = all.iter().map(Mutant::key).collect();
    for name in accepted.keys().filter(|name| options.concerns(name) && !names.contains(*name)) {
        println!("accepted.txt has a name that is no mutant any more: {name}");
    }
    let drawn = options.choose(&all);
    let mut mutants: BTreeMap<usize, Mutant> = drawn.into_iter().enumerate().collect();

    let target = root.join("target");
    let mut tree =
        Tree::new(&root, target.join("mutants/tree")).map_err(|error| format!("the copy: {error}"))?;
    let removed = compile::keep_viable(&mut tree, &sources, &target, &mut mutants)?;
    let programs = compile::tests(&tree, &target)?;
    println!("{} compile, {removed} do not; built after {} s", mutants.len(), began.elapsed().as_secs());

    let folder = target.join("mutants");
    let (known, tried): (Vec<usize>, Vec<usize>) =
        mutants.keys().partition(|number| !options.again && accepted.contains_key(&mutants[number].key()));
    // A line for each mutant, as soon as it is judged: a run can take an hour.
    let results =
        File::create(folder.join("results.txt")).map_err(|error| format!("the results: {error}"))?;
    let tell = |number: usize, outcome: &Outcome| {
        let line = format!("{outcome} | {}\n", mutants[&number].key());
        (&results).write_all(line.as_bytes()).expect("the results can be written");
    };
    let (outcomes, failed) = judge(&tried, &programs, &folder, options.quick, tell)?;
    let is_well = report(&mutants, &outcomes, &known, &accepted);
    for name in &failed {
        println!("FAILS WITHOUT A MUTANT, so nothing was tried with it: {name}");
    }
    println!("{} s", began.elapsed().as_secs());
    Ok(is_well && failed.is_empty())
}

/// Tries the mutants with the quick tests, and those that are left with the others. Returns the outcomes, and
/// the tests that fail without a mutant.
fn judge(
    tried: &[usize],
    programs: &[Program],
    folder: &Path,
    only_quick: bool,
    tell: impl Fn(usize, &Outcome) + Sync + Copy,
) -> Result<(BTreeMap<usize, Outcome>, Vec<String>), String> {
    let began = Instant::now();
    let quick = trial::checks(programs, folder, Effort::Quick, &[])?;
    println!("{} tests pass without a mutant, in {} s", quick.passed.len(), began.elapsed().as_secs());
    let judged = trial::judge(tried, &quick.passed, tell);
    let mut outcomes: BTreeMap<usize, Outcome> = tried.iter().copied().zip(judged).collect();
    if only_quick {
        for test in &quick.left_out {
            println!("left out: {test}");
        }
    }
    let mut failed = quick.failed;
    let alive: Vec<usize> = tried.iter().copied().filter(|number| is_alive(&outcomes[number])).collect();
    println!("{} are left after the quick tests, after {} s", alive.len(), began.elapsed().as_secs());
    if !alive.is_empty() && !only_quick {
        let thorough = trial::checks(programs, folder, Effort::Thorough, &quick.passed)?;
        for (number, outcome) in alive.iter().zip(trial::judge(&alive, &thorough.passed, tell)) {
            if outcome != Outcome::Unreached {
                outcomes.insert(*number, outcome);
            }
        }
        failed.extend(thorough.failed);
    }
    Ok((outcomes, failed))
}

fn is_alive(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Survived | Outcome::Unreached)
}

/// Prints the figures and the survivors. Returns whether each survivor is accepted.
fn report(
    mutants: &BTreeMap<usize, Mutant>,
    outcomes: &BTreeMap<usize, Outcome>,
    known: &[usize],
    accepted: &BTreeMap<String, String>,
) -> bool {
    let timed_out = outcomes.values().filter(|outcome| matches!(outcome, Outcome::TimedOut(_))).count();
    let caught = outcomes.values().filter(|outcome| !is_alive(outcome)).count();
    let is_by_record =
        |outcome: &&Outcome| matches!(outcome, Outcome::Caught(test) if trial::is_record(test));
    let by_records = outcomes.values().filter(is_by_record).count();
    for (number, outcome) in outcomes {
        let key = mutants[number].key();
        let is_accepted = accepted.contains_key(&key);
        let is_plain = matches!(outcome, Outcome::Caught(_));
        if is_plain == is_accepted || matches!(outcome, Outcome::TimedOut(_)) {
            println!("{outcome}{}: {key}", if is_accepted { ", and accepted" } else { "" });
        }
    }
    let alive =
        |number: &usize| is_alive(&outcomes[number]) && !accepted.contains_key(&mutants[number].key());
    let unexplained = outcomes.keys().filter(|number| alive(number)).count();
    println!(
        "{caught} of {} viable mutants caught ({:.1}%), {timed_out} of these by a time limit, {by_records} by no \
         test that ran but recorded worlds; {} survive with a reason in accepted.txt, {unexplained} without \
         ({:.1}% of the others caught)",
        mutants.len(),
        percent(caught, mutants.len()),
        outcomes.len() - caught - unexplained + known.len(),
        percent(caught, caught + unexplained),
    );
    unexplained == 0
}

#[expect(clippy::cast_precision_loss, reason = "there are thousands, not quadrillions")]
fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
