//! A rendezvous inside another program, with the options and variables of `mingle`.
//!
//! Nothing is printed and no signal is handled: the caller is told what happens, and asks for the end.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use clap::{ArgAction, Args as _, Parser as _};
use mingle_core::Error;
use mingle_core::env::Format;
use mingle_core::error::{Failure, Report};
use serde_json::{Value, json};

pub use crate::caller::Told;
pub use crate::stay::Word;

use crate::args::{self, Action, JoinArgs, LowArgs, RunArgs, check_variables};
use crate::config::{Settings, Split};
use crate::events::Journal;
use crate::exit::{self, Stop};
use crate::formation::Formation;
use crate::nccl_conf::environment_or_files;
use crate::output::Holder;
use crate::prepare::prepare;
use crate::{caller, join, stay, usage};

/// Why no world has formed, as `mingle` would say it.
#[derive(Debug)]
pub struct Failed {
    /// The exit code of `mingle`.
    pub code: u8,
    /// The kind in the error of `--format json`.
    pub kind: &'static str,
    /// The message, with advice.
    pub message: String,
    /// What is known, by name: after a timeout, which nodes were here.
    pub facts: Value,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}

/// Joins the world that these arguments of `mingle`, its variables and a scheduler describe, and tells the
/// caller; rank 0 keeps its listening socket for the caller if that wants it. It returns once the world has
/// formed and [`Told::Formed`] is told.
///
/// To end it early, the caller makes the socket `ends`, which must not block, readable: all sockets are
/// closed, and the other nodes know at once that this one is gone. Nothing else is shared with other threads,
/// so this one may have a table of file descriptors of its own. It must be in no tokio runtime.
///
/// # Errors
/// Each failure that `mingle` has an exit code for, a bug included.
pub fn join(
    arguments: Vec<String>,
    keeps_listener: bool,
    ends: UnixStream,
    told: impl Fn(Told) + 'static,
) -> Result<(), Failed> {
    caller::during(told, ends, || exit::contain(|| attend(arguments, keeps_listener))).map_err(Failed::new)
}

/// As [`join`], and stays with the world: it returns once the caller has left or all nodes have finished.
/// The options of `mingle run` count too that say when a world is over. The caller writes a [`Word`] in a
/// packet to the socket `ends`, or closes it; while no world has formed, each leaves at once.
///
/// # Errors
/// As for [`join`], in the first formation and in each later one.
pub fn stay(
    arguments: Vec<String>,
    keeps_listener: bool,
    ends: UnixStream,
    told: impl Fn(Told) + 'static,
) -> Result<(), Failed> {
    let work = || {
        let args = run_args(arguments)?;
        stay::stay(args, keeps_listener, now())
    };
    caller::during(told, ends, || exit::contain(work)).map_err(Failed::new)
}

/// Options of the program alone: what it prints, and the command that it starts.
const OF_THE_PROGRAM: [&str; 6] = ["format", "help", "max-restarts", "ports", "restart-delay", "workers"];

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    One,
    /// A value each time that it is given.
    Many,
}

/// The options of [`join`], or of [`stay`], by name.
pub fn options(stays: bool) -> Vec<(String, Takes)> {
    let none = clap::Command::new("mingle");
    let command = if stays { RunArgs::augment_args(none) } else { JoinArgs::augment_args(none) };
    let options =
        command.get_arguments().filter_map(|option| Some((option.get_long()?, option.get_action())));
    let here = options.filter(|(name, _)| !OF_THE_PROGRAM.contains(name));
    here.map(|(name, action)| {
        let takes = match action {
            ArgAction::SetTrue | ArgAction::Count => Takes::Nothing,
            ArgAction::Append => Takes::Many,
            _ => Takes::One,
        };
        (name.to_owned(), takes)
    })
    .collect()
}

/// What to do instead of an option that is gone.
pub fn instead_of(name: &str) -> Option<String> {
    args::instead_of(&format!("--{name}"))
}

fn run_args(arguments: Vec<String>) -> Result<RunArgs, Stop> {
    let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    // A command is required there, and none is started here.
    let words =
        own(&["mingle", "run"]).into_iter().chain(arguments).chain(own(&["--format=json", "--", ":"]));
    match parse(words)?.command {
        Some(Action::Run(args)) => Ok(*args),
        _ => Err(Stop::Usage("these options are of another command".to_owned())),
    }
}

fn parse(words: impl Iterator<Item = String>) -> Result<LowArgs, Stop> {
    let low = LowArgs::try_parse_from(words).map_err(|error| match usage(error, true) {
        // Without the lines about the usage of the program.
        Stop::Usage(text) => {
            Stop::Usage(text.split("\n\nUsage:").next().unwrap_or(&text).replace("\n\n ", ";"))
        }
        stop => stop,
    })?;
    check_variables(|name| std::env::var_os(name))?;
    Ok(low)
}

#[expect(clippy::disallowed_methods, reason = "the start of the time that the events and the end tell")]
fn now() -> Instant {
    Instant::now()
}

fn attend(arguments: Vec<String>, keeps_listener: bool) -> Result<(), Stop> {
    let started = now();
    let words = ["mingle".to_owned()].into_iter().chain(arguments).chain(["--format=json".to_owned()]);
    let mut config = Settings::scheduled(parse(words)?.join, environment_or_files)?;
    Split::Unattended.check(config.world)?;
    config.keeps_listener = keeps_listener;
    Journal::during(&config, started, |journal| {
        let found = prepare(&config)?;
        join::join_and_then(&config, &found, journal, async |mut assignment, journal| {
            let listener = assignment.listener.take();
            let formation = Formation::new(&config, &found, &assignment, journal.timings());
            let variables = formation.variables(Format::JSON)?;
            formation.write_outputs(Holder::own()).await?;
            formation.tell(&variables, 0, listener)
        })
    })
}

impl Failed {
    fn new(stop: Stop) -> Self {
        let facts = match &stop {
            Stop::Rendezvous(error) => facts(error),
            _ => json!({}),
        };
        Self { code: stop.code().get(), kind: stop.kind(), message: stop.to_string(), facts }
    }
}

/// What an error knows beside its text.
fn facts(error: &Error) -> Value {
    match error {
        Error::PortTaken { port, .. } | Error::DiscoveryPortTaken { port, .. } => json!({ "port": port }),
        Error::Failed(Failure::Deadline(report)) => {
            let Report { world, joined, heard, missing, absent, .. } = &**report;
            let heard: Vec<String> = heard.iter().map(ToString::to_string).collect();
            let missing: Vec<[u32; 2]> = missing.iter().map(|run| [run.first, run.last]).collect();
            json!({
                "world": world.to_string(), "joined": joined, "heard": heard, "missing": missing, "absent": absent,
            })
        }
        _ => json!({}),
    }
}
