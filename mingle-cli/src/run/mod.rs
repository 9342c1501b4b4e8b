//! `mingle run -- COMMAND`: a command in the world.
//!
//! ```text
//! command     the command, and its variables
//! parent      stays as its parent with --max-restarts, and restarts it
//! child       the process: starting it, signalling it, waiting for it
//! ```

mod child;
mod command;
mod parent;

use std::time::Instant;

use crate::args::RunArgs;
use crate::config::{Config, Restarts};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::{join, prepare};
use command::Command;

/// Returns only where the command was not started, or has ended as a child of this process.
pub(crate) fn run(args: RunArgs, started: Instant) -> Result<(), Stop> {
    let restarts = Restarts::new(args.max_restarts, args.stop_timeout)?;
    let command = Command::new(args.command);
    let mut config = Config::scheduled(args.join, |name| std::env::var_os(name))?;
    config.stays = restarts.most > 0;
    config.lists_all = command.lists_all();
    // Before the rendezvous, so that the other nodes do not wait in vain.
    command.find()?;
    Journal::during(&config, started, |journal| {
        let found = prepare(&config)?;
        if config.stays {
            return parent::supervise(&config, &found, &command, restarts, started, journal);
        }
        become_it(&config, &found, &command, started, journal)
    })
}

/// Becomes the command once the world has formed.
fn become_it(
    config: &Config,
    found: &Found,
    command: &Command,
    started: Instant,
    journal: &mut Journal,
) -> Result<(), Stop> {
    let (mut process, hostfile) =
        join::join_and_then(config, found.summary, journal, |assignment, journal| {
            let formation = Formation::new(config, found, &assignment, journal.timings());
            let variables = formation.variables(config.format)?;
            formation.write_outputs()?;
            let begun = command.in_world(&formation, &variables, None)?;
            formation.report(&variables, started.elapsed());
            Ok(begun)
        })?;
    journal.command_started(std::process::id());
    let stop = command.become_it(&mut process);
    // `exec` has failed, so no command will read the file: remove it. After an `exec` that succeeds this line
    // never runs, and the file stays for the command.
    drop(hostfile);
    Err(stop)
}
