//! The guard: a process that stops the command if mingle is killed by SIGKILL, so that nothing is orphaned.
//!
//! It is a second process of this program, and waits until a pipe closes whose other end mingle alone holds.
//! Then it stops all processes that have the mark of the run. PR_SET_PDEATHSIG would do less: it reaches the
//! direct child alone, so the workers of a launcher that dies would go on. Besides, it must be set between
//! fork and exec, where Rust allows no safe code.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::crew::{Mark, signal_all};
use crate::stderr;

/// The name of this program as a guard.
pub(crate) const NAME: &str = "mingle-guard";
/// How often to look which processes are left.
const LOOK: Duration = Duration::from_millis(20);

/// The guard of this process. If this is dropped, the guard ends and stops nothing, but where mingle panics.
#[derive(Debug)]
pub(super) struct Guard(Option<ChildStdin>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(pipe) = self.0.as_mut().filter(|_| !thread::panicking()) {
            // The guard may have been killed.
            let _ = io::Write::write_all(pipe, b".");
        }
    }
}

impl Guard {
    /// Starts the guard. If that fails, the command runs without one.
    pub(super) fn start(mark: &Mark, stop_timeout: Duration) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(&mark.0).arg(stop_timeout.as_millis().to_string());
        // In a group of its own: a signal for the group of this process must not end both.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).env_remove("MINGLE_SECRET");
        match command.spawn() {
            Ok(mut child) => Self(child.stdin.take()),
            Err(error) => {
                stderr::insist(format_args!(
                    "warning: if mingle is killed by SIGKILL, its command goes on: cannot start a guard: {error}"
                ));
                Self(None)
            }
        }
    }
}

/// The work of the guard.
pub(crate) fn guard(args: &[OsString]) {
    let text = |at: usize| args.get(at).and_then(|arg| arg.to_str()).unwrap_or_default();
    let Ok(stop_timeout) = text(1).parse().map(Duration::from_millis) else { return };
    // What ends mingle alone must not end the guard before, such as `pkill mingle`: the pipe ends it.
    let _ = SigSet::all().thread_block();
    // Without this its name is `exe`, the last part of the path that was executed.
    let _ = prctl::set_name(c"mingle-guard");
    // A child between fork and exec holds the other end as well, so the pipe closes after that child's exec.
    if !matches!(io::stdin().read(&mut [0]), Ok(0)) {
        return;
    }
    let mark = Mark(text(0).to_owned());
    let left = mark.processes();
    if !left.is_empty() {
        stderr::say(format_args!("mingle was killed; its command is stopped"));
        stop(&mark, left, stop_timeout);
    }
}

/// Stops the processes: SIGTERM, and after the timeout SIGKILL.
#[expect(clippy::disallowed_methods, reason = "a process of its own, which has nothing else to wait for")]
fn stop(mark: &Mark, mut left: Vec<Pid>, stop_timeout: Duration) {
    let started = Instant::now();
    signal_all(&left, Signal::SIGTERM);
    // A stopped process ends only once it is continued.
    signal_all(&left, Signal::SIGCONT);
    while !left.is_empty() {
        if started.elapsed() >= stop_timeout {
            signal_all(&left, Signal::SIGKILL);
            return;
        }
        thread::sleep(LOOK);
        left = mark.processes();
    }
}
