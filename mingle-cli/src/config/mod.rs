//! The configuration: the second step, in which text from arguments and environment is checked.

mod reader;
mod same;
pub(crate) mod values;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mingle_core::env::{Format, MINGLE_SET, PET_NPROC_PER_NODE, Template, is_own, job_interfaces};
use mingle_core::tools::HeldPorts;
use mingle_core::{JobId, Network, Paths, Rank, RankKey, Rendezvous, Secret, User, WorldSize};

use crate::args::{JoinArgs, RunArgs};
use crate::exit::Stop;
use crate::fabric::Wanted;
use crate::host::Host;
use crate::output::OutputFile;
use crate::scheduler::{Environment, HostList, Provided, Scheduler};
use crate::slots::{self, SlotCount};
use values::{FORGET_RESTARTS, format, paths, port_count, restarts, slots_number, verbose, workers};

pub(crate) use reader::Reader;
pub(crate) use same::SameWanted;
pub(crate) use values::{LONGEST, check_split};

/// The default of `--restart-delay`.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The formats whose variables hold for each of several processes on a node.
const FOR_WORKERS: [Format; 6] =
    [Format::SH, Format::FISH, Format::JSON, Format::DOTENV, Format::JAX, Format::TEMPLATE];

/// Everything that was asked for, checked.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Settings {
    pub(crate) job: JobId,
    pub(crate) world: WorldSize,
    last_call: Duration,
    rank: Option<Rank>,
    user: User,
    pub(crate) secret: Option<Secret>,
    private: bool,
    /// Mistakes that do not end the run.
    pub(crate) warnings: Vec<String>,
    pub(crate) network: Network,
    pub(crate) rank_key: Option<RankKey>,
    paths: Paths,
    /// How long to wait for the world; none means for ever.
    timeout: Option<Duration>,
    pub(crate) fabric: Wanted,
    /// What should be the same on all nodes.
    pub(crate) same: SameWanted,
    /// The values that a scheduler has provided, with their variables; none where it has provided none.
    pub(crate) provenance: Option<String>,
    pub(crate) slots: SlotCount,
    pub(crate) format: Format,
    /// The text of the format `template`.
    pub(crate) template: Option<Template>,
    pub(crate) outputs: Vec<OutputFile>,
    /// The file of `--events`.
    pub(crate) events: Option<PathBuf>,
    pub(crate) quiet: bool,
    pub(crate) verbose: u8,
    /// Whether this node stays with its running world, to restart with it.
    pub(crate) stays: bool,
    /// The format of the file that `mingle run` writes for the command.
    pub(crate) hostfile: Option<Format>,
    /// Whether the words of the command have values of all nodes.
    pub(crate) command_lists_all: bool,
    /// Whether rank 0 hands its listening socket on.
    pub(crate) keeps_listener: bool,
    /// How many ports to hold for the job.
    pub(crate) port_count: usize,
    /// The ports that are held.
    pub(crate) held: HeldPorts,
}

impl Settings {
    /// Checks the arguments, then the variables of `environment`, and then those of a scheduler.
    pub(crate) fn scheduled(mut low: JoinArgs, environment: Environment<'_>) -> Result<Self, Stop> {
        let (scheduler, reader) = (Scheduler::new(environment), Reader(environment));
        let fabric = reader.fabric(&low)?;
        let Identity { job, world, rank, rank_key, mut network, provenance } =
            Identity::read(&mut low, &reader, &scheduler)?;
        network.job_interfaces =
            job_interfaces(&fabric.settings, |name| environment(name)?.into_string().ok());
        let (secret, mut warnings) = reader.secret(low.secret_file)?;
        provenance.check_tasks(&scheduler)?;
        warnings.extend(provenance.warn_of_batch_shell(&scheduler)?);
        // Its variable may be set for all jobs of a cluster.
        if let Some(given) = low.last_call.as_ref().filter(|_| !world.is_range()) {
            warnings.push(format!(
                "--last-call {given} is ignored: it is for a range, such as --world 3:4, and --world {world} is one size"
            ));
        }
        let slots = match reader.read(low.slots, "slots", slots_number)? {
            Some(count) => SlotCount { count, is_given: true },
            None => SlotCount { count: slots_of_host(&fabric, environment), is_given: false },
        };
        let (format, template) = reader.read(low.format, "format", format)?.unwrap_or((Format::SH, None));
        let config = Self {
            slots,
            format,
            template,
            outputs: reader.outputs(low.output)?,
            provenance: provenance.text(),
            same: reader.same(low.same, low.require_same)?,
            fabric,
            secret,
            warnings,
            rank,
            user: if world.max().get() == 1 { User::default() } else { reader.user() },
            network,
            rank_key,
            paths: reader.read(low.paths, "paths", paths)?.unwrap_or_default(),
            private: reader.flag(low.private, "private")?,
            timeout: reader.time(low.timeout, "timeout", Rendezvous::TIMEOUT)?,
            last_call: reader.time(low.last_call, "last-call", Rendezvous::LAST_CALL)?.unwrap_or(LONGEST),
            events: reader.read(low.events, "events", str::parse)?,
            quiet: reader.flag(low.quiet, "quiet")?,
            verbose: match low.verbose {
                0 => reader.read(None, "verbose", verbose)?.unwrap_or(0),
                count => count,
            },
            stays: false,
            hostfile: None,
            command_lists_all: false,
            keeps_listener: false,
            port_count: reader.read(low.ports, "ports", port_count)?.unwrap_or(0),
            held: HeldPorts::default(),
            job,
            world,
        };
        config.check_conflicts()?;
        Ok(config)
    }

