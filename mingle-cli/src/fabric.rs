//! RDMA in a rendezvous: the summary for the other nodes, and the variables that are printed in the end.

use std::path::PathBuf;

use mingle_core::env::{Kept, Variable, Variables, users_value};
use mingle_core::rdma::{self, Address, Machine, Summary, Users, Verdict};
use mingle_core::{Filter, Session};

use crate::config::Settings;
use crate::exit::Stop;
use crate::nccl_conf::environment;
use crate::{advice, stderr};

/// NCCL tries no other network than that of NCCL_NET (src/plugin/net.cc).
const WITHOUT_NET: &str =
    "; NCCL ends with \"Failed to initialize any NET plugin\" on a rank without that network";

/// What `--rdma` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Use {
    /// RDMA where all ranks can use it together.
    #[default]
    Auto,
    /// Form no world without RDMA.
    Require,
    /// Do not examine the RDMA devices and print no variables for them.
    Off,
}

/// The user's wishes for RDMA.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) rdma: Use,
    /// A snapshot to use instead of this machine, for tests.
    pub(crate) root: Option<PathBuf>,
}

/// The RDMA devices that were found on this host.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// `None` if the devices were not examined.
    pub(crate) machine: Option<Machine>,
    /// The summary that this node sends to the others.
    pub(crate) summary: Summary,
    /// What the user's own variables say about the devices.
    users: Users,
}

impl Wanted {
    /// Examines this host. `interfaces` are those for the rendezvous, as far as the user has chosen them.
    pub(crate) fn find(&self, interfaces: &[Filter]) -> Result<Found, Stop> {
        if self.rdma == Use::Off {
            return Ok(Found::default());
        }
        let machine = machine(self.root.as_ref())?;
        let machine = machine.prefer(|address| filter_of(interfaces, address));
        let choice = machine.choose();
        let summary = Summary::new(&machine).required(self.rdma == Use::Require);
        let value = |name: &str| users_value(name, environment);
        let off = rdma::is_switched_off(choice.kind, value);
        let own_net = ["NCCL_NET", "NCCL_NET_PLUGIN"].into_iter().any(|name| value(name).is_some());
        let summary = if off { summary.disabled() } else { Summary { own_net, ..summary } };
        Ok(Found { machine: Some(machine), summary, users: Users::new(value) })
    }
}

/// The place of the first filter that admits an address. None where none admits it, or one excludes it.
fn filter_of(filters: &[Filter], address: &Address) -> Option<usize> {
    filters
        .iter()
        .position(|filter| filter.admits(&address.interface, address.net.addr()))
        .filter(|_| !filters.iter().any(|filter| filter.excludes(&address.interface, address.net.addr())))
}

/// This machine, or the one that was saved in a folder.
pub(crate) fn machine(root: Option<&PathBuf>) -> Result<Machine, Stop> {
    match root {
        None => rdma::probe().map_err(|error| Stop::System("list this host's addresses", error)),
        Some(folder) => Machine::from_snapshot(folder)
            .map_err(|error| Stop::Usage(format!("MINGLE_SYSFS_ROOT={}: {error}", folder.display()))),
    }
}

impl Found {
    /// Looks at the devices again, before another world forms: an interface that went down may be why the
    /// last world ended, and its GIDs have other indices since. If that fails, what was found before stays.
    pub(crate) fn renew(&mut self, config: &Settings, session: &mut Session) {
        if let Ok(found) = config.fabric.find(&config.rendezvous.network.interfaces) {
            session.set_fabric(found.summary);
            *self = found;
        }
    }

    /// The variables for a world with this verdict.
    pub(crate) fn variables(&self, verdict: &Verdict) -> Vec<(&'static str, String)> {
        let machine = self.machine.clone().map(|machine| machine.agree(verdict));
        machine.map_or_else(Vec::new, |machine| rdma::beside(&machine, verdict.transport, &self.users))
    }

    /// Reports which ranks differ, which ports are used, and why the others are not.
    pub(crate) fn report(&self, verdict: &Verdict) {
        stderr::warn(advice::differences(verdict));
        let Some(machine) = self.machine.clone().filter(|_| verdict.transport.is_rdma()) else { return };
        let machine = machine.agree(verdict);
        stderr::warn(rdma::warnings(&machine, verdict.transport, &self.users));
        let choice = machine.choose_in(verdict.transport);
        let (used, unused) = (choice.names(true), choice.names(false));
        let unused = if unused.is_empty() { unused } else { format!("; not used: {unused}") };
        let joined = if verdict.cables.is_some() { ", cables between each two hosts," } else { "" };
        stderr::say(format_args!("RDMA: {}{joined} on {used}{unused}", verdict.transport));
    }
}

/// Warns of the user's own variables that contradict what the ranks have agreed on. They are kept.
pub(crate) fn warn_of_kept(variables: &Variables, fabric: &[Variable]) {
    // Each host chooses its own interfaces, but the ranks agree on RDMA. NCCL ignores case in the name of a
    // network.
    let is_against = |kept: &&Kept| {
        fabric.iter().any(|(name, _)| *name == kept.name) && !kept.value.eq_ignore_ascii_case(&kept.advice)
    };
    for Kept { name, value, advice, .. } in variables.kept().iter().filter(is_against) {
        let end = if *name == "NCCL_NET" { WITHOUT_NET } else { "" };
        stderr::say(format_args!(
            "warning: {name}={value} is kept as you set it; {advice} would match what the ranks agreed on{end}"
        ));
    }
}
