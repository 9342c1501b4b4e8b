//! `eval "$(mingle --job-id foo --world 4)"`: the command line of mingle-core.
//!
//! ```text
//! intent -> stdout    the guard, before anything can go wrong
//! args -> config      what was typed, then what it means; scheduler fills in what was not typed
//! network             the options of the network, of all commands that have them
//! fabric, slots       what RDMA this host has, and how many workers it runs
//! join, signals       the rendezvous, which a signal ends early; progress and stderr show it
//! output              the result in files; process: what proc(5) says of one
//! formation           the world, as it is printed and handed on
//! stdout, or exit     the result, or why there is none
//! advice              exit codes, and what a user can do about each failure and warning
//! events              what happens, for programs; with the time that each phase took
//!
//! run                 the subcommand that starts a command in the world, and again where one fails
//! rdma                the subcommand that shows RDMA by itself
//! watch               the subcommand that listens to a job, or to all
//! doctor              the subcommand that says what would keep a world from forming
//! completions, man    the arguments, for shells and for man(1)
//! ```

mod advice;
mod args;
mod completions;
mod config;
mod doctor;
mod events;
mod exit;
mod fabric;
mod formation;
mod intent;
mod join;
mod man;
mod network;
mod output;
mod process;
mod progress;
mod rdma;
mod run;
mod scheduler;
mod signals;
mod slots;
mod stderr;
mod stdout;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;
use mingle_core::Secret;

use args::{Command, LowArgs};
use config::Config;
use events::Journal;
use exit::Stop;
use fabric::Found;
use formation::Formation;
use intent::Intent;
use output::Holder;
use stdout::Stdout;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "the start of the time that the final message reports")]
    let started = Instant::now();
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.first().is_some_and(|name| name == run::guard::NAME) {
        run::guard::guard(args.get(1..).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let variable = std::env::var_os("MINGLE_FORMAT");
    let intent = Intent::of(args.get(1..).unwrap_or_default(), variable.as_deref());
    let (mut stdout, begun) = Stdout::begin(intent);

    let ended = begun.and_then(|()| exit::catch(|| run(args, started, &mut stdout)));
    let Err(stop) = ended else { return ExitCode::SUCCESS };
    stop.report();
    if let Err(error) = stdout.failed(&stop) {
        // A failure of stdout itself has been reported above.
        if !matches!(stop, Stop::Stdout(_)) {
            error.report();
        }
    }
    ExitCode::from(stop.code().get())
}

fn run(args: Vec<OsString>, started: Instant, stdout: &mut Stdout) -> Result<(), Stop> {
    let low = match LowArgs::try_parse_from(args) {
        Ok(low) => low,
        Err(error) if error.use_stderr() => return Err(usage(&error)),
        Err(help) => return Stdout::plain(help.render().to_string()),
    };
    match low.command {
        Some(Command::Run(args)) => return run::run(*args, started),
        Some(Command::Rdma(args)) => return rdma::run(&args),
        Some(Command::Doctor(args)) => return doctor::run(args),
        Some(Command::Watch(args)) => return watch::run(args),
        Some(Command::Completions(args)) => return completions::run(&args),
        Some(Command::Man(args)) => return man::run(&args),
        Some(Command::Secret(_)) => {
            let secret = Secret::random().map_err(|error| Stop::System("read random bytes", error))?;
            return Stdout::plain(secret.reveal() + "\n");
        }
        None => {}
    }
    let config = Config::scheduled(low.join, |name| std::env::var_os(name))?;
    stdout.settle(config.format)?;
    Journal::during(&config, started, |journal| form(&config, started, journal))
}

/// Waits for the world, and prints it.
fn form(config: &Config, started: Instant, journal: &mut Journal) -> Result<(), Stop> {
    let found = prepare(config)?;
    let formed = join::join_and_then(config, &found, journal, async |assignment, journal| {
        let timings = journal.timings();
        let formation = Formation::new(config, &found, &assignment, timings);
        let variables = formation.variables(config.format)?;
        let text = formation.text(config.format, &variables)?;
        formation.write_outputs(Holder::parent(), started.elapsed()).await?;
        Ok((assignment, timings, variables, text))
    });
    let (assignment, timings, variables, text) = formed?;
    Stdout::formed(&text)?;
    Formation::new(config, &found, &assignment, timings).report(&variables, started.elapsed());
    Ok(())
}

/// Starts the log, prints warnings, looks at this host, and checks that its files can be written, before this
/// node waits for others.
fn prepare(config: &Config) -> Result<Found, Stop> {
    stderr::log(config.verbose, config.log_format);
    if !config.quiet {
        for warning in &config.warnings {
            stderr::say(format_args!("warning: {warning}"));
        }
        if let Some(provenance) = &config.provenance {
            stderr::say(format_args!("{provenance}"));
        }
    }
    for output in &config.outputs {
        output.check().map_err(|error| Stop::Unwritable(output.path.clone(), error))?;
    }
    let found = config.fabric.find(environment)?;
    if !config.quiet {
        found.warn();
    }
    Ok(found)
}

/// A variable of the environment; one that is not UTF-8 counts as set by the user as well.
fn environment(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// Whether --format asks for a report for programs.
fn wants_json(format: Option<&str>) -> Result<bool, Stop> {
    match format {
        None | Some("text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => Err(Stop::Usage(format!("--format {other}: the format is 'text' or 'json'"))),
    }
}

/// The parser's own message: what is wrong, a suggestion, and the usage.
fn usage(error: &clap::Error) -> Stop {
    let text = error.render().to_string();
    Stop::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
}