    /// Takes `--workers` into account, and returns whether it is given.
    pub(crate) fn set_workers(&mut self, argument: Option<String>) -> Result<bool, Stop> {
        let reader = Reader(&|name: &str| std::env::var_os(name));
        let Some(given) = reader.read(argument, "workers", workers)? else { return Ok(false) };
        if let Some(count) = given {
            if self.slots.is_given && self.slots.count != count {
                return Err(Stop::Usage(format!(
                    "--workers {count} and --slots {} disagree on how many workers run here; give one of the two",
                    self.slots.count
                )));
            }
            self.slots = SlotCount { count, is_given: true };
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

    /// Refuses options that are valid alone, but not together.
    fn check_conflicts(&self) -> Result<(), Stop> {
        // Before the world forms, and not after it.
        for format in self.formats() {
            for setting in &self.fabric.settings {
                format.carries(setting).map_err(|error| {
                    Stop::Usage(format!("--set {setting}: {error}; use another format, or leave it out"))
                })?;
            }
        }
        let templates = self.outputs.iter().map(|output| &output.template);
        let mut templates = templates.chain([&self.template]).flatten();
        templates.try_for_each(|template| values::check_ports(template, self.port_count, "the template"))
    }

    /// Holds the ports of `--ports`. Before any other descriptor is open, theirs are those from 3 on.
    pub(crate) fn hold_ports(&mut self) -> Result<(), Stop> {
        self.held = HeldPorts::hold(self.port_count, &self.job, &self.network).map_err(Stop::Rendezvous)?;
        Ok(())
    }

    /// The rendezvous of this configuration.
    pub(crate) fn rendezvous(&self) -> Rendezvous {
        let mut rendezvous = Rendezvous::new(self.job.clone(), self.world);
        rendezvous.rank = self.rank;
        rendezvous.secret.clone_from(&self.secret);
        rendezvous.network = self.network.clone();
        rendezvous.private = self.private;
        rendezvous.stays = self.stays;
        rendezvous.keep_listener = self.keeps_listener;
        rendezvous.own_ports = self.formats().all(Format::uses_own_ports);
        rendezvous.timeout = self.timeout;
        rendezvous.last_call = self.last_call;
        let attributes = &mut rendezvous.attributes;
        attributes.user = self.user.clone();
        attributes.slots = self.slots.count;
        // The variables of a shell do not need the roster, so it is not transferred for them.
        attributes.wants_roster = self.command_lists_all || self.formats().any(Format::needs_roster);
        attributes.paths = self.paths;
        attributes.rank_key = self.rank_key.clone().unwrap_or_default();
        rendezvous
    }

    /// The formats in which the world is written, on stdout and to files.
    pub(crate) fn formats(&self) -> impl Iterator<Item = Format> {
        [self.format].into_iter().chain(self.files())
    }

    /// The formats of files: those of --output, and the file for the command.
    pub(crate) fn files(&self) -> impl Iterator<Item = Format> {
        self.outputs.iter().map(|output| output.format).chain(self.hostfile)
    }
}

/// What `mingle run` does when a command fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restarts {
    /// The most restarts in a row of all nodes; none where the caller decides each time.
    pub(crate) most: Option<u32>,
    /// How long a command may take to stop before it is killed.
    pub(crate) stop_timeout: Duration,
    /// The pause before the second restart in a row.
    pub(crate) delay: Duration,
    /// How long all commands must have run before earlier restarts do not count.
    pub(crate) forget: Duration,
    /// How long a node may stay silent.
    pub(crate) gone_after: Duration,
    /// Whether a world that has room ends to take in nodes that wait.
    pub(crate) grows: bool,
    /// Whether a network that splits may have two worlds.
    pub(crate) allows_split: bool,
}

impl Restarts {
    pub(crate) fn new(args: &RunArgs) -> Result<Self, Stop> {
        let reader = Reader(&|name: &str| std::env::var_os(name));
        let time =
            |argument: &Option<String>, option, default| reader.time(argument.clone(), option, default);
        let given = reader.read(args.max_restarts.clone(), "max-restarts", restarts)?;
        let (most, forget) = given.unwrap_or((0, FORGET_RESTARTS));
        Ok(Self {
            most: Some(most),
            stop_timeout: time(&args.stop_timeout, "stop-timeout", Rendezvous::STOP_TIMEOUT)?
                .unwrap_or(LONGEST),
            delay: time(&args.restart_delay, "restart-delay", RESTART_DELAY)?.unwrap_or_default(),
            forget,
            gone_after: time(&args.gone_after, "gone-after", Rendezvous::GONE_AFTER)?.unwrap_or(LONGEST),
            grows: reader.flag(args.grow, "grow")?,
            allows_split: reader.flag(args.allow_split, "allow-split")?,
        })
    }

