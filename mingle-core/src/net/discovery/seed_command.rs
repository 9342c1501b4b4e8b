//! A command of the user that prints the addresses of other nodes.
//!
//! `sh -c` runs the text that the user has written, as for the commands that check a host: nothing is put
//! into it that another party has chosen.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::Seed;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How often to look whether it has ended.
const AGAIN: Duration = Duration::from_millis(10);
/// How long to wait for the rest of its output once it has ended: what it has left behind may hold the pipe.
const FLUSH: Duration = Duration::from_millis(200);
/// The most bytes that are read of what it prints.
const LONGEST: u64 = 1 << 20;
/// The most addresses that are taken of it.
const SEEDS: usize = 4096;
/// The most characters that an error repeats of a line.
const REPEATED: usize = 200;

/// Runs the command once, in a process group of its own, which is killed at the end, after [`LIMIT`], or when
/// this future is dropped. The error continues a sentence whose subject is the command.
pub(super) async fn run(command: &str) -> Result<Vec<Seed>, String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_remove("MINGLE_SECRET").process_group(0);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().map_err(|error| format!("cannot start: sh: {error}"))?;
    let (printed, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let mut running = Running(child);
    let until = Instant::now() + LIMIT;
    while !running.has_ended() {
        if Instant::now() >= until {
            return Err(format!("has not ended within {} s", LIMIT.as_secs()));
        }
        sleep(AGAIN).await;
    }
    // What it has left behind is killed first, and holds the output open no more.
    let status = running.end().map_err(|error| format!("cannot be waited for: {error}"))?;
    let printed = timeout(FLUSH, printed).await.ok().and_then(Result::ok);
    let printed = printed.ok_or("has ended, and a process that it started holds its output open")?;
    if !status.success() {
        let errors = timeout(FLUSH, errors).await.ok().and_then(Result::ok).unwrap_or_default();
        let line = String::from_utf8_lossy(&errors);
        let line = line.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let line = line.map(|line| format!(": {}", shown(line))).unwrap_or_default();
        return Err(format!("has failed ({status}){line}"));
    }
    parse(&String::from_utf8_lossy(&printed))
}

/// The seeds on all lines.
fn parse(text: &str) -> Result<Vec<Seed>, String> {
    let mut seeds = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let of_line =
            Seed::list(line).map_err(|error| format!("has printed a line that is no address: {error}"))?;
        seeds.extend(of_line);
    }
    seeds.truncate(SEEDS);
    Ok(seeds)
}

/// A line as a terminal may show it.
fn shown(line: &str) -> String {
    line.chars().take(REPEATED).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A process and all that it has started in its group, which end with this.
struct Running(Child);

impl Running {
    /// Whether the process has ended. It keeps its ID until [`Running::end`], so that no other group has
    /// that.
    fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let is_alive = |pid| matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive));
        !self.group().is_some_and(is_alive)
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.0.id()).ok().map(Pid::from_raw)
    }

    /// Kills what is left of the group, and returns how the process ended.
    fn end(&mut self) -> io::Result<std::process::ExitStatus> {
        if let Some(group) = self.group() {
            let _ = killpg(group, Signal::SIGKILL);
        }
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After an end that has been waited for, the standard library knows it, and the ID is not used again.
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.end();
        }
    }
}

/// Reads a pipe in a thread, so that the command never waits for a reader.
fn read(pipe: Option<impl Read + Send + 'static>) -> oneshot::Receiver<Vec<u8>> {
    let (sender, receiver) = oneshot::channel();
    // If no thread can start, dropping the sender ends the wait.
    let _ = thread::Builder::new().name("mingle-seed-exec".to_owned()).spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(LONGEST).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_line_that_a_command_prints_is_a_seed_or_a_list_of_them() {
        let seeds =
            run("echo 10.0.0.1; echo; echo ' node2.:29503 '; echo 'gpu[1-2],[fd00::1]:7'").await.unwrap();
        let seeds: Vec<String> = seeds.iter().map(Seed::to_string).collect();
        assert_eq!(seeds, ["10.0.0.1", "node2.:29503", "gpu1", "gpu2", "[fd00::1]:7"]);
        assert_eq!(run("true").await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_command_that_fails_says_how_and_why() {
        let error =
            run("echo 10.0.0.1; echo first >&2; printf 'no\\033 token\\n' >&2; exit 3").await.unwrap_err();
        assert_eq!(error, "has failed (exit status: 3): no? token");
        let error = run("echo '$(reboot)'").await.unwrap_err();
        assert!(error.starts_with("has printed a line that is no address: \"$(reboot)\""), "{error}");
    }

    /// The process that a command has started, and that has written its ID to this file.
    async fn started(path: &std::path::Path) -> Pid {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if let Some(pid) = text.strip_suffix('\n').and_then(|text| text.parse().ok()) {
                return Pid::from_raw(pid);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether a process has ended, as far as those that wait for it know.
    fn is_gone(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    #[tokio::test]
    async fn nothing_that_a_command_has_started_outlives_it_or_the_search() {
        let path = std::env::temp_dir().join(format!("mingle-seed-exec-{}", std::process::id()));
        // A command that ends, and one that is given up.
        for (tail, is_given_up) in [("true", false), ("wait", true)] {
            let _ = std::fs::remove_file(&path);
            let command = format!("sleep 600 & echo $! >{path:?}; {tail}");
            let pid = {
                let mut running = std::pin::pin!(run(&command));
                let mut ended = None;
                let pid = tokio::select! {
                    pid = started(&path) => pid,
                    seeds = &mut running => { ended = Some(seeds); started(&path).await }
                };
                if !is_given_up && ended.is_none() {
                    ended = Some(running.await);
                }
                assert_eq!(ended.is_some(), !is_given_up, "{ended:?}");
                pid
            };
            while !is_gone(pid) {
                tokio::task::yield_now().await;
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
