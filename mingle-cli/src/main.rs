//! `eval "$(mingle --job-id foo --world 4)"`: the command line of mingle-core.
//!
//! ```text
//! intent -> stdout    the guard, before anything can go wrong
//! args -> config      what was typed, then what it means
//! fabric              what RDMA this host has
//! join                the rendezvous; progress and stderr show it
//! stdout, or exit     the result, or why there is none
//!
//! rdma                the subcommand that shows RDMA by itself
//! doctor              the subcommand that says what would keep a world from forming
//! ```

mod args;
mod config;
mod doctor;
mod exit;
mod fabric;
mod intent;
mod join;
mod progress;
mod rdma;
mod stderr;
mod stdout;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;
use mingle_core::env::{Facts, Variables};
use mingle_core::{Assignment, Formed, Secret};

use args::{Command, LowArgs};
use config::Config;
use exit::Stop;
use intent::Intent;
use stdout::Stdout;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "the real world, to which the time it took is told")]
    let started = Instant::now();
    let args: Vec<OsString> = std::env::args_os().collect();
    let variable = std::env::var_os("MINGLE_FORMAT");
    let intent = Intent::of(args.get(1..).unwrap_or_default(), variable.as_deref());
    let (mut stdout, begun) = Stdout::begin(intent);

    let ended = begun.and_then(|()| exit::catch(|| run(args, started, &mut stdout)));
    let Err(stop) = ended else { return ExitCode::SUCCESS };
    stop.report();
    if let Err(error) = stdout.failed(&stop) {
        // Where stdout was the failure, it has been said.
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
        Some(Command::Rdma(args)) => return rdma::run(&args),
        Some(Command::Doctor(args)) => return doctor::run(args),
        Some(Command::Secret) => {
            let secret = Secret::random().map_err(|error| Stop::System("read random bytes", error))?;
            return Stdout::plain(secret.reveal() + "\n");
        }
        None => {}
    }
    let config = Config::new(low, |name| std::env::var_os(name))?;
    stdout.settle(config.format)?;
    stderr::log(config.verbose);
    for warning in config.warnings.iter().filter(|_| !config.quiet) {
        stderr::say(format_args!("warning: {warning}"));
    }

    let found = config.fabric.find(environment)?;
    if !config.quiet {
        found.warn();
    }
    let assignment = join::join(&config, found.summary).inspect_err(|stop| {
        if !config.quiet {
            doctor::after(stop, config.network());
        }
    })?;
    let Assignment { job, rank, world, master, local, interface, digest, roster, verdict, .. } = assignment;
    let fabric = found.variables(verdict.transport);
    let formed = Formed { rank, world, master, local, digest, roster, verdict };
    let facts = Facts {
        job: &job,
        formed: &formed,
        interface: interface.as_deref(),
        fabric: &fabric,
        settings: &config.fabric.settings,
    };
    let variables = Variables::new(facts, environment);
    stdout.formed(facts, &variables)?;

    for kept in variables.kept() {
        tracing::debug!("{} is set already, and left as it is", kept.name);
    }
    if !config.quiet {
        if let (true, Some(interface)) = (variables.interface_is_unnameable(), &interface) {
            stderr::say(format_args!(
                "warning: NCCL and Gloo cannot be told to use {interface:?}, for its name; rename it, or \
                 choose another --interface"
            ));
        }
        found.report(&formed.verdict);
        fabric::tell_kept(&variables, &config.fabric.settings, &fabric);
        let time = progress::duration(started.elapsed());
        stderr::say(format_args!("world of {world} formed in {time}: rank {rank}, master {master}"));
    }
    Ok(())
}

/// A variable of the environment. What is not UTF-8 is the user's all the same.
fn environment(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// The parser's own message: what is wrong, what may have been meant, and how it is used.
fn usage(error: &clap::Error) -> Stop {
    let text = error.render().to_string();
    Stop::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
}
