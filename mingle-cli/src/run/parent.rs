//! The parent of a command that restarts with the commands of all nodes when one fails.

use std::num::NonZeroU8;
use std::pin::pin;
use std::time::{Duration, Instant};

use mingle_core::env::Variables;
use mingle_core::proto::Over;
use mingle_core::{Assignment, Change, End, RunningWorld};
use nix::sys::signal::Signal;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

use super::child::{self, Child};
use super::command::{Command, Hostfile};
use crate::config::{Config, LONGEST, Restarts};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{join, stderr};

/// The signals that are forwarded to the command, and SIGCHLD. SIGKILL and SIGSTOP cannot be caught.
const TAKEN: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCHLD,
];
/// The signals that ask a command to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// How often to look whether the processes that a command left behind are gone.
const LOOK: Duration = Duration::from_millis(20);
/// A process that survives SIGKILL for this long hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);

/// The next step after the command, or its world, has ended.
enum After {
    /// All commands have succeeded.
    Finished,
    /// The world has ended, and this node restarts with the next one.
    Again,
    /// This node ends with this exit code, and this message.
    GiveUp(u8, Option<String>),
}

/// Runs the command in one world after the other, until all commands have succeeded or no restart is left.
pub(super) fn supervise(
    config: &Config,
    found: &Found,
    command: &Command,
    restarts: Restarts,
    started: Instant,
    journal: &mut Journal,
) -> Result<(), Stop> {
    child::adopt_orphans();
    let runtime = join::runtime()?;
    let ended = runtime.block_on(supervised(config, found, command, restarts, started, journal));
    runtime.shutdown_background();
    ended.inspect_err(|stop| join::explain(stop, config))
}

async fn supervised(
    config: &Config,
    found: &Found,
    command: &Command,
    restarts: Restarts,
    mut started: Instant,
    journal: &mut Journal,
) -> Result<(), Stop> {
    let mut signals = Signals::new(&TAKEN)?;
    let (sender, mut events) = unbounded_channel();
    let joining = Box::pin(
        config.rendezvous().fabric(found.summary).events(move |event| drop(sender.send(event))).join(),
    );
    let mut progress = Progress::new(config, journal);
    let mut assignment = join::watch(joining, &mut events, &mut progress, &mut signals).await?;
    drop(progress);
    loop {
        let time = started.elapsed();
        let (running, after) =
            attend(config, found, command, restarts, (&mut assignment, time), &mut signals, journal).await?;
        match after {
            After::Finished => {
                journal.finished();
                return Ok(());
            }
            After::GiveUp(code, message) => {
                return NonZeroU8::new(code).map_or(Ok(()), |code| Err(Stop::Ended(code, message)));
            }
            After::Again => {}
        }
        started = now();
        journal.restart(running.generation(), started);
        // Events of the last world do not belong to the next one.
        while events.try_recv().is_ok() {}
        let joining = Box::pin(running.again());
        assignment =
            join::watch(joining, &mut events, &mut Progress::new(config, journal), &mut signals).await?;
    }
}

/// Starts the command in a world that has formed, and stays until one of the two ends.
async fn attend(
    config: &Config,
    found: &Found,
    command: &Command,
    restarts: Restarts,
    (assignment, time): (&mut Assignment, Duration),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<(RunningWorld, After), Stop> {
    let running = assignment.running.take();
    let missing = || Stop::System("stay with the world", std::io::Error::other("it has no roster"));
    let mut running = running.ok_or_else(missing)?;
    if running.generation() >= restarts.most {
        running.set_last();
    }
    let formation = Formation::new(config, found, assignment, journal.timings());
    let (child, variables, _hostfile) = match begin(config, command, &formation, &running) {
        Ok(begun) => begun,
        Err(stop) => {
            // The commands of the other nodes cannot go on without this one.
            running.fail(End::Exited(stop.code().get()));
            while running.next().await != Change::Notified {}
            return Err(stop);
        }
    };
    formation.report(&variables, time);
    journal.command_started(child.id());

    let mut attended = Attended::new(running, child, restarts, config);
    let mut limit = pin!(sleep(LONGEST));
    loop {
        let wait = tokio::select! {
            biased;
            change = attended.running.next() => match change {
                Change::Finished => return Ok((attended.running, After::Finished)),
                change => attended.on_change(change, journal),
            },
            signal = signals.next() => {
                attended.on_signal(signal, journal);
                Wait::On
            }
            () = &mut limit => attended.on_limit(),
            () = sleep(LOOK), if attended.is_clearing => Wait::On,
        };
        let wait = if matches!(wait, Wait::On) { attended.after_command() } else { wait };
        match wait {
            Wait::On => {}
            Wait::AtMost(time) => limit.set(sleep(time)),
            Wait::Over(after) => return Ok((attended.running, after)),
        }
    }
}

/// How long the parent goes on waiting.
enum Wait {
    /// As long as before.
    On,
    /// At most this long from now.
    AtMost(Duration),
    /// No longer.
    Over(After),
}

/// The command, started in this world.
fn begin(
    config: &Config,
    command: &Command,
    formation: &Formation<'_>,
    running: &RunningWorld,
) -> Result<(Child, Variables, Option<Hostfile>), Stop> {
    let variables = formation.variables(config.format)?;
    formation.write_outputs()?;
    let (mut process, hostfile) = command.in_world(formation, &variables, Some(running.generation()))?;
    let child = Child::start(&mut process).map_err(|error| command.not_started(error))?;
    Ok((child, variables, hostfile))
}

/// A world in which the command runs, or has run.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Attended<'a> {
    running: RunningWorld,
    child: Child,
    restarts: Restarts,
    config: &'a Config,
    /// Whether the command still runs.
    runs: bool,
    /// Why the world ended, where another node has ended it.
    over: Option<Over>,
    /// How this node's own command has failed.
    own: Option<End>,
    /// Whether all nodes that can be notified of the end have been.
    is_told: bool,
    /// The signal that has asked this node to end.
    asked: Option<Signal>,
    /// Whether the processes that the command left behind are being stopped.
    is_clearing: bool,
    /// Whether SIGKILL has been sent.
    has_killed: bool,
}

