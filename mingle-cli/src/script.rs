//! Commands of the user that run before this node joins, with a limit of time.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::exit::Stop;
use crate::join::{runtime, unless_ended};
use crate::progress;
use crate::signals::{ENDING, Signals};

/// The most bytes that are read of what a command prints.
const LONGEST: u64 = 16 << 20;
/// The most characters of its last line that an error repeats.
const REPEATED: usize = 200;
/// How often to look whether it has ended.
const AGAIN: Duration = Duration::from_millis(2);
/// How long to wait for the rest of its output once it has ended: what it has left behind may hold the pipe.
const FLUSH: Duration = Duration::from_millis(200);

/// Runs a command by `sh -c` in a process group of its own, and returns what it has printed. `option` names
/// it in errors. A signal that ends mingle ends it as well.
pub(crate) fn run(option: &str, command: &str, limit: Duration) -> Result<Vec<u8>, Stop> {
    let failed = |what: &str| Stop::Check(format!("{option} {command:?} {what}; this node does not join"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut signals = Signals::new(&ENDING)?;
        let child = shell.process_group(0).spawn();
        let child = child.map_err(|error| failed(&format!("cannot start: sh: {error}")))?;
        let mut running = Running(child);
        let (stdout, stderr) = (read(running.0.stdout.take()), read(running.0.stderr.take()));
        let status = unless_ended(Box::pin(running.end(limit)), &mut signals).await?;
        let Some(status) = status else {
            let limit = progress::duration(limit);
            return Err(failed(&format!("has not ended within {limit} (--check-timeout)")));
        };
        let printed = stdout.recv_timeout(FLUSH).unwrap_or_default();
        if status.success() {
            return Ok(printed);
        }
        let errors = stderr.recv_timeout(FLUSH).unwrap_or_default();
        let line = last_line(&errors).or_else(|| last_line(&printed));
        Err(failed(&format!(
            "has failed ({status}){}",
            line.map(|line| format!(": {line}")).unwrap_or_default()
        )))
    })
}

/// A process and all that it has started in its group, which end with this.
struct Running(Child);

impl Running {
    /// How it ended, or nothing if it has not in time.
    async fn end(&mut self, limit: Duration) -> Result<Option<std::process::ExitStatus>, Stop> {
        let until = Instant::now() + limit;
        loop {
            let status = self.0.try_wait();
            match status.map_err(|error| Stop::System("wait for a command", error))? {
                None if Instant::now() >= until => return Ok(None),
                None => sleep(AGAIN).await,
                status => return Ok(status),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// Reads a pipe in a thread, so that the command never waits for a reader.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(LONGEST).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        let _ = sender.send(bytes);
    });
    receiver
}

/// The last line with any text, as far as a terminal may show it.
fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(REPEATED).map(|c| if c.is_control() { '?' } else { c }).collect())
}
