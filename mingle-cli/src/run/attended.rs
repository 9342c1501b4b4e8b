//! Reacts to changes of the world, to signals, and to ends of processes: while the command runs, and until
//! the processes that it left behind have stopped.

use std::time::Duration;

use mingle_core::proto::Over;
use mingle_core::{Change, End, RunningWorld, World};
use nix::sys::signal::Signal;
use tokio::select;
use tokio::time::{Instant, sleep};

use super::crew::{self, Crew, FirstFailure};
use super::others;
use super::row::Row;
use crate::config::Settings;
use crate::events::Journal;
use crate::signals::{self, Signals};
use crate::{progress, stderr};

/// The signals that ask a command to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// A process that survives SIGKILL for this long hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);
/// How long to wait for the rest of the workers' output while a process that they started keeps their pipes
/// open.
const FLUSH: Duration = Duration::from_secs(1);
/// How often to check whether a reader still holds the output up.
const AGAIN: Duration = Duration::from_millis(50);

/// The next step after the command, or its world, has ended.
pub(super) enum After {
    /// The world has ended so, and this node restarts with the next one.
    Again { row: Row, end: End },
    /// This node ends with this exit code and this message.
    Ends(u8, Option<String>),
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
    running: RunningWorld,
    crew: Crew,
    row: Row,
    config: &'a Settings,
    /// How many nodes are in this world.
    world: World,
    /// Whether the command still runs.
    runs: bool,
    /// Why the world ended, if another node ended it.
    over: Option<Over>,
    /// The failure of this node's own command.
    own: Option<FirstFailure>,
    /// Whether all nodes that can be notified of the end have been.
    is_notified: bool,
    /// The signal that has asked this node to end.
    asked: Option<Signal>,
    /// Whether the commands have run for so long that earlier restarts do not count.
    is_forgotten: bool,
    /// Whether the processes that the command left behind are being stopped.
    is_clearing: bool,
    /// Whether SIGKILL has been sent.
    has_killed: bool,
}

