//! A process under test: its output while it runs, its end, and the variables that it printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test takes, so that a program that hangs fails its test instead of blocking it.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The guard, which is printed first. It makes `eval` fail if the process is killed before it prints more.
pub const GUARD: &str = "! true;\n";

/// The text that a process has written to one of its outputs so far.
#[derive(Debug, Default)]
pub struct Stream {
    state: Mutex<Text>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Text {
    text: String,
    /// When the last writer closed it.
    closed: Option<Instant>,
}

impl Stream {
    /// Collects the bytes of `source` until its end, in a thread of its own.
    pub fn collect(mut source: impl Read + Send + 'static) -> Arc<Self> {
        let stream = Arc::new(Self::default());
        let writer = Arc::clone(&stream);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                let read = source.read(&mut buffer).unwrap_or(0);
                let mut state = writer.lock();
                if read == 0 {
                    state.closed = Some(Instant::now());
                } else {
                    state.text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                }
                writer.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        stream
    }

    pub fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Waits until the text fulfils the condition, or has ended. Returns whether it does.
    pub fn wait_until(&self, deadline: Instant, wanted: impl Fn(&str) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if wanted(&state.text) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.closed.is_some() || left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the text, and returns when that was.
    pub fn wait_closed(&self, deadline: Instant) -> Option<Instant> {
        self.wait_until(deadline, |_| false);
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Text> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output of a process, which outlives the process.
#[derive(Debug, Clone)]
pub struct Transcript {
    pub label: String,
    pub stdout: Arc<Stream>,
    pub stderr: Arc<Stream>,
}

impl Transcript {
    pub fn render(&self) -> String {
        let mut out = format!("--- {}\n", self.label);
        for (name, stream) in [("out", &self.stdout), ("err", &self.stderr)] {
            for line in stream.text().lines() {
                let _ = writeln!(out, "{name} | {line}");
            }
        }
        out
    }
}

/// A running process, killed on drop.
#[derive(Debug)]
pub struct Proc {
    child: Child,
    pub started: Instant,
    pub transcript: Transcript,
}

impl Proc {
    /// Starts `command` with an empty stdin, and collects both outputs.
    pub fn start(mut command: Command, label: String) -> Self {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{label}: cannot start {command:?}: {e}"));
        let stdout = Stream::collect(child.stdout.take().unwrap());
        let stderr = Stream::collect(child.stderr.take().unwrap());
        Self { child, started, transcript: Transcript { label, stdout, stderr } }
    }

    /// Waits until stdout contains `text`.
    pub fn expect_stdout(&self, text: &str) {
        let found = self.transcript.stdout.wait_until(Instant::now() + PATIENCE, |all| all.contains(text));
        assert!(found, "no {text:?} within {PATIENCE:?} on stdout of\n{}", self.transcript.render());
    }

    /// Waits until stderr contains `text`.
    pub fn expect_stderr(&self, text: &str) {
        self.expect_stderr_within(PATIENCE, text);
    }

    /// Waits until stderr contains `text`, at most this long.
    pub fn expect_stderr_within(&self, limit: Duration, text: &str) {
        let found = self.transcript.stderr.wait_until(Instant::now() + limit, |all| all.contains(text));
        assert!(found, "no {text:?} within {limit:?} on stderr of\n{}", self.transcript.render());
    }

    /// Waits until the last line of stderr that contains `subject` also contains `text`.
    pub fn expect_latest(&self, limit: Duration, subject: &str, text: &str) {
        let found = self.transcript.stderr.wait_until(Instant::now() + limit, |all| {
            all.lines().rfind(|line| line.contains(subject)).is_some_and(|line| line.contains(text))
        });
        assert!(found, "{text:?} was not the latest about {subject:?} of\n{}", self.transcript.render());
    }

    /// Waits until the program has printed the line that makes `eval` fail. Before its first instruction a
    /// process that is killed prints nothing.
    pub fn expect_guard(&self) {
        let deadline = Instant::now() + PATIENCE;
        let printed = self.transcript.stdout.wait_until(deadline, |text| text.starts_with(GUARD));
        assert!(printed, "no guard within {PATIENCE:?}: {}", self.transcript.render());
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends `signal` (a name, such as `TERM`) to the process.
    pub fn signal(&self, signal: &str) {
        send_signal(signal, self.child.id());
    }

    /// The process ID. The command that enters a node becomes the program that runs there.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and all its descendants at once, as when the host dies.
    pub fn kill_with_all_it_started(&self) {
        let mut dead = vec![self.child.id()];
        let mut next = 0;
        while let Some(&pid) = dead.get(next) {
            // A stopped process starts no others during the search for its children. One that has ended
            // meanwhile has none.
            signal_if_alive("STOP", pid);
            dead.extend(children(pid));
            next += 1;
        }
        for pid in dead {
            signal_if_alive("KILL", pid);
        }
    }

    /// Waits for the end of the process.
    pub fn finish(self) -> Outcome {
        self.finish_within(PATIENCE)
    }

    /// Waits for the end of the process, at most this long.
    pub fn finish_within(mut self, limit: Duration) -> Outcome {
        // The pipes close when the process ends. Until it is reaped its ID is not used again.
        let deadline = Instant::now() + limit;
        let Transcript { label, stdout, stderr } = self.transcript.clone();
        let ends = (stdout.wait_closed(deadline), stderr.wait_closed(deadline));
        let (Some(out), Some(err)) = ends else {
            panic!("still running after {limit:?}:\n{}", self.transcript.render())
        };
        let status = self.child.wait().unwrap();
        Outcome { label, status, stdout: stdout.text(), stderr: stderr.text(), ended: out.max(err) }
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        // Both fail without harm for a process that was reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends `signal` to a process by the shell's `kill`, which every system has.
pub fn send_signal(signal: &str, pid: u32) {
    assert!(signal_if_alive(signal, pid), "kill -{signal} {pid}");
}

/// The same to a process that may have ended. Returns whether it was there.
fn signal_if_alive(signal: &str, pid: u32) -> bool {
    let script = format!("kill -{signal} {pid}");
    Command::new("sh").args(["-c", &script]).status().unwrap().success()
}

/// The children of a process: proc(5) has the parent in the fourth field, after a name in parentheses.
fn children(parent: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        field == Some(parent)
    };
    pids.filter(is_child).collect()
}

/// How a process ended and what it wrote.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub label: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub ended: Instant,
}

impl Outcome {
    /// Checks that the world formed, and returns the variables.
    pub fn formed(&self) -> BTreeMap<String, String> {
        assert!(self.status.success(), "{} did not form a world\n{}", self.label, self.render());
        variables(&self.stdout).unwrap_or_else(|e| panic!("{}: {e}\n{}", self.label, self.render()))
    }

    /// Checks that no world formed: the exit code, the script that makes `eval` fail, and the message.
    pub fn failed(&self, code: i32, message: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "exit code of {}", self.render());
        let script = self.stdout.strip_prefix(GUARD);
        // A word that the parser refuses is found before the guard is printed.
        let script = script.or((code == 2).then_some(self.stdout.as_str()));
        assert_eq!(script, Some(&*format!("(exit {code});\n")), "stdout of {}", self.render());
        for part in message {
            assert!(self.stderr.contains(part), "no {part:?} on stderr of {}", self.render());
        }
    }

    pub fn render(&self) -> String {
        format!("{} ({})\nstdout:\n{}stderr:\n{}", self.label, self.status, self.stdout, self.stderr)
    }
}

/// The variables that a successful run prints: the guard, then one statement on each line.
pub fn variables(stdout: &str) -> Result<BTreeMap<String, String>, String> {
    let statements = stdout.strip_prefix(GUARD).ok_or("the guard does not come first")?;
    let mut found = BTreeMap::new();
    for line in statements.lines() {
        let statement = line.strip_prefix("export ").and_then(|rest| rest.strip_suffix("';"));
        let Some((name, value)) = statement.and_then(|pair| pair.split_once("='")) else {
            return Err(format!("not an export statement: {line}"));
        };
        if value.contains('\'') || found.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("a quote inside, or a second value: {line}"));
        }
    }
    Ok(found)
}
