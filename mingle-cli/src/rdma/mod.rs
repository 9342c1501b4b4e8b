//! `mingle rdma`: the RDMA devices of this host, and which of them a job would use.

mod check_log;
mod document;
mod table;
mod watch;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

use mingle_core::env::{Variables, users_value};
use mingle_core::rdma::{self, Machine, Transport, Users};

use crate::args::RdmaArgs;
use crate::exit::Stop;
use crate::host::HERE;
use crate::nccl_conf::environment;
use crate::stderr;
use crate::stdout::Stdout;
use document::{advice, document};

/// The longest interval for `--watch`, in seconds.
const LONGEST: f64 = 3600.0;

/// Runs the subcommand.
pub(crate) fn run(args: &RdmaArgs) -> Result<(), Stop> {
    let format = args.format.as_deref().unwrap_or("table");
    if let Some(seconds) = &args.watch {
        let every = interval(seconds)?;
        return watch::run(&HERE, every, &mut Stdout::stream()?).map_err(Stop::Stdout);
    }
    if let Some(file) = &args.check_log {
        return check_log(file, format);
    }
    if let Some(folder) = &args.save {
        return save(folder);
    }
    let machine = match &args.from {
        None => rdma::survey().map_err(|error| Stop::System("list this host's addresses", error))?,
        Some(folder) => Machine::from_snapshot(folder)
            .map_err(|error| Stop::Usage(format!("--from {}: {error}", folder.display())))?,
    };
    show(&machine, format)
}

fn show(machine: &Machine, format: &str) -> Result<(), Stop> {
    let choice = machine.choose();
    let transport = Transport::alone(&choice);
    let users = Users::new(|name| users_value(name, environment));
    let variables = Variables::of_fabric(&rdma::beside(machine, transport, &users), environment);
    let mut warnings = rdma::warnings(machine, transport, &users);
    warnings.extend(rdma::unusable(machine));
    let line = |(name, value): (&&str, &&str)| format!("{name}={value}\n");
    let document = document(machine, &choice, &variables, &warnings);
    match format {
        // The values contain only characters that no shell interprets.
        "env" => Stdout::print(&advice(&variables).iter().map(line).collect::<String>())?,
        "json" => Stdout::json(&document)?,
        _ => Stdout::print(&table::text(&document))?,
    }
    for kept in variables.kept() {
        stderr::say(format_args!("{} is already set and is kept", kept.name));
    }
    stderr::warn(&warnings);
    Ok(())
}

fn save(folder: &Path) -> Result<(), Stop> {
    let saved = rdma::save(folder);
    saved.map_err(|error| Stop::Usage(format!("--save {}: {error}; give a new folder", folder.display())))?;
    let folder = folder.display();
    stderr::say(format_args!("saved in {folder}; show it with 'mingle rdma --from {folder}'"));
    Ok(())
}

fn check_log(file: &Path, format: &str) -> Result<(), Stop> {
    let failed = |error: io::Error| Stop::Usage(format!("--check-log {}: {error}", file.display()));
    let report = if file == Path::new("-") {
        check_log::read(io::stdin().lock())
    } else {
        File::open(file).and_then(|log| check_log::read(BufReader::new(log)))
    };
    let report = report.map_err(failed)?;
    match format {
        "env" => Err(Stop::Usage("--format env: a log has no variables; give table or json".to_owned())),
        "json" => Stdout::json(&report.json()),
        _ => Stdout::print(&report.to_string()),
    }
}

fn interval(text: &str) -> Result<Duration, Stop> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Stop::Usage(format!("--watch {text}: give seconds, 0.1 to {LONGEST}"))),
    }
}
