//! The variables in which a scheduler passes the rank, the size of the world and the job.
//!
//! | scheduler | rank | world | job, or seed |
//! | --- | --- | --- | --- |
//! | Slurm | `SLURM_NODEID` | `SLURM_NNODES` | `slurm-SLURM_JOB_ID`, in a step `.SLURM_STEP_ID` |
//! | Indexed Job; JobSet with one replica, since each counts for itself | `JOB_COMPLETION_INDEX` | | |
//! | LeaderWorkerSet | `LWS_WORKER_INDEX` | `LWS_GROUP_SIZE` | `LWS_LEADER_ADDRESS` is a seed |
//! | SkyPilot | `SKYPILOT_NODE_RANK` | `SKYPILOT_NUM_NODES` | `SKYPILOT_TASK_ID` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | |
//! | PMI | `PMI_RANK` | `PMI_SIZE` | |
//!
//! Slurm also passes the place of a node in the network, as `SLURM_TOPOLOGY_ADDR`.
//!
//! Options and `MINGLE_*` come first. RANK and WORLD_SIZE are not read: images carry stale ones.

use std::ffi::OsString;
use std::fmt;

use mingle_core::env::{MINGLE_SET, is_own};
use mingle_core::{JobId, Rank, World, WorldSize};
use mingle_core::{Place, Seed};

use crate::exit::Stop;

/// The variables of one scheduler.
struct Source {
    rank: &'static str,
    world: Option<&'static str>,
}

const SOURCES: [Source; 6] = [
    Source { rank: "SLURM_NODEID", world: Some("SLURM_NNODES") },
    Source { rank: "LWS_WORKER_INDEX", world: Some("LWS_GROUP_SIZE") },
    Source { rank: "JOB_COMPLETION_INDEX", world: None },
    Source { rank: "SKYPILOT_NODE_RANK", world: Some("SKYPILOT_NUM_NODES") },
    Source { rank: "OMPI_COMM_WORLD_RANK", world: Some("OMPI_COMM_WORLD_SIZE") },
    Source { rank: "PMI_RANK", world: Some("PMI_SIZE") },
];

/// A value that a scheduler provides, and the variable that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provided<T> {
    pub(crate) variable: &'static str,
    pub(crate) value: T,
}

impl<T> Provided<T> {
    /// Whether it comes from Slurm.
    pub(crate) fn is_from_slurm(&self) -> bool {
        self.variable.starts_with("SLURM_")
    }
}

impl<T: fmt::Display> fmt::Display for Provided<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.value, self.variable)
    }
}

/// The environment, which holds the schedulers' variables.
pub(crate) struct Scheduler<F>(pub(crate) F);

impl<F: Fn(&str) -> Option<OsString>> Scheduler<F> {
    /// The number of nodes.
    pub(crate) fn world(&self) -> Result<Option<Provided<WorldSize>>, Stop> {
        let variables = SOURCES.iter().filter_map(|source| source.world);
        let provided = variables.map(|variable| self.sizes(variable)).collect::<Result<Vec<_>, Stop>>()?;
        let provided = provided.into_iter().flatten();
        let provided =
            provided.map(|Provided { variable, value }| Provided { variable, value: value.into() });
        agreed(provided, "on the number of nodes; give --world N (or MINGLE_WORLD)")
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
        for source in &SOURCES {
            let size = source.world.map(|variable| self.sizes(variable)).transpose()?.flatten();
            if size.is_some_and(|size| size.value != world) {
                continue;
            }
            let Some(number) = self.number(source.rank)? else { continue };
            let rank = world.rank(number).map_err(|error| {
                wrong(
                    source.rank,
                    &number.to_string(),
                    &format!("{error}; give --rank N, or another --world"),
                )
            })?;
            provided.push(Provided { variable: source.rank, value: rank });
        }
        agreed(provided.into_iter(), "on the rank; give --rank N (or MINGLE_RANK)")
    }

