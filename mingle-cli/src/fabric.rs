//! The part that RDMA has in a rendezvous: what this host says of itself, and what it prints in the end.

use std::path::PathBuf;

use mingle_core::env::fabric::{self, Extent};
use mingle_core::env::{Setting, Variables};
use mingle_core::rdma::{Machine, Summary, Transport, Verdict};

use crate::exit::Stop;
use crate::{advice, stderr};

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Leave it alone.
    pub(crate) no_rdma: bool,
    /// No world without it.
    pub(crate) required: bool,
    pub(crate) extent: Extent,
    pub(crate) settings: Vec<Setting>,
    /// A snapshot instead of this machine, for tests.
    pub(crate) root: Option<PathBuf>,
}

/// What was found on this host.
#[derive(Debug)]
pub(crate) struct Found {
    /// None where nobody looked.
    machine: Option<Machine>,
    /// What the other nodes are told.
    pub(crate) summary: Summary,
    extent: Extent,
}

impl Wanted {
    /// Looks at this host.
    pub(crate) fn find(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Found, Stop> {
        let extent = self.extent;
        if self.no_rdma {
            return Ok(Found { machine: None, summary: Summary::default(), extent });
        }
        let machine = machine(self.root.as_ref())?;
        let choice = machine.choose();
        let summary = Summary::new(&machine).required(self.required);
        let off = fabric::is_switched_off(choice.kind, &self.settings, environment);
        let summary = if off { summary.disabled() } else { summary };
        Ok(Found { machine: Some(machine), summary, extent })
    }
}

/// This machine, or the one that was saved in a folder.
fn machine(root: Option<&PathBuf>) -> Result<Machine, Stop> {
    match root {
        None => Machine::probe().map_err(|error| Stop::System("list this host's addresses", error)),
        Some(folder) => Machine::from_snapshot(folder)
            .map_err(|error| Stop::Usage(format!("MINGLE_SYSFS_ROOT={}: {error}", folder.display()))),
    }
}

impl Found {
    /// What to print in a world that uses `transport`.
    pub(crate) fn variables(&self, transport: Transport) -> Vec<(&'static str, String)> {
        self.machine
            .as_ref()
            .map_or_else(Vec::new, |machine| fabric::variables(machine, transport, self.extent))
    }

    /// Says what is wrong with this host alone, before others are waited for.
    pub(crate) fn warn(&self) {
        if let Some(warning) = self.machine.as_ref().and_then(fabric::unusable) {
            stderr::say(format_args!("warning: {warning}"));
        }
    }

    /// Says who differs, what is used, and what was left out.
    pub(crate) fn report(&self, verdict: &Verdict) {
        for warning in advice::differences(verdict) {
            stderr::say(format_args!("warning: {warning}"));
        }
        let Some(machine) = self.machine.as_ref().filter(|_| verdict.transport.is_rdma()) else { return };
        for warning in fabric::warnings(machine, verdict.transport, self.extent) {
            stderr::say(format_args!("warning: {warning}"));
        }
        let choice = match verdict.transport {
            Transport::Roce(addressing) => machine.choose_for(addressing),
            _ => machine.choose(),
        };
        let list = |used: bool| {
            let ports = choice.ports.iter().filter(move |port| port.is_used() == used);
            let names = ports.map(|port| {
                let (name, number) = (port.device.name.escape_debug(), port.port.number);
                port.left.as_ref().map_or_else(
                    || format!("{name}:{number}"),
                    |reason| format!("{name}:{number} ({reason})"),
                )
            });
            names.collect::<Vec<_>>().join(", ")
        };
        let left = list(false);
        let left = if left.is_empty() { left } else { format!("; left out: {left}") };
        stderr::say(format_args!("RDMA: {} on {}{left}", verdict.transport, list(true)));
    }
}

/// Says which of the user's own variables contradict what the ranks have agreed on: they are kept.
pub(crate) fn tell_kept(variables: &Variables, settings: &[Setting], fabric: &[(&'static str, String)]) {
    let kept = variables.kept().iter().map(|kept| (kept.name, &kept.value, &kept.advice));
    // What --set says of devices and indices, a guide says. That RDMA is used where the ranks agreed not to
    // use it, none does.
    let given = settings.iter().filter(|setting| setting.name() == "NCCL_IB_DISABLE").filter_map(|setting| {
        let (name, advice) = fabric.iter().find(|(name, _)| *name == setting.name())?;
        Some((*name, setting.value(), advice))
    });
    let given = given.map(|(name, value, advice)| (name, value.to_owned(), advice.clone()));
    let kept = kept.map(|(name, value, advice)| (name, value.clone(), advice.clone()));
    for (name, value, advice) in kept.chain(given).filter(|(_, value, advice)| value != advice) {
        // The interfaces are each host's own matter; what RDMA is used is not.
        if fabric.iter().any(|(agreed, _)| *agreed == name) {
            stderr::say(format_args!(
                "warning: {name}={value} is kept as you set it, where {advice} would fit what the ranks agreed on"
            ));
        }
    }
}
