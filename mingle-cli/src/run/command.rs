//! The command that `mingle run` starts, and its variables.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process;

use mingle_core::env::{Format, Template};
use nix::unistd::{AccessFlags, eaccess};

use super::crew::Worker;
use crate::config::values::check_ports;
use crate::exit::Stop;
use crate::formation::Formation;
use crate::host::beginning;

/// The placeholder for the arguments of the format's launcher, a word of its own.
const ARGUMENTS: &str = "{args}";
/// The folders in which execvp(3) looks without PATH.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE).
const FIRST_LINE: u64 = 256;

/// A command with its arguments, in which placeholders such as `{rank}` are not filled in yet.
#[derive(Debug)]
pub(super) struct Command {
    words: Vec<OsString>,
    /// What to fill in in each word; none for a word that is not UTF-8.
    templates: Vec<Option<Template>>,
    /// The format of the world, whose launcher's arguments `{args}` stands for.
    format: Format,
}

impl Command {
    /// The parser guarantees at least one argument. `{args}` needs a format with arguments, and `{port3}`
    /// three ports.
    pub(super) fn new(words: Vec<OsString>, format: Format, ports: usize) -> Result<Self, Stop> {
        let templates = words.iter().map(|word| word.to_str().map(Template::lenient).transpose());
        let templates = templates.collect::<Result<Vec<_>, _>>();
        let templates =
            templates.map_err(|error| Stop::Usage(format!("in a word of the command, at {error}")))?;
        for template in templates.iter().flatten() {
            check_ports(template, ports, "the command")?;
        }
        if words.first().is_some_and(|name| name.is_empty()) {
            return Err(Stop::Usage("the command has an empty name; write it after --".to_owned()));
        }
        if !format.has_arguments() && words.iter().any(|word| word == ARGUMENTS) {
            let all: Vec<&str> = Format::all().filter(|f| f.has_arguments()).map(Format::name).collect();
            return Err(Stop::Usage(format!(
                "{ARGUMENTS} in the command: the format {format} has no arguments; give --format {}",
                all.join(" or ")
            )));
        }
        Ok(Self { words, templates, format })
    }

