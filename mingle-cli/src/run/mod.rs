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
mod command;
mod crew;
pub(crate) mod guard;
mod parent;
mod relay;

use std::mem;
use std::os::unix::process::CommandExt as _;
use std::time::Instant;

use crate::args::RunArgs;
use crate::config::Settings;
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::nccl_conf::environment_or_files;
use crate::prepare::prepare;
use command::Command;
use crew::Mark;
use parent::Run;

/// Returns only where the command was not started, or has ended as a child of this process.
pub(crate) fn run(mut args: RunArgs, started: Instant) -> Result<(), Stop> {
    let mut config = Settings::scheduled(mem::take(&mut args.join), &environment_or_files)?;
    config.set_restarts(&args, false)?;
    let command = Command::new(args.command, config.format, config.port_count)?;
    let workers = config.set_workers(args.workers)?;
    config.rendezvous.stays |= workers;
    let (stays, restarts) = (config.rendezvous.stays, config.rendezvous.restarts.most > Some(0));
    let becomes = "mingle becomes the command; give --max-restarts or --workers as well";
    let without_effect = [
        ("gone-after", &args.gone_after, stays, becomes),
        ("stop-timeout", &args.stop_timeout, stays, becomes),
        ("restart-delay", &args.restart_delay, restarts, "nothing restarts; give --max-restarts as well"),
    ];
    let of = without_effect.iter().find(|(_, given, has_effect, _)| given.is_some() && !has_effect);
    if let Some((option, _, _, why)) = of {
        return Err(Stop::Usage(format!("--{option} has no effect, since {why}")));
    }
    config.rendezvous.attributes.wants_roster = command.lists_all();
    // Before the rendezvous, so that the other nodes do not wait in vain.
    command.check()?;
    Journal::during(&mut config, started, |config, journal| {
        config.hold_ports()?;
        let found = prepare(config)?;
        if config.rendezvous.stays {
            let run = Run { config, command: &command, workers, mark: Mark::random()? };
            return parent::supervise(&run, found, journal);
        }
        become_it(config, &found, &command, journal)
    })
}

/// Becomes the command once the world has formed.
fn become_it(config: &Settings, found: &Found, command: &Command, journal: &mut Journal) -> Result<(), Stop> {
    let mut process = join::join_and_then(config, journal, |assignment, journal| {
        let formation = Formation::new(config, found, assignment, journal)?;
        formation.write_outputs()?;
        let process = command.in_world(&formation, None, None)?;
        formation.report();
        Ok(process)
    })?;
    journal.command_started(std::process::id());
    let _inherited = hand_over(config)?;
    Err(command.failed(process.exec()))
}

/// Lets the command that starts next have the ports that are held for it.
fn hand_over(config: &Settings) -> Result<impl Drop, Stop> {
    config.held.hand_over().map_err(|error| Stop::System("hand the ports to the command", error))
}
