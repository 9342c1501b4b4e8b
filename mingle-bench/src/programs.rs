//! The measured programs: their paths, how they are built and started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The folder of the alternatives.
const ALTERNATIVES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alternatives");

/// The path of a program that cargo has built into the folder of this one.
///
/// # Panics
/// If the path of this program is unknown.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a path of this program");
    // The programs of `cargo bench` and `cargo test` are in `deps`.
    let folder = own.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).expect("a folder");
    folder.join(name)
}

/// Checks that these commands exist.
///
/// # Errors
/// Names the commands that do not.
pub fn require(tools: &[&str]) -> Result<(), String> {
    let exists = |tool: &str| clean(tool).arg("--version").status().is_ok();
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !exists(tool)).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("these commands are missing: {}", missing.join(", ")))
    }
}

/// Builds `mingle` as users get it, the floor, and if `alternatives` is set the programs that they are
/// compared with.
///
/// # Errors
/// If `mingle` or the floor does not build. An alternative that does not build is left out.
pub fn build(alternatives: bool) -> Result<(), String> {
    // Separately: in one build, the features of mingle-bench's dependencies would become mingle's too.
    for package in [&["mingle-cli"][..], &["mingle-bench", "--bin", "mingle-floor"]] {
        let args = [&["build", "--release", "--package"], package].concat();
        if !cargo().args(&args).status().is_ok_and(|status| status.success()) {
            return Err(format!("'cargo {}' fails, so there is nothing to measure", args.join(" ")));
        }
    }
    for program in ["mingle", "mingle-floor"] {
        if !built(program).exists() {
            return Err(format!(
                "{} does not exist: run mingle-bench with --release",
                built(program).display()
            ));
        }
    }
    if alternatives {
        let manifest = Path::new(ALTERNATIVES).join("Cargo.toml");
        let _ = cargo().args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest).status();
    }
    Ok(())
}

/// Cargo with the target folder in which this program is.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if let Some(target) = built("").parent() {
        cargo.arg("--quiet").env("CARGO_TARGET_DIR", target);
    }
    cargo
}

/// The path of a file in the folder of the alternatives.
pub fn script(name: &str) -> PathBuf {
    Path::new(ALTERNATIVES).join(name)
}

/// A command with a clean environment: the user's own may have RANK.
pub fn clean(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The command of a node of this job.
pub fn mingle(job: &str, world: usize) -> Command {
    let mut command = clean(built("mingle"));
    command.args(["--job-id", job, "--world", &world.to_string(), "--timeout", "100s"]);
    command
}

/// How long a command takes from its start to its end.
///
/// # Panics
/// If it cannot be started.
pub fn time(command: &mut Command) -> Duration {
    let begun = Instant::now();
    command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    begun.elapsed()
}

/// After this long a process is killed. No process that works takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// Kills a process that takes too long, so that a world that does not form does not stop the benchmark.
/// Dropping this value ends the watch.
#[derive(Debug)]
pub struct Watched(#[expect(dead_code, reason = "dropped, not read")] Sender<()>);

impl Watched {
    /// Begins to watch a process. The caller must not have waited for it yet, so that its ID is not reused.
    pub fn new(process: u32) -> Self {
        let (keep, kept) = channel();
        thread::spawn(move || {
            if kept.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
            }
        });
        Self(keep)
    }
}
