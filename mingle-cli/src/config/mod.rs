//! The configuration: the second step, in which text from arguments and environment is checked.

mod reader;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mingle_core::env::{Format, PET_NPROC_PER_NODE, Template, job_interfaces, users_value};
use mingle_core::tools::HeldPorts;
use mingle_core::{Paths, RankKey, Rendezvous, Session};

use crate::args::{JoinArgs, RunArgs};
use crate::exit::Stop;
use crate::fabric::Wanted;
use crate::host::Host;
use crate::nccl_conf::environment_or_files;
use crate::output::OutputFile;
use crate::scheduler::{Environment, HostList, Provided, Scheduler};
use crate::slots;
use values::{
    FORGET_RESTARTS, check_ports, format, paths, port_count, restarts, slots_number, verbose, workers,
};

pub(crate) use reader::Reader;
pub(crate) use values::{LONGEST, check_split};

/// The default of `--restart-delay`.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The formats whose variables hold for each of several processes on a node.
const FOR_WORKERS: [Format; 6] =
    [Format::SH, Format::FISH, Format::JSON, Format::DOTENV, Format::JAX, Format::TEMPLATE];

/// Everything that was asked for, checked.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What this node brings to the rendezvous, as far as the user and a scheduler have said it.
    pub(crate) rendezvous: Rendezvous,
    /// Mistakes that do not end the run.
    pub(crate) warnings: Vec<String>,
    pub(crate) fabric: Wanted,
    /// The pairs of `--same`, which should be the same on all nodes.
    pub(crate) same: BTreeMap<String, String>,
    /// The values that a scheduler has provided, with their variables; none where it has provided none.
    pub(crate) provenance: Option<String>,
    /// Whether an option or its variable gives the number of workers.
    pub(crate) slots_given: bool,
    pub(crate) format: Format,
    /// The text of the format `template`.
    pub(crate) template: Option<Template>,
    pub(crate) outputs: Vec<OutputFile>,
    /// The file of `--events`.
    pub(crate) events: Option<PathBuf>,
    pub(crate) quiet: bool,
    pub(crate) verbose: u8,
    /// How many ports to hold for the job.
    pub(crate) port_count: usize,
    /// The ports that are held.
    pub(crate) held: HeldPorts,
}

impl Settings {
    /// Checks the arguments, then the variables of `environment`, and then those of a scheduler.
    pub(crate) fn scheduled(mut low: JoinArgs, environment: Environment<'_>) -> Result<Self, Stop> {
        let (scheduler, reader) = (Scheduler::new(environment), Reader(environment));
        let (fabric, mut provenance) = (reader.fabric(&low)?, Provenance::default());
        let mut rendezvous = provenance.rendezvous(&mut low, &reader, &scheduler)?;
        let world = rendezvous.world;
        rendezvous.network.job_interfaces = job_interfaces(|name| environment(name)?.into_string().ok());
        let (secret, mut warnings) = reader.secret(low.secret_file)?;
        rendezvous.secret = secret;
        provenance.check_tasks(&scheduler)?;
        warnings.extend(provenance.warn_of_batch_shell(&scheduler)?);
        // Its variable may be set for all jobs of a cluster.
        if let Some(given) = low.last_call.as_ref().filter(|_| !world.is_range()) {
            warnings.push(format!(
                "--last-call {given} is ignored: it is for a range, such as --world 3:4, and --world {world} is one size"
            ));
        }
        let slots = reader.read(low.slots, "slots", slots_number)?;
        let attributes = &mut rendezvous.attributes;
        attributes.slots = slots.unwrap_or_else(|| slots_of_host(&fabric, environment));
        let (format, template) = reader.read(low.format, "format", format)?.unwrap_or((Format::SH, None));
        attributes.requires_same = reader.flag(low.require_same, "require-same")?;
        if world.max().get() > 1 {
            attributes.user = reader.user();
        }
        attributes.paths = reader.read(low.paths, "paths", paths)?.unwrap_or_default();
        rendezvous.private = reader.flag(low.private, "private")?;
        rendezvous.timeout = reader.time(low.timeout, "timeout", Rendezvous::TIMEOUT)?;
        rendezvous.last_call =
            reader.time(low.last_call, "last-call", Rendezvous::LAST_CALL)?.unwrap_or(LONGEST);
        rendezvous.stays = false;
        let config = Self {
            rendezvous,
            warnings,
            fabric,
            same: reader.same(low.same)?,
            provenance: provenance.text(),
            slots_given: slots.is_some(),
            format,
            template,
            outputs: reader.outputs(low.output)?,
            events: reader.read(low.events, "events", str::parse)?,
            quiet: reader.flag(low.quiet, "quiet")?,
            verbose: match low.verbose {
                0 => reader.read(None, "verbose", verbose)?.unwrap_or(0),
                count => count,
            },
            port_count: reader.read(low.ports, "ports", port_count)?.unwrap_or(0),
            held: HeldPorts::default(),
        };
        let templates = config.outputs.iter().map(|output| &output.template).chain([&config.template]);
        for template in templates.flatten() {
            check_ports(template, config.port_count, "the template")?;
        }
        Ok(config)
    }

