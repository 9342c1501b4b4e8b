//! The interfaces that the node uses: waiting for them at the start, and following their changes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Driver;
use crate::host::{self, Interface, endpoints, link_of};
use crate::model::{Endpoints, JobInterfaces};
use crate::net::Network;
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;
use crate::net::sockets::links::Links;
use crate::proto::{Event, Node, Reach, Warning};

/// How long to wait for a host that has no usable interface yet, or for a port that a command still holds.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// The interfaces to use. A host that is just starting gets [`GRACE`] to bring one up. A world of one needs
/// none.
pub(super) async fn usable(settings: &Rendezvous) -> Result<Vec<Interface>, Error> {
    let until = clock() + settings.timeout.map_or(GRACE, |timeout| timeout.min(GRACE));
    let mut has_warned = false;
    loop {
        match settings.network.select_interfaces() {
            Err(_) if settings.is_alone() && settings.network.interfaces.is_empty() => return Ok(Vec::new()),
            Err(Error::NoInterface { reasons, is_filtered }) if clock() < until => {
                if !std::mem::replace(&mut has_warned, true) {
                    settings.notify(Event::Warning(Warning::NoInterface { reasons, is_filtered }));
                }
                tokio::time::sleep(GRACE / 20).await;
            }
            selected => return selected,
        }
    }
}

/// The endpoints at which others may reach this node. In a world of one without an interface, the loopback
/// address.
pub(super) fn own_endpoints(network: &Network, links: &Links, port: u16) -> Endpoints {
    let own = endpoints(links.interfaces(), port, network.prefers_ipv6);
    Endpoints::new(own).unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
}

impl Driver {
    /// How the job reaches this node: for each of these endpoints, and by the interfaces that the user has
    /// given to the job's libraries.
    pub(super) fn own_reach(&self, endpoints: &Endpoints) -> Reach {
        let Rendezvous { network, own_ports, .. } = &self.settings;
        let of_endpoint = |endpoint: &SocketAddr| link_of(self.links.interfaces(), endpoint.ip());
        let reach = Reach::new(self.path_port, endpoints.iter().map(of_endpoint));
        let given = &network.job_interfaces;
        if *given == JobInterfaces::default() || *own_ports || network.loopback.is_some() {
            return reach;
        }
        let mut all = host::list().unwrap_or_default();
        all.retain(|interface| given.contain(&interface.name));
        let families = [network.prefers_ipv6, !network.prefers_ipv6];
        reach.with(families.into_iter().flat_map(|v6| all.iter().filter_map(move |given| given.link(v6))))
    }

    /// Warns where nothing but multicast keeps an interface from being used, and no other host is in reach.
    pub(super) fn warn_of_interfaces(&self) {
        let interfaces = self.settings.network.without_multicast(self.links.interfaces());
        if !interfaces.is_empty() && !self.settings.is_alone() {
            self.warn(Warning::WithoutMulticast { interfaces });
        }
    }

    /// Reads the interfaces again: a pod gets its second network late, and DHCP changes addresses.
    pub(super) fn look_at_interfaces(&mut self, node: &mut Node) -> Result<(), Error> {
        // A round has timeouts of its own, and must not lose its addresses.
        if self.settings.is_alone() || node.is_bound() {
            return Ok(());
        }
        if let Some(error) = self.links.follow(&self.settings.network) {
            self.warn(Warning::Interfaces { error: error.chain() });
        }
        let own = own_endpoints(&self.settings.network, &self.links, self.port);
        let reach = self.own_reach(&own);
        if own == self.endpoints && reach == self.reach {
            return Ok(());
        }
        tracing::debug!(?own, "the addresses of this host have changed");
        let was = std::mem::replace(&mut self.endpoints, own);
        self.reach = reach;
        if self.endpoints.preferred() == was.preferred()
            && self.endpoints.are_loopback() == was.are_loopback()
        {
            node.handle_endpoints(self.now(), self.endpoints.clone(), self.reach.clone());
            // The node's file in the shared folder holds the endpoints, too.
            self.follow_seeds(self.seed_dir());
        } else {
            // The other nodes know this one by its preferred address, which has gone: a new node replaces it.
            self.warn(Warning::AddressesChanged);
            // Members that are connected to another address learn at once that this node leaves; the others
            // when their kernels give the connection up.
            node.handle_departure(self.now());
            self.carry_out_all(node);
            self.replace(node)?;
        }
        Ok(())
    }
}