    fn name(&self) -> &OsStr {
        self.words.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Whether a word has values of all nodes.
    pub(super) fn lists_all(&self) -> bool {
        self.templates.iter().flatten().any(Template::needs_roster)
    }

    /// Checks what this node can know before the rendezvous: that it can execute the program.
    pub(super) fn check(&self) -> Result<(), Stop> {
        let name = self.name();
        if !name.as_bytes().contains(&b'{') {
            // A name with a placeholder is known only once the world has formed.
            program(name).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// The error if the command cannot be started.
    pub(super) fn failed(&self, error: io::Error) -> Stop {
        let hint = if self.words.len() == 1 && self.name().as_bytes().contains(&b' ') {
            " (give the words of the command as separate arguments, or use sh -c)"
        } else {
            ""
        };
        Stop::Command(format!("{}{hint}", self.name().display()), error)
    }

    /// The process to start in this world, as the only one on this node or as one of its workers.
    /// `generation` counts restarts, if there can be any.
    pub(super) fn in_world(
        &self,
        formation: &Formation<'_>,
        generation: Option<u32>,
        worker: Option<Worker>,
    ) -> Result<process::Command, Stop> {
        let (formed, facts) = (&formation.assignment.formed, formation.facts());
        let (rank, world) = match worker {
            Some(worker) => (worker.rank, formed.slots.total),
            None => (formed.rank.get().into(), formed.world.get().into()),
        };
        let given = |name: &str| match name {
            "rank" => Some(rank.to_string()),
            "world" => Some(world.to_string()),
            _ => None,
        };
        let mut words = Vec::with_capacity(self.words.len());
        for (word, template) in self.words.iter().zip(&self.templates) {
            match template {
                _ if word == ARGUMENTS => {
                    words.extend(self.format.arguments(facts, &self.words).into_iter().map(OsString::from));
                }
                Some(template) => words.push(template.fill(facts, &given)?.into()),
                None => words.push(word.clone()),
            }
        }
        let mut words = words.into_iter();
        let mut process = process::Command::new(words.next().unwrap_or_default());
        process.args(words);
        formation.variables.apply(&mut process);
        if let Some(worker) = worker {
            // The names of torchrun, where RANK and WORLD_SIZE count workers.
            let own = [
                ("RANK", rank),
                ("WORLD_SIZE", world),
                ("LOCAL_RANK", worker.local_rank.into()),
                ("LOCAL_WORLD_SIZE", formed.slots.own.into()),
                ("GROUP_RANK", formed.rank.get().into()),
            ];
            process.envs(own.map(|(name, number)| (name, number.to_string())));
        }
        if let Some(generation) = generation {
            process.env("MINGLE_GENERATION", generation.to_string());
        }
        // Every process that the command starts would see it.
        process.env_remove("MINGLE_SECRET");
        Ok(process)
    }
}

/// Whether a program, found in PATH as execvp(3) does, can be executed; a script must name its interpreter.
/// Asked before the rendezvous, so that no other node waits or starts in vain for a node that cannot execute
/// it; only execve(2) can tell for certain.
fn program(name: &OsStr) -> io::Result<()> {
    let folders = env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let is_path = name.as_bytes().contains(&b'/');
    let paths: Vec<PathBuf> = if is_path {
        vec![name.into()]
    } else {
        env::split_paths(&folders).map(|folder| folder.join(name)).collect()
    };
    let Some(path) = paths.iter().find(|path| executable(path)).or(paths.iter().find(|path| path.exists()))
    else {
        let what = if is_path {
            "there is no such file".to_owned()
        } else {
            format!("it is in no folder of PATH ({})", folders.display())
        };
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    };
    let failed = |kind, what: String| Err(io::Error::new(kind, format!("{} {what}", path.display())));
    if !executable(path) {
        let what = "is no file that this user can execute; see chmod +x, and whether its file system is mounted noexec";
        return failed(io::ErrorKind::PermissionDenied, what.to_owned());
    }
    // A file that cannot be read may be executed nevertheless.
    let first = beginning(path, FIRST_LINE).unwrap_or_default();
    if let Some(line) = first.strip_prefix(b"#!") {
        // Such as that of a virtual environment.
        // The kernel ends it at these alone (fs/binfmt_script.c): a line of Windows ends with another.
        let mut words =
            line.split(|byte| matches!(byte, b' ' | b'\t' | b'\n')).filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next().unwrap_or_default()));
        if !executable(interpreter) {
            let what = format!(
                "begins with #!{}, which is no program here",
                interpreter.display().to_string().escape_debug()
            );
            return failed(io::ErrorKind::NotFound, what);
        }
    } else if !first.is_empty() && !first.contains(&0) {
        let what =
            "is a script that names no interpreter; begin it with #!/bin/sh or another, in the first line";
        return failed(io::ErrorKind::InvalidData, what.to_owned());
    }
    Ok(())
}

fn executable(path: &Path) -> bool {
    path.is_file() && eaccess(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::fs::PermissionsExt as _;

    use mingle_core::env::Facts;
    use mingle_core::proto::Digest;
    use mingle_core::{Formed, World};

    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_nothing_else_changes() {
        let (job, world) = ("foo".parse().unwrap(), World::new(4).unwrap());
        let master = ([10, 0, 0, 1], 29503).into();
        let formed =
            Formed::new(world.rank(3).unwrap(), world, master, [10, 0, 0, 4].into(), Digest([0; 16]));
        let given = |name: &str| (name == "world").then(|| "{rank}".to_owned());
        let word =
            |word: &str| Template::lenient(word).unwrap().fill(Facts::new(&job, &formed), &given).unwrap();
        for (text, expected) in [
            ("--rank={rank}", "--rank=3"),
            ("{rank}{rank}/{world}", "33/{rank}"),
            ("{\"a\": {rank}}", "{\"a\": 3}"),
            ("${rank} {Rank} {rank", "${rank} {Rank} {rank"),
            ("{{rank}} }} {end} {between} {node.addr}", "{3} }} {end} {between} {node.addr}"),
            ("", ""),
        ] {
            assert_eq!(word(text), expected, "{text}");
        }
        let command = Command::new(vec![OsString::from_vec(vec![0xff])], Format::SH, 0).unwrap();
        assert_eq!(command.templates, [None], "it is not UTF-8, and stays as it is");
    }

    #[test]
    fn values_of_all_nodes_need_a_roster_and_a_block_needs_an_end() {
        let command = |word: &str| Command::new(vec![word.into()], Format::SH, 0);
        let lists_all = |word: &str| command(word).unwrap().lists_all();
        assert!(lists_all("{hosts}") && lists_all("{port}") && lists_all("{each other}x{end}"));
        assert!(!lists_all("{rank} {addr} {Hosts}"));
        let error = command("a {each node}").unwrap_err().to_string();
        assert!(error.starts_with("in a word of the command, at 1:3: this block has no {end}"), "{error}");
    }

    #[test]
    fn arguments_need_a_format_that_has_them() {
        let stop = |words: &[&str], format| {
            let words = words.iter().map(OsString::from).collect();
            Command::new(words, format, 2).err().map(|stop| (stop.code().get(), stop.to_string()))
        };
        assert_eq!(stop(&["vllm", "serve", "{args}"], Format::VLLM), None);
        // Only a whole word is replaced.
        assert_eq!(stop(&["sh", "-c", "echo {args}"], Format::SH), None);
        let (code, text) = stop(&["vllm", "serve", "{args}"], Format::SH).unwrap();
        assert!(code == 2 && text.contains("the format sh has no arguments; give --format vllm"), "{text}");
    }

    #[test]
    fn a_port_that_is_not_held_cannot_be_in_the_command() {
        let stop = |word: &str| {
            let words = vec!["serve".into(), word.into()];
            Command::new(words, Format::SH, 2).err().map(|stop| (stop.code().get(), stop.to_string()))
        };
        assert_eq!((stop("--port={port2}"), stop("{port0}"), stop("{port03}")), (None, None, None));
        let (code, text) = stop("--port={port3}").unwrap();
        assert!(code == 2 && text.contains("holds 2 ports for the job; give --ports 3"), "{text}");
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error_before_the_rendezvous() {
        let stop = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            let command = Command::new(words, Format::SH, 0).unwrap();
            command.check().err().map(|stop| (stop.code().get(), stop.to_string()))
        };
        assert_eq!(stop(&["sh"]), None);
        assert_eq!(stop(&["/bin/sh"]), None);
        assert_eq!(stop(&["{master_addr}"]), None);
        // The kernel skips blanks before the interpreter.
        let script = env::temp_dir().join(format!("mingle-script-{}", process::id()));
        fs::write(&script, "#! /bin/sh -e\n").unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(stop(&[script.to_str().unwrap()]), None);
        fs::remove_file(script).unwrap();
        assert_eq!(stop(&["no-such-program-here"]).unwrap().0, 127);
        assert_eq!(stop(&["/"]).unwrap().0, 126);
        let (code, text) = stop(&["torchrun train.py"]).unwrap();
        assert!(code == 127 && text.contains("separate arguments"), "{text}");
    }
}
