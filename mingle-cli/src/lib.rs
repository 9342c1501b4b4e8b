//! `eval "$(mingle --job-id foo --world 4)"`: the command line of mingle-core, as the program `mingle` and
//! for mingle-python. It promises no stability: a Rust program uses mingle-core.
//!
//! ```text
//! args -> config      what was typed, then what it means; scheduler fills in what was not typed
//! intent              how a failure is printed, even one of the parser
//! network             the options of the network, of all commands that have them
//! host                its files
//! fabric, slots       what RDMA this host has, and how many workers it runs
//! same                what is compared with the other nodes
//! prepare             what a node does before it waits for others
//! runtime, join, signals
//!                     the rendezvous, which a signal ends early; progress and stderr show it
//! output              the result in files
//! formation           the world, as it is printed and handed on
//! stdout, or exit     the result, or why there is none; columns: tables
//! advice              exit codes, and what a user can do about each failure and warning
//! events              what happens, for programs; with the time that each phase took
//!
//! embed, caller       the same rendezvous inside another program: what it is told instead of a terminal
//! stay                a world that stays, inside another program
//!
//! run                 the subcommand that starts a command in the world, and again where one fails
//! rdma                the subcommand that shows RDMA by itself
//! watch               the subcommand that listens to a job, or to all
//! doctor              the subcommand that says what would keep a world from forming
//! completions, man    the arguments, for shells and for man(1)
//! install             the subcommand that copies the program
//! ```

mod advice;
mod args;
mod caller;
mod columns;
mod completions;
mod config;
mod doctor;
pub mod embed;
mod events;
mod exit;
mod fabric;
mod formation;
mod host;
mod install;
mod intent;
mod join;
mod man;
mod nccl_conf;
mod network;
mod output;
mod prepare;
mod progress;
mod rdma;
mod run;
mod runtime;
mod same;
mod scheduler;
mod signals;
mod slots;
mod stay;
mod stderr;
mod stdout;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue};
use mingle_core::Secret;

use args::{Action, LowArgs};
use config::{Settings, check_split};
use events::Journal;
use exit::Stop;
use formation::Formation;
use intent::Intent;
use nccl_conf::environment_or_files;
use prepare::prepare;
use stdout::Stdout;

/// Runs the program with the arguments of this process, and returns its exit code.
pub fn main() -> ExitCode {
    let started = events::now();
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.first().is_some_and(|name| name == run::guard::NAME) {
        run::guard::guard(args.get(1..).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let variable = std::env::var_os("MINGLE_FORMAT");
    let intent = Intent::of(args.get(1..).unwrap_or_default(), variable.as_deref());
    let Err(stop) = run(args, started, intent) else { return ExitCode::SUCCESS };
    stop.report();
    // A failure of stdout itself has been reported above.
    if let Err(error) = Stdout::failed(intent, &stop)
        && !matches!(stop, Stop::Stdout(_))
    {
        error.report();
    }
    ExitCode::from(stop.code().get())
}

fn run(args: Vec<OsString>, started: Instant, intent: Intent) -> Result<(), Stop> {
    let low = match LowArgs::try_parse_from(args) {
        Ok(low) => low,
        Err(error) if error.use_stderr() => return Err(usage(error, intent.joins)),
        Err(help) => return Stdout::print(&help.render().to_string()),
    };
    match low.command {
        Some(Action::Run(args)) => return run::run(*args, started),
        Some(Action::Rdma(args)) => return rdma::run(&args),
        Some(Action::Doctor(args)) => return doctor::run(args),
        Some(Action::Watch(args)) => return watch::run(args),
        Some(Action::Install(args)) => return install::run(&args),
        Some(Action::Completions(args)) => return completions::run(&args),
        Some(Action::Man(args)) => return man::run(&args),
        Some(Action::Secret) => {
            Stdout::check()?;
            let secret = Secret::random().map_err(|error| Stop::System("read random bytes", error))?;
            return Stdout::print(&(secret.reveal() + "\n"));
        }
        None => {}
    }
    // Before files are read, which may take their time.
    Stdout::guard(intent.format)?;
    let mut config = Settings::scheduled(low.join, &environment_or_files)?;
    check_split(config.rendezvous.world, false)?;
    if config.outputs.is_empty() {
        Stdout::check()?;
    }
    Journal::during(&mut config, started, form)
}

/// Waits for the world, and prints it.
fn form(config: &mut Settings, journal: &mut Journal) -> Result<(), Stop> {
    config.hold_ports()?;
    let found = prepare(config)?;
    let (formation, text) = join::join_and_then(config, journal, |assignment, journal| {
        let formation = Formation::new(config, &found, assignment, journal)?;
        let text = formation.text()?;
        formation.write_outputs()?;
        Ok((formation, text))
    })?;
    Stdout::print(&text)?;
    formation.report();
    Ok(())
}

/// The parser's own message: what is wrong, a suggestion, and the usage. Where the command `joins` a world,
/// the options of other launchers have a suggestion.
fn usage(mut error: clap::Error, joins: bool) -> Stop {
    if joins
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && let Some(option) = args::of_other_launchers(word)
    {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(option.to_owned()));
    }
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
    {
        return Stop::Usage(args::not_after_options(word));
    }
    let text = error.render().to_string();
    Stop::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
}
