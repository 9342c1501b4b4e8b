//! Reacts to changes of the world, to signals, and to ends of processes: while the command runs, and until
//! the processes that it left behind have stopped.

use std::time::Duration;

use mingle_core::{Change, End, Happening, Session};
use nix::sys::signal::Signal;
use tokio::select;
use tokio::time::{Instant, sleep};

use super::crew::{self, Crew, FirstFailure};
use super::parent::Run;
use crate::events::Journal;
use crate::exit::of_command;
use crate::signals::{ENDING, Signals};
use crate::{advice, join, stderr};

/// A process that survives SIGKILL for this long hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);
/// How long to wait for the rest of the workers' output while a process that they started keeps their pipes
/// open.
const FLUSH: Duration = Duration::from_secs(1);
/// How often to check whether a reader still holds the output up.
const AGAIN: Duration = Duration::from_millis(50);

/// The next step after the command, or its world, has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    /// The session says what follows: a restart, or its end.
    Stopped,
    /// This node ends with this exit code.
    Ends(u8),
}

/// How long the parent goes on waiting.
pub(super) enum Wait {
    /// As long as before.
    On,
    /// At most this long from now.
    AtMost(Duration),
    /// No longer.
    Over(After),
}

/// A world in which the command runs, or has run.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct Attended<'a> {
    pub(super) session: &'a mut Session,
    crew: Crew,
    run: &'a Run<'a>,
    /// Whether another node has ended the world.
    is_over: bool,
    /// Whether all nodes that can be notified of the end have been.
    is_notified: bool,
    /// The signal that has asked this node to end.
    asked: Option<Signal>,
    /// Whether the processes that the command left behind are being stopped.
    pub(super) is_clearing: bool,
    /// Whether SIGKILL has been sent.
    has_killed: bool,
}

impl<'a> Attended<'a> {
    pub(super) fn new(session: &'a mut Session, crew: Crew, run: &'a Run<'a>) -> Self {
        Self {
            session,
            crew,
            run,
            is_over: false,
            is_notified: false,
            asked: None,
            is_clearing: false,
            has_killed: false,
        }
    }

    /// Ends this world here once the workers' output is written. A signal ends the wait for that, and so does
    /// [`FLUSH`], unless a slow reader holds the output up.
    pub(super) async fn end(self, after: After, signals: &mut Signals) -> After {
        if let Some(relay) = &self.crew.relay {
            let ends = Instant::now() + FLUSH;
            while relay.is_busy() || Instant::now() < ends {
                select! {
                    biased;
                    () = relay.done() => break,
                    () = sleep(AGAIN) => {}
                    _ = signals.ending() => break,
                }
            }
        }
        match after {
            After::Stopped => self.session.stopped(),
            After::Ends(_) => self.session.leave(End::Left).await,
        }
        after
    }

    pub(super) fn hear(&mut self, happening: &Happening, journal: &mut Journal) -> Wait {
        join::tell(self.session, happening, self.run.config, journal);
        match happening {
            Happening::Running(Change::Finished) => return Wait::Over(After::Ends(0)),
            Happening::Running(Change::Notified) => self.is_notified = true,
            Happening::Running(Change::Over(_)) => {
                self.is_over = true;
                return self.terminate();
            }
            _ => {}
        }
        Wait::On
    }

    pub(super) fn on_signal(&mut self, signal: Signal, journal: &mut Journal) -> Wait {
        match signal {
            Signal::SIGCHLD => return self.on_child(journal),
            Signal::SIGTERM => self.crew.terminate(),
            _ => self.crew.forward(signal),
        }
        if !ENDING.contains(&signal) || self.asked == Some(Signal::SIGTERM) {
            return Wait::On;
        }
        self.asked = Some(signal);
        if !self.crew.runs() {
            self.session.fail(End::Left);
        }
        // A command may go on after Ctrl-C, as a debugger does, and then ends in its own time.
        if signal != Signal::SIGTERM {
            return Wait::On;
        }
        if !self.run.config.quiet {
            stderr::say(format_args!("SIGTERM: this node leaves the world once its command has stopped"));
        }
        Wait::AtMost(self.run.config.rendezvous.stop_timeout)
    }

    /// The command, or a process that it left behind, has taken too long to stop.
    pub(super) fn on_limit(&mut self) -> Wait {
        if self.has_killed {
            stderr::say(format_args!("warning: a process that the command left behind survives SIGKILL"));
            return Wait::Over(self.after());
        }
        self.has_killed = true;
        self.crew.signal(Signal::SIGKILL);
        crew::signal_all(&self.crew.left(), Signal::SIGKILL);
        Wait::AtMost(HANGS)
    }

    /// Stops the processes that the command left behind, once it has ended and the other nodes know that.
    pub(super) fn after_command(&mut self) -> Wait {
        if !self.is_notified || self.crew.runs() {
            return Wait::On;
        }
        let after = self.after();
        // Processes left behind would hold ports and GPUs, or are still saving their state.
        let matters = matches!(after, After::Stopped) && self.session.outlook().is_restart() || self.is_over;
        let left = if matters { self.crew.left() } else { Vec::new() };
        if left.is_empty() {
            return Wait::Over(after);
        }
        if std::mem::replace(&mut self.is_clearing, true) {
            return Wait::On;
        }
        crew::signal_all(&left, Signal::SIGTERM);
        if self.is_over { Wait::On } else { Wait::AtMost(self.run.config.rendezvous.stop_timeout) }
    }

    fn terminate(&self) -> Wait {
        self.crew.terminate();
        Wait::AtMost(self.run.config.rendezvous.stop_timeout)
    }

    /// Reaps the processes that have ended: those of the command, and adopted ones.
    fn on_child(&mut self, journal: &mut Journal) -> Wait {
        let (had_run, had_failed) = (self.crew.runs(), self.crew.failure.is_some());
        self.crew.reap();
        if !had_run {
            return Wait::On;
        }
        let (runs, failure) = (self.crew.runs(), self.crew.failure);
        let is_first = failure.is_some() && !had_failed;
        if !runs {
            journal.command_ended(failure.map_or(End::Exited(0), |failed| failed.end));
        }
        if is_first || !runs && !had_failed {
            self.ended(failure, journal);
        }
        let is_stopping = self.is_over || self.asked == Some(Signal::SIGTERM);
        if is_first && runs && !is_stopping {
            return self.terminate();
        }
        Wait::On
    }

    /// The command has ended, by itself or because it was stopped.
    fn ended(&mut self, failure: Option<FirstFailure>, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        match (failure, self.asked) {
            (None, None) => self.session.succeed(),
            // The other nodes cannot go on without this one, even though its command has succeeded.
            (_, Some(_)) => self.session.fail(End::Left),
            (Some(FirstFailure { end, worker }), None) => {
                self.session.fail(end);
                let what = worker.map_or("the command".to_owned(), |rank| format!("worker {rank}"));
                let what = format!("{what} has failed here ({end})");
                journal.lost(&what);
                if !self.run.config.quiet {
                    let sentence = format!("{what}; {}", self.session.outlook());
                    stderr::say(format_args!("{}", advice::name_options(&sentence)));
                }
            }
        }
    }

    /// The code for a signal is that which a shell gives for a process that this signal has ended, even if
    /// the command has ended with another code.
    fn after(&self) -> After {
        let code = |signal| of_command(End::Killed(u8::try_from(signal as i32).unwrap_or(0)));
        self.asked.map_or(After::Stopped, |signal| After::Ends(code(signal)))
    }
}
