//! A formed world, as it is printed, written to files and passed to a command.

use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use mingle_core::env::{Facts, Format, Variable, Variables};
use mingle_core::tools::{duration, interfaces};
use mingle_core::{Assignment, Formed};

use crate::config::Settings;
use crate::events::Timings;
use crate::exit::Stop;
use crate::fabric::{self, Found};
use crate::nccl_conf::environment;
use crate::stdout::{document, formed_text};
use crate::{caller, stderr};

/// Everything that this node's output depends on.
#[derive(Debug)]
pub(crate) struct Formation<'a> {
    pub(crate) config: &'a Settings,
    found: &'a Found,
    pub(crate) assignment: &'a Assignment,
    fabric: Vec<(&'static str, String)>,
    /// The formats of the files beside the result.
    beside: Vec<Format>,
    timings: Timings,
}

impl<'a> Formation<'a> {
    pub(crate) fn new(
        config: &'a Settings,
        found: &'a Found,
        assignment: &'a Assignment,
        timings: Timings,
    ) -> Self {
        let (fabric, beside) = (found.variables(&assignment.formed.verdict), config.files().collect());
        Self { config, found, assignment, fabric, beside, timings }
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        let mut facts = Facts::new(&self.assignment.job, &self.assignment.formed);
        facts.interface = self.assignment.interface.as_deref();
        facts.fabric = &self.fabric;
        facts.slots_given = self.config.slots_given;
        facts.ports = self.config.held.numbers();
        facts.secret = self.config.rendezvous.secret.as_ref();
        facts.beside = &self.beside;
        facts.template = self.config.template.as_ref();
        facts
    }

    /// The variables of a format, and those that stay as the user has set them.
    pub(crate) fn variables(&self, format: Format) -> Result<Variables, Stop> {
        Ok(format.variables(self.facts(), environment)?)
    }

    /// The world in a format.
    pub(crate) fn text(&self, format: Format, variables: &Variables) -> Result<String, Stop> {
        formed_text(format, self.facts(), variables, self.timings)
    }

    /// Tells the program that holds this one of the world of this generation.
    pub(crate) fn tell(&self, variables: &Variables, generation: u32, listener: Option<TcpListener>) {
        self.report(variables);
        let told = || {
            let mut document = document(self.facts(), variables, self.timings);
            document["generation"] = generation.into();
            document
        };
        caller::tell("formed", told, listener);
    }

    /// Writes the files of --output.
    pub(crate) fn write_outputs(&self) -> Result<(), Stop> {
        let mut facts = self.facts();
        // Other users may read the files.
        facts.secret = None;
        facts.stays_here = true;
        for output in &self.config.outputs {
            facts.template = output.template.as_ref();
            let variables = output.format.variables(facts, environment)?;
            let text = formed_text(output.format, facts, &variables, self.timings)?;
            output.write(&text).map_err(|error| {
                let path = output.path.display();
                let what = format!("the world has formed, but {path} of --output cannot be written: {error}");
                Stop::Other("output", what)
            })?;
        }
        Ok(())
    }

    /// Prints warnings about this world on stderr, and how long it took to form.
    pub(crate) fn report(&self, variables: &Variables) {
        for kept in variables.kept() {
            tracing::debug!("{} is set already, and stays", kept.name);
        }
        if self.config.quiet {
            return;
        }
        if let (true, Some(interface)) =
            (variables.interface_is_unnameable(), self.assignment.interface.as_deref())
        {
            stderr::say(format_args!(
                "warning: NCCL and Gloo have no way to name the interface {interface:?}; rename it, or choose another \
                 --interface"
            ));
        }
        if let Some(address) = self.gloos_ipv4(variables) {
            stderr::say(format_args!(
                "warning: Gloo takes the IPv4 address {address} of its interface, in a world of IPv6 too, and no path \
                 to it was proved; if Gloo cannot connect, remove that address, or let the world use IPv4"
            ));
        }
        let Formed { world, rank, master, left_over, .. } = &self.assignment.formed;
        // A node that stays may take the place of another later.
        if *left_over > 0 && !self.config.rendezvous.stays {
            stderr::say(format_args!(
                "warning: {} nodes use job ID {}, and --world is {world}: the world forms without the node that came last; give \
                 the other job another --job-id, or start as many nodes as --world says",
                world.get().saturating_add(*left_over),
                self.config.rendezvous.job,
            ));
        }
        stderr::warn(self.assignment.formed.sameness.lines());
        self.found.report(&self.assignment.formed.verdict);
        fabric::warn_of_kept(variables, &self.fabric);
        let time = duration(Duration::from_millis(self.timings.formed_ms.unwrap_or_default()));
        let losses = self.assignment.losses();
        stderr::say(format_args!("world of {world} formed in {time}{losses}: rank {rank}, master {master}"));
    }

    /// In a world of IPv6, the IPv4 address that Gloo takes instead, where mingle has named the interface:
    /// Gloo asks for any family, and the kernel lists IPv4 first (`lookupAddrForIface` in Gloo's
    /// `gloo/transport/tcp/device.cc`).
    fn gloos_ipv4(&self, variables: &Variables) -> Option<IpAddr> {
        let name = self.assignment.interface.as_deref().filter(|_| self.assignment.formed.local.is_ipv6())?;
        let names_it = |(variable, value): &Variable| *variable == "GLOO_SOCKET_IFNAME" && value == name;
        variables.set().iter().find(|variable| names_it(variable))?;
        let all = interfaces(&self.config.rendezvous.network).ok()?;
        let interface = all.into_iter().find(|judged| judged.interface.name == name)?.interface;
        interface.addresses.iter().find_map(|own| Some(own.addr()).filter(IpAddr::is_ipv4))
    }
}
