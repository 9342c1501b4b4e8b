//! The part that RDMA has in a rendezvous: what this host says of itself, and what it prints in the end.

use std::path::PathBuf;

use mingle_core::env::Setting;
use mingle_core::env::fabric::{self, Extent};
use mingle_core::rdma::{Machine, Summary, Transport, Verdict};

use crate::exit::Stop;
use crate::stderr;

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
        let summary = Summary::new(&machine.choose(), machine.peer_memory.is_some()).required(self.required);
        let off = fabric::is_switched_off(&self.settings, environment);
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
        for warning in self.machine.iter().flat_map(|machine| fabric::warnings(machine, self.extent)) {
            stderr::say(format_args!("warning: {warning}"));
        }
    }

    /// Says who differs, what is used, and what was left out.
    pub(crate) fn report(&self, verdict: &Verdict) {
        for warning in verdict.warnings() {
            stderr::say(format_args!("warning: {warning}"));
        }
        let Some(machine) = self.machine.as_ref().filter(|_| verdict.transport.is_rdma()) else { return };
        let choice = match verdict.transport {
            Transport::Roce(addressing) => machine.choose_for(addressing),
            _ => machine.choose(),
        };
        let list = |used: bool| {
            let ports = choice.ports.iter().filter(move |port| port.is_used() == used);
            let names = ports.map(|port| match &port.left {
                None => format!("{}:{}", port.device.name, port.port.number),
                Some(reason) => format!("{}:{} ({reason})", port.device.name, port.port.number),
            });
            names.collect::<Vec<_>>().join(", ")
        };
        let left = list(false);
        let left = if left.is_empty() { left } else { format!("; left out: {left}") };
        stderr::say(format_args!("RDMA: {} on {}{left}", verdict.transport, list(true)));
    }
}
