//! The command that `mingle run` starts, and its variables.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;

use mingle_core::env::{Format, Variables, job_to_env};

use crate::exit::Stop;
use crate::formation::Formation;

/// The placeholder for a hostfile of Open MPI in an argument.
const HOSTFILE: &str = "{hostfile}";
/// How many names are tried for a hostfile.
const NAMES: u32 = 100;

/// A command with its arguments, in which placeholders such as `{rank}` are not filled in yet.
#[derive(Debug)]
pub(super) struct Command(Vec<OsString>);

/// A file for the command. It is removed when dropped; a process that becomes the command does not drop it.
#[derive(Debug)]
pub(super) struct Hostfile(PathBuf);

impl Drop for Hostfile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Command {
    /// The parser guarantees at least one argument.
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self(words)
    }

    fn name(&self) -> &OsStr {
        self.0.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Whether all nodes are listed in an argument.
    pub(super) fn lists_all(&self) -> bool {
        self.0.iter().any(|word| contains(word, HOSTFILE))
    }

    /// Checks that the program exists, as execvp(3) looks it up.
    pub(super) fn find(&self) -> Result<(), Stop> {
        let name = self.name();
        if contains(name, "{") {
            // The name is known only once the world has formed.
            return Ok(());
        }
        let found = if name.as_bytes().contains(&b'/') {
            is_program(Path::new(name))
        } else {
            let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
            let mut found = Err(io::Error::from(io::ErrorKind::NotFound));
            for folder in env::split_paths(&path) {
                match is_program(&folder.join(name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => found = other,
                }
                if found.is_ok() {
                    break;
                }
            }
            found
        };
        found.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Stop {
        let hint = if self.0.len() == 1 && self.name().as_bytes().contains(&b' ') {
            " (give the words of the command as separate arguments, or use sh -c)"
        } else {
            ""
        };
        Stop::Command(format!("{}{hint}", self.name().display()), error)
    }

    /// The process to start in this world; `generation` counts restarts, where they are possible. The
    /// hostfile exists as long as its guard.
    pub(super) fn in_world(
        &self,
        formation: &Formation<'_>,
        variables: &Variables,
        generation: Option<u32>,
    ) -> Result<(process::Command, Option<Hostfile>), Stop> {
        let hostfile = if self.lists_all() { Some(write_hostfile(formation)?) } else { None };
        let formed = &formation.formed;
        let path = hostfile.as_ref().map_or(OsStr::new(""), |file| file.0.as_os_str());
        let fillings = [
            ("{rank}", formed.rank.to_string().into()),
            ("{world}", formed.world.to_string().into()),
            ("{master_addr}", formed.master.ip().to_string().into()),
            ("{master_port}", formed.master.port().to_string().into()),
            (HOSTFILE, path.to_owned()),
        ];
        let mut words = self.0.iter().map(|word| filled(word, &fillings));
        let mut process = process::Command::new(words.next().unwrap_or_default());
        process.args(words);
        for name in variables.unset() {
            process.env_remove(name);
        }
        process.envs(variables.set().iter().map(|(name, value)| (&**name, value)));
        if let Some(generation) = generation {
            process.env("MINGLE_GENERATION", generation.to_string());
        }
        // Every process that the command starts would see it.
        process.env_remove("MINGLE_SECRET");
        Ok((process, hostfile))
    }

    /// This process becomes the command. Returns only on failure.
    pub(super) fn become_it(&self, process: &mut process::Command) -> Stop {
        self.failed(process.exec())
    }

    /// Why it could not be started as a child.
    pub(super) fn not_started(&self, error: io::Error) -> Stop {
        self.failed(error)
    }
}

fn is_program(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    let is_executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// A new file in the folder for temporary files, which no other process can have created.
fn write_hostfile(formation: &Formation<'_>) -> Result<Hostfile, Stop> {
    let failed = |error| Stop::System("write a hostfile for the command", error);
    let variables = formation.variables(Format::HOSTFILE)?;
    let text = formation.text(Format::HOSTFILE, &variables)?;
    // Short enough for a file name.
    let job: String = job_to_env(formation.job()).replace('%', "_").chars().take(40).collect();
    for number in 0..NAMES {
        let path = env::temp_dir().join(format!("mingle-{job}-{}-{number}.hosts", process::id()));
        match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
            Ok(mut file) => {
                let file_guard = Hostfile(path);
                file.write_all(text.as_str().as_bytes()).map_err(failed)?;
                return Ok(file_guard);
            }
        }
    }
    Err(failed(io::ErrorKind::AlreadyExists.into()))
}

fn contains(word: &OsStr, part: &str) -> bool {
    word.as_bytes().windows(part.len()).any(|window| window == part.as_bytes())
}

/// The argument with its placeholders filled in. Values are not searched for placeholders, and other braces
/// stay.
fn filled(word: &OsStr, fillings: &[(&str, OsString)]) -> OsString {
    let mut rest = word.as_bytes();
    let mut whole = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        let filling = fillings.iter().find(|(name, _)| rest.starts_with(name.as_bytes()));
        if let Some((name, value)) = filling {
            whole.extend_from_slice(value.as_bytes());
            rest = &rest[name.len()..];
        } else {
            whole.push(first);
            rest = after;
        }
    }
    OsString::from_vec(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_nothing_else_changes() {
        let fillings = [("{rank}", "3".into()), ("{world}", "{rank}".into())];
        for (word, expected) in [
            ("--rank={rank}", "--rank=3"),
            ("{rank}{rank}/{world}", "33/{rank}"),
            ("{\"a\": {rank}}", "{\"a\": 3}"),
            ("${rank} {Rank} {rank", "$3 {Rank} {rank"),
            ("", ""),
        ] {
            assert_eq!(filled(OsStr::new(word), &fillings), expected, "{word}");
        }
        let raw = OsString::from_vec(vec![0xff, b'{', b'r', b'a', b'n', b'k', b'}']);
        assert_eq!(filled(&raw, &fillings).as_bytes(), [0xff, b'3']);
    }

    #[test]
    fn a_missing_program_is_an_error_before_the_rendezvous() {
        let stop = |words: &[&str]| {
            let command = Command::new(words.iter().map(OsString::from).collect());
            command.find().err().map(|stop| (stop.code().get(), stop.to_string()))
        };
        assert_eq!(stop(&["sh"]), None);
        assert_eq!(stop(&["/bin/sh"]), None);
        assert_eq!(stop(&["{master_addr}"]), None);
        assert_eq!(stop(&["no-such-program-here"]).unwrap().0, 127);
        assert_eq!(stop(&["/"]).unwrap().0, 126);
        let (code, text) = stop(&["torchrun train.py"]).unwrap();
        assert!(code == 127 && text.contains("separate arguments"), "{text}");
    }
}