    /// Takes the options of `mingle run` that say when a world is over. Where a program decides about each
    /// restart, their number does not count.
    pub(crate) fn set_restarts(&mut self, args: &RunArgs, caller_decides: bool) -> Result<(), Stop> {
        let reader = Reader(&environment_or_files);
        let time = |argument: &Option<String>, option, default, forever| {
            reader.time(argument.clone(), option, default).map(|time| time.unwrap_or(forever))
        };
        let given = reader.read(args.max_restarts.clone(), "max-restarts", restarts)?;
        let (most, forget) = given.unwrap_or((0, FORGET_RESTARTS));
        let rendezvous = &mut self.rendezvous;
        rendezvous.stop_timeout =
            time(&args.stop_timeout, "stop-timeout", Rendezvous::STOP_TIMEOUT, LONGEST)?;
        let delay = time(&args.restart_delay, "restart-delay", RESTART_DELAY, Duration::ZERO)?;
        rendezvous.gone_after = time(&args.gone_after, "gone-after", Rendezvous::GONE_AFTER, LONGEST)?;
        rendezvous.grows = reader.flag(args.grow, "grow")?;
        let allows_split = reader.flag(args.allow_split, "allow-split")?;
        let restarts = &mut rendezvous.restarts;
        (restarts.most, restarts.delay, restarts.forget) = ((!caller_decides).then_some(most), delay, forget);
        rendezvous.stays = caller_decides || most > 0;
        if !(rendezvous.stays && allows_split) {
            check_split(rendezvous.world, rendezvous.stays)?;
        }
        self.check_growth()
    }

    /// Refuses `--grow` where no world could grow.
    fn check_growth(&self) -> Result<(), Stop> {
        let Rendezvous { world, grows, stays, attributes, .. } = &self.rendezvous;
        let problem: &str = if !grows {
            return Ok(());
        } else if !world.is_range() {
            "a world of one size has no room to grow; give a range, such as --world 2:8"
        } else if !stays {
            "nobody stays to take nodes in; give --max-restarts as well"
        } else if attributes.paths == Paths::Master {
            "nodes that wait have to reach rank 0 at its port for paths; leave --paths master away"
        } else if self.formats().all(Format::uses_own_ports) {
            &format!(
                "nodes that wait have to reach rank 0 at a port that is not the job's; choose another --format than {}",
                self.format
            )
        } else {
            return Ok(());
        };
        Err(Stop::Usage(format!("--grow (or MINGLE_GROW): {problem}")))
    }

    /// Takes `--workers` into account, and returns whether it is given.
    pub(crate) fn set_workers(&mut self, argument: Option<String>) -> Result<bool, Stop> {
        let reader = Reader(&environment_or_files);
        let Some(given) = reader.read(argument, "workers", workers)? else { return Ok(false) };
        if let Some(count) = given {
            let slots = std::mem::replace(&mut self.rendezvous.attributes.slots, count);
            if std::mem::replace(&mut self.slots_given, true) && slots != count {
                return Err(Stop::Usage(format!(
                    "--workers {count} and --slots {slots} disagree on how many workers run here; give one of the two"
                )));
            }
        }
        if !FOR_WORKERS.contains(&self.format) {
            return Err(Stop::Usage(format!(
                "--format {} is for a launcher that starts the workers of a node itself, as --workers does; give one \
                 of the two",
                self.format
            )));
        }
        Ok(true)
    }

    /// Holds the ports of `--ports`.
    pub(crate) fn hold_ports(&mut self) -> Result<(), Stop> {
        let Rendezvous { job, network, .. } = &self.rendezvous;
        self.held = HeldPorts::hold(self.port_count, job, network).map_err(Stop::Rendezvous)?;
        Ok(())
    }

    /// The session with the job, with what the formats need.
    pub(crate) fn session(&self) -> Session {
        self.with_formats().session()
    }

    fn with_formats(&self) -> Rendezvous {
        let mut rendezvous = self.rendezvous.clone();
        rendezvous.own_ports = self.formats().all(Format::uses_own_ports);
        // The variables of a shell do not need the roster, so it is not transferred for them.
        rendezvous.attributes.wants_roster |= self.formats().any(Format::needs_roster);
        rendezvous
    }

    /// The formats in which the world is written, on stdout and to files.
    pub(crate) fn formats(&self) -> impl Iterator<Item = Format> {
        [self.format].into_iter().chain(self.files())
    }

    /// The formats of the files of --output.
    pub(crate) fn files(&self) -> impl Iterator<Item = Format> {
        self.outputs.iter().map(|output| output.format)
    }
}

