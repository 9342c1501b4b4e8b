//! `mingle run -- COMMAND`: a command in the world.
//!
//! ```text
//! command     the command, and its variables
//! parent      stays as its parent with --max-restarts or --workers, and restarts it
//! attended    reacts to changes of the world, signals, and ends of processes
//! crew        the processes: starting them, signalling them, waiting for them
//! relay       what workers print
//! guard       stops them where the parent is killed
//! ```

mod attended;
pub(crate) mod command;
mod crew;
pub(crate) mod guard;
mod parent;
mod relay;

use std::time::Instant;

use crate::args::RunArgs;
use crate::config::{Restarts, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::nccl_conf::environment_or_files;
use crate::output::Holder;
use crate::prepare::prepare;
use command::Command;
use crew::Mark;
use parent::Run;

/// Returns only where the command was not started, or has ended as a child of this process.
pub(crate) fn run(args: RunArgs, started: Instant) -> Result<(), Stop> {
    let restarts = Restarts::new(&args)?;
    let mut config = Settings::scheduled(args.join, &environment_or_files)?;
    restarts.check(&config)?;
    let command = Command::new(args.command, config.format, config.port_count)?;
    let workers = config.set_workers(args.workers)?;
    config.stays = restarts.most != Some(0) || workers;
    config.hostfile = command.hostfile_format();
    config.command_lists_all = command.lists_all();
    // Before the rendezvous, so that the other nodes do not wait in vain.
    command.check()?;
    let held = config.hold_ports();
    Journal::during(&config, started, |journal| {
        held?;
        let found = prepare(&config)?;
        if config.stays {
            let mark = Mark::own();
            let run = Run { config: &config, found: &found, command: &command, workers, restarts, mark };
            return parent::supervise(&run, journal);
        }
        become_it(&config, &found, &command, journal)
    })
}

/// Becomes the command once the world has formed.
fn become_it(config: &Settings, found: &Found, command: &Command, journal: &mut Journal) -> Result<(), Stop> {
    let (mut process, hostfile) =
        join::join_and_then(config, found, journal, async |assignment, journal| {
            let formation = Formation::new(config, found, &assignment, journal.timings());
            let variables = formation.variables(config.format)?;
            formation.write_outputs(Holder::own()).await?;
            let hostfile = command.hostfile(&formation)?;
            let process = command.in_world(&formation, &variables, None, None, hostfile.as_ref())?;
            formation.report(&variables);
            Ok((process, hostfile))
        })?;
    journal.command_started(std::process::id());
    let _inherited = hand_over(config)?;
    let stop = command.become_it(&mut process);
    // `exec` has failed, so no command will read the file: remove it. After an `exec` that succeeds this line
    // never runs, and the file stays for the command.
    drop(hostfile);
    Err(stop)
}

/// Lets the command that starts next have the ports that are held for it.
fn hand_over(config: &Settings) -> Result<impl Drop, Stop> {
    config.held.hand_over().map_err(|error| Stop::System("hand the ports to the command", error))
}
