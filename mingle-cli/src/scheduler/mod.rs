//! The variables in which a scheduler passes the rank, the size of the world, the job and other nodes.
//!
//! [`table`] has the schedulers. Options and `MINGLE_*` come first. RANK and WORLD_SIZE are not read: images
//! carry stale ones.

mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;

use mingle_core::Seed;
use mingle_core::env::{MINGLE_SET, is_own};
use mingle_core::error::InvalidSeed;
use mingle_core::{JobId, Rank, World, WorldSize};

use crate::exit::Stop;
use crate::host::beginning;
use table::{Hosts, Number, SOURCES, SchedulerVariables};

/// The most bytes that are read of a file of hosts.
const LONGEST: u64 = 1 << 20;
/// The most hosts of a list that are seeds. One that all others reach is enough; and a thousand nodes that
/// each look up a thousand names are a burden to a name server.
const SEEDS: usize = 64;

/// A value that a scheduler provides, and the variable that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provided<T> {
    pub(crate) variable: Cow<'static, str>,
    pub(crate) value: T,
}

impl<T: fmt::Display> fmt::Display for Provided<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.value, self.variable)
    }
}

/// The hosts that a scheduler lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostList(pub(crate) Vec<Seed>);

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, more) = (self.0.first().map(Seed::to_string).unwrap_or_default(), self.0.len());
        if more > 1 { write!(f, "{first} and {} more", more - 1) } else { f.write_str(&first) }
    }
}

/// Looks a variable up by its name.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment, which holds the schedulers' variables.
pub(crate) struct Scheduler<'a> {
    variable: Environment<'a>,
    /// The names of the variables that are made of the names of Volcano's tasks.
    of_tasks: BTreeSet<String>,
}

impl<'a> Scheduler<'a> {
    pub(crate) fn new(variable: Environment<'a>) -> Self {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        Self { variable, of_tasks: names.filter(|name| name.starts_with(table::OF_TASKS)).collect() }
    }

    /// The number of nodes. A list of hosts counts only where nothing else says it: programs of MPI count
    /// processes, and the hosts of a batch job are known in all of them.
    pub(crate) fn world(&self) -> Result<Option<Provided<WorldSize>>, Stop> {
        let (mut counted, mut listed) = (Vec::new(), Vec::new());
        for source in &SOURCES {
            let Some(size) = self.size(source)? else { continue };
            let is_list =
                matches!((source.world, source.hosts), (Some(Number::CountOfHosts), Some(Hosts::File(_))));
            let size = Provided { variable: size.variable, value: size.value.into() };
            if is_list { listed.push(size) } else { counted.push(size) }
        }
        let provided = if counted.is_empty() { listed } else { counted };
        agreed(provided.into_iter(), "on the number of nodes; give --world N (or MINGLE_WORLD)")
    }

    /// This node's rank in `world`. A scheduler that counts another number of nodes means another world, as
    /// where several jobs of one node each form one world. In a world that may have one of several sizes
    /// every rank is assigned.
    pub(crate) fn rank(&self, world: WorldSize) -> Result<Option<Provided<Rank>>, Stop> {
        if world.is_range() {
            return Ok(None);
        }
        let world = world.max();
        let mut provided = Vec::new();
        for source in SOURCES.iter().filter(|source| source.rank.is_some()) {
            let is_of_world = self.size(source)?.map(|size| size.value == world);
            if !is_of_world.unwrap_or(source.world.is_none()) {
                continue;
            }
            let Some(Provided { variable, value }) = self.number_of(source, source.rank)? else { continue };
            let rank = world.rank(value).map_err(|error| {
                wrong(&variable, &value.to_string(), &format!("{error}; give --rank N, or another --world"))
            })?;
            provided.push(Provided { variable, value: rank });
        }
        agreed(provided.into_iter(), "on the rank; give --rank N (or MINGLE_RANK)")
    }

    /// The job's ID.
    pub(crate) fn job(&self) -> Result<Option<Provided<JobId>>, Stop> {
        let mut provided = Vec::new();
        for source in &SOURCES {
            let Some(job) = &source.job else { continue };
            let Some(id) = self.text(job.variable)? else { continue };
            let step = self.of_step(job.step)?.map_or_else(String::new, |(_, step)| format!(".{step}"));
            // Flux writes the first letter of its IDs by the locale of the node (RFC 19 of Flux).
            let id = id.strip_prefix('ƒ').map(|rest| format!("f{rest}")).unwrap_or(id);
            let text = format!("{}{id}{step}", job.prefix);
            let value = text.parse().map_err(|error| {
                wrong(job.variable, &text, &format!("{error}; give --job-id, the same on all nodes"))
            })?;
            provided.push(Provided { variable: job.variable.into(), value });
        }
        agreed(provided.into_iter(), "on the job; give --job-id ID (or MINGLE_JOB_ID), the same on all nodes")
    }

