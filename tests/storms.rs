//! Storms: jobs of real processes that are killed, stopped, drained and made to fail at random, at loss. A
//! checker judges them by what the commands wrote alone.

mod checker;
mod checks;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::lab::proc::{Outcome, Proc, Transcript, send_signal};
use crate::lab::random::{Random, announced_seed};
use crate::lab::{Lab, MINGLE, Options, Policy, helper, limit, setting};
use checker::{Command, History, Millis, Process, clock};

const NODES: usize = 6;
const STOP_TIMEOUT: Millis = 4_000;
const GONE_AFTER: Millis = 9_000;
/// How often a command gives a sign of life.
const BEAT: Duration = Duration::from_millis(25);
/// A command whose last sign of life is older than this does not run.
const ALIVE: Millis = 1_000;
/// A node that has started so long ago knows of the job that runs.
const KNOWS: Millis = 5_000;
/// After the trouble a world runs within this time.
const SETTLES: Millis = 30_000;
/// Once the commands may succeed all processes end within this time.
const ENDS: Millis = 20_000;

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// Waits on a quiet machine for this long.
fn scaled(quiet: Millis) -> Millis {
    limit(Duration::from_millis(quiet)).as_millis().try_into().unwrap()
}

fn pause(time: Duration) {
    thread::sleep(time);
}

/// Whether the command of this node was the first to fail twice in a row, so that the job goes on without the
/// node.
fn gives_seat(outcome: &Outcome) -> bool {
    outcome.stderr.contains("this node gives up its seat")
}

/// The command of each node: it writes what it is, when it is told to stop, and how it ends, and gives signs
/// of life in a file beside that.
#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_command() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let code = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate()).unwrap();
        let folder: PathBuf = setting("STORM_FOLDER");
        let name = format!("{}-{}", setting::<usize>("STORM_PROCESS"), std::process::id());
        let beat = fs::File::create(folder.join(format!("{name}.beat"))).unwrap();
        let live = || beat.write_all_at(now().to_string().as_bytes(), 0).unwrap();
        live();
        let mut record = fs::File::create(folder.join(format!("{name}.record"))).unwrap();
        let variables = ["MINGLE_GENERATION", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
        let [generation, rank, size, host, port] = variables.map(setting::<String>);
        // A job of which no node is left begins anew, perhaps with the same master.
        let digest: String = setting("MINGLE_ROSTER_DIGEST");
        writeln!(record, "begin {} {generation} {rank} {size} {host}:{port}#{digest:.8}", now()).unwrap();
        let (fails, all_end) = (folder.join(format!("{name}.fail")), folder.join("end"));
        let mut stops_at = None;
        let code = loop {
            tokio::select! {
                _ = term.recv() => if stops_at.is_none() {
                    stops_at = Some(now() + setting::<Millis>("STORM_STOPS"));
                    writeln!(record, "told {}", now()).unwrap();
                },
                () = tokio::time::sleep(BEAT) => {}
            }
            live();
            if stops_at.is_some_and(|at| at <= now()) {
                break 143;
            }
            if stops_at.is_none() && fails.exists() {
                break 1;
            }
            if stops_at.is_none() && all_end.exists() {
                break 0;
            }
        };
        writeln!(record, "end {} {code}", now()).unwrap();
        code
    });
    std::process::exit(code);
}

/// What one command wrote, and whether it has ended; none before it has begun.
fn read(folder: &Path, name: &str) -> Option<Command> {
    let text = fs::read_to_string(folder.join(format!("{name}.record"))).ok()?;
    let beat = fs::read_to_string(folder.join(format!("{name}.beat"))).ok()?;
    let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let first = lines.next()?;
    let ["begin", began, generation, rank, size, master] = first[..] else { return None };
    let began = began.parse().ok()?;
    let mut command = Command {
        process: name.split_once('-')?.0.parse().ok()?,
        generation: generation.parse().ok()?,
        rank: rank.parse().ok()?,
        size: size.parse().ok()?,
        master: master.to_owned(),
        began,
        told: None,
        last: beat.parse().unwrap_or(began).max(began),
        code: None,
    };
    for line in lines {
        match line[..] {
            ["told", at] => command.told = at.parse().ok(),
            ["end", at, code] => {
                command.last = at.parse().ok()?;
                command.code = code.parse().ok();
            }
            _ => {}
        }
    }
    Some(command)
}