    /// The job's ID.
    pub(crate) fn job(&self) -> Result<Option<Provided<JobId>>, Stop> {
        let job = |variable: &'static str, text: String| -> Result<Provided<JobId>, Stop> {
            let value = text.parse().map_err(|error| {
                wrong(variable, &text, &format!("{error}; give --job-id, the same on all nodes"))
            })?;
            Ok(Provided { variable, value })
        };
        let slurm = self.text("SLURM_JOB_ID")?.map(|id| {
            // Two steps of a job are two worlds. But mpirun starts the processes of its own host in the batch
            // script's shell and all others in a step, so with Open MPI the step does not count.
            let step = self.text("SLURM_STEP_ID")?.filter(|_| (self.0)("OMPI_COMM_WORLD_RANK").is_none());
            let step = step.map_or_else(String::new, |step| format!(".{step}"));
            job("SLURM_JOB_ID", format!("slurm-{id}{step}"))
        });
        let sky = self.text("SKYPILOT_TASK_ID")?.map(|id| job("SKYPILOT_TASK_ID", id));
        let provided = [slurm, sky].into_iter().flatten().collect::<Result<Vec<_>, Stop>>()?;
        agreed(provided.into_iter(), "on the job; give --job-id ID (or MINGLE_JOB_ID), the same on all nodes")
    }

    /// The address of another node.
    pub(crate) fn seed(&self) -> Result<Option<Provided<Seed>>, Stop> {
        let variable = "LWS_LEADER_ADDRESS";
        let Some(text) = self.text(variable)? else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(Provided { variable, value })),
            Err(error) => {
                Err(wrong(variable, &text, &format!("{error}; correct it, unset it, or give --seed")))
            }
        }
    }

    /// The place of this node in the network: the switches or blocks above it. Slurm's topology plugins write
    /// them with points, as `s0.s4.node7`, and what each is as `switch.switch.node` (`topology_tree.c`,
    /// `topology_block.c`). A part may be a list of switches, or empty. A ring or a torus has no such parts.
    pub(crate) fn place(&self) -> Result<Option<Provided<Place>>, Stop> {
        let variable = "SLURM_TOPOLOGY_ADDR";
        let names = [variable, "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURMD_NODENAME"];
        let [address, pattern, node] = names.map(|name| self.text(name));
        let (Some(address), Some(pattern), Some(node)) = (address?, pattern?, node?) else { return Ok(None) };
        let kinds: Vec<&str> = pattern.split('.').collect();
        let mut parts: Vec<&str> = address.splitn(kinds.len(), '.').collect();
        let is_known = kinds.iter().rev().skip(1).all(|kind| matches!(*kind, "switch" | "block"));
        // Programs that pdsh or ssh has started have the variables of the node that they were started from.
        let is_own = parts.pop() == Some(node.as_str()) && parts.len() + 1 == kinds.len();
        let place = Place::of(parts);
        let is_place = is_known && kinds.last() == Some(&"node") && is_own && place.levels() > 0;
        Ok(is_place.then_some(Provided { variable, value: place }))
    }

    /// Whether this is the shell of a batch script, which runs on one node of several.
    pub(crate) fn is_batch_shell(&self) -> Result<bool, Stop> {
        let nodes = self.number("SLURM_NNODES")?;
        let is_started = |name: &str| (self.0)(name).is_some_and(|value| !value.is_empty());
        Ok(nodes.is_some_and(|nodes| nodes > 1)
            && !is_started("SLURM_STEP_ID")
            && !is_started("OMPI_COMM_WORLD_RANK"))
    }

    fn sizes(&self, variable: &'static str) -> Result<Option<Provided<World>>, Stop> {
        let Some(number) = self.number(variable)? else { return Ok(None) };
        let world = World::new(number)
            .map_err(|error| wrong(variable, &number.to_string(), &format!("{error}; give --world N")))?;
        Ok(Some(Provided { variable, value: world }))
    }

    fn number(&self, variable: &'static str) -> Result<Option<u32>, Stop> {
        let Some(text) = self.text(variable)? else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                Err(wrong(variable, &text, "not a number; correct it, unset it, or give --rank and --world"))
            }
        }
    }

    /// The value. An empty one counts as not set, and so does one that an earlier `mingle` printed for
    /// scripts that were written for SkyPilot.
    fn text(&self, variable: &'static str) -> Result<Option<String>, Stop> {
        let listed = (self.0)(MINGLE_SET).and_then(|value| value.into_string().ok()).unwrap_or_default();
        let is_own = |value: &OsString| value.to_str().is_some_and(|value| is_own(&listed, variable, value));
        let value = (self.0)(variable).filter(|value| !value.is_empty() && !is_own(value));
        let Some(value) = value else { return Ok(None) };
        value.into_string().map(Some).map_err(|raw| wrong(variable, &raw.to_string_lossy(), "not UTF-8"))
    }
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
mod tests {
    use mingle_core::env::Variables;

    use super::*;

    type Environment<'a> = &'a [(&'a str, &'a str)];