    /// The variable of the step, if it counts, and its value. Two steps of a job are two worlds. But mpirun
    /// starts the processes of its own host in the batch script's shell and all others in a step, so with
    /// Open MPI the step does not count.
    fn of_step(&self, variable: Option<&'static str>) -> Result<Option<(&'static str, String)>, Stop> {
        let Some(name) = variable.filter(|_| (self.variable)("OMPI_COMM_WORLD_RANK").is_none()) else {
            return Ok(None);
        };
        Ok(self.text(name)?.map(|text| (name, text)))
    }

    /// The addresses of other nodes, of the first scheduler that has some: [`SEEDS`] at most.
    pub(crate) fn seeds(&self) -> Result<Option<Provided<HostList>>, Stop> {
        for source in &SOURCES {
            let Some(Provided { variable, value: mut names }) = self.hosts(source)? else { continue };
            // Where several jobs of one node each form one world, the list has this node alone.
            if matches!(source.hosts, Some(Hosts::List { .. })) && names.len() == 1 {
                continue;
            }
            names.truncate(SEEDS);
            let seeds =
                names.iter().map(|name| name.parse().map_err(|error| wrong_seed(&variable, name, &error)));
            let value = HostList(seeds.collect::<Result<_, Stop>>()?);
            return Ok(Some(Provided { variable, value }));
        }
        Ok(None)
    }

    fn size(&self, source: &SchedulerVariables) -> Result<Option<Provided<World>>, Stop> {
        let Some(Provided { variable, value }) = self.number_of(source, source.world)? else {
            return Ok(None);
        };
        let world = World::new(value)
            .map_err(|error| wrong(&variable, &value.to_string(), &format!("{error}; give --world N")))?;
        Ok(Some(Provided { variable, value: world }))
    }

    fn number_of(
        &self,
        source: &SchedulerVariables,
        number: Option<Number>,
    ) -> Result<Option<Provided<u32>>, Stop> {
        if let Some(needed) = source.needs
            && self.text(needed)?.is_none()
        {
            return Ok(None);
        }
        let counted = |hosts: Provided<Vec<String>>| {
            let value = u32::try_from(hosts.value.len()).unwrap_or(u32::MAX);
            Provided { variable: hosts.variable, value }
        };
        match number {
            None => Ok(None),
            Some(Number::Variable(name)) => self.number(name),
            Some(Number::OfTask) => match self.of_task(table::NUMBER).as_slice() {
                [one] => self.number(one),
                // The index counts the pods of one task, and mingle is not told of which.
                _ => Ok(None),
            },
            Some(Number::CountOfHosts) => Ok(self.hosts(source)?.map(counted)),
            Some(Number::PlaceOf(own)) => {
                let (own_name, hosts) = (self.text(own)?, self.hosts(source)?);
                let (Some(own_name), Some(hosts)) = (own_name, hosts) else { return Ok(None) };
                let Some(at) = hosts.value.iter().position(|host| *host == own_name) else {
                    let list = hosts.variable;
                    return Err(wrong(own, &own_name, &format!("not in {list}; give --rank and --world")));
                };
                Ok(Some(Provided { variable: own.into(), value: u32::try_from(at).unwrap_or(u32::MAX) }))
            }
        }
    }

    /// The hosts that a scheduler lists, each once; none where the variable is not set.
    fn hosts(&self, source: &SchedulerVariables) -> Result<Option<Provided<Vec<String>>>, Stop> {
        let Some(hosts) = source.hosts else { return Ok(None) };
        let (variable, mut names): (Cow<'static, str>, Vec<String>) = match hosts {
            Hosts::Address(name) | Hosts::Json(name) | Hosts::File(name) => {
                let Some(text) = self.text(name)? else { return Ok(None) };
                let names = match hosts {
                    Hosts::Json(_) => serde_json::from_str(&text).map_err(|_| {
                        wrong(name, &text, "not a JSON list of hosts; correct it, or unset it")
                    })?,
                    Hosts::File(_) => lines(name, &text)?,
                    _ => vec![text],
                };
                (name.into(), names)
            }
            Hosts::List { job, step } => {
                let of_job = || Ok::<_, Stop>(self.text(job)?.map(|text| (job, text)));
                let list = self.of_step(step)?.map_or_else(of_job, |list| Ok(Some(list)))?;
                let Some((name, text)) = list else { return Ok(None) };
                let seeds = Seed::list(&text).map_err(|error| wrong_seed(name, &text, &error))?;
                (name.into(), seeds.iter().map(Seed::to_string).collect())
            }
            Hosts::OfTasks => {
                let variables = self.of_task(table::HOSTS);
                let Some(first) = variables.first() else { return Ok(None) };
                let mut names = Vec::new();
                for variable in &variables {
                    let text = self.text(variable)?.unwrap_or_default();
                    names.extend(text.split(',').map(|name| name.trim().to_owned()));
                }
                (first.clone().into(), names)
            }
        };
        let mut seen = BTreeSet::new();
        names.retain(|name| !name.is_empty() && seen.insert(name.clone()));
        if names.is_empty() {
            return Err(wrong(
                &variable,
                "",
                "lists no host; correct it, unset it, or give --world and --seed",
            ));
        }
        Ok(Some(Provided { variable, value: names }))
    }

