//! The promises of a job that goes on, checked from what its commands wrote and what the storm did.
//!
//! Nothing here knows of mingle's messages or logs. All times are milliseconds since the epoch of the host's
//! clock, which all nodes of a lab share.

use std::collections::{BTreeMap, BTreeSet};

/// Of the host's clock.
pub(super) type Millis = u64;

/// The inaccuracy of a record: a heartbeat each 25 ms, and the time until a process runs.
const BLUR: Millis = 250;
/// The longest time in which a node that lives, or lives again, learns that a world is over.
const HEARS: Millis = 3_000;
/// The longest time without a running world that has no other cause.
const GAP: Millis = 5_000;
/// The time after --gone-after until a silent node is missed.
const NOTICES: Millis = 12_000;

/// What one command wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// The mingle that started it, as a place in [`History::processes`].
    pub(super) process: usize,
    pub(super) generation: u32,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) master: String,
    pub(super) began: Millis,
    /// When it got SIGTERM.
    pub(super) told: Option<Millis>,
    /// Its last sign of life.
    pub(super) last: Millis,
    pub(super) code: Option<i32>,
}

/// What the storm did to one mingle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) started: Millis,
    /// SIGKILL, or the end after SIGTERM.
    pub(super) gone: Option<Millis>,
    pub(super) drained: Option<Millis>,
    /// From SIGSTOP to SIGCONT.
    pub(super) stopped: Vec<(Millis, Millis)>,
}

impl Process {
    fn is_gone(&self, at: Millis) -> bool {
        self.gone.is_some_and(|gone| gone <= at)
    }

    /// The end of the latest stop that touches this span.
    fn stopped_in(&self, from: Millis, to: Millis) -> Option<Millis> {
        self.stopped.iter().filter(|stop| stop.0 <= to && stop.1 >= from).map(|stop| stop.1).max()
    }

    fn can_work(&self, at: Millis) -> bool {
        self.started <= at
            && !self.is_gone(at)
            && self.drained.is_none_or(|drained| at < drained)
            && self.stopped_in(at, at).is_none()
    }
}

/// A storm, from its beginning to the moment at which its commands were allowed to succeed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct History {
    pub(super) fewest: u32,
    pub(super) most: u32,
    pub(super) stop_timeout: Millis,
    pub(super) gone_after: Millis,
    /// The longest wait for one node more.
    pub(super) call: Millis,
    /// How much slower than a quiet machine this one is, in percent of that.
    pub(super) load: u64,
    pub(super) began: Millis,
    pub(super) ended: Millis,
    pub(super) processes: Vec<Process>,
    pub(super) commands: Vec<Command>,
}

/// The commands of one world, by their places in [`History::commands`].
#[derive(Debug)]
struct World<'a> {
    commands: Vec<&'a Command>,
}

impl World<'_> {
    fn began(&self) -> Millis {
        self.commands.iter().map(|command| command.began).min().unwrap_or_default()
    }

    fn name(&self) -> String {
        let Command { generation, master, began, .. } = self.commands[0];
        format!("the world of generation {generation} at {master}, begun {}", clock(*began))
    }

    fn is_complete(&self) -> bool {
        let ranks: BTreeSet<u32> = self.commands.iter().map(|command| command.rank).collect();
        ranks.len() == self.commands[0].size as usize
    }
}

/// As the logs of mingle write it.
pub(super) fn clock(at: Millis) -> String {
    let seconds = at / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60, at % 1000)
}

/// All promises that this history breaks.
pub(super) fn broken(history: &History) -> Vec<String> {
    let worlds = worlds(history);
    let mut found = history.two_worlds(&worlds);
    found.extend(history.two_first_ranks());
    found.extend(worlds.iter().flat_map(|world| history.faults_of(world)));
    found.extend(history.gaps(&worlds));
    found.extend(history.generations(&worlds));
    found
}