    fn scheduler(environment: Environment<'_>) -> Scheduler<impl Fn(&str) -> Option<OsString> + '_> {
        Scheduler(|name: &str| {
            environment.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    /// World, rank in it, and job, each with its variable.
    fn provided(environment: Environment<'_>) -> [Option<String>; 3] {
        let scheduler = scheduler(environment);
        let world = scheduler.world().unwrap();
        let rank = world.as_ref().map_or("8".parse().unwrap(), |world| world.value);
        [
            world.map(|provided| provided.to_string()),
            scheduler.rank(rank).unwrap().map(|provided| provided.to_string()),
            scheduler.job().unwrap().map(|provided| provided.to_string()),
        ]
    }

    fn refused<T: fmt::Debug>(result: Result<T, Stop>) -> String {
        let stop = result.unwrap_err();
        assert_eq!(stop.kind(), "usage");
        stop.to_string()
    }

    #[test]
    fn each_scheduler_is_read_by_its_own_names() {
        let slurm =
            [("SLURM_NODEID", "2"), ("SLURM_NNODES", "4"), ("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0")];
        let sky = [
            ("SKYPILOT_NODE_RANK", "1"),
            ("SKYPILOT_NUM_NODES", "2"),
            ("SKYPILOT_TASK_ID", "sky-2026-01-02-03-04-05-678901_train_1"),
        ];
        let cases: [(Environment<'_>, [&str; 3]); 9] = [
            (&[], ["", "", ""]),
            (&slurm, ["4 from SLURM_NNODES", "2 from SLURM_NODEID", "slurm-12.0 from SLURM_JOB_ID"]),
            (&slurm[..3], ["4 from SLURM_NNODES", "2 from SLURM_NODEID", "slurm-12 from SLURM_JOB_ID"]),
            (&[("JOB_COMPLETION_INDEX", "7")], ["", "7 from JOB_COMPLETION_INDEX", ""]),
            (
                &[("LWS_WORKER_INDEX", "1"), ("LWS_GROUP_SIZE", "3")],
                ["3 from LWS_GROUP_SIZE", "1 from LWS_WORKER_INDEX", ""],
            ),
            (
                &sky,
                [
                    "2 from SKYPILOT_NUM_NODES",
                    "1 from SKYPILOT_NODE_RANK",
                    "sky-2026-01-02-03-04-05-678901_train_1 from SKYPILOT_TASK_ID",
                ],
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")],
                ["2 from OMPI_COMM_WORLD_SIZE", "1 from OMPI_COMM_WORLD_RANK", ""],
            ),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], ["2 from PMI_SIZE", "0 from PMI_RANK", ""]),
            (&[("RANK", "1"), ("WORLD_SIZE", "2"), ("SLURM_NODEID", "")], ["", "", ""]),
        ];
        for (environment, expected) in cases {
            let expected = expected.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
            assert_eq!(provided(environment), expected, "{environment:?}");
        }
    }

    #[test]
    fn schedulers_that_disagree_are_an_error_that_names_both() {
        let both = [("SLURM_NODEID", "1"), ("SLURM_NNODES", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(provided(&both)[1].as_deref(), Some("1 from SLURM_NODEID"));

        let sizes = [("SLURM_NNODES", "2"), ("OMPI_COMM_WORLD_SIZE", "16")];
        let error = refused(scheduler(&sizes).world());
        assert_eq!(
            error,
            "SLURM_NNODES=2 and OMPI_COMM_WORLD_SIZE=16 disagree on the number of nodes; give --world N (or \
             MINGLE_WORLD)"
        );
        let ranks = [("SLURM_NODEID", "1"), ("PMI_RANK", "0")];
        let error = refused(scheduler(&ranks).rank("4".parse().unwrap()));
        assert!(
            error.starts_with("SLURM_NODEID=1 and PMI_RANK=0 disagree on the rank; give --rank"),
            "{error}"
        );
        let jobs = [("SLURM_JOB_ID", "1"), ("SKYPILOT_TASK_ID", "a")];
        let error = refused(scheduler(&jobs).job());
        assert!(error.starts_with("SLURM_JOB_ID=slurm-1 and SKYPILOT_TASK_ID=a disagree"), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_a_number_is_named() {
        let four: WorldSize = "4".parse().unwrap();
        for value in ["x", "-1", "1.5", "99999999999", "1 "] {
            let environment = [("SLURM_NODEID", value)];
            let error = refused(scheduler(&environment).rank(four));
            assert!(error.starts_with(&format!("SLURM_NODEID={value}: not a number")), "{error}");
        }
        let error = refused(scheduler(&[("PMI_SIZE", "0")]).world());
        assert!(error.starts_with("PMI_SIZE=0: ") && error.ends_with("give --world N"), "{error}");
        let error = refused(scheduler(&[("JOB_COMPLETION_INDEX", "4")]).rank(four));
        assert!(error.starts_with("JOB_COMPLETION_INDEX=4: ") && error.contains("0 to 3"), "{error}");
        let error = refused(scheduler(&[("SKYPILOT_TASK_ID", "a\u{1b}b")]).job());
        assert!(error.starts_with("SKYPILOT_TASK_ID=a\\u{1b}b: "), "{error}");
    }

    #[test]
    fn a_rank_counts_only_in_a_world_of_the_schedulers_size() {
        let alone = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "1")];
        assert_eq!(scheduler(&alone).rank("4".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn variables_that_mingle_has_printed_do_not_count_as_a_schedulers() {
        let own = [("SKYPILOT_NODE_RANK", "1"), ("SKYPILOT_NUM_NODES", "2")];
        let advice = own.map(|(name, value)| (name, value.to_owned()));
        let printed = Variables::of_fabric(&advice, &[], |_| None);
        let (_, list) = printed.set().iter().find(|(name, _)| name == MINGLE_SET).unwrap();
        let listed = [&own[..], &[(MINGLE_SET, list)]].concat();
        assert!(provided(&own)[0].is_some());
        assert_eq!(provided(&listed), [None, None, None]);
        let other = [("SKYPILOT_NODE_RANK", "3"), own[1], (MINGLE_SET, list)];
        assert!(scheduler(&other).text("SKYPILOT_NODE_RANK").unwrap().is_some(), "the next task's");
    }

    #[test]
    fn slurms_topology_is_a_place_where_it_is_that_of_this_node() {
        let place = |address: &str, pattern: &str, node: &str| {
            let environment = [
                ("SLURM_TOPOLOGY_ADDR", address),
                ("SLURM_TOPOLOGY_ADDR_PATTERN", pattern),
                ("SLURMD_NODENAME", node),
            ];
            scheduler(&environment).place().unwrap().map(|provided| provided.to_string())
        };
        let from = |place: &str| Some(format!("{place} from SLURM_TOPOLOGY_ADDR"));
        assert_eq!(place("s0.s4.gpu7", "switch.switch.node", "gpu7"), from("s0/s4"));
        assert_eq!(place("b1.gpu7.example.org", "block.node", "gpu7.example.org"), from("b1"));
        assert_eq!(place("s[0-1].s4.gpu7", "switch.switch.node", "gpu7"), from("s[0-1]/s4"));
        assert_eq!(place("s0..gpu7", "switch.switch.node", "gpu7"), from("s0/"), "an empty part");
        for (address, pattern, node) in [
            ("s0.s4.gpu1", "switch.switch.node", "gpu7"),
            ("gpu7", "node", "gpu7"),
            ("gpu7", "switch.node", "gpu7"),
            (".gpu7", "switch.node", "gpu7"),
            ("r1.gpu7", "ring.node", "gpu7"),
            ("t1.gpu7", "torus.node", "gpu7"),
            ("s0.s4", "switch.switch", "s4"),
            ("s0.gpu7", "switch.node", ""),
            ("s0.gpu7", "", "gpu7"),
        ] {
            assert_eq!(place(address, pattern, node), None, "{address} {pattern} {node}");
        }
    }

    #[test]
    fn a_batch_script_is_distinguished_from_a_step_and_from_mpirun() {
        let batch = [("SLURM_NNODES", "2"), ("SLURM_JOB_ID", "7")];
        let with = |more: Environment<'_>| {
            let all = [&batch[..], more].concat();
            let scheduler = scheduler(&all);
            (scheduler.is_batch_shell().unwrap(), scheduler.job().unwrap().unwrap().value.to_string())
        };
        assert_eq!(with(&[]), (true, "slurm-7".to_owned()));
        assert_eq!(with(&[("SLURM_STEP_ID", "3")]), (false, "slurm-7.3".to_owned()));
        let mpirun = ("OMPI_COMM_WORLD_RANK", "1");
        assert_eq!(with(&[mpirun, ("SLURM_STEP_ID", "3")]), (false, "slurm-7".to_owned()));
        assert_eq!(with(&[mpirun]), (false, "slurm-7".to_owned()));
        assert!(!scheduler(&[("SLURM_NNODES", "1")]).is_batch_shell().unwrap());
    }

    #[test]
    fn the_leader_of_a_group_is_a_seed() {
        let leader = [("LWS_LEADER_ADDRESS", "train-0.train.default")];
        let provided = scheduler(&leader).seed().unwrap().unwrap();
        assert_eq!(provided.to_string(), "train-0.train.default from LWS_LEADER_ADDRESS");
        assert!(
            refused(scheduler(&[("LWS_LEADER_ADDRESS", "a b")]).seed())
                .starts_with("LWS_LEADER_ADDRESS=a b: ")
        );
    }

    #[test]
    fn a_pods_ordinal_follows_the_last_dash_of_its_name() {
        for (host, number) in [("trainer-3", 3), ("a-b-12", 12), ("web-0.web.default.svc", 0)] {
            assert_eq!(ordinal(host), Ok(number), "{host}");
        }
        for host in ["trainer", "trainer-", "trainer-x", "trainer-3a", "trainer-+3", "3", "", "a-99999999999"]
        {
            assert!(ordinal(host).unwrap_err().contains("trainer-3"), "{host}");
        }
    }
}
