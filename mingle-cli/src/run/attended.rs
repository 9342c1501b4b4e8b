//! Reacts to changes of the world, to signals, and to ends of processes: while the command runs, and until
//! the processes that it left behind have stopped.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mingle_core::{Change, End, Happening, Session};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::crew::{self, Crew, FirstFailure};
use super::parent::Run;
use crate::config::LONGEST;
use crate::events::Journal;
use crate::exit::Stop;
use crate::signals::ENDING;
use crate::{advice, join, stderr};

/// A process that survives SIGKILL for this long hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);
/// How long to wait for the rest of the workers' output while a process that they started keeps their pipes
/// open.
const FLUSH: Duration = Duration::from_secs(1);

/// The next step after the command, or its world, has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    /// The session says what follows: a restart, or its end.
    Stopped,
    /// This node ends with this exit code.
    Ends(u8),
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
    /// When the command, or a process that it left behind, has taken too long to stop.
    pub(super) limit: Instant,
    /// How this node's part has ended, whatever is still written.
    pub(super) ended: Option<After>,
    /// Until when the rest of the workers' output is awaited, since nothing else is.
    pub(super) flushes: Option<Instant>,
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
            limit: Instant::now() + LONGEST,
            ended: None,
            flushes: None,
        }
    }

    /// Whether the workers' output is written, as far as this node waits for that: for [`FLUSH`], or longer
    /// where a slow reader holds the output up.
    pub(super) fn has_written(&mut self) -> bool {
        let Some(relay) = &self.crew.relay else { return true };
        let until = *self.flushes.get_or_insert_with(|| Instant::now() + FLUSH);
        relay.has_written(Instant::now() >= until)
    }

    /// What follows in the end: output that is lost is a failure of this node, which its command cannot know.
    pub(super) fn in_the_end(&self, after: After) -> After {
        match (after, &self.crew.relay) {
            (After::Ends(0), Some(relay)) if relay.lost.load(Ordering::Acquire) => After::Ends(advice::OTHER),
            _ => after,
        }
    }

    pub(super) fn hear(&mut self, happening: &Happening, journal: &mut Journal) {
        join::tell(self.session, happening, journal);
        match happening {
            Happening::Running(Change::Finished) => self.ended = Some(After::Ends(0)),
            Happening::Running(Change::Notified) => self.is_notified = true,
            Happening::Running(Change::Over(_)) => {
                self.is_over = true;
                self.terminate();
            }
            _ => {}
        }
    }

    pub(super) fn on_signal(&mut self, signal: Signal, journal: &mut Journal) {
        match signal {
            Signal::SIGCHLD => return self.on_child(journal),
            Signal::SIGTERM => self.crew.terminate(),
            _ => self.crew.forward(signal),
        }
        if !ENDING.contains(&signal) {
            return;
        }
        if self.flushes.is_some() {
            // A slow reader has had its time.
            self.crew.relay = None;
        }
        if self.asked == Some(Signal::SIGTERM) {
            return;
        }
        self.asked = Some(signal);
        if !self.crew.runs() {
            self.session.fail(End::Left);
        }
        // A command may go on after Ctrl-C, as a debugger does, and then ends in its own time.
        if signal == Signal::SIGTERM {
            self.session.drain();
            stderr::say(format_args!("SIGTERM: this node leaves the world once its command has stopped"));
            self.stop_in_time();
        }
    }

    pub(super) fn on_limit(&mut self) {
        if !self.crew.runs() && (!self.is_clearing || self.flushes.is_some()) {
            // All has stopped in time. The other nodes do not know yet, or a reader is slow, which a node
            // that is to end waits for no longer.
            if self.asked == Some(Signal::SIGTERM) {
                self.crew.relay = None;
            }
            self.limit = Instant::now() + LONGEST;
        } else if !std::mem::replace(&mut self.has_killed, true) {
            self.crew.signal(Signal::SIGKILL);
            crew::signal_all(&self.crew.mark.processes(), Signal::SIGKILL);
            self.limit = Instant::now() + HANGS;
        } else {
            stderr::insist(format_args!("warning: a process that the command left behind survives SIGKILL"));
            self.ended = Some(self.after());
        }
    }

    /// What follows, once the command has ended and the other nodes know that. Stops the processes that it
    /// left behind before.
    pub(super) fn after_command(&mut self) -> Option<After> {
        if self.ended.is_some() || !self.is_notified || self.crew.runs() {
            return self.ended;
        }
        // Processes left behind would hold ports and GPUs, or are still saving their state.
        let left = self.crew.mark.processes();
        if left.is_empty() {
            return Some(self.after());
        }
        if !std::mem::replace(&mut self.is_clearing, true) {
            crew::signal_all(&left, Signal::SIGTERM);
            self.stop_in_time();
        }
        None
    }

    fn terminate(&mut self) {
        self.crew.terminate();
        self.stop_in_time();
    }

    /// What runs has the time of --stop-timeout from now on, unless it was told to stop before.
    fn stop_in_time(&mut self) {
        self.limit = self.limit.min(Instant::now() + self.run.config.rendezvous.stop_timeout);
    }

    /// Reaps the processes that have ended: those of the command, and adopted ones.
    fn on_child(&mut self, journal: &mut Journal) {
        let (had_run, had_failed) = (self.crew.runs(), self.crew.failure.is_some());
        self.crew.reap();
        if !had_run {
            return;
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
            self.terminate();
        }
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
                stderr::say(format_args!("{what}; {}", self.session.outlook()));
            }
        }
    }

    /// The code for a signal is that which a shell gives for a process that this signal has ended, even if
    /// the command has ended with another code.
    fn after(&self) -> After {
        self.asked.map_or(After::Stopped, |signal| After::Ends(Stop::Signal(signal).code().get()))
    }
}
