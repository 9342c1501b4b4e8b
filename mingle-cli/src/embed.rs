//! A rendezvous inside another program, with the options and variables of `mingle`.
//!
//! Nothing is printed and no signal is handled: the caller is told what happens, and asks for the end.

use std::mem;
use std::os::unix::net::UnixStream;

use clap::{ArgAction, Args as _, Parser as _};
use mingle_core::Error;
use mingle_core::error::{Failure, Report};
use serde_json::{Value, json};

pub use crate::caller::Told;

use crate::args::{Action, JoinArgs, LowArgs, RunArgs};
use crate::config::{Settings, check_split};
use crate::events::Journal;
use crate::exit::Stop;
use crate::nccl_conf::environment_or_files;
use crate::{caller, events, stay, usage};

/// Joins the world that these arguments of `mingle`, its variables and a scheduler describe, and tells the
/// caller; rank 0 keeps its listening socket for the caller if that wants it. It returns once the world has
/// formed, or cannot form, and the caller is told. To end it early, the caller makes the socket `ends`, which
/// must not block, readable: all sockets are closed, and the other nodes know at once that this one is gone.
///
/// A node that `stays` does so with one world after the other: this returns once the caller has left or all
/// nodes have finished. The options of `mingle run` count too that say when a world is over. The caller
/// writes a word in a packet to `ends`, the code before it, or closes it:
///
/// | word | the caller |
/// | --- | --- |
/// | `next` | wants to start again; a world that is not over yet ends with this exit code |
/// | `finish` | has ended well |
/// | `fail` | has failed with this exit code, and does not start again |
/// | `leave` | leaves, with this exit code of its process: 0 if somebody has asked it to |
///
/// While no world has formed, each word leaves at once.
///
/// Nothing else is shared with other threads, so this one may have a table of file descriptors of its own. It
/// must be in no tokio runtime.
pub fn join(
    arguments: Vec<String>,
    (keeps_listener, stays): (bool, bool),
    ends: UnixStream,
    told: impl Fn(Told) + 'static,
) {
    let work = || {
        let started = events::now();
        let low = parsed(arguments, stays)?;
        let (join, run) = match low.command {
            Some(Action::Run(mut args)) => (mem::take(&mut args.join), Some(args)),
            None => (low.join, None),
            _ => return Err(Stop::Usage("these options are of another command".to_owned())),
        };
        let mut config = Settings::scheduled(join, &environment_or_files)?;
        match run {
            Some(args) => config.set_restarts(&args, true)?,
            None => check_split(config.rendezvous.world, false)?,
        }
        config.rendezvous.keep_listener = keeps_listener;
        Journal::during(&mut config, started, stay::all_worlds)
    };
    caller::during(told, ends, || {
        if let Err(stop) = work() {
            let mut what = stop.document();
            what["facts"] = facts(&stop);
            caller::tell("failed", || what, None);
        }
    });
}

/// Options of the program alone: what it prints, and the command that it starts.
const OF_THE_PROGRAM: [&str; 6] = ["format", "help", "max-restarts", "ports", "restart-delay", "workers"];

/// The options of [`join`] for a node that stays, or for another, and the number of values that each takes:
/// 0, 1, or 2 for one each time that it is given.
pub fn options(stays: bool) -> Vec<(String, u8)> {
    let none = clap::Command::new("mingle");
    let command = if stays { RunArgs::augment_args(none) } else { JoinArgs::augment_args(none) };
    let options =
        command.get_arguments().filter_map(|option| Some((option.get_long()?, option.get_action())));
    let here = options.filter(|(name, _)| !OF_THE_PROGRAM.contains(name));
    here.map(|(name, action)| {
        let values = match action {
            ArgAction::SetTrue | ArgAction::Count => 0,
            ArgAction::Append => 2,
            _ => 1,
        };
        (name.to_owned(), values)
    })
    .collect()
}

/// The arguments as the program would take them, those of `mingle run` for a node that stays.
fn parsed(arguments: Vec<String>, stays: bool) -> Result<LowArgs, Stop> {
    let (command, format) = (["mingle", "run"], ["--format=json", "--", ":"]);
    // A command is required there, and none is started here.
    let (before, after) = if stays { (&command[..], &format[..]) } else { (&command[..1], &format[..1]) };
    let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let words = own(before).into_iter().chain(arguments).chain(own(after));
    LowArgs::try_parse_from(words).map_err(|error| match usage(error, true) {
        // Without the lines about the usage of the program.
        Stop::Usage(text) => {
            Stop::Usage(text.split("\n\nUsage:").next().unwrap_or(&text).replace("\n\n ", ";"))
        }
        stop => stop,
    })
}

/// What an error knows beside its text.
fn facts(stop: &Stop) -> Value {
    match stop {
        Stop::Rendezvous(Error::PortTaken { port, .. } | Error::DiscoveryPortTaken { port, .. }) => {
            json!({ "port": port })
        }
        Stop::Rendezvous(Error::Failed(Failure::Deadline(report))) => {
            let Report { world, joined, heard, missing, absent, .. } = &**report;
            let heard: Vec<String> = heard.iter().map(ToString::to_string).collect();
            json!({
                "world": world.to_string(), "joined": joined, "heard": heard,
                "missing": events::rank_ranges(missing), "absent": absent,
            })
        }
        _ => json!({}),
    }
}
