//! Where a command looks for other nodes: its options and their variables, read into one [`Network`].

use std::ffi::OsString;
use std::path::PathBuf;

use mingle_core::Network;

use crate::args::{DoctorArgs, JoinArgs, WatchArgs};
use crate::config::{Reader, values};
use crate::exit::Stop;

/// The network's options as they were typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkArgs {
    interface: Vec<String>,
    discovery_port: Option<String>,
    group: Option<String>,
    broadcast: bool,
    ttl: Option<String>,
    ipv6: bool,
    master_port: Option<String>,
    seed: Vec<String>,
    seed_dir: Option<String>,
}

impl NetworkArgs {
    /// The settings of a node: each option, or else its variable.
    pub(crate) fn of_node<F>(self, reader: &Reader<F>) -> Result<Network, Stop>
    where
        F: Fn(&str) -> Option<OsString>,
    {
        let folder = |text: &str| Ok::<_, String>(PathBuf::from(text));
        let mut network = Network::default();
        network.prefers_ipv6 = reader.flag(self.ipv6, "ipv6")?;
        network.master_port = reader.read(self.master_port.clone(), "master-port", values::port)?;
        network.seeds = reader.seeds(self.seed.clone())?;
        network.seed_dir = reader.read(self.seed_dir.clone(), "seed-dir", folder)?;
        let network = self.multicast(network, reader)?;
        if network.master_port == Some(network.discovery_port) {
            return Err(Stop::Usage(format!(
                "--master-port and --discovery-port are both {}; a node needs two ports, so change one",
                network.discovery_port
            )));
        }
        Ok(network)
    }

    /// The settings of an observer: the variables of options that it lacks are not read.
    pub(crate) fn of_observer<F>(self, reader: &Reader<F>) -> Result<Network, Stop>
    where
        F: Fn(&str) -> Option<OsString>,
    {
        self.multicast(Network::default(), reader)
    }

    /// Fills in the settings by which datagrams reach all nodes.
    fn multicast<F>(self, mut network: Network, reader: &Reader<F>) -> Result<Network, Stop>
    where
        F: Fn(&str) -> Option<OsString>,
    {
        let port = reader.read(self.discovery_port, "discovery-port", values::port)?;
        network.discovery_port = port.unwrap_or(network.discovery_port);
        network.ttl = reader.read(self.ttl, "ttl", values::ttl)?.unwrap_or(network.ttl);
        network.interfaces = reader.interfaces(self.interface)?;
        network.group = reader.read(self.group, "group", values::group)?;
        network.broadcast = reader.flag(self.broadcast, "broadcast")?;
        Ok(network)
    }
}

impl From<&JoinArgs> for NetworkArgs {
    fn from(args: &JoinArgs) -> Self {
        Self {
            interface: args.interface.clone(),
            discovery_port: args.discovery_port.clone(),
            group: args.group.clone(),
            broadcast: args.broadcast,
            ttl: args.ttl.clone(),
            ipv6: args.ipv6,
            master_port: args.master_port.clone(),
            seed: args.seed.clone(),
            seed_dir: args.seed_dir.clone(),
        }
    }
}

impl From<&DoctorArgs> for NetworkArgs {
    fn from(args: &DoctorArgs) -> Self {
        Self {
            interface: args.air.interface.clone(),
            discovery_port: args.air.discovery_port.clone(),
            group: args.air.group.clone(),
            broadcast: args.broadcast,
            ttl: args.ttl.clone(),
            ipv6: args.ipv6,
            master_port: args.master_port.clone(),
            seed: args.seed.clone(),
            seed_dir: args.seed_dir.clone(),
        }
    }
}

impl From<&WatchArgs> for NetworkArgs {
    fn from(args: &WatchArgs) -> Self {
        Self {
            interface: args.air.interface.clone(),
            discovery_port: args.air.discovery_port.clone(),
            group: args.air.group.clone(),
            broadcast: args.broadcast,
            ttl: args.ttl.clone(),
            ..Self::default()
        }
    }
}