/// The worlds in the order of their beginnings, and the commands of each in theirs.
fn worlds(history: &History) -> Vec<World<'_>> {
    let mut keyed: BTreeMap<(u32, &str), Vec<&Command>> = BTreeMap::new();
    for command in &history.commands {
        keyed.entry((command.generation, &command.master)).or_default().push(command);
    }
    let mut worlds: Vec<World<'_>> = keyed.into_values().map(|commands| World { commands }).collect();
    for world in &mut worlds {
        world.commands.sort_by_key(|command| command.began);
    }
    worlds.sort_by_key(World::began);
    worlds
}

impl History {
    fn scaled(&self, quiet: Millis) -> Millis {
        quiet * self.load.max(100) / 100
    }

    fn process(&self, command: &Command) -> &Process {
        &self.processes[command.process]
    }

    fn describe(&self, command: &Command) -> String {
        let Command { rank, size, generation, master, began, told, last, code, process } = command;
        let told = told.map_or_else(String::new, |told| format!(", told {}", clock(told)));
        let code = code.map_or_else(String::new, |code| format!(" with {code}"));
        format!(
            "rank {rank} of {size} in {generation} at {master} on node{} (process {process}; {}{told} to {}{code})",
            self.processes[*process].node,
            clock(*began),
            clock(*last),
        )
    }

