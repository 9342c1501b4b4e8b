//! The parent of a command. When the command of one node fails, the commands of all nodes restart.

use std::num::NonZeroU8;
use std::time::Duration;

use mingle_core::{Assignment, End, Error, Failure, Session};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use tokio::time::{sleep, sleep_until};

use super::attended::{After, Attended};
use super::command::Command;
use super::crew::{Crew, Mark, Worker};
use super::guard::Guard;
use super::hand_over;
use crate::config::Settings;
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::signals::Signals;
use crate::stderr;

/// The signals that are forwarded to the command, and SIGCHLD. SIGTSTP is not among them: for Ctrl-Z the
/// kernel stops the command as well, which is in the same process group.
const TAKEN: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGCHLD,
];
/// How often to look whether the processes that a command left behind are gone, and its output is written.
const LOOK: Duration = Duration::from_millis(20);

/// The parts that stay the same in all worlds of a run.
pub(super) struct Run<'a> {
    pub(super) config: &'a Settings,
    pub(super) command: &'a Command,
    /// Whether a process starts for each slot.
    pub(super) workers: bool,
    pub(super) mark: Mark,
}

/// Runs the command in one world after the other, until all commands have succeeded or no restart is left.
pub(super) fn supervise(run: &Run<'_>, found: Found, journal: &mut Journal) -> Result<(), Stop> {
    // The parent of processes that its children leave behind, as PID 1 is. If this fails, another process
    // reaps the zombies.
    let _ = prctl::set_child_subreaper(true);
    let ended = join::block_on(run.config, supervised(run, found, journal));
    journal.sum();
    if let Err(Stop::Rendezvous(Error::Failed(Failure::JobFinished))) = &ended {
        // Nothing is left to do here, and that is no failure.
        stderr::say(format_args!("{}", Failure::JobFinished));
        return Ok(());
    }
    ended
}

async fn supervised(run: &Run<'_>, mut found: Found, journal: &mut Journal) -> Result<(), Stop> {
    let mut signals = Signals::new(&TAKEN)?;
    let mut session = run.config.session();
    let mut guard = None;
    loop {
        let assignment = join::meet(&mut session, run.config, journal, &mut signals).await?;
        guard.get_or_insert_with(|| Guard::start(&run.mark, run.config.rendezvous.stop_timeout));
        let attended = Box::pin(attend(run, &found, (assignment, &mut session), &mut signals, journal));
        if let After::Ends(code) = attended.await? {
            return NonZeroU8::new(code).map_or(Ok(()), |code| Err(Stop::Ended(code, None)));
        }
        found.renew(run.config, &mut session);
    }
}

/// Starts the command in a world that has formed, and stays until one of the two ends.
async fn attend(
    run: &Run<'_>,
    found: &Found,
    (assignment, session): (Assignment, &mut Session),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<After, Stop> {
    let crew = match begin(run, found, (assignment, session.generation()), signals, journal).await {
        Ok(crew) => crew,
        Err(stop) => {
            // The commands of the other nodes cannot go on without this one.
            let is_asked = matches!(stop, Stop::Signal(_));
            session.leave(if is_asked { End::Left } else { End::Exited(stop.code().get()) }).await;
            return Err(stop);
        }
    };
    for id in crew.ids() {
        journal.command_started(id);
    }

    let mut attended = Attended::new(session, crew, run);
    // What was left behind may have ended while this world formed, when nothing listened to that.
    attended.on_signal(Signal::SIGCHLD, journal);
    loop {
        tokio::select! {
            biased;
            happening = attended.session.next(), if attended.ended.is_none() => {
                attended.hear(&happening?, journal);
            }
            signal = signals.next() => attended.on_signal(signal, journal),
            () = sleep_until(attended.limit) => attended.on_limit(),
            () = sleep(LOOK), if attended.is_clearing || attended.flushes.is_some() => {}
        }
        if let Some(after) = attended.after_command()
            && attended.has_written()
        {
            match after {
                After::Stopped => attended.session.stopped(),
                After::Ends(_) => attended.session.leave(End::Left).await,
            }
            return Ok(attended.in_the_end(after));
        }
    }
}

/// The command, started in this world, unless a signal has arrived before.
async fn begin(
    run: &Run<'_>,
    found: &Found,
    (assignment, generation): (Assignment, u32),
    signals: &mut Signals,
    journal: &Journal,
) -> Result<Crew, Stop> {
    let formation = Formation::new(run.config, found, assignment, journal)?;
    formation.write_outputs()?;
    if let Some(signal) = signals.arrived().await {
        return Err(Stop::Signal(signal));
    }
    let slots = formation.assignment.formed.slots;
    let worker = |local_rank| Some(Worker { rank: slots.before + u64::from(local_rank), local_rank });
    let workers = if run.workers { (0..slots.own).map(worker).collect() } else { vec![None] };
    let members = workers.into_iter().map(|worker| {
        let command = run.command.in_world(&formation, Some(generation), worker)?;
        Ok((command, worker))
    });
    let members = members.collect::<Result<_, Stop>>()?;
    let _inherited = hand_over(run.config)?;
    let crew = Crew::start(members, &run.mark, |error| run.command.failed(error))?;
    formation.report();
    Ok(crew)
}
