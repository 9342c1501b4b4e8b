//! The command as a process: starting it, signalling it, waiting for it, and finding the processes it leaves
//! behind.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command};

use mingle_core::End;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};

/// The variable that marks all processes that a command has started.
const MARK: &str = "MINGLE_RUN_ID";

/// A command that runs.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    ended: bool,
    /// Whether it has a process group of its own. On a terminal it shares that of this process, so that
    /// Ctrl-C and Ctrl-Z reach both, and it can read from the terminal.
    is_apart: bool,
    mark: String,
}

/// Makes this process the parent of processes that its children leave behind, as PID 1 is.
pub(super) fn adopt_orphans() {
    // Where this fails, another process reaps the zombies.
    let _ = prctl::set_child_subreaper(true);
}

impl Child {
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mark = mark();
        command.env(MARK, &mark);
        let is_apart = !is_in_foreground();
        if is_apart {
            command.process_group(0);
        }
        let child = match command.spawn() {
            // A script without a #! line: execvp(3) runs it by sh, spawn does not.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => by_shell(command, is_apart).spawn(),
            spawned => spawned,
        }?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self { pid, ended: false, is_apart, mark })
    }

    /// Forwards a signal that this process has received.
    pub(super) fn forward(&self, signal: Signal) {
        let is_from_terminal = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGWINCH);
        if self.is_apart || !is_from_terminal {
            self.signal(signal);
        }
    }

    /// Its process ID.
    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Sends a signal to the command, or to its whole process group where it has one of its own.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.ended {
            tracing::debug!(%signal, pid = %self.pid, "to the command");
            let _ = if self.is_apart { killpg(self.pid, signal) } else { kill(self.pid, signal) };
        }
    }

    /// Reaps all processes that have ended, adopted ones too. Returns how the command has ended, where it is
    /// among them.
    pub(super) fn reap(&mut self) -> Option<Result<(), End>> {
        let mut ended = None;
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ended,
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    tracing::debug!(%error, "waiting for processes");
                    return ended;
                }
            };
            let end = match status {
                WaitStatus::Exited(_, 0) => Ok(()),
                WaitStatus::Exited(_, code) => Err(End::Exited(u8::try_from(code & 0xff).unwrap_or(1))),
                WaitStatus::Signaled(_, signal, _) => {
                    Err(End::Killed(u8::try_from(signal as i32).unwrap_or(0)))
                }
                _ => continue,
            };
            if status.pid() == Some(self.pid) {
                self.ended = true;
                ended = Some(end);
            }
        }
    }

    /// The processes that the command has left behind, in any process group and session. A process that has
    /// cleared its environment is not found.
    pub(super) fn left(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.mark);
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        // A zombie has no environment.
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        pids.filter(is_ours).map(Pid::from_raw).collect()
    }
}

/// Sends a signal to each.
pub(super) fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill(*pid, signal);
    }
}

/// A mark that is unique on this host since it booted: the ID of this process and its start time.
fn mark() -> String {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc(5): after the name in parentheses, which may hold anything, the start is the 20th field.
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)).unwrap_or("0");
    format!("{}-{start}", process::id())
}

fn by_shell(command: &Command, is_apart: bool) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if is_apart {
        shell.process_group(0);
    }
    shell
}

fn is_in_foreground() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp())
}
