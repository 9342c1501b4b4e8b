//! A formed world, as it is printed, written to files and passed to a command.

use std::net::IpAddr;
use std::time::Duration;

use mingle_core::env::{Facts, Format, Variable, Variables};
use mingle_core::tools::{duration, interfaces};
use mingle_core::{Assignment, Formed};

use crate::config::Settings;
use crate::events::Journal;
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
    pub(crate) assignment: Assignment,
    /// The variables of the format on stdout, and those that stay as the user has set them.
    pub(crate) variables: Variables,
    fabric: Vec<(&'static str, String)>,
    /// The formats of the files beside the result.
    beside: Vec<Format>,
    /// How long it took, in milliseconds.
    formed_ms: Option<u64>,
}

impl<'a> Formation<'a> {
    pub(crate) fn new(
        config: &'a Settings,
        found: &'a Found,
        assignment: Assignment,
        journal: &Journal,
    ) -> Result<Self, Stop> {
        let (fabric, beside) = (found.variables(&assignment.formed.verdict), config.files().collect());
        let (variables, formed_ms) = (Variables::default(), journal.formed_ms);
        let mut formation = Self { config, found, assignment, variables, fabric, beside, formed_ms };
        formation.variables = config.format.variables(formation.facts(), environment)?;
        Ok(formation)
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

    /// The world in the format on stdout.
    pub(crate) fn text(&self) -> Result<String, Stop> {
        formed_text(self.config.format, self.facts(), &self.variables, self.formed_ms)
    }

    /// Tells the program that holds this one of the world of this generation.
    pub(crate) fn tell(mut self, generation: u32) {
        self.report();
        let listener = self.assignment.listener.take();
        let told = || {
            let mut document = document(self.facts(), &self.variables, self.formed_ms);
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
            let text = formed_text(output.format, facts, &variables, self.formed_ms)?;
            output.write(&text).map_err(|error| {
                let path = output.path.display();
                let what = format!("the world has formed, but {path} of --output cannot be written: {error}");
                Stop::Other("output", what)
            })?;
        }
        Ok(())
    }

    /// Prints warnings about this world on stderr, and how long it took to form.
    pub(crate) fn report(&self) {
        for kept in self.variables.kept() {
            tracing::debug!("{} is set already, and stays", kept.name);
        }
        if let (true, Some(interface)) =
            (self.variables.interface_is_unnameable(), self.assignment.interface.as_deref())
        {
            stderr::say(format_args!(
                "warning: NCCL and Gloo have no way to name the interface {interface:?}; rename it, or choose another \
                 --interface"
            ));
        }
        if let Some(address) = self.gloos_ipv4() {
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
        fabric::warn_of_kept(&self.variables, &self.fabric);
        let time = duration(Duration::from_millis(self.formed_ms.unwrap_or_default()));
        let losses = self.assignment.losses();
        stderr::say(format_args!("world of {world} formed in {time}{losses}: rank {rank}, master {master}"));
    }

    /// In a world of IPv6, the IPv4 address that Gloo takes instead, where mingle has named the interface:
    /// Gloo asks for any family, and the kernel lists IPv4 first (`lookupAddrForIface` in Gloo's
    /// `gloo/transport/tcp/device.cc`).
    fn gloos_ipv4(&self) -> Option<IpAddr> {
        let name = self.assignment.interface.as_deref().filter(|_| self.assignment.formed.local.is_ipv6())?;
        let names_it = |(variable, value): &Variable| *variable == "GLOO_SOCKET_IFNAME" && value == name;
        self.variables.set().iter().find(|variable| names_it(variable))?;
        let all = interfaces(&self.config.rendezvous.network).ok()?;
        let interface = all.into_iter().find(|judged| judged.interface.name == name)?.interface;
        interface.addresses.iter().find_map(|own| Some(own.addr()).filter(IpAddr::is_ipv4))
    }
}
