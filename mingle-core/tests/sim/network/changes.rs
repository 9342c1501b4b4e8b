//! What changes on a host while its node runs: the seeds that it knows, and its addresses.

use std::net::{IpAddr, SocketAddr};

use mingle_core::proto::{Reach, Time};

use super::queue::Happening;
use super::{Network, PORT};

impl Network {
    /// From `at` on, a host's seeds resolve to these endpoints.
    pub fn seeds_at(&mut self, host: usize, seeds: Vec<SocketAddr>, at: Time) {
        self.at(at, Happening::Seeds(host, seeds));
    }

    /// An address of a host, but not its preferred one, appears or vanishes at `at`.
    pub fn change_address_at(&mut self, host: usize, ip: IpAddr, appears: bool, at: Time) {
        self.at(at, Happening::Address(host, ip, appears));
    }

    /// Adds an address that leads to a host and that the host does not know, as behind a NAT.
    pub fn add_translated_address(&mut self, host: usize, ip: IpAddr) {
        self.by_address.entry(SocketAddr::from((ip, PORT))).or_default().push(host);
    }

    /// Puts a host that has not started behind a NAT: others see its packets come from `outside`, by which
    /// datagrams reach it, and can connect to none of its own addresses.
    pub fn translate(&mut self, host: usize, outside: SocketAddr) {
        let own = self.hosts[host].config.node.endpoints.to_vec();
        for endpoint in own {
            self.forget_address(host, endpoint);
        }
        self.by_address.entry(outside).or_default().push(host);
        self.hosts[host].translated = Some(outside);
    }

    /// Sets all addresses of a host that has not started, in order of preference.
    pub fn set_addresses(&mut self, host: usize, ips: &[IpAddr]) {
        let port = self.hosts[host].config.node.endpoints[0].port();
        for endpoint in self.hosts[host].config.node.endpoints.clone().iter().copied() {
            self.forget_address(host, endpoint);
        }
        let new: Vec<_> = ips.iter().map(|&ip| SocketAddr::from((ip, port))).collect();
        for &endpoint in &new {
            self.by_address.entry(endpoint).or_default().push(host);
        }
        self.hosts[host].edit_endpoints(|endpoints| *endpoints = new);
    }

    fn forget_address(&mut self, host: usize, endpoint: SocketAddr) {
        if let Some(holders) = self.by_address.get_mut(&endpoint) {
            holders.retain(|&holder| holder != host);
        }
    }

    pub(super) fn change_seeds(&mut self, host: usize, seeds: Vec<SocketAddr>) {
        self.note(host, || format!("seeds: {seeds:?}"));
        self.healed = self.now;
        self.hosts[host].seeds.clone_from(&seeds);
        self.with(host, |node, now| node.handle_seeds(now, seeds));
    }

    /// A node that is bound does not learn of it from the driver, so its addresses stay what they were.
    pub(super) fn change_address(&mut self, host: usize, ip: IpAddr, appears: bool) {
        let free = self.hosts[host].node.as_ref().is_some_and(|node| !node.is_bound());
        let slot = &mut self.hosts[host];
        let endpoint = SocketAddr::from((ip, slot.config.node.endpoints[0].port()));
        if !free || appears == slot.config.node.endpoints.contains(&endpoint) {
            return;
        }
        if appears {
            slot.edit_endpoints(|endpoints| endpoints.push(endpoint));
            slot.gained.push(endpoint);
            self.by_address.entry(endpoint).or_default().push(host);
        } else {
            slot.edit_endpoints(|endpoints| endpoints.retain(|own| *own != endpoint));
            slot.lost.push(endpoint);
            self.forget_address(host, endpoint);
            self.starve(host, ip);
        }
        self.note(host, || format!("{ip} {}", if appears { "appears" } else { "vanishes" }));
        self.healed = self.now;
        if self.hosts[host].config.node.reach != Reach::default() {
            self.set_reach(host);
        }
        let endpoints = self.hosts[host].config.node.endpoints.clone();
        let reach = self.hosts[host].config.node.reach.clone();
        self.with(host, |node, now| node.handle_endpoints(now, endpoints, reach));
    }

    /// Nothing passes any more on a host's connections at an address that has vanished.
    fn starve(&mut self, host: usize, ip: IpAddr) {
        for (conn, _) in self.own_ends(host) {
            if self.address_at(conn, host) == Some(ip) {
                self.sever(conn);
            }
        }
    }
}