impl<'a> Attended<'a> {
    fn new(running: RunningWorld, child: Child, restarts: Restarts, config: &'a Config) -> Self {
        Self {
            running,
            child,
            restarts,
            config,
            runs: true,
            over: None,
            own: None,
            is_told: false,
            asked: None,
            is_clearing: false,
            has_killed: false,
        }
    }

    fn on_change(&mut self, change: Change, journal: &mut Journal) -> Wait {
        match change {
            Change::Notified => self.is_told = true,
            Change::Over(over) => {
                journal.over(&over);
                self.say(&over.to_string());
                self.over = Some(over);
                self.child.signal(Signal::SIGTERM);
                return Wait::AtMost(self.stop_timeout());
            }
            _ => {}
        }
        Wait::On
    }

    fn on_signal(&mut self, signal: Signal, journal: &mut Journal) {
        if signal == Signal::SIGCHLD {
            if let Some(end) = self.child.reap() {
                self.runs = false;
                journal.command_ended(end);
                self.ended(end);
            }
            return;
        }
        self.child.forward(signal);
        if ENDING.contains(&signal) && self.asked.replace(signal).is_none() && !self.runs && !self.is_told {
            // The command has succeeded and waits for those of other nodes, which must go on without it.
            self.running.fail(End::Killed(number(signal)));
        }
    }

    /// The command, or a process that it left behind, has taken too long to stop.
    fn on_limit(&mut self) -> Wait {
        if self.has_killed {
            stderr::say(format_args!("warning: a process that the command left behind survives SIGKILL"));
            return Wait::Over(self.after());
        }
        self.has_killed = true;
        self.child.signal(Signal::SIGKILL);
        child::signal_all(&self.child.left(), Signal::SIGKILL);
        Wait::AtMost(HANGS)
    }

    /// Stops what the command left behind, once the command has ended here and the other nodes know.
    fn after_command(&mut self) -> Wait {
        if !self.is_told || self.runs {
            return Wait::On;
        }
        let after = self.after();
        // Processes left behind would hold ports and GPUs, or are still saving their state.
        let matters = matches!(after, After::Again) || self.over.is_some();
        let left = if matters { self.child.left() } else { Vec::new() };
        if left.is_empty() {
            return Wait::Over(after);
        }
        if std::mem::replace(&mut self.is_clearing, true) {
            return Wait::On;
        }
        child::signal_all(&left, Signal::SIGTERM);
        if self.over.is_none() { Wait::AtMost(self.stop_timeout()) } else { Wait::On }
    }

    fn stop_timeout(&self) -> Duration {
        self.restarts.stop_timeout.unwrap_or(LONGEST)
    }

    /// The command has ended, by itself or because it was stopped.
    fn ended(&mut self, end: Result<(), End>) {
        self.own = end.err();
        if self.over.is_some() {
            return;
        }
        match (end, self.asked) {
            (Ok(()), None) => self.running.succeed(),
            // The other nodes cannot go on without this one, even though its command has succeeded.
            (Ok(()), Some(signal)) => self.running.fail(End::Killed(number(signal))),
            (Err(end), _) => {
                self.running.fail(end);
                if self.asked.is_none() {
                    self.say(&format!("the command has failed here ({end})"));
                }
            }
        }
    }

    /// Prints the message and what follows: the generation has counted the end of the world already.
    fn say(&self, what: &str) {
        if !self.config.quiet {
            let (next, most) = (self.running.generation(), self.restarts.most);
            if next > most {
                stderr::say(format_args!("{}", self.last(what)));
            } else {
                stderr::say(format_args!("{what}; all commands restart, {next} of {most}"));
            }
        }
    }

    fn last(&self, what: &str) -> String {
        format!("{what}; no restart is left of --max-restarts {}", self.restarts.most)
    }

    fn after(&self) -> After {
        let own = self.own.map_or(0, code);
        if self.asked.is_some() {
            return After::GiveUp(own, None);
        }
        if self.running.generation() <= self.restarts.most {
            return After::Again;
        }
        match &self.over {
            None => After::GiveUp(own, None),
            // The exit code with which that node ends as well.
            Some(over) => After::GiveUp(code(over.end).max(1), Some(self.last(&over.to_string()))),
        }
    }
}

/// The exit code for the end of a command, as a shell gives it.
fn code(end: End) -> u8 {
    match end {
        End::Exited(code) => code,
        End::Killed(signal) => 128_u8.saturating_add(signal),
        _ => 1,
    }
}

fn number(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "the start of the time that the final message reports")]
fn now() -> Instant {
    Instant::now()
}