    /// The rendezvous of a node that stays with its worlds so.
    pub(crate) fn rendezvous(&self, config: &Settings) -> Rendezvous {
        let mut rendezvous = config.rendezvous();
        rendezvous.stop_timeout = self.stop_timeout;
        rendezvous.gone_after = self.gone_after;
        rendezvous.grows = self.grows;
        let restarts = &mut rendezvous.restarts;
        (restarts.most, restarts.delay, restarts.forget) = (self.most, self.delay, self.forget);
        rendezvous
    }

    /// Refuses a range of sizes of which two worlds could form at once, and `--grow` where none could grow.
    pub(crate) fn check(&self, config: &Settings) -> Result<(), Stop> {
        let (world, stays) = (config.world, self.most != Some(0));
        if !(stays && self.allows_split) {
            check_split(world, stays)?;
        }
        let problem: &str = if !self.grows {
            return Ok(());
        } else if !world.is_range() {
            &format!("a world of {world} has no room to grow; give a range, such as --world 1:{world}")
        } else if !stays {
            "nobody stays to take nodes in; give --max-restarts as well"
        } else if config.paths == Paths::Master {
            "nodes that wait have to reach rank 0 at its port for paths; leave --paths master away"
        } else if config.formats().all(Format::uses_own_ports) {
            &format!(
                "nodes that wait have to reach rank 0 at a port that is not the job's; choose another --format than {}",
                config.format
            )
        } else {
            return Ok(());
        };
        Err(Stop::Usage(format!("--grow (or MINGLE_GROW): {problem}")))
    }
}

/// The settings that a scheduler can provide, seeds among those of the network.
struct Identity {
    job: JobId,
    world: WorldSize,
    rank: Option<Rank>,
    rank_key: Option<RankKey>,
    network: Network,
    provenance: Provenance,
}

impl Identity {
    /// Where a rank key is given, it decides on the rank, and a scheduler does not.
    fn read(low: &mut JoinArgs, reader: &Reader<'_>, scheduler: &Scheduler<'_>) -> Result<Self, Stop> {
        let mut provenance = Provenance::default();
        let world = provenance.or(reader.world(low.world.take())?, "world", || scheduler.world())?;
        let job = provenance.or(reader.job(low.job_id.take())?, "job", || scheduler.job())?;
        let (Some(job), Some(world)) = (&job, &world) else {
            return Err(missing(job.is_none(), world.is_none()));
        };
        let (job, world) = (job.clone(), *world);
        let given = reader.read(low.rank.take(), "rank", |text| values::rank(text, world))?;
        let rank_key: Option<RankKey> = reader.read(low.rank_key.take(), "rank-key", str::parse)?;
        let of_scheduler = || if rank_key.is_some() { Ok(None) } else { scheduler.rank(world) };
        let rank = provenance.or(given, "rank", of_scheduler)?;
        let mut network = std::mem::take(&mut low.network).read(reader)?;
        if network.seeds.is_empty() {
            let seeds = provenance.or(None, "seed", || scheduler.seeds())?;
            network.seeds.extend(seeds.into_iter().flat_map(|HostList(seeds)| seeds));
        }
        values::check_without_multicast(&network, world)?;
        Ok(Self { job, world, rank, rank_key, network, provenance })
    }
}

/// The settings that a scheduler has provided.
#[derive(Debug, Default)]
struct Provenance(Vec<(&'static str, Provided<String>)>);

impl Provenance {
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
    let listed = text(MINGLE_SET).unwrap_or_default();
    let users = text(PET_NPROC_PER_NODE).filter(|value| !is_own(&listed, PET_NPROC_PER_NODE, value));
    let users = users.and_then(|value| slots_number(&value).ok());
    users.unwrap_or_else(|| slots::of_host(&Host(fabric.root.clone()), text))
}

fn missing(job: bool, world: bool) -> Stop {
    let mut parts = Vec::new();
    if job {
        parts.push("--job-id is missing: give all nodes of one job the same name, such as --job-id foo");
    }
    if world {
        parts.push("--world is missing: say how many nodes there are, such as --world 4");
    }
    let variables = match (job, world) {
        (true, true) => "MINGLE_JOB_ID and MINGLE_WORLD",
        (true, false) => "MINGLE_JOB_ID",
        (false, _) => "MINGLE_WORLD",
    };
    Stop::Usage(format!("{} (or set {variables}); see mingle --help", parts.join("; ")))
}

#[cfg(test)]
mod tests;
