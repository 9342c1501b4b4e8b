//! The parent of a command. When the command of one node fails, the commands of all nodes restart.

use std::future::ready;
use std::num::NonZeroU8;
use std::pin::pin;
use std::time::Duration;

use mingle_core::env::Variables;
use mingle_core::{Assignment, Change, End, Error, Failure, RunningWorld};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::attended::{After, Attended, Wait};
use super::command::{Command, Hostfile};
use super::crew::{self, Crew, CrewMember, Mark, Worker};
use super::guard::Guard;
use super::hand_over;
use super::meeting::Meeting;
use super::row::Row;
use crate::config::{LONGEST, Restarts, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::output::Holder;
use crate::signals::Signals;
use crate::stderr;

/// The signals that are forwarded to the command, and SIGCHLD. SIGKILL and SIGSTOP cannot be caught.
const TAKEN: [Signal; 10] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGCHLD,
];
/// How often to look whether the processes that a command left behind are gone.
const LOOK: Duration = Duration::from_millis(20);

/// The parts that stay the same in all worlds of a run.
pub(super) struct Run<'a> {
    config: &'a Settings,
    found: &'a Found,
    command: &'a Command,
    /// Whether a process starts for each slot.
    workers: bool,
    mark: Mark,
}

impl<'a> Run<'a> {
    pub(super) fn new(config: &'a Settings, found: &'a Found, command: &'a Command, workers: bool) -> Self {
        Self { config, found, command, workers, mark: Mark::own() }
    }
}

/// Runs the command in one world after the other, until all commands have succeeded or no restart is left.
pub(super) fn supervise(run: &Run<'_>, restarts: Restarts, journal: &mut Journal) -> Result<(), Stop> {
    crew::adopt_orphans();
    let ended = join::block_on(run.config, supervised(run, restarts, journal));
    if let Err(Stop::Rendezvous(Error::Failed(Failure::JobFinished))) = &ended {
        // Nothing is left to do here, and that is no failure.
        if !run.config.quiet {
            stderr::say(format_args!("{}", Failure::JobFinished));
        }
        return Ok(());
    }
    ended
}

async fn supervised(run: &Run<'_>, restarts: Restarts, journal: &mut Journal) -> Result<(), Stop> {
    let config = run.config;
    let mut signals = Signals::new(&TAKEN)?;
    let mut meeting = Meeting::new((config, run.found), restarts, restarts.most);
    let (mut assignment, mut running) = meeting.join(&mut signals, journal).await?;
    let _guard = Guard::start(&run.mark, restarts.stop_timeout);
    let mut row = Row::new(restarts, config.world.is_range());
    loop {
        row.agree(assignment.formed.roster.as_ref());
        let attended = Box::pin(attend(run, row, (&assignment, running), &mut signals, journal));
        let (mut ended, after) = attended.await?;
        let end;
        (row, end) = match after {
            After::Again { row, end } => (row, end),
            After::Ends(code, message) => {
                return NonZeroU8::new(code).map_or(Ok(()), |code| Err(Stop::Ended(code, message)));
            }
        };
        join::unless_ended(pin!(pause(&mut ended, row.delay(end))), &mut signals).await?;
        (assignment, running) = meeting.again((ended, end), row.metadata(), &mut signals, journal).await?;
    }
}

/// Waits before a restart, and still answers the other nodes.
async fn pause(running: &mut RunningWorld, delay: Duration) -> Result<(), Stop> {
    let answering = async { while running.next().await != Change::Finished {} };
    tokio::select! {
        biased;
        () = sleep(delay) => {}
        () = answering => {}
    }
    Ok(())
}

/// Starts the command in a world that has formed, and stays until one of the two ends.
async fn attend(
    run: &Run<'_>,
    row: Row,
    (assignment, mut running): (&Assignment, RunningWorld),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<(RunningWorld, After), Stop> {
    running.set_restarts_left(row.left());
    let formation = Formation::new(run.config, run.found, assignment, journal.timings());
    let begun = begin(run, &formation, running.generation());
    let begun = join::unless_ended(pin!(unless_over(begun, &mut running)), signals).await;
    let (crew, _hostfile, early) = match begun {
        Ok((Some((crew, variables, hostfile)), early)) => {
            formation.report(&variables);
            (crew, hostfile, early)
        }
        Ok((None, early)) => (Crew::none(&run.mark), None, early),
        Err(stop) => {
            // The commands of the other nodes cannot go on without this one.
            let is_asked = matches!(stop, Stop::Signal(_));
            running.fail(if is_asked { End::Left } else { End::Exited(stop.code().get()) });
            while running.next().await != Change::Notified {}
            running.leave().await;
            return Err(stop);
        }
    };
    for id in crew.ids() {
        journal.command_started(id);
    }

    let mut attended = Attended::new(running, crew, row, (run.config, assignment.formed.world));
    let mut early = early.into_iter();
    let mut limit = pin!(sleep(LONGEST));
    let mut healthy = pin!(sleep(row.restarts.forget));
    loop {
        let wait = tokio::select! {
            biased;
            Some(change) = ready(early.next()) => attended.on_change(change, journal),
            change = attended.next() => attended.on_change(change, journal),
            signal = signals.next() => attended.on_signal(signal, journal),
            () = &mut limit => attended.on_limit(),
            () = &mut healthy, if !attended.is_forgotten() => attended.forget(),
            () = sleep(LOOK), if attended.is_clearing() => Wait::On,
        };
        let wait = if matches!(wait, Wait::On) { attended.after_command() } else { wait };
        match wait {
            Wait::On => {}
            Wait::AtMost(time) => limit.set(sleep(time)),
            Wait::Over(after) => return Ok(attended.end(after, signals).await),
        }
    }
}

/// Begins what this node does in the world, and collects the changes of the world meanwhile. It ends before
/// that if the world is over, so a node whose output waits for a reader holds up no other node.
pub(crate) async fn unless_over<T>(
    begun: impl Future<Output = Result<T, Stop>>,
    running: &mut RunningWorld,
) -> Result<(Option<T>, Vec<Change>), Stop> {
    let mut begun = pin!(begun);
    let mut changes = Vec::new();
    loop {
        tokio::select! {
            biased;
            begun = &mut begun => return Ok((Some(begun?), changes)),
            change = running.next() => changes.push(change),
        }
        if matches!(changes.last(), Some(Change::Over(_))) {
            return Ok((None, changes));
        }
    }
}

/// The command, started in this world.
async fn begin(
    run: &Run<'_>,
    formation: &Formation<'_>,
    generation: u32,
) -> Result<(Crew, Variables, Option<Hostfile>), Stop> {
    let variables = formation.variables(run.config.format)?;
    formation.write_outputs(Holder::own()).await?;
    let hostfile = run.command.hostfile(formation)?;
    let member = |worker| {
        let file = hostfile.as_ref();
        let command = run.command.in_world(formation, &variables, Some(generation), worker, file)?;
        Ok::<_, Stop>(CrewMember { command, worker })
    };
    let slots = formation.assignment.formed.slots;
    let worker = |local_rank| Some(Worker { rank: slots.before + u64::from(local_rank), local_rank });
    let members = if run.workers {
        (0..slots.own).map(|local_rank| member(worker(local_rank))).collect::<Result<_, _>>()?
    } else {
        vec![member(None)?]
    };
    let _inherited = hand_over(run.config)?;
    let crew = Crew::start(members, &run.mark, |error| run.command.failed(error))?;
    Ok((crew, variables, hostfile))
}
