//! Where a node looks for the others, and by which addresses and ports it takes part.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::discovery::Seed;
use crate::host::{self, Filter, Interface, Kind};
use crate::model::{JobId, JobInterfaces};
use crate::net::error::Error;

/// The network settings of a rendezvous, and of the commands that examine or watch a rendezvous.
///
/// By default mingle uses every suitable interface, multicast within the link, and the job's own group and
/// ports.
///
/// ```
/// use mingle_core::{Rendezvous, World};
///
/// let mut rendezvous = Rendezvous::new("foo".parse()?, World::new(4)?);
/// let network = &mut rendezvous.network;
/// network.interfaces = vec!["10.1.0.0/16".parse()?, "^docker*".parse()?];
/// network.seeds = vec!["login1:29500".parse()?];
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Network {
    /// The interfaces and addresses that may be used, in order of preference. mingle uses an address if a
    /// filter admits it and no filter excludes it. Default: empty, which admits every suitable interface.
    pub interfaces: Vec<Filter>,
    /// Makes the node use only this address of the loopback interface, for several nodes within a process or
    /// on a host: the kernel answers for every address in 127.0.0.0/8. Default: none, and
    /// [`Network::interfaces`] decides.
    pub loopback: Option<Ipv4Addr>,
    /// The UDP port of the multicast groups and of broadcasts, 1 to 65535. It must be the same on every node
    /// and differ from [`Network::master_port`]. Default: [`Network::DISCOVERY_PORT`].
    pub discovery_port: u16,
    /// The IPv4 multicast group, for networks that pass only certain groups. It must be the same on every
    /// node. Default: none, and [`JobId::group_v4`] decides.
    pub group: Option<Ipv4Addr>,
    /// The TTL of multicast datagrams, 1 to 255: datagrams pass `ttl - 1` routers. Default: 1, so they stay
    /// on the link.
    pub ttl: u8,
    /// Whether the node also sends and receives IPv4 broadcasts, for switches that drop groups without a
    /// registered member. A broadcast does not leave the link. Default: no.
    pub broadcast: bool,
    /// Whether the node joins the multicast groups and sends to them. Without multicast the node needs
    /// another way to find the other nodes: [`Network::seeds`] or [`Network::seed_dir`]. Default: yes.
    pub multicast: bool,
    /// Whether a world uses IPv6 if all its nodes have both IPv4 and IPv6. It must be the same on every node.
    /// Default: no.
    pub prefers_ipv6: bool,
    /// The node's own port for TCP and UDP, 1 to 65535, which becomes MASTER_PORT if the node becomes rank 0.
    /// Default: none, and the node takes the first free port of [`Network::ports`].
    pub master_port: Option<u16>,
    /// Hosts where other nodes may be, for networks without multicast. A single host suffices if the seeds of
    /// all other nodes lead there. Default: none.
    pub seeds: Vec<Seed>,
    /// The interfaces that the user has given to the job's libraries. mingle also proves the paths to the
    /// addresses of these interfaces. Default: none.
    pub job_interfaces: JobInterfaces,
    /// A folder that all nodes share. Each node writes a file with its addresses there, and removes the file
    /// at the end. Default: none.
    pub seed_dir: Option<PathBuf>,
}

impl Network {
    /// The UDP port of every job's multicast groups, unless [`Network::discovery_port`] differs.
    pub const DISCOVERY_PORT: u16 = 29499;

    /// The multicast groups of a job on this network, with their port: IPv4 first, then IPv6.
    pub fn groups(&self, job: &JobId) -> [SocketAddr; 2] {
        let v4 = self.group.unwrap_or_else(|| job.group_v4());
        [(v4, self.discovery_port).into(), (job.group_v6(), self.discovery_port).into()]
    }

    /// The groups that a node joins and sends to: all of them, or none.
    pub(crate) fn joined_groups(&self, job: &JobId) -> Vec<SocketAddr> {
        self.groups(job).into_iter().filter(|_| self.multicast).collect()
    }

    /// The ports that a node without a given port tries, in order: the job's ports without the discovery
    /// port, which is the same on every node. A node cannot share its own port with the groups.
    pub fn ports(&self, job: &JobId) -> impl Iterator<Item = u16> + use<> {
        let discovery = self.discovery_port;
        job.ports().filter(move |port| *port != discovery)
    }

    /// The interfaces of this host to use, as the settings allow, in order of preference.
    pub(crate) fn select_interfaces(&self) -> Result<Vec<Interface>, Error> {
        if let Some(address) = self.loopback {
            return Ok(vec![Interface::loopback(address)]);
        }
        let all = host::list().map_err(Error::socket("cannot list the network interfaces"))?;
        let is_filtered = !self.interfaces.is_empty();
        let failed = |reasons| Error::NoInterface { reasons, is_filtered };
        self.select(&all).map_err(failed)
    }

    /// The interfaces to use of all of them; where there are none, why each is refused.
    pub(crate) fn select(&self, all: &[Interface]) -> Result<Vec<Interface>, String> {
        host::select(all, &self.interfaces, self.needs_multicast())
    }

    /// Whether a node finds the others by multicast, or broadcast, alone.
    pub fn needs_multicast(&self) -> bool {
        self.multicast && self.seeds.is_empty() && self.seed_dir.is_none()
    }

    /// The interfaces that this node would use if they had multicast, where it uses these, of which none but
    /// loopback is usable.
    pub(crate) fn without_multicast(&self, used: &[Interface]) -> Vec<String> {
        if !self.needs_multicast()
            || self.loopback.is_some()
            || used.iter().any(|one| one.kind != Kind::Loopback)
        {
            return Vec::new();
        }
        let all = host::list().unwrap_or_default();
        let lacking = host::without_multicast(&all, &self.interfaces);
        lacking.into_iter().map(|name| name.escape_debug().to_string()).collect()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            loopback: None,
            discovery_port: Self::DISCOVERY_PORT,
            group: None,
            ttl: 1,
            broadcast: false,
            multicast: true,
            prefers_ipv6: false,
            master_port: None,
            seeds: Vec::new(),
            job_interfaces: JobInterfaces::default(),
            seed_dir: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discovery_port_is_no_port_of_a_node() {
        let job: JobId = "foo".parse().unwrap();
        let all: Vec<u16> = job.ports().collect();
        let network = Network { discovery_port: all[1], ..Network::default() };
        let ports: Vec<u16> = network.ports(&job).collect();
        assert_eq!((ports.len(), ports[0], &ports[1..]), (498, all[0], &all[2..]));
        assert!(Network::default().ports(&job).eq(all));
    }
}