impl<'a> Attended<'a> {
    pub(super) fn new(
        running: RunningWorld,
        crew: Crew,
        row: Row,
        (config, world): (&'a Settings, World),
    ) -> Self {
        Self {
            running,
            runs: crew.runs(),
            crew,
            row,
            config,
            world,
            over: None,
            own: None,
            is_notified: false,
            asked: None,
            is_forgotten: false,
            is_clearing: false,
            has_killed: false,
        }
    }

    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Change {
        self.running.next().await
    }

    /// Ends this world here once the workers' output is written. A signal ends the wait for that, and so does
    /// [`FLUSH`], unless a slow reader holds the output up.
    pub(super) async fn end(mut self, after: After, signals: &mut Signals) -> (RunningWorld, After) {
        if let Some(relay) = self.crew.relay() {
            let ends = Instant::now() + FLUSH;
            while relay.is_busy() || Instant::now() < ends {
                select! {
                    biased;
                    () = relay.done() => break,
                    () = sleep(AGAIN) => {}
                    signal = signals.next() => if ENDING.contains(&signal) { break },
                }
            }
        }
        if matches!(after, After::Ends(..)) {
            self.running.leave().await;
        }
        (self.running, after)
    }

    pub(super) fn is_clearing(&self) -> bool {
        self.is_clearing
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// The commands have run for the time of `--max-restarts`.
    pub(super) fn forget(&mut self) -> Wait {
        self.is_forgotten = true;
        if self.over.is_none() && self.own.is_none() && self.asked.is_none() {
            self.row.forget();
            self.running.set_restarts_left(self.row.left());
        }
        Wait::On
    }

    pub(super) fn on_change(&mut self, change: Change, journal: &mut Journal) -> Wait {
        journal.change(&change);
        others::warn(&change, self.world, self.row.restarts, self.config);
        match change {
            Change::Finished => return Wait::Over(After::Ends(0, None)),
            Change::Notified => self.is_notified = true,
            Change::Over(over) => {
                self.say(&over.to_string(), over.end);
                self.over = Some(over);
                return self.terminate();
            }
            Change::Cause(over) => {
                // What comes after the notice changes nothing: other nodes may have left the job by now.
                let counts = over.end == End::Gone && !self.is_notified;
                if counts {
                    self.row.blame();
                }
                others::say_cause(&over, if counts { self.row.refund() } else { "" }, self.config);
            }
            _ => {}
        }
        Wait::On
    }

    pub(super) fn on_signal(&mut self, signal: Signal, journal: &mut Journal) -> Wait {
        match signal {
            Signal::SIGCHLD => return self.on_child(journal),
            Signal::SIGTSTP => {
                signals::stop(|| self.crew.forward_stop());
                return Wait::On;
            }
            Signal::SIGTERM => self.crew.terminate(),
            _ => self.crew.forward(signal),
        }
        if !ENDING.contains(&signal) || self.asked == Some(Signal::SIGTERM) {
            return Wait::On;
        }
        self.asked = Some(signal);
        if !self.runs {
            self.running.fail(End::Left);
        }
        // A command may go on after Ctrl-C, as a debugger does, and then ends in its own time.
        if signal != Signal::SIGTERM {
            return Wait::On;
        }
        if !self.config.quiet {
            stderr::say(format_args!("SIGTERM: this node leaves the world once its command has stopped"));
        }
        Wait::AtMost(self.row.restarts.stop_timeout)
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
        if !self.is_notified || self.runs {
            return Wait::On;
        }
        let after = self.after();
        // Processes left behind would hold ports and GPUs, or are still saving their state.
        let matters = matches!(after, After::Again { .. }) || self.over.is_some();
        let left = if matters { self.crew.left() } else { Vec::new() };
        if left.is_empty() {
            return Wait::Over(after);
        }
        if std::mem::replace(&mut self.is_clearing, true) {
            return Wait::On;
        }
        crew::signal_all(&left, Signal::SIGTERM);
        if self.over.is_none() { Wait::AtMost(self.row.restarts.stop_timeout) } else { Wait::On }
    }

    fn terminate(&self) -> Wait {
        self.crew.terminate();
        Wait::AtMost(self.row.restarts.stop_timeout)
    }

    /// Reaps the processes that have ended: those of the command, and adopted ones.
    fn on_child(&mut self, journal: &mut Journal) -> Wait {
        if !self.runs {
            self.crew.reap();
            return Wait::On;
        }
        let had_failed = self.crew.failure().is_some();
        self.crew.reap();
        let failure = self.crew.failure();
        let is_first = failure.is_some() && !had_failed;
        self.runs = self.crew.runs();
        if !self.runs {
            journal.command_ended(failure.map_or(Ok(()), |failed| Err(failed.end)));
        }
        if is_first || !self.runs && !had_failed {
            self.ended(failure);
        }
        let is_stopping = self.over.is_some() || self.asked == Some(Signal::SIGTERM);
        if is_first && self.runs && !is_stopping {
            return self.terminate();
        }
        Wait::On
    }

    /// The command has ended, by itself or because it was stopped.
    fn ended(&mut self, failure: Option<FirstFailure>) {
        self.own = failure;
        if self.over.is_some() {
            return;
        }
        match (failure, self.asked) {
            (None, None) => self.running.succeed(),
            // The other nodes cannot go on without this one, even though its command has succeeded.
            (_, Some(_)) => self.running.fail(End::Left),
            (Some(FirstFailure { end, worker }), None) => {
                let what = match worker {
                    Some(rank) => format!("worker {rank} has failed here ({end})"),
                    None => format!("the command has failed here ({end})"),
                };
                self.running.fail(end);
                self.say(&what, end);
            }
        }
    }

    /// Prints the message, and whether the commands restart.
    fn say(&self, what: &str, end: End) {
        if self.config.quiet {
            return;
        }
        let Some(next) = self.row.after(end) else {
            let last = self.last(what);
            let hesitates = self.row.hesitates();
            let hope =
                if hesitates { "; the job ends, unless another node turns out to be gone" } else { "" };
            return stderr::say(format_args!("{last}{hope}"));
        };
        let delay = Some(next.delay(end)).filter(|delay| !delay.is_zero());
        let delay = delay.map(|delay| format!(" in {}", progress::duration(delay))).unwrap_or_default();
        let number = next.number(end).map(|number| format!(", {number}")).unwrap_or_default();
        stderr::say(format_args!("{what}; all commands restart{delay}{number}"));
    }

    fn last(&self, what: &str) -> String {
        format!("{what}; no restart is left of --max-restarts {}", self.row.restarts.most)
    }

    fn after(&self) -> After {
        if let Some(signal) = self.asked {
            // The code that a shell gives for a process that this signal has ended, even if the command has
            // ended with another one.
            return After::Ends(code(End::Killed(number(signal))), None);
        }
        let own = self.own.map_or(End::Unknown, |failed| failed.end);
        let end = self.over.as_ref().map_or(own, |over| over.end);
        match (self.row.after(end), &self.over) {
            (Some(next), _) => After::Again { row: next, end },
            (None, None) => After::Ends(code(own), None),
            // The node that failed ends with the same exit code.
            (None, Some(over)) => After::Ends(code(over.end).max(1), Some(self.last(&over.to_string()))),
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