/// The settings that a scheduler has provided.
#[derive(Debug, Default)]
struct Provenance(Vec<(&'static str, Provided<String>)>);

impl Provenance {
    /// The rendezvous of this job, world and rank, and of these seeds. Where a rank key is given, it decides
    /// on the rank, and a scheduler does not.
    fn rendezvous(
        &mut self,
        low: &mut JoinArgs,
        reader: &Reader<'_>,
        scheduler: &Scheduler<'_>,
    ) -> Result<Rendezvous, Stop> {
        let world = reader.read(low.world.take(), "world", values::world_size)?;
        let world = self.or(world, "world", || scheduler.world())?;
        let job = self.or(reader.job(low.job_id.take())?, "job", || scheduler.job())?;
        let (job, world) = match (job, world) {
            (Some(job), Some(world)) => (job, world),
            (job, world) => return Err(missing(job.is_none(), world.is_none())),
        };
        let mut rendezvous = Rendezvous::new(job, world);
        let given = reader.read(low.rank.take(), "rank", |text| values::rank(text, world))?;
        let rank_key: Option<RankKey> = reader.read(low.rank_key.take(), "rank-key", str::parse)?;
        let of_scheduler = || if rank_key.is_some() { Ok(None) } else { scheduler.rank(world) };
        rendezvous.rank = self.or(given, "rank", of_scheduler)?;
        rendezvous.attributes.rank_key = rank_key.unwrap_or_default();
        let mut network = std::mem::take(&mut low.network).read(reader)?;
        if network.seeds.is_empty() {
            let seeds = self.or(None, "seed", || scheduler.seeds())?;
            network.seeds.extend(seeds.into_iter().flat_map(|HostList(seeds)| seeds));
        }
        values::check_without_multicast(&network, world)?;
        rendezvous.network = network;
        Ok(rendezvous)
    }

    /// The value that was given, or else the scheduler's.
    fn or<T: fmt::Display>(
        &mut self,
        given: Option<T>,
        setting: &'static str,
        ask: impl FnOnce() -> Result<Option<Provided<T>>, Stop>,
    ) -> Result<Option<T>, Stop> {
        if given.is_some() {
            return Ok(given);
        }
        let Some(Provided { variable, value }) = ask()? else { return Ok(None) };
        self.0.push((setting, Provided { variable, value: value.to_string() }));
        Ok(Some(value))
    }

    /// Whether Slurm has provided this setting.
    fn is_slurms(&self, setting: &str) -> bool {
        self.0.iter().any(|(other, provided)| *other == setting && provided.variable.starts_with("SLURM_"))
    }

    /// Refuses a rank of Slurm's that several tasks of a node have.
    fn check_tasks(&self, scheduler: &Scheduler<'_>) -> Result<(), Stop> {
        let Some((tasks, nodes)) = scheduler.tasks_beyond_nodes()?.filter(|_| self.is_slurms("rank")) else {
            return Ok(());
        };
        Err(Stop::Usage(format!(
            "this step has {tasks} tasks on {nodes} nodes, and the tasks of a node have one rank in SLURM_NODEID; start \
             one on each node with srun --ntasks-per-node=1, which starts the workers by torchrun or mingle run --workers"
        )))
    }

    /// A warning where this is the shell of a Slurm batch script; an error where the world comes from Slurm
    /// as well, since no other node would start.
    fn warn_of_batch_shell(&self, scheduler: &Scheduler<'_>) -> Result<Option<String>, Stop> {
        if !self.0.iter().any(|(setting, _)| self.is_slurms(setting)) || !scheduler.is_batch_shell()? {
            return Ok(None);
        }
        let what = "this is the shell of a Slurm batch script, which runs on one node of several; start mingle \
                    and the commands after it with srun, on every node";
        if self.is_slurms("world") {
            return Err(Stop::Usage(what.to_owned()));
        }
        Ok(Some(what.to_owned()))
    }

    /// `rank 2 from SLURM_NODEID, world 4 from SLURM_NNODES`; none where a scheduler has provided nothing.
    fn text(&self) -> Option<String> {
        let mut all: Vec<_> = self.0.iter().collect();
        // The rank first, which differs from node to node.
        all.sort_by_key(|(setting, _)| *setting != "rank");
        let texts: Vec<String> = all.iter().map(|(setting, from)| format!("{setting} {from}")).collect();
        Some(texts.join(", ")).filter(|text| !text.is_empty())
    }
}

/// The number of workers in PET_NPROC_PER_NODE, where the user has set it, or else the number of GPUs.
fn slots_of_host(fabric: &Wanted, environment: Environment<'_>) -> u32 {
    let text = |name: &str| environment(name).map(|value| value.to_string_lossy().into_owned());
    let users = users_value(PET_NPROC_PER_NODE, text).and_then(|value| slots_number(&value).ok());
    users.unwrap_or_else(|| slots::of_host(&Host(fabric.root.clone()), text))
}

/// What is missing: the job, the world, or both.
fn missing(job: bool, world: bool) -> Stop {
    const JOB: &str = "--job-id is missing: give all nodes of one job the same name, such as --job-id foo (or set \
                       MINGLE_JOB_ID)";
    const WORLD: &str =
        "--world is missing: say how many nodes there are, such as --world 4 (or set MINGLE_WORLD)";
    let texts: Vec<&str> = [job.then_some(JOB), world.then_some(WORLD)].into_iter().flatten().collect();
    Stop::Usage(format!("{}; see mingle --help", texts.join("; ")))
}

#[cfg(test)]
mod tests;
