//! Worlds of processes, each in its own namespace, beside the floor and alternatives.

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
/// After this long, waiting nodes send only their regular repetitions.
const SETTLED: Duration = Duration::from_millis(400);
/// The same for processes that load torch first.
const LOADED: Duration = Duration::from_secs(10);

/// A program that forms a world.
struct Contender {
    name: &'static str,
    /// The command for this job, on this host, in a world of this size.
    command: fn(&str, usize, usize) -> Command,
    /// Whether the program prints when it has found all nodes but ends later, because others may still need
    /// it.
    stays: bool,
    /// How long waiting nodes need to settle.
    settled: Duration,
    /// The program is measured in one of this many rounds, since some programs take seconds.
    every: usize,
}

const OURS: [Contender; 2] = [
    Contender { name: "floor", command: floor, stays: false, settled: SETTLED, every: 1 },
    Contender {
        name: "mingle",
        command: |job, _, world| mingle(job, world),
        stays: false,
        settled: SETTLED,
        every: 1,
    },
];

/// Without proofs of paths beside those to the master.
const STAR: Contender = Contender {
    name: "mingle --paths master",
    command: |job, _, world| {
        let mut command = mingle(job, world);
        command.args(["--paths", "master"]);
        command
    },
    stays: false,
    settled: SETTLED,
    every: 1,
};

const OTHERS: [Contender; 4] = [
    Contender { name: "multicast.py", command: python, stays: true, settled: SETTLED, every: 2 },
    Contender {
        name: "zenoh",
        command: |job, host, world| other("find-zenoh", job, host, world),
        stays: true,
        settled: SETTLED,
        every: 4,
    },
    Contender {
        name: "mdns-sd",
        command: |job, host, world| other("find-mdns", job, host, world),
        stays: true,
        settled: SETTLED,
        every: 4,
    },
    Contender { name: "torchrun c10d", command: torchrun, stays: true, settled: LOADED, every: 8 },
];

/// All four start at once: from the first start to the last output.
pub fn together(effort: Effort) -> Table {
    let lab = Lab::new(WORLD);
    let mut table =
        Table::new("together", "Four processes in namespaces start at once: from exec to the last output");
    let contenders = OURS.iter().chain(installed());
    measure(
        &mut table,
        &lab,
        contenders.collect(),
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
        Table::new("last", "Three processes wait and the fourth starts: from its exec to the last output");
    let contenders = OURS.iter().chain(installed());
    let targets = [Target::Ratio(2.0), Target::Median(4.0)];
    measure(&mut table, &lab, contenders.collect(), Some(WORLD - 1), effort.choose(4, 40), "ms", &targets);
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
        Table::new("loss", "Four processes start at once on a bridge that loses packets; no world may fail");
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

/// The time that the proof of all paths takes, in small and large worlds.
pub fn paths(effort: Effort) -> Table {
    let mut table = Table::new(
        "paths",
        "All paths are proved, or those to the master alone: processes in namespaces on one bridge start at once",
    );
    let contenders = || OURS.iter().chain([&STAR]).collect();
    for (world, rounds, unit, target) in [
        (WORLD, effort.choose(6, 60), "ms, 4 nodes", Target::Ratio(2.0)),
        (64, effort.choose(2, 20), "ms, 64 nodes", Target::Median(250.0)),
    ] {
        measure(&mut table, &Lab::new(world), contenders(), None, rounds, unit, &[target]);
    }
    table
}

/// Measures the contenders in turn, so that other load on this machine affects all of them.
fn measure(
    table: &mut Table,
    lab: &Lab,
    contenders: Vec<&'static Contender>,
    late: Option<usize>,
    rounds: usize,
    unit: &'static str,
    targets: &[Target],
) {
    let mut samples = vec![Sample::default(); contenders.len()];
    for round in 0..rounds {
        for (contender, sample) in contenders.iter().zip(&mut samples) {
            if round % contender.every == 0 {
                match form(lab, contender, &format!("{} {round}", table.name), late) {
                    Some(time) => sample.add_time(time),
                    None => table.note(format!("{}: a world of round {round} did not form.", contender.name)),
                }
            }
        }
    }
    let floor = samples[0].median();
    for (contender, sample) in contenders.iter().zip(samples) {
        let targets = if contender.name == "mingle" { targets } else { &[] };
        table.rows.push(Row::new(contender.name, unit, sample).beside(floor).targets(targets));
    }
}

/// Forms one world. `None` if a process fails.
fn form(lab: &Lab, contender: &'static Contender, job: &str, late: Option<usize>) -> Option<Duration> {
    let world = lab.len();
    let start = Arc::new(Barrier::new(world));
    let runs: Vec<_> = (0..lab.len())
        .map(|host| {
            let (start, job) = (Arc::clone(&start), job.replace(' ', "-"));
            lab.on(host, move || {
                let command = (contender.command)(&job, host, world);
                start.wait();
                if late == Some(host) {
                    thread::sleep(contender.settled);
                }
                Run::of(command, contender.stays)
            })
        })
        .collect();
    // All have found each other, or failed, before the first may end.
    let runs: Vec<_> = runs.iter().map(|run| run.recv().ok().flatten()).collect();
    let runs: Vec<Run> = runs.into_iter().collect::<Option<_>>()?;
    let begun = late.map_or_else(|| runs.iter().map(|run| run.begun).min(), |host| Some(runs[host].begun))?;
    let ended = runs.iter().map(|run| run.ended).max()?;
    let formed = runs.into_iter().filter_map(|run| run.end().then_some(())).count();
    (formed == lab.len()).then(|| ended.duration_since(begun))
}

/// A process that has written its last output.
struct Run {
    child: Child,
    begun: Instant,
    ended: Instant,
    silent: bool,
}

impl Run {
    /// Runs a program until its last output.
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

    /// Lets the process end. Returns whether it has succeeded.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().is_ok_and(|status| status.success()) && !self.silent
    }
}

/// The alternatives that are installed.
fn installed() -> impl Iterator<Item = &'static Contender> {
    OTHERS.iter().filter(|contender| match contender.name {
        "zenoh" => built("find-zenoh").exists(),
        "mdns-sd" => built("find-mdns").exists(),
        "torchrun c10d" => clean("torchrun").arg("--help").status().is_ok_and(|status| status.success()),
        _ => clean("python3").arg("--version").status().is_ok_and(|status| status.success()),
    })
}

fn floor(_job: &str, host: usize, world: usize) -> Command {
    let mut command = clean(built("mingle-floor"));
    command.args([host.to_string(), world.to_string()]);
    command
}

fn other(program: &str, job: &str, host: usize, world: usize) -> Command {
    let mut command = clean(built(program));
    command.args([job, &host.to_string(), &world.to_string()]);
    command
}

fn python(job: &str, host: usize, world: usize) -> Command {
    let mut command = clean("python3");
    command.arg(script("multicast.py")).args([job, &address(host).to_string(), &world.to_string()]);
    command
}

fn torchrun(job: &str, host: usize, world: usize) -> Command {
    let mut command = clean("unshare");
    command.args(["--uts", "--mount", "sh"]).arg(script("torchrun.sh")).args([job, &host.to_string()]);
    command.args((0..world).map(|host| address(host).to_string()));
    command
}
