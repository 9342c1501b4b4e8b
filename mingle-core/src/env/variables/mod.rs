//! The variables of a formed world, and the rules for a variable that is set already.

mod advice;
mod own;
mod result;

use std::process::Command;

use mingle_rdma::is_nameable;

use super::alike::is_a_hosts_own;
use super::{Facts, launcher, users_value};

pub use own::is_own;

/// The variable that lists the variables of this environment that mingle itself has set, each with a hash of
/// its value; see [`Variables`].
pub const MINGLE_SET: &str = "MINGLE_SET";

/// The variable for the number of workers that torchrun starts on this node (`--nproc-per-node`).
pub const PET_NPROC_PER_NODE: &str = "PET_NPROC_PER_NODE";

/// The name of a variable and its value.
pub type Variable = (&'static str, String);

/// The variables of a formed world.
///
/// There are two kinds of variables. The *result* (MASTER_ADDR, RANK and the other names of the world, and a
/// launcher's own variables) replaces any value in the environment. The *advice* (`NCCL_*`, `GLOO_*`,
/// `UCX_*`, `NVSHMEM_*`, `FI_*`, PET_NPROC_PER_NODE, and further variables for a launcher) replaces no value:
/// a user who has set such a variable knows more about the host than mingle does.
///
/// Advice that mingle gave earlier in the same shell is not the user's. MINGLE_SET tells mingle's advice from
/// the user's values: it lists, with commas, the names of the advice that mingle has set, each with a hash of
/// its value ([`is_own`]). mingle replaces such a variable, or removes it if its value would now be wrong. A
/// variable whose value has changed since is the user's. MINGLE_SET does not list the names of the world,
/// which mingle always replaces. It lists a launcher's own variables, so that a later `mingle` with another
/// format removes them: a PET_RDZV_BACKEND left over would turn torchrun's static world into a world of
/// another kind.
///
/// ```
/// use mingle_core::env::{Facts, Variables};
/// # use mingle_core::proto::Digest;
/// # use mingle_core::{Formed, World};
/// # let (job, world) = ("foo".parse()?, World::new(4)?);
/// # let (master, local) = (([10, 0, 0, 1], 29503).into(), [10, 0, 0, 3].into());
/// # let formed = Formed::new(world.rank(2)?, world, master, local, Digest([0; 16]));
/// let mut facts = Facts::new(&job, &formed);
/// facts.interface = Some("eth0");
/// let variables = Variables::new(facts, |name| std::env::var(name).ok());
/// assert!(variables.set().contains(&("RANK", "2".to_owned())));
/// # Ok::<(), mingle_core::error::InvalidId>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    set: Vec<Variable>,
    unset: Vec<String>,
    kept: Vec<Kept>,
    unnameable: bool,
}

/// A variable that mingle leaves as it is, because the user has set it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The variable's name.
    pub name: &'static str,
    /// The user's value.
    pub value: String,
    /// The value that mingle would have set.
    pub advice: String,
}

impl Variables {
    /// The variables for `facts`, without the variables of any launcher. `environment` returns the user's
    /// value of a variable; an empty value counts as not set.
    pub fn new(facts: Facts<'_>, environment: impl Fn(&str) -> Option<String>) -> Self {
        Self::with(facts, &[], Vec::new(), Vec::new(), false, environment)
    }

    /// As [`Variables::new`], with the variables of one launcher, and without the names of the world in
    /// `left_out`. `advised` yield to the user's, like all advice. If the launcher gives the variables to all
    /// hosts (`is_exported`), those of this host alone are left out.
    pub(super) fn with(
        facts: Facts<'_>,
        left_out: &[&str],
        launcher: Vec<Variable>,
        advised: Vec<Variable>,
        is_exported: bool,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let interface = facts.interface.filter(|name| name.split(':').all(is_nameable));
        let ipv6 = facts.formed.master.is_ipv6();
        let mut first = launcher;
        first.extend(result::optional(facts));
        let mut advice = Vec::new();
        let slots = facts.formed.slots.own.to_string();
        if facts.slots_given {
            first.push((PET_NPROC_PER_NODE, slots));
        } else {
            advice.push((PET_NPROC_PER_NODE, slots));
        }
        let users = |name: &str| users_value(name, &environment);
        advice.extend(advice::sockets(interface, ipv6, users));
        advice.push(advice::ras(facts.job));
        advice.extend(facts.fabric.iter().cloned());
        advice.retain(|(name, _)| !is_exported || !is_a_hosts_own(name));
        advice.extend(advised);
        let mut variables = Self::advice(first, advice, environment);
        variables.unnameable = facts.interface.is_some() && interface.is_none();
        variables.set.splice(0..0, result::result(facts).filter(|(name, _)| !left_out.contains(name)));
        variables
    }

    /// The advice for a host that is in no world: the variables in `fabric`, for the host's RDMA devices.
    pub fn of_fabric(fabric: &[Variable], environment: impl Fn(&str) -> Option<String>) -> Self {
        Self::advice(Vec::new(), fabric.to_vec(), environment)
    }

    /// The variables in `first`, then the part of `advice` that the user has not set, and MINGLE_SET, which
    /// lists them all.
    fn advice(
        first: Vec<Variable>,
        advice: Vec<Variable>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut variables = Self { set: first, unset: Vec::new(), kept: Vec::new(), unnameable: false };
        for (name, advice) in advice {
            match users_value(name, &environment) {
                Some(value) => variables.kept.push(Kept { name, value, advice }),
                None => variables.set.push((name, advice)),
            }
        }

        let listed = environment(MINGLE_SET).unwrap_or_default();
        let is_printed = |name: &str| variables.set.iter().any(|(printed, _)| *printed == name);
        let is_stale = |name: &&str| {
            let may_be_set = advice::is_advice(name) || launcher::is_owned(name) || result::is_optional(name);
            let value = environment(name).filter(|value| !value.is_empty());
            may_be_set && !is_printed(name) && value.is_some_and(|value| is_own(&listed, name, &value))
        };
        variables.unset = own::names(&listed).filter(is_stale).map(str::to_owned).collect();
        let list = own::list(&variables.set);
        variables.set.push((MINGLE_SET, list));
        variables
    }

    /// The variables to set, in the order in which they are printed.
    pub fn set(&self) -> &[Variable] {
        &self.set
    }

    /// The variables to remove: an earlier `mingle` has set them, and they have no value in this world.
    pub fn unset(&self) -> &[String] {
        &self.unset
    }

    /// Sets and removes the variables for a command that this process starts.
    pub fn apply(&self, command: &mut Command) {
        for name in &self.unset {
            command.env_remove(name);
        }
        command.envs(self.set.iter().cloned());
    }

    /// The advice that mingle dropped because the user has set these variables.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Whether the interface's name cannot be written in NCCL's list syntax or in characters that are safe in
    /// every shell. mingle then leaves out the variables for the interface, and NCCL and Gloo choose an
    /// interface themselves.
    pub fn interface_is_unnameable(&self) -> bool {
        self.unnameable
    }

    /// Puts `value` into the first variable, for tests of what a shell must never see.
    #[cfg(test)]
    pub(super) fn replace_first(&mut self, value: String) {
        self.set[0].1 = value;
    }
}

#[cfg(test)]
mod tests;