/// All commands that have begun, with their names.
fn commands(folder: &Path) -> Vec<(String, Command)> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let names =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".record")?.to_owned()));
    names.filter_map(|name| read(folder, &name).map(|command| (name, command))).collect()
}

/// What may happen to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Kill,
    Stop,
    Drain,
    Fail,
}

/// What follows from trouble, later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Start(usize),
    Continue(usize),
}

/// A mingle that runs.
#[derive(Debug)]
struct Running {
    proc: Proc,
    /// Its place in the history.
    process: usize,
}

struct Storm {
    seed: u64,
    random: Random,
    folder: PathBuf,
    words: Vec<String>,
    secret: Option<String>,
    fewest: usize,
    lab: Lab,
    nodes: Vec<Option<Running>>,
    processes: Vec<Process>,
    transcripts: Vec<Transcript>,
    pending: Vec<(Millis, Act)>,
    kinds: Vec<Trouble>,
    broken: Vec<String>,
    troubles: usize,
    diary: Vec<String>,
}

impl Storm {
    /// Draws a storm. None where no lab can be made.
    fn new(seed: u64) -> Option<(Self, History)> {
        let mut random = Random::of(seed);
        let lab = Options::nodes(NODES).with_filters().start()?;
        // With --allow-split two worlds may run where all that know of one are stopped or dead: a person
        // judges.
        let sizes = if std::env::var_os("MINGLE_STORMS").is_some() { 3 } else { 2 };
        let (world, fewest, most) = [("4", 4, 4), ("3:5", 3, 5), ("2:6", 2, 6)][random.below(sizes)];
        let call = if fewest == most { 0 } else { 500 };
        let mut words: Vec<String> = "run -vv --max-restarts 1000 --restart-delay 0 --stop-timeout 4s \
             --gone-after 9s --last-call 500ms --job-id storm --world"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        words.push(world.to_owned());
        if world == "2:6" {
            words.push("--allow-split".to_owned());
        }
        if fewest < most && random.below(2) == 0 {
            words.push("--grow".to_owned());
        }
        let secret = (random.below(2) == 0).then(|| "a secret of the storms".to_owned());
        let loss = [0, 5, 20][random.below(3)];
        lab.set(&Policy { loss, ..Policy::default() });
        let mut kinds = vec![Trouble::Kill, Trouble::Stop, Trouble::Drain, Trouble::Fail];
        kinds.retain(|_| random.below(3) > 0);
        if kinds.is_empty() {
            kinds.push(Trouble::Kill);
        }
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("storms/{}-{seed}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let what = format!("{} {loss}% loss, {kinds:?}, secret: {}", words[14..].join(" "), secret.is_some());
        let storm = Self {
            seed,
            random,
            folder,
            words,
            secret,
            fewest,
            lab,
            nodes: (0..NODES).map(|_| None).collect(),
            processes: Vec::new(),
            transcripts: Vec::new(),
            pending: Vec::new(),
            kinds,
            broken: Vec::new(),
            troubles: 0,
            diary: vec![what],
        };
        let history = History {
            fewest: u32::try_from(fewest).unwrap(),
            most: u32::try_from(most).unwrap(),
            stop_timeout: STOP_TIMEOUT,
            gone_after: GONE_AFTER,
            call: 4 * call,
            load: 100,
            began: now(),
            ended: now(),
            processes: Vec::new(),
            commands: Vec::new(),
        };
        Some((storm, history))
    }

    fn note(&mut self, what: &str) {
        self.diary.push(format!("{} {what}", clock(now())));
    }

    /// A time below this.
    fn drawn(&mut self, below: usize) -> Millis {
        self.random.below(below).try_into().unwrap()
    }

    fn start(&mut self, node: usize) {
        let process = self.processes.len();
        let stops = if self.random.below(2) == 0 { 0 } else { self.drawn(3_000) };
        let mut command = self.lab.command(node, MINGLE);
        command.args(&self.words).arg("--").args(helper("storms::helper_command"));
        command.env("STORM_FOLDER", &self.folder).env("STORM_PROCESS", process.to_string());
        command.env("STORM_STOPS", stops.to_string());
        if let Some(secret) = &self.secret {
            command.env("MINGLE_SECRET", secret);
        }
        let proc = self.lab.start(node, command);
        self.transcripts.push(proc.transcript.clone());
        self.note(&format!("start process {process} on node{node}, pid {}, stops in {stops} ms", proc.id()));
        self.nodes[node] = Some(Running { proc, process });
        self.processes.push(Process { node, started: now(), ..Process::default() });
    }

    /// Carries out what is due, and looks which processes have ended.
    fn advance(&mut self) {
        let now = now();
        let (due, later) = self.pending.drain(..).partition(|(at, _)| *at <= now);
        self.pending = later;
        for (_, act) in due {
            self.act(act);
        }
        for node in 0..NODES {
            let has_ended = self.nodes[node].as_mut().is_some_and(|running| !running.proc.is_running());
            if has_ended && let Some(Running { proc, process }) = self.nodes[node].take() {
                let outcome = proc.finish_within(Duration::from_secs(10));
                self.processes[process].gone.get_or_insert(now);
                let code = outcome.status.code();
                self.note(&format!("process {process} on node{node} has ended with {code:?}"));
                // SIGTERM may come before the program is ready to take it.
                let has_left = code == Some(143) || outcome.status.signal() == Some(15);
                if !gives_seat(&outcome) && (self.processes[process].drained.is_none() || !has_left) {
                    self.broken.push(format!("process {process} on node{node} ends with {code:?}"));
                }
                let pause = self.drawn(3_000);
                self.pending.push((now + pause, Act::Start(node)));
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Start(node) => self.start(node),
            Act::Continue(node) => {
                let Some(Running { proc, process }) = &self.nodes[node] else { return };
                let (proc, process) = (proc.id(), *process);
                send_signal("CONT", proc);
                self.note(&format!("continue process {process} on node{node}"));
                if let Some(stop) = self.processes[process].stopped.last_mut() {
                    stop.1 = now();
                }
            }
        }
    }

    /// Whether this node has a mingle that is not stopped and not asked to leave.
    fn works(&self, node: usize) -> bool {
        let is_stopped = self.pending.iter().any(|(_, act)| *act == Act::Continue(node));
        let works = |running: &Running| self.processes[running.process].drained.is_none();
        !is_stopped && self.nodes[node].as_ref().is_some_and(works)
    }

    fn trouble(&mut self) {
        let kind = self.kinds[self.random.below(self.kinds.len())];
        let works: Vec<usize> = (0..NODES).filter(|&node| self.works(node)).collect();
        if kind != Trouble::Fail && works.len() < self.fewest.max(3) {
            return;
        }
        let Some(&node) = works.get(self.random.below(works.len().max(1))) else { return };
        let Some(Running { proc, process }) = &self.nodes[node] else { return };
        let (pid, process) = (proc.id(), *process);
        self.troubles += 1;
        self.note(&format!("{kind:?} process {process} on node{node}"));
        match kind {
            Trouble::Kill => {
                send_signal("KILL", pid);
                self.processes[process].gone = Some(now());
                self.nodes[node] = None;
                let pause = self.drawn(3_000);
                self.pending.push((now() + pause, Act::Start(node)));
            }
            Trouble::Stop => {
                send_signal("STOP", pid);
                let until = now() + 200 + self.drawn(7_800);
                self.processes[process].stopped.push((now(), until));
                self.pending.push((until, Act::Continue(node)));
            }
            Trouble::Drain => {
                send_signal("TERM", pid);
                self.processes[process].drained = Some(now());
            }
            Trouble::Fail => {
                let runs = commands(&self.folder);
                let own = |(_, command): &&(String, Command)| command.process == process && runs_now(command);
                if let Some((name, _)) = runs.iter().find(own) {
                    fs::write(self.folder.join(format!("{name}.fail")), "").unwrap();
                }
            }
        }
    }

    /// Whether one whole world runs, and no other command, and all nodes have had time to hear of it.
    fn is_settled(&self) -> bool {
        let is_young = |running: &Running| self.processes[running.process].started + KNOWS > now();
        if self.nodes.iter().any(|node| node.as_ref().is_none_or(is_young)) {
            return false;
        }
        let commands = commands(&self.folder);
        let live: Vec<&Command> = commands
            .iter()
            .map(|(_, command)| command)
            .filter(|command| command.code.is_none() && command.last + ALIVE > now())
            .collect();
        let Some(first) = live.first() else { return false };
        let one = |command: &&Command| {
            runs_now(command) && (command.generation, &command.master) == (first.generation, &first.master)
        };
        live.len() == first.size as usize && live.iter().all(one)
    }

    /// Waits until the condition holds. Returns how long that took, or none if it does not in time.
    fn wait(&mut self, most: Millis, holds: fn(&Self) -> bool) -> Option<Millis> {
        let from = now();
        while now() < from + most {
            self.advance();
            if holds(self) {
                return Some(now() - from);
            }
            pause(Duration::from_millis(50));
        }
        None
    }

    fn rage(&mut self) {
        for node in 0..NODES {
            self.start(node);
        }
        let until = now() + 15_000 + self.drawn(10_000);
        let mut next = now() + 1_000;
        while now() < until {
            self.advance();
            if now() >= next {
                self.trouble();
                next = now() + 300 + self.drawn(2_700);
            }
            pause(Duration::from_millis(20));
        }
        self.note("the trouble is over");
        for (at, _) in &mut self.pending {
            *at = 0;
        }
    }

    /// All commands may succeed, and every process ends well.
    fn end(&mut self) {
        fs::write(self.folder.join("end"), "").unwrap();
        self.note("all may succeed");
        let until = now() + scaled(ENDS);
        for node in 0..NODES {
            let Some(Running { mut proc, process }) = self.nodes[node].take() else { continue };
            while proc.is_running() && now() < until {
                pause(Duration::from_millis(20));
            }
            let told = self.processes[process].drained.is_some();
            if proc.is_running() {
                self.broken.push(format!("process {process} on node{node} does not end"));
            } else {
                let outcome = proc.finish_within(Duration::from_secs(10));
                let code = outcome.status.code();
                // What a node that was stopped has to say, it says now.
                if !gives_seat(&outcome) && code != Some(if told { 143 } else { 0 }) {
                    self.broken
                        .push(format!("process {process} on node{node} ends with {code:?} at the end"));
                }
            }
        }
    }

    /// Writes all that explains what is broken.
    fn save(&self, history: &History) {
        let text = format!("{}\n\n{}\n", self.diary.join("\n"), self.broken.join("\n"));
        fs::write(self.folder.join("diary"), text).unwrap();
        fs::write(self.folder.join("history"), format!("{history:#?}\n")).unwrap();
        for (process, transcript) in self.transcripts.iter().enumerate() {
            let node = self.processes[process].node;
            let path = self.folder.join(format!("log-{process}-node{node}"));
            fs::write(path, transcript.stderr.text()).unwrap();
        }
    }
}

fn runs_now(command: &Command) -> bool {
    command.told.is_none() && command.code.is_none() && command.last + ALIVE > now()
}

/// One storm. Returns the promises that it has broken.
fn storm(seed: u64) -> Vec<String> {
    let Some((mut storm, mut history)) = Storm::new(seed) else { return Vec::new() };
    storm.rage();
    let settled = storm.wait(scaled(SETTLES), Storm::is_settled);
    if settled.is_none() {
        storm.broken.push("no whole world after the trouble".to_owned());
    }
    history.ended = now();
    storm.end();
    // Many processes wait for a processor, but not for long: the storms themselves are many.
    history.load = scaled(100).min(200);
    history.processes.clone_from(&storm.processes);
    history.commands = commands(&storm.folder).into_iter().map(|(_, command)| command).collect();
    // What begins after the end is not judged: all succeed at once, and worlds are short.
    history.commands.retain(|command| command.began < history.ended);
    storm.broken.extend(checker::broken(&history));
    let worlds = history.commands.iter().map(|command| command.generation).max();
    let _ = writeln!(
        std::io::stderr(),
        "storm {seed}: {} troubles, {worlds:?} generations, longest gap {} ms, settled in {settled:?} ms, load {}%, \
         {} broken: {}",
        storm.troubles,
        checker::longest_gap(&history),
        history.load,
        storm.broken.len(),
        storm.diary[0],
    );
    if storm.broken.is_empty() {
        fs::remove_dir_all(&storm.folder).unwrap();
    } else {
        storm.save(&history);
        storm.broken.insert(0, format!("seed {}, all of it in {}", storm.seed, storm.folder.display()));
    }
    storm.broken
}

/// Storms from MINGLE_STORMS, so many at once.
#[test]
fn no_promise_is_broken_in_storms_of_real_processes() {
    let count = std::env::var("MINGLE_STORMS").ok().map_or(2, |text| text.parse().unwrap());
    let first = announced_seed("storms");
    let (next, broken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..count.min(4) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let found = storm(first + number);
                    for line in &found {
                        let _ = writeln!(std::io::stderr(), "{line}");
                    }
                    broken.lock().unwrap().extend(found);
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
