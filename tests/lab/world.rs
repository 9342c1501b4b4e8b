//! Starts the nodes of a world, and checks what must hold for every formed world.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Lab;
use super::proc::{Outcome, PATIENCE, Proc};

/// The arguments that all nodes of a job share. The timeout only ends a broken run with mingle's own message.
pub fn line(job: &str, world: usize) -> Vec<String> {
    let words = ["--job-id", job, "--world", &world.to_string(), "--timeout", "30s"];
    words.map(str::to_owned).to_vec()
}

/// `line` with more arguments, separated by blanks.
pub fn line_with(job: &str, world: usize, more: &str) -> Vec<String> {
    let mut args = line(job, world);
    args.extend(more.split_whitespace().map(str::to_owned));
    args
}

/// Starts a whole world at once, one process on each node of the lab; `more` are arguments for each.
pub fn start_all(lab: &Lab, job: &str, more: &[&str]) -> Vec<Proc> {
    let args = |i: usize| line_with(job, lab.len(), more.get(i).copied().unwrap_or(""));
    (0..lab.len()).map(|i| lab.spawn(i, &args(i))).collect()
}

/// Starts a whole world at once and waits until it has formed.
pub fn form(lab: &Lab, job: &str, more: &[&str]) -> World {
    World::of(&finish_all(start_all(lab, job, more)))
}

/// Waits until all processes have ended.
pub fn finish_all(procs: Vec<Proc>) -> Vec<Outcome> {
    finish_all_within(procs, PATIENCE)
}

/// Waits until all processes have ended, each at most this long.
pub fn finish_all_within(procs: Vec<Proc>, limit: Duration) -> Vec<Outcome> {
    procs.into_iter().map(|proc| proc.finish_within(limit)).collect()
}

/// Checks that each has ended with this code.
pub fn assert_ended(outcomes: &[Outcome], code: i32) {
    for outcome in outcomes {
        assert_eq!(outcome.status.code(), Some(code), "{}", outcome.render());
    }
}

/// How long after `since` the last one ended.
pub fn took(outcomes: &[Outcome], since: Instant) -> Duration {
    outcomes.iter().map(|outcome| outcome.ended).max().unwrap().saturating_duration_since(since)
}

/// Completes a world of four by its last process, and waits until it has formed. Returns how long that took
/// after the start of the last.
pub fn complete(lab: &Lab, mut procs: Vec<Proc>, last: Proc) -> (Vec<Outcome>, Duration) {
    let started = last.started;
    procs.push(last);
    let outcomes = finish_all(procs);
    World::of(&outcomes).expect(lab, &[0, 1, 2, 3]);
    let took = took(&outcomes, started);
    (outcomes, took)
}

/// A world, as its nodes printed it.
#[derive(Debug)]
pub struct World {
    pub nodes: Vec<BTreeMap<String, String>>,
}

impl World {
    /// Checks what holds for every world that forms, and returns what the nodes printed.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let world = Self { nodes: outcomes.iter().map(Outcome::formed).collect() };
        let size = outcomes.len();
        let context = || outcomes.iter().map(Outcome::render).collect::<Vec<_>>().join("\n");
        let ranks: BTreeSet<usize> = world.ranks().into_iter().collect();
        assert_eq!(ranks, (0..size).collect(), "ranks of\n{}", context());
        for vars in &world.nodes {
            for (name, other) in [
                ("NODE_RANK", "RANK"),
                ("PET_NODE_RANK", "RANK"),
                ("PET_NNODES", "WORLD_SIZE"),
                ("PET_MASTER_ADDR", "MASTER_ADDR"),
                ("PET_MASTER_PORT", "MASTER_PORT"),
            ] {
                assert_eq!(vars.get(name), vars.get(other), "{name} and {other} of\n{}", context());
            }
            assert_eq!(vars["WORLD_SIZE"], size.to_string(), "WORLD_SIZE of\n{}", context());
            // NCCL takes the name as a prefix unless `=` comes first; Gloo takes it as it is.
            let gloo = vars.get("GLOO_SOCKET_IFNAME").map(|name| format!("={name}"));
            assert_eq!(vars.get("NCCL_SOCKET_IFNAME"), gloo.as_ref(), "interfaces of\n{}", context());
        }
        for name in ["MASTER_ADDR", "MASTER_PORT", "MINGLE_JOB_ID", "MINGLE_ROSTER_DIGEST"] {
            let values: BTreeSet<&String> = world.nodes.iter().map(|vars| &vars[name]).collect();
            assert_eq!(values.len(), 1, "{name} differs in\n{}", context());
        }
        assert!(!world.digest().is_empty(), "no digest in\n{}", context());
        world
    }

    /// The ranks in the order of the outcomes.
    pub fn ranks(&self) -> Vec<usize> {
        self.nodes.iter().map(|vars| vars["RANK"].parse().unwrap()).collect()
    }

    /// The value of a variable that is the same on all.
    pub fn common(&self, name: &str) -> &str {
        &self.nodes[0][name]
    }

    pub fn digest(&self) -> &str {
        self.common("MINGLE_ROSTER_DIGEST")
    }

    /// Checks the ranks of a world with one process on each node, that rank 0 is the master on the
    /// bridge, and the interface to it.
    pub fn expect(&self, lab: &Lab, ranks: &[usize]) {
        assert_eq!(self.ranks(), ranks);
        let first = ranks.iter().position(|rank| *rank == 0).unwrap();
        assert_eq!(self.common("MASTER_ADDR"), lab.address(first).to_string());
        let port: u16 = self.common("MASTER_PORT").parse().unwrap();
        assert!((29500..=29999).contains(&port), "a firewall would not know port {port}");
        for vars in &self.nodes {
            assert_eq!(vars["GLOO_SOCKET_IFNAME"], "eth0");
        }
    }
}
