//! Worlds of four processes, each in a namespace of its own, beside the floor and others' ways to the same.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::Effort;
use crate::lab::{Lab, address};
use crate::programs::{Watched, built, clean, mingle, script};
use crate::report::{Row, Table, Target};
use crate::sample::Sample;

const WORLD: usize = 4;
/// By then those who wait have nothing more to say at once.
const SETTLED: Duration = Duration::from_millis(400);
/// The same for four that load torch first.
const LOADED: Duration = Duration::from_secs(10);

/// A way to form a world.
struct Way {
    name: &'static str,
    command: fn(&str, usize) -> Command,
    /// It prints when it has found all, and ends later, as others may need it.
    stays: bool,
    /// When those who wait have settled.
    settled: Duration,
    /// Of how many times that mingle is measured this one is: some take seconds.
    every: usize,
}

const OURS: [Way; 2] = [
    Way { name: "floor", command: floor, stays: false, settled: SETTLED, every: 1 },
    Way { name: "mingle", command: |job, _| mingle(job, WORLD), stays: false, settled: SETTLED, every: 1 },
];

const OTHERS: [Way; 4] = [
    Way { name: "multicast.py", command: python, stays: true, settled: SETTLED, every: 2 },
    Way {
        name: "zenoh",
        command: |job, host| other("find-zenoh", job, host),
        stays: true,
        settled: SETTLED,
        every: 4,
    },
    Way {
        name: "mdns-sd",
        command: |job, host| other("find-mdns", job, host),
        stays: true,
        settled: SETTLED,
        every: 4,
    },
    Way { name: "torchrun c10d", command: torchrun, stays: true, settled: LOADED, every: 8 },
];

/// All four start at once: from the first start to the last output.
pub fn together(effort: Effort) -> Table {
    let lab = Lab::new(WORLD);
    let mut table =
        Table::new("together", "Four processes in namespaces start at once: from exec to the last output");
    let ways = OURS.iter().chain(installed());
    measure(
        &mut table,
        &lab,
        ways.collect(),
        None,
        effort.choose(6, 60),
        "ms",
        &[Target::Ratio(2.0), Target::Median(10.0)],
    );
    table
}

/// Three wait: from the start of the fourth to the last output.
pub fn last(effort: Effort) -> Table {
    let lab = Lab::new(WORLD);
    let mut table =
        Table::new("last", "The last of four starts while three wait: from its exec to the last output");
    let ways = OURS.iter().chain(installed());
    let targets = [Target::Ratio(2.0), Target::Median(4.0)];
    measure(&mut table, &lab, ways.collect(), Some(WORLD - 1), effort.choose(4, 40), "ms", &targets);
    measure(
        &mut table,
        &lab,
        OURS.iter().collect(),
        Some(0),
        effort.choose(4, 20),
        "ms, the lowest address last",
        &targets,
    );
    table
}

/// All at once, on a bridge that loses packets. Every world must form.
pub fn loss(effort: Effort) -> Table {
    let lab = Lab::new(WORLD);
    let mut table =
        Table::new("loss", "Four processes at once on a bridge that loses packets; every world counts");
    for (percent, unit) in [(0, "ms, 0% lost"), (10, "ms, 10% lost"), (30, "ms, 30% lost")] {
        lab.lose(percent);
        measure(
            &mut table,
            &lab,
            OURS.iter().collect(),
            None,
            effort.choose(5, 60),
            unit,
            &[Target::Ratio(2.0)],
        );
    }
    table
}

/// Forms worlds by each of the ways in turn, so that what else this machine does hits all alike.
fn measure(
    table: &mut Table,
    lab: &Lab,
    ways: Vec<&'static Way>,
    late: Option<usize>,
    rounds: usize,
    unit: &'static str,
    targets: &[Target],
) {
    let mut samples = vec![Sample::default(); ways.len()];
    for round in 0..rounds {
        for (way, sample) in ways.iter().zip(&mut samples) {
            if round % way.every == 0 {
                match form(lab, way, &format!("{} {round}", table.name), late) {
                    Some(time) => sample.add_time(time),
                    None => table.note(format!("{}: a world of round {round} did not form.", way.name)),
                }
            }
        }
    }
    let floor = samples[0].median();
    for (way, sample) in ways.iter().zip(samples) {
        let targets = if way.name == "mingle" { targets } else { &[] };
        table.rows.push(Row::new(way.name, unit, sample).beside(floor).targets(targets));
    }
}

/// Forms one world. Nothing where a process fails.
fn form(lab: &Lab, way: &'static Way, job: &str, late: Option<usize>) -> Option<Duration> {
    let start = Arc::new(Barrier::new(lab.len()));
    let runs: Vec<_> = (0..lab.len())
        .map(|host| {
            let (start, job) = (Arc::clone(&start), job.replace(' ', "-"));
            lab.on(host, move || {
                let command = (way.command)(&job, host);
                start.wait();
                if late == Some(host) {
                    thread::sleep(way.settled);
                }
                Run::of(command, way.stays)
            })
        })
        .collect();
    // All have found each other, or failed, before the first is told to go.
    let runs: Vec<_> = runs.iter().map(|run| run.recv().ok().flatten()).collect();
    let runs: Vec<Run> = runs.into_iter().collect::<Option<_>>()?;
    let begun = late.map_or_else(|| runs.iter().map(|run| run.begun).min(), |host| Some(runs[host].begun))?;
    let ended = runs.iter().map(|run| run.ended).max()?;
    let formed = runs.into_iter().filter_map(|run| run.end().then_some(())).count();
    (formed == lab.len()).then(|| ended.duration_since(begun))
}

/// A program that has put out its last.
struct Run {
    child: Child,
    begun: Instant,
    ended: Instant,
    silent: bool,
}

impl Run {
    /// Runs a program to its last output.
    fn of(mut command: Command, stays: bool) -> Option<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().ok()?;
        let _watched = Watched::new(child.id());
        let mut output = BufReader::new(child.stdout.take()?);
        let mut text = String::new();
        let read = if stays { output.read_line(&mut text) } else { output.read_to_string(&mut text) };
        let ended = Instant::now();
        Some(Self { child, begun, ended, silent: read.is_ok_and(|length| length == 0) })
    }

    /// Lets it go. Returns whether it has done what it should.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().is_ok_and(|status| status.success()) && !self.silent
    }
}

/// The others that are there.
fn installed() -> impl Iterator<Item = &'static Way> {
    OTHERS.iter().filter(|way| match way.name {
        "zenoh" => built("find-zenoh").exists(),
        "mdns-sd" => built("find-mdns").exists(),
        "torchrun c10d" => clean("torchrun").arg("--help").status().is_ok_and(|status| status.success()),
        _ => clean("python3").arg("--version").status().is_ok_and(|status| status.success()),
    })
}

fn floor(_job: &str, host: usize) -> Command {
    let mut command = clean(built("mingle-floor"));
    command.args([host.to_string(), WORLD.to_string()]);
    command
}

fn other(program: &str, job: &str, host: usize) -> Command {
    let mut command = clean(built(program));
    command.args([job, &host.to_string(), &WORLD.to_string()]);
    command
}

fn python(job: &str, host: usize) -> Command {
    let mut command = clean("python3");
    command.arg(script("multicast.py")).args([job, &address(host).to_string(), &WORLD.to_string()]);
    command
}

fn torchrun(job: &str, host: usize) -> Command {
    let mut command = clean("unshare");
    command.args(["--uts", "--mount", "sh"]).arg(script("torchrun.sh")).args([job, &host.to_string()]);
    command.args((0..WORLD).map(|host| address(host).to_string()));
    command
}
