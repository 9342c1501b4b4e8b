//! The programs that are measured: where they are, and how they are built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where the alternatives are.
const ALTERNATIVES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alternatives");

/// A program that cargo built into the folder of this one.
///
/// # Panics
/// Where this program has no path.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a path of this program");
    // Those of `cargo bench` and `cargo test` are in `deps`.
    let folder = own.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).expect("a folder");
    folder.join(name)
}

/// Builds `mingle` as it is given to users, and where they are wanted, what it is compared with.
///
/// # Panics
/// Where `mingle` does not build. An alternative that does not is left out.
pub fn build(alternatives: bool) {
    let mingle = cargo().args(["build", "--release", "--package", "mingle-cli"]).status();
    assert!(mingle.is_ok_and(|status| status.success()), "mingle must build");
    if alternatives {
        let manifest = Path::new(ALTERNATIVES).join("Cargo.toml");
        let _ = cargo().args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest).status();
    }
}

/// Cargo, which puts what it builds where this program is.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if let Some(target) = built("").parent() {
        cargo.arg("--quiet").env("CARGO_TARGET_DIR", target);
    }
    cargo
}

/// A file beside the alternatives.
pub fn script(name: &str) -> PathBuf {
    Path::new(ALTERNATIVES).join(name)
}

/// A program with an environment of its own: whoever measures may have set RANK.
pub fn clean(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// `mingle` for a job.
pub fn mingle(job: &str, world: usize) -> Command {
    let mut command = clean(built("mingle"));
    command.args(["--job-id", job, "--world", &world.to_string(), "--timeout", "100s"]);
    command
}

/// How long a program takes from its start to its end.
///
/// # Panics
/// Where it cannot be started.
pub fn time(command: &mut Command) -> Duration {
    let begun = Instant::now();
    command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    begun.elapsed()
}

/// Nothing takes so long where it works.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kills a process that takes too long, so that a world that does not form is a figure less and no end of all others.
/// It is left alone when this goes out of scope.
#[derive(Debug)]
pub struct Watched(#[expect(dead_code, reason = "dropped, not read")] Sender<()>);

impl Watched {
    /// Begins to watch a process that has not been waited for, so that its number is its own.
    pub fn new(process: u32) -> Self {
        let (keep, kept) = channel();
        thread::spawn(move || {
            if kept.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
            }
        });
        Self(keep)
    }
}
