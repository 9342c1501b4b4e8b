//! The processes that run in this world on this node, as the command or as its workers: starting them,
//! signalling them, waiting for them, and finding the processes they leave behind.
//!
//! Where a terminal controls this process, they share its process group, as the programs that a shell starts
//! from a script do. So all of them are one job of the user's shell: Ctrl-C and Ctrl-Z reach each, `fg`
//! continues each, and each may read from the terminal, even as a part of a pipeline. Without a terminal each
//! has a group of its own, so that a signal reaches it once: from this process.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use mingle_core::{End, tools};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp};
use rustix::process::{WaitOptions, wait};

use super::relay::Relay;
use crate::exit::Stop;

/// The variable that marks all processes that a command has started.
const MARK: &str = "MINGLE_RUN_ID";

/// The mark of a run: all processes that its commands start have it in their environment.
#[derive(Debug, Clone)]
pub(super) struct Mark(pub(super) String);

/// A worker among those of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) rank: u64,
    pub(super) local_rank: u32,
}

/// The end of the first process that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstFailure {
    pub(super) end: End,
    /// Its rank, if it is a worker.
    pub(super) worker: Option<u64>,
}

/// Processes that run.
#[derive(Debug)]
pub(super) struct Crew {
    running: Vec<(Pid, Option<Worker>)>,
    /// The end of the first process that failed, if one did.
    pub(super) failure: Option<FirstFailure>,
    /// Whether each has a process group of its own.
    is_apart: bool,
    /// The mark of all processes of the run, those that the command leaves behind too.
    pub(super) mark: Mark,
    /// The relay of their output, if they are workers.
    pub(super) relay: Option<Relay>,
}

impl Mark {
    pub(super) fn random() -> Result<Self, Stop> {
        Ok(Self(format!("{:016x}", u64::from_be_bytes(tools::random()?))))
    }

    /// The processes that have it, in any process group and session. A process that has cleared its
    /// environment is not found.
    pub(super) fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.0);
        // A zombie has no environment.
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter(is_ours).map(Pid::from_raw).collect()
    }
}

impl Crew {
    /// Starts all, each with its ranks if it is a worker, or none. `failed` makes the error if one cannot
    /// start.
    pub(super) fn start(
        members: Vec<(Command, Option<Worker>)>,
        mark: &Mark,
        failed: impl Fn(io::Error) -> Stop,
    ) -> Result<Self, Stop> {
        let is_apart = foreground().is_none();
        let are_workers = members.iter().any(|(_, worker)| worker.is_some());
        let relay = are_workers.then(Relay::new).transpose()?;
        let mut crew = Self { running: Vec::new(), failure: None, is_apart, mark: mark.clone(), relay };
        for (mut command, worker) in members {
            command.env(MARK, &mark.0);
            if is_apart {
                command.process_group(0);
            }
            if let Some(worker) = worker {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                // As with srun and mpirun, the first worker alone reads stdin.
                if worker.local_rank > 0 {
                    command.stdin(Stdio::null());
                }
            }
            let started = command.spawn().and_then(|mut child| {
                // A process ID fits.
                crew.running.push((Pid::from_raw(child.id().cast_signed()), worker));
                let relay = crew.relay.as_ref().zip(worker);
                relay.map_or(Ok(()), |(relay, worker)| relay.attach(worker.rank, &mut child))
            });
            started.map_err(|error| {
                crew.signal(Signal::SIGKILL);
                failed(error)
            })?;
        }
        Ok(crew)
    }

    /// The IDs of those that run.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|(pid, _)| pid.as_raw().unsigned_abs())
    }

    /// Whether any still runs.
    pub(super) fn runs(&self) -> bool {
        !self.running.is_empty()
    }

    /// Forwards a signal that this process has received.
    pub(super) fn forward(&self, signal: Signal) {
        let is_from_keys = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGWINCH);
        // For a key the terminal signals the whole process group in the foreground.
        let has_arrived = is_from_keys && !self.is_apart && foreground() == Some(getpgrp());
        if !has_arrived {
            self.signal(signal);
        }
    }

    /// Sends a signal to each that runs and to its process group.
    pub(super) fn signal(&self, signal: Signal) {
        tracing::debug!(%signal, running = ?self.running, "to the command");
        for (pid, _) in &self.running {
            let _ = if self.is_apart { killpg(*pid, signal) } else { kill(*pid, signal) };
        }
        if !self.is_apart && self.runs() {
            // In the shared group, only the processes of the command.
            let of_group = |pid: &Pid| getpgid(Some(*pid)) == Ok(getpgrp());
            let others =
                self.mark.processes().into_iter().filter(|pid| self.running.iter().all(|(of, _)| of != pid));
            signal_all(&others.filter(of_group).collect::<Vec<_>>(), signal);
        }
    }

    /// Asks each that runs to end. A stopped process does so only once it is continued.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Reaps all processes that have ended, adopted ones too. nix has no name for a real-time signal: it
    /// would reap a process that such a signal has killed, and return an error in place of its ID.
    pub(super) fn reap(&mut self) {
        // The only error is that there is no child: without a wait, no signal interrupts it (wait(2)).
        while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
            let end = match (status.exit_status(), status.terminating_signal()) {
                (Some(0), _) => None,
                (Some(code), _) => Some(End::Exited(u8::try_from(code).unwrap_or(1))),
                (None, signal) => {
                    Some(End::Killed(signal.and_then(|signal| u8::try_from(signal).ok()).unwrap_or(0)))
                }
            };
            let ended = ended.as_raw_pid();
            if let Some(at) = self.running.iter().position(|(pid, _)| pid.as_raw() == ended) {
                let (_, worker) = self.running.remove(at);
                let failed = end.map(|end| FirstFailure { end, worker: worker.map(|worker| worker.rank) });
                self.failure = self.failure.or(failed);
            }
        }
    }
}

/// Sends a signal to each.
pub(super) fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill(*pid, signal);
    }
}

/// The process group in the foreground of the terminal that controls this process; none without a terminal.
fn foreground() -> Option<Pid> {
    // A sandbox may have no /dev/tty.
    File::open("/dev/tty").map_or_else(|_| tcgetpgrp(io::stdin()), tcgetpgrp).ok()
}