    /// The variables whose names are made of the name of a task and this end.
    fn of_task(&self, end: &str) -> Vec<String> {
        self.of_tasks.iter().filter(|name| name.ends_with(end)).cloned().collect()
    }

    /// How many tasks the step of Slurm has, if more than nodes: all tasks of a node have one SLURM_NODEID.
    pub(crate) fn tasks_beyond_nodes(&self) -> Result<Option<(u32, u32)>, Stop> {
        let (tasks, nodes) = (self.number("SLURM_STEP_NUM_TASKS")?, self.number("SLURM_STEP_NUM_NODES")?);
        let both = tasks.zip(nodes).map(|(tasks, nodes)| (tasks.value, nodes.value));
        Ok(both.filter(|(tasks, nodes)| tasks > nodes && (self.variable)("OMPI_COMM_WORLD_RANK").is_none()))
    }

    /// Whether this is the shell of a batch script, which runs on one node of several.
    pub(crate) fn is_batch_shell(&self) -> Result<bool, Stop> {
        let nodes = self.number("SLURM_NNODES")?;
        let is_set = |name: &str| (self.variable)(name).is_some_and(|value| !value.is_empty());
        let is_started = is_set("SLURM_STEP_ID") || is_set("OMPI_COMM_WORLD_RANK");
        Ok(nodes.is_some_and(|nodes| nodes.value > 1) && !is_started)
    }

    fn number(&self, variable: &str) -> Result<Option<Provided<u32>>, Stop> {
        let Some(text) = self.text(variable)? else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(Provided { variable: variable.to_owned().into(), value })),
            Err(_) => {
                Err(wrong(variable, &text, "not a number; correct it, unset it, or give --rank and --world"))
            }
        }
    }

    /// The value. An empty one counts as not set, and so does one that an earlier `mingle` printed for
    /// scripts that were written for SkyPilot.
    fn text(&self, variable: &str) -> Result<Option<String>, Stop> {
        let listed =
            (self.variable)(MINGLE_SET).and_then(|value| value.into_string().ok()).unwrap_or_default();
        let is_own = |value: &OsString| value.to_str().is_some_and(|value| is_own(&listed, variable, value));
        let value = (self.variable)(variable).filter(|value| !value.is_empty() && !is_own(value));
        let Some(value) = value else { return Ok(None) };
        value.into_string().map(Some).map_err(|raw| wrong(variable, &raw.to_string_lossy(), "not UTF-8"))
    }
}

/// The lines of a file of hosts, in which a host stands once for each of its slots.
fn lines(variable: &str, path: &str) -> Result<Vec<String>, Stop> {
    let read = beginning(path, LONGEST).and_then(|bytes| io::read_to_string(&*bytes));
    let failed = |error| wrong(variable, path, &format!("{error}; unset it, or give --world and --seed"));
    Ok(read.map_err(failed)?.lines().map(|line| line.trim().to_owned()).collect())
}

fn wrong_seed(variable: &str, value: &str, error: &InvalidSeed) -> Stop {
    wrong(variable, value, &format!("{error}; correct it, unset it, or give --seed"))
}

fn wrong(variable: &str, value: &str, reason: &str) -> Stop {
    Stop::Usage(format!("{variable}={}: {reason}", value.escape_debug()))
}

/// The one value on which all schedulers agree, if there is one; it is named after the first.
fn agreed<T: PartialEq + fmt::Display>(
    mut provided: impl Iterator<Item = Provided<T>>,
    cure: &str,
) -> Result<Option<Provided<T>>, Stop> {
    let Some(first) = provided.next() else { return Ok(None) };
    match provided.find(|other| other.value != first.value) {
        None => Ok(Some(first)),
        Some(other) => Err(Stop::Usage(format!(
            "{}={} and {}={} disagree {cure}",
            first.variable, first.value, other.variable, other.value
        ))),
    }
}

/// The number that a StatefulSet gives its pod: the digits after the last `-` of the host name.
pub(crate) fn ordinal(host: &str) -> Result<u32, String> {
    let end = host.split('.').next().unwrap_or_default().rsplit_once('-').map(|(_, end)| end);
    let number =
        end.filter(|end| end.bytes().all(|byte| byte.is_ascii_digit())).and_then(|end| end.parse().ok());
    number.ok_or_else(|| {
        format!(
            "the host name {host:?} does not end in '-' and a number, as trainer-3 does; give a number instead of \
             'hostname'"
        )
    })
}

#[cfg(test)]
mod tests;
