//! The parent of a command that is to start again with all others where one fails.

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

/// What a command gets to know of, and that some process has ended; SIGKILL and SIGSTOP nobody gets.
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
/// Those that ask a command to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// Between two looks whether what a command has left behind is gone.
const LOOK: Duration = Duration::from_millis(20);
/// What does not die by SIGKILL in so long hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);

/// How a command's time in a world has ended.
enum After {
    /// All commands have ended well.
    Finished,
    /// The world is over, and this node goes on with the next one.
    Again,
    /// It is over for this node: the code, and what is to be said.
    GiveUp(u8, Option<String>),
}

/// Runs the command in one world after the other, until all have ended well or no restart is left.
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
        // What was said of the last world says nothing of this one.
        while events.try_recv().is_ok() {}
        let joining = Box::pin(running.again());
        assignment =
            join::watch(joining, &mut events, &mut Progress::new(config, journal), &mut signals).await?;
    }
}

/// Starts the command in a world that has formed, and stays until one of both is over.
async fn attend(
    config: &Config,
    found: &Found,
    command: &Command,
    restarts: Restarts,
    (assignment, time): (&mut Assignment, Duration),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<(RunningWorld, After), Stop> {
    let taken = assignment.running.take();
    let missing = || Stop::System("stay with the world", std::io::Error::other("it has no roster"));
    let mut running = taken.ok_or_else(missing)?;
    if running.generation() >= restarts.most {
        running.set_last();
    }
    let formation = Formation::new(config, found, assignment, journal.timings());
    let (mut child, variables, _hostfile) = match begin(config, command, &formation, &running) {
        Ok(begun) => begun,
        Err(stop) => {
            // The others' commands cannot do without this one.
            running.fail(End::Exited(stop.code().get()));
            while running.next().await != Change::Notified {}
            return Err(stop);
        }
    };
    formation.report(&variables, time);
    journal.command_started(child.id());

    let mut world = World { running, restarts, config, over: None, own: None, told: false, asked: None };
    let (mut runs, mut clears, mut kills) = (true, false, false);
    let mut limit = pin!(sleep(LONGEST));
    loop {
        tokio::select! {
            biased;
            change = world.running.next() => match change {
                Change::Finished => return Ok((world.running, After::Finished)),
                Change::Notified => world.told = true,
                Change::Over(over) => {
                    journal.over(&over);
                    world.say(&over.to_string());
                    world.over = Some(over);
                    child.signal(Signal::SIGTERM);
                    limit.set(sleep(restarts.stop_timeout.unwrap_or(LONGEST)));
                }
                _ => {}
            },
            signal = signals.next() => if signal == Signal::SIGCHLD {
                if let Some(end) = child.reap() {
                    runs = false;
                    journal.command_ended(end);
                    world.ended(end);
                }
            } else {
                child.forward(signal);
                if ENDING.contains(&signal) && world.asked.replace(signal).is_none() && !runs && !world.told {
                    // It has ended well, and waits for others: they must do without.
                    world.running.fail(End::Killed(number(signal)));
                }
            },
            () = &mut limit => {
                if kills {
                    stderr::say(format_args!("warning: what the command has left behind does not even die by SIGKILL"));
                    let after = world.after();
                    return Ok((world.running, after));
                }
                kills = true;
                child.signal(Signal::SIGKILL);
                child::signal_all(&child.left(), Signal::SIGKILL);
                limit.set(sleep(HANGS));
            }
            () = sleep(LOOK), if clears => {}
        }
        if world.told && !runs {
            let after = world.after();
            // What it has left behind would hold ports and GPUs, or is still saving what it has.
            let matters = matches!(after, After::Again) || world.over.is_some();
            let left = if matters { child.left() } else { Vec::new() };
            if left.is_empty() {
                return Ok((world.running, after));
            }
            if !std::mem::replace(&mut clears, true) {
                child::signal_all(&left, Signal::SIGTERM);
                if world.over.is_none() {
                    limit.set(sleep(restarts.stop_timeout.unwrap_or(LONGEST)));
                }
            }
        }
    }
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

/// What is known of a world in which the command runs, or has.
struct World<'a> {
    running: RunningWorld,
    restarts: Restarts,
    config: &'a Config,
    /// Why it is over, if that is another node's doing.
    over: Option<Over>,
    /// How this node's own command has failed.
    own: Option<End>,
    /// All who can be told have been.
    told: bool,
    /// The signal that has asked this node to end.
    asked: Option<Signal>,
}

impl World<'_> {
    /// The command has ended, by itself or since it had to.
    fn ended(&mut self, end: Result<(), End>) {
        self.own = end.err();
        if self.over.is_some() {
            return;
        }
        match (end, self.asked) {
            (Ok(()), None) => self.running.succeed(),
            // The others cannot go on without this node, however well it has ended.
            (Ok(()), Some(signal)) => self.running.fail(End::Killed(number(signal))),
            (Err(end), _) => {
                self.running.fail(end);
                if self.asked.is_none() {
                    self.say(&format!("the command has failed here ({end})"));
                }
            }
        }
    }

    /// With a word on what follows, for the generation that the world's end has begun.
    fn say(&self, what: &str) {
        if !self.config.quiet {
            let (next, most) = (self.running.generation(), self.restarts.most);
            if next > most {
                stderr::say(format_args!("{}", self.last(what)));
            } else {
                stderr::say(format_args!("{what}; all start again, {next} of {most}"));
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
            // As that node ends itself.
            Some(over) => After::GiveUp(code(over.end).max(1), Some(self.last(&over.to_string()))),
        }
    }
}

/// The exit code that stands for how a command has ended, as a shell has it.
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

#[expect(clippy::disallowed_methods, reason = "the real world, to which the time it took is told")]
fn now() -> Instant {
    Instant::now()
}