    /// (1) Commands of two worlds never live at once, but for those that are being stopped.
    fn two_worlds(&self, worlds: &[World<'_>]) -> Vec<String> {
        let mut found = Vec::new();
        for (i, earlier) in worlds.iter().enumerate() {
            for later in &worlds[i + 1..] {
                for old in &earlier.commands {
                    // The first command of the later world that it meets says all.
                    let meets = |new: &&&Command| new.began + BLUR < old.last && old.began < new.last;
                    if let Some(new) =
                        later.commands.iter().filter(meets).find(|new| !self.may_meet(old, new))
                    {
                        found.push(format!(
                            "two worlds at once: {} and {}",
                            self.describe(old),
                            self.describe(new)
                        ));
                    }
                }
            }
        }
        found
    }

    /// Whether a command of an earlier world may live beside this one of a later world.
    fn may_meet(&self, old: &Command, new: &Command) -> bool {
        let process = self.process(old);
        let stops = self.stop_timeout + self.scaled(1_000);
        if let Some(on) = process.stopped_in(old.began.saturating_sub(HEARS), old.last) {
            // Nobody could tell it.
            return old.last <= on.max(new.began) + self.scaled(HEARS) + stops;
        }
        let told = match (old.told, process.gone) {
            (Some(told), Some(gone)) => Some(told.min(gone)),
            (told, gone) => told.or(gone),
        };
        told.is_some_and(|told| told <= new.began.max(old.began) + BLUR && old.last <= told + stops)
    }

    /// (2) The ports of a rank 0 are free before the next one begins.
    fn two_first_ranks(&self) -> Vec<String> {
        let mut firsts: Vec<&Command> = self.commands.iter().filter(|command| command.rank == 0).collect();
        firsts.sort_by_key(|command| command.began);
        let mut found = Vec::new();
        for (i, new) in firsts.iter().enumerate() {
            for old in firsts[..i].iter().filter(|old| new.began + BLUR < old.last) {
                let process = self.process(old);
                let waited = old.told.is_some_and(|told| told + self.stop_timeout <= new.began + BLUR);
                let silent = process.stopped_in(new.began.saturating_sub(self.scaled(HEARS)), new.began);
                if !waited && silent.is_none() && !process.is_gone(new.began) {
                    found.push(format!(
                        "two first ranks at once: {} and {}",
                        self.describe(old),
                        self.describe(new)
                    ));
                }
            }
        }
        found
    }

    /// (3) Each rank once, all of one mind, and no world that stays incomplete.
    fn faults_of(&self, world: &World<'_>) -> Vec<String> {
        let mut found = Vec::new();
        let size = world.commands[0].size;
        let all =
            || world.commands.iter().map(|command| self.describe(command)).collect::<Vec<_>>().join("; ");
        let ranks: BTreeSet<u32> = world.commands.iter().map(|command| command.rank).collect();
        if ranks.len() != world.commands.len() {
            found.push(format!("a rank twice: {}", all()));
        }
        if world.commands.iter().any(|command| command.size != size || command.rank >= size) {
            found.push(format!("not of one size: {}", all()));
        }
        if !(self.fewest..=self.most).contains(&size) {
            found.push(format!("a size that nobody asked for: {}", all()));
        }
        let until = world.began() + self.scaled(HEARS);
        let silent = |(place, process): (usize, &Process)| {
            let is_in = world.commands.iter().any(|command| command.process == place);
            !is_in && process.stopped_in(world.began().saturating_sub(HEARS), until).is_some()
        };
        let waits_for_silent = self.processes.iter().enumerate().any(silent);
        if !world.is_complete() && !waits_for_silent && until < self.ended {
            let lives = |command: &&&Command| self.works_until(command) > until;
            if let Some(command) = world.commands.iter().find(lives) {
                found.push(format!(
                    "an incomplete world goes on: {}; all: {}",
                    self.describe(command),
                    all()
                ));
            }
        }
        found
    }

    /// When this command ended, was told to, or lost its mingle.
    fn works_until(&self, command: &Command) -> Millis {
        let process = self.process(command);
        let stop = process.stopped.iter().map(|stop| stop.0).find(|&from| from >= command.began);
        let ends = [command.told, process.gone, stop];
        ends.into_iter().flatten().fold(command.last, Millis::min)
    }

    /// (4) Some world runs, but for the times that have a cause.
    fn gaps(&self, worlds: &[World<'_>]) -> Vec<String> {
        self.without(worlds).into_iter().filter_map(|(from, to)| self.gap(from, to)).collect()
    }

    /// The spans without a complete world. A stopped mingle ends no world.
    fn without(&self, worlds: &[World<'_>]) -> Vec<(Millis, Millis)> {
        let mut spans = Vec::new();
        let mut from = self.began;
        for world in worlds.iter().filter(|world| world.is_complete()) {
            let begins = world.commands.iter().map(|command| command.began).max().unwrap_or_default();
            let end = |command: &&Command| command.told.unwrap_or(command.last).min(command.last);
            let ends = world.commands.iter().map(end).min().unwrap_or_default();
            spans.push((from, begins.max(from)));
            from = from.max(ends);
        }
        spans.push((from, self.ended.max(from)));
        spans
    }

    fn gap(&self, from: Millis, to: Millis) -> Option<String> {
        const STEP: Millis = 20;
        let (mut few, mut stopping) = (0, 0);
        for at in (from..to).step_by(20) {
            let works = self.processes.iter().filter(|process| process.can_work(at)).count();
            let stops = |command: &Command| command.told.is_some_and(|told| told <= at) && at <= command.last;
            if works < self.fewest as usize {
                few += STEP;
            } else if self.commands.iter().any(stops) {
                stopping += STEP;
            }
        }
        let is_silent = |process: &Process| {
            process.stopped_in(from.saturating_sub(self.gone_after + NOTICES), to).is_some()
        };
        let silent = if self.processes.iter().any(is_silent) { self.gone_after + NOTICES } else { 0 };
        let allowed = self.scaled(GAP) + self.call + few + stopping + silent;
        let is_broken = to.saturating_sub(from) > allowed;
        is_broken.then(|| {
            format!(
                "no world from {} to {}, {} ms ({few} with too few nodes, {stopping} with commands that stop, \
                 {silent} for silent nodes, {allowed} allowed)",
                clock(from),
                clock(to),
                to - from
            )
        })
    }

    /// (5) Generations only go up while a node is left that knows the last one.
    fn generations(&self, worlds: &[World<'_>]) -> Vec<String> {
        let mut found = Vec::new();
        for pair in worlds.windows(2) {
            let [old, new] = pair else { continue };
            let knows = |command: &&Command| !self.process(command).is_gone(new.began());
            let is_known = old.commands.iter().any(knows);
            if is_known && new.commands[0].generation <= old.commands[0].generation {
                found.push(format!("generations go back: {} comes after {}", new.name(), old.name()));
            }
        }
        found
    }
}

/// The longest time without a running world.
pub(super) fn longest_gap(history: &History) -> Millis {
    let gaps = history.without(&worlds(history));
    gaps.iter().map(|(from, to)| to - from).max().unwrap_or_default()
}
