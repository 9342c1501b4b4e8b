//! A library that is loaded before the C library in a process under test; `preload.c` explains it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::proc::{Outcome, Proc};
use super::{Lab, MINGLE, skip};

/// The built library. Its file is removed on drop.
pub struct Preload(PathBuf);

impl Preload {
    /// Builds the library with the C compiler, which Rust needs to link. None, with a message, where no C
    /// compiler is installed.
    #[must_use]
    pub fn build() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("preload-{}-{}.so", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let library = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        match library.compile() {
            Ok(()) => Some(library),
            Err(reason) => {
                skip(&format!("no C compiler here: {reason}"));
                None
            }
        }
    }

    fn compile(&self) -> Result<(), String> {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-x", "c", "-", "-ldl", "-o"]).arg(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let written = child.stdin.take().unwrap().write_all(include_bytes!("preload.c"));
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        // A library that does not compile fails the test instead of skipping it.
        assert!(output.status.success(), "preload.c: {}", String::from_utf8_lossy(&output.stderr));
        written.map_err(|error| error.to_string())
    }

    /// Starts mingle in a node with the library and a `setting` for it, such as `LAB_CLOCK=1`.
    pub fn spawn(&self, lab: &Lab, node: usize, setting: &str, args: &[String]) -> Proc {
        let mut command = lab.command(node, "env");
        // Not by `Command::env`, which would load the library into nsenter as well.
        command.arg(format!("LD_PRELOAD={}", self.0.display())).args([setting, MINGLE]).args(args);
        lab.start(node, command)
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The numbers in the report of the library at the end of a process.
pub fn report(outcome: &Outcome) -> Vec<u64> {
    let line = outcome.stderr.lines().find_map(|line| line.strip_prefix("preload: "));
    let line = line.unwrap_or_else(|| panic!("the library was not there: {}", outcome.render()));
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}
